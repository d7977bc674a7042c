//! The end of a restore: operations, new volumes and hooks in pods are seen through, then
//! the last phase is written. And the end of its object: the files in the bucket go first.

use std::{collections::BTreeSet, sync::Arc};

use bowline_api::{
    Time,
    files::{
        BackupVolumeInfo, OperationPhase, ResourceList, RestoreOperation, Results, backup_suffix,
        restore_suffix,
    },
    names::{finalizer, label, label_value},
    v1::{
        Backup, BackupStorageLocation, HookStatus, PodVolumeRestore, Restore, RestorePhase,
        RestoreStatus,
    },
    v2alpha1::DataDownload,
};
use bowline_engine::{
    hooks::{HookTracker, KubeExec, Message},
    list::{self, Query},
    restore::hooks::{PostHooks, SpecHooks},
};
use bowline_vault::{
    Bucket,
    bucket::{backup_file, restore_file},
};
use kube::ResourceExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    super::operations::{count, movements},
    groups, pods,
    run::end,
    told, volumes, waiting,
};
use crate::{Context, Error, Result, node::copy::Copy};

/// Sees a restore through whose objects are there.
pub(super) async fn finalize(
    ctx: &Arc<Context>,
    restore: Restore,
    cancel: CancellationToken,
) -> Result<()> {
    let Some(bucket) = bucket(ctx, &restore).await? else {
        let mut status = restore.status.clone().unwrap_or_default();
        status.phase = Some(RestorePhase::PartiallyFailed);
        status.completion_timestamp = Some(Time(ctx.now()));
        return end(ctx, &restore, &status).await;
    };
    let bucket = bucket.with_cancel(cancel.clone());
    match see_through(ctx, &restore, &bucket, &cancel).await {
        // Its files cannot be read or written, and never will: nothing is gained by waiting.
        Err(Error::Vault(error)) if error.is_permanent() && !cancel.is_cancelled() => {
            let mut status = restore.status.clone().unwrap_or_default();
            last(&mut status, &[], 1, None);
            status.failure_reason = Some(error.to_string());
            status.completion_timestamp = Some(Time(ctx.now()));
            end(ctx, &restore, &status).await
        }
        done => done,
    }
}

async fn see_through(
    ctx: &Arc<Context>,
    restore: &Restore,
    bucket: &Bucket,
    cancel: &CancellationToken,
) -> Result<()> {
    let Some(operations) = waiting::wait(ctx, restore, bucket, cancel).await? else {
        return Ok(());
    };
    let mut findings = Findings::default();
    for operation in &operations {
        findings.operation(operation);
    }
    let key = restore_file(&restore.name_any(), restore_suffix::RESOURCE_LIST);
    let list: ResourceList = bucket.json(&key).await?.unwrap_or_default();
    let backup = restore.spec.backup_name.clone().unwrap_or_default();
    let key = backup_file(&backup, backup_suffix::VOLUME_INFO);
    let infos: Option<Vec<BackupVolumeInfo>> = bucket.json(&key).await?;
    let anew = volumes::anew(restore, infos.unwrap_or_default(), &list, &operations);
    // A hook need not wait for a volume that takes its time.
    let all = futures::future::join3(
        volumes::settle(ctx, anew),
        hooks(ctx, restore, &list, &mut findings),
        groups::settle(ctx, restore),
    );
    let (troubles, finished, stubs) = tokio::select! {
        all = all => all,
        () = cancel.cancelled() => return Ok(()),
    };
    let finished = finished?;
    stubs?;
    for (namespace, why) in troubles {
        findings.namespace(&namespace, why);
    }
    findings.store(bucket, &restore.name_any()).await?;
    tokio::select! {
        () = told::refresh(ctx, restore, &operations, bucket) => {}
        () = cancel.cancelled() => {}
    }
    if cancel.is_cancelled() {
        return Ok(());
    }
    let mut status = restore.status.clone().unwrap_or_default();
    last(&mut status, &operations, findings.count(), finished);
    status.completion_timestamp = Some(Time(ctx.now()));
    end(ctx, restore, &status).await
}

