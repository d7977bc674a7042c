//! What the copies of volumes have in common (PodVolumeBackup, PodVolumeRestore, DataUpload,
//! DataDownload), and how their status changes: phases change nowhere else.

use bowline_api::{
    Time, VeleroResource,
    names::{finalizer, label},
    v1::{
        DataMoveProgress, DataPathPhase as Phase, PodVolumeBackup, PodVolumeRestore, UploaderType,
    },
    v2alpha1::{DataDownload, DataUpload},
};
use jiff::Timestamp;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::ObjectReference};
use kube::ResourceExt;

use crate::{Context, Result, controllers::patiently};

/// The copy of a volume, in either direction.
pub(crate) trait Copy:
    VeleroResource
    + kube::Resource<Scope = NamespaceResourceScope>
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// What Velero's messages call it.
    const WORD: &'static str;
    /// Velero's finalizer on it.
    const FINALIZER: &'static str;

    /// The backup storage location, by name.
    fn location(&self) -> &str;
    /// The namespace that the repository is of.
    fn repository(&self) -> &str;
    /// Whether it is to be stopped.
    fn is_cancelled(&self) -> bool;
    /// Where it stands.
    fn phase(&self) -> Phase;
    /// The parts of its status.
    fn parts(&mut self) -> Parts<'_>;

    /// Whether Velero's finalizer holds it.
    fn is_held(&self) -> bool {
        self.finalizers().iter().any(|f| f == Self::FINALIZER)
    }

    /// Whether it is to be canceled.
    fn is_unwanted(&self) -> bool {
        self.is_cancelled()
            || self.meta().deletion_timestamp.is_some()
            || self.phase() == Phase::Canceling
    }
}

/// The copy of a volume that a pod has.
pub(crate) trait OfPod: Copy {
    /// The pod.
    fn pod(&self) -> &ObjectReference;
    /// The volume's name in the pod.
    fn volume(&self) -> &str;
    /// The format that was asked for.
    fn uploader(&self) -> Option<&UploaderType>;
}

/// The parts that all statuses have.
pub(crate) struct Parts<'a> {
    phase: &'a mut Option<Phase>,
    message: &'a mut Option<String>,
    accepted: &'a mut Option<Time>,
    started: &'a mut Option<Time>,
    completed: &'a mut Option<Time>,
    progress: &'a mut Option<DataMoveProgress>,
    /// Who takes it.
    taker: Option<&'a mut Option<String>>,
}

macro_rules! copy {
    ($kind:ty, $word:literal, $finalizer:ident, $repository:expr $(, $taker:ident)?) => {
        impl Copy for $kind {
            const WORD: &'static str = $word;
            const FINALIZER: &'static str = finalizer::$finalizer;

            fn location(&self) -> &str {
                &self.spec.backup_storage_location
            }
            fn repository(&self) -> &str {
                let repository: fn(&Self) -> &str = $repository;
                repository(self)
            }
            fn is_cancelled(&self) -> bool {
                self.spec.cancel == Some(true)
            }
            fn phase(&self) -> Phase {
                match self.status.as_ref().and_then(|s| s.phase.clone()) {
                    None => Phase::New,
                    Some(Phase::Other(text)) if text.is_empty() => Phase::New,
                    Some(phase) => phase,
                }
            }
            fn parts(&mut self) -> Parts<'_> {
                let status = self.status_mut();
                Parts {
                    phase: &mut status.phase,
                    message: &mut status.message,
                    accepted: &mut status.accepted_timestamp,
                    started: &mut status.start_timestamp,
                    completed: &mut status.completion_timestamp,
                    progress: &mut status.progress,
                    taker: None $(.or(Some(&mut status.$taker)))?,
                }
            }
        }
    };
}

macro_rules! of_pod {
    ($kind:ty) => {
        impl OfPod for $kind {
            fn pod(&self) -> &ObjectReference {
                &self.spec.pod
            }
            fn volume(&self) -> &str {
                &self.spec.volume
            }
            fn uploader(&self) -> Option<&UploaderType> {
                self.spec.uploader_type.as_ref()
            }
        }
    };
}

