//! Which pods wait for which volumes.

use bowline_api::v1::PodVolumeBackup;
use bowline_apiserver::ApiServer;

use super::{super::config::configs, *};

fn backup(pod: &str, volume: &str, snapshot: &str) -> PodVolumeBackup {
    let backup = json!({
        "spec": {"pod": {"namespace": "shop", "name": pod}, "volume": volume},
        "status": {"snapshotID": snapshot},
    });
    serde_json::from_value(backup).unwrap()
}

fn action(server: &ApiServer, image: Option<&str>) -> Action {
    let cluster = Cluster {
        client: Client::new(server.clone(), "default"),
        namespace: "velero".to_owned(),
        image: image.map(str::to_owned),
        image_tag: "v1".to_owned(),
        copies: Arc::new(Copies::new(&[
            backup("web", "data", "s1"),
            backup("web", "cache", "s2"),
            backup("web", "failed", ""),
            backup("web", "token", "s3"),
            backup("other", "x", "s4"),
        ])),
        hooks: Default::default(),
    };
    Action::new(&cluster, &configs(json!([])))
}

fn pod(name: &str, init: &[&str]) -> Value {
    let init: Vec<Value> = init.iter().map(|name| json!({"name": name})).collect();
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "initContainers": init,
            "volumes": [{"name": "data"}, {"name": "cache"}, {"name": "token", "projected": {}}],
        },
    })
}

async fn changed(action: &Action, pod: &Value) -> Value {
    let mut restore = Restore::default();
    restore.metadata.uid = Some("uid-1".to_owned());
    let executed = action.execute(pod.clone(), pod, &restore).await;
    executed.unwrap().object
}

#[tokio::test]
async fn a_pod_waits_for_its_volumes_before_all_else() {
    let action = action(&ApiServer::default(), Some("r.io/velero:v9"));
    let pod = pod("web", &["first", "restic-wait"]);
    assert!(action.applies_to(PODS, &pod));
    let changed = changed(&action, &pod).await;
    let containers = items(&changed, "/spec/initContainers");
    assert_eq!(containers[1..], [json!({"name": "first"})]);
    let mut wait = containers[0].clone();
    wait.as_object_mut().unwrap().remove("securityContext");
    assert_eq!(
        wait,
        json!({
            "name": "restore-wait",
            "image": "r.io/velero:v9",
            "command": ["/velero-restore-helper"],
            "args": ["uid-1"],
            "env": [
                {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "volumeMounts": [
                {"name": "cache", "mountPath": "/restores/cache"},
                {"name": "data", "mountPath": "/restores/data"},
            ],
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"},
                "limits": {"cpu": "100m", "memory": "128Mi"},
            },
        })
    );
}

#[tokio::test]
async fn old_waits_go_also_where_nothing_is_to_be_waited_for() {
    let action = action(&ApiServer::default(), Some("i/i:i"));
    for (pod, applies, left) in [
        (pod("free", &[]), false, json!([])),
        (pod("free", &["restore-wait"]), true, Value::Null),
        (
            pod("free", &["a", "restic-wait", "restore-wait"]),
            true,
            json!([{"name": "a"}]),
        ),
    ] {
        assert_eq!(action.applies_to(PODS, &pod), applies, "{pod}");
        if applies {
            let changed = changed(&action, &pod).await;
            assert_eq!(changed["spec"]["initContainers"], left);
        }
    }
}

#[tokio::test]
async fn pods_of_very_old_backups_name_their_volumes() {
    let action = action(&ApiServer::default(), Some("i/i:i"));
    let mut pod = pod("free", &[]);
    pod["metadata"]["annotations"] = json!({"snapshot.velero.io/data": "abc"});
    assert!(action.applies_to(PODS, &pod));
    let changed = changed(&action, &pod).await;
    assert_eq!(
        changed["spec"]["initContainers"][0]["volumeMounts"],
        json!([{"name": "data", "mountPath": "/restores/data"}])
    );
}

#[tokio::test]
async fn the_image_is_that_of_the_server_unless_it_is_given() {
    let server = ApiServer::default();
    let refused = action(&server, None)
        .execute(pod("web", &[]), &pod("web", &[]), &Restore::default())
        .await
        .unwrap_err();
    let start = "no image for restore-wait: ";
    assert!(refused.to_string().starts_with(start), "{refused}");

    let workload = |kind: &str, name: &str, containers: Value| {
        let labels = json!({"deploy": "velero"});
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"namespace": "velero", "name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "containers": containers,
            }}},
        })
    };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero"}});
    server.load(&namespace).unwrap();
    for (object, image) in [
        (
            workload(
                "DaemonSet",
                "node-agent",
                json!([{"name": "agent", "image": "r.io/bowline:v2"}]),
            ),
            "r.io/bowline:v2",
        ),
        (
            workload(
                "Deployment",
                "velero",
                json!([{"name": "proxy", "image": "x"}, {"name": "velero", "image": "r.io/bowline:v3"}]),
            ),
            "r.io/bowline:v3",
        ),
    ] {
        server.load(&object).unwrap();
        let changed = changed(&action(&server, None), &pod("web", &[])).await;
        assert_eq!(changed["spec"]["initContainers"][0]["image"], image);
    }
}
