//! One restore, from its spec to the end of its objects.
//!
//! ```text
//!   validate ─▶ patch InProgress ─▶ objects ─▶ log, results, lists ─▶ patch Finalizing ─▶ hooks ─▶ patch Completed
//! ```
//!
//! A restore that a crash interrupts is made again: what it has done already is found in the
//! cluster, and counts as done by it.

use std::{collections::BTreeMap, sync::Arc};

use bowline_api::{
    Duration, Time,
    files::{BackupVolumeInfo, Snapshot, backup_suffix, restore_suffix},
    names::{FEATURE_API_GROUP_VERSIONS, FEATURE_CSI, annotation, finalizer},
    v1::{PodVolumeBackup, Restore, RestorePhase, RestoreProgress, RestoreStatus},
};
use bowline_engine::{
    discovery::{Discovery, Versions},
    log::{About, Log, Written},
    progress::Progress,
    restore::{
        self, Job, Outcome, Settings,
        action::{self, RestoreItemAction},
        plan,
        pod_volume::{Copies, PodVolumes},
        source::{Installation, Source},
        validate,
    },
};
use bowline_plugin::host::Plugins;
use bowline_vault::{
    Bucket,
    archive::read::Reader,
    bucket::{backup_file, restore_file},
    crash,
};
use bowline_volume::program::identifier;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    super::{Telling, log_level, patiently},
    downloads::{self, Downloads},
    finish, groups, pods, schedule,
    snapshots::Native,
    told::Tracker,
};
use crate::{
    Context, Error, Result,
    error::chain,
    plugins::{actions, into_log},
};

/// Where an administrator says which versions are liked best.
const WISHES: (&str, &str) = ("enableapigroupversions", "restoreResourcesVersionPriority");

/// Sees a restore through. What goes wrong ends in a phase; an error here is about the cluster's
/// API or a bucket that does not answer, and worth another try.
pub(super) async fn restore(
    ctx: &Arc<Context>,
    name: &str,
    cancel: CancellationToken,
) -> Result<()> {
    let Some(found) = ctx.find::<Restore>(name).await? else {
        return Ok(());
    };
    if found.metadata.deletion_timestamp.is_some() {
        return finish::delete(ctx, found).await;
    }
    let status = found.status.as_ref();
    match status.and_then(|s| s.phase.clone()).unwrap_or_default() {
        RestorePhase::New => begin(ctx, found, cancel).await,
        RestorePhase::Other(other) if other.is_empty() => begin(ctx, found, cancel).await,
        RestorePhase::InProgress => resume(ctx, found, cancel).await,
        RestorePhase::Finalizing
        | RestorePhase::FinalizingPartiallyFailed
        | RestorePhase::WaitingForPluginOperations
        | RestorePhase::WaitingForPluginOperationsPartiallyFailed => {
            finish::finalize(ctx, found, cancel).await
        }
        _ => Ok(()),
    }
}

/// Validates, and makes the restore if it may be made.
async fn begin(ctx: &Arc<Context>, found: Restore, cancel: CancellationToken) -> Result<()> {
    let mut wanted = found.clone();
    let source = installation(ctx).source(&mut wanted).await;
    let source = source.map_err(Error::api("find what the restore refers to"))?;
    if !wanted
        .finalizers()
        .iter()
        .any(|name| name == finalizer::RESTORE)
    {
        wanted.finalizers_mut().push(finalizer::RESTORE.to_owned());
    }
    let timeout = &mut wanted.spec.item_operation_timeout;
    if timeout.as_ref().is_none_or(|t| *t == Duration::ZERO) {
        *timeout = Some(ctx.settings.default_item_operation_timeout.into());
    }
    let schedule = schedule(&wanted);
    let status = wanted.status_mut();
    let source = match source {
        Ok(source) => source,
        Err(errors) => {
            status.phase = Some(RestorePhase::FailedValidation);
            let why = errors.join("; ");
            status.validation_errors = Some(errors);
            patch(ctx, &found, &wanted).await?;
            ctx.metrics.restore_refused(&schedule);
            tracing::warn!(restore = %found.name_any(), "refused: {why}");
            return Ok(());
        }
    };
    status.phase = Some(RestorePhase::InProgress);
    status.start_timestamp = Some(Time(ctx.now()));
    let started = patch(ctx, &found, &wanted).await?;
    ctx.metrics.restore_attempted(&schedule);
    make(ctx, started, source, false, cancel).await
}

