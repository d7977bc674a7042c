//! The pods of an installation: the server's Deployment and the node agents' DaemonSet, shaped so
//! that whoever looks for Velero's finds them.

use bowline_api::{
    Duration, StringMap,
    names::{CLOUD_CREDENTIALS_KEY, CLOUD_CREDENTIALS_SECRET, NODE_AGENT, SERVER, label},
};
use serde_json::{Value, json};

use super::{
    check::{Resources, given},
    flags::Args,
    objects::metadata,
};
use crate::{
    commands::plugin::container::{self, FOLDER},
    flags::{List, Map},
};

/// Where metrics are.
const PORT: u16 = 8085;
/// Where credentials are.
const CREDENTIALS: &str = "/credentials";
/// Where there is room for what must not stay.
const SCRATCH: &str = "/scratch";
/// The user `nobody`: the server needs no rights on its node.
const NOBODY: u32 = 65534;

/// What the pods are made from.
pub(super) struct Pods<'a> {
    pub(super) args: &'a Args,
    pub(super) namespace: &'a str,
    pub(super) features: &'a [String],
    pub(super) account: &'a str,
    pub(super) has_secret: bool,
}

pub(super) fn deployment(pods: &Pods<'_>) -> anyhow::Result<Value> {
    let args = pods.args;
    let mut annotations: StringMap = [
        ("prometheus.io/scrape", "true".to_owned()),
        ("prometheus.io/port", PORT.to_string()),
        ("prometheus.io/path", "/metrics".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    annotations.extend(Map::merged(&args.pods.pod_annotations).unwrap_or_default());

    let mut container = pods.container(SERVER, server_args(pods), args.server.resources()?);
    container["livenessProbe"] = probe("/healthz", 10);
    container["readinessProbe"] = probe("/readyz", 2);
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "runAsNonRoot": true,
        "runAsUser": NOBODY,
    });
    // What a plugin's image brings beside its program.
    push(
        &mut container["env"],
        json!({ "name": "LD_LIBRARY_PATH", "value": FOLDER }),
    );
    push(&mut container["volumeMounts"], container::mount());
    let mut spec = pods.spec(container, args.server.server_priority_class_name.as_ref());
    push(&mut spec["volumes"], container::volume());
    let plugins = plugins(args.server.plugins.as_ref());
    if !plugins.is_empty() {
        spec["initContainers"] = json!(plugins);
    }
    spec["restartPolicy"] = json!("Always");
    spec["os"] = json!({ "name": "linux" });
    // On SIGTERM, work under way has 20 seconds to end.
    spec["terminationGracePeriodSeconds"] = json!(40);
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(SERVER, pods.namespace),
        "spec": {
            "selector": { "matchLabels": { label::DEPLOY: SERVER } },
            "template": {
                "metadata": {
                    "labels": pods.labels(&[(label::DEPLOY, SERVER)]),
                    "annotations": annotations,
                },
                "spec": spec,
            },
        },
    }))
}

/// The init containers that bring plugins.
fn plugins(images: Option<&List>) -> Vec<Value> {
    let mut plugins = Vec::new();
    for image in List::entries(images).unwrap_or_default() {
        plugins.push(container::container(&image, pull_policy(&image), &plugins));
    }
    plugins
}

