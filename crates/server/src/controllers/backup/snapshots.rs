//! The native snapshots of one backup: taken by plugins, each for a location of snapshots.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bowline_api::{
    files::{Snapshot, SnapshotPhase, SnapshotSpec, SnapshotStatus},
    names::{annotation, snapshot_tag},
    v1::{Backup, VolumePluginBackup, VolumeSnapshotLocation},
};
use bowline_engine::{
    backup::{Snapshots, Taken},
    log::{About, Log},
    progress::Progress,
};
use bowline_vault::crash;
use kube::ResourceExt;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{
    tracked::{self, Tracked},
    uploads::{End, Upload, Uploads},
};
use crate::{Context, plugins::into_log, snapshotters::Snapshotter};

/// The snapshots of one backup.
pub(super) struct Native {
    ctx: Arc<Context>,
    backup: Arc<Backup>,
    log: Log,
    locations: Vec<Location>,
    /// What a server before this one has written down, by volume.
    known: HashMap<String, VolumePluginBackup>,
    records: Mutex<BTreeMap<String, Record>>,
    pub(super) uploads: Arc<Uploads>,
}

/// A location, and its plugin as soon as somebody needs it.
struct Location {
    object: VolumeSnapshotLocation,
    opened: OnceCell<Option<Arc<Snapshotter>>>,
}

/// A snapshot that was taken, or tried.
struct Record {
    snapshot: Snapshot,
    snapshotter: Arc<Snapshotter>,
    tracked: Option<Arc<Tracked>>,
}

impl Native {
    /// With the locations of the backup; `resumed` if a server before this one worked on it.
    pub(super) async fn new(
        ctx: &Arc<Context>,
        backup: &Backup,
        log: &Log,
        progress: &Arc<Progress>,
        resumed: bool,
    ) -> crate::Result<Self> {
        let known = match resumed {
            true => tracked::of_backup(ctx, backup).await?,
            false => Vec::new(),
        };
        let by_volume = |object: VolumePluginBackup| (tracked::volume(&object).to_owned(), object);
        let mut locations = Vec::new();
        for name in backup.spec.volume_snapshot_locations.iter().flatten() {
            match ctx.find::<VolumeSnapshotLocation>(name).await? {
                Some(object) => locations.push(Location {
                    object,
                    opened: OnceCell::new(),
                }),
                None => log.error(
                    &format!("volume snapshot location {name} not found"),
                    &About::default(),
                ),
            }
        }
        Ok(Self {
            ctx: Arc::clone(ctx),
            backup: Arc::new(backup.clone()),
            log: log.clone(),
            locations,
            known: known.into_iter().map(by_volume).collect(),
            records: Mutex::default(),
            uploads: Arc::new(Uploads::new(progress)),
        })
    }

