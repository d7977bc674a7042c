//! Copies of volumes whose node process is gone: they fail, so that nobody waits for ever, and what was
//! made for them is cleared away.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bowline_api::{
    names::NODE_LEASE_PREFIX,
    v1::{DataPathPhase, PodVolumeBackup, PodVolumeRestore},
    v2alpha1::{DataDownload, DataUpload},
};
use bowline_engine::movement::Mover;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher,
    },
};
use tokio::time::Instant;

use crate::{
    Context, Error, Result,
    node::{
        copy::{self, Copy},
        movement::{Movement, expose},
    },
    nodes::{self, Signs},
};

/// The controller's name. It cannot be disabled.
pub const NAME: &str = "abandoned-volumes";
/// How often nodes are looked at while something depends on them.
const LOOK: Duration = Duration::from_secs(5);

/// A movement of data that nobody has taken is a matter for node processes for so long.
const UNTAKEN: Duration = Duration::from_secs(60);
/// How long a node that is well may be without a process while data is moved there: it may be about to get
/// a new one, whose image takes a while.
const ABSENCE: Duration = Duration::from_secs(600);

/// What is known.
struct Seen {
    backups: Vec<Arc<PodVolumeBackup>>,
    restores: Vec<Arc<PodVolumeRestore>>,
    uploads: Vec<Arc<DataUpload>>,
    downloads: Vec<Arc<DataDownload>>,
}

/// Looks after copies until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let (backups, backup_changes) = follow::<PodVolumeBackup>(&ctx);
    let (restores, restore_changes) = follow::<PodVolumeRestore>(&ctx);
    let (uploads, upload_changes) = follow::<DataUpload>(&ctx);
    let (downloads, download_changes) = follow::<DataDownload>(&ctx);
    let changes = stream::select_all([
        backup_changes,
        restore_changes,
        upload_changes,
        download_changes,
    ]);
    let mut changes = std::pin::pin!(changes);
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut signs = Signs::default();
    loop {
        tokio::select! {
            () = ctx.stop.cancelled() => return,
            // The stores are kept by looking at what comes.
            change = changes.next() => match change {
                Some(Ok(())) => continue,
                Some(Err(error)) => {
                    tracing::warn!(controller = NAME, "watch copies of volumes: {error}");
                    continue;
                }
                None => return,
            },
            _ = looks.tick() => {}
        }
        let seen = Seen {
            backups: backups.state(),
            restores: restores.state(),
            uploads: uploads.state(),
            downloads: downloads.state(),
        };
        if let Err(error) = look(&ctx, seen, &mut signs).await {
            tracing::warn!(controller = NAME, "{}", error.chain());
        }
    }
}

