//! DownloadRequest: answers with a signed address for a file of a backup or restore.
//!
//! A request that cannot be served stays unanswered until it expires, as with Velero: the wire knows
//! no other answer. The log says why.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    Time,
    files::{backup_suffix, restore_suffix},
    v1::{
        Backup, BackupStorageLocation, DownloadRequest, DownloadRequestPhase as Phase,
        DownloadTarget, DownloadTargetKind as Kind, Restore,
    },
};
use bowline_vault::{
    Bucket,
    bucket::{backup_file, restore_file},
};
use jiff::Timestamp;
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, at};
use crate::{Context, Error, Result};

/// The controller's name.
pub const NAME: &str = "download-request";

/// How long an address is good for, and its request kept.
const KEPT: Duration = Duration::from_secs(10 * 60);
/// How soon a request is tried again that could not be served.
const RETRY: Duration = Duration::from_secs(10);

/// Answers requests until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let requests = Requests {
        ctx: Arc::clone(&ctx),
    };
    super::run(&ctx, requests).await;
}

struct Requests {
    ctx: Arc<Context>,
}

#[derive(Debug, PartialEq)]
enum Step {
    Serve,
    Keep(Timestamp),
    Delete,
}

fn next(request: &DownloadRequest, now: Timestamp) -> Step {
    let status = request.status.as_ref();
    let is_answered = status.and_then(|s| s.phase.as_ref()) == Some(&Phase::Processed);
    match status.and_then(|status| status.expiration) {
        Some(end) if end.0 < now => Step::Delete,
        Some(end) if is_answered => Step::Keep(end.0),
        _ => Step::Serve,
    }
}

/// Whose file it is: that of a restore, or of a backup.
fn is_of_restore(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::RestoreLog
            | Kind::RestoreResults
            | Kind::RestoreResourceList
            | Kind::RestoreItemOperations
            | Kind::RestoreVolumeInfo
    )
}

/// The key of the file that is asked for; none for a kind that this version does not know.
fn key(target: &DownloadTarget) -> Option<String> {
    let name = &target.name;
    let backup = |suffix| Some(backup_file(name, suffix));
    let restore = |suffix| Some(restore_file(name, suffix));
    match target.kind {
        Kind::BackupLog => backup(backup_suffix::LOG),
        Kind::BackupContents => backup(backup_suffix::CONTENTS),
        Kind::BackupVolumeSnapshots => backup(backup_suffix::VOLUME_SNAPSHOTS),
        Kind::BackupItemOperations => backup(backup_suffix::ITEM_OPERATIONS),
        Kind::BackupResourceList => backup(backup_suffix::RESOURCE_LIST),
        Kind::BackupResults => backup(backup_suffix::RESULTS),
        Kind::BackupVolumeInfos => backup(backup_suffix::VOLUME_INFO),
        Kind::CsiBackupVolumeSnapshots => backup(backup_suffix::CSI_VOLUME_SNAPSHOTS),
        Kind::CsiBackupVolumeSnapshotContents => {
            backup(backup_suffix::CSI_VOLUME_SNAPSHOT_CONTENTS)
        }
        Kind::RestoreLog => restore(restore_suffix::LOG),
        Kind::RestoreResults => restore(restore_suffix::RESULTS),
        Kind::RestoreResourceList => restore(restore_suffix::RESOURCE_LIST),
        Kind::RestoreItemOperations => restore(restore_suffix::ITEM_OPERATIONS),
        Kind::RestoreVolumeInfo => restore(restore_suffix::VOLUME_INFO),
        Kind::Other(_) => None,
    }
}

impl Reconciler for Requests {
    type Object = DownloadRequest;
    const NAME: &'static str = NAME;

