//! Volume group snapshots in the cluster. Their members outlive them: a group is an object only for as
//! long as it takes to have them.

use bowline_engine::csi::group::{GROUP, VERSION};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{delete, labelled, patch, value};
use crate::{Error, Result};

fn kind(name: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, name))
}

/// VolumeGroupSnapshots of a namespace.
pub(crate) fn groups(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind("VolumeGroupSnapshot"))
}

/// VolumeGroupSnapshotContents.
pub(crate) fn contents(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind("VolumeGroupSnapshotContent"))
}

/// VolumeGroupSnapshotClasses.
pub(crate) fn classes(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind("VolumeGroupSnapshotClass"))
}

/// Removes the groups with these labels that somebody has left, with their members.
pub(crate) async fn clear(client: &Client, labels: &str) -> Result<()> {
    let all = Api::all_with(client.clone(), &kind("VolumeGroupSnapshot"));
    for group in labelled(&all, labels).await? {
        remove(client, &group, bowline_engine::csi::DELETE).await?;
    }
    Ok(())
}

/// Removes a group; the policy says what becomes of what the driver has.
pub(crate) async fn remove(client: &Client, group: &Value, policy: &str) -> Result<()> {
    let bound = &group["status"]["boundVolumeGroupSnapshotContentName"];
    if let Some(name) = bound.as_str() {
        let api = contents(client);
        let wanted = json!({"spec": {"deletionPolicy": policy}});
        let found = api.get_opt(name).await;
        let found = found.map_err(Error::api(format!(
            "read VolumeGroupSnapshotContent {name}"
        )))?;
        if let Some(content) = found.as_ref().map(value) {
            patch(&api, name, &wanted).await?;
            delete(&api, &content).await?;
        }
    }
    let namespace = group["metadata"]["namespace"].as_str().unwrap_or_default();
    delete(&groups(client, namespace), group).await
}
