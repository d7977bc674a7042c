use std::{collections::BTreeMap, io::Read, sync::Arc};

use bowline_api::v1::{Backup, BackupSpec};
use bowline_apiserver::ApiServer;
use bowline_engine::{
    action::{ItemBlockAction, Refused, Related},
    backup::{self, Job, Outcome, PodVolumes, Settings},
    discovery::Resource,
    hooks::{Exec, Output},
    log::{Level, Log, Written},
    object::Facts,
};
use bowline_vault::archive::write;
use futures::TryStreamExt;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A cluster with these objects.
pub(crate) async fn cluster(objects: &[Value]) -> ApiServer {
    let server = ApiServer::default();
    let namespaces = ["shop", "other", "quiet"];
    let all = namespaces
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"name": name}}}))
        .chain(objects.iter().cloned());
    for object in all {
        server.load(&object).unwrap();
    }
    server
}

/// Plays the part of the containers: remembers what was run, and fails what is to fail.
#[derive(Default)]
pub(crate) struct Script(std::sync::Mutex<Vec<String>>, tokio::sync::Notify);

impl Script {
    pub(crate) fn tell(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
        self.1.notify_one();
    }

    pub(crate) fn told(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until enough has been told.
    pub(crate) async fn until(&self, is_enough: impl Fn(&[String]) -> bool) {
        while !is_enough(&self.told()) {
            self.1.notified().await;
        }
    }
}

#[async_trait::async_trait]
impl Exec for Script {
    async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        _: &str,
        command: &[String],
    ) -> Result<Output, String> {
        let command = command.join(" ");
        self.tell(&format!("{namespace}/{pod}: {command}"));
        Ok(Output {
            stdout: String::new(),
            stderr: String::new(),
            result: if command == "fail" {
                Err("exit code 1".to_owned())
            } else {
                Ok(())
            },
        })
    }
}

pub(crate) struct Made {
    pub(crate) entries: BTreeMap<String, Value>,
    pub(crate) outcome: Outcome,
    pub(crate) log: Written,
    pub(crate) progress: (u64, u64),
}

async fn back_up(server: &ApiServer, spec: Value) -> Made {
    back_up_with(server, spec, Arc::new(Script::default())).await
}

async fn back_up_with(server: &ApiServer, spec: Value, exec: Arc<dyn Exec>) -> Made {
    back_up_volumes(server, spec, exec, None).await
}

pub(crate) async fn back_up_volumes(
    server: &ApiServer,
    spec: Value,
    exec: Arc<dyn Exec>,
    pod_volumes: Option<Arc<dyn PodVolumes>>,
) -> Made {
    back_up_job(server, spec, |job| {
        job.exec = exec;
        job.pod_volumes = pod_volumes;
    })
    .await
}

/// A backup to make.
pub(crate) fn job(server: &ApiServer, spec: Value) -> Job {
    let spec: BackupSpec = serde_json::from_value(spec).unwrap();
    Job {
        client: Client::new(server.clone(), "default"),
        discovery: None,
        backup: Arc::new(Backup::new("velero", "b", spec)),
        policies: None,
        actions: Vec::new(),
        block_actions: Vec::new(),
        exec: Arc::new(Script::default()),
        pod_volumes: None,
        snapshots: None,
        csi: None,
        settings: Settings::default(),
        progress: Arc::default(),
        log: Log::new("backup", "velero/b", Level::Debug),
        cancel: CancellationToken::new(),
    }
}

