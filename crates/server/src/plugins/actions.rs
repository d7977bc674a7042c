//! Actions of plugins, as the engine calls them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_api::{
    json,
    v1::{Backup, Restore},
};
use bowline_engine::{
    action::{self, Refused, Related},
    discovery::{Discovery, Resource},
    log::{About, Log},
    object::Facts,
    restore::action as restore,
    scope::{Scope, Wanted},
};
use bowline_plugin::{
    Error,
    host::Plugins,
    kinds::{
        BackupItemAction, DeleteItemAction, Identifier, ItemBlockAction, Kind, RestoreItemAction,
        Selector,
    },
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::controllers::{deletion::actions as deletion, server_status};

/// Kinds of actions on objects that are backed up.
pub(crate) const BACKUP: [Kind; 2] = [Kind::BackupItemActionV2, Kind::BackupItemAction];
/// Kinds of actions on objects that are restored.
pub(crate) const RESTORE: [Kind; 2] = [Kind::RestoreItemActionV2, Kind::RestoreItemAction];

/// An action of a plugin, and what it is for.
struct Acting<T: ?Sized> {
    name: String,
    scope: Scope,
    plugin: Arc<T>,
    /// The backup or restore as a plugin reads it.
    owner: Bytes,
}

impl<T: ?Sized> Acting<T> {
    fn has(&self, resource: &str, object: &Value) -> bool {
        self.scope.has_kind(resource) && self.concerns(object)
    }

    fn concerns(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let labels = || serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();
        self.scope.has(namespace, labels)
    }

    fn concerns_facts(&self, object: &Facts<'_>) -> bool {
        self.scope.has(&object.namespace(), || object.labels())
    }
}

/// Says which objects it is for, whatever its kind.
#[async_trait]
trait Choosy: Send + Sync {
    async fn choose(&self) -> Result<Selector, Error>;
}

macro_rules! choosy {
    ($($kind:ident),*) => {$(
        #[async_trait]
        impl Choosy for dyn $kind {
            async fn choose(&self) -> Result<Selector, Error> {
                self.applies_to().await
            }
        }
    )*};
}

choosy!(
    BackupItemAction,
    RestoreItemAction,
    DeleteItemAction,
    ItemBlockAction
);

/// The names of a kind's plugins, in the order in which they run; one that is built in is not a
/// plugin's.
fn names(plugins: &Plugins, kinds: &[Kind]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let entries = plugins.registry().entries().iter();
    entries
        .filter(|entry| kinds.contains(&entry.kind))
        .map(|entry| entry.name.clone())
        .filter(|name| !server_status::is_built_in(kinds, name) && seen.insert(name.clone()))
        .collect()
}

/// Whether there is any plugin of these kinds.
pub(crate) fn any(plugins: &Plugins, kinds: &[Kind]) -> bool {
    !names(plugins, kinds).is_empty()
}

/// All actions of a kind. One that does not say what it is for is told of and left out.
async fn all<T: Choosy + ?Sized>(
    plugins: &Plugins,
    kinds: &[Kind],
    discovery: &Discovery,
    owner: &impl Serialize,
    log: &(dyn Fn(String) + Sync),
    open: impl Fn(&str) -> Result<Arc<T>, Error>,
) -> Vec<Acting<T>> {
    let mut found = Vec::new();
    // The engine's own types are JSON.
    let owner = Bytes::from(json::to_vec(owner).unwrap_or_default());
    for name in names(plugins, kinds) {
        let asked = async {
            let plugin = open(&name).map_err(|error| error.to_string())?;
            let selector = plugin.choose().await.map_err(|error| error.to_string())?;
            let scope = Scope::new(&wanted(selector), discovery)?;
            Ok::<_, String>((plugin, scope))
        };
        match asked.await {
            Ok((plugin, scope)) => found.push(Acting {
                name,
                scope,
                plugin,
                owner: owner.clone(),
            }),
            Err(why) => log(format!("plugin {name} is not used: {why}")),
        }
    }
    found
}

fn wanted(selector: Selector) -> Wanted {
    Wanted {
        included_namespaces: selector.included_namespaces,
        excluded_namespaces: selector.excluded_namespaces,
        included_resources: selector.included_resources,
        excluded_resources: selector.excluded_resources,
        label_selector: selector.label_selector,
    }
}

fn related(items: Vec<Identifier>) -> Vec<Related> {
    let related = |item: Identifier| Related {
        group_resource: match item.group.as_str() {
            "" => item.resource,
            group => format!("{}.{group}", item.resource),
        },
        namespace: item.namespace,
        name: item.name,
    };
    items.into_iter().map(related).collect()
}

fn identifiers(items: &[Related]) -> Vec<Identifier> {
    let identifier = |item: &Related| {
        let (resource, group) = item
            .group_resource
            .split_once('.')
            .unwrap_or((&item.group_resource, ""));
        Identifier {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: item.namespace.clone(),
            name: item.name.clone(),
        }
    };
    items.iter().map(identifier).collect()
}

fn refused(error: impl ToString) -> Refused {
    Refused(error.to_string())
}

fn encode(object: &Value) -> Result<Bytes, Refused> {
    json::to_vec(object).map(Bytes::from).map_err(refused)
}

/// What a plugin gave back; nothing, or what it was sent, is the object as it was.
fn decode(item: Option<Bytes>, sent: &Bytes, old: Value) -> Result<Value, Refused> {
    let Some(item) = item.filter(|item| item != sent) else {
        return Ok(old);
    };
    let object: Value = serde_json::from_slice(&item)
        .map_err(|error| Refused(format!("it gives an object that is none: {error}")))?;
    match object["kind"].as_str().is_some() && object["metadata"].is_object() {
        true => Ok(object),
        false => Err(refused(
            "it gives an object that is none: no kind or no metadata",
        )),
    }
}

/// The actions on objects of a backup.
pub(crate) async fn for_backup(
    plugins: &Plugins,
    backup: &Backup,
    discovery: &Discovery,
    log: &Log,
) -> Vec<Arc<dyn action::BackupItemAction>> {
    let tell = |why: String| log.error(&why, &About::default());
    let found = all(plugins, &BACKUP, discovery, backup, &tell, |name| {
        plugins.backup_item_action(name)
    });
    let shared = |action| Arc::new(action) as Arc<dyn action::BackupItemAction>;
    found.await.into_iter().map(shared).collect()
}

/// The actions that say what is backed up together.
pub(crate) async fn for_blocks(
    plugins: &Plugins,
    backup: &Backup,
    discovery: &Discovery,
    log: &Log,
) -> Vec<Arc<dyn action::ItemBlockAction>> {
    let tell = |why: String| log.error(&why, &About::default());
    let found = all(
        plugins,
        &[Kind::ItemBlockAction],
        discovery,
        backup,
        &tell,
        |name| plugins.item_block_action(name),
    );
    let shared = |action| Arc::new(action) as Arc<dyn action::ItemBlockAction>;
    found.await.into_iter().map(shared).collect()
}

/// The actions on objects of a restore.
pub(crate) async fn for_restore(
    plugins: &Plugins,
    owner: &Restore,
    discovery: &Discovery,
    log: &Log,
) -> Vec<Arc<dyn restore::RestoreItemAction>> {
    let tell = |why: String| log.error(&why, &About::default());
    let found = all(plugins, &RESTORE, discovery, owner, &tell, |name| {
        plugins.restore_item_action(name)
    });
    let shared = |action| Arc::new(action) as Arc<dyn restore::RestoreItemAction>;
    found.await.into_iter().map(shared).collect()
}

/// The actions on objects whose backup is deleted.
pub(crate) async fn for_deletion(
    plugins: &Plugins,
    backup: &Backup,
    discovery: &Discovery,
    tell: &(dyn Fn(String) + Sync),
) -> Vec<Arc<dyn deletion::DeleteItemAction>> {
    let found = all(
        plugins,
        &[Kind::DeleteItemAction],
        discovery,
        backup,
        tell,
        |name| plugins.delete_item_action(name),
    );
    let shared = |action| Arc::new(action) as Arc<dyn deletion::DeleteItemAction>;
    found.await.into_iter().map(shared).collect()
}

#[async_trait]
impl action::BackupItemAction for Acting<dyn BackupItemAction> {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self, resource: &Resource) -> bool {
        self.scope.has_kind(&resource.group_resource())
    }

    fn concerns(&self, object: &Facts<'_>) -> bool {
        self.concerns_facts(object)
    }

    async fn execute(&self, object: Value, _: &Backup) -> Result<action::Executed, Refused> {
        let item = encode(&object)?;
        let done = self.plugin.execute(&item, &self.owner).await;
        let done = done.map_err(refused)?;
        Ok(action::Executed {
            object: decode(done.item, &item, object)?,
            related: related(done.additional),
            operation_id: done.operation,
            post_operation: related(done.post_operation),
        })
    }
}