    /// Whether there is anybody who could take a snapshot.
    pub(super) fn is_possible(&self) -> bool {
        !self.locations.is_empty()
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plugin of a location; none when it cannot be used, which is said once.
    async fn snapshotter(&self, location: &Location) -> Option<Arc<Snapshotter>> {
        let opened = location.opened.get_or_init(|| async {
            let sink = into_log(&self.log, true);
            match Snapshotter::open(&self.ctx, &location.object, sink).await {
                Ok(snapshotter) => Some(Arc::new(snapshotter)),
                Err(why) => {
                    let name = location.object.name_any();
                    let what = format!(
                        "Error getting volume snapshotter for volume snapshot location {name}"
                    );
                    self.log.error(&what, &About::default().because(why));
                    None
                }
            }
        });
        opened.await.clone()
    }

    /// Who knows this kind of volume, and what it is called there.
    async fn find(&self, volume: &Value, about: &About) -> Option<(Arc<Snapshotter>, String)> {
        for location in &self.locations {
            let Some(snapshotter) = self.snapshotter(location).await else {
                continue;
            };
            match snapshotter.plugin.volume_id(volume).await {
                Ok(Some(id)) => return Some((snapshotter, id)),
                Ok(None) => {}
                Err(error) => {
                    let what = "Error attempting to get volume ID for persistent volume";
                    self.log.error(what, &about.clone().because(error));
                }
            }
        }
        None
    }

    fn tags(&self, volume: &str) -> BTreeMap<String, String> {
        let mut tags = self.backup.labels().clone();
        let own = [
            (snapshot_tag::BACKUP, self.backup.name_any()),
            (snapshot_tag::VOLUME, volume.to_owned()),
            (
                snapshot_tag::BACKUP_UID,
                self.backup.uid().unwrap_or_default(),
            ),
        ];
        tags.extend(own.map(|(key, value)| (key.to_owned(), value)));
        tags
    }

    /// A snapshot that a server before this one has taken of a volume.
    fn taken_before(&self, volume: &str, snapshotter: &Snapshotter) -> Option<String> {
        let known = self.known.get(volume)?;
        let location = known.annotations().get(annotation::SNAPSHOT_LOCATION)?;
        if *location != snapshotter.location {
            return None;
        }
        known.status.as_ref()?.snapshot_id.clone()
    }

    fn spec(&self, volume: &str, location: &str, id: &str, zone: &str) -> SnapshotSpec {
        SnapshotSpec {
            backup_name: self.backup.name_any(),
            backup_uid: self.backup.uid().unwrap_or_default(),
            location: location.to_owned(),
            persistent_volume_name: volume.to_owned(),
            provider_volume_id: id.to_owned(),
            volume_az: (!zone.is_empty()).then(|| zone.to_owned()),
            ..SnapshotSpec::default()
        }
    }

    /// Uploads that have failed, with their reasons, by volume.
    pub(super) fn failed_uploads(&self) -> Vec<(String, String)> {
        let ends = self.uploads.ends().into_iter();
        ends.filter_map(|(volume, end)| match end {
            Some(End::Failed(why)) => Some((volume, why)),
            _ => None,
        })
        .collect()
    }
}

/// How long a plugin may go on that says in its object how far it is.
pub(super) fn limit(ctx: &Context, backup: &Backup) -> Duration {
    let said = backup.spec.item_operation_timeout.as_ref();
    let nanos = said.and_then(|said| said.nanos().ok());
    let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
    match nanos {
        None | Some(0) => ctx.settings.default_item_operation_timeout,
        Some(nanos) => Duration::from_nanos(nanos),
    }
}

#[async_trait]
impl Snapshots for Native {
    async fn take(&self, volume: &Value, zone: &str) -> Result<Taken, String> {
        let name = volume["metadata"]["name"].as_str().unwrap_or_default();
        let about = About::object("persistentvolumes", "", name);
        let Some((snapshotter, id)) = self.find(volume, &about).await else {
            return Ok(Taken::Nobody);
        };
        let plugin = &snapshotter.plugin;
        let mut spec = self.spec(name, &snapshotter.location, &id, zone);
        let (volume_type, iops) = plugin
            .volume_info(&id, zone)
            .await
            .map_err(|error| format!("error getting volume info: {error}"))?;
        spec.volume_type = volume_type;
        spec.volume_iops = iops;
        let taken = match self.taken_before(name, &snapshotter) {
            Some(before) => {
                self.log.info(&format!(
                    "Volume {name} has snapshot {before} already, of a server that is gone"
                ));
                Ok(before)
            }
            None => plugin.create_snapshot(&id, zone, &self.tags(name)).await,
        };
        crash::here("after CreateSnapshot");
        let mut snapshot = Snapshot {
            spec,
            status: SnapshotStatus::default(),
            ..Snapshot::default()
        };
        let error = match &taken {
            Ok(id) => {
                snapshot.status.provider_snapshot_id = Some(id.clone());
                None
            }
            Err(error) => {
                snapshot.status.phase = Some(SnapshotPhase::Failed);
                Some(format!("error taking snapshot of volume: {error}"))
            }
        };
        let tracked = match &taken {
            Ok(id) => Tracked::begin(&self.ctx, &self.backup, &snapshotter, name, id).await,
            Err(_) => None,
        };
        crash::here("after VolumePluginBackup");
        if let Ok(id) = &taken {
            // So that the plugin knows that its answer was heard.
            snapshotter.progress(id, None).await;
        }
        // A plugin may go on by itself, and say so in its object.
        let goes_on = tracked
            .as_ref()
            .is_some_and(|tracked| tracked.is_by_plugin());
        let pending = error.is_none() && (snapshotter.may_upload() || goes_on);
        if error.is_none() {
            let phase = match pending {
                true => SnapshotPhase::New,
                false => SnapshotPhase::Completed,
            };
            snapshot.status.phase = Some(phase);
        }
        if pending {
            self.uploads.expect(name);
        }
        let record = Record {
            snapshot,
            snapshotter,
            tracked,
        };
        self.records().insert(name.to_owned(), record);
        match error {
            Some(why) => Err(why),
            None if pending => Ok(Taken::Pending),
            None => Ok(Taken::Whole),
        }
    }

    fn release(&self, volume: &str) {
        let records = self.records();
        let Some(record) = records.get(volume) else {
            return;
        };
        if record.snapshot.status.phase != Some(SnapshotPhase::New) {
            // Nothing is left to do, and nobody needs to be told.
            self.uploads.over(volume, End::Nothing);
            return;
        }
        let id = record.snapshot.status.provider_snapshot_id.clone();
        self.uploads.start(Upload {
            volume: volume.to_owned(),
            snapshot: id.unwrap_or_default(),
            snapshotter: Arc::clone(&record.snapshotter),
            tracked: record.tracked.clone(),
            limit: limit(&self.ctx, &self.backup),
        });
    }

    fn pending(&self) -> u64 {
        self.uploads.pending() as u64
    }

    fn records(&self) -> Vec<Snapshot> {
        let ends = self.uploads.ends();
        let records = self.records();
        let record = |(volume, record): (&String, &Record)| {
            let mut snapshot = record.snapshot.clone();
            if snapshot.status.phase == Some(SnapshotPhase::New)
                && let Some(Some(end)) = ends.get(volume)
            {
                snapshot.status.phase = Some(phase(end));
            }
            snapshot
        };
        records.iter().map(record).collect()
    }
}

/// The phase of a snapshot whose upload is over.
pub(super) fn phase(end: &End) -> SnapshotPhase {
    match end {
        End::Safe | End::Nothing => SnapshotPhase::Completed,
        End::Failed(_) => SnapshotPhase::Failed,
    }
}
