//! The process of a node: what it refuses, ends and takes up, with a folder for its pods.

use std::{fs, path::PathBuf, time::Duration};

use bowline_api::v1::{DataPathPhase as Phase, PodVolumeBackup, PodVolumeRestore, Restore};
use bowline_server::node::{self, Settings};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::scene::{Scene, eventually};

const NODE: &str = "n1";

/// A node with a process.
pub(crate) struct Node {
    pods: TempDir,
    stop: CancellationToken,
    process: JoinHandle<bowline_server::Result<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
        self.process.abort();
    }
}

impl Node {
    pub(crate) fn start(scene: &Scene) -> Self {
        let pods = TempDir::new().unwrap();
        fs::create_dir(pods.path().join("uid-of-web")).unwrap();
        let (stop, process) = run(scene, pods.path().to_owned());
        Self {
            pods,
            stop,
            process,
        }
    }

    /// Ends the process in an orderly way.
    pub(crate) async fn stop(&mut self) -> bowline_server::Result<()> {
        self.stop.cancel();
        (&mut self.process).await.unwrap()
    }

    /// Begins another one.
    pub(crate) fn restart(&mut self, scene: &Scene) {
        (self.stop, self.process) = run(scene, self.pods.path().to_owned());
    }

    /// The folder of a volume, as the kubelet makes it.
    pub(crate) fn volume(&self, uid: &str, name: &str) -> PathBuf {
        let plugin = self
            .pods
            .path()
            .join(uid)
            .join("volumes/kubernetes.io~empty-dir");
        let folder = plugin.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}

fn run(
    scene: &Scene,
    host_pods: PathBuf,
) -> (CancellationToken, JoinHandle<bowline_server::Result<()>>) {
    let mut settings = Settings::default();
    settings.node_name = NODE.to_owned();
    settings.host_pods = host_pods;
    settings.metrics_address = "127.0.0.1:0".to_owned();
    settings.progress_interval = Some(Duration::from_millis(100));
    let stop = CancellationToken::new();
    let (client, token) = (scene.client.clone(), stop.clone());
    let process = tokio::spawn(async move { node::run(client, "velero", settings, token).await });
    (stop, process)
}

/// A pod on the node, with an `emptyDir` called `data` and a claim's volume called `disk`.
pub(crate) fn pod(scene: &Scene, name: &str, status: Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")},
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "main", "image": "i"}],
            "initContainers": [{"name": "restore-wait", "image": "i"}],
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
            ],
        },
        "status": status,
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    scene.server.load(&namespace).unwrap();
    scene.server.load(&pod).unwrap();
}

/// The status of a pod that waits for its volumes, or no longer does.
pub(crate) fn helper(state: Value) -> Value {
    json!({
        "phase": "Pending",
        "initContainerStatuses": [{
            "name": "restore-wait", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }],
    })
}

pub(crate) fn running() -> Value {
    json!({"phase": "Running"})
}

pub(crate) fn waiting() -> Value {
    helper(json!({"running": {"startedAt": "2026-11-15T03:00:00Z"}}))
}

pub(crate) fn backup(scene: &Scene, name: &str, pod: &str, rest: Value) {
    let spec = json!({"spec": {
        "node": NODE, "volume": "data", "backupStorageLocation": "default", "repoIdentifier": "",
        "uploaderType": "restic",
        "pod": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": format!("uid-of-{pod}")},
    }});
    load::<PodVolumeBackup>(scene, name, spec, rest);
}

pub(crate) fn restore(scene: &Scene, name: &str, pod: &str, rest: Value) {
    let spec = json!({
        "metadata": {"ownerReferences": [{
            "apiVersion": "velero.io/v1", "kind": "Restore", "name": "r", "uid": "uid-of-r",
            "controller": true,
        }]},
        "spec": {
            "volume": "data", "backupStorageLocation": "default", "repoIdentifier": "",
            "uploaderType": "restic", "snapshotID": "abc", "sourceNamespace": "shop",
            "snapshotSize": 77,
            "pod": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": format!("uid-of-{pod}")},
        },
    });
    scene.load::<Restore>("r", json!({"spec": {"backupName": "b"}}));
    load::<PodVolumeRestore>(scene, name, spec, rest);
}

