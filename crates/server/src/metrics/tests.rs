//! The scrape against that of a Velero server.

use std::{collections::BTreeSet, time::Duration};

use bowline_api::v1::{BackupPhase, RestorePhase};
use jiff::Timestamp;

use super::{Finished, Metrics, Snapshots, from_open_metrics};

/// Lines about families, and names of samples with the names of their labels.
fn shape(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (about, samples): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let labels = |sample: &&str| {
        let bare = blanked(sample);
        bare.rsplit_once(' ').expect("a value").0.to_owned()
    };
    (
        about.into_iter().map(str::to_owned).collect(),
        samples.iter().map(labels).collect(),
    )
}

/// The sample with its label values blanked, bucket bounds excepted.
fn blanked(sample: &str) -> String {
    let mut parts = sample.split('"');
    let mut text = String::new();
    while let Some(outside) = parts.next() {
        text.push_str(outside);
        if let Some(value) = parts.next() {
            let shown = if outside.ends_with(",le=") { value } else { "" };
            text.push_str(&format!("\"{shown}\""));
        }
    }
    text
}

/// Everything that can happen, once.
fn busy() -> Metrics {
    let metrics = Metrics::default();
    metrics.schedule_seen("nightly");
    for schedule in ["", "nightly"] {
        metrics.backup_attempted(schedule);
        metrics.backup_finished(
            schedule,
            &Finished {
                phase: BackupPhase::Completed,
                duration: Duration::from_secs(90),
                size: Some(4030),
                items: 7,
                errors: 0,
                warnings: 1,
            },
        );
        metrics.snapshots_taken(
            schedule,
            Snapshots {
                attempted: 2,
                completed: 1,
            },
        );
        metrics.csi_snapshots_taken(schedule, "b", Snapshots::default());
        metrics.deletion_attempted(schedule);
        metrics.deletion_finished(schedule, 0);
        metrics.restore_attempted(schedule);
        metrics.restore_finished(schedule, &RestorePhase::Completed);
    }
    let end = |seconds| Timestamp::from_second(seconds).unwrap();
    let successes = [(String::new(), end(5)), ("nightly".to_owned(), end(9))];
    metrics.backups_counted(4, &successes.into());
    metrics.restores_counted(3);
    metrics.location_checked("default", true);
    metrics
}

#[test]
fn names_types_labels_and_help_are_those_of_velero() {
    let golden = shape(include_str!("../../tests/golden/metrics.txt"));
    let (mut about, mut samples) = shape(&busy().text());
    // What is counted about stores is ours alone.
    about.retain(|line| !line.contains(" bowline_"));
    samples.retain(|line| !line.starts_with("bowline_"));
    assert_eq!((about, samples), golden);
}

#[test]
fn values_are_what_happened() {
    let metrics = busy();
    metrics.backup_finished(
        "nightly",
        &Finished {
            phase: BackupPhase::PartiallyFailed,
            errors: 2,
            ..Default::default()
        },
    );
    // Seen again, as at every look: the failure stays visible.
    metrics.schedule_seen("nightly");
    let text = metrics.text();
    for line in [
        "velero_backup_last_status{schedule=\"\"} 1",
        "velero_backup_last_status{schedule=\"nightly\"} 0",
        "velero_backup_attempt_total{schedule=\"nightly\"} 1",
        "velero_backup_partial_failure_total{schedule=\"nightly\"} 1",
        "velero_backup_items_errors{schedule=\"nightly\"} 2",
        "velero_backup_duration_seconds_bucket{schedule=\"nightly\",le=\"60\"} 1",
        "velero_backup_duration_seconds_bucket{schedule=\"nightly\",le=\"300\"} 2",
        "velero_backup_duration_seconds_sum{schedule=\"nightly\"} 90",
        "velero_volume_snapshot_failure_total{schedule=\"\"} 1",
        "velero_backup_total 4",
        "velero_backup_last_successful_timestamp{schedule=\"\"} 5",
        "velero_backup_last_successful_timestamp{schedule=\"nightly\"} 9",
        "velero_backup_location_status_gauge{backup_location_name=\"default\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_schedule_takes_its_series_with_it() {
    let metrics = busy();
    metrics.schedule_gone("nightly");
    metrics.location_gone("default");
    let text = metrics.text();
    assert!(!text.contains("nightly"), "{text}");
    assert!(!text.contains("backup_location"), "{text}");
    assert!(text.contains("velero_backup_attempt_total{schedule=\"\"} 1"));
}

#[test]
fn maintenance_is_counted_by_repository() {
    let metrics = Metrics::default();
    metrics.maintenance_finished("shop-default-kopia", Duration::from_secs(9), true);
    metrics.maintenance_finished("shop-default-kopia", Duration::from_secs(9), false);
    let text = metrics.text();
    for line in [
        "# TYPE velero_repo_maintenance_duration_seconds histogram",
        "velero_repo_maintenance_success_total{repository_name=\"shop-default-kopia\"} 1",
        "velero_repo_maintenance_failure_total{repository_name=\"shop-default-kopia\"} 1",
        "velero_repo_maintenance_duration_seconds_count{repository_name=\"shop-default-kopia\"} 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn open_metrics_become_the_older_format() {
    let open = "# HELP calls Calls.\n# TYPE calls counter\n# UNIT calls things\n\
                calls_total{verb=\"put\"} 3\ncalls_created{verb=\"put\"} 1.5\n\
                # HELP busy Now.\n# TYPE busy gauge\nbusy 1\n# EOF\n";
    assert_eq!(
        from_open_metrics(open),
        "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{verb=\"put\"} 3\n\
         # HELP busy Now.\n# TYPE busy gauge\nbusy 1\n"
    );
    let metrics = Metrics::default();
    assert!(
        metrics
            .text()
            .contains("# TYPE bowline_store_sent_bytes_total counter\n")
    );
    metrics.also(move || from_open_metrics(open));
    assert!(metrics.text().ends_with("busy 1\n"));
}
