//! One backup, from its spec to its last phase.
//!
//! ```text
//!   validate ─▶ patch InProgress ─▶ archive (streamed) ─▶ log, lists, results … ─▶ velero-backup.json ─▶ patch Completed
//! ```
//!
//! `velero-backup.json` makes the backup exist, so it comes last; a backup that a crash interrupts
//! before is made again, one interrupted after is taken from the bucket as it is.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    Time,
    files::{Snapshot, SnapshotPhase, backup_suffix},
    names::{FEATURE_API_GROUP_VERSIONS, FEATURE_CSI},
    v1::{
        Backup, BackupPhase, BackupProgress, BackupStatus, BackupStorageLocation,
        VolumeSnapshotLocation,
    },
};
use bowline_engine::{
    action::{BackupItemAction, ItemBlockAction},
    backup::{
        self, Job, Outcome, PodVolumes, Snapshots,
        validate::{self, ClusterVersion, Defaults, Prepared},
    },
    discovery::{Discovery, Versions},
    hooks::KubeExec,
    log::{Log, Written},
    policy::{self, Policies, Purpose},
    progress::Progress,
};
use bowline_plugin::{host::Plugins, kinds::Kind};
use bowline_vault::{Bucket, archive, bucket::backup_file, crash};
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    super::{Telling, log_level, patiently},
    copies::{self, Copies},
    csi::{self, Csi},
    schedule,
    snapshots::Native,
    tracked,
    uploads::End,
    waiting::{
        self, UPLOAD, drop_silent, is_snapshot, snapshot_counts, store_tracked, update_infos,
        upload_failed,
    },
};
use crate::{
    Context, Error, Result,
    error::chain,
    metrics::{Finished, Snapshots as Counted},
    plugins::{actions, into_log},
};

/// How long copies that nobody wants any more have to end.
const LAST: Duration = Duration::from_secs(30);

/// Sees a backup through. What goes wrong ends in a phase; an error here is about the cluster's API
/// or a bucket that does not answer, and worth another try.
pub(super) async fn backup(
    ctx: &Arc<Context>,
    name: &str,
    cancel: CancellationToken,
) -> Result<()> {
    let Some(found) = ctx.find::<Backup>(name).await? else {
        return Ok(());
    };
    let phase = found
        .status
        .as_ref()
        .and_then(|s| s.phase.clone())
        .unwrap_or_default();
    match phase {
        BackupPhase::InProgress => resume(ctx, found, &cancel).await,
        BackupPhase::New | BackupPhase::Queued | BackupPhase::ReadyToStart => {
            begin(ctx, found, &cancel).await
        }
        BackupPhase::Other(other) if other.is_empty() => begin(ctx, found, &cancel).await,
        BackupPhase::Finalizing
        | BackupPhase::FinalizingPartiallyFailed
        | BackupPhase::WaitingForPluginOperations
        | BackupPhase::WaitingForPluginOperationsPartiallyFailed => {
            waiting::see_through(ctx, found, None, &cancel).await
        }
        _ => Ok(()),
    }
}

/// Validates, and makes the backup if it may be made.
async fn begin(ctx: &Arc<Context>, found: Backup, cancel: &CancellationToken) -> Result<()> {
    let (prepared, policies) = prepare(ctx, &found).await?;
    let mut wanted = prepared.backup;
    let schedule = schedule(&found);
    let status = wanted.status_mut();
    status.queue_position = None;
    if !prepared.errors.is_empty() {
        status.phase = Some(BackupPhase::FailedValidation);
        patch(ctx, &found, &wanted).await?;
        ctx.metrics.backup_refused(&schedule);
        let why = prepared.errors.join("; ");
        tracing::warn!(backup = %found.name_any(), "refused: {why}");
        return Ok(());
    }
    status.phase = Some(BackupPhase::InProgress);
    status.start_timestamp = Some(Time(ctx.now()));
    let started = patch(ctx, &found, &wanted).await?;
    ctx.metrics.backup_attempted(&schedule);
    let location = prepared
        .location
        .expect("a backup without errors has a location");
    make(ctx, started, &location, policies, Taken::First, cancel).await
}

/// Whether somebody has worked on a backup before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    First,
    Over,
}

