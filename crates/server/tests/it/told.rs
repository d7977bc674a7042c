//! What a restore says of its volumes: every way back in one restore, and what is said when the cluster
//! does not answer. The test plays the node, the drivers and the data mover.

use std::{fs, io::Read};

use bowline_api::v1::{Backup, BackupStorageLocation, PodVolumeRestore, Restore, RestorePhase};
use bowline_api::v2alpha1::DataDownload;
use bowline_apiserver::{Fault, Rule, When};
use bowline_server::controllers::restore;
use bowline_vault::{
    Bucket,
    archive::write::{Batch, Packer, stream},
};
use futures::TryStreamExt;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::scene::{Scene, eventually};

const FILE: &str = "restores/r/r-volumeinfo.json.gz";

/// A claim of the archive.
fn claim(name: &str, volume: &str, more: Value) -> (String, Value) {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    (
        format!("resources/persistentvolumeclaims/namespaces/shop/{name}.json"),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name}, "spec": spec, "status": {"phase": "Bound"},
        }),
    )
}

fn volume(name: &str, claim: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "persistentVolumeReclaimPolicy": policy, "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
            "claimRef": {"namespace": "shop", "name": claim},
        },
        "status": {"phase": "Bound"},
    })
}

fn in_archive(volume: Value) -> (String, Value) {
    let name = volume["metadata"]["name"].as_str().unwrap();
    (
        format!("resources/persistentvolumes/cluster/{name}.json"),
        volume,
    )
}

/// One claim for each way back, and for each reason why there is none.
fn objects() -> Vec<(String, Value)> {
    let source = json!({"dataSource": {
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "vs-1",
    }});
    let none = || json!({});
    vec![
        (
            "resources/pods/namespaces/shop/web.json".to_owned(),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web"},
                "spec": {
                    "containers": [{"name": "c", "image": "x"}],
                    "volumes": [
                        {"name": "data", "persistentVolumeClaim": {"claimName": "files"}},
                        {"name": "cache", "persistentVolumeClaim": {"claimName": "lost"}},
                    ],
                },
                "status": {"phase": "Running"},
            }),
        ),
        claim("files", "pv-files", none()),
        claim("lost", "pv-lost", none()),
        claim("native", "pv-native", none()),
        claim("csi", "pv-csi", source),
        claim("moved", "pv-moved", none()),
        claim("empty", "pv-empty", none()),
        claim("kept", "pv-kept", none()),
        claim("there", "pv-there", none()),
        in_archive(volume("pv-files", "files", "Delete")),
        in_archive(volume("pv-lost", "lost", "Delete")),
        in_archive(volume("pv-native", "native", "Delete")),
        in_archive(volume("pv-csi", "csi", "Delete")),
        in_archive(volume("pv-moved", "moved", "Delete")),
        in_archive(volume("pv-empty", "empty", "Delete")),
        in_archive(volume("pv-kept", "kept", "Retain")),
    ]
}

fn infos() -> Value {
    let info = |claim: &str, method: &str| {
        json!({
            "pvcName": claim, "pvcNamespace": "shop", "pvName": format!("pv-{claim}"),
            "backupMethod": method, "snapshotDataMoved": claim == "moved",
        })
    };
    let skipped = |claim: &str| {
        json!({
            "pvcName": claim, "pvcNamespace": "shop", "pvName": format!("pv-{claim}"),
            "skipped": true, "skippedReason": "volumeSnapshot: no applicable volumesnapshotter found;",
        })
    };
    json!([
        info("files", "PodVolumeBackup"),
        info("lost", "PodVolumeBackup"),
        info("native", "NativeSnapshot"),
        info("csi", "CSISnapshot"),
        info("moved", "CSISnapshot"),
        skipped("empty"),
        skipped("kept"),
    ])
}

