//! `velero.io/pvc`: a claim forgets where it was bound, and brings its volume.

use bowline_api::{
    names::{annotation, label},
    v1::Restore,
};
use serde_json::Value;

use super::{Change, Executed, remove_entries};
use crate::action::{Refused, Related, text};

/// Annotations of the volume that the claim had.
const OF_THE_PAST: &[&str] = &[
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    label::VOLUME_SNAPSHOT_NAME,
    annotation::DATA_UPLOAD_NAME,
];

pub(super) const ACTION: Change = Change {
    name: "velero.io/pvc",
    kinds: &["persistentvolumeclaims"],
    concerns: |_| true,
    change,
};

fn change(mut claim: Value, pristine: &Value, _: &Restore) -> Result<Executed, Refused> {
    if let Some(metadata) = claim.get_mut("metadata") {
        remove_entries(metadata, "annotations", OF_THE_PAST);
    }
    let volume = text(pristine, "/spec/volumeName");
    let bound = text(pristine, "/status/phase") == "Bound" && !volume.is_empty();
    let related = bound.then(|| Related::new("persistentvolumes", "", volume));
    Ok(Executed {
        object: claim,
        related: related.into_iter().collect(),
        ..Executed::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_forgets_its_volume_and_brings_it() {
        let claim = |annotations: Value| json!({"metadata": {"name": "data", "annotations": annotations}, "spec": {"volumeName": "pv-1"}});
        let past: serde_json::Map<String, Value> = OF_THE_PAST
            .iter()
            .map(|key| ((*key).to_owned(), "yes".into()))
            .collect();
        let mut some = past.clone();
        some.insert("mine".to_owned(), "kept".into());
        for (annotations, left) in [
            (
                Value::Object(past),
                json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1"}}),
            ),
            (Value::Object(some), claim(json!({"mine": "kept"}))),
        ] {
            let executed = change(claim(annotations), &Value::Null, &Restore::default()).unwrap();
            assert_eq!(executed.object, left);
        }
        for (phase, volume, related) in [
            ("Bound", "pv-1", vec!["pv-1"]),
            ("Bound", "", vec![]),
            ("Pending", "pv-1", vec![]),
            ("Lost", "pv-1", vec![]),
        ] {
            let pristine = json!({"spec": {"volumeName": volume}, "status": {"phase": phase}});
            let executed = change(json!({}), &pristine, &Restore::default()).unwrap();
            let expected: Vec<Related> = related
                .iter()
                .map(|name| Related::new("persistentvolumes", "", name))
                .collect();
            assert_eq!(executed.related, expected, "{phase} {volume}");
        }
    }
}