pub(crate) async fn back_up_job(
    server: &ApiServer,
    spec: Value,
    change: impl FnOnce(&mut Job),
) -> Made {
    let mut job = job(server, spec);
    change(&mut job);
    let (progress, log) = (Arc::clone(&job.progress), job.log.clone());
    let (writer, stream) = write::stream();
    let bytes = stream.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    let (outcome, bytes) = tokio::join!(backup::run(job, writer), bytes);
    let (outcome, bytes) = (outcome.unwrap(), bytes.unwrap());
    assert_eq!(outcome.archive_bytes, bytes.len() as u64);
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
    let mut entries = BTreeMap::new();
    for (at, entry) in tar.entries().unwrap().enumerate() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut body = String::new();
        entry.read_to_string(&mut body).unwrap();
        if at == 0 {
            assert_eq!(
                (path.as_str(), body.as_str()),
                ("metadata/version", "1.1.0\n")
            );
            continue;
        }
        let value: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body.as_bytes(), bowline_api::json::to_vec(&value).unwrap());
        assert!(entries.insert(path, value).is_none(), "each path once");
    }
    Made {
        entries,
        outcome,
        log: log.take(),
        progress: progress.get(),
    }
}

impl Made {
    /// Paths without those below a version, and without what every cluster has.
    fn paths(&self) -> Vec<&str> {
        let own = |path: &&str| {
            !path.contains("-preferredversion/")
                && !path.contains("/kube-")
                && !path.contains("default")
                && !path.contains("/cluster/system:")
        };
        let paths: Vec<&str> = self.entries.keys().map(String::as_str).collect();
        assert_eq!(
            paths
                .iter()
                .filter(|p| p.contains("-preferredversion/"))
                .count()
                * 2,
            paths.len()
        );
        paths.into_iter().filter(own).collect()
    }
}

/// Says that all ConfigMaps belong to one, and keeps what it was shown.
#[derive(Default)]
struct Circle(std::sync::Mutex<Vec<Value>>);

#[async_trait::async_trait]
impl ItemBlockAction for Circle {
    fn name(&self) -> &str {
        "example.com/circle"
    }
    fn applies_to(&self, resource: &Resource) -> bool {
        resource.plural == "configmaps"
    }
    fn concerns(&self, _: &Facts<'_>) -> bool {
        true
    }
    async fn related(&self, object: &Value, _: &Backup) -> Result<Vec<Related>, Refused> {
        self.0.lock().unwrap().push(object.clone());
        Ok(vec![Related::new("configmaps", "shop", "middle")])
    }
}

#[tokio::test]
async fn actions_are_shown_objects_that_say_what_they_are() {
    let maps = ["a", "middle", "z"].map(|name| config_map("shop", name, json!({})));
    let server = cluster(&maps).await;
    let circle = Arc::new(Circle::default());
    let action = Arc::clone(&circle);
    let made = back_up_job(&server, json!({"includedNamespaces": ["shop"]}), |job| {
        job.block_actions = vec![action];
    })
    .await;
    assert_eq!(made.log.errors, 0);
    let stored = "resources/configmaps/namespaces/shop/";
    let stored = made.paths().into_iter().filter(|p| p.starts_with(stored));
    assert_eq!(stored.count(), 3);
    let shown = circle.0.lock().unwrap();
    assert_eq!(shown.len(), 3, "each once: {shown:?}");
    for object in &*shown {
        assert_eq!(
            (&object["apiVersion"], &object["kind"]),
            (&json!("v1"), &json!("ConfigMap"))
        );
    }
}

fn config_map(namespace: &str, name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "<&>"},
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
    })
}

pub(crate) fn app() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"priorityClassName": "high", "containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}},
        }),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "shop", "name": "robot"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "robots"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "robot"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "robot"}],
        }),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "robot"}, "rules": []}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "unbound"}, "rules": []}),
        config_map("shop", "settings", json!({"app": "shop"})),
        config_map("other", "settings", json!({"app": "other"})),
    ]
}

