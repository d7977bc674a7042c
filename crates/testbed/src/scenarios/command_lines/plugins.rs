//! Plugins of Velero's server, and those of a Deployment that looks like its own. The server's real
//! one has no label here, and stays as it is: restores look at it.

use bowline_api::names::DEFAULT_NAMESPACE;
use serde_json::json;

use super::{Line, Talk, plain, print};
use crate::{scene::Scene, servers::Server};

/// The Deployment.
const NAME: &str = "plugged";

/// Runs all commands; what the Deployment is then counts as said too.
pub(super) async fn talk(scene: &Scene, line: Line) -> anyhow::Result<Talk> {
    let process = Server::Velero.start(scene, &[]).await?;
    scene.apply(&[deployment()]).await?;
    let mut talk = Talk::new();
    for command in [
        "plugin get",
        "get plugins",
        "get plugin",
        "plugin add velero/velero-plugin-for-aws:v1.14.3 --confirm",
        "plugin add registry.example/a_b/c.d:v1 --image-pull-policy Always --confirm",
        "plugin remove nosuch/image:1",
        "plugin remove velero/velero-plugin-for-aws:v1.14.3",
        "plugin remove a-b-c-d",
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        let printed = print(scene, line, &words).await?;
        talk.push((command.to_owned(), plain(scene, &printed)));
        let pod = scene
            .kubectl(&[
                "-n",
                DEFAULT_NAMESPACE,
                "get",
                "deployment",
                NAME,
                "-o",
                "jsonpath={.spec.template.spec}",
            ])
            .await?;
        talk.push((format!("the pod after {command}"), pod));
    }
    scene
        .kubectl(&["-n", DEFAULT_NAMESPACE, "delete", "deployment", NAME])
        .await?;
    process.stop().await?;
    Ok(talk)
}

fn deployment() -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": NAME, "namespace": DEFAULT_NAMESPACE, "labels": { "component": "velero" },
        },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "deploy": NAME } },
            "template": {
                "metadata": { "labels": { "deploy": NAME } },
                "spec": { "containers": [{ "name": "velero", "image": "velero/velero:v1.18.3" }] },
            },
        },
    })
}
