//! Restores of claims whose data was moved; the test plays the process that moves it back.

use std::time::Duration;

use bowline_api::{
    v1::{
        Backup, BackupRepository, BackupStorageLocation, PodVolumeRestore, Restore, RestorePhase,
    },
    v2alpha1::DataDownload,
};
use bowline_server::{Settings, controllers::restore};
use bowline_vault::{
    Bucket,
    archive::write::{Batch, Packer, stream},
};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::scene::{Scene, eventually, merge};

const OPERATIONS: &str = "restores/r/restore-r-itemoperations.json.gz";

/// A claim whose data was moved, its volume, and a pod whose files were copied.
fn objects(mover: &str) -> Vec<(&'static str, Value)> {
    vec![
        (
            "resources/persistentvolumeclaims/namespaces/shop/data.json",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "namespace": "shop", "name": "data", "uid": "c1",
                    "annotations": {"velero.io/data-upload-name": "velero/b-x"},
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "volumeName": "pv-1",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
                "status": {"phase": "Bound"},
            }),
        ),
        (
            "resources/persistentvolumes/cluster/pv-1.json",
            volume("pv-1", "Retain", json!({"disk": "a"})),
        ),
        (
            "resources/datauploads.velero.io/namespaces/velero/b-x.json",
            json!({
                "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
                "metadata": {"namespace": "velero", "name": "b-x"},
                "spec": {
                    "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop", "datamover": mover,
                    "backupStorageLocation": "theirs", "operationTimeout": "10m0s",
                },
                "status": {
                    "phase": "Completed", "snapshotID": "1a2b3c4d", "progress": {"totalBytes": 7, "bytesDone": 7},
                },
            }),
        ),
        (
            "resources/pods/namespaces/shop/web.json",
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web"},
                "spec": {
                    "containers": [{"name": "c", "image": "x"}],
                    "volumes": [{"name": "scratch", "emptyDir": {}}],
                },
                "status": {"phase": "Running"},
            }),
        ),
    ]
}

fn volume(name: &str, policy: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels},
        "spec": {
            "persistentVolumeReclaimPolicy": policy, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": name}, "claimRef": {"namespace": "shop", "name": "data"},
        },
        "status": {"phase": "Bound"},
    })
}

async fn archive(mover: &str) -> Vec<u8> {
    let mut batch = Batch::new(0);
    for (path, object) in objects(mover) {
        batch.add(path, object.to_string().as_bytes());
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

/// A cluster with a backup whose data was moved by this mover, and a server that has just begun on a
/// restore of it.
async fn scene(mover: &str, spec: Value, copies: Value) -> Scene {
    let mut settings = Settings::default();
    settings.item_operation_sync_frequency = Duration::from_millis(50);
    let scene = Scene::with(settings);
    scene.available("default", json!({}));
    let bucket = scene.moved_bucket().await;
    let contents = archive(mover).await.into();
    bucket.put("backups/b/b.tar.gz", contents).await.unwrap();
    let infos = json!([{
        "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv-1", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true, "pvInfo": {"reclaimPolicy": "Retain", "labels": {"disk": "a"}},
        "snapshotDataMovementInfo": {
            "dataMover": mover, "uploaderType": if mover == "bowline" { "restic" } else { "kopia" },
            "snapshotHandle": "1a2b3c4d", "operationID": "du-1", "size": 7, "Phase": "Completed",
        },
    }]);
    for (suffix, value) in [("volumeinfo", infos), ("podvolumebackups", copies)] {
        let key = format!("backups/b/b-{suffix}.json.gz");
        bucket.put_json(&key, &value).await.unwrap();
    }
    let status = json!({"phase": "Completed", "version": 1, "formatVersion": "1.1.0"});
    let location = json!({"storageLocation": "default"});
    scene.load::<Backup>("b", json!({"spec": location, "status": status}));
    let labels = json!({"deploy": "velero"});
    let server = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "velero", "name": "velero"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "velero", "image": "r.io/bowline:v3"}],
        }}},
    });
    scene.server.load(&server).unwrap();
    scene.start(restore::run);
    let mut whole = json!({"backupName": "b"});
    merge(&mut whole, spec);
    let _: Restore = scene
        .create(json!({"metadata": {"name": "r"}, "spec": whole}))
        .await;
    scene
}

