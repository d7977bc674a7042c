//! One file per kind, all of one shape: a pure decision with a table of tests, and a reconciler that
//! acts on it. What they share is here: the loop that calls them, and calls that mind neither being
//! late nor being repeated.

pub mod abandoned;
pub mod backup;
pub mod deletion;
pub mod download;
pub mod expiry;
pub mod location;
mod operations;
pub mod repository;
pub mod restore;
pub(crate) mod runs;
pub mod schedule;
pub mod server_status;
pub mod sync;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::VeleroResource;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{
        Controller,
        controller::{self, Action},
        watcher,
    },
};

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing_subscriber::filter::LevelFilter;

use crate::{Context, Error, Result};

/// The longest time between two looks at an object, whatever the clock does meanwhile.
const LOOK: Duration = Duration::from_secs(60);
/// When somebody else was faster, look again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest time between two tries of what fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Looks after the objects of a kind.
trait Reconciler: Send + Sync + Sized + 'static {
    /// The kind.
    type Object: VeleroResource
        + kube::Resource<Scope = NamespaceResourceScope>
        + std::fmt::Debug
        + Send
        + Sync;
    /// The controller's name.
    const NAME: &'static str;
    /// How many objects are looked after at the same time; each of them by one at a time.
    const PARALLEL: u16 = 16;

    /// Looks at an object, does what is to be done, and says when to look again. The object may be
    /// a little old.
    fn reconcile(
        self: Arc<Self>,
        object: Arc<Self::Object>,
    ) -> impl Future<Output = Result<Action>> + Send;

    /// An object of this name is no more. Comes late, and only if it was to be looked at again.
    fn gone(&self, _name: &str) {}
}

/// Calls a reconciler for every object until the server stops. Work that is under way then is
/// dropped: each reconciler can go on from wherever it was.
async fn run<R: Reconciler>(ctx: &Arc<Context>, reconciler: R) {
    let failures = Mutex::new(HashMap::<String, u32>::new());
    let failures = &failures;
    let reconciler = Arc::new(reconciler);
    let watching = Arc::clone(&reconciler);
    Controller::new(ctx.api::<R::Object>(), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(R::PARALLEL))
        .run(
            |object, reconciler: Arc<R>| reconciler.reconcile(object),
            |object, error, _| {
                if error.is_stale() {
                    return Action::requeue(AGAIN);
                }
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                let count = failures.entry(object.name_any()).or_default();
                *count = count.saturating_add(1);
                Action::requeue(pause(*count))
            },
            reconciler,
        )
        .take_until(ctx.stop.cancelled())
        .for_each(|result| async {
            let forget = |name: &str| {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.remove(name);
            };
            match result {
                Ok((object, _)) => forget(&object.name),
                Err(controller::Error::ObjectNotFound(object)) => {
                    forget(&object.name);
                    watching.gone(&object.name);
                }
                Err(controller::Error::ReconcilerFailed(error, object)) if error.is_stale() => {
                    tracing::debug!(
                        controller = R::NAME,
                        object = %object.name,
                        "will look again: {}",
                        error.chain()
                    );
                }
                Err(controller::Error::ReconcilerFailed(error, object)) => tracing::error!(
                    controller = R::NAME,
                    object = %object.name,
                    "{}",
                    error.chain()
                ),
                Err(error) => tracing::warn!(controller = R::NAME, "{error}"),
            }
        })
        .await;
}

/// Doubles with every failure in a row.
fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
}

/// Look again at a time, or earlier.
fn at(time: Timestamp, now: Timestamp) -> Action {
    after(time.duration_since(now))
}

/// Look again after a while, or earlier.
fn after(wait: SignedDuration) -> Action {
    // A moment later rather than a moment early, which would be a look for nothing.
    let wait = Duration::try_from(wait).unwrap_or_default() + Duration::from_millis(5);
    Action::requeue(wait.min(LOOK))
}

/// A status is patched again for so long when the API server does not take it.
const PATIENCE: Duration = Duration::from_secs(600);
/// How old a progress figure may be.
const TICK: Duration = Duration::from_secs(1);
/// How long the last one may take.
const LAST: Duration = Duration::from_secs(10);

