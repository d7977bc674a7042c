//! What an archive says of a claim that has a snapshot, and what a snapshot brings along.

use bowline_api::{
    Quantity,
    names::{annotation, label},
    v2alpha1::DataUpload,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Cut, group, restore_size};
use crate::action::{Related, text};

/// Says in a claim's copy which snapshot it has, and asks for as much room as that needs.
pub fn keep_claim(claim: &mut Value, cut: &Cut, backup: &str) {
    name_snapshot(claim, cut, backup);
    let Some(needed) = restore_size(&cut.content).map(Quantity::from_bytes) else {
        return;
    };
    let asked = text(claim, "/spec/resources/requests/storage");
    if asked.parse::<Quantity>().is_ok_and(|asked| asked < needed) {
        claim["spec"]["resources"]["requests"]["storage"] = json!(needed.to_string());
    }
}

/// Says in a claim's copy which upload has its data.
pub fn keep_moved_claim(claim: &mut Value, cut: &Cut, upload: &DataUpload, backup: &str) {
    name_snapshot(claim, cut, backup);
    let namespace = upload.namespace().unwrap_or_default();
    let place = format!("{namespace}/{}", upload.name_any());
    claim["metadata"]["annotations"][annotation::DATA_UPLOAD_NAME] = json!(place);
}

fn name_snapshot(claim: &mut Value, cut: &Cut, backup: &str) {
    let name = cut.name();
    let metadata = &mut claim["metadata"];
    metadata["labels"][label::VOLUME_SNAPSHOT_NAME] = json!(name);
    metadata["labels"][label::BACKUP_NAME] = json!(backup);
    metadata["annotations"][label::VOLUME_SNAPSHOT_NAME] = json!(name);
}

/// What is true of a snapshot or content only while its backup is made is not so in the archive.
pub fn keep_snapshot(object: &mut Value) {
    let metadata = &mut object["metadata"];
    if !metadata["labels"][label::BACKUP_UID].is_string() {
        return;
    }
    if let Some(labels) = metadata["labels"].as_object_mut() {
        labels.remove(label::EXCLUDE_FROM_BACKUP);
    }
    group::leave(metadata);
}

/// The Secret that a content's snapshot is deleted with.
#[must_use]
pub fn content_secret(content: &Value) -> Option<Related> {
    secret(
        content,
        annotation::SNAPSHOTTER_SECRET_NAME,
        annotation::SNAPSHOTTER_SECRET_NAMESPACE,
    )
}

/// The Secret that snapshots of a class are listed with.
#[must_use]
pub fn lister_secret(class: &Value) -> Option<Related> {
    secret(
        class,
        annotation::SNAPSHOTTER_LIST_SECRET_NAME,
        annotation::SNAPSHOTTER_LIST_SECRET_NAMESPACE,
    )
}

fn secret(object: &Value, name: &str, namespace: &str) -> Option<Related> {
    let annotations = &object["metadata"]["annotations"];
    let said = |key: &str| annotations[key].as_str().filter(|text| !text.is_empty());
    Some(Related::new("secrets", said(namespace)?, said(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_asks_for_what_its_snapshot_needs() {
        let claim = |size: &str| json!({"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"resources": {"requests": {"storage": size}}}});
        for (asked, size, kept) in [
            ("1Gi", json!(2_i64 << 30), "2Gi"),
            ("3Gi", json!(2_i64 << 30), "3Gi"),
            ("1Gi", json!(0), "1Gi"),
            ("1Gi", Value::Null, "1Gi"),
        ] {
            let cut = Cut {
                snapshot: json!({"metadata": {"name": "velero-data-x"}}),
                content: json!({"status": {"restoreSize": size}}),
                upload: None,
            };
            let mut object = claim(asked);
            keep_claim(&mut object, &cut, "b");
            let mut expected = claim(kept);
            expected["metadata"]["labels"] = json!({"a": "b", "velero.io/backup-name": "b", "velero.io/volume-snapshot-name": "velero-data-x"});
            expected["metadata"]["annotations"] =
                json!({"velero.io/volume-snapshot-name": "velero-data-x"});
            assert_eq!(object, expected);
        }
    }

    #[test]
    fn secrets_are_named_by_two_annotations_or_not_at_all() {
        let with = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let name = "csi.storage.k8s.io/snapshotter-secret-name";
        let namespace = "csi.storage.k8s.io/snapshotter-secret-namespace";
        let both = with(json!({name: "s", namespace: "n"}));
        assert_eq!(
            content_secret(&both),
            Some(Related::new("secrets", "n", "s"))
        );
        assert_eq!(content_secret(&with(json!({name: "s"}))), None);
        assert_eq!(lister_secret(&both), None);
        let name = "csi.storage.k8s.io/snapshotter-list-secret-name";
        let namespace = "csi.storage.k8s.io/snapshotter-list-secret-namespace";
        let both = with(json!({name: "s", namespace: "n"}));
        assert_eq!(
            lister_secret(&both),
            Some(Related::new("secrets", "n", "s"))
        );
    }
}
