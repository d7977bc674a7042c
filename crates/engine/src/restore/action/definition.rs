//! `velero.io/crd-preserve-fields`: a definition of old that keeps unknown fields says so in the way
//! that `apiextensions.k8s.io/v1` takes.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, fields, items_mut};
use crate::action::Refused;

pub(super) const ACTION: Change = Change {
    name: "velero.io/crd-preserve-fields",
    kinds: &["customresourcedefinitions.apiextensions.k8s.io"],
    concerns: |definition| {
        definition["apiVersion"] == "apiextensions.k8s.io/v1"
            && definition["spec"]["preserveUnknownFields"] == true
    },
    change,
};

fn change(mut definition: Value, _: &Value, _: &Restore) -> Result<Executed, Refused> {
    if let Some(spec) = fields(&mut definition, "/spec") {
        spec.remove("preserveUnknownFields");
    }
    for version in items_mut(&mut definition, "/spec/versions") {
        if let Some(schema) = fields(version, "/schema/openAPIV3Schema") {
            schema.insert(
                "x-kubernetes-preserve-unknown-fields".to_owned(),
                true.into(),
            );
        }
    }
    Ok(definition.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::restore::action::RestoreItemAction as _;

    #[test]
    fn unknown_fields_stay_allowed() {
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": {"preserveUnknownFields": true, "versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v2", "schema": {}},
            {"name": "v3"},
        ]}});
        let kind = "customresourcedefinitions.apiextensions.k8s.io";
        assert!(ACTION.applies_to(kind, &definition));
        let executed = change(definition.clone(), &definition, &Restore::default()).unwrap();
        assert_eq!(
            executed.object["spec"],
            json!({"versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                {"name": "v2", "schema": {}},
                {"name": "v3"},
            ]})
        );
    }

    #[test]
    fn other_definitions_are_left_alone() {
        for definition in [
            json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": {}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": {"preserveUnknownFields": false}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": {"preserveUnknownFields": true}}),
        ] {
            assert!(!ACTION.applies_to(ACTION.kinds[0], &definition));
        }
    }
}
