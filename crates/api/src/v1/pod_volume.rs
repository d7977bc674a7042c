//! Volumes of pods, copied file by file: PodVolumeBackup and PodVolumeRestore.

use k8s_openapi::api::core::v1::ObjectReference;

use crate::{Column, ColumnType, StringMap, Time};

resource! {
    /// The copy of one pod volume into the bucket.
    PodVolumeBackup, "v1", "podvolumebackups", [], [
        Column::text("Status", ".status.phase"),
        Column::new("Started", ".status.startTimestamp", ColumnType::Date),
        Column::new("Bytes Done", ".status.progress.bytesDone", ColumnType::Int64),
        Column::new("Total Bytes", ".status.progress.totalBytes", ColumnType::Int64),
        Column {
            name: "Incremental Bytes",
            path: ".status.incrementalBytes",
            kind: ColumnType::Int64,
            priority: 10,
        },
        Column::text("Storage Location", ".spec.backupStorageLocation"),
        Column::AGE,
        Column::text("Node", ".status.node"),
        Column::text("Uploader", ".spec.uploaderType"),
    ],
    spec: PodVolumeBackupSpec, status: PodVolumeBackupStatus
}

record! {
    /// Which volume goes where.
    pub struct PodVolumeBackupSpec {
        /// The node that the pod runs on.
        pub node: String,
        /// The pod.
        #[schemars(with = "crate::schema::ObjectReference")]
        pub pod: ObjectReference,
        /// The volume's name in the pod.
        pub volume: String,
        /// The backup storage location, by name.
        pub backup_storage_location: String,
        /// The repository as restic spells it; empty for others.
        pub repo_identifier: String,
        /// Which program's format is used.
        pub uploader_type: Option<UploaderType>,
        /// What the snapshot is tagged with.
        pub tags: Option<StringMap>,
        /// Settings of the upload.
        #[schemars(extend("nullable" = true))]
        pub uploader_settings: Option<StringMap>,
        /// Whether it is to be stopped.
        pub cancel: Option<bool>,
    }
}

record! {
    /// How far the copy is.
    pub struct PodVolumeBackupStatus {
        /// Where it stands.
        pub phase: Option<DataPathPhase>,
        /// The volume's path inside the node process.
        pub path: Option<String>,
        /// The snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// A word about the phase.
        pub message: Option<String>,
        /// When the copy began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it reached its last phase.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Bytes done and in all.
        pub progress: Option<DataMoveProgress>,
        /// Bytes that were new to the repository.
        pub incremental_bytes: Option<i64>,
        /// When a node took it.
        #[schemars(extend("nullable" = true))]
        pub accepted_timestamp: Option<Time>,
    }
}

resource! {
    /// The copy of one pod volume back from the bucket.
    PodVolumeRestore, "v1", "podvolumerestores", [], [
        Column::text("Status", ".status.phase"),
        Column::new("Started", ".status.startTimestamp", ColumnType::Date),
        Column::new("Bytes Done", ".status.progress.bytesDone", ColumnType::Int64),
        Column::new("Total Bytes", ".status.progress.totalBytes", ColumnType::Int64),
        Column::text("Storage Location", ".spec.backupStorageLocation"),
        Column::AGE,
        Column::text("Node", ".status.node"),
        Column::text("Uploader Type", ".spec.uploaderType"),
    ],
    spec: PodVolumeRestoreSpec, status: PodVolumeRestoreStatus
}

record! {
    /// Which snapshot goes into which volume.
    pub struct PodVolumeRestoreSpec {
        /// The pod.
        #[schemars(with = "crate::schema::ObjectReference")]
        pub pod: ObjectReference,
        /// The volume's name in the pod.
        pub volume: String,
        /// The backup storage location, by name.
        pub backup_storage_location: String,
        /// The repository as restic spells it; empty for others.
        pub repo_identifier: String,
        /// Which program's format is used.
        pub uploader_type: Option<UploaderType>,
        /// The snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: String,
        /// The namespace that the volume was backed up in.
        pub source_namespace: String,
        /// Settings of the download.
        #[schemars(extend("nullable" = true))]
        pub uploader_settings: Option<StringMap>,
        /// Whether it is to be stopped.
        pub cancel: Option<bool>,
        /// The size of the snapshot.
        pub snapshot_size: Option<i64>,
    }
}

record! {
    /// How far the copy is.
    pub struct PodVolumeRestoreStatus {
        /// Where it stands.
        pub phase: Option<DataPathPhase>,
        /// A word about the phase.
        pub message: Option<String>,
        /// When the copy began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it reached its last phase.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Bytes done and in all.
        pub progress: Option<DataMoveProgress>,
        /// When a node took it.
        #[schemars(extend("nullable" = true))]
        pub accepted_timestamp: Option<Time>,
        /// The node that does it.
        pub node: Option<String>,
    }
}

word! {
    /// Where a copy of volume data stands; shared by pod volumes and data movement.
    pub enum DataPathPhase {
        /// Not looked at yet.
        New,
        /// A node took it and prepares.
        Accepted,
        /// The volume can be reached.
        Prepared,
        /// Data moves.
        InProgress,
        /// Asked to stop.
        Canceling,
        /// Stopped.
        Canceled,
        /// All data is there.
        Completed,
        /// It failed; the message says why.
        Failed,
    }
}

word! {
    /// The format of a volume repository.
    pub enum UploaderType {
        /// Kopia's.
        Kopia = "kopia",
        /// Restic's.
        Restic = "restic",
        /// Not said, which old versions did and meant restic.
        Unset = "",
    }
}

record! {
    /// Bytes of a volume, done and in all.
    pub struct DataMoveProgress {
        /// Bytes of the volume.
        pub total_bytes: Option<i64>,
        /// Bytes moved so far.
        pub bytes_done: Option<i64>,
    }
}

impl DataPathPhase {
    /// Whether it is one of the last, well or not.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

impl UploaderType {
    /// Whether the format is restic's, which is also meant when nothing is said.
    #[must_use]
    pub fn is_restic(uploader: Option<&Self>) -> bool {
        matches!(uploader, None | Some(Self::Unset | Self::Restic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_objects_mean_restic() {
        for (uploader, expected) in [
            (None, true),
            (Some(""), true),
            (Some("restic"), true),
            (Some("kopia"), false),
            (Some("other"), false),
        ] {
            let uploader = uploader.map(UploaderType::from);
            let is_restic = UploaderType::is_restic(uploader.as_ref());
            assert_eq!(is_restic, expected, "{uploader:?}");
        }
    }
}
