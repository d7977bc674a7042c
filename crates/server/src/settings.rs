//! The server's flags: all of Velero's, spelled alike, with its defaults.
//!
//! A flag that has no work to do here is accepted, so that a Deployment need not change, and
//! [`Settings::remarks`] says what becomes of it. An unknown flag is refused by name.

mod values;

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser};

pub use values::{LogFormat, LogLevel, ProviderLocations, SnapshotType};

use bowline_engine::restore::plan::Priorities;

use crate::{Error, Result};
pub(crate) use values::{duration, uploads};
use values::{duration_or_default, go_bool};

/// Controllers that `--disable-controllers` may name, in the order of Velero's messages.
pub const DISABLEABLE: [&str; 14] = [
    "backup-queue",
    "backup",
    "backup-operations",
    "backup-deletion",
    "backup-finalizer",
    "backup-sync",
    "download-request",
    "gc",
    "backup-repo",
    "restore",
    "restore-operations",
    "schedule",
    "server-status-request",
    "restore-finalizer",
];

/// What `--restore-only` turns off.
const NOT_FOR_RESTORES: [&str; 6] = [
    "backup",
    "backup-deletion",
    "backup-finalizer",
    "backup-operations",
    "gc",
    "schedule",
];

/// The server's flags.
// As in Go's flag packages, a flag given twice counts as given last.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct Settings {
    /// What to log: everything from this level on.
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub log_level: LogLevel,
    /// How log lines look: text or json.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,
    /// Where metrics are served.
    #[arg(long, value_name = "ADDRESS", default_value = ":8085")]
    pub metrics_address: String,
    /// How often a location's bucket is looked through for backups, unless it says so itself.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration_or_default("1m"), allow_hyphen_values = true)]
    pub backup_sync_period: Duration,
    /// How often a location's bucket is tried, unless it says so itself; zero means once.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration, allow_hyphen_values = true)]
    pub store_validation_frequency: Duration,
    /// How long the backup or restore of a pod volume may take.
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = duration, allow_hyphen_values = true)]
    pub fs_backup_timeout: Duration,
    /// How long a backup is kept that does not say.
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = duration, allow_hyphen_values = true)]
    pub default_backup_ttl: Duration,
    /// The location of backups that name none, when no location is marked as the default.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub default_backup_storage_location: String,
    /// The snapshot location to use per provider: provider:location,…
    #[arg(long, value_name = "PROVIDER:LOCATION", default_value = "")]
    pub default_volume_snapshot_locations: ProviderLocations,
    /// Only restore. Read-only locations are the newer way.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, action = ArgAction::Set)]
    pub restore_only: bool,
    /// Controllers that are not started.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub disable_controllers: Vec<String>,
    /// Resources to restore first, then `-`, then resources to restore last.
    #[arg(
        long,
        value_name = "RESOURCES",
        default_value_t,
        allow_hyphen_values = true
    )]
    pub restore_resource_priorities: Priorities,
    /// How long a restore waits for volumes and namespaces to terminate.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, allow_hyphen_values = true)]
    pub terminating_resource_timeout: Duration,
    /// How long to wait for things that have no timeout of their own.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, allow_hyphen_values = true)]
    pub resource_timeout: Duration,
    /// How long an operation of a plugin, or the movement of a volume's data, may go on, unless the backup or restore says so itself.
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = duration, allow_hyphen_values = true)]
    pub default_item_operation_timeout: Duration,
    /// How often operations of plugins are asked for their progress.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_or_default("10s"), allow_hyphen_values = true)]
    pub item_operation_sync_frequency: Duration,
    /// Features that are turned on, from the global flag.
    #[arg(skip)]
    pub features: Vec<String>,
    /// Start although a Velero server runs in the same namespace: both will act on the same objects.
    #[arg(long)]
    pub beside_velero: bool,
    /// The most objects per page when a backup lists them; by default their size decides.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub client_page_size: Option<i64>,
    /// How often volume repositories are tidied up; zero means every seven days.
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = duration_or_default("168h"), allow_hyphen_values = true)]
    pub default_repo_maintain_frequency: Duration,
    /// How often expired backups are looked for.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration_or_default("1h"), allow_hyphen_values = true)]
    pub garbage_collection_frequency: Duration,
    /// Whether pod volumes are copied file by file unless opted out.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, action = ArgAction::Set)]
    pub default_volumes_to_fs_backup: bool,
    /// Whether the data of snapshots is moved into the bucket, unless the backup says so itself.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, action = ArgAction::Set)]
    pub default_snapshot_move_data: bool,
    /// The default of a schedule's `skipImmediately`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = go_bool, action = ArgAction::Set)]
    pub schedule_skip_immediately: bool,
    /// The label of claims that are to be snapshotted together.
    #[arg(long, value_name = "LABEL", default_value = bowline_api::names::label::VOLUME_GROUP)]
    pub volume_group_snapshot_label_key: String,
    /// The ConfigMap with the settings of volume repositories.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub backup_repository_configmap: String,
    /// The ConfigMap with the settings of repository maintenance.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub repo_maintenance_job_configmap: String,
    /// The ConfigMap with volume policies for every backup.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub global_backup_volume_policies_configmap: String,
    /// Item blocks that a backup works on at the same time.
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub item_block_worker_count: i64,
    /// Backups that run at the same time.
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub concurrent_backups: i64,
    /// Whether the snapshots of a provider stay where they are taken, or are uploaded by its plugin;
    /// by default a plugin that can upload them does.
    #[arg(long, value_name = "PROVIDER=local|cloud", value_delimiter = ',')]
    pub snapshot_type: Vec<SnapshotType>,
    /// Where plugins are: programs, in folders too.
    #[arg(long, value_name = "DIRECTORY", default_value = "/plugins")]
    pub plugin_dir: PathBuf,
    /// What plugins are given: all flags of the server.
    #[arg(skip)]
    pub plugin_args: Vec<OsString>,
    #[command(flatten)]
    idle: Idle,
}