fn follow<K: Copy>(
    ctx: &Context,
) -> (
    Store<K>,
    stream::BoxStream<'static, Result<(), watcher::Error>>,
) {
    let (store, writer) = reflector::store();
    let changes = watcher(ctx.api::<K>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .map(|change| change.map(drop));
    (store, changes.boxed())
}

/// Fails the copies of nodes that have been silent for too long.
async fn look(ctx: &Context, mut seen: Seen, signs: &mut Signs) -> Result<()> {
    seen.backups.retain(|copy| is_going_on(&**copy));
    seen.restores.retain(|copy| is_going_on(&**copy));
    seen.uploads.retain(|copy| is_held(&**copy));
    seen.downloads.retain(|copy| is_held(&**copy));
    let is_idle = seen.backups.is_empty() && seen.restores.is_empty();
    if is_idle && seen.uploads.is_empty() && seen.downloads.is_empty() {
        *signs = Signs::default();
        return Ok(());
    }
    let mut of_restores = BTreeMap::new();
    for restore in &seen.restores {
        if let Some(node) = node_of(ctx, restore).await? {
            of_restores.insert(restore.name_any(), node);
        }
    }
    let leases = nodes::leases(ctx).await?;
    let live: Vec<String> = leases
        .iter()
        .filter_map(|lease| Some(lease.name_any().strip_prefix(NODE_LEASE_PREFIX)?.to_owned()))
        .collect();
    let nodes: BTreeSet<&str> = seen
        .backups
        .iter()
        .map(|copy| copy.spec.node.as_str())
        .chain(of_restores.values().map(String::as_str))
        .chain(seen.uploads.iter().filter_map(|copy| keeper(&**copy)))
        .chain(seen.downloads.iter().filter_map(|copy| keeper(&**copy)))
        .chain(live.iter().map(String::as_str))
        .collect();
    // One moment for all: clearing away takes its time, in which nobody falls silent.
    let (now, wall) = (Instant::now(), ctx.now());
    signs.update(&leases, nodes.iter().copied(), now);
    let silent = |node: &str, has_pod| signs.silence(node, has_pod, now, wall);
    if !live.is_empty() && !nodes.iter().any(|node| silent(node, false).is_some()) {
        return Ok(());
    }
    let pods = nodes::pods(ctx).await?;
    let silence = |node: &str| silent(node, pods.iter().any(|on| on == node));
    let why = |node: &str| silence(node).map(|silence| silence.of(node));
    for copy in &seen.backups {
        if let Some(why) = why(&copy.spec.node) {
            fail(ctx, &**copy, &why).await?;
        }
    }
    for copy in &seen.restores {
        let node = of_restores.get(&copy.name_any());
        if let Some(why) = node.and_then(|node| why(node)) {
            fail(ctx, &**copy, &why).await?;
        }
    }
    let is_deserted = pods.is_empty() && live.iter().all(|node| why(node).is_some());
    let mut waiting = BTreeSet::new();
    for node in nodes {
        if silence(node).is_some_and(|silence| silence.seen < ABSENCE)
            && nodes::is_ready(ctx, node).await?
        {
            waiting.insert(node);
        }
    }
    let judge = Judge {
        now: wall,
        why: &why,
        waiting,
        is_deserted,
    };
    tokio::join!(
        end(ctx, &seen.uploads, &judge),
        end(ctx, &seen.downloads, &judge),
    );
    Ok(())
}

/// What there is to know of nodes, to judge movements by.
struct Judge<'a> {
    now: Timestamp,
    /// What is said of a node that is silent.
    why: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Silent nodes that will probably get another process soon.
    waiting: BTreeSet<&'a str>,
    /// Whether no node process is anywhere.
    is_deserted: bool,
}

impl Judge<'_> {
    /// Why a movement is to be ended, if it is.
    fn dooms<K: Movement>(&self, movement: &K) -> Option<String> {
        let Some(node) = keeper(movement) else {
            let made = movement.creation_timestamp().map(|time| time.0);
            let age = made.map(|made| self.now.duration_since(made));
            let age = age.and_then(|age| Duration::try_from(age).ok());
            let is_old = age.is_some_and(|age| age > UNTAKEN);
            return (self.is_deserted && is_old)
                .then(|| "no node process is there to take it".to_owned());
        };
        // One that nobody wants need not wait.
        let may_wait = is_going_on(movement) && !movement.is_unwanted();
        match may_wait && self.waiting.contains(node) {
            true => None,
            false => (self.why)(node),
        }
    }
}

/// Ends movements that nobody looks after any more. What cannot be cleared away holds nobody else up, and
/// is tried again at the next look.
async fn end<K: Movement>(ctx: &Context, movements: &[Arc<K>], judge: &Judge<'_>) {
    let doomed = movements.iter().filter_map(|movement| {
        let why = judge.dooms(&**movement)?;
        Some((movement, why))
    });
    let ending = doomed.map(|(movement, why)| async move {
        if is_going_on(&**movement) {
            let name = movement.name_any();
            tracing::error!(kind = K::KIND, name, "ended: {why}");
        }
        if let Err(error) = expose::abandon(ctx, &**movement, &why).await {
            tracing::warn!(controller = NAME, "{}", error.chain());
        }
    });
    futures::future::join_all(ending).await;
}

