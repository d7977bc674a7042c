//! VolumePluginBackups: what is known of the snapshot of a volume, where people see it, and the next
//! server if this one dies. Plugins may write them themselves; else they are written here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::{
    Time,
    names::{annotation, label, label_value, plugin_backup_name},
    v1::{
        Backup, VolumeOperationProgress, VolumePluginBackup, VolumePluginBackupSpec,
        VolumePluginBackupStatus, VolumePluginPhase as Phase,
    },
};
use bowline_plugin::kinds::Progress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{Context, Error, Result, snapshotters::Snapshotter};

/// Who writes those that no plugin does.
const SERVER: &str = "server";
/// How often one that its plugin writes is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long a plugin may take to write the end of what it has said is over.
const LAST_WORD: Duration = Duration::from_secs(10);

/// The VolumePluginBackup of a snapshot.
pub(super) struct Tracked {
    ctx: Arc<Context>,
    name: String,
    /// The plugin writes its status.
    by_plugin: bool,
    /// Bytes done and in all, as they were last written.
    told: Mutex<(i64, i64)>,
}

impl Tracked {
    /// Writes down that there is a snapshot, or takes up what its plugin has written. None when that
    /// cannot be: a cluster need not have the kind.
    pub(super) async fn begin(
        ctx: &Arc<Context>,
        backup: &Backup,
        snapshotter: &Snapshotter,
        volume: &str,
        snapshot: &str,
    ) -> Option<Arc<Self>> {
        let wanted = object(backup, snapshotter, volume, snapshot);
        match place(ctx, &wanted).await {
            Ok(by_plugin) => Some(Arc::new(Self {
                ctx: Arc::clone(ctx),
                name: wanted.name_any(),
                by_plugin,
                told: Mutex::default(),
            })),
            Err(error) => {
                let why = error.chain();
                tracing::warn!(snapshot, "no VolumePluginBackup is written: {why}");
                None
            }
        }
    }

    /// One that is there.
    pub(super) fn of(ctx: &Arc<Context>, object: &VolumePluginBackup) -> Arc<Self> {
        Arc::new(Self {
            ctx: Arc::clone(ctx),
            name: object.name_any(),
            by_plugin: !is_ours(object),
            told: Mutex::default(),
        })
    }

    pub(super) fn is_by_plugin(&self) -> bool {
        self.by_plugin
    }

    async fn patch(&self, patch: Value) {
        let api = self.ctx.api::<VolumePluginBackup>();
        let done = api
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        if let Err(error) = done {
            tracing::debug!(name = self.name, "VolumePluginBackup: {error}");
        }
    }

    /// The upload begins.
    pub(super) async fn start(&self) {
        if !self.by_plugin {
            let status =
                json!({"phase": Phase::InProgress, "startTimestamp": Time(self.ctx.now())});
            self.patch(json!({"status": status})).await;
        }
    }

