//! What a driver keeps for contents: it goes when a content that was made for nothing else goes. What
//! was taken as a group goes as a group: no driver has to delete a member alone.

use std::{collections::BTreeMap, time::Duration};

use bowline_engine::csi::{self, temporary};
use futures::{StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{become_so, contents, gone, groups, object, value};
use crate::Error;

/// Snapshots that are deleted at the same time.
const PARALLEL: usize = 16;

/// Deletes the snapshots of contents, where they had any; says which are not known to be gone, and why.
pub(crate) async fn delete(
    client: &Client,
    of: &[Value],
    backup_uid: &str,
    limit: Duration,
) -> Vec<String> {
    let mut together: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let mut work = Vec::new();
    for content in of {
        match csi::group_handle(content) {
            Some(group) => together.entry(group).or_default().push(content),
            None => {
                let temporary = temporary::content(content, backup_uid);
                work.extend(temporary.map(|made| (contents(client), made, vec![named(content)])));
            }
        }
    }
    for (group, members) in together {
        let temporary = temporary::group(group, &members, backup_uid);
        let names = members.into_iter().map(named).collect();
        work.extend(temporary.map(|made| (groups::contents(client), made, names)));
    }
    let deleting = work.into_iter().map(|(api, temporary, of)| async move {
        let why = one(api, temporary, limit).await.err()?;
        let failed = of
            .into_iter()
            .map(|name| format!("error deleting {name}: {why}"));
        Some(failed.collect::<Vec<_>>())
    });
    let failed: Vec<Option<Vec<String>>> =
        stream::iter(deleting).buffered(PARALLEL).collect().await;
    failed.into_iter().flatten().flatten().collect()
}

/// What a snapshot is called in a complaint.
fn named(content: &Value) -> String {
    let handle = csi::handle(content).unwrap_or_default();
    let name = content["metadata"]["name"].as_str().unwrap_or_default();
    format!("CSI snapshot {handle} of VolumeSnapshotContent {name}")
}

/// Makes a content, deletes it, and waits until its driver has let it go.
async fn one(api: Api<DynamicObject>, temporary: Value, limit: Duration) -> Result<(), String> {
    let wanted = object(temporary);
    let name = wanted.name_any();
    let live = match api.create(&PostParams::default(), &wanted).await {
        Ok(live) => Some(live),
        // One that was begun before.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = api.get_opt(&name).await;
            found.map_err(|error| Error::api(format!("read {name}"))(error).chain())?
        }
        Err(error) => return Err(Error::api(format!("create {name}"))(error).chain()),
    };
    let Some(live) = live.as_ref().map(value) else {
        return Ok(());
    };
    if !become_so(&api, &name, limit, is_known).await {
        return Err(format!(
            "nobody looked at {name} within {limit:?}: does the driver's csi-snapshotter run?"
        ));
    }
    tell_handle(&api, &live)
        .await
        .map_err(|error| Error::api(format!("patch the status of {name}"))(error).chain())?;
    super::delete(&api, &live)
        .await
        .map_err(|error| error.chain())?;
    if gone(&api, &live, limit).await {
        return Ok(());
    }
    let found = api.get_opt(&name).await.ok().flatten();
    let wrong = found.as_ref().map(value);
    let wrong = wrong.as_ref().and_then(csi::error).map(str::to_owned);
    let wrong = wrong.map_or_else(String::new, |why| format!(": {why}"));
    Err(format!(
        "VolumeSnapshotContent {name} is still there after {limit:?}{wrong}"
    ))
}

/// Says in the status what the driver calls it, if the driver's side does not: that deletes nothing
/// which it does not find there, and may not be able to look without the secrets of a class.
async fn tell_handle(api: &Api<DynamicObject>, live: &Value) -> Result<(), kube::Error> {
    let source = &live["spec"]["source"];
    let (key, handle) = match &source["groupSnapshotHandles"] {
        Value::Null => ("snapshotHandle", &source["snapshotHandle"]),
        group => (
            "volumeGroupSnapshotHandle",
            &group["volumeGroupSnapshotHandle"],
        ),
    };
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    let Some(found) = api.get_opt(name).await? else {
        return Ok(());
    };
    if found.data["status"][key].is_string() {
        return Ok(());
    }
    let status = json!({"status": {key: handle}});
    let params = PatchParams::default();
    match api
        .patch_status(name, &params, &Patch::Merge(&status))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done.map(drop),
    }
}

/// The driver's side has looked at it, or it goes already.
fn is_known(found: Option<&DynamicObject>) -> bool {
    found.is_none_or(|found| {
        let status = &found.data["status"];
        let has = |key: &str| !status[key].is_null();
        found.metadata.deletion_timestamp.is_some()
            || has("snapshotHandle")
            || has("volumeGroupSnapshotHandle")
            || has("error")
    })
}
