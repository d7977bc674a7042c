//! Looks at all copies of this node at once, and gives each that needs it a task.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bowline_api::{
    v1::{DataPathPhase, PodVolumeBackup, PodVolumeRestore},
    v2alpha1::{DataDownload, DataUpload},
};
use bowline_engine::movement::Mover;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    Node,
    copy::{Copy, OfPod},
    movement::{self, Movement},
    restore,
    step::{self, Step},
    work::{self, Work},
};
use crate::{context::Running, controllers::runs::Runs, error::chain};

/// How often everything is looked at, whatever happens.
const LOOK: Duration = Duration::from_secs(60);

/// What is known.
struct Seen {
    backups: Store<PodVolumeBackup>,
    restores: Store<PodVolumeRestore>,
    uploads: Store<DataUpload>,
    downloads: Store<DataDownload>,
    pods: Store<Pod>,
}

/// Looks after copies until `quit`; returns when those under way have ended, and how many there were.
pub(super) async fn run(node: Arc<Node>, quit: CancellationToken) -> usize {
    let ctx = &node.ctx;
    let here = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name));
    let (backups, backup_changes) = follow(ctx.api(), watcher::Config::default());
    let (restores, restore_changes) = follow(ctx.api(), watcher::Config::default());
    let (uploads, upload_changes) = follow(ctx.api(), watcher::Config::default());
    let (downloads, download_changes) = follow(ctx.api(), watcher::Config::default());
    let (pods, pod_changes) = follow(Api::<Pod>::all(ctx.client.clone()), here);
    let seen = Seen {
        backups,
        restores,
        uploads,
        downloads,
        pods,
    };
    let changes = futures::stream::select_all([
        backup_changes.boxed(),
        restore_changes.boxed(),
        upload_changes.boxed(),
        download_changes.boxed(),
        pod_changes.boxed(),
    ]);
    let mut changes = std::pin::pin!(changes);
    let mut uploads = Runs::new(ctx, |ctx| &ctx.running);
    let mut downloads = Runs::new(ctx, |ctx| &ctx.restoring);
    let mut moves_out = Runs::new(ctx, |ctx| &ctx.moving_out);
    let mut moves_in = Runs::new(ctx, |ctx| &ctx.moving_in);
    loop {
        let tries = [
            uploads.next_try(),
            downloads.next_try(),
            moves_out.next_try(),
            moves_in.next_try(),
        ];
        let pause = tries.into_iter().flatten().min().unwrap_or(LOOK).min(LOOK);
        tokio::select! {
            () = quit.cancelled() => break,
            change = changes.next() => match change {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::warn!("watch the copies of this node: {error}"),
                None => break,
            },
            () = uploads.ended(), if !uploads.is_empty() => {}
            () = downloads.ended(), if !downloads.is_empty() => {}
            () = moves_out.ended(), if !moves_out.is_empty() => {}
            () = moves_in.ended(), if !moves_in.is_empty() => {}
            () = tokio::time::sleep(pause) => {}
        }
        if seen.is_whole() {
            look_at_backups(&node, &seen, &mut uploads);
            look_at_restores(&node, &seen, &mut downloads);
            let (out, back) = (seen.uploads.state(), seen.downloads.state());
            let preparing = preparing(&out, &ctx.moving_out) + preparing(&back, &ctx.moving_in);
            let queue = node.config.queue().unwrap_or(usize::MAX);
            let mut room = queue.saturating_sub(preparing);
            look_at_movements(&node, &out, &ctx.moving_out, &mut room, &mut moves_out);
            look_at_movements(&node, &back, &ctx.moving_in, &mut room, &mut moves_in);
        }
    }
    let under_way = ctx.running.len() + ctx.restoring.len();
    for runs in [&mut uploads, &mut downloads, &mut moves_out, &mut moves_in] {
        while !runs.is_empty() {
            runs.ended().await;
        }
    }
    under_way
}

/// How many movements are being prepared, by any node.
fn preparing<K: Movement>(movements: &[Arc<K>], running: &Running) -> usize {
    let is_preparing = |found: &&Arc<K>| match found.phase() {
        _ if found.mover() != Mover::Ours => false,
        DataPathPhase::Accepted => true,
        // This node takes it just now.
        DataPathPhase::New => running.contains(&found.name_any()),
        _ => false,
    };
    movements.iter().filter(is_preparing).count()
}

