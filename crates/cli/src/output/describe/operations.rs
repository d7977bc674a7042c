//! Operations that plugins went on with after the objects were done.

use bowline_api::files::{BackupOperation, OperationStatus, ResourceIdentifier, RestoreOperation};
use serde::Serialize;
use serde_json::{Value, json};

use super::Describer;
use crate::download::file::File;

/// How many there were; the status counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Begun.
    pub(crate) attempted: i64,
    /// Done.
    pub(crate) completed: i64,
    /// Failed.
    pub(crate) failed: i64,
}

/// An operation of a backup or of a restore.
pub(crate) trait Operation: Serialize {
    /// Whose it is, as headings say it.
    const OF: &'static str;

    /// The object it is about.
    fn item(&self) -> &ResourceIdentifier;
    /// The plugin's action.
    fn action(&self) -> &str;
    /// Its id.
    fn id(&self) -> &str;
    /// The objects that are read again afterwards.
    fn items_to_update(&self) -> &[ResourceIdentifier];
    /// How far it is.
    fn status(&self) -> &OperationStatus;
}

impl Operation for BackupOperation {
    const OF: &'static str = "Backup";

    fn item(&self) -> &ResourceIdentifier {
        &self.spec.resource_identifier
    }
    fn action(&self) -> &str {
        &self.spec.backup_item_action
    }
    fn id(&self) -> &str {
        &self.spec.operation_id
    }
    fn items_to_update(&self) -> &[ResourceIdentifier] {
        self.spec.post_operation_items.as_deref().unwrap_or(&[])
    }
    fn status(&self) -> &OperationStatus {
        &self.status
    }
}

impl Operation for RestoreOperation {
    const OF: &'static str = "Restore";

    fn item(&self) -> &ResourceIdentifier {
        &self.spec.resource_identifier
    }
    fn action(&self) -> &str {
        &self.spec.restore_item_action
    }
    fn id(&self) -> &str {
        &self.spec.operation_id
    }
    fn items_to_update(&self) -> &[ResourceIdentifier] {
        &[]
    }
    fn status(&self) -> &OperationStatus {
        &self.status
    }
}

/// For people: how many there were, or with details each of them. Nothing if there were none.
pub(crate) fn text<T: Operation>(
    d: &mut Describer<'_>,
    counts: Counts,
    file: Option<&File<Vec<T>>>,
) {
    let Counts {
        attempted,
        completed,
        failed,
    } = counts;
    if attempted <= 0 {
        return;
    }
    let label = format!("{} Item Operations", T::OF);
    match file {
        None => d.field(
            0,
            &label,
            format_args!(
                "{completed} of {attempted} completed successfully, {failed} failed \
                 (specify --details for more information)"
            ),
        ),
        Some(File::Missing) => {
            d.field(0, &label, "<error getting operation info: file not found>");
        }
        Some(File::Failed(why)) => {
            d.field(
                0,
                &label,
                format_args!("<error getting operation info: {why}>"),
            );
        }
        Some(File::Unreadable(why)) => {
            d.field(
                0,
                &label,
                format_args!("<error reading operation info: {why}>"),
            );
        }
        Some(File::Found(operations)) => {
            d.line(format_args!("{label}:"));
            for each in operations {
                operation(d, each);
            }
        }
    }
}

fn operation<T: Operation>(d: &mut Describer<'_>, operation: &T) {
    d.line(format_args!("\tOperation for {}:", item(operation.item())));
    let plugin = format!("{} Item Action Plugin", T::OF);
    d.field(2, &plugin, operation.action());
    d.field(2, "Operation ID", operation.id());
    let items = operation.items_to_update();
    if !items.is_empty() {
        d.line("\t\tItems to Update:");
    }
    for each in items {
        d.line(format_args!("\t\t\t{}", item(each)));
    }
    let status = operation.status();
    let phase = status.phase.as_ref().map(|phase| phase.as_str());
    d.field(2, "Phase", phase.unwrap_or_default());
    if let Some(error) = status.error.as_ref().filter(|error| !error.is_empty()) {
        d.field(2, "Operation Error", error);
    }
    let count = |n: Option<i64>| n.unwrap_or_default();
    let (done, total) = (count(status.n_completed), count(status.n_total));
    if done > 0 || total > 0 {
        let units = status.operation_units.as_deref().unwrap_or_default();
        d.field(
            2,
            "Progress",
            format_args!("{done} of {total} complete ({units})"),
        );
    }
    if let Some(text) = status.description.as_ref().filter(|text| !text.is_empty()) {
        d.field(2, "Progress description", text);
    }
    for (label, time) in [
        ("Created", status.created),
        ("Started", status.started),
        ("Updated", status.updated),
    ] {
        if let Some(time) = time {
            d.field(2, label, d.time(time.0));
        }
    }
}

/// `pods shop/web`, `deployments.apps shop/web`.
fn item(item: &ResourceIdentifier) -> String {
    let dot = if item.group.is_empty() { "" } else { "." };
    format!(
        "{}{dot}{} {}/{}",
        item.resource, item.group, item.namespace, item.name
    )
}

/// For programs; nothing if there were none.
pub(crate) fn structured<T: Operation>(
    counts: Counts,
    file: Option<&File<Vec<T>>>,
) -> Option<Value> {
    if counts.attempted <= 0 {
        return None;
    }
    let mut value = json!({
        "attempted": counts.attempted,
        "completed": counts.completed,
        "failed": counts.failed,
    });
    match file {
        None => {}
        Some(File::Found(list)) => value["operations"] = json!(list),
        Some(File::Missing) => value["errorGettingOperations"] = json!("file not found"),
        Some(File::Failed(why) | File::Unreadable(why)) => {
            value["errorGettingOperations"] = json!(why);
        }
    }
    Some(value)
}
