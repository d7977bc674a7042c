//! A backup of objects: plan, then copy.
//!
//! ```text
//!   discovery, namespaces ─▶ Selection ─▶ plan (lists and totals)
//!   lists ─▶ batches ─▶ packed on blocking threads ──────────────▶ Sink ─▶ archive ─▶ bucket
//!                  └──▶ objects with actions or hooks, one by one ──▲
//!   last: what others referred to, namespaces, definitions of custom kinds
//! ```
//!
//! Volumes of pods that are copied file by file are begun on the way and awaited at the end; pods
//! with hooks are not let go before (`pod_volumes.rs`). Snapshots of volumes are taken with the pods
//! that use them (`snapshots.rs`), also those of CSI drivers (`csi.rs`).
//!
//! Nothing here knows where the archive goes, nor writes to the cluster.

mod block;
mod choose;
mod csi;
mod held;
mod item;
mod later;
mod plan;
mod pod_volumes;
mod sink;
mod snapshots;
mod track;
pub mod update;
pub mod validate;
mod volume_info;

use std::{collections::BTreeMap, sync::Arc};

use bowline_api::{
    files::{BackupOperation, BackupVolumeInfo, ResourceList, Snapshot},
    names::label,
    v1::{Backup, HookStatus, PodVolumeBackup},
};
use bowline_vault::archive::write::Writer;
use kube::{Client, ResourceExt};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    action::{self, BackupItemAction, ItemBlockAction},
    discovery::{Discovery, Resource, Versions},
    hooks::{Exec, SpecHooks},
    list::{self, Query},
    log::{About, Log},
    policy::Policies,
    progress::Progress,
    select::{LiveNamespace, Selection},
};
use block::Hooks;
pub use csi::CsiSnapshots;
use held::Held;
use item::Run;
use later::Queue;
pub use pod_volumes::{Claim, PodVolume, PodVolumes};
pub use snapshots::{Snapshots, Taken};

/// A backup to make.
#[derive(Clone)]
pub struct Job {
    /// The cluster.
    pub client: Client,
    /// What it serves, if somebody has asked it already.
    pub discovery: Option<Discovery>,
    /// The backup, with a sound spec.
    pub backup: Arc<Backup>,
    /// The backup's policies and those of the installation.
    pub policies: Option<Arc<Policies>>,
    /// Actions besides the built-in ones; they run after those.
    pub actions: Vec<Arc<dyn BackupItemAction>>,
    /// Say what is backed up together, besides pods that share volumes.
    pub block_actions: Vec<Arc<dyn ItemBlockAction>>,
    /// Runs hooks.
    pub exec: Arc<dyn Exec>,
    /// Copies volumes of pods; with none, none are copied.
    pub pod_volumes: Option<Arc<dyn PodVolumes>>,
    /// Takes snapshots of volumes; with none, none are taken.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// Takes CSI snapshots of claims; with none, nobody treats CSI volumes in a way of their own.
    pub csi: Option<Arc<dyn CsiSnapshots>>,
    /// How it is done.
    pub settings: Settings,
    /// Told how far it is.
    pub progress: Arc<Progress>,
    /// Told what happens.
    pub log: Log,
    /// Ends the run early.
    pub cancel: CancellationToken,
}

/// How a backup is made.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The most objects in a page of a list; zero leaves it to their size.
    pub page: usize,
    /// Lists at the same time.
    pub parallel: usize,
    /// Which versions of each resource.
    pub versions: Versions,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            page: 0,
            parallel: 4,
            versions: Versions::Preferred,
        }
    }
}

/// A backup that was made. Warnings and errors are in the log.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Objects in the archive.
    pub items: u64,
    /// The same by name.
    pub resource_list: ResourceList,
    /// Hooks tried and failed.
    pub hooks: HookStatus,
    /// The archive's size.
    pub archive_bytes: u64,
    /// Volumes of pods that were copied, or should have been.
    pub pod_volumes: Vec<PodVolumeBackup>,
    /// What became of each volume.
    pub volumes: Vec<BackupVolumeInfo>,
    /// Snapshots that were taken, or should have been.
    pub snapshots: Vec<Snapshot>,
    /// What plugins go on with.
    pub operations: Vec<BackupOperation>,
}

