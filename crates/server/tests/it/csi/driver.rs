//! The snapshot controller and a driver with its sidecar, as far as backups notice them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

const CONTENT: &str = "VolumeSnapshotContent";
const CONTENT_FINALIZER: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const SNAPSHOT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";

/// The kinds of snapshots, as far as anybody here needs them.
pub(super) fn kinds() -> Vec<Value> {
    let kind = |group: &str, version: &str, kind: &str, scope: &str| {
        let singular = kind.to_lowercase();
        let plural = match singular.ends_with('s') {
            true => format!("{singular}es"),
            false => format!("{singular}s"),
        };
        // Whoever writes a status writes it alone where somebody here depends on that.
        let subresources = match kind {
            "VolumeGroupSnapshotContent" | CONTENT => json!({"status": {}}),
            _ => json!({}),
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, test only"},
            },
            "spec": {
                "group": group, "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural},
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": subresources,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
    };
    let (one, many) = ("snapshot.storage.k8s.io", "groupsnapshot.storage.k8s.io");
    vec![
        kind(one, "v1", "VolumeSnapshot", "Namespaced"),
        kind(one, "v1", "VolumeSnapshotContent", "Cluster"),
        kind(one, "v1", "VolumeSnapshotClass", "Cluster"),
        kind(many, "v1beta2", "VolumeGroupSnapshot", "Namespaced"),
        kind(many, "v1beta2", "VolumeGroupSnapshotContent", "Cluster"),
        kind(many, "v1beta2", "VolumeGroupSnapshotClass", "Cluster"),
    ]
}

/// What the driver does with snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// Nothing at all.
    Mute,
    /// Takes them, but they cannot be used yet.
    Slow,
    /// Takes them, and deletes them.
    Quick,
    /// Takes and deletes them, but cannot find those that were there before.
    Blind,
    /// Does not delete them.
    Stubborn,
}

/// The driver.
pub(super) struct Driver {
    state: Arc<State>,
    _task: AbortOnDropHandle<()>,
}

struct State {
    client: Client,
    mood: Mutex<Mood>,
    /// Snapshots in the storage, by handle.
    storage: Mutex<BTreeSet<String>>,
}

