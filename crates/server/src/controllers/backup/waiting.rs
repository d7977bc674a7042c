//! A backup whose objects are in the bucket, while plugins go on: operations of actions, and uploads
//! of snapshots. When they are over its files say how they ended, and it is finalized.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bowline_api::{
    files::{
        BackupMethod, BackupOperation, BackupVolumeInfo, Findings, OperationPhase, Results,
        Snapshot, SnapshotPhase, VolumeResult, backup_suffix,
    },
    json,
    v1::{
        Backup, BackupPhase, BackupStatus, BackupStorageLocation, VolumePluginBackup,
        VolumeSnapshotLocation,
    },
    v2alpha1::DataUpload,
};
use bowline_engine::{
    backup::log_name,
    csi::operation::ACTION,
    log::{About, Level, Log},
    movement::UPLOAD_ACTION,
    progress::Progress,
};
use bowline_plugin::host::Plugins;
use bowline_vault::{Bucket, bucket::backup_file};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    finalize,
    run::{latest, write},
    snapshots::{limit, phase},
    tracked::{self, Tracked},
    uploads::{End, Upload, Uploads},
};
use crate::{
    Context, Error, Result,
    controllers::{
        deletion,
        operations::{self, Of, count, is_over, movements},
        patiently,
    },
    plugins,
    snapshotters::Snapshotter,
};

/// Sees a backup through that waits for plugins, or is to be finalized. `uploads` are under way
/// already if this server has begun them.
pub(super) async fn see_through(
    ctx: &Arc<Context>,
    found: Backup,
    uploads: Option<Arc<Uploads>>,
    cancel: &CancellationToken,
) -> Result<()> {
    let location = found.spec.storage_location.clone().unwrap_or_default();
    let Some(location) = ctx.find::<BackupStorageLocation>(&location).await? else {
        return Err(Error::Setup(format!(
            "backup storage location {location} not found"
        )));
    };
    let bucket = ctx.bucket(&location).await?.with_cancel(cancel.clone());
    let waits = matches!(
        found
            .status
            .as_ref()
            .and_then(|status| status.phase.as_ref()),
        Some(
            BackupPhase::WaitingForPluginOperations
                | BackupPhase::WaitingForPluginOperationsPartiallyFailed
        )
    );
    let last = match waits {
        true => match wait(ctx, &bucket, &found, uploads, cancel).await {
            // The bucket is not spoken to any more.
            Err(_) if cancel.is_cancelled() => None,
            waited => waited?,
        },
        false => Some(found.clone()),
    };
    if let Some(last) = last {
        let finalized = finalize::finalize(ctx, &bucket, last);
        if let Some(done) = cancel.run_until_cancelled(finalized).await {
            return done;
        }
    }
    let bucket = bucket.with_cancel(ctx.abort.clone());
    clear(ctx, &bucket, &found).await
}

/// Deletes what there is of a backup whose object is gone before it was whole.
pub(super) async fn clear(ctx: &Arc<Context>, bucket: &Bucket, backup: &Backup) -> Result<()> {
    if ctx.abort.is_cancelled() || latest(ctx, backup).await?.is_some() {
        // Left to the next server, or to whoever deletes it.
        return Ok(());
    }
    if is_uninstalled(ctx).await? {
        // Its object went with all others, and nobody has asked for its data to go.
        return Ok(());
    }
    let left = deletion::unfinished(ctx, bucket, backup).await?;
    if !left.is_empty() {
        let name = backup.name_any();
        tracing::error!(backup = %name, "not all of it is deleted: {}", left.join("; "));
    }
    Ok(())
}

/// Whether the namespace of the server is on its way out.
pub(super) async fn is_uninstalled(ctx: &Context) -> Result<bool> {
    let namespaces = Api::<Namespace>::all(ctx.client.clone());
    let found = namespaces
        .get_opt(&ctx.namespace)
        .await
        .map_err(Error::api(format!("read namespace {}", ctx.namespace)))?;
    Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
}

