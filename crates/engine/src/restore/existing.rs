//! What is sent to the cluster, and what happens when the object is there already: pure.

use bowline_api::{
    json::merge_patch,
    names::{label, label_value},
    v1::{ExistingResourcePolicy, Restore},
};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// Metadata that belongs to an object's former life.
const FORMER: [&str; 9] = [
    "generateName",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
];

/// Removes what belongs to an object's former life. Returns the status it had.
pub(super) fn reset(object: &mut Value) -> Option<Value> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in FORMER {
            metadata.remove(key);
        }
    }
    object.as_object_mut()?.remove("status")
}

/// Adds the labels that say where an object came from.
pub(super) fn add_labels(object: &mut Value, restore: &Restore) {
    let labels = map(object, "labels");
    let backup = restore.spec.backup_name.as_deref().unwrap_or_default();
    labels.insert(label::BACKUP_NAME.to_owned(), json!(label_value(backup)));
    labels.insert(
        label::RESTORE_NAME.to_owned(),
        json!(label_value(&restore.name_any())),
    );
}

/// A map in an object's metadata, made if it is not there.
fn map<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let map = &mut metadata[key];
    if !map.is_object() {
        *map = json!({});
    }
    map.as_object_mut().expect("just made one")
}

/// What is to be done about an object that is there already.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// It is as it should be.
    Same,
    /// It is as it should be, and only says where it came from.
    Label(Value),
    /// It is patched.
    Patch(Value),
    /// It is not what the backup has, and stays as it is.
    Differs,
}

/// Decides about an object that is there already.
pub(super) struct Existing<'a> {
    /// `pods` or `deployments.apps`.
    pub(super) kind: &'a str,
    /// As the cluster has it.
    pub(super) live: &'a Value,
    /// As it would have been created.
    pub(super) wanted: &'a Value,
    /// As the backup has it, in its new namespace.
    pub(super) pristine: &'a Value,
    pub(super) policy: Option<&'a ExistingResourcePolicy>,
}

impl Existing<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let mut live = plain(self.live);
        let wanted = plain(self.wanted);
        // A claim that would get a new volume may have one.
        if self.kind == "persistentvolumeclaims"
            && wanted["spec"]["volumeName"].is_null()
            && let Some(spec) = live["spec"].as_object_mut()
        {
            spec.remove("volumeName");
        }
        let updates = self.policy == Some(&ExistingResourcePolicy::Update);
        let had = live["metadata"]["labels"].clone();
        for key in [label::BACKUP_NAME, label::RESTORE_NAME] {
            map(&mut live, "labels")
                .insert(key.to_owned(), wanted["metadata"]["labels"][key].clone());
        }
        // Nobody has touched it since the backup: what a restore would change (a pod's node, a
        // claim's volume) is no difference.
        let is_same =
            || live == wanted || without_labels(&live) == without_labels(&plain(self.pristine));
        if self.kind == "serviceaccounts" && live != wanted {
            let merged = merge_account(&live, &wanted);
            return merge_patch(&live, &merged).map_or(Verdict::Same, Verdict::Patch);
        }
        if is_same() {
            let labels = &live["metadata"]["labels"];
            return match merge_patch(&had, labels).filter(|_| updates) {
                Some(patch) => Verdict::Label(json!({"metadata": {"labels": patch}})),
                None => Verdict::Same,
            };
        }
        if !updates {
            return Verdict::Differs;
        }
        let mut before = live;
        before["metadata"]["labels"] = had;
        merge_patch(&before, &wanted).map_or(Verdict::Same, Verdict::Patch)
    }
}

/// Where it came from, and nothing else.
pub(super) fn label_patch(wanted: &Value) -> Value {
    let labels = &wanted["metadata"]["labels"];
    let own: Map<String, Value> = [label::BACKUP_NAME, label::RESTORE_NAME]
        .into_iter()
        .map(|key| (key.to_owned(), labels[key].clone()))
        .collect();
    json!({"metadata": {"labels": own}})
}

/// What counts in a comparison.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    forget(&mut object);
    object
}