fn installation(ctx: &Context) -> Installation {
    Installation {
        client: ctx.client.clone(),
        namespace: ctx.namespace.clone(),
    }
}

/// Takes up a restore that a server was making when it died.
async fn resume(ctx: &Arc<Context>, mut found: Restore, cancel: CancellationToken) -> Result<()> {
    tracing::info!(restore = %found.name_any(), "taken over from a server that is gone");
    let source = installation(ctx).refer(&mut found).await;
    match source.map_err(Error::api("find what the restore refers to"))? {
        Ok(source) => make(ctx, found, source, true, cancel).await,
        Err(why) => fail(ctx, &found, &why).await,
    }
}

/// Restores the objects and writes how that went.
async fn make(
    ctx: &Arc<Context>,
    restore: Restore,
    source: Source,
    resumed: bool,
    cancel: CancellationToken,
) -> Result<()> {
    let bucket = match ctx.bucket(&source.location).await {
        Ok(bucket) => bucket.with_cancel(cancel.clone()),
        Err(error) => return fail(ctx, &restore, &error.chain()).await,
    };
    if resumed {
        // It was sound when it began; a bucket that does not answer now will again.
        let key = backup_file(&source.backup.name_any(), backup_suffix::CONTENTS);
        match bucket.exists(&key).await {
            Err(error) if !error.is_permanent() => return Err(error.into()),
            _ => {}
        }
    }
    let name = restore.name_any();
    let log = Log::new(
        "restore",
        &format!("{}/{name}", ctx.namespace),
        log_level(ctx),
    );
    log.info("starting restore");
    let progress = Arc::new(Progress::default());
    let telling = telling(ctx, &restore, &progress, &log);
    let made = objects(
        ctx, &restore, source, &bucket, resumed, &progress, &log, &cancel,
    )
    .await;
    telling.end().await;
    if cancel.is_cancelled() {
        // Deleted, or left as it is for the next server.
        return Ok(());
    }
    match made {
        // The server stops; the next one waits on.
        Ok(None) => Ok(()),
        Ok(Some(made)) => {
            log.info("restore completed");
            after(ctx, restore, &bucket, &progress, made, log.take(), cancel).await
        }
        Err(why) => {
            log.error("restore execution failed", &About::default().because(&why));
            let key = restore_file(&name, restore_suffix::LOG);
            if let Err(error) = bucket.put(&key, log.take().gzip.into()).await {
                tracing::warn!(restore = %name, "its log is not in the bucket: {error}");
            }
            fail(ctx, &restore, &why).await
        }
    }
}

/// Patches how far the restore is, while it lives.
fn telling(ctx: &Arc<Context>, restore: &Restore, progress: &Arc<Progress>, log: &Log) -> Telling {
    let (progress, log) = (Arc::clone(progress), log.clone());
    let now = move || {
        let (total, done) = progress.get();
        let (warnings, errors) = log.counts();
        json!({
            "metadata": {"annotations": {annotation::RESTORE_STAGE: progress.stage()}},
            "status": {
                "progress": {"totalItems": total, "itemsRestored": done},
                "warnings": (warnings > 0).then_some(warnings),
                "errors": (errors > 0).then_some(errors),
            },
        })
    };
    Telling::start(ctx, restore, now)
}

