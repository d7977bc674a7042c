//! PodVolumeRestore: a snapshot goes into a volume of a pod that waits for it.

use std::sync::Arc;

use bowline_api::{
    names::uploader_setting,
    v1::{DataPathPhase as Phase, PodVolumeRestore, UploaderType},
};
use bowline_volume::{Download, Downloaded, Problem, Progress};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use super::{
    Node,
    copy::{self, OfPod, change},
    done,
    place::Place,
    work::{self, Done, Failure, Work},
};
use crate::Result;

impl Work for PodVolumeRestore {
    const FAILED: &'static str = "data path restore failed";
    const NEEDS_POD: bool = true;

    fn refusal(&self) -> Option<String> {
        let uploader = self.spec.uploader_type.as_ref();
        if !UploaderType::is_restic(uploader) {
            let uploader = uploader.map(ToString::to_string).unwrap_or_default();
            return Some(format!(
                "uploader type {uploader}: Velero's {uploader} data cannot be read by this version"
            ));
        }
        if self.spec.snapshot_id.is_empty() {
            return Some("it says no snapshot".to_owned());
        }
        let nobody = owner(self).is_none();
        nobody.then(|| "it has no owner, so its pod cannot be told when it is done".to_owned())
    }

    async fn copy(
        &self,
        node: &Node,
        place: &Place,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Done<Self>, Failure> {
        let restore = owner(self).unwrap_or_default();
        // The one before us got as far as this. The pod may go on any time, so nothing is touched.
        if done::is_there(&place.folder, restore) {
            return Ok(complete(self, None, &[]));
        }
        let settings = self.spec.uploader_settings.as_ref();
        let sparse = settings.and_then(|s| s.get(uploader_setting::WRITE_SPARSE_FILES));
        let download = Download {
            snapshot: self.spec.snapshot_id.clone(),
            target: place.folder.clone(),
            sparse: sparse.is_some_and(|value| value == "true"),
            parallel: work::count(settings, uploader_setting::PARALLEL_FILES_DOWNLOAD),
            ..Default::default()
        };
        let engine = work::engine(node, self, cancel).await?;
        let downloaded = engine.download(&download, progress, cancel).await?;
        if let Some(why) = incomplete(&downloaded) {
            return Err(Failure::Named(why));
        }
        if !place.is_there() {
            return Err(Failure::Named(format!(
                "volume {} of pod {} went while it was copied",
                self.volume(),
                work::pod_of(self)
            )));
        }
        let (folder, restore) = (place.folder.clone(), restore.to_owned());
        let written = tokio::task::spawn_blocking(move || done::write(&folder, &restore)).await;
        let written = written.unwrap_or_else(|e| Err(e.to_string()));
        written.map_err(Failure::Named)?;
        let Downloaded { bytes, remarks, .. } = downloaded;
        Ok(complete(self, Some(bytes), &remarks))
    }
}

/// All data is there.
fn complete(
    restore: &PodVolumeRestore,
    bytes: Option<u64>,
    remarks: &[Problem],
) -> Done<PodVolumeRestore> {
    let size = restore.spec.snapshot_size;
    let size = size.and_then(|size| u64::try_from(size).ok());
    Done {
        phase: Phase::Completed,
        message: (!remarks.is_empty()).then(|| {
            let few = work::first_few(remarks);
            format!("the volume cannot hold all that is said of its files: {few}")
        }),
        bytes: bytes.or(size).unwrap_or_default(),
        edit: Box::new(|_| {}),
    }
}

/// Why a volume is not what it was; then its pod must not begin.
fn incomplete(downloaded: &Downloaded) -> Option<String> {
    let problems = &downloaded.problems;
    let count = match problems.len() {
        0 => return None,
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    Some(format!("{count}: {}", work::first_few(problems)))
}

/// The uid of the restore, which the pod waits for.
fn owner(restore: &PodVolumeRestore) -> Option<&str> {
    let owners = restore.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    let owner = owner.or_else(|| owners.first())?;
    Some(owner.uid.as_str()).filter(|uid| !uid.is_empty())
}

/// The pod has found its volumes complete, and whoever was to say so did not.
pub(super) async fn conclude(node: &Node, restore: &PodVolumeRestore) -> Result<()> {
    let done = complete(restore, None, &[]);
    change(&node.ctx, restore, |restore| {
        copy::end(restore, Phase::Completed, None, node.ctx.now());
        copy::tell(restore, done.bytes, done.bytes);
    })
    .await
    .map(drop)
}

/// The pod goes on, and nobody has restored its volume.
pub(super) async fn too_late(node: &Node, restore: &PodVolumeRestore) -> Result<()> {
    let why = format!(
        "pod {} no longer waits for volume {}",
        work::pod_of(restore),
        restore.volume()
    );
    work::fail(node, restore, &why).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn restore(owners: Value, spec: Value) -> PodVolumeRestore {
        serde_json::from_value(json!({"metadata": {"ownerReferences": owners}, "spec": spec}))
            .unwrap()
    }

    fn owned(uid: &str, controller: Option<bool>) -> Value {
        json!({"apiVersion": "velero.io/v1", "kind": "Restore", "name": "r", "uid": uid, "controller": controller})
    }

    #[test]
    fn the_pod_waits_for_the_owner_that_controls() {
        for (owners, expected) in [
            (json!([]), None),
            (json!([owned("a", None)]), Some("a")),
            (json!([owned("a", None), owned("b", Some(true))]), Some("b")),
            (json!([owned("", Some(true))]), None),
        ] {
            assert_eq!(
                owner(&restore(owners.clone(), json!({}))),
                expected,
                "{owners}"
            );
        }
    }

    #[test]
    fn what_cannot_be_restored_is_refused_by_name() {
        let owners = || json!([owned("a", Some(true))]);
        for (owners, spec, expected) in [
            (owners(), json!({"snapshotID": "s"}), None),
            (
                owners(),
                json!({"snapshotID": "s", "uploaderType": "kopia"}),
                Some("Velero's kopia data cannot be read by this version"),
            ),
            (
                owners(),
                json!({"uploaderType": "restic"}),
                Some("no snapshot"),
            ),
            (json!([]), json!({"snapshotID": "s"}), Some("no owner")),
        ] {
            let why = restore(owners, spec.clone()).refusal();
            assert_eq!(why.is_some(), expected.is_some(), "{spec}");
            let why = why.unwrap_or_default();
            assert!(why.contains(expected.unwrap_or_default()), "{why}");
        }
    }

    #[test]
    fn a_volume_with_problems_is_not_complete() {
        let mut downloaded = Downloaded::default();
        assert_eq!(incomplete(&downloaded), None);
        downloaded.problems.push(Problem {
            path: "a".to_owned(),
            reason: "no space left".to_owned(),
        });
        assert_eq!(
            incomplete(&downloaded).as_deref(),
            Some("1 problem: a: no space left")
        );
    }

    #[test]
    fn bytes_are_those_written_or_else_those_of_the_snapshot() {
        let restore = restore(json!([]), json!({"snapshotSize": 9}));
        assert_eq!(complete(&restore, Some(5), &[]).bytes, 5);
        assert_eq!(complete(&restore, None, &[]).bytes, 9);
    }
}
