//! The description of a backup for people, laid out as Velero lays it out.

use bowline_api::{
    files::{BackupOperation, Findings, ResourceIdentifier, ResourceList, Results},
    names::annotation,
    v1::{BackupPhase, BackupSpec, BackupStatus, ExecHook},
};
use kube::ResourceExt;

use super::{
    facts::{Facts, File},
    volumes,
};
use crate::{
    commands::backup::spec::data_mover,
    flags::selector,
    output::{
        describe::{Colour, Describer, NONE, joined, switch},
        time::Clock,
    },
};

/// The whole description.
pub(crate) fn describe(facts: &Facts, colour: Colour, clock: &Clock) -> String {
    let mut d = Describer::new(colour, clock);
    let (backup, status) = (&facts.backup, facts.status());
    d.metadata(&backup.metadata);
    d.blank();
    phase(&mut d, &backup.name_any(), &status);
    policies(&mut d, &backup.spec);
    let global = backup.annotations().get(annotation::GLOBAL_VOLUME_POLICY);
    if let Some(name) = global.filter(|name| !name.is_empty()) {
        d.blank();
        d.line("Global volume policies:");
        d.field(1, "Type", "configmap");
        d.field(1, "Name", name);
    }
    uploader(&mut d, &backup.spec);
    d.validation_errors(status.validation_errors.as_ref());
    d.blank();
    if let Some(file) = &facts.results {
        results(&mut d, file, &status);
    }
    d.blank();
    spec(&mut d, &backup.spec);
    d.blank();
    progress(&mut d, &status);
    operations(&mut d, facts, &status);
    if let Some(file) = &facts.resources {
        resource_list(&mut d, file);
        d.blank();
    }
    volumes::text(&mut d, facts);
    if let Some(hooks) = &status.hook_status {
        d.blank();
        d.field(
            0,
            "HooksAttempted",
            hooks.hooks_attempted.unwrap_or_default(),
        );
        d.field(0, "HooksFailed", hooks.hooks_failed.unwrap_or_default());
    }
    deletions(&mut d, facts);
    d.finish()
}

fn phase(d: &mut Describer<'_>, name: &str, status: &BackupStatus) {
    let phase = match &status.phase {
        Some(phase) if !phase.as_str().is_empty() => phase.clone(),
        _ => BackupPhase::New,
    };
    let word = match phase {
        BackupPhase::FailedValidation | BackupPhase::PartiallyFailed | BackupPhase::Failed => {
            d.colour.red(phase.as_str())
        }
        BackupPhase::Completed => d.colour.green(phase.as_str()),
        _ => phase.to_string(),
    };
    let note = match phase {
        BackupPhase::Failed | BackupPhase::PartiallyFailed => {
            format!(" (run `bowline backup logs {name}` for more information)")
        }
        _ => String::new(),
    };
    d.field(0, "Phase", format_args!("{word}{note}"));
    if phase == BackupPhase::Queued {
        d.field(
            0,
            "Queue position",
            status.queue_position.unwrap_or_default(),
        );
    }
}

/// The ConfigMap with volume policies, if there is one.
pub(crate) fn policies(d: &mut Describer<'_>, spec: &BackupSpec) {
    if let Some(policy) = &spec.resource_policy {
        d.blank();
        d.line("Resource policies:");
        d.field(1, "Type", &policy.kind);
        d.field(1, "Name", &policy.name);
    }
}

/// Settings of the volume upload, if there are any.
pub(crate) fn uploader(d: &mut Describer<'_>, spec: &BackupSpec) {
    let config = spec.uploader_config.as_ref();
    let parallel = config.and_then(|config| config.parallel_files_upload);
    if let Some(files) = parallel.filter(|files| *files > 0) {
        d.blank();
        d.line("Uploader config:");
        d.field(1, "Parallel files upload", files);
    }
}

fn results(d: &mut Describer<'_>, file: &File<Results>, status: &BackupStatus) {
    let (warnings, errors) = (
        status.warnings.unwrap_or_default(),
        status.errors.unwrap_or_default(),
    );
    let mut both_failed = |verb: &str, why: &str| {
        d.field(
            0,
            "Warnings",
            format_args!("<error {verb} warnings: {why}>"),
        );
        d.blank();
        d.field(0, "Errors", format_args!("<error {verb} errors: {why}>"));
    };
    match file {
        File::Missing => {
            d.field(0, "Errors", errors);
            d.field(0, "Warnings", warnings);
        }
        File::Failed(why) => both_failed("getting", why),
        File::Unreadable(why) => both_failed("decoding", why),
        File::Found(results) => {
            if warnings > 0 {
                d.blank();
                findings(d, "Warnings", &results.warnings);
            }
            if errors > 0 {
                d.blank();
                findings(d, "Errors", &results.errors);
            }
        }
    }
}

