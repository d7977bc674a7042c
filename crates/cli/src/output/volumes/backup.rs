//! Volumes of a backup.

use bowline_api::{
    files::{BackupMethod, BackupVolumeInfo},
    names::annotation,
    v1::PodVolumeBackup,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Copied, Method, Names, Outcome, Progress, Volume, some, value, whole_seconds};
use crate::output::describe::{movements::mover, pods::PodVolume};

impl From<&BackupVolumeInfo> for Volume {
    fn from(info: &BackupVolumeInfo) -> Self {
        let pod = info.pvb_info.as_ref();
        let names = Names {
            namespace: info.pvc_namespace.as_deref(),
            claim: info.pvc_name.as_deref(),
            pod: pod.map(|pod| {
                let (namespace, name) = (pod.pod_namespace.as_str(), pod.pod_name.as_str());
                (namespace, name, pod.volume_name.as_str())
            }),
            volume: info.pv_name.as_deref(),
            ..Names::default()
        };
        let mut volume = Self::named(names, value(info));
        volume.seconds = whole_seconds(info.start_timestamp, info.completion_timestamp);
        volume.method = method(info);
        if info.skipped {
            volume.method = Method::None;
            let why = info.skipped_reason.as_deref().unwrap_or_default();
            volume.reason = some(Some(why.trim_end_matches(';')));
            return volume.ended(Outcome::NoData);
        }
        kept(&mut volume, info);
        let result = match &info.result {
            Some(result) => Outcome::from(result),
            None => by_phase(info),
        };
        if result == Outcome::Failed {
            volume.reason = failure(info);
        }
        volume.ended(result)
    }
}

fn method(info: &BackupVolumeInfo) -> Method {
    match &info.backup_method {
        Some(BackupMethod::PodVolumeBackup) => Method::PodVolume,
        Some(BackupMethod::NativeSnapshot) => Method::NativeSnapshot,
        Some(BackupMethod::CsiSnapshot) if info.snapshot_data_moved => Method::DataMovement,
        Some(BackupMethod::CsiSnapshot) => Method::CsiSnapshot,
        // Files of old versions say it by what they have.
        None if info.native_snapshot_info.is_some() => Method::NativeSnapshot,
        None if info.csi_snapshot_info.is_some() => Method::CsiSnapshot,
        _ => Method::None,
    }
}

/// Where the data is.
fn kept(volume: &mut Volume, info: &BackupVolumeInfo) {
    let bytes = |bytes: i64| (bytes > 0).then_some(bytes);
    match volume.method {
        Method::PodVolume => {
            let pod = info.pvb_info.clone().unwrap_or_default();
            volume.bytes = pod.size;
            volume.incremental_bytes = pod.incremental_size;
            volume.uploader = some(Some(&pod.uploader_type));
            volume.snapshot_handle = pod.snapshot_handle;
        }
        Method::NativeSnapshot => {
            let snapshot = info.native_snapshot_info.clone().unwrap_or_default();
            volume.bytes = snapshot.size;
            volume.driver = some(Some(&snapshot.volume_type));
            volume.snapshot_handle = some(Some(&snapshot.snapshot_handle));
        }
        Method::CsiSnapshot => {
            let snapshot = info.csi_snapshot_info.clone().unwrap_or_default();
            volume.bytes = bytes(snapshot.size);
            volume.driver = some(Some(&snapshot.driver));
            volume.snapshot_handle = some(Some(&snapshot.snapshot_handle));
        }
        Method::DataMovement => {
            let moved = info.snapshot_data_movement_info.clone().unwrap_or_default();
            let snapshot = info.csi_snapshot_info.clone().unwrap_or_default();
            volume.bytes = bytes(moved.size);
            volume.incremental_bytes = moved.incremental_size;
            volume.driver = some(Some(&snapshot.driver));
            volume.mover = Some(mover(Some(&moved.data_mover)));
            volume.uploader = some(Some(&moved.uploader_type));
            volume.snapshot_handle = some(Some(&moved.snapshot_handle));
        }
        Method::None => {}
    }
}

/// Old files have no results, but phases and handles.
fn by_phase(info: &BackupVolumeInfo) -> Outcome {
    let word = |phase: &str| match phase {
        "Completed" => Outcome::Succeeded,
        "Failed" | "Canceled" => Outcome::Failed,
        _ => Outcome::Pending,
    };
    if let Some(pod) = &info.pvb_info {
        return word(&pod.phase);
    }
    if let Some(moved) = &info.snapshot_data_movement_info {
        return word(&moved.phase);
    }
    if let Some(snapshot) = &info.native_snapshot_info {
        return match (snapshot.phase.as_str(), snapshot.snapshot_handle.is_empty()) {
            ("", false) => Outcome::Succeeded,
            ("", true) => Outcome::Failed,
            (phase, _) => word(phase),
        };
    }
    match &info.csi_snapshot_info {
        Some(snapshot) if snapshot.ready_to_use == Some(true) => Outcome::Succeeded,
        // Contents of old versions were written down once they had a handle.
        Some(snapshot) if info.backup_method.is_none() && !snapshot.snapshot_handle.is_empty() => {
            Outcome::Succeeded
        }
        Some(_) => Outcome::Pending,
        None => Outcome::Unknown,
    }
}

/// What the file has to say of a failure; the backup's log has more.
fn failure(info: &BackupVolumeInfo) -> Option<String> {
    let said = info.extra.get("message").and_then(|m| m.as_str());
    if let Some(said) = some(said) {
        return Some(said);
    }
    let pod = info.pvb_info.as_ref().map(|pod| pod.phase.as_str());
    let native = info.native_snapshot_info.as_ref();
    let moved = info.snapshot_data_movement_info.as_ref();
    let phase = pod
        .or_else(|| moved.map(|moved| moved.phase.as_str()))
        .or_else(|| native.map(|native| native.phase.as_str()));
    let phase = phase.filter(|phase| !phase.is_empty())?;
    Some(format!("it is {phase}, see the backup's log"))
}

impl Copied for PodVolumeBackup {
    fn volume(&self, now: Timestamp) -> Volume {
        let (spec, status) = (&self.spec, self.status.clone().unwrap_or_default());
        let namespace = spec.pod.namespace.as_deref().unwrap_or_default();
        let pod = spec.pod.name.as_deref().unwrap_or_default();
        let names = Names {
            namespace: Some(namespace),
            claim: self
                .annotations()
                .get(annotation::PVC_NAME)
                .map(String::as_str),
            pod: Some((namespace, pod, spec.volume.as_str())),
            ..Names::default()
        };
        let mut volume = Volume::named(names, value(self));
        volume.method = Method::PodVolume;
        volume.seconds = whole_seconds(status.start_timestamp, status.completion_timestamp);
        volume.bytes = status.progress.and_then(|progress| progress.total_bytes);
        volume.incremental_bytes = status.incremental_bytes;
        volume.uploader = spec.uploader_type.as_ref().map(|of| of.as_str().to_owned());
        volume.snapshot_handle = some(status.snapshot_id.as_deref());
        volume.reason = some(status.message.as_deref());
        let copy = PodVolume::from(self);
        volume.progress = Progress::of(copy.phase(), Some(&spec.node), &copy.transfer(), now);
        volume.ended(Outcome::from(&status.phase.unwrap_or_default()))
    }
}
