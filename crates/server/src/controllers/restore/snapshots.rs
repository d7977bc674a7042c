//! Volumes that a restore makes of native snapshots: by plugins, each for a location of snapshots, with
//! a VolumePluginRestore to look at while that goes on. Plugins may write those themselves; else they
//! are written here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bowline_api::{
    Time,
    files::{NativeSnapshotInfo, Snapshot},
    names::{annotation, label, label_value},
    v1::{
        Restore, VolumePluginPhase as Phase, VolumePluginRestore, VolumePluginRestoreSpec,
        VolumePluginRestoreStatus, VolumeSnapshotLocation,
    },
};
use bowline_engine::{log::Log, restore::snapshots::Snapshots};
use bowline_plugin::{
    Error,
    kinds::{NewVolume, Progress},
};
use bowline_vault::crash;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::told::{Made, Tracker};
use crate::{
    Context, Result, controllers::patiently, plugins::into_log, snapshotters::Snapshotter,
};

/// Who writes those that no plugin does.
const SERVER: &str = "server";
/// How often a plugin is asked how far it is.
const TICK: Duration = Duration::from_secs(1);

/// The snapshots of one restore.
pub(super) struct Native {
    ctx: Arc<Context>,
    restore: Arc<Restore>,
    log: Log,
    /// The snapshots of the backup, by volume.
    records: HashMap<String, Snapshot>,
    locations: Mutex<HashMap<String, Arc<Opened>>>,
    /// What a server before this one has written down.
    known: Vec<VolumePluginRestore>,
    tracker: Arc<Tracker>,
    /// Objects of plugins that cannot say how far they are.
    silent: Mutex<Vec<String>>,
}

/// The plugin of a location, or why there is none; found out once.
type Opened = OnceCell<Result<Arc<Snapshotter>, String>>;

impl Native {
    pub(super) async fn new(
        ctx: &Arc<Context>,
        restore: &Restore,
        records: Vec<Snapshot>,
        log: &Log,
        resumed: bool,
        tracker: &Arc<Tracker>,
    ) -> Result<Self> {
        let known = match resumed && !records.is_empty() {
            true => patiently(ctx, || of_restore(ctx, restore)).await?,
            false => Vec::new(),
        };
        let has_id = |record: &Snapshot| {
            let id = record.status.provider_snapshot_id.as_deref();
            !id.unwrap_or_default().is_empty()
        };
        let by_volume = |record: Snapshot| (record.spec.persistent_volume_name.clone(), record);
        let records: HashMap<_, _> = records.into_iter().filter(has_id).map(by_volume).collect();
        let infos = records.iter().map(|(name, of)| (name.clone(), info(of)));
        tracker.snapshots(infos.collect());
        Ok(Self {
            ctx: Arc::clone(ctx),
            restore: Arc::new(restore.clone()),
            log: log.clone(),
            records,
            locations: Mutex::default(),
            known,
            tracker: Arc::clone(tracker),
            silent: Mutex::default(),
        })
    }

