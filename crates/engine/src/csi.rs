//! CSI snapshots as objects: what they are called, what is in them, and what becomes of them in an
//! archive. Pure; who talks to the cluster is elsewhere.

pub mod class;
pub mod exposed;
pub mod group;
mod kept;
pub mod operation;
pub mod temporary;

use std::collections::BTreeMap;

use bowline_api::{
    Quantity,
    names::{annotation, label, label_value},
    v1::Backup,
    v2alpha1::DataUpload,
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use kept::{content_secret, keep_claim, keep_moved_claim, keep_snapshot, lister_secret};

use crate::action::text;

/// The API group of snapshots.
pub const GROUP: &str = "snapshot.storage.k8s.io";
/// The version of it.
pub const VERSION: &str = "v1";
/// VolumeSnapshots, as resources are named.
pub const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
/// VolumeSnapshotContents.
pub const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
/// VolumeSnapshotClasses.
pub const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";

/// The storage goes with the object.
pub const DELETE: &str = "Delete";
/// The storage stays when the object goes.
pub const RETAIN: &str = "Retain";

/// A snapshot that was taken: the object, and what its driver has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cut {
    /// The VolumeSnapshot.
    pub snapshot: Value,
    /// The VolumeSnapshotContent it is bound to.
    pub content: Value,
    /// Its data is moved into the bucket, and it is of no use after that.
    pub upload: Option<Box<DataUpload>>,
}

impl Cut {
    /// The VolumeSnapshot's name.
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.snapshot, "/metadata/name")
    }

    /// The moment that its data is of.
    #[must_use]
    pub fn taken_at(&self) -> Option<Timestamp> {
        let said = text(&self.snapshot, "/status/creationTime").parse().ok();
        said.or_else(|| {
            let nanos = self.content.pointer("/status/creationTime")?.as_i64()?;
            Timestamp::from_nanosecond(i128::from(nanos)).ok()
        })
    }
}

/// The driver of a CSI volume; none for any other.
#[must_use]
pub fn driver(volume: &Value) -> Option<&str> {
    let csi = volume.pointer("/spec/csi").filter(|csi| csi.is_object())?;
    Some(text(csi, "/driver"))
}

/// The content that a VolumeSnapshot is bound to.
#[must_use]
pub fn bound_content(snapshot: &Value) -> Option<&str> {
    let name = text(snapshot, "/status/boundVolumeSnapshotContentName");
    (!name.is_empty()).then_some(name)
}

/// The snapshot as the driver names it.
#[must_use]
pub fn handle(content: &Value) -> Option<&str> {
    let handle = text(content, "/status/snapshotHandle");
    (!handle.is_empty()).then_some(handle)
}

/// The group snapshot that a content is part of, as the driver names it.
#[must_use]
pub fn group_handle(content: &Value) -> Option<&str> {
    let handle = text(content, "/status/volumeGroupSnapshotHandle");
    (!handle.is_empty()).then_some(handle)
}

/// What the driver or the controller says is wrong with a snapshot or content.
#[must_use]
pub fn error(object: &Value) -> Option<&str> {
    let error = object.pointer("/status/error").filter(|e| e.is_object())?;
    Some(text(error, "/message"))
}

/// How many bytes a volume made of a content needs; none if its driver does not say.
#[must_use]
pub fn restore_size(content: &Value) -> Option<i64> {
    let size = content.pointer("/status/restoreSize")?.as_i64();
    size.filter(|size| *size > 0)
}

/// The VolumeSnapshot to make of a claim.
#[must_use]
pub fn snapshot_of(claim: &Value, class: &str, backup: &Backup, server: &str) -> Value {
    let name = text(claim, "/metadata/name");
    let mut labels = match claim.pointer("/metadata/labels") {
        Some(Value::Object(labels)) => labels.clone(),
        _ => Map::new(),
    };
    // Where the claim itself came from.
    for past in [label::RESTORE_NAME, label::VOLUME_SNAPSHOT_NAME] {
        labels.remove(past);
    }
    labels.extend(owner_labels(backup));
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VolumeSnapshot",
        "metadata": {
            "generateName": format!("velero-{name}-"),
            "namespace": text(claim, "/metadata/namespace"),
            "labels": labels,
            "annotations": {annotation::SNAPSHOT_TAKER: server},
        },
        "spec": {
            "source": {"persistentVolumeClaimName": name},
            "volumeSnapshotClassName": class,
        },
    })
}

/// What is written on all that a backup makes in the cluster, as a patch.
#[must_use]
pub fn marks(backup: &Backup, server: &str) -> Value {
    json!({"metadata": {
        "labels": owner_labels(backup),
        "annotations": {annotation::SNAPSHOT_TAKER: server},
    }})
}

/// Labels of what a backup makes in the cluster: whose it is, and that no other backup copies it.
fn owner_labels(backup: &Backup) -> Map<String, Value> {
    let pairs = [
        (label::BACKUP_NAME, label_value(&backup.name_any())),
        (label::BACKUP_UID, backup.uid().unwrap_or_default()),
        (label::EXCLUDE_FROM_BACKUP, "true".to_owned()),
    ];
    let pair = |(key, value): (&str, String)| (key.to_owned(), Value::String(value));
    pairs.into_iter().map(pair).collect()
}

/// What a VolumeSnapshot says of its content, so that it can be restored without it.
#[must_use]
pub fn annotations(content: &Value) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    let policy = text(content, "/spec/deletionPolicy").to_owned();
    found.insert(annotation::CSI_VSC_DELETION_POLICY, policy);
    if let Some(handle) = handle(content) {
        found.insert(annotation::CSI_VOLUME_SNAPSHOT_HANDLE, handle.to_owned());
        let driver = text(content, "/spec/driver").to_owned();
        found.insert(annotation::CSI_DRIVER_NAME, driver);
    }
    if let Some(size) = restore_size(content) {
        let size = Quantity::from_bytes(size).to_string();
        found.insert(annotation::CSI_VOLUME_SNAPSHOT_RESTORE_SIZE, size);
    }
    if let Some(group) = group_handle(content) {
        let group = group.to_owned();
        found.insert(annotation::CSI_VOLUME_GROUP_SNAPSHOT_HANDLE, group);
    }
    found
}

/// What a restore calls a VolumeSnapshot and its content, or the content of a group by its handle.
#[must_use]
pub fn derived_name(restore_uid: &str, name: &str) -> String {
    let digest = Sha256::digest(format!("{restore_uid}/{name}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