/// Waits for plugins; the backup when it is to be finalized, none when the server stops or somebody
/// has deleted it.
async fn wait(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    found: &Backup,
    uploads: Option<Arc<Uploads>>,
    cancel: &CancellationToken,
) -> Result<Option<Backup>> {
    let name = found.name_any();
    let key = |suffix| backup_file(&name, suffix);
    let file = key(backup_suffix::ITEM_OPERATIONS);
    let mut operations: Vec<BackupOperation> = bucket.json(&file).await?.unwrap_or_default();
    let records: Option<Option<Vec<Snapshot>>> =
        bucket.json(&key(backup_suffix::VOLUME_SNAPSHOTS)).await?;
    let records = records.flatten().unwrap_or_default();
    let uploads = match uploads {
        Some(uploads) => uploads,
        None => {
            let resumed = cancel.run_until_cancelled(resume(ctx, found, &records));
            match resumed.await {
                Some(uploads) => uploads?,
                None => return Ok(None),
            }
        }
    };
    let mut changes = uploads.changes();
    let mut actions = Actions::start(ctx, found, &operations).await;
    let mut kept = Kept::new(&operations);
    let mut next = Instant::now();
    let mut status = found.status.clone().unwrap_or_default();
    loop {
        changes.mark_unchanged();
        if is_open(&operations) && Instant::now() >= next {
            let is_changed = tokio::select! {
                is_changed = actions.ask(ctx, &mut operations) => is_changed,
                () = cancel.cancelled() => false,
            };
            if is_changed && kept.is_old(ctx, &operations) {
                bucket.put_json(&file, &operations).await?;
                kept = Kept::new(&operations);
            }
            next = Instant::now() + pace(ctx, &operations);
        }
        let is_over = !is_open(&operations) && uploads.pending() == 0;
        let has_failed = !errors(&operations).is_empty() || !failed(&uploads).is_empty();
        let told = told(&status, &operations, uploads.pending(), has_failed);
        if told != status && !is_over {
            status = told;
            if !patiently(ctx, || write(ctx, found, &status)).await? {
                return Ok(None);
            }
        }
        if is_over {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep_until(next), if is_open(&operations) => {}
            _ = changes.changed() => {}
            () = cancel.cancelled() => {}
        }
        if cancel.is_cancelled() {
            if !ctx.abort.is_cancelled() {
                // Nobody needs what they do.
                tracing::info!(backup = %name, "given up, since it is deleted");
                actions.cancel(ctx, &mut operations).await;
            }
            actions.stop().await;
            return Ok(None);
        }
    }
    actions.stop().await;
    let ends = uploads.ends();
    let stored = files(ctx, bucket, found, records, &ends, &errors(&operations)).await?;
    let status = after(&status, &operations, &stored);
    let Some(mut last) = patiently(ctx, || latest(ctx, found)).await? else {
        return Ok(None);
    };
    last.status = Some(status.clone());
    last.kind = Some("Backup".to_owned());
    last.api_version = Some("velero.io/v1".to_owned());
    bucket.put_backup(&last).await?;
    drop_silent(ctx, found, &ends).await;
    match patiently(ctx, || write(ctx, found, &status)).await? {
        true => latest(ctx, found).await,
        false => Ok(None),
    }
}

/// Operations as the bucket has them.
struct Kept {
    at: Instant,
    phases: Vec<Option<OperationPhase>>,
}

impl Kept {
    fn new(operations: &[BackupOperation]) -> Self {
        Self {
            at: Instant::now(),
            phases: Self::phases(operations),
        }
    }

    fn phases(operations: &[BackupOperation]) -> Vec<Option<OperationPhase>> {
        let phases = operations.iter().map(|o| o.status.phase.clone());
        phases.collect()
    }

    /// Whether they are worth storing again: how far they are is not, each time.
    fn is_old(&self, ctx: &Context, operations: &[BackupOperation]) -> bool {
        self.at.elapsed() >= ctx.settings.item_operation_sync_frequency
            || self.phases != Self::phases(operations)
    }
}

/// The actions whose operations are under way.
struct Actions {
    plugins: Option<Plugins>,
    /// When plugins are asked again.
    next: Instant,
    owner: Bytes,
    uid: String,
    limit: Duration,
}

impl Actions {
    async fn start(ctx: &Arc<Context>, backup: &Backup, operations: &[BackupOperation]) -> Self {
        let mut open = operations.iter().filter(|o| !is_over(&o.status));
        let plugins = match open.any(|operation| !is_snapshot(operation) && !is_upload(operation)) {
            true => Some(
                ctx.plugins
                    .start(Arc::new(|line| plugins::log(&line)))
                    .await,
            ),
            false => None,
        };
        Self {
            plugins,
            next: Instant::now(),
            owner: json::to_vec(backup).unwrap_or_default().into(),
            uid: backup.uid().unwrap_or_default(),
            limit: limit(ctx, backup),
        }
    }

