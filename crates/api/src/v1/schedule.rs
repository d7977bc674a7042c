//! Schedule: backups at set times.

use super::BackupSpec;
use crate::{Column, ColumnType, Time};

resource! {
    /// Backups at set times, made from a template.
    Schedule, "v1", "schedules", [], [
        Column::text("Status", ".status.phase"),
        Column::text("Schedule", ".spec.schedule"),
        Column::new("LastBackup", ".status.lastBackup", ColumnType::Date),
        Column::AGE,
        Column::new("Paused", ".spec.paused", ColumnType::Boolean),
    ],
    spec: ScheduleSpec, status: ScheduleStatus
}

record! {
    /// When to back up, and what.
    pub struct ScheduleSpec {
        /// The spec of the backups.
        pub template: BackupSpec,
        /// The times, as a cron expression.
        pub schedule: String,
        /// Whether backups are deleted with the schedule.
        #[schemars(extend("nullable" = true))]
        pub use_owner_references_in_backup: Option<bool>,
        /// Whether it rests.
        pub paused: Option<bool>,
        /// Whether the first due backup is left out; the server turns it off once done.
        pub skip_immediately: Option<bool>,
    }
}

record! {
    /// What became of a schedule.
    pub struct ScheduleStatus {
        /// Whether the server accepts it.
        pub phase: Option<SchedulePhase>,
        /// When its newest backup was made.
        #[schemars(extend("nullable" = true))]
        pub last_backup: Option<Time>,
        /// When a due backup was left out.
        #[schemars(extend("nullable" = true))]
        pub last_skipped: Option<Time>,
        /// What is wrong with the spec.
        pub validation_errors: Option<Vec<String>>,
    }
}

word! {
    /// Whether a schedule is accepted. A fresh one has none.
    pub enum SchedulePhase {
        /// Not looked at yet.
        New,
        /// Accepted.
        Enabled,
        /// Refused; `validationErrors` says why.
        FailedValidation,
    }
}