pub(super) fn daemon_set(pods: &Pods<'_>) -> anyhow::Result<Value> {
    let agent = &pods.args.node_agent;
    let mut container = pods.container(NODE_AGENT, node_agent_args(pods), agent.resources()?);
    push(
        &mut container["env"],
        json!({ "name": "NODE_NAME", "valueFrom": field("spec.nodeName") }),
    );
    container["securityContext"] = json!({ "privileged": agent.privileged_node_agent });
    let has_volumes = !agent.node_agent_disable_host_path;
    if has_volumes {
        // Volumes that are mounted on the host later must be seen too.
        let mount = json!({
            "name": "host-pods",
            "mountPath": "/host_pods",
            "mountPropagation": "HostToContainer",
        });
        push(&mut container["volumeMounts"], mount);
    }
    let mut spec = pods.spec(container, agent.node_agent_priority_class_name.as_ref());
    if has_volumes {
        let path = format!("{}/pods", agent.kubelet_root_dir.trim_end_matches('/'));
        let volume = json!({ "name": "host-pods", "hostPath": { "path": path } });
        push(&mut spec["volumes"], volume);
    }
    // Files in volumes belong to anybody.
    spec["securityContext"] = json!({ "runAsUser": 0 });
    let mut template = json!({
        "metadata": { "labels": pods.labels(&[("name", NODE_AGENT), (label::ROLE, NODE_AGENT)]) },
        "spec": spec,
    });
    if let Some(annotations) = Map::merged(&pods.args.pods.pod_annotations) {
        template["metadata"]["annotations"] = json!(annotations);
    }
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(NODE_AGENT, pods.namespace),
        "spec": {
            "selector": { "matchLabels": { "name": NODE_AGENT } },
            "template": template,
        },
    }))
}

impl Pods<'_> {
    /// What all containers have.
    fn container(&self, name: &str, args: Vec<String>, resources: Resources) -> Value {
        let image = &self.args.pods.image;
        let mut env = vec![
            json!({ "name": "VELERO_NAMESPACE", "valueFrom": field("metadata.namespace") }),
            json!({ "name": "VELERO_SCRATCH_DIR", "value": SCRATCH }),
            json!({ "name": "TMPDIR", "value": SCRATCH }),
        ];
        let mut mounts = vec![json!({ "name": "scratch", "mountPath": SCRATCH })];
        if self.has_secret {
            let file = format!("{CREDENTIALS}/{CLOUD_CREDENTIALS_KEY}");
            env.extend(
                [
                    "GOOGLE_APPLICATION_CREDENTIALS",
                    "AWS_SHARED_CREDENTIALS_FILE",
                    "AZURE_CREDENTIALS_FILE",
                    "ALIBABA_CLOUD_CREDENTIALS_FILE",
                ]
                .map(|name| json!({ "name": name, "value": file })),
            );
            mounts.push(json!({ "name": CLOUD_CREDENTIALS_SECRET, "mountPath": CREDENTIALS }));
        }
        json!({
            "name": name,
            "image": image,
            "imagePullPolicy": pull_policy(image),
            "command": ["/bowline"],
            "args": args,
            "env": env,
            "ports": [{ "name": "metrics", "containerPort": PORT }],
            "resources": requirements(resources),
            "volumeMounts": mounts,
        })
    }

    /// What all pods have.
    fn spec(&self, container: Value, priority: Option<&String>) -> Value {
        let mut volumes = vec![json!({ "name": "scratch", "emptyDir": {} })];
        if self.has_secret {
            let secret = json!({ "secretName": CLOUD_CREDENTIALS_SECRET, "defaultMode": 0o444 });
            volumes.push(json!({ "name": CLOUD_CREDENTIALS_SECRET, "secret": secret }));
        }
        let mut spec = json!({
            "serviceAccountName": self.account,
            "containers": [container],
            "volumes": volumes,
            "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                    "matchExpressions": [
                        { "key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"] },
                    ],
                }] },
            } },
        });
        if let Some(class) = given(priority) {
            spec["priorityClassName"] = json!(class);
        }
        spec
    }

    /// The labels of a pod; those that it is found by win.
    fn labels(&self, own: &[(&str, &str)]) -> StringMap {
        let mut labels = StringMap::from([(label::COMPONENT.to_owned(), SERVER.to_owned())]);
        labels.extend(Map::merged(&self.args.pods.pod_labels).unwrap_or_default());
        let own = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        labels.extend(own);
        labels
    }
}

