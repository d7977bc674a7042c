//! Waits until the volumes of restored pods are filled, which node processes do.
//!
//! Requests and pods are watched; what they mean for a volume is a pure decision. Nothing is kept: a
//! server that takes the restore up finds the same requests, and waits for them. Requests whose node
//! process is dead are failed elsewhere (`abandoned.rs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bowline_api::{
    Time,
    names::{annotation, label, label_value},
    v1::{BackupStorageLocation, DataPathPhase, PodVolumeRestore, Restore},
};
use bowline_engine::{
    log::{About, Level, Log},
    progress::Progress,
    restore::pod_volume::Filling,
};
use bowline_volume::program::identifier;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::told::{Filled, Tracker};
use crate::{Context, Error, Result, node::copy::Copy, repositories};

/// Events that come together are looked at together.
const PAUSE: Duration = Duration::from_millis(200);
/// How often all are looked at, whatever happens.
const LOOK: Duration = Duration::from_secs(10);

/// Waits until all are filled, or will not be. What goes wrong is told to the log, and how each ended
/// to the tracker.
pub(super) async fn wait(
    ctx: &Context,
    restore: &Restore,
    fillings: &[Filling],
    log: &Log,
    progress: &Progress,
    tracker: &Tracker,
) {
    if fillings.is_empty() {
        return;
    }
    log.info("Waiting for all pod volume restores to complete");
    let watches = Watches::start(ctx, restore, fillings);
    let deadline = Instant::now() + left(restore, ctx.settings.fs_backup_timeout, ctx.now());
    let mut open: Vec<&Filling> = fillings.iter().collect();
    let ended = |filling: &Filling, look: &Look, trouble: Option<Trouble>| {
        let request = look.request.as_deref().unwrap_or(&filling.request);
        tracker.filled(Filled {
            filling: Filling {
                request: request.clone(),
                claim: filling.claim.clone(),
            },
            trouble: trouble.as_ref().map(|t| format!("{}: {}", t.what, t.why)),
        });
        tell(log, &filling.request, trouble);
    };
    loop {
        if watches.are_ready() {
            let mut rest = Vec::new();
            for filling in open {
                let look = watches.look(filling);
                match look.verdict() {
                    Verdict::Wait => rest.push(filling),
                    Verdict::Ended(trouble) => ended(filling, &look, trouble),
                    Verdict::GivenUp(_)
                        if look.pod == Stage::Gone && is_there(ctx, filling).await =>
                    {
                        rest.push(filling);
                    }
                    Verdict::GivenUp(trouble) => {
                        if let Err(error) = cancel(ctx, &filling.request).await {
                            tracing::warn!("{}", error.chain());
                        }
                        ended(filling, &look, Some(trouble));
                    }
                }
            }
            open = rest;
        }
        let done = fillings.len() - open.len();
        progress.enter(&format!("pod volumes ({done} of {})", fillings.len()));
        if open.is_empty() {
            break;
        }
        if Instant::now() >= deadline {
            for filling in open {
                let look = watches.look(filling);
                ended(filling, &look, Some(look.late()));
            }
            break;
        }
        let next = deadline.min(Instant::now() + LOOK);
        tokio::select! {
            () = watches.changed.notified() => tokio::time::sleep(PAUSE).await,
            () = tokio::time::sleep_until(next) => {}
        }
    }
    log.info("Done waiting for all pod volume restores to complete");
}

/// The namespaces of the repositories that volumes of pods are filled from.
pub(super) fn namespaces(fillings: &[Filling]) -> impl Iterator<Item = &str> {
    let requests = fillings.iter().map(|filling| &filling.request);
    requests.map(|request| request.spec.source_namespace.as_str())
}

/// Makes the repositories of namespaces known that volumes are filled from, so that they are looked after. Nothing
/// depends on it here.
pub(super) async fn know_repositories(
    ctx: &Context,
    location: &BackupStorageLocation,
    namespaces: BTreeSet<&str>,
) {
    let place = location.name_any();
    for namespace in namespaces {
        let Ok(identifier) = identifier(&location.spec, namespace) else {
            continue;
        };
        let object = repositories::object(ctx, namespace, &place, &identifier);
        if let Err(error) = ctx.create(&object).await {
            tracing::warn!("{}", error.chain());
        }
    }
}