/// Why there is no backup at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster does not say what it serves.
    #[error("discover the cluster's resources")]
    Discovery(#[source] Box<kube::Error>),
    /// Namespaces cannot be listed.
    #[error("list namespaces")]
    Namespaces(#[source] list::Error),
    /// The filters cannot be used.
    #[error("{0}")]
    Filters(String),
    /// The archive is not taken any more; its store knows why.
    #[error("the archive could not be stored")]
    Archive,
    /// Somebody ended it.
    #[error("cancelled")]
    Cancelled,
}

/// Makes a backup. The archive is whole when this returns `Ok`, and only then. However it ends, pods
/// that were frozen are let go, and what is known of snapshots is known.
pub async fn run(job: Job, archive: Writer) -> Result<Outcome, Error> {
    let cancel = job.cancel.clone();
    let held = Held::default();
    let cancelled = async {
        cancel.cancelled().await;
        held.nothing().await;
    };
    tokio::select! {
        outcome = make(job, archive, held.clone()) => outcome,
        () = cancelled => Err(Error::Cancelled),
    }
}

async fn make(job: Job, archive: Writer, held: Held) -> Result<Outcome, Error> {
    let log = job.log.clone();
    let spec = &job.backup.spec;
    let (discovery, live, built_in) = tokio::join!(
        discover(&job),
        namespaces(&job.client),
        action::built_in(&job.client),
    );
    let discovery = discovery.map_err(|error| Error::Discovery(Box::new(error)))?;
    let live = live.map_err(Error::Namespaces)?;
    for group in &discovery.broken {
        let why = format!("API group {group} does not answer; its objects are not in the backup");
        log.error(&why, &About::default());
    }
    let (selection, remarks) =
        Selection::new(spec, &discovery, &live, job.policies.as_deref()).map_err(Error::Filters)?;
    remark(&selection, &remarks, &live, &log);
    let chosen: Vec<String> = live
        .iter()
        .filter(|ns| selection.has_namespace(&ns.name))
        .map(|ns| ns.name.clone())
        .collect();

    let plan = plan::make(
        &job.client,
        &discovery,
        &selection,
        &chosen,
        live.len(),
        &log,
    )
    .await;
    let tracked = live.iter().filter(|ns| selection.tracks(ns)).count() as u64;
    let total = plan.iter().map(|listing| listing.total).sum::<u64>() + tracked;
    job.progress.expect(total);
    log.info(&format!(
        "Collected {total} items of {} resources",
        plan.len()
    ));

    let mut actions = match built_in {
        Ok(actions) => actions,
        Err(error) => {
            let about = About::object("clusterrolebindings.rbac.authorization.k8s.io", "", "");
            log.error("Error listing items", &about.because(error));
            action::without_bindings()
        }
    };
    if job.csi.is_some() {
        actions.extend(action::csi());
    }
    actions.extend(job.actions.iter().cloned());
    let hooks = SpecHooks::new(spec.hooks.as_ref(), |kind| {
        discovery.resolve(kind).map(Resource::group_resource)
    })
    .map_err(Error::Filters)?;
    let hooks = Hooks::new(hooks, Arc::clone(&job.exec));
    let (later, mut queue) = Queue::new();
    let (mut run, joining) = Run::start(&job, archive, discovery, selection, actions, hooks, later);
    run.held = held.clone();
    let over = run.over.clone();
    let run = Arc::new(run);
    let mut joining = joining;
    let copying = async {
        let lists = copy(&run, plan, job.settings.parallel, &log);
        queue.beside(&run, lists).await;
        // Blocks put objects into the archive, and the rest is what nobody else brought.
        queue.work_off(&run).await;
        run.rest(&live).await;
        queue.work_off(&run).await;
        run.finish().await
    };
    let mut copying = std::pin::pin!(copying);
    // A bucket that takes no more ends the run, rather than the other way round.
    tokio::select! {
        done = &mut copying => done.map_err(|_| Error::Archive)?,
        _ = &mut joining => {
            over.cancel();
            tokio::select! {
                _ = &mut copying => {}
                () = held.nothing() => {}
            }
            return Err(Error::Archive);
        }
    }
    let Ok(Ok(archive_bytes)) = joining.await else {
        return Err(Error::Archive);
    };
    let (resource_list, items) = run.stored();
    log.info(&format!("Backed up a total of {items} items"));
    let (pod_volumes, volumes) = run.finish_copies().await;
    job.progress.finish(items, run.pending());
    Ok(Outcome {
        items,
        resource_list,
        hooks: run.hook_status(),
        archive_bytes,
        pod_volumes,
        volumes,
        snapshots: run.records(),
        operations: run.operations(),
    })
}

async fn discover(job: &Job) -> Result<Discovery, kube::Error> {
    match &job.discovery {
        Some(discovery) => Ok(discovery.clone()),
        None => Discovery::read(&job.client, job.settings.versions).await,
    }
}

/// Copies what the lists bring. The tasks end when this is dropped.
async fn copy(run: &Arc<Run>, plan: Vec<plan::Listing>, parallel: usize, log: &Log) {
    let mut tasks = JoinSet::new();
    let mut plan = plan.into_iter();
    loop {
        while tasks.len() < parallel.max(1) {
            let Some(listing) = plan.next() else { break };
            tasks.spawn(Arc::clone(run).listing(listing));
        }
        match tasks.join_next().await {
            None => return,
            Some(Ok(())) => {}
            Some(Err(panic)) => {
                log.error(
                    "A list ended unexpectedly",
                    &About::default().because(panic),
                );
            }
        }
    }
}

fn remark(selection: &Selection, remarks: &[String], live: &[LiveNamespace], log: &Log) {
    for remark in remarks {
        log.warning(remark, &About::default());
    }
    for missing in selection.missing_namespaces() {
        let about = About {
            resource: Some("namespaces".to_owned()),
            ..About::default()
        };
        let why = format!(
            "fail to get the namespace {missing} specified in backup.Spec.IncludedNamespaces"
        );
        log.error(&why, &about);
    }
    let managed: Vec<&str> = live
        .iter()
        .filter(|ns| {
            selection.has_namespace(&ns.name) && ns.labels.contains_key(label::ARGOCD_MANAGED_BY)
        })
        .map(|ns| ns.name.as_str())
        .collect();
    if !managed.is_empty() {
        let why = format!(
            "Argo CD manages these namespaces and may undo what a restore does in them: {}",
            managed.join(", ")
        );
        log.warning(&why, &About::default());
    }
}

/// The namespaces of the cluster.
pub async fn namespaces(client: &Client) -> Result<Vec<LiveNamespace>, list::Error> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        #[serde(default)]
        status: Status,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        labels: Option<BTreeMap<String, String>>,
    }
    #[derive(Default, Deserialize)]
    struct Status {
        #[serde(default)]
        phase: String,
    }
    let query = Query {
        path: "/api/v1/namespaces".to_owned(),
        ..Query::default()
    };
    let mut live = Vec::new();
    let mut unreadable = None;
    list::each(client, &query, |raw| {
        match serde_json::from_slice::<Object>(raw) {
            Ok(ns) => live.push(LiveNamespace {
                name: ns.metadata.name,
                labels: ns.metadata.labels.unwrap_or_default(),
                active: matches!(ns.status.phase.as_str(), "" | "Active"),
            }),
            Err(error) => unreadable = Some(list::Error::NotAList(error.to_string())),
        }
    })
    .await?;
    if let Some(error) = unreadable {
        return Err(error);
    }
    live.sort_by(|a, b| a.name.cmp(&b.name));
    live.dedup_by(|a, b| a.name == b.name);
    Ok(live)
}

/// How the log names a backup.
#[must_use]
pub fn log_name(backup: &Backup) -> String {
    format!(
        "{}/{}",
        backup.namespace().unwrap_or_default(),
        backup.name_any()
    )
}
