//! A restore of objects: the whole archive is read and planned before anything is touched, then
//! restored wave by wave.
//!
//! ```text
//!   archive ─▶ Spool (a file without a name, and an index)
//!   discovery, spec ─▶ Selection ─▶ waves by priority: definitions, namespaces, storage … the rest
//!   wave ─▶ objects in parallel ─▶ actions, modifiers ─▶ create, or compare with what is there
//!                     └──▶ what an object needs, before it, once
//! ```
//!
//! Nothing here knows where the archive comes from. Running it again over its own work finds that
//! work done: that is how a restore survives its server.

pub mod action;
mod calls;
pub mod dry;
mod existing;
pub mod hooks;
mod item;
pub mod modifier;
pub mod moved;
mod namespace;
pub mod notes;
mod owners;
pub mod plan;
pub mod pod_volume;
pub mod select;
pub mod snapshots;
pub mod source;
pub mod spool;
mod track;
pub mod validate;
mod volume;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bowline_api::{
    files::{BackupVolumeInfo, ResourceList, RestoreOperation},
    v1::Restore,
};
use bowline_vault::archive::read::Reader;
use futures::{StreamExt, stream};
use kube::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    action::RestoreItemAction,
    calls::Calls,
    dry::{Dry, Plan, Planned},
    item::{Asked, Run},
    modifier::Modifiers,
    moved::Downloads,
    notes::Notes,
    plan::{DEFINITIONS, Priorities, Wave},
    pod_volume::{Filling, PodVolumes},
    select::Selection,
    snapshots::Snapshots,
    spool::Spool,
};
use crate::{
    discovery::{Discovery, Versions},
    log::{About, Level, Log},
    policy::Policies,
    progress::Progress,
};

/// Objects of a wave that are worked on at the same time; calls have a limit of their own.
const PARALLEL: usize = 32;
/// How long new kinds may take to show up in what the cluster says it serves.
const SHOWN: Duration = Duration::from_secs(10);

/// A restore to make.
pub struct Job {
    /// The cluster.
    pub client: Client,
    /// The restore, with a sound spec.
    pub restore: Arc<Restore>,
    /// The restore's filter policies.
    pub policies: Option<Arc<Policies>>,
    /// Changes to objects on their way.
    pub modifiers: Option<Arc<Modifiers>>,
    /// What is done to objects, in order.
    pub actions: Vec<Arc<dyn RestoreItemAction>>,
    /// What the backup says of its volumes.
    pub volumes: Vec<BackupVolumeInfo>,
    /// Its pod volumes, and how they come back.
    pub pod_volumes: PodVolumes,
    /// Makes volumes of snapshots; with none, none are made.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// Has moved data brought back; with none, no claim that waits for its data is made.
    pub downloads: Option<Arc<dyn Downloads>>,
    /// How it is done.
    pub settings: Settings,
    /// Told how far it is.
    pub progress: Arc<Progress>,
    /// Told what happens.
    pub log: Log,
    /// Ends the run early.
    pub cancel: CancellationToken,
    /// When the restore came into being, by the cluster's clock: what it makes is not older.
    pub since: jiff::Timestamp,
    /// Whether another server began it.
    pub resumed: bool,
}

/// How a restore is made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What comes first and last.
    pub priorities: Priorities,
    /// Chooses among the versions of the archive, with these wishes by resource.
    pub versions: Option<BTreeMap<String, Vec<String>>>,
    /// How long to wait for an old namespace to go.
    pub terminating_timeout: Duration,
    /// How long to wait for a definition to be usable.
    pub resource_timeout: Duration,
}

/// A restore that was made. Warnings and errors are in the log.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What became of each object.
    pub resource_list: ResourceList,
    /// What plugins go on with.
    pub operations: Vec<RestoreOperation>,
    /// Volumes of pods that somebody fills now.
    pub fillings: Vec<Filling>,
    /// What became of volumes.
    pub notes: Notes,
    /// Calls to the cluster.
    pub calls: u64,
}