async fn archive() -> Vec<u8> {
    let mut batch = Batch::new(0);
    for (path, object) in objects() {
        batch.add(&path, object.to_string().as_bytes());
    }
    let packed = Packer::new(1).pack(&batch);
    let (mut writer, stream) = stream();
    let written = tokio::spawn(async move {
        writer.push(packed).await.unwrap();
        writer.finish().await.unwrap();
    });
    let pieces: Vec<bytes::Bytes> = stream.try_collect().await.unwrap();
    written.await.unwrap();
    pieces.concat()
}

/// The kinds of snapshots, as far as they matter.
fn snapshot_kinds(scene: &Scene) {
    for (kind, plural, scope) in [
        ("VolumeSnapshot", "volumesnapshots", "Namespaced"),
        ("VolumeSnapshotContent", "volumesnapshotcontents", "Cluster"),
    ] {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.snapshot.storage.k8s.io")},
            "spec": {
                "group": "snapshot.storage.k8s.io", "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        });
        scene.server.load(&crd).unwrap();
    }
}

/// What is in the cluster before: what drivers and movers made, and a claim that nobody touches.
fn cluster(scene: &Scene) {
    snapshot_kinds(scene);
    let mut native = volume("pv-native", "native", "Delete");
    native["metadata"]["labels"] = json!({
        "velero.io/backup-name": "b", "velero.io/restore-name": "r",
    });
    // Another server of this restore has made it.
    native["metadata"]["creationTimestamp"] = json!("2099-01-01T00:00:00Z");
    let labels = json!({"deploy": "velero"});
    // Pods that wait for their volumes need its image.
    let server = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "velero", "name": "velero"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "velero", "image": "r.io/bowline:v3"}],
        }}},
    });
    let mut there = claim("there", "pv-there", json!({})).1;
    there["metadata"]["uid"] = json!("there");
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        server,
        native,
        there,
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {
                "namespace": "shop", "name": "vs-1",
                "annotations": {"velero.io/csi-volumesnapshot-handle": "h-1", "velero.io/csi-driver-name": "d"},
            },
            "spec": {"source": {"volumeSnapshotContentName": "content-1"}},
            "status": {"readyToUse": true, "boundVolumeSnapshotContentName": "content-1"},
        }),
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": "content-1"},
            "spec": {"driver": "csi.example.com", "source": {"snapshotHandle": "h-1"}},
            "status": {"snapshotHandle": "h-1", "restoreSize": 1_073_741_824},
        }),
    ] {
        scene.server.load(&object).unwrap();
    }
    scene.load::<DataDownload>(
        "r-1",
        json!({
            "metadata": {"labels": {
                "velero.io/restore-name": "r", "velero.io/async-operation-id": "dd-1",
            }},
            "spec": {
                "targetVolume": {"namespace": "shop", "pvc": "moved", "pv": ""}, "snapshotID": "k-1",
                "backupStorageLocation": "default", "sourceNamespace": "shop", "operationTimeout": "10m0s",
            },
            "status": {
                "phase": "Completed", "progress": {"totalBytes": 42, "bytesDone": 42},
                "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:07Z",
            },
        }),
    );
}

