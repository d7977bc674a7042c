//! DeleteBackupRequest: deletes a backup with all that belongs to it.
//!
//! The order matters. The request says `InProgress` and the backup `Deleting` before anything goes;
//! the backup's object goes last, and only when everything else is gone: as long as there is
//! something left to delete, there is an object that says so. Each step can be repeated, so a
//! request that a dead server left `InProgress` is simply taken up again. A backup that is still being
//! made is given up first: its phase says that it is to go.

pub mod actions;

pub(super) mod contents;
mod csi;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::{
    names::{label, label_value},
    v1::{
        Backup, BackupPhase, BackupStorageLocation, BackupStorageLocationAccessMode as AccessMode,
        BackupStorageLocationPhase, DeleteBackupRequest, DeleteBackupRequestPhase as Phase,
    },
};
use bowline_engine::discovery::{Discovery, Versions};
use bowline_plugin::kinds::Kind;
use bowline_vault::Bucket;
use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, runtime::controller::Action};

use super::{AGAIN, Reconciler, at};
use crate::{Context, Error, Result, context::Running, plugins};

/// The controller's name.
pub const NAME: &str = "backup-deletion";

/// How long a plugin may take for one call, so that it does not hold up all deletions. A snapshot that
/// was not deleted keeps its backup, and can be asked for again; a delete action's failure is told.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long an answered request is kept.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Looks after requests until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let requests = Requests {
        ctx: Arc::clone(&ctx),
        busy: Running::default(),
    };
    super::run(&ctx, requests).await;
}

struct Requests {
    ctx: Arc<Context>,
    /// Backups that are being deleted right now.
    busy: Running,
}

/// What a request needs.
#[derive(Debug, PartialEq)]
enum Step {
    Work,
    Keep(Timestamp),
    Forget,
}

fn next(request: &DeleteBackupRequest, now: Timestamp) -> Step {
    if phase(request) != Some(&Phase::Processed) {
        return Step::Work;
    }
    let status = request.status.as_ref();
    if status.is_none_or(|status| status.errors.as_ref().is_none_or(Vec::is_empty)) {
        // All went well, so there is nothing to be read here.
        return Step::Forget;
    }
    let made = request.creation_timestamp().map(|time| time.0);
    match made.and_then(|made| made.checked_add(KEPT).ok()) {
        Some(end) if end > now => Step::Keep(end),
        _ => Step::Forget,
    }
}

fn phase(request: &DeleteBackupRequest) -> Option<&Phase> {
    request.status.as_ref()?.phase.as_ref()
}

/// Runs the delete item actions of plugins. The inner error is about the archive.
async fn run_actions(
    ctx: &Context,
    bucket: &Bucket,
    backup: &Backup,
) -> Result<Result<Vec<String>, bowline_vault::Error>> {
    let plugins = ctx
        .plugins
        .start(Arc::new(|line| plugins::log(&line)))
        .await;
    if !plugins::actions::any(&plugins, &[Kind::DeleteItemAction]) {
        return Ok(Ok(Vec::new()));
    }
    let discovery = Discovery::read(&ctx.client, Versions::Preferred)
        .await
        .map_err(Error::api("discover the cluster's resources"))?;
    // Nobody else knows what they have put where.
    let unused = Mutex::new(Vec::new());
    let tell = |why: String| {
        let mut unused = unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.push(why);
    };
    let asked = plugins::actions::for_deletion(&plugins, backup, &discovery, &tell);
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    let done = match asked {
        Ok(found) => actions::run(bucket, backup, &found, PATIENCE).await,
        Err(_) => Ok(vec![format!(
            "a plugin has not said within {PATIENCE:?} which objects it is for"
        )]),
    };
    plugins.stop().await;
    let unused = unused.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.map(|errors| errors.into_iter().chain(unused).collect()))
}

/// Deletes what there is of a backup whose object was deleted before it was whole. What stays is in
/// the list.
pub(super) async fn unfinished(
    ctx: &Context,
    bucket: &Bucket,
    backup: &Backup,
) -> Result<Vec<String>> {
    let mut errors = contents::snapshots(ctx, Some(bucket), backup).await?;
    errors.extend(csi::snapshots(ctx, Some(bucket), backup).await?);
    errors.extend(contents::volumes(ctx, Some(bucket), backup).await?);
    if errors.is_empty() {
        errors.extend(contents::files(bucket, backup).await);
    }
    Ok(errors)
}

/// Where the files of a backup are.
#[derive(Debug, PartialEq)]
enum Files<'a> {
    /// It never ran, so there are none, whatever else has its name in a bucket.
    None,
    /// In this location.
    In(&'a BackupStorageLocation),
}

