use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bowline_api::v1::{PodVolumeBackup, Restore, RestoreSpec};
use bowline_apiserver::{ApiServer, Fault, Rule, When};
use bowline_engine::{
    log::{Level, Log, Written},
    progress::Progress,
    restore::{
        self, Job, Outcome, Settings,
        action::{self, Cluster},
        dry::{Plan, Step},
        hooks::SpecHooks,
        plan::Priorities,
        pod_volume::{Copies, PodVolumes},
    },
};
use bowline_vault::archive::{
    read::Reader,
    write::{Batch, Packer, stream},
};
use futures::StreamExt;
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Where an object stands in an archive; a kind's plural is guessed.
fn path(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let group = text("/apiVersion")
        .split_once('/')
        .map(|(group, _)| format!(".{group}"));
    let kind = text("/kind").to_lowercase();
    let plural = if kind.ends_with("class") {
        format!("{kind}es")
    } else {
        format!("{kind}s")
    };
    let kind = format!("{plural}{}", group.unwrap_or_default());
    match text("/metadata/namespace") {
        "" => format!("resources/{kind}/cluster/{}.json", text("/metadata/name")),
        namespace => format!(
            "resources/{kind}/namespaces/{namespace}/{}.json",
            text("/metadata/name")
        ),
    }
}

/// An archive of these objects, and of these files as they are.
pub(crate) fn archive(objects: &[Value], files: &[(&str, &str)]) -> Reader {
    let mut batch = Batch::new(0);
    for object in objects {
        batch.add(&path(object), object.to_string().as_bytes());
    }
    for (path, body) in files {
        batch.add(path, body.as_bytes());
    }
    let packed = Packer::new(1).pack(&batch);
    let (mut writer, stream) = stream();
    tokio::spawn(async move {
        writer.push(packed).await.unwrap();
        writer.finish().await.unwrap();
    });
    Reader::new("backups/b/b.tar.gz", stream.boxed())
}

struct Made {
    outcome: Outcome,
    log: Written,
    progress: (u64, u64),
}

pub(crate) async fn job(
    server: &ApiServer,
    spec: Value,
    log: &Log,
    progress: &Arc<Progress>,
) -> Job {
    job_with(server, spec, log, progress, PodVolumes::default()).await
}

async fn job_with(
    server: &ApiServer,
    spec: Value,
    log: &Log,
    progress: &Arc<Progress>,
    pod_volumes: PodVolumes,
) -> Job {
    let mut spec: RestoreSpec = serde_json::from_value(spec).unwrap();
    spec.backup_name = Some("b".to_owned());
    let client = Client::new(server.clone(), "default");
    let cluster = Cluster {
        client: client.clone(),
        namespace: "velero".to_owned(),
        image: Some("r.io/bowline:v1".to_owned()),
        image_tag: "v1".to_owned(),
        copies: Arc::clone(&pod_volumes.copies),
        hooks: Arc::new(SpecHooks::new(spec.hooks.as_ref()).unwrap()),
    };
    let mut restore = Restore::new("velero", "r", spec);
    restore.metadata.uid = Some("uid-of-r".to_owned());
    Job {
        client,
        restore: Arc::new(restore),
        policies: None,
        modifiers: None,
        actions: action::built_in(&cluster).await.unwrap(),
        volumes: Vec::new(),
        pod_volumes,
        snapshots: None,
        downloads: None,
        settings: Settings {
            priorities: Priorities::default(),
            versions: None,
            terminating_timeout: Duration::from_secs(1),
            resource_timeout: Duration::from_secs(10),
        },
        progress: Arc::clone(progress),
        log: log.clone(),
        cancel: CancellationToken::new(),
        since: jiff::Timestamp::now(),
        resumed: false,
    }
}

