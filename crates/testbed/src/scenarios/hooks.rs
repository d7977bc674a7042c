//! Commands in real pods around their backup: what runs, in what order, and what a failure costs.

use anyhow::ensure;
use bowline_api::v1::BackupPhase;
use serde_json::{Value, json};

use crate::{
    bed::BUSYBOX,
    contents::Contents,
    peer,
    scene::Scene,
    servers::{self, Server},
};

/// Hooks from annotations and from the spec run in pods; failures cost what they must.
pub(super) async fn run_in_pods(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("hooks")?;
    peer::prepare(scene, &bucket).await?;
    let namespace = scene.namespace("hooked").await?;
    let pods = [
        pod(
            &namespace,
            "frozen",
            json!({
                "pre.hook.backup.velero.io/container": "main",
                "pre.hook.backup.velero.io/command": "[\"sh\", \"-c\", \"echo pre >> /tmp/said\"]",
                "post.hook.backup.velero.io/command": "[\"sh\", \"-c\", \"echo post >> /tmp/said\"]",
            }),
        ),
        pod(&namespace, "by-spec", json!({})),
        pod(
            &namespace,
            "torn",
            json!({
                "pre.hook.backup.velero.io/command": "[\"sh\", \"-c\", \"echo no >&2; exit 3\"]",
                "pre.hook.backup.velero.io/on-error": "Fail",
            }),
        ),
        pod(
            &namespace,
            "worn",
            json!({
                "pre.hook.backup.velero.io/command": "[\"sleep\", \"60\"]",
                "pre.hook.backup.velero.io/timeout": "1s",
            }),
        ),
        pod(
            &namespace,
            "nowhere",
            json!({
                "pre.hook.backup.velero.io/container": "nosuch",
                "pre.hook.backup.velero.io/command": "true",
            }),
        ),
    ];
    scene.apply(&pods).await?;
    scene
        .kubectl(&[
            "-n",
            &namespace,
            "wait",
            "pod",
            "--all",
            "--for=condition=Ready",
            "--timeout=120s",
        ])
        .await?;

    let server = Server::Ours.start(scene, &[]).await?;
    let name = scene.fresh("hooks");
    let spec = json!({
        "includedNamespaces": [namespace],
        "hooks": { "resources": [{
            "name": "by-label",
            "includedNamespaces": [namespace],
            "labelSelector": { "matchLabels": { "name": "by-spec" } },
            "pre": [{ "exec": { "command": ["sh", "-c", "echo spec-pre >> /tmp/said"] } }],
            "post": [{ "exec": { "command": ["sh", "-c", "echo spec-post >> /tmp/said"] } }],
        }] },
    });
    let ended = servers::back_up(&scene.client(), &name, &spec).await?;
    server.stop().await?;
    let status = ended.backup.status.clone().unwrap_or_default();
    ensure!(
        ended.phase() == BackupPhase::PartiallyFailed,
        "it ended as {status:?}"
    );
    let hooks = status.hook_status.unwrap_or_default();
    ensure!(
        (hooks.hooks_attempted, hooks.hooks_failed) == (Some(7), Some(3)),
        "hooks: {hooks:?}"
    );
    for (pod, said) in [
        ("frozen", "pre\npost\n"),
        ("by-spec", "spec-pre\nspec-post\n"),
    ] {
        let heard = scene
            .kubectl(&["-n", &namespace, "exec", pod, "--", "cat", "/tmp/said"])
            .await?;
        ensure!(heard == said, "{pod} said {heard:?}");
    }

    let contents = Contents::read(&bucket, &name)?;
    let stored = |pod: &str| {
        let path = format!("resources/pods/namespaces/{namespace}/{pod}.json");
        contents.archive.contains_key(&path)
    };
    ensure!(!stored("torn"), "a pod whose hook must not fail was stored");
    for pod in ["frozen", "by-spec", "worn", "nowhere"] {
        ensure!(stored(pod), "{pod} was not stored");
    }
    let results = &contents.files["-results.gz"];
    let errors = results["errors"]["namespaces"][&namespace].to_string();
    for words in [
        "name: /torn message: /Error executing hook error: /command terminated with exit code 3",
        "name: /worn message: /Error executing hook error: /timed out after 1s",
        "name: /nowhere message: /Error executing hook error: /no such container",
    ] {
        ensure!(
            errors.contains(words),
            "the errors do not have {words:?}: {errors}"
        );
    }
    peer::remove(scene).await?;
    Ok("7 hooks in 5 pods, 3 failed by name".to_owned())
}

fn pod(namespace: &str, name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "name": name }, "annotations": annotations },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": BUSYBOX, "command": ["sleep", "3600"] }],
        },
    })
}
