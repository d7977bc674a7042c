//! The pod that exposes a volume and moves its data. Pure: it is made like the pods of node processes,
//! of which it takes image, environment and secrets.

use std::collections::BTreeMap;

use bowline_api::names::label;
use clap::ValueEnum;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{
            Affinity, Container, NodeAffinity, NodeSelector, NodeSelectorRequirement,
            NodeSelectorTerm, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec,
            ResourceRequirements, Volume, VolumeDevice, VolumeMount,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
    },
};
use kube::ResourceExt;

use super::super::{Settings, config::Config};

/// How long a mover has to let its repository go when it is to end.
const GRACE: i64 = 10;
/// What other people's pods are told by.
const INHERITED_LABELS: &[&str] = &["azure.workload.identity/use"];
const INHERITED_ANNOTATIONS: &[&str] = &["iam.amazonaws.com/role"];
/// Taints that data movers put up with when node processes do.
const TOLERATED: &[&str] = &[
    "kubernetes.azure.com/scalesetpriority",
    "CriticalAddonsOnly",
];

/// What a pod is for.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    /// The name of the movement, which the pod and its claim have too.
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
    pub(super) owner: OwnerReference,
    /// The label by which it is found.
    pub(super) label: &'static str,
    pub(super) group: &'static str,
    /// `backup` or `restore`.
    pub(super) command: &'static str,
    /// The flag that takes the name.
    pub(super) flag: &'static str,
    pub(super) is_block: bool,
    pub(super) read_only: bool,
    /// The storage class of the volume, by which rules go.
    pub(super) class: &'a str,
    /// The only node that it may run on.
    pub(super) node: Option<&'a str>,
}

impl Wanted<'_> {
    /// Where the volume is in the pod.
    fn path(&self) -> String {
        format!("/{}", self.uid)
    }
}