async fn restore_with(server: &ApiServer, archive: Reader, spec: Value, resumed: bool) -> Made {
    let progress = Arc::new(Progress::default());
    let log = Log::new("restore", "velero/r", Level::Debug);
    let mut job = job(server, spec, &log, &progress).await;
    if resumed {
        job.resumed = true;
        job.since = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
    }
    let outcome = restore::run(job, archive).await.unwrap();
    Made {
        outcome,
        log: log.take(),
        progress: progress.get(),
    }
}

async fn restore(server: &ApiServer, objects: &[Value], spec: Value) -> Made {
    restore_with(server, archive(objects, &[]), spec, false).await
}

async fn plan(server: &ApiServer, objects: &[Value], spec: Value) -> Plan {
    let progress = Arc::new(Progress::default());
    let log = Log::new("restore", "velero/r", Level::Debug);
    let job = job(server, spec, &log, &progress).await;
    restore::rehearse(job, archive(objects, &[])).await.unwrap()
}

async fn get(server: &ApiServer, path: &str) -> Option<Value> {
    let client = Client::new(server.clone(), "default");
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.ok()
}

impl Made {
    /// All entries of the resource list.
    fn list(&self) -> Vec<String> {
        let list = self.outcome.resource_list.iter();
        list.flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")))
            .collect()
    }

    fn results(&self) -> Value {
        serde_json::to_value(&self.log.results).unwrap()
    }
}

fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
        "data": {"key": value},
    })
}

fn app() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}, "uid": "old"}}),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": "web", "uid": "old", "resourceVersion": "5", "creationTimestamp": "2020-01-01T00:00:00Z", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "x"}]},
            "spec": {"nodeName": "gone", "priorityClassName": "high", "containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Running"},
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "over"},
            "spec": {"containers": [{"name": "c", "image": "x"}]}, "status": {"phase": "Succeeded"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
            "spec": {"persistentVolumeReclaimPolicy": "Retain", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, "claimRef": {"namespace": "shop", "name": "data", "uid": "old"}},
        }),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}),
        config_map("shop", "settings", "x"),
    ]
}

#[tokio::test]
async fn everything_comes_back_without_its_former_life() {
    let server = ApiServer::default();
    let made = restore(&server, &app(), json!({})).await;
    assert_eq!(made.results(), json!({"errors": {}, "warnings": {}}));
    assert_eq!(
        made.list(),
        [
            "scheduling.k8s.io/v1/PriorityClass high(created)",
            "v1/ConfigMap shop/settings(created)",
            "v1/Namespace shop(created)",
            "v1/PersistentVolume pv-1(created)",
            "v1/PersistentVolumeClaim shop/data(created)",
            "v1/Pod shop/web(created)",
        ]
    );
    assert_eq!(made.progress, (7, 7), "the pod that is over counts too");
    let pod = get(&server, "/api/v1/namespaces/shop/pods/web")
        .await
        .unwrap();
    assert_eq!(pod["spec"]["nodeName"], Value::Null);
    assert_eq!(pod["metadata"]["ownerReferences"], Value::Null);
    assert_ne!(pod["metadata"]["uid"], "old");
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"velero.io/backup-name": "b", "velero.io/restore-name": "r"})
    );
    let namespace = get(&server, "/api/v1/namespaces/shop").await.unwrap();
    assert_eq!(namespace["metadata"]["labels"]["team"], "a");
    let volume = get(&server, "/api/v1/persistentvolumes/pv-1")
        .await
        .unwrap();
    assert_eq!(
        volume["spec"]["claimRef"],
        json!({"namespace": "shop", "name": "data"})
    );
    let claim = get(
        &server,
        "/api/v1/namespaces/shop/persistentvolumeclaims/data",
    )
    .await
    .unwrap();
    assert_eq!(claim["spec"]["volumeName"], "pv-1");
    assert_eq!(claim["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn one_object_costs_one_call() {
    let server = ApiServer::default();
    let mut objects: Vec<Value> = (0..100)
        .map(|n| {
            let mut object = config_map("shop", &format!("c{n}"), "x");
            object["metadata"]["managedFields"] = json!([{
                "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:key": {}}},
            }]);
            object
        })
        .collect();
    objects.insert(
        0,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
    );
    let made = restore(&server, &objects, json!({})).await;
    assert_eq!(made.progress, (101, 101));
    // The namespace is looked for and made.
    assert_eq!(made.outcome.calls, 102);
    let object = get(&server, "/api/v1/namespaces/shop/configmaps/c1")
        .await
        .unwrap();
    assert_eq!(
        object["metadata"]["managedFields"][0]["manager"],
        "kubectl-create"
    );
}

