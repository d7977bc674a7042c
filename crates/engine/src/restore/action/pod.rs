//! `velero.io/pod`: a pod forgets its node, its priority and the token of its account, and brings its
//! priority class. `velero.io/add-pvc-from-pod`: it brings its claims.

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, fields, items_mut, retain_items};
use crate::action::{Refused, Related, claims, text};

pub(in crate::restore) const PODS: &str = "pods";

pub(super) const CLAIMS: Change = Change {
    name: "velero.io/add-pvc-from-pod",
    kinds: &[PODS],
    concerns: |pod| claims(pod).next().is_some(),
    change: |pod, _, _| {
        let namespace = text(&pod, "/metadata/namespace");
        let related = claims(&pod)
            .map(|claim| Related::new("persistentvolumeclaims", namespace, claim))
            .collect();
        Ok(Executed {
            related,
            ..pod.into()
        })
    },
};

pub(super) const ACTION: Change = Change {
    name: "velero.io/pod",
    kinds: &[PODS],
    concerns: |_| true,
    change,
};

fn change(mut pod: Value, _: &Value, _: &Restore) -> Result<Executed, Refused> {
    let token = format!("{}-token-", text(&pod, "/spec/serviceAccountName"));
    let is_kept = |named: &Value| !text(named, "/name").starts_with(&token);
    if let Some(spec) = fields(&mut pod, "/spec") {
        spec.remove("nodeName");
        spec.remove("priority");
    }
    if let Some(spec) = pod.get_mut("spec") {
        retain_items(spec, "volumes", is_kept);
    }
    for containers in ["/spec/containers", "/spec/initContainers"] {
        for container in items_mut(&mut pod, containers) {
            retain_items(container, "volumeMounts", is_kept);
        }
    }
    let class = text(&pod, "/spec/priorityClassName");
    let class =
        (!class.is_empty()).then(|| Related::new("priorityclasses.scheduling.k8s.io", "", class));
    Ok(Executed {
        related: class.into_iter().collect(),
        ..pod.into()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::restore::action::RestoreItemAction as _;

    fn changed(pod: &Value) -> Executed {
        change(pod.clone(), pod, &Restore::default()).unwrap()
    }

    #[test]
    fn a_pod_forgets_its_node_and_its_token() {
        let pod = json!({"spec": {
            "nodeName": "n1", "priority": 5, "serviceAccountName": "web", "priorityClassName": "high",
            "volumes": [{"name": "web-token-x"}, {"name": "data"}],
            "containers": [
                {"name": "a", "volumeMounts": [{"name": "data"}, {"name": "web-token-x"}]},
                {"name": "b", "volumeMounts": [{"name": "web-token-x"}]},
            ],
            "initContainers": [{"name": "c", "volumeMounts": [{"name": "web-token-x"}, {"name": "weber"}]}],
        }});
        let executed = changed(&pod);
        assert_eq!(
            executed.object["spec"],
            json!({
                "serviceAccountName": "web", "priorityClassName": "high",
                "volumes": [{"name": "data"}],
                "containers": [{"name": "a", "volumeMounts": [{"name": "data"}]}, {"name": "b"}],
                "initContainers": [{"name": "c", "volumeMounts": [{"name": "weber"}]}],
            })
        );
        assert_eq!(
            executed.related,
            [Related::new(
                "priorityclasses.scheduling.k8s.io",
                "",
                "high"
            )]
        );
    }

    #[test]
    fn a_pod_of_a_real_backup_loses_its_node_alone() {
        let pod: Value =
            serde_json::from_str(include_str!("../../../tests/golden/pod.json")).unwrap();
        let mut expected = pod.clone();
        let spec = expected["spec"].as_object_mut().unwrap();
        assert_eq!(spec.remove("nodeName"), Some("bed-node".into()));
        assert_eq!(spec.remove("priority"), Some(0.into()));
        let executed = changed(&pod);
        assert_eq!(executed.object, expected);
        assert_eq!(executed.related, []);
    }

    #[test]
    fn claims_come_before_their_pod() {
        let pod: Value =
            serde_json::from_str(include_str!("../../../tests/golden/pod.json")).unwrap();
        assert!(CLAIMS.applies_to(PODS, &pod));
        let executed = (CLAIMS.change)(pod.clone(), &pod, &Restore::default()).unwrap();
        assert_eq!(executed.object, pod);
        assert_eq!(
            executed.related,
            [Related::new("persistentvolumeclaims", "shop", "shop-data")]
        );
        assert!(!CLAIMS.applies_to(PODS, &json!({"spec": {"volumes": [{"emptyDir": {}}]}})));
    }
}
