//! Backups with CSI snapshots, their restores and deletions. The driver is played here.

mod driver;

use std::{collections::BTreeMap, fs, io::Read, time::Duration};

use bowline_api::{
    v1::{Backup, BackupPhase, DeleteBackupRequest, Restore, RestorePhase},
    v2alpha1::DataUpload,
};
use bowline_server::{
    Settings,
    controllers::{backup, deletion, repository, restore},
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use self::driver::{Driver, Mood, kinds, name};
use crate::scene::{Scene, eventually};

/// A namespace with two claims of a CSI driver.
fn shop() -> Scene {
    let mut settings = Settings::default();
    settings.features = vec!["EnableCSI".to_owned()];
    settings.resource_timeout = Duration::from_secs(2);
    settings.item_operation_sync_frequency = Duration::from_millis(50);
    let scene = Scene::with(settings);
    scene.available("default", json!({}));
    let mut objects = kinds();
    objects.extend([
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "d"}),
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "class"}, "driver": "d", "deletionPolicy": "Delete"}),
    ]);
    for name in ["a", "b"] {
        objects.extend([
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"namespace": "shop", "name": name, "labels": {"app": "shop"}},
                "spec": {
                    "volumeName": format!("pv-{name}"), "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
                "status": {"phase": "Bound"},
            }),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{name}")},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
                    "csi": {"driver": "d", "volumeHandle": name}, "persistentVolumeReclaimPolicy": "Delete",
                    "claimRef": {"namespace": "shop", "name": name},
                },
            }),
        ]);
    }
    for object in objects {
        scene.server.load(&object).unwrap();
    }
    scene
}

async fn begin(scene: &Scene, spec: Value) {
    let mut whole = json!({"includedNamespaces": ["shop"], "storageLocation": "default"});
    crate::scene::merge(&mut whole, spec);
    let _: Backup = scene
        .create(json!({"metadata": {"name": "b"}, "spec": whole}))
        .await;
}

async fn becomes(scene: &Scene, phase: BackupPhase) -> Backup {
    eventually(&format!("the backup to be {phase}"), async || {
        let found = scene.get::<Backup>("b").await;
        let status = found.and_then(|found| found.status);
        status.and_then(|status| status.phase).as_ref() == Some(&phase)
    })
    .await;
    scene.get::<Backup>("b").await.unwrap()
}

fn file(scene: &Scene, suffix: &str) -> Value {
    let path = format!("backups/b/b-{suffix}.json.gz");
    let file = fs::File::open(scene.bucket("default").join(path)).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Objects in the archive by path.
fn archive(scene: &Scene) -> BTreeMap<String, Value> {
    let file = fs::File::open(scene.bucket("default").join("backups/b/b.tar.gz")).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut entries = BTreeMap::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        if path.ends_with(".json") {
            entries.insert(path, serde_json::from_str(&text).unwrap());
        }
    }
    entries
}

async fn vanish(driver: &Driver) {
    eventually("live snapshots to go", async || {
        driver.live().await.is_empty()
    })
    .await;
}