    /// How far the upload is, as the plugin says.
    pub(super) async fn tell(&self, progress: &Progress) {
        let bytes = (progress.done, progress.total.max(progress.done));
        let is_new = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *told, bytes) != bytes
        };
        if is_new && !self.by_plugin {
            let progress = json!({"bytesDone": bytes.0, "totalBytes": bytes.1});
            self.patch(json!({"status": {"progress": progress}})).await;
        }
    }

    /// The upload is over, well or not; how the snapshot ended. A plugin that writes itself has the last
    /// word, for a while: what it says failed has failed, whatever its call returned.
    pub(super) async fn end(&self, ended: Result<(), &String>) -> Result<(), String> {
        let ended = ended.map_err(Clone::clone);
        if self.by_plugin
            && let Last::Said(said) = self.wait(LAST_WORD).await
        {
            return ended.and(said);
        }
        let (_, total) = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = json!({"completionTimestamp": Time(self.ctx.now())});
        match &ended {
            Ok(()) => {
                status["phase"] = json!(Phase::Completed);
                if total > 0 {
                    status["progress"] = json!({"bytesDone": total, "totalBytes": total});
                }
            }
            Err(why) => {
                status["phase"] = json!(Phase::Failed);
                status["message"] = json!(why);
            }
        }
        self.patch(json!({"status": status})).await;
        ended
    }

    /// Waits until the plugin has written an end. One that never says where it stands is not waited
    /// for.
    pub(super) async fn wait(&self, limit: Duration) -> Last {
        let until = Instant::now() + limit;
        loop {
            match self.ctx.find::<VolumePluginBackup>(&self.name).await {
                Ok(Some(found)) => match ended(&found) {
                    Some(ended) => return Last::Said(ended),
                    None if !is_under_way(&found) => return Last::Silent,
                    None => {}
                },
                Ok(None) => return Last::Gone,
                Err(error) => tracing::debug!(name = self.name, "{}", error.chain()),
            }
            if Instant::now() >= until {
                return Last::Late;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What a plugin has said last, in an object that it writes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Last {
    /// How it ended.
    Said(Result<(), String>),
    /// Nothing, ever.
    Silent,
    /// That it goes on, when nobody waited any more.
    Late,
    /// It is not known: somebody has deleted the object.
    Gone,
}

impl Last {
    /// Whether the snapshot is safe.
    pub(super) fn judge(self, limit: Duration) -> Result<(), String> {
        match self {
            Self::Said(ended) => ended,
            Self::Silent => Ok(()),
            Self::Late => Err(format!("the plugin was not done after {limit:?}")),
            Self::Gone => Err("its VolumePluginBackup was deleted before it was done".to_owned()),
        }
    }
}

fn phase(object: &VolumePluginBackup) -> Option<&Phase> {
    object.status.as_ref()?.phase.as_ref()
}

/// How it ended, if it has.
pub(super) fn ended(object: &VolumePluginBackup) -> Option<Result<(), String>> {
    match phase(object)? {
        Phase::Completed => Some(Ok(())),
        Phase::Failed => {
            let message = object.status.as_ref().and_then(|s| s.message.clone());
            Some(Err(
                message.unwrap_or_else(|| "the plugin gives no reason".to_owned())
            ))
        }
        _ => None,
    }
}

fn is_under_way(object: &VolumePluginBackup) -> bool {
    matches!(phase(object), Some(Phase::New | Phase::InProgress))
}

pub(super) fn is_ours(object: &VolumePluginBackup) -> bool {
    let from = object.annotations().get(annotation::PROGRESS_FROM);
    from.is_some_and(|from| from == SERVER)
}

/// Creates the object, or adds to the one that is there what it needs to be found. Whether the plugin
/// writes it.
async fn place(ctx: &Context, wanted: &VolumePluginBackup) -> Result<bool> {
    let name = wanted.name_any();
    let api = ctx.api::<VolumePluginBackup>();
    match api.create(&PostParams::default(), wanted).await {
        Ok(_) => return Ok(false),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => {
            return Err(Error::api(format!("create VolumePluginBackup {name}"))(
                error,
            ));
        }
    }
    let Some(found) = ctx.find::<VolumePluginBackup>(&name).await? else {
        return Err(Error::Setup(format!("{name} came and went")));
    };
    // The plugin may write it at this very moment, so only what is ours is touched.
    let patch = adopted(&found, wanted);
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(Error::api(format!("label VolumePluginBackup {name}")))?;
    Ok(!is_ours(&found))
}

/// What a plugin's own object needs to be found by the backup, the volume and the snapshot.
fn adopted(found: &VolumePluginBackup, wanted: &VolumePluginBackup) -> Value {
    let mut annotations = wanted.annotations().clone();
    annotations.remove(annotation::PROGRESS_FROM);
    let mut patch = json!({"metadata": {
        "labels": wanted.labels(),
        "annotations": annotations,
        "ownerReferences": wanted.metadata.owner_references,
    }});
    let id = |object: &VolumePluginBackup| {
        let status = object.status.as_ref()?;
        status.snapshot_id.clone().filter(|id| !id.is_empty())
    };
    if id(found).is_none() {
        patch["status"] = json!({"snapshotID": id(wanted)});
    }
    patch
}

/// The PersistentVolume of an object. Plugins may call the volume as they like.
pub(super) fn volume(object: &VolumePluginBackup) -> &str {
    let said = object.annotations().get(annotation::PERSISTENT_VOLUME);
    said.unwrap_or(&object.spec.volume)
}

fn object(
    backup: &Backup,
    snapshotter: &Snapshotter,
    volume: &str,
    snapshot: &str,
) -> VolumePluginBackup {
    let mut object = VolumePluginBackup::new(
        &backup.namespace().unwrap_or_default(),
        &plugin_backup_name(snapshot),
        VolumePluginBackupSpec {
            volume: volume.to_owned(),
            backup: backup.name_any(),
            plugin: snapshotter.provider.clone(),
            ..VolumePluginBackupSpec::default()
        },
    );
    let uid = backup.uid().unwrap_or_default();
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "velero.io/v1".to_owned(),
        kind: "Backup".to_owned(),
        name: backup.name_any(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    *object.labels_mut() = BTreeMap::from([
        (
            label::BACKUP_NAME.to_owned(),
            label_value(&backup.name_any()),
        ),
        (label::BACKUP_UID.to_owned(), uid),
    ]);
    *object.annotations_mut() = BTreeMap::from([
        (
            annotation::SNAPSHOT_LOCATION.to_owned(),
            snapshotter.location.clone(),
        ),
        (annotation::PERSISTENT_VOLUME.to_owned(), volume.to_owned()),
        (annotation::PROGRESS_FROM.to_owned(), SERVER.to_owned()),
    ]);
    object.status = Some(VolumePluginBackupStatus {
        phase: Some(Phase::New),
        snapshot_id: Some(snapshot.to_owned()),
        progress: Some(VolumeOperationProgress::default()),
        ..VolumePluginBackupStatus::default()
    });
    object
}

/// Those of a backup, by volume.
pub(super) async fn of_backup(ctx: &Context, backup: &Backup) -> Result<Vec<VolumePluginBackup>> {
    let uid = backup.uid().unwrap_or_default();
    match ctx
        .list::<VolumePluginBackup>(&format!("{}={uid}", label::BACKUP_UID))
        .await
    {
        Ok(found) => Ok(found),
        // A cluster need not have the kind.
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_plugin_has_ended_well_is_safe() {
        let limit = Duration::from_secs(60);
        for (last, expected) in [
            (Last::Said(Ok(())), None),
            (Last::Silent, None),
            (Last::Said(Err("no room".to_owned())), Some("no room")),
            (Last::Late, Some("the plugin was not done after 60s")),
            (
                Last::Gone,
                Some("its VolumePluginBackup was deleted before it was done"),
            ),
        ] {
            let judged = last.clone().judge(limit).err();
            assert_eq!(judged.as_deref(), expected, "{last:?}");
        }
    }

    #[test]
    fn an_object_of_a_plugin_is_known_by_what_is_ours() {
        let mut wanted = VolumePluginBackup::default();
        for (key, value) in [
            (annotation::SNAPSHOT_LOCATION, "east"),
            (annotation::PERSISTENT_VOLUME, "pv-1"),
            (annotation::PROGRESS_FROM, SERVER),
        ] {
            let annotations = wanted.annotations_mut();
            annotations.insert(key.to_owned(), value.to_owned());
        }
        wanted.status_mut().snapshot_id = Some("snap-1".to_owned());
        let mut found = VolumePluginBackup::default();
        found.spec.volume = "vol-0a1b".to_owned();
        let patch = adopted(&found, &wanted);
        assert_eq!(patch["status"], json!({"snapshotID": "snap-1"}));
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations[annotation::SNAPSHOT_LOCATION], "east");
        assert_eq!(annotations[annotation::PROGRESS_FROM], Value::Null);
        assert_eq!((volume(&found), volume(&wanted)), ("vol-0a1b", "pv-1"));
        found.status_mut().snapshot_id = Some("snap-1".to_owned());
        assert_eq!(adopted(&found, &wanted)["status"], Value::Null);
    }
}
