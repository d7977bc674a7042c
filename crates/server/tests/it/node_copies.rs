//! Volumes of a node's pods go into repositories and come back; what is stopped in between ends well.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    time::Duration,
};

use bowline_api::v1::{
    BackupStorageLocation, DataPathPhase as Phase, PodVolumeBackup, PodVolumeBackupStatus,
    PodVolumeRestore,
};
use bowline_volume::embedded::{Budget, Identity, Repository};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    node::{Node, backup, backup_ends, pod, restore, restore_ends, running, waiting},
    scene::{Scene, eventually},
};

const PASSWORD: &str = "c3RhdGljLXBhc3N3MHJk";
const WRONG: &str = "d3Jvbmc=";

/// A location with a repository for the namespace `shop`, and a pod `web` on the node.
async fn scene() -> Scene {
    let scene = Scene::new();
    scene.available("default", json!({}));
    password(&scene, PASSWORD);
    pod(&scene, "web", running());
    let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
    let bucket = scene.ctx.bucket(&location).await.unwrap();
    let identity = Identity {
        hostname: "server".to_owned(),
        since: jiff::Timestamp::now(),
    };
    let folder = "restic/shop";
    Repository::create(
        bucket,
        folder,
        "static-passw0rd",
        identity,
        Budget::default(),
    )
    .await
    .unwrap();
    scene
}

fn password(scene: &Scene, encoded: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "velero-repo-credentials", "namespace": "velero"},
        "data": {"repository-password": encoded},
    });
    scene.server.load(&secret).unwrap();
}

async fn status(scene: &Scene, name: &str) -> PodVolumeBackupStatus {
    let backup = scene.get::<PodVolumeBackup>(name).await.unwrap();
    backup.status.unwrap_or_default()
}

/// Waits until bytes of a volume have moved.
async fn moves(scene: &Scene, name: &str) {
    eventually("bytes that move", async || {
        let progress = status(scene, name).await.progress.unwrap_or_default();
        progress.bytes_done.is_some_and(|bytes| bytes > 0)
    })
    .await;
}

/// A file that takes long to read, though it takes no space.
fn endless(volume: &Path) -> fs::File {
    let file = fs::File::create(volume.join("endless")).unwrap();
    file.set_len(1 << 40).unwrap();
    file
}

