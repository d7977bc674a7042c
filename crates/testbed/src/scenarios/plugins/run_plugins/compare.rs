//! Velero's actions and ours, called with the same objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, ensure};
use bowline_api::{
    json as spelled,
    names::DEFAULT_NAMESPACE,
    v1::{Backup, PodVolumeBackup, Restore},
};
use bowline_engine::{
    action::{self, BackupItemAction, Related},
    discovery::{Discovery, Resource, Versions},
    object::Facts,
    restore::{pod_volume::Copies, source::Installation},
    scope::{Scope, Wanted},
};
use bowline_plugin::{
    host::Plugins,
    kinds::{Identifier, Kind, Selector},
};
use bytes::Bytes;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::BACKUP;
use crate::contents::differences;

/// Actions of Velero that are not built in here, and why.
const NOT_OURS: &[(&str, &str)] = &[
    (
        "velero.io/crd-remap-version",
        "definitions are stored as they are served",
    ),
    (
        "velero.io/csi-pvc-backupper",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-volumesnapshot-backupper",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-volumesnapshotcontent-backupper",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-volumesnapshotclass-backupper",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-pvc-restorer",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-volumesnapshot-restorer",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-volumesnapshotcontent-restorer",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
    (
        "velero.io/csi-volumesnapshotclass-restorer",
        "CSI is off; its snapshots are compared by csi-both-ways",
    ),
];

/// Differences that are meant: the action, how the difference begins, and why.
const MEANT: &[(&str, &str, &str)] = &[(
    "velero.io/crd-preserve-fields",
    ".status: absent | {\"acceptedNames\":{\"kind\":\"\",\"plural\":\"\"}}",
    "a typed definition of Go has a status, if an empty one; ours stays as it is",
)];

/// The block actions of Velero, and our backup actions that bring the same objects. Here they are no
/// actions of their own: the engine itself puts pods that share a claim into one block.
const BLOCKS: &[(&str, &str)] = &[
    ("velero.io/pod", "velero.io/pod"),
    ("velero.io/pvc", "velero.io/pv"),
    ("velero.io/service-account", "velero.io/service-account"),
];

/// Everything to compare with.
pub(super) struct Compared<'a> {
    client: Client,
    plugins: &'a Plugins,
    discovery: Discovery,
    objects: Vec<(Resource, Value)>,
    copies: Vec<PodVolumeBackup>,
}

/// What an action made of an object.
#[derive(Debug, PartialEq)]
struct Made {
    object: Value,
    related: BTreeSet<String>,
    skip: bool,
}

impl<'a> Compared<'a> {
    /// All objects of a cluster, and some that a cluster without nodes does not have.
    pub(super) async fn new(
        client: Client,
        plugins: &'a Plugins,
        copies: Vec<PodVolumeBackup>,
    ) -> anyhow::Result<Self> {
        let discovery = Discovery::read(&client, Versions::Preferred).await?;
        let mut objects = Vec::new();
        for resource in &discovery.resources {
            let request = Request::get(resource.path(None)).body(Vec::new())?;
            let list: Value = client.request(request).await?;
            for mut object in list["items"].as_array().cloned().unwrap_or_default() {
                object["apiVersion"] = resource.api_version().into();
                object["kind"] = resource.kind.clone().into();
                objects.push((resource.clone(), object));
            }
        }
        for (name, object) in more() {
            let resource = discovery.find(name).context("no such resource")?;
            objects.push((resource.clone(), object));
        }
        Ok(Self {
            client,
            plugins,
            discovery,
            objects,
            copies,
        })
    }

    /// The names of Velero's actions of some kinds; each is ours too, or is known not to be.
    fn names(&self, kinds: &[Kind], ours: &BTreeSet<String>) -> anyhow::Result<Vec<String>> {
        let entries = self.plugins.registry().entries().iter();
        let theirs: BTreeSet<String> = entries
            .filter(|entry| kinds.contains(&entry.kind))
            .map(|entry| entry.name.clone())
            .collect();
        let is_known = |name: &&String| NOT_OURS.iter().any(|(known, _)| known == name);
        let extra: Vec<&String> = theirs
            .iter()
            .filter(|name| !ours.contains(*name) && !is_known(name))
            .collect();
        ensure!(extra.is_empty(), "only Velero has {extra:?}");
        let lost: Vec<&String> = ours.difference(&theirs).collect();
        ensure!(lost.is_empty(), "only we have {lost:?}");
        Ok(ours.iter().cloned().collect())
    }

