//! The description of a backup for programs: Velero's keys, misspellings included, and further ones
//! for what Velero leaves out.

use bowline_api::{
    Duration,
    names::annotation,
    v1::{BackupHook, BackupPhase, BackupSpec, BackupStatus},
};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{facts::Facts, spec::uses_old_filters, volumes};
use crate::{
    flags::selector,
    output::{
        describe::{NONE, joined, operations, resources, results, switch},
        time::Clock,
    },
};

/// The whole description.
pub(super) fn describe(facts: &Facts, clock: &Clock) -> Value {
    let (backup, status) = (&facts.backup, facts.status());
    let mut value = json!({
        "metadata": {
            "name": backup.name_any(),
            "namespace": backup.namespace().unwrap_or_default(),
            "labels": backup.metadata.labels,
            "annotations": backup.metadata.annotations,
        },
        "phase": status.phase.clone().unwrap_or_default(),
        "spec": spec(&backup.spec),
        "status": structured_status(facts, &status, clock),
    });
    if let Some(policy) = &backup.spec.resource_policy {
        value["resourcePolicies"] = json!({ "type": policy.kind, "name": policy.name });
    }
    let global = backup.annotations().get(annotation::GLOBAL_VOLUME_POLICY);
    if let Some(name) = global.filter(|name| !name.is_empty()) {
        value["globalVolumePolicies"] = json!({ "type": "configmap", "name": name });
    }
    if let Some(errors) = status.validation_errors.as_ref().filter(|e| !e.is_empty()) {
        value["validationErrors"] = json!(errors);
    }
    if let Some(file) = facts
        .results
        .as_ref()
        .filter(|_| facts.findings().are_some())
    {
        results::structured(&mut value, file, facts.findings());
    }
    if !facts.deletions.is_empty() {
        value["deletionAttempts"] = deletions(facts, clock);
    }
    value
}

/// What a backup or the template of a schedule holds.
pub(in crate::commands) fn spec(spec: &BackupSpec) -> Value {
    let span = |duration: &Option<Duration>| duration.clone().unwrap_or(Duration::ZERO).to_string();
    let switched = |value| switch(value, "false", "true", "auto");
    let mover = spec.datamover.as_deref().filter(|name| !name.is_empty());
    let mut value = json!({
        "namespaces": {
            "included": joined(spec.included_namespaces.as_ref(), "*"),
            "excluded": joined(spec.excluded_namespaces.as_ref(), NONE),
        },
        "resources": {
            "included": joined(spec.included_resources.as_ref(), "*"),
            "excluded": joined(spec.excluded_resources.as_ref(), NONE),
            "clusterScoped": switch(spec.include_cluster_resources, "excluded", "included", "auto"),
        },
        "labelSelector": selector::show(spec.label_selector.as_ref()),
        "storageLocation": spec.storage_location.clone().unwrap_or_default(),
        "veleroNativeSnapshotPVs": switched(spec.snapshot_volumes),
        "veleroSnapshotMoveData": switched(spec.snapshot_move_data),
        "dataMover": mover.unwrap_or(NONE),
        "TTL": span(&spec.ttl),
        "CSISnapshotTimeout": span(&spec.csi_snapshot_timeout),
    });
    if let Some(hooks) = hooks(spec) {
        value["hooks"] = hooks;
    }
    if let Some(orders) = &spec.ordered_resources {
        value["orderedResources"] = json!(orders);
    }
    beyond_velero(spec, &mut value);
    value
}

/// What Velero's structured description leaves out.
fn beyond_velero(spec: &BackupSpec, value: &mut Value) {
    let timeout = spec
        .item_operation_timeout
        .clone()
        .unwrap_or(Duration::ZERO);
    value["itemOperationTimeout"] = json!(timeout.to_string());
    value["orLabelSelector"] = json!(selector::show_any(spec.or_label_selectors.as_ref()));
    if let Some(default) = spec.default_volumes_to_fs_backup {
        value["fileSystemBackupDefault"] = json!(default.to_string());
    }
    if !uses_old_filters(spec) {
        value["scopedResources"] = json!({
            "includedClusterScoped": joined(spec.included_cluster_scoped_resources.as_ref(), NONE),
            "excludedClusterScoped": joined(spec.excluded_cluster_scoped_resources.as_ref(), NONE),
            "includedNamespaceScoped": joined(spec.included_namespace_scoped_resources.as_ref(), "*"),
            "excludedNamespaceScoped": joined(spec.excluded_namespace_scoped_resources.as_ref(), NONE),
        });
    }
    let config = spec.uploader_config.as_ref();
    let parallel = config.and_then(|config| config.parallel_files_upload);
    if let Some(files) = parallel.filter(|files| *files > 0) {
        value["uploaderConfig"] = json!({ "parallelFilesUpload": files });
    }
}

