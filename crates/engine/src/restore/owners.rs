//! Who manages which fields of an object (`metadata.managedFields`). A restored object keeps the
//! managers that it had, so that the next `kubectl apply` and GitOps tools find what they expect.
//!
//! Most objects have one manager who made them. If the create is sent in that name, the cluster
//! writes the same by itself, and nothing more has to be patched.

use serde_json::{Map, Value, json};

/// Metadata of the former life, which nobody manages any more, and our own labels.
const IGNORED: [&str; 2] = ["f:generateName", "f:ownerReferences"];
const OUR_LABELS: [&str; 2] = ["f:velero.io/backup-name", "f:velero.io/restore-name"];

/// In whose name the object is created: the first who made it by a plain write, if there is one.
pub(super) fn maker(managers: &Value) -> Option<&str> {
    let entries = managers.as_array()?;
    let plain = |entry: &&Value| {
        entry["operation"] == "Update" && entry["subresource"].as_str().is_none_or(str::is_empty)
    };
    let name = entries.iter().find(plain)?["manager"].as_str()?;
    // What the API server takes as a parameter.
    let fits = (1..=128).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic());
    fits.then_some(name)
}

/// The patch that gives an object its old managers; none when it has them, but for times and what
/// a restore changes. Both are `managedFields`.
pub(super) fn patch(now: &Value, old: &Value) -> Option<Value> {
    if old.as_array().is_none_or(Vec::is_empty) {
        return None;
    }
    (comparable(now) != comparable(old)).then(|| json!({"metadata": {"managedFields": old}}))
}

/// Entries without times, statuses and what a restore changes.
fn comparable(entries: &Value) -> Vec<Value> {
    let entries = entries.as_array().into_iter().flatten();
    let mut comparable: Vec<Value> = entries
        .filter(|entry| entry["subresource"] != "status")
        .map(|entry| {
            let mut entry = entry.clone();
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
            let fields = &mut entry["fieldsV1"];
            if let Some(fields) = fields.as_object_mut() {
                fields.remove("f:status");
            }
            let metadata = fields.get_mut("f:metadata").and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                for key in IGNORED {
                    metadata.remove(key);
                }
                forget_labels(metadata);
            }
            let is_bare = fields["f:metadata"].as_object().is_some_and(Map::is_empty);
            if let Some(fields) = fields.as_object_mut().filter(|_| is_bare) {
                fields.remove("f:metadata");
            }
            entry
        })
        .filter(|entry| entry["fieldsV1"].as_object().is_some_and(|f| !f.is_empty()))
        .collect();
    comparable.sort_by_key(|entry| entry["manager"].as_str().map(str::to_owned));
    comparable
}

fn forget_labels(metadata: &mut Map<String, Value>) {
    let Some(labels) = metadata.get_mut("f:labels").and_then(Value::as_object_mut) else {
        return;
    };
    for key in OUR_LABELS {
        labels.remove(key);
    }
    let is_bare = labels.keys().all(|key| key == ".");
    if is_bare {
        metadata.remove("f:labels");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_plain_writer_is_the_maker() {
        for (entries, maker_is) in [
            (json!(null), None),
            (json!([{"manager": "a", "operation": "Apply"}]), None),
            (
                json!([{"manager": "k", "operation": "Update", "subresource": "status"}, {"manager": "c", "operation": "Update"}]),
                Some("c"),
            ),
            (
                json!([{"manager": "odd name", "operation": "Update"}]),
                None,
            ),
        ] {
            assert_eq!(maker(&entries), maker_is, "{entries}");
        }
    }

    #[test]
    fn only_real_changes_are_patched() {
        let old = json!([
            {"manager": "c", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}, "f:spec": {"f:a": {}}}},
            {"manager": "k", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]);
        let same = json!([
            {"manager": "c", "operation": "Update", "time": "2026-02-02T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:velero.io/backup-name": {}, "f:velero.io/restore-name": {}}}, "f:spec": {"f:a": {}}}},
        ]);
        assert_eq!(patch(&same, &old), None);
        let other = json!([{"manager": "bowline", "operation": "Update", "fieldsV1": {"f:spec": {"f:a": {}}}}]);
        assert_eq!(
            patch(&other, &old),
            Some(json!({"metadata": {"managedFields": old}}))
        );
        assert_eq!(patch(&other, &json!(null)), None);
    }
}