/// Where a backup's files are, or why it cannot be deleted, in Velero's words.
fn judge<'a>(
    backup: &Backup,
    location: Option<&'a BackupStorageLocation>,
) -> Result<Files<'a>, String> {
    if has_never_run(backup) {
        return Ok(Files::None);
    }
    let Some(location) = location else {
        let name = backup.spec.storage_location.as_deref().unwrap_or_default();
        return Err(format!("backup storage location {name} not found"));
    };
    let name = location.name_any();
    if location.spec.access_mode == Some(AccessMode::ReadOnly) {
        return Err(format!(
            "cannot delete backup because backup storage location {name} is currently in \
             read-only mode"
        ));
    }
    let phase = location.status.as_ref().and_then(|s| s.phase.as_ref());
    if phase != Some(&BackupStorageLocationPhase::Available) {
        return Err(format!(
            "cannot delete backup because backup storage location {name} is currently in \
             Unavailable state"
        ));
    }
    Ok(Files::In(location))
}

/// Whether a backup was refused, or never had its turn.
fn has_never_run(backup: &Backup) -> bool {
    let Some(status) = &backup.status else {
        return true;
    };
    let is_early = match &status.phase {
        None
        | Some(
            BackupPhase::New
            | BackupPhase::Queued
            | BackupPhase::ReadyToStart
            | BackupPhase::FailedValidation
            // Whatever it was before its deletion began.
            | BackupPhase::Deleting,
        ) => true,
        Some(phase) => phase.as_str().is_empty(),
    };
    is_early && status.start_timestamp.is_none()
}

/// The request at work, with the labels that tell what it is about.
fn begun(request: &DeleteBackupRequest, backup: &Backup) -> DeleteBackupRequest {
    let mut new = request.clone();
    new.status_mut().phase = Some(Phase::InProgress);
    for (key, value) in [
        (label::BACKUP_NAME, label_value(&backup.name_any())),
        (label::BACKUP_UID, backup.uid().unwrap_or_default()),
    ] {
        let label = new.labels_mut().entry(key.to_owned()).or_default();
        if label.is_empty() {
            *label = value;
        }
    }
    new
}

/// The request with its answer.
fn answered(request: &DeleteBackupRequest, errors: Vec<String>) -> DeleteBackupRequest {
    let mut new = request.clone();
    let status = new.status_mut();
    status.phase = Some(Phase::Processed);
    status.errors = (!errors.is_empty()).then_some(errors);
    new
}

impl Reconciler for Requests {
    type Object = DeleteBackupRequest;
    const NAME: &'static str = NAME;
    const PARALLEL: u16 = 4;

    async fn reconcile(self: Arc<Self>, request: Arc<DeleteBackupRequest>) -> Result<Action> {
        let ctx = &self.ctx;
        let (name, backup) = (request.name_any(), &request.spec.backup_name);
        let Some(_claim) = Claim::on(&self.busy, backup) else {
            return Ok(Action::requeue(AGAIN));
        };
        // What is deleted cannot be brought back: no decision from an old copy, and none from one
        // that was read before it was this request's turn.
        let Some(request) = ctx.find::<DeleteBackupRequest>(&name).await? else {
            return Ok(Action::await_change());
        };
        let now = ctx.now();
        match next(&request, now) {
            Step::Forget => {
                ctx.delete(&request).await?;
                return Ok(Action::await_change());
            }
            Step::Keep(end) => return Ok(at(end, now)),
            Step::Work => {}
        }
        if backup.is_empty() {
            return self.refuse(&request, "spec.backupName is required").await;
        }
        if request.spec.backup_name != *backup {
            return Ok(Action::requeue(AGAIN));
        }
        self.work(&request).await
    }
}

impl Requests {
    /// Deletes what a request asks for.
    async fn work(&self, request: &DeleteBackupRequest) -> Result<Action> {
        let ctx = &self.ctx;
        let name = &request.spec.backup_name;
        self.drop_others(request).await?;
        let was_begun = phase(request) == Some(&Phase::InProgress);
        let Some(backup) = ctx.find::<Backup>(name).await? else {
            if was_begun {
                // Its object goes last: all is done but the answer.
                return self.finish(request, Vec::new()).await;
            }
            return self.refuse(request, "backup not found").await;
        };
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        let location = ctx.find::<BackupStorageLocation>(location).await?;
        let files = match judge(&backup, location.as_ref()) {
            Ok(files) => files,
            Err(why) => return self.refuse(request, &why).await,
        };
        let request = ctx.update(request, &begun(request, &backup)).await?;
        let mut deleting = backup.clone();
        deleting.status_mut().phase = Some(BackupPhase::Deleting);
        let backup = ctx.update(&backup, &deleting).await?;
        let schedule = backup.labels().get(label::SCHEDULE_NAME);
        let schedule = schedule.map(String::as_str).unwrap_or_default();
        if !was_begun {
            ctx.metrics.deletion_attempted(schedule);
        }
        if ctx.running.contains(name) {
            // Whoever works on it sees its phase, and ends.
            return Ok(Action::requeue(AGAIN));
        }
        tracing::info!(backup = name, "deleting backup");

        let bucket = match files {
            Files::None => None,
            Files::In(location) => match ctx.bucket(location).await {
                Ok(bucket) => Some(bucket),
                Err(e @ Error::Api { .. }) => return Err(e),
                Err(e) => {
                    let why = format!("error getting the backup store: {}", e.chain());
                    return self.refuse(&request, &why).await;
                }
            },
        };
        let errors = match self.delete(&backup, bucket.as_ref()).await? {
            Ok(errors) => errors,
            Err(why) => return self.refuse(&request, &why).await,
        };
        ctx.metrics.deletion_finished(schedule, errors.len());
        self.finish(&request, errors).await
    }