fn hooks(spec: &BackupSpec) -> Option<Value> {
    let resources = spec.hooks.as_ref()?.resources.as_ref()?;
    if resources.is_empty() {
        return None;
    }
    let mut named = Map::new();
    for hook in resources {
        let entry = json!({
            "namespaces": {
                "included": joined(hook.included_namespaces.as_ref(), "*"),
                "excluded": joined(hook.excluded_namespaces.as_ref(), NONE),
            },
            "resources": {
                "included": joined(hook.included_resources.as_ref(), "*"),
                "excluded": joined(hook.excluded_resources.as_ref(), NONE),
            },
            "labelSelector": selector::show(hook.label_selector.as_ref()),
            "preExecHook": commands(hook.pre.as_ref()),
            "postExecHook": commands(hook.post.as_ref()),
        });
        named.insert(hook.name.clone(), entry);
    }
    Some(json!({ "resources": named }))
}

fn commands(hooks: Option<&Vec<BackupHook>>) -> Value {
    let command = |hook: &BackupHook| {
        let exec = &hook.exec;
        let on_error = exec.on_error.as_ref().map(|mode| mode.as_str());
        json!({
            "container": exec.container.clone().unwrap_or_default(),
            "command": exec.command.join(" "),
            // The colon is part of Velero's key.
            "onError:": on_error.unwrap_or_default(),
            "timeout": exec.timeout.clone().unwrap_or(Duration::ZERO).to_string(),
        })
    };
    hooks.into_iter().flatten().map(command).collect()
}

fn structured_status(facts: &Facts, status: &BackupStatus, clock: &Clock) -> Value {
    let mut value = json!({
        "backupFormatVersion": status.format_version.clone().unwrap_or_default(),
        "started": clock.show_or(status.start_timestamp, "<n/a>"),
        "completed": clock.show_or(status.completion_timestamp, "<n/a>"),
        "expiration": clock.show_or(status.expiration, "<nil>"),
        "backupVolumes": volumes::structured(facts, clock.now),
    });
    if let Some(progress) = &status.progress {
        let (total, done) = match status.phase {
            Some(BackupPhase::InProgress) => {
                ("estimatedTotalItemsToBeBackedUp", "itemsBackedUpSoFar")
            }
            _ => ("totalItemsToBeBackedUp", "itemsBackedUp"),
        };
        value[total] = json!(progress.total_items.unwrap_or_default());
        value[done] = json!(progress.items_backed_up.unwrap_or_default());
    }
    if let Some(file) = &facts.resources {
        resources::structured(&mut value, "backup", file);
    }
    if let Some(hooks) = &status.hook_status {
        value["hooksAttempted"] = json!(hooks.hooks_attempted.unwrap_or_default());
        value["hooksFailed"] = json!(hooks.hooks_failed.unwrap_or_default());
    }
    more_status(facts, status, &mut value);
    value
}

/// What Velero's structured description leaves out.
fn more_status(facts: &Facts, status: &BackupStatus, value: &mut Value) {
    if status.phase == Some(BackupPhase::Queued) {
        value["queuePosition"] = json!(status.queue_position.unwrap_or_default());
    }
    if let Some(reason) = status.failure_reason.as_ref().filter(|r| !r.is_empty()) {
        value["failureReason"] = json!(reason);
    }
    let windows = facts.hook_windows();
    if !windows.is_empty() {
        value["hookWindows"] = json!(windows);
    }
    let operations = operations::structured(facts.operation_counts(), facts.operations.as_ref());
    if let Some(operations) = operations {
        value["backupItemOperations"] = operations;
    }
}

fn deletions(facts: &Facts, clock: &Clock) -> Value {
    let request = |request: &bowline_api::v1::DeleteBackupRequest| {
        let created = request.metadata.creation_timestamp.as_ref();
        let status = request.status.clone().unwrap_or_default();
        let mut value = json!({
            "creationTimestamp": created.map_or_else(|| "<nil>".to_owned(), |t| clock.show(t.0)),
            "phase": status.phase.unwrap_or_default(),
        });
        if let Some(errors) = status.errors.filter(|errors| !errors.is_empty()) {
            value["errors"] = json!(errors);
        }
        value
    };
    let requests: Vec<Value> = facts.deletions.iter().map(request).collect();
    let mut value = json!({ "deleteBackupRequests": requests });
    let failed = facts.failed_deletions();
    if failed > 0 {
        value["failed"] = json!(failed);
    }
    value
}