/// The bucket of the restore's backup; none when the backup or its location is gone.
async fn bucket(ctx: &Context, restore: &Restore) -> Result<Option<Bucket>> {
    let backup = restore.spec.backup_name.clone().unwrap_or_default();
    let Some(backup) = ctx.find::<Backup>(&backup).await? else {
        return Ok(None);
    };
    let location = backup.spec.storage_location.unwrap_or_default();
    match ctx.find::<BackupStorageLocation>(&location).await? {
        Some(location) => ctx.bucket(&location).await.map(Some),
        None => Ok(None),
    }
}

/// The last phase and its figures.
fn last(
    status: &mut RestoreStatus,
    operations: &[RestoreOperation],
    errors: i64,
    hooks: Option<HookStatus>,
) {
    let count = |wanted: OperationPhase| count(operations.iter().map(|o| &o.status), &wanted);
    let failed_before = matches!(
        status.phase,
        Some(
            RestorePhase::FinalizingPartiallyFailed
                | RestorePhase::WaitingForPluginOperationsPartiallyFailed
        )
    );
    let failed = count(OperationPhase::Failed).unwrap_or_default();
    let errors = errors + failed;
    status.phase = Some(if failed_before || errors > 0 {
        RestorePhase::PartiallyFailed
    } else {
        RestorePhase::Completed
    });
    if errors > 0 {
        status.errors = Some(status.errors.unwrap_or_default() + errors);
    }
    if !operations.is_empty() {
        status.restore_item_operations_completed = count(OperationPhase::Completed);
        status.restore_item_operations_failed = count(OperationPhase::Failed);
    }
    if hooks.is_some() {
        status.hook_status = hooks;
    }
}

/// Runs the hooks of pods that this restore has made; none when there are no hooks at all.
async fn hooks(
    ctx: &Context,
    restore: &Restore,
    list: &ResourceList,
    findings: &mut Findings,
) -> Result<Option<HookStatus>> {
    let made: BTreeSet<&str> = list
        .get("v1/Pod")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.strip_suffix("(created)"))
        .collect();
    if made.is_empty() {
        return Ok(None);
    }
    let spec = SpecHooks::new(restore.spec.hooks.as_ref()).map_err(Error::Setup)?;
    let tracker = Arc::new(HookTracker::default());
    let exec = Arc::new(KubeExec::new(ctx.client.clone()));
    let name = restore.name_any();
    let tell = {
        let name = name.clone();
        Arc::new(move |namespace: &str, pod: &str, message: Message| {
            let error = message.error.unwrap_or_default();
            tracing::info!(restore = %name, namespace, pod, error, "{}", message.text);
        })
    };
    let spec = Arc::new(spec);
    let post = PostHooks::new(
        ctx.client.clone(),
        &name,
        spec,
        exec,
        Arc::clone(&tracker),
        tell,
    );
    let name = label_value(&name);
    let query = Query {
        path: "/api/v1/pods".to_owned(),
        selector: format!("{}={name}", label::RESTORE_NAME),
        ..Query::default()
    };
    let listed = list::each(&ctx.client, &query, |raw| {
        let Ok(pod) = serde_json::from_slice::<Value>(raw) else {
            return;
        };
        let metadata = &pod["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        if made.contains(format!("{}/{}", text("namespace"), text("name")).as_str()) {
            post.start(&pod);
        }
    })
    .await;
    listed.map_err(|error| Error::Setup(format!("list restored pods: {error}")))?;
    for (namespace, errors) in post.finish(ctx.settings.resource_timeout).await {
        for why in errors {
            findings.namespace(&namespace, why);
        }
    }
    Ok(Some(tracker.status()))
}

/// What went wrong after the objects were restored.
#[derive(Default)]
struct Findings(Vec<(Option<String>, String)>);

impl Findings {
    /// An operation that failed; it is counted elsewhere.
    fn operation(&mut self, operation: &RestoreOperation) {
        if operation.status.phase == Some(OperationPhase::Failed) {
            let why = operation.status.error.as_deref().unwrap_or_default();
            let plugin = &operation.spec.restore_item_action;
            let item = &operation.spec.resource_identifier;
            let why = format!(
                "error from restore item operation: {why}, plugin: {plugin}, item: {}",
                [&item.resource, &item.namespace, &item.name]
                    .map(String::as_str)
                    .join("/")
            );
            self.0.push((None, why));
        }
    }

