//! The description of a restore for programs, in the manner of a backup's; Velero has no such thing.

use bowline_api::{
    Duration,
    v1::{RestorePhase, RestoreSpec, RestoreStatus},
};
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{facts::Facts, volumes};
use crate::{
    commands::restore::phase,
    flags::selector,
    output::{
        describe::{
            NONE, joined, live, operations,
            pods::{self, Phases},
            resources, results, switch,
        },
        time::Clock,
    },
};

/// The whole description.
pub(super) fn describe(facts: &Facts, clock: &Clock) -> Value {
    let (restore, status) = (&facts.restore, facts.status());
    let mut value = json!({
        "metadata": {
            "name": restore.name_any(),
            "namespace": restore.namespace().unwrap_or_default(),
            "labels": restore.metadata.labels,
            "annotations": restore.metadata.annotations,
        },
        "phase": phase(restore),
        "spec": spec(&restore.spec),
        "status": structured_status(facts, &status, clock),
    });
    if restore.metadata.deletion_timestamp.is_some() {
        value["deleting"] = json!(true);
    }
    if let Some(errors) = status.validation_errors.filter(|errors| !errors.is_empty()) {
        value["validationErrors"] = json!(errors);
    }
    if let Some(file) = &facts.results {
        results::structured(&mut value, file, facts.findings());
    }
    for (key, to) in [
        ("resourceModifier", &restore.spec.resource_modifier),
        ("resourcePolicies", &restore.spec.resource_policy),
    ] {
        if let Some(to) = to {
            value[key] = reference(to);
        }
    }
    value
}

fn reference(to: &TypedLocalObjectReference) -> Value {
    json!({ "type": to.kind, "name": to.name })
}

fn spec(spec: &RestoreSpec) -> Value {
    let switched = |value| switch(value, "false", "true", "auto");
    let policy = spec.existing_resource_policy.as_ref();
    let timeout = spec.item_operation_timeout.clone();
    let mut value = json!({
        "backup": spec.backup_name.clone().unwrap_or_default(),
        "namespaces": {
            "included": joined(spec.included_namespaces.as_ref(), "*"),
            "excluded": joined(spec.excluded_namespaces.as_ref(), NONE),
        },
        "resources": {
            "included": joined(spec.included_resources.as_ref(), "*"),
            "excluded": joined(spec.excluded_resources.as_ref(), NONE),
            "clusterScoped": switch(spec.include_cluster_resources, "excluded", "included", "auto"),
        },
        "namespaceMappings": spec.namespace_mapping.clone().unwrap_or_default(),
        "labelSelector": selector::show(spec.label_selector.as_ref()),
        "orLabelSelector": selector::show_any(spec.or_label_selectors.as_ref()),
        "restorePVs": switched(spec.restore_pvs),
        "existingResourcePolicy": policy.map_or(NONE, |policy| policy.as_str()),
        "itemOperationTimeout": timeout.unwrap_or(Duration::ZERO).to_string(),
        "preserveServiceNodePorts": switched(spec.preserve_node_ports),
    });
    if let Some(schedule) = spec.schedule_name.as_ref().filter(|name| !name.is_empty()) {
        value["schedule"] = json!(schedule);
    }
    if let Some(status) = &spec.restore_status {
        value["restoreStatus"] = json!({
            "included": joined(status.included_resources.as_ref(), "*"),
            "excluded": joined(status.excluded_resources.as_ref(), NONE),
        });
    }
    if let Some(config) = &spec.uploader_config {
        value["uploaderConfig"] = json!({
            "writeSparseFiles": config.write_sparse_files.unwrap_or_default(),
            "parallelFilesDownload": config.parallel_files_download.unwrap_or_default(),
        });
    }
    value
}

fn structured_status(facts: &Facts, status: &RestoreStatus, clock: &Clock) -> Value {
    let (csi, native) = volumes::structured(facts);
    let mut value = json!({
        "started": clock.show_or(status.start_timestamp, "<n/a>"),
        "completed": clock.show_or(status.completion_timestamp, "<n/a>"),
        "restoreVolumes": {
            "csiSnapshots": csi,
            "nativeSnapshots": native,
            "podVolumeRestores": pod_volumes(facts, clock),
        },
    });
    if !facts.plugin_volumes.is_empty() {
        value["restoreVolumes"]["volumePluginRestores"] =
            live::structured(&facts.plugin_volumes, facts.details, clock.now);
    }
    if !facts.movements.is_empty() {
        value["restoreVolumes"]["dataDownloads"] =
            live::structured(&facts.movements, facts.details, clock.now);
    }
    if let Some(all) = volumes::structured_all(facts) {
        value["restoreVolumes"]["allVolumes"] = all;
    }
    if let Some(progress) = &status.progress {
        let (total, done) = match phase(&facts.restore) {
            RestorePhase::InProgress => ("estimatedTotalItemsToBeRestored", "itemsRestoredSoFar"),
            _ => ("totalItemsToBeRestored", "itemsRestored"),
        };
        value[total] = json!(progress.total_items.unwrap_or_default());
        value[done] = json!(progress.items_restored.unwrap_or_default());
    }
    if let Some(file) = &facts.resources {
        resources::structured(&mut value, "restore", file);
    }
    if let Some(hooks) = &status.hook_status {
        value["hooksAttempted"] = json!(hooks.hooks_attempted.unwrap_or_default());
        value["hooksFailed"] = json!(hooks.hooks_failed.unwrap_or_default());
    }
    if let Some(reason) = status.failure_reason.as_ref().filter(|r| !r.is_empty()) {
        value["failureReason"] = json!(reason);
    }
    let operations = operations::structured(facts.operation_counts(), facts.operations.as_ref());
    if let Some(operations) = operations {
        value["restoreItemOperations"] = operations;
    }
    value
}

fn pod_volumes(facts: &Facts, clock: &Clock) -> Value {
    let volumes = &facts.pod_volumes;
    if volumes.is_empty() {
        return json!("<none included>");
    }
    let mut value = json!({
        "uploaderType": pods::uploader_of(volumes),
        "podVolumeRestoresDetails": Phases::OF_RESTORE.structured(volumes, facts.details),
    });
    if facts.details {
        value["podVolumeRestoresList"] = pods::list(volumes, clock.now);
    }
    value
}
