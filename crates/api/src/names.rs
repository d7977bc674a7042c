//! Names with a meaning: labels, annotations, finalizers, and the objects that everybody expects
//! under a certain name. They appear as literals nowhere else.

use sha2::{Digest, Sha256};

/// Turns a name into a label value: up to 63 characters as it is, longer ones cut to 57 and made
/// unique by the first six hex digits of the name's SHA-256.
///
/// Kubernetes names are ASCII; a name that is not is cut at a character boundary.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    let digest = Sha256::digest(name);
    let cut = name.floor_char_boundary(57);
    format!(
        "{}{:02x}{:02x}{:02x}",
        &name[..cut],
        digest[0],
        digest[1],
        digest[2]
    )
}

/// The name of the VolumePluginBackup of a snapshot: its id, if that can be the name of an object.
#[must_use]
pub fn plugin_backup_name(snapshot: &str) -> String {
    if is_subdomain(snapshot) {
        return snapshot.to_owned();
    }
    let digest = Sha256::digest(snapshot);
    let hex: String = digest[..20].iter().map(|b| format!("{b:02x}")).collect();
    format!("vpb-{hex}")
}

/// Whether objects can have this name.
fn is_subdomain(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(inner)
            && part.ends_with(inner)
            && part.chars().all(|c| inner(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Tags that a plugin is given for a snapshot, besides the labels of its backup.
pub mod snapshot_tag {
    /// The backup, by name.
    pub const BACKUP: &str = "velero.io/backup";
    /// The PersistentVolume, by name.
    pub const VOLUME: &str = "velero.io/pv";
    /// Ours: the backup's uid, by which a plugin knows what it has begun for the same backup before.
    pub const BACKUP_UID: &str = "bowline.io/backup-uid";
}

/// Labels.
pub mod label {
    /// The backup that an object belongs to or was restored from.
    pub const BACKUP_NAME: &str = "velero.io/backup-name";
    /// The uid of that backup.
    pub const BACKUP_UID: &str = "velero.io/backup-uid";
    /// The restore that made an object.
    pub const RESTORE_NAME: &str = "velero.io/restore-name";
    /// The uid of that restore.
    pub const RESTORE_UID: &str = "velero.io/restore-uid";
    /// The schedule that made a backup; the raw name, never shortened.
    pub const SCHEDULE_NAME: &str = "velero.io/schedule-name";
    /// The location of a backup or repository.
    pub const STORAGE_LOCATION: &str = "velero.io/storage-location";
    /// The pod of a volume restore.
    pub const POD_UID: &str = "velero.io/pod-uid";
    /// The claim of a volume copy.
    pub const PVC_UID: &str = "velero.io/pvc-uid";
    /// The namespace whose volumes a repository holds.
    pub const VOLUME_NAMESPACE: &str = "velero.io/volume-namespace";
    /// The format of a repository.
    pub const REPOSITORY_TYPE: &str = "velero.io/repository-type";
    /// The plugin operation that a data movement stands for.
    pub const ASYNC_OPERATION_ID: &str = "velero.io/async-operation-id";
    /// The DataUpload that a helper pod is for.
    pub const DATA_UPLOAD: &str = "velero.io/data-upload";
    /// The DataDownload that a helper pod is for.
    pub const DATA_DOWNLOAD: &str = "velero.io/data-download";
    /// The PodVolumeBackup that a helper pod is for.
    pub const POD_VOLUME_BACKUP: &str = "velero.io/pod-volume-backup";
    /// The PodVolumeRestore that a helper pod is for.
    pub const POD_VOLUME_RESTORE: &str = "velero.io/pod-volume-restore";
    /// Which group of helper pods a pod is in.
    pub const EXPOSER_POD_GROUP: &str = "velero.io/exposer-pod-group";
    /// `true` while a volume is made reachable for its copy.
    pub const EXPOSE_ON_GOING: &str = "velero.io/expose-on-going";
    /// Marks the ConfigMap with what is needed to delete a data upload's snapshot.
    pub const DATA_UPLOAD_SNAPSHOT_INFO: &str = "velero.io/data-upload-snapshot-info";
    /// The claim of a data upload result, as `<namespace>.<name>`.
    pub const PVC_NAMESPACE_NAME: &str = "velero.io/pvc-namespace-name";
    /// What a ConfigMap of ours is for.
    pub const RESOURCE_USAGE: &str = "velero.io/resource-usage";
    /// `true` keeps an object or namespace out of backups.
    pub const EXCLUDE_FROM_BACKUP: &str = "velero.io/exclude-from-backup";
    /// The VolumeSnapshot of a backed-up claim; also an annotation.
    pub const VOLUME_SNAPSHOT_NAME: &str = "velero.io/volume-snapshot-name";
    /// Marks the VolumeSnapshotClass to use; also an annotation that names one.
    pub const CSI_VOLUME_SNAPSHOT_CLASS: &str = "velero.io/csi-volumesnapshot-class";
    /// Marks the VolumeGroupSnapshotClass to use.
    pub const CSI_VOLUME_GROUP_SNAPSHOT_CLASS: &str = "velero.io/csi-volumegroupsnapshot-class";
    /// The default label of claims that are snapshotted together.
    pub const VOLUME_GROUP: &str = "velero.io/volume-group";
    /// Ties a claim to the volume that a data movement restore makes for it.
    pub const DYNAMIC_PV_RESTORE: &str = "velero.io/dynamic-pv-restore";
    /// Why an expired backup could not be deleted.
    pub const GC_FAILURE: &str = "velero.io/gc-failure";
    /// Marks a ConfigMap as the configuration of a plugin.
    pub const PLUGIN_CONFIG: &str = "velero.io/plugin-config";
    /// The repository that a maintenance Job is for.
    pub const REPO_NAME: &str = "velero.io/repo-name";
    /// The owner of a Secret or ConfigMap copied for the data mover.
    pub const BACKUP_PVC_SECRET: &str = "velero.io/backup-pvc-secret";
    /// `velero` on everything that an installation makes.
    pub const COMPONENT: &str = "component";
    /// `velero` on the server's pods.
    pub const DEPLOY: &str = "deploy";
    /// `node-agent` on the node agents' pods.
    pub const ROLE: &str = "role";
    /// Ours: `node-agent` on the Lease of a node process.
    pub const BOWLINE_ROLE: &str = "bowline.io/role";
    /// Somebody else looks after this namespace; worth a warning.
    pub const ARGOCD_MANAGED_BY: &str = "argocd.argoproj.io/managed-by";
    /// Kubernetes looks after this APIService; it is not restored.
    pub const APISERVICE_AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
}

/// Values of [`label::GC_FAILURE`].
pub mod gc_failure {
    /// The location is gone.
    pub const BSL_NOT_FOUND: &str = "BSLNotFound";
    /// The location cannot be read from the API.
    pub const BSL_CANNOT_GET: &str = "BSLCannotGet";
    /// The location is read-only.
    pub const BSL_READ_ONLY: &str = "BSLReadOnly";
    /// The location is not available.
    pub const BSL_UNAVAILABLE: &str = "BSLUnavailable";
}

/// Values of [`label::EXPOSER_POD_GROUP`].
pub mod exposer_pod_group {
    /// Pods that make snapshots reachable.
    pub const SNAPSHOT: &str = "snapshot-exposer";
    /// Pods that make restored volumes reachable.
    pub const GENERIC_RESTORE: &str = "generic-restore-exposer";
}

/// Annotations.
pub mod annotation {
    /// The Kubernetes version that a backup was made on.
    pub const SOURCE_CLUSTER_GIT_VERSION: &str = "velero.io/source-cluster-k8s-gitversion";
    /// Its major number.
    pub const SOURCE_CLUSTER_MAJOR_VERSION: &str = "velero.io/source-cluster-k8s-major-version";
    /// Its minor number.
    pub const SOURCE_CLUSTER_MINOR_VERSION: &str = "velero.io/source-cluster-k8s-minor-version";
    /// The server's `--resource-timeout` when a backup was made.
    pub const RESOURCE_TIMEOUT: &str = "velero.io/resource-timeout";
    /// The ConfigMap of the global volume policies that a backup was made with.
    pub const GLOBAL_VOLUME_POLICY: &str = "velero.io/global-backup-volume-policy-configmap";
    /// Overrides the timeout of pod volumes for a backup or restore.
    pub const POD_VOLUME_TIMEOUT: &str = "velero.io/pod-volume-timeout";
    /// The VolumeSnapshotClass for a driver; the driver's name follows in lower case.
    pub const CSI_VOLUME_SNAPSHOT_CLASS_PREFIX: &str = "velero.io/csi-volumesnapshot-class_";
    /// The VolumeGroupSnapshotClass for a driver; the driver's name follows.
    pub const CSI_VOLUME_GROUP_SNAPSHOT_CLASS_PREFIX: &str =
        "velero.io/csi-volumegroupsnapshot-class_";
    /// The VolumeGroupSnapshotClass for a claim.
    pub const CSI_VOLUME_GROUP_SNAPSHOT_CLASS: &str = "velero.io/csi-volume-group-snapshot-class";
    /// Volumes of a pod to copy file by file.
    pub const BACKUP_VOLUMES: &str = "backup.velero.io/backup-volumes";
    /// Volumes of a pod not to copy file by file.
    pub const BACKUP_VOLUMES_EXCLUDES: &str = "backup.velero.io/backup-volumes-excludes";
    /// Hooks to run before a pod is backed up; `container`, `command`, `on-error`, `timeout` follow.
    pub const PRE_BACKUP_HOOK_PREFIX: &str = "pre.hook.backup.velero.io/";
    /// The old spelling of the same.
    pub const LEGACY_PRE_BACKUP_HOOK_PREFIX: &str = "hook.backup.velero.io/";
    /// Hooks to run after a pod is backed up.
    pub const POST_BACKUP_HOOK_PREFIX: &str = "post.hook.backup.velero.io/";
    /// Commands to run in a restored pod; `container`, `command`, `on-error`, `exec-timeout`,
    /// `wait-timeout`, `wait-for-ready` follow.
    pub const POST_RESTORE_HOOK_PREFIX: &str = "post.hook.restore.velero.io/";
    /// An init container for a restored pod; `container-image`, `container-name`, `command`,
    /// `timeout` follow.
    pub const INIT_RESTORE_HOOK_PREFIX: &str = "init.hook.restore.velero.io/";
    /// `true` or `false` decides about the restore of one object's status.
    pub const RESTORE_STATUS: &str = "velero.io/restore-status";
    /// The snapshot of a VolumeSnapshot, as the driver names it.
    pub const CSI_VOLUME_SNAPSHOT_HANDLE: &str = "velero.io/csi-volumesnapshot-handle";
    /// The driver of a VolumeSnapshot.
    pub const CSI_DRIVER_NAME: &str = "velero.io/csi-driver-name";
    /// The size of a volume made from a VolumeSnapshot.
    pub const CSI_VOLUME_SNAPSHOT_RESTORE_SIZE: &str = "velero.io/csi-volumesnapshot-restore-size";
    /// The deletion policy of a VolumeSnapshotContent.
    pub const CSI_VSC_DELETION_POLICY: &str = "velero.io/csi-vsc-deletion-policy";
    /// The group snapshot of a VolumeSnapshot, as the driver names it.
    pub const CSI_VOLUME_GROUP_SNAPSHOT_HANDLE: &str = "velero.io/csi-volumegroupsnapshot-handle";
    /// The DataUpload of a backed-up claim, as `<namespace>/<name>`.
    pub const DATA_UPLOAD_NAME: &str = "velero.io/data-upload-name";
    /// The claim of a PodVolumeBackup.
    pub const PVC_NAME: &str = "velero.io/pvc-name";
    /// The name that a restored PersistentVolume had before.
    pub const ORIGINAL_PV_NAME: &str = "velero.io/original-pv-name";
    /// In memory only: additional items of a backup skip the filters.
    pub const BACKUP_MUST_INCLUDE: &str = "backup.velero.io/must-include-additional-items";
    /// In memory only: the item is dropped from the backup.
    pub const SKIP_FROM_BACKUP: &str = "velero.io/skip-from-backup";
    /// In memory only: the volume is not a CSI volume.
    pub const SKIPPED_NO_CSI_PV: &str = "backup.velero.io/skipped-no-csi-pv";
    /// In memory only: additional items of a restore skip the filters.
    pub const RESTORE_MUST_INCLUDE: &str = "restore.velero.io/must-include-additional-items";
    /// Ours, on a VolumeSnapshot, its content or a group: the namespace of the server that took it.
    pub const SNAPSHOT_TAKER: &str = "bowline.io/server-namespace";
    /// Ours, on the content of a group's member: the handles of all members, with commas between them.
    pub const GROUP_MEMBERS: &str = "bowline.io/group-members";
    /// Ours, on a DataUpload: the VolumeSnapshotContent whose data it moves.
    pub const SNAPSHOT_CONTENT: &str = "bowline.io/snapshot-content";
    /// Ours, on a DataDownload: the PersistentVolume that has its data.
    pub const VOLUME: &str = "bowline.io/volume";
    /// Ours, on a DataUpload: the moment that its snapshot is of.
    pub const SNAPSHOT_TIME: &str = "bowline.io/snapshot-time";
    /// Ours, on a DataDownload: the bytes that were written to that.
    pub const MOVED_BYTES: &str = "bowline.io/moved-bytes";
    /// Ours, on a PersistentVolume that is being handed over: its reclaim policy afterwards.
    pub const RECLAIM_POLICY: &str = "bowline.io/reclaim-policy";
    /// Ours: what a running restore is doing.
    pub const RESTORE_STAGE: &str = "bowline.io/restore-stage";
    /// On a location whose provider is built in: its plugin is wanted instead.
    pub const USE_PLUGIN: &str = "bowline.io/use-plugin";
    /// On a location of snapshots: `local` if its plugin is not to upload them, else `cloud`.
    pub const SNAPSHOT_TYPE: &str = "velero.io/snapshot-type";
    /// Ours: the location of a VolumePluginBackup's snapshot.
    pub const SNAPSHOT_LOCATION: &str = "bowline.io/snapshot-location";
    /// Ours: the PersistentVolume of a VolumePluginBackup, whatever its plugin calls the volume.
    pub const PERSISTENT_VOLUME: &str = "bowline.io/persistent-volume";
    /// Ours, on a VolumePluginBackup or VolumePluginRestore: who writes it, if not the plugin.
    pub const PROGRESS_FROM: &str = "bowline.io/progress-from";
    /// Ours: the volume of a VolumePluginRestore, as its plugin names it.
    pub const VOLUME_ID: &str = "bowline.io/volume-id";
    /// The restic snapshot of a volume, as very old versions wrote it; the volume's name follows.
    pub const LEGACY_SNAPSHOT_PREFIX: &str = "snapshot.velero.io/";
    /// The Secret to list snapshots with.
    pub const SNAPSHOTTER_LIST_SECRET_NAME: &str =
        "csi.storage.k8s.io/snapshotter-list-secret-name";
    /// The namespace of that Secret.
    pub const SNAPSHOTTER_LIST_SECRET_NAMESPACE: &str =
        "csi.storage.k8s.io/snapshotter-list-secret-namespace";
    /// The Secret to delete snapshots with.
    pub const SNAPSHOTTER_SECRET_NAME: &str = "csi.storage.k8s.io/snapshotter-secret-name";
    /// The namespace of that Secret.
    pub const SNAPSHOTTER_SECRET_NAMESPACE: &str =
        "csi.storage.k8s.io/snapshotter-secret-namespace";
    /// The Secret to delete a group snapshot with.
    pub const GROUP_DELETION_SECRET_NAME: &str =
        "groupsnapshot.storage.kubernetes.io/deletion-secret-name";
    /// The namespace of that Secret.
    pub const GROUP_DELETION_SECRET_NAMESPACE: &str =
        "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace";
    /// The snapshot controller's note on a VolumeSnapshotContent whose VolumeSnapshot is on its way out.
    pub const SNAPSHOT_BEING_DELETED: &str =
        "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
    /// The same on a VolumeGroupSnapshotContent.
    pub const GROUP_BEING_DELETED: &str =
        "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
    /// By what a driver deletes: on the content of a snapshot, and on that of a group.
    pub const GROUP_DELETION_SECRET: [(&str, &str); 2] = [
        (
            "snapshot.storage.kubernetes.io/deletion-secret-name",
            "groupsnapshot.storage.kubernetes.io/deletion-secret-name",
        ),
        (
            "snapshot.storage.kubernetes.io/deletion-secret-namespace",
            "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace",
        ),
    ];
    /// On a VolumeSnapshotContent: the handle of the group that it was taken with.
    pub const MEMBER_OF_GROUP: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
    /// Marks the default VolumeSnapshotClass.
    pub const IS_DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
}

/// Values of [`annotation::SNAPSHOT_TYPE`].
pub mod snapshot_type {
    /// Snapshots stay where they are made.
    pub const LOCAL: &str = "local";
    /// Snapshots are uploaded.
    pub const CLOUD: &str = "cloud";
}

/// What follows the prefix of a hook annotation.
pub mod hook_setting {
    /// The container to run in.
    pub const CONTAINER: &str = "container";
    /// The command, as JSON list or one word.
    pub const COMMAND: &str = "command";
    /// `Continue` or `Fail`.
    pub const ON_ERROR: &str = "on-error";
    /// How long a backup hook may run.
    pub const TIMEOUT: &str = "timeout";
    /// How long a restore hook may run.
    pub const EXEC_TIMEOUT: &str = "exec-timeout";
    /// How long to wait for the container.
    pub const WAIT_TIMEOUT: &str = "wait-timeout";
    /// Whether to wait until the container is ready.
    pub const WAIT_FOR_READY: &str = "wait-for-ready";
    /// The image of an init container.
    pub const CONTAINER_IMAGE: &str = "container-image";
    /// The name of an init container.
    pub const CONTAINER_NAME: &str = "container-name";
}

/// Finalizers.
pub mod finalizer {
    /// On restores: their files in the bucket go first.
    pub const RESTORE: &str = "restores.velero.io/external-resources-finalizer";
    /// On PodVolumeBackup and PodVolumeRestore, until their last phase.
    pub const POD_VOLUME: &str = "velero.io/pod-volume-finalizer";
    /// On DataUpload and DataDownload, until their last phase.
    pub const DATA_UPLOAD_DOWNLOAD: &str = "velero.io/data-upload-download-finalizer";
    /// Of the content of a group of snapshots.
    pub const GROUP_SNAPSHOT_CONTENT: &str =
        "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
    /// The snapshot controller's, on a VolumeSnapshotContent until its snapshot is seen to.
    pub const SNAPSHOT_CONTENT: &str =
        "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
    /// The snapshot controller's, on a VolumeSnapshot that is part of a group.
    pub const SNAPSHOT_IN_GROUP: &str =
        "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";
    /// The snapshot controller's, on a VolumeSnapshot that volumes are made of.
    pub const SNAPSHOT_AS_SOURCE: &str =
        "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
    /// On VolumeSnapshotContents of older versions; only ever removed.
    pub const VOLUME_SNAPSHOT_CONTENT_PROTECT: &str =
        "velero.io/volume-snapshot-content-protect-finalizer";
}

/// Keys of `uploaderSettings` and `dataMoverConfig`.
pub mod uploader_setting {
    /// Files uploaded at the same time.
    pub const PARALLEL_FILES_UPLOAD: &str = "ParallelFilesUpload";
    /// Files downloaded at the same time.
    pub const PARALLEL_FILES_DOWNLOAD: &str = "ParallelFilesDownload";
    /// Whether holes are written as holes.
    pub const WRITE_SPARSE_FILES: &str = "WriteSparseFiles";
}

/// Tags of snapshots in repositories.
pub mod tag {
    /// The claim, by name.
    pub const PVC: &str = "pvc";
    /// The backup, by name.
    pub const BACKUP: &str = "backup";
    /// The backup's uid.
    pub const BACKUP_UID: &str = "backup-uid";
    /// The pod, by name.
    pub const POD: &str = "pod";
    /// The pod's uid.
    pub const POD_UID: &str = "pod-uid";
    /// The pod's namespace.
    pub const NAMESPACE: &str = "ns";
    /// The volume's name in the pod.
    pub const VOLUME: &str = "volume";
    /// The uid of the volume's claim.
    pub const PVC_UID: &str = "pvc-uid";
}

/// The namespace of an installation that does not say otherwise.
pub const DEFAULT_NAMESPACE: &str = "velero";
/// The server's Deployment and ServiceAccount.
pub const SERVER: &str = "velero";
/// The node agents' DaemonSet, and the value of their [`label::ROLE`].
pub const NODE_AGENT: &str = "node-agent";
/// The node agents' DaemonSet for Windows nodes.
pub const NODE_AGENT_WINDOWS: &str = "node-agent-windows";
/// What the name of a node process's Lease begins with; the node's name follows.
pub const NODE_LEASE_PREFIX: &str = "bowline-node-";
/// The Secret with the provider's credentials.
pub const CLOUD_CREDENTIALS_SECRET: &str = "cloud-credentials";
/// The key in that Secret.
pub const CLOUD_CREDENTIALS_KEY: &str = "cloud";
/// The Secret with the password of volume repositories.
pub const REPO_CREDENTIALS_SECRET: &str = "velero-repo-credentials";
/// The key in that Secret.
pub const REPO_CREDENTIALS_KEY: &str = "repository-password";
/// The password that it is created with.
pub const REPO_CREDENTIALS_DEFAULT: &str = "static-passw0rd";
/// The location that is used when none is named.
pub const DEFAULT_LOCATION: &str = "default";
/// The init container that waits for a pod's volumes.
pub const RESTORE_WAIT: &str = "restore-wait";
/// The name that it had in old versions.
pub const LEGACY_RESTORE_WAIT: &str = "restic-wait";
/// Velero's built-in data mover.
pub const DATA_MOVER: &str = "velero";
/// Ours.
pub const BOWLINE_MOVER: &str = "bowline";
/// What a restored PersistentVolume's new name begins with when the old one is taken.
pub const RENAMED_PV_PREFIX: &str = "velero-clone-";
/// The ConfigMap with the order of API versions for restores.
pub const API_VERSIONS_CONFIG_MAP: &str = "enableapigroupversions";
/// The key in that ConfigMap.
pub const API_VERSIONS_KEY: &str = "restoreResourcesVersionPriority";
/// The feature flag for CSI.
pub const FEATURE_CSI: &str = "EnableCSI";
/// The feature flag for backups of all API versions.
pub const FEATURE_API_GROUP_VERSIONS: &str = "EnableAPIGroupVersions";

#[cfg(test)]
mod tests {
    use super::{label_value, plugin_backup_name};

    #[test]
    fn a_snapshot_s_id_is_the_name_of_its_object_where_it_can_be() {
        for id in ["snap-0123", "a.b-c.9", &"x".repeat(253)] {
            assert_eq!(plugin_backup_name(id), id);
        }
        assert_eq!(
            plugin_backup_name("projects/p/Snap:1"),
            "vpb-8a3c9b0a46b9a82d0583495de1870f3e924ecfbe"
        );
        for id in ["", "-a", "A", "a/b", "a..b", &"x".repeat(254)] {
            let name = plugin_backup_name(id);
            assert_eq!((name.len(), &name[..4]), (44, "vpb-"), "{id}");
        }
    }

    #[test]
    fn long_names_are_cut_and_told_apart() {
        let name = "a".repeat(63);
        assert_eq!(label_value(&name), name);
        let long = "the-really-long-location-name-that-is-much-more-than-63-characters";
        assert_eq!(
            label_value(long),
            "the-really-long-location-name-that-is-much-more-than-63-c69e779"
        );
        assert_eq!(label_value(long).len(), 63);
        assert!(label_value(&"é".repeat(40)).len() <= 63);
    }
}