/// Takes up a backup that a server was making when it died.
async fn resume(ctx: &Arc<Context>, found: Backup, cancel: &CancellationToken) -> Result<()> {
    tracing::info!(backup = %found.name_any(), "taken over from a server that is gone");
    // Its spec was sound; what has changed around it since is found when it fails.
    let policies = match policies(ctx, &found).await? {
        Ok(policies) => policies,
        Err(why) => {
            let failed = failed(ctx, &found, &format!("invalid resource policies: {why}"));
            return end(ctx, &found, &failed, None).await;
        }
    };
    let name = found.spec.storage_location.clone().unwrap_or_default();
    match ctx.find::<BackupStorageLocation>(&name).await? {
        Some(location) => make(ctx, found, &location, policies, Taken::Over, cancel).await,
        None => {
            let why = format!("backup storage location {name} not found");
            end(ctx, &found, &failed(ctx, &found, &why), None).await
        }
    }
}

/// Makes the backup and writes how that ended.
async fn make(
    ctx: &Arc<Context>,
    backup: Backup,
    location: &BackupStorageLocation,
    policies: Option<Policies>,
    taken: Taken,
    cancel: &CancellationToken,
) -> Result<()> {
    let opened = ctx.bucket(location).await;
    let bucket = match opened {
        Ok(bucket) => bucket.with_cancel(cancel.clone()),
        // It may be whole already; only the bucket knows.
        Err(error) if taken == Taken::Over => return Err(error),
        Err(error) => {
            let failed = failed(ctx, &backup, &error.chain());
            return end(ctx, &backup, &failed, None).await;
        }
    };
    match bucket.backup(&backup.name_any()).await {
        Ok(Some(there)) if there.uid() == backup.uid() => {
            let status = there.status.unwrap_or_default();
            tracing::info!(backup = %backup.name_any(), "was in the bucket already");
            return end(ctx, &backup, &status, None).await;
        }
        Ok(Some(_)) => {
            let why = "backup already exists in object storage";
            let failed = failed(ctx, &backup, why);
            return end(ctx, &backup, &failed, None).await;
        }
        Ok(None) => {}
        Err(_) if cancel.is_cancelled() => return Ok(()),
        Err(error) if taken == Taken::Over && !error.is_permanent() => return Err(error.into()),
        Err(error) => {
            let why = format!("error checking if backup already exists in object storage: {error}");
            let failed = failed(ctx, &backup, &why);
            return end(ctx, &backup, &failed, None).await;
        }
    }

    let log = Log::new("backup", &backup::log_name(&backup), log_level(ctx));
    log.info(&format!(
        "Bowline {} starts the backup",
        env!("CARGO_PKG_VERSION")
    ));
    let progress = Arc::new(Progress::default());
    let copies = Copies::new(ctx, &backup, location, &log, taken == Taken::Over);
    let copies = Arc::new(copies);
    let native = Native::new(ctx, &backup, &log, &progress, taken == Taken::Over).await?;
    let native = Arc::new(native);
    let csi = Csi::new(ctx, &backup, location, &log);
    if csi.is_none() && backup.spec.snapshot_move_data == Some(true) {
        let why = format!(
            "snapshotMoveData is asked for, but the server does not have the feature {FEATURE_CSI}: \
             no snapshot of a CSI driver is taken, and no data is moved"
        );
        log.warning(&why, &bowline_engine::log::About::default());
    }
    let began = Began {
        copies: &copies,
        native: &native,
        csi: csi.as_ref(),
    };
    if taken == Taken::Over {
        // It is made anew, and so are its snapshots; whoever had it before may have had the feature.
        match &csi {
            Some(csi) => csi.discard().await?,
            None => csi::discard(ctx, &backup).await?,
        }
    }
    let versions = if ctx.settings.has_feature(FEATURE_API_GROUP_VERSIONS) {
        Versions::All
    } else {
        Versions::Preferred
    };
    // Plugins may take their time to say what they are for.
    let ready = async {
        let plugins = ctx.plugins.start(into_log(&log, true)).await;
        let actions = actions(ctx, &plugins, &backup, versions, &log).await?;
        Ok::<_, Error>((plugins, actions))
    };
    let (plugins, actions) = tokio::select! {
        ready = ready => ready?,
        () = cancel.cancelled() => {
            let bucket = bucket.with_cancel(ctx.abort.clone());
            return abandon(ctx, &bucket, &backup, began).await;
        }
    };
    let Actions {
        discovery,
        items,
        blocks,
    } = actions;
    let job = Job {
        client: ctx.client.clone(),
        discovery,
        backup: Arc::new(backup.clone()),
        policies: policies.map(Arc::new),
        actions: items,
        block_actions: blocks,
        exec: Arc::new(KubeExec::new(ctx.client.clone())),
        pod_volumes: Some(Arc::clone(&copies) as _),
        snapshots: native.is_possible().then(|| Arc::clone(&native) as _),
        csi: csi.clone().map(|csi| csi as _),
        settings: backup::Settings {
            page: ctx.settings.page(),
            versions,
            ..backup::Settings::default()
        },
        progress: Arc::clone(&progress),
        log: log.clone(),
        cancel: cancel.clone(),
    };
    let telling = Telling::start(ctx, &backup, move || {
        let (total, done) = progress.get();
        json!({"status": {"progress": {"totalItems": total, "itemsBackedUp": done}}})
    });
    let made = store(&bucket, job, &backup.name_any()).await;
    // What they have to say belongs into the log.
    plugins.stop().await;
    telling.end().await;
    if cancel.is_cancelled() {
        let bucket = bucket.with_cancel(ctx.abort.clone());
        return abandon(ctx, &bucket, &backup, began).await;
    }
    match made {
        Ok(outcome) => finish(ctx, &bucket, backup, outcome, &log, began, cancel).await,
        Err(why) => {
            copies.give_up(copies::FAILED).await;
            began.forget(&backup).await;
            keep_records(&bucket, &backup, &native).await;
            log.error(
                "backup execution failed",
                &bowline_engine::log::About::default().because(&why),
            );
            let written = log.take();
            let key = backup_file(&backup.name_any(), backup_suffix::LOG);
            if let Err(error) = bucket.put(&key, written.gzip.into()).await {
                tracing::warn!(backup = %backup.name_any(), "its log is not in the bucket: {error}");
            }
            let failed = failed(ctx, &backup, &why);
            end(ctx, &backup, &failed, None).await
        }
    }
}

