//! Pods on the bed's node: they run, keep data, and can be looked into.

use std::fs;

use anyhow::ensure;
use serde_json::json;

use crate::{bed::BUSYBOX, scene::Scene};

/// A Deployment with a volume runs; `exec` and `logs` work; the API and S3 can be reached from it.
pub(super) async fn run(scene: &Scene) -> anyhow::Result<String> {
    let namespace = scene.namespace("web").await?;
    let volume = scene.fresh("data");
    let folder = scene.folder().join("volume");
    fs::create_dir_all(&folder)?;
    scene
        .apply(&[
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": { "name": volume },
                "spec": {
                    "capacity": { "storage": "1Gi" },
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "",
                    "claimRef": { "namespace": namespace, "name": "data" },
                    "hostPath": { "path": folder },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": { "name": "data", "namespace": namespace },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "",
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }),
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": { "name": "web", "namespace": namespace },
                "spec": {
                    "selector": { "matchLabels": { "app": "web" } },
                    "template": {
                        "metadata": { "labels": { "app": "web" } },
                        "spec": {
                            "terminationGracePeriodSeconds": 0,
                            "containers": [{
                                "name": "web",
                                "image": BUSYBOX,
                                "command": ["sh", "-c", "echo the pod speaks; echo kept >/data/file; exec sleep 3600"],
                                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                            }],
                            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                        },
                    },
                },
            }),
        ])
        .await?;
    scene
        .kubectl(&[
            "-n",
            &namespace,
            "rollout",
            "status",
            "deployment/web",
            "--timeout=120s",
        ])
        .await?;

    let log = scene
        .kubectl(&["-n", &namespace, "logs", "deployment/web"])
        .await?;
    ensure!(log == "the pod speaks\n", "its log is {log:?}");
    let inside = exec(scene, &namespace, "cat /data/file").await?;
    ensure!(inside == "kept\n", "inside, the file is {inside:?}");
    let outside = fs::read_to_string(folder.join("file"))?;
    ensure!(outside == "kept\n", "outside, the file is {outside:?}");

    // TLS is beyond this shell; that the connection opens is what the network can be blamed for.
    exec(scene, &namespace, "nc -w 5 10.96.0.1 443 </dev/null").await?;
    let (_, s3) = scene
        .bed()
        .s3()
        .endpoint
        .rsplit_once("//")
        .unwrap_or_default();
    let ask = format!(
        "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {}",
        s3.replace(':', " ")
    );
    let answer = exec(scene, &namespace, &ask).await?;
    ensure!(
        answer.contains("403"),
        "S3 without a key answers {answer:?}"
    );

    scene
        .kubectl(&["delete", "pv", &volume, "--wait=false"])
        .await?;
    Ok("deployment with a volume, exec, logs, API and S3 from the pod".to_owned())
}

async fn exec(scene: &Scene, namespace: &str, script: &str) -> anyhow::Result<String> {
    scene
        .kubectl(&[
            "-n",
            namespace,
            "exec",
            "deployment/web",
            "--",
            "sh",
            "-c",
            script,
        ])
        .await
}
