//! What is done to an object on its way back into a cluster, and what has to be there before it.
//! Built-in actions and those of plugins stand behind the same trait. None of the built-in ones
//! writes to the cluster, so a dry run uses them too.

mod api_service;
mod bindings;
mod claim;
mod config;
pub mod csi;
mod data_upload;
mod definition;
mod image;
mod init_hook;
mod job;
mod pod;
mod pod_volume;
mod secret;
mod service;
mod service_account;
mod storage_class;
mod webhooks;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_api::v1::Restore;
use kube::Client;
use serde_json::{Map, Value};

use self::config::Configs;
pub(super) use self::pod::PODS;
use super::{hooks::SpecHooks, pod_volume::Copies};
use crate::action::{Refused, Related};

/// What an action made of an object.
#[derive(Debug, Clone, Default)]
pub struct Executed {
    /// The object, changed or not.
    pub object: Value,
    /// What is restored before it, by original namespaces.
    pub related: Vec<Related>,
    /// Not to be restored, though selected.
    pub skip: bool,
    /// The operation that goes on in the background; empty for none.
    pub operation_id: String,
    /// Wait until the related items are ready; plugins ask for that.
    pub wait_for_related: bool,
    /// How long; none for as long as anything may take.
    pub ready_timeout: Option<Duration>,
}

impl From<Value> for Executed {
    fn from(object: Value) -> Self {
        Self {
            object,
            ..Self::default()
        }
    }
}

/// Something done to objects of some resources while they are restored.
#[async_trait]
pub trait RestoreItemAction: Send + Sync {
    /// The registered name, `velero.io/pod`.
    fn name(&self) -> &str;

    /// Whether it is for this object: `kind` is `pods` or `deployments.apps`, the object as it is
    /// in the backup.
    fn applies_to(&self, kind: &str, object: &Value) -> bool;

    /// Does it. `object` is what is to be created so far (metadata reset, status removed, original
    /// namespace); `pristine` is as it is in the backup.
    async fn execute(
        &self,
        object: Value,
        pristine: &Value,
        restore: &Restore,
    ) -> Result<Executed, Refused>;

    /// Whether items that it asked for are ready.
    async fn are_ready(&self, items: &[Related], restore: &Restore) -> Result<bool, Refused> {
        let _ = (items, restore);
        Ok(true)
    }
}

/// What the built-in actions know of the cluster and of the restore.
#[derive(Clone)]
pub struct Cluster {
    /// How to ask it.
    pub client: Client,
    /// The namespace of the installation.
    pub namespace: String,
    /// The image of `restore-wait`; none means that of the server's Deployment.
    pub image: Option<String>,
    /// The tag for an image that a plugin's configuration names without one.
    pub image_tag: String,
    /// The volumes of the backup that were copied file by file.
    pub copies: Arc<Copies>,
    /// The hooks of the restore's spec.
    pub hooks: Arc<SpecHooks>,
}

/// The actions that every restore has, in the order in which they run: by name.
///
/// # Errors
/// When the ConfigMaps with the configuration of plugins cannot be listed.
pub async fn built_in(cluster: &Cluster) -> Result<Vec<Arc<dyn RestoreItemAction>>, kube::Error> {
    let configs = Configs::read(&cluster.client, &cluster.namespace).await?;
    Ok(vec![
        Arc::new(pod::CLAIMS),
        Arc::new(webhooks::ACTION),
        Arc::new(api_service::ACTION),
        Arc::new(image::Action::new(&configs)),
        Arc::new(storage_class::Action::new(cluster, &configs)),
        Arc::new(bindings::CLUSTER_ROLES),
        Arc::new(definition::ACTION),
        Arc::new(data_upload::ACTION),
        Arc::new(init_hook::Action::new(Arc::clone(&cluster.hooks))),
        Arc::new(job::ACTION),
        Arc::new(pod::ACTION),
        Arc::new(pod_volume::Action::new(cluster, &configs)),
        Arc::new(claim::ACTION),
        Arc::new(bindings::ROLES),
        Arc::new(secret::Action::new(cluster)),
        Arc::new(service::ACTION),
        Arc::new(service_account::ACTION),
    ])
}

/// An action that needs to know nothing but the object and the restore.
struct Change {
    name: &'static str,
    kinds: &'static [&'static str],
    /// A cheap look at one object.
    concerns: fn(&Value) -> bool,
    change: fn(Value, &Value, &Restore) -> Result<Executed, Refused>,
}

#[async_trait]
impl RestoreItemAction for Change {
    fn name(&self) -> &str {
        self.name
    }

    fn applies_to(&self, kind: &str, object: &Value) -> bool {
        self.kinds.contains(&kind) && (self.concerns)(object)
    }

    async fn execute(
        &self,
        object: Value,
        pristine: &Value,
        restore: &Restore,
    ) -> Result<Executed, Refused> {
        (self.change)(object, pristine, restore)
    }
}

/// The fields of an object somewhere in another.
fn fields<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    object.pointer_mut(pointer)?.as_object_mut()
}

/// The items of a list somewhere in an object; none if it is not there.
fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// The items of a list somewhere in an object, to change; none if it is not there.
fn items_mut<'a>(object: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    let list = object.pointer_mut(pointer).and_then(Value::as_array_mut);
    list.map_or(&mut [], Vec::as_mut_slice)
}

/// Removes entries of the map `field`. The API server drops maps that are empty, so one that gets
/// empty goes too.
fn remove_entries(parent: &mut Value, field: &str, keys: &[&str]) {
    let Some(parent) = parent.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(map)) = parent.get_mut(field) {
        keys.iter().for_each(|key| drop(map.remove(*key)));
        if map.is_empty() {
            parent.remove(field);
        }
    }
}

/// Keeps some items of the list `field`, and the list itself if any is left.
fn retain_items(parent: &mut Value, field: &str, keep: impl FnMut(&Value) -> bool) {
    let Some(parent) = parent.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(list)) = parent.get_mut(field) {
        list.retain(keep);
        if list.is_empty() {
            parent.remove(field);
        }
    }
}

#[cfg(test)]
mod tests;
