//! Whether there is a node process where a pod is: it keeps a Lease, or it is a pod of an older kind.

use std::{collections::HashMap, time::Duration};

use bowline_api::names::{NODE_AGENT, NODE_LEASE_PREFIX, label};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::ListParams};
use tokio::time::Instant;

use crate::{Context, Error, Result};

/// How long a Lease is good that does not say.
const VALID: Duration = Duration::from_secs(30);
/// How often nodes are asked for.
const LOOK: Duration = Duration::from_secs(2);
/// How long a node process may be on its way.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was heard of nodes.
#[derive(Default)]
pub(super) struct Nodes {
    /// Since when there is nobody.
    silent: HashMap<String, Instant>,
    beats: HashMap<String, Beat>,
    /// When nodes were asked for last.
    looked: Option<Instant>,
}

/// What a Lease said last, and when it was seen to change to that.
struct Beat {
    renewed: Timestamp,
    seen: Option<Instant>,
}

impl Nodes {
    /// Asks for these nodes, now and then, and forgets the others. A cluster that does not answer is no
    /// sign of death.
    pub(super) async fn look(&mut self, ctx: &Context, nodes: Vec<String>) {
        self.silent.retain(|node, _| nodes.contains(node));
        self.beats.retain(|node, _| nodes.contains(node));
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        match self.silent_among(ctx, &nodes).await {
            Ok(silent) => {
                let now = Instant::now();
                self.silent.retain(|node, _| silent.contains(node));
                for node in silent {
                    self.silent.entry(node).or_insert(now);
                }
            }
            Err(error) => tracing::warn!("{}", error.chain()),
        }
    }

    /// Whether there has been nobody for too long.
    pub(super) fn is_silent(&self, node: &str) -> bool {
        let since = self.silent.get(node);
        since.is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    /// Nodes with neither a fresh Lease nor a pod of a node agent.
    async fn silent_among(&mut self, ctx: &Context, nodes: &[String]) -> Result<Vec<String>> {
        let leases: Api<Lease> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
        let mut silent = Vec::new();
        for node in nodes {
            let name = format!("{NODE_LEASE_PREFIX}{node}");
            let lease = leases.get_opt(&name).await;
            let lease = lease.map_err(Error::api(format!("read lease {name}")))?;
            if !lease.is_some_and(|lease| self.is_fresh(node, &lease, ctx.now())) {
                silent.push(node.clone());
            }
        }
        if silent.is_empty() {
            return Ok(silent);
        }
        let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
        let labels = format!("{}={NODE_AGENT}", label::ROLE);
        let agents = pods.list(&ListParams::default().labels(&labels)).await;
        let agents = agents.map_err(Error::api("list node-agent pods"))?;
        silent.retain(|node| !agents.iter().any(|pod| runs_on(pod, node)));
        Ok(silent)
    }

    /// By the clock, or because it was renewed a moment ago, whatever the clock there says.
    fn is_fresh(&mut self, node: &str, lease: &Lease, now: Timestamp) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds;
        let valid = seconds.and_then(|s| u64::try_from(s).ok());
        let valid = valid.map_or(VALID, Duration::from_secs);
        let Some(MicroTime(renewed)) = spec.renew_time else {
            return false;
        };
        let age = now.duration_since(renewed);
        if age < SignedDuration::try_from(valid).unwrap_or(SignedDuration::MAX) {
            return true;
        }
        let beat = self.beats.entry(node.to_owned()).or_insert(Beat {
            renewed,
            seen: None,
        });
        if beat.renewed != renewed {
            *beat = Beat {
                renewed,
                seen: Some(Instant::now()),
            };
        }
        beat.seen.is_some_and(|seen| seen.elapsed() < valid)
    }
}

/// Whether a pod of a node agent runs there.
fn runs_on(pod: &Pod, node: &str) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let place = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    phase == Some("Running") && place == Some(node) && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lease(spec: Value) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": "bowline-node-n"}, "spec": spec}))
            .unwrap()
    }

    fn renewed(second: u8) -> Lease {
        lease(
            json!({"leaseDurationSeconds": 30, "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}),
        )
    }

    #[test]
    fn a_lease_is_fresh_by_the_clock() {
        let now: Timestamp = "2026-01-01T00:00:40Z".parse().unwrap();
        for (lease, expected) in [
            (lease(json!({})), false),
            (renewed(11), true),
            (renewed(10), false),
            // A clock ahead of ours.
            (renewed(59), true),
        ] {
            let fresh = Nodes::default().is_fresh("n", &lease, now);
            assert_eq!(fresh, expected, "{:?}", lease.spec);
        }
    }

    #[test]
    fn a_lease_that_is_seen_to_be_renewed_is_fresh_whatever_its_clock_says() {
        let late: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let mut nodes = Nodes::default();
        assert!(!nodes.is_fresh("n", &renewed(1), late));
        assert!(!nodes.is_fresh("n", &renewed(1), late));
        assert!(nodes.is_fresh("n", &renewed(2), late));
        assert!(nodes.is_fresh("n", &renewed(2), late), "for a while");
        assert!(!nodes.is_fresh("m", &renewed(2), late), "another node");
    }

    #[test]
    fn agents_run_on_their_node() {
        let pod = |phase: &str, node: &str, gone: Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "deletionTimestamp": gone},
                "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
            }))
            .unwrap()
        };
        assert!(runs_on(&pod("Running", "n", json!(null)), "n"));
        assert!(!runs_on(&pod("Pending", "n", json!(null)), "n"));
        assert!(!runs_on(&pod("Running", "m", json!(null)), "n"));
        assert!(!runs_on(
            &pod("Running", "n", json!("2026-01-01T00:00:00Z")),
            "n"
        ));
    }
}