async fn ask_for_deletion(scene: &Scene) {
    scene.start(deletion::run);
    let _: DeleteBackupRequest = scene
        .create(json!({"metadata": {"name": "gone"}, "spec": {"backupName": "b"}}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_waits_for_its_snapshots_and_leaves_them_to_the_storage() {
    let mut scene = shop();
    let driver = Driver::start(&scene.client, Mood::Slow);
    scene.start(backup::run);
    begin(&scene, json!({})).await;
    let made = becomes(&scene, BackupPhase::WaitingForPluginOperations).await;
    let status = made.status.unwrap();
    assert_eq!(status.csi_volume_snapshots_attempted, Some(2));
    let live = driver.all("VolumeSnapshot").await;
    assert_eq!(live.len(), 2);
    let labels = &live[0]["metadata"]["labels"];
    assert_eq!(labels["velero.io/backup-name"], "b");
    assert_eq!(labels["velero.io/backup-uid"], json!(made.metadata.uid));
    assert_eq!(labels["app"], "shop");

    // Another server goes on waiting.
    scene.kill();
    scene.start(backup::run);
    driver.be(Mood::Quick);
    let made = becomes(&scene, BackupPhase::Completed).await;
    let status = made.status.unwrap();
    assert_eq!(status.csi_volume_snapshots_completed, Some(2));
    assert_eq!(status.errors, None);
    vanish(&driver).await;
    assert_eq!(driver.storage().len(), 2, "the data stays");

    let infos = file(&scene, "volumeinfo");
    for info in infos.as_array().unwrap() {
        assert_eq!(info["backupMethod"], "CSISnapshot", "{info}");
        assert_eq!(info["result"], "succeeded", "{info}");
        assert_eq!(info["csiSnapshotInfo"]["ReadyToUse"], true, "{info}");
        assert!(info["completionTimestamp"].is_string(), "{info}");
    }
    assert_eq!(infos.as_array().unwrap().len(), 2);
    let operations = file(&scene, "itemoperations");
    assert_eq!(operations[0]["status"]["phase"], "Completed");
    // The archive has them as they were in the end.
    let archive = archive(&scene);
    let snapshot = format!(
        "resources/volumesnapshots.snapshot.storage.k8s.io/namespaces/shop/{}.json",
        name(&live[0])
    );
    let snapshot = &archive[&snapshot];
    assert_eq!(snapshot["status"]["readyToUse"], true);
    let annotations = &snapshot["metadata"]["annotations"];
    assert_eq!(annotations["velero.io/csi-vsc-deletion-policy"], "Delete");
    assert_eq!(annotations["velero.io/csi-driver-name"], "d");
    assert_eq!(
        annotations["velero.io/csi-volumesnapshot-restore-size"],
        "2Gi"
    );
    let bound = &snapshot["status"]["boundVolumeSnapshotContentName"];
    let content = format!(
        "resources/volumesnapshotcontents.snapshot.storage.k8s.io/cluster/{}.json",
        bound.as_str().unwrap()
    );
    let content = &archive[&content];
    assert_eq!(content["metadata"]["labels"]["velero.io/backup-name"], "b");
    assert_eq!(
        content["status"]["snapshotHandle"],
        annotations["velero.io/csi-volumesnapshot-handle"]
    );

    restored_and_deleted(&scene, &driver).await;
}

/// Restores the backup into another namespace, then deletes it.
async fn restored_and_deleted(scene: &Scene, driver: &Driver) {
    scene.start(restore::run);
    let made: Restore = scene
        .create(json!({
            "metadata": {"name": "r"},
            "spec": {"backupName": "b", "namespaceMapping": {"shop": "copy"}, "itemOperationTimeout": "1h0m0s"},
        }))
        .await;
    eventually("the restore to be over", async || {
        let found = scene.get::<Restore>("r").await;
        let phase = found.and_then(|found| found.status?.phase);
        // Nobody provisions volumes here.
        phase == Some(RestorePhase::PartiallyFailed) || phase == Some(RestorePhase::Completed)
    })
    .await;
    let contents = driver.all("VolumeSnapshotContent").await;
    let snapshots = driver.all("VolumeSnapshot").await;
    assert_eq!((contents.len(), snapshots.len()), (2, 2));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client.clone(), "copy");
    for claim in ["a", "b"] {
        let claim = serde_json::to_value(claims.get(claim).await.unwrap()).unwrap();
        assert_eq!(claim["spec"]["volumeName"], json!(null));
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
        let source = &claim["spec"]["dataSource"];
        assert_eq!(source["kind"], "VolumeSnapshot");
        let is_source = |object: &&Value| object["metadata"]["name"] == source["name"];
        let snapshot = snapshots.iter().find(is_source).unwrap();
        assert_eq!(snapshot["metadata"]["namespace"], "copy");
        let content = contents.iter().find(is_source).unwrap();
        assert_eq!(content["spec"]["deletionPolicy"], "Retain");
        assert_eq!(content["spec"]["volumeSnapshotClassName"], "class");
        assert_eq!(content["spec"]["volumeSnapshotRef"]["namespace"], "copy");
        assert_eq!(
            content["metadata"]["labels"]["velero.io/backup-uid"],
            json!(null)
        );
        let handle = content["spec"]["source"]["snapshotHandle"].as_str();
        assert!(driver.storage().iter().any(|h| Some(h.as_str()) == handle));
    }
    let uid = made.metadata.uid.unwrap();
    assert!(uid.len() > 1);

    // A driver that does not delete keeps the backup, and is named.
    driver.be(Mood::Stubborn);
    ask_for_deletion(scene).await;
    eventually("the deletion to be answered", async || {
        let found = scene.get::<DeleteBackupRequest>("gone").await;
        let errors = found.and_then(|found| found.status?.errors);
        errors.is_some_and(|errors| {
            errors.len() == 2 && errors[0].starts_with("error deleting CSI snapshot handle-")
        })
    })
    .await;
    assert!(scene.get::<Backup>("b").await.is_some());
    assert_eq!(driver.storage().len(), 2);
    driver.be(Mood::Quick);
    let _: DeleteBackupRequest = scene
        .create(json!({"metadata": {"name": "again"}, "spec": {"backupName": "b"}}))
        .await;
    eventually("the backup to go", async || {
        scene.names::<Backup>().await.is_empty()
    })
    .await;
    assert_eq!(driver.storage(), [""; 0]);
    // What a restore has made is not the backup's.
    assert_eq!(driver.all("VolumeSnapshot").await.len(), 2);
    assert_eq!(driver.all("VolumeSnapshotContent").await.len(), 2);
}

/// Plays a node process: says how far an upload is.
async fn tell(scene: &Scene, upload: &DataUpload, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    let name = upload.metadata.name.clone().unwrap();
    let api = scene.api::<DataUpload>();
    api.patch(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_data_is_waited_for_and_the_snapshots_go() {
    let mut scene = shop();
    let node = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "velero", "name": "node-agent-x", "labels": {"role": "node-agent"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running"},
    });
    let password = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "velero-repo-credentials", "namespace": "velero"},
        "data": {"repository-password": "c2VjcmV0"},
    });
    scene.server.load(&node).unwrap();
    scene.server.load(&password).unwrap();
    let driver = Driver::start(&scene.client, Mood::Quick);
    scene.start(repository::run);
    scene.start(backup::run);
    begin(&scene, json!({"snapshotMoveData": true})).await;
    let made = becomes(&scene, BackupPhase::WaitingForPluginOperations).await;
    let api = scene.api::<DataUpload>();
    let uploads = api.list(&ListParams::default()).await.unwrap().items;
    let of = |claim: &str| uploads.iter().find(|u| u.spec.source_pvc == claim).unwrap();
    assert_eq!(uploads.len(), 2);
    let upload = of("a");
    assert_eq!(upload.spec.datamover.as_deref(), Some("bowline"));
    let content = &upload.metadata.annotations.as_ref().unwrap()["bowline.io/snapshot-content"];
    let contents = driver.all("VolumeSnapshotContent").await;
    let content = contents
        .iter()
        .find(|c| name(c) == content.as_str())
        .unwrap();
    assert_eq!(
        content["spec"]["deletionPolicy"], "Retain",
        "it outlives its namespace"
    );

    // Another server goes on waiting, and tells how far it is.
    scene.kill();
    scene.start(backup::run);
    tell(
        &scene,
        of("a"),
        json!({
            "phase": "InProgress", "startTimestamp": "2026-01-01T00:00:00Z",
            "progress": {"totalBytes": 10, "bytesDone": 4},
        }),
    )
    .await;
    eventually("the progress to be in the bucket", async || {
        let operations = file(&scene, "itemoperations");
        let operations = operations.as_array().unwrap().clone();
        operations.iter().any(|operation| {
            let status = &operation["status"];
            status["nCompleted"] == 4
                && status["nTotal"] == 10
                && status["operationUnits"] == "Bytes"
        })
    })
    .await;
    tell(
        &scene,
        of("a"),
        json!({
            "phase": "Completed", "snapshotID": "0123abcd", "incrementalBytes": 7,
            "progress": {"totalBytes": 10, "bytesDone": 10},
            "completionTimestamp": "2026-01-01T00:00:09Z",
        }),
    )
    .await;
    tell(
        &scene,
        of("b"),
        json!({"phase": "Failed", "message": "no room"}),
    )
    .await;
    let status = becomes(&scene, BackupPhase::PartiallyFailed)
        .await
        .status
        .unwrap();
    assert_eq!(status.backup_item_operations_completed, Some(1));
    assert_eq!(status.backup_item_operations_failed, Some(1));
    assert_eq!(status.csi_volume_snapshots_completed, None);
    vanish(&driver).await;
    assert_eq!(
        driver.storage(),
        [""; 0],
        "what was moved is not kept twice"
    );

    let archive = archive(&scene);
    let path = format!(
        "resources/datauploads.velero.io/namespaces/velero/{}.json",
        of("a").metadata.name.as_ref().unwrap()
    );
    assert_eq!(archive[&path]["status"]["snapshotID"], "0123abcd");
    let claim = &archive["resources/persistentvolumeclaims/namespaces/shop/a.json"];
    assert!(claim["metadata"]["annotations"]["velero.io/data-upload-name"].is_string());
    let infos = file(&scene, "volumeinfo");
    let info = |claim: &str| {
        let infos = infos.as_array().unwrap();
        infos
            .iter()
            .find(|i| i["pvcName"] == claim)
            .unwrap()
            .clone()
    };
    assert_eq!(info("a")["result"], "succeeded");
    let moved = &info("a")["snapshotDataMovementInfo"];
    assert_eq!(
        (&moved["snapshotHandle"], &moved["size"], &moved["Phase"]),
        (&json!("0123abcd"), &json!(10), &json!("Completed"))
    );
    assert_eq!(info("b")["result"], "failed");

    ask_for_deletion(&scene).await;
    eventually("the backup to go", async || {
        scene.get::<Backup>("b").await.is_none() && scene.names::<DataUpload>().await.is_empty()
    })
    .await;
    assert!(made.metadata.uid.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_node_process_nothing_is_moved_and_nothing_stays() {
    let scene = shop();
    let driver = Driver::start(&scene.client, Mood::Quick);
    scene.start(backup::run);
    begin(&scene, json!({"snapshotMoveData": true})).await;
    becomes(&scene, BackupPhase::PartiallyFailed).await;
    vanish(&driver).await;
    assert_eq!(driver.storage(), [""; 0]);
    for info in file(&scene, "volumeinfo").as_array().unwrap() {
        let why = info["skippedReason"].as_str().unwrap();
        assert!(why.contains("node-agent is not ready"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_does_not_answer_costs_the_claims() {
    let scene = shop();
    let driver = Driver::start(&scene.client, Mood::Mute);
    scene.start(backup::run);
    begin(&scene, json!({"csiSnapshotTimeout": "1s"})).await;
    let made = becomes(&scene, BackupPhase::PartiallyFailed).await;
    assert_eq!(made.status.unwrap().errors, Some(2));
    vanish(&driver).await;
    for info in file(&scene, "volumeinfo").as_array().unwrap() {
        let why = info["skippedReason"].as_str().unwrap();
        assert!(
            why.starts_with("csiSnapshot: timed out awaiting reconciliation"),
            "{why}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_cannot_look_deletes_what_it_is_told_of() {
    let scene = shop();
    let driver = Driver::start(&scene.client, Mood::Quick);
    scene.start(backup::run);
    begin(&scene, json!({})).await;
    becomes(&scene, BackupPhase::Completed).await;
    vanish(&driver).await;
    assert_eq!(driver.storage().len(), 2);
    driver.be(Mood::Blind);
    ask_for_deletion(&scene).await;
    eventually("the backup to go", async || {
        scene.get::<Backup>("b").await.is_none()
    })
    .await;
    assert_eq!(driver.storage(), [""; 0]);
    assert_eq!(driver.live().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_backup_copies_the_live_snapshots_of_another() {
    let scene = shop();
    let driver = Driver::start(&scene.client, Mood::Slow);
    scene.start(backup::run);
    let other = json!({"includedNamespaces": ["shop"], "storageLocation": "default"});
    let _: Backup = scene
        .create(json!({"metadata": {"name": "other"}, "spec": other}))
        .await;
    eventually("the other one to wait", async || {
        let found = scene.get::<Backup>("other").await;
        let phase = found.and_then(|found| found.status?.phase);
        phase == Some(BackupPhase::WaitingForPluginOperations)
    })
    .await;
    begin(&scene, json!({})).await;
    let made = becomes(&scene, BackupPhase::WaitingForPluginOperations).await;
    assert_eq!(made.status.unwrap().csi_volume_snapshots_attempted, Some(2));
    let archive = archive(&scene);
    let snapshots = archive.iter().filter(|(path, _)| {
        path.starts_with("resources/volumesnapshot") && path.contains("/namespaces/shop/")
            || path.starts_with("resources/volumesnapshotcontents")
    });
    for (path, object) in snapshots {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["velero.io/backup-name"], "b", "{path}");
        assert_eq!(
            labels["velero.io/exclude-from-backup"],
            Value::Null,
            "{path}"
        );
    }
    assert_eq!(file(&scene, "itemoperations").as_array().unwrap().len(), 2);
    driver.be(Mood::Quick);
    becomes(&scene, BackupPhase::Completed).await;
    vanish(&driver).await;
    assert_eq!(driver.storage().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_middle_leaves_nothing_behind() {
    let mut scene = shop();
    let driver = Driver::start(&scene.client, Mood::Mute);
    scene.start(backup::run);
    begin(&scene, json!({})).await;
    eventually("snapshots to be asked for", async || {
        driver.live().await.len() == 2
    })
    .await;
    let before = driver.live().await;
    scene.kill();
    scene.start(backup::run);
    eventually("new snapshots to be asked for", async || {
        let live = driver.live().await;
        live.len() == 2 && !live.iter().any(|name| before.contains(name))
    })
    .await;
    driver.be(Mood::Quick);
    becomes(&scene, BackupPhase::Completed).await;
    vanish(&driver).await;
    assert_eq!(driver.storage().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_whose_object_goes_takes_its_snapshots_along() {
    // While they are taken, while they are waited for, and while no server is there.
    for (mood, is_server_gone) in [(Mood::Mute, false), (Mood::Slow, false), (Mood::Slow, true)] {
        let mut scene = shop();
        let driver = Driver::start(&scene.client, mood);
        scene.start(backup::run);
        begin(&scene, json!({})).await;
        if mood == Mood::Slow {
            becomes(&scene, BackupPhase::WaitingForPluginOperations).await;
            assert_eq!(driver.storage().len(), 2);
        } else {
            eventually("snapshots to be asked for", async || {
                driver.live().await.len() == 2
            })
            .await;
        }
        if is_server_gone {
            scene.kill();
        }
        let api = scene.api::<Backup>();
        api.delete("b", &DeleteParams::default()).await.unwrap();
        if is_server_gone {
            scene.start(backup::run);
        }
        driver.be(Mood::Quick);
        vanish(&driver).await;
        assert_eq!(driver.storage(), [""; 0], "{mood:?} {is_server_gone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_one_moment_and_its_members_live_on() {
    let scene = shop();
    let class = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2", "kind": "VolumeGroupSnapshotClass",
        "metadata": {"name": "groups", "labels": {"velero.io/csi-volumegroupsnapshot-class": "true"}}, "driver": "d",
    });
    scene.server.load(&class).unwrap();
    let driver = Driver::start(&scene.client, Mood::Quick);
    scene.start(backup::run);
    begin(&scene, json!({"volumeGroupSnapshotLabelKey": "app"})).await;
    becomes(&scene, BackupPhase::Completed).await;
    vanish(&driver).await;
    assert!(driver.groups().await.is_empty());
    assert_eq!(driver.storage().len(), 2);
    for info in file(&scene, "volumeinfo").as_array().unwrap() {
        let info = &info["csiSnapshotInfo"];
        assert_eq!(info["volumeGroupSnapshotHandle"], "group-handle");
    }
    let archive = archive(&scene);
    let member = "resources/volumesnapshots.snapshot.storage.k8s.io/namespaces/shop/member-a.json";
    let metadata = &archive[member]["metadata"];
    assert_eq!(
        metadata["ownerReferences"].as_array().map_or(0, Vec::len),
        0
    );
    assert_eq!(
        metadata["annotations"]["velero.io/csi-volumegroupsnapshot-handle"],
        "group-handle"
    );

    // A restore puts a stub where the group's content was, until contents are ready.
    driver.be(Mood::Slow);
    scene.start(restore::run);
    let _: Restore = scene
        .create(json!({
            "metadata": {"name": "r"},
            "spec": {"backupName": "b", "namespaceMapping": {"shop": "copy"}, "itemOperationTimeout": "1h0m0s"},
        }))
        .await;
    let handles = |stub: &Value| stub["spec"]["source"]["groupSnapshotHandles"].clone();
    eventually("a stub with both members", async || {
        let stubs = driver.groups().await;
        stubs.len() == 1
            && handles(&stubs[0])["volumeSnapshotHandles"]
                .as_array()
                .map(Vec::len)
                == Some(2)
            && stubs[0]["status"]["volumeGroupSnapshotHandle"] == "group-handle"
    })
    .await;
    driver.be(Mood::Quick);
    eventually("the stub to go", async || driver.groups().await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_finalized_twice_keeps_what_it_has() {
    let mut scene = shop();
    let driver = Driver::start(&scene.client, Mood::Quick);
    scene.start(backup::run);
    begin(&scene, json!({})).await;
    becomes(&scene, BackupPhase::Completed).await;
    vanish(&driver).await;
    let before = archive(&scene);
    // As if the server had died when all was done but the last word.
    scene.kill();
    let finalizing = json!({"status": {"phase": "Finalizing", "completionTimestamp": null}});
    let params = PatchParams::default();
    let api = scene.api::<Backup>();
    api.patch("b", &params, &Patch::Merge(&finalizing))
        .await
        .unwrap();
    scene.start(backup::run);
    let made = becomes(&scene, BackupPhase::Completed).await;
    assert_eq!(made.status.unwrap().errors, None);
    // Two snapshots, two contents and a class, each in two places.
    let kept = |path: &&String| path.starts_with("resources/volumesnapshot");
    assert_eq!(before.keys().filter(kept).count(), 10);
    assert_eq!(archive(&scene), before);
    assert_eq!(driver.storage().len(), 2);
}
