//! The process of one node: copies volumes of its pods into repositories, and back.
//!
//! ```text
//!   PodVolumeBackup, PodVolumeRestore, pods of this node ──▶ step.rs   what each needs next (pure)
//!   work.rs      a task for each copy: found, queued, moved, told
//!   backup.rs, restore.rs, done.rs   what is particular to either direction
//!   place.rs     where the kubelet has a volume        repositories.rs   where it goes
//!   heartbeat.rs the Lease that says that this node is looked after
//!
//!   DataUpload, DataDownload ──▶ movement.rs   a task for each: exposed by a pod, supervised, concluded
//!   mover.rs     the process in that pod
//! ```
//!
//! A killed process leaves objects as they are; the next one on the node begins their copies again, and
//! goes on looking after the pods that move data.

mod backup;
mod config;
pub(crate) mod copy;
mod done;
mod heartbeat;
mod metrics;
pub(crate) mod movement;
pub mod mover;
mod place;
mod repositories;
mod restore;
mod settings;
mod step;
mod watch;
mod work;

use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

use axum::{Router, extract::State, routing::get};
use k8s_openapi::api::core::v1::{Node as Object, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use settings::Settings;

use crate::{Context, Error, Result, http, run::checks};
use config::Config;
use heartbeat::Heartbeat;
use metrics::Metrics;
use repositories::Repositories;

/// Where a DaemonSet mounts the kubelet's folder of pods.
pub const HOST_PODS: &str = "/host_pods";

/// How long copies have to end when the process stops.
const PATIENCE: Duration = Duration::from_secs(10);
/// A copy that was stopped gives its lock back a moment later.
const GRACE: Duration = Duration::from_secs(2);
/// The folder of a pod that the kubelet made itself, from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What every copy has at hand.
pub(crate) struct Node {
    ctx: Arc<Context>,
    name: String,
    settings: Settings,
    config: Config,
    /// Copies at the same time.
    slots: Semaphore,
    repositories: Repositories,
    metrics: Arc<Metrics>,
}

/// Runs the process of a node until `stop`, or until another one has taken its place.
///
/// # Errors
/// When it cannot start as things are, or was replaced.
pub async fn run(
    client: Client,
    namespace: &str,
    settings: Settings,
    stop: CancellationToken,
) -> Result<()> {
    settings.validate()?;
    for remark in settings.remarks() {
        tracing::warn!("{remark}");
    }
    let ctx = Arc::new(Context::new(client, namespace, crate::Settings::default()));
    checks::namespace(&ctx).await?;
    checks::definitions(&ctx).await?;
    check_folder(&ctx, &settings).await?;
    let object = node_object(&ctx, &settings.node_name).await;
    let config = config(&ctx, &settings).await?;
    let slots = slots(&config, object.as_ref());

    let metrics = Metrics::new(&settings.node_name);
    let counted = Arc::clone(&metrics);
    ctx.metrics.also(move || counted.text());
    let listener = http::bind(&settings.metrics_address).await?;
    let router = Router::new()
        .route("/metrics", get(scrape))
        .with_state(Arc::clone(&ctx))
        .route("/healthz", get(|| async { "ok" }));
    let serving = CancellationToken::new();
    let http = tokio::spawn(http::serve(listener, router, serving.clone()));

    let identity = checks::identity();
    let name = &settings.node_name;
    let beat = Heartbeat::new(&ctx.client, namespace, name, &identity, object.as_ref());
    tracing::info!(node = %name, slots, "looking after the volumes of this node");
    let node = Arc::new(Node {
        name: name.clone(),
        config,
        slots: Semaphore::new(slots),
        repositories: Repositories::new(&settings, slots),
        metrics,
        settings,
        ctx,
    });
    let ended = live(&node, beat, &stop).await;
    serving.cancel();
    let _ = http.await;
    ended
}

/// Works for as long as the Lease is this process's.
async fn live(node: &Arc<Node>, mut beat: Heartbeat, stop: &CancellationToken) -> Result<()> {
    if !beat.take(stop).await {
        return Ok(());
    }
    // Not a child of `stop`: the watch that ends first would look like one that failed.
    let quit = CancellationToken::new();
    let mut watching = tokio::spawn(watch::run(Arc::clone(node), quit.clone()));
    let replaced = tokio::select! {
        holder = beat.keep(stop) => holder,
        ended = &mut watching => {
            node.ctx.stop.cancel();
            let why = ended.err().map(|e| e.to_string()).unwrap_or_default();
            return Err(Error::Setup(format!("the watch over volumes ended: {why}")));
        }
    };
    // Copies end first; what they hold in their repositories goes while the buckets still answer.
    quit.cancel();
    node.ctx.abort.cancel();
    match tokio::time::timeout(PATIENCE, watching).await {
        Ok(Ok(0)) => {}
        Ok(_) => tokio::time::sleep(GRACE).await,
        Err(_) => {
            tracing::warn!("copies did not end in time; their locks stay until they are stale");
        }
    }
    node.ctx.stop.cancel();
    match replaced {
        None => Ok(()),
        Some(holder) => Err(Error::Setup(format!(
            "another process ({holder}) looks after node {} now",
            node.name
        ))),
    }
}

async fn scrape(State(ctx): State<Arc<Context>>) -> impl axum::response::IntoResponse {
    (
        [(axum::http::header::CONTENT_TYPE, http::TEXT)],
        ctx.metrics.others(),
    )
}

/// The Node, when there is one and it may be read.
async fn node_object(ctx: &Context, name: &str) -> Option<Object> {
    let nodes: Api<Object> = Api::all(ctx.client.clone());
    match nodes.get_opt(name).await {
        Ok(Some(node)) => Some(node),
        Ok(None) => {
            tracing::warn!(node = name, "the cluster has no such node");
            None
        }
        Err(error) => {
            tracing::warn!(node = name, "the node cannot be read: {error}");
            None
        }
    }
}

/// What the ConfigMap of node processes says.
async fn config(ctx: &Context, settings: &Settings) -> Result<Config> {
    let config = match settings.node_agent_configmap.as_str() {
        "" => Config::default(),
        name => config::read(ctx, name).await?,
    };
    if let Some(remark) = config.remark() {
        tracing::warn!("{remark}");
    }
    Ok(config)
}

/// How many copies this node makes at the same time.
fn slots(config: &Config, node: Option<&Object>) -> usize {
    let (slots, wrong) = config.slots(&config::labels(node));
    for why in wrong {
        tracing::warn!("node-agent ConfigMap: {why}");
    }
    slots
}

/// The folder of pods is that of this node: its pods have folders there.
async fn check_folder(ctx: &Context, settings: &Settings) -> Result<()> {
    let folder = &settings.host_pods;
    let present = match names(folder) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            tracing::warn!(
                "Pod volumes host path [{}] doesn't exist, fs-backup is disabled",
                folder.display()
            );
            return Ok(());
        }
        Err(e) => return Err(Error::Setup(format!("read {}: {e}", folder.display()))),
    };
    let pods: Api<Pod> = Api::all(ctx.client.clone());
    let selector = format!("spec.nodeName={},status.phase=Running", settings.node_name);
    let list = pods.list(&ListParams::default().fields(&selector)).await;
    let list = list.map_err(Error::api("list the pods of this node"))?;
    let missing: Vec<&Pod> = list
        .iter()
        .filter(|pod| !present.contains(&folder_name(pod)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if missing.len() == list.items.len() {
        return Err(Error::Setup(format!(
            "unexpected directory structure for host-pods volume, ensure that the host-pods volume \
             corresponds to the pods subdirectory of the kubelet root directory: {} has no folder of \
             any of the {} pods that run on node {}",
            folder.display(),
            missing.len(),
            settings.node_name
        )));
    }
    for pod in missing {
        tracing::warn!(
            pod = pod.name_any(),
            "has no folder in {}",
            folder.display()
        );
    }
    Ok(())
}

fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(folder)?;
    Ok(entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

fn folder_name(pod: &Pod) -> String {
    let mirrored = pod.annotations().get(MIRROR).cloned();
    mirrored.or_else(|| pod.uid()).unwrap_or_default()
}