    fn scope(&self, selector: Selector) -> anyhow::Result<Scope> {
        let wanted = Wanted {
            included_namespaces: selector.included_namespaces,
            excluded_namespaces: selector.excluded_namespaces,
            included_resources: selector.included_resources,
            excluded_resources: selector.excluded_resources,
            label_selector: selector.label_selector,
        };
        Scope::new(&wanted, &self.discovery).map_err(anyhow::Error::msg)
    }

    async fn ours(&self) -> anyhow::Result<BTreeMap<String, Arc<dyn BackupItemAction>>> {
        let all = action::built_in(&self.client).await?;
        let named = |action: Arc<dyn BackupItemAction>| (action.name().to_owned(), action);
        Ok(all.into_iter().map(named).collect())
    }

    /// Backup item actions; how many results were compared.
    pub(super) async fn backup_actions(&self) -> anyhow::Result<usize> {
        let ours = self.ours().await?;
        let (backup, raw) = backup()?;
        let kinds = [Kind::BackupItemAction, Kind::BackupItemActionV2];
        let names = self.names(&kinds, &ours.keys().cloned().collect())?;
        let (mut number, mut found) = (0, Vec::new());
        for name in names {
            let (ours, theirs) = (&ours[&name], self.plugins.backup_item_action(&name)?);
            let scope = self.scope(theirs.applies_to().await?)?;
            for resource in &self.discovery.resources {
                let kind = resource.group_resource();
                ensure!(
                    scope.has_kind(&kind) == ours.applies_to(resource),
                    "{name} is for {kind} on one side only"
                );
            }
            for (resource, object) in &self.objects {
                if !ours.applies_to(resource) {
                    continue;
                }
                let item = bytes(object)?;
                let done = theirs.execute(&item, &raw).await;
                let done = done.with_context(|| format!("{name} on {}", place(object)))?;
                let theirs = Made::of(done.item, object, &done.additional, false)?;
                let ours = execute(&**ours, &item, object, &backup).await?;
                note(&mut found, &name, object, &ours, &theirs);
                number += 1;
            }
        }
        ensure!(found.is_empty(), "ours | theirs\n{}", found.join("\n"));
        Ok(number)
    }

    /// Item block actions, against the backup actions that bring the same.
    pub(super) async fn block_actions(&self) -> anyhow::Result<usize> {
        let ours = self.ours().await?;
        let (backup, raw) = backup()?;
        let known = BLOCKS.iter().map(|(block, _)| (*block).to_owned());
        self.names(&[Kind::ItemBlockAction], &known.collect())?;
        let (mut number, mut found) = (0, Vec::new());
        for (block, action) in BLOCKS {
            let (ours, theirs) = (&ours[*action], self.plugins.item_block_action(block)?);
            let scope = self.scope(theirs.applies_to().await?)?;
            for (resource, object) in &self.objects {
                let kind = resource.group_resource();
                ensure!(
                    scope.has_kind(&kind) == ours.applies_to(resource),
                    "{block} is for {kind} on one side only"
                );
                if !scope.has_kind(&kind) {
                    continue;
                }
                let item = bytes(object)?;
                let theirs: BTreeSet<String> = identifiers(&theirs.related(&item, &raw).await?);
                let ours = execute(&**ours, &item, object, &backup).await?.related;
                if ours != theirs {
                    let place = place(object);
                    found.push(format!("{block} on {place}: {ours:?} | {theirs:?}"));
                }
                number += 1;
            }
        }
        ensure!(found.is_empty(), "ours | theirs\n{}", found.join("\n"));
        Ok(number)
    }

