//! `velero.io/apiservice`: APIServices that Kubernetes looks after are not restored.

use bowline_api::names::label;

use super::{Change, Executed};

pub(super) const ACTION: Change = Change {
    name: "velero.io/apiservice",
    kinds: &["apiservices.apiregistration.k8s.io"],
    concerns: |service| {
        service["metadata"]["labels"]
            .get(label::APISERVICE_AUTOMANAGED)
            .is_some()
    },
    change: |object, _, _| {
        Ok(Executed {
            object,
            skip: true,
            ..Executed::default()
        })
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::restore::action::RestoreItemAction as _;

    #[tokio::test]
    async fn only_those_of_kubernetes_are_left_out() {
        let kind = "apiservices.apiregistration.k8s.io";
        let ours = json!({"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}}});
        assert!(ACTION.applies_to(kind, &ours));
        assert!(!ACTION.applies_to(kind, &json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(!ACTION.applies_to("pods", &ours));
        let executed = ACTION
            .execute(ours.clone(), &ours, &Default::default())
            .await
            .unwrap();
        assert!(executed.skip);
    }
}
