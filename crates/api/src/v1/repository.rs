//! BackupRepository: the volume repository of one namespace in one location.

use super::UploaderType;
use crate::{Column, Duration, StringMap, Time};

resource! {
    /// A repository of volume data.
    BackupRepository, "v1", "backuprepositories", [], [
        Column::AGE,
        Column::text("Repository Type", ".spec.repositoryType"),
    ],
    spec: BackupRepositorySpec, status: BackupRepositoryStatus
}

record! {
    /// Whose data, where, and how it is looked after.
    pub struct BackupRepositorySpec {
        /// The namespace whose volumes it holds.
        pub volume_namespace: String,
        /// The backup storage location, by name.
        pub backup_storage_location: String,
        /// The format.
        pub repository_type: Option<UploaderType>,
        /// The repository as restic spells it.
        pub restic_identifier: Option<String>,
        /// How often it is maintained.
        pub maintenance_frequency: Duration,
        /// Settings of the repository.
        #[schemars(extend("nullable" = true))]
        pub repository_config: Option<StringMap>,
    }
}

record! {
    /// Whether it can be used, and its last maintenance.
    pub struct BackupRepositoryStatus {
        /// Whether it can be used.
        pub phase: Option<BackupRepositoryPhase>,
        /// Why it cannot.
        pub message: Option<String>,
        /// When it was last maintained.
        #[schemars(extend("nullable" = true))]
        pub last_maintenance_time: Option<Time>,
        /// The last three maintenances, oldest first.
        pub recent_maintenance: Option<Vec<RepositoryMaintenance>>,
    }
}

record! {
    /// One maintenance of a repository.
    pub struct RepositoryMaintenance {
        /// How it ended.
        pub result: Option<RepositoryMaintenanceResult>,
        /// When it began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it ended.
        #[schemars(extend("nullable" = true))]
        pub complete_timestamp: Option<Time>,
        /// Why it failed.
        pub message: Option<String>,
    }
}

word! {
    /// How a maintenance ended.
    pub enum RepositoryMaintenanceResult {
        /// Well.
        Succeeded,
        /// Not well.
        Failed,
    }
}

word! {
    /// Whether a repository can be used. A fresh one has none.
    pub enum BackupRepositoryPhase {
        /// Not opened yet.
        New,
        /// It can.
        Ready,
        /// It cannot; the message says why.
        NotReady,
    }
}