async fn cancel(scene: &Scene, name: &str) {
    let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
    let api = scene.api::<PodVolumeBackup>();
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_goes_into_the_repository_and_comes_back() {
    let scene = scene().await;
    pod(&scene, "copy", waiting());
    let node = Node::start(&scene);
    let volume = node.volume("uid-of-web", "data");
    fs::create_dir(volume.join("folder")).unwrap();
    fs::write(volume.join("folder/file"), "one\n".repeat(10_000)).unwrap();
    fs::set_permissions(volume.join("folder/file"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("folder/file", volume.join("link")).unwrap();
    let tags = json!({"spec": {"tags": {"backup": "b", "volume": "data"}}});
    backup(&scene, "first", "web", tags);
    assert_eq!(
        backup_ends(&scene, "first").await,
        (Phase::Completed, String::new())
    );
    let status = status(&scene, "first").await;
    let snapshot = status.snapshot_id.unwrap();
    assert_eq!(snapshot.len(), 64);
    assert_eq!(status.path.as_deref(), volume.to_str());
    let progress = status.progress.unwrap();
    assert_eq!(
        (progress.total_bytes, progress.bytes_done),
        (Some(40_000), Some(40_000))
    );
    assert!(status.incremental_bytes.is_some());
    assert!(status.accepted_timestamp.is_some() && status.start_timestamp.is_some());

    let target = node.volume("uid-of-copy", "data");
    fs::write(target.join("mine"), "stays").unwrap();
    restore(
        &scene,
        "back",
        "copy",
        json!({"spec": {"snapshotID": snapshot}}),
    );
    assert_eq!(
        restore_ends(&scene, "back").await,
        (Phase::Completed, String::new())
    );
    assert_eq!(
        fs::read(target.join("folder/file")).unwrap(),
        fs::read(volume.join("folder/file")).unwrap()
    );
    assert_eq!(
        fs::metadata(target.join("folder/file")).unwrap().mode() & 0o7777,
        0o640
    );
    assert_eq!(
        fs::read_link(target.join("link")).unwrap(),
        Path::new("folder/file")
    );
    assert_eq!(fs::read(target.join("mine")).unwrap(), b"stays");
    assert!(target.join(".velero/uid-of-r").is_file());
    let status = scene
        .get::<PodVolumeRestore>("back")
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(status.node.as_deref(), Some("n1"));
    let progress = status.progress.unwrap();
    assert_eq!(progress.total_bytes, progress.bytes_done);
    assert_eq!(progress.bytes_done, Some(40_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_backup_of_a_claim_adds_nothing() {
    let scene = scene().await;
    let node = Node::start(&scene);
    let volume = node.volume("uid-of-web", "data");
    fs::write(volume.join("file"), vec![7; 3_000_000]).unwrap();
    let claim = || json!({"metadata": {"labels": {"velero.io/pvc-uid": "c"}}});
    backup(&scene, "first", "web", claim());
    assert_eq!(backup_ends(&scene, "first").await.0, Phase::Completed);
    backup(&scene, "second", "web", claim());
    assert_eq!(backup_ends(&scene, "second").await.0, Phase::Completed);
    let first = status(&scene, "first").await;
    let second = status(&scene, "second").await;
    assert_ne!(first.snapshot_id, second.snapshot_id);
    assert!(first.incremental_bytes > second.incremental_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_volume_has_no_snapshot() {
    let scene = scene().await;
    let node = Node::start(&scene);
    node.volume("uid-of-web", "data");
    backup(&scene, "empty", "web", json!({}));
    let (phase, message) = backup_ends(&scene, "empty").await;
    assert_eq!(phase, Phase::Completed);
    assert_eq!(message, "volume was empty so no snapshot was taken");
    assert_eq!(status(&scene, "empty").await.snapshot_id, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_cannot_be_had_is_named_and_tried_again() {
    let scene = scene().await;
    let node = Node::start(&scene);
    let volume = node.volume("uid-of-web", "data");
    fs::write(volume.join("file"), "data").unwrap();
    password(&scene, WRONG);
    backup(&scene, "locked-out", "web", json!({}));
    let elsewhere = json!({"spec": {"backupStorageLocation": "moon"}});
    backup(&scene, "elsewhere", "web", elsewhere);
    for (name, why) in [
        ("locked-out", "data path backup failed: wrong password"),
        ("elsewhere", "backup storage location moon not found"),
    ] {
        let (phase, message) = backup_ends(&scene, name).await;
        assert_eq!(phase, Phase::Failed);
        assert!(message.contains(why), "{message}");
    }
    pod(&scene, "target", waiting());
    node.volume("uid-of-target", "data");
    let other = json!({"spec": {"sourceNamespace": "nobody"}});
    restore(&scene, "no-repository", "target", other);
    let (phase, message) = restore_ends(&scene, "no-repository").await;
    assert_eq!(phase, Phase::Failed);
    assert!(message.contains("there is no repository"), "{message}");

    password(&scene, PASSWORD);
    backup(&scene, "better", "web", json!({}));
    assert_eq!(backup_ends(&scene, "better").await.0, Phase::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_and_a_queued_copy_are_canceled_at_once() {
    let scene = scene().await;
    let node = Node::start(&scene);
    endless(&node.volume("uid-of-web", "data"));
    for name in ["a", "b", "c"] {
        backup(&scene, name, "web", json!({}));
    }
    let in_phase = async |phase: Phase| {
        let mut names = Vec::new();
        for name in ["a", "b", "c"] {
            if status(&scene, name).await.phase == Some(phase.clone()) {
                names.push(name);
            }
        }
        names
    };
    eventually("two slots to be taken", async || {
        in_phase(Phase::InProgress).await.len() == 2 && in_phase(Phase::Prepared).await.len() == 1
    })
    .await;
    let queued = in_phase(Phase::Prepared).await[0];
    cancel(&scene, queued).await;
    assert_eq!(backup_ends(&scene, queued).await.0, Phase::Canceled);
    for name in in_phase(Phase::InProgress).await {
        moves(&scene, name).await;
        let began = Instant::now();
        cancel(&scene, name).await;
        assert_eq!(
            backup_ends(&scene, name).await,
            (Phase::Canceled, String::new())
        );
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(status(&scene, name).await.snapshot_id, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_fails_its_backup_and_a_deleted_backup_goes() {
    let scene = scene().await;
    let node = Node::start(&scene);
    endless(&node.volume("uid-of-web", "data"));
    backup(&scene, "orphaned", "web", json!({}));
    let held = json!({"metadata": {"finalizers": ["velero.io/pod-volume-finalizer"]}});
    backup(&scene, "deleted", "web", held);
    moves(&scene, "orphaned").await;
    moves(&scene, "deleted").await;
    let now = DeleteParams::default().grace_period(0);
    let api = scene.api::<PodVolumeBackup>();
    api.delete("deleted", &now).await.unwrap();
    eventually("the deleted one to go", async || {
        scene.names::<PodVolumeBackup>().await == ["orphaned"]
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "shop");
    pods.delete("web", &now).await.unwrap();
    let (phase, message) = backup_ends(&scene, "orphaned").await;
    assert_eq!(phase, Phase::Failed);
    assert!(
        message.contains("pod shop/web of volume data is gone"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_begins_again() {
    let scene = scene().await;
    let mut node = Node::start(&scene);
    let volume = node.volume("uid-of-web", "data");
    endless(&volume);
    backup(&scene, "interrupted", "web", json!({}));
    moves(&scene, "interrupted").await;
    node.stop().await.unwrap();
    let left = status(&scene, "interrupted").await;
    assert_eq!(left.phase, Some(Phase::InProgress));
    let locks = scene.bucket("default").join("restic/shop/locks");
    let locks = fs::read_dir(locks).map_or(0, Iterator::count);
    assert_eq!(locks, 0, "an orderly end leaves no locks");
    fs::write(volume.join("endless"), "short").unwrap();
    node.restart(&scene);
    assert_eq!(
        backup_ends(&scene, "interrupted").await,
        (Phase::Completed, String::new())
    );
    let done = status(&scene, "interrupted").await;
    assert_eq!(done.start_timestamp, left.start_timestamp);
    assert_eq!(done.progress.unwrap().total_bytes, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_goes_fails_its_backup() {
    let scene = scene().await;
    let node = Node::start(&scene);
    let volume = node.volume("uid-of-web", "data");
    let file = endless(&volume);
    backup(&scene, "gone", "web", json!({}));
    moves(&scene, "gone").await;
    fs::rename(&volume, volume.with_file_name("elsewhere")).unwrap();
    // The rest of the file is quickly read.
    file.set_len(1 << 20).unwrap();
    let (phase, message) = backup_ends(&scene, "gone").await;
    assert_eq!(phase, Phase::Failed, "{message}");
    assert!(message.contains("data path backup failed"), "{message}");
}
