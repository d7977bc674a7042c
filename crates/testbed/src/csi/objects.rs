//! Claims and snapshots for scenarios, and what became of them.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::CLASS;
use crate::wait_for;

const GROUPS: &str = "groupsnapshot.storage.k8s.io";

/// What is in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder of files.
    Files,
    /// A device, by a file of that size.
    Blocks,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Files, Self::Blocks];

    /// What Kubernetes calls it.
    #[must_use]
    pub fn volume_mode(self) -> &'static str {
        match self {
            Self::Files => "Filesystem",
            Self::Blocks => "Block",
        }
    }
}

/// A claim on a new volume of the driver.
#[must_use]
pub fn claim(namespace: &str, name: &str, kind: Kind, size: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "volumeMode": kind.volume_mode(),
            "resources": { "requests": { "storage": size } },
        },
    })
}

/// The same claim on a volume with what is in a snapshot.
#[must_use]
pub fn from_snapshot(mut claim: Value, snapshot: &str) -> Value {
    claim["spec"]["dataSource"] = json!({
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": "VolumeSnapshot",
        "name": snapshot,
    });
    claim
}

/// A snapshot of a claim's volume.
#[must_use]
pub fn snapshot(namespace: &str, name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "volumeSnapshotClassName": CLASS,
            "source": { "persistentVolumeClaimName": claim },
        },
    })
}

/// A snapshot of all volumes whose claims have a label.
#[must_use]
pub fn group(namespace: &str, name: &str, label: (&str, &str)) -> Value {
    json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2",
        "kind": "VolumeGroupSnapshot",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "volumeGroupSnapshotClassName": CLASS,
            "source": { "selector": { "matchLabels": { label.0: label.1 } } },
        },
    })
}

/// The VolumeSnapshots of a namespace.
pub fn snapshots(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource("VolumeSnapshot"))
}

/// The VolumeSnapshotContents of the cluster.
pub fn contents(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &resource("VolumeSnapshotContent"))
}

/// Snapshots and contents of all namespaces, of single volumes and of groups.
pub fn everywhere(client: &Client) -> Vec<Api<DynamicObject>> {
    let kind = |group: &str, version: &str, kind: &str| {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    };
    vec![
        kind("snapshot.storage.k8s.io", "v1", "VolumeSnapshot"),
        kind("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent"),
        kind(GROUPS, "v1beta2", "VolumeGroupSnapshot"),
        kind(GROUPS, "v1beta2", "VolumeGroupSnapshotContent"),
    ]
}

/// The VolumeGroupSnapshots of a namespace.
pub fn groups(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUPS, "v1beta2", "VolumeGroupSnapshot");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "snapshot.storage.k8s.io",
        "v1",
        kind,
    ))
}

/// Waits until a snapshot, or a group of them, is ready, and gives it.
pub async fn ready(all: &Api<DynamicObject>, name: &str) -> anyhow::Result<DynamicObject> {
    let what = format!("snapshot {name} to be ready");
    wait_for(&what, Duration::from_secs(60), async || {
        let found = all.get(name).await?;
        if found.data["status"]["readyToUse"] == true {
            return Ok(Some(found));
        }
        bail!("its status is {}", found.data["status"])
    })
    .await
}

/// Waits until a snapshot, or a group of them, says why it fails.
pub async fn failure(all: &Api<DynamicObject>, name: &str) -> anyhow::Result<String> {
    let what = format!("snapshot {name} to fail");
    wait_for(&what, Duration::from_secs(60), async || {
        let found = all.get(name).await?;
        let why = found.data["status"]["error"]["message"].as_str();
        Ok(why.map(str::to_owned))
    })
    .await
}

/// The content of a snapshot.
pub async fn content(client: Client, snapshot: &DynamicObject) -> anyhow::Result<DynamicObject> {
    let name = snapshot.data["status"]["boundVolumeSnapshotContentName"]
        .as_str()
        .with_context(|| format!("snapshot {} has no content", snapshot.name_any()))?;
    Ok(contents(client).get(name).await?)
}

/// What the driver calls a snapshot, from its content.
pub fn handle(content: &DynamicObject) -> anyhow::Result<String> {
    let handle = content.data["status"]["snapshotHandle"].as_str();
    let handle = handle.with_context(|| format!("{} has no handle", content.name_any()))?;
    ensure!(!handle.is_empty(), "{} has no handle", content.name_any());
    Ok(handle.to_owned())
}
