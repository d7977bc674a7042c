//! `velero.io/job`: a job forgets the uid that its selector was made from; the cluster gives it a new
//! one.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, remove_entries};
use crate::action::Refused;

const OF_THE_PAST: &[&str] = &["controller-uid", "batch.kubernetes.io/controller-uid"];

pub(super) const ACTION: Change = Change {
    name: "velero.io/job",
    kinds: &["jobs.batch"],
    concerns: |_| true,
    change,
};

fn change(mut job: Value, _: &Value, _: &Restore) -> Result<Executed, Refused> {
    for (parent, map) in [
        ("/spec/selector", "matchLabels"),
        ("/spec/template/metadata", "labels"),
    ] {
        if let Some(parent) = job.pointer_mut(parent) {
            remove_entries(parent, map, OF_THE_PAST);
        }
    }
    Ok(job.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_with_the_old_uid_go() {
        for (job, expected) in [
            (
                json!({"spec": {
                    "selector": {"matchLabels": {"controller-uid": "1", "batch.kubernetes.io/controller-uid": "1", "a": "b"}},
                    "template": {"metadata": {"labels": {"controller-uid": "1", "job-name": "j"}}},
                }}),
                json!({"spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"job-name": "j"}}},
                }}),
            ),
            (
                json!({"spec": {
                    "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}},
                    "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "1"}}},
                }}),
                json!({"spec": {"selector": {}, "template": {"metadata": {}}}}),
            ),
            (
                json!({"spec": {"template": {}}}),
                json!({"spec": {"template": {}}}),
            ),
        ] {
            let executed = change(job.clone(), &job, &Restore::default()).unwrap();
            assert_eq!(executed.object, expected);
        }
    }
}