#[tokio::test]
async fn managers_come_back() {
    let server = ApiServer::default();
    let mut object = config_map("default", "c", "x");
    let managers = json!([
        {"manager": "a", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:key": {}}}},
    ]);
    object["metadata"]["managedFields"] = managers.clone();
    restore(&server, &[object], json!({})).await;
    let object = get(&server, "/api/v1/namespaces/default/configmaps/c")
        .await
        .unwrap();
    assert_eq!(object["metadata"]["managedFields"], managers);
}

#[tokio::test]
async fn volumes_without_data_are_made_anew() {
    let server = ApiServer::default();
    let mut objects = app();
    objects[4]["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    let made = restore(&server, &objects, json!({})).await;
    assert!(
        made.list()
            .contains(&"v1/PersistentVolume pv-1(skipped)".to_owned())
    );
    assert!(
        get(&server, "/api/v1/persistentvolumes/pv-1")
            .await
            .is_none()
    );
    let claim = get(
        &server,
        "/api/v1/namespaces/shop/persistentvolumeclaims/data",
    )
    .await
    .unwrap();
    assert_eq!(claim["spec"]["volumeName"], Value::Null);
}

#[tokio::test]
async fn what_others_need_comes_along_and_counts() {
    let server = ApiServer::default();
    let made = restore(&server, &app(), json!({"includedResources": ["pods", "pvc", "pv", "priorityclasses"], "includedNamespaces": ["shop"]})).await;
    let list = made.list();
    assert_eq!(
        list,
        [
            "scheduling.k8s.io/v1/PriorityClass high(created)",
            "v1/Namespace shop(created)",
            "v1/PersistentVolume pv-1(created)",
            "v1/PersistentVolumeClaim shop/data(created)",
            "v1/Pod shop/web(created)",
        ]
    );
    // Selected: two pods and the claim; brought along: class, volume, namespace.
    assert_eq!(made.progress, (6, 6));
}

#[tokio::test]
async fn namespaces_get_other_names() {
    let server = ApiServer::default();
    let mut objects = app();
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"namespace": "shop", "name": "rb"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "robot"}],
    }));
    objects.push(config_map("copy", "settings", "other"));
    let made = restore(
        &server,
        &objects,
        json!({"namespaceMapping": {"shop": "copy"}}),
    )
    .await;
    assert!(get(&server, "/api/v1/namespaces/shop").await.is_none());
    let pod = get(&server, "/api/v1/namespaces/copy/pods/web")
        .await
        .unwrap();
    assert_eq!(pod["metadata"]["namespace"], "copy");
    let binding = get(
        &server,
        "/apis/rbac.authorization.k8s.io/v1/namespaces/copy/rolebindings/rb",
    )
    .await
    .unwrap();
    assert_eq!(binding["subjects"][0]["namespace"], "copy");
    let volume = get(&server, "/api/v1/persistentvolumes/pv-1")
        .await
        .unwrap();
    assert_eq!(volume["spec"]["claimRef"]["namespace"], "copy");
    assert_eq!(
        made.results()["errors"],
        json!({"namespaces": {"copy": ["error restoring configmaps/copy/settings: namespaces copy and shop are both restored into copy, and both have it"]}})
    );
}

