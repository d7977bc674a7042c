//! `velero.io/service-account`: an account brings the cluster role bindings that name it, and
//! their roles. The bindings are listed once, at the start.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use bowline_api::v1::Backup;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::{BackupItemAction, Executed, Refused, Related, text};
use crate::{
    discovery::Resource,
    list::{self, Query},
    object::Facts,
};

const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// What each account brings, by namespace and name.
pub(super) struct Action(HashMap<(String, String), BTreeSet<Related>>);

impl Action {
    pub(super) async fn read(client: &Client) -> Result<Self, list::Error> {
        let query = Query {
            path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
            ..Query::default()
        };
        let mut action = Self(HashMap::new());
        let mut unreadable = None;
        let done = list::each(client, &query, |raw| match serde_json::from_slice(raw) {
            Ok(binding) => action.note(&binding),
            Err(error) => unreadable = Some(list::Error::NotAList(error.to_string())),
        });
        match (done.await, unreadable) {
            (Ok(()), None) => Ok(action),
            // A cluster without RBAC.
            (Err(error), _) if error.is_not_found() => Ok(action),
            (Err(error), _) | (Ok(()), Some(error)) => Err(error),
        }
    }

    fn note(&mut self, binding: &Binding) {
        for subject in binding.subjects.iter().flatten() {
            if subject.kind != "ServiceAccount" {
                continue;
            }
            let related = self
                .0
                .entry((subject.namespace.clone(), subject.name.clone()))
                .or_default();
            related.insert(Related::new(BINDINGS, "", &binding.metadata.name));
            if binding.role_ref.kind == "ClusterRole" {
                related.insert(Related::new(ROLES, "", &binding.role_ref.name));
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    metadata: Name,
    subjects: Option<Vec<Subject>>,
    role_ref: Subject,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

#[async_trait]
impl BackupItemAction for Action {
    fn name(&self) -> &str {
        "velero.io/service-account"
    }

    fn applies_to(&self, resource: &Resource) -> bool {
        resource.group.is_empty() && resource.plural == "serviceaccounts"
    }

    fn concerns(&self, account: &Facts<'_>) -> bool {
        let key = (
            account.namespace().into_owned(),
            account.name().into_owned(),
        );
        self.0.contains_key(&key)
    }

    async fn execute(&self, object: Value, _: &Backup) -> Result<Executed, Refused> {
        let key = (
            text(&object, "/metadata/namespace").to_owned(),
            text(&object, "/metadata/name").to_owned(),
        );
        let related = self.0.get(&key).into_iter().flatten().cloned().collect();
        Ok(Executed {
            object,
            related,
            ..Executed::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_account_brings_its_bindings_and_roles() {
        let mut action = Action(HashMap::new());
        let binding = json!({
            "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "a", "name": "sa"}, {"kind": "User", "name": "sa"}],
        });
        action.note(&serde_json::from_value(binding).unwrap());
        let account = json!({"metadata": {"namespace": "a", "name": "sa"}});
        let executed = action.execute(account, &Backup::default()).await.unwrap();
        assert_eq!(
            executed.related,
            [
                Related::new(BINDINGS, "", "b"),
                Related::new(ROLES, "", "r")
            ]
        );
    }
}