/// Restores the objects, waits for the volumes of pods, and writes down what became of volumes; none when the server stops meanwhile. The
/// error is for a person.
#[allow(clippy::too_many_arguments)]
async fn objects(
    ctx: &Arc<Context>,
    restore: &Restore,
    source: Source,
    bucket: &Bucket,
    resumed: bool,
    progress: &Arc<Progress>,
    log: &Log,
    cancel: &CancellationToken,
) -> Result<Option<Outcome>, String> {
    if let Some(why) = validate::format_error(&source.backup) {
        return Err(why);
    }
    let backup = source.backup.name_any();
    let volumes: Option<Vec<BackupVolumeInfo>> = bucket
        .json(&backup_file(&backup, backup_suffix::VOLUME_INFO))
        .await
        .map_err(|error| format!("error fetching volume info: {}", chain(&error)))?;
    let volumes = volumes.unwrap_or_default();
    let tracker = Tracker::new(restore, volumes.clone());
    let pod_volumes = pod_volumes(ctx, &source, bucket).await?;
    let actions = installation(ctx)
        .actions(restore, &pod_volumes.copies)
        .await;
    let actions = actions.map_err(|error| {
        let error = Error::api("read the configuration of restore item actions")(error);
        error.chain()
    })??;
    let actions = with_csi(ctx, actions);
    let native = snapshots(ctx, restore, &backup, bucket, log, resumed, &tracker).await?;
    // Plugins may take their time to say what they are for.
    let ready = async {
        let plugins = ctx.plugins.start(into_log(log, false)).await;
        let actions = with_plugins(ctx, &plugins, restore, actions, log).await?;
        Ok::<_, String>((plugins, actions))
    };
    let (plugins, actions) = tokio::select! {
        ready = ready => ready?,
        () = cancel.cancelled() => return Ok(None),
    };
    let job = Job {
        client: ctx.client.clone(),
        restore: Arc::new(restore.clone()),
        policies: source.policies.map(Arc::new),
        modifiers: source.modifiers.map(Arc::new),
        actions,
        volumes,
        pod_volumes,
        snapshots: Some(Arc::clone(&native) as _),
        downloads: Some(Arc::new(Downloads(Arc::clone(ctx)))),
        settings: Settings {
            priorities: ctx.settings.restore_resource_priorities.clone(),
            versions: wishes(ctx).await.map_err(|error| error.chain())?,
            terminating_timeout: ctx.settings.terminating_resource_timeout,
            resource_timeout: ctx.settings.resource_timeout,
        },
        progress: Arc::clone(progress),
        log: log.clone(),
        cancel: cancel.clone(),
        // Not its start, which is by this server's clock.
        since: restore
            .creation_timestamp()
            .map_or_else(|| ctx.now(), |time| time.0),
        resumed,
    };
    let key = backup_file(&backup, backup_suffix::CONTENTS);
    let body = bucket.get(&key).await;
    let body = body.map_err(|error| format!("error downloading backup: {}", chain(&error)))?;
    let made = restore::run(job, Reader::new(&key, body)).await;
    // What they have to say belongs into the log.
    plugins.stop().await;
    let mut outcome = made.map_err(|error| chain(&error))?;
    native.finish().await;
    let fillings = std::mem::take(&mut outcome.fillings);
    let namespaces = pods::namespaces(&fillings).chain(downloads::namespaces(&outcome.notes));
    pods::know_repositories(ctx, &source.location, namespaces.collect()).await;
    tokio::select! {
        () = pods::wait(ctx, restore, &fillings, log, progress, &tracker) => {}
        () = cancel.cancelled() => return Ok(None),
        () = ctx.stop.cancelled(), if !fillings.is_empty() => return Ok(None),
    };
    tokio::select! {
        () = tracker.finish(ctx, bucket, &outcome.notes, log) => {}
        () = cancel.cancelled() => return Ok(None),
    }
    Ok(Some(outcome))
}

/// The actions with those for CSI snapshots after them, if the server has the feature.
fn with_csi(
    ctx: &Context,
    mut all: Vec<Arc<dyn RestoreItemAction>>,
) -> Vec<Arc<dyn RestoreItemAction>> {
    if ctx.settings.has_feature(FEATURE_CSI) {
        let stubs = Arc::new(groups::Stubs(ctx.client.clone()));
        all.extend(action::csi::all(&ctx.client, Some(stubs)));
    }
    all
}