#[tokio::test]
async fn what_is_there_already_is_compared() {
    for (policy, expected, warnings, value) in [
        (
            json!(null),
            "failed",
            Some(
                "could not restore, ConfigMap:other already exists. Warning: the in-cluster version is different than the backed-up version",
            ),
            "mine",
        ),
        (
            json!("none"),
            "failed",
            Some(
                "could not restore, ConfigMap \"other\" already exists. Warning: the in-cluster version is different than the backed-up version",
            ),
            "mine",
        ),
        (json!("update"), "updated", None, "x"),
    ] {
        let server = ApiServer::default();
        server.load(&config_map("default", "same", "x")).unwrap();
        server
            .load(&config_map("default", "other", "mine"))
            .unwrap();
        let objects = [
            config_map("default", "same", "x"),
            config_map("default", "other", "x"),
        ];
        let made = restore(&server, &objects, json!({"existingResourcePolicy": policy})).await;
        assert_eq!(
            made.list(),
            [
                format!("v1/ConfigMap default/other({expected})"),
                "v1/ConfigMap default/same(skipped)".to_owned()
            ]
        );
        let said = warnings.map(|text| json!({"namespaces": {"default": [text]}}));
        assert_eq!(
            made.results()["warnings"],
            said.unwrap_or_else(|| json!({}))
        );
        let other = get(&server, "/api/v1/namespaces/default/configmaps/other")
            .await
            .unwrap();
        assert_eq!(other["data"]["key"], value);
        let same = get(&server, "/api/v1/namespaces/default/configmaps/same")
            .await
            .unwrap();
        let label = &same["metadata"]["labels"]["velero.io/restore-name"];
        assert_eq!(label.is_string(), policy == "update");
    }
}

#[tokio::test]
async fn service_accounts_are_merged() {
    let server = ApiServer::default();
    let account = |secrets: Value, label: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "robot", "labels": {label: "1"}}, "secrets": secrets});
    server
        .load(&account(json!([{"name": "a"}]), "live"))
        .unwrap();
    let made = restore(
        &server,
        &[account(json!([{"name": "b"}]), "stored")],
        json!({}),
    )
    .await;
    assert_eq!(made.list(), ["v1/ServiceAccount default/robot(updated)"]);
    let merged = get(&server, "/api/v1/namespaces/default/serviceaccounts/robot")
        .await
        .unwrap();
    assert_eq!(merged["secrets"], json!([{"name": "a"}, {"name": "b"}]));
    assert_eq!(merged["metadata"]["labels"]["live"], "1");
    assert_eq!(merged["metadata"]["labels"]["stored"], "1");
}

#[tokio::test]
async fn custom_kinds_come_after_their_definitions() {
    let server = ApiServer::default();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"namespace": "shop", "name": "w"}, "spec": {"size": 5}, "status": {"ready": true}});
    let unknown = json!({"apiVersion": "gone.example.com/v1", "kind": "Thing", "metadata": {"namespace": "shop", "name": "t"}});
    let spec = json!({"restoreStatus": {"includedResources": ["widgets.example.com"]}});
    let made = restore(&server, &[widget, definition, unknown], spec).await;
    assert_eq!(
        made.results()["errors"],
        json!({"namespaces": {"shop": ["error restoring things.gone.example.com/shop/t: the server could not find the requested resource: it does not serve Thing in gone.example.com/v1 as things"]}})
    );
    let widget = get(&server, "/apis/example.com/v1/namespaces/shop/widgets/w")
        .await
        .unwrap();
    assert_eq!(widget["status"], json!({"ready": true}));
    assert!(
        made.list()
            .contains(&"example.com/v1/Widget shop/w(created)".to_owned())
    );
}

