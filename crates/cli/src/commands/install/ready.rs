//! Waits until what was installed does its work.

use std::time::Duration;

use anyhow::bail;
use bowline_api::names::{NODE_AGENT, SERVER};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::Pod,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::cluster::Plain;

/// How long new kinds may take to be served.
const KINDS: Duration = Duration::from_secs(60);
/// How long pods may take to be ready; images may have to be fetched.
const PODS: Duration = Duration::from_secs(180);

/// Waits until the kinds are served.
pub(super) async fn served(client: &Client, crds: &[Value]) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let deadline = Instant::now() + KINDS;
    for crd in crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        while !is_established(&api.get(name).await.plain()?) {
            if Instant::now() > deadline {
                bail!(
                    "CustomResourceDefinition {name} is not served after {} s; \
                     `kubectl describe crd {name}` says why",
                    KINDS.as_secs()
                );
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    crd.status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| c.type_ == "Established" && c.status == "True")
}

/// Waits until the server's pod is ready.
pub(super) async fn deployment(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deadline = Instant::now() + PODS;
    while !is_available(&api.get(SERVER).await.plain()?) {
        if Instant::now() > deadline {
            let why = trouble(client, namespace, "deploy=velero").await;
            bail!(
                "deployment velero is not ready after {} s{why}; \
                 `kubectl describe pods -n {namespace} -l deploy=velero` says more",
                PODS.as_secs()
            );
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Waits until the node agents' pods are ready.
pub(super) async fn daemon_set(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let deadline = Instant::now() + PODS;
    while !is_everywhere(&api.get(NODE_AGENT).await.plain()?) {
        if Instant::now() > deadline {
            let why = trouble(client, namespace, "name=node-agent").await;
            bail!(
                "daemonset node-agent is not ready after {} s{why}; \
                 `kubectl describe pods -n {namespace} -l name=node-agent` says more",
                PODS.as_secs()
            );
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Whether all pods of the newest template can do their work, and no older ones are left.
fn is_available(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation >= deployment.metadata.generation
            && status.updated_replicas.unwrap_or_default() >= wanted
            && status.available_replicas.unwrap_or_default() >= wanted
            && status.replicas.unwrap_or_default() == wanted
    })
}

/// Whether every node that should have a pod of the newest template has one that works.
fn is_everywhere(set: &DaemonSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        let wanted = status.desired_number_scheduled;
        status.observed_generation >= set.metadata.generation
            && status.updated_number_scheduled.unwrap_or_default() >= wanted
            && status.number_available.unwrap_or_default() >= wanted
    })
}

/// What the first pod that is not ready says about itself: `: pod x: ImagePullBackOff: …`.
async fn trouble(client: &Client, namespace: &str, labels: &str) -> String {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = match api.list(&ListParams::default().labels(labels)).await {
        Ok(pods) => pods.items,
        Err(_) => return String::new(),
    };
    match pods.iter().find_map(|pod| Some((pod, reason(pod)?))) {
        Some((pod, reason)) => format!(": pod {}: {reason}", pod.name_any()),
        None => String::new(),
    }
}

/// Why a pod is not ready, as far as it says.
fn reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let of_container = containers.into_iter().find_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref();
        let waiting = waiting.map(|w| (w.reason.clone(), w.message.clone()));
        let ended = state.terminated.as_ref();
        waiting.or_else(|| ended.map(|e| (e.reason.clone(), e.message.clone())))
    });
    let of_pod = || {
        let conditions = status.conditions.iter().flatten();
        let mut failed = conditions.filter(|c| c.status == "False" && c.reason.is_some());
        failed.next().map(|c| (c.reason.clone(), c.message.clone()))
    };
    let (reason, message) = of_container.or_else(of_pod)?;
    let parts: Vec<String> = [reason, message].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_is_ready_when_only_new_pods_are_left() {
        for (status, wanted) in [
            (json!(null), false),
            (json!({}), false),
            // The status of the generation before.
            (
                json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 0}),
                false,
            ),
            (
                json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}),
                true,
            ),
        ] {
            let object = json!({"metadata": {"generation": 2}, "status": status});
            let deployment: Deployment = serde_json::from_value(object).unwrap();
            assert_eq!(is_available(&deployment), wanted, "{status}");
        }
    }

    #[test]
    fn node_agents_are_ready_when_every_node_has_one() {
        let status = |seen: i64, wanted: i32, updated: i32, available: i32| {
            json!({
                "observedGeneration": seen, "desiredNumberScheduled": wanted,
                "updatedNumberScheduled": updated, "numberAvailable": available,
                "currentNumberScheduled": wanted, "numberMisscheduled": 0, "numberReady": available,
            })
        };
        for (status, wanted) in [
            (json!(null), false),
            (status(1, 0, 0, 0), false),
            (status(2, 3, 3, 2), false),
            (status(2, 3, 2, 3), false),
            (status(2, 3, 3, 3), true),
            // No node wants one.
            (status(2, 0, 0, 0), true),
        ] {
            let object = json!({
                "metadata": {"generation": 2},
                "status": status,
            });
            let set: DaemonSet = serde_json::from_value(object).unwrap();
            assert_eq!(is_everywhere(&set), wanted, "{status}");
        }
    }

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        for (status, wanted) in [
            (json!({}), None),
            (
                json!({"containerStatuses": [{
                    "name": "velero", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                }]}),
                Some("ImagePullBackOff: no such image"),
            ),
            (
                json!({"conditions": [{
                    "type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/1 nodes are available",
                }]}),
                Some("Unschedulable: 0/1 nodes are available"),
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
            assert_eq!(reason(&pod).as_deref(), wanted, "{status}");
        }
    }
}
