//! Where backups and volume snapshots are kept.

use k8s_openapi::api::core::v1::SecretKeySelector;

use crate::{Column, ColumnType, Duration, StringMap, Time};

resource! {
    /// A bucket that holds backups.
    BackupStorageLocation, "v1", "backupstoragelocations", ["bsl"], [
        Column::text("Phase", ".status.phase"),
        Column::new("Last Validated", ".status.lastValidationTime", ColumnType::Date),
        Column::AGE,
        Column::new("Default", ".spec.default", ColumnType::Boolean),
    ],
    spec: BackupStorageLocationSpec, status: BackupStorageLocationStatus
}

record! {
    /// Which bucket, and how to reach it.
    pub struct BackupStorageLocationSpec {
        /// The kind of store; without a `/` it stands for `velero.io/<provider>`.
        pub provider: String,
        /// Settings of the provider.
        pub config: Option<StringMap>,
        /// The Secret key with the credentials, in the same namespace.
        #[schemars(with = "Option<crate::schema::SecretKey>")]
        pub credential: Option<SecretKeySelector>,
        /// The bucket.
        pub object_storage: ObjectStorageLocation,
        /// Whether backups that name no location go here.
        pub default: Option<bool>,
        /// Whether backups may be written and deleted; not set means yes.
        pub access_mode: Option<BackupStorageLocationAccessMode>,
        /// How often the bucket is looked through for backups; zero means never.
        #[schemars(extend("nullable" = true))]
        pub backup_sync_period: Option<Duration>,
        /// How often the bucket is tried; zero means once.
        #[schemars(extend("nullable" = true))]
        pub validation_frequency: Option<Duration>,
    }
}

record! {
    /// A bucket and a place in it.
    pub struct ObjectStorageLocation {
        /// The bucket's name.
        pub bucket: String,
        /// The folder inside the bucket.
        pub prefix: Option<String>,
        /// The CA bundle to trust, in base64; `caCertRef` is the newer way.
        #[schemars(extend("format" = "byte"))]
        pub ca_cert: Option<String>,
        /// The Secret key with the CA bundle to trust.
        #[schemars(with = "Option<crate::schema::SecretKey>")]
        pub ca_cert_ref: Option<SecretKeySelector>,
    }
}

record! {
    /// What the last look at the bucket found.
    pub struct BackupStorageLocationStatus {
        /// Whether the bucket can be used.
        pub phase: Option<BackupStorageLocationPhase>,
        /// When its backups were last brought into the cluster.
        #[schemars(extend("nullable" = true))]
        pub last_synced_time: Option<Time>,
        /// When it was last tried.
        #[schemars(extend("nullable" = true))]
        pub last_validation_time: Option<Time>,
        /// Why it cannot be used.
        pub message: Option<String>,
        /// Not written by any current version.
        pub last_synced_revision: Option<String>,
        /// Not written by any current version.
        pub access_mode: Option<BackupStorageLocationAccessMode>,
    }
}

word! {
    /// Whether a bucket can be used. One never tried has none and counts as not available.
    pub enum BackupStorageLocationPhase {
        /// It can.
        Available,
        /// It cannot; the message says why.
        Unavailable,
    }
}

word! {
    /// What may be done with a bucket.
    pub enum BackupStorageLocationAccessMode {
        /// Restores only.
        ReadOnly,
        /// Backups and deletions too.
        ReadWrite,
    }
}

resource! {
    /// A place for native volume snapshots.
    VolumeSnapshotLocation, "v1", "volumesnapshotlocations", ["vsl"], [],
    spec: VolumeSnapshotLocationSpec, status: VolumeSnapshotLocationStatus
}

record! {
    /// Which provider, and how to reach it.
    pub struct VolumeSnapshotLocationSpec {
        /// The plugin; without a `/` it stands for `velero.io/<provider>`.
        pub provider: String,
        /// Settings of the provider.
        pub config: Option<StringMap>,
        /// The Secret key with the credentials, in the same namespace.
        #[schemars(with = "Option<crate::schema::SecretKey>")]
        pub credential: Option<SecretKeySelector>,
    }
}

record! {
    /// Not written by any current version.
    pub struct VolumeSnapshotLocationStatus {
        /// Whether it can be used.
        pub phase: Option<VolumeSnapshotLocationPhase>,
    }
}

word! {
    /// Whether a snapshot location can be used.
    pub enum VolumeSnapshotLocationPhase {
        /// It can.
        Available,
        /// It cannot.
        Unavailable,
    }
}
