//! Operations that plugins went on with after the objects were in the bucket, for people.

use bowline_api::{
    files::{BackupOperation, ResourceIdentifier},
    v1::BackupStatus,
};

use super::facts::{Facts, File};
use crate::output::describe::Describer;

/// How many there were, or with details each of them.
pub(super) fn text(d: &mut Describer<'_>, facts: &Facts, status: &BackupStatus) {
    const LABEL: &str = "Backup Item Operations";
    let attempted = status.backup_item_operations_attempted.unwrap_or_default();
    if attempted <= 0 {
        return;
    }
    match &facts.operations {
        None => {
            let completed = status.backup_item_operations_completed.unwrap_or_default();
            let failed = status.backup_item_operations_failed.unwrap_or_default();
            let text = format!(
                "{completed} of {attempted} completed successfully, {failed} failed \
                 (specify --details for more information)"
            );
            d.field(0, LABEL, text);
        }
        Some(File::Missing) => {
            d.field(0, LABEL, "<error getting operation info: file not found>");
        }
        Some(File::Failed(why)) => {
            d.field(
                0,
                LABEL,
                format_args!("<error getting operation info: {why}>"),
            );
        }
        Some(File::Unreadable(why)) => {
            d.field(
                0,
                LABEL,
                format_args!("<error reading operation info: {why}>"),
            );
        }
        Some(File::Found(operations)) => {
            d.line(format_args!("{LABEL}:"));
            for each in operations {
                operation(d, each);
            }
        }
    }
}

fn operation(d: &mut Describer<'_>, operation: &BackupOperation) {
    let (spec, status) = (&operation.spec, &operation.status);
    d.line(format_args!(
        "\tOperation for {}:",
        item(&spec.resource_identifier)
    ));
    d.field(2, "Backup Item Action Plugin", &spec.backup_item_action);
    d.field(2, "Operation ID", &spec.operation_id);
    let items = spec.post_operation_items.clone().unwrap_or_default();
    if !items.is_empty() {
        d.line("\t\tItems to Update:");
    }
    for each in &items {
        d.line(format_args!("\t\t\t{}", item(each)));
    }
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