    fn namespace(&mut self, namespace: &str, why: String) {
        self.0.push((Some(namespace.to_owned()), why));
    }

    /// Errors that are not counted elsewhere.
    fn count(&self) -> i64 {
        let own = self.0.iter().filter(|(namespace, _)| namespace.is_some());
        i64::try_from(own.count()).unwrap_or(i64::MAX)
    }

    /// Adds them to the restore's results.
    async fn store(&self, bucket: &Bucket, restore: &str) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let key = restore_file(restore, restore_suffix::RESULTS);
        let mut results: Results = bucket.json(&key).await?.unwrap_or_default();
        for (namespace, why) in &self.0 {
            let list = match namespace {
                None => results.errors.velero.get_or_insert_default(),
                Some(namespace) => results
                    .errors
                    .namespaces
                    .get_or_insert_default()
                    .entry(namespace.clone())
                    .or_default(),
            };
            // This may be the second try.
            if !list.contains(why) {
                list.push(why.clone());
            }
        }
        bucket.put_json(&key, &results).await?;
        Ok(())
    }
}

/// Deletes a restore's files and lets its object go. A bucket that does not answer keeps it. Nobody
/// waits for its volumes any more: they are given up.
pub(super) async fn delete(ctx: &Arc<Context>, restore: Restore) -> Result<()> {
    let uid = restore.uid().unwrap_or_default();
    movements::cancel_all::<DataDownload>(ctx, &uid).await?;
    let labels = format!("{}={uid}", label::RESTORE_UID);
    for request in ctx.list::<PodVolumeRestore>(&labels).await? {
        if !request.phase().is_over() && request.spec.cancel != Some(true) {
            pods::cancel(ctx, &request).await?;
        }
    }
    if let Some(bucket) = bucket(ctx, &restore).await? {
        let folder = format!("restores/{}", restore.name_any());
        if let Err(errors) = bucket.delete_folder(&folder).await {
            let why: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(Error::Setup(format!("delete {folder}: {}", why.join("; "))));
        }
    }
    let mut new = restore.clone();
    new.finalizers_mut()
        .retain(|name| name != finalizer::RESTORE);
    match ctx.update(&restore, &new).await {
        Err(error) if error.is_stale() => Ok(()),
        done => done.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_phase_says_whether_all_went_well() {
        let operation = |phase: &str| -> RestoreOperation {
            serde_json::from_value(json!({"spec": {"restoreName": "r", "restoreUID": "u", "restoreItemAction": "a", "resourceIdentifier": {"Group": "", "Resource": "pods", "Namespace": "n", "Name": "p"}, "operationID": "o"}, "status": {"phase": phase}})).unwrap()
        };
        for (before, operations, errors, phase, counted) in [
            (
                RestorePhase::Finalizing,
                vec![],
                0,
                RestorePhase::Completed,
                None,
            ),
            (
                RestorePhase::Finalizing,
                vec![],
                2,
                RestorePhase::PartiallyFailed,
                Some(2),
            ),
            (
                RestorePhase::FinalizingPartiallyFailed,
                vec![],
                0,
                RestorePhase::PartiallyFailed,
                None,
            ),
            (
                RestorePhase::WaitingForPluginOperations,
                vec!["Completed"],
                0,
                RestorePhase::Completed,
                None,
            ),
            (
                RestorePhase::WaitingForPluginOperations,
                vec!["Failed", "Completed"],
                0,
                RestorePhase::PartiallyFailed,
                Some(1),
            ),
        ] {
            let mut status = RestoreStatus {
                phase: Some(before.clone()),
                ..RestoreStatus::default()
            };
            let operations: Vec<_> = operations.into_iter().map(operation).collect();
            last(&mut status, &operations, errors, None);
            assert_eq!(
                (status.phase, status.errors),
                (Some(phase), counted),
                "{before:?}"
            );
        }
    }
}