/// What a backup has begun in the cluster.
#[derive(Clone, Copy)]
struct Began<'a> {
    copies: &'a Arc<Copies>,
    native: &'a Arc<Native>,
    csi: Option<&'a Arc<Csi>>,
}

impl Began<'_> {
    /// Removes CSI snapshots that nobody needs.
    async fn discard(self) -> Result<()> {
        match self.csi {
            Some(csi) => csi.discard().await,
            None => Ok(()),
        }
    }

    /// The same; what stays is found when backups are looked through.
    async fn forget(self, backup: &Backup) {
        if let Err(error) = self.discard().await {
            tracing::warn!(backup = %backup.name_any(), "CSI snapshots stay: {}", error.chain());
        }
    }
}

/// Ends what a backup has begun that is to be deleted. What there is of it by then is left to whoever
/// deletes it, or deleted if its object is gone already.
async fn abandon(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    backup: &Backup,
    began: Began<'_>,
) -> Result<()> {
    if ctx.abort.is_cancelled() {
        // Left as it is for the next server.
        return Ok(());
    }
    let name = backup.name_any();
    tracing::info!(backup = %name, "given up, since it is deleted");
    began.copies.give_up(copies::DELETED).await;
    let _ = tokio::time::timeout(LAST, PodVolumes::finish(&**began.copies)).await;
    leave(ctx, bucket, backup, began).await
}

/// Leaves a backup to whoever deletes it, who must know its snapshots; or deletes it if its object is
/// gone already.
async fn leave(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    backup: &Backup,
    began: Began<'_>,
) -> Result<()> {
    if ctx.abort.is_cancelled() {
        return Ok(());
    }
    let bucket = bucket.clone().with_cancel(ctx.abort.clone());
    began.forget(backup).await;
    keep_records(&bucket, backup, began.native).await;
    waiting::clear(ctx, &bucket, backup).await
}

