//! Volume info: what became of each volume in a backup or a restore.
//!
//! A few keys are capitalised on the wire; they are marked where they stand.

use crate::{StringMap, Time};

record! {
    /// One entry of `<backup>-volumeinfo.json.gz`.
    pub struct BackupVolumeInfo {
        /// The claim, by name.
        pub pvc_name: Option<String>,
        /// The claim's namespace.
        pub pvc_namespace: Option<String>,
        /// The persistent volume, by name.
        pub pv_name: Option<String>,
        /// How its data was kept; none if it was skipped.
        pub backup_method: Option<BackupMethod>,
        /// Whether the data of its snapshot was moved into the bucket.
        pub snapshot_data_moved: bool,
        /// Whether its snapshot is kept beside the moved data.
        pub preserve_local_snapshot: bool,
        /// Whether it was left out.
        pub skipped: bool,
        /// Why it was left out.
        pub skipped_reason: Option<String>,
        /// When work on it began.
        pub start_timestamp: Option<Time>,
        /// When work on it ended.
        pub completion_timestamp: Option<Time>,
        /// How it ended; none while not known.
        pub result: Option<VolumeResult>,
        /// Its CSI snapshot.
        pub csi_snapshot_info: Option<CsiSnapshotInfo>,
        /// The movement of its snapshot's data.
        pub snapshot_data_movement_info: Option<SnapshotDataMovementInfo>,
        /// Its native snapshot.
        pub native_snapshot_info: Option<NativeSnapshotInfo>,
        /// Its file-by-file copy.
        pub pvb_info: Option<PodVolumeInfo>,
        /// The persistent volume's traits that a restore needs.
        pub pv_info: Option<PvInfo>,
    }
}

record! {
    /// One entry of `<restore>-volumeinfo.json.gz`.
    pub struct RestoreVolumeInfo {
        /// The claim, by name.
        pub pvc_name: Option<String>,
        /// The claim's namespace.
        pub pvc_namespace: Option<String>,
        /// The persistent volume, by name.
        pub pv_name: Option<String>,
        /// How its data came back.
        pub restore_method: Option<RestoreMethod>,
        /// Whether the data came from a moved snapshot.
        pub snapshot_data_moved: bool,
        /// Its file-by-file copy.
        pub pvr_info: Option<PodVolumeInfo>,
        /// Its native snapshot.
        pub native_snapshot_info: Option<NativeSnapshotInfo>,
        /// Its CSI snapshot.
        pub csi_snapshot_info: Option<CsiSnapshotInfo>,
        /// The movement of its snapshot's data.
        pub snapshot_data_movement_info: Option<SnapshotDataMovementInfo>,
        /// Ours, as all that follow: no data was brought back.
        pub skipped: Option<bool>,
        /// Ours: it is the volume of the backup itself, whose data nobody touched.
        pub kept: Option<bool>,
        /// Ours: why no data was brought back.
        pub skipped_reason: Option<String>,
        /// Ours: when work on it began.
        pub start_timestamp: Option<Time>,
        /// Ours: when work on it ended.
        pub completion_timestamp: Option<Time>,
        /// Ours: how it ended; none while that is not known.
        pub result: Option<VolumeResult>,
        /// Ours: why it failed.
        pub message: Option<String>,
        /// Ours: the bytes that the claim has room for.
        pub capacity: Option<i64>,
        /// Ours: the claim's name in the backup, if that was another.
        pub original_pvc_name: Option<String>,
        /// Ours: the claim's namespace in the backup, if that was another.
        pub original_pvc_namespace: Option<String>,
        /// Ours: the persistent volume in the backup.
        pub original_pv_name: Option<String>,
    }
}

word! {
    /// How a backup keeps a volume's data.
    pub enum BackupMethod {
        /// A snapshot by a volume snapshotter.
        NativeSnapshot,
        /// A copy file by file.
        PodVolumeBackup,
        /// A CSI snapshot.
        CsiSnapshot = "CSISnapshot",
    }
}

word! {
    /// How a restore brings a volume's data back.
    pub enum RestoreMethod {
        /// A copy file by file.
        PodVolumeRestore,
        /// A snapshot by a volume snapshotter.
        NativeSnapshot,
        /// A CSI snapshot.
        CsiSnapshot = "CSISnapshot",
    }
}

word! {
    /// How work on a volume ended.
    pub enum VolumeResult {
        /// Well.
        Succeeded = "succeeded",
        /// Not well.
        Failed = "failed",
    }
}

record! {
    /// A CSI snapshot of a volume.
    pub struct CsiSnapshotInfo {
        /// The snapshot, as the driver names it.
        pub snapshot_handle: String,
        /// The size of a volume made from it.
        pub size: i64,
        /// The CSI driver.
        pub driver: String,
        /// The VolumeSnapshotContent, by name.
        pub vsc_name: String,
        /// The plugin operation that waits for it.
        #[serde(rename = "operationID")]
        pub operation_id: Option<String>,
        /// The group snapshot it is part of.
        pub volume_group_snapshot_handle: Option<String>,
        /// Whether it can be used; capitalised, and `null` if not known.
        #[serialize_always]
        #[serde(rename = "ReadyToUse")]
        pub ready_to_use: Option<bool>,
    }
}

record! {
    /// The movement of a snapshot's data.
    pub struct SnapshotDataMovementInfo {
        /// Who moves it.
        pub data_mover: String,
        /// The format of the repository.
        pub uploader_type: String,
        /// The local snapshot that stays.
        pub retained_snapshot: Option<String>,
        /// The snapshot in the repository.
        pub snapshot_handle: String,
        /// The plugin operation that waits for it.
        #[serde(rename = "operationID")]
        pub operation_id: String,
        /// Bytes in all.
        pub size: i64,
        /// Bytes that were new to the repository.
        pub incremental_size: Option<i64>,
        /// Where the movement stands; capitalised.
        #[serde(rename = "Phase")]
        pub phase: String,
    }
}

record! {
    /// A native snapshot of a volume.
    pub struct NativeSnapshotInfo {
        /// The snapshot, as the provider names it.
        pub snapshot_handle: String,
        /// The provider's type of the volume.
        pub volume_type: String,
        /// The volume's availability zone.
        #[serde(rename = "volumeAZ")]
        pub volume_az: String,
        /// The volume's provisioned operations per second, `"0"` if none.
        pub iops: String,
        /// Where the snapshot stands; capitalised.
        #[serde(rename = "Phase")]
        pub phase: String,
        /// Ours: bytes in all, if the plugin says.
        pub size: Option<i64>,
    }
}

record! {
    /// A copy of a pod volume, file by file.
    pub struct PodVolumeInfo {
        /// The snapshot in the repository.
        pub snapshot_handle: Option<String>,
        /// Bytes in all.
        pub size: Option<i64>,
        /// Bytes that were new to the repository.
        pub incremental_size: Option<i64>,
        /// The format of the repository.
        pub uploader_type: String,
        /// The volume's name in the pod.
        pub volume_name: String,
        /// The pod, by name.
        pub pod_name: String,
        /// The pod's namespace.
        pub pod_namespace: String,
        /// The node of the copy.
        pub node_name: Option<String>,
        /// Where the copy stands; capitalised.
        #[serde(rename = "Phase")]
        pub phase: String,
    }
}

record! {
    /// Traits of a persistent volume.
    pub struct PvInfo {
        /// What becomes of the volume when its claim goes.
        pub reclaim_policy: String,
        /// Its labels; `null` if it has none.
        #[serialize_always]
        pub labels: Option<StringMap>,
    }
}
