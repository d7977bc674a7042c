//! Copies of pod volumes whose node process is gone: they fail, so that nobody waits for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bowline_api::v1::{DataPathPhase, PodVolumeBackup, PodVolumeRestore};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, reflector, watcher},
};
use tokio::time::Instant;

use crate::{
    Context, Error, Result,
    node::copy::{self, Copy},
    nodes::{self, Signs},
};

/// The controller's name. It cannot be disabled.
pub const NAME: &str = "abandoned-volumes";
/// How often nodes are looked at while something depends on them.
const LOOK: Duration = Duration::from_secs(5);

/// Looks after copies until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let (backups, writer) = reflector::store();
    let backup_changes = watcher(ctx.api::<PodVolumeBackup>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .map(|change| change.map(drop));
    let (restores, writer) = reflector::store();
    let restore_changes = watcher(ctx.api::<PodVolumeRestore>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .map(|change| change.map(drop));
    let mut changes = std::pin::pin!(stream::select(backup_changes, restore_changes));
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
                    tracing::warn!(controller = NAME, "watch pod volumes: {error}");
                    continue;
                }
                None => return,
            },
            _ = looks.tick() => {}
        }
        let (backups, restores) = (backups.state(), restores.state());
        if let Err(error) = look(&ctx, &backups, &restores, &mut signs).await {
            tracing::warn!(controller = NAME, "{}", error.chain());
        }
    }
}

/// Fails the copies of nodes that have been silent for too long.
async fn look(
    ctx: &Context,
    backups: &[Arc<PodVolumeBackup>],
    restores: &[Arc<PodVolumeRestore>],
    signs: &mut Signs,
) -> Result<()> {
    let backups: Vec<_> = backups
        .iter()
        .filter(|copy| is_going_on(&***copy))
        .collect();
    let restores: Vec<_> = restores
        .iter()
        .filter(|copy| is_going_on(&***copy))
        .collect();
    if backups.is_empty() && restores.is_empty() {
        *signs = Signs::default();
        return Ok(());
    }
    let mut of_restores = BTreeMap::new();
    for restore in &restores {
        if let Some(node) = node_of(ctx, restore).await? {
            of_restores.insert(restore.name_any(), node);
        }
    }
    let nodes: BTreeSet<&str> = backups
        .iter()
        .map(|copy| copy.spec.node.as_str())
        .chain(of_restores.values().map(String::as_str))
        .collect();
    signs.update(
        &nodes::leases(ctx).await?,
        nodes.iter().copied(),
        Instant::now(),
    );
    let silent = |node: &str, has_pod| signs.silence(node, has_pod, Instant::now(), ctx.now());
    if !nodes.iter().any(|node| silent(node, false).is_some()) {
        return Ok(());
    }
    let pods = nodes::pods(ctx).await?;
    let why = |node: &str| {
        let has_pod = pods.iter().any(|on| on == node);
        silent(node, has_pod).map(|silence| nodes::dead(node, silence))
    };
    for copy in backups {
        if let Some(why) = why(&copy.spec.node) {
            fail(ctx, &**copy, &why).await?;
        }
    }
    for copy in restores {
        let node = of_restores.get(&copy.name_any());
        if let Some(why) = node.and_then(|node| why(node)) {
            fail(ctx, &**copy, &why).await?;
        }
    }
    Ok(())
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
            "spec": {"leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:00.000000Z"},
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
            let backups: Vec<_> = backups.into_iter().map(Arc::new).collect();
            let restores: Vec<_> = restores.into_iter().map(Arc::new).collect();
            look(&ctx, &backups, &restores, &mut signs).await.unwrap();
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
