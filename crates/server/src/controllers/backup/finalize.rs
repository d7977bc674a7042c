//! The end of a backup that plugins went on working for: what they changed is read again, and the last
//! phase is written.

use std::sync::Arc;

use bowline_api::{
    Time,
    files::{
        BackupOperation, BackupVolumeInfo, OperationPhase, ResourceIdentifier, Results,
        VolumeResult, backup_suffix,
    },
    names::{FEATURE_CSI, label},
    v1::{Backup, BackupPhase, BackupStatus},
    v2alpha1::DataUpload,
};
use bowline_engine::{
    backup::update::{self, Again},
    discovery::{Discovery, Versions},
    log::{Level, Log},
};
use bowline_vault::{
    Bucket,
    archive::{self, read::Reader},
    bucket::backup_file,
};
use kube::ResourceExt;

use super::{
    csi::moved,
    run::end,
    waiting::{is_snapshot, is_upload, merge, number},
};
use crate::{
    Context, Error, Result,
    controllers::operations::count,
    csi::handover::{self, Stays},
    plugins::{actions, into_log},
};

/// Finalizes a backup.
pub(super) async fn finalize(ctx: &Arc<Context>, bucket: &Bucket, found: Backup) -> Result<()> {
    let name = found.name_any();
    let key = backup_file(&name, backup_suffix::ITEM_OPERATIONS);
    let operations: Vec<BackupOperation> = bucket.json(&key).await?.unwrap_or_default();
    let errors = renew(ctx, bucket, &found, &operations).await?;
    let uid = found.uid().unwrap_or_default();
    let uploads = match operations.iter().any(is_upload) {
        true => moved::of_backup(ctx, &uid).await?,
        false => Vec::new(),
    };
    tell_volumes(bucket, &name, &operations, &uploads).await?;
    let mut last = found.clone();
    conclude(last.status_mut(), errors, ctx.now());
    last.status_mut().csi_volume_snapshots_completed = cut(&operations);
    last.kind = Some("Backup".to_owned());
    last.api_version = Some("velero.io/v1".to_owned());
    bucket.put_backup(&last).await?;
    let has_cuts = operations.iter().any(|o| is_snapshot(o) || is_upload(o));
    if ctx.settings.has_feature(FEATURE_CSI) || has_cuts {
        // Those of claims that did not come into the archive.
        let is_known = |upload: &DataUpload| {
            let id = upload.labels().get(label::ASYNC_OPERATION_ID);
            operations.iter().any(|o| Some(&o.spec.operation_id) == id)
        };
        moved::discard(ctx, &uid, |upload| !is_known(upload)).await?;
        // The archive has them by now, and the storage keeps them; what was moved is of no more use there.
        for why in handover::clear(&ctx.client, &uid, Stays::Of(&operations)).await? {
            tracing::warn!(backup = name, "{why}");
        }
    }
    end(ctx, &found, &last.status.unwrap_or_default(), None).await
}

/// How many CSI snapshots can be used.
fn cut(operations: &[BackupOperation]) -> Option<i64> {
    let own = operations.iter().filter(|operation| is_snapshot(operation));
    count(own.map(|o| &o.status), &OperationPhase::Completed)
}

/// Says in the file of volumes how CSI snapshots, and the movements of their data, have ended.
async fn tell_volumes(
    bucket: &Bucket,
    name: &str,
    operations: &[BackupOperation],
    uploads: &[DataUpload],
) -> Result<()> {
    if uploads.is_empty() && !operations.iter().any(is_snapshot) {
        return Ok(());
    }
    let key = backup_file(name, backup_suffix::VOLUME_INFO);
    let infos: Option<Vec<BackupVolumeInfo>> = bucket.json(&key).await?;
    let mut infos = infos.unwrap_or_default();
    let old = infos.clone();
    complete(&mut infos, operations);
    moved::complete(&mut infos, uploads);
    if infos != old {
        bucket.put_json(&key, &infos).await?;
    }
    Ok(())
}