    async fn ask(&mut self, ctx: &Context, operations: &mut [BackupOperation]) -> bool {
        let asked = operations.iter_mut().map(Into::into);
        let mut is_changed = operations::snapshots::ask(ctx, asked, self.limit).await;
        let asked = operations.iter_mut().map(Into::into);
        is_changed |= movements::ask::<DataUpload>(ctx, &self.uid, asked, self.limit).await;
        let plugins = self.plugins.as_ref();
        let Some(plugins) = plugins.filter(|_| Instant::now() >= self.next) else {
            return is_changed;
        };
        self.next = Instant::now() + ctx.settings.item_operation_sync_frequency;
        let asked = operations.iter_mut().map(Into::into);
        operations::ask(plugins, Of::Backup, &self.owner, asked, self.limit).await || is_changed
    }

    async fn cancel(&self, ctx: &Context, operations: &mut [BackupOperation]) {
        if operations.iter().any(is_upload)
            && let Err(error) = movements::cancel_all::<DataUpload>(ctx, &self.uid).await
        {
            tracing::warn!("{}", error.chain());
        }
        if let Some(plugins) = &self.plugins {
            let asked = operations.iter_mut().map(Into::into);
            operations::cancel_all(plugins, Of::Backup, &self.owner, asked).await;
        }
    }

    async fn stop(&self) {
        if let Some(plugins) = &self.plugins {
            plugins.stop().await;
        }
    }
}

pub(super) fn is_snapshot(operation: &BackupOperation) -> bool {
    operation.spec.backup_item_action == ACTION
}

pub(super) fn is_upload(operation: &BackupOperation) -> bool {
    operation.spec.backup_item_action == UPLOAD_ACTION
}

/// How long until operations are asked again.
fn pace(ctx: &Context, operations: &[BackupOperation]) -> Duration {
    let own = ctx.settings.item_operation_sync_frequency;
    let open = || operations.iter().filter(|o| !is_over(&o.status));
    if open().any(is_upload) {
        own.min(movements::LOOK)
    } else if open().any(is_snapshot) {
        own.min(operations::snapshots::LOOK)
    } else {
        own
    }
}

fn is_open(operations: &[BackupOperation]) -> bool {
    operations
        .iter()
        .any(|operation| !is_over(&operation.status))
}

/// Why operations have failed, with their plugins.
fn errors(operations: &[BackupOperation]) -> Vec<String> {
    let failed = operations
        .iter()
        .filter(|operation| operation.status.phase == Some(OperationPhase::Failed));
    let worded = |operation: &BackupOperation| {
        let why = operation.status.error.as_deref().unwrap_or_default();
        format!("{why}, plugin: {}", operation.spec.backup_item_action)
    };
    failed.map(worded).collect()
}

fn failed(uploads: &Uploads) -> Vec<String> {
    let ends = uploads.ends().into_iter();
    ends.filter(|(_, end)| matches!(end, Some(End::Failed(_))))
        .map(|(volume, _)| volume)
        .collect()
}

/// The status while plugins go on.
fn told(
    status: &BackupStatus,
    operations: &[BackupOperation],
    pending: usize,
    has_failed: bool,
) -> BackupStatus {
    let mut status = status.clone();
    if has_failed {
        status.phase = Some(BackupPhase::WaitingForPluginOperationsPartiallyFailed);
    }
    counts(&mut status, operations);
    if let Some(progress) = &mut status.progress {
        let pending = i64::try_from(pending).unwrap_or(i64::MAX);
        progress.items_backed_up = progress.total_items.map(|total| (total - pending).max(0));
    }
    status
}

fn counts(status: &mut BackupStatus, operations: &[BackupOperation]) {
    if !operations.is_empty() {
        let statuses = || operations.iter().map(|operation| &operation.status);
        status.backup_item_operations_completed = count(statuses(), &OperationPhase::Completed);
        status.backup_item_operations_failed = count(statuses(), &OperationPhase::Failed);
    }
}

/// The status when plugins are done.
fn after(status: &BackupStatus, operations: &[BackupOperation], stored: &Stored) -> BackupStatus {
    let mut status = told(status, operations, 0, false);
    let has_failed = status.phase == Some(BackupPhase::WaitingForPluginOperationsPartiallyFailed)
        || !errors(operations).is_empty()
        || stored.errors > status.errors.unwrap_or_default();
    status.phase = Some(match has_failed {
        true => BackupPhase::FinalizingPartiallyFailed,
        false => BackupPhase::Finalizing,
    });
    if stored.errors > 0 {
        status.errors = Some(stored.errors);
    }
    snapshot_counts(&mut status, &stored.records);
    status
}

/// How many snapshots there are, as statuses have it.
pub(super) fn snapshot_counts(status: &mut BackupStatus, records: &[Snapshot]) {
    let count = |n: usize| i64::try_from(n).ok().filter(|n| *n > 0);
    let is_whole = |record: &&Snapshot| record.status.phase == Some(SnapshotPhase::Completed);
    status.volume_snapshots_attempted = count(records.len());
    status.volume_snapshots_completed = count(records.iter().filter(is_whole).count());
}

