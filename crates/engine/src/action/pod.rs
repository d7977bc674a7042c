//! `velero.io/pod`: a pod brings its claims and its priority class.

use async_trait::async_trait;
use bowline_api::v1::Backup;
use serde_json::Value;

use super::{BackupItemAction, Executed, Refused, Related, text};
use crate::{discovery::Resource, object::Facts};

pub(super) struct Action;

#[async_trait]
impl BackupItemAction for Action {
    fn name(&self) -> &str {
        "velero.io/pod"
    }

    fn applies_to(&self, resource: &Resource) -> bool {
        resource.group.is_empty() && resource.plural == "pods"
    }

    fn concerns(&self, pod: &Facts<'_>) -> bool {
        pod.mentions("persistentVolumeClaim") || pod.mentions("priorityClassName")
    }

    async fn execute(&self, object: Value, _: &Backup) -> Result<Executed, Refused> {
        let related = related(&object);
        Ok(Executed {
            object,
            related,
            ..Executed::default()
        })
    }
}

fn related(pod: &Value) -> Vec<Related> {
    let mut related = Vec::new();
    let class = text(pod, "/spec/priorityClassName");
    if !class.is_empty() {
        related.push(Related::new("priorityclasses.scheduling.k8s.io", "", class));
    }
    let namespace = text(pod, "/metadata/namespace");
    related
        .extend(claims(pod).map(|claim| Related::new("persistentvolumeclaims", namespace, claim)));
    related
}

/// Names of the claims that a pod mounts.
pub(crate) fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    pod.pointer("/spec/volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|volume| text(volume, "/persistentVolumeClaim/claimName"))
        .filter(|claim| !claim.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_brings_its_class_and_claims() {
        let pod = json!({"metadata": {"namespace": "shop"}, "spec": {"priorityClassName": "high", "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "b", "emptyDir": {}},
        ]}});
        assert_eq!(
            related(&pod),
            [
                Related::new("priorityclasses.scheduling.k8s.io", "", "high"),
                Related::new("persistentvolumeclaims", "shop", "data"),
            ]
        );
        assert_eq!(related(&json!({"spec": {}})), []);
    }
}
