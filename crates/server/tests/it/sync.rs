//! A bucket that Velero filled becomes objects, and what is gone from it goes.

use std::{collections::BTreeSet, fs};

use bowline_api::v1::{
    Backup, BackupPhase, BackupStorageLocation, PodVolumeBackup, VolumePluginBackup,
};
use bowline_apiserver::{Fault, Rule, When};
use bowline_server::controllers::sync;
use http::Method;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::scene::{Scene, backup, eventually};

const BACKUPS: [&str; 7] = [
    "badhook",
    "basic",
    "everything",
    "ghost",
    "hooked",
    "nightly-20261115032147",
    "plain",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_velero_is_imported_and_followed() {
    let scene = Scene::new();
    scene.golden("default", "backups");
    scene.available("default", json!({"spec": {"backupSyncPeriod": "1s"}}));
    scene.put_backup(
        "default",
        &backup("misplaced", json!({"phase": "Completed"})),
    );
    let folders = scene.bucket("default").join("backups");
    fs::rename(folders.join("misplaced"), folders.join("renamed")).unwrap();
    scene.put_backup(
        "default",
        &backup("unfinished", json!({"phase": "Finalizing"})),
    );
    scene.start(sync::run);
    eventually("all backups", async || {
        scene.names::<Backup>().await == BACKUPS
    })
    .await;

    let hooked = scene.get::<Backup>("hooked").await.unwrap();
    assert_eq!(hooked.labels()["velero.io/storage-location"], "default");
    let status = hooked.status.as_ref().unwrap();
    assert_eq!(status.phase, Some(BackupPhase::Completed));
    assert!(status.start_timestamp.is_some() && status.expiration.is_some());
    assert_eq!(hooked.spec.hooks.clone().unwrap().resources, None);
    let nightly = scene.get::<Backup>("nightly-20261115032147").await.unwrap();
    assert!(nightly.owner_references().is_empty());
    assert_eq!(nightly.labels()["velero.io/schedule-name"], "nightly");

    eventually("the pod volume backups", async || {
        scene.names::<PodVolumeBackup>().await.len() == 3
    })
    .await;
    for name in scene.names::<PodVolumeBackup>().await {
        let volume = scene.get::<PodVolumeBackup>(&name).await.unwrap();
        let owner = scene
            .get::<Backup>(&volume.owner_references()[0].name)
            .await;
        let uid = owner.unwrap().uid().unwrap();
        assert_eq!(volume.owner_references()[0].uid, uid);
        assert_eq!(volume.labels()["velero.io/backup-uid"], uid);
        assert!(volume.status.unwrap().snapshot_id.is_some());
    }
    eventually("a word on the location", async || {
        let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
        location.status.unwrap().last_synced_time.is_some()
    })
    .await;

    fs::remove_dir_all(folders.join("basic")).unwrap();
    eventually("the object without files to go", async || {
        scene.get::<Backup>("basic").await.is_none()
    })
    .await;
    let left: Vec<_> = BACKUPS
        .into_iter()
        .filter(|name| *name != "basic")
        .collect();
    assert_eq!(scene.names::<Backup>().await, left);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_plugins_said_of_snapshots_comes_along() {
    let scene = Scene::new();
    scene.available("default", json!({}));
    let bucket = scene.get::<BackupStorageLocation>("default").await.unwrap();
    let bucket = scene.ctx.bucket(&bucket).await.unwrap();
    let said = json!([{
        "metadata": {
            "name": "snap-1", "namespace": "elsewhere", "resourceVersion": "7",
            "labels": {"velero.io/backup-name": "first", "velero.io/backup-uid": "old"},
            "ownerReferences": [{"apiVersion": "velero.io/v1", "kind": "Backup", "name": "first", "uid": "old"}],
        },
        "spec": {"volume": "pv", "backup": "first", "plugin": "example.com/disk"},
        "status": {"phase": "Completed", "snapshotID": "snap-1", "progress": {"bytesDone": 5, "totalBytes": 5}},
    }]);
    let key = "backups/first/first-volumepluginbackups.json.gz";
    bucket.put_json(key, &said).await.unwrap();
    scene.put_backup("default", &backup("first", json!({"phase": "Completed"})));
    scene.start(sync::run);
    eventually("the object", async || {
        scene.get::<VolumePluginBackup>("snap-1").await.is_some()
    })
    .await;
    let found = scene.get::<VolumePluginBackup>("snap-1").await.unwrap();
    let uid = scene.get::<Backup>("first").await.unwrap().uid().unwrap();
    assert_eq!(found.owner_references()[0].uid, uid);
    assert_eq!(found.labels()["velero.io/backup-uid"], uid);
    let status = serde_json::to_value(found.status.unwrap()).unwrap();
    assert_eq!(status, said[0]["status"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_half_way_through_an_import_finishes_it() {
    let mut scene = Scene::new();
    scene.golden("default", "backups/hooked");
    scene.available("default", json!({}));
    scene.server.set_faults(
        vec![Rule {
            method: Some(Method::POST),
            path: "/podvolumebackups".to_owned(),
            when: When::Always,
            fault: Fault::Status(500),
        }],
        1,
    );
    scene.start(sync::run);
    eventually("the backup", async || {
        scene.get::<Backup>("hooked").await.is_some()
    })
    .await;
    assert!(scene.names::<PodVolumeBackup>().await.is_empty());
    scene.restart();
    scene.server.set_faults(Vec::new(), 1);
    // As if the time had come again.
    let patch = json!({"status": {"lastSyncedTime": null}});
    let locations = scene.api::<BackupStorageLocation>();
    locations
        .patch("default", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    scene.start(sync::run);
    eventually("the volume", async || {
        scene.names::<PodVolumeBackup>().await.len() == 1
    })
    .await;
    eventually("the mark to go", async || {
        let backup = scene.get::<Backup>("hooked").await.unwrap();
        !backup
            .annotations()
            .keys()
            .any(|key| key.starts_with("bowline.io/"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_location_comes_first() {
    let scene = Scene::new();
    for (bucket, size) in [("aside", 1), ("main", 2), ("spare", 3)] {
        let found = backup("same", json!({"phase": "Completed", "warnings": size}));
        scene.put_backup(bucket, &found);
    }
    scene.available("aside", json!({}));
    scene.available("spare", json!({}));
    scene.available("main", json!({"spec": {"default": true}}));
    scene.start(sync::run);
    eventually("all locations to be looked through", async || {
        let mut done = BTreeSet::new();
        for name in ["aside", "main", "spare"] {
            let location = scene.get::<BackupStorageLocation>(name).await.unwrap();
            if location.status.unwrap().last_synced_time.is_some() {
                done.insert(name);
            }
        }
        done.len() == 3
    })
    .await;
    let same = scene.get::<Backup>("same").await.unwrap();
    assert_eq!(same.spec.storage_location.as_deref(), Some("main"));
}
