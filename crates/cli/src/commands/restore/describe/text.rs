//! The description of a restore for people, laid out as Velero lays it out.

use bowline_api::{
    Duration,
    v1::{RestorePhase, RestoreSpec, RestoreStatus},
};
use kube::ResourceExt;

use super::{facts::Facts, volumes};
use crate::{
    commands::restore::{phase, phase_in_words},
    flags::selector,
    output::{
        describe::{
            Colour, Describer, NONE, joined, live, operations,
            pods::{self, Phases},
            resources, results, switch,
        },
        time::Clock,
    },
};

/// The whole description.
pub(super) fn describe(facts: &Facts, colour: Colour, clock: &Clock) -> String {
    let mut d = Describer::new(colour, clock);
    let (restore, status) = (&facts.restore, facts.status());
    d.metadata(&restore.metadata);
    d.blank();
    progress(&mut d, facts, &status);
    d.validation_errors(status.validation_errors.as_ref());
    if let Some(file) = &facts.results {
        results::text(&mut d, file, facts.findings());
    }
    d.blank();
    filters(&mut d, &restore.spec);
    d.blank();
    let switched = |value| switch(value, "false", "true", "auto");
    d.field(0, "Restore PVs", switched(restore.spec.restore_pvs));
    pod_volumes(&mut d, facts);
    if !facts.plugin_volumes.is_empty() {
        d.blank();
        let heading = "Volume Plugin Restores";
        live::text(&mut d, 0, heading, &facts.plugin_volumes, facts.details);
    }
    if !facts.movements.is_empty() {
        d.blank();
        let heading = "Data Downloads";
        live::text(&mut d, 0, heading, &facts.movements, facts.details);
    }
    volumes::text(&mut d, facts);
    d.blank();
    settings(&mut d, &restore.spec);
    d.blank();
    operations::text(&mut d, facts.operation_counts(), facts.operations.as_ref());
    if let Some(hooks) = &status.hook_status {
        d.blank();
        // The space before the tab is Velero's, and so is its effect on the next column.
        let attempted = hooks.hooks_attempted.unwrap_or_default();
        d.line(format_args!("HooksAttempted: \t{attempted}"));
        let failed = hooks.hooks_failed.unwrap_or_default();
        d.line(format_args!("HooksFailed: \t{failed}"));
    }
    if let Some(file) = &facts.resources {
        d.blank();
        resources::text(&mut d, "restore", file);
    }
    volumes::all(&mut d, facts);
    d.finish()
}

fn progress(d: &mut Describer<'_>, facts: &Facts, status: &RestoreStatus) {
    let phase = phase(&facts.restore);
    let words = phase_in_words(&facts.restore);
    let words = match phase {
        RestorePhase::Completed => d.colour.green(&words),
        RestorePhase::FailedValidation | RestorePhase::PartiallyFailed | RestorePhase::Failed => {
            d.colour.red(&words)
        }
        _ => words,
    };
    let note = match phase {
        RestorePhase::Failed | RestorePhase::PartiallyFailed => {
            let name = facts.restore.name_any();
            format!(" (run 'bowline restore logs {name}' for more information)")
        }
        _ => String::new(),
    };
    d.field(0, "Phase", format_args!("{words}{note}"));
    if let Some(progress) = &status.progress {
        let (total, done) = match phase {
            RestorePhase::InProgress => (
                "Estimated total items to be restored",
                "Items restored so far",
            ),
            _ => ("Total items to be restored", "Items restored"),
        };
        d.field(0, total, progress.total_items.unwrap_or_default());
        d.field(0, done, progress.items_restored.unwrap_or_default());
    }
    d.blank();
    let clock = d.clock;
    for (label, time) in [
        ("Started", status.start_timestamp),
        ("Completed", status.completion_timestamp),
    ] {
        d.field(0, label, clock.show_or(time, "<n/a>"));
    }
}

fn filters(d: &mut Describer<'_>, spec: &RestoreSpec) {
    const ALL: &str = "all namespaces found in the backup";
    d.field(0, "Backup", spec.backup_name.as_deref().unwrap_or_default());
    d.blank();
    d.line("Namespaces:");
    let included = match spec.included_namespaces.as_deref() {
        Some([only]) if only == "*" => ALL.to_owned(),
        _ => joined(spec.included_namespaces.as_ref(), ALL),
    };
    d.field(1, "Included", included);
    d.field(
        1,
        "Excluded",
        joined(spec.excluded_namespaces.as_ref(), NONE),
    );
    d.blank();
    d.line("Resources:");
    d.field(1, "Included", joined(spec.included_resources.as_ref(), "*"));
    d.field(
        1,
        "Excluded",
        joined(spec.excluded_resources.as_ref(), NONE),
    );
    let cluster = switch(
        spec.include_cluster_resources,
        "excluded",
        "included",
        "auto",
    );
    d.field(1, "Cluster-scoped", cluster);
    d.blank();
    d.map("Namespace mappings", spec.namespace_mapping.as_ref());
    d.blank();
    d.field(
        0,
        "Label selector",
        selector::show(spec.label_selector.as_ref()),
    );
    d.blank();
    d.field(
        0,
        "Or label selector",
        selector::show_any(spec.or_label_selectors.as_ref()),
    );
}

fn pod_volumes(d: &mut Describer<'_>, facts: &Facts) {
    if facts.pod_volumes.is_empty() {
        return;
    }
    d.blank();
    let uploader = pods::uploader_of(&facts.pod_volumes);
    match facts.details {
        true => d.line(format_args!("{uploader} Restores:")),
        false => d.line(format_args!(
            "{uploader} Restores (specify --details for more information):"
        )),
    }
    Phases::OF_RESTORE.text(d, 1, &facts.pod_volumes, facts.details);
}

fn settings(d: &mut Describer<'_>, spec: &RestoreSpec) {
    let policy = spec.existing_resource_policy.as_ref();
    let policy = policy.map_or("", |policy| policy.as_str());
    let policy = if policy.is_empty() { NONE } else { policy };
    d.line(format_args!("Existing Resource Policy: \t{policy}"));
    let timeout = spec.item_operation_timeout.clone();
    d.field(0, "ItemOperationTimeout", timeout.unwrap_or(Duration::ZERO));
    d.blank();
    let ports = switch(spec.preserve_node_ports, "false", "true", "auto");
    d.field(0, "Preserve Service NodePorts", ports);
    d.reference("Resource modifier", spec.resource_modifier.as_ref());
    d.reference("Resource policies", spec.resource_policy.as_ref());
    let Some(config) = &spec.uploader_config else {
        return;
    };
    d.blank();
    d.line("Uploader config:");
    if config.write_sparse_files == Some(true) {
        d.field(1, "Write Sparse Files", true);
    }
    if let Some(files) = config.parallel_files_download.filter(|files| *files > 0) {
        d.field(1, "Parallel Restore", files);
    }
}