#[tokio::test]
async fn a_restore_that_is_taken_up_finds_its_own_work() {
    let server = ApiServer::default();
    let first = restore(&server, &app()[..4], json!({})).await;
    assert_eq!(first.log.errors, 0);
    let uid = |pod: Option<Value>| pod.unwrap()["metadata"]["uid"].clone();
    let before = uid(get(&server, "/api/v1/namespaces/shop/pods/web").await);
    let second = restore_with(&server, archive(&app(), &[]), json!({}), true).await;
    assert_eq!(second.results(), json!({"errors": {}, "warnings": {}}));
    assert!(
        second
            .list()
            .iter()
            .all(|entry| entry.ends_with("(created)")),
        "{:?}",
        second.list()
    );
    assert_eq!(second.progress, (7, 7));
    assert_eq!(
        uid(get(&server, "/api/v1/namespaces/shop/pods/web").await),
        before
    );
}

#[tokio::test]
async fn what_goes_wrong_in_passing_leaves_no_trace() {
    for fault in [
        Fault::Lost,
        Fault::Cut(20),
        Fault::Status(500),
        Fault::Status(503),
        Fault::Throttle(1),
    ] {
        let server = ApiServer::default();
        let rule = |path: &str| Rule {
            method: Some(Method::POST),
            path: path.to_owned(),
            when: When::First(1),
            fault,
        };
        // The namespace is the first that is created there.
        server.set_faults(vec![rule("/namespaces"), rule("/configmaps")], 1);
        let made = restore(&server, &app(), json!({})).await;
        assert_eq!(
            made.results(),
            json!({"errors": {}, "warnings": {}}),
            "{fault:?}"
        );
        let list = made.list();
        assert_eq!(list.len(), 6, "{fault:?}: {list:?}");
        assert!(
            list.iter().all(|entry| entry.ends_with("(created)")),
            "{fault:?}: {list:?}"
        );
        assert_eq!(made.progress, (7, 7), "{fault:?}");
    }
}

#[tokio::test]
async fn bad_entries_are_named_and_the_rest_goes_on() {
    let server = ApiServer::default();
    let files = [
        (
            "resources/configmaps/namespaces/shop/broken.json",
            "{\"kind\": ",
        ),
        ("resources/configmaps/namespaces/shop/empty.json", "{}"),
    ];
    let made = restore_with(&server, archive(&app(), &files), json!({}), false).await;
    let errors = made.results()["errors"]["namespaces"]["shop"].clone();
    let errors: Vec<&str> = errors
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for name in ["broken", "empty"] {
        let start =
            format!("error decoding \"resources/configmaps/namespaces/shop/{name}.json\": ");
        assert!(
            errors.iter().any(|text| text.starts_with(&start)),
            "{errors:?}"
        );
    }
    assert!(
        get(&server, "/api/v1/namespaces/shop/configmaps/settings")
            .await
            .is_some()
    );
}

#[tokio::test]
async fn an_old_namespace_that_does_not_go_is_an_error() {
    let server = ApiServer::default();
    server
        .load(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}, "spec": {"finalizers": ["kubernetes"]}}))
        .unwrap();
    server.load(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "held", "finalizers": ["example.com/hold"]}})).unwrap();
    let client = Client::new(server.clone(), "default");
    let request = Request::delete("/api/v1/namespaces/shop")
        .body(Vec::new())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
    let objects = [
        config_map("shop", "a", "x"),
        config_map("shop", "b", "x"),
        config_map("default", "c", "x"),
    ];
    let made = restore(&server, &objects, json!({})).await;
    let mut errors = made.log.results.errors.velero.clone().unwrap();
    errors.sort();
    assert_eq!(
        errors,
        [
            "skipping polling for terminating namespace shop: timed out waiting for terminating namespace shop to disappear before restoring",
            "timed out waiting for terminating namespace shop to disappear before restoring",
        ]
    );
    assert!(
        get(&server, "/api/v1/namespaces/default/configmaps/c")
            .await
            .is_some()
    );
    assert_eq!(made.progress, (3, 3));
}