#[tokio::test]
async fn a_namespace_brings_what_it_needs() {
    let server = cluster(&app()).await;
    let made = back_up(&server, json!({"includedNamespaces": ["shop"]})).await;
    assert_eq!(
        made.paths(),
        [
            "resources/clusterrolebindings.rbac.authorization.k8s.io/cluster/robots.json",
            "resources/clusterroles.rbac.authorization.k8s.io/cluster/robot.json",
            "resources/configmaps/namespaces/shop/settings.json",
            "resources/namespaces/cluster/shop.json",
            "resources/persistentvolumeclaims/namespaces/shop/data.json",
            "resources/persistentvolumes/cluster/pv-1.json",
            "resources/pods/namespaces/shop/web.json",
            "resources/priorityclasses.scheduling.k8s.io/cluster/high.json",
            "resources/serviceaccounts/namespaces/shop/robot.json",
        ]
    );
    assert_eq!(
        (made.log.warnings, made.log.errors),
        (0, 0),
        "{:?}",
        made.log.results
    );
    assert_eq!(made.progress, (made.outcome.items, made.outcome.items));
    assert_eq!(made.outcome.resource_list["v1/Pod"], ["shop/web"]);
    let map = &made.entries["resources/configmaps/namespaces/shop/settings.json"];
    assert_eq!(
        (&map["kind"], &map["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test]
async fn a_whole_cluster_is_all_of_it() {
    let server = cluster(&app()).await;
    let made = back_up(&server, json!({})).await;
    let paths = made.paths();
    for expected in [
        "resources/clusterroles.rbac.authorization.k8s.io/cluster/unbound.json",
        "resources/configmaps/namespaces/other/settings.json",
        "resources/namespaces/cluster/quiet.json",
        "resources/pods/namespaces/shop/web.json",
    ] {
        assert!(paths.contains(&expected), "{expected}");
    }
    assert_eq!(made.outcome.items * 2, made.entries.len() as u64);
    assert_eq!(made.log.errors, 0, "{:?}", made.log.results);
}

#[tokio::test]
async fn selectors_choose_objects_and_their_namespaces() {
    let server = cluster(&app()).await;
    let made = back_up(
        &server,
        json!({"labelSelector": {"matchLabels": {"app": "other"}}}),
    )
    .await;
    assert_eq!(
        made.paths(),
        [
            "resources/configmaps/namespaces/other/settings.json",
            "resources/namespaces/cluster/other.json"
        ]
    );
    let either = json!({"orLabelSelectors": [{"matchLabels": {"app": "other"}}, {"matchLabels": {"app": "shop"}}]});
    let made = back_up(&server, either).await;
    assert_eq!(made.paths().len(), 4);
}

#[tokio::test]
async fn what_is_left_out_is_named() {
    let mut objects = app();
    objects.push(config_map(
        "shop",
        "private",
        json!({"velero.io/exclude-from-backup": "true"}),
    ));
    let server = cluster(&objects).await;
    let made = back_up(&server, json!({"includedNamespaces": ["shop", "gone"]})).await;
    assert!(!made.paths().iter().any(|p| p.contains("private")));
    assert_eq!(
        made.log.results.extra["skipped"],
        json!({"namespaces": {"shop": [" resource: /configmaps name: /private message: /left out because of its label velero.io/exclude-from-backup=true"]}})
    );
    assert_eq!(
        made.log.results.errors.velero.as_deref(),
        Some(&[" resource: /namespaces message: /fail to get the namespace gone specified in backup.Spec.IncludedNamespaces".to_owned()][..])
    );
}

#[tokio::test]
async fn custom_resources_bring_their_definition() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"namespace": "shop", "name": "w"}, "spec": {"size": 5}});
    let server = cluster(&[definition, widget]).await;
    let made = back_up(&server, json!({"includedNamespaces": ["shop"]})).await;
    assert_eq!(
        made.paths(),
        [
            "resources/customresourcedefinitions.apiextensions.k8s.io/cluster/widgets.example.com.json",
            "resources/namespaces/cluster/shop.json",
            "resources/widgets.example.com/namespaces/shop/w.json",
        ]
    );
}

#[tokio::test]
async fn an_ordered_name_that_is_missing_is_a_warning() {
    let server = cluster(&app()).await;
    let made = back_up(&server, json!({"includedNamespaces": ["shop"], "orderedResources": {"pods": "shop/web,shop/nosuch"}})).await;
    assert_eq!(
        made.log.results.warnings.velero.as_deref(),
        Some(&[" message: /Cannot find resource 'shop/nosuch'.".to_owned()][..])
    );
    assert!(
        made.entries
            .contains_key("resources/pods/namespaces/shop/web.json")
    );
}

