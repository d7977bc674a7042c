//! Snapshots of several claims at one moment: VolumeGroupSnapshots. Pure.

use std::collections::BTreeMap;

use bowline_api::{
    names::{annotation, finalizer, label},
    v1::Backup,
};
use serde_json::{Value, json};

use super::{RETAIN, derived_name, owner_labels};
use crate::action::text;

/// The API group.
pub const GROUP: &str = "groupsnapshot.storage.k8s.io";
/// The version of it.
pub const VERSION: &str = "v1beta2";

/// The group that a claim is in: the value of the backup's label.
#[must_use]
pub fn of<'a>(claim: &'a Value, backup: &Backup) -> Option<&'a str> {
    let key = backup.spec.volume_group_snapshot_label_key.as_deref()?;
    let value = claim["metadata"]["labels"][key].as_str()?;
    (!key.is_empty() && !value.is_empty()).then_some(value)
}

/// The one driver of a group's volumes, by claim.
///
/// # Errors
/// When there are several, or none.
pub fn driver<'a>(
    members: impl IntoIterator<Item = (&'a str, &'a Value)>,
) -> Result<&'a str, String> {
    let mut found: Option<&str> = None;
    for (claim, volume) in members {
        let name = text(volume, "/metadata/name");
        let of = super::driver(volume)
            .ok_or_else(|| format!("PV {name} for PVC {claim} is not CSI provisioned"))?;
        match found {
            None => found = Some(of),
            Some(first) if first != of => {
                return Err(format!("found multiple CSI drivers: {first} and {of}"));
            }
            Some(_) => {}
        }
    }
    found.ok_or_else(|| "the group has no CSI volumes".to_owned())
}

/// The VolumeGroupSnapshotClass for a group of a driver; `claim` is any member.
///
/// # Errors
/// When nobody says which.
pub fn class<'a>(
    claim: &'a Value,
    backup: &'a BTreeMap<String, String>,
    driver: &str,
    classes: &'a [Value],
) -> Result<&'a str, String> {
    let of_claim = &claim["metadata"]["annotations"][annotation::CSI_VOLUME_GROUP_SNAPSHOT_CLASS];
    let key = format!(
        "{}{driver}",
        annotation::CSI_VOLUME_GROUP_SNAPSHOT_CLASS_PREFIX
    );
    let of_backup = backup.get(&key).map(String::as_str);
    let named = of_claim.as_str().filter(|name| !name.is_empty());
    if let Some(name) = named.or_else(|| of_backup.filter(|name| !name.is_empty())) {
        return Ok(name);
    }
    let mark = label::CSI_VOLUME_GROUP_SNAPSHOT_CLASS;
    let mut marked = classes.iter().filter(|class| {
        text(class, "/driver") == driver && class["metadata"]["labels"][mark] == "true"
    });
    match (marked.next(), marked.next()) {
        (Some(class), None) => Ok(text(class, "/metadata/name")),
        (None, _) => Err(format!(
            "no VolumeGroupSnapshotClass of driver {driver} has the label {mark}=true"
        )),
        (Some(_), Some(_)) => Err(format!(
            "several VolumeGroupSnapshotClasses of driver {driver} have the label {mark}=true"
        )),
    }
}

/// The VolumeGroupSnapshot to make.
#[must_use]
pub fn snapshot(namespace: &str, value: &str, class: &str, backup: &Backup, server: &str) -> Value {
    let key = backup.spec.volume_group_snapshot_label_key.as_deref();
    let key = key.unwrap_or_default();
    let mut labels = owner_labels(backup);
    labels.insert(key.to_owned(), json!(value));
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VolumeGroupSnapshot",
        "metadata": {
            "generateName": format!("velero-{}-", value.to_lowercase()),
            "namespace": namespace,
            "labels": labels,
            "annotations": {annotation::SNAPSHOT_TAKER: server},
        },
        "spec": {
            "volumeGroupSnapshotClassName": class,
            "source": {"selector": {"matchLabels": {key: value}}},
        },
    })
}

