//! `velero.io/role-bindings` and `velero.io/cluster-role-bindings`: subjects follow their namespaces.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, items, items_mut};
use crate::action::{Refused, text};

pub(super) const ROLES: Change = Change {
    name: "velero.io/role-bindings",
    kinds: &["rolebindings.rbac.authorization.k8s.io"],
    concerns: has_subjects,
    change: map_subjects,
};

pub(super) const CLUSTER_ROLES: Change = Change {
    name: "velero.io/cluster-role-bindings",
    kinds: &["clusterrolebindings.rbac.authorization.k8s.io"],
    concerns: has_subjects,
    change: map_subjects,
};

fn has_subjects(binding: &Value) -> bool {
    !items(binding, "/subjects").is_empty()
}

fn map_subjects(mut binding: Value, _: &Value, restore: &Restore) -> Result<Executed, Refused> {
    if let Some(mapping) = &restore.spec.namespace_mapping {
        for subject in items_mut(&mut binding, "/subjects") {
            if let Some(target) = mapping.get(text(subject, "/namespace")) {
                subject["namespace"] = target.as_str().into();
            }
        }
    }
    Ok(binding.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_follow_their_namespaces() {
        let mut restore = Restore::default();
        let binding = json!({"subjects": [
            {"kind": "ServiceAccount", "name": "web", "namespace": "shop"},
            {"kind": "ServiceAccount", "name": "web", "namespace": "other"},
            {"kind": "User", "name": "shop"},
        ]});
        let changed = |restore: &Restore| {
            let executed = map_subjects(binding.clone(), &binding, restore).unwrap();
            executed.object
        };
        assert_eq!(changed(&restore), binding);
        let mapping = [("shop".to_owned(), "shop-2".to_owned())];
        restore.spec.namespace_mapping = Some(mapping.into());
        assert_eq!(
            changed(&restore),
            json!({"subjects": [
                {"kind": "ServiceAccount", "name": "web", "namespace": "shop-2"},
                {"kind": "ServiceAccount", "name": "web", "namespace": "other"},
                {"kind": "User", "name": "shop"},
            ]})
        );
    }
}