/// A node takes it. One that was taken before stays as far as it was.
pub(crate) fn accept<K: Copy>(copy: &mut K, node: &str, now: Timestamp) {
    if copy.phase() != Phase::New {
        return;
    }
    let labels = copy.labels_mut();
    labels.insert(label::EXPOSE_ON_GOING.to_owned(), "true".to_owned());
    let parts = copy.parts();
    *parts.phase = Some(Phase::Accepted);
    *parts.accepted = Some(Time(now));
    if let Some(field) = parts.taker {
        *field = Some(node.to_owned());
    }
}

/// Its volume is found.
pub(crate) fn prepare<K: Copy>(copy: &mut K) {
    if matches!(copy.phase(), Phase::New | Phase::Accepted) {
        *copy.parts().phase = Some(Phase::Prepared);
    }
}

/// Data begins to move.
pub(crate) fn begin<K: Copy>(copy: &mut K, now: Timestamp) {
    unlabel(copy);
    let parts = copy.parts();
    *parts.phase = Some(Phase::InProgress);
    parts.started.get_or_insert(Time(now));
}

/// It is over, and nothing is left to be cleared away. Without a message, what was said before stays.
pub(crate) fn end<K: Copy>(copy: &mut K, phase: Phase, message: Option<&str>, now: Timestamp) {
    finish(copy, phase, message, now);
    release(copy);
}

/// It is over. Velero's finalizer stays until what was made for it is cleared away.
pub(crate) fn finish<K: Copy>(copy: &mut K, phase: Phase, message: Option<&str>, now: Timestamp) {
    unlabel(copy);
    let parts = copy.parts();
    *parts.phase = Some(phase);
    parts.started.get_or_insert(Time(now));
    *parts.completed = Some(Time(now));
    if let Some(message) = message {
        *parts.message = Some(message.to_owned());
    }
}

/// It is asked to stop.
pub(crate) fn stop<K: Copy>(copy: &mut K) {
    *copy.parts().phase = Some(Phase::Canceling);
}

/// So many bytes of so many are done.
pub(crate) fn tell<K: Copy>(copy: &mut K, total: u64, done: u64) {
    *copy.parts().progress = Some(progress(total, done));
}

/// Bytes as the status has them.
pub(crate) fn progress(total: u64, done: u64) -> DataMoveProgress {
    let number = |bytes: u64| Some(i64::try_from(bytes).unwrap_or(i64::MAX)).filter(|n| *n > 0);
    DataMoveProgress {
        total_bytes: number(total),
        bytes_done: number(done),
        ..DataMoveProgress::default()
    }
}

/// Velero's finalizer goes; those of others are theirs.
pub(crate) fn release<K: Copy>(copy: &mut K) {
    let finalizers = &mut copy.meta_mut().finalizers;
    if let Some(names) = finalizers {
        names.retain(|name| name != K::FINALIZER);
    }
    if finalizers.as_ref().is_some_and(Vec::is_empty) {
        *finalizers = None;
    }
}

fn unlabel<K: Copy>(copy: &mut K) {
    let labels = &mut copy.meta_mut().labels;
    if let Some(labels) = labels {
        labels.remove(label::EXPOSE_ON_GOING);
    }
}