/// Takes up uploads that another server has begun: snapshots that are not known to be safe.
async fn resume(ctx: &Arc<Context>, backup: &Backup, records: &[Snapshot]) -> Result<Arc<Uploads>> {
    let uploads = Arc::new(Uploads::new(&Arc::new(Progress::default())));
    let open = |record: &&Snapshot| record.status.phase == Some(SnapshotPhase::New);
    let open: Vec<&Snapshot> = records.iter().filter(open).collect();
    if open.is_empty() {
        return Ok(uploads);
    }
    let objects = tracked::of_backup(ctx, backup).await?;
    let mut opened: BTreeMap<&str, std::result::Result<Arc<Snapshotter>, String>> = BTreeMap::new();
    for record in open {
        let volume = &record.spec.persistent_volume_name;
        let snapshot = record
            .status
            .provider_snapshot_id
            .clone()
            .unwrap_or_default();
        let object = objects.iter().find(|object| {
            let id = object.status.as_ref().and_then(|s| s.snapshot_id.as_ref());
            id == Some(&snapshot)
        });
        if let Some(ended) = object.and_then(tracked::ended) {
            let end = ended.map_or_else(End::Failed, |()| End::Safe);
            uploads.over(volume, end);
            continue;
        }
        let location = record.spec.location.as_str();
        if !opened.contains_key(location) {
            opened.insert(location, open_location(ctx, location).await?);
        }
        match &opened[location] {
            Ok(snapshotter) => uploads.start(Upload {
                volume: volume.clone(),
                snapshot,
                snapshotter: Arc::clone(snapshotter),
                tracked: object.map(|object| Tracked::of(ctx, object)),
                limit: limit(ctx, backup),
            }),
            Err(why) => uploads.over(volume, End::Failed(why.clone())),
        }
    }
    Ok(uploads)
}

/// The plugin of a location. The inner error is for a person.
async fn open_location(
    ctx: &Context,
    name: &str,
) -> Result<std::result::Result<Arc<Snapshotter>, String>> {
    let Some(location) = ctx.find::<VolumeSnapshotLocation>(name).await? else {
        return Ok(Err(format!("volume snapshot location {name} not found")));
    };
    let sink = Arc::new(|line| plugins::log(&line));
    let opened = Snapshotter::open(ctx, &location, sink).await;
    Ok(opened.map(Arc::new))
}

/// What the files say now.
struct Stored {
    records: Vec<Snapshot>,
    /// All errors of the backup.
    errors: i64,
}

/// Writes how everything ended. Can be repeated: the records, by which it is known what is open, come
/// last.
async fn files(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    backup: &Backup,
    mut records: Vec<Snapshot>,
    ends: &BTreeMap<String, Option<End>>,
    errors: &[String],
) -> Result<Stored> {
    let name = backup.name_any();
    let key = |suffix| backup_file(&name, suffix);
    let log = Log::new("backup", &log_name(backup), Level::Info);
    for why in errors {
        log.error(why, &About::default());
    }
    let mut is_changed = false;
    for record in &mut records {
        if record.status.phase != Some(SnapshotPhase::New) {
            continue;
        }
        is_changed = true;
        let volume = &record.spec.persistent_volume_name;
        let end = ends.get(volume).cloned().flatten();
        let end = end.unwrap_or_else(|| End::Failed("it was not uploaded".to_owned()));
        record.status.phase = Some(phase(&end));
        if let End::Failed(why) = &end {
            log.error(UPLOAD, &upload_failed(record, why));
        }
    }
    let results = key(backup_suffix::RESULTS);
    let mut all: Results = bucket.json(&results).await?.unwrap_or_default();
    if merge(&mut all.errors, log.take().results.errors) {
        bucket.put_json(&results, &all).await?;
    }
    let told = store_tracked(ctx, bucket, backup, ends).await?;
    if is_changed {
        let file = key(backup_suffix::VOLUME_INFO);
        let infos: Option<Vec<BackupVolumeInfo>> = bucket.json(&file).await?;
        let mut infos = infos.unwrap_or_default();
        update_infos(&mut infos, &records, &told);
        bucket.put_json(&file, &infos).await?;
        let file = key(backup_suffix::VOLUME_SNAPSHOTS);
        bucket.put_json(&file, &records).await?;
    }
    Ok(Stored {
        records,
        errors: number(&all.errors),
    })
}

/// What is said of an upload that failed.
pub(super) const UPLOAD: &str = "Error uploading snapshot";

