//! A restore whose objects are there, while others go on: plugins, and whoever moves data back.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    files::{OperationPhase, RestoreOperation, restore_suffix},
    json,
    v1::Restore,
    v2alpha1::DataDownload,
};
use bowline_plugin::host::Plugins;
use bowline_vault::{Bucket, bucket::restore_file};
use bytes::Bytes;
use kube::ResourceExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    super::operations::{self, Of, count, is_over, movements},
    run::write,
};
use crate::{Context, Result, plugins};

/// Waits for all operations of a restore; none when it is given up or the server stops meanwhile.
pub(super) async fn wait(
    ctx: &Arc<Context>,
    restore: &Restore,
    bucket: &Bucket,
    cancel: &CancellationToken,
) -> Result<Option<Vec<RestoreOperation>>> {
    let key = restore_file(&restore.name_any(), restore_suffix::ITEM_OPERATIONS);
    let mut operations: Vec<RestoreOperation> = bucket.json(&key).await?.unwrap_or_default();
    if !is_open(&operations) {
        return Ok(Some(operations));
    }
    let mut actions = Actions::start(ctx, restore, &operations).await;
    let usual = ctx.settings.item_operation_sync_frequency;
    // Bytes that are moved on are written down at the pace of plugins, all else at once.
    let (mut is_changed, mut next) = (false, Instant::now());
    let is_done = loop {
        let before = phases(&operations);
        is_changed |= actions.ask(ctx, &mut operations).await;
        let is_news = phases(&operations) != before;
        if is_changed && (is_news || Instant::now() >= next) {
            bucket.put_json(&key, &operations).await?;
            tell(ctx, restore, &operations).await?;
            (is_changed, next) = (false, Instant::now() + usual);
        }
        if !is_open(&operations) {
            break true;
        }
        tokio::select! {
            () = tokio::time::sleep(pace(usual, &operations)) => {}
            () = cancel.cancelled() => break false,
            () = ctx.stop.cancelled() => break false,
        }
    };
    actions.stop().await;
    Ok(is_done.then_some(operations))
}

/// The actions whose operations are under way.
struct Actions {
    /// None if only data is moved.
    plugins: Option<Plugins>,
    /// When plugins are asked again.
    next: Instant,
    owner: Bytes,
    uid: String,
    limit: Duration,
}

impl Actions {
    async fn start(ctx: &Arc<Context>, restore: &Restore, operations: &[RestoreOperation]) -> Self {
        let mut open = operations.iter().filter(|o| !is_over(&o.status));
        let plugins = match open.any(|operation| !is_movement(operation)) {
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
            owner: json::to_vec(restore).unwrap_or_default().into(),
            uid: restore.uid().unwrap_or_default(),
            limit: limit(ctx, restore),
        }
    }

    /// Whether anything has changed.
    async fn ask(&mut self, ctx: &Context, operations: &mut [RestoreOperation]) -> bool {
        let asked = operations.iter_mut().map(Into::into);
        let limit = self.limit;
        let is_changed = movements::ask::<DataDownload>(ctx, &self.uid, asked, limit).await;
        let Some(plugins) = self
            .plugins
            .as_ref()
            .filter(|_| Instant::now() >= self.next)
        else {
            return is_changed;
        };
        let asked = operations.iter_mut().map(Into::into);
        let told = operations::ask(plugins, Of::Restore, &self.owner, asked, limit).await;
        self.next = Instant::now() + ctx.settings.item_operation_sync_frequency;
        told || is_changed
    }

    async fn stop(&self) {
        if let Some(plugins) = &self.plugins {
            plugins.stop().await;
        }
    }
}

fn is_movement(operation: &RestoreOperation) -> bool {
    movements::is_movement(&operation.spec.restore_item_action)
}

fn is_open(operations: &[RestoreOperation]) -> bool {
    operations
        .iter()
        .any(|operation| !is_over(&operation.status))
}

fn phases(operations: &[RestoreOperation]) -> Vec<Option<OperationPhase>> {
    let phase = |operation: &RestoreOperation| operation.status.phase.clone();
    operations.iter().map(phase).collect()
}

/// How long until operations are looked at again.
fn pace(usual: Duration, operations: &[RestoreOperation]) -> Duration {
    let mut open = operations.iter().filter(|o| !is_over(&o.status));
    match open.any(is_movement) {
        true => usual.min(movements::LOOK),
        false => usual,
    }
}

/// How long an operation of a restore may go on.
fn limit(ctx: &Context, restore: &Restore) -> Duration {
    let said = restore.spec.item_operation_timeout.as_ref();
    let nanos = said.and_then(|said| said.nanos().ok());
    let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
    match nanos {
        None | Some(0) => ctx.settings.default_item_operation_timeout,
        Some(nanos) => Duration::from_nanos(nanos),
    }
}

/// Says in the restore's status how many operations are over.
async fn tell(ctx: &Context, restore: &Restore, operations: &[RestoreOperation]) -> Result<()> {
    let statuses = || operations.iter().map(|operation| &operation.status);
    let mut status = restore.status.clone().unwrap_or_default();
    status.restore_item_operations_completed = count(statuses(), &OperationPhase::Completed);
    status.restore_item_operations_failed = count(statuses(), &OperationPhase::Failed);
    write(ctx, restore, &status).await.map(drop)
}
