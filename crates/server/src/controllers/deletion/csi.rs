//! CSI snapshots of a backup. What is still in the cluster goes by itself; the others are in the archive
//! alone, and each gets a content for a moment, with whose deletion its driver deletes the snapshot.

use std::collections::BTreeSet;

use bowline_api::{
    files::{BackupMethod, BackupVolumeInfo, backup_suffix},
    names::{FEATURE_CSI, label, label_value},
    v1::Backup,
};
use bowline_engine::csi;
use bowline_vault::{Bucket, archive::read::Reader, bucket::backup_file};
use kube::ResourceExt;
use serde_json::Value;

use crate::{
    Context, Result,
    csi::{
        handover::{self, Stays},
        storage,
    },
};

/// Deletes all of them. What stays is in the list.
pub(super) async fn snapshots(
    ctx: &Context,
    bucket: Option<&Bucket>,
    backup: &Backup,
) -> Result<Vec<String>> {
    let mut left = Vec::new();
    // The feature may have been there when data was moved.
    if ctx.settings.has_feature(FEATURE_CSI) || handover::moves_data(backup) {
        let uid = backup.uid().unwrap_or_default();
        left = handover::clear(&ctx.client, &uid, Stays::None).await?;
    }
    let Some(bucket) = bucket else {
        return Ok(left);
    };
    let kept = match kept(ctx, bucket, backup).await {
        Ok(kept) => kept,
        Err(error) => {
            left.push(format!(
                "error looking for CSI snapshots in the backup: {error}"
            ));
            return Ok(left);
        }
    };
    let limit = ctx.settings.resource_timeout;
    let uid = backup.uid().unwrap_or_default();
    left.extend(storage::delete(&ctx.client, &kept, &uid, limit).await);
    Ok(left)
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
    let infos = infos.flatten();
    let is_needed = match &infos {
        Some(infos) => infos.iter().any(has_snapshot),
        // An old one does not say.
        None => has_feature,
    };
    // A content that was copied before it had its label is known by the volume that it is of.
    let named: BTreeSet<String> = infos
        .into_iter()
        .flatten()
        .filter(has_snapshot)
        .filter_map(|info| Some(info.csi_snapshot_info?.vsc_name))
        .collect();
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
        let is_labelled = content["metadata"]["labels"][label::BACKUP_NAME] == label_value(&name);
        let own = content["metadata"]["name"].as_str();
        if is_labelled || own.is_some_and(|own| named.contains(own)) {
            found.push(content);
        }
    }
    Ok(found)
}

fn has_snapshot(info: &BackupVolumeInfo) -> bool {
    info.backup_method == Some(BackupMethod::CsiSnapshot) && !info.snapshot_data_moved
}
