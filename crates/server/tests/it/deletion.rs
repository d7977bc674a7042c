//! Backups go with all that belongs to them, by request or because their time is over.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use bowline_api::v1::{
    Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest,
    DeleteBackupRequestPhase as Phase, PodVolumeBackup, Restore,
};
use bowline_apiserver::{Fault, Rule, When};
use bowline_server::controllers::{
    deletion::{self, actions, actions::DeleteItemAction},
    expiry, location, sync,
};
use serde_json::{Value, json};

use crate::scene::{Scene, backup, eventually};

/// A finished backup and its files.
fn finished(scene: &Scene, name: &str) {
    let status = json!({"phase": "Completed", "startTimestamp": "2026-11-15T03:19:32Z"});
    scene.put_backup("default", &backup(name, status.clone()));
    let rest = json!({"spec": {"storageLocation": "default"}, "status": status});
    scene.load::<Backup>(name, rest);
}

async fn request(scene: &Scene, backup: &str) {
    let name = format!("{backup}-request");
    let _: DeleteBackupRequest = scene
        .create(json!({"metadata": {"name": name}, "spec": {"backupName": backup}}))
        .await;
}

/// The errors of the answer to a request.
async fn errors(scene: &Scene, backup: &str) -> Vec<String> {
    let name = format!("{backup}-request");
    eventually("the answer", async || {
        let request = scene.get::<DeleteBackupRequest>(&name).await;
        let status = request.and_then(|request| request.status);
        status.is_some_and(|status| status.phase == Some(Phase::Processed))
    })
    .await;
    let request = scene.get::<DeleteBackupRequest>(&name).await.unwrap();
    request.status.unwrap().errors.unwrap_or_default()
}

async fn all_gone(scene: &Scene) {
    eventually("the backup and its requests to go", async || {
        scene.names::<Backup>().await.is_empty()
            && scene.names::<DeleteBackupRequest>().await.is_empty()
    })
    .await;
}

/// Notes the names of services.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

