//! What a restore says of its volumes: a tracker that lives with the run, is told what happens where it
//! happens, and at the end looks at the cluster and writes the restore's volume info.
//!
//! All of it is best effort: what cannot be found out is a line of the restore's log and missing from the
//! file, and changes neither phase nor results. When the restore is finalized, the file is brought up to
//! date (`refresh`): by then claims have their volumes, and moved data is there.

mod csi;
mod look;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bowline_api::{
    files::{
        BackupVolumeInfo, NativeSnapshotInfo, RestoreOperation, RestoreVolumeInfo, restore_suffix,
    },
    v1::Restore,
};
use bowline_engine::{
    log::{About, Level, Log},
    restore::{notes::Notes, pod_volume::Filling},
};
use bowline_vault::{Bucket, bucket::restore_file};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::{Context, error::chain};

/// The volumes of one restore.
pub(super) struct Tracker {
    restore: Arc<Restore>,
    /// What the backup says of its volumes.
    backup: Vec<BackupVolumeInfo>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Native snapshots of the backup, by volume.
    snapshots: HashMap<String, NativeSnapshotInfo>,
    /// Volumes that were made of them, or were to be, by their names in the backup.
    native: BTreeMap<String, Made>,
    filled: Vec<Filled>,
}

/// A volume that was made of a native snapshot, or was to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Made {
    /// When that began and ended; none if a server before this one did it.
    pub(super) times: Option<(Timestamp, Timestamp)>,
    /// Bytes, if the plugin says.
    pub(super) size: Option<i64>,
    /// Why there is none.
    pub(super) failure: Option<String>,
}

/// A volume of a pod that somebody was asked to fill, as that ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Filled {
    /// The request as it was last seen.
    pub(super) filling: Filling,
    /// What went wrong.
    pub(super) trouble: Option<String>,
}

impl Tracker {
    pub(super) fn new(restore: &Restore, backup: Vec<BackupVolumeInfo>) -> Arc<Self> {
        Arc::new(Self {
            restore: Arc::new(restore.clone()),
            backup,
            told: Mutex::default(),
        })
    }

    /// The backup has native snapshots of these volumes.
    pub(super) fn snapshots(&self, snapshots: HashMap<String, NativeSnapshotInfo>) {
        self.lock().snapshots = snapshots;
    }

    /// A volume was made of its native snapshot, or not.
    pub(super) fn native(&self, volume: &str, made: Made) {
        self.lock().native.insert(volume.to_owned(), made);
    }

    /// A volume of a pod is filled, or never will be.
    pub(super) fn filled(&self, filled: Filled) {
        self.lock().filled.push(filled);
    }

    /// Finds out the rest and puts the file into the bucket. A run that is ended meanwhile says nothing.
    pub(super) async fn finish(&self, ctx: &Context, bucket: &Bucket, notes: &Notes, log: &Log) {
        let began = Instant::now();
        let rows = {
            let claims = self.claims(notes);
            let warn = |what: &str, about: &About| log.relay(Level::Warning, what, about);
            let seen = look::look(ctx, &self.restore, &claims, &warn).await;
            self.rows(notes, &seen)
        };
        let key = key(&self.restore);
        if let Err(error) = bucket.put_json(&key, &rows).await {
            let about = About::default().because(chain(&error));
            let what = "volume info: the file is not in the bucket";
            log.relay(Level::Warning, what, &about);
            return;
        }
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (restore, rows) = (self.restore.name_any(), rows.len());
        tracing::info!(%restore, rows, millis, "volume info is written");
    }

    fn rows(&self, notes: &Notes, seen: &look::Seen) -> Vec<RestoreVolumeInfo> {
        let told = self.lock();
        rows::rows(
            &rows::Known {
                restore: &self.restore,
                backup: &self.backup,
                notes,
                snapshots: &told.snapshots,
                native: &told.native,
                filled: &told.filled,
            },
            seen,
        )
    }

    /// Claims that there is something to say of, by namespace and name.
    fn claims(&self, notes: &Notes) -> BTreeSet<(String, String)> {
        let told = self.lock();
        let noted = notes
            .claims
            .iter()
            .map(|claim| (claim.namespace.clone(), claim.name.clone()));
        let filled = told.filled.iter().filter_map(|filled| {
            let namespace = filled.filling.request.spec.pod.namespace.clone();
            Some((namespace?, filled.filling.claim.clone()?))
        });
        let unfilled = notes
            .unfilled
            .iter()
            .filter_map(|of| Some((of.namespace.clone(), of.claim.clone()?)));
        noted.chain(filled).chain(unfilled).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(restore: &Restore) -> String {
    restore_file(&restore.name_any(), restore_suffix::VOLUME_INFO)
}

/// Brings the file up to date: claims have their volumes by now, and moved data is there. Where there is
/// no file, none is made.
pub(super) async fn refresh(
    ctx: &Context,
    restore: &Restore,
    operations: &[RestoreOperation],
    bucket: &Bucket,
) {
    let name = restore.name_any();
    let key = key(restore);
    let mut rows: Vec<RestoreVolumeInfo> = match bucket.json(&key).await {
        Ok(Some(rows)) => rows,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(restore = %name, "volume info: {}", chain(&error));
            return;
        }
    };
    let open: BTreeSet<_> = rows.iter().filter_map(rows::open_claim).collect();
    if open.is_empty() {
        return;
    }
    let warn = |what: &str, about: &About| {
        let error = about.error.as_deref().unwrap_or_default();
        tracing::warn!(restore = %name, error, "{what}");
    };
    let seen = look::look(ctx, restore, &open, &warn).await;
    let before = rows.clone();
    for row in &mut rows {
        rows::refresh(row, &seen, operations);
    }
    if rows == before {
        return;
    }
    if let Err(error) = bucket.put_json(&key, &rows).await {
        tracing::warn!(restore = %name, "volume info: {}", chain(&error));
    }
}
