//! A pretend node: it marks pods as running, gives each claim a folder for a volume, and lets pods
//! go that are to be deleted. Nothing is executed; an init container that waits for a restore is
//! waited for in its stead.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use futures::{StreamExt, TryStreamExt};

/// The node's name.
pub(super) const NAME: &str = "demo-node";
/// Where a kubelet has the volumes of this kind.
const KIND: &str = "volumes/kubernetes.io~local-volume";
/// How often an init container looks whether it may end.
const LOOK: Duration = Duration::from_millis(20);

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
            Seen::Claim(claim) => bind(&client, &claim).await,
            Seen::Pod(pod) => start_or_end(&client, &folder, &pod, &mut started).await,
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

/// Gives a claim a volume, which will be a folder of the pod that mounts it.
async fn bind(client: &Client, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
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
    let name = volume_name(claim);
    let value = serde_json::to_value(claim)?;
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": value["spec"]["resources"]["requests"],
            "accessModes": value["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim.name_any(), "uid": claim.uid() },
            "local": { "path": format!("/volumes/{name}") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [NAME] },
            ] }] } },
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

fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

/// The folder of a pod, as a kubelet has it.
fn pod_folder(folder: &Path, pod: &Pod) -> PathBuf {
    folder.join("pods").join(pod.uid().unwrap_or_default())
}

/// Starts a waiting pod, and removes one that is to go.
async fn start_or_end(
    client: &Client,
    folder: &Path,
    pod: &Pod,
    started: &mut u8,
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = fs::remove_dir_all(pod_folder(folder, pod));
        let now = DeleteParams::default().grace_period(0);
        match pods.delete(&name, &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        return Ok(());
    }
    // A pod that has its node is started already, though its status may still be on its way.
    let spec = pod.spec.clone().unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if spec.node_name.is_some() || phase != Some("Pending") {
        return Ok(());
    }
    mount(client, folder, pod).await?;
    *started = started.wrapping_add(1);
    let binding = json!({ "spec": { "nodeName": NAME } });
    pods.patch(&name, &PatchParams::default(), &Patch::Merge(&binding))
        .await?;
    let address = format!("10.244.0.{started}");
    let init = spec.init_containers.unwrap_or_default();
    let Some(init) = init.into_iter().find(|init| init.name == "restore-wait") else {
        return status(&pods, &name, running(pod, &address)).await;
    };
    let waiting = json!({
        "phase": "Pending",
        "startTime": now(),
        "initContainerStatuses": [{
            "name": init.name, "image": init.image, "imageID": "", "ready": false, "started": true,
            "restartCount": 0, "state": { "running": { "startedAt": now() } },
        }],
    });
    status(&pods, &name, waiting).await?;
    let volumes = pod_folder(folder, pod).join(KIND);
    let restore = init.args.unwrap_or_default().join(" ");
    let pod = pod.clone();
    tokio::spawn(async move {
        restored(&volumes, &restore).await;
        let _ = status(&pods, &pod.name_any(), running(&pod, &address)).await;
    });
    Ok(())
}

/// Gives a pod the folders of its claims.
async fn mount(client: &Client, folder: &Path, pod: &Pod) -> anyhow::Result<()> {
    let namespace = pod.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    for source in volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
        let claim = claims.get(&source.claim_name).await?;
        let place = pod_folder(folder, pod).join(KIND).join(volume_name(&claim));
        fs::create_dir_all(place)?;
    }
    Ok(())
}

/// Waits until a restore has left its mark in all volumes, and removes the marks.
async fn restored(volumes: &Path, restore: &str) {
    loop {
        let marks: Vec<PathBuf> = fs::read_dir(volumes)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path().join(".velero")))
            .collect();
        if marks.iter().all(|mark| mark.join(restore).exists()) {
            for mark in marks {
                let _ = fs::remove_dir_all(mark);
            }
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// The status of a pod that runs.
fn running(pod: &Pod, address: &str) -> Value {
    let now = now();
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
    json!({
        "phase": "Running",
        "startTime": now,
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "hostIP": "127.0.0.1",
        "conditions": conditions,
        "containerStatuses": containers,
    })
}

/// The folder of the volume that a pod mounts, as it is on this node.
pub(super) async fn volume(
    client: &Client,
    folder: &Path,
    namespace: &str,
    pod: &str,
    claim: &str,
) -> anyhow::Result<PathBuf> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let (pod, claim) = (pods.get(pod).await?, claims.get(claim).await?);
    Ok(pod_folder(folder, &pod)
        .join(KIND)
        .join(volume_name(&claim)))
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