/// A cluster with a backup of all of it, and a server that has just begun; with faults on the way.
async fn scene(faults: Vec<Rule>) -> (Scene, Bucket) {
    let scene = Scene::new();
    scene.available("default", json!({}));
    let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
    let bucket = scene.ctx.bucket(&location).await.unwrap();
    let archive = archive().await.into();
    bucket.put("backups/b/b.tar.gz", archive).await.unwrap();
    let copy = |name: &str, volume: &str, status: Value| {
        json!({
            "metadata": {"name": name, "namespace": "elsewhere"},
            "spec": {"pod": {"namespace": "shop", "name": "web"}, "volume": volume, "uploaderType": "restic", "repoIdentifier": "s3:x/restic/shop"},
            "status": status,
        })
    };
    let copies = json!([
        copy(
            "b-1",
            "data",
            json!({"phase": "Completed", "snapshotID": "1a2b3c4d", "progress": {"totalBytes": 7}})
        ),
        copy(
            "b-2",
            "cache",
            json!({"phase": "Failed", "message": "disk on fire"})
        ),
    ]);
    let records = json!([{
        "spec": {"backupName": "b", "backupUID": "u", "location": "l", "persistentVolumeName": "pv-native", "providerVolumeID": "v", "volumeType": "gp3", "volumeAZ": "a"},
        "status": {"providerSnapshotID": "snap-1", "phase": "Completed"},
    }]);
    for (key, value) in [
        ("backups/b/b-podvolumebackups.json.gz", copies),
        ("backups/b/b-volumesnapshots.json.gz", records),
        ("backups/b/b-volumeinfo.json.gz", infos()),
    ] {
        bucket.put_json(key, &value).await.unwrap();
    }
    let status = json!({"phase": "Completed", "version": 1, "formatVersion": "1.1.0"});
    scene.load::<Backup>(
        "b",
        json!({"spec": {"storageLocation": "default"}, "status": status}),
    );
    cluster(&scene);
    scene.server.set_faults(faults, 1);
    scene.start(restore::run);
    scene
        .create::<Restore>(json!({"metadata": {"name": "r"}, "spec": {"backupName": "b"}}))
        .await;
    (scene, bucket)
}