/// The native snapshots of the backup, and how volumes are made of them.
async fn snapshots(
    ctx: &Arc<Context>,
    restore: &Restore,
    backup: &str,
    bucket: &Bucket,
    log: &Log,
    resumed: bool,
    tracker: &Arc<Tracker>,
) -> Result<Arc<Native>, String> {
    let key = backup_file(backup, backup_suffix::VOLUME_SNAPSHOTS);
    let records = bucket.json::<Option<Vec<Snapshot>>>(&key).await;
    let records =
        records.map_err(|error| format!("error fetching volume snapshots: {}", chain(&error)))?;
    let records = records.flatten().unwrap_or_default();
    let native = Native::new(ctx, restore, records, log, resumed, tracker).await;
    native.map(Arc::new).map_err(|error| error.chain())
}

/// The actions with those of plugins after them.
async fn with_plugins(
    ctx: &Context,
    plugins: &Plugins,
    restore: &Restore,
    mut all: Vec<Arc<dyn RestoreItemAction>>,
    log: &Log,
) -> Result<Vec<Arc<dyn RestoreItemAction>>, String> {
    if !actions::any(plugins, &actions::RESTORE) {
        return Ok(all);
    }
    let discovery = Discovery::read(&ctx.client, Versions::Preferred).await;
    let discovery =
        discovery.map_err(|error| Error::api("discover the cluster's resources")(error).chain())?;
    all.extend(actions::for_restore(plugins, restore, &discovery, log).await);
    Ok(all)
}

/// What the backup has of the volumes of pods: its file says, or, if it has none, the cluster.
async fn pod_volumes(
    ctx: &Context,
    source: &Source,
    bucket: &Bucket,
) -> Result<PodVolumes, String> {
    let backup = &source.backup;
    let key = backup_file(&backup.name_any(), backup_suffix::POD_VOLUME_BACKUPS);
    let file = bucket.json::<Option<Vec<PodVolumeBackup>>>(&key).await;
    let file =
        file.map_err(|error| format!("error fetching pod volume backups: {}", chain(&error)))?;
    let found = match file {
        Some(list) => list.unwrap_or_default(),
        None => {
            let live = installation(ctx).pod_volume_backups(backup).await;
            live.map_err(|error| Error::api("error listing pod volume backups")(error).chain())?
        }
    };
    Ok(PodVolumes {
        copies: Arc::new(Copies::new(&found)),
        location: source.location.name_any(),
        // Only restic itself needs it, and knows no other places than those that it names.
        repositories: identifier(&source.location.spec, "").unwrap_or_default(),
    })
}

/// Versions that an administrator likes best; none when the feature is off.
async fn wishes(ctx: &Context) -> Result<Option<BTreeMap<String, Vec<String>>>> {
    if !ctx.settings.has_feature(FEATURE_API_GROUP_VERSIONS) {
        return Ok(None);
    }
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let found = maps.get_opt(WISHES.0).await;
    let found = found.map_err(Error::api(format!("read ConfigMap {}", WISHES.0)))?;
    let text = found
        .and_then(|map| map.data)
        .and_then(|mut data| data.remove(WISHES.1))
        .unwrap_or_default();
    let (wishes, bad) = plan::wishes(&text);
    for line in bad {
        tracing::warn!("ConfigMap {}: cannot make sense of {line:?}", WISHES.0);
    }
    Ok(Some(wishes))
}

