//! A rehearsal: what a restore would do to each object of this cluster, with nothing written.

use std::sync::{Mutex, PoisonError};

use bowline_api::names::label;
use serde::Serialize;
use serde_json::Value;

use super::{
    existing::Verdict,
    item::{End, Ready, Run},
    message, namespace,
    plan::DEFINITIONS,
    track::Key,
};

/// What stands for a value that must not be shown.
const HIDDEN: &str = "***";

/// What would happen.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Objects in the order in which they are restored.
    pub items: Vec<Planned>,
    /// What the cluster does not have and objects refer to.
    pub missing: Vec<String>,
    /// Volumes that are filled: of pods, and of claims whose data was moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Filled>,
}

/// A volume that would be made: of a pod, or of a claim alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filled {
    /// The namespace that the pod, or the claim, goes to.
    pub namespace: String,
    /// The pod; empty for a claim alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The volume's name in the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// The claim behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The snapshot it is filled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Its bytes, if the backup says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Why it is not filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What would happen to an object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// `pods` or `deployments.apps`.
    pub resource: String,
    /// The namespace it goes to; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// What is done.
    #[serde(flatten)]
    pub step: Step,
}

/// What is done to an object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Step {
    /// It is made.
    Create,
    /// It is there, and is changed.
    Update {
        /// The fields.
        changes: Vec<Change>,
    },
    /// It is there, as it should be.
    Unchanged,
    /// It is left out.
    Skip {
        /// The reason.
        why: String,
    },
    /// It is there, is not what the backup has, and stays as it is.
    Conflict {
        /// The fields that differ.
        changes: Vec<Change>,
    },
    /// The cluster would not take it, or its data cannot be had.
    Refused {
        /// The reason, in the cluster's words if it is the cluster's.
        why: String,
    },
}

impl Step {
    /// The word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update { .. } => "update",
            Self::Unchanged => "unchanged",
            Self::Skip { .. } => "skip",
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
        }
    }

    /// Whether a restore would warn of it, or fail.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !matches!(self, Self::Conflict { .. } | Self::Refused { .. })
    }
}

/// A field that is not the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Where: `/spec/replicas`.
    pub path: String,
    /// In the cluster; none if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// In the backup; none if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

impl Planned {
    pub(super) fn namespace(name: &str, state: namespace::State) -> Self {
        Self {
            resource: "namespaces".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            step: match state {
                namespace::State::Found => Step::Unchanged,
                namespace::State::Made | namespace::State::Missing => Step::Create,
            },
        }
    }

    pub(super) fn skip(key: &Key, why: &str) -> Self {
        Self::of(
            key,
            Step::Skip {
                why: why.to_owned(),
            },
        )
    }

    pub(super) fn refused(key: &Key, why: &str) -> Self {
        Self::of(
            key,
            Step::Refused {
                why: why.to_owned(),
            },
        )
    }

    fn of(key: &Key, step: Step) -> Self {
        Self {
            resource: key.kind.to_string(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            step,
        }
    }
}

/// Collects a plan.
#[derive(Debug, Default)]
pub(super) struct Dry(Mutex<Plan>);

impl Dry {
    pub(super) fn add(&self, planned: Planned) {
        self.lock().items.push(planned);
    }

    fn fills(&self, volumes: Vec<Filled>) {
        self.lock().volumes.extend(volumes);
    }

    fn misses(&self, what: String) {
        let missing = &mut self.lock().missing;
        if !missing.contains(&what) {
            missing.push(what);
        }
    }