pub(crate) fn hooked(name: &str, annotations: Value, claim: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
        "status": {"phase": "Running"},
    })
}

#[tokio::test]
async fn pods_that_share_a_volume_are_frozen_together() {
    let hooks = |word: &str| json!({"pre.hook.backup.velero.io/command": format!("freeze-{word}"), "post.hook.backup.velero.io/command": format!("thaw-{word}")});
    let mut objects = app();
    objects.push(hooked("db-0", hooks("0"), "data"));
    objects.push(hooked("db-1", hooks("1"), "data"));
    let server = cluster(&objects).await;
    let script = Arc::new(Script::default());
    let made = back_up_with(
        &server,
        json!({"includedNamespaces": ["shop"]}),
        Arc::clone(&script) as _,
    )
    .await;
    let ran = script.0.lock().unwrap().clone();
    let mut sorted = ran.clone();
    sorted.sort_by_key(|line| line.contains("thaw"));
    assert_eq!(ran, sorted, "nothing is thawed before all are frozen");
    assert_eq!(ran.len(), 4);
    assert_eq!(
        (
            made.outcome.hooks.hooks_attempted,
            made.outcome.hooks.hooks_failed
        ),
        (Some(4), None)
    );
    let windows = made.log.results.hook_windows.unwrap().pods;
    let pods: Vec<&str> = windows.iter().map(|window| window.pod.as_str()).collect();
    assert_eq!(pods, ["db-0", "db-1"], "and no pod without hooks");
    for path in [
        "pods/namespaces/shop/db-0",
        "pods/namespaces/shop/db-1",
        "persistentvolumeclaims/namespaces/shop/data",
        "persistentvolumes/cluster/pv-1",
    ] {
        assert!(
            made.entries.contains_key(&format!("resources/{path}.json")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_hook_that_must_not_fail_leaves_its_pod_out() {
    let must = json!({"pre.hook.backup.velero.io/command": "fail", "pre.hook.backup.velero.io/on-error": "Fail", "post.hook.backup.velero.io/command": "thaw"});
    let may = json!({"pre.hook.backup.velero.io/command": "fail"});
    let mut objects = app();
    objects.push(hooked("torn", must, "other"));
    objects.push(hooked("worn", may, "another"));
    let server = cluster(&objects).await;
    let script = Arc::new(Script::default());
    let made = back_up_with(
        &server,
        json!({"includedNamespaces": ["shop"]}),
        Arc::clone(&script) as _,
    )
    .await;
    assert!(
        !made
            .entries
            .contains_key("resources/pods/namespaces/shop/torn.json")
    );
    assert!(
        made.entries
            .contains_key("resources/pods/namespaces/shop/worn.json")
    );
    assert!(
        !made.outcome.resource_list["v1/Pod"].contains(&"shop/torn".to_owned()),
        "not listed either"
    );
    assert!(
        !script
            .0
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("thaw"))
    );
    assert_eq!(made.log.errors, 3, "{:?}", made.log.results);
    let errors = &made.log.results.errors.namespaces.as_ref().unwrap()["shop"];
    assert!(errors.contains(&" resource: /pods name: /torn message: /Error running pre hooks for pod error: /exit code 1".to_owned()), "{errors:?}");
}

#[tokio::test]
async fn lists_of_many_batches_lose_nothing() {
    let mut objects = Vec::new();
    for n in 0..2000 {
        let mut map = config_map("shop", &format!("m{n}"), json!({}));
        map["data"]["text"] = json!("x".repeat(n % 700));
        objects.push(map);
    }
    // More than a batch by itself.
    let mut large = config_map("shop", "large", json!({}));
    large["data"]["text"] = json!("y".repeat(900_000));
    objects.push(large);
    let server = cluster(&objects).await;
    let made = back_up(&server, json!({"includedNamespaces": ["shop"]})).await;
    assert_eq!(made.log.errors, 0, "{:?}", made.log.results);
    assert_eq!(made.outcome.resource_list["v1/ConfigMap"].len(), 2001);
}