pub(super) fn upload_failed(record: &Snapshot, why: &str) -> About {
    let id = record.status.provider_snapshot_id.as_deref();
    let volume = &record.spec.persistent_volume_name;
    About::object("persistentvolumes", "", volume)
        .because(format!("snapshot {}: {why}", id.unwrap_or_default()))
}

/// Puts the VolumePluginBackups of a backup into the bucket, but for those that say nothing.
pub(super) async fn store_tracked(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    backup: &Backup,
    ends: &BTreeMap<String, Option<End>>,
) -> Result<Vec<VolumePluginBackup>> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let mut objects = tracked::of_backup(ctx, backup).await?;
    objects.retain(|object| !is_silent(object, ends));
    if !objects.is_empty() {
        let key = backup_file(&backup.name_any(), backup_suffix::VOLUME_PLUGIN_BACKUPS);
        bucket.put_json(&key, &objects).await?;
    }
    Ok(objects)
}

/// Whether an object says nothing: its plugin has no second stage.
fn is_silent(object: &VolumePluginBackup, ends: &BTreeMap<String, Option<End>>) -> bool {
    tracked::is_ours(object) && ends.get(tracked::volume(object)) == Some(&Some(End::Nothing))
}

/// Deletes those that say nothing. Until the bucket has the backup, they are how its snapshots are
/// known; after that, nobody minds if one stays.
pub(super) async fn drop_silent(
    ctx: &Arc<Context>,
    backup: &Backup,
    ends: &BTreeMap<String, Option<End>>,
) {
    if !ends.values().any(|end| *end == Some(End::Nothing)) {
        return;
    }
    let dropped = async {
        for object in tracked::of_backup(ctx, backup).await? {
            if is_silent(&object, ends) {
                ctx.delete(&object).await?;
            }
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = dropped.await {
        let name = backup.name_any();
        tracing::warn!(backup = %name, "VolumePluginBackups stay: {}", error.chain());
    }
}

/// What volumes' entries say of snapshots that have ended since they were written.
pub(super) fn update_infos(
    infos: &mut [BackupVolumeInfo],
    records: &[Snapshot],
    told: &[VolumePluginBackup],
) {
    for info in infos {
        if info.backup_method != Some(BackupMethod::NativeSnapshot) {
            continue;
        }
        let mut records = records.iter();
        let record =
            records.find(|r| Some(&r.spec.persistent_volume_name) == info.pv_name.as_ref());
        let phase = record.and_then(|record| record.status.phase.clone());
        let (Some(native), Some(phase)) = (&mut info.native_snapshot_info, phase) else {
            continue;
        };
        info.result = Some(match phase {
            SnapshotPhase::Completed => VolumeResult::Succeeded,
            _ => VolumeResult::Failed,
        });
        native.phase = phase.as_str().to_owned();
        let of =
            |object: &&VolumePluginBackup| Some(tracked::volume(object)) == info.pv_name.as_deref();
        let Some(status) = told.iter().find(of).and_then(|o| o.status.as_ref()) else {
            continue;
        };
        let total = status.progress.as_ref().and_then(|p| p.total_bytes);
        native.size = total.filter(|total| *total > 0).or(native.size);
        info.start_timestamp = status.start_timestamp.or(info.start_timestamp);
        info.completion_timestamp = status.completion_timestamp.or(info.completion_timestamp);
    }
}

/// Adds findings that are not there yet; whether there were any.
pub(super) fn merge(all: &mut Findings, more: Findings) -> bool {
    let mut is_new = false;
    let mut add = |list: &mut Vec<String>, more: Vec<String>| {
        for text in more {
            if !list.contains(&text) {
                list.push(text);
                is_new = true;
            }
        }
    };
    add(
        all.velero.get_or_insert_default(),
        more.velero.unwrap_or_default(),
    );
    add(
        all.cluster.get_or_insert_default(),
        more.cluster.unwrap_or_default(),
    );
    for (namespace, texts) in more.namespaces.unwrap_or_default() {
        let namespaces = all.namespaces.get_or_insert_default();
        add(namespaces.entry(namespace).or_default(), texts);
    }
    let some = |list: &Vec<String>| !list.is_empty();
    all.velero = all.velero.take().filter(some);
    all.cluster = all.cluster.take().filter(some);
    is_new
}

pub(super) fn number(findings: &Findings) -> i64 {
    let velero = findings.velero.iter().flatten().count();
    let cluster = findings.cluster.iter().flatten().count();
    let namespaces = findings.namespaces.iter().flatten();
    let namespaced: usize = namespaces.map(|(_, texts)| texts.len()).sum();
    i64::try_from(velero + cluster + namespaced).unwrap_or(i64::MAX)
}