/// Tries again while the API server does not answer as it should, for a good while.
pub(crate) async fn patiently<T, F: Future<Output = Result<T>>>(
    ctx: &Context,
    mut call: impl FnMut() -> F,
) -> Result<T> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match call().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if ctx.abort.is_cancelled() || began.elapsed() > PATIENCE {
            return Err(error);
        }
        if !error.is_stale() {
            tracing::warn!("{}", error.chain());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// Patches how far something is, once a second at most, and only when that has changed.
pub(crate) struct Telling {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Telling {
    /// Begins; `now` is the patch as it would be now.
    fn start<K>(
        ctx: &Arc<Context>,
        object: &K,
        now: impl Fn() -> Value + Send + Sync + 'static,
    ) -> Self
    where
        K: VeleroResource
            + kube::Resource<Scope = NamespaceResourceScope>
            + std::fmt::Debug
            + 'static,
    {
        Self::every(TICK, ctx, object, now)
    }

    /// Begins, with a pace of its own.
    pub(crate) fn every<K>(
        tick: Duration,
        ctx: &Arc<Context>,
        object: &K,
        now: impl Fn() -> Value + Send + Sync + 'static,
    ) -> Self
    where
        K: VeleroResource
            + kube::Resource<Scope = NamespaceResourceScope>
            + std::fmt::Debug
            + 'static,
    {
        let stop = CancellationToken::new();
        let (name, uid) = (object.name_any(), object.uid());
        let ticks = tokio::time::interval(tick);
        let telling = tell(ctx.api::<K>(), name, uid, now, ticks, stop.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(telling));
        Self { stop, task }
    }

    /// Ends. A patch that is under way must not come after those that follow.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(LAST, self.task).await;
    }
}

async fn tell<K>(
    api: Api<K>,
    name: String,
    uid: Option<String>,
    now: impl Fn() -> Value,
    mut ticks: tokio::time::Interval,
    stop: CancellationToken,
) where
    K: VeleroResource + std::fmt::Debug,
{
    let mut told = now();
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        let mut patch = now();
        if patch == told {
            continue;
        }
        told = patch.clone();
        patch["metadata"]["uid"] = json!(uid);
        let params = PatchParams::default();
        if let Err(error) = api.patch(&name, &params, &Patch::Merge(&patch)).await {
            told = Value::Null;
            tracing::debug!(name, "progress: {error}");
        }
    }
}

/// Which lines of a run are kept.
fn log_level(ctx: &Context) -> bowline_engine::log::Level {
    if ctx.settings.log_level.filter() >= LevelFilter::DEBUG {
        bowline_engine::log::Level::Debug
    } else {
        bowline_engine::log::Level::Info
    }
}

impl Context {
    /// The object, or none when there is no such object.
    pub(crate) async fn find<K>(&self, name: &str) -> Result<Option<K>>
    where
        K: VeleroResource + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        if name.is_empty() {
            return Ok(None);
        }
        self.api::<K>()
            .get_opt(name)
            .await
            .map_err(Error::api(format!("read {} {name}", K::KIND)))
    }

    /// All objects of a kind, or those with the labels.
    pub(crate) async fn list<K>(&self, labels: &str) -> Result<Vec<K>>
    where
        K: VeleroResource + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        let params = ListParams::default().labels(labels);
        let list = self.api::<K>().list(&params).await;
        Ok(list
            .map_err(Error::api(format!("list {}", K::PLURAL)))?
            .items)
    }

    /// Creates an object; none when there is one of that name already.
    pub(crate) async fn create<K>(&self, object: &K) -> Result<Option<K>>
    where
        K: VeleroResource + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        match self.api::<K>().create(&PostParams::default(), object).await {
            Ok(created) => Ok(Some(created)),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
            Err(e) => {
                let action = format!("create {} {}", K::KIND, object.name_any());
                Err(Error::api(action)(e))
            }
        }
    }

    /// Deletes this very object and no later one of its name; one that is gone is no error.
    pub(crate) async fn delete<K>(&self, object: &K) -> Result<()>
    where
        K: VeleroResource + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        let name = object.name_any();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: object.uid(),
                resource_version: None,
            }),
            ..Default::default()
        };
        match self.api::<K>().delete(&name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(())
            }
            Err(e) => Err(Error::api(format!("delete {} {name}", K::KIND))(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;
    use kube::runtime::controller::Action;

    use super::{after, pause};

    #[test]
    fn pauses_grow_to_five_minutes() {
        let pauses = [1, 2, 3, 9, 10, 500].map(|n| pause(n).as_secs());
        assert_eq!(pauses, [1, 2, 4, 256, 300, 300]);
    }

    #[test]
    fn nothing_is_left_alone_for_longer_than_a_minute() {
        for (wait, millis) in [(-5, 5), (0, 5), (20, 20_005), (3600, 60_000)] {
            assert_eq!(
                after(SignedDuration::from_secs(wait)),
                Action::requeue(Duration::from_millis(millis))
            );
        }
    }
}
