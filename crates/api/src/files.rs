//! The JSON files that a bucket holds beside the archive and the log.
//!
//! Field order is that of Velero, so that the same content gives the same bytes (see
//! [`json`](crate::json)); a key that Velero always writes is always written here.

mod operations;
mod results;
mod snapshots;
mod volume_info;

pub use operations::*;
pub use results::*;
pub use snapshots::*;
pub use volume_info::*;

use std::collections::BTreeMap;

/// `<backup>-resource-list.json.gz` and `restore-<restore>-resource-list.json.gz`: sorted names by
/// `<apiVersion>/<Kind>`, as `<namespace>/<name>` or `<name>`; those of a restore end in what was
/// done, such as `(created)`.
pub type ResourceList = BTreeMap<String, Vec<String>>;

/// How the names of files end that begin with their backup's name, in `backups/<backup>/`.
pub mod backup_suffix {
    /// The archive with the objects.
    pub const CONTENTS: &str = ".tar.gz";
    /// The log.
    pub const LOG: &str = "-logs.gz";
    /// A list of [`PodVolumeBackup`](crate::v1::PodVolumeBackup), or `null`.
    pub const POD_VOLUME_BACKUPS: &str = "-podvolumebackups.json.gz";
    /// A list of [`Snapshot`](super::Snapshot), or `null`.
    pub const VOLUME_SNAPSHOTS: &str = "-volumesnapshots.json.gz";
    /// A list of [`BackupOperation`](super::BackupOperation).
    pub const ITEM_OPERATIONS: &str = "-itemoperations.json.gz";
    /// A [`ResourceList`](super::ResourceList).
    pub const RESOURCE_LIST: &str = "-resource-list.json.gz";
    /// [`Results`](super::Results).
    pub const RESULTS: &str = "-results.gz";
    /// A list of [`BackupVolumeInfo`](super::BackupVolumeInfo).
    pub const VOLUME_INFO: &str = "-volumeinfo.json.gz";
    /// Ours: a list of [`VolumePluginBackup`](crate::v1::VolumePluginBackup); missing if there are none.
    pub const VOLUME_PLUGIN_BACKUPS: &str = "-volumepluginbackups.json.gz";
    /// VolumeSnapshots, as old versions wrote them.
    pub const CSI_VOLUME_SNAPSHOTS: &str = "-csi-volumesnapshots.json.gz";
    /// VolumeSnapshotContents, as old versions wrote them.
    pub const CSI_VOLUME_SNAPSHOT_CONTENTS: &str = "-csi-volumesnapshotcontents.json.gz";
    /// VolumeSnapshotClasses, as old versions wrote them.
    pub const CSI_VOLUME_SNAPSHOT_CLASSES: &str = "-csi-volumesnapshotclasses.json.gz";
}

/// The backup itself, in `backups/<backup>/`: indented, not compressed, and what makes a backup exist.
pub const BACKUP_OBJECT: &str = "velero-backup.json";

/// How the names of files end that begin with `restore-` and their restore's name, in
/// `restores/<restore>/`.
pub mod restore_suffix {
    /// The log.
    pub const LOG: &str = "-logs.gz";
    /// [`Results`](super::Results).
    pub const RESULTS: &str = "-results.gz";
    /// A [`ResourceList`](super::ResourceList).
    pub const RESOURCE_LIST: &str = "-resource-list.json.gz";
    /// A list of [`RestoreOperation`](super::RestoreOperation).
    pub const ITEM_OPERATIONS: &str = "-itemoperations.json.gz";
    /// A list of [`RestoreVolumeInfo`](super::RestoreVolumeInfo); the one name without `restore-`.
    pub const VOLUME_INFO: &str = "-volumeinfo.json.gz";
}