fn load<K: bowline_api::VeleroResource>(scene: &Scene, name: &str, mut object: Value, rest: Value) {
    crate::scene::merge(&mut object, rest);
    scene.load::<K>(name, object);
}

pub(crate) async fn backup_ends(scene: &Scene, name: &str) -> (Phase, String) {
    let mut end = None;
    eventually(&format!("the end of {name}"), async || {
        let status = scene.get::<PodVolumeBackup>(name).await.unwrap().status;
        let over = status.filter(|status| status.completion_timestamp.is_some());
        end = over.map(|s| (s.phase.unwrap(), s.message.unwrap_or_default()));
        end.is_some()
    })
    .await;
    end.unwrap()
}

pub(crate) async fn restore_ends(scene: &Scene, name: &str) -> (Phase, String) {
    let mut end = None;
    eventually(&format!("the end of {name}"), async || {
        let status = scene.get::<PodVolumeRestore>(name).await.unwrap().status;
        let over = status.filter(|status| status.completion_timestamp.is_some());
        end = over.map(|s| (s.phase.unwrap(), s.message.unwrap_or_default()));
        end.is_some()
    })
    .await;
    end.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_backed_up_is_refused_by_name() {
    let scene = Scene::new();
    pod(&scene, "web", running());
    scene
        .server
        .load(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "disk", "namespace": "shop"},
            "spec": {"volumeName": "pv-1"},
        }))
        .unwrap();
    scene
        .server
        .load(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
            "spec": {"volumeMode": "Block", "csi": {"driver": "d", "volumeHandle": "h"}},
        }))
        .unwrap();
    backup(
        &scene,
        "kopia",
        "web",
        json!({"spec": {"uploaderType": "kopia"}}),
    );
    backup(&scene, "block", "web", json!({"spec": {"volume": "disk"}}));
    backup(
        &scene,
        "unknown",
        "web",
        json!({"spec": {"volume": "attic"}}),
    );
    backup(&scene, "nowhere", "web", json!({}));
    backup(&scene, "no-pod", "ghost", json!({}));
    backup(
        &scene,
        "begun",
        "ghost",
        json!({"status": {"phase": "InProgress"}}),
    );
    backup(&scene, "other", "web", json!({"spec": {"node": "n2"}}));
    let _node = Node::start(&scene);
    for (name, why) in [
        ("kopia", "uploader type kopia"),
        ("block", "block volume"),
        ("unknown", "volume attic not found in pod web"),
        ("nowhere", "/uid-of-web/volumes/*/data, got 0"),
        ("no-pod", "pod shop/ghost of volume data is gone"),
        ("begun", "pod shop/ghost of volume data is gone"),
    ] {
        let (phase, message) = backup_ends(&scene, name).await;
        assert_eq!(phase, Phase::Failed, "{name}");
        assert!(message.contains(why), "{name}: {message}");
    }
    let other = scene.get::<PodVolumeBackup>("other").await.unwrap();
    assert_eq!(other.status, None, "another node's");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_canceled_or_deleted_ends() {
    let scene = Scene::new();
    pod(&scene, "web", running());
    let held = json!({"metadata": {"finalizers": ["velero.io/pod-volume-finalizer"]}});
    backup(&scene, "cancel", "web", json!({"spec": {"cancel": true}}));
    backup(
        &scene,
        "canceling",
        "web",
        json!({"status": {"phase": "Canceling", "message": "Cancel PVB on pod volume timeout"}}),
    );
    backup(&scene, "deleted", "web", held.clone());
    restore(
        &scene,
        "unseen",
        "nobody",
        json!({"spec": {"cancel": true}}),
    );
    let api = scene.api::<PodVolumeBackup>();
    api.delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    let _node = Node::start(&scene);
    assert_eq!(
        backup_ends(&scene, "cancel").await,
        (Phase::Canceled, String::new())
    );
    let (phase, message) = backup_ends(&scene, "canceling").await;
    assert_eq!(phase, Phase::Canceled);
    assert_eq!(message, "Cancel PVB on pod volume timeout");
    assert_eq!(restore_ends(&scene, "unseen").await.0, Phase::Canceled);
    eventually("the deleted one to go", async || {
        scene.names::<PodVolumeBackup>().await == ["cancel", "canceling"]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_wait_for_their_pod_and_are_concluded() {
    let scene = Scene::new();
    let passed = json!({"terminated": {"exitCode": 0, "finishedAt": null, "startedAt": null}});
    pod(&scene, "new", helper(json!({"waiting": {}})));
    pod(&scene, "ready", waiting());
    pod(&scene, "passed", helper(passed));
    restore(&scene, "early", "new", json!({}));
    restore(
        &scene,
        "kopia",
        "ready",
        json!({"spec": {"uploaderType": "kopia"}}),
    );
    let taken = json!({"status": {"phase": "InProgress", "node": NODE}});
    restore(&scene, "unsaid", "passed", taken.clone());
    restore(&scene, "late", "passed", json!({}));
    restore(&scene, "done-before", "ready", taken);
    let node = Node::start(&scene);
    let (phase, message) = restore_ends(&scene, "kopia").await;
    assert_eq!(phase, Phase::Failed);
    assert!(
        message.contains("Velero's kopia data cannot be read"),
        "{message}"
    );
    assert_eq!(restore_ends(&scene, "unsaid").await.0, Phase::Completed);
    let (phase, message) = restore_ends(&scene, "late").await;
    assert_eq!(phase, Phase::Failed);
    assert!(
        message.contains("pod shop/passed no longer waits"),
        "{message}"
    );
    // No folder was there when it was looked for.
    let (phase, message) = restore_ends(&scene, "done-before").await;
    assert_eq!(phase, Phase::Failed, "{message}");
    let early = scene.get::<PodVolumeRestore>("early").await.unwrap();
    assert_eq!(early.status, None);

    // One that says it is done is not touched again, whatever the repository.
    let volume = node.volume("uid-of-ready", "data");
    fs::create_dir_all(volume.join(".velero")).unwrap();
    fs::write(volume.join(".velero/uid-of-r"), "").unwrap();
    restore(
        &scene,
        "again",
        "ready",
        json!({"status": {"phase": "Accepted", "node": NODE}}),
    );
    assert_eq!(restore_ends(&scene, "again").await.0, Phase::Completed);
    let status = scene.get::<PodVolumeRestore>("again").await.unwrap().status;
    let progress = status.unwrap().progress.unwrap();
    assert_eq!(
        (progress.total_bytes, progress.bytes_done),
        (Some(77), Some(77))
    );

    // The pod gets on.
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "shop");
    let patch = kube::api::Patch::Merge(json!({"status": waiting()}));
    pods.patch_status("new", &Default::default(), &patch)
        .await
        .unwrap();
    let (phase, message) = restore_ends(&scene, "early").await;
    assert_eq!(phase, Phase::Failed);
    assert!(
        message.contains("/uid-of-new/volumes/*/data, got 0"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_process_says_that_it_lives_until_the_next_one_does() {
    let scene = Scene::new();
    let mut node = Node::start(&scene);
    let leases: Api<Lease> = Api::namespaced(scene.client.clone(), "velero");
    let mut holder = String::new();
    eventually("the lease", async || {
        let lease = leases.get_opt("bowline-node-n1").await.unwrap();
        let found = lease.and_then(|lease| lease.spec?.holder_identity);
        holder = found.unwrap_or_default();
        !holder.is_empty()
    })
    .await;
    node.stop().await.unwrap();
    let left = leases.get("bowline-node-n1").await.unwrap();
    assert_eq!(
        left.spec.unwrap().holder_identity.unwrap(),
        holder,
        "not let go"
    );
    node.restart(&scene);
    eventually("the next process", async || {
        let lease = leases.get("bowline-node-n1").await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap() != holder
    })
    .await;
    assert_eq!(
        left.metadata.labels.unwrap()["bowline.io/role"],
        "node-agent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_other_pods_is_refused() {
    let scene = Scene::new();
    pod(&scene, "stray", running());
    let mut node = Node::start(&scene);
    // The pod that runs on the node is not in its folder.
    let why = (&mut node.process).await.unwrap().unwrap_err().to_string();
    assert!(why.contains("unexpected directory structure"), "{why}");
    node.volume("uid-of-stray", "data");
    node.restart(&scene);
    let leases: Api<Lease> = Api::namespaced(scene.client.clone(), "velero");
    eventually("the lease", async || {
        let lease = leases.get_opt("bowline-node-n1").await.unwrap();
        lease.is_some_and(|lease| lease.name_any() == "bowline-node-n1")
    })
    .await;
}
