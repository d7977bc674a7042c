//! What a schedule needs, and what its backups look like.

use bowline_api::v1::{BackupMetadata, BackupStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as KubeTime;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().expect(text)
}

/// Made on 15 November at 3:00; its uid adds 10 seconds to names.
fn schedule(cron: &str) -> Schedule {
    let mut schedule = Schedule::new("velero", "nightly", Default::default());
    schedule.spec.schedule = cron.to_owned();
    schedule.metadata.uid = Some("\u{a}".to_owned());
    schedule.metadata.creation_timestamp = Some(KubeTime(time("2026-11-15T03:00:00Z")));
    schedule
}

fn backup(name: &str, phase: Option<BackupPhase>) -> Backup {
    let mut backup = Backup::new("velero", name, Default::default());
    backup.status = phase.map(|phase| BackupStatus {
        phase: Some(phase),
        ..Default::default()
    });
    backup
}

fn step(schedule: &Schedule, backups: &[Backup], now: &str) -> Step {
    let times = times(schedule).expect("sound");
    next(schedule, &times, backups, time(now), &TimeZone::UTC)
}

fn wait(seconds: i64) -> Step {
    Step::Wait(Some(SignedDuration::from_secs(seconds)))
}

fn start(time: &str) -> Step {
    Step::Start(format!("nightly-{time}"))
}

#[test]
fn backups_are_made_when_they_are_due() {
    let hourly = schedule("0 * * * *");
    assert_eq!(step(&hourly, &[], "2026-11-15T03:59:30Z"), wait(30));
    assert_eq!(
        step(&hourly, &[], "2026-11-15T04:00:01Z"),
        start("20261115040010")
    );
    // Missed times are one backup, named after the newest.
    assert_eq!(
        step(&hourly, &[], "2026-11-17T09:30:00Z"),
        start("20261117090010")
    );
    let mut done = hourly.clone();
    done.status_mut().last_backup = Some(Time(time("2026-11-15T04:00:01Z")));
    assert_eq!(step(&done, &[], "2026-11-15T04:00:05Z"), wait(3595));
}

#[test]
fn names_are_in_local_time() {
    let tokyo = TimeZone::get("Asia/Tokyo").expect("bundled");
    let due = time("2026-11-15T16:00:00Z");
    assert_eq!(
        backup_name(&schedule("@daily"), due, &tokyo),
        "nightly-20261116010010"
    );
}

#[test]
fn a_paused_or_deleted_schedule_never_starts() {
    let mut paused = schedule("* * * * *");
    paused.spec.paused = Some(true);
    assert_eq!(step(&paused, &[], "2026-11-15T09:00:00Z"), Step::Wait(None));
    let mut going = schedule("* * * * *");
    going.metadata.deletion_timestamp = Some(KubeTime(time("2026-11-15T08:00:00Z")));
    assert_eq!(step(&going, &[], "2026-11-15T09:00:00Z"), Step::Wait(None));
}

#[test]
fn what_never_comes_never_starts() {
    for cron in ["@manual", "@triggered", "@none", "0 0 30 2 *"] {
        let never = step(&schedule(cron), &[], "2026-11-15T09:00:00Z");
        assert_eq!(never, Step::Wait(None), "{cron}");
    }
}

#[test]
fn a_skipped_time_counts_as_done() {
    let mut skipped = schedule("0 * * * *");
    skipped.status_mut().last_skipped = Some(Time(time("2026-11-15T04:00:30Z")));
    assert_eq!(step(&skipped, &[], "2026-11-15T04:01:00Z"), wait(59 * 60));
}

#[test]
fn a_backup_under_way_makes_the_next_one_wait() {
    let hourly = schedule("0 * * * *");
    let now = "2026-11-15T04:00:01Z";
    for (phase, is_busy) in [
        (None, true),
        (Some(BackupPhase::from("")), true),
        (Some(BackupPhase::New), true),
        (Some(BackupPhase::InProgress), true),
        (Some(BackupPhase::Queued), false),
        (Some(BackupPhase::ReadyToStart), false),
        (Some(BackupPhase::WaitingForPluginOperations), false),
        (Some(BackupPhase::Finalizing), false),
        (Some(BackupPhase::Completed), false),
        (Some(BackupPhase::Failed), false),
    ] {
        let other = backup("nightly-1", phase.clone());
        let expected = if is_busy {
            Step::Busy("nightly-1".to_owned())
        } else {
            start("20261115040010")
        };
        assert_eq!(step(&hourly, &[other], now), expected, "{phase:?}");
    }
}

