//! Backup: what to copy out of a cluster, and how far that is.

use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference, apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{BackupHooks, HookStatus};
use crate::{Duration, StringMap, Time};

resource! {
    /// A backup of objects and volumes to a storage location.
    Backup, "v1", "backups", [], [],
    spec: BackupSpec, status: BackupStatus
}

record! {
    /// What a backup holds and how it is made; also the template of a schedule.
    pub struct BackupSpec {
        /// Labels for the backups that a schedule makes from this template.
        pub metadata: Option<BackupMetadata>,
        /// Namespaces to back up, with wildcards; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_namespaces: Option<Vec<String>>,
        /// Namespaces to leave out, with wildcards.
        #[schemars(extend("nullable" = true))]
        pub excluded_namespaces: Option<Vec<String>>,
        /// Resources to back up, in either scope; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_resources: Option<Vec<String>>,
        /// Resources to leave out, in either scope.
        #[schemars(extend("nullable" = true))]
        pub excluded_resources: Option<Vec<String>>,
        /// Cluster-scoped resources to back up; none means those that others refer to.
        #[schemars(extend("nullable" = true))]
        pub included_cluster_scoped_resources: Option<Vec<String>>,
        /// Cluster-scoped resources to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_cluster_scoped_resources: Option<Vec<String>>,
        /// Namespaced resources to back up; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_namespace_scoped_resources: Option<Vec<String>>,
        /// Namespaced resources to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_namespace_scoped_resources: Option<Vec<String>>,
        /// Only objects with these labels.
        #[schemars(with = "Option<crate::schema::LabelSelector>", extend("nullable" = true))]
        pub label_selector: Option<LabelSelector>,
        /// Only objects that one of these selects; excludes `labelSelector`.
        #[schemars(with = "Option<Vec<crate::schema::LabelSelector>>", extend("nullable" = true))]
        pub or_label_selectors: Option<Vec<LabelSelector>>,
        /// Whether to snapshot persistent volumes; not set means yes.
        #[schemars(extend("nullable" = true))]
        pub snapshot_volumes: Option<bool>,
        /// How long the backup is kept; zero means the server's default.
        pub ttl: Option<Duration>,
        /// The label of claims that are to be snapshotted together.
        pub volume_group_snapshot_label_key: Option<String>,
        /// Whether cluster-scoped objects are included; not set means those that others refer to.
        #[schemars(extend("nullable" = true))]
        pub include_cluster_resources: Option<bool>,
        /// Commands to run in pods before and after they are backed up.
        pub hooks: Option<BackupHooks>,
        /// The backup storage location, by name.
        pub storage_location: Option<String>,
        /// The volume snapshot locations, by name, one per provider.
        pub volume_snapshot_locations: Option<Vec<String>>,
        /// The old name of `defaultVolumesToFsBackup`.
        #[schemars(extend("nullable" = true))]
        pub default_volumes_to_restic: Option<bool>,
        /// Whether pod volumes are copied file by file unless opted out.
        #[schemars(extend("nullable" = true))]
        pub default_volumes_to_fs_backup: Option<bool>,
        /// Objects to back up first, as comma-separated names by resource.
        #[schemars(extend("nullable" = true))]
        pub ordered_resources: Option<StringMap>,
        /// How long to wait for a CSI snapshot; zero means ten minutes.
        pub csi_snapshot_timeout: Option<Duration>,
        /// How long an operation of a plugin may go on; zero means four hours.
        pub item_operation_timeout: Option<Duration>,
        /// The ConfigMap with the volume policies.
        #[schemars(with = "Option<crate::schema::TypedReference>")]
        pub resource_policy: Option<TypedLocalObjectReference>,
        /// Whether the data of CSI snapshots is moved into the bucket.
        #[schemars(extend("nullable" = true))]
        pub snapshot_move_data: Option<bool>,
        /// Who moves snapshot data; empty means the built-in mover.
        pub datamover: Option<String>,
        /// Settings of the volume upload.
        #[schemars(extend("nullable" = true))]
        pub uploader_config: Option<UploaderConfigForBackup>,
    }
}

record! {
    /// Metadata that a schedule gives its backups.
    pub struct BackupMetadata {
        /// Labels of the backup.
        pub labels: Option<StringMap>,
    }
}

record! {
    /// Settings of the volume upload.
    pub struct UploaderConfigForBackup {
        /// Files uploaded at the same time.
        pub parallel_files_upload: Option<i64>,
    }
}

record! {
    /// How far a backup is, and how it ended.
    pub struct BackupStatus {
        /// The major format version, always 1.
        pub version: Option<i64>,
        /// The format version, `1.1.0`.
        pub format_version: Option<String>,
        /// When the backup may be deleted.
        #[schemars(extend("nullable" = true))]
        pub expiration: Option<Time>,
        /// Where the backup stands.
        pub phase: Option<BackupPhase>,
        /// The place in the queue while `Queued`, from 1.
        pub queue_position: Option<i64>,
        /// What is wrong with the spec.
        #[schemars(extend("nullable" = true))]
        pub validation_errors: Option<Vec<String>>,
        /// When the work began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When the backup reached its last phase.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Native volume snapshots tried.
        pub volume_snapshots_attempted: Option<i64>,
        /// Native volume snapshots that succeeded.
        pub volume_snapshots_completed: Option<i64>,
        /// Why the backup failed as a whole.
        pub failure_reason: Option<String>,
        /// Warnings; their text is in the results file.
        pub warnings: Option<i64>,
        /// Errors; their text is in the results file.
        pub errors: Option<i64>,
        /// Items done and in all.
        #[schemars(extend("nullable" = true))]
        pub progress: Option<BackupProgress>,
        /// CSI snapshots tried.
        pub csi_volume_snapshots_attempted: Option<i64>,
        /// CSI snapshots that succeeded.
        pub csi_volume_snapshots_completed: Option<i64>,
        /// Plugin operations started.
        pub backup_item_operations_attempted: Option<i64>,
        /// Plugin operations that succeeded.
        pub backup_item_operations_completed: Option<i64>,
        /// Plugin operations that failed.
        pub backup_item_operations_failed: Option<i64>,
        /// Hooks run and failed.
        #[schemars(extend("nullable" = true))]
        pub hook_status: Option<HookStatus>,
    }
}

record! {
    /// Items of a backup, done and in all.
    pub struct BackupProgress {
        /// Items to back up; grows as plugins add some.
        pub total_items: Option<i64>,
        /// Items written so far.
        pub items_backed_up: Option<i64>,
    }
}

word! {
    /// Where a backup stands. A fresh one has none.
    pub enum BackupPhase {
        /// Not looked at yet.
        New,
        /// Waiting for its turn.
        Queued,
        /// Next to run.
        ReadyToStart,
        /// Refused; `validationErrors` says why.
        FailedValidation,
        /// Copying objects.
        InProgress,
        /// Objects are in the bucket, plugins still work.
        WaitingForPluginOperations,
        /// As above, and something failed already.
        WaitingForPluginOperationsPartiallyFailed,
        /// Plugins are done, the last files are being written.
        Finalizing,
        /// As above, and something failed already.
        FinalizingPartiallyFailed,
        /// All of it is in the bucket.
        Completed,
        /// In the bucket, but not all of it.
        PartiallyFailed,
        /// Not in the bucket.
        Failed,
        /// Being deleted.
        Deleting,
    }
}