/// The actions of plugins, and what the cluster serves if it had to be asked for their sake.
struct Actions {
    discovery: Option<Discovery>,
    items: Vec<Arc<dyn BackupItemAction>>,
    blocks: Vec<Arc<dyn ItemBlockAction>>,
}

async fn actions(
    ctx: &Context,
    plugins: &Plugins,
    backup: &Backup,
    versions: Versions,
    log: &Log,
) -> Result<Actions> {
    let kinds = [&actions::BACKUP[..], &[Kind::ItemBlockAction]].concat();
    if !actions::any(plugins, &kinds) {
        return Ok(Actions {
            discovery: None,
            items: Vec::new(),
            blocks: Vec::new(),
        });
    }
    let discovery = Discovery::read(&ctx.client, versions)
        .await
        .map_err(Error::api("discover the cluster's resources"))?;
    Ok(Actions {
        items: actions::for_backup(plugins, backup, &discovery, log).await,
        blocks: actions::for_blocks(plugins, backup, &discovery, log).await,
        discovery: Some(discovery),
    })
}

/// A backup that failed has snapshots all the same: whoever deletes it must know them.
async fn keep_records(bucket: &Bucket, backup: &Backup, native: &Native) {
    let records = Snapshots::records(native);
    if records.is_empty() {
        return;
    }
    let key = backup_file(&backup.name_any(), backup_suffix::VOLUME_SNAPSHOTS);
    if let Err(error) = bucket.put_json(&key, &records).await {
        tracing::warn!(backup = %backup.name_any(), "its snapshots are not in the bucket: {error}");
    }
}

/// Streams the archive into the bucket.
async fn store(bucket: &Bucket, job: Job, name: &str) -> Result<Outcome, String> {
    let (writer, stream) = archive::write::stream();
    let key = backup_file(name, backup_suffix::CONTENTS);
    let putting = bucket.put_stream(&key, stream);
    let (outcome, put) = tokio::join!(backup::run(job, writer), putting);
    match (outcome, put) {
        (Ok(outcome), Ok(())) => Ok(outcome),
        // The engine knows best why it stopped, unless it stopped because of the bucket.
        (Err(backup::Error::Archive) | Ok(_), Err(error)) => Err(error.to_string()),
        (Err(error), _) => Err(chain(&error)),
    }
}

