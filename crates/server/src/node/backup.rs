//! PodVolumeBackup: a volume goes into the repository of its pod's namespace.

use std::sync::Arc;

use bowline_api::{
    Time,
    names::{label, uploader_setting},
    v1::{DataPathPhase as Phase, PodVolumeBackup, UploaderType},
};
use bowline_volume::{Progress, Upload, Uploaded};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use super::{
    Node,
    copy::{Copy, OfPod},
    place::Place,
    work::{self, Done, Failure, Work},
};
use crate::Result;

impl Work for PodVolumeBackup {
    const FAILED: &'static str = "data path backup failed";
    const NEEDS_POD: bool = false;

    fn refusal(&self) -> Option<String> {
        let uploader = self.spec.uploader_type.as_ref();
        (!UploaderType::is_restic(uploader)).then(|| {
            let uploader = uploader.map(ToString::to_string).unwrap_or_default();
            format!(
                "uploader type {uploader}: this version writes volumes in restic's format only; \
                 the server must ask for that"
            )
        })
    }

    async fn copy(
        &self,
        node: &Node,
        place: &Place,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Done<Self>, Failure> {
        node.metrics.began();
        let began = tokio::time::Instant::now();
        let done = upload(self, node, place, progress, cancel).await;
        node.metrics.ended();
        if let Ok(done) = &done
            && done.phase == Phase::Completed
        {
            let name = self.name_any();
            let owner = self.owner_references().first();
            let backup = owner.map(|owner| owner.name.as_str()).unwrap_or_default();
            let operation = format!(
                "{name}-{}-{}-restic-backup",
                self.location(),
                self.repository()
            );
            let backup = format!("{}/{backup}", node.ctx.namespace);
            node.metrics
                .completed(&backup, &operation, &name, began.elapsed());
        }
        done
    }
}

async fn upload(
    backup: &PodVolumeBackup,
    node: &Node,
    place: &Place,
    progress: &Arc<Progress>,
    cancel: &CancellationToken,
) -> Result<Done<PodVolumeBackup>, Failure> {
    let ctx = &node.ctx;
    let claim = backup.labels().get(label::PVC_UID);
    let parent = match claim.filter(|claim| !claim.is_empty()) {
        Some(claim) => {
            let labels = format!("{}={claim}", label::PVC_UID);
            let others = ctx.list::<PodVolumeBackup>(&labels).await;
            parent(backup, &others.map_err(|e| Failure::Named(e.chain()))?)
        }
        None => None,
    };
    let upload = Upload {
        source: place.folder.clone(),
        path: place.recorded.clone(),
        tags: tags(backup),
        parent,
        parallel: work::count(
            backup.spec.uploader_settings.as_ref(),
            uploader_setting::PARALLEL_FILES_UPLOAD,
        ),
        ..Default::default()
    };
    let engine = work::engine(node, backup, cancel).await?;
    let uploaded = engine.upload(&upload, progress, cancel).await?;
    // Files that went with their volume look like files that somebody removed.
    let went = if place.is_there() {
        let pod = work::pod(node, backup).await;
        let pod = pod.map_err(|e| Failure::Named(e.chain()))?;
        let is_leaving = pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        is_leaving && !uploaded.remarks.is_empty()
    } else {
        true
    };
    let went = went.then(|| {
        format!(
            "volume {} of pod {} went while it was copied",
            backup.volume(),
            work::pod_of(backup)
        )
    });
    Ok(outcome(uploaded, went.as_deref(), place))
}

/// What becomes of the status.
fn outcome(uploaded: Uploaded, went: Option<&str>, place: &Place) -> Done<PodVolumeBackup> {
    let unreadable = uploaded.unreadable.as_slice();
    let (phase, message) = if let Some(went) = went {
        let failed = PodVolumeBackup::FAILED;
        (Phase::Failed, Some(format!("{failed}: {went}")))
    } else if !unreadable.is_empty() {
        let message = format!(
            "{}: {} could not be read and {} not in the snapshot: {}",
            PodVolumeBackup::FAILED,
            files(unreadable.len()),
            if unreadable.len() == 1 { "is" } else { "are" },
            work::first_few(unreadable)
        );
        (Phase::Failed, Some(message))
    } else if uploaded.snapshot.is_none() {
        (Phase::Completed, Some(work::EMPTY.to_owned()))
    } else if uploaded.remarks.is_empty() {
        (Phase::Completed, None)
    } else {
        let remarks = &uploaded.remarks;
        let message = format!(
            "{} not in the snapshot as expected: {}",
            files(remarks.len()),
            work::first_few(remarks)
        );
        (Phase::Completed, Some(message))
    };
    let path = place.folder.display().to_string();
    let (snapshot, added) = (uploaded.snapshot, uploaded.added);
    Done {
        phase,
        message,
        bytes: uploaded.bytes,
        edit: Box::new(move |backup| {
            let status = backup.status_mut();
            status.path = Some(path.clone());
            status.snapshot_id.clone_from(&snapshot);
            status.incremental_bytes = i64::try_from(added).ok().filter(|bytes| *bytes > 0);
        }),
    }
}

fn files(count: usize) -> String {
    if count == 1 {
        "1 file".to_owned()
    } else {
        format!("{count} files")
    }
}

/// Tags as restic's snapshots have them.
fn tags(backup: &PodVolumeBackup) -> Vec<String> {
    let tags = backup.spec.tags.iter().flatten();
    tags.map(|(key, value)| format!("{key}={value}")).collect()
}

/// The snapshot that this one is probably much like: the last one of the same claim, in the same
/// location.
fn parent(backup: &PodVolumeBackup, others: &[PodVolumeBackup]) -> Option<String> {
    let snapshot = |other: &PodVolumeBackup| -> Option<(Option<Time>, String)> {
        let status = other.status.as_ref()?;
        let id = status.snapshot_id.clone().filter(|id| !id.is_empty())?;
        Some((status.start_timestamp, id))
    };
    others
        .iter()
        .filter(|other| {
            other.phase() == Phase::Completed
                && UploaderType::is_restic(other.uploader())
                && other.location() == backup.location()
                && other.repository() == backup.repository()
                && other.uid() != backup.uid()
        })
        .filter_map(snapshot)
        .max()
        .map(|(_, id)| id)
}

#[cfg(test)]
mod tests;
