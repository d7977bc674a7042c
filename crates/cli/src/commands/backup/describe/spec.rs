//! What a backup holds and how it is made, for people; a schedule's template reads the same.

use bowline_api::{
    Duration,
    v1::{BackupSpec, ExecHook},
};

use crate::{
    commands::backup::spec::data_mover,
    flags::selector,
    output::describe::{Describer, NONE, joined, switch},
};

/// What a backup or the template of a schedule holds.
pub(crate) fn text(d: &mut Describer<'_>, spec: &BackupSpec) {
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
    let alternatives = selector::show_any(spec.or_label_selectors.as_ref());
    d.field(0, "Or label selector", alternatives);
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
    let span = |duration: &Option<Duration>| duration.clone().unwrap_or(Duration::ZERO);
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
    let timeout = hook.timeout.clone().unwrap_or(Duration::ZERO);
    d.field(4, "Timeout", timeout);
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