fn server_args(pods: &Pods<'_>) -> Vec<String> {
    let (server, common) = (&pods.args.server, &pods.args.pods);
    let mut args = vec!["server".to_owned()];
    let mut text = |flag: &str, value: Option<String>| {
        args.extend(value.map(|value| format!("--{flag}={value}")));
    };
    let switch = |on: bool| on.then(|| "true".to_owned());
    let span = |span: &Option<Duration>| {
        let span = span.as_ref().filter(|span| **span != Duration::ZERO);
        span.map(ToString::to_string)
    };
    let name = |name: &Option<String>| given(name.as_ref()).cloned();
    let count = |count: Option<u32>| count.filter(|n| *n > 0).map(|n| n.to_string());
    text("features", joined(pods.features));
    text(
        "default-volumes-to-fs-backup",
        switch(server.default_volumes_to_fs_backup),
    );
    text(
        "default-snapshot-move-data",
        switch(server.default_snapshot_move_data),
    );
    text(
        "schedule-skip-immediately",
        switch(server.schedule_skip_immediately),
    );
    text("uploader-type", name(&server.uploader_type));
    text("restore-only", switch(server.restore_only));
    text(
        "default-repo-maintain-frequency",
        span(&server.default_repo_maintain_frequency),
    );
    text(
        "garbage-collection-frequency",
        span(&server.garbage_collection_frequency),
    );
    text(
        "fs-backup-timeout",
        span(&server.pod_volume_operation_timeout),
    );
    text(
        "backup-repository-configmap",
        name(&common.backup_repository_configmap),
    );
    text(
        "repo-maintenance-job-configmap",
        name(&server.repo_maintenance_job_configmap),
    );
    text(
        "item-block-worker-count",
        count(server.item_block_worker_count),
    );
    text("concurrent-backups", count(server.concurrent_backups));
    args
}

fn node_agent_args(pods: &Pods<'_>) -> Vec<String> {
    let mut args = vec![NODE_AGENT.to_owned(), "server".to_owned()];
    let agent = &pods.args.node_agent;
    let common = &pods.args.pods;
    for (flag, value) in [
        ("features", joined(pods.features)),
        ("node-agent-configmap", agent.node_agent_configmap.clone()),
        (
            "backup-repository-configmap",
            common.backup_repository_configmap.clone(),
        ),
    ] {
        let value = value.filter(|value| !value.is_empty());
        args.extend(value.map(|value| format!("--{flag}={value}")));
    }
    args
}

fn joined(features: &[String]) -> Option<String> {
    (!features.is_empty()).then(|| features.join(","))
}

/// An image that says no version, or the latest, may be a new one every time.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_pinned = image.contains('@') || last.split_once(':').is_some_and(|(_, t)| t != "latest");
    match is_pinned {
        true => "IfNotPresent",
        false => "Always",
    }
}

fn requirements(resources: Resources) -> Value {
    let mut value = json!({});
    for (part, amounts) in [
        ("requests", resources.requests),
        ("limits", resources.limits),
    ] {
        for (what, amount) in ["cpu", "memory"].into_iter().zip(amounts) {
            if let Some(amount) = amount {
                value[part][what] = json!(amount.to_string());
            }
        }
    }
    value
}

fn field(path: &str) -> Value {
    json!({ "fieldRef": { "fieldPath": path } })
}

fn probe(path: &str, period: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": "metrics" },
        "periodSeconds": period,
        "failureThreshold": 6,
    })
}

fn push(list: &mut Value, entry: Value) {
    if let Value::Array(list) = list {
        list.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[test]
    fn images_without_a_version_are_pulled_again() {
        for (image, wanted) in [
            ("bowline/bowline:v0.1.0", "IfNotPresent"),
            ("bowline/bowline", "Always"),
            ("bowline/bowline:latest", "Always"),
            ("registry:5000/bowline", "Always"),
            ("registry:5000/bowline:v1", "IfNotPresent"),
            ("bowline@sha256:00", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), wanted, "{image}");
        }
    }
}