/// Puts the restore's files into the bucket and goes on to what is left to do.
async fn after(
    ctx: &Arc<Context>,
    restore: Restore,
    bucket: &Bucket,
    progress: &Progress,
    outcome: Outcome,
    log: Written,
    cancel: CancellationToken,
) -> Result<()> {
    let name = restore.name_any();
    let stored = files(bucket, &name, &outcome, &log).await;
    let lost = stored
        .err()
        .map(|error| format!("its files are not in the bucket: {}", chain(&error)));
    let errors = log.errors + i64::from(lost.is_some());
    if cancel.is_cancelled() {
        return Ok(());
    }
    let (total, done) = progress.get();
    let count = |n: u64| i64::try_from(n).ok();
    let operations = i64::try_from(outcome.operations.len()).unwrap_or(i64::MAX);
    let status = RestoreStatus {
        phase: Some(match (operations > 0, errors > 0) {
            (true, true) => RestorePhase::WaitingForPluginOperationsPartiallyFailed,
            (true, false) => RestorePhase::WaitingForPluginOperations,
            (false, true) => RestorePhase::FinalizingPartiallyFailed,
            (false, false) => RestorePhase::Finalizing,
        }),
        warnings: (log.warnings > 0).then_some(log.warnings),
        errors: (errors > 0).then_some(errors),
        failure_reason: lost,
        progress: Some(RestoreProgress {
            total_items: count(total),
            items_restored: count(done),
            ..RestoreProgress::default()
        }),
        restore_item_operations_attempted: (operations > 0).then_some(operations),
        ..restore.status.clone().unwrap_or_default()
    };
    tracing::info!(restore = %name, items = done, calls = outcome.calls, "objects are restored");
    match patiently(ctx, || write(ctx, &restore, &status)).await? {
        Some(written) => finish::finalize(ctx, written, cancel).await,
        None => Ok(()),
    }
}

async fn files(
    bucket: &Bucket,
    name: &str,
    outcome: &Outcome,
    log: &Written,
) -> bowline_vault::Result<()> {
    let key = |suffix| restore_file(name, suffix);
    bucket
        .put(&key(restore_suffix::LOG), Bytes::from(log.gzip.clone()))
        .await?;
    bucket
        .put_json(&key(restore_suffix::RESULTS), &log.results)
        .await?;
    bucket
        .put_json(&key(restore_suffix::RESOURCE_LIST), &outcome.resource_list)
        .await?;
    bucket
        .put_json(&key(restore_suffix::ITEM_OPERATIONS), &outcome.operations)
        .await
}

/// Ends a restore that could not be made.
async fn fail(ctx: &Arc<Context>, restore: &Restore, why: &str) -> Result<()> {
    let status = RestoreStatus {
        phase: Some(RestorePhase::Failed),
        failure_reason: Some(format!("restore execution failed: {why}")),
        completion_timestamp: Some(Time(ctx.now())),
        ..restore.status.clone().unwrap_or_default()
    };
    end(ctx, restore, &status).await
}

/// Writes the last phase and counts it.
pub(super) async fn end(
    ctx: &Arc<Context>,
    restore: &Restore,
    status: &RestoreStatus,
) -> Result<()> {
    let name = restore.name_any();
    let written = patiently(ctx, || write(ctx, restore, status)).await?;
    if written.is_none() {
        tracing::warn!(restore = %name, "was deleted meanwhile");
        return Ok(());
    }
    let phase = status.phase.clone().unwrap_or_default();
    match &status.failure_reason {
        Some(why) => tracing::error!(restore = %name, phase = phase.as_str(), "{why}"),
        None => tracing::info!(restore = %name, phase = phase.as_str(), "ended"),
    }
    ctx.metrics.restore_finished(&schedule(restore), &phase);
    Ok(())
}

/// Writes a status; none when the object is gone or to go.
pub(super) async fn write(
    ctx: &Context,
    restore: &Restore,
    status: &RestoreStatus,
) -> Result<Option<Restore>> {
    let found = ctx.find::<Restore>(&restore.name_any()).await?;
    let Some(old) = found.filter(|found| found.uid() == restore.uid()) else {
        return Ok(None);
    };
    let mut new = old.clone();
    new.status = Some(status.clone());
    // Only while it runs.
    new.annotations_mut().remove(annotation::RESTORE_STAGE);
    patch(ctx, &old, &new).await.map(Some)
}

/// Patches an object whose phase changes.
async fn patch(ctx: &Context, old: &Restore, new: &Restore) -> Result<Restore> {
    let phase = new.status.as_ref().and_then(|s| s.phase.clone());
    let phase = phase.unwrap_or_default();
    crash::here(&format!("before patch restore {}", phase.as_str()));
    let patched = ctx.update(old, new).await?;
    crash::here(&format!("after patch restore {}", phase.as_str()));
    Ok(patched)
}
