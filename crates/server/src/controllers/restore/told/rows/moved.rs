//! Movements of data into volumes.

use bowline_api::{
    files::{
        BackupVolumeInfo, OperationPhase, RestoreOperation, RestoreVolumeInfo,
        SnapshotDataMovementInfo, VolumeResult,
    },
    names::label,
    v1::DataPathPhase,
    v2alpha1::DataDownload,
};
use bowline_engine::movement::Mover;
use kube::ResourceExt;

/// The claim that data is moved into.
pub(super) fn target(download: &DataDownload) -> (String, String) {
    let target = &download.spec.target_volume;
    (target.namespace.clone(), target.pvc.clone())
}

/// Writes down how far a movement is. What the row has already of its uploader stays.
pub(super) fn with(
    row: &mut RestoreVolumeInfo,
    download: &DataDownload,
    backup: Option<&BackupVolumeInfo>,
) {
    let spec = &download.spec;
    let status = download.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let of_backup = backup.and_then(|info| info.snapshot_data_movement_info.as_ref());
    let known = row.snapshot_data_movement_info.as_ref().or(of_backup);
    let uploader = known.map(|known| known.uploader_type.clone());
    let uploader = uploader.filter(|uploader| !uploader.is_empty());
    let mover = Mover::of(spec.datamover.as_deref());
    let operation = download.labels().get(label::ASYNC_OPERATION_ID);
    let moved = status.progress.and_then(|progress| progress.total_bytes);
    let size = moved.filter(|bytes| *bytes > 0).or(spec.snapshot_size);
    row.snapshot_data_movement_info = Some(SnapshotDataMovementInfo {
        data_mover: mover.name().to_owned(),
        uploader_type: uploader.unwrap_or_else(|| usual(&mover).to_owned()),
        snapshot_handle: spec.snapshot_id.clone(),
        operation_id: operation.cloned().unwrap_or_default(),
        size: size.unwrap_or_default(),
        phase: phase.as_str().to_owned(),
        ..SnapshotDataMovementInfo::default()
    });
    row.start_timestamp = status.start_timestamp;
    row.completion_timestamp = status.completion_timestamp;
    row.result = match phase {
        DataPathPhase::Completed => Some(VolumeResult::Succeeded),
        DataPathPhase::Failed | DataPathPhase::Canceled => Some(VolumeResult::Failed),
        _ => None,
    };
    let why = status.message.filter(|message| !message.is_empty());
    row.message = why.filter(|_| row.result == Some(VolumeResult::Failed));
}

/// The format of a mover's repositories, where nobody says.
fn usual(mover: &Mover<'_>) -> &'static str {
    match mover {
        Mover::Ours => "restic",
        Mover::Velero | Mover::Other(_) => "kopia",
    }
}

/// Writes down that moved data does not come back.
pub(super) fn refused(row: &mut RestoreVolumeInfo, why: &str, backup: Option<&BackupVolumeInfo>) {
    let known = backup.and_then(|info| info.snapshot_data_movement_info.as_ref());
    row.snapshot_data_movement_info = known.map(|known| SnapshotDataMovementInfo {
        data_mover: known.data_mover.clone(),
        uploader_type: known.uploader_type.clone(),
        snapshot_handle: known.snapshot_handle.clone(),
        size: known.size,
        ..SnapshotDataMovementInfo::default()
    });
    row.result = Some(VolumeResult::Failed);
    row.message = Some(why.to_owned());
}

/// Writes down why the operation of a movement has failed, if the movement itself does not say. One that
/// nobody waits for any more may not be over.
pub(super) fn given_up(row: &mut RestoreVolumeInfo, operations: &[RestoreOperation]) {
    if row.result == Some(VolumeResult::Succeeded) || row.message.is_some() {
        return;
    }
    let info = row.snapshot_data_movement_info.as_ref();
    let id = info.map(|info| info.operation_id.as_str());
    let is_its = |operation: &&RestoreOperation| {
        Some(operation.spec.operation_id.as_str()) == id
            && operation.status.phase == Some(OperationPhase::Failed)
    };
    if let Some(operation) = operations.iter().find(is_its) {
        row.result = Some(VolumeResult::Failed);
        row.message.clone_from(&operation.status.error);
    }
}
