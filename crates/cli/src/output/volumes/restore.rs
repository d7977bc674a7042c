//! Volumes of a restore.

use bowline_api::{
    files::{RestoreMethod, RestoreVolumeInfo},
    v1::PodVolumeRestore,
};
use jiff::Timestamp;

use super::{Copied, Method, Names, Outcome, Progress, Volume, pair, some, value, whole_seconds};
use crate::output::describe::{movements::mover, pods::PodVolume};

impl From<&RestoreVolumeInfo> for Volume {
    fn from(info: &RestoreVolumeInfo) -> Self {
        let pod = info.pvr_info.as_ref();
        let names = Names {
            namespace: info.pvc_namespace.as_deref(),
            claim: info.pvc_name.as_deref(),
            pod: pod.map(|pod| {
                let (namespace, name) = (pod.pod_namespace.as_str(), pod.pod_name.as_str());
                (namespace, name, pod.volume_name.as_str())
            }),
            volume: info.pv_name.as_deref(),
            original_volume: info.original_pv_name.as_deref(),
        };
        let mut volume = Self::named(names, value(info));
        volume.original_claim = original_claim(info);
        volume.seconds = whole_seconds(info.start_timestamp, info.completion_timestamp);
        volume.method = match &info.restore_method {
            Some(RestoreMethod::PodVolumeRestore) => Method::PodVolume,
            Some(RestoreMethod::NativeSnapshot) => Method::NativeSnapshot,
            Some(RestoreMethod::CsiSnapshot) if info.snapshot_data_moved => Method::DataMovement,
            Some(RestoreMethod::CsiSnapshot) => Method::CsiSnapshot,
            Some(RestoreMethod::Other(_)) | None => Method::None,
        };
        source(&mut volume, info);
        let reason = info.skipped_reason.as_deref().or(info.message.as_deref());
        volume.reason = some(reason);
        let result = outcome(info);
        let is_ready = info
            .csi_snapshot_info
            .as_ref()
            .is_some_and(|csi| csi.ready_to_use == Some(true));
        let mut volume = volume.ended(result);
        // It only waits for somebody to use it.
        volume.good |= result == Outcome::Pending && is_ready;
        volume
    }
}

/// The claim in the backup, if that was another.
fn original_claim(info: &RestoreVolumeInfo) -> Option<String> {
    if info.original_pvc_name.is_none() && info.original_pvc_namespace.is_none() {
        return None;
    }
    let namespace = info.original_pvc_namespace.as_deref();
    let name = info.original_pvc_name.as_deref();
    pair(
        namespace.or(info.pvc_namespace.as_deref()),
        name.or(info.pvc_name.as_deref()),
    )
}

/// Where the data comes from.
fn source(volume: &mut Volume, info: &RestoreVolumeInfo) {
    let bytes = |bytes: i64| (bytes > 0).then_some(bytes);
    match volume.method {
        Method::PodVolume => {
            let pod = info.pvr_info.clone().unwrap_or_default();
            volume.bytes = pod.size;
            volume.uploader = some(Some(&pod.uploader_type));
            volume.snapshot_handle = pod.snapshot_handle;
        }
        Method::NativeSnapshot => {
            let snapshot = info.native_snapshot_info.clone().unwrap_or_default();
            volume.bytes = snapshot.size.or(info.capacity);
            volume.driver = some(Some(&snapshot.volume_type));
            volume.snapshot_handle = some(Some(&snapshot.snapshot_handle));
        }
        Method::CsiSnapshot => {
            let snapshot = info.csi_snapshot_info.clone().unwrap_or_default();
            volume.bytes = bytes(snapshot.size).or(info.capacity);
            volume.driver = some(Some(&snapshot.driver));
            volume.snapshot_handle = some(Some(&snapshot.snapshot_handle));
        }
        Method::DataMovement => {
            let moved = info.snapshot_data_movement_info.clone().unwrap_or_default();
            volume.bytes = bytes(moved.size).or(info.capacity);
            volume.mover = Some(mover(Some(&moved.data_mover)));
            volume.uploader = some(Some(&moved.uploader_type));
            volume.snapshot_handle = some(Some(&moved.snapshot_handle));
        }
        Method::None => volume.bytes = info.capacity,
    }
}

/// Velero writes neither results nor phases, and native snapshots only once they are restored.
fn outcome(info: &RestoreVolumeInfo) -> Outcome {
    if info.skipped == Some(true) {
        return Outcome::NoData;
    }
    if info.kept == Some(true) {
        return Outcome::Kept;
    }
    if let Some(result) = &info.result {
        return Outcome::from(result);
    }
    let copied = info.pvr_info.as_ref().map(|pod| pod.phase.as_str());
    let moved = info.snapshot_data_movement_info.as_ref();
    let phase = copied.or_else(|| moved.map(|moved| moved.phase.as_str()));
    match phase {
        Some("Completed") => return Outcome::Succeeded,
        Some("Failed" | "Canceled") => return Outcome::Failed,
        _ => {}
    }
    let is_ours = info.capacity.is_some() || info.original_pv_name.is_some();
    match &info.restore_method {
        Some(RestoreMethod::NativeSnapshot) => Outcome::Succeeded,
        Some(RestoreMethod::CsiSnapshot) if is_ours || info.pv_name.is_none() => Outcome::Pending,
        Some(RestoreMethod::CsiSnapshot) if !info.snapshot_data_moved => Outcome::Succeeded,
        _ => Outcome::Unknown,
    }
}

impl Copied for PodVolumeRestore {
    fn volume(&self, now: Timestamp) -> Volume {
        let (spec, status) = (&self.spec, self.status.clone().unwrap_or_default());
        let namespace = spec.pod.namespace.as_deref().unwrap_or_default();
        let pod = spec.pod.name.as_deref().unwrap_or_default();
        let names = Names {
            pod: Some((namespace, pod, spec.volume.as_str())),
            ..Names::default()
        };
        let mut volume = Volume::named(names, value(self));
        volume.method = Method::PodVolume;
        volume.seconds = whole_seconds(status.start_timestamp, status.completion_timestamp);
        let bytes = status.progress.and_then(|progress| progress.total_bytes);
        volume.bytes = bytes.or(spec.snapshot_size);
        volume.uploader = spec.uploader_type.as_ref().map(|of| of.as_str().to_owned());
        volume.snapshot_handle = some(Some(&spec.snapshot_id));
        volume.reason = some(status.message.as_deref());
        let (copy, node) = (PodVolume::from(self), status.node.as_deref());
        volume.progress = Progress::of(copy.phase(), node, &copy.transfer(), now);
        volume.ended(Outcome::from(&status.phase.unwrap_or_default()))
    }
}