    async fn reconcile(self: Arc<Self>, request: Arc<DownloadRequest>) -> Result<Action> {
        let ctx = &self.ctx;
        let now = ctx.now();
        match next(&request, now) {
            Step::Delete => {
                ctx.delete(&*request).await?;
                return Ok(Action::await_change());
            }
            Step::Keep(end) => return Ok(at(end, now)),
            Step::Serve => {}
        }
        let target = &request.spec.target;
        let address = match (key(target), self.bucket(target).await?) {
            (Some(key), Ok(bucket)) => bucket.sign(&key, KEPT).await.map_err(|e| e.to_string()),
            (None, _) => Err(format!("there is no file {}", target.kind)),
            (_, Err(why)) => Err(why),
        };
        let mut new = DownloadRequest::clone(&request);
        let status = new.status_mut();
        let end = Time(now + KEPT);
        match address {
            Ok(address) => {
                status.download_url = Some(address);
                status.phase = Some(Phase::Processed);
                status.expiration = Some(end);
                ctx.update(&*request, &new).await?;
                Ok(at(end.0, now))
            }
            Err(why) => {
                if status.expiration.is_none() {
                    status.expiration = Some(end);
                    tracing::warn!(
                        request = request.name_any(),
                        kind = %target.kind,
                        name = target.name,
                        "download request cannot be served: {why}"
                    );
                    ctx.update(&*request, &new).await?;
                }
                Ok(Action::requeue(RETRY))
            }
        }
    }
}

impl Requests {
    /// The bucket with the file, or why there is none.
    async fn bucket(&self, target: &DownloadTarget) -> Result<Result<Bucket, String>> {
        let ctx = &self.ctx;
        let backup = if is_of_restore(&target.kind) {
            let Some(restore) = ctx.find::<Restore>(&target.name).await? else {
                return Ok(Err(format!("restore {} not found", target.name)));
            };
            restore.spec.backup_name.unwrap_or_default()
        } else {
            target.name.clone()
        };
        let Some(found) = ctx.find::<Backup>(&backup).await? else {
            return Ok(Err(format!("backup {backup} not found")));
        };
        let location = found.spec.storage_location.unwrap_or_default();
        let Some(location) = ctx.find::<BackupStorageLocation>(&location).await? else {
            return Ok(Err(format!(
                "backup storage location {location:?} of backup {backup} not found"
            )));
        };
        match ctx.bucket(&location).await {
            Ok(bucket) => Ok(Ok(bucket)),
            Err(e @ Error::Api { .. }) => Err(e),
            Err(e) => Ok(Err(e.chain())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_file() {
        for (kind, expected) in [
            ("BackupLog", "backups/n/n-logs.gz"),
            ("BackupContents", "backups/n/n.tar.gz"),
            (
                "BackupVolumeSnapshots",
                "backups/n/n-volumesnapshots.json.gz",
            ),
            ("BackupItemOperations", "backups/n/n-itemoperations.json.gz"),
            ("BackupResourceList", "backups/n/n-resource-list.json.gz"),
            ("BackupResults", "backups/n/n-results.gz"),
            ("RestoreLog", "restores/n/restore-n-logs.gz"),
            ("RestoreResults", "restores/n/restore-n-results.gz"),
            (
                "RestoreResourceList",
                "restores/n/restore-n-resource-list.json.gz",
            ),
            (
                "RestoreItemOperations",
                "restores/n/restore-n-itemoperations.json.gz",
            ),
            (
                "CSIBackupVolumeSnapshots",
                "backups/n/n-csi-volumesnapshots.json.gz",
            ),
            (
                "CSIBackupVolumeSnapshotContents",
                "backups/n/n-csi-volumesnapshotcontents.json.gz",
            ),
            ("BackupVolumeInfos", "backups/n/n-volumeinfo.json.gz"),
            ("RestoreVolumeInfo", "restores/n/n-volumeinfo.json.gz"),
        ] {
            let target = DownloadTarget {
                kind: Kind::from(kind),
                name: "n".to_owned(),
                ..Default::default()
            };
            assert_eq!(key(&target).as_deref(), Some(expected));
            assert_eq!(
                is_of_restore(&target.kind),
                expected.starts_with("restores/")
            );
        }
        assert_eq!(key(&DownloadTarget::default()), None);
    }

    #[test]
    fn requests_are_served_kept_and_deleted() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (phase, expiration, expected) in [
            (None, None, Step::Serve),
            (Some(Phase::New), None, Step::Serve),
            // Could not be served before; perhaps now.
            (None, Some(1100), Step::Serve),
            (None, Some(900), Step::Delete),
            (Some(Phase::Processed), Some(1100), Step::Keep(at(1100))),
            (Some(Phase::Processed), Some(900), Step::Delete),
        ] {
            let mut request = DownloadRequest::default();
            request.status_mut().phase = phase;
            request.status_mut().expiration = expiration.map(|time| Time(at(time)));
            assert_eq!(next(&request, at(1000)), expected);
        }
    }
}
