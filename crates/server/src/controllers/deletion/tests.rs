//! What is deleted, what is refused, and with which words.

use bowline_api::Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as KubeTime;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn backup(phase: &str, start: Option<i64>) -> Backup {
    let mut backup = Backup::new("velero", "b", Default::default());
    backup.metadata.uid = Some("u".to_owned());
    backup.spec.storage_location = Some("l".to_owned());
    backup.status_mut().phase = (!phase.is_empty()).then(|| BackupPhase::from(phase));
    backup.status_mut().start_timestamp = start.map(|time| Time(at(time)));
    backup
}

fn location(phase: &str, mode: Option<AccessMode>) -> BackupStorageLocation {
    let mut location = BackupStorageLocation::new("velero", "l", Default::default());
    location.status_mut().phase = Some(BackupStorageLocationPhase::from(phase));
    location.spec.access_mode = mode;
    location
}

#[test]
fn refusals_are_those_of_velero() {
    let good = location("Available", Some(AccessMode::ReadWrite));
    let read_only = location("Available", Some(AccessMode::ReadOnly));
    let down = location("Unavailable", None);
    let done = backup("Completed", Some(1));
    assert_eq!(judge(&done, Some(&good)), Ok(Files::In(&good)));
    for (location, why) in [
        (None, "backup storage location l not found"),
        (
            Some(&read_only),
            "cannot delete backup because backup storage location l is currently in read-only mode",
        ),
        (
            Some(&down),
            "cannot delete backup because backup storage location l is currently in Unavailable \
             state",
        ),
    ] {
        assert_eq!(judge(&done, location), Err(why.to_owned()));
    }
}

#[test]
fn backups_that_never_ran_need_no_location() {
    for (phase, start, is_free) in [
        ("", None, true),
        ("New", None, true),
        ("Queued", None, true),
        ("ReadyToStart", None, true),
        ("FailedValidation", None, true),
        ("Deleting", None, true),
        ("Deleting", Some(1), false),
        ("InProgress", Some(1), false),
        ("Completed", None, false),
        ("Failed", Some(1), false),
    ] {
        let files = judge(&backup(phase, start), None);
        assert_eq!(files == Ok(Files::None), is_free, "{phase} {start:?}");
    }
    assert_eq!(judge(&Backup::default(), None), Ok(Files::None));
}

#[test]
fn requests_are_worked_on_kept_and_forgotten() {
    const DAY: i64 = 24 * 3600;
    for (phase, errors, made, expected) in [
        (None, None, 0, Step::Work),
        (Some(Phase::New), None, 0, Step::Work),
        // A server died over it, however long ago.
        (Some(Phase::InProgress), None, 0, Step::Work),
        (
            Some(Phase::Processed),
            Some("no"),
            2 * DAY - 60,
            Step::Keep(at(3 * DAY - 60)),
        ),
        (Some(Phase::Processed), Some("no"), DAY, Step::Forget),
        (Some(Phase::Processed), None, 2 * DAY - 60, Step::Forget),
    ] {
        let mut request = DeleteBackupRequest::default();
        request.metadata.creation_timestamp = Some(KubeTime(at(made)));
        request.status_mut().phase = phase;
        request.status_mut().errors = errors.map(|error| vec![error.to_owned()]);
        assert_eq!(next(&request, at(2 * DAY)), expected);
    }
}

#[test]
fn a_request_at_work_says_what_it_is_about() {
    let mut request = DeleteBackupRequest::default();
    request.metadata.labels = Some([(label::BACKUP_UID.to_owned(), "given".to_owned())].into());
    let new = begun(&request, &backup("Completed", Some(1)));
    assert_eq!(phase(&new), Some(&Phase::InProgress));
    assert_eq!(new.labels()[label::BACKUP_NAME], "b");
    assert_eq!(new.labels()[label::BACKUP_UID], "given");
}

#[test]
fn an_answer_has_errors_or_nothing() {
    let request = DeleteBackupRequest::default();
    let good = answered(&request, Vec::new()).status.unwrap();
    assert_eq!((good.phase, good.errors), (Some(Phase::Processed), None));
    let bad = answered(&request, vec!["no".to_owned()]).status.unwrap();
    assert_eq!(bad.errors, Some(vec!["no".to_owned()]));
}

#[test]
fn a_claim_ends_when_it_is_dropped() {
    let busy = Running::default();
    let claim = Claim::on(&busy, "b");
    assert!(claim.is_some());
    for _ in 0..2 {
        assert!(Claim::on(&busy, "b").is_none());
    }
    drop(claim);
    assert!(Claim::on(&busy, "b").is_some());
}