/// Fills the one volume that is asked for, and waits for the end.
async fn ended(scene: &Scene) -> Restore {
    let api = scene.api::<PodVolumeRestore>();
    let all = async || api.list(&ListParams::default()).await.unwrap().items;
    eventually("the request for the volume", async || {
        !all().await.is_empty()
    })
    .await;
    let done = json!({"status": {
        "phase": "Completed", "node": "n1", "progress": {"totalBytes": 7, "bytesDone": 7},
        "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:02Z",
    }});
    for request in all().await {
        let patch = Patch::Merge(&done);
        api.patch(&request.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    eventually("the end of the restore", async || {
        let status = scene.get::<Restore>("r").await.and_then(|r| r.status);
        status.is_some_and(|status| status.completion_timestamp.is_some())
    })
    .await;
    scene.get::<Restore>("r").await.unwrap()
}

fn log(scene: &Scene) -> String {
    let path = scene.bucket("default").join("restores/r/restore-r-logs.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// The rows by their claims.
async fn rows(bucket: &Bucket) -> Vec<(String, Value)> {
    let rows: Vec<Value> = bucket.json(FILE).await.unwrap().unwrap();
    rows.into_iter()
        .map(|row| (row["pvcName"].as_str().unwrap_or_default().to_owned(), row))
        .collect()
}

#[tokio::test]
async fn every_volume_has_a_row_whatever_became_of_it() {
    let (scene, bucket) = scene(vec![]).await;
    let restore = ended(&scene).await;
    let status = restore.status.unwrap();
    assert_eq!(
        status.phase,
        Some(RestorePhase::Completed),
        "{}",
        log(&scene)
    );
    let rows = rows(&bucket).await;
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    // Velero's order, then those without data.
    let expected = [
        "files", "native", "csi", "moved", "lost", "empty", "kept", "there",
    ];
    assert_eq!(names, expected);
    let row = |name: &str| rows.iter().find(|(of, _)| of == name).unwrap().1.clone();
    let gib = 1_073_741_824_i64;
    assert_eq!(
        row("files"),
        json!({
            "pvcName": "files", "pvcNamespace": "shop", "restoreMethod": "PodVolumeRestore",
            "snapshotDataMoved": false,
            "pvrInfo": {
                "snapshotHandle": "1a2b3c4d", "size": 7, "uploaderType": "restic", "volumeName": "data",
                "podName": "web", "podNamespace": "shop", "nodeName": "n1", "Phase": "Completed",
            },
            "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:02Z",
            "result": "succeeded", "capacity": gib, "originalPvName": "pv-files",
        })
    );
    assert_eq!(
        row("native"),
        json!({
            "pvcName": "native", "pvcNamespace": "shop", "pvName": "pv-native",
            "restoreMethod": "NativeSnapshot", "snapshotDataMoved": false,
            "nativeSnapshotInfo": {
                "snapshotHandle": "snap-1", "volumeType": "gp3", "volumeAZ": "a", "iops": "0",
                "Phase": "Completed",
            },
            "result": "succeeded", "capacity": gib,
        })
    );
    assert_eq!(
        row("csi"),
        json!({
            "pvcName": "csi", "pvcNamespace": "shop", "restoreMethod": "CSISnapshot",
            "snapshotDataMoved": false,
            "csiSnapshotInfo": {
                "snapshotHandle": "h-1", "size": gib, "driver": "csi.example.com",
                "vscName": "content-1", "ReadyToUse": true,
            },
            "capacity": gib, "originalPvName": "pv-csi",
        })
    );
    assert_eq!(
        row("moved"),
        json!({
            "pvcName": "moved", "pvcNamespace": "shop", "restoreMethod": "CSISnapshot",
            "snapshotDataMoved": true,
            "snapshotDataMovementInfo": {
                "dataMover": "velero", "uploaderType": "kopia", "snapshotHandle": "k-1",
                "operationID": "dd-1", "size": 42, "Phase": "Completed",
            },
            "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:07Z",
            "result": "succeeded", "capacity": gib, "originalPvName": "pv-moved",
        })
    );
    for (name, key, why) in [
        (
            "lost",
            "skipped",
            "the backup has nothing of it: PodVolumeBackup b-2 is Failed: disk on fire",
        ),
        (
            "empty",
            "skipped",
            "provisioned without data: the backup has no data of it: volumeSnapshot: no applicable volumesnapshotter found",
        ),
        (
            "kept",
            "kept",
            "the volume is the one of the backup, with the data that is on it",
        ),
        (
            "there",
            "skipped",
            "the claim was there already, and its volume was left as it is",
        ),
    ] {
        let row = row(name);
        assert_eq!(row[key], true, "{row}");
        assert_eq!(row["skippedReason"], why);
        assert_eq!(row["restoreMethod"], json!(null), "{row}");
    }

    // It goes with the restore.
    let api = scene.api::<Restore>();
    api.delete("r", &DeleteParams::default()).await.unwrap();
    eventually("the restore to go", async || {
        scene.names::<Restore>().await.is_empty()
    })
    .await;
    assert!(!bucket.exists(FILE).await.unwrap());
}

fn refused(path: &str) -> Rule {
    Rule {
        method: Some(http::Method::GET),
        path: path.to_owned(),
        when: When::Always,
        fault: Fault::Refuse(403, "not today"),
    }
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_changes_neither_phase_nor_results() {
    let faults = vec![
        refused("/api/v1/persistentvolumeclaims"),
        refused("/namespaces/shop/persistentvolumeclaims/empty"),
        refused("/volumesnapshots/vs-1"),
        refused("/datadownloads"),
    ];
    let (scene, bucket) = scene(faults).await;
    let restore = ended(&scene).await;
    let status = restore.status.unwrap();
    let log = log(&scene);
    assert_eq!(status.phase, Some(RestorePhase::Completed), "{log}");
    assert_eq!(status.errors, None);
    let results: Value = bucket
        .json("restores/r/restore-r-results.gz")
        .await
        .unwrap()
        .unwrap();
    assert!(!results.to_string().contains("volume info"), "{results}");
    for said in [
        "volume info: the claim cannot be read, so what it is bound to is missing",
        "volume info: the snapshot that the claim is made of cannot be read",
        "volume info: DataDownloads cannot be listed, so moved data is missing",
    ] {
        let line = log.lines().find(|line| line.contains(said));
        let line = line.unwrap_or_else(|| panic!("{said}: {log}"));
        assert!(
            line.contains("level=warning") && line.contains("not today"),
            "{line}"
        );
    }
    let rows = rows(&bucket).await;
    assert_eq!(rows.len(), 8);
    let row = |name: &str| rows.iter().find(|(of, _)| of == name).unwrap().1.clone();
    assert_eq!(row("empty")["capacity"], json!(null));
    assert_eq!(row("empty")["skipped"], true);
    assert_eq!(row("csi")["restoreMethod"], "CSISnapshot");
    assert_eq!(row("csi")["csiSnapshotInfo"]["snapshotHandle"], "");
    assert_eq!(
        row("moved")["skippedReason"],
        "provisioned without data: nobody moves its data back"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_a_line_of_the_log() {
    let (scene, bucket) = scene(vec![]).await;
    // A folder stands in its place.
    let place = scene.bucket("default").join(FILE).join("in the way");
    fs::create_dir_all(&place).unwrap();
    let restore = ended(&scene).await;
    let status = restore.status.unwrap();
    let log = log(&scene);
    assert_eq!(status.phase, Some(RestorePhase::Completed), "{log}");
    let line = log
        .lines()
        .find(|line| line.contains("volume info: the file is not in the bucket"));
    assert!(
        line.is_some_and(|line| line.contains("level=warning")),
        "{log}"
    );
    let results: Value = bucket
        .json("restores/r/restore-r-results.gz")
        .await
        .unwrap()
        .unwrap();
    assert!(!results.to_string().contains("volume info"), "{results}");
}

#[tokio::test]
async fn finalizing_brings_the_file_up_to_date() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
    let bucket = scene.ctx.bucket(&location).await.unwrap();
    let open = |claim: &str, rest: Value| {
        let mut row = json!({
            "pvcName": claim, "pvcNamespace": "shop", "restoreMethod": "CSISnapshot",
            "snapshotDataMoved": claim == "moved",
        });
        crate::scene::merge(&mut row, rest);
        row
    };
    let kept = json!({"pvName": "pv-kept", "snapshotDataMoved": false, "kept": true});
    let moving = json!({"snapshotDataMovementInfo": {
        "dataMover": "velero", "uploaderType": "restic", "snapshotHandle": "k-1", "operationID": "dd-1",
        "size": 0, "Phase": "InProgress",
    }});
    let rows = json!([open("csi", json!({})), open("moved", moving), kept]);
    bucket.put_json(FILE, &rows).await.unwrap();
    cluster(&scene);
    let source = json!({"dataSource": {
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "vs-1",
    }});
    for (name, more) in [("csi", source), ("moved", json!({}))] {
        let (_, object) = claim(name, &format!("new-{name}"), more);
        scene.server.load(&object).unwrap();
    }
    scene.load::<Backup>("b", json!({"spec": {"storageLocation": "default"}}));
    scene.load::<Restore>(
        "r",
        json!({"spec": {"backupName": "b"}, "status": {"phase": "Finalizing"}}),
    );
    scene.start(restore::run);
    eventually("the end of the restore", async || {
        let status = scene.get::<Restore>("r").await.and_then(|r| r.status);
        status.is_some_and(|status| status.phase == Some(RestorePhase::Completed))
    })
    .await;
    let rows: Value = bucket.json(FILE).await.unwrap().unwrap();
    let told = |at: usize| [&rows[at]["pvName"], &rows[at]["result"]].map(Value::to_string);
    assert_eq!(told(0), [r#""new-csi""#, r#""succeeded""#]);
    assert_eq!(rows[0]["csiSnapshotInfo"]["snapshotHandle"], "h-1");
    assert_eq!(told(1), [r#""new-moved""#, r#""succeeded""#]);
    let moved = &rows[1]["snapshotDataMovementInfo"];
    assert_eq!(moved["size"], 42);
    assert_eq!(moved["uploaderType"], "restic");
    assert_eq!(
        rows[2],
        json!({"pvName": "pv-kept", "snapshotDataMoved": false, "kept": true})
    );
}
