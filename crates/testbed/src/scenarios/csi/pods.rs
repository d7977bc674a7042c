//! Volumes of the driver in pods: files and devices, through kubelet.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    bed::BUSYBOX,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    scene::Scene,
    wait_for,
};

const SUMS: &str = "cd /data && find . -type f | sort | xargs sha256sum; sha256sum /dev/disk";
const FILL: &str = "mkdir -p /data/deep && \
    dd if=/dev/urandom of=/data/deep/noise bs=64k count=16 2>/dev/null && echo kept >/data/file && \
    dd if=/dev/urandom of=/dev/disk bs=64k count=64 conv=fsync 2>/dev/null && sync";

/// A pod fills a volume of files and one of blocks; another one finds the same in volumes that were
/// made of their snapshots; when both are gone, the node has nothing of them.
pub(in super::super) async fn work(scene: &Scene) -> anyhow::Result<String> {
    let csi = Csi::on(scene.bed()).await?;
    let namespace = scene.namespace("csi").await?;
    let (volumes, snapshots) = (csi.volumes()?, csi.snapshots()?);
    let claim = |name: &str, kind| objects::claim(&namespace, name, kind, "16Mi");

    scene
        .apply(&[
            claim("files", Kind::Files),
            claim("blocks", Kind::Blocks),
            pod(&namespace, "first", "files", "blocks"),
        ])
        .await?;
    let size = exec(scene, &namespace, "first", "blockdev --getsize64 /dev/disk").await?;
    ensure!(
        size.trim() == (16 << 20).to_string(),
        "the device has {size} bytes"
    );
    exec(scene, &namespace, "first", FILL).await?;
    let filled = exec(scene, &namespace, "first", SUMS).await?;
    ensure!(filled.lines().count() == 3, "the pod wrote {filled}");

    let all = objects::snapshots(scene.client(), &namespace);
    for name in ["files", "blocks"] {
        let object = objects::snapshot(&namespace, name, name);
        scene.apply(&[object]).await?;
        objects::ready(&all, name).await?;
    }
    let spoil = "rm -r /data/*; dd if=/dev/zero of=/dev/disk bs=64k count=64 conv=fsync";
    exec(scene, &namespace, "first", spoil).await?;

    scene
        .apply(&[
            objects::from_snapshot(claim("files-back", Kind::Files), "files"),
            objects::from_snapshot(claim("blocks-back", Kind::Blocks), "blocks"),
            pod(&namespace, "second", "files-back", "blocks-back"),
        ])
        .await?;
    let found = exec(scene, &namespace, "second", SUMS).await?;
    ensure!(found == filled, "of\n{filled}\nthere is\n{found}");

    let device = csi.bound(&namespace, "blocks-back").await?;
    ensure!(
        looped(&csi.volume(&device).to_string_lossy())?,
        "there is no loop device over the volume"
    );
    scene
        .kubectl(&["-n", &namespace, "delete", "pod", "--all", "--timeout=120s"])
        .await?;
    all.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.client(), &namespace);
    claims
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    wait_for("all of it to go", Duration::from_secs(120), async || {
        let left = csi.volumes()?;
        ensure!(left == volumes, "there are volumes {left:?}");
        let left = csi.snapshots()?;
        ensure!(left == snapshots, "there are snapshots {left:?}");
        ensure!(!looped(&device)?, "there is still a loop device");
        Ok(Some(()))
    })
    .await?;
    Ok(
        "2 pods, files and blocks through snapshots: the same sums; no loop device stays"
            .to_owned(),
    )
}

/// A pod that does nothing with two volumes.
fn pod(namespace: &str, name: &str, files: &str, blocks: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "shell",
                "image": BUSYBOX,
                "command": ["sleep", "3600"],
                "volumeMounts": [{ "name": "files", "mountPath": "/data" }],
                "volumeDevices": [{ "name": "blocks", "devicePath": "/dev/disk" }],
            }],
            "volumes": [
                { "name": "files", "persistentVolumeClaim": { "claimName": files } },
                { "name": "blocks", "persistentVolumeClaim": { "claimName": blocks } },
            ],
        },
    })
}

/// Runs a script in a pod, once it is ready.
async fn exec(scene: &Scene, namespace: &str, pod: &str, script: &str) -> anyhow::Result<String> {
    let target = format!("pod/{pod}");
    let ready = ["--for=condition=Ready", "--timeout=120s", &target];
    scene
        .kubectl(&[&["-n", namespace, "wait"], ready.as_slice()].concat())
        .await?;
    scene
        .kubectl(&["-n", namespace, "exec", pod, "--", "sh", "-c", script])
        .await
}

/// Whether a loop device is over a file with this in its path.
fn looped(path: &str) -> anyhow::Result<bool> {
    for device in fs::read_dir("/sys/block").context("look for loop devices")? {
        let file = device?.path().join("loop/backing_file");
        if fs::read_to_string(file).is_ok_and(|file| file.contains(path)) {
            return Ok(true);
        }
    }
    Ok(false)
}