/// The node that looks after a movement; none while nobody does.
fn keeper<K: Movement>(movement: &K) -> Option<&str> {
    movement.node().or_else(|| movement.taker())
}

/// Whether a node process is to look after a movement of ours: it goes on, or is to be cleared away.
fn is_held<K: Movement>(movement: &K) -> bool {
    movement.mover() == Mover::Ours && (is_going_on(movement) || movement.is_held())
}

/// The node that a restore is for; none while its pod has none.
async fn node_of(ctx: &Context, restore: &PodVolumeRestore) -> Result<Option<String>> {
    let node = restore.status.as_ref().and_then(|s| s.node.clone());
    if let Some(node) = node.filter(|node| !node.is_empty()) {
        return Ok(Some(node));
    }
    let pod = &restore.spec.pod;
    let (namespace, name) = (pod.namespace.as_deref(), pod.name.as_deref());
    let (Some(namespace), Some(name)) = (namespace, name) else {
        return Ok(None);
    };
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), namespace);
    let found = pods.get_opt(name).await;
    let found = found.map_err(Error::api(format!("read pod {namespace}/{name}")))?;
    let found = found.filter(|found| found.uid() == pod.uid || pod.uid.is_none());
    Ok(found
        .and_then(|found| found.spec?.node_name)
        .filter(|node| !node.is_empty()))
}

fn is_going_on(copy: &impl Copy) -> bool {
    !copy.phase().is_over()
}

/// The copy as it is when its node is gone: nobody else would take its finalizer off.
fn failed<K: Copy>(copy: &K, why: &str, at: Timestamp) -> K {
    let mut new = copy.clone();
    copy::end(&mut new, DataPathPhase::Failed, Some(why), at);
    new
}