impl Scene {
    /// The bucket, for as long as the server does not stop.
    async fn moved_bucket(&self) -> Bucket {
        let location = self.get::<BackupStorageLocation>("default").await.unwrap();
        self.ctx.bucket(&location).await.unwrap()
    }

    async fn file(&self, key: &str) -> Value {
        let file = self.moved_bucket().await.json(key).await;
        file.unwrap().unwrap_or_default()
    }

    async fn all_downloads(&self) -> Vec<DataDownload> {
        let api = self.api::<DataDownload>();
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// The one download, once it is there.
    async fn download(&self) -> DataDownload {
        eventually("the download", async || {
            !self.all_downloads().await.is_empty()
        })
        .await;
        let mut found = self.all_downloads().await;
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    async fn patch_download(&self, patch: Value) {
        let name = self.download().await.name_any();
        let api = self.api::<DataDownload>();
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        api.patch(&name, &params, &patch).await.unwrap();
    }

    async fn restore_is(&self, wanted: RestorePhase) -> Restore {
        eventually(&format!("the restore to be {wanted}"), async || {
            let found = self.get::<Restore>("r").await;
            let phase = found.and_then(|found| found.status?.phase);
            phase.as_ref() == Some(&wanted)
        })
        .await;
        self.get::<Restore>("r").await.unwrap()
    }

    /// Binds the claim to a new volume, as whoever moves data does.
    async fn bind(&self) {
        let waited_for = json!({"velero.io/dynamic-pv-restore": "shop.data.x"});
        let volume = volume("pv-2", "Delete", waited_for);
        self.server.load(&volume).unwrap();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), "shop");
        let params = PatchParams::default();
        let bound = Patch::Merge(json!({"spec": {"volumeName": "pv-2"}}));
        claims.patch("data", &params, &bound).await.unwrap();
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        let patched = claims.patch_status("data", &params, &bound);
        patched.await.unwrap();
    }

    /// Why the restore failed, and what it says of the claim.
    async fn errors_and_row(&self) -> (Value, Value) {
        let results = self.file("restores/r/restore-r-results.gz").await;
        let rows = self.file("restores/r/r-volumeinfo.json.gz").await;
        let rows = rows.as_array().unwrap();
        let row = rows.iter().find(|row| row["pvcName"] == "data").unwrap();
        (results["errors"].clone(), row.clone())
    }
}

