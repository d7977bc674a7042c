//! Everything that a description of a backup needs, gathered from the cluster and the bucket.

use std::time::Duration;

use bowline_api::{
    files::{
        BackupMethod, BackupOperation, BackupVolumeInfo, CsiSnapshotInfo, NativeSnapshotInfo,
        ResourceList, Results, Snapshot,
    },
    names::{label, label_value},
    v1::{Backup, BackupStatus, DeleteBackupRequest, DownloadTargetKind, PodVolumeBackup},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    cluster::Plain,
    context::Context,
    download::{Downloader, TrustArgs},
    say,
    select::Kind,
};

/// How long to wait for one file.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A file of the bucket, or why it could not be had.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum File<T> {
    /// Its content.
    Found(T),
    /// The bucket has no such file.
    Missing,
    /// It could not be fetched.
    Failed(String),
    /// It could be fetched, but not read.
    Unreadable(String),
}

/// What became of the volumes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Volumes {
    /// Native snapshots.
    pub(crate) native: Vec<BackupVolumeInfo>,
    /// CSI snapshots.
    pub(crate) csi: Vec<BackupVolumeInfo>,
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
    pub(crate) pod_volumes: Vec<PodVolumeBackup>,
    /// Warnings and errors; none if there are none to show.
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
    ) -> anyhow::Result<Self> {
        let name = label_value(&backup.name_any());
        let uid = backup.uid().unwrap_or_default();
        let by_name = format!("{}={name}", label::BACKUP_NAME);
        let by_uid = format!("{by_name},{}={uid}", label::BACKUP_UID);
        let status = backup.status.clone().unwrap_or_default();
        let is_set = |count: Option<i64>| count.is_some_and(|count| count > 0);

        let source = Source::new(ctx, client, trust, &backup).await;
        let wants_results = is_set(status.warnings) || is_set(status.errors);
        let wants_operations = details && is_set(status.backup_item_operations_attempted);
        let (deletions, pod_volumes, results, operations, resources, volumes) = futures::join!(
            labelled(ctx, client, &by_uid, "DeleteBackupRequests"),
            labelled(ctx, client, &by_name, "PodVolumeBackups"),
            source.read_if(wants_results, DownloadTargetKind::BackupResults),
            source.read_if(wants_operations, DownloadTargetKind::BackupItemOperations),
            source.read_if(details, DownloadTargetKind::BackupResourceList),
            source.volumes(&status),
        );
        Ok(Self {
            backup,
            details,
            deletions,
            pod_volumes,
            results,
            operations,
            resources,
            volumes,
        })
    }

    /// The status, empty if there is none yet.
    pub(crate) fn status(&self) -> BackupStatus {
        self.backup.status.clone().unwrap_or_default()
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

/// Objects with these labels. That they cannot be had is worth a word, not the end.
async fn labelled<K: Kind>(ctx: &Context, client: &Client, labels: &str, what: &str) -> Vec<K> {
    let api: Api<K> = Api::namespaced(client.clone(), &ctx.namespace);
    let params = ListParams::default().labels(labels);
    match api.list(&params).await.plain() {
        Ok(list) => list.items,
        Err(error) => {
            say(&format!("error getting {what}: {error:#}"));
            Vec::new()
        }
    }
}

/// Where the files come from, or why they cannot come; none if there can be no files yet.
struct Source(Option<Result<Downloader, String>>);

impl Source {
    async fn new(ctx: &Context, client: &Client, trust: &TrustArgs, backup: &Backup) -> Self {
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        if location.is_empty() {
            // Nobody would answer: the server settles the location before it does anything.
            return Self(None);
        }
        let downloader = Downloader::new(ctx, client, trust, backup).await;
        Self(Some(downloader.map_err(|error| format!("{error:#}"))))
    }

    async fn read_if<T: DeserializeOwned + Default>(
        &self,
        wanted: bool,
        kind: DownloadTargetKind,
    ) -> Option<File<T>> {
        match wanted {
            true => Some(self.read(kind).await),
            false => None,
        }
    }

    async fn read<T: DeserializeOwned + Default>(&self, kind: DownloadTargetKind) -> File<T> {
        let downloader = match &self.0 {
            Some(Ok(downloader)) => downloader,
            Some(Err(why)) => return File::Failed(why.clone()),
            None => return File::Missing,
        };
        match downloader.fetch_bytes(kind, TIMEOUT).await {
            Ok(None) => File::Missing,
            Err(error) => File::Failed(format!("{error:#}")),
            // Velero writes an empty list as `null`.
            Ok(Some(bytes)) => match serde_json::from_slice::<Option<T>>(&bytes) {
                Ok(content) => File::Found(content.unwrap_or_default()),
                Err(error) => File::Unreadable(error.to_string()),
            },
        }
    }

    async fn volumes(&self, status: &BackupStatus) -> Result<Volumes, (VolumeStep, String)> {
        match self.read(DownloadTargetKind::BackupVolumeInfos).await {
            File::Found(infos) => Ok(sorted_by_method(infos)),
            File::Failed(why) => Err((VolumeStep::Get, why)),
            File::Unreadable(why) => Err((VolumeStep::Read, why)),
            File::Missing => Ok(Volumes {
                native: self.legacy_native(status).await?,
                csi: self.legacy_csi(status).await?,
                is_legacy: true,
            }),
        }
    }

    async fn legacy_native(
        &self,
        status: &BackupStatus,
    ) -> Result<Vec<BackupVolumeInfo>, (VolumeStep, String)> {
        if status.volume_snapshots_attempted.unwrap_or_default() == 0 {
            return Ok(Vec::new());
        }
        let snapshots: Vec<Snapshot> = self
            .read(DownloadTargetKind::BackupVolumeSnapshots)
            .await
            .or_else_why("native snapshot info")
            .map_err(|why| (VolumeStep::Native, why))?;
        Ok(snapshots.into_iter().map(native_from_legacy).collect())
    }

    async fn legacy_csi(
        &self,
        status: &BackupStatus,
    ) -> Result<Vec<BackupVolumeInfo>, (VolumeStep, String)> {
        if status.csi_volume_snapshots_attempted.unwrap_or_default() == 0 {
            return Ok(Vec::new());
        }
        let (snapshots, contents) = futures::join!(
            self.read::<Vec<Value>>(DownloadTargetKind::CsiBackupVolumeSnapshots),
            self.read::<Vec<Value>>(DownloadTargetKind::CsiBackupVolumeSnapshotContents),
        );
        let snapshots = snapshots.or_else_why("vs list");
        let contents = contents.or_else_why("vsc list");
        let both = snapshots.and_then(|snapshots| Ok((snapshots, contents?)));
        let (snapshots, contents) = both.map_err(|why| (VolumeStep::Csi, why))?;
        let infos = contents
            .iter()
            .map(|content| csi_from_legacy(content, &snapshots));
        Ok(infos.collect())
    }
}

impl<T> File<T> {
    fn or_else_why(self, what: &str) -> Result<T, String> {
        match self {
            Self::Found(content) => Ok(content),
            Self::Missing => Err(format!("error to download {what}: file not found")),
            Self::Failed(why) => Err(format!("error to download {what}: {why}")),
            Self::Unreadable(why) => Err(format!("error to decode {what}: {why}")),
        }
    }
}

fn sorted_by_method(infos: Vec<BackupVolumeInfo>) -> Volumes {
    let mut volumes = Volumes::default();
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
