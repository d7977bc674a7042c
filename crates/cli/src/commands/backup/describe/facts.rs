//! Everything that a description of a backup needs, gathered from the cluster and the bucket.

use bowline_api::{
    files::{
        BackupMethod, BackupOperation, BackupVolumeInfo, CsiSnapshotInfo, HookWindow,
        NativeSnapshotInfo, ResourceList, Results, Snapshot,
    },
    names::{label, label_value},
    v1::{
        Backup, BackupStatus, DeleteBackupRequest, DownloadTargetKind, PodVolumeBackup,
        VolumePluginBackup,
    },
    v2alpha1::DataUpload,
};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::{
    context::Context,
    download::{
        Downloader, TrustArgs,
        file::{File, Files},
    },
    output::describe::{
        movements::{self, Movement},
        operations,
        plugins::PluginVolume,
        pods::PodVolume,
        results,
    },
    select::labelled,
    wait::Work,
};

/// What became of the volumes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Volumes {
    /// Native snapshots.
    pub(crate) native: Vec<BackupVolumeInfo>,
    /// CSI snapshots.
    pub(crate) csi: Vec<BackupVolumeInfo>,
    /// All of them, by any method and by none.
    pub(crate) all: Vec<BackupVolumeInfo>,
    /// Whether this comes from the files of old versions, which know less.
    pub(crate) is_legacy: bool,
}

/// Which step towards the volumes failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeStep {
    Get,
    Read,
    Native,
    Csi,
}

/// All about one backup.
pub(crate) struct Facts {
    /// The backup.
    pub(crate) backup: Backup,
    /// Whether details are wanted.
    pub(crate) details: bool,
    /// Requests to delete it.
    pub(crate) deletions: Vec<DeleteBackupRequest>,
    /// Its pod volumes, as they are now.
    pub(crate) pod_volumes: Vec<PodVolume>,
    /// Its snapshots that plugins upload, as they are now.
    pub(crate) plugin_volumes: Vec<PluginVolume>,
    /// Movements of its snapshots' data that are worth telling of, as they are now.
    pub(crate) movements: Vec<Movement>,
    /// Warnings, errors and times of hooks; none if there are none to show.
    pub(crate) results: Option<File<Results>>,
    /// Plugin operations; none if there are none to show.
    pub(crate) operations: Option<File<Vec<BackupOperation>>>,
    /// What is in it; none if not asked for.
    pub(crate) resources: Option<File<ResourceList>>,
    /// What became of its volumes.
    pub(crate) volumes: Result<Volumes, (VolumeStep, String)>,
}

impl Facts {
    /// Asks for all of it at once.
    pub(crate) async fn gather(
        ctx: &Context,
        client: &Client,
        trust: &TrustArgs,
        backup: Backup,
        details: bool,
    ) -> Self {
        let name = label_value(&backup.name_any());
        let uid = backup.uid().unwrap_or_default();
        let by_name = format!("{}={name}", label::BACKUP_NAME);
        let by_uid = format!("{by_name},{}={uid}", label::BACKUP_UID);
        let status = backup.status.clone().unwrap_or_default();
        let is_set = |count: Option<i64>| count.is_some_and(|count| count > 0);

        let files = files(ctx, client, trust, &backup).await;
        let findings = results::Counts::new(status.warnings, status.errors);
        let hooks = status.hook_status.as_ref();
        let has_hooks = is_set(hooks.and_then(|hooks| hooks.hooks_attempted));
        let wants_results = findings.are_some() || has_hooks;
        let wants_operations = details && is_set(status.backup_item_operations_attempted);
        let objects = async {
            futures::join!(
                labelled(ctx, client, &by_uid, "DeleteBackupRequests"),
                labelled::<PodVolumeBackup>(ctx, client, &by_name, "PodVolumeBackups"),
                plugin_volumes(ctx, client, &backup),
                labelled::<DataUpload>(ctx, client, &by_name, "DataUploads"),
            )
        };
        let contents = async {
            futures::join!(
                files.read_if(wants_results, DownloadTargetKind::BackupResults),
                files.read_if(wants_operations, DownloadTargetKind::BackupItemOperations),
                files.read_if(details, DownloadTargetKind::BackupResourceList),
                volumes(&files, &status),
            )
        };
        let (
            (deletions, pod_volumes, plugin_volumes, uploads),
            (results, operations, resources, volumes),
        ) = futures::join!(objects, contents);
        let uploads = uploads.iter().map(Movement::from).collect();
        Self {
            movements: movements::worth_telling(uploads, backup.step().is_over),
            backup,
            details,
            deletions,
            pod_volumes: pod_volumes.iter().map(PodVolume::from).collect(),
            plugin_volumes: plugin_volumes.iter().map(PluginVolume::from).collect(),
            results,
            operations,
            resources,
            volumes,
        }
    }