    pub(super) fn take(&self) -> Plan {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// What would be done, without doing it.
    pub(super) async fn rehearse(
        &self,
        dry: &Dry,
        key: &Key,
        ready: &Ready,
        namespace: namespace::State,
    ) -> End {
        let step = self.rehearsal(dry, key, ready, namespace).await;
        for class in classes(&key.kind, &ready.wanted) {
            if self.lacks(&class).await {
                dry.misses(format!(
                    "{} {} (for {} {}/{})",
                    class.kind, class.name, key.kind, key.namespace, key.name
                ));
            }
        }
        if step == Step::Create {
            dry.fills(self.rehearse_volumes(key, ready));
        }
        let clean = step.is_clean();
        dry.add(Planned::of(key, step));
        if clean { End::UNSPOKEN } else { End::FAILED }
    }

    async fn rehearsal(
        &self,
        dry: &Dry,
        key: &Key,
        ready: &Ready,
        namespace: namespace::State,
    ) -> Step {
        let resource = match self.endpoint(key, ready) {
            Ok(resource) => resource,
            // Its definition is restored before it.
            Err(_) if self.spool.find(DEFINITIONS, "", &key.kind).is_some() => return Step::Create,
            Err(why) => {
                dry.misses(format!("definition of {}", key.kind));
                return Step::Refused { why };
            }
        };
        if namespace == namespace::State::Missing {
            return Step::Create;
        }
        let name = ready.wanted["metadata"]["name"].as_str();
        let path = resource.object_path(&key.namespace, name.unwrap_or_default());
        let tried = match self.calls.get(&path).await {
            Ok(Some(live)) => self.compared(key, ready, &live, &path).await,
            Ok(None) => {
                let collection = resource.path(resource.namespaced.then_some(&*key.namespace));
                let tried = self.calls.try_create(&collection, &ready.wanted).await;
                tried.map(|()| Step::Create)
            }
            Err(error) => Err(error),
        };
        tried.unwrap_or_else(|error| Step::Refused {
            why: message(&error),
        })
    }

    async fn compared(
        &self,
        key: &Key,
        ready: &Ready,
        live: &Value,
        path: &str,
    ) -> Result<Step, kube::Error> {
        let mut before = live.clone();
        super::existing::forget(&mut before);
        Ok(match self.verdict(key, ready, live) {
            Verdict::Same | Verdict::Label(_) => Step::Unchanged,
            Verdict::Patch(patch) => {
                self.calls.try_patch(path, &patch).await?;
                let mut after = before.clone();
                merge(&mut after, &patch);
                Step::Update {
                    changes: changes(&key.kind, &before, &after),
                }
            }
            Verdict::Differs => {
                let mut wanted = ready.wanted.clone();
                super::existing::forget(&mut wanted);
                Step::Conflict {
                    changes: changes(&key.kind, &before, &wanted),
                }
            }
        })
    }

    async fn lacks(&self, class: &Class) -> bool {
        if self.spool.find(class.resource, "", &class.name).is_some() {
            return false;
        }
        let discovery = self.discovery();
        let Some(resource) = discovery.find(class.resource) else {
            return true;
        };
        matches!(
            self.calls.get(&resource.object_path("", &class.name)).await,
            Ok(None)
        )
    }
}

/// Something that an object refers to by name, and that should be there.
struct Class {
    kind: &'static str,
    resource: &'static str,
    name: String,
}

fn classes(kind: &str, object: &Value) -> Vec<Class> {
    let storage = (
        "StorageClass",
        "storageclasses.storage.k8s.io",
        "/spec/storageClassName",
    );
    let places: &[(&'static str, &'static str, &str)] = match kind {
        "persistentvolumeclaims" if object["spec"]["volumeName"].is_null() => &[storage],
        "ingresses.networking.k8s.io" => &[(
            "IngressClass",
            "ingressclasses.networking.k8s.io",
            "/spec/ingressClassName",
        )],
        "pods" => &[
            (
                "PriorityClass",
                "priorityclasses.scheduling.k8s.io",
                "/spec/priorityClassName",
            ),
            (
                "RuntimeClass",
                "runtimeclasses.node.k8s.io",
                "/spec/runtimeClassName",
            ),
        ],
        _ => &[],
    };
    places
        .iter()
        .filter_map(|(kind, resource, pointer)| {
            let name = object.pointer(pointer)?.as_str()?;
            (!name.is_empty()).then(|| Class {
                kind,
                resource,
                name: name.to_owned(),
            })
        })
        .collect()
}

/// Applies a merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(object) = object.as_object_mut() {
                object.remove(key);
            }
        } else {
            merge(&mut object[key], value);
        }
    }
}

/// Fields in which two objects differ. Values of Secrets are not shown.
fn changes(kind: &str, from: &Value, to: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    walk("", from, to, &mut changes);
    // Those that a restore adds are no news.
    let labels = [label::BACKUP_NAME, label::RESTORE_NAME];
    let own = labels.map(|key| format!("/metadata/labels/{}", key.replace('/', "~1")));
    changes.retain(|change| !own.contains(&change.path));
    for change in &mut changes {
        let secret = ["/data", "/stringData", "/metadata/annotations"]
            .iter()
            .any(|part| change.path.starts_with(part));
        if kind == "secrets" && secret {
            for value in [&mut change.from, &mut change.to].into_iter().flatten() {
                *value = Value::String(HIDDEN.to_owned());
            }
        }
    }
    changes
}

fn walk(path: &str, from: &Value, to: &Value, changes: &mut Vec<Change>) {
    match (from, to) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: std::collections::BTreeSet<&String> =
                before.keys().chain(after.keys()).collect();
            for key in keys {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (before.get(key), after.get(key)) {
                    (Some(from), Some(to)) => walk(&path, from, to, changes),
                    (from, to) => changes.push(Change {
                        path,
                        from: from.cloned(),
                        to: to.cloned(),
                    }),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (from, to)) in before.iter().zip(after).enumerate() {
                walk(&format!("{path}/{index}"), from, to, changes);
            }
        }
        (from, to) if from != to => changes.push(Change {
            path: path.to_owned(),
            from: Some(from.clone()),
            to: Some(to.clone()),
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_and_secrets_hidden() {
        let from = json!({"a": 1, "b/c": {"d": [1, 2]}, "gone": true});
        let to = json!({"a": 2, "b/c": {"d": [1, 3]}, "new": "x"});
        let paths: Vec<_> = changes("pods", &from, &to)
            .into_iter()
            .map(|c| c.path)
            .collect();
        assert_eq!(paths, ["/a", "/b~1c/d/1", "/gone", "/new"]);
        let secret = changes(
            "secrets",
            &json!({"data": {"p": "old"}}),
            &json!({"data": {"p": "new"}}),
        );
        assert_eq!(
            serde_json::to_value(secret).unwrap(),
            json!([{"path": "/data/p", "from": "***", "to": "***"}])
        );
    }

    #[test]
    fn patches_merge() {
        let mut object = json!({"a": {"b": 1, "c": 2}});
        merge(&mut object, &json!({"a": {"b": null, "d": {"e": 1}}}));
        assert_eq!(object, json!({"a": {"c": 2, "d": {"e": 1}}}));
    }
}
