//! What is done to an object on its way into the archive, and what else it brings along. Built-in
//! actions and those of plugins stand behind the same trait.

mod claim;
mod csi;
mod pod;
mod service_account;

use std::sync::Arc;

use async_trait::async_trait;
use bowline_api::{files::ResourceIdentifier, v1::Backup};
use kube::Client;
use serde_json::Value;

pub(crate) use pod::claims;

use crate::{discovery::Resource, list, object::Facts};

/// An object that another one brings along.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Related {
    /// `pods` or `deployments.apps`.
    pub group_resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Related {
    /// An object by its place.
    #[must_use]
    pub fn new(group_resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            group_resource: group_resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The same as files have it.
    #[must_use]
    pub fn identifier(self) -> ResourceIdentifier {
        let (resource, group) = self
            .group_resource
            .split_once('.')
            .unwrap_or((&self.group_resource, ""));
        ResourceIdentifier {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: self.namespace,
            name: self.name,
            ..ResourceIdentifier::default()
        }
    }
}

/// What an action made of an object.
#[derive(Debug, Clone, Default)]
pub struct Executed {
    /// The object, changed or not.
    pub object: Value,
    /// What belongs into the backup with it.
    pub related: Vec<Related>,
    /// The operation that goes on in the background; empty for none.
    pub operation_id: String,
    /// What is read again once that operation is over.
    pub post_operation: Vec<Related>,
}

/// An action's refusal, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Something done to objects of some resources while they are backed up.
#[async_trait]
pub trait BackupItemAction: Send + Sync {
    /// The registered name, `velero.io/pod`.
    fn name(&self) -> &str;

    /// Whether it is for this resource at all.
    fn applies_to(&self, resource: &Resource) -> bool;

    /// A cheap look at one object: false saves reading it.
    fn concerns(&self, object: &Facts<'_>) -> bool {
        let _ = object;
        true
    }

    /// Does it.
    async fn execute(&self, object: Value, backup: &Backup) -> Result<Executed, Refused>;
}

/// Says which objects are backed up together, between the same hooks.
#[async_trait]
pub trait ItemBlockAction: Send + Sync {
    /// The registered name.
    fn name(&self) -> &str;

    /// Whether it is for this resource at all.
    fn applies_to(&self, resource: &Resource) -> bool;

    /// A cheap look at one object: false saves reading it.
    fn concerns(&self, object: &Facts<'_>) -> bool;

    /// What belongs together with an object.
    async fn related(&self, object: &Value, backup: &Backup) -> Result<Vec<Related>, Refused>;
}

/// The actions that every backup has, in the order in which they run.
///
/// # Errors
/// When what they need to know of the cluster cannot be listed.
pub async fn built_in(client: &Client) -> Result<Vec<Arc<dyn BackupItemAction>>, list::Error> {
    Ok(vec![
        Arc::new(pod::Action),
        Arc::new(claim::Action),
        Arc::new(service_account::Action::read(client).await?),
    ])
}

/// The same without knowing which bindings there are.
#[must_use]
pub fn without_bindings() -> Vec<Arc<dyn BackupItemAction>> {
    vec![Arc::new(pod::Action), Arc::new(claim::Action)]
}

/// The actions of backups with CSI snapshots.
#[must_use]
pub fn csi() -> Vec<Arc<dyn BackupItemAction>> {
    csi::all()
}

/// A string somewhere in an object; empty when it is not there.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Removes an annotation that is for us alone; true when it said so.
pub(crate) fn take_annotation(object: &mut Value, key: &str) -> bool {
    object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
        .and_then(|annotations| annotations.remove(key))
        .is_some_and(|value| value == "true")
}