#[tokio::test]
async fn moved_data_is_waited_for_and_its_volume_made_like_the_old_one() {
    let mut scene = scene("bowline", json!({}), json!(null)).await;
    let made = scene.download().await;
    let waiting = scene
        .restore_is(RestorePhase::WaitingForPluginOperations)
        .await;
    assert_eq!(
        made.metadata.owner_references.as_ref().unwrap()[0].uid,
        waiting.uid().unwrap()
    );
    assert_eq!(made.spec.backup_storage_location, "default");
    let status = waiting.status.unwrap();
    assert_eq!(status.restore_item_operations_attempted, Some(1));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client.clone(), "shop");
    let claim = claims.get("data").await.unwrap().spec.unwrap();
    assert_eq!(claim.volume_name, None);
    assert!(claim.selector.is_some());
    let volumes: Api<PersistentVolume> = Api::all(scene.client.clone());
    assert!(volumes.get_opt("pv-1").await.unwrap().is_none());

    let going = json!({
        "phase": "InProgress", "startTimestamp": "2026-11-16T10:00:00Z",
        "progress": {"totalBytes": 7, "bytesDone": 3},
    });
    scene.patch_download(json!({"status": going})).await;
    eventually("progress", async || {
        let operation = &scene.file(OPERATIONS).await[0]["status"];
        operation["nCompleted"] == 3
    })
    .await;
    let mut operation = scene.file(OPERATIONS).await[0]["status"].clone();
    operation["created"].take();
    assert_eq!(
        operation,
        json!({
            "phase": "InProgress", "nCompleted": 3, "nTotal": 7, "operationUnits": "Bytes",
            "description": "InProgress", "created": null, "started": "2026-11-16T10:00:00Z",
        })
    );

    // Another server goes on waiting.
    scene.kill();
    scene.start(restore::run);
    eventually("the restore to be taken up", async || {
        scene.ctx.restoring.contains("r")
    })
    .await;
    scene.bind().await;
    let done = json!({
        "phase": "Completed", "completionTimestamp": "2026-11-16T10:00:09Z",
        "progress": {"totalBytes": 7, "bytesDone": 7},
    });
    scene.patch_download(json!({"status": done})).await;
    let ended = scene.restore_is(RestorePhase::Completed).await;
    let status = ended.status.unwrap();
    assert_eq!(status.restore_item_operations_completed, Some(1));
    assert_eq!(status.errors, None);
    assert_eq!(scene.download().await.uid(), made.uid());
    let repositories = scene.names::<BackupRepository>().await;
    assert_eq!(repositories, ["shop-default-restic"]);

    let volume = volumes.get("pv-2").await.unwrap();
    let labels = [("disk".to_owned(), "a".to_owned())];
    assert_eq!(volume.labels(), &labels.into());
    let policy = volume.spec.unwrap().persistent_volume_reclaim_policy;
    assert_eq!(policy.as_deref(), Some("Retain"));
    let (_, row) = scene.errors_and_row().await;
    let operation = &made.labels()["velero.io/async-operation-id"];
    assert_eq!(
        row,
        json!({
            "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv-2", "originalPvName": "pv-1",
            "restoreMethod": "CSISnapshot", "snapshotDataMoved": true,
            "snapshotDataMovementInfo": {
                "dataMover": "bowline", "uploaderType": "restic", "snapshotHandle": "1a2b3c4d",
                "operationID": operation, "size": 7, "Phase": "Completed",
            },
            "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:09Z",
            "result": "succeeded", "capacity": 1_073_741_824,
        })
    );
}

#[tokio::test]
async fn data_that_does_not_come_makes_the_restore_fail_in_part() {
    let failed = json!({"status": {"phase": "Failed", "message": "disk on fire"}});
    let canceled = json!({"status": {"phase": "Canceled"}});
    for (patch, why) in [
        (Some(failed), "disk on fire"),
        (Some(canceled), "DataDownload is canceled"),
        (
            None,
            "the DataDownload of persistentvolumeclaims shop/data is gone",
        ),
    ] {
        let scene = scene("bowline", json!({}), json!(null)).await;
        scene
            .restore_is(RestorePhase::WaitingForPluginOperations)
            .await;
        match &patch {
            Some(patch) => scene.patch_download(patch.clone()).await,
            None => {
                let name = scene.download().await.name_any();
                let api = scene.api::<DataDownload>();
                api.delete(&name, &DeleteParams::default()).await.unwrap();
            }
        }
        let ended = scene.restore_is(RestorePhase::PartiallyFailed).await;
        let status = ended.status.unwrap();
        assert_eq!(status.restore_item_operations_failed, Some(1));
        assert_eq!(status.errors, Some(1));
        let (errors, row) = scene.errors_and_row().await;
        let text = format!(
            "error from restore item operation: {why}, plugin: velero.io/csi-pvc-restorer, item: persistentvolumeclaims/shop/data"
        );
        assert_eq!(errors, json!({"velero": [text]}));
        assert_eq!(row["result"], "failed", "{row}");
        assert_eq!(row["message"], why, "{row}");
    }
}

#[tokio::test]
async fn a_download_that_takes_too_long_is_cancelled() {
    let spec = json!({"itemOperationTimeout": "1s"});
    let scene = scene("bowline", spec, json!(null)).await;
    let ended = scene.restore_is(RestorePhase::PartiallyFailed).await;
    assert_eq!(ended.status.unwrap().errors, Some(1));
    assert_eq!(scene.download().await.spec.cancel, Some(true));
    let (_, row) = scene.errors_and_row().await;
    assert_eq!(row["result"], "failed");
    assert_eq!(row["message"], "Asynchronous action timed out");
}

