//! What the server counts: Velero's `velero_*` metrics, raised by methods named after what happened.
//!
//! The label `schedule` is empty for backups that no schedule made. Its series appear at zero when a
//! schedule is first seen and go when it goes.

pub(crate) mod family;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bowline_api::v1::{BackupPhase, RestorePhase};
use jiff::Timestamp;
use prometheus_client::registry::Registry;

use family::{Family, Kind};

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
pub(crate) const BUCKETS: &[f64] = &[
    MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    15.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    3.0 * HOUR,
    4.0 * HOUR,
];

/// Defines the families as fields, and their order in the scrape: that of their names.
macro_rules! families {
    ($($field:ident: $kind:expr, $labels:expr, $help:literal;)+) => {
        #[derive(Debug)]
        struct Families {
            $($field: Family,)+
        }

        impl Families {
            fn new() -> Self {
                Self {
                    $($field: Family::new(
                        concat!("velero_", stringify!($field)), $help, $kind, &$labels,
                    ),)+
                }
            }

            fn all(&self) -> impl Iterator<Item = &Family> {
                [$(&self.$field),+].into_iter()
            }
        }
    };
}

use Kind::{Counter, Gauge, Histogram};

families! {
    backup_attempt_total: Counter, ["schedule"], "Total number of attempted backups";
    backup_deletion_attempt_total: Counter, ["schedule"], "Total number of attempted backup deletions";
    backup_deletion_failure_total: Counter, ["schedule"], "Total number of failed backup deletions";
    backup_deletion_success_total: Counter, ["schedule"], "Total number of successful backup deletions";
    backup_duration_seconds: Histogram(BUCKETS), ["schedule"], "Time taken to complete backup, in seconds";
    backup_failure_total: Counter, ["schedule"], "Total number of failed backups";
    backup_items_errors: Gauge, ["schedule"], "Total number of errors encountered during backup";
    backup_items_total: Gauge, ["schedule"], "Total number of items backed up";
    backup_last_status: Gauge, ["schedule"], "Last status of the backup. A value of 1 is success, 0 is failure";
    backup_last_successful_timestamp: Gauge, ["schedule"], "Last time a backup ran successfully, Unix timestamp in seconds";
    backup_location_status_gauge: Gauge, ["backup_location_name"], "The status of backup location.  A value of 1 is available, 0 is unavailable";
    backup_partial_failure_total: Counter, ["schedule"], "Total number of partially failed backups";
    backup_success_total: Counter, ["schedule"], "Total number of successful backups";
    backup_tarball_size_bytes: Gauge, ["schedule"], "Size, in bytes, of a backup";
    backup_total: Gauge, [], "Current number of existent backups";
    backup_validation_failure_total: Counter, ["schedule"], "Total number of validation failed backups";
    backup_warning_total: Counter, ["schedule"], "Total number of warned backups";
    csi_snapshot_attempt_total: Counter, ["backupName", "schedule"], "Total number of CSI attempted volume snapshots";
    csi_snapshot_failure_total: Counter, ["backupName", "schedule"], "Total number of CSI failed volume snapshots";
    csi_snapshot_success_total: Counter, ["backupName", "schedule"], "Total number of CSI successful volume snapshots";
    repo_maintenance_duration_seconds: Histogram(BUCKETS), ["repository_name"], "Time taken to complete repo maintenance jobs, in seconds";
    repo_maintenance_failure_total: Counter, ["repository_name"], "Total number of failed repo maintenance jobs";
    repo_maintenance_success_total: Counter, ["repository_name"], "Total number of successful repo maintenance jobs";
    restore_attempt_total: Counter, ["schedule"], "Total number of attempted restores";
    restore_failed_total: Counter, ["schedule"], "Total number of failed restores";
    restore_partial_failure_total: Counter, ["schedule"], "Total number of partially failed restores";
    restore_success_total: Counter, ["schedule"], "Total number of successful restores";
    restore_total: Gauge, [], "Current number of existent restores";
    restore_validation_failed_total: Counter, ["schedule"], "Total number of failed restores failing validations";
    volume_snapshot_attempt_total: Counter, ["schedule"], "Total number of attempted volume snapshots";
    volume_snapshot_failure_total: Counter, ["schedule"], "Total number of failed volume snapshots";
    volume_snapshot_success_total: Counter, ["schedule"], "Total number of successful volume snapshots";
}

/// A part of the scrape that somebody else counts, in text format 0.0.4.
type Part = Box<dyn Fn() -> String + Send + Sync>;

/// What the server counts.
pub struct Metrics {
    /// Calls to object stores.
    pub store: bowline_vault::bucket::Metrics,
    families: Families,
    parts: Mutex<Vec<Part>>,
}

