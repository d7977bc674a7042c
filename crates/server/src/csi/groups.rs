//! Volume group snapshots in the cluster. They are objects for as long as the backup that takes them.

use std::{collections::BTreeSet, time::Duration};

use bowline_api::names::annotation;
use bowline_engine::csi::{
    DELETE, RETAIN,
    group::{GROUP, VERSION, members as members_of},
    group_handle,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{delete, gone, is_restored, labelled, patch, value};
use crate::{Error, Result};

/// How long a group may take to have its members, and to go; and how often it is looked at.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(500);

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

/// Groups of this backup, or of any, that are not a restore's.
pub(crate) async fn live(client: &Client, labels: &str) -> Result<Vec<Value>> {
    let all = Api::all_with(client.clone(), &kind("VolumeGroupSnapshot"));
    let mut found = labelled(&all, labels).await?;
    found.retain(|group| !is_restored(group));
    Ok(found)
}

/// Removes the groups with these labels. What the driver has stays if `stays` says so of any of the
/// members, by namespace and name, or if it is in `kept`. The contents of the members, which nobody else
/// sees out, are in the list.
pub(crate) async fn clear(
    client: &Client,
    labels: &str,
    stays: impl Fn(&str, &str) -> bool,
    kept: &BTreeSet<String>,
) -> Result<Vec<Value>> {
    let mut handles = BTreeSet::new();
    let is_kept = |content: &Value| handle(content).is_some_and(|handle| kept.contains(handle));
    for group in live(client, labels).await? {
        let group = settled(client, group).await?;
        let namespace = group["metadata"]["namespace"].as_str().unwrap_or_default();
        let snapshots = super::snapshots(client, namespace);
        let snapshots = snapshots.list(&ListParams::default()).await;
        let snapshots = snapshots.map_err(Error::api("list VolumeSnapshots"))?;
        let members = members_of(&group, snapshots.items.iter().map(value).collect());
        let content = content(client, &group).await?;
        let policy = policy(
            members.values().any(|of| stays(namespace, name(of)))
                || content.as_ref().is_some_and(is_kept),
        );
        remove(client, &group, content.as_ref(), policy).await?;
        let handle = content.as_ref().and_then(handle);
        handles.extend(handle.map(str::to_owned));
    }
    // Contents whose groups are gone already.
    for content in labelled(&contents(client), labels).await? {
        if !is_restored(&content) {
            let_go(client, &content, policy(is_kept(&content))).await?;
        }
    }
    match handles.is_empty() {
        true => Ok(Vec::new()),
        false => members(client, |handle| handles.contains(handle)).await,
    }
}

fn policy(stays: bool) -> &'static str {
    match stays {
        true => RETAIN,
        false => DELETE,
    }
}

/// What the driver calls a group, by its content.
fn handle(content: &Value) -> Option<&str> {
    content["status"]["volumeGroupSnapshotHandle"].as_str()
}

/// Contents of groups that the driver calls so.
async fn members(client: &Client, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Value>> {
    let all = super::contents(client).list(&ListParams::default()).await;
    let all = all.map_err(Error::api("list VolumeSnapshotContents"))?;
    let is_member = |content: &Value| {
        let of = &content["metadata"]["annotations"][annotation::MEMBER_OF_GROUP];
        of.as_str().is_some_and(&is_wanted)
    };
    Ok(all.items.iter().map(value).filter(is_member).collect())
}

/// A member of a group and all others that are left of it.
pub(crate) async fn members_with(client: &Client, content: &Value) -> Result<Vec<Value>> {
    let of = group_handle(content).unwrap_or_default();
    members(client, |handle| handle == of).await
}

/// A group as it is when its members are all there: whoever removes it earlier races with whoever makes
/// them. One that does not get so far is taken as it is.
async fn settled(client: &Client, group: Value) -> Result<Value> {
    let text = |key: &str| group["metadata"][key].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let api = groups(client, namespace);
    let until = Instant::now() + PATIENCE;
    loop {
        let found = api.get_opt(name).await;
        let found = found.map_err(Error::api(format!("read VolumeGroupSnapshot {name}")))?;
        let Some(found) = found.as_ref().map(value) else {
            return Ok(group);
        };
        let status = &found["status"];
        // It has this once its members are made; it may be long until it is ready.
        let is_settled = status["creationTime"].is_string()
            || status["error"].is_object()
            || found["metadata"]["deletionTimestamp"].is_string();
        if is_settled || Instant::now() >= until {
            return Ok(found);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Removes a group; the policy says what becomes of what the driver has.
///
/// It goes before its content, as with any snapshot: one that misses its content gets another.
async fn remove(client: &Client, group: &Value, found: Option<&Value>, policy: &str) -> Result<()> {
    let namespace = group["metadata"]["namespace"].as_str();
    let api = groups(client, namespace.unwrap_or_default());
    if let Some(content) = found {
        // The labels find it when the group is gone.
        let wanted = json!({
            "metadata": {"labels": group["metadata"]["labels"]},
            "spec": {"deletionPolicy": policy},
        });
        patch(&contents(client), name(content), &wanted).await?;
    }
    delete(&api, group).await?;
    if !gone(&api, group, PATIENCE).await {
        let group = name(group);
        tracing::warn!(
            group,
            "VolumeGroupSnapshot is still there after {PATIENCE:?}"
        );
    }
    match content(client, group).await? {
        Some(content) => let_go(client, &content, policy).await,
        None => Ok(()),
    }
}

/// Removes the content of a group that is gone.
async fn let_go(client: &Client, content: &Value, policy: &str) -> Result<()> {
    let api = contents(client);
    // Its driver's side waits for the mark.
    let wanted = json!({
        "metadata": {"annotations": {annotation::GROUP_BEING_DELETED: "yes"}},
        "spec": {"deletionPolicy": policy},
    });
    patch(&api, name(content), &wanted).await?;
    delete(&api, content).await
}

/// The content of a group, if it is there, whether the group knows it yet or not.
pub(crate) async fn content(client: &Client, group: &Value) -> Result<Option<Value>> {
    let uid = &group["metadata"]["uid"];
    let expected = format!("groupsnapcontent-{}", uid.as_str().unwrap_or_default());
    let bound = &group["status"]["boundVolumeGroupSnapshotContentName"];
    let name = bound.as_str().unwrap_or(&expected);
    let found = contents(client).get_opt(name).await;
    let found = found.map_err(Error::api(format!(
        "read VolumeGroupSnapshotContent {name}"
    )))?;
    let found = found.as_ref().map(value);
    Ok(found.filter(|content| content["spec"]["volumeGroupSnapshotRef"]["uid"] == *uid))
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
