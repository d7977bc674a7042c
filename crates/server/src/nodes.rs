//! Whether the node processes live, as their Leases say.
//!
//! Each keeps a Lease and renews it every few seconds. Clocks of nodes differ, so what counts is
//! whether a Lease changes, by our own clock; the time written in it is only believed when it says
//! that all is well, and in messages.

use std::{collections::BTreeMap, time::Duration};

use bowline_api::names::{NODE_AGENT, NODE_LEASE_PREFIX, label};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::Instant;

use crate::{Context, Error, Result};

/// How long a Lease is good that does not say so itself.
pub(crate) const VALID: Duration = Duration::from_secs(30);
/// How long to wait for a sign of life of a node that seems dead.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often to look meanwhile.
const LOOK: Duration = Duration::from_millis(500);

/// The name of a node's Lease.
pub(crate) fn lease_name(node: &str) -> String {
    format!("{NODE_LEASE_PREFIX}{node}")
}

/// What is known of the node processes, from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Signs(BTreeMap<String, Sign>);

/// The last sign of life of a node.
#[derive(Debug, Clone, PartialEq)]
struct Sign {
    /// What its Lease says; none while there is no Lease.
    renewed: Option<Timestamp>,
    /// When it first said so, by our clock.
    since: Instant,
    valid: Duration,
}

impl Signs {
    /// Takes in what is there now. `nodes` are those that somebody asks about.
    pub(crate) fn update<'a>(
        &mut self,
        leases: &[Lease],
        nodes: impl IntoIterator<Item = &'a str>,
        now: Instant,
    ) {
        let leases: BTreeMap<String, &Lease> = leases
            .iter()
            .map(|lease| (lease.name_any(), lease))
            .collect();
        let mut signs = BTreeMap::new();
        for node in nodes {
            let lease = leases.get(&lease_name(node)).copied();
            let renewed = lease.and_then(renewed);
            let since = match self.0.get(node) {
                Some(last) if last.renewed == renewed => last.since,
                _ => now,
            };
            let valid = lease.map_or(VALID, valid);
            let sign = Sign {
                renewed,
                since,
                valid,
            };
            signs.insert(node.to_owned(), sign);
        }
        self.0 = signs;
    }

    /// For how long a node has been silent, when that is too long. `has_pod`: a pod of a node process
    /// runs there, which counts as long as there is no Lease.
    pub(crate) fn silence(
        &self,
        node: &str,
        has_pod: bool,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Silence> {
        let sign = self.0.get(node)?;
        let silent = now.saturating_duration_since(sign.since);
        if silent <= sign.valid || sign.renewed.is_none() && has_pod {
            return None;
        }
        let written = sign.renewed.map_or(Duration::ZERO, |at| age(at, wall));
        Some(Silence {
            seen: silent,
            said: silent.max(written),
        })
    }
}

/// For how long a node has been silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    /// By our own clock, which decisions go by.
    pub(crate) seen: Duration,
    /// By the time in its Lease, for messages.
    said: Duration,
}

impl Silence {
    /// What is said of what a node can no longer do.
    pub(crate) fn of(self, node: &str) -> String {
        dead(node, self.said)
    }
}

