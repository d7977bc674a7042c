//! The server's flags.

use std::time::Duration;

/// The server's flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often a location's bucket is looked through for backups, unless it says so itself.
    pub backup_sync_period: Duration,
    /// How often a location's bucket is tried, unless it says so itself; zero means once.
    pub store_validation_frequency: Duration,
    /// How long a backup is kept that does not say.
    pub default_backup_ttl: Duration,
    /// The location of backups that name none, when no location is marked as the default.
    pub default_backup_storage_location: String,
    /// How often expired backups are looked for.
    pub garbage_collection_frequency: Duration,
    /// The default of a schedule's `skipImmediately`.
    pub schedule_skip_immediately: bool,
}
