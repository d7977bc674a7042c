//! Movements of data into volumes.

use bowline_api::{
    files::{BackupVolumeInfo, RestoreVolumeInfo, SnapshotDataMovementInfo, VolumeResult},
    names::{DATA_MOVER, label},
    v1::DataPathPhase,
    v2alpha1::DataDownload,
};
use kube::ResourceExt;

/// The format that a movement has where nobody says.
const UPLOADER: &str = "kopia";

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
    let mover = spec.datamover.clone().filter(|mover| !mover.is_empty());
    let operation = download.labels().get(label::ASYNC_OPERATION_ID);
    let moved = status.progress.and_then(|progress| progress.total_bytes);
    let size = moved.filter(|bytes| *bytes > 0).or(spec.snapshot_size);
    row.snapshot_data_movement_info = Some(SnapshotDataMovementInfo {
        data_mover: mover.unwrap_or_else(|| DATA_MOVER.to_owned()),
        uploader_type: uploader.unwrap_or_else(|| UPLOADER.to_owned()),
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