impl Driver {
    pub(super) fn start(client: &Client, mood: Mood) -> Self {
        let state = Arc::new(State {
            client: client.clone(),
            mood: Mutex::new(mood),
            storage: Mutex::default(),
        });
        let working = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                // Somebody else may have changed what it looks at; the next turn sees it.
                let _ = working.turn().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Self {
            state,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(super) fn be(&self, mood: Mood) {
        *self.state.mood.lock().unwrap() = mood;
    }

    pub(super) fn storage(&self) -> Vec<String> {
        let storage = self.state.storage.lock().unwrap();
        storage.iter().cloned().collect()
    }

    /// Names of all live snapshots and contents.
    pub(super) async fn live(&self) -> Vec<String> {
        let mut names = Vec::new();
        for kind in ["VolumeSnapshot", "VolumeSnapshotContent"] {
            names.extend(self.all(kind).await.iter().map(|o| name(o).to_owned()));
        }
        names
    }

    /// Groups, and contents of groups.
    pub(super) async fn groups(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for kind in ["VolumeGroupSnapshot", "VolumeGroupSnapshotContent"] {
            let api = self.state.group_api(kind, None);
            let list = api.list(&ListParams::default()).await.unwrap();
            let value = |object: &DynamicObject| serde_json::to_value(object).unwrap();
            found.extend(list.items.iter().map(value));
        }
        found
    }

    pub(super) async fn all(&self, kind: &str) -> Vec<Value> {
        self.state.list(kind).await.unwrap_or_default()
    }
}

impl State {
    fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind);
        let kind = ApiResource::from_gvk(&kind);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        }
    }

    fn group_api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("groupsnapshot.storage.k8s.io", "v1beta2", kind);
        let kind = ApiResource::from_gvk(&kind);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        }
    }

    async fn list(&self, kind: &str) -> kube::Result<Vec<Value>> {
        let list = self.api(kind, None).list(&ListParams::default()).await?;
        let value = |object: &DynamicObject| serde_json::to_value(object).unwrap();
        Ok(list.items.iter().map(value).collect())
    }

    async fn patch(&self, kind: &str, object: &Value, patch: Value) -> kube::Result<()> {
        let api = self.api(kind, object["metadata"]["namespace"].as_str());
        let (params, is_status) = (PatchParams::default(), patch["status"].is_object());
        let patch = Patch::Merge(&patch);
        match kind == CONTENT && is_status {
            true => api.patch_status(name(object), &params, &patch).await,
            false => api.patch(name(object), &params, &patch).await,
        }
        .map(drop)
    }

    async fn turn(&self) -> kube::Result<()> {
        let mood = *self.mood.lock().unwrap();
        if mood != Mood::Mute {
            self.groups().await?;
        }
        let contents = self.list("VolumeSnapshotContent").await?;
        for snapshot in self.list("VolumeSnapshot").await? {
            let bound = &snapshot["status"]["boundVolumeSnapshotContentName"];
            let content = contents.iter().find(|c| c["metadata"]["name"] == *bound);
            if is_going(&snapshot) {
                self.let_snapshot_go(&snapshot, content).await?;
            } else if mood != Mood::Mute {
                self.snapshot(&snapshot, content, mood).await?;
            }
        }
        for content in contents.iter().filter(|c| is_held(c) && !is_going(c)) {
            if mood == Mood::Blind {
                let status =
                    json!({"status": {"readyToUse": false, "error": {"message": "no secrets"}}});
                self.patch("VolumeSnapshotContent", content, status).await?;
            }
            if mood == Mood::Quick {
                let status = json!({"status": {
                    "snapshotHandle": content["spec"]["source"]["snapshotHandle"], "readyToUse": true,
                }});
                self.patch("VolumeSnapshotContent", content, status).await?;
            }
        }
        for content in contents.iter().filter(|c| is_going(c)) {
            if mood != Mood::Stubborn {
                self.let_content_go(content).await?;
            }
        }
        Ok(())
    }

    async fn snapshot(
        &self,
        snapshot: &Value,
        content: Option<&Value>,
        mood: Mood,
    ) -> kube::Result<()> {
        let is_ready = mood != Mood::Slow;
        let source = &snapshot["spec"]["source"];
        if snapshot["status"].is_null() {
            // Nobody can take it away from now on without telling.
            let held = json!({"metadata": {"finalizers": [SNAPSHOT_FINALIZER]}});
            self.patch("VolumeSnapshot", snapshot, held).await?;
            let bound = match source["volumeSnapshotContentName"].as_str() {
                Some(bound) => bound.to_owned(),
                None => self.take(snapshot, is_ready).await?,
            };
            let status = json!({
                "status": {
                    "boundVolumeSnapshotContentName": bound, "readyToUse": is_ready,
                    "creationTime": "2026-11-16T14:00:00Z", "restoreSize": "2Gi",
                },
            });
            return self.patch("VolumeSnapshot", snapshot, status).await;
        }
        if let Some(content) = content.filter(|c| is_ready && c["status"]["readyToUse"] == false) {
            let ready = json!({"status": {"readyToUse": true}});
            self.patch("VolumeSnapshotContent", content, ready.clone())
                .await?;
            self.patch("VolumeSnapshot", snapshot, ready).await?;
        }
        Ok(())
    }

    async fn take(&self, snapshot: &Value, is_ready: bool) -> kube::Result<String> {
        let uid = snapshot["metadata"]["uid"].as_str().unwrap();
        let (content, handle) = (format!("snapcontent-{uid}"), format!("handle-{uid}"));
        let object = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": content, "finalizers": [CONTENT_FINALIZER]},
            "spec": {
                "driver": "d", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
                "volumeSnapshotClassName": snapshot["spec"]["volumeSnapshotClassName"],
                "volumeSnapshotRef": {
                    "namespace": snapshot["metadata"]["namespace"], "name": name(snapshot), "uid": uid,
                },
            },
        });
        let status = json!({"status": {
            "snapshotHandle": handle, "restoreSize": 2_i64 << 30, "readyToUse": is_ready,
        }});
        self.storage.lock().unwrap().insert(handle);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self
            .api("VolumeSnapshotContent", None)
            .create(&PostParams::default(), &object)
            .await;
        match made {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made?),
        }
        let of = json!({"metadata": {"name": content}});
        self.patch(CONTENT, &of, status).await?;
        Ok(content)
    }

    /// Takes groups: members first, then their group knows its content.
    async fn groups(&self) -> kube::Result<()> {
        let groups = self.group_api("VolumeGroupSnapshot", None);
        for group in groups.list(&ListParams::default()).await?.items {
            let group = serde_json::to_value(&group).unwrap();
            if !group["status"].is_null() {
                continue;
            }
            let namespace = group["metadata"]["namespace"].as_str().unwrap();
            let labels = &group["spec"]["source"]["selector"]["matchLabels"];
            let labels = labels.as_object().unwrap().iter();
            let labels: Vec<String> = labels
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
                .collect();
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(self.client.clone(), namespace);
            let selected = ListParams::default().labels(&labels.join(","));
            for claim in claims.list(&selected).await?.items {
                self.member(&group, &claim.name_any()).await?;
            }
            let uid = group["metadata"]["uid"].as_str().unwrap();
            let content = format!("groupsnapcontent-{uid}");
            let object = json!({
                "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2", "kind": "VolumeGroupSnapshotContent",
                "metadata": {"name": content},
                "spec": {
                    "driver": "d", "deletionPolicy": "Delete",
                    "volumeGroupSnapshotRef": {"namespace": namespace, "name": name(&group), "uid": uid},
                },
            });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            self.group_api("VolumeGroupSnapshotContent", None)
                .create(&PostParams::default(), &object)
                .await?;
            let status = json!({"status": {"volumeGroupSnapshotHandle": "group-handle"}});
            self.group_api("VolumeGroupSnapshotContent", None)
                .patch_status(&content, &PatchParams::default(), &Patch::Merge(&status))
                .await?;
            let status = json!({"status": {
                "boundVolumeGroupSnapshotContentName": content,
                "creationTime": "2026-01-01T00:00:00Z",
            }});
            self.group_api("VolumeGroupSnapshot", Some(namespace))
                .patch(
                    name(&group),
                    &PatchParams::default(),
                    &Patch::Merge(&status),
                )
                .await?;
        }
        Ok(())
    }

    async fn member(&self, group: &Value, claim: &str) -> kube::Result<()> {
        let metadata = &group["metadata"];
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {
                "namespace": metadata["namespace"], "name": format!("member-{claim}"),
                "finalizers": [SNAPSHOT_FINALIZER, "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection"],
                "ownerReferences": [{
                    "apiVersion": group["apiVersion"], "kind": group["kind"], "name": metadata["name"], "uid": metadata["uid"],
                }],
            },
            "spec": {"source": {"persistentVolumeClaimName": claim}},
        });
        let object: DynamicObject = serde_json::from_value(snapshot).unwrap();
        let api = self.api("VolumeSnapshot", metadata["namespace"].as_str());
        let made = api.create(&PostParams::default(), &object).await?;
        let made = serde_json::to_value(&made).unwrap();
        let content = self.take(&made, true).await?;
        let of = json!({"metadata": {"name": content}});
        let group_handle = json!({"status": {"volumeGroupSnapshotHandle": "group-handle"}});
        self.patch("VolumeSnapshotContent", &of, group_handle)
            .await?;
        let status = json!({"status": {
            "boundVolumeSnapshotContentName": content, "readyToUse": true,
            "volumeGroupSnapshotName": metadata["name"],
        }});
        self.patch("VolumeSnapshot", &made, status).await
    }

    async fn let_snapshot_go(&self, snapshot: &Value, content: Option<&Value>) -> kube::Result<()> {
        if let Some(content) = content {
            let mark = json!({"metadata": {"annotations": {BEING_DELETED: "yes"}}});
            self.patch("VolumeSnapshotContent", content, mark).await?;
            if content["spec"]["deletionPolicy"] == "Delete" && !is_going(content) {
                let api = self.api("VolumeSnapshotContent", None);
                api.delete(name(content), &DeleteParams::default()).await?;
            }
        }
        let free = json!({"metadata": {"finalizers": null}});
        self.patch("VolumeSnapshot", snapshot, free).await
    }

    async fn let_content_go(&self, content: &Value) -> kube::Result<()> {
        let is_bound = content["spec"]["volumeSnapshotRef"]["uid"].is_string();
        if is_bound && content["metadata"]["annotations"][BEING_DELETED].is_null() {
            return Ok(());
        }
        // What is not in the status is not deleted.
        if content["spec"]["deletionPolicy"] == "Delete"
            && let Some(handle) = content["status"]["snapshotHandle"].as_str()
        {
            self.storage.lock().unwrap().remove(handle);
        }
        let free = json!({"metadata": {"finalizers": null}});
        self.patch("VolumeSnapshotContent", content, free).await
    }
}

/// Whether a content stands for a snapshot that was there before.
fn is_held(content: &Value) -> bool {
    content["status"].is_null() && content["spec"]["source"]["snapshotHandle"].is_string()
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