/// Changes the copy as it is now, and returns it; none when it is gone, or over.
pub(crate) async fn change<K: Copy>(
    ctx: &Context,
    copy: &K,
    edit: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>> {
    change_if(ctx, copy, |found| !found.phase().is_over(), edit).await
}

/// The same, also when it is over.
pub(crate) async fn change_always<K: Copy>(
    ctx: &Context,
    copy: &K,
    edit: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>> {
    change_if(ctx, copy, |_| true, edit).await
}

async fn change_if<K: Copy>(
    ctx: &Context,
    copy: &K,
    is_wanted: impl Fn(&K) -> bool + Send + Sync,
    edit: impl Fn(&mut K) + Send + Sync,
) -> Result<Option<K>> {
    patiently(ctx, || async {
        let found = ctx.find::<K>(&copy.name_any()).await?;
        let Some(old) = found.filter(|found| found.uid() == copy.uid() && is_wanted(found)) else {
            return Ok(None);
        };
        let mut new = old.clone();
        edit(&mut new);
        ctx.update(&old, &new).await.map(Some)
    })
    .await
}

copy!(PodVolumeBackup, "PVB", POD_VOLUME, |backup| backup
    .spec
    .pod
    .namespace
    .as_deref()
    .unwrap_or_default());
copy!(
    PodVolumeRestore,
    "PVR",
    POD_VOLUME,
    |restore| &restore.spec.source_namespace,
    node
);
copy!(
    DataUpload,
    "data upload",
    DATA_UPLOAD_DOWNLOAD,
    |upload| &upload.spec.source_namespace,
    accepted_by_node
);
copy!(
    DataDownload,
    "data download",
    DATA_UPLOAD_DOWNLOAD,
    |download| &download.spec.source_namespace,
    accepted_by_node
);
of_pod!(PodVolumeBackup);
of_pod!(PodVolumeRestore);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn restore(value: Value) -> PodVolumeRestore {
        serde_json::from_value(value).unwrap()
    }

    fn status(copy: &PodVolumeRestore) -> Value {
        serde_json::to_value(copy.status.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn a_copy_goes_through_its_phases() {
        let mut copy = restore(json!({"metadata": {"name": "c"}, "spec": {}}));
        accept(&mut copy, "n1", at(1));
        let mut expected = json!({
            "phase": "Accepted", "acceptedTimestamp": "1970-01-01T00:00:01Z", "node": "n1",
        });
        assert_eq!(status(&copy), expected);
        assert_eq!(copy.labels()["velero.io/expose-on-going"], "true");
        prepare(&mut copy);
        expected["phase"] = json!("Prepared");
        assert_eq!(status(&copy), expected);
        begin(&mut copy, at(2));
        expected["phase"] = json!("InProgress");
        expected["startTimestamp"] = json!("1970-01-01T00:00:02Z");
        assert_eq!(status(&copy), expected);
        assert!(copy.labels().is_empty());
        tell(&mut copy, 10, 10);
        end(&mut copy, Phase::Completed, None, at(3));
        expected["phase"] = json!("Completed");
        expected["completionTimestamp"] = json!("1970-01-01T00:00:03Z");
        expected["progress"] = json!({"totalBytes": 10, "bytesDone": 10});
        assert_eq!(status(&copy), expected);
    }

    #[test]
    fn what_is_taken_up_again_stays_as_far_as_it_was() {
        let taken = json!({
            "metadata": {"name": "c"}, "spec": {},
            "status": {
                "phase": "InProgress", "node": "n1",
                "acceptedTimestamp": "1970-01-01T00:00:01Z",
                "startTimestamp": "1970-01-01T00:00:02Z",
            },
        });
        let mut copy = restore(taken.clone());
        accept(&mut copy, "n1", at(8));
        prepare(&mut copy);
        begin(&mut copy, at(9));
        assert_eq!(status(&copy), taken["status"]);
    }

    #[test]
    fn the_end_keeps_what_was_said_and_lets_go() {
        let mut copy = restore(json!({
            "metadata": {
                "name": "c",
                "labels": {"velero.io/expose-on-going": "true", "a": "b"},
                "finalizers": ["velero.io/pod-volume-finalizer", "example.com/mine"],
            },
            "spec": {},
            "status": {"phase": "Accepted", "message": "Cancel PVR because it is being deleted"},
        }));
        assert!(copy.is_held());
        end(&mut copy, Phase::Canceled, None, at(5));
        assert_eq!(
            status(&copy),
            json!({
                "phase": "Canceled", "message": "Cancel PVR because it is being deleted",
                "startTimestamp": "1970-01-01T00:00:05Z",
                "completionTimestamp": "1970-01-01T00:00:05Z",
            })
        );
        assert_eq!(copy.finalizers(), ["example.com/mine"]);
        assert_eq!(copy.labels().len(), 1);
        end(&mut copy, Phase::Failed, Some("why"), at(6));
        assert_eq!(status(&copy)["message"], "why");
    }
}
