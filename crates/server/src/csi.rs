//! CSI snapshots in the cluster: VolumeSnapshots and their contents, as objects without types.

pub(crate) mod groups;
pub(crate) mod handover;
pub(crate) mod storage;

use std::time::Duration;

use bowline_api::names::label;
use bowline_engine::csi::{self, GROUP, VERSION};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        Preconditions,
    },
    runtime::wait::await_condition,
};
use serde_json::Value;

use crate::{Error, Result};

/// A watch that failed is begun again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// A kind of this group.
fn kind(name: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, name))
}

/// VolumeSnapshots of a namespace.
pub(crate) fn snapshots(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind("VolumeSnapshot"))
}

/// VolumeSnapshots of all namespaces.
pub(crate) fn all_snapshots(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind("VolumeSnapshot"))
}

/// VolumeSnapshotContents.
pub(crate) fn contents(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind("VolumeSnapshotContent"))
}

/// VolumeSnapshotClasses.
pub(crate) fn classes(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind("VolumeSnapshotClass"))
}

/// An object as JSON.
pub(crate) fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("what came as JSON is JSON")
}

/// JSON as an object.
pub(crate) fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("it has a kind and metadata")
}

/// Objects with these labels; none where the cluster does not have the kind.
pub(crate) async fn labelled(api: &Api<DynamicObject>, labels: &str) -> Result<Vec<Value>> {
    let found = match api.list(&ListParams::default().labels(labels)).await {
        Ok(list) => list.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(Error::api("list CSI snapshots")(error)),
    };
    Ok(found.iter().map(value).collect())
}

/// Whether a restore made it. It may have labels of the backup all the same.
pub(crate) fn is_restored(object: &Value) -> bool {
    object["metadata"]["labels"][label::RESTORE_NAME].is_string()
}

/// The content that a VolumeSnapshot is bound to, if it is there.
pub(crate) async fn content_of(client: &Client, snapshot: &Value) -> Result<Option<Value>> {
    let Some(name) = csi::bound_content(snapshot) else {
        return Ok(None);
    };
    let found = contents(client).get_opt(name).await;
    let found = found.map_err(Error::api(format!("read VolumeSnapshotContent {name}")))?;
    Ok(found.as_ref().map(value))
}

/// Patches an object; none when it is gone.
pub(crate) async fn patch(
    api: &Api<DynamicObject>,
    name: &str,
    patch: &Value,
) -> Result<Option<Value>> {
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    match patched {
        Ok(object) => Ok(Some(value(&object))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(Error::api(format!("patch {name}"))(error)),
    }
}

/// Deletes this very object; one that is gone is no error.
pub(crate) async fn delete(api: &Api<DynamicObject>, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object["metadata"]["uid"].as_str().map(str::to_owned),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(Error::api(format!("delete {name}"))(error)),
    }
}

/// Waits until this very object is gone; false when it is not within the limit.
pub(crate) async fn gone(api: &Api<DynamicObject>, object: &Value, limit: Duration) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let uid = object["metadata"]["uid"].as_str();
    let is_gone = |found: Option<&DynamicObject>| found.is_none_or(|o| o.uid().as_deref() != uid);
    become_so(api, name, limit, is_gone).await
}

/// Waits until something is so; false when it is not within the limit.
async fn become_so(
    api: &Api<DynamicObject>,
    name: &str,
    limit: Duration,
    is_so: impl Fn(Option<&DynamicObject>) -> bool,
) -> bool {
    let waiting = tokio::time::timeout(limit, async {
        // A watch may end early; the object has the last word.
        while await_condition(api.clone(), name, &is_so).await.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
    });
    waiting.await.is_ok()
}