/// Flags without work to do here. Whether they were given is all that counts.
#[derive(Debug, Clone, Args)]
struct Idle {
    /// Accepted for compatibility: there is no profiler.
    #[arg(long, value_name = "ADDRESS")]
    profiler_address: Option<String>,
    /// Accepted for compatibility: volume data is written in restic's format.
    #[arg(long, value_name = "TYPE")]
    uploader_type: Option<String>,
    /// Accepted for compatibility: there is no such cache.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool, action = ArgAction::Set)]
    disable_informer_cache: Option<bool>,
    /// Accepted for compatibility: the API server's own limits are obeyed instead.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    client_qps: Option<f32>,
    /// Accepted for compatibility: the API server's own limits are obeyed instead.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    client_burst: Option<i64>,
    /// Accepted for compatibility: one connection carries many requests.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    max_concurrent_k8s_connections: Option<i64>,
}

impl Settings {
    /// Refuses values that cannot be meant, in Velero's words.
    ///
    /// # Errors
    /// The first flag that is wrong.
    pub fn validate(&self) -> Result<()> {
        let idle = &self.idle;
        let unknown = |name: &&String| !DISABLEABLE.contains(&name.as_str());
        let refusal = if let Some(other) = idle
            .uploader_type
            .as_deref()
            .filter(|uploader| !matches!(*uploader, "kopia" | "restic"))
        {
            format!("invalid uploader type '{other}', valid type: 'kopia'")
        } else if idle.client_qps.is_some_and(|qps| qps < 0.0) {
            "client-qps must be positive".to_owned()
        } else if idle.client_burst.is_some_and(|burst| burst <= 0) {
            "client-burst must be positive".to_owned()
        } else if self.client_page_size.is_some_and(|size| size < 0) {
            "client-page-size must not be negative".to_owned()
        } else if let Some(name) = self.disable_controllers.iter().find(unknown) {
            format!(
                "Invalid value for --disable-controllers flag provided: {name}. Valid values are: {}",
                DISABLEABLE.join(",")
            )
        } else {
            return Ok(());
        };
        Err(Error::Setup(refusal))
    }

    /// The most objects in a page of a list; zero leaves it to their size. A page of all at once
    /// (Velero's zero) is not had: it would only cost the API server memory.
    #[must_use]
    pub fn page(&self) -> usize {
        let size = self.client_page_size.unwrap_or_default();
        usize::try_from(size).unwrap_or_default()
    }

    /// Whether a feature is turned on.
    #[must_use]
    pub fn has_feature(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature == name)
    }

    /// Whether a controller is to be started.
    #[must_use]
    pub fn runs(&self, controller: &str) -> bool {
        !self.disabled().contains(controller)
    }

    /// Controllers that are not to be started.
    #[must_use]
    pub fn disabled(&self) -> BTreeSet<&str> {
        let named = self.disable_controllers.iter().map(String::as_str);
        let implied = NOT_FOR_RESTORES.iter().filter(|_| self.restore_only);
        named.chain(implied.copied()).collect()
    }

    /// A sentence about each flag that was given and has no effect, for the log.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let idle = &self.idle;
        let mut remarks = Vec::new();
        let mut say = |given: bool, flag: &str, what: &str| {
            if given {
                remarks.push(format!("--{flag} {what}"));
            }
        };
        say(
            idle.profiler_address
                .as_ref()
                .is_some_and(|address| !address.is_empty()),
            "profiler-address",
            "has no effect: there is no profiler",
        );
        say(
            idle.uploader_type.as_deref() == Some("kopia"),
            "uploader-type",
            "kopia has no effect: new volume data is written in restic's format",
        );
        say(
            idle.disable_informer_cache.is_some(),
            "disable-informer-cache",
            "has no effect: restores ask the API server itself",
        );
        let limits = "has no effect: the server goes as fast as the API server lets it";
        say(idle.client_qps.is_some(), "client-qps", limits);
        say(idle.client_burst.is_some(), "client-burst", limits);
        say(
            idle.max_concurrent_k8s_connections.is_some(),
            "max-concurrent-k8s-connections",
            "has no effect: one connection carries many requests",
        );
        say(
            self.restore_only,
            "restore-only",
            "is deprecated: use read-only backup storage locations",
        );
        remarks
    }
}

/// The flags of a command line without any.
impl Default for Settings {
    fn default() -> Self {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            settings: Settings,
        }
        Line::try_parse_from([""])
            .expect("every flag has a sound default")
            .settings
    }
}

#[cfg(test)]
mod tests;
