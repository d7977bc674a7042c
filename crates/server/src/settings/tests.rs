//! Flags as a Deployment made for Velero gives them.

use std::time::Duration;

use clap::Parser;

use super::{LogFormat, LogLevel, Priorities, Settings};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    settings: Settings,
}

fn parse(flags: &[&str]) -> Result<Settings, String> {
    Line::try_parse_from([&["server"], flags].concat())
        .map(|line| line.settings)
        .map_err(|e| e.to_string())
}

#[test]
fn defaults_are_those_of_velero() {
    let settings = Settings::default();
    settings.validate().unwrap();
    assert_eq!(settings.metrics_address, ":8085");
    assert_eq!(
        settings.default_backup_ttl,
        Duration::from_secs(30 * 24 * 3600)
    );
    assert_eq!(settings.backup_sync_period, Duration::from_secs(60));
    assert_eq!(
        settings.garbage_collection_frequency,
        Duration::from_secs(3600)
    );
    assert_eq!(
        settings.default_repo_maintain_frequency,
        Duration::from_secs(7 * 24 * 3600)
    );
    assert_eq!(settings.default_backup_storage_location, "default");
    assert_eq!(settings.restore_resource_priorities.high.len(), 23);
    assert_eq!(settings.restore_resource_priorities.low.len(), 5);
    assert_eq!(settings.remarks(), Vec::<String>::new());
    assert!(settings.disabled().is_empty());
}

#[test]
fn velero_spellings_are_read() {
    let settings = parse(&[
        "--backup-sync-period=0s",
        "--garbage-collection-frequency=-1h",
        "--default-backup-ttl",
        "1h30m",
        "--default-volumes-to-fs-backup",
        "--schedule-skip-immediately=false",
        "--default-snapshot-move-data=T",
        "--disable-controllers=gc,schedule",
        "--disable-controllers",
        "backup-repo",
        "--restore-resource-priorities=namespaces,pods,-,services",
        "--default-volume-snapshot-locations=aws:east,portworx:here",
        "--log-level=debug",
        "--log-level=warning",
        "--log-format=JSON",
    ])
    .unwrap();
    assert_eq!(settings.backup_sync_period, Duration::from_secs(60));
    assert_eq!(
        settings.garbage_collection_frequency,
        Duration::from_secs(3600)
    );
    assert_eq!(settings.default_backup_ttl, Duration::from_secs(5400));
    assert!(settings.default_volumes_to_fs_backup && settings.default_snapshot_move_data);
    assert!(!settings.schedule_skip_immediately);
    assert_eq!(
        settings.disable_controllers,
        ["gc", "schedule", "backup-repo"]
    );
    assert!(!settings.runs("gc") && settings.runs("backup"));
    assert_eq!(
        settings.restore_resource_priorities,
        Priorities {
            high: vec!["namespaces".into(), "pods".into()],
            low: vec!["services".into()],
        }
    );
    assert_eq!(settings.default_volume_snapshot_locations.0["aws"], "east");
    assert_eq!(settings.log_level, LogLevel::Warning);
    assert_eq!(settings.log_format, LogFormat::Json);
}

#[test]
fn kopia_is_taken_with_a_remark() {
    let settings = parse(&[
        "--uploader-type=kopia",
        "--default-repo-maintain-frequency=0",
    ]);
    let settings = settings.unwrap();
    settings.validate().unwrap();
    assert_eq!(
        settings.remarks(),
        ["--uploader-type kopia has no effect: new volume data is written in restic's format"]
    );
    assert_eq!(
        settings.default_repo_maintain_frequency,
        Duration::from_secs(7 * 24 * 3600)
    );
    let settings = parse(&["--uploader-type=restic"]).unwrap();
    settings.validate().unwrap();
    assert_eq!(settings.remarks(), Vec::<String>::new());
}

#[test]
fn restore_only_turns_off_what_makes_and_deletes_backups() {
    let settings = parse(&["--restore-only"]).unwrap();
    assert!(!settings.runs("schedule") && !settings.runs("backup-deletion"));
    assert!(settings.runs("restore") && settings.runs("backup-sync"));
}

#[test]
fn bad_values_are_refused_by_flag() {
    for (flag, text) in [
        ("--default-backup-ttl=-1h", "--default-backup-ttl"),
        ("--default-backup-ttl=3d", "--default-backup-ttl"),
        ("--restore-only=maybe", "--restore-only"),
        ("--log-level=loud", "--log-level"),
        ("--no-such-flag", "--no-such-flag"),
        (
            "--default-volume-snapshot-locations=aws",
            "provider:location",
        ),
    ] {
        let why = parse(&[flag]).unwrap_err();
        assert!(why.contains(text), "{flag}: {why}");
    }
    for (flag, text) in [
        ("--client-qps=-1", "client-qps must be positive"),
        ("--client-burst=0", "client-burst must be positive"),
        (
            "--client-page-size=-1",
            "client-page-size must not be negative",
        ),
        (
            "--uploader-type=zip",
            "invalid uploader type 'zip', valid type: 'kopia'",
        ),
        (
            "--disable-controllers=gc,gcc",
            "Invalid value for --disable-controllers flag provided: gcc. Valid values are: \
             backup-queue,backup,backup-operations,backup-deletion,backup-finalizer,backup-sync,\
             download-request,gc,backup-repo,restore,restore-operations,schedule,\
             server-status-request,restore-finalizer",
        ),
    ] {
        let why = parse(&[flag]).unwrap().validate().unwrap_err();
        assert_eq!(why.to_string(), text);
    }
}

#[test]
fn flags_without_work_are_remarked_upon() {
    let settings = parse(&["--client-qps=50", "--profiler-address="]);
    assert_eq!(
        settings.unwrap().remarks(),
        ["--client-qps has no effect: the server goes as fast as the API server lets it",]
    );
}
