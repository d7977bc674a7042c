//! Schedules: made, paused, deleted.

use bowline_api::v1::Schedule;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_keeps_labels_and_annotations() {
    let bed = Bed::start().await;
    let out = bed
        .run(&[
            "schedule",
            "create",
            "nightly",
            "--schedule",
            "0 1 * * *",
            "--annotations",
            "a=b",
            "--labels",
            "team=red",
            "--use-owner-references-in-backup",
        ])
        .await
        .well();
    assert_eq!(out, "Schedule \"nightly\" created successfully.\n");
    let api: Api<Schedule> = Api::namespaced(bed.client.clone(), "velero");
    let schedule = api.get("nightly").await.unwrap();
    assert_eq!(json!(schedule.annotations()), json!({"a": "b"}));
    assert_eq!(json!(schedule.labels()), json!({"team": "red"}));
    assert_eq!(schedule.spec.use_owner_references_in_backup, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_times_and_names_are_refused() {
    let bed = Bed::start().await;
    let long = "a".repeat(64);
    for (args, wanted) in [
        (&["s"][..], "--schedule is required"),
        (
            &["s", "--schedule", "0 * * * * *"],
            "expected exactly 5 fields, found 6: [0 * * * * *]",
        ),
        (&[long.as_str(), "--schedule", "@daily"], "at most 63"),
        (
            &["s", "--schedule", "@daily", "--ttl", "-1h"],
            "must not be negative",
        ),
    ] {
        let mut words = vec!["schedule", "create"];
        words.extend_from_slice(args);
        let refusal = bed.run(&words).await.refused();
        assert!(refusal.contains(wanted), "{refusal}");
    }
    assert!(bed.names::<Schedule>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_paused_let_go_and_deleted() {
    let bed = Bed::start().await;
    for name in ["one", "two"] {
        bed.run(&["create", "schedule", name, "--schedule", "@daily"])
            .await
            .well();
    }
    let run = async |args: &[&str]| bed.run(args).await.well();
    assert_eq!(
        run(&["schedule", "pause", "one"]).await,
        "Schedule one paused successfully\n"
    );
    assert_eq!(
        run(&["schedule", "pause", "--all", "--skip-immediately", "true"]).await,
        "Schedule one is already paused, skip\nSchedule two paused successfully\n"
    );
    let api: Api<Schedule> = Api::namespaced(bed.client.clone(), "velero");
    let two = api.get("two").await.unwrap().spec;
    assert_eq!((two.paused, two.skip_immediately), (Some(true), Some(true)));
    assert_eq!(
        run(&["schedule", "unpause", "two"]).await,
        "Schedule two unpaused successfully\n"
    );
    let two = api.get("two").await.unwrap().spec;
    assert_eq!((two.paused, two.skip_immediately), (None, None));
    assert_eq!(
        run(&["schedule", "pause", "nosuch"]).await,
        "No schedules found\n"
    );
    assert_eq!(
        run(&["delete", "schedules", "--all", "--confirm"]).await,
        "Schedule deleted: one\nSchedule deleted: two\n"
    );
}