fn findings(d: &mut Describer<'_>, heading: &str, findings: &Findings) {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    d.line(format_args!("{heading}:"));
    d.list(1, "Velero", &list(&findings.velero));
    d.list(1, "Cluster", &list(&findings.cluster));
    match &findings.namespaces {
        Some(namespaces) if !namespaces.is_empty() => {
            d.line("\tNamespaces:");
            for (namespace, messages) in namespaces {
                d.list(2, namespace, messages);
            }
        }
        _ => d.line("\tNamespaces: <none>"),
    }
}

/// What a backup or the template of a schedule holds.
pub(crate) fn spec(d: &mut Describer<'_>, spec: &BackupSpec) {
    d.line("Namespaces:");
    d.field(
        1,
        "Included",
        joined(spec.included_namespaces.as_ref(), "*"),
    );
    d.field(
        1,
        "Excluded",
        joined(spec.excluded_namespaces.as_ref(), NONE),
    );
    d.blank();
    resources(d, spec);
    d.blank();
    let selector = selector::show(spec.label_selector.as_ref());
    d.field(0, "Label selector", selector);
    d.blank();
    d.field(0, "Or label selector", alternatives(spec));
    d.blank();
    let location = spec.storage_location.as_deref().unwrap_or_default();
    d.field(0, "Storage Location", location);
    d.blank();
    let switched = |value| switch(value, "false", "true", "auto");
    d.field(
        0,
        "Velero-Native Snapshot PVs",
        switched(spec.snapshot_volumes),
    );
    if let Some(default) = spec.default_volumes_to_fs_backup {
        d.field(0, "File System Backup (Default)", default);
    }
    d.field(0, "Snapshot Move Data", switched(spec.snapshot_move_data));
    d.field(0, "Data Mover", data_mover(spec));
    d.blank();
    let span = |duration: &Option<bowline_api::Duration>| {
        duration.clone().unwrap_or(bowline_api::Duration::ZERO)
    };
    d.field(0, "TTL", span(&spec.ttl));
    d.blank();
    d.field(0, "CSISnapshotTimeout", span(&spec.csi_snapshot_timeout));
    d.field(
        0,
        "ItemOperationTimeout",
        span(&spec.item_operation_timeout),
    );
    d.blank();
    hooks(d, spec);
    if let Some(orders) = spec.ordered_resources.as_ref() {
        d.blank();
        d.line("OrderedResources:");
        for (kind, names) in orders {
            d.line(format_args!("\t{kind}: {names}"));
        }
    }
}

/// The selectors of which one must match.
pub(crate) fn alternatives(spec: &BackupSpec) -> String {
    let selectors = spec.or_label_selectors.iter().flatten();
    let shown: Vec<String> = selectors.map(|s| selector::show(Some(s))).collect();
    match shown.is_empty() {
        true => NONE.to_owned(),
        false => shown.join(" or "),
    }
}

/// Whether the older way of choosing resources is used.
pub(crate) fn uses_old_filters(spec: &BackupSpec) -> bool {
    let is_set = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    is_set(&spec.included_resources)
        || is_set(&spec.excluded_resources)
        || spec.include_cluster_resources.is_some()
}

fn resources(d: &mut Describer<'_>, spec: &BackupSpec) {
    d.line("Resources:");
    if uses_old_filters(spec) {
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
        return;
    }
    for (label, list, empty) in [
        (
            "Included cluster-scoped",
            &spec.included_cluster_scoped_resources,
            NONE,
        ),
        (
            "Excluded cluster-scoped",
            &spec.excluded_cluster_scoped_resources,
            NONE,
        ),
        (
            "Included namespace-scoped",
            &spec.included_namespace_scoped_resources,
            "*",
        ),
        (
            "Excluded namespace-scoped",
            &spec.excluded_namespace_scoped_resources,
            NONE,
        ),
    ] {
        d.field(1, label, joined(list.as_ref(), empty));
    }
}