/// Whether a pod that is not seen any more is there all the same: somebody may have taken its label.
/// Who cannot be asked is not gone.
async fn is_there(ctx: &Context, filling: &Filling) -> bool {
    let (namespace, name) = pod_of(&filling.request);
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), namespace);
    match pods.get_opt(name).await {
        Ok(pod) => pod.is_some_and(|pod| pod.uid() == filling.request.spec.pod.uid),
        Err(_) => true,
    }
}

/// How long a restore still waits for its pod volumes. It is counted from its beginning.
fn left(restore: &Restore, usual: Duration, now: Timestamp) -> Duration {
    let own = restore.annotations().get(annotation::POD_VOLUME_TIMEOUT);
    let own = own.and_then(|text| text.parse::<bowline_api::Duration>().ok());
    let whole = own.and_then(|own| own.to_std().ok()).unwrap_or(usual);
    let began = restore.status.as_ref().and_then(|s| s.start_timestamp);
    let passed = began.map_or(Duration::ZERO, |Time(began)| {
        Duration::try_from(now.duration_since(began)).unwrap_or_default()
    });
    whole.saturating_sub(passed)
}

/// Notes what went wrong with a volume.
fn tell(log: &Log, request: &PodVolumeRestore, trouble: Option<Trouble>) {
    let Some(Trouble { what, why }) = trouble else {
        return;
    };
    let pod = &request.spec.pod;
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let text = format!(
        "{what}: volume {} of pod {}/{}: {why}",
        request.spec.volume,
        name(&pod.namespace),
        name(&pod.name)
    );
    log.told(Level::Error, &text, &About::default());
}

/// Asks for a request to be given up.
pub(super) async fn cancel(ctx: &Context, request: &PodVolumeRestore) -> Result<()> {
    let name = request.name_any();
    let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
    let api = ctx.api::<PodVolumeRestore>();
    match api.patch(&name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done
            .map(drop)
            .map_err(Error::api(format!("cancel PodVolumeRestore {name}"))),
    }
}

/// What is known of a pod that waits for its volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// It is no more.
    Gone,
    /// It came to its end, in this phase.
    Over(String),
    /// It has no node.
    Unscheduled,
    /// It is on a node.
    On(String),
}

impl Stage {
    fn of(pod: Option<&Pod>, uid: &str) -> Self {
        let Some(pod) = pod.filter(|pod| pod.uid().as_deref() == Some(uid)) else {
            return Self::Gone;
        };
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if let Some(phase @ ("Succeeded" | "Failed")) = phase {
            return Self::Over(phase.to_owned());
        }
        match pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            Some(node) => Self::On(node),
            None => Self::Unscheduled,
        }
    }
}

/// What is known of a volume that is to be filled.
struct Look {
    /// None if it was deleted.
    request: Option<Arc<PodVolumeRestore>>,
    pod: Stage,
}

/// Something that went wrong, in Velero's words and in ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    what: String,
    why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Wait,
    /// It came to its end, well or not.
    Ended(Option<Trouble>),
    /// It will not come to an end by itself.
    GivenUp(Trouble),
}

impl Look {
    fn verdict(&self) -> Verdict {
        let trouble = |what: &str, why: &str| Trouble {
            what: what.to_owned(),
            why: why.to_owned(),
        };
        let (failed, canceled) = ("pod volume restore failed", "pod volume restore canceled");
        let Some(request) = &self.request else {
            return Verdict::Ended(Some(trouble(canceled, "the PodVolumeRestore was deleted")));
        };
        let message = request.status.as_ref().and_then(|s| s.message.as_deref());
        let message = message.unwrap_or_default();
        match request.phase() {
            DataPathPhase::Completed => return Verdict::Ended(None),
            DataPathPhase::Failed => return Verdict::Ended(Some(trouble(failed, message))),
            DataPathPhase::Canceled => return Verdict::Ended(Some(trouble(canceled, message))),
            _ => {}
        }
        match &self.pod {
            Stage::Gone => Verdict::GivenUp(trouble(failed, "the pod is gone")),
            Stage::Over(phase) => {
                Verdict::GivenUp(trouble(failed, &format!("the pod ended as {phase}")))
            }
            Stage::Unscheduled | Stage::On(_) => Verdict::Wait,
        }
    }

