//! The kinds of `velero.io/v2alpha1`: moving the data of CSI snapshots.

use crate::{
    Column, ColumnType, Duration, StringMap, Time,
    v1::{DataMoveProgress, DataPathPhase},
};

resource! {
    /// The copy of one CSI snapshot's data into the bucket.
    DataUpload, "v2alpha1", "datauploads", [], [
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
    ],
    spec: DataUploadSpec, status: DataUploadStatus
}

record! {
    /// Which snapshot goes where.
    pub struct DataUploadSpec {
        /// The kind of snapshot, `CSI`.
        pub snapshot_type: String,
        /// The CSI snapshot.
        #[schemars(extend("nullable" = true))]
        pub csi_snapshot: Option<CsiSnapshotSpec>,
        /// The claim that was snapshotted.
        #[serde(rename = "sourcePVC")]
        pub source_pvc: String,
        /// Who moves the data; empty means the built-in mover.
        pub datamover: Option<String>,
        /// The backup storage location, by name.
        pub backup_storage_location: String,
        /// The namespace of the claim.
        pub source_namespace: String,
        /// Settings of the mover.
        #[schemars(extend("nullable" = true))]
        pub data_mover_config: Option<StringMap>,
        /// Whether it is to be stopped.
        pub cancel: Option<bool>,
        /// How long it may prepare.
        pub operation_timeout: Duration,
    }
}

record! {
    /// A CSI snapshot.
    pub struct CsiSnapshotSpec {
        /// The VolumeSnapshot, by name.
        pub volume_snapshot: String,
        /// The storage class of the claim.
        pub storage_class: String,
        /// The snapshot class.
        pub snapshot_class: Option<String>,
        /// The CSI driver.
        pub driver: Option<String>,
    }
}

record! {
    /// How far the upload is.
    pub struct DataUploadStatus {
        /// Where it stands.
        pub phase: Option<DataPathPhase>,
        /// The volume's path inside the mover.
        pub path: Option<String>,
        /// The snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// What the mover wants its restore to know.
        #[schemars(extend("nullable" = true))]
        pub data_mover_result: Option<StringMap>,
        /// A word about the phase.
        pub message: Option<String>,
        /// When the upload began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it reached its last phase.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Bytes done and in all.
        pub progress: Option<DataMoveProgress>,
        /// Bytes that were new to the repository.
        pub incremental_bytes: Option<i64>,
        /// The node that does it.
        pub node: Option<String>,
        /// The system of that node.
        #[serde(rename = "nodeOS")]
        pub node_os: Option<NodeOs>,
        /// The node whose agent took it.
        pub accepted_by_node: Option<String>,
        /// When it was taken.
        #[schemars(extend("nullable" = true))]
        pub accepted_timestamp: Option<Time>,
    }
}

resource! {
    /// The copy of a snapshot's data from the bucket into a volume.
    DataDownload, "v2alpha1", "datadownloads", [], [
        Column::text("Status", ".status.phase"),
        Column::new("Started", ".status.startTimestamp", ColumnType::Date),
        Column::new("Bytes Done", ".status.progress.bytesDone", ColumnType::Int64),
        Column::new("Total Bytes", ".status.progress.totalBytes", ColumnType::Int64),
        Column::text("Storage Location", ".spec.backupStorageLocation"),
        Column::AGE,
        Column::text("Node", ".status.node"),
    ],
    spec: DataDownloadSpec, status: DataDownloadStatus
}

record! {
    /// Which snapshot goes into which volume.
    pub struct DataDownloadSpec {
        /// The volume to fill.
        pub target_volume: TargetVolumeSpec,
        /// The backup storage location, by name.
        pub backup_storage_location: String,
        /// Who moves the data; empty means the built-in mover.
        pub datamover: Option<String>,
        /// The snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: String,
        /// The namespace that the claim was backed up in.
        pub source_namespace: String,
        /// Settings of the mover.
        pub data_mover_config: Option<StringMap>,
        /// Whether it is to be stopped.
        pub cancel: Option<bool>,
        /// How long it may prepare.
        pub operation_timeout: Duration,
        /// The system of the node that the snapshot is from.
        #[serde(rename = "nodeOS")]
        pub node_os: Option<NodeOs>,
        /// The size of the snapshot.
        pub snapshot_size: Option<i64>,
    }
}

record! {
    /// The volume to fill.
    pub struct TargetVolumeSpec {
        /// The claim, by name.
        pub pvc: String,
        /// The persistent volume, by name; often empty.
        pub pv: String,
        /// The namespace of the claim.
        pub namespace: String,
    }
}

record! {
    /// How far the download is.
    pub struct DataDownloadStatus {
        /// Where it stands.
        pub phase: Option<DataPathPhase>,
        /// A word about the phase.
        pub message: Option<String>,
        /// When the download began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it reached its last phase.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Bytes done and in all.
        pub progress: Option<DataMoveProgress>,
        /// The node that does it.
        pub node: Option<String>,
        /// The node whose agent took it.
        pub accepted_by_node: Option<String>,
        /// When it was taken.
        #[schemars(extend("nullable" = true))]
        pub accepted_timestamp: Option<Time>,
    }
}

word! {
    /// The system of a node.
    pub enum NodeOs {
        /// Not known.
        Auto = "auto",
        /// Linux.
        Linux = "linux",
        /// Windows.
        Windows = "windows",
    }
}
