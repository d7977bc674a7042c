//! Locations become available and unavailable, and one is the default.

use std::{fs, time::Duration};

use bowline_api::v1::{BackupStorageLocation, BackupStorageLocationPhase as Phase};
use bowline_apiserver::{Fault, Rule, When};
use bowline_server::controllers::location;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::scene::{Scene, eventually};

async fn phase(scene: &Scene, name: &str) -> Option<Phase> {
    let location = scene.get::<BackupStorageLocation>(name).await?;
    location.status?.phase
}

#[tokio::test(flavor = "multi_thread")]
async fn a_location_is_available_as_long_as_its_bucket_is() {
    let scene = Scene::new();
    fs::create_dir(scene.bucket("default")).unwrap();
    let spec = json!({"validationFrequency": "1s"});
    scene.location("default", spec).await;
    scene.start(location::run);
    eventually("the location to be available", async || {
        phase(&scene, "default").await == Some(Phase::Available)
    })
    .await;

    fs::create_dir_all(scene.bucket("default").join("holiday/photos")).unwrap();
    fs::write(scene.bucket("default").join("holiday/photos/1.jpg"), "x").unwrap();
    eventually("the location to be unavailable", async || {
        phase(&scene, "default").await == Some(Phase::Unavailable)
    })
    .await;
    let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
    let status = location.status.unwrap();
    assert_eq!(
        status.message.as_deref(),
        Some(
            "BackupStorageLocation \"default\" is unavailable: Backup store contains invalid \
             top-level directories: [holiday]"
        )
    );
    assert!(status.last_validation_time.is_some());
    let gauge = "velero_backup_location_status_gauge{backup_location_name=\"default\"} 0";
    assert!(scene.ctx.metrics.text().contains(gauge));

    fs::remove_dir_all(scene.bucket("default").join("holiday")).unwrap();
    eventually("the location to be available again", async || {
        phase(&scene, "default").await == Some(Phase::Available)
    })
    .await;
    let location = scene.get::<BackupStorageLocation>("default").await.unwrap();
    assert_eq!(location.status.unwrap().message, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_location_is_tried_at_once() {
    let scene = Scene::new();
    scene
        .location("default", json!({"provider": "floppy"}))
        .await;
    scene.start(location::run);
    eventually("the unknown provider to be refused", async || {
        phase(&scene, "default").await == Some(Phase::Unavailable)
    })
    .await;
    let patch = json!({"spec": {"provider": "filesystem"}});
    let locations = scene.api::<BackupStorageLocation>();
    locations
        .patch("default", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    eventually("the location to be available", async || {
        phase(&scene, "default").await == Some(Phase::Available)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_location_does_not_delay_others() {
    let scene = Scene::new();
    // Reading its credentials takes longer than this test.
    scene.server.set_faults(
        vec![Rule {
            method: None,
            path: "/secrets/slow".to_owned(),
            when: When::Always,
            fault: Fault::Delay(Duration::from_secs(600)),
        }],
        1,
    );
    let spec = json!({"credential": {"name": "slow", "key": "cloud"}, "validationFrequency": "1s"});
    scene.location("a-slow-one", spec).await;
    scene.location("quick", json!({})).await;
    scene.start(location::run);
    eventually("the quick one to be available", async || {
        phase(&scene, "quick").await == Some(Phase::Available)
    })
    .await;
    assert_eq!(phase(&scene, "a-slow-one").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_newest_default_stays_one() {
    let scene = Scene::new();
    for (name, made) in [
        ("old", "2020-01-01"),
        ("new", "2022-01-01"),
        ("middle", "2021-01-01"),
    ] {
        let metadata = json!({"creationTimestamp": format!("{made}T00:00:00Z")});
        let spec = json!({"default": true});
        scene.available(name, json!({"metadata": metadata, "spec": spec}));
    }
    scene.start(location::run);
    eventually("one default to be left", async || {
        let mut defaults = Vec::new();
        for name in ["old", "middle", "new"] {
            let location = scene.get::<BackupStorageLocation>(name).await.unwrap();
            defaults.push(location.spec.default);
        }
        defaults == [None, None, Some(true)]
    })
    .await;
}