    /// What is said when there is no more time.
    fn late(&self) -> Trouble {
        let phase = self.request.as_deref().map(Copy::phase).unwrap_or_default();
        let node = match &self.pod {
            Stage::Unscheduled => "the pod has no node".to_owned(),
            Stage::On(node) => format!("the pod is on node {node}"),
            Stage::Over(phase) => format!("the pod is {phase}"),
            Stage::Gone => "the pod is gone".to_owned(),
        };
        Trouble {
            what: "timed out waiting for all PodVolumeRestores to complete".to_owned(),
            why: format!("it is {}, {node}", phase.as_str()),
        }
    }
}

/// The objects of a kind, as they are.
struct Watch<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    _task: AbortOnDropHandle<()>,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync,
{
    fn start(api: Api<K>, labels: &str, changed: &Arc<Notify>) -> Self {
        let (store, writer) = reflector::store();
        let config = watcher::Config::default().labels(labels);
        let events = watcher(api, config).default_backoff().reflect(writer);
        let changed = Arc::clone(changed);
        let task = events.for_each(move |event| {
            if let Err(error) = event {
                tracing::warn!("watch {}: {error}", K::plural(&()));
            }
            changed.notify_one();
            std::future::ready(())
        });
        Self {
            store,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    fn is_ready(&self) -> bool {
        self.store.wait_until_ready().now_or_never().is_some()
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }
}

/// The requests and pods of a restore.
struct Watches {
    changed: Arc<Notify>,
    requests: Watch<PodVolumeRestore>,
    pods: BTreeMap<String, Watch<Pod>>,
}

impl Watches {
    fn start(ctx: &Context, restore: &Restore, fillings: &[Filling]) -> Self {
        let changed = Arc::new(Notify::new());
        let uid = restore.uid().unwrap_or_default();
        let requests = Watch::start(
            ctx.api(),
            &format!("{}={uid}", label::RESTORE_UID),
            &changed,
        );
        let name = label_value(&restore.name_any());
        let labels = format!("{}={name}", label::RESTORE_NAME);
        let mut pods = BTreeMap::new();
        for filling in fillings {
            let namespace = pod_of(&filling.request).0;
            pods.entry(namespace.to_owned()).or_insert_with(|| {
                let api = Api::namespaced(ctx.client.clone(), namespace);
                Watch::start(api, &labels, &changed)
            });
        }
        Self {
            changed,
            requests,
            pods,
        }
    }

    fn are_ready(&self) -> bool {
        self.requests.is_ready() && self.pods.values().all(Watch::is_ready)
    }

    fn pod(&self, request: &PodVolumeRestore) -> Option<Arc<Pod>> {
        let (namespace, name) = pod_of(request);
        self.pods.get(namespace)?.get(namespace, name)
    }

    fn request(&self, filling: &Filling) -> Option<Arc<PodVolumeRestore>> {
        let namespace = filling.request.namespace().unwrap_or_default();
        self.requests.get(&namespace, &filling.request.name_any())
    }

    fn look(&self, filling: &Filling) -> Look {
        let uid = filling.request.spec.pod.uid.as_deref().unwrap_or_default();
        let pod = self.pod(&filling.request);
        Look {
            request: self.request(filling),
            pod: Stage::of(pod.as_deref(), uid),
        }
    }
}

fn pod_of(request: &PodVolumeRestore) -> (&str, &str) {
    let pod = &request.spec.pod;
    (
        pod.namespace.as_deref().unwrap_or_default(),
        pod.name.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests;