    /// Deletes a backup; what could not be deleted is in the list. An inner error means that it was
    /// given up.
    async fn delete(
        &self,
        backup: &Backup,
        bucket: Option<&Bucket>,
    ) -> Result<Result<Vec<String>, String>> {
        let ctx = &self.ctx;
        let name = backup.name_any();
        let mut errors = Vec::new();
        if let Some(bucket) = bucket {
            let own = match contents::is_anothers(bucket, backup).await {
                Ok(true) => None,
                Ok(false) => Some(bucket),
                Err(e) => return Ok(Err(format!("error reading the backup's files: {e}"))),
            };
            if let Some(bucket) = own {
                match run_actions(ctx, bucket, backup).await? {
                    Ok(found) => errors.extend(found),
                    Err(e) => {
                        tracing::error!(backup = name, "run delete item actions: {e}");
                        return Ok(Err("error invoking delete item actions".to_owned()));
                    }
                }
            }
            errors.extend(contents::snapshots(ctx, own, backup).await?);
            errors.extend(csi::snapshots(ctx, own, backup).await?);
            errors.extend(contents::volumes(ctx, own, backup).await?);
            if let Some(bucket) = own.filter(|_| errors.is_empty()) {
                errors.extend(contents::files(bucket, backup).await);
            }
        }
        errors.extend(contents::restores(ctx, &name, bucket).await?);
        if errors.is_empty() {
            ctx.delete(backup).await?;
        }
        Ok(Ok(errors))
    }

    /// One request per backup is enough.
    async fn drop_others(&self, request: &DeleteBackupRequest) -> Result<()> {
        let backup = label_value(&request.spec.backup_name);
        let labels = format!("{}={backup}", label::BACKUP_NAME);
        for other in self.ctx.list::<DeleteBackupRequest>(&labels).await? {
            if other.name_any() != request.name_any() {
                self.ctx.delete(&other).await?;
            }
        }
        Ok(())
    }

    async fn refuse(&self, request: &DeleteBackupRequest, why: &str) -> Result<Action> {
        tracing::warn!(
            request = request.name_any(),
            backup = request.spec.backup_name,
            "deletion refused: {why}"
        );
        let errors = vec![format!("backup deletion failed: {why}")];
        self.answer(request, errors).await
    }

    async fn finish(&self, request: &DeleteBackupRequest, errors: Vec<String>) -> Result<Action> {
        let backup = &request.spec.backup_name;
        if !errors.is_empty() {
            tracing::error!(backup, "backup not deleted: {}", errors.join("; "));
            return self.answer(request, errors).await;
        }
        let next = self.answer(request, errors).await?;
        tracing::info!(backup, "backup deleted");
        let labels = format!(
            "{}={},{}={}",
            label::BACKUP_NAME,
            label_value(backup),
            label::BACKUP_UID,
            request
                .labels()
                .get(label::BACKUP_UID)
                .map_or("", String::as_str)
        );
        for request in self.ctx.list::<DeleteBackupRequest>(&labels).await? {
            self.ctx.delete(&request).await?;
        }
        Ok(next)
    }

    async fn answer(&self, request: &DeleteBackupRequest, errors: Vec<String>) -> Result<Action> {
        let new = answered(request, errors);
        self.ctx.update(request, &new).await?;
        // The change brings the next look.
        Ok(Action::requeue(Duration::from_secs(60)))
    }
}

/// A backup that is being deleted, until this is dropped.
struct Claim<'a>(&'a Running, &'a str);

impl<'a> Claim<'a> {
    fn on(busy: &'a Running, backup: &'a str) -> Option<Self> {
        // Not `then_some`: a claim that is made and dropped would end the other one.
        busy.start(backup).then(|| Self(busy, backup))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

#[cfg(test)]
mod tests;
