//! Native volume snapshots.

record! {
    /// One entry of `<backup>-volumesnapshots.json.gz`.
    pub struct Snapshot {
        /// What was asked for.
        pub spec: SnapshotSpec,
        /// What came of it.
        pub status: SnapshotStatus,
    }
}

record! {
    /// The volume of a snapshot.
    pub struct SnapshotSpec {
        /// The backup, by name.
        pub backup_name: String,
        /// The backup's uid.
        #[serde(rename = "backupUID")]
        pub backup_uid: String,
        /// The volume snapshot location, by name.
        pub location: String,
        /// The persistent volume, by name.
        pub persistent_volume_name: String,
        /// The volume, as the provider names it.
        #[serde(rename = "providerVolumeID")]
        pub provider_volume_id: String,
        /// The provider's type of the volume.
        pub volume_type: String,
        /// The volume's availability zone.
        #[serde(rename = "volumeAZ")]
        pub volume_az: Option<String>,
        /// The volume's provisioned operations per second.
        #[serde(rename = "volumeIOPS")]
        pub volume_iops: Option<i64>,
    }
}

record! {
    /// What came of a snapshot.
    pub struct SnapshotStatus {
        /// The snapshot, as the provider names it.
        #[serde(rename = "providerSnapshotID")]
        pub provider_snapshot_id: Option<String>,
        /// Where it stands.
        pub phase: Option<SnapshotPhase>,
    }
}

word! {
    /// Where a native snapshot stands.
    pub enum SnapshotPhase {
        /// Asked for.
        New,
        /// Taken.
        Completed,
        /// Not taken.
        Failed,
    }
}
