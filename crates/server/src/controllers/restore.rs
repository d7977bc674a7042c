//! Restores: validated, made, and seen through to their last phase; their files go with them.
//!
//! One task looks at all restores at once, because two that may touch the same objects do not run
//! beside each other; each that runs has a task of its own (`run.rs`). After a crash everything is
//! derived again from the objects: one that says `InProgress` and is not ours is made again, and
//! finds what is done already.

mod downloads;
mod finish;
mod groups;
mod pods;
mod run;
mod snapshots;
mod told;
mod volumes;
mod waiting;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use bowline_api::v1::{Restore, RestorePhase, RestoreSpec};
use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, reflector, watcher},
};

use super::runs::Runs;
use crate::Context;

/// The controller's name.
pub const NAME: &str = "restore";
/// How often all restores are looked at, whatever happens.
const LOOK: Duration = Duration::from_secs(60);
/// Restores at the same time.
const SLOTS: usize = 4;

/// Looks after restores until the server stops; returns when those under way have ended or were
/// given up.
pub async fn run(ctx: Arc<Context>) {
    let (store, writer) = reflector::store();
    let changes = watcher(ctx.api::<Restore>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let mut changes = std::pin::pin!(changes);
    let mut runs = Runs::new(&ctx, |ctx| &ctx.restoring);
    loop {
        let pause = runs.next_try().unwrap_or(LOOK).min(LOOK);
        tokio::select! {
            () = ctx.stop.cancelled() => break,
            change = changes.next() => match change {
                Some(Ok(_)) => {}
                Some(Err(error)) => tracing::warn!(controller = NAME, "watch restores: {error}"),
                None => break,
            },
            () = runs.ended(), if !runs.is_empty() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let restores: Vec<Arc<Restore>> = store.state();
        ctx.metrics.restores_counted(restores.len());
        look(&ctx, &restores, &mut runs);
    }
    // Those under way go on until they end, or until the server's patience does.
    while !runs.is_empty() {
        runs.ended().await;
    }
}

/// Does what all restores together call for.
fn look(ctx: &Arc<Context>, restores: &[Arc<Restore>], runs: &mut Runs) {
    let names: HashSet<String> = restores.iter().map(|r| r.name_any()).collect();
    runs.keep(&names);
    let mut waiting = Vec::new();
    for restore in restores {
        let name = restore.name_any();
        let is_running = ctx.restoring.contains(&name);
        if is_running && restore.metadata.deletion_timestamp.is_some() {
            runs.cancel(&name);
        }
        match stage(restore, is_running) {
            Stage::Over => {}
            Stage::Free if runs.is_paused(&name) => {}
            Stage::Free => start(ctx, runs, &name),
            stage => waiting.push(Waiting {
                reach: Reach::of(&restore.spec),
                created: created(restore),
                name,
                stage,
            }),
        }
    }
    for name in startable(waiting, SLOTS) {
        start(ctx, runs, &name);
    }
}

fn start(ctx: &Arc<Context>, runs: &mut Runs, name: &str) {
    let (ctx, owned) = (Arc::clone(ctx), name.to_owned());
    runs.start(name, |cancel| async move {
        run::restore(&ctx, &owned, cancel).await
    });
}

/// Where a restore stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Somebody in this process makes it.
    Running,
    /// Another server was making it.
    Orphaned,
    /// Nobody has looked at it.
    New,
    /// Its objects are there and something is left to do, or it is to go: it is in nobody's way.
    Free,
    /// Nothing is left to do.
    Over,
}

fn stage(restore: &Restore, is_running: bool) -> Stage {
    let is_held = || !restore.finalizers().is_empty();
    if restore.metadata.deletion_timestamp.is_some() {
        return match (is_running, is_held()) {
            (true, _) => Stage::Running,
            (false, true) => Stage::Free,
            (false, false) => Stage::Over,
        };
    }
    let status = restore.status.as_ref();
    let phase = status.and_then(|s| s.phase.clone()).unwrap_or_default();
    match phase {
        RestorePhase::Finalizing
        | RestorePhase::FinalizingPartiallyFailed
        | RestorePhase::WaitingForPluginOperations
        | RestorePhase::WaitingForPluginOperationsPartiallyFailed => Stage::Free,
        _ if is_running => Stage::Running,
        RestorePhase::InProgress => Stage::Orphaned,
        RestorePhase::New => Stage::New,
        RestorePhase::Other(other) if other.is_empty() => Stage::New,
        _ => Stage::Over,
    }
}

fn created(restore: &Restore) -> Timestamp {
    restore
        .creation_timestamp()
        .map_or(Timestamp::MAX, |time| time.0)
}

/// A restore that runs or wants to.
#[derive(Debug)]
struct Waiting {
    name: String,
    stage: Stage,
    created: Timestamp,
    reach: Reach,
}

/// Who may begin: the oldest first, none that reaches where one before it does.
fn startable(mut waiting: Vec<Waiting>, slots: usize) -> Vec<String> {
    waiting.sort_by(|a, b| (a.stage, a.created, &a.name).cmp(&(b.stage, b.created, &b.name)));
    let mut free = slots;
    let mut before: Vec<&Waiting> = Vec::new();
    let mut start = Vec::new();
    for one in &waiting {
        let in_the_way = before.iter().any(|other| other.reach.meets(&one.reach));
        if one.stage == Stage::Running {
            free = free.saturating_sub(1);
        } else if !in_the_way && free > 0 {
            free -= 1;
            start.push(one.name.clone());
        }
        before.push(one);
    }
    start
}

/// What a restore may touch.
#[derive(Debug, PartialEq, Eq)]
struct Reach {
    /// Cluster-scoped objects, beyond what namespaced ones bring along.
    cluster: bool,
    /// Namespaces by their new names; none for any.
    namespaces: Option<BTreeSet<String>>,
}

impl Reach {
    fn of(spec: &RestoreSpec) -> Self {
        let included = spec.included_namespaces.as_deref().unwrap_or_default();
        let named =
            !included.is_empty() && !included.iter().any(|n| n.contains(['*', '?', '[', '{']));
        let mapping = spec.namespace_mapping.as_ref();
        let target = |name: &String| {
            let mapped = mapping.and_then(|mapping| mapping.get(name));
            mapped.unwrap_or(name).clone()
        };
        Self {
            cluster: spec.include_cluster_resources.unwrap_or(!named),
            namespaces: named.then(|| included.iter().map(target).collect()),
        }
    }

    fn meets(&self, other: &Self) -> bool {
        let namespaces = match (&self.namespaces, &other.namespaces) {
            (Some(ours), Some(theirs)) => !ours.is_disjoint(theirs),
            _ => true,
        };
        namespaces || (self.cluster && other.cluster)
    }
}

/// The schedule whose backup is restored; empty when it was made by hand.
fn schedule(restore: &Restore) -> String {
    restore.spec.schedule_name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn waiting(name: &str, stage: Stage, spec: Value) -> Waiting {
        Waiting {
            name: name.to_owned(),
            stage,
            created: Timestamp::UNIX_EPOCH,
            reach: Reach::of(&serde_json::from_value(spec).unwrap()),
        }
    }

    #[test]
    fn restores_that_may_meet_wait_for_each_other() {
        let a = || json!({"includedNamespaces": ["a"]});
        let b = || json!({"includedNamespaces": ["b"]});
        let to_a = || json!({"includedNamespaces": ["b"], "namespaceMapping": {"b": "a"}});
        let with_cluster =
            |name: &str| json!({"includedNamespaces": [name], "includeClusterResources": true});
        let all = || json!({});
        for (first, second, expected) in [
            (a(), b(), vec!["1", "2"]),
            (a(), a(), vec!["1"]),
            (a(), to_a(), vec!["1"]),
            (b(), to_a(), vec!["1", "2"]),
            (a(), all(), vec!["1"]),
            (with_cluster("a"), with_cluster("b"), vec!["1"]),
            (a(), with_cluster("b"), vec!["1", "2"]),
        ] {
            let both = vec![
                waiting("1", Stage::New, first.clone()),
                waiting("2", Stage::New, second.clone()),
            ];
            assert_eq!(startable(both, SLOTS), expected, "{first} {second}");
        }
    }

    #[test]
    fn what_was_begun_goes_first_and_slots_count() {
        let spec = |name: &str| json!({"includedNamespaces": [name]});
        let list = vec![
            waiting("new", Stage::New, spec("a")),
            waiting("orphan", Stage::Orphaned, spec("b")),
            waiting("running", Stage::Running, spec("c")),
        ];
        assert_eq!(startable(list, 2), ["orphan"]);
    }

    #[test]
    fn stages_follow_phases() {
        let restore = |phase: Value, gone: bool, held: bool| -> Restore {
            let mut metadata = json!({"name": "r"});
            if gone {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            if held {
                metadata["finalizers"] = json!(["f"]);
            }
            serde_json::from_value(
                json!({"metadata": metadata, "spec": {}, "status": {"phase": phase}}),
            )
            .unwrap()
        };
        for (phase, gone, held, running, expected) in [
            (json!(null), false, false, false, Stage::New),
            (json!("New"), false, true, false, Stage::New),
            (json!("InProgress"), false, true, false, Stage::Orphaned),
            (json!("InProgress"), false, true, true, Stage::Running),
            (json!("InProgress"), true, true, true, Stage::Running),
            (json!("InProgress"), true, true, false, Stage::Free),
            (json!("Completed"), true, true, false, Stage::Free),
            (json!("Completed"), true, false, false, Stage::Over),
            (json!("Completed"), false, true, false, Stage::Over),
            (json!("Finalizing"), false, true, false, Stage::Free),
        ] {
            let found = stage(&restore(phase.clone(), gone, held), running);
            assert_eq!(found, expected, "{phase} {gone} {held} {running}");
        }
    }
}