/// Why there is no restore at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster does not say what it serves.
    #[error("discover the cluster's resources")]
    Discovery(#[source] Box<kube::Error>),
    /// The archive cannot be restored from.
    #[error("error downloading backup")]
    Archive(#[from] spool::Error),
    /// Somebody ended it.
    #[error("cancelled")]
    Cancelled,
}

/// Makes a restore.
pub async fn run(job: Job, archive: Reader) -> Result<Outcome, Error> {
    let cancel = job.cancel.clone();
    let restoring = async {
        let (run, waves) = prepare(job, archive, None).await?;
        restore(&run, waves).await?;
        let operations = std::mem::take(
            &mut *run
                .operations
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        Ok(Outcome {
            resource_list: run.tracker.list(),
            operations,
            fillings: std::mem::take(&mut *run.fillings()),
            notes: run.notes.take(),
            calls: run.calls.sent(),
        })
    };
    tokio::select! {
        outcome = restoring => outcome,
        () = cancel.cancelled() => Err(Error::Cancelled),
    }
}

/// Says what a restore would do, and does nothing.
pub async fn rehearse(job: Job, archive: Reader) -> Result<Plan, Error> {
    let (run, waves) = prepare(job, archive, Some(Dry::default())).await?;
    let order: Vec<String> = waves.iter().map(|wave| wave.kind.clone()).collect();
    restore(&run, waves).await?;
    let mut plan = run.dry.map(|dry| dry.take()).unwrap_or_default();
    // What is brought along is of an earlier wave, or of none.
    let rank = |kind: &str| order.iter().position(|name| name == kind);
    plan.items.sort_by(|a, b| {
        let key = |item: &Planned| {
            (
                rank(&item.resource),
                item.namespace.clone(),
                item.name.clone(),
            )
        };
        key(a).cmp(&key(b))
    });
    plan.missing.sort();
    plan.volumes.sort();
    Ok(plan)
}

/// Reads the archive and decides what comes when; nothing is touched.
async fn prepare(job: Job, archive: Reader, dry: Option<Dry>) -> Result<(Run, Vec<Wave>), Error> {
    let discovery = Discovery::read(&job.client, Versions::All)
        .await
        .map_err(|error| Error::Discovery(Box::new(error)))?;
    for group in &discovery.broken {
        let why = format!("API group {group} does not answer; its objects cannot be restored");
        job.log.write(Level::Info, &why, &About::default());
    }
    let (selection, remarks) =
        Selection::new(&job.restore.spec, &discovery, job.policies.as_deref());
    for remark in remarks {
        job.log.told(Level::Warning, &remark, &About::default());
    }
    let versions = job.settings.versions.as_ref();
    let spool = Spool::read(
        archive,
        versions.is_some(),
        |kind, namespace, name, body| selection.selects(kind, namespace, name, body),
    )
    .await?;
    if spool.kinds().next().is_none() {
        let why = "zero items to be restored: the backup's archive has no objects";
        job.log.told(Level::Warning, why, &About::default());
    }
    let chosen = versions.map(|wishes| plan::versions(&spool, &discovery, wishes));
    let order = plan::order(
        spool.kinds().map(|(kind, _)| kind),
        &job.settings.priorities,
        &discovery,
    );
    let mut waves = plan::waves(&spool, &order, &chosen.unwrap_or_default());
    if job.restore.spec.namespace_mapping.is_some() {
        for (namespace, why) in plan::collisions(&mut waves, &selection) {
            let about = About {
                namespace: Some(namespace),
                ..About::default()
            };
            job.log.told(Level::Error, &why, &about);
        }
    }
    let total: usize = waves.iter().map(|wave| wave.items.len()).sum();
    job.progress.expect(total as u64);
    job.log.info(&format!(
        "{total} items of {} resources are selected",
        waves.len()
    ));
    let volumes = job.volumes.into_iter().filter_map(|info| {
        let name = info.pv_name.clone().filter(|name| !name.is_empty())?;
        Some((name, info))
    });
    let run = Run {
        calls: Calls::new(job.client),
        restore: job.restore,
        settings: job.settings,
        progress: job.progress,
        log: job.log,
        spool,
        discovery: RwLock::new(Arc::new(discovery)),
        selection,
        actions: job.actions,
        modifiers: job.modifiers,
        volumes: volumes.collect::<HashMap<_, _>>(),
        pod_volumes: job.pod_volumes,
        snapshots: job.snapshots,
        downloads: job.downloads,
        renamed: Default::default(),
        fillings: Default::default(),
        notes: Default::default(),
        tracker: track::Tracker::default(),
        namespaces: namespace::Namespaces::default(),
        anew: Default::default(),
        operations: Default::default(),
        since: job.since,
        resumed: job.resumed,
        dry,
    };
    Ok((run, waves))
}

/// Wave after wave; inside a wave in parallel.
async fn restore(run: &Run, waves: Vec<Wave>) -> Result<(), Error> {
    let count = waves.len();
    for (at, wave) in waves.into_iter().enumerate() {
        let kind: Arc<str> = wave.kind.as_str().into();
        run.progress
            .enter(&format!("{kind} ({} of {count})", at + 1));
        let about = About {
            resource: Some(kind.to_string()),
            ..About::default()
        };
        let message = format!("Restoring {} items", wave.items.len());
        run.log.write(Level::Info, &message, &about);
        stream::iter(&wave.items)
            .for_each_concurrent(PARALLEL, |item| {
                let kind = &kind;
                async move {
                    run.item(kind, item, Asked::Selected).await;
                }
            })
            .await;
        if *kind == *DEFINITIONS && !run.is_dry() {
            rediscover(run, &wave).await?;
        }
    }
    Ok(())
}

/// Finds out what the cluster serves now that there are new definitions.
async fn rediscover(run: &Run, wave: &Wave) -> Result<(), Error> {
    let until = Instant::now() + SHOWN;
    loop {
        let discovery = Discovery::read(run.calls.client(), Versions::All)
            .await
            .map_err(|error| Error::Discovery(Box::new(error)))?;
        let shown = wave
            .items
            .iter()
            .all(|item| discovery.find(&item.name).is_some());
        *run.discovery
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(discovery);
        // One that could not be restored is said so elsewhere.
        if shown || Instant::now() >= until {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the API server said, or what is wrong with the way to it.
fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => {
            let mut text = other.to_string();
            let mut next = std::error::Error::source(other);
            while let Some(cause) = next {
                let why = cause.to_string();
                if !text.ends_with(&why) {
                    text.push_str(": ");
                    text.push_str(&why);
                }
                next = cause.source();
            }
            text
        }
    }
}