#[test]
fn a_backup_that_the_status_forgot_is_adopted() {
    let made = backup("nightly-20261115040010", None);
    let hourly = schedule("0 * * * *");
    assert_eq!(step(&hourly, &[made], "2026-11-15T04:00:09Z"), Step::Adopt);
}

#[test]
fn skip_immediately_is_used_up() {
    let now = time("2026-11-15T04:00:00Z");
    for (own, server, is_skipped) in [
        (None, false, false),
        (None, true, true),
        (Some(true), false, true),
        (Some(false), true, false),
    ] {
        let mut before = schedule("@daily");
        before.spec.skip_immediately = own;
        let new = settled(&before, Ok(()), server, now);
        assert_eq!(new.spec.skip_immediately, Some(false));
        let status = new.status.expect("a verdict");
        assert_eq!(status.last_skipped, is_skipped.then_some(Time(now)));
        assert_eq!(status.phase, Some(Phase::Enabled));
    }
}

#[test]
fn a_bad_expression_is_refused_even_while_paused() {
    for (cron, why) in [
        ("", "Schedule must be a non-empty valid Cron expression"),
        (
            "0 * * * * *",
            "invalid schedule: expected exactly 5 fields, found 6: [0 * * * * *]",
        ),
        (
            "61 * * * *",
            "invalid schedule: end of range (61) above maximum (59): \"61\"",
        ),
        (
            " ",
            "invalid schedule: expected exactly 5 fields, found 0: []",
        ),
    ] {
        let mut paused = schedule(cron);
        paused.spec.paused = Some(true);
        let times = times(&paused);
        let now = time("2026-11-15T04:00:00Z");
        let new = settled(&paused, times.as_ref().map(|_| ()), true, now);
        assert_eq!(new.spec.skip_immediately, None);
        let status = new.status.expect("a verdict");
        assert_eq!(status.phase, Some(Phase::FailedValidation), "{cron}");
        assert_eq!(status.validation_errors, Some(vec![why.to_owned()]));
        assert_eq!(status.last_skipped, None);
    }
}

#[test]
fn a_backup_takes_after_its_schedule() {
    let mut schedule = schedule("@daily");
    schedule.metadata.labels = Some([("team".to_owned(), "red".to_owned())].into());
    schedule.metadata.annotations = Some([("note".to_owned(), "x".to_owned())].into());
    schedule.spec.template.resource_policy = Some(TypedLocalObjectReference {
        kind: "ConfigMap".to_owned(),
        name: "policies".to_owned(),
        api_group: Some(String::new()),
    });
    let backup = backup_of(&schedule, "nightly-1");
    let labels = |backup: &Backup| serde_json::to_value(backup.labels()).expect("labels");
    assert_eq!(
        labels(&backup),
        serde_json::json!({"team": "red", "velero.io/schedule-name": "nightly"})
    );
    assert_eq!(backup.annotations()["note"], "x");
    assert_eq!(backup.metadata.owner_references, None);
    let policy = backup.spec.resource_policy.expect("a policy");
    assert_eq!(
        (policy.kind.as_str(), policy.name.as_str(), policy.api_group),
        ("configmap", "policies", None)
    );

    schedule.spec.use_owner_references_in_backup = Some(true);
    schedule.spec.template.metadata = Some(BackupMetadata {
        labels: Some([("own".to_owned(), "label".to_owned())].into()),
        ..Default::default()
    });
    let backup = backup_of(&schedule, "nightly-1");
    assert_eq!(
        labels(&backup),
        serde_json::json!({"own": "label", "velero.io/schedule-name": "nightly"})
    );
    let owner = &backup.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("Schedule", "nightly")
    );
    assert_eq!(owner.controller, Some(true));
}
