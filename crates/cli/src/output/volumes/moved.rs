//! Volumes whose data is moved, as the cluster knows them.

use bowline_api::{
    v1::UploaderType,
    v2alpha1::{DataDownload, DataUpload},
};
use bowline_engine::movement::Mover;
use jiff::Timestamp;

use super::{Copied, Method, Names, Outcome, Progress, Volume, some, value, whole_seconds};
use crate::output::describe::{
    live::Live,
    movements::{Movement, mover},
};

impl Copied for DataUpload {
    fn volume(&self, now: Timestamp) -> Volume {
        let (spec, status) = (&self.spec, self.status.clone().unwrap_or_default());
        let names = Names {
            namespace: Some(&spec.source_namespace),
            claim: Some(&spec.source_pvc),
            ..Names::default()
        };
        let mut volume = moved(names, value(self), spec.datamover.as_deref());
        volume.seconds = whole_seconds(status.start_timestamp, status.completion_timestamp);
        volume.incremental_bytes = status.incremental_bytes;
        let snapshot = spec.csi_snapshot.as_ref();
        volume.driver = some(snapshot.and_then(|snapshot| snapshot.driver.as_deref()));
        volume.snapshot_handle = some(status.snapshot_id.as_deref());
        with(volume, &Movement::from(self), now)
    }
}

impl Copied for DataDownload {
    fn volume(&self, now: Timestamp) -> Volume {
        let (spec, status) = (&self.spec, self.status.clone().unwrap_or_default());
        let target = &spec.target_volume;
        let names = Names {
            namespace: Some(&target.namespace),
            claim: Some(&target.pvc),
            volume: Some(&target.pv),
            ..Names::default()
        };
        let mut volume = moved(names, value(self), spec.datamover.as_deref());
        volume.seconds = whole_seconds(status.start_timestamp, status.completion_timestamp);
        volume.snapshot_handle = some(Some(&spec.snapshot_id));
        with(volume, &Movement::from(self), now)
    }
}

/// One that somebody moves the data of. Which format others write is not known.
fn moved(names: Names<'_>, info: serde_json::Value, by: Option<&str>) -> Volume {
    let uploader = match Mover::of(by) {
        Mover::Ours => Some(UploaderType::Restic),
        Mover::Velero => Some(UploaderType::Kopia),
        Mover::Other(_) => None,
    };
    let mut volume = Volume::named(names, info);
    volume.method = Method::DataMovement;
    volume.mover = Some(mover(by));
    volume.uploader = uploader.map(|uploader| uploader.as_str().to_owned());
    volume
}

/// The same with how far the movement is.
fn with(mut volume: Volume, movement: &Movement, now: Timestamp) -> Volume {
    let (transfer, node) = (movement.transfer(), Some(movement.node.as_str()));
    volume.bytes = Some(transfer.total).filter(|bytes| *bytes > 0);
    volume.reason = some(Some(movement.message()));
    volume.progress = Progress::of(movement.phase(), node, &transfer, now);
    volume.ended(Outcome::from(&movement.phase))
}
