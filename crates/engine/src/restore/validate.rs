//! What can be said against a restore by looking at its spec alone, and which backup it means: pure.

use bowline_api::{
    Duration,
    v1::{Backup, BackupPhase, ExistingResourcePolicy, Restore, RestoreSpec},
};

use super::select::NEVER;
use crate::{filter, selector};

/// Adds the kinds that are never restored to those left out.
pub fn complete(restore: &mut Restore) {
    let excluded = restore.spec.excluded_resources.get_or_insert_default();
    for kind in NEVER {
        if !excluded.iter().any(|item| item == kind) {
            excluded.push(kind.to_owned());
        }
    }
}

/// What is wrong with a spec that was completed; hooks and what it refers to are looked at elsewhere.
#[must_use]
pub fn errors(spec: &RestoreSpec) -> Vec<String> {
    let list = |items: &Option<Vec<String>>| items.clone().unwrap_or_default();
    let included = list(&spec.included_resources);
    let mut errors: Vec<String> = included
        .iter()
        .filter(|kind| NEVER.contains(&kind.as_str()))
        .map(|kind| format!("{kind} are non-restorable resources"))
        .collect();
    for why in filter::resource_list_errors(&included, &list(&spec.excluded_resources)) {
        errors.push(format!("Invalid included/excluded resource lists: {why}"));
    }
    let namespaces = (
        list(&spec.included_namespaces),
        list(&spec.excluded_namespaces),
    );
    for why in filter::resource_list_errors(&namespaces.0, &namespaces.1) {
        errors.push(format!("Invalid included/excluded namespace lists: {why}"));
    }
    let or = spec.or_label_selectors.as_deref().unwrap_or_default();
    if selector::present(spec.label_selector.as_ref()).is_some() && !or.is_empty() {
        errors.push("encountered labelSelector as well as orLabelSelectors in restore spec, only one can be specified".to_owned());
    }
    for selector in spec.label_selector.iter().chain(or) {
        if let Err(why) = selector::check(selector) {
            errors.push(format!("invalid label selector: {why}"));
        }
    }
    for (from, to) in spec.namespace_mapping.iter().flatten() {
        for why in filter::namespace_errors(to) {
            errors.push(format!("Invalid namespaceMapping {from}:{to}: {why}"));
        }
    }
    if let Some(Err(why)) = spec.item_operation_timeout.as_ref().map(Duration::nanos) {
        errors.push(format!("spec.itemOperationTimeout: {why}"));
    }
    if let Some(policy) = &spec.existing_resource_policy
        && let ExistingResourcePolicy::Other(other) = policy
        && !other.is_empty()
    {
        errors.push(format!("Invalid ExistingResourcePolicy: {other}"));
    }
    errors
}

/// Whether exactly one source is named.
#[must_use]
pub fn source_error(spec: &RestoreSpec) -> Option<String> {
    let is_set = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    (is_set(&spec.backup_name) == is_set(&spec.schedule_name)).then(|| {
        "Either a backup or schedule must be specified as a source for the restore, but not both"
            .to_owned()
    })
}

/// The newest complete backup.
#[must_use]
pub fn newest(backups: &[Backup]) -> Option<&Backup> {
    let complete = backups.iter().filter(|backup| {
        let status = backup.status.as_ref();
        status.and_then(|s| s.phase.as_ref()) == Some(&BackupPhase::Completed)
    });
    complete.max_by_key(|backup| {
        let started = backup
            .status
            .as_ref()
            .and_then(|s| s.start_timestamp.as_ref());
        started.map(|time| time.0)
    })
}

/// Why a backup in this format cannot be read.
#[must_use]
pub fn format_error(backup: &Backup) -> Option<String> {
    let version = backup.status.as_ref()?.format_version.as_deref()?;
    let major = version.split('.').next().unwrap_or_default();
    (!version.is_empty() && major != "1")
        .then(|| format!("the backup has format version {version}, and only 1 can be read"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(spec: Value) -> RestoreSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn errors_are_said_in_velero_s_words() {
        for (given, expected) in [
            (json!({"backupName": "b"}), vec![]),
            (
                json!({"includedResources": ["nodes"]}),
                vec![
                    "nodes are non-restorable resources",
                    "Invalid included/excluded resource lists: excludes list cannot contain an item in the includes list: nodes",
                ],
            ),
            (
                json!({"includedNamespaces": ["*", "a"]}),
                vec![
                    "Invalid included/excluded namespace lists: includes list must either contain '*' only, or a non-empty list of items",
                ],
            ),
            (
                json!({"labelSelector": {"matchLabels": {"a": "b"}}, "orLabelSelectors": [{"matchLabels": {"a": "c"}}]}),
                vec![
                    "encountered labelSelector as well as orLabelSelectors in restore spec, only one can be specified",
                ],
            ),
            (
                json!({"existingResourcePolicy": "replace"}),
                vec!["Invalid ExistingResourcePolicy: replace"],
            ),
        ] {
            let mut restore = Restore::new("velero", "r", spec(given.clone()));
            complete(&mut restore);
            assert_eq!(errors(&restore.spec), expected, "{given}");
        }
    }

    #[test]
    fn one_source_is_needed() {
        for (given, fine) in [
            (json!({"backupName": "b"}), true),
            (json!({"scheduleName": "s"}), true),
            (json!({"scheduleName": "", "backupName": "b"}), true),
            (json!({"scheduleName": "s", "backupName": "b"}), false),
            (json!({}), false),
        ] {
            assert_eq!(
                source_error(&spec(given.clone())).is_none(),
                fine,
                "{given}"
            );
        }
    }

    #[test]
    fn the_newest_complete_backup_is_meant() {
        let backups: Vec<Backup> = serde_json::from_value(json!([
            {"metadata": {"name": "old"}, "spec": {}, "status": {"phase": "Completed", "startTimestamp": "2026-01-01T00:00:00Z"}},
            {"metadata": {"name": "new"}, "spec": {}, "status": {"phase": "Completed", "startTimestamp": "2026-01-03T00:00:00Z"}},
            {"metadata": {"name": "bad"}, "spec": {}, "status": {"phase": "PartiallyFailed", "startTimestamp": "2026-01-04T00:00:00Z"}},
        ]))
        .unwrap();
        assert_eq!(
            newest(&backups).unwrap().metadata.name.as_deref(),
            Some("new")
        );
        assert!(newest(&backups[2..]).is_none());
    }
}
