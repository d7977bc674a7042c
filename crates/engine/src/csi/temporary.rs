//! A content made only to be deleted, so that its driver deletes the snapshot behind it. Pure.

use std::collections::BTreeSet;

use bowline_api::names::{annotation, finalizer, label};
use serde_json::{Value, json};

use super::{DELETE, GROUP, VERSION, derived_name, group, handle};
use crate::action::text;

/// The content for a snapshot of a content in an archive; none if that had no snapshot. Always the same
/// one, so that whoever takes up a deletion finds it.
///
/// It has its finalizer from the beginning: the driver's side would else have to be quick to put it
/// there before the content is deleted.
#[must_use]
pub fn content(kept: &Value, backup_uid: &str) -> Option<Value> {
    let handle = handle(kept)?;
    let uid = match text(kept, "/metadata/uid") {
        "" => text(kept, "/metadata/name"),
        uid => uid,
    };
    let id = derived_name(backup_uid, text(kept, "/metadata/name"));
    let mut annotations = match kept.pointer("/metadata/annotations") {
        Some(Value::Object(annotations)) => annotations.clone(),
        _ => serde_json::Map::new(),
    };
    annotations.remove(annotation::SNAPSHOT_BEING_DELETED);
    let mut spec = kept["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("volumeSnapshotClassName");
        spec.insert("deletionPolicy".to_owned(), json!(DELETE));
        spec.insert("source".to_owned(), json!({"snapshotHandle": handle}));
        let of = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "VolumeSnapshot",
            "namespace": format!("ns-{uid}"),
            "name": format!("name-{uid}"),
        });
        spec.insert("volumeSnapshotRef".to_owned(), of);
    }
    Some(json!({
        "apiVersion": kept["apiVersion"],
        "kind": kept["kind"],
        "metadata": {
            "name": format!("vsc-{}", uuid(&id)),
            "labels": labels(kept),
            "annotations": annotations,
            "finalizers": [finalizer::SNAPSHOT_CONTENT],
        },
        "spec": spec,
    }))
}

/// The content for all snapshots of a group, by contents in an archive; none if they had none. What was
/// taken together is deleted together.
#[must_use]
pub fn group(handle: &str, members: &[&Value], backup_uid: &str) -> Option<Value> {
    let first = members.first()?;
    let mut handles: BTreeSet<&str> = members
        .iter()
        .filter_map(|kept| super::handle(kept))
        .collect();
    if handles.is_empty() {
        return None;
    }
    // A driver may insist on being told all of them.
    for kept in members {
        let all = kept["metadata"]["annotations"][annotation::GROUP_MEMBERS].as_str();
        let all = all.into_iter().flat_map(|all| all.split(','));
        handles.extend(all.filter(|handle| !handle.is_empty()));
    }
    let id = uuid(&derived_name(backup_uid, handle));
    let mut annotations = serde_json::Map::new();
    for (member, group) in annotation::GROUP_DELETION_SECRET {
        if let Some(value) = first["metadata"]["annotations"].get(member) {
            annotations.insert(group.to_owned(), value.clone());
        }
    }
    Some(json!({
        "apiVersion": format!("{}/{}", group::GROUP, group::VERSION),
        "kind": "VolumeGroupSnapshotContent",
        "metadata": {
            "name": format!("vgsc-{id}"),
            "labels": labels(first),
            "annotations": annotations,
            "finalizers": [finalizer::GROUP_SNAPSHOT_CONTENT],
        },
        "spec": {
            "driver": first["spec"]["driver"],
            "deletionPolicy": DELETE,
            "source": {"groupSnapshotHandles": {
                "volumeGroupSnapshotHandle": handle,
                "volumeSnapshotHandles": handles,
            }},
            "volumeGroupSnapshotRef": {
                "apiVersion": format!("{}/{}", group::GROUP, group::VERSION),
                "kind": "VolumeGroupSnapshot",
                "namespace": format!("ns-{id}"),
                "name": format!("name-{id}"),
            },
        },
    }))
}

/// As they were, but for whose it is: nobody is to see it out as a snapshot of the backup.
fn labels(kept: &Value) -> Value {
    let mut labels = kept["metadata"]["labels"].clone();
    if let Some(labels) = labels.as_object_mut() {
        labels.remove(label::BACKUP_UID);
    }
    labels
}

/// Hex digits in the form of a UUID.
fn uuid(hex: &str) -> String {
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..32],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_content_is_unbound_and_deletes() {
        let kept = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {
                "name": "snapcontent-1", "uid": "u1", "resourceVersion": "7", "labels": {"velero.io/backup-name": "b", "velero.io/backup-uid": "u"},
                "annotations": {"snapshot.storage.kubernetes.io/deletion-secret-name": "s", "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"},
            },
            "spec": {"driver": "d", "deletionPolicy": "Retain", "source": {"volumeHandle": "v"}, "sourceVolumeMode": "Block", "volumeSnapshotClassName": "c", "volumeSnapshotRef": {"uid": "x"}},
            "status": {"snapshotHandle": "h"},
        });
        let made = content(&kept, "backup-uid").unwrap();
        assert_eq!(content(&kept, "backup-uid"), Some(made.clone()));
        let name = text(&made, "/metadata/name");
        assert!(
            name.starts_with("vsc-") && name.len() == "vsc-".len() + 36,
            "{name}"
        );
        assert_ne!(
            content(&kept, "another").unwrap()["metadata"]["name"],
            made["metadata"]["name"]
        );
        assert_eq!(
            made["spec"],
            json!({
                "driver": "d", "deletionPolicy": "Delete", "source": {"snapshotHandle": "h"}, "sourceVolumeMode": "Block",
                "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "namespace": "ns-u1", "name": "name-u1"},
            })
        );
        assert_eq!(
            made["metadata"]["annotations"],
            json!({"snapshot.storage.kubernetes.io/deletion-secret-name": "s"})
        );
        assert_eq!(
            made["metadata"]["finalizers"],
            json!(["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"])
        );
        let labels = &made["metadata"]["labels"];
        assert_eq!(*labels, json!({"velero.io/backup-name": "b"}));
        assert_eq!(content(&json!({"status": {}}), "b"), None);
    }

    #[test]
    fn a_group_goes_with_all_its_snapshots() {
        let member = |handle: &str| {
            json!({
                "metadata": {"name": handle, "labels": {"velero.io/backup-name": "b"}, "annotations": {
                    "bowline.io/group-members": "h1,h2,h3",
                    "snapshot.storage.kubernetes.io/deletion-secret-name": "s",
                    "snapshot.storage.kubernetes.io/deletion-secret-namespace": "n",
                }},
                "spec": {"driver": "d"},
                "status": {"snapshotHandle": handle, "volumeGroupSnapshotHandle": "g"},
            })
        };
        let members = [member("h1"), member("h2")];
        let members: Vec<&Value> = members.iter().collect();
        let made = group("g", &members, "uid").unwrap();
        assert_eq!(
            made["spec"]["source"]["groupSnapshotHandles"],
            json!({"volumeGroupSnapshotHandle": "g", "volumeSnapshotHandles": ["h1", "h2", "h3"]})
        );
        assert_eq!(made["spec"]["deletionPolicy"], "Delete");
        assert_eq!(made["spec"]["volumeGroupSnapshotRef"]["uid"], Value::Null);
        assert_eq!(
            made["metadata"]["annotations"],
            json!({
                "groupsnapshot.storage.kubernetes.io/deletion-secret-name": "s",
                "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace": "n",
            })
        );
        assert_eq!(group("g", &members, "uid"), Some(made));
        assert_eq!(group("g", &[&json!({})], "uid"), None);
    }
}