/// Puts the files beside the archive, the backup itself last, and patches the object.
async fn finish(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    backup: Backup,
    mut outcome: Outcome,
    log: &Log,
    began: Began<'_>,
    cancel: &CancellationToken,
) -> Result<()> {
    let name = backup.name_any();
    let native = began.native;
    // Uploads that are over by now need no waiting for.
    outcome.snapshots = Snapshots::records(&**native);
    let mut told = match outcome.snapshots.is_empty() {
        true => Vec::new(),
        // Sizes and times only.
        false => tracked::of_backup(ctx, &backup).await.unwrap_or_default(),
    };
    let ends = native.uploads.ends();
    // Of others it is told when they are over, if they have anything to say.
    told.retain(|object| {
        let end = ends.get(tracked::volume(object)).and_then(Option::as_ref);
        matches!(end, Some(End::Safe | End::Failed(_)))
    });
    update_infos(&mut outcome.volumes, &outcome.snapshots, &told);
    for (volume, why) in native.failed_uploads() {
        let mut records = outcome.snapshots.iter();
        if let Some(record) = records.find(|r| r.spec.persistent_volume_name == volume) {
            log.error(UPLOAD, &upload_failed(record, &why));
        }
    }
    let log = log.take();
    let pending = outcome.snapshots.iter().filter(|s| is_pending(s)).count();
    let waits = pending > 0 || !outcome.operations.is_empty();
    let found = patiently(ctx, || latest(ctx, &backup)).await?;
    let Some(mut last) = found else {
        tracing::warn!(backup = %name, "was deleted meanwhile");
        return leave(ctx, bucket, &backup, began).await;
    };
    let status = last.status_mut();
    status.phase = Some(match (waits, log.errors > 0) {
        (true, true) => BackupPhase::WaitingForPluginOperationsPartiallyFailed,
        (true, false) => BackupPhase::WaitingForPluginOperations,
        (false, true) => BackupPhase::PartiallyFailed,
        (false, false) => BackupPhase::Completed,
    });
    status.completion_timestamp = (!waits).then(|| Time(ctx.now()));
    status.backup_item_operations_attempted = i64::try_from(outcome.operations.len())
        .ok()
        .filter(|n| *n > 0);
    snapshot_counts(status, &outcome.snapshots);
    let cut = outcome.operations.iter().filter(|o| is_snapshot(o)).count();
    status.csi_volume_snapshots_attempted = i64::try_from(cut).ok().filter(|n| *n > 0);
    status.warnings = (log.warnings > 0).then_some(log.warnings);
    status.errors = (log.errors > 0).then_some(log.errors);
    let items = i64::try_from(outcome.items).unwrap_or(i64::MAX);
    status.progress = Some(BackupProgress {
        total_items: Some(items),
        items_backed_up: Some(items - i64::try_from(pending).unwrap_or(i64::MAX)),
        ..BackupProgress::default()
    });
    status.hook_status = Some(outcome.hooks.clone());
    last.kind = Some("Backup".to_owned());
    last.api_version = Some("velero.io/v1".to_owned());

    let ends = native.uploads.ends();
    let tracked = match waits {
        true => Ok(()),
        false => store_tracked(ctx, bucket, &backup, &ends).await.map(drop),
    };
    let stored = match files(bucket, &name, &outcome, &log).await {
        Ok(()) => match bucket.put_backup(&last).await {
            // An answer that was lost is no failure.
            Err(error) => match bucket.backup(&name).await {
                Ok(Some(there)) if there.uid() == last.uid() => Ok(()),
                _ => Err(error),
            },
            done => done,
        },
        Err(error) => Err(error),
    };
    if cancel.is_cancelled() {
        return leave(ctx, bucket, &backup, began).await;
    }
    tracked?;
    match &stored {
        Ok(()) if !waits => {
            // There may be snapshots that did not come to be in the archive.
            began.forget(&backup).await;
            drop_silent(ctx, &backup, &ends).await;
        }
        Ok(()) => {}
        Err(_) => {
            began.forget(&backup).await;
            keep_records(bucket, &backup, native).await;
        }
    }
    let status = match stored {
        Ok(()) if waits => {
            let status = last.status.unwrap_or_default();
            ctx.metrics
                .backup_stored(&schedule(&backup), outcome.archive_bytes);
            return match patiently(ctx, || write(ctx, &backup, &status)).await? {
                true => go_on(ctx, bucket, &backup, began, cancel).await,
                false => leave(ctx, bucket, &backup, began).await,
            };
        }
        Ok(()) => last.status.unwrap_or_default(),
        Err(error) => failed(ctx, &backup, &error.to_string()),
    };
    end(ctx, &backup, &status, Some(outcome.archive_bytes)).await
}

/// Waits for plugins that go on.
async fn go_on(
    ctx: &Arc<Context>,
    bucket: &Bucket,
    backup: &Backup,
    began: Began<'_>,
    cancel: &CancellationToken,
) -> Result<()> {
    match patiently(ctx, || latest(ctx, backup)).await? {
        Some(found) => {
            let uploads = Some(Arc::clone(&began.native.uploads));
            waiting::see_through(ctx, found, uploads, cancel).await
        }
        None => leave(ctx, bucket, backup, began).await,
    }
}

fn is_pending(snapshot: &Snapshot) -> bool {
    snapshot.status.phase == Some(SnapshotPhase::New)
}

/// All files but the archive and the backup itself.
async fn files(
    bucket: &Bucket,
    name: &str,
    outcome: &Outcome,
    log: &Written,
) -> bowline_vault::Result<()> {
    let key = |suffix| backup_file(name, suffix);
    // None is `null` here, as Velero writes it.
    let snapshots = Some(&outcome.snapshots).filter(|snapshots| !snapshots.is_empty());
    let pod_volumes = Some(&outcome.pod_volumes).filter(|volumes| !volumes.is_empty());
    let log_key = key(backup_suffix::LOG);
    tokio::try_join!(
        bucket.put(&log_key, Bytes::from(log.gzip.clone())),
        put_json(bucket, key(backup_suffix::POD_VOLUME_BACKUPS), &pod_volumes),
        put_json(bucket, key(backup_suffix::VOLUME_SNAPSHOTS), &snapshots),
        put_json(
            bucket,
            key(backup_suffix::ITEM_OPERATIONS),
            &outcome.operations
        ),
        put_json(
            bucket,
            key(backup_suffix::RESOURCE_LIST),
            &outcome.resource_list
        ),
        put_json(bucket, key(backup_suffix::RESULTS), &log.results),
        put_json(bucket, key(backup_suffix::VOLUME_INFO), &outcome.volumes),
    )?;
    Ok(())
}