#[tokio::test]
async fn data_that_velero_moved_is_refused_by_name() {
    let scene = scene("velero", json!({}), json!(null)).await;
    let ended = scene.restore_is(RestorePhase::PartiallyFailed).await;
    assert_eq!(ended.status.unwrap().errors, Some(1));
    let (errors, row) = scene.errors_and_row().await;
    let why = "its data was moved by Velero with kopia, which this version cannot read";
    let said = errors["namespaces"]["shop"][0].to_string();
    assert!(said.contains("shop/data") && said.contains(why), "{said}");
    assert_eq!(
        (&row["result"], &row["message"]),
        (&json!("failed"), &json!(why))
    );
    let info = &row["snapshotDataMovementInfo"];
    assert_eq!(
        (&info["dataMover"], &info["size"]),
        (&json!("velero"), &json!(7))
    );
    assert!(scene.all_downloads().await.is_empty());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client.clone(), "shop");
    assert!(claims.get_opt("data").await.unwrap().is_none());
    // The rest is there.
    let list = scene
        .file("restores/r/restore-r-resource-list.json.gz")
        .await;
    assert_eq!(list["v1/Pod"], json!(["shop/web(created)"]));
}

/// A copy of a pod's files, which keeps the restore from going on.
fn copies() -> Value {
    json!([{
        "metadata": {"name": "b-1", "namespace": "elsewhere"},
        "spec": {"pod": {"namespace": "shop", "name": "web"}, "volume": "scratch", "uploaderType": "restic", "repoIdentifier": ""},
        "status": {"phase": "Completed", "snapshotID": "99", "progress": {"totalBytes": 1}},
    }])
}

#[tokio::test]
async fn a_server_that_takes_over_makes_no_second_download_and_loses_none() {
    // Killed before anything says that there is a download; or even before it was made.
    for is_made in [true, false] {
        let mut scene = scene("bowline", json!({}), copies()).await;
        let first = scene.download().await;
        let requests = scene.api::<PodVolumeRestore>();
        let copying = async || requests.list(&ListParams::default()).await.unwrap().items;
        eventually("the copy to be waited for", async || {
            !copying().await.is_empty()
        })
        .await;
        scene.kill();
        assert_eq!(scene.file(OPERATIONS).await, json!(null));
        if !is_made {
            let api = scene.api::<DataDownload>();
            let params = DeleteParams::default();
            api.delete(&first.name_any(), &params).await.unwrap();
        }
        scene.start(restore::run);
        eventually("the restore to be taken up", async || {
            scene.ctx.restoring.contains("r")
        })
        .await;
        let done = Patch::Merge(json!({"status": {"phase": "Completed"}}));
        for request in copying().await {
            let (name, params) = (request.name_any(), PatchParams::default());
            requests.patch(&name, &params, &done).await.unwrap();
        }
        let waiting = scene
            .restore_is(RestorePhase::WaitingForPluginOperations)
            .await;
        let status = waiting.status.unwrap();
        assert_eq!(status.restore_item_operations_attempted, Some(1));
        let now = scene.download().await;
        assert_eq!(now.name_any(), first.name_any());
        assert_eq!(now.uid() == first.uid(), is_made);
        scene.bind().await;
        scene
            .patch_download(json!({"status": {"phase": "Completed"}}))
            .await;
        scene.restore_is(RestorePhase::Completed).await;
        assert_eq!(scene.download().await.uid(), now.uid());
    }
}

#[tokio::test]
async fn deleting_a_restore_gives_up_its_downloads() {
    let scene = scene("bowline", json!({}), json!(null)).await;
    scene
        .restore_is(RestorePhase::WaitingForPluginOperations)
        .await;
    // Somebody is at it.
    let held = json!({
        "metadata": {"finalizers": ["velero.io/data-upload-download-finalizer"]},
        "status": {"phase": "InProgress"},
    });
    scene.patch_download(held).await;
    let restores = scene.api::<Restore>();
    let params = DeleteParams::default();
    restores.delete("r", &params).await.unwrap();
    eventually("the restore to go", async || {
        scene.get::<Restore>("r").await.is_none()
    })
    .await;
    assert_eq!(scene.download().await.spec.cancel, Some(true));
}