    /// The status, empty if there is none yet.
    pub(crate) fn status(&self) -> BackupStatus {
        self.backup.status.clone().unwrap_or_default()
    }

    /// How many warnings and errors there are.
    pub(crate) fn findings(&self) -> results::Counts {
        let status = self.status();
        results::Counts::new(status.warnings, status.errors)
    }

    /// How long hooks held pods; none if the server did not tell.
    pub(crate) fn hook_windows(&self) -> &[HookWindow] {
        let windows = match &self.results {
            Some(File::Found(results)) => results.hook_windows.as_ref(),
            _ => None,
        };
        windows.map_or(&[], |windows| &windows.pods)
    }

    /// How many plugin operations there were.
    pub(crate) fn operation_counts(&self) -> operations::Counts {
        let status = self.status();
        operations::Counts {
            attempted: status.backup_item_operations_attempted.unwrap_or_default(),
            completed: status.backup_item_operations_completed.unwrap_or_default(),
            failed: status.backup_item_operations_failed.unwrap_or_default(),
        }
    }

    /// Deletions that were given up.
    pub(crate) fn failed_deletions(&self) -> usize {
        use bowline_api::v1::DeleteBackupRequestPhase::Processed;
        let failed = |request: &&DeleteBackupRequest| {
            request.status.as_ref().is_some_and(|status| {
                let has_errors = status.errors.as_ref().is_some_and(|e| !e.is_empty());
                status.phase == Some(Processed) && has_errors
            })
        };
        self.deletions.iter().filter(failed).count()
    }
}

/// Where the backup's files are. Before the server settles the location, which it does before
/// anything else, there are none.
pub(crate) async fn files(
    ctx: &Context,
    client: &Client,
    trust: &TrustArgs,
    backup: &Backup,
) -> Files {
    let location = backup.spec.storage_location.as_deref().unwrap_or_default();
    match location.is_empty() {
        true => Files::none(),
        false => Files::from(Downloader::of_backup(ctx, client, trust, backup).await),
    }
}

/// What plugins do with its snapshots. The server labels their objects; one that it has not seen yet
/// still names its backup.
async fn plugin_volumes(
    ctx: &Context,
    client: &Client,
    backup: &Backup,
) -> Vec<VolumePluginBackup> {
    const WHAT: &str = "VolumePluginBackups";
    let (name, key) = (backup.name_any(), label::BACKUP_NAME);
    let (ours, nobody_s) = (format!("{key}={}", label_value(&name)), format!("!{key}"));
    let (mut volumes, others) = futures::join!(
        labelled::<VolumePluginBackup>(ctx, client, &ours, WHAT),
        labelled::<VolumePluginBackup>(ctx, client, &nobody_s, WHAT),
    );
    volumes.extend(others.into_iter().filter(|it| it.spec.backup == name));
    volumes
}

/// What the bucket says of the backup's volumes.
pub(crate) async fn volumes(
    files: &Files,
    status: &BackupStatus,
) -> Result<Volumes, (VolumeStep, String)> {
    match files.read(DownloadTargetKind::BackupVolumeInfos).await {
        File::Found(infos) => Ok(sorted_by_method(infos)),
        File::Failed(why) => Err((VolumeStep::Get, why)),
        File::Unreadable(why) => Err((VolumeStep::Read, why)),
        File::Missing => {
            let native = legacy_native(files, status).await;
            let native = native.map_err(|why| (VolumeStep::Native, why))?;
            let csi = legacy_csi(files, status).await;
            let csi = csi.map_err(|why| (VolumeStep::Csi, why))?;
            Ok(Volumes {
                all: native.iter().chain(&csi).cloned().collect(),
                native,
                csi,
                is_legacy: true,
            })
        }
    }
}

async fn legacy_native(
    files: &Files,
    status: &BackupStatus,
) -> Result<Vec<BackupVolumeInfo>, String> {
    if status.volume_snapshots_attempted.unwrap_or_default() == 0 {
        return Ok(Vec::new());
    }
    let snapshots = files.read::<Vec<Snapshot>>(DownloadTargetKind::BackupVolumeSnapshots);
    let snapshots = or_why(snapshots.await, "native snapshot info")?;
    Ok(snapshots.into_iter().map(native_from_legacy).collect())
}

