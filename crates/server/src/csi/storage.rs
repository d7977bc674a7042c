//! What a driver keeps for a content: it goes when a content that was made for nothing else goes.

use std::time::Duration;

use bowline_engine::csi::{self, temporary};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, PostParams},
    runtime::wait::await_condition,
};
use serde_json::Value;

use super::{contents, object, value};
use crate::Error;

/// Deletes the snapshot of a content, if it had one: makes another content of it, deletes that, and
/// waits until its driver has let it go.
///
/// # Errors
/// Why it is not known to be gone.
pub(crate) async fn delete(
    client: &Client,
    content: &Value,
    backup_uid: &str,
    limit: Duration,
) -> Result<(), String> {
    let Some(temporary) = temporary::content(content, backup_uid) else {
        return Ok(());
    };
    let api = contents(client);
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
    super::delete(&api, &live)
        .await
        .map_err(|error| error.chain())?;
    let uid = live["metadata"]["uid"].as_str().map(str::to_owned);
    let is_gone = |object: Option<&DynamicObject>| object.is_none_or(|o| o.uid() != uid);
    let gone = tokio::time::timeout(limit, async {
        // A watch may end early; the object has the last word.
        while await_condition(api.clone(), &name, is_gone).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    if gone.await.is_ok() {
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
