//! How restored pods are doing. There is one watch for each namespace, of the pods with the restore's
//! label, so that a thousand pods cost no more connections than one.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bowline_api::names::{label, label_value};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

/// How a pod is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing has been heard of it.
    #[default]
    NotYet,
    /// It is there, with these containers.
    Alive(Vec<Container>),
    /// It came to its end, in this phase.
    Ended(String),
    /// It is gone.
    Gone,
}

/// How a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) is_running: bool,
    pub(super) is_ready: bool,
}

impl From<&Pod> for Seen {
    fn from(pod: &Pod) -> Self {
        let Some(status) = &pod.status else {
            return Self::Alive(Vec::new());
        };
        if let Some(phase @ ("Succeeded" | "Failed")) = status.phase.as_deref() {
            return Self::Ended(phase.to_owned());
        }
        let containers = status.container_statuses.iter().flatten();
        Self::Alive(
            containers
                .map(|status| Container {
                    name: status.name.clone(),
                    is_running: status
                        .state
                        .as_ref()
                        .is_some_and(|state| state.running.is_some()),
                    is_ready: status.ready,
                })
                .collect(),
        )
    }
}

/// The pods that a restore made.
pub(super) struct Pods {
    client: Client,
    selector: String,
    namespaces: Mutex<HashMap<String, Namespace>>,
}

struct Namespace {
    pods: Arc<Known>,
    _watch: AbortOnDropHandle<()>,
}

/// What was last seen of each pod.
#[derive(Default)]
struct Known(Mutex<HashMap<String, watch::Sender<Seen>>>);

impl Pods {
    pub(super) fn new(client: Client, restore: &str) -> Self {
        Self {
            client,
            selector: format!("{}={}", label::RESTORE_NAME, label_value(restore)),
            namespaces: Mutex::default(),
        }
    }

    /// Follows a pod that has been created.
    pub(super) fn follow(&self, namespace: &str, name: &str) -> watch::Receiver<Seen> {
        let mut namespaces = lock(&self.namespaces);
        let known = namespaces
            .entry(namespace.to_owned())
            .or_insert_with(|| self.watch(namespace));
        let mut pods = lock(&known.pods.0);
        pods.entry(name.to_owned()).or_default().subscribe()
    }

    fn watch(&self, namespace: &str) -> Namespace {
        let pods = Arc::new(Known::default());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let config = watcher::Config::default().labels(&self.selector);
        let watching = watch(api, config, Arc::clone(&pods));
        Namespace {
            pods,
            _watch: AbortOnDropHandle::new(tokio::spawn(watching)),
        }
    }
}

/// Notes what becomes of the pods of a namespace, without an end.
async fn watch(api: Api<Pod>, config: watcher::Config, known: Arc<Known>) {
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut unlisted = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            // What is known before a list is made, and is not in it, is gone.
            Ok(Event::Init) => unlisted = known.names(),
            Ok(Event::InitApply(pod)) => {
                unlisted.remove(&pod.name_any());
                known.note(&pod.name_any(), (&pod).into());
            }
            Ok(Event::InitDone) => {
                let gone = unlisted.drain();
                gone.for_each(|name| known.note(&name, Seen::Gone));
            }
            Ok(Event::Apply(pod)) => known.note(&pod.name_any(), (&pod).into()),
            Ok(Event::Delete(pod)) => known.note(&pod.name_any(), Seen::Gone),
            Err(error) => warn!("watch restored pods: {error}"),
        }
    }
}

impl Known {
    fn names(&self) -> HashSet<String> {
        lock(&self.0).keys().cloned().collect()
    }

    fn note(&self, name: &str, seen: Seen) {
        let mut pods = lock(&self.0);
        let pod = pods.entry(name.to_owned()).or_default();
        pod.send_if_modified(|old| {
            let differs = *old != seen;
            *old = seen;
            differs
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is noted stays whole even if a holder panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
