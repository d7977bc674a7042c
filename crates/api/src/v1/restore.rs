//! Restore: what to bring back from a backup, and how far that is.

use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference, apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{HookStatus, RestoreHooks};
use crate::{Duration, StringMap, Time};

resource! {
    /// A restore of objects and volumes from a backup.
    Restore, "v1", "restores", [], [],
    spec: RestoreSpec, status: RestoreStatus
}

record! {
    /// What is restored and how.
    pub struct RestoreSpec {
        /// The backup, by name.
        pub backup_name: Option<String>,
        /// The schedule whose newest backup is meant.
        pub schedule_name: Option<String>,
        /// Namespaces of the backup to restore, with wildcards; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_namespaces: Option<Vec<String>>,
        /// Namespaces of the backup to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_namespaces: Option<Vec<String>>,
        /// Resources to restore; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_resources: Option<Vec<String>>,
        /// Resources to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_resources: Option<Vec<String>>,
        /// Namespaces that get another name, from old to new.
        pub namespace_mapping: Option<StringMap>,
        /// Only objects with these labels.
        #[schemars(with = "Option<crate::schema::LabelSelector>", extend("nullable" = true))]
        pub label_selector: Option<LabelSelector>,
        /// Only objects that one of these selects; excludes `labelSelector`.
        #[schemars(with = "Option<Vec<crate::schema::LabelSelector>>", extend("nullable" = true))]
        pub or_label_selectors: Option<Vec<LabelSelector>>,
        /// Whether volumes are restored from snapshots; not set means yes.
        #[schemars(extend("nullable" = true))]
        #[serde(rename = "restorePVs")]
        pub restore_pvs: Option<bool>,
        /// Resources whose status is restored; not set means none.
        #[schemars(extend("nullable" = true))]
        pub restore_status: Option<RestoreStatusSpec>,
        /// Whether services keep the node ports they had.
        #[schemars(extend("nullable" = true))]
        pub preserve_node_ports: Option<bool>,
        /// Whether cluster-scoped objects are included; not set means those that others refer to.
        #[schemars(extend("nullable" = true))]
        pub include_cluster_resources: Option<bool>,
        /// Commands and init containers for restored pods.
        pub hooks: Option<RestoreHooks>,
        /// What to do about objects that exist already: `none` or `update`.
        #[schemars(with = "Option<String>", extend("nullable" = true))]
        pub existing_resource_policy: Option<ExistingResourcePolicy>,
        /// How long an operation of a plugin may go on; zero means four hours.
        pub item_operation_timeout: Option<Duration>,
        /// The ConfigMap with changes to make to objects on their way.
        #[schemars(with = "Option<crate::schema::TypedReference>", extend("nullable" = true))]
        pub resource_modifier: Option<TypedLocalObjectReference>,
        /// The ConfigMap with the restore's filter policies.
        #[schemars(with = "Option<crate::schema::TypedReference>", extend("nullable" = true))]
        pub resource_policy: Option<TypedLocalObjectReference>,
        /// Settings of the volume download.
        #[schemars(extend("nullable" = true))]
        pub uploader_config: Option<UploaderConfigForRestore>,
    }
}

record! {
    /// Resources whose status is restored.
    pub struct RestoreStatusSpec {
        /// Resources; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_resources: Option<Vec<String>>,
        /// Resources to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_resources: Option<Vec<String>>,
    }
}

record! {
    /// Settings of the volume download.
    pub struct UploaderConfigForRestore {
        /// Whether holes are written as holes.
        #[schemars(extend("nullable" = true))]
        pub write_sparse_files: Option<bool>,
        /// Files downloaded at the same time.
        pub parallel_files_download: Option<i64>,
    }
}

word! {
    /// What to do about objects that exist already. The schema takes any text; the server checks it.
    pub enum ExistingResourcePolicy {
        /// They stay as they are.
        None = "none",
        /// They are patched to what the backup has.
        Update = "update",
    }
}

record! {
    /// How far a restore is, and how it ended.
    pub struct RestoreStatus {
        /// Where the restore stands.
        pub phase: Option<RestorePhase>,
        /// What is wrong with the spec.
        #[schemars(extend("nullable" = true))]
        pub validation_errors: Option<Vec<String>>,
        /// Warnings; their text is in the results file.
        pub warnings: Option<i64>,
        /// Errors; their text is in the results file.
        pub errors: Option<i64>,
        /// Why the restore failed as a whole.
        pub failure_reason: Option<String>,
        /// When the work began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When the restore reached its last phase.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Items done and in all.
        #[schemars(extend("nullable" = true))]
        pub progress: Option<RestoreProgress>,
        /// Plugin operations started.
        pub restore_item_operations_attempted: Option<i64>,
        /// Plugin operations that succeeded.
        pub restore_item_operations_completed: Option<i64>,
        /// Plugin operations that failed.
        pub restore_item_operations_failed: Option<i64>,
        /// Hooks run and failed.
        #[schemars(extend("nullable" = true))]
        pub hook_status: Option<HookStatus>,
    }
}

record! {
    /// Items of a restore, done and in all.
    pub struct RestoreProgress {
        /// Items to restore; corrected as plugins add some.
        pub total_items: Option<i64>,
        /// Items restored so far.
        pub items_restored: Option<i64>,
    }
}

word! {
    /// Where a restore stands. A fresh one has none.
    pub enum RestorePhase {
        /// Not looked at yet.
        New,
        /// Refused; `validationErrors` says why.
        FailedValidation,
        /// Creating objects.
        InProgress,
        /// Objects are there, plugins still work.
        WaitingForPluginOperations,
        /// As above, and something failed already.
        WaitingForPluginOperationsPartiallyFailed,
        /// All of it is restored.
        Completed,
        /// Some of it is restored.
        PartiallyFailed,
        /// The restore could not go on.
        Failed,
        /// Plugins are done, volumes and hooks are looked after.
        Finalizing,
        /// As above, and something failed already.
        FinalizingPartiallyFailed,
    }
}