/// The pod.
///
/// # Errors
/// When the DaemonSet has no pods that it could be made like.
pub(super) fn pod(
    daemons: &DaemonSet,
    wanted: &Wanted<'_>,
    config: &Config,
    settings: &Settings,
) -> Result<Pod, String> {
    let template = daemons.spec.as_ref().map(|spec| &spec.template);
    let like = template.and_then(|template| template.spec.as_ref());
    let [model] = like
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default()
    else {
        return Err(
            "the DaemonSet of node processes does not have exactly one container".to_owned(),
        );
    };
    let like = like.cloned().unwrap_or_default();
    let meta = template
        .and_then(|t| t.metadata.clone())
        .unwrap_or_default();
    let inherit = |from: Option<BTreeMap<String, String>>, names: &[&str]| {
        let mut from = from.unwrap_or_default();
        from.retain(|key, _| names.contains(&key.as_str()));
        from
    };
    let mut labels = inherit(meta.labels, INHERITED_LABELS);
    labels.extend(config.pod_labels.clone());
    for (key, value) in [
        (wanted.label, wanted.name),
        (label::EXPOSER_POD_GROUP, wanted.group),
        (label::EXCLUDE_FROM_BACKUP, "true"),
    ] {
        let value = bowline_api::names::label_value(value);
        labels.insert(key.to_owned(), value);
    }
    let mut annotations = inherit(meta.annotations, INHERITED_ANNOTATIONS);
    annotations.extend(config.pod_annotations.clone());
    // What a node process sees of its node is nothing for a mover.
    let mut volumes = like.volumes.unwrap_or_default();
    volumes.retain(|volume| volume.host_path.is_none());
    let is_kept = |mount: &VolumeMount| volumes.iter().any(|volume| volume.name == mount.name);
    let mut mounts = model.volume_mounts.clone().unwrap_or_default();
    mounts.retain(is_kept);
    volumes.push(Volume {
        name: wanted.uid.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: wanted.name.to_owned(),
            read_only: wanted.read_only.then_some(true),
        }),
        ..Volume::default()
    });
    let devices = wanted.is_block.then(|| {
        vec![VolumeDevice {
            name: wanted.uid.to_owned(),
            device_path: wanted.path(),
        }]
    });
    if !wanted.is_block {
        mounts.push(VolumeMount {
            name: wanted.uid.to_owned(),
            mount_path: wanted.path(),
            read_only: wanted.read_only.then_some(true),
            ..VolumeMount::default()
        });
    }
    let container = Container {
        name: wanted.uid.to_owned(),
        image: model.image.clone(),
        image_pull_policy: model.image_pull_policy.clone(),
        command: model
            .command
            .as_ref()
            .map(|words| words[..1.min(words.len())].to_vec()),
        args: Some(arguments(wanted, settings)),
        env: model.env.clone(),
        env_from: model.env_from.clone(),
        volume_mounts: Some(mounts),
        volume_devices: devices,
        resources: resources(config),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    };
    let mut tolerations = like.tolerations.unwrap_or_default();
    tolerations.retain(|t| t.key.as_deref().is_some_and(|key| TOLERATED.contains(&key)));
    let priority = Some(config.priority_class_name.clone()).filter(|name| !name.is_empty());
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(wanted.name.to_owned()),
            namespace: Some(wanted.namespace.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations).filter(|map| !map.is_empty()),
            owner_references: Some(vec![wanted.owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(volumes),
            affinity: affinity(wanted, config, like.affinity),
            // A mover that is killed begins again; what it has stored is not stored twice.
            restart_policy: Some("OnFailure".to_owned()),
            termination_grace_period_seconds: Some(GRACE),
            // Only where there is a node process to look after it.
            node_selector: like.node_selector.filter(|_| wanted.node.is_none()),
            service_account_name: like.service_account_name,
            image_pull_secrets: like.image_pull_secrets,
            tolerations: Some(tolerations).filter(|list| !list.is_empty()),
            priority_class_name: priority,
            security_context: Some(PodSecurityContext {
                run_as_user: Some(0),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
        status: None,
    })
}

fn arguments(wanted: &Wanted<'_>, settings: &Settings) -> Vec<String> {
    let mode = if wanted.is_block {
        "Block"
    } else {
        "Filesystem"
    };
    let mut args = vec!["data-mover".to_owned(), wanted.command.to_owned()];
    let mut flag = |name: &str, value: String| args.push(format!("--{name}={value}"));
    flag("volume-path", wanted.path());
    flag("volume-mode", mode.to_owned());
    flag(wanted.flag, wanted.name.to_owned());
    let seconds = settings.resource_timeout.as_secs();
    flag("resource-timeout", format!("{seconds}s"));
    flag("log-level", word(settings.log_level));
    flag("log-format", word(settings.log_format));
    flag("memory", settings.memory.to_string());
    if let Some(program) = &settings.restic_binary {
        flag("restic-binary", program.display().to_string());
    }
    args
}

/// A value as the command line has it.
fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

fn resources(config: &Config) -> Option<ResourceRequirements> {
    let said = &config.pod_resources;
    let map = |pairs: [(&str, &String); 3]| {
        let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let given = given.map(|(key, value)| (key.to_owned(), Quantity(value.clone())));
        let map: BTreeMap<_, _> = given.collect();
        Some(map).filter(|map| !map.is_empty())
    };
    let requests = map([
        ("cpu", &said.cpu_request),
        ("memory", &said.memory_request),
        ("ephemeral-storage", &said.ephemeral_storage_request),
    ]);
    let limits = map([
        ("cpu", &said.cpu_limit),
        ("memory", &said.memory_limit),
        ("ephemeral-storage", &said.ephemeral_storage_limit),
    ]);
    let is_said = requests.is_some() || limits.is_some();
    is_said.then(|| ResourceRequirements {
        requests,
        limits,
        ..ResourceRequirements::default()
    })
}

/// Where it may run: not on Windows, where node processes may, where the rules of its storage class allow
/// it, and on the node that is wanted.
fn affinity(wanted: &Wanted<'_>, config: &Config, like: Option<Affinity>) -> Option<Affinity> {
    let mut expressions = vec![requirement("kubernetes.io/os", "NotIn", &["windows"])];
    // Where the volume is of use weighs more than where it may be filled.
    let rule = config.affinity(wanted.class);
    if let Some(rule) = rule.filter(|_| wanted.node.is_none()) {
        expressions.extend(terms(rule));
    }
    let fields = wanted
        .node
        .map(|node| vec![requirement("metadata.name", "In", &[node])]);
    let like = like.filter(|_| wanted.node.is_none());
    let like = like.and_then(|like| like.node_affinity);
    let like = like.and_then(|like| like.required_during_scheduling_ignored_during_execution);
    // One of them is enough, and one without any is nowhere.
    let like = like.map_or_else(
        || vec![NodeSelectorTerm::default()],
        |like| like.node_selector_terms,
    );
    let with = |term: NodeSelectorTerm| {
        let said = term.match_expressions.into_iter().flatten();
        NodeSelectorTerm {
            match_expressions: Some(expressions.iter().cloned().chain(said).collect()),
            match_fields: term.match_fields.or_else(|| fields.clone()),
        }
    };
    Some(Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: like.into_iter().map(with).collect(),
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

fn terms(rule: &LabelSelector) -> Vec<NodeSelectorRequirement> {
    let labels = rule.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| requirement(key, "In", &[value]));
    let said = rule.match_expressions.iter().flatten();
    let said = said.map(|term| NodeSelectorRequirement {
        key: term.key.clone(),
        operator: term.operator.clone(),
        values: term.values.clone(),
    });
    labels.chain(said).collect()
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
    }
}

/// Whether a pod is the one of a movement, and not another one of its name.
pub(super) fn is_of(pod: &Pod, uid: &str) -> bool {
    pod.owner_references().iter().any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests;