    /// The volumes are there, so nobody has to know any more which ones were made: what says nothing
    /// else goes.
    pub(super) async fn finish(&self) {
        let silent = {
            let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *silent)
        };
        let api = self.ctx.api::<VolumePluginRestore>();
        for name in silent {
            if let Err(error) = api.delete(&name, &Default::default()).await {
                tracing::debug!(name, "VolumePluginRestore: {error}");
            }
        }
    }

    async fn snapshotter(&self, name: &str) -> Result<Arc<Snapshotter>, String> {
        let slot = {
            let locations = self.locations.lock();
            let mut locations = locations.unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locations.entry(name.to_owned()).or_default())
        };
        let opened = slot.get_or_init(|| async {
            let found = self.ctx.find::<VolumeSnapshotLocation>(name).await;
            let location = found
                .map_err(|error| error.chain())?
                .ok_or_else(|| format!("volume snapshot location {name} not found"))?;
            let sink = into_log(&self.log, false);
            let opened = Snapshotter::open(&self.ctx, &location, sink).await;
            opened.map(Arc::new)
        });
        opened.await.clone()
    }

    /// The volume that a server before this one has made of a snapshot.
    fn made_before(&self, snapshot: &str) -> Option<String> {
        let known = self.known.iter();
        let mut of = known.filter(|object| object.spec.snapshot_id == snapshot);
        of.find_map(|object| object.annotations().get(annotation::VOLUME_ID).cloned())
    }

    /// Makes a volume, and tells meanwhile how far that is. Also returns how many bytes it has, if the
    /// plugin says.
    async fn make(
        &self,
        snapshotter: &Arc<Snapshotter>,
        record: &Snapshot,
        volume: &NewVolume,
    ) -> Result<(String, Option<i64>), String> {
        let name = &record.spec.persistent_volume_name;
        let told = Told::begin(
            &self.ctx,
            &self.restore,
            snapshotter,
            &volume.snapshot,
            name,
        )
        .await;
        let ended = {
            let looking = async {
                loop {
                    tokio::time::sleep(TICK).await;
                    told.look(snapshotter).await;
                }
            };
            tokio::select! {
                ended = snapshotter.plugin.create_volume(volume) => ended,
                () = looking => unreachable!("it never ends"),
            }
        };
        crash::here("after CreateVolumeFromSnapshot");
        told.end(snapshotter, &ended).await;
        if ended.is_ok()
            && !snapshotter.may_tell()
            && let Some(name) = told.own()
        {
            let silent = self.silent.lock();
            silent.unwrap_or_else(PoisonError::into_inner).push(name);
        }
        crash::here("after VolumePluginRestore");
        let id = ended.map_err(|error| error.to_string())?;
        Ok((id, told.size()))
    }

    /// The PersistentVolume of a volume that is made of a snapshot, and how many bytes that has.
    async fn made(&self, volume: &Value, name: &str) -> Result<(Value, Option<i64>), String> {
        let record = self.records.get(name);
        let record = record.ok_or("the backup does not say which snapshot it has")?;
        let spec = &record.spec;
        let snapshot = record.status.provider_snapshot_id.clone();
        let snapshot = snapshot.unwrap_or_default();
        let snapshotter = self.snapshotter(&spec.location).await?;
        let wanted = NewVolume {
            snapshot: snapshot.clone(),
            volume_type: spec.volume_type.clone(),
            zone: spec.volume_az.clone().unwrap_or_default(),
            iops: spec.volume_iops,
        };
        let (id, size) = match self.made_before(&snapshot) {
            Some(id) => (id, None),
            None => self.make(&snapshotter, record, &wanted).await?,
        };
        let made = snapshotter.plugin.set_volume_id(volume, &id).await;
        Ok((made.map_err(|error| error.to_string())?, size))
    }
}

#[async_trait]
impl Snapshots for Native {
    fn has(&self, volume: &str) -> bool {
        self.records.contains_key(volume)
    }

    async fn restore(&self, volume: &Value) -> Result<Value, String> {
        let name = volume["metadata"]["name"].as_str().unwrap_or_default();
        let began = self.ctx.now();
        let made = self.made(volume, name).await;
        let (size, failure) = match &made {
            Ok((_, size)) => (*size, None),
            Err(why) => (None, Some(why.clone())),
        };
        let times = Some((began, self.ctx.now()));
        let told = Made {
            times,
            size,
            failure,
        };
        self.tracker.native(name, told);
        made.map(|(volume, _)| volume)
    }

    fn other_name(&self, volume: &str) -> String {
        let restore = self.restore.uid().unwrap_or_default();
        let digest = Sha256::digest(format!("{restore}/{volume}"));
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        let id = uuid::Builder::from_random_bytes(id).into_uuid();
        format!("velero-clone-{id}")
    }
}

