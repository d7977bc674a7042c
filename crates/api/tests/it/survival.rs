//! What a newer writer may say survives an older reader's change.

use bowline_api::{Duration, v1, v2alpha1};
use serde_json::{Value, json};

/// A Backup as a later version may write it: new fields at every level, new words everywhere.
fn from_the_future() -> Value {
    json!({
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {"name": "b", "namespace": "velero"},
        "shape": "round",
        "spec": {
            "ttl": "36h0m0s",
            "colour": {"deep": [1, 2.5, null, {"x": "y"}]},
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "hooks": {"mode": "strict", "resources": [{
                "name": "h",
                "order": 3,
                "pre": [{"exec": {"command": ["a"], "onError": "Shrug", "user": "root"}, "http": {"path": "/"}}]
            }]},
            "uploaderConfig": {"parallelFilesUpload": 2, "compression": "zstd"},
        },
        "status": {
            "phase": "Teleporting",
            "progress": {"totalItems": 3, "bytes": 9_007_199_254_740_993_i64},
            "hookStatus": {"hooksAttempted": 1, "hooksSkipped": 0},
            "mood": "calm",
        },
    })
}

#[test]
fn unknown_fields_and_phases_survive_a_change() {
    let mut expected = from_the_future();
    let mut backup: v1::Backup = serde_json::from_value(expected.clone()).unwrap();
    assert_eq!(
        backup.status.as_ref().and_then(|s| s.phase.clone()),
        Some(v1::BackupPhase::Other("Teleporting".into()))
    );

    backup.status_mut().warnings = Some(2);
    backup.spec.ttl = Some(Duration::from_secs(3600));

    expected["status"]["warnings"] = 2.into();
    expected["spec"]["ttl"] = "1h0m0s".into();
    assert_eq!(serde_json::to_value(backup).unwrap(), expected);
}

#[test]
fn null_reads_as_absent() {
    let read: v1::Backup = serde_json::from_value(json!({
        "metadata": {"name": "b", "creationTimestamp": null},
        "spec": {"includedNamespaces": null, "labelSelector": null, "snapshotVolumes": null, "hooks": {"resources": null}},
        "status": {"expiration": null, "progress": null, "validationErrors": null},
    }))
    .unwrap();
    assert_eq!(
        serde_json::to_value(read).unwrap(),
        json!({"metadata": {"name": "b"}, "spec": {"hooks": {}}, "status": {}})
    );
}

#[test]
fn an_object_without_a_spec_is_readable() {
    // No schema requires `spec`, so one `kubectl create` must not blind every watcher of the kind.
    let bare = json!({"metadata": {"name": "x"}});
    for read in [
        serde_json::from_value::<v1::Backup>(bare.clone()).map(drop),
        serde_json::from_value::<v1::PodVolumeBackup>(bare.clone()).map(drop),
        serde_json::from_value::<v1::BackupStorageLocation>(bare.clone()).map(drop),
        serde_json::from_value::<v1::DownloadRequest>(bare.clone()).map(drop),
        serde_json::from_value::<v1::Schedule>(bare.clone()).map(drop),
        serde_json::from_value::<v2alpha1::DataUpload>(bare.clone()).map(drop),
    ] {
        read.unwrap();
    }
}

#[test]
fn a_bad_duration_does_not_hide_the_object() {
    let object = json!({"metadata": {"name": "b"}, "spec": {"ttl": "3 days"}});
    let backup: v1::Backup = serde_json::from_value(object.clone()).unwrap();
    let why = backup
        .spec
        .ttl
        .as_ref()
        .unwrap()
        .nanos()
        .unwrap_err()
        .to_string();
    assert!(why.contains("3 days"), "{why}");
    assert_eq!(serde_json::to_value(backup).unwrap(), object);
}

#[test]
fn absent_and_empty_are_told_apart() {
    for spec in [
        json!({}),
        json!({"ttl": "0s"}),
        json!({"includedNamespaces": []}),
        json!({"hooks": {}}),
    ] {
        let object = json!({"metadata": {}, "spec": spec});
        let read: v1::Backup = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), object);
    }
}