fn look_at_movements<K: Movement>(
    node: &Arc<Node>,
    movements: &[Arc<K>],
    running: &Running,
    room: &mut usize,
    runs: &mut Runs,
) {
    runs.keep(&names(movements));
    for found in movements {
        let name = found.name_any();
        let is_running = running.contains(&name);
        let step = movement::next(&**found, &node.name, *room > 0, is_running);
        if step == movement::Step::Begin && found.phase() == DataPathPhase::New {
            *room = room.saturating_sub(1);
        }
        let (node, found) = (Arc::clone(node), Arc::clone(found));
        match step {
            movement::Step::Leave => {}
            movement::Step::Stop => runs.cancel(&name),
            movement::Step::Begin => {
                let owned = name.clone();
                runs.start(&name, |cancel| async move {
                    movement::run::<K>(&node, &owned, &cancel).await
                });
            }
            movement::Step::Cancel => {
                runs.start(
                    &name,
                    |_| async move { movement::cancel(&node, &*found).await },
                );
            }
            movement::Step::Tidy => {
                runs.start(
                    &name,
                    |_| async move { movement::tidy(&node, &*found).await },
                );
            }
        }
    }
}

/// Objects of a kind, and word whenever one changes.
fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
) -> (Store<K>, impl Stream<Item = Result<(), String>> + Send)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let changes = watcher(api, config)
        .default_backoff()
        .modify(|object| object.meta_mut().managed_fields = None)
        .reflect(writer)
        .map(|change| change.map(drop).map_err(|error| chain(&error)));
    (store, changes)
}

impl Seen {
    /// Whether everything was seen once: what is not there is then known not to be.
    fn is_whole(&self) -> bool {
        let is_ready = |ready: Option<Result<(), _>>| matches!(ready, Some(Ok(())));
        is_ready(self.backups.wait_until_ready().now_or_never())
            && is_ready(self.restores.wait_until_ready().now_or_never())
            && is_ready(self.uploads.wait_until_ready().now_or_never())
            && is_ready(self.downloads.wait_until_ready().now_or_never())
            && is_ready(self.pods.wait_until_ready().now_or_never())
    }

    fn pod<K: OfPod>(&self, copy: &K) -> Option<Arc<Pod>> {
        let meant = copy.pod();
        let name = meant.name.as_deref().unwrap_or_default();
        let namespace = meant.namespace.as_deref().unwrap_or_default();
        self.pods.get(&ObjectRef::new(name).within(namespace))
    }
}

fn look_at_backups(node: &Arc<Node>, seen: &Seen, runs: &mut Runs) {
    let backups = seen.backups.state();
    runs.keep(&names(&backups));
    for backup in backups {
        let is_running = node.ctx.running.contains(&backup.name_any());
        let pod = seen.pod(&*backup);
        let step = step::of_backup(&backup, &node.name, pod.as_deref(), is_running);
        act(node, &backup, step, runs);
    }
}

fn look_at_restores(node: &Arc<Node>, seen: &Seen, runs: &mut Runs) {
    let restores = seen.restores.state();
    runs.keep(&names(&restores));
    for restore in restores {
        let is_running = node.ctx.restoring.contains(&restore.name_any());
        let pod = seen.pod(&*restore);
        let step = step::of_restore(&restore, &node.name, pod.as_deref(), is_running);
        if step == Step::Begin && pod.is_some_and(|pod| step::before_helper(&pod) > 0) {
            tracing::warn!(
                copy = restore.name_any(),
                "init containers run before the one that waits for volumes, and may meddle with them"
            );
        }
        let name = restore.name_any();
        let (node, restore) = (Arc::clone(node), Arc::clone(&restore));
        match step {
            Step::Conclude => runs.start(&name, |_| async move {
                restore::conclude(&node, &restore).await
            }),
            Step::TooLate => runs.start(&name, |_| async move {
                restore::too_late(&node, &restore).await
            }),
            step => act(&node, &restore, step, runs),
        }
    }
}

fn act<K: Work>(node: &Arc<Node>, copy: &Arc<K>, step: Step, runs: &mut Runs) {
    let name = copy.name_any();
    let (node, copy) = (Arc::clone(node), Arc::clone(copy));
    match step {
        Step::Leave | Step::Conclude | Step::TooLate => {}
        Step::Stop => runs.cancel(&name),
        Step::Begin => {
            let owned = name.clone();
            runs.start(&name, |cancel| async move {
                work::run::<K>(&node, &owned, &cancel).await
            });
        }
        Step::Cancel => runs.start(&name, |_| async move { work::cancel(&node, &*copy).await }),
        Step::Release => runs.start(&name, |_| async move { work::release(&node, &*copy).await }),
    }
}

fn names<K: Copy>(copies: &[Arc<K>]) -> HashSet<String> {
    copies.iter().map(|copy| copy.name_any()).collect()
}
