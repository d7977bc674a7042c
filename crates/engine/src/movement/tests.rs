use serde::de::DeserializeOwned;

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn claim() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "data", "uid": "c1"},
        "spec": {"storageClassName": "fast", "volumeName": "pv-1"},
    })
}

fn backup(spec: Value) -> Backup {
    read(json!({"metadata": {"namespace": "velero", "name": "b", "uid": "bu"}, "spec": spec}))
}

fn restore(spec: Value) -> Restore {
    read(json!({"metadata": {"namespace": "velero", "name": "r", "uid": "ru"}, "spec": spec}))
}

fn uploaded(datamover: &str, status: Value) -> DataUpload {
    read(json!({
        "metadata": {"namespace": "velero", "name": "b-x"},
        "spec": {
            "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop", "datamover": datamover,
            "backupStorageLocation": "theirs", "operationTimeout": "10m0s",
        },
        "status": status,
    }))
}

#[test]
fn movers_go_by_their_names() {
    for (name, of, asked) in [
        (None, Mover::Velero, Mover::Ours),
        (Some(""), Mover::Velero, Mover::Ours),
        (Some("velero"), Mover::Velero, Mover::Ours),
        (Some("bowline"), Mover::Ours, Mover::Ours),
        (Some("x"), Mover::Other("x"), Mover::Other("x")),
    ] {
        assert_eq!(
            (Mover::of(name), Mover::asked(name)),
            (of, asked),
            "{name:?}"
        );
    }
    let names = [Mover::Ours, Mover::Velero, Mover::Other("x")];
    assert_eq!(
        names.each_ref().map(Mover::name),
        ["bowline", "velero", "x"]
    );
}

#[test]
fn operations_are_labels() {
    assert_eq!(upload_operation("bu", "c1"), "du-bu.c1");
    assert_eq!(download_operation("ru", "c1"), "dd-ru.c1");
    let uid = |digit: &str| digit.repeat(36);
    let [one, other] = ["2", "3"].map(|claim| download_operation(&uid("1"), &uid(claim)));
    assert_eq!((one.len(), other.len()), (63, 63));
    assert_ne!(one, other);
}

#[test]
fn an_upload_says_what_it_moves_and_for_whom() {
    let cut = Cut {
        snapshot: json!({"metadata": {"name": "velero-data-x"}, "spec": {"volumeSnapshotClassName": "class"}}),
        content: json!({"metadata": {"name": "content"}, "spec": {"driver": "d"}}),
        upload: None,
    };
    let spec = json!({
        "storageLocation": "default", "csiSnapshotTimeout": "10m0s", "uploaderConfig": {"parallelFilesUpload": 4},
    });
    let upload = upload(&claim(), &cut, &backup(spec), "velero");
    assert_eq!(
        serde_json::to_value(&upload).unwrap(),
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
            "metadata": {
                "generateName": "b-", "namespace": "velero",
                "labels": {
                    "velero.io/backup-name": "b", "velero.io/backup-uid": "bu", "velero.io/pvc-uid": "c1",
                    "velero.io/async-operation-id": "du-bu.c1",
                },
                "annotations": {"bowline.io/snapshot-content": "content"},
                "ownerReferences": [{
                    "apiVersion": "velero.io/v1", "kind": "Backup", "name": "b", "uid": "bu", "controller": true,
                }],
            },
            "spec": {
                "snapshotType": "CSI",
                "csiSnapshot": {
                    "volumeSnapshot": "velero-data-x", "storageClass": "fast", "snapshotClass": "class", "driver": "d",
                },
                "sourcePVC": "data", "sourceNamespace": "shop", "datamover": "bowline",
                "backupStorageLocation": "default", "dataMoverConfig": {"ParallelFilesUpload": "4"},
                "operationTimeout": "10m0s",
            },
        })
    );
}

#[test]
fn a_download_has_what_the_upload_left_and_a_name_of_its_own() {
    let upload = uploaded(
        "bowline",
        json!({
            "phase": "Completed", "snapshotID": "1a2b", "nodeOS": "linux", "dataMoverResult": {"a": "b"},
            "progress": {"totalBytes": 7, "bytesDone": 7},
        }),
    );
    let spec = json!({"uploaderConfig": {"writeSparseFiles": true, "parallelFilesDownload": 3}});
    let of = |claim: &Value| {
        let target = ("copy", "data");
        download(&upload, claim, target, &restore(spec.clone()), "ours")
    };
    let mut made = serde_json::to_value(of(&claim())).unwrap();
    let name = made["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("r-"), "{name}");
    assert_eq!(
        made,
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload",
            "metadata": {
                "name": null, "namespace": "velero",
                "labels": {
                    "velero.io/restore-name": "r", "velero.io/restore-uid": "ru",
                    "velero.io/async-operation-id": "dd-ru.c1",
                },
                "ownerReferences": [{
                    "apiVersion": "velero.io/v1", "kind": "Restore", "name": "r", "uid": "ru", "controller": true,
                }],
            },
            "spec": {
                "targetVolume": {"namespace": "copy", "pvc": "data", "pv": ""},
                // By its name in this cluster, whatever it was called where the backup was made.
                "backupStorageLocation": "ours", "datamover": "bowline", "snapshotID": "1a2b",
                "sourceNamespace": "shop", "operationTimeout": "10m0s", "nodeOS": "linux", "snapshotSize": 7,
                "dataMoverConfig": {"a": "b", "ParallelFilesDownload": "3", "WriteSparseFiles": "true"},
            },
        })
    );
    assert_eq!(json!(of(&claim()).metadata.name), name);
    let mut other = claim();
    other["metadata"]["uid"] = json!("c2");
    assert_ne!(json!(of(&other).metadata.name), name);
}

#[test]
fn settings_that_nobody_has_are_not_there() {
    let upload = uploaded("x", json!({"phase": "Completed", "snapshotID": "1a2b"}));
    for (config, expected) in [
        (json!(null), json!(null)),
        (json!({"parallelFilesDownload": 0}), json!(null)),
        (
            json!({"writeSparseFiles": false}),
            json!({"WriteSparseFiles": "false"}),
        ),
    ] {
        let restore = restore(json!({"uploaderConfig": config}));
        let made = download(&upload, &claim(), ("shop", "data"), &restore, "l");
        assert_eq!(json!(made.spec.data_mover_config), expected, "{config}");
    }
    for config in [json!(null), json!({"parallelFilesUpload": 0})] {
        let backup = backup(json!({"uploaderConfig": config}));
        assert_eq!(upload_settings(&backup), None, "{config}");
    }
}

#[test]
fn a_claim_that_waits_asks_for_a_volume_that_nobody_makes() {
    let mut claim = json!({"spec": {
        "volumeName": "pv-1", "dataSource": {}, "dataSourceRef": {}, "storageClassName": "fast",
        "selector": {"matchLabels": {"velero.io/dynamic-pv-restore": "old"}},
    }});
    await_download(&mut claim, ("copy", "data"), "a1b2c");
    assert_eq!(
        claim,
        json!({"spec": {
            "storageClassName": "fast",
            "selector": {"matchLabels": {"velero.io/dynamic-pv-restore": "copy.data.a1b2c"}},
        }})
    );
    await_download(&mut claim, ("copy", &"d".repeat(80)), "a1b2c");
    let wanted = &claim["spec"]["selector"]["matchLabels"]["velero.io/dynamic-pv-restore"];
    assert_eq!(wanted.as_str().unwrap().len(), 63);
}
