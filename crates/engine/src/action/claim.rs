//! `velero.io/pv`: a bound claim brings its volume, and loses what ties it to the volume's past.

use async_trait::async_trait;
use bowline_api::{
    names::{annotation, label},
    v1::Backup,
};
use kube::ResourceExt;
use serde_json::{Map, Value};

use super::{BackupItemAction, Executed, Refused, Related, text};
use crate::{discovery::Resource, object::Facts};

pub(super) struct Action;

#[async_trait]
impl BackupItemAction for Action {
    fn name(&self) -> &str {
        "velero.io/pv"
    }

    fn applies_to(&self, resource: &Resource) -> bool {
        resource.group.is_empty() && resource.plural == "persistentvolumeclaims"
    }

    fn concerns(&self, claim: &Facts<'_>) -> bool {
        claim.mentions("volumeName")
    }

    async fn execute(&self, mut object: Value, backup: &Backup) -> Result<Executed, Refused> {
        let related = change(&mut object, &backup.name_any());
        Ok(Executed {
            object,
            related,
            ..Executed::default()
        })
    }
}

fn change(claim: &mut Value, backup: &str) -> Vec<Related> {
    let volume = text(claim, "/spec/volumeName").to_owned();
    if text(claim, "/status/phase") != "Bound" || volume.is_empty() {
        return Vec::new();
    }
    if let Some(Value::Object(spec)) = claim.pointer_mut("/spec") {
        spec.remove("dataSource");
        spec.remove("dataSourceRef");
        // A class that is there and empty asks for a volume that exists, which the selector finds.
        let keeps_selector = spec
            .get("storageClassName")
            .is_some_and(|class| class == "");
        if !keeps_selector {
            spec.remove("selector");
        } else if let Some(Value::Object(labels)) = spec
            .get_mut("selector")
            .and_then(|selector| selector.get_mut("matchLabels"))
        {
            labels.retain(|key, _| !key.starts_with("velero.io/"));
        }
    }
    if let Some(Value::Object(labels)) = claim.pointer_mut("/metadata/labels") {
        drop_ours(labels, backup);
    }
    vec![Related::new("persistentvolumes", "", &volume)]
}

fn drop_ours(labels: &mut Map<String, Value>, backup: &str) {
    for key in [
        label::RESTORE_NAME,
        label::VOLUME_SNAPSHOT_NAME,
        annotation::BACKUP_MUST_INCLUDE,
    ] {
        labels.remove(key);
    }
    if labels.get(label::BACKUP_NAME).is_some_and(|b| b != backup) {
        labels.remove(label::BACKUP_NAME);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bound_claim_forgets_where_it_came_from() {
        let mut claim = json!({
            "metadata": {"labels": {"app": "x", "velero.io/restore-name": "r", "velero.io/backup-name": "old"}},
            "spec": {"volumeName": "pv-1", "dataSource": {}, "dataSourceRef": {}, "selector": {"matchLabels": {"a": "b"}}},
            "status": {"phase": "Bound"},
        });
        assert_eq!(
            change(&mut claim, "new"),
            [Related::new("persistentvolumes", "", "pv-1")]
        );
        assert_eq!(
            claim,
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}})
        );
    }

    #[test]
    fn a_static_claim_keeps_its_selector() {
        let mut claim = json!({
            "spec": {"volumeName": "pv-1", "storageClassName": "", "selector": {"matchLabels": {"a": "b", "velero.io/x": "y"}}},
            "status": {"phase": "Bound"},
        });
        change(&mut claim, "b");
        assert_eq!(
            claim["spec"]["selector"],
            json!({"matchLabels": {"a": "b"}})
        );
    }

    #[test]
    fn an_unbound_claim_is_left_alone() {
        let mut claim = json!({"spec": {"volumeName": "pv-1", "dataSource": {}}, "status": {"phase": "Pending"}});
        let before = claim.clone();
        assert_eq!(change(&mut claim, "b"), []);
        assert_eq!(claim, before);
    }
}