#[tokio::test]
async fn an_empty_archive_is_a_warning() {
    let server = ApiServer::default();
    let made = restore_with(
        &server,
        archive(&[], &[("metadata/version", "1.1.0\n")]),
        json!({}),
        false,
    )
    .await;
    let warnings = made.log.results.warnings.velero.unwrap();
    assert!(
        warnings[0].starts_with("zero items to be restored"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn the_rehearsal_says_what_then_happens() {
    let server = ApiServer::default();
    for object in [
        config_map("default", "same", "x"),
        config_map("default", "other", "mine"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}, "data": {"p": "b2xk"}}),
    ] {
        server.load(&object).unwrap();
    }
    let mut objects = app();
    objects.extend([
        config_map("default", "same", "x"),
        config_map("default", "other", "x"),
        config_map("default", "new", "x"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}, "data": {"p": "bmV3"}}),
        json!({"apiVersion": "gone.example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "t"}}),
    ]);
    for (policy, words) in [
        (
            json!(null),
            BTreeMap::from([("default/other", "conflict"), ("default/s", "conflict")]),
        ),
        (
            json!("update"),
            BTreeMap::from([("default/other", "update"), ("default/s", "update")]),
        ),
    ] {
        let spec = json!({"existingResourcePolicy": policy});
        let version = |server: &ApiServer| {
            let server = server.clone();
            async move {
                get(&server, "/api/v1/configmaps").await.unwrap()["metadata"]["resourceVersion"]
                    .clone()
            }
        };
        let before = version(&server).await;
        let plan = plan(&server, &objects, spec.clone()).await;
        assert_eq!(version(&server).await, before, "nothing is written");
        let planned: BTreeMap<String, &Step> = plan
            .items
            .iter()
            .map(|item| (format!("{}/{}", item.namespace, item.name), &item.step))
            .collect();
        for (name, word) in words {
            assert_eq!(planned[name].word(), word, "{name}");
        }
        assert_eq!(planned["default/same"].word(), "unchanged");
        assert_eq!(planned["default/t"].word(), "refused");
        assert_eq!(planned["shop/over"].word(), "skip");
        assert_eq!(plan.missing, ["definition of things.gone.example.com"]);
        assert!(
            !serde_json::to_string(&plan).unwrap().contains("bmV3"),
            "no secrets"
        );

        // The restore then does that, item by item; on a copy, so that the next round begins anew.
        let copy = ApiServer::default();
        for object in [
            config_map("default", "same", "x"),
            config_map("default", "other", "mine"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}, "data": {"p": "b2xk"}}),
        ] {
            copy.load(&object).unwrap();
        }
        let made = restore(&copy, &objects, spec).await;
        let done: BTreeMap<String, String> = made
            .outcome
            .resource_list
            .values()
            .flatten()
            .map(|entry| {
                let (name, word) = entry.trim_end_matches(')').rsplit_once('(').unwrap();
                let name = if name.contains('/') {
                    name.to_owned()
                } else {
                    format!("/{name}")
                };
                (name, word.to_owned())
            })
            .collect();
        for (name, step) in planned {
            let expected = match step {
                Step::Create => Some("created"),
                Step::Update { .. } => Some("updated"),
                Step::Unchanged => Some("skipped"),
                Step::Conflict { .. } | Step::Refused { .. } => Some("failed"),
                Step::Skip { .. } => None,
            };
            assert_eq!(done.get(&name).map(String::as_str), expected, "{name}");
        }
    }
}

#[tokio::test]
async fn an_object_is_what_its_folder_says() {
    let server = ApiServer::default();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"}, "data": {}}).to_string();
    let files = [(
        "resources/configmaps/namespaces/default/s.json",
        secret.as_str(),
    )];
    let made = restore_with(
        &server,
        archive(&[], &files),
        json!({"excludedResources": ["secrets"]}),
        false,
    )
    .await;
    assert_eq!(
        made.results()["errors"],
        json!({"namespaces": {"default": ["error restoring configmaps/default/s: the server could not find the requested resource: it does not serve Secret in v1 as configmaps"]}})
    );
    assert!(
        get(&server, "/api/v1/namespaces/default/secrets/s")
            .await
            .is_none()
    );
}

