//! The end of a backup whose plugins went on working: operations are looked after, then the last
//! phase is written. A backup without operations never comes here, unless another server began it.

use std::sync::Arc;

use bowline_api::{
    Time,
    files::{BackupOperation, OperationPhase, ResourceIdentifier, backup_suffix},
    v1::{Backup, BackupPhase, BackupStorageLocation},
};
use bowline_engine::{
    backup,
    discovery::{Discovery, Versions},
    log::{Level, Log},
};
use bowline_vault::{
    Bucket,
    archive::{self, read::Reader},
    bucket::backup_file,
};
use kube::ResourceExt;

use crate::{Context, Error, Result};

/// Sees a backup through that is waiting for operations or finalizing.
pub(super) async fn finalize(ctx: &Arc<Context>, found: Backup) -> Result<()> {
    let name = found.name_any();
    let location = found.spec.storage_location.clone().unwrap_or_default();
    let Some(location) = ctx.find::<BackupStorageLocation>(&location).await? else {
        return Err(Error::Setup(format!(
            "backup storage location {location} not found"
        )));
    };
    let bucket = ctx.bucket(&location).await?.with_cancel(ctx.abort.clone());
    let key = backup_file(&name, backup_suffix::ITEM_OPERATIONS);
    let mut operations: Vec<BackupOperation> = bucket.json(&key).await?.unwrap_or_default();
    let lost = give_up(&mut operations, ctx.now());
    if lost > 0 {
        bucket.put_json(&key, &operations).await?;
    }
    let errors = update(ctx, &bucket, &name, &operations).await?;
    let mut last = found.clone();
    let status = last.status_mut();
    end(status, lost + errors, &operations, ctx.now());
    last.kind = Some("Backup".to_owned());
    last.api_version = Some("velero.io/v1".to_owned());
    bucket.put_backup(&last).await?;
    ctx.update(&found, &last).await?;
    tracing::info!(backup = %name, operations = operations.len(), lost, "finalized");
    Ok(())
}

/// Makes the archive anew with what the operations changed. Returns how much of that failed.
async fn update(
    ctx: &Context,
    bucket: &Bucket,
    name: &str,
    operations: &[BackupOperation],
) -> Result<usize> {
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
    let updating = backup::update::update(&ctx.client, &discovery, &items, old, writer, &log);
    let (updated, put) = tokio::join!(updating, bucket.put_stream(&key, stream));
    put?;
    updated.map_err(|error| Error::Setup(format!("update the archive of {name}: {error}")))?;
    let written = log.take();
    for (_, errors) in written.results.errors.namespaces.iter().flatten() {
        tracing::warn!(backup = name, "not updated: {}", errors.join("; "));
    }
    Ok(usize::try_from(written.errors).unwrap_or_default())
}

/// Operations of plugins that this server does not have cannot be asked about any more.
fn give_up(operations: &mut [BackupOperation], now: jiff::Timestamp) -> usize {
    let mut lost = 0;
    for operation in operations {
        let phase = operation.status.phase.clone().unwrap_or_default();
        if matches!(phase, OperationPhase::Completed | OperationPhase::Failed) {
            continue;
        }
        lost += 1;
        operation.status.phase = Some(OperationPhase::Failed);
        operation.status.error = Some(format!(
            "this server has no plugin {}",
            operation.spec.backup_item_action
        ));
        operation.status.updated = Some(Time(now));
    }
    lost
}

/// The last status.
fn end(
    status: &mut bowline_api::v1::BackupStatus,
    lost: usize,
    operations: &[BackupOperation],
    now: jiff::Timestamp,
) {
    let count = |wanted: OperationPhase| {
        let matching = operations
            .iter()
            .filter(|o| o.status.phase.as_ref() == Some(&wanted));
        i64::try_from(matching.count()).ok().filter(|n| *n > 0)
    };
    let failed_before = matches!(
        status.phase,
        Some(
            BackupPhase::FinalizingPartiallyFailed
                | BackupPhase::WaitingForPluginOperationsPartiallyFailed
        )
    );
    status.phase = Some(if failed_before || lost > 0 {
        BackupPhase::PartiallyFailed
    } else {
        BackupPhase::Completed
    });
    status.completion_timestamp = Some(Time(now));
    if lost > 0 {
        let lost = i64::try_from(lost).unwrap_or(i64::MAX);
        status.errors = Some(status.errors.unwrap_or_default() + lost);
    }
    if !operations.is_empty() {
        status.backup_item_operations_completed = count(OperationPhase::Completed);
        status.backup_item_operations_failed = count(OperationPhase::Failed);
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::BackupStatus;
    use jiff::Timestamp;

    use super::*;

    fn operation(phase: OperationPhase) -> BackupOperation {
        let mut operation = BackupOperation::default();
        operation.spec.backup_item_action = "example.com/slow".to_owned();
        operation.status.phase = Some(phase);
        operation
    }

    #[test]
    fn operations_of_unknown_plugins_fail_by_name() {
        let mut operations = [
            operation(OperationPhase::Completed),
            operation(OperationPhase::InProgress),
        ];
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(give_up(&mut operations, now), 1);
        assert_eq!(
            operations[1].status.error.as_deref(),
            Some("this server has no plugin example.com/slow")
        );
        let mut status = BackupStatus {
            phase: Some(BackupPhase::WaitingForPluginOperations),
            ..BackupStatus::default()
        };
        end(&mut status, 1, &operations, now);
        assert_eq!(status.phase, Some(BackupPhase::PartiallyFailed));
        assert_eq!(
            (
                status.errors,
                status.backup_item_operations_completed,
                status.backup_item_operations_failed
            ),
            (Some(1), Some(1), Some(1))
        );
    }

    #[test]
    fn what_had_failed_stays_failed() {
        for (phase, last) in [
            (BackupPhase::Finalizing, BackupPhase::Completed),
            (
                BackupPhase::FinalizingPartiallyFailed,
                BackupPhase::PartiallyFailed,
            ),
        ] {
            let mut status = BackupStatus {
                phase: Some(phase),
                ..BackupStatus::default()
            };
            end(&mut status, 0, &[], Timestamp::UNIX_EPOCH);
            assert_eq!(status.phase, Some(last));
        }
    }
}