    /// Restore item actions.
    pub(super) async fn restore_actions(&self) -> anyhow::Result<usize> {
        let (restore, raw) = restore()?;
        let installation = Installation {
            client: self.client.clone(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
        };
        let copies = Arc::new(Copies::new(&self.copies));
        let all = installation.actions(&restore, &copies).await?;
        let all = all.map_err(anyhow::Error::msg)?;
        let ours: BTreeMap<_, _> = all.iter().map(|a| (a.name().to_owned(), a)).collect();
        let kinds = [Kind::RestoreItemAction, Kind::RestoreItemActionV2];
        let names = self.names(&kinds, &ours.keys().cloned().collect())?;
        let (mut number, mut found) = (0, Vec::new());
        for name in names {
            let (ours, theirs) = (ours[&name], self.plugins.restore_item_action(&name)?);
            let scope = self.scope(theirs.applies_to().await?)?;
            for (resource, pristine) in &self.objects {
                let kind = resource.group_resource();
                let applies = ours.applies_to(&kind, pristine);
                if !scope.has_kind(&kind) {
                    ensure!(!applies, "{name} is for {kind} only here");
                    continue;
                }
                let object = reset(pristine);
                let (item, from_backup) = (bytes(&object)?, bytes(pristine)?);
                let done = theirs.execute(&item, &from_backup, &raw).await;
                let done = done.with_context(|| format!("{name} on {}", place(pristine)))?;
                let theirs = Made::of(done.item, &object, &done.additional, done.skip)?;
                let ours = if applies {
                    let done = ours.execute(object.clone(), pristine, &restore).await;
                    let done = done.with_context(|| format!("our {name} on {}", place(pristine)));
                    let done = done?;
                    Made {
                        object: plain(done.object),
                        related: places(&done.related),
                        skip: done.skip,
                    }
                } else {
                    Made::of(None, &object, &[], false)?
                };
                note(&mut found, &name, pristine, &ours, &theirs);
                number += 1;
            }
        }
        ensure!(found.is_empty(), "ours | theirs\n{}", found.join("\n"));
        Ok(number)
    }
}

impl Made {
    fn of(
        item: Option<Bytes>,
        before: &Value,
        related: &[Identifier],
        skip: bool,
    ) -> anyhow::Result<Self> {
        let object = match item {
            Some(item) => serde_json::from_slice(&item)?,
            None => before.clone(),
        };
        Ok(Self {
            object: plain(object),
            related: identifiers(related),
            skip,
        })
    }
}

async fn execute(
    action: &dyn BackupItemAction,
    item: &Bytes,
    object: &Value,
    backup: &Backup,
) -> anyhow::Result<Made> {
    let facts = Facts::of(item).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    if !action.concerns(&facts) {
        return Made::of(None, object, &[], false);
    }
    let done = action.execute(object.clone(), backup).await;
    let done = done.with_context(|| format!("our {} on {}", action.name(), place(object)))?;
    Ok(Made {
        object: plain(done.object),
        related: places(&done.related),
        skip: false,
    })
}

/// Notes how two results differ.
fn note(found: &mut Vec<String>, name: &str, object: &Value, ours: &Made, theirs: &Made) {
    let about = format!("{name} on {}", place(object));
    let changes = differences(&ours.object, &theirs.object);
    let is_meant = |change: &&String| {
        let mut meant = MEANT.iter();
        meant.any(|(action, begin, _)| *action == name && change.starts_with(begin))
    };
    let changes = changes.iter().filter(|change| !is_meant(change));
    found.extend(changes.map(|change| format!("{about}: {change}")));
    if (&ours.related, ours.skip) != (&theirs.related, theirs.skip) {
        found.push(format!(
            "{about}: {:?} {} | {:?} {}",
            ours.related, ours.skip, theirs.related, theirs.skip
        ));
    }
}

/// An object without what means nothing: typed structs of Go leave empty parts behind.
fn plain(object: Value) -> Value {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match object {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, plain(value)))
            .filter(|(_, value)| !is_nothing(value))
            .collect(),
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other => other,
    }
}

/// What a restore makes of an object before it asks actions.
fn reset(pristine: &Value) -> Value {
    let mut object = pristine.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let metadata = object.pointer_mut("/metadata");
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        let kept = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|key, _| kept.contains(&key.as_str()));
    }
    object
}

fn places(related: &[Related]) -> BTreeSet<String> {
    let place =
        |item: &Related| format!("{} {}/{}", item.group_resource, item.namespace, item.name);
    related.iter().map(place).collect()
}