/// What volumes' entries say of CSI snapshots whose operations are over.
fn complete(infos: &mut [BackupVolumeInfo], operations: &[BackupOperation]) {
    for info in infos {
        let Some(snapshot) = &mut info.csi_snapshot_info else {
            continue;
        };
        let mut operations = operations.iter().filter(|o| is_snapshot(o));
        let id = snapshot.operation_id.as_ref();
        let Some(operation) = operations.find(|o| Some(&o.spec.operation_id) == id) else {
            continue;
        };
        let is_fine = operation.status.error.as_ref().is_none_or(String::is_empty);
        info.completion_timestamp = operation.status.updated;
        info.result = Some(match is_fine {
            true => VolumeResult::Succeeded,
            false => VolumeResult::Failed,
        });
        snapshot.ready_to_use = Some(is_fine);
    }
}

/// Makes the archive anew with what the operations changed. Returns how much of that failed.
async fn renew(
    ctx: &Context,
    bucket: &Bucket,
    backup: &Backup,
    operations: &[BackupOperation],
) -> Result<i64> {
    let name = &backup.name_any();
    let items: Vec<ResourceIdentifier> = operations
        .iter()
        .filter_map(|operation| operation.spec.post_operation_items.clone())
        .flatten()
        .collect();
    if items.is_empty() {
        return Ok(0);
    }
    let discovery = Discovery::read(&ctx.client, Versions::Preferred)
        .await
        .map_err(Error::api("discover the cluster's resources"))?;
    let log = Log::new("backup", name, Level::Info);
    let key = backup_file(name, backup_suffix::CONTENTS);
    let old = Reader::new(&key, bucket.get(&key).await?);
    let (writer, stream) = archive::write::stream();
    let plugins = ctx.plugins.start(into_log(&log, true)).await;
    let again = Again {
        client: &ctx.client,
        discovery: &discovery,
        backup,
        items: &items,
        actions: &actions::for_backup(&plugins, backup, &discovery, &log).await,
        log: &log,
    };
    let updating = update::update(&again, old, writer);
    let (updated, put) = tokio::join!(updating, bucket.put_stream(&key, stream));
    plugins.stop().await;
    put?;
    updated.map_err(|error| Error::Setup(format!("update the archive of {name}: {error}")))?;
    let errors = log.take().results.errors;
    let key = backup_file(name, backup_suffix::RESULTS);
    let mut results: Results = bucket.json(&key).await?.unwrap_or_default();
    let count = number(&errors);
    if merge(&mut results.errors, errors) {
        bucket.put_json(&key, &results).await?;
    }
    Ok(count)
}

/// The last status.
fn conclude(status: &mut BackupStatus, errors: i64, now: jiff::Timestamp) {
    let failed_before = status.phase == Some(BackupPhase::FinalizingPartiallyFailed);
    status.phase = Some(if failed_before || errors > 0 {
        BackupPhase::PartiallyFailed
    } else {
        BackupPhase::Completed
    });
    status.completion_timestamp = Some(Time(now));
    if errors > 0 {
        status.errors = Some(status.errors.unwrap_or_default() + errors);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn what_had_failed_stays_failed() {
        for (phase, errors, last) in [
            (BackupPhase::Finalizing, 0, BackupPhase::Completed),
            (BackupPhase::Finalizing, 1, BackupPhase::PartiallyFailed),
            (
                BackupPhase::FinalizingPartiallyFailed,
                0,
                BackupPhase::PartiallyFailed,
            ),
        ] {
            let mut status = BackupStatus {
                phase: Some(phase),
                ..BackupStatus::default()
            };
            conclude(&mut status, errors, Timestamp::UNIX_EPOCH);
            assert_eq!(status.phase, Some(last));
            assert_eq!(status.errors.unwrap_or_default(), errors);
        }
    }
}