async fn legacy_csi(files: &Files, status: &BackupStatus) -> Result<Vec<BackupVolumeInfo>, String> {
    if status.csi_volume_snapshots_attempted.unwrap_or_default() == 0 {
        return Ok(Vec::new());
    }
    let (snapshots, contents) = futures::join!(
        files.read::<Vec<Value>>(DownloadTargetKind::CsiBackupVolumeSnapshots),
        files.read::<Vec<Value>>(DownloadTargetKind::CsiBackupVolumeSnapshotContents),
    );
    let snapshots = or_why(snapshots, "vs list")?;
    let contents = or_why(contents, "vsc list")?;
    let infos = contents
        .iter()
        .map(|content| csi_from_legacy(content, &snapshots));
    Ok(infos.collect())
}

fn or_why<T>(file: File<T>, what: &str) -> Result<T, String> {
    match file {
        File::Found(content) => Ok(content),
        File::Missing => Err(format!("error to download {what}: file not found")),
        File::Failed(why) => Err(format!("error to download {what}: {why}")),
        File::Unreadable(why) => Err(format!("error to decode {what}: {why}")),
    }
}

fn sorted_by_method(infos: Vec<BackupVolumeInfo>) -> Volumes {
    let mut volumes = Volumes {
        all: infos.clone(),
        ..Volumes::default()
    };
    for info in infos {
        match info.backup_method {
            Some(BackupMethod::NativeSnapshot) => volumes.native.push(info),
            Some(BackupMethod::CsiSnapshot) => volumes.csi.push(info),
            _ => {}
        }
    }
    volumes
}

fn native_from_legacy(snapshot: Snapshot) -> BackupVolumeInfo {
    let iops = snapshot.spec.volume_iops.map(|iops| iops.to_string());
    BackupVolumeInfo {
        pv_name: Some(snapshot.spec.persistent_volume_name),
        native_snapshot_info: Some(NativeSnapshotInfo {
            snapshot_handle: snapshot.status.provider_snapshot_id.unwrap_or_default(),
            volume_type: snapshot.spec.volume_type,
            volume_az: snapshot.spec.volume_az.unwrap_or_default(),
            iops: iops.unwrap_or_default(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn csi_from_legacy(content: &Value, snapshots: &[Value]) -> BackupVolumeInfo {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&content["metadata"]["name"]);
    let of = snapshots.iter().find(|snapshot| {
        snapshot["status"]["boundVolumeSnapshotContentName"] == content["metadata"]["name"]
            && snapshot["spec"]["source"]["persistentVolumeClaimName"].is_string()
    });
    let (claim, namespace) = match of {
        Some(snapshot) => (
            text(&snapshot["spec"]["source"]["persistentVolumeClaimName"]),
            text(&snapshot["metadata"]["namespace"]),
        ),
        None => ("<PVC name not found>".to_owned(), String::new()),
    };
    BackupVolumeInfo {
        pvc_name: Some(claim),
        pvc_namespace: Some(namespace),
        preserve_local_snapshot: true,
        csi_snapshot_info: Some(CsiSnapshotInfo {
            vsc_name: name,
            driver: text(&content["spec"]["driver"]),
            snapshot_handle: text(&content["status"]["snapshotHandle"]),
            size: content["status"]["restoreSize"]
                .as_i64()
                .unwrap_or_default(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn old_csi_files_are_put_together_by_content_name() {
        let content = json!({
            "metadata": {"name": "snapcontent-1"},
            "spec": {"driver": "ebs"},
            "status": {"snapshotHandle": "snap-1", "restoreSize": 7},
        });
        let snapshot = json!({
            "metadata": {"namespace": "shop"},
            "spec": {"source": {"persistentVolumeClaimName": "data"}},
            "status": {"boundVolumeSnapshotContentName": "snapcontent-1"},
        });
        let info = csi_from_legacy(&content, &[snapshot]);
        assert_eq!(info.pvc_name.as_deref(), Some("data"));
        assert_eq!(info.pvc_namespace.as_deref(), Some("shop"));
        let csi = info.csi_snapshot_info.unwrap();
        assert_eq!((csi.snapshot_handle.as_str(), csi.size), ("snap-1", 7));

        let lost = csi_from_legacy(&content, &[]);
        assert_eq!(lost.pvc_name.as_deref(), Some("<PVC name not found>"));
    }
}
