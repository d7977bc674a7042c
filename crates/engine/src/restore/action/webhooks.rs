//! `velero.io/admission-webhook-configuration`: side effects that version 1 of the API does not take
//! become `None`.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, items, items_mut};
use crate::action::Refused;

pub(super) const ACTION: Change = Change {
    name: "velero.io/admission-webhook-configuration",
    kinds: &[
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    ],
    concerns: |configuration| {
        configuration["apiVersion"] == "admissionregistration.k8s.io/v1"
            && !items(configuration, "/webhooks").iter().all(is_sound)
    },
    change,
};

fn change(mut configuration: Value, _: &Value, _: &Restore) -> Result<Executed, Refused> {
    for webhook in items_mut(&mut configuration, "/webhooks") {
        if webhook.is_object() && !is_sound(webhook) {
            webhook["sideEffects"] = "None".into();
        }
    }
    Ok(configuration.into())
}

fn is_sound(webhook: &Value) -> bool {
    let effects = webhook["sideEffects"].as_str();
    matches!(effects, Some("None" | "NoneOnDryRun"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::restore::action::RestoreItemAction as _;

    #[test]
    fn side_effects_that_are_not_taken_become_none() {
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [
            {"name": "a", "sideEffects": "Some"},
            {"name": "b", "sideEffects": "Unknown"},
            {"name": "c", "sideEffects": "NoneOnDryRun"},
            {"name": "d", "sideEffects": "None"},
            {"name": "e"},
        ]});
        assert!(ACTION.applies_to(ACTION.kinds[0], &configuration));
        let executed = change(configuration.clone(), &configuration, &Restore::default()).unwrap();
        let effects: Vec<&Value> = items(&executed.object, "/webhooks")
            .iter()
            .map(|webhook| &webhook["sideEffects"])
            .collect();
        assert_eq!(effects, ["None", "None", "NoneOnDryRun", "None", "None"]);
    }

    #[test]
    fn what_is_sound_or_older_is_left_alone() {
        for configuration in [
            json!({"apiVersion": "admissionregistration.k8s.io/v1"}),
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [{"sideEffects": "None"}]}),
            json!({"apiVersion": "admissionregistration.k8s.io/v1beta1", "webhooks": [{"sideEffects": "Some"}]}),
        ] {
            assert!(!ACTION.applies_to(ACTION.kinds[1], &configuration));
        }
    }
}