/// The members of a group by claim: VolumeSnapshots that it owns, as far as they say so themselves.
#[must_use]
pub fn members(group: &Value, snapshots: Vec<Value>) -> BTreeMap<String, Value> {
    let (uid, name) = (&group["metadata"]["uid"], text(group, "/metadata/name"));
    let is_member = |snapshot: &Value| {
        let owners = snapshot.pointer("/metadata/ownerReferences");
        let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
        owners.any(|owner| owner["uid"] == *uid)
            && text(snapshot, "/status/volumeGroupSnapshotName") == name
    };
    let mut found = BTreeMap::new();
    for snapshot in snapshots {
        let claim = text(&snapshot, "/spec/source/persistentVolumeClaimName").to_owned();
        if is_member(&snapshot) && !claim.is_empty() {
            found.insert(claim, snapshot);
        }
    }
    found
}

/// Makes a member an ordinary snapshot, by its metadata.
pub(super) fn leave(metadata: &mut Value) {
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        owners.retain(|owner| owner["kind"] != "VolumeGroupSnapshot");
        if owners.is_empty() {
            take(metadata, "ownerReferences");
        }
    }
    if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
        finalizers.retain(|name| name != finalizer::SNAPSHOT_IN_GROUP);
    }
}

/// What is written on the contents of members, as a patch: the handles of all that are in the group,
/// by its content. Some of them may not be in the backup.
#[must_use]
pub fn fellows(group: &Value) -> Option<Value> {
    let all = group["status"]["volumeSnapshotInfoList"].as_array()?;
    let handles: Vec<&str> = all
        .iter()
        .filter_map(|one| one["snapshotHandle"].as_str())
        .collect();
    Some(json!({"metadata": {"annotations": {annotation::GROUP_MEMBERS: handles.join(",")}}}))
}

fn take(object: &mut Value, key: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(key);
    }
}

/// What a restore puts where the content of a group was: drivers look for one with the group's handle.
#[derive(Debug, Clone, Copy)]
pub struct Stub<'a> {
    /// The restore, by name.
    pub restore: &'a str,
    /// The restore's uid.
    pub restore_uid: &'a str,
    /// The namespace of the snapshots.
    pub namespace: &'a str,
    /// The driver.
    pub driver: &'a str,
    /// The group, as the driver names it.
    pub handle: &'a str,
}