async fn fail<K: Copy>(ctx: &Context, copy: &K, why: &str) -> Result<()> {
    let new = failed(copy, why, ctx.now());
    match ctx.update(copy, &new).await {
        Ok(_) => {
            tracing::error!(kind = K::KIND, name = copy.name_any(), "failed: {why}");
            Ok(())
        }
        // It has changed: the next look knows.
        Err(error) if error.is_stale() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::{
        Time,
        names::{NODE_AGENT, finalizer, label},
    };
    use bowline_apiserver::ApiServer;
    use kube::Client;
    use serde_json::{Value, json};

    use super::*;
    use crate::Settings;

    fn context(objects: &[Value]) -> Context {
        let server = ApiServer::default();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero"}});
        for object in bowline_api::crd::all()
            .iter()
            .chain([&namespace])
            .chain(objects)
        {
            server.load(object).unwrap();
        }
        let client = Client::new(server, "velero");
        Context::new(client, "velero", Settings::default())
    }

    fn lease(node: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "namespace": "velero", "name": nodes::lease_name(node),
                "labels": {label::BOWLINE_ROLE: NODE_AGENT},
            },
            "spec": {"leaseDurationSeconds": 30, "renewTime": format!("{:.6}", Timestamp::now())},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn copies_of_silent_nodes_fail() {
        let backup = |name: &str, node: &str| {
            json!({
                "apiVersion": "velero.io/v1", "kind": "PodVolumeBackup",
                "metadata": {"namespace": "velero", "name": name},
                "spec": {
                    "node": node, "pod": {}, "volume": "v", "backupStorageLocation": "l",
                    "repoIdentifier": "",
                },
                "status": {"phase": "InProgress"},
            })
        };
        let restore = json!({
            "apiVersion": "velero.io/v1", "kind": "PodVolumeRestore",
            "metadata": {"namespace": "velero", "name": "r"},
            "spec": {
                "pod": {"namespace": "velero", "name": "p"}, "volume": "v",
                "backupStorageLocation": "l", "repoIdentifier": "", "snapshotID": "s",
                "sourceNamespace": "shop",
            },
        });
        let pod = |name: &str, node: &str, role: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "velero", "name": name, "labels": {"role": role}},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]},
                "status": {"phase": "Running"},
            })
        };
        let ctx = context(&[
            lease("dead"),
            backup("of-dead", "dead"),
            backup("of-velero", "n2"),
            restore,
            pod("p", "dead", "x"),
            pod("agent", "n2", "node-agent"),
        ]);
        let phases = async || {
            let backups = ctx.list::<PodVolumeBackup>("").await.unwrap();
            let restores = ctx.list::<PodVolumeRestore>("").await.unwrap();
            let mut failed: Vec<_> = backups
                .iter()
                .filter(|copy| copy.phase() == DataPathPhase::Failed)
                .map(ResourceExt::name_any)
                .chain(
                    restores
                        .iter()
                        .filter(|copy| copy.phase() == DataPathPhase::Failed)
                        .map(ResourceExt::name_any),
                )
                .collect();
            failed.sort_unstable();
            (backups, restores, failed)
        };
        let mut signs = Signs::default();
        for (wait, expected) in [(0, vec![]), (29, vec![]), (2, vec!["of-dead", "r"])] {
            tokio::time::advance(Duration::from_secs(wait)).await;
            let (backups, restores, _) = phases().await;
            let seen = Seen {
                backups: backups.into_iter().map(Arc::new).collect(),
                restores: restores.into_iter().map(Arc::new).collect(),
                uploads: Vec::new(),
                downloads: Vec::new(),
            };
            look(&ctx, seen, &mut signs).await.unwrap();
            assert_eq!(phases().await.2, expected);
        }
        let failed = ctx
            .find::<PodVolumeBackup>("of-dead")
            .await
            .unwrap()
            .unwrap();
        let message = failed.status.unwrap().message.unwrap();
        let begin = "the node process on node dead has given no sign of life for ";
        assert!(message.starts_with(begin), "{message}");
    }

    #[tokio::test(start_paused = true)]
    async fn movements_of_silent_nodes_end_and_leave_nothing() {
        let upload = |name: &str, mover: &str, status: Value| {
            json!({
                "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
                "metadata": {
                    "namespace": "velero", "name": name, "uid": name,
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": [finalizer::DATA_UPLOAD_DOWNLOAD],
                },
                "spec": {
                    "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop",
                    "datamover": mover, "backupStorageLocation": "default", "operationTimeout": "10m0s",
                },
                "status": status,
            })
        };
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "namespace": "velero", "name": "moving", "labels": {label::DATA_UPLOAD: "moving"},
            },
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let node = |name: &str, ready: &str| {
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        // One that has stored all, and nobody has heard it.
        let ended = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "velero", "name": "stored",
                "ownerReferences": [{
                    "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload", "name": "stored", "uid": "stored",
                }],
            },
            "spec": {"nodeName": "ill", "containers": [{"name": "stored", "image": "x"}]},
            "status": {"phase": "Succeeded", "containerStatuses": [{
                "name": "stored", "image": "x", "imageID": "x", "ready": false, "restartCount": 0,
                "state": {"terminated": {
                    "exitCode": 0,
                    "message": r#"{"snapshotID": "s1", "volumeMode": "Filesystem", "totalBytes": 9}"#,
                }},
            }]},
        });
        let on =
            |node: &str| json!({"phase": "InProgress", "acceptedByNode": "dead", "node": node});
        let of = |phase: &str| json!({"phase": phase, "acceptedByNode": "dead", "node": "dead"});
        let mut unwanted = upload("unwanted", "bowline", on("well"));
        unwanted["spec"]["cancel"] = json!(true);
        let ctx = context(&[
            lease("dead"),
            upload("new", "bowline", json!({})),
            upload(
                "taken",
                "bowline",
                json!({"phase": "Accepted", "acceptedByNode": "dead"}),
            ),
            upload("moving", "bowline", of("InProgress")),
            upload("done", "bowline", of("Completed")),
            upload("other", "acme", of("InProgress")),
            upload("well", "bowline", on("well")),
            upload("ill", "bowline", on("ill")),
            upload("stored", "bowline", on("ill")),
            ended,
            unwanted,
            lease("well"),
            lease("ill"),
            node("well", "True"),
            node("ill", "Unknown"),
            claim,
        ]);
        let mut signs = Signs::default();
        for (wait, goes_on) in [(0, true), (31, true), (570, false)] {
            tokio::time::advance(Duration::from_secs(wait)).await;
            let uploads = ctx.list::<DataUpload>("").await.unwrap();
            let seen = Seen {
                backups: Vec::new(),
                restores: Vec::new(),
                uploads: uploads.into_iter().map(Arc::new).collect(),
                downloads: Vec::new(),
            };
            look(&ctx, seen, &mut signs).await.unwrap();
            for (name, goes_on) in [
                ("well", goes_on),
                ("ill", wait == 0),
                ("unwanted", wait == 0),
            ] {
                let found = ctx.find::<DataUpload>(name).await.unwrap().unwrap();
                assert_eq!(is_going_on(&found), goes_on, "{name} after {wait}");
            }
        }
        let ends = ctx.list::<DataUpload>("").await.unwrap();
        let ends: BTreeMap<String, (DataPathPhase, bool)> = ends
            .iter()
            .map(|upload| (upload.name_any(), (upload.phase(), upload.is_held())))
            .collect();
        let expected = [
            ("done", DataPathPhase::Completed, false),
            ("ill", DataPathPhase::Failed, false),
            ("moving", DataPathPhase::Failed, false),
            ("new", DataPathPhase::Failed, false),
            ("other", DataPathPhase::InProgress, true),
            ("stored", DataPathPhase::Completed, false),
            ("taken", DataPathPhase::Failed, false),
            ("unwanted", DataPathPhase::Canceled, false),
            ("well", DataPathPhase::Failed, false),
        ];
        let expected = expected.map(|(name, phase, held)| (name.to_owned(), (phase, held)));
        assert_eq!(ends, BTreeMap::from(expected));
        let stored = ctx.find::<DataUpload>("stored").await.unwrap().unwrap();
        let snapshot = stored.status.and_then(|status| status.snapshot_id);
        assert_eq!(snapshot.as_deref(), Some("s1"));
        let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
            Api::namespaced(ctx.client.clone(), "velero");
        assert!(claims.get_opt("moving").await.unwrap().is_none());
    }

    #[test]
    fn what_is_over_is_left_alone() {
        let mut copy = PodVolumeBackup::default();
        assert!(is_going_on(&copy), "not looked at yet");
        for (phase, expected) in [
            ("", true),
            ("New", true),
            ("Accepted", true),
            ("Prepared", true),
            ("InProgress", true),
            ("Canceling", true),
            ("Canceled", false),
            ("Completed", false),
            ("Failed", false),
        ] {
            copy.status_mut().phase = Some(DataPathPhase::from(phase));
            assert_eq!(is_going_on(&copy), expected, "{phase}");
        }
    }

    #[test]
    fn a_copy_whose_node_is_gone_fails_and_can_be_deleted() {
        let mut copy = PodVolumeRestore::default();
        copy.metadata.finalizers = Some(vec![
            finalizer::POD_VOLUME.to_owned(),
            "example.com/x".to_owned(),
        ]);
        copy.status_mut().node = Some("n1".to_owned());
        let at = Time(Timestamp::UNIX_EPOCH);
        let new = failed(&copy, "gone", at.0);
        let status = new.status.clone().unwrap();
        assert_eq!(status.phase, Some(DataPathPhase::Failed));
        assert_eq!(status.message.as_deref(), Some("gone"));
        assert_eq!(status.completion_timestamp, Some(at));
        assert_eq!(status.node.as_deref(), Some("n1"));
        assert_eq!(new.finalizers(), ["example.com/x"]);
    }
}
