//! `velero.io/change-storage-class`: volumes and claims get another storage class as the plugin's
//! ConfigMap says, old to new. The new one has to exist; each is asked for once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use bowline_api::v1::Restore;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

use super::{
    Cluster, Executed, RestoreItemAction,
    config::{Config, Configs},
    items_mut,
};
use crate::action::{Refused, text};

const NAME: &str = "velero.io/change-storage-class";
const KINDS: &[&str] = &[
    "persistentvolumeclaims",
    "persistentvolumes",
    "statefulsets.apps",
];

pub(super) struct Action {
    client: Client,
    mapping: Config,
    /// Whether a class exists.
    classes: Mutex<HashMap<String, Arc<OnceCell<bool>>>>,
}

impl Action {
    pub(super) fn new(cluster: &Cluster, configs: &Configs) -> Self {
        Self {
            client: cluster.client.clone(),
            mapping: configs.of(NAME),
            classes: Mutex::default(),
        }
    }

    /// Changes the class of a volume, a claim or a claim's template.
    async fn change(
        &self,
        volume: &mut Value,
        mapping: &BTreeMap<String, String>,
    ) -> Result<(), Refused> {
        if let Some(class) = mapping.get(text(volume, "/spec/storageClassName")) {
            self.check(class).await?;
            volume["spec"]["storageClassName"] = class.as_str().into();
        }
        Ok(())
    }

    async fn check(&self, class: &str) -> Result<(), Refused> {
        let failed = |why: String| {
            Refused(format!(
                "error getting storage class {class} from API: {why}"
            ))
        };
        let known = {
            let mut classes = self.classes.lock().await;
            Arc::clone(classes.entry(class.to_owned()).or_default())
        };
        let exists = known
            .get_or_try_init(|| async {
                let classes: Api<StorageClass> = Api::all(self.client.clone());
                classes.get_opt(class).await.map(|found| found.is_some())
            })
            .await
            .map_err(|error| failed(error.to_string()))?;
        match exists {
            true => Ok(()),
            false => Err(failed(format!(
                "storageclasses.storage.k8s.io {class:?} not found"
            ))),
        }
    }
}

#[async_trait]
impl RestoreItemAction for Action {
    fn name(&self) -> &str {
        NAME
    }

    fn applies_to(&self, kind: &str, _: &Value) -> bool {
        let has_rows = self.mapping.as_ref().map_or(true, |rows| !rows.is_empty());
        has_rows && KINDS.contains(&kind)
    }

    async fn execute(
        &self,
        mut object: Value,
        _: &Value,
        _: &Restore,
    ) -> Result<Executed, Refused> {
        let mapping = self.mapping.as_ref().map_err(Clone::clone)?;
        if text(&object, "/kind") == "StatefulSet" {
            for template in items_mut(&mut object, "/spec/volumeClaimTemplates") {
                self.change(template, mapping).await?;
            }
        } else {
            self.change(&mut object, mapping).await?;
        }
        Ok(object.into())
    }
}
