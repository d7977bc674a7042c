//! A snapshot in another namespace than it was taken in, so that a volume can be made of it there. What
//! the driver has is not theirs: it stays when they go. Pure.

use bowline_api::names::{annotation, label, label_value};
use serde_json::{Map, Value, json};

use super::{GROUP, RETAIN, VERSION, handle};
use crate::action::text;

/// Whose side of the driver looks after a content, where there are several.
const MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";

/// The content, made of one that was taken; none if that has no snapshot yet. `upload` is the DataUpload
/// that it is for.
#[must_use]
pub fn content(taken: &Value, upload: &str, namespace: &str) -> Option<Value> {
    let handle = handle(taken)?;
    let mut annotations = match taken.pointer("/metadata/annotations") {
        Some(Value::Object(annotations)) => annotations.clone(),
        _ => Map::new(),
    };
    for own in [
        annotation::SNAPSHOT_BEING_DELETED,
        annotation::SNAPSHOT_TAKER,
        annotation::GROUP_MEMBERS,
        annotation::MEMBER_OF_GROUP,
    ] {
        annotations.remove(own);
    }
    let mut labels = labels(upload);
    if let Some(manager) = taken["metadata"]["labels"].get(MANAGED_BY) {
        labels.insert(MANAGED_BY.to_owned(), manager.clone());
    }
    let mut spec = json!({
        "deletionPolicy": RETAIN,
        "driver": taken["spec"]["driver"],
        "source": {"snapshotHandle": handle},
        "volumeSnapshotRef": {
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "VolumeSnapshot",
            "namespace": namespace,
            "name": upload,
        },
    });
    for key in ["sourceVolumeMode", "volumeSnapshotClassName"] {
        let said = text(&taken["spec"], &format!("/{key}"));
        if !said.is_empty() {
            spec[key] = json!(said);
        }
    }
    Some(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VolumeSnapshotContent",
        "metadata": {"name": upload, "labels": labels, "annotations": annotations},
        "spec": spec,
    }))
}

/// The snapshot of that content.
#[must_use]
pub fn snapshot(upload: &str, namespace: &str, owner: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VolumeSnapshot",
        "metadata": {
            "name": upload,
            "namespace": namespace,
            "labels": labels(upload),
            "ownerReferences": [owner],
        },
        "spec": {"source": {"volumeSnapshotContentName": upload}},
    })
}

fn labels(upload: &str) -> Map<String, Value> {
    let pairs = [
        (label::DATA_UPLOAD, label_value(upload)),
        (label::EXCLUDE_FROM_BACKUP, "true".to_owned()),
    ];
    let pair = |(key, value): (&str, String)| (key.to_owned(), Value::String(value));
    pairs.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_storage_stays_when_an_exposed_content_goes() {
        let taken = json!({
            "metadata": {
                "name": "c",
                "labels": {"velero.io/backup-uid": "u", MANAGED_BY: "node-1"},
                "annotations": {
                    "snapshot.storage.kubernetes.io/deletion-secret-name": "s",
                    "bowline.io/server-namespace": "velero",
                },
            },
            "spec": {"deletionPolicy": "Delete", "driver": "d", "sourceVolumeMode": "Block"},
            "status": {"snapshotHandle": "h"},
        });
        let made = content(&taken, "b-x1", "velero").unwrap();
        assert_eq!(made["spec"]["deletionPolicy"], RETAIN);
        assert_eq!(made["spec"]["source"], json!({"snapshotHandle": "h"}));
        assert_eq!(made["spec"]["sourceVolumeMode"], "Block");
        let metadata = &made["metadata"];
        assert_eq!(
            metadata["labels"],
            json!({
                MANAGED_BY: "node-1", "velero.io/data-upload": "b-x1",
                "velero.io/exclude-from-backup": "true",
            })
        );
        assert_eq!(metadata["annotations"].as_object().unwrap().len(), 1);
        let snapshot = snapshot("b-x1", "velero", &json!({"uid": "du"}));
        let of = &made["spec"]["volumeSnapshotRef"];
        assert_eq!(of["name"], snapshot["metadata"]["name"]);
        assert_eq!(content(&json!({"metadata": {}}), "b", "velero"), None);
    }
}
