//! CSI snapshots of a backup. What is still in the cluster goes by itself; the others are in the archive
//! alone, and each gets a content for a moment, with whose deletion its driver deletes the snapshot.

use std::time::Duration;

use bowline_api::{
    files::{BackupMethod, BackupVolumeInfo, backup_suffix},
    names::{FEATURE_CSI, label, label_value},
    v1::Backup,
};
use bowline_engine::csi::{self, temporary};
use bowline_vault::{Bucket, archive::read::Reader, bucket::backup_file};
use futures::{StreamExt, stream};
use kube::{ResourceExt, api::DynamicObject, api::PostParams, runtime::wait::await_condition};
use serde_json::Value;

use crate::{
    Context, Error, Result,
    csi::{
        contents, delete,
        handover::{self, Stays},
        object, value,
    },
};

/// Snapshots that are deleted at the same time.
const PARALLEL: usize = 16;

/// Deletes all of them. What stays is in the list.
pub(super) async fn snapshots(
    ctx: &Context,
    bucket: Option<&Bucket>,
    backup: &Backup,
) -> Result<Vec<String>> {
    if ctx.settings.has_feature(FEATURE_CSI) {
        let uid = backup.uid().unwrap_or_default();
        handover::clear(&ctx.client, &uid, Stays::None).await?;
    }
    let Some(bucket) = bucket else {
        return Ok(Vec::new());
    };
    let kept = match kept(ctx, bucket, backup).await {
        Ok(kept) => kept,
        Err(error) => {
            return Ok(vec![format!(
                "error looking for CSI snapshots in the backup: {error}"
            )]);
        }
    };
    let limit = ctx.settings.resource_timeout;
    let uid = backup.uid().unwrap_or_default();
    let deleting = kept.into_iter().map(|content| {
        let temporary = temporary::content(&content, &uid);
        async move {
            let why = one(ctx, temporary?, limit).await.err()?;
            let handle = csi::handle(&content).unwrap_or_default();
            let name = content["metadata"]["name"].as_str().unwrap_or_default();
            Some(format!(
                "error deleting CSI snapshot {handle} of VolumeSnapshotContent {name}: {why}"
            ))
        }
    });
    let errors: Vec<Option<String>> = stream::iter(deleting).buffered(PARALLEL).collect().await;
    Ok(errors.into_iter().flatten().collect())
}

/// The contents in the archive that this backup has taken.
async fn kept(
    ctx: &Context,
    bucket: &Bucket,
    backup: &Backup,
) -> Result<Vec<Value>, bowline_vault::Error> {
    let name = backup.name_any();
    let has_feature = ctx.settings.has_feature(FEATURE_CSI);
    let key = backup_file(&name, backup_suffix::VOLUME_INFO);
    let infos = bucket.json::<Option<Vec<BackupVolumeInfo>>>(&key).await?;
    let is_needed = match infos.flatten() {
        Some(infos) => infos.iter().any(has_snapshot),
        // An old one does not say.
        None => has_feature,
    };
    if !is_needed {
        return Ok(Vec::new());
    }
    if !has_feature {
        tracing::warn!(backup = name, "CSI snapshots stay: {FEATURE_CSI} is off");
        return Ok(Vec::new());
    }
    let key = backup_file(&name, backup_suffix::CONTENTS);
    let body = match bucket.get(&key).await {
        Ok(body) => body,
        Err(bowline_vault::Error::NotFound { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut archive = Reader::new(&key, body);
    let mut found = Vec::new();
    while let Some(item) = archive.next().await? {
        // Objects are there once more by version; once is enough.
        let is_content = item
            .entry
            .as_ref()
            .is_some_and(|entry| entry.version.is_none() && entry.resource == csi::CONTENTS);
        if !is_content {
            continue;
        }
        let body = archive.body().await?;
        let content: Value =
            serde_json::from_slice(&body).map_err(|e| bowline_vault::Error::Damaged {
                key: item.path.clone(),
                reason: e.to_string(),
            })?;
        if content["metadata"]["labels"][label::BACKUP_NAME] == label_value(&name) {
            found.push(content);
        }
    }
    Ok(found)
}

fn has_snapshot(info: &BackupVolumeInfo) -> bool {
    info.backup_method == Some(BackupMethod::CsiSnapshot) && !info.snapshot_data_moved
}

/// Makes a content, deletes it, and waits until its driver has let it go.
async fn one(ctx: &Context, temporary: Value, limit: Duration) -> Result<(), String> {
    let api = contents(&ctx.client);
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
    delete(&api, &live).await.map_err(|error| error.chain())?;
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
