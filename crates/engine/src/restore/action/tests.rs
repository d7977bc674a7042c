//! The actions together, and those that ask the cluster.

use bowline_apiserver::{ApiServer, Fault, Rule, When};
use serde_json::json;

use super::*;

fn cluster(server: &ApiServer) -> Cluster {
    Cluster {
        client: Client::new(server.clone(), "default"),
        namespace: "velero".to_owned(),
        image: None,
        image_tag: "v1".to_owned(),
        copies: Default::default(),
        hooks: Arc::default(),
    }
}

fn server(objects: &[Value]) -> ApiServer {
    let server = ApiServer::default();
    for name in ["velero", "shop"] {
        server
            .load(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .unwrap();
    }
    for object in objects {
        server.load(object).unwrap();
    }
    server
}

async fn action(server: &ApiServer, name: &str) -> Arc<dyn RestoreItemAction> {
    let actions = built_in(&cluster(server)).await.unwrap();
    let found = actions.into_iter().find(|action| action.name() == name);
    found.unwrap()
}

#[tokio::test]
async fn actions_run_by_name() {
    let actions = built_in(&cluster(&server(&[]))).await.unwrap();
    let names: Vec<&str> = actions.iter().map(|action| action.name()).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert_eq!(names.len(), 17);
}

fn token(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "annotations": {
            "kubernetes.io/service-account.uid": "1", "kubernetes.io/service-account.name": "web",
        }},
        "type": "kubernetes.io/service-account-token",
        "data": {"token": "dA==", "ca.crt": "Yw==", "namespace": "bg=="},
    })
}

#[tokio::test]
async fn tokens_that_kubernetes_makes_stay_behind() {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "shop", "name": "web"}});
    let server = server(&[account]);
    let action = action(&server, "velero.io/secret").await;
    let left = json!({
        "metadata": {"namespace": "shop", "name": "x", "annotations": {"kubernetes.io/service-account.name": "web"}},
        "type": "kubernetes.io/service-account-token",
        "data": {"namespace": "bg=="},
    });
    for (name, skip) in [
        ("web-token-abcde", true),
        ("web-tok", false),
        ("mine", false),
    ] {
        let secret = token(name);
        assert!(action.applies_to("secrets", &secret));
        let executed = action
            .execute(secret.clone(), &secret, &Restore::default())
            .await
            .unwrap();
        assert_eq!(executed.skip, skip, "{name}");
        if !skip {
            let mut expected = left.clone();
            expected["metadata"]["name"] = name.into();
            assert_eq!(executed.object, expected);
        }
    }
    assert!(!action.applies_to("secrets", &json!({"type": "Opaque"})));

    // What is known of a namespace is not asked for again.
    let broken = Rule {
        method: None,
        path: String::new(),
        when: When::Always,
        fault: Fault::Status(500),
    };
    server.set_faults(vec![broken], 1);
    let again = token("web-token-2");
    let executed = action
        .execute(again.clone(), &again, &Restore::default())
        .await;
    assert!(executed.unwrap().skip);
}

fn mapping(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "namespace": "velero", "name": "classes",
        "labels": {"velero.io/plugin-config": "", "velero.io/change-storage-class": "RestoreItemAction"},
    }, "data": data})
}

#[tokio::test]
async fn storage_classes_are_changed_if_the_new_one_exists() {
    let fast = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "p"});
    let server = server(&[fast, mapping(&json!({"slow": "fast", "old": "missing"}))]);
    let action = action(&server, "velero.io/change-storage-class").await;
    let claim =
        |class: &str| json!({"kind": "PersistentVolumeClaim", "spec": {"storageClassName": class}});
    let set = |first: &str, second: &str| json!({"kind": "StatefulSet", "spec": {"volumeClaimTemplates": [claim(first), claim(second), {"spec": {}}]}});
    let missing = "error getting storage class missing from API: storageclasses.storage.k8s.io \"missing\" not found";
    for (object, expected) in [
        (claim("slow"), Ok(claim("fast"))),
        (claim("other"), Ok(claim("other"))),
        (claim(""), Ok(claim(""))),
        (json!({"spec": {}}), Ok(json!({"spec": {}}))),
        (set("slow", "other"), Ok(set("fast", "other"))),
        (claim("old"), Err(missing)),
        (set("other", "old"), Err(missing)),
    ] {
        let changed = action
            .execute(object.clone(), &object, &Restore::default())
            .await;
        let changed = changed.map(|executed| executed.object);
        assert_eq!(
            changed,
            expected.map_err(|why| Refused(why.to_owned())),
            "{object}"
        );
    }
    assert!(action.applies_to("persistentvolumes", &json!({})));
    assert!(!action.applies_to("pods", &json!({})));
}