#[async_trait::async_trait]
impl DeleteItemAction for Notes {
    fn name(&self) -> &str {
        "example.com/notes"
    }
    fn applies_to(&self, resource: &str) -> bool {
        resource == "services"
    }
    async fn execute(&self, item: &Value, _: &Backup) -> Result<(), String> {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        self.0.lock().unwrap().push(name.to_owned());
        Err("a failure here does not stop anything".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_item_actions_see_each_item_once() {
    let scene = Scene::new();
    scene.golden("default", "backups/basic");
    scene.available("default", json!({}));
    let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
    let bucket = scene.ctx.bucket(&location).await.unwrap();
    let notes = Arc::new(Notes::default());
    for (name, seen, is_sound) in [("basic", vec!["web"], true), ("none", vec![], true)] {
        let of = backup(name, json!({}));
        let result = actions::run(
            &bucket,
            &of,
            &[Arc::clone(&notes) as _],
            Duration::from_secs(60),
        )
        .await;
        assert_eq!(result.is_ok_and(|errors| errors.is_empty()), is_sound);
        assert_eq!(std::mem::take(&mut *notes.0.lock().unwrap()), seen);
    }
    // "archive" is no archive.
    finished(&scene, "damaged");
    let of = backup("damaged", json!({}));
    assert!(
        actions::run(
            &bucket,
            &of,
            &[Arc::clone(&notes) as _],
            Duration::from_secs(60)
        )
        .await
        .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_backup_goes_with_its_files_and_restores_on_a_bad_day() {
    let scene = Scene::new();
    scene.golden("default", "backups/plain");
    scene.golden("default", "restores/mapped");
    let status = json!({
        "phase": "Completed",
        "startTimestamp": "2020-01-01T00:00:00Z",
        "expiration": "2020-02-01T00:00:00Z",
    });
    scene.put_backup("default", &backup("plai", status.clone()));
    scene
        .location("default", json!({"backupSyncPeriod": "1s"}))
        .await;
    scene.load::<Restore>(
        "mapped",
        json!({
            "metadata": {"finalizers": ["restores.velero.io/external-resources-finalizer"]},
            "spec": {"backupName": "plai"},
        }),
    );
    scene.load::<Restore>("other", json!({"spec": {"backupName": "plain"}}));
    let rule = |path: &str, when, fault| Rule {
        method: None,
        path: path.to_owned(),
        when,
        fault,
    };
    scene.server.set_faults(
        vec![
            rule("watch=true", When::OneIn(3), Fault::Cut(2000)),
            rule("/velero/", When::OneIn(25), Fault::Status(500)),
            rule("/velero/", When::OneIn(25), Fault::Lost),
        ],
        3,
    );
    scene.start(location::run);
    scene.start(sync::run);
    scene.start(expiry::run);
    scene.start(deletion::run);
    let folder = scene.bucket("default").join("backups/plai");
    eventually("the files to go", async || {
        !folder.exists() || fs::read_dir(&folder).unwrap().next().is_none()
    })
    .await;
    eventually("the object to go and the other to stay", async || {
        scene.names::<Backup>().await == ["plain"]
    })
    .await;
    eventually("its restore to go and the other to stay", async || {
        scene.names::<Restore>().await == ["other"]
    })
    .await;
    eventually("the request to go", async || {
        scene.names::<DeleteBackupRequest>().await.is_empty()
    })
    .await;
    let restore = scene
        .bucket("default")
        .join("restores/mapped/restore-mapped-logs.gz");
    assert!(!restore.exists());
    let kept = scene.bucket("default").join("backups/plain/plain.tar.gz");
    assert!(kept.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_dead_server_left_is_taken_up_again() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    let status = json!({"phase": "Completed", "startTimestamp": "2026-11-15T03:19:32Z"});
    scene.put_backup("default", &backup("b", status));
    let status = json!({"phase": "Deleting", "startTimestamp": "2026-11-15T03:19:32Z"});
    let rest = json!({"spec": {"storageLocation": "default"}, "status": status});
    scene.load::<Backup>("b", rest);
    scene.load::<DeleteBackupRequest>(
        "left",
        json!({
            "metadata": {
                "creationTimestamp": "2020-01-01T00:00:00Z",
                "labels": {"velero.io/backup-name": "b", "velero.io/backup-uid": "uid-of-b"},
            },
            "spec": {"backupName": "b"},
            "status": {"phase": "InProgress"},
        }),
    );
    scene.start(deletion::run);
    all_gone(&scene).await;
    assert!(!scene.bucket("default").join("backups/b/b.tar.gz").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_requests_for_a_backup_are_as_good_as_one() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    finished(&scene, "b");
    for n in 0..5 {
        let labels = json!({"velero.io/backup-name": "b", "velero.io/backup-uid": "uid-of-b"});
        let metadata = json!({"name": format!("b-{n}"), "labels": labels});
        let _: DeleteBackupRequest = scene
            .create(json!({"metadata": metadata, "spec": {"backupName": "b"}}))
            .await;
    }
    scene.start(deletion::run);
    all_gone(&scene).await;
    let text = scene.ctx.metrics.text();
    assert!(text.contains("velero_backup_deletion_success_total{schedule=\"\"} 1\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_that_never_ran_can_be_deleted() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    // Another backup of this name lies in the bucket; it is none of theirs.
    let status = json!({"phase": "Completed", "startTimestamp": "2026-11-15T03:19:32Z"});
    scene.put_backup("default", &backup("queued", status));
    for (name, location, phase) in [
        ("queued", "", "Queued"),
        ("refused", "nosuch", "FailedValidation"),
    ] {
        let spec = json!({"storageLocation": location});
        scene.load::<Backup>(name, json!({"spec": spec, "status": {"phase": phase}}));
        request(&scene, name).await;
    }
    scene.start(deletion::run);
    all_gone(&scene).await;
    assert!(
        scene
            .bucket("default")
            .join("backups/queued/queued.tar.gz")
            .exists()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_whose_name_was_taken_leaves_the_files_alone() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    let status = json!({"phase": "Completed", "startTimestamp": "2026-11-15T03:19:32Z"});
    scene.put_backup("default", &backup("dup", status));
    // Its snapshots are not to be deleted; who tries finds no location for them.
    let folder = scene.bucket("default").join("backups/dup");
    let records = json!([{
        "spec": {"backupName": "dup", "backupUID": "u", "location": "elsewhere", "persistentVolumeName": "pv", "providerVolumeID": "vol", "volumeType": ""},
        "status": {"phase": "Completed", "providerSnapshotID": "snap"},
    }]);
    let file = fs::File::create(folder.join("dup-volumesnapshots.json.gz")).unwrap();
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    serde_json::to_writer(&mut file, &records).unwrap();
    file.finish().unwrap();
    let status = json!({"phase": "Failed", "startTimestamp": "2026-11-15T04:00:00Z"});
    let rest = json!({"spec": {"storageLocation": "default"}, "status": status});
    scene.load::<Backup>("dup", rest);
    request(&scene, "dup").await;
    scene.start(deletion::run);
    all_gone(&scene).await;
    assert!(
        scene
            .bucket("default")
            .join("backups/dup/dup.tar.gz")
            .exists()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_somebody_works_on_goes_when_they_have_ended() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    finished(&scene, "running");
    assert!(scene.ctx.running.start("running"));
    request(&scene, "running").await;
    scene.start(deletion::run);
    eventually("the backup to be marked", async || {
        let found = scene.get::<Backup>("running").await;
        let status = found.and_then(|found| found.status);
        status.is_some_and(|status| status.phase == Some(BackupPhase::Deleting))
    })
    .await;
    let file = scene
        .bucket("default")
        .join("backups/running/running.tar.gz");
    assert!(file.exists());
    scene.ctx.running.finish("running");
    all_gone(&scene).await;
    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_deleted_is_refused_by_name() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    scene.available("sealed", json!({"spec": {"accessMode": "ReadOnly"}}));
    finished(&scene, "with-volumes");
    for (name, location) in [("in-sealed", "sealed"), ("in-nowhere", "nowhere")] {
        let status = json!({"phase": "Completed", "startTimestamp": "2026-11-15T03:19:32Z"});
        let spec = json!({"storageLocation": location});
        scene.load::<Backup>(name, json!({"spec": spec, "status": status}));
    }
    scene.load::<PodVolumeBackup>(
        "with-volumes-x",
        json!({
            "metadata": {"labels": {"velero.io/backup-name": "with-volumes"}},
            "spec": {"uploaderType": "kopia", "pod": {"namespace": "shop"}},
            "status": {"phase": "Completed", "snapshotID": "abc"},
        }),
    );
    for name in ["missing", "in-sealed", "in-nowhere", "with-volumes"] {
        request(&scene, name).await;
    }
    scene.start(deletion::run);
    for (name, why) in [
        ("missing", "backup deletion failed: backup not found"),
        (
            "in-sealed",
            "backup deletion failed: cannot delete backup because backup storage location sealed \
             is currently in read-only mode",
        ),
        (
            "in-nowhere",
            "backup deletion failed: backup storage location nowhere not found",
        ),
        (
            "with-volumes",
            "error deleting pod volume snapshots: snapshot abc in the kopia repository of \
             namespace shop cannot be deleted by this version",
        ),
    ] {
        assert_eq!(errors(&scene, name).await, [why]);
    }
    let kept = scene.get::<Backup>("with-volumes").await.unwrap();
    assert_eq!(kept.status.unwrap().phase, Some(BackupPhase::Deleting));
    let file = "backups/with-volumes/with-volumes.tar.gz";
    assert!(scene.bucket("default").join(file).exists());
    let text = scene.ctx.metrics.text();
    assert!(text.contains("velero_backup_deletion_failure_total{schedule=\"\"} 1\n"));
}