async fn put_json<T: serde::Serialize + Sync + ?Sized>(
    bucket: &Bucket,
    key: String,
    value: &T,
) -> bowline_vault::Result<()> {
    bucket.put_json(&key, value).await
}

/// Writes the last phase and counts it.
pub(super) async fn end(
    ctx: &Arc<Context>,
    backup: &Backup,
    status: &BackupStatus,
    archive_bytes: Option<u64>,
) -> Result<()> {
    if !patiently(ctx, || write(ctx, backup, status)).await? {
        tracing::warn!(backup = %backup.name_any(), "was deleted meanwhile");
        return Ok(());
    }
    let started = status
        .start_timestamp
        .as_ref()
        .map_or_else(|| ctx.now(), |time| time.0);
    let count = |n: Option<i64>| u64::try_from(n.unwrap_or_default()).unwrap_or_default();
    let items = count(status.progress.as_ref().and_then(|p| p.items_backed_up));
    let finished = Finished {
        phase: status.phase.clone().unwrap_or_default(),
        duration: ctx.now().duration_since(started).unsigned_abs(),
        size: archive_bytes,
        items,
        errors: count(status.errors),
        warnings: count(status.warnings),
    };
    let phase = finished.phase.as_str();
    match &status.failure_reason {
        Some(why) => tracing::error!(backup = %backup.name_any(), phase, "{why}"),
        None => tracing::info!(backup = %backup.name_any(), phase, items, "ended"),
    }
    ctx.metrics.backup_finished(&schedule(backup), &finished);
    let snapshots = Counted {
        attempted: count(status.volume_snapshots_attempted),
        completed: count(status.volume_snapshots_completed),
    };
    ctx.metrics.snapshots_taken(&schedule(backup), snapshots);
    if ctx.settings.has_feature(FEATURE_CSI) {
        let snapshots = Counted {
            attempted: count(status.csi_volume_snapshots_attempted),
            completed: count(status.csi_volume_snapshots_completed),
        };
        let name = backup.name_any();
        ctx.metrics
            .csi_snapshots_taken(&schedule(backup), &name, snapshots);
    }
    Ok(())
}

/// The status of a backup that could not be made.
fn failed(ctx: &Context, backup: &Backup, why: &str) -> BackupStatus {
    BackupStatus {
        phase: Some(BackupPhase::Failed),
        failure_reason: Some(format!("backup execution failed: {why}")),
        completion_timestamp: Some(Time(ctx.now())),
        ..backup.status.clone().unwrap_or_default()
    }
}

/// Writes a status; false when the object is gone.
pub(super) async fn write(ctx: &Context, backup: &Backup, status: &BackupStatus) -> Result<bool> {
    let Some(old) = latest(ctx, backup).await? else {
        return Ok(false);
    };
    let mut new = old.clone();
    new.status = Some(status.clone());
    patch(ctx, &old, &new).await?;
    Ok(true)
}

/// The object as it is now; none when it is gone, or another has its name.
pub(super) async fn latest(ctx: &Context, backup: &Backup) -> Result<Option<Backup>> {
    let found = ctx.find::<Backup>(&backup.name_any()).await?;
    Ok(found.filter(|found| found.uid() == backup.uid()))
}

/// Patches an object whose phase changes.
async fn patch(ctx: &Context, old: &Backup, new: &Backup) -> Result<Backup> {
    let phase = new
        .status
        .as_ref()
        .and_then(|s| s.phase.clone())
        .unwrap_or_default();
    crash::here(&format!("before patch {}", phase.as_str()));
    let patched = ctx.update(old, new).await?;
    crash::here(&format!("after patch {}", phase.as_str()));
    Ok(patched)
}

