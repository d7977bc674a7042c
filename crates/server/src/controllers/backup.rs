//! Backups: queued, validated, made, and seen through to their last phase.
//!
//! One task looks at all backups at once, because who may run depends on the others; each backup
//! that runs has a task of its own (`run.rs`). After a crash everything is derived again from the
//! objects: one that says `InProgress` and is not ours is taken up where the bucket says it is.

mod copies;
pub(in crate::controllers) mod csi;
mod finalize;
mod queue;
mod run;
mod snapshots;
mod tracked;
mod uploads;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use bowline_api::{
    names::{FEATURE_CSI, label},
    v1::{Backup, BackupPhase},
};
use bowline_engine::{backup, filter};
use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, reflector, watcher},
};
use tokio::{task::JoinSet, time::Instant};

use self::queue::{Stage, Step, Waiting};
use super::runs::Runs;
use crate::{Context, Error, Result, csi::handover};

/// The controller's name.
pub const NAME: &str = "backup";
/// How often all backups are looked at, whatever happens.
const LOOK: Duration = Duration::from_secs(60);
/// When a look failed, the next one is this much later.
const AGAIN: Duration = Duration::from_secs(2);

/// Looks after backups until the server stops; returns when those under way have ended or were
/// given up.
pub async fn run(ctx: Arc<Context>) {
    let (store, writer) = reflector::store();
    let changes = watcher(ctx.api::<Backup>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let mut changes = std::pin::pin!(changes);
    let mut runs = Runs::new(&ctx, |ctx| &ctx.running);
    let mut pause = LOOK;
    let mut sweeps = Sweeps::default();
    loop {
        tokio::select! {
            () = ctx.stop.cancelled() => break,
            change = changes.next() => match change {
                Some(Ok(_)) => {}
                Some(Err(error)) => tracing::warn!(controller = NAME, "watch backups: {error}"),
                None => break,
            },
            () = runs.ended(), if !runs.is_empty() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let backups: Vec<Arc<Backup>> = store.state();
        count(&ctx, &backups);
        let done = look(&ctx, &backups, &mut runs).await;
        sweeps.look(&ctx);
        pause = match done {
            Ok(()) => runs.next_try().unwrap_or(LOOK).min(LOOK),
            Err(error) => {
                tracing::warn!(controller = NAME, "{}", error.chain());
                AGAIN
            }
        };
    }
    // Those under way go on until they end, or until the server's patience does.
    while !runs.is_empty() {
        runs.ended().await;
    }
}

/// Looks for what backups that are over have left in the cluster, now and then. That may take its time,
/// and holds up nobody.
#[derive(Default)]
struct Sweeps {
    last: Option<Instant>,
    task: JoinSet<()>,
}

impl Sweeps {
    fn look(&mut self, ctx: &Arc<Context>) {
        while self.task.try_join_next().is_some() {}
        let is_due = self.last.is_none_or(|last| last.elapsed() >= LOOK);
        if !is_due || !self.task.is_empty() || !ctx.settings.has_feature(FEATURE_CSI) {
            return;
        }
        self.last = Some(Instant::now());
        let ctx = Arc::clone(ctx);
        self.task.spawn(async move {
            let swept = async {
                match waiting::is_uninstalled(&ctx).await? {
                    true => Ok(()),
                    false => handover::sweep(&ctx).await,
                }
            };
            if let Err(error) = swept.await {
                tracing::warn!(controller = NAME, "CSI snapshots: {}", error.chain());
            }
        });
    }
}

/// Does what all backups together call for.
async fn look(ctx: &Arc<Context>, backups: &[Arc<Backup>], runs: &mut Runs) -> Result<()> {
    let names: HashSet<String> = backups.iter().map(|backup| backup.name_any()).collect();
    runs.keep(&names);
    let mut waiting = Vec::new();
    for backup in backups {
        if is_unwanted(backup) {
            runs.cancel(&backup.name_any());
        }
        if is_after(backup) {
            // Its objects are copied: it is in nobody's way.
            start(ctx, runs, &backup.name_any());
        } else if runs.is_paused(&backup.name_any()) {
            // In nobody's way either, until it is tried again.
        } else if let Some(stage) = stage(backup, &ctx.running) {
            waiting.push((backup, stage));
        }
    }
    if waiting.iter().all(|(_, stage)| *stage == Stage::Running) {
        return Ok(());
    }
    // With nothing else to run beside, it does not matter what a backup touches.
    let live = if waiting.len() > 1 && slots(ctx) > 1 {
        backup::namespaces(&ctx.client)
            .await
            .map(|live| live.into_iter().map(|ns| ns.name).collect())
            .map_err(|error| Error::Setup(format!("list namespaces: {error}")))?
    } else {
        Vec::new()
    };
    let objects: BTreeMap<String, &Arc<Backup>> = waiting
        .iter()
        .map(|(backup, _)| (backup.name_any(), *backup))
        .collect();
    let waiting = waiting
        .iter()
        .map(|(backup, stage)| Waiting {
            name: backup.name_any(),
            stage: *stage,
            created: created(backup),
            namespaces: touched(backup, &live),
        })
        .collect();
    for step in queue::steps(waiting, slots(ctx)) {
        match step {
            Step::Start(name) => start(ctx, runs, &name),
            Step::Wait(name, place) => {
                let old = &**objects[&name];
                let mut new = old.clone();
                let status = new.status_mut();
                status.phase = Some(BackupPhase::Queued);
                status.queue_position = Some(place);
                match ctx.update(old, &new).await {
                    Err(error) if error.is_stale() => {}
                    done => drop(done?),
                }
            }
        }
    }
    Ok(())
}

/// Gives a backup a task of its own.
fn start(ctx: &Arc<Context>, runs: &mut Runs, name: &str) {
    let (ctx, owned) = (Arc::clone(ctx), name.to_owned());
    runs.start(name, |cancel| async move {
        run::backup(&ctx, &owned, cancel).await
    });
}

/// Whether somebody wants it deleted, whatever it is at.
fn is_unwanted(backup: &Backup) -> bool {
    let status = backup.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_ref());
    backup.metadata.deletion_timestamp.is_some() || phase == Some(&BackupPhase::Deleting)
}

/// Whether the objects are copied and something is left to do.
fn is_after(backup: &Backup) -> bool {
    let phase = backup
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    matches!(
        phase,
        Some(
            BackupPhase::WaitingForPluginOperations
                | BackupPhase::WaitingForPluginOperationsPartiallyFailed
                | BackupPhase::Finalizing
                | BackupPhase::FinalizingPartiallyFailed
        )
    ) && backup.metadata.deletion_timestamp.is_none()
}

fn slots(ctx: &Context) -> usize {
    usize::try_from(ctx.settings.concurrent_backups)
        .unwrap_or(1)
        .max(1)
}

/// Where a backup stands, unless its objects have been copied.
fn stage(backup: &Backup, running: &crate::context::Running) -> Option<Stage> {
    if running.contains(&backup.name_any()) {
        return Some(Stage::Running);
    }
    if backup.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = backup.status.as_ref();
    let phase = status
        .and_then(|status| status.phase.clone())
        .unwrap_or_default();
    match phase {
        BackupPhase::New => Some(Stage::New),
        BackupPhase::Other(other) if other.is_empty() => Some(Stage::New),
        BackupPhase::Queued => Some(Stage::Queued(
            status
                .and_then(|status| status.queue_position)
                .unwrap_or(i64::MAX),
        )),
        BackupPhase::ReadyToStart => Some(Stage::Ready),
        BackupPhase::InProgress => Some(Stage::Orphaned),
        _ => None,
    }
}

fn created(backup: &Backup) -> Timestamp {
    backup
        .creation_timestamp()
        .map_or(Timestamp::MAX, |time| time.0)
}

/// The live namespaces that a backup is about; a spec that cannot be used touches none.
fn touched(backup: &Backup, live: &[String]) -> BTreeSet<String> {
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    let spec = &backup.spec;
    let includes = spec.included_namespaces.clone().unwrap_or_default();
    let excludes = spec.excluded_namespaces.clone().unwrap_or_default();
    filter::resolve(&includes, &excludes, &live)
        .map(|namespaces| namespaces.chosen(&live).into_iter().collect())
        .unwrap_or_default()
}

/// Tells the metrics how many backups there are.
fn count(ctx: &Context, backups: &[Arc<Backup>]) {
    let mut newest: BTreeMap<String, Timestamp> = BTreeMap::new();
    for backup in backups {
        let Some(status) = &backup.status else {
            continue;
        };
        if status.phase != Some(BackupPhase::Completed) {
            continue;
        }
        if let Some(time) = &status.completion_timestamp {
            let newest = newest.entry(schedule(backup)).or_insert(time.0);
            *newest = (*newest).max(time.0);
        }
    }
    ctx.metrics.backups_counted(backups.len(), &newest);
}

/// The schedule that made a backup; empty when nobody but a person did.
fn schedule(backup: &Backup) -> String {
    backup
        .labels()
        .get(label::SCHEDULE_NAME)
        .cloned()
        .unwrap_or_default()
}
