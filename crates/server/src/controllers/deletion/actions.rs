//! Delete item actions: whoever put something outside the bucket for an item of a backup takes it
//! away again.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_api::{files::backup_suffix, v1::Backup};
use bowline_vault::{Bucket, archive::read::Reader, bucket::backup_file};
use kube::ResourceExt;
use serde_json::Value;

/// Is called for the items of a backup that is deleted.
#[async_trait]
pub trait DeleteItemAction: Send + Sync {
    /// The registered name, `velero.io/dataupload-delete`.
    fn name(&self) -> &str;
    /// Whether it wants items of this resource, `datauploads.velero.io`.
    fn applies_to(&self, resource: &str) -> bool;
    /// Whether it wants this one of them.
    fn concerns(&self, item: &Value) -> bool {
        let _ = item;
        true
    }
    /// Takes away what belongs to an item.
    ///
    /// # Errors
    /// What could not be taken away. The deletion of the backup goes on.
    async fn execute(&self, item: &Value, backup: &Backup) -> Result<(), String>;
}

/// Runs the actions over the items of a backup, each for so long at most. What they could not do is logged, and the errors
/// that keep the backup from being deleted are returned: an archive that could not be read now, but
/// not one that is not there.
///
/// # Errors
/// When the archive is damaged.
pub async fn run(
    bucket: &Bucket,
    backup: &Backup,
    actions: &[Arc<dyn DeleteItemAction>],
    patience: Duration,
) -> Result<Vec<String>, bowline_vault::Error> {
    if actions.is_empty() {
        return Ok(Vec::new());
    }
    let key = backup_file(&backup.name_any(), backup_suffix::CONTENTS);
    let body = match bucket.get(&key).await {
        Ok(body) => body,
        Err(e) if e.is_not_found() => {
            tracing::info!(
                backup = backup.name_any(),
                "there is no archive to look through"
            );
            return Ok(Vec::new());
        }
        Err(e) => return Ok(vec![unread(&e)]),
    };
    match walk(Reader::new(&key, body), backup, actions, patience).await {
        Ok(()) => Ok(Vec::new()),
        Err(e) if e.is_permanent() => Err(e),
        Err(e) => Ok(vec![unread(&e)]),
    }
}

fn unread(error: &bowline_vault::Error) -> String {
    format!("error downloading backup tarball, CSI snapshot cleanup was skipped: {error}")
}

async fn walk(
    mut archive: Reader,
    backup: &Backup,
    actions: &[Arc<dyn DeleteItemAction>],
    patience: Duration,
) -> Result<(), bowline_vault::Error> {
    while let Some(item) = archive.next().await? {
        // Objects are there once more by version; once is enough.
        let Some(entry) = item.entry.filter(|entry| entry.version.is_none()) else {
            continue;
        };
        let wanted = |action: &&Arc<dyn DeleteItemAction>| action.applies_to(&entry.resource);
        let wanted: Vec<_> = actions.iter().filter(wanted).collect();
        if wanted.is_empty() {
            continue;
        }
        let body = archive.body().await?;
        let object: Value =
            serde_json::from_slice(&body).map_err(|e| bowline_vault::Error::Damaged {
                key: item.path.clone(),
                reason: e.to_string(),
            })?;
        for action in wanted {
            if !action.concerns(&object) {
                continue;
            }
            let done = tokio::time::timeout(patience, action.execute(&object, backup)).await;
            let done = done.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
            if let Err(why) = done {
                tracing::error!(
                    backup = backup.name_any(),
                    action = action.name(),
                    item = item.path,
                    "delete item action failed: {why}"
                );
            }
        }
    }
    Ok(())
}
