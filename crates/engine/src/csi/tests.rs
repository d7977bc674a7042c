use super::*;

#[test]
fn a_snapshot_has_the_labels_of_its_claim_and_of_the_backup() {
    let mut backup = Backup::default();
    backup.metadata.name = Some("b".repeat(70));
    backup.metadata.uid = Some("u".to_owned());
    let claim = json!({"metadata": {"namespace": "shop", "name": "data", "labels": {"app": "shop", "velero.io/backup-name": "old", "velero.io/restore-name": "r"}}});
    let snapshot = snapshot_of(&claim, "fast", &backup, "velero");
    assert_eq!(
        snapshot,
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {
                "generateName": "velero-data-", "namespace": "shop",
                "labels": {"app": "shop", "velero.io/backup-name": label_value(&"b".repeat(70)), "velero.io/backup-uid": "u", "velero.io/exclude-from-backup": "true"},
                "annotations": {"bowline.io/server-namespace": "velero"},
            },
            "spec": {"source": {"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": "fast"},
        })
    );
}

#[test]
fn annotations_tell_what_the_content_is() {
    let whole = json!({
        "spec": {"deletionPolicy": "Delete", "driver": "d"},
        "status": {"snapshotHandle": "h", "restoreSize": 5_i64 << 30, "volumeGroupSnapshotHandle": "g"},
    });
    let expected = [
        ("velero.io/csi-driver-name", "d"),
        ("velero.io/csi-volumegroupsnapshot-handle", "g"),
        ("velero.io/csi-volumesnapshot-handle", "h"),
        ("velero.io/csi-volumesnapshot-restore-size", "5Gi"),
        ("velero.io/csi-vsc-deletion-policy", "Delete"),
    ];
    let found = annotations(&whole);
    let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (*k, v.as_str())).collect();
    assert_eq!(found, expected);
    let bare = annotations(&json!({"spec": {"deletionPolicy": "Retain", "driver": "d"}}));
    assert_eq!(
        bare.into_iter().collect::<Vec<_>>(),
        [("velero.io/csi-vsc-deletion-policy", "Retain".to_owned())]
    );
}

#[test]
fn derived_names_are_those_of_velero() {
    // printf 'u/velero-data-x' | sha256sum
    assert_eq!(derived_name("u", "velero-data-x"), DERIVED);
}

/// What sha256sum says.
const DERIVED: &str = "8ca1e7d471cdc09b40fa6ce53d97e1b3ee053aed83a285c12ca12519da192b62";

#[test]
fn only_volumes_of_a_driver_are_csi() {
    assert_eq!(
        driver(&json!({"spec": {"csi": {"driver": "d"}}})),
        Some("d")
    );
    assert_eq!(driver(&json!({"spec": {"hostPath": {}}})), None);
    assert_eq!(driver(&json!({"spec": {"csi": null}})), None);
}