/// What the restore's file says of a snapshot.
fn info(record: &Snapshot) -> NativeSnapshotInfo {
    let (spec, status) = (&record.spec, &record.status);
    NativeSnapshotInfo {
        snapshot_handle: status.provider_snapshot_id.clone().unwrap_or_default(),
        volume_type: spec.volume_type.clone(),
        volume_az: spec.volume_az.clone().unwrap_or_default(),
        iops: spec.volume_iops.unwrap_or_default().to_string(),
        ..NativeSnapshotInfo::default()
    }
}

/// Those of a restore.
async fn of_restore(ctx: &Context, restore: &Restore) -> Result<Vec<VolumePluginRestore>> {
    let uid = restore.uid().unwrap_or_default();
    let labels = format!("{}={uid}", label::RESTORE_UID);
    match ctx.list::<VolumePluginRestore>(&labels).await {
        // A cluster need not have the kind.
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

/// The VolumePluginRestore of a volume that is being made.
struct Told {
    ctx: Arc<Context>,
    restore: Arc<Restore>,
    snapshot: String,
    since: jiff::Timestamp,
    /// The object that is written here, unless the plugin writes one.
    own: Mutex<Option<String>>,
    /// The plugin's own.
    theirs: Mutex<Option<String>>,
    bytes: Mutex<(i64, i64)>,
}

impl Told {
    async fn begin(
        ctx: &Arc<Context>,
        restore: &Arc<Restore>,
        snapshotter: &Snapshotter,
        snapshot: &str,
        volume: &str,
    ) -> Self {
        let object = object(ctx, restore, snapshotter, snapshot, volume);
        let api = ctx.api::<VolumePluginRestore>();
        let own = match api.create(&PostParams::default(), &object).await {
            Ok(created) => Some(created.name_any()),
            Err(error) => {
                tracing::warn!(snapshot, "no VolumePluginRestore is written: {error}");
                None
            }
        };
        Self {
            ctx: Arc::clone(ctx),
            restore: Arc::clone(restore),
            snapshot: snapshot.to_owned(),
            since: ctx.now(),
            own: Mutex::new(own),
            theirs: Mutex::default(),
            bytes: Mutex::default(),
        }
    }

    fn own(&self) -> Option<String> {
        let own = self.own.lock();
        own.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn patch(&self, patch: Value) {
        if let Some(name) = self.own() {
            self.patch_object(&name, patch).await;
        }
    }

    async fn patch_object(&self, name: &str, patch: Value) {
        let api = self.ctx.api::<VolumePluginRestore>();
        let done = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        if let Err(error) = done {
            tracing::debug!(name, "VolumePluginRestore: {error}");
        }
    }

    /// Takes up what the plugin has written, else asks it.
    async fn look(&self, snapshotter: &Snapshotter) {
        if self.own().is_some() && !self.adopt().await {
            self.ask(snapshotter).await;
        }
    }

    /// Finds the plugin's own object, which names no restore, and labels it; ours goes then.
    async fn adopt(&self) -> bool {
        let Ok(all) = self.ctx.list::<VolumePluginRestore>("").await else {
            return false;
        };
        let backup = self.restore.spec.backup_name.clone().unwrap_or_default();
        let theirs = all.into_iter().find(|object| {
            let created = object.creation_timestamp().map(|time| time.0);
            // Objects have whole seconds.
            let is_new = created.is_some_and(|at| at.as_second() >= self.since.as_second());
            object.spec.snapshot_id == self.snapshot
                && object.spec.backup == backup
                && is_new
                && !object.labels().contains_key(label::RESTORE_NAME)
        });
        let Some(theirs) = theirs else { return false };
        let mut new = theirs.clone();
        new.labels_mut().extend(labels(&self.restore));
        if self.ctx.update(&theirs, &new).await.is_err() {
            return false;
        }
        self.discard().await;
        let mut found = self.theirs.lock().unwrap_or_else(PoisonError::into_inner);
        *found = Some(theirs.name_any());
        true
    }

    async fn discard(&self) {
        let own = {
            let own = self.own.lock();
            own.unwrap_or_else(PoisonError::into_inner).take()
        };
        if let Some(name) = own {
            let api = self.ctx.api::<VolumePluginRestore>();
            if let Err(error) = api.delete(&name, &Default::default()).await {
                tracing::debug!(name, "VolumePluginRestore: {error}");
            }
        }
    }

    async fn ask(&self, snapshotter: &Snapshotter) {
        let asked = snapshotter.progress(&self.snapshot, Some(RESTORE));
        if let Some(progress) = asked.await {
            self.tell(&progress).await;
        }
    }

    async fn tell(&self, progress: &Progress) {
        let bytes = (progress.done, progress.total.max(progress.done));
        let is_new = {
            let mut told = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *told, bytes) != bytes
        };
        if is_new {
            let progress = json!({"bytesDone": bytes.0, "totalBytes": bytes.1});
            self.patch(json!({"status": {"progress": progress}})).await;
        }
    }

    /// How many bytes there are, if the plugin says.
    fn size(&self) -> Option<i64> {
        let (_, total) = *self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        (total > 0).then_some(total)
    }

    /// The volume is there, or it never will be.
    async fn end(&self, snapshotter: &Snapshotter, ended: &Result<String, Error>) {
        self.look(snapshotter).await;
        let (_, total) = *self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = json!({"completionTimestamp": Time(self.ctx.now())});
        match ended {
            Ok(volume) => {
                status["phase"] = json!(Phase::Completed);
                if total > 0 {
                    status["progress"] = json!({"bytesDone": total, "totalBytes": total});
                }
                let known = json!({"annotations": {annotation::VOLUME_ID: volume}});
                let theirs = {
                    let theirs = self.theirs.lock();
                    theirs.unwrap_or_else(PoisonError::into_inner).clone()
                };
                match theirs {
                    // Its status is the plugin's.
                    Some(name) => self.patch_object(&name, json!({"metadata": known})).await,
                    None => {
                        self.patch(json!({"metadata": known, "status": status}))
                            .await
                    }
                }
            }
            Err(why) => {
                status["phase"] = json!(Phase::Failed);
                status["message"] = json!(why.to_string());
                self.patch(json!({"status": status})).await;
            }
        }
    }
}

/// What a plugin is told when it is asked how far a volume is on its way back: it has no id yet.
const RESTORE: &str = "restore";

fn labels(restore: &Restore) -> BTreeMap<String, String> {
    BTreeMap::from([
        (
            label::RESTORE_NAME.to_owned(),
            label_value(&restore.name_any()),
        ),
        (
            label::RESTORE_UID.to_owned(),
            restore.uid().unwrap_or_default(),
        ),
    ])
}

fn object(
    ctx: &Context,
    restore: &Restore,
    snapshotter: &Snapshotter,
    snapshot: &str,
    volume: &str,
) -> VolumePluginRestore {
    let mut object = VolumePluginRestore::new(
        &ctx.namespace,
        "",
        VolumePluginRestoreSpec {
            snapshot_id: snapshot.to_owned(),
            backup: restore.spec.backup_name.clone().unwrap_or_default(),
            plugin: snapshotter.provider.clone(),
            ..VolumePluginRestoreSpec::default()
        },
    );
    object.metadata.name = None;
    object.metadata.generate_name = Some(format!("{}-", restore.name_any()));
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "velero.io/v1".to_owned(),
        kind: "Restore".to_owned(),
        name: restore.name_any(),
        uid: restore.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    *object.labels_mut() = labels(restore);
    *object.annotations_mut() =
        BTreeMap::from([(annotation::PROGRESS_FROM.to_owned(), SERVER.to_owned())]);
    object.status = Some(VolumePluginRestoreStatus {
        phase: Some(Phase::InProgress),
        volume_id: Some(volume.to_owned()),
        start_timestamp: Some(Time(ctx.now())),
        ..VolumePluginRestoreStatus::default()
    });
    object
}