fn hooks(d: &mut Describer<'_>, spec: &BackupSpec) {
    let resources = spec
        .hooks
        .as_ref()
        .and_then(|hooks| hooks.resources.as_ref());
    let Some(resources) = resources.filter(|resources| !resources.is_empty()) else {
        d.field(0, "Hooks", NONE);
        return;
    };
    d.line("Hooks:");
    d.line("\tResources:");
    for hook in resources {
        d.line(format_args!("\t\t{}:", hook.name));
        d.line("\t\t\tNamespaces:");
        d.field(
            4,
            "Included",
            joined(hook.included_namespaces.as_ref(), "*"),
        );
        d.field(
            4,
            "Excluded",
            joined(hook.excluded_namespaces.as_ref(), NONE),
        );
        d.blank();
        d.line("\t\t\tResources:");
        d.field(4, "Included", joined(hook.included_resources.as_ref(), "*"));
        d.field(
            4,
            "Excluded",
            joined(hook.excluded_resources.as_ref(), NONE),
        );
        d.blank();
        d.field(
            3,
            "Label selector",
            selector::show(hook.label_selector.as_ref()),
        );
        for hook in hook.pre.iter().flatten() {
            command(d, "Pre Exec Hook", &hook.exec);
        }
        for hook in hook.post.iter().flatten() {
            command(d, "Post Exec Hook", &hook.exec);
        }
    }
}

fn command(d: &mut Describer<'_>, heading: &str, hook: &ExecHook) {
    d.blank();
    d.line(format_args!("\t\t\t{heading}:"));
    d.field(
        4,
        "Container",
        hook.container.as_deref().unwrap_or_default(),
    );
    d.field(4, "Command", hook.command.join(" "));
    let on_error = hook.on_error.as_ref().map(|mode| mode.as_str());
    d.field(4, "On Error", on_error.unwrap_or_default());
    let timeout = hook.timeout.clone().unwrap_or(bowline_api::Duration::ZERO);
    d.field(4, "Timeout", timeout);
}

fn progress(d: &mut Describer<'_>, status: &BackupStatus) {
    let version = status.format_version.as_deref().unwrap_or_default();
    d.field(0, "Backup Format Version", version);
    d.blank();
    let clock = d.clock;
    d.field(0, "Started", clock.show_or(status.start_timestamp, "<n/a>"));
    d.field(
        0,
        "Completed",
        clock.show_or(status.completion_timestamp, "<n/a>"),
    );
    d.blank();
    d.field(0, "Expiration", clock.show_or(status.expiration, "<nil>"));
    d.blank();
    let Some(progress) = &status.progress else {
        return;
    };
    let (total, done) = match status.phase {
        Some(BackupPhase::InProgress) => (
            "Estimated total items to be backed up",
            "Items backed up so far",
        ),
        _ => ("Total items to be backed up", "Items backed up"),
    };
    d.field(0, total, progress.total_items.unwrap_or_default());
    d.field(0, done, progress.items_backed_up.unwrap_or_default());
    d.blank();
}

fn operations(d: &mut Describer<'_>, facts: &Facts, status: &BackupStatus) {
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

fn resource_list(d: &mut Describer<'_>, file: &File<ResourceList>) {
    const LABEL: &str = "Resource List";
    match file {
        File::Missing => d.field(0, LABEL, "<backup resource list not found>"),
        File::Failed(why) => {
            d.field(
                0,
                LABEL,
                format_args!("<error getting backup resource list: {why}>"),
            );
        }
        File::Unreadable(why) => {
            d.field(
                0,
                LABEL,
                format_args!("<error reading backup resource list: {why}>"),
            );
        }
        File::Found(list) => {
            d.line("Resource List:");
            for (kind, items) in list {
                d.line(format_args!("\t{kind}:"));
                for item in items {
                    d.line(format_args!("\t\t- {item}"));
                }
            }
        }
    }
}

fn deletions(d: &mut Describer<'_>, facts: &Facts) {
    if facts.deletions.is_empty() {
        return;
    }
    d.blank();
    match facts.failed_deletions() {
        0 => d.line("Deletion Attempts:"),
        failed => d.line(format_args!("Deletion Attempts ({failed} failed):")),
    }
    for (at, request) in facts.deletions.iter().enumerate() {
        if at > 0 {
            d.blank();
        }
        let created = request.metadata.creation_timestamp.as_ref();
        let created = created.map_or_else(|| "<nil>".to_owned(), |time| d.time(time.0));
        let status = request.status.clone().unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        d.line(format_args!("\t{created}: {phase}"));
        let errors = status.errors.unwrap_or_default();
        if !errors.is_empty() {
            d.line("\tErrors:");
        }
        for error in errors {
            d.line(format_args!("\t\t{error}"));
        }
    }
}