/// Copies of volumes of pod `shop/web`: one of restic's, one of kopia's, one that failed.
fn copies() -> PodVolumes {
    let backup = |volume: &str, uploader: &str, snapshot: &str, phase: &str| -> PodVolumeBackup {
        serde_json::from_value(json!({
            "metadata": {"name": format!("b-{volume}")},
            "spec": {"pod": {"namespace": "shop", "name": "web"}, "volume": volume, "uploaderType": uploader},
            "status": {"snapshotID": snapshot, "phase": phase, "message": "no node", "progress": {"totalBytes": 7, "bytesDone": 7}},
        }))
        .unwrap()
    };
    PodVolumes {
        copies: Arc::new(Copies::new(&[
            backup("v", "restic", "1a2b3c4d", "Completed"),
            backup("old", "kopia", "k0p1a", "Completed"),
            backup("broken", "restic", "", "Failed"),
        ])),
        location: "default".to_owned(),
        repositories: "s3:http://s3/b/restic".to_owned(),
    }
}

fn app_with_volumes() -> Vec<Value> {
    let mut app = app();
    app[1]["spec"]["volumes"] = json!([
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "old", "emptyDir": {}},
        {"name": "broken", "emptyDir": {}},
    ]);
    app
}

async fn server_with_kinds() -> ApiServer {
    let server = ApiServer::default();
    for crd in bowline_api::crd::all() {
        server.load(&crd).unwrap();
    }
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero"}});
    server.load(&namespace).unwrap();
    server
}

#[tokio::test]
async fn volumes_of_a_pod_are_asked_for_once() {
    let server = server_with_kinds().await;
    // Requests go with their restore.
    let restore = json!({"apiVersion": "velero.io/v1", "kind": "Restore", "metadata": {"namespace": "velero", "name": "r", "uid": "uid-of-r"}, "spec": {"backupName": "b"}});
    server.load(&restore).unwrap();
    let spec = json!({"namespaceMapping": {"shop": "copy"}, "uploaderConfig": {"parallelFilesDownload": 3}});
    let mut names = Vec::new();
    for resumed in [false, true] {
        let log = Log::new("restore", "velero/r", Level::Debug);
        let progress = Arc::new(Progress::default());
        let mut job = job_with(&server, spec.clone(), &log, &progress, copies()).await;
        job.resumed = resumed;
        job.since = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
        let outcome = restore::run(job, archive(&app_with_volumes(), &[]))
            .await
            .unwrap();
        assert_eq!(outcome.fillings.len(), 1, "resumed: {resumed}");
        assert_eq!(outcome.fillings[0].claim.as_deref(), Some("data"));
        names.push(outcome.fillings[0].request.metadata.name.clone());
        let results = serde_json::to_value(log.take().results).unwrap();
        assert_eq!(
            results["errors"],
            json!({"velero": ["pod volume restore failed: volume old of pod copy/web: snapshot k0p1a is in a repository of kopia's format, which this version does not read; the pod waits for it until it is deleted"]})
        );
        assert_eq!(
            results["warnings"],
            json!({"namespaces": {"copy": ["volume broken of pod copy/web starts empty, because the backup has nothing of it: PodVolumeBackup b-broken is Failed: no node"]}})
        );
    }
    assert_eq!(names[0], names[1]);
    let list = "/apis/velero.io/v1/namespaces/velero/podvolumerestores";
    let list = get(&server, list).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let pod = get(&server, "/api/v1/namespaces/copy/pods/web")
        .await
        .unwrap();
    let claim = "/api/v1/namespaces/copy/persistentvolumeclaims/data";
    let claim = get(&server, claim).await.unwrap();
    let request = &list["items"][0];
    assert_eq!(
        request["spec"],
        json!({
            "pod": {"kind": "Pod", "namespace": "copy", "name": "web", "uid": pod["metadata"]["uid"]},
            "volume": "v", "backupStorageLocation": "default", "repoIdentifier": "s3:http://s3/b/restic/shop",
            "uploaderType": "restic", "snapshotID": "1a2b3c4d", "snapshotSize": 7, "sourceNamespace": "shop",
            "uploaderSettings": {"WriteSparseFiles": "false", "ParallelFilesDownload": "3"},
        })
    );
    assert_eq!(
        request["metadata"]["labels"],
        json!({
            "velero.io/restore-name": "r", "velero.io/restore-uid": "uid-of-r",
            "velero.io/pod-uid": pod["metadata"]["uid"], "velero.io/pvc-uid": claim["metadata"]["uid"],
        })
    );
    // It waits for the volume that nobody can fill, too.
    let mounts = &pod["spec"]["initContainers"][0]["volumeMounts"];
    let mounts: Vec<_> = mounts
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["name"])
        .collect();
    assert_eq!(mounts, ["old", "v"]);
}