/// How a backup ended, as far as it is counted.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    /// The last phase: Completed, PartiallyFailed or Failed.
    pub phase: BackupPhase,
    /// From start to completion.
    pub duration: Duration,
    /// The archive's size.
    pub size: Option<u64>,
    /// Items in it.
    pub items: u64,
    /// Errors on the way.
    pub errors: u64,
    /// Warnings on the way.
    pub warnings: u64,
}

/// Snapshots of a backup, tried and made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Snapshots {
    /// Tried.
    pub attempted: u64,
    /// Made.
    pub completed: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            store: Default::default(),
            families: Families::new(),
            parts: Mutex::default(),
        };
        metrics.schedule_seen("");
        let mut registry = Registry::default();
        metrics.store.register(&mut registry);
        metrics.also(move || {
            let mut text = String::new();
            // Writing to a String cannot fail.
            let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
            from_open_metrics(&text)
        });
        metrics
    }
}

impl Metrics {
    /// Everything, in Prometheus' text format 0.0.4.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.families
            .all()
            .for_each(|family| family.write(&mut text));
        text + &self.others()
    }

    /// What others count, in the same format.
    pub(crate) fn others(&self) -> String {
        self.parts().iter().map(|part| part()).collect()
    }

    /// Serves what somebody else counts as well. `part` writes text format 0.0.4;
    /// [`from_open_metrics`] helps.
    pub fn also(&self, part: impl Fn() -> String + Send + Sync + 'static) {
        self.parts().push(Box::new(part));
    }

    /// There is such a schedule. Seen again, it changes nothing.
    pub fn schedule_seen(&self, schedule: &str) {
        let f = &self.families;
        for family in [
            &f.backup_attempt_total,
            &f.backup_success_total,
            &f.backup_partial_failure_total,
            &f.backup_failure_total,
            &f.backup_validation_failure_total,
            &f.backup_deletion_attempt_total,
            &f.backup_deletion_success_total,
            &f.backup_deletion_failure_total,
            &f.backup_items_total,
            &f.backup_items_errors,
            &f.backup_warning_total,
            &f.restore_attempt_total,
            &f.restore_partial_failure_total,
            &f.restore_failed_total,
            &f.restore_success_total,
            &f.restore_validation_failed_total,
            &f.volume_snapshot_attempt_total,
            &f.volume_snapshot_success_total,
            &f.volume_snapshot_failure_total,
        ] {
            family.add(&[schedule], 0.0);
        }
        for family in [
            &f.csi_snapshot_attempt_total,
            &f.csi_snapshot_success_total,
            &f.csi_snapshot_failure_total,
        ] {
            family.add(&["", schedule], 0.0);
        }
        // Velero sets it to 1 at every look, and so forgets failures within a minute.
        f.backup_last_status.set_first(&[schedule], 1.0);
    }

    /// The schedule is gone, and all that was counted for it.
    pub fn schedule_gone(&self, schedule: &str) {
        self.families
            .all()
            .for_each(|family| family.remove("schedule", schedule));
    }

    /// A backup begins.
    pub fn backup_attempted(&self, schedule: &str) {
        self.families.backup_attempt_total.add(&[schedule], 1.0);
    }

    /// A backup was refused.
    pub fn backup_refused(&self, schedule: &str) {
        let f = &self.families;
        f.backup_validation_failure_total.add(&[schedule], 1.0);
        f.backup_last_status.set(&[schedule], 0.0);
    }

    /// A backup reached its last phase.
    pub fn backup_finished(&self, schedule: &str, finished: &Finished) {
        let f = &self.families;
        let label = [schedule];
        let (counter, good) = match finished.phase {
            BackupPhase::Completed => (&f.backup_success_total, 1.0),
            BackupPhase::PartiallyFailed => (&f.backup_partial_failure_total, 0.0),
            _ => (&f.backup_failure_total, 0.0),
        };
        counter.add(&label, 1.0);
        f.backup_last_status.set(&label, good);
        f.backup_duration_seconds
            .observe(&label, finished.duration.as_secs_f64());
        if let Some(size) = finished.size {
            self.backup_stored(schedule, size);
        }
        f.backup_items_total.set(&label, finished.items as f64);
        f.backup_items_errors.set(&label, finished.errors as f64);
        if finished.warnings > 0 {
            f.backup_warning_total.add(&label, 1.0);
        }
    }

    /// The archive of a backup is in the bucket.
    pub fn backup_stored(&self, schedule: &str, bytes: u64) {
        let size = &self.families.backup_tarball_size_bytes;
        size.set(&[schedule], bytes as f64);
    }

    /// How many backups there are, and when the newest good one of each schedule ended.
    pub fn backups_counted(&self, total: usize, successes: &BTreeMap<String, Timestamp>) {
        let f = &self.families;
        f.backup_total.set(&[], total as f64);
        f.backup_last_successful_timestamp.clear();
        for (schedule, time) in successes {
            f.backup_last_successful_timestamp
                .set(&[schedule], time.as_second() as f64);
        }
    }

    /// Native volume snapshots of a backup.
    pub fn snapshots_taken(&self, schedule: &str, snapshots: Snapshots) {
        let f = &self.families;
        let failed = snapshots.attempted.saturating_sub(snapshots.completed);
        for (family, count) in [
            (&f.volume_snapshot_attempt_total, snapshots.attempted),
            (&f.volume_snapshot_success_total, snapshots.completed),
            (&f.volume_snapshot_failure_total, failed),
        ] {
            family.add(&[schedule], count as f64);
        }
    }

    /// CSI snapshots of a backup.
    pub fn csi_snapshots_taken(&self, schedule: &str, backup: &str, snapshots: Snapshots) {
        let f = &self.families;
        let failed = snapshots.attempted.saturating_sub(snapshots.completed);
        for (family, count) in [
            (&f.csi_snapshot_attempt_total, snapshots.attempted),
            (&f.csi_snapshot_success_total, snapshots.completed),
            (&f.csi_snapshot_failure_total, failed),
        ] {
            family.add(&[backup, schedule], count as f64);
        }
    }

    /// The deletion of a backup begins.
    pub fn deletion_attempted(&self, schedule: &str) {
        let attempts = &self.families.backup_deletion_attempt_total;
        attempts.add(&[schedule], 1.0);
    }

    /// The deletion of a backup ended, with or without errors.
    pub fn deletion_finished(&self, schedule: &str, errors: usize) {
        let f = &self.families;
        if errors == 0 {
            f.backup_deletion_success_total.add(&[schedule], 1.0);
        } else {
            f.backup_deletion_failure_total.add(&[schedule], 1.0);
        }
    }

    /// A location's bucket was tried.
    pub fn location_checked(&self, location: &str, available: bool) {
        let status = &self.families.backup_location_status_gauge;
        status.set(&[location], if available { 1.0 } else { 0.0 });
    }

    /// The location is gone.
    pub fn location_gone(&self, location: &str) {
        let status = &self.families.backup_location_status_gauge;
        status.remove("backup_location_name", location);
    }

    /// A restore begins.
    pub fn restore_attempted(&self, schedule: &str) {
        self.families.restore_attempt_total.add(&[schedule], 1.0);
    }

    /// A restore was refused.
    pub fn restore_refused(&self, schedule: &str) {
        let refused = &self.families.restore_validation_failed_total;
        refused.add(&[schedule], 1.0);
    }

    /// A restore reached its last phase.
    pub fn restore_finished(&self, schedule: &str, phase: &RestorePhase) {
        let f = &self.families;
        let counter = match phase {
            RestorePhase::Completed => &f.restore_success_total,
            RestorePhase::PartiallyFailed => &f.restore_partial_failure_total,
            _ => &f.restore_failed_total,
        };
        counter.add(&[schedule], 1.0);
    }

    /// How many restores there are.
    pub fn restores_counted(&self, total: usize) {
        self.families.restore_total.set(&[], total as f64);
    }

    /// A volume repository was tidied up, or not.
    pub fn maintenance_finished(&self, repository: &str, duration: Duration, succeeded: bool) {
        let f = &self.families;
        let counter = if succeeded {
            &f.repo_maintenance_success_total
        } else {
            &f.repo_maintenance_failure_total
        };
        counter.add(&[repository], 1.0);
        f.repo_maintenance_duration_seconds
            .observe(&[repository], duration.as_secs_f64());
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Turns what `prometheus-client` writes into text format 0.0.4: a counter's family gets the name of
/// its samples, and what the older format does not know is left out.
#[must_use]
pub fn from_open_metrics(text: &str) -> String {
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut converted = String::new();
    for line in text.lines() {
        let name = |line: &str| line.split([' ', '{']).next().map(str::to_owned);
        if let Some((keyword, rest)) = ["# HELP ", "# TYPE "]
            .iter()
            .find_map(|keyword| Some((keyword, line.strip_prefix(keyword)?)))
        {
            let family = name(rest).unwrap_or_default();
            let ending = if counters.contains(&family.as_str()) {
                "_total"
            } else {
                ""
            };
            let rest = &rest[family.len()..];
            converted.push_str(&format!("{keyword}{family}{ending}{rest}\n"));
        } else if !line.starts_with('#')
            && !name(line).is_some_and(|name| name.ends_with("_created"))
        {
            converted.push_str(line);
            converted.push('\n');
        }
    }
    converted
}

#[cfg(test)]
mod tests;
