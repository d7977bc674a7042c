//! A pretend node: it marks pods as running, gives each claim a folder for a volume, and lets pods
//! go that are to be deleted. Nothing is executed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use futures::{StreamExt, TryStreamExt};

const NAME: &str = "demo-node";

/// Plays the node until it is stopped.
pub(crate) async fn run(client: Client, folder: PathBuf) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": NAME },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Pretended", "message": "a pretend node" }],
            "nodeInfo": {
                "architecture": "", "bootID": "", "containerRuntimeVersion": "none", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "pretend", "machineID": "", "operatingSystem": "",
                "osImage": "", "systemUUID": "",
            },
        },
    }))?;
    nodes.create(&PostParams::default(), &node).await?;
    let claims = watcher(
        Api::<PersistentVolumeClaim>::all(client.clone()),
        watcher::Config::default(),
    )
    .default_backoff()
    .applied_objects()
    .map_ok(|claim| Seen::Claim(Box::new(claim)));
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .map_ok(|pod| Seen::Pod(Box::new(pod)));
    let mut seen = futures::stream::select(claims, pods).boxed();
    let mut started = 0_u8;
    while let Some(next) = seen.next().await {
        // A watch that breaks off comes back by itself, and shows again what went wrong here.
        let Ok(next) = next else { continue };
        let done = match next {
            Seen::Claim(claim) => bind(&client, &folder, &claim).await,
            Seen::Pod(pod) => start_or_end(&client, &pod, &mut started).await,
        };
        if let Err(error) = done
            && !is_stale(&error)
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether somebody was faster: the object has changed or gone, and its new state is on its way.
fn is_stale(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => status.code == 404 || status.code == 409,
        _ => false,
    }
}

enum Seen {
    Claim(Box<PersistentVolumeClaim>),
    Pod(Box<Pod>),
}

/// Gives a claim a volume that is a folder.
async fn bind(client: &Client, folder: &Path, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let has_volume = claim
        .spec
        .as_ref()
        .is_some_and(|spec| spec.volume_name.is_some());
    if has_volume || phase == Some("Bound") || claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let namespace = claim.namespace().unwrap_or_default();
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let place = folder.join(&namespace).join(claim.name_any());
    fs::create_dir_all(&place)?;
    let value = serde_json::to_value(claim)?;
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": value["spec"]["resources"]["requests"],
            "accessModes": value["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim.name_any(), "uid": claim.uid() },
            "hostPath": { "path": place },
        },
    }))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.create(&PostParams::default(), &volume).await?;
    status(&volumes, &name, json!({ "phase": "Bound" })).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let patch = json!({ "spec": { "volumeName": name } });
    claims
        .patch(
            &claim.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await?;
    let bound = json!({
        "phase": "Bound",
        "accessModes": value["spec"]["accessModes"],
        "capacity": value["spec"]["resources"]["requests"],
    });
    status(&claims, &claim.name_any(), bound).await
}

/// Marks a waiting pod as running, and removes one that is to go.
async fn start_or_end(client: &Client, pod: &Pod, started: &mut u8) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        let now = DeleteParams::default().grace_period(0);
        match pods.delete(&name, &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        return Ok(());
    }
    // A pod that has its node is started already, though its status may still be on its way.
    let scheduled = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.is_some());
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if scheduled || phase != Some("Pending") {
        return Ok(());
    }
    *started = started.wrapping_add(1);
    let binding = json!({ "spec": { "nodeName": NAME } });
    pods.patch(&name, &PatchParams::default(), &Patch::Merge(&binding))
        .await?;
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": { "running": { "startedAt": now } },
            })
        })
        .collect();
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
    let running = json!({
        "phase": "Running",
        "startTime": now,
        "podIP": format!("10.244.0.{started}"),
        "podIPs": [{ "ip": format!("10.244.0.{started}") }],
        "hostIP": "127.0.0.1",
        "conditions": conditions,
        "containerStatuses": containers,
    });
    status(&pods, &name, running).await
}

async fn status<K>(api: &Api<K>, name: &str, status: Value) -> anyhow::Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch = json!({ "status": status });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}
