//! `velero.io/change-image-name`: images get another name as the plugin's ConfigMap says, each row
//! `old,new`. The first row, by key, whose old part an image contains is the one that counts.

use async_trait::async_trait;
use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Executed, RestoreItemAction, config::Configs, items_mut};
use crate::action::{Refused, text};

const NAME: &str = "velero.io/change-image-name";

/// Pods, and the kinds with pods in them.
const KINDS: &[&str] = &[
    "pods",
    "replicationcontrollers",
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicasets.apps",
    "jobs.batch",
    "cronjobs.batch",
];

/// Old and new parts of images.
pub(super) struct Action(Result<Vec<(String, String)>, Refused>);

impl Action {
    pub(super) fn new(configs: &Configs) -> Self {
        let rows = configs.of(NAME).map(|data| {
            let rows = data.values().filter_map(|row| row.split_once(','));
            // A row without an old part would fit every image, and nobody means that.
            rows.filter(|(old, new)| !old.trim().is_empty() && !new.is_empty())
                .map(|(old, new)| (old.trim().to_owned(), new.trim().to_owned()))
                .collect()
        });
        Self(rows)
    }
}

#[async_trait]
impl RestoreItemAction for Action {
    fn name(&self) -> &str {
        NAME
    }

    fn applies_to(&self, kind: &str, _: &Value) -> bool {
        let has_rows = self.0.as_ref().map_or(true, |rows| !rows.is_empty());
        has_rows && KINDS.contains(&kind)
    }

    async fn execute(
        &self,
        mut object: Value,
        _: &Value,
        _: &Restore,
    ) -> Result<Executed, Refused> {
        let rows = self.0.as_ref().map_err(Clone::clone)?;
        let spec = match text(&object, "/kind") {
            "Pod" => "/spec",
            "CronJob" => "/spec/jobTemplate/spec/template/spec",
            _ => "/spec/template/spec",
        };
        for list in ["containers", "initContainers"] {
            for container in items_mut(&mut object, &format!("{spec}/{list}")) {
                let image = text(container, "/image");
                if let Some((old, new)) = rows.iter().find(|(old, _)| image.contains(old)) {
                    container["image"] = image.replace(old, new).into();
                }
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::config::configs, *};

    fn action(data: Value) -> Action {
        let labels = json!({"velero.io/plugin-config": "", NAME: "RestoreItemAction"});
        Action::new(&configs(
            json!([{"metadata": {"labels": labels}, "data": data}]),
        ))
    }

    async fn changed(action: &Action, object: Value) -> Value {
        let restore = Restore::default();
        let executed = action.execute(object.clone(), &object, &restore).await;
        executed.unwrap().object
    }

    #[tokio::test]
    async fn the_first_row_that_fits_counts() {
        for (rows, image, expected) in [
            (
                json!({"a": "1.1.1.1:5000,2.2.2.2:3000"}),
                "1.1.1.1:5000/x:t",
                "2.2.2.2:3000/x:t",
            ),
            (json!({"a": " x:t , y:u "}), "r/x:t", "r/y:u"),
            (json!({"a": "a,b"}), "a/a:a", "b/b:b"),
            (json!({"b": "x,z", "a": "x,y"}), "x", "y"),
            (json!({"a": "nothing,else", "b": "x,y"}), "x", "y"),
            (json!({"a": "x"}), "x", "x"),
            (json!({"a": ",y"}), "x", "x"),
            (json!({"a": "x,"}), "x", "x"),
            (json!({"a": "/x, "}), "r/x:t", "r:t"),
        ] {
            let pod = |image: &str| json!({"kind": "Pod", "spec": {"containers": [{"image": image}, {"name": "none"}]}});
            let changed = changed(&action(rows.clone()), pod(image)).await;
            assert_eq!(changed, pod(expected), "{rows} {image}");
        }
    }

    #[tokio::test]
    async fn all_containers_of_all_kinds_are_looked_at() {
        let action = action(json!({"a": "old,new"}));
        let spec = |image: &str| json!({"containers": [{"image": image}], "initContainers": [{"image": image}]});
        for (kind, resource, place) in [
            ("Pod", "pods", "/spec"),
            ("Deployment", "deployments.apps", "/spec/template/spec"),
            (
                "CronJob",
                "cronjobs.batch",
                "/spec/jobTemplate/spec/template/spec",
            ),
        ] {
            let object = |image: &str| {
                let mut object = spec(image);
                for step in place.rsplit('/').filter(|step| !step.is_empty()) {
                    object = json!({ step: object });
                }
                object["kind"] = kind.into();
                object
            };
            assert!(action.applies_to(resource, &object("old")));
            assert_eq!(
                changed(&action, object("old")).await,
                object("new"),
                "{kind}"
            );
        }
        assert!(!action.applies_to("services", &json!({})));
    }

    #[tokio::test]
    async fn without_rows_there_is_nothing_to_do() {
        assert!(!Action::new(&configs(json!([]))).applies_to("pods", &json!({})));
        assert!(!action(json!({})).applies_to("pods", &json!({})));
        let labels = json!({NAME: "RestoreItemAction"});
        let two = json!([{"metadata": {"labels": labels}}, {"metadata": {"labels": labels}}]);
        let two = Action::new(&configs(two));
        assert!(two.applies_to("pods", &json!({})));
        let refused = two
            .execute(json!({}), &json!({}), &Restore::default())
            .await;
        assert!(refused.is_err());
    }
}
