//! Plugins of the server.

use bowline_api::v1::ServerStatusRequest;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::bed::{Bed, golden_objects};

const AWS: &str = "velero/velero-plugin-for-aws:v1.14.3";

/// A server's Deployment beside another one, with a field that no version of ours knows.
fn deployments() -> Vec<Value> {
    let deployment = |name: &str, container: &str| {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": "velero", "labels": {"component": "velero"},
            },
            "spec": {
                "selector": {"matchLabels": {"deploy": name}},
                "template": {
                    "metadata": {"labels": {"deploy": name}},
                    "spec": {
                        "containers": [
                            {"name": container, "image": "b", "volumeMounts": [
                                {"name": "scratch", "mountPath": "/scratch"},
                            ]},
                            {"name": "side", "image": "s"},
                        ],
                        "volumes": [{"name": "scratch", "emptyDir": {}}],
                    },
                },
            },
        })
    };
    vec![deployment("ui", "ui"), deployment("server", "velero")]
}

async fn bed() -> Bed {
    let bed = Bed::start().await;
    for deployment in deployments() {
        bed.server.load(&deployment).unwrap();
    }
    bed
}

/// The pod of the server, as JSON.
async fn pod(bed: &Bed) -> Value {
    let api: Api<Deployment> = Api::namespaced(bed.client.clone(), "velero");
    let deployment = api.get("server").await.unwrap();
    let value = serde_json::to_value(deployment).unwrap();
    value["spec"]["template"]["spec"].clone()
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_an_init_container_of_the_server() {
    let bed = bed().await;
    let add = ["plugin", "add", AWS, "--confirm"];
    assert_eq!(bed.run(&add).await.well(), "");
    let once = pod(&bed).await;
    let container = &once["initContainers"][0];
    assert_eq!(container["name"], "velero-velero-plugin-for-aws");
    assert_eq!(container["image"], AWS);
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(
        container["volumeMounts"],
        json!([{"name": "plugins", "mountPath": "/target"}])
    );
    assert_eq!(names(&once["volumes"]), ["scratch", "plugins"]);
    assert_eq!(
        once["containers"][0]["volumeMounts"][1],
        json!({"name": "plugins", "mountPath": "/plugins"})
    );
    assert!(once["containers"][1]["volumeMounts"].is_null());

    let other = ["plugin", "add", "acme/disk:v1", "--confirm"];
    let never = ["--image-pull-policy", "Never"];
    bed.run(&[&other[..], &never].concat()).await.well();
    let twice = pod(&bed).await;
    assert_eq!(
        names(&twice["initContainers"]),
        ["velero-velero-plugin-for-aws", "acme-disk"]
    );
    assert_eq!(twice["initContainers"][1]["imagePullPolicy"], "Never");
    assert_eq!(twice["volumes"], once["volumes"]);
    assert_eq!(twice["containers"], once["containers"]);

    for plugin in ["acme-disk", AWS] {
        assert_eq!(bed.run(&["plugin", "remove", plugin]).await.well(), "");
    }
    assert!(names(&pod(&bed).await["initContainers"]).is_empty());
    assert_eq!(
        bed.run(&["plugin", "remove", AWS]).await.refused(),
        format!("bowline: init container {AWS} not found in Velero server deployment\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_added_without_a_yes() {
    let bed = bed().await;
    let asked = bed
        .run_with_input(&["plugin", "add", AWS], "what\nn\n")
        .await
        .well();
    let warning = "bowline plugin add may cause the Velero server pod restart, so it is a \
                   dangerous operation\n";
    assert_eq!(asked.matches(warning).count(), 2, "{asked}");
    assert!(asked.ends_with("Are you sure you want to continue (Y/N)? "));
    assert!(names(&pod(&bed).await["initContainers"]).is_empty());
    bed.run_with_input(&["plugin", "add", AWS], "y\n")
        .await
        .well();
    assert_eq!(pod(&bed).await["initContainers"][0]["image"], AWS);

    let empty = Bed::start().await;
    let refusal = empty
        .run(&["plugin", "add", AWS, "--confirm"])
        .await
        .refused();
    assert_eq!(refusal, "bowline: Velero deployment not found\n");
    let policy = ["plugin", "add", AWS, "--image-pull-policy", "Often"];
    let refusal = empty.run(&policy).await.refused();
    assert!(refusal.contains("invalid value: \"Often\""), "{refusal}");
}

/// Answers status requests as the server of the golden files did.
fn answer(bed: &Bed) -> AbortHandle {
    let recorded = golden_objects("terminal/serverstatusrequests.yaml");
    let status = recorded[0]["status"].clone();
    let api: Api<ServerStatusRequest> = Api::namespaced(bed.client.clone(), "velero");
    let answering = tokio::spawn(async move {
        let events = watcher::watcher(api.clone(), watcher::Config::default());
        let mut fresh = events.default_backoff().applied_objects().boxed();
        while let Some(request) = fresh.next().await {
            let name = request.unwrap().name_any();
            let answer = Patch::Merge(json!({"status": status}));
            let params = PatchParams::default();
            api.patch(&name, &params, &answer).await.unwrap();
        }
    });
    answering.abort_handle()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_asked_for_its_plugins() {
    let bed = Bed::start().await;
    let alone = bed
        .run(&["plugin", "get", "--timeout", "200ms"])
        .await
        .well();
    assert!(
        alone.starts_with("<error getting plugin information: ") && alone.ends_with(">\n"),
        "{alone}"
    );

    let answering = answer(&bed);
    let recorded = include_str!("../golden/cli/plugin-get.txt");
    let (_, table) = recorded.split_once('\n').unwrap();
    let (table, _) = table.split_once("--- exit").unwrap();
    for words in [["plugin", "get"], ["get", "plugins"], ["get", "plugin"]] {
        assert_eq!(bed.run(&words).await.well(), table);
    }
    let json = bed.run(&["plugin", "get", "-o", "json"]).await.well();
    let object: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["kind"], "ServerStatusRequest");
    assert_eq!(
        object["status"]["plugins"][0]["name"],
        "velero.io/crd-remap-version"
    );
    answering.abort();
    for format in ["wide", "name"] {
        let refusal = bed.run(&["plugin", "get", "-o", format]).await.refused();
        let wanted = "valid values are 'table', 'json', and 'yaml'";
        assert!(refusal.contains(wanted), "{refusal}");
    }
}
