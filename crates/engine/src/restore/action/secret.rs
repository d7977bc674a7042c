//! `velero.io/secret`: a token that Kubernetes makes for a service account by itself is not restored;
//! any other is, and gets new contents. The accounts of a namespace are asked for once.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use bowline_api::v1::Restore;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

use super::{Cluster, Executed, RestoreItemAction, remove_entries};
use crate::action::{Refused, text};

/// The names of accounts.
type Accounts = Arc<OnceCell<Vec<String>>>;

pub(super) struct Action {
    client: Client,
    accounts: Mutex<HashMap<String, Accounts>>,
}

impl Action {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self {
            client: cluster.client.clone(),
            accounts: Mutex::default(),
        }
    }

    /// Whether one of the namespace's accounts has tokens with such a name.
    async fn is_made_by_itself(&self, secret: &Value) -> Result<bool, Refused> {
        // The original namespace, whatever it is mapped to: so does Velero.
        let namespace = text(secret, "/metadata/namespace");
        let accounts = {
            let mut known = self.accounts.lock().await;
            Arc::clone(known.entry(namespace.to_owned()).or_default())
        };
        let names = accounts
            .get_or_try_init(|| self.list(namespace))
            .await
            .map_err(|error| Refused(format!("unable to list the service accounts: {error}")))?;
        let name = text(secret, "/metadata/name");
        let is_token = |rest: &str| rest.starts_with("-token-");
        Ok(names
            .iter()
            .any(|account| name.strip_prefix(account.as_str()).is_some_and(is_token)))
    }

    async fn list(&self, namespace: &str) -> Result<Vec<String>, kube::Error> {
        let accounts: Api<PartialObjectMeta<ServiceAccount>> =
            Api::namespaced(self.client.clone(), namespace);
        let list = accounts.list(&ListParams::default()).await?;
        Ok(list.iter().map(ResourceExt::name_any).collect())
    }
}

#[async_trait]
impl RestoreItemAction for Action {
    fn name(&self) -> &str {
        "velero.io/secret"
    }

    fn applies_to(&self, kind: &str, secret: &Value) -> bool {
        kind == "secrets" && secret["type"] == "kubernetes.io/service-account-token"
    }

    async fn execute(
        &self,
        mut object: Value,
        _: &Value,
        _: &Restore,
    ) -> Result<Executed, Refused> {
        if self.is_made_by_itself(&object).await? {
            return Ok(Executed {
                skip: true,
                ..object.into()
            });
        }
        remove_entries(&mut object, "data", &["token", "ca.crt"]);
        if let Some(metadata) = object.get_mut("metadata") {
            remove_entries(
                metadata,
                "annotations",
                &["kubernetes.io/service-account.uid"],
            );
        }
        Ok(object.into())
    }
}