#[async_trait]
impl action::ItemBlockAction for Acting<dyn ItemBlockAction> {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self, resource: &Resource) -> bool {
        self.scope.has_kind(&resource.group_resource())
    }

    fn concerns(&self, object: &Facts<'_>) -> bool {
        self.concerns_facts(object)
    }

    async fn related(&self, object: &Value, _: &Backup) -> Result<Vec<Related>, Refused> {
        let item = encode(object)?;
        let found = self.plugin.related(&item, &self.owner).await;
        found.map(related).map_err(refused)
    }
}

#[async_trait]
impl restore::RestoreItemAction for Acting<dyn RestoreItemAction> {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self, kind: &str, object: &Value) -> bool {
        self.has(kind, object)
    }

    async fn execute(
        &self,
        object: Value,
        pristine: &Value,
        _: &Restore,
    ) -> Result<restore::Executed, Refused> {
        let (item, from_backup) = (encode(&object)?, encode(pristine)?);
        let done = self.plugin.execute(&item, &from_backup, &self.owner).await;
        let done = done.map_err(refused)?;
        Ok(restore::Executed {
            object: decode(done.item, &item, object)?,
            related: related(done.additional),
            skip: done.skip,
            operation_id: done.operation,
            wait_for_related: done.wait_for_additional,
            ready_timeout: done.ready_timeout.filter(|limit| *limit > Duration::ZERO),
        })
    }

    async fn are_ready(&self, items: &[Related], _: &Restore) -> Result<bool, Refused> {
        let items = identifiers(items);
        let ready = self.plugin.are_ready(&items, &self.owner);
        ready.await.map_err(refused)
    }
}

#[async_trait]
impl deletion::DeleteItemAction for Acting<dyn DeleteItemAction> {
    fn name(&self) -> &str {
        &self.name
    }

    fn applies_to(&self, resource: &str) -> bool {
        self.scope.has_kind(resource)
    }

    fn concerns(&self, item: &Value) -> bool {
        Self::concerns(self, item)
    }

    async fn execute(&self, item: &Value, _: &Backup) -> Result<(), String> {
        let item = encode(item).map_err(|Refused(why)| why)?;
        let done = self.plugin.execute(&item, &self.owner).await;
        done.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_another_only_when_the_plugin_says_so() {
        let old = || json!({"kind": "ConfigMap", "metadata": {"name": "a"}});
        let sent = encode(&old()).unwrap();
        let other = json!({"kind": "ConfigMap", "metadata": {"name": "b"}});
        for (given, expected) in [
            (None, Some(old())),
            (Some(sent.clone()), Some(old())),
            (Some(encode(&other).unwrap()), Some(other)),
            (Some(Bytes::from_static(b"{}")), None),
            (Some(Bytes::from_static(b"no")), None),
        ] {
            assert_eq!(
                decode(given.clone(), &sent, old()).ok(),
                expected,
                "{given:?}"
            );
        }
    }
}
