//! Restores of pods whose volumes were copied file by file; the test plays the node.

use bowline_api::{
    files::RestoreVolumeInfo,
    v1::{
        Backup, BackupRepository, BackupStorageLocation, PodVolumeRestore, Restore, RestorePhase,
    },
};
use bowline_server::controllers::restore;
use bowline_vault::{
    Bucket,
    archive::write::{Batch, Packer, stream},
};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::scene::{Scene, eventually};

fn objects() -> Vec<(&'static str, Value)> {
    vec![
        (
            "resources/pods/namespaces/shop/web.json",
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web"},
                "spec": {
                    "containers": [{"name": "c", "image": "x"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                },
                "status": {"phase": "Running"},
            }),
        ),
        (
            "resources/persistentvolumeclaims/namespaces/shop/data.json",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1", "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound"},
            }),
        ),
        (
            "resources/persistentvolumes/cluster/pv-1.json",
            volume("pv-1", "Retain", json!({"disk": "a"})),
        ),
    ]
}

fn volume(name: &str, policy: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels},
        "spec": {
            "persistentVolumeReclaimPolicy": policy, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/x"}, "claimRef": {"namespace": "shop", "name": "data"},
        },
        "status": {"phase": "Bound"},
    })
}

async fn archive() -> Vec<u8> {
    let mut batch = Batch::new(0);
    for (path, object) in objects() {
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

/// A cluster with a backup of a pod and its volume, and a server that has just begun.
async fn scene() -> (Scene, Bucket) {
    let scene = Scene::new();
    scene.available("default", json!({}));
    let bucket = scene.default_bucket().await;
    bucket
        .put("backups/b/b.tar.gz", archive().await.into())
        .await
        .unwrap();
    let copies = json!([{
        "metadata": {"name": "b-1", "namespace": "elsewhere"},
        "spec": {"pod": {"namespace": "shop", "name": "web"}, "volume": "data", "uploaderType": "restic", "repoIdentifier": "s3:x/restic/shop"},
        "status": {"phase": "Completed", "snapshotID": "1a2b3c4d", "progress": {"totalBytes": 7, "bytesDone": 7}},
    }]);
    bucket
        .put_json("backups/b/b-podvolumebackups.json.gz", &copies)
        .await
        .unwrap();
    let infos = json!([{
        "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv-1", "backupMethod": "PodVolumeBackup",
        "pvInfo": {"reclaimPolicy": "Retain", "labels": {"disk": "a"}},
    }]);
    bucket
        .put_json("backups/b/b-volumeinfo.json.gz", &infos)
        .await
        .unwrap();
    let status = json!({"phase": "Completed", "version": 1, "formatVersion": "1.1.0"});
    let spec = json!({"storageLocation": "default"});
    scene.load::<Backup>("b", json!({"spec": spec, "status": status}));
    let labels = json!({"deploy": "velero"});
    let server = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "velero", "name": "velero"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "velero", "image": "r.io/bowline:v3"}],
        }}},
    });
    scene.server.load(&server).unwrap();
    scene.start(restore::run);
    scene
        .create::<Restore>(json!({"metadata": {"name": "r"}, "spec": {"backupName": "b"}}))
        .await;
    (scene, bucket)
}

impl Scene {
    /// The bucket, for as long as the server does not stop.
    async fn default_bucket(&self) -> Bucket {
        let location = self.get::<BackupStorageLocation>("default").await.unwrap();
        self.ctx.bucket(&location).await.unwrap()
    }

    /// The request for the volume, once there is one.
    async fn request(&self) -> PodVolumeRestore {
        let api = self.api::<PodVolumeRestore>();
        let list = async || api.list(&ListParams::default()).await.unwrap().items;
        eventually("the request for the volume", async || {
            !list().await.is_empty()
        })
        .await;
        let mut found = list().await;
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    async fn patch_request(&self, request: &PodVolumeRestore, patch: Value) {
        let api = self.api::<PodVolumeRestore>();
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        api.patch(&request.name_any(), &params, &patch)
            .await
            .unwrap();
    }

    async fn ended_as(&self, wanted: RestorePhase) -> Restore {
        let phase = |restore: &Restore| restore.status.as_ref().and_then(|s| s.phase.clone());
        eventually("the end of the restore", async || {
            let found = self.get::<Restore>("r").await;
            found.is_some_and(|restore| phase(&restore) == Some(wanted.clone()))
        })
        .await;
        self.get::<Restore>("r").await.unwrap()
    }
}

#[tokio::test]
async fn a_restore_waits_for_its_volumes_and_makes_them_like_the_old_ones() {
    let (mut scene, _) = scene().await;
    let request = scene.request().await;
    assert_eq!(request.spec.snapshot_id, "1a2b3c4d");
    assert!(
        request
            .spec
            .repo_identifier
            .ends_with("/default/restic/shop")
    );
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "shop");
    let pod = pods.get("web").await.unwrap();
    assert_eq!(request.spec.pod.uid, pod.uid());
    let waits = &pod.spec.unwrap().init_containers.unwrap()[0];
    assert_eq!(waits.image.as_deref(), Some("r.io/bowline:v3"));

