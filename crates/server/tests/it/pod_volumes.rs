//! Repositories, and backups with pod volumes. The node process is played here.

use std::{fs, io::Read, sync::Arc};

use bowline_api::v1::{
    Backup, BackupPhase, BackupRepository, BackupRepositoryPhase, BackupStorageLocation,
    DeleteBackupRequest, PodVolumeBackup,
};
use bowline_server::{
    Context,
    controllers::{backup, deletion, repository},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::scene::{Scene, eventually};

/// The password, with a line end that does not count.
fn password(scene: &Scene) {
    scene
        .server
        .load(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "velero", "name": "velero-repo-credentials"},
            "data": {"repository-password": "c2VjcmV0Cg=="},
        }))
        .unwrap();
}

async fn repository(scene: &Scene, namespace: &str, location: &str) {
    let name = format!("{namespace}-{location}-restic");
    let _: BackupRepository = scene
        .create(json!({
            "metadata": {"name": name},
            "spec": {
                "volumeNamespace": namespace, "backupStorageLocation": location,
                "repositoryType": "restic", "maintenanceFrequency": "0s",
            },
        }))
        .await;
}

/// Waits for a phase; returns the repository and its message.
async fn becomes(
    scene: &Scene,
    name: &str,
    phase: BackupRepositoryPhase,
) -> (BackupRepository, String) {
    eventually(&format!("{name} to be {phase}"), async || {
        let found = scene.get::<BackupRepository>(name).await;
        let status = found.and_then(|found| found.status);
        status.and_then(|status| status.phase).as_ref() == Some(&phase)
    })
    .await;
    let found = scene.get::<BackupRepository>(name).await.unwrap();
    let message = found.status.clone().and_then(|status| status.message);
    (found, message.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_made_and_found_again() {
    let mut scene = Scene::new();
    password(&scene);
    scene.available("default", json!({}));
    scene.start(repository::run);
    repository(&scene, "shop", "default").await;
    let (made, _) = becomes(&scene, "shop-default-restic", BackupRepositoryPhase::Ready).await;
    let config = scene.bucket("default").join("restic/shop/config");
    assert!(config.exists());
    let place = scene.bucket("default").join("restic/shop");
    assert_eq!(
        made.spec.restic_identifier.as_deref(),
        Some(place.to_str().unwrap())
    );
    assert_eq!(
        serde_json::to_value(&made.spec.maintenance_frequency).unwrap(),
        "168h0m0s"
    );
    let status = made.status.unwrap();
    assert!(status.last_maintenance_time.is_some());
    assert_eq!(status.recent_maintenance, None);

    // Another server knows nothing of it, and finds it.
    scene.restart();
    let api = scene.api::<BackupRepository>();
    let name = "shop-default-restic";
    let unknown = json!({"status": {"phase": "New"}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&unknown))
        .await
        .unwrap();
    let before = fs::read(&config).unwrap();
    scene.start(repository::run);
    becomes(&scene, name, BackupRepositoryPhase::Ready).await;
    assert_eq!(fs::read(&config).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_repository_is_said() {
    let scene = Scene::new();
    scene.available("sealed", json!({"spec": {"accessMode": "ReadOnly"}}));
    scene.available("default", json!({}));
    scene.start(repository::run);
    let not_ready = BackupRepositoryPhase::NotReady;
    repository(&scene, "shop", "nowhere").await;
    let (_, why) = becomes(&scene, "shop-nowhere-restic", not_ready.clone()).await;
    assert_eq!(why, "backup storage location nowhere not found");
    repository(&scene, "shop", "default").await;
    let (_, why) = becomes(&scene, "shop-default-restic", not_ready.clone()).await;
    assert_eq!(
        why,
        "password of volume repositories: secret velero-repo-credentials not found"
    );
    password(&scene);
    repository(&scene, "shop", "sealed").await;
    let (_, why) = becomes(&scene, "shop-sealed-restic", not_ready).await;
    assert!(why.starts_with("there is no repository at "), "{why}");
    assert!(!scene.bucket("sealed").join("restic").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_location_that_leads_elsewhere_is_looked_at_anew() {
    let scene = Scene::new();
    password(&scene);
    scene.available("default", json!({}));
    scene.start(repository::run);
    repository(&scene, "shop", "default").await;
    let name = "shop-default-restic";
    becomes(&scene, name, BackupRepositoryPhase::Ready).await;
    let elsewhere = json!({"spec": {"objectStorage": {"prefix": "moved"}}});
    scene
        .api::<BackupStorageLocation>()
        .patch(
            "default",
            &PatchParams::default(),
            &Patch::Merge(&elsewhere),
        )
        .await
        .unwrap();
    // A look without waiting for the next regular one.
    let label = json!({"metadata": {"labels": {"look": "now"}}});
    scene
        .api::<BackupRepository>()
        .patch(name, &PatchParams::default(), &Patch::Merge(&label))
        .await
        .unwrap();
    let config = scene.bucket("default").join("moved/restic/shop/config");
    eventually("the repository in its new place", async || config.exists()).await;
    let (moved, _) = becomes(&scene, name, BackupRepositoryPhase::Ready).await;
    let identifier = moved.spec.restic_identifier.unwrap();
    assert!(identifier.ends_with("/moved/restic/shop"), "{identifier}");
}

/// A node process that ends every copy at once.
async fn node(ctx: Arc<Context>) {
    let api = ctx.api::<PodVolumeBackup>();
    while !ctx.stop.is_cancelled() {
        let all = api.list(&ListParams::default()).await.unwrap();
        for copy in all.items.iter().filter(|copy| copy.status.is_none()) {
            let done = json!({"status": {
                "phase": "Completed", "snapshotID": "12345678", "incrementalBytes": 5,
                "progress": {"totalBytes": 7, "bytesDone": 7},
            }});
            api.patch(
                &copy.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&done),
            )
            .await
            .unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn file(scene: &Scene, suffix: &str) -> Value {
    let path = scene
        .bucket("default")
        .join(format!("backups/b/b-{suffix}.json.gz"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A running pod with a volume on a node that lives, a place for its data, and a backup of it.
async fn shop(scene: &Scene) {
    password(scene);
    scene.available("default", json!({}));
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "velero", "name": "bowline-node-n1"},
            "spec": {"leaseDurationSeconds": 3600, "renewTime": now.to_string()},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": "data", "uid": "claim"},
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {
                "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "s", "path": "/"},
                "claimRef": {"namespace": "shop", "name": "data"},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "shop", "name": "db", "uid": "pod",
                "annotations": {"backup.velero.io/backup-volumes": "v"},
            },
            "spec": {
                "nodeName": "n1",
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            },
            "status": {"phase": "Running"},
        }),
    ] {
        scene.server.load(&object).unwrap();
    }
    scene.start(repository::run);
    scene.start(backup::run);
    let _: Backup = scene
        .create(json!({
            "metadata": {"name": "b"},
            "spec": {"includedNamespaces": ["shop"], "storageLocation": "default"},
        }))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_its_pod_volumes_and_takes_them_along() {
    let scene = Scene::new();
    scene.start(node);
    shop(&scene).await;
    eventually("the backup to be over", async || {
        let found = scene.get::<Backup>("b").await;
        let status = found.and_then(|found| found.status);
        status.is_some_and(|status| status.completion_timestamp.is_some())
    })
    .await;
    let made = scene.get::<Backup>("b").await.unwrap();
    let status = made.status.clone().unwrap();
    assert_eq!(status.phase, Some(BackupPhase::Completed), "{status:?}");

    let copies = file(&scene, "podvolumebackups");
    assert_eq!(copies.as_array().unwrap().len(), 1);
    assert_eq!(copies[0]["spec"]["uploaderType"], "restic");
    assert_eq!(
        copies[0]["metadata"]["labels"]["velero.io/pvc-uid"],
        "claim"
    );
    assert_eq!(copies[0]["status"]["phase"], "Completed");
    let info = file(&scene, "volumeinfo");
    assert_eq!(info.as_array().unwrap().len(), 1);
    assert_eq!(info[0]["pvName"], "pv");
    assert_eq!(info[0]["backupMethod"], "PodVolumeBackup");
    assert_eq!(info[0]["pvbInfo"]["snapshotHandle"], "12345678");
    assert_eq!(info[0]["pvbInfo"]["size"], 7);

    // With the backup go its copies; their snapshots are forgotten before.
    scene.start(deletion::run);
    let _: DeleteBackupRequest = scene
        .create(json!({"metadata": {"name": "gone"}, "spec": {"backupName": "b"}}))
        .await;
    eventually("the backup to go", async || {
        scene.names::<Backup>().await.is_empty()
    })
    .await;
    assert!(!scene.bucket("default").join("backups/b").exists());
    assert!(scene.bucket("default").join("restic/shop/config").exists());
}

/// Waits until the copy is to be ended, and ends it as a node does.
async fn cancelled(scene: &Scene) {
    let api = scene.api::<PodVolumeBackup>();
    eventually("the copy to be cancelled", async || {
        let copies = api.list(&ListParams::default()).await.unwrap();
        copies.iter().any(|copy| copy.spec.cancel == Some(true))
    })
    .await;
    for copy in api.list(&ListParams::default()).await.unwrap() {
        let over = Patch::Merge(json!({"status": {"phase": "Canceled"}}));
        api.patch(&copy.name_any(), &PatchParams::default(), &over)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_backup_that_is_being_made_ends_it_first() {
    for by_request in [true, false] {
        let scene = Scene::new();
        // Nobody copies, so it would go on for hours.
        shop(&scene).await;
        eventually("the copy to be asked for", async || {
            scene.names::<PodVolumeBackup>().await.len() == 1
        })
        .await;
        if by_request {
            scene.start(deletion::run);
            let _: DeleteBackupRequest = scene
                .create(json!({"metadata": {"name": "gone"}, "spec": {"backupName": "b"}}))
                .await;
            cancelled(&scene).await;
        } else {
            let api = scene.api::<Backup>();
            api.delete("b", &DeleteParams::default()).await.unwrap();
        }
        eventually("its work to end", async || {
            scene.ctx.running.is_empty() && scene.names::<Backup>().await.is_empty()
        })
        .await;
        // What was being written when it ended goes a moment later.
        eventually("its files to go", async || {
            let left = fs::read_dir(scene.bucket("default").join("backups/b"));
            left.map_or(0, Iterator::count) == 0
        })
        .await;
        assert!(scene.names::<DeleteBackupRequest>().await.len() < 2);
    }
}