/// Whether the cluster hears of a node.
pub(crate) async fn is_ready(ctx: &Context, node: &str) -> Result<bool> {
    let all: Api<Node> = Api::all(ctx.client.clone());
    let found = all.get_opt(node).await;
    let found = found.map_err(Error::api(format!("read Node {node}")))?;
    let conditions = found.and_then(|node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    Ok(conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

fn dead(node: &str, silence: Duration) -> String {
    format!(
        "the node process on node {node} has given no sign of life for {}s",
        silence.as_secs()
    )
}

/// Whether the node process of a node lives; if not, what is to be said. Waits a moment for a sign
/// of life when in doubt.
pub(crate) async fn check(ctx: &Context, node: &str) -> Result<Result<(), String>> {
    let leases: Api<Lease> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let name = lease_name(node);
    let read = async || {
        let found = leases.get_opt(&name).await;
        found.map_err(Error::api(format!("read lease {name}")))
    };
    let Some(first) = read().await? else {
        // Velero's text.
        let none = format!("daemonset pod not found in running state in node {node}");
        return Ok(if pods(ctx).await?.iter().any(|on| on == node) {
            Ok(())
        } else {
            Err(none)
        });
    };
    let last = renewed(&first);
    if last.is_some_and(|last| age(last, ctx.now()) <= valid(&first)) {
        return Ok(Ok(()));
    }
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        if let Some(lease) = read().await?
            && renewed(&lease).is_some()
            && renewed(&lease) != last
        {
            return Ok(Ok(()));
        }
    }
    let silence = last.map_or(PATIENCE, |last| age(last, ctx.now()));
    Ok(Err(dead(node, silence)))
}

/// Whether any node process lives.
pub(crate) async fn any(ctx: &Context) -> Result<bool> {
    let is_fresh = |lease: &Lease| {
        let last = renewed(lease);
        last.is_some_and(|last| age(last, ctx.now()) <= valid(lease))
    };
    if leases(ctx).await?.iter().any(is_fresh) {
        return Ok(true);
    }
    Ok(!pods(ctx).await?.is_empty())
}

/// The Leases of all node processes.
pub(crate) async fn leases(ctx: &Context) -> Result<Vec<Lease>> {
    let api: Api<Lease> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let params = ListParams::default().labels(&format!("{}={NODE_AGENT}", label::BOWLINE_ROLE));
    let list = api.list(&params).await;
    Ok(list.map_err(Error::api("list leases of nodes"))?.items)
}

/// The nodes with a running pod of a node process, as Velero finds them.
pub(crate) async fn pods(ctx: &Context) -> Result<Vec<String>> {
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let params = ListParams::default().labels(&format!("{}={NODE_AGENT}", label::ROLE));
    let list = api.list(&params).await;
    let list = list.map_err(Error::api("list pods of node processes"))?;
    let running = list.items.into_iter().filter(|pod| {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    });
    Ok(running.filter_map(|pod| pod.spec?.node_name).collect())
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    let MicroTime(time) = lease.spec.as_ref()?.renew_time.clone()?;
    Some(time)
}

fn valid(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|s| s.lease_duration_seconds);
    seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(VALID, Duration::from_secs)
}

/// How old something is; a time in the future is a clock that differs.
fn age(time: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(time).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn lease(node: &str, renewed: i64) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": lease_name(node)},
            "spec": {
                "leaseDurationSeconds": 30,
                "renewTime": at(renewed).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_node_is_silent_when_its_lease_does_not_change_for_too_long() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut signs = Signs::default();
        // One whose clock is far off, one that stopped long before we came, one without a Lease.
        let nodes = ["skewed", "dead", "none"];
        let wall = |seconds: u64| at(1000 + i64::try_from(seconds).unwrap());
        let silent = |signs: &Signs, seconds: u64, has_pod: bool| {
            nodes.map(|node| {
                let silence = signs.silence(node, has_pod, after(seconds), wall(seconds));
                silence.map(|silence| silence.said.as_secs())
            })
        };
        signs.update(
            &[lease("skewed", 9000), lease("dead", 400)],
            nodes,
            after(0),
        );
        assert_eq!(silent(&signs, 0, false), [None; 3]);
        signs.update(
            &[lease("skewed", 9020), lease("dead", 400)],
            nodes,
            after(20),
        );
        assert_eq!(silent(&signs, 30, false), [None; 3]);
        assert_eq!(silent(&signs, 31, false), [None, Some(631), Some(31)]);
        assert_eq!(silent(&signs, 31, true), [None, Some(631), None]);
        signs.update(&[lease("dead", 1040)], ["dead"], after(40));
        assert_eq!(silent(&signs, 45, false), [None; 3], "it is back");
    }

    #[test]
    fn the_message_names_node_and_age() {
        assert_eq!(
            dead("n1", Duration::from_millis(42_900)),
            "the node process on node n1 has given no sign of life for 42s"
        );
    }
}