/// Removes what does not count in a comparison: the former life, and who manages which field.
pub(super) fn forget(object: &mut Value) {
    reset(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        for key in ["labels", "annotations"] {
            if metadata.get(key).is_some_and(is_empty) {
                metadata.remove(key);
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

/// Without the labels that restores add.
fn without_labels(object: &Value) -> Value {
    let mut object = object.clone();
    let labels = map(&mut object, "labels");
    labels.remove(label::BACKUP_NAME);
    labels.remove(label::RESTORE_NAME);
    object
}

/// A service account of the cluster, with what the backup's has more.
fn merge_account(live: &Value, wanted: &Value) -> Value {
    let mut merged = live.clone();
    for key in ["secrets", "imagePullSecrets"] {
        let mut list = live[key].as_array().cloned().unwrap_or_default();
        for item in wanted[key].as_array().into_iter().flatten() {
            if !list.iter().any(|other| other["name"] == item["name"]) {
                list.push(item.clone());
            }
        }
        if !list.is_empty() {
            merged[key] = Value::Array(list);
        }
    }
    for key in ["labels", "annotations"] {
        for (name, value) in wanted["metadata"][key].as_object().into_iter().flatten() {
            let map = map(&mut merged, key);
            if !map.contains_key(name) {
                map.insert(name.clone(), value.clone());
            }
        }
    }
    merged
}

/// Whether this restore made the object, perhaps before a crash: it says so, and is not older.
pub(super) fn is_ours(live: &Value, wanted: &Value, since: jiff::Timestamp) -> bool {
    let labels = |object: &Value| object["metadata"]["labels"][label::RESTORE_NAME].clone();
    labels(live) == labels(wanted) && is_younger(live, since)
}

/// Whether an object came into being since then; times of objects have whole seconds.
pub(super) fn is_younger(live: &Value, since: jiff::Timestamp) -> bool {
    live["metadata"]["creationTimestamp"]
        .as_str()
        .and_then(|time| time.parse::<jiff::Timestamp>().ok())
        .is_some_and(|made| made.as_second() >= since.as_second())
}

/// Whether an object has done what it was for; nobody wants it done again.
pub(super) fn is_over(kind: &str, object: &Value) -> bool {
    match kind {
        "pods" => matches!(
            object["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        ),
        "jobs.batch" => !object["status"]["completionTime"].is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kind: &str, live: Value, wanted: Value, pristine: Value, policy: &str) -> Verdict {
        let policy = (!policy.is_empty()).then(|| ExistingResourcePolicy::from(policy));
        Existing {
            kind,
            live: &live,
            wanted: &wanted,
            pristine: &pristine,
            policy: policy.as_ref(),
        }
        .verdict()
    }

    fn labelled(mut object: Value) -> Value {
        object["metadata"]["labels"][label::BACKUP_NAME] = json!("b");
        object["metadata"]["labels"][label::RESTORE_NAME] = json!("r");
        object
    }

    #[test]
    fn what_nobody_touched_is_the_same() {
        let stored = json!({"metadata": {"name": "p", "uid": "old", "managedFields": [1]}, "spec": {"nodeName": "n", "a": 1}, "status": {"x": 1}});
        let wanted = labelled(json!({"metadata": {"name": "p"}, "spec": {"a": 1}}));
        let live = json!({"metadata": {"name": "p", "uid": "new", "managedFields": [2], "labels": {}}, "spec": {"nodeName": "n", "a": 1}});
        assert_eq!(
            verdict("pods", live.clone(), wanted.clone(), stored.clone(), ""),
            Verdict::Same
        );
        let labels = json!({"metadata": {"labels": {"velero.io/backup-name": "b", "velero.io/restore-name": "r"}}});
        assert_eq!(
            verdict(
                "pods",
                live.clone(),
                wanted.clone(),
                stored.clone(),
                "update"
            ),
            Verdict::Label(labels)
        );
        let mut moved = live;
        moved["spec"]["nodeName"] = json!("m");
        assert_eq!(
            verdict("pods", moved, wanted, stored, "none"),
            Verdict::Differs
        );
    }

    #[test]
    fn a_claim_may_have_got_a_volume() {
        let claim = |volume: Value| json!({"metadata": {"name": "c"}, "spec": {"volumeName": volume, "size": 1}});
        let wanted = labelled(json!({"metadata": {"name": "c"}, "spec": {"size": 1}}));
        let kind = "persistentvolumeclaims";
        assert_eq!(
            verdict(
                kind,
                claim(json!("new")),
                wanted.clone(),
                claim(json!("old")),
                ""
            ),
            Verdict::Same
        );
        let mut larger = claim(json!("new"));
        larger["spec"]["size"] = json!(2);
        assert_eq!(
            verdict(
                kind,
                larger.clone(),
                wanted.clone(),
                claim(json!("old")),
                ""
            ),
            Verdict::Differs
        );
        // The volume it has is not taken from it.
        let Verdict::Patch(patch) = verdict(kind, larger, wanted, claim(json!("old")), "update")
        else {
            panic!("it differs");
        };
        assert_eq!(patch["spec"], json!({"size": 1}));
    }

    #[test]
    fn an_update_removes_what_the_backup_does_not_have() {
        let live = json!({"metadata": {"name": "c"}, "data": {"a": "1", "more": "2"}});
        let stored = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
        let Verdict::Patch(patch) = verdict(
            "configmaps",
            live,
            labelled(stored.clone()),
            stored,
            "update",
        ) else {
            panic!("it differs");
        };
        assert_eq!(patch["data"], json!({"more": null}));
        assert_eq!(patch["metadata"]["labels"]["velero.io/restore-name"], "r");
    }

    #[test]
    fn own_work_is_recognised_by_label_and_age() {
        let started = "2026-01-01T10:00:00.5Z".parse().unwrap();
        let wanted = labelled(json!({}));
        let live = |restore: &str, made: &str| json!({"metadata": {"labels": {"velero.io/restore-name": restore}, "creationTimestamp": made}});
        assert!(is_ours(
            &live("r", "2026-01-01T10:00:00Z"),
            &wanted,
            started
        ));
        assert!(!is_ours(
            &live("r", "2026-01-01T09:59:59Z"),
            &wanted,
            started
        ));
        assert!(!is_ours(
            &live("other", "2026-01-01T10:00:01Z"),
            &wanted,
            started
        ));
    }
}