#[tokio::test]
async fn a_pod_that_is_there_keeps_its_volumes_as_they_are() {
    let server = server_with_kinds().await;
    for mut object in app_with_volumes() {
        let _ = object["metadata"]
            .as_object_mut()
            .map(|m| m.remove("resourceVersion"));
        server.load(&object).unwrap();
    }
    let log = Log::new("restore", "velero/r", Level::Debug);
    let progress = Arc::new(Progress::default());
    let job = job_with(&server, json!({}), &log, &progress, copies()).await;
    let outcome = restore::run(job, archive(&app_with_volumes(), &[]))
        .await
        .unwrap();
    assert_eq!(outcome.fillings, []);
}

#[tokio::test]
async fn a_rehearsal_names_the_volumes_and_where_they_come_from() {
    let server = server_with_kinds().await;
    let log = Log::new("restore", "velero/r", Level::Debug);
    let progress = Arc::new(Progress::default());
    let job = job_with(&server, json!({}), &log, &progress, copies()).await;
    let plan = restore::rehearse(job, archive(&app_with_volumes(), &[]))
        .await
        .unwrap();
    let volumes = serde_json::to_value(&plan.volumes).unwrap();
    assert_eq!(
        volumes,
        json!([
            {"namespace": "shop", "pod": "web", "volume": "broken", "problem": "the backup has nothing of it: PodVolumeBackup b-broken is Failed: no node"},
            {"namespace": "shop", "pod": "web", "volume": "old", "snapshot": "k0p1a", "bytes": 7, "problem": "snapshot k0p1a is in a repository of kopia's format, which this version does not read"},
            {"namespace": "shop", "pod": "web", "volume": "v", "claim": "data", "snapshot": "1a2b3c4d", "bytes": 7},
        ])
    );
    assert!(
        get(&server, "/api/v1/namespaces/shop").await.is_none(),
        "nothing was touched"
    );
}

#[tokio::test]
async fn a_claim_gets_a_new_volume_also_when_the_old_one_is_filtered_out() {
    let server = server_with_kinds().await;
    let log = Log::new("restore", "velero/r", Level::Debug);
    let progress = Arc::new(Progress::default());
    let spec = json!({"includeClusterResources": false});
    let mut job = job_with(&server, spec, &log, &progress, copies()).await;
    let info = json!([{"pvName": "pv-1", "pvcName": "data", "pvcNamespace": "shop", "backupMethod": "PodVolumeBackup"}]);
    job.volumes = serde_json::from_value(info).unwrap();
    restore::run(job, archive(&app_with_volumes(), &[]))
        .await
        .unwrap();
    let claim = get(
        &server,
        "/api/v1/namespaces/shop/persistentvolumeclaims/data",
    )
    .await;
    assert_eq!(claim.unwrap()["spec"]["volumeName"], Value::Null);
}
