//! Schedules make backups, and no backup twice.

use bowline_api::v1::{Backup, Schedule, SchedulePhase as Phase};
use bowline_apiserver::{Fault, Rule, When};
use bowline_server::controllers::schedule;
use http::Method;
use kube::ResourceExt;
use serde_json::json;

use crate::scene::{Scene, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_makes_a_backup_when_it_is_due() {
    let scene = Scene::new();
    let made: Schedule = scene
        .create(json!({
            "metadata": {"name": "often", "labels": {"team": "red"}},
            "spec": {
                "schedule": "@every 1s",
                "template": {"includedNamespaces": ["shop"], "ttl": "1h0m0s"},
                "useOwnerReferencesInBackup": true,
            },
        }))
        .await;
    scene.start(schedule::run);
    eventually("a backup", async || {
        !scene.names::<Backup>().await.is_empty()
    })
    .await;
    let name = &scene.names::<Backup>().await[0];
    assert!(
        name.starts_with("often-2") && name.len() == "often-".len() + 14,
        "{name}"
    );
    let backup = scene.get::<Backup>(name).await.unwrap();
    assert_eq!(backup.labels()["team"], "red");
    assert_eq!(backup.labels()["velero.io/schedule-name"], "often");
    assert_eq!(
        backup.spec.included_namespaces,
        Some(vec!["shop".to_owned()])
    );
    assert_eq!(backup.owner_references()[0].uid, made.uid().unwrap());
    eventually("the schedule to know", async || {
        let schedule = scene.get::<Schedule>("often").await.unwrap();
        let status = schedule.status.unwrap();
        status.phase == Some(Phase::Enabled)
            && status.last_backup.is_some()
            && schedule.spec.skip_immediately == Some(false)
    })
    .await;
    let text = scene.ctx.metrics.text();
    assert!(text.contains("velero_backup_attempt_total{schedule=\"often\"} 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_expression_is_refused() {
    let scene = Scene::new();
    let _: Schedule = scene
        .create(json!({
            "metadata": {"name": "bad"},
            "spec": {"schedule": "61 * * * *", "template": {}, "paused": true},
        }))
        .await;
    scene.start(schedule::run);
    eventually("the verdict", async || {
        let status = scene.get::<Schedule>("bad").await.unwrap().status;
        status.is_some_and(|status| status.phase == Some(Phase::FailedValidation))
    })
    .await;
    let status = scene.get::<Schedule>("bad").await.unwrap().status.unwrap();
    assert_eq!(
        status.validation_errors.unwrap(),
        ["invalid schedule: end of range (61) above maximum (59): \"61\""]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_after_making_a_backup_makes_no_other() {
    let mut scene = Scene::new();
    // Long due, and all there is to write is `lastBackup`.
    scene.load::<Schedule>(
        "yearly",
        json!({
            "metadata": {"creationTimestamp": "2020-06-01T00:00:00Z"},
            "spec": {"schedule": "@yearly", "template": {}, "skipImmediately": false},
            "status": {"phase": "Enabled"},
        }),
    );
    scene.server.set_faults(
        vec![Rule {
            method: Some(Method::PATCH),
            path: "/schedules/".to_owned(),
            when: When::Always,
            fault: Fault::Status(500),
        }],
        1,
    );
    scene.start(schedule::run);
    eventually("the backup", async || {
        scene.names::<Backup>().await.len() == 1
    })
    .await;
    let before = scene.names::<Backup>().await;
    scene.restart();
    scene.server.set_faults(Vec::new(), 1);
    scene.start(schedule::run);
    eventually("the schedule to know", async || {
        let schedule = scene.get::<Schedule>("yearly").await.unwrap();
        schedule.status.unwrap().last_backup.is_some()
    })
    .await;
    assert_eq!(scene.names::<Backup>().await, before);
}