/// Gathers what the validation needs, and validates.
async fn prepare(ctx: &Context, backup: &Backup) -> Result<(Prepared, Option<Policies>)> {
    let version = async {
        let version = ctx.client.apiserver_version().await;
        version.map_err(Error::api("read the cluster's version"))
    };
    let namespaces = async { Ok(backup::namespaces(&ctx.client).await) };
    let (policies, namespaces, version, locations, snapshot_locations) = tokio::try_join!(
        policies(ctx, backup),
        namespaces,
        version,
        ctx.list::<BackupStorageLocation>(""),
        ctx.list::<VolumeSnapshotLocation>(""),
    )?;
    let (namespaces, refused) = match namespaces {
        Ok(namespaces) => (namespaces, None),
        Err(error) if error.is_passing() => {
            return Err(Error::Setup(format!("list namespaces: {error}")));
        }
        Err(error) => {
            let why = format!("error getting namespace list: {error}");
            (Vec::new(), Some(why))
        }
    };
    let settings = &ctx.settings;
    let global = &settings.global_backup_volume_policies_configmap;
    let facts = validate::Facts {
        now: ctx.now(),
        defaults: Defaults {
            ttl: settings.default_backup_ttl,
            location: settings.default_backup_storage_location.clone(),
            volumes_to_fs_backup: settings.default_volumes_to_fs_backup,
            snapshot_move_data: settings.default_snapshot_move_data,
            item_operation_timeout: settings.default_item_operation_timeout,
            volume_group_label: settings.volume_group_snapshot_label_key.clone(),
            resource_timeout: settings.resource_timeout,
            ..Defaults::default()
        },
        locations,
        snapshot_locations,
        default_snapshot_locations: settings.default_volume_snapshot_locations.0.clone(),
        namespaces: namespaces
            .into_iter()
            .map(|ns| (ns.name, ns.labels))
            .collect(),
        cluster_version: ClusterVersion {
            major: version.major,
            minor: version.minor,
            git: version.git_version,
        },
        policies: policies.clone(),
        global_policy_configmap: (!global.is_empty()).then(|| global.clone()),
    };
    let mut prepared = validate::prepare(backup.clone(), &facts);
    if let Some(refused) = refused {
        prepared.errors.push(refused);
        prepared.backup.status_mut().validation_errors = Some(prepared.errors.clone());
    }
    Ok((prepared, policies.ok().flatten()))
}

/// The policies of the backup and of the installation. The inner error is the user's to mend.
async fn policies(ctx: &Context, backup: &Backup) -> Result<Result<Option<Policies>, String>> {
    let namespace = &ctx.namespace;
    let owner = format!("{namespace}/{}", backup.name_any());
    let own = match policy::config_map_of(backup) {
        Some(name) => match read_policies(ctx, name).await? {
            Ok(Ok(policies)) => Some(policies),
            Ok(Err(error)) => return Ok(Err(error.for_owner(&owner))),
            Err(missing) => return Ok(Err(missing)),
        },
        None => None,
    };
    let global = match ctx
        .settings
        .global_backup_volume_policies_configmap
        .as_str()
    {
        "" => None,
        name => match read_policies(ctx, name).await? {
            Ok(Ok(policies)) => Some(policies),
            Ok(Err(error)) => return Ok(Err(error.for_global(&format!("{namespace}/{name}")))),
            Err(missing) => return Ok(Err(missing)),
        },
    };
    Ok(Ok(Policies::with_global(own, global)))
}

/// The policies in a ConfigMap, or what is wrong with them, or that there is no such ConfigMap.
async fn read_policies(
    ctx: &Context,
    name: &str,
) -> Result<Result<Result<Policies, policy::Error>, String>> {
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let found = maps.get_opt(name).await;
    let found = found.map_err(Error::api(format!("read ConfigMap {name}")))?;
    let namespace = &ctx.namespace;
    let Some(map) = found else {
        return Ok(Err(format!(
            "fail to get ResourcePolicies {namespace}/{name} ConfigMap: configmaps {name:?} not found"
        )));
    };
    let data = map.data.unwrap_or_default();
    Ok(Ok(Policies::from_config_map(
        namespace,
        name,
        &data,
        Purpose::Backup,
    )))
}
