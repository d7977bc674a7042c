//! Everything that a description of a restore needs, gathered from the cluster and the bucket.

use bowline_api::{
    files::{ResourceList, RestoreOperation, RestoreVolumeInfo, Results},
    names::{label, label_value},
    v1::{
        DownloadTargetKind, PodVolumeRestore, Restore, RestorePhase, RestoreStatus,
        VolumePluginRestore,
    },
    v2alpha1::DataDownload,
};
use kube::{Client, ResourceExt};

use crate::{
    commands::restore::phase,
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

/// All about one restore.
pub(super) struct Facts {
    /// The restore.
    pub(super) restore: Restore,
    /// Whether details are wanted.
    pub(super) details: bool,
    /// Its pod volumes, as they are now.
    pub(super) pod_volumes: Vec<PodVolume>,
    /// Its snapshots that plugins bring back, as they are now.
    pub(super) plugin_volumes: Vec<PluginVolume>,
    /// Movements of its snapshots' data that are worth telling of, as they are now.
    pub(super) movements: Vec<Movement>,
    /// Warnings and errors; none if there are none to show.
    pub(super) results: Option<File<Results>>,
    /// Plugin operations; none if there are none to show.
    pub(super) operations: Option<File<Vec<RestoreOperation>>>,
    /// What was done to which object; none if not asked for.
    pub(super) resources: Option<File<ResourceList>>,
    /// What became of its volumes.
    pub(super) volumes: File<Vec<RestoreVolumeInfo>>,
}

impl Facts {
    /// Asks for all of it at once.
    pub(super) async fn gather(
        ctx: &Context,
        client: &Client,
        trust: &TrustArgs,
        restore: Restore,
        details: bool,
    ) -> Self {
        let name = label_value(&restore.name_any());
        let by_name = format!("{}={name}", label::RESTORE_NAME);
        let files = files(ctx, client, trust, &restore).await;
        let status = restore.status.clone().unwrap_or_default();
        let wants_results = results::Counts::new(status.warnings, status.errors).are_some();
        let wants_operations =
            details && status.restore_item_operations_attempted.unwrap_or_default() > 0;
        let objects = async {
            futures::join!(
                labelled::<PodVolumeRestore>(ctx, client, &by_name, "PodVolumeRestores"),
                labelled::<VolumePluginRestore>(ctx, client, &by_name, "VolumePluginRestores"),
                labelled::<DataDownload>(ctx, client, &by_name, "DataDownloads"),
            )
        };
        let contents = async {
            futures::join!(
                files.read_if(wants_results, DownloadTargetKind::RestoreResults),
                files.read_if(wants_operations, DownloadTargetKind::RestoreItemOperations),
                files.read_if(details, DownloadTargetKind::RestoreResourceList),
                files.read(DownloadTargetKind::RestoreVolumeInfo),
            )
        };
        let ((pod_volumes, plugin_volumes, downloads), (results, operations, resources, volumes)) =
            futures::join!(objects, contents);
        let downloads = downloads.iter().map(Movement::from).collect();
        Self {
            movements: movements::worth_telling(downloads, restore.step().is_over),
            restore,
            details,
            pod_volumes: pod_volumes.iter().map(PodVolume::from).collect(),
            plugin_volumes: plugin_volumes.iter().map(PluginVolume::from).collect(),
            results: results.map(File::required),
            operations,
            resources,
            volumes,
        }
    }

    /// The status, empty if there is none yet.
    pub(super) fn status(&self) -> RestoreStatus {
        self.restore.status.clone().unwrap_or_default()
    }

    /// How many warnings and errors there are.
    pub(super) fn findings(&self) -> results::Counts {
        let status = self.status();
        results::Counts::new(status.warnings, status.errors)
    }

    /// How many plugin operations there were.
    pub(super) fn operation_counts(&self) -> operations::Counts {
        let status = self.status();
        operations::Counts {
            attempted: status.restore_item_operations_attempted.unwrap_or_default(),
            completed: status.restore_item_operations_completed.unwrap_or_default(),
            failed: status.restore_item_operations_failed.unwrap_or_default(),
        }
    }
}

/// Where the restore's files are. Before the server has looked at it, there are none.
pub(in crate::commands::restore) async fn files(
    ctx: &Context,
    client: &Client,
    trust: &TrustArgs,
    restore: &Restore,
) -> Files {
    match phase(restore) {
        RestorePhase::New => Files::none(),
        _ => Files::from(Downloader::of_restore(ctx, client, trust, restore).await),
    }
}