fn identifiers(items: &[Identifier]) -> BTreeSet<String> {
    let place = |item: &Identifier| {
        let kind = match item.group.as_str() {
            "" => item.resource.clone(),
            group => format!("{}.{group}", item.resource),
        };
        format!("{kind} {}/{}", item.namespace, item.name)
    };
    items.iter().map(place).collect()
}

fn place(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    format!(
        "{} {}/{}",
        text("/kind").unwrap_or_default(),
        text("/metadata/namespace").unwrap_or_default(),
        text("/metadata/name").unwrap_or_default()
    )
}

fn bytes(object: &Value) -> anyhow::Result<Bytes> {
    Ok(spelled::to_vec(object)?.into())
}

fn backup() -> anyhow::Result<(Backup, Bytes)> {
    let backup: Backup = serde_json::from_value(json!({
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": { "name": BACKUP, "namespace": DEFAULT_NAMESPACE, "uid": "of-the-backup" },
        "spec": { "includedNamespaces": ["*"] },
    }))?;
    let raw = spelled::to_vec(&backup)?.into();
    Ok((backup, raw))
}

fn restore() -> anyhow::Result<(Restore, Bytes)> {
    let restore: Restore = serde_json::from_value(json!({
        "apiVersion": "velero.io/v1",
        "kind": "Restore",
        "metadata": { "name": "compared", "namespace": DEFAULT_NAMESPACE, "uid": "of-the-restore" },
        "spec": { "backupName": BACKUP, "namespaceMapping": { "zoo": "other" } },
    }))?;
    let raw = spelled::to_vec(&restore)?.into();
    Ok((restore, raw))
}

/// Objects that the zoo lacks, each with its resource.
fn more() -> Vec<(&'static str, Value)> {
    let pod = |name: &str, annotations: Value, spec: Value| {
        let metadata = json!({ "name": name, "namespace": "zoo", "annotations": annotations });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
        ("pods", pod)
    };
    let token = |name: &str| json!({ "name": name, "mountPath": "/var/run/secrets" });
    vec![
        pod(
            "hooked",
            json!({
                "init.hook.restore.velero.io/container-image": "busybox",
                "init.hook.restore.velero.io/container-name": "first",
                "init.hook.restore.velero.io/command": "[\"true\"]",
            }),
            json!({ "nodeName": "n", "containers": [{ "name": "c", "image": "busybox" }] }),
        ),
        pod(
            "with-token",
            json!({}),
            json!({
                "nodeName": "n", "priority": 7, "serviceAccountName": "keeper",
                "containers": [{
                    "name": "c", "image": "nginx",
                    "volumeMounts": [token("keeper-token-abcde"), token("data")],
                }],
                "initContainers": [{
                    "name": "i", "image": "busybox:1", "volumeMounts": [token("keeper-token-abcde")],
                }],
                "volumes": [
                    { "name": "keeper-token-abcde", "secret": { "secretName": "keeper-token-abcde" } },
                    { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
                ],
            }),
        ),
        (
            "persistentvolumeclaims",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": "bound", "namespace": "zoo",
                    "annotations": {
                        "pv.kubernetes.io/bind-completed": "yes",
                        "pv.kubernetes.io/bound-by-controller": "yes",
                        "volume.kubernetes.io/selected-node": "n",
                    },
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "volumeName": "zoo-volume", "storageClassName": "",
                    "selector": { "matchLabels": { "velero.io/dynamic-pv-restore": "x", "a": "b" } },
                    "resources": { "requests": { "storage": "1Gi" } },
                    "dataSource": { "kind": "PersistentVolumeClaim", "name": "other" },
                },
                "status": { "phase": "Bound" },
            }),
        ),
        (
            "jobs.batch",
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": "ran", "namespace": "zoo",
                    "labels": { "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u" },
                },
                "spec": {
                    "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } },
                    "template": {
                        "metadata": { "labels": {
                            "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "a": "b",
                        } },
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{ "name": "c", "image": "busybox" }],
                        },
                    },
                },
            }),
        ),
        (
            "services",
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": "ports", "namespace": "zoo" },
                "spec": {
                    "type": "LoadBalancer", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
                    "healthCheckNodePort": 31000, "externalTrafficPolicy": "Local",
                    "ports": [{
                        "name": "http", "port": 80, "targetPort": 80, "nodePort": 30080,
                        "protocol": "TCP",
                    }],
                },
            }),
        ),
    ]
}
