//! The DataUploads of a backup: how they ended, and their end when nobody needs them.

use std::time::Duration;

use bowline_api::{
    files::{BackupVolumeInfo, VolumeResult},
    names::label,
    v1::DataPathPhase,
    v2alpha1::DataUpload,
};
use kube::{ResourceExt, runtime::wait::await_condition};

use crate::{
    Context, Result,
    controllers::{
        deletion::contents::{Stored, forget, moved_by_repository},
        operations::movements,
    },
    node::copy::Copy,
};

/// How long uploads that nobody wants may take to go.
const LIMIT: Duration = Duration::from_secs(60);
/// A watch that failed is begun again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// The uploads of a backup.
pub(in crate::controllers) async fn of_backup(
    ctx: &Context,
    backup_uid: &str,
) -> Result<Vec<DataUpload>> {
    if backup_uid.is_empty() {
        return Ok(Vec::new());
    }
    let labels = format!("{}={backup_uid}", label::BACKUP_UID);
    let mut found = match ctx.list::<DataUpload>(&labels).await {
        // A cluster need not have the kind.
        Err(error) if error.is_not_found() => Vec::new(),
        found => found?,
    };
    // Of two of one operation, the one that goes is of a try before.
    found.sort_by_key(|upload| {
        let is_going = upload.metadata.deletion_timestamp.is_some();
        (
            is_going,
            std::cmp::Reverse(upload.creation_timestamp().map(|time| time.0)),
        )
    });
    Ok(found)
}

/// The uploads of a backup, when none of them goes on: what one stores later, nobody would know of. The
/// inner error is for a person.
pub(in crate::controllers) async fn ended(
    ctx: &Context,
    backup_uid: &str,
) -> Result<Result<Vec<DataUpload>, String>> {
    let found = of_backup(ctx, backup_uid).await?;
    let is_open = |upload: &&DataUpload| !upload.phase().is_over();
    let open: Vec<&DataUpload> = found.iter().filter(is_open).collect();
    if open.is_empty() {
        return Ok(Ok(found));
    }
    movements::cancel_all::<DataUpload>(ctx, backup_uid).await?;
    let ending = async {
        for upload in &open {
            let is_over = |now: Option<&DataUpload>| now.is_none_or(|now| now.phase().is_over());
            let api = ctx.api::<DataUpload>();
            while await_condition(api.clone(), &upload.name_any(), is_over)
                .await
                .is_err()
            {
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    match tokio::time::timeout(LIMIT, ending).await {
        Ok(()) => Ok(Ok(of_backup(ctx, backup_uid).await?)),
        Err(_) => Ok(Err(format!(
            "uploads that were canceled go on after {LIMIT:?}"
        ))),
    }
}

/// Deletes uploads of a backup, and waits until whoever works on them has ended.
pub(in crate::controllers) async fn discard(
    ctx: &Context,
    backup_uid: &str,
    is_unwanted: impl Fn(&DataUpload) -> bool,
) -> Result<()> {
    let mut found = match ended(ctx, backup_uid).await? {
        Ok(found) => found,
        Err(why) => {
            tracing::warn!(backup_uid, "{why}");
            of_backup(ctx, backup_uid).await?
        }
    };
    found.retain(is_unwanted);
    // Nobody would know of what they have stored.
    let (repositories, _) = moved_by_repository(&[], &found, "");
    for (place, snapshots) in repositories {
        if let Err(why) = forget(ctx, &place, &Stored::named(snapshots)).await? {
            tracing::warn!(backup_uid, "moved data stays: {why}");
        }
    }
    for upload in &found {
        ctx.delete(upload).await?;
    }
    let going = async {
        for upload in &found {
            let is_gone =
                |now: Option<&DataUpload>| now.is_none_or(|now| now.uid() != upload.uid());
            let api = ctx.api::<DataUpload>();
            // A watch that fails is not worth more: they go without us.
            let _ = await_condition(api, &upload.name_any(), is_gone).await;
        }
    };
    if tokio::time::timeout(LIMIT, going).await.is_err() {
        tracing::warn!(backup_uid, "DataUploads are still there after {LIMIT:?}");
    }
    Ok(())
}

/// What volumes' entries say of uploads that are over.
pub(in crate::controllers) fn complete(infos: &mut [BackupVolumeInfo], uploads: &[DataUpload]) {
    for info in infos {
        let Some(moved) = &mut info.snapshot_data_movement_info else {
            continue;
        };
        let mut uploads = uploads.iter();
        let operation = |upload: &&DataUpload| {
            upload.labels().get(label::ASYNC_OPERATION_ID) == Some(&moved.operation_id)
        };
        let Some(upload) = uploads.find(operation) else {
            continue;
        };
        let (phase, status) = (upload.phase(), upload.status.clone().unwrap_or_default());
        let snapshot = upload.spec.csi_snapshot.as_ref();
        moved.snapshot_handle = status.snapshot_id.unwrap_or_default();
        moved.retained_snapshot = snapshot.map(|snapshot| snapshot.volume_snapshot.clone());
        let total = status.progress.and_then(|progress| progress.total_bytes);
        moved.size = total.unwrap_or_default();
        moved.incremental_size = status.incremental_bytes.filter(|bytes| *bytes > 0);
        moved.phase = phase.as_str().to_owned();
        info.start_timestamp = status.start_timestamp.or(info.start_timestamp);
        info.completion_timestamp = status.completion_timestamp;
        info.result = Some(match phase {
            DataPathPhase::Completed => VolumeResult::Succeeded,
            _ => VolumeResult::Failed,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn rows_say_how_uploads_have_ended() {
        let row = |operation: &str| -> BackupVolumeInfo {
            serde_json::from_value(json!({
                "pvcName": operation, "snapshotDataMoved": true,
                "snapshotDataMovementInfo": {
                    "dataMover": "bowline", "uploaderType": "restic", "operationID": operation,
                },
            }))
            .unwrap()
        };
        let upload = |operation: &str, status: Value| -> DataUpload {
            serde_json::from_value(json!({
                "metadata": {"name": operation, "labels": {"velero.io/async-operation-id": operation}},
                "spec": {"csiSnapshot": {"volumeSnapshot": "velero-data-x"}},
                "status": status,
            }))
            .unwrap()
        };
        let mut rows = [row("a"), row("b"), row("c")];
        let uploads = [
            upload(
                "b",
                json!({
                    "phase": "Completed", "snapshotID": "s1", "incrementalBytes": 3,
                    "progress": {"totalBytes": 9, "bytesDone": 9},
                    "startTimestamp": "2026-01-01T00:00:00Z", "completionTimestamp": "2026-01-01T00:00:05Z",
                }),
            ),
            upload("c", json!({"phase": "Failed", "message": "no room"})),
        ];
        complete(&mut rows, &uploads);
        assert_eq!(rows[0], row("a"));
        let moved = rows[1].snapshot_data_movement_info.as_ref().unwrap();
        assert_eq!(
            serde_json::to_value(moved).unwrap(),
            json!({
                "dataMover": "bowline", "uploaderType": "restic", "operationID": "b",
                "retainedSnapshot": "velero-data-x", "snapshotHandle": "s1", "size": 9,
                "incrementalSize": 3, "Phase": "Completed",
            })
        );
        assert_eq!(rows[1].result, Some(VolumeResult::Succeeded));
        assert!(rows[1].completion_timestamp.is_some());
        assert_eq!(rows[2].result, Some(VolumeResult::Failed));
    }
}