    // Another server goes on, and asks for nothing twice.
    scene.restart();
    scene.start(restore::run);
    scene
        .server
        .load(&volume("pv-2", "Delete", json!({"zone": "b"})))
        .unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client.clone(), "shop");
    let (params, bound) = (
        PatchParams::default(),
        json!({"spec": {"volumeName": "pv-2"}}),
    );
    claims
        .patch("data", &params, &Patch::Merge(&bound))
        .await
        .unwrap();
    let bound = json!({"status": {"phase": "Bound"}});
    claims
        .patch_status("data", &params, &Patch::Merge(&bound))
        .await
        .unwrap();
    eventually("the restore to be taken up", async || {
        scene.ctx.restoring.contains("r")
    })
    .await;
    let progress = json!({"totalBytes": 7, "bytesDone": 7});
    scene
        .patch_request(
            &request,
            json!({"status": {"phase": "Completed", "progress": progress}}),
        )
        .await;
    scene.ended_as(RestorePhase::Completed).await;
    assert_eq!(scene.request().await.name_any(), request.name_any());
    let repositories = scene.names::<BackupRepository>().await;
    assert_eq!(repositories, ["shop-default-restic"]);

    let volumes: Api<PersistentVolume> = Api::all(scene.client.clone());
    let volume = volumes.get("pv-2").await.unwrap();
    assert_eq!(
        volume.labels(),
        &[("disk".to_owned(), "a".to_owned())].into()
    );
    let policy = volume.spec.unwrap().persistent_volume_reclaim_policy;
    assert_eq!(policy.as_deref(), Some("Retain"));
    let bucket = scene.default_bucket().await;
    let infos = bucket.json::<Vec<RestoreVolumeInfo>>("restores/r/r-volumeinfo.json.gz");
    let infos = infos.await.unwrap().unwrap();
    assert_eq!(infos[0].pv_name.as_deref(), Some("pv-2"));
    assert_eq!(infos[0].pvr_info.as_ref().unwrap().size, Some(7));
}

#[tokio::test]
async fn a_volume_that_fails_makes_the_restore_fail_in_part() {
    let (scene, bucket) = scene().await;
    let request = scene.request().await;
    // A claim that is gone needs no volume.
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client.clone(), "shop");
    claims
        .delete("data", &DeleteParams::default())
        .await
        .unwrap();
    scene
        .patch_request(
            &request,
            json!({"status": {"phase": "Failed", "message": "wrong password"}}),
        )
        .await;
    let ended = scene.ended_as(RestorePhase::PartiallyFailed).await;
    assert_eq!(ended.status.unwrap().errors, Some(1));
    let results: Value = bucket
        .json("restores/r/restore-r-results.gz")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        results["errors"],
        json!({"velero": ["pod volume restore failed: volume data of pod shop/web: wrong password"]})
    );
}

#[tokio::test]
async fn a_pod_that_goes_is_not_waited_for() {
    let (scene, bucket) = scene().await;
    let request = scene.request().await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client.clone(), "shop");
    claims
        .delete("data", &DeleteParams::default())
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "shop");
    let now = DeleteParams::default().grace_period(0);
    pods.delete("web", &now).await.unwrap();
    scene.ended_as(RestorePhase::PartiallyFailed).await;
    let request = scene
        .get::<PodVolumeRestore>(&request.name_any())
        .await
        .unwrap();
    assert_eq!(request.spec.cancel, Some(true));
    let results: Value = bucket
        .json("restores/r/restore-r-results.gz")
        .await
        .unwrap()
        .unwrap();
    let expected = "pod volume restore failed: volume data of pod shop/web: the pod is gone";
    assert_eq!(results["errors"], json!({"velero": [expected]}));
}

#[tokio::test]
async fn deleting_a_restore_gives_up_its_volumes() {
    let (scene, _bucket) = scene().await;
    let request = scene.request().await;
    // Somebody is at it.
    let held = json!({"metadata": {"finalizers": ["velero.io/pod-volume-finalizer"]}, "status": {"phase": "InProgress"}});
    scene.patch_request(&request, held).await;
    let restores = scene.api::<Restore>();
    restores
        .delete("r", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the restore to go", async || {
        scene.get::<Restore>("r").await.is_none()
    })
    .await;
    let request = scene
        .get::<PodVolumeRestore>(&request.name_any())
        .await
        .unwrap();
    assert_eq!(request.spec.cancel, Some(true));
}
