//! Requests to the server: delete a backup, sign a download, say who you are.

use crate::{Column, Time};

resource! {
    /// A request to delete a backup and all that belongs to it.
    DeleteBackupRequest, "v1", "deletebackuprequests", [], [
        Column::text("BackupName", ".spec.backupName"),
        Column::text("Status", ".status.phase"),
    ],
    spec: DeleteBackupRequestSpec, status: DeleteBackupRequestStatus
}

record! {
    /// What to delete.
    pub struct DeleteBackupRequestSpec {
        /// The backup, by name.
        pub backup_name: String,
    }
}

record! {
    /// How the deletion went.
    pub struct DeleteBackupRequestStatus {
        /// Where it stands.
        pub phase: Option<DeleteBackupRequestPhase>,
        /// What could not be deleted.
        #[schemars(extend("nullable" = true))]
        pub errors: Option<Vec<String>>,
    }
}

word! {
    /// Where a deletion stands. A fresh one has none.
    pub enum DeleteBackupRequestPhase {
        /// Not looked at yet.
        New,
        /// At work.
        InProgress,
        /// Done, or given up with errors.
        Processed,
    }
}

resource! {
    /// A request for an address to download a file of a backup or restore from.
    DownloadRequest, "v1", "downloadrequests", [], [],
    spec: DownloadRequestSpec, status: DownloadRequestStatus
}

record! {
    /// What to download.
    pub struct DownloadRequestSpec {
        /// The file.
        pub target: DownloadTarget,
    }
}

record! {
    /// A file of a backup or restore.
    pub struct DownloadTarget {
        /// Which of its files.
        pub kind: DownloadTargetKind,
        /// The backup or restore, by name.
        pub name: String,
    }
}

record! {
    /// The answer to a download request.
    pub struct DownloadRequestStatus {
        /// Whether it is answered.
        pub phase: Option<DownloadRequestPhase>,
        /// The signed address.
        #[serde(rename = "downloadURL")]
        pub download_url: Option<String>,
        /// When the request is deleted.
        #[schemars(extend("nullable" = true))]
        pub expiration: Option<Time>,
    }
}

word! {
    /// The files that can be downloaded.
    pub enum DownloadTargetKind {
        /// The log of a backup.
        BackupLog,
        /// The archive with the objects.
        BackupContents,
        /// Native volume snapshots.
        BackupVolumeSnapshots,
        /// Plugin operations of a backup.
        BackupItemOperations,
        /// What is in a backup.
        BackupResourceList,
        /// Warnings and errors of a backup.
        BackupResults,
        /// The log of a restore.
        RestoreLog,
        /// Warnings and errors of a restore.
        RestoreResults,
        /// What a restore did to which object.
        RestoreResourceList,
        /// Plugin operations of a restore.
        RestoreItemOperations,
        /// VolumeSnapshots, as old versions kept them.
        CsiBackupVolumeSnapshots = "CSIBackupVolumeSnapshots",
        /// VolumeSnapshotContents, as old versions kept them.
        CsiBackupVolumeSnapshotContents = "CSIBackupVolumeSnapshotContents",
        /// What became of each volume in a backup.
        BackupVolumeInfos,
        /// What became of each volume in a restore.
        RestoreVolumeInfo,
    }
}

word! {
    /// Whether a request is answered. A fresh one has none.
    pub enum DownloadRequestPhase {
        /// Not looked at yet.
        New,
        /// Answered.
        Processed,
    }
}

resource! {
    /// A question to the server: which version, which plugins.
    ServerStatusRequest, "v1", "serverstatusrequests", ["ssr"], [],
    spec: ServerStatusRequestSpec, status: ServerStatusRequestStatus
}

record! {
    /// Nothing needs saying.
    pub struct ServerStatusRequestSpec {}
}

record! {
    /// The server's answer.
    pub struct ServerStatusRequestStatus {
        /// Whether it is answered.
        pub phase: Option<ServerStatusRequestPhase>,
        /// When it was answered.
        #[schemars(extend("nullable" = true))]
        pub processed_timestamp: Option<Time>,
        /// The server's version.
        pub server_version: Option<String>,
        /// The plugins it has.
        #[schemars(extend("nullable" = true))]
        pub plugins: Option<Vec<PluginInfo>>,
    }
}

record! {
    /// A plugin of the server.
    pub struct PluginInfo {
        /// Its registered name.
        pub name: String,
        /// What it does.
        #[schemars(with = "String")]
        pub kind: PluginKind,
    }
}

word! {
    /// What a plugin does.
    pub enum PluginKind {
        /// Keeps backups.
        ObjectStore,
        /// Takes native volume snapshots.
        VolumeSnapshotter,
        /// Looks at items on their way into a backup.
        BackupItemAction,
        /// The same, with operations that go on.
        BackupItemActionV2,
        /// Looks at items on their way out of a backup.
        RestoreItemAction,
        /// The same, with operations that go on.
        RestoreItemActionV2,
        /// Looks at items when their backup is deleted.
        DeleteItemAction,
        /// Says which items are backed up together.
        ItemBlockAction,
    }
}

word! {
    /// Whether a status request is answered. A fresh one has none.
    pub enum ServerStatusRequestPhase {
        /// Not looked at yet.
        New,
        /// Answered.
        Processed,
    }
}