impl Stub<'_> {
    /// The object's name.
    #[must_use]
    pub fn name(&self) -> String {
        derived_name(self.restore_uid, self.handle)
    }

    /// The object, with one member; its Secret is that of a class of the same driver.
    #[must_use]
    pub fn object(&self, member: &str, classes: &[Value]) -> Value {
        let name = self.name();
        let mut annotations = serde_json::Map::new();
        let class = classes
            .iter()
            .find(|class| text(class, "/driver") == self.driver);
        for (parameter, key) in [
            (
                "csi.storage.k8s.io/group-snapshotter-secret-name",
                annotation::GROUP_DELETION_SECRET_NAME,
            ),
            (
                "csi.storage.k8s.io/group-snapshotter-secret-namespace",
                annotation::GROUP_DELETION_SECRET_NAMESPACE,
            ),
        ] {
            let said = class.and_then(|class| class["parameters"][parameter].as_str());
            if let Some(said) = said {
                annotations.insert(key.to_owned(), json!(said));
            }
        }
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "VolumeGroupSnapshotContent",
            "metadata": {
                "name": name,
                "labels": {label::RESTORE_NAME: bowline_api::names::label_value(self.restore)},
                "annotations": annotations,
            },
            "spec": {
                "deletionPolicy": RETAIN,
                "driver": self.driver,
                "source": {"groupSnapshotHandles": {
                    "volumeGroupSnapshotHandle": self.handle,
                    "volumeSnapshotHandles": [member],
                }},
                "volumeGroupSnapshotRef": {
                    "namespace": self.namespace,
                    "name": format!("stub-vgs-{}", &name[..8]),
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::{keep_snapshot, marks};

    fn volume(driver: &str) -> Value {
        match driver {
            "" => json!({"metadata": {"name": "pv"}, "spec": {"hostPath": {}}}),
            driver => json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": driver}}}),
        }
    }

    #[test]
    fn a_group_has_one_driver() {
        for (drivers, expected) in [
            (&["a", "a"][..], Ok("a")),
            (&["a", "b"], Err("found multiple CSI drivers: a and b")),
            (&["a", ""], Err("PV pv for PVC c is not CSI provisioned")),
            (&[], Err("the group has no CSI volumes")),
        ] {
            let volumes: Vec<Value> = drivers.iter().map(|driver| volume(driver)).collect();
            let found = driver(volumes.iter().map(|volume| ("c", volume)));
            assert_eq!(found, expected.map_err(str::to_owned));
        }
    }

    #[test]
    fn classes_are_named_or_marked() {
        let class_ = |name: &str, driver: &str, mark: &str| json!({"metadata": {"name": name, "labels": {"velero.io/csi-volumegroupsnapshot-class": mark}}, "driver": driver});
        let one = [
            class_("a", "d", "true"),
            class_("b", "d", "no"),
            class_("c", "e", "true"),
        ];
        let two = [class_("a", "d", "true"), class_("b", "d", "true")];
        let plain = json!({"metadata": {}});
        let named = json!({"metadata": {"annotations": {"velero.io/csi-volume-group-snapshot-class": "mine"}}});
        let none = BTreeMap::new();
        let key = "velero.io/csi-volumegroupsnapshot-class_d".to_owned();
        let backup = BTreeMap::from([(key, "ours".to_owned())]);
        for (claim, backup, classes, expected) in [
            (&plain, &none, &one[..], Some("a")),
            (&named, &backup, &one, Some("mine")),
            (&plain, &backup, &one, Some("ours")),
            (&plain, &none, &two, None),
            (&plain, &none, &one[1..], None),
        ] {
            assert_eq!(class(claim, backup, "d", classes).ok(), expected);
        }
    }

    #[test]
    fn members_are_known_by_their_owner_and_leave_it_in_the_archive() {
        let group = json!({"metadata": {"name": "g", "uid": "gu"}});
        let snapshot = |owner: &str, of: &str, claim: &str| {
            json!({
                "metadata": {
                    "name": claim,
                    "ownerReferences": [{"uid": owner, "kind": "VolumeGroupSnapshot"}],
                    "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection", "mine"],
                },
                "spec": {"source": {"persistentVolumeClaimName": claim}},
                "status": {"volumeGroupSnapshotName": of},
            })
        };
        let all = vec![
            snapshot("gu", "g", "a"),
            snapshot("gu", "", "b"),
            snapshot("xx", "g", "c"),
        ];
        let mut found = members(&group, all);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a"]);
        let member = found.get_mut("a").unwrap();
        let before = member.clone();
        keep_snapshot(member);
        assert_eq!(*member, before, "somebody else's stays as it is");

        let mut backup = Backup::default();
        backup.metadata.name = Some("b".repeat(70));
        backup.metadata.uid = Some("bu".to_owned());
        let marks = marks(&backup, "velero");
        member["metadata"]["labels"] = marks["metadata"]["labels"].clone();
        keep_snapshot(member);
        let metadata = &mut member["metadata"];
        assert_eq!(metadata["ownerReferences"], Value::Null);
        assert_eq!(metadata["finalizers"], json!(["mine"]));
        let labels: Vec<&String> = metadata["labels"].as_object().unwrap().keys().collect();
        assert_eq!(labels, ["velero.io/backup-name", "velero.io/backup-uid"]);
        let name = metadata["labels"]["velero.io/backup-name"].as_str();
        assert_eq!(name.unwrap().len(), 63);
        metadata["ownerReferences"] = json!([{"kind": "Job"}]);
        keep_snapshot(member);
        let owners = &member["metadata"]["ownerReferences"];
        assert_eq!(*owners, json!([{"kind": "Job"}]));
    }

    #[test]
    fn a_member_knows_its_fellows() {
        let handles =
            json!([{"snapshotHandle": "a", "volumeHandle": "v"}, {"snapshotHandle": "b"}]);
        let group = json!({"status": {"volumeSnapshotInfoList": handles}});
        assert_eq!(
            fellows(&group),
            Some(json!({"metadata": {"annotations": {"bowline.io/group-members": "a,b"}}}))
        );
        assert_eq!(fellows(&json!({})), None);
    }
}
