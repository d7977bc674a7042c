//! Volumes made of snapshots. Whoever makes them stands behind a trait.

use std::sync::PoisonError;

use async_trait::async_trait;
use bowline_api::names::{annotation, label, label_value};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    existing::is_younger,
    item::{End, Run, id},
    track::Key,
    volume,
};
use crate::{action::text, log::Level};

/// Makes volumes of snapshots.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Whether the backup has a snapshot of a volume.
    fn has(&self, volume: &str) -> bool;

    /// Makes a volume of the snapshot of a PersistentVolume: the PersistentVolume of the new one,
    /// which may have another name.
    ///
    /// # Errors
    /// Why there is none.
    async fn restore(&self, volume: &Value) -> Result<Value, String>;

    /// A name for a volume whose own is taken; always the same one in a restore.
    fn other_name(&self, volume: &str) -> String;
}

impl Run {
    /// A volume that comes back from its snapshot, or the end of it. One that is there already, and
    /// whose claim comes back where it was, is left to whoever compares objects.
    pub(super) async fn restore_snapshot(&self, key: &Key, object: &mut Value) -> Result<(), End> {
        let is_mapped = object["spec"]["claimRef"]["namespace"]
            .as_str()
            .is_some_and(|namespace| self.selection.is_mapped(namespace));
        self.unbind(object);
        let wanted = self.restore.spec.restore_pvs != Some(false) && !self.is_dry();
        let Some(snapshots) = self.snapshots.as_ref().filter(|_| wanted) else {
            return Ok(());
        };
        let found = self.live_volume(&key.name).await;
        let found = found.map_err(|why| self.no_volume(key, &why))?;
        if found
            .as_ref()
            .is_some_and(|live| !is_mapped || self.has_made(live))
        {
            return Ok(());
        }
        let is_there = found.is_some();
        if is_there {
            // A server before this one may have made it, under the other name.
            let other = snapshots.other_name(&key.name);
            let made = self.live_volume(&other).await;
            let made = made.map_err(|why| self.no_volume(key, &why))?;
            if made.is_some_and(|live| self.has_made(&live)) {
                self.rename(key, object, other);
                return Ok(());
            }
        }
        let made = snapshots.restore(object).await;
        *object = made.map_err(|why| self.no_volume(key, &why))?;
        // The plugin may have found a name of its own.
        let mut name = text(object, "/metadata/name").to_owned();
        if is_there && *name == *key.name {
            name = snapshots.other_name(&key.name);
        }
        if *name != *key.name {
            self.rename(key, object, name);
        }
        Ok(())
    }

    /// A volume gets another name, and its claim is to follow.
    fn rename(&self, key: &Key, object: &mut Value, name: String) {
        object["metadata"]["name"] = Value::String(name.clone());
        object["metadata"]["annotations"][annotation::ORIGINAL_PV_NAME] =
            Value::String(key.name.to_string());
        let message = format!("Restored from its snapshot as {name}");
        self.note(Level::Info, &message, key);
        let mut renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        renamed.insert(key.name.to_string(), name);
    }

    /// Whether this restore has made an object, perhaps by a server before this one.
    pub(super) fn has_made(&self, live: &Value) -> bool {
        let own = label_value(&self.restore.name_any());
        live["metadata"]["labels"][label::RESTORE_NAME] == *own && is_younger(live, self.since)
    }

    /// Makes a volume free to be bound, by a claim that may be elsewhere now.
    pub(super) fn unbind(&self, object: &mut Value) {
        let claimed = object["spec"]["claimRef"]["namespace"]
            .as_str()
            .map(str::to_owned);
        if let Some(namespace) = claimed.filter(|ns| self.selection.is_mapped(ns)) {
            let target = self.selection.target(&namespace);
            object["spec"]["claimRef"]["namespace"] = Value::String(target.to_owned());
        }
        volume::unbind(object);
    }

    /// A claim whose volume has another name now.
    pub(super) fn follow(&self, claim: &mut Value) {
        let renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        let old = claim["spec"]["volumeName"].as_str().unwrap_or_default();
        if let Some(new) = renamed.get(old) {
            claim["spec"]["volumeName"] = Value::String(new.clone());
        }
    }

    async fn live_volume(&self, name: &str) -> Result<Option<Value>, String> {
        let discovery = self.discovery();
        let Some(volumes) = discovery.find("persistentvolumes") else {
            return Ok(None);
        };
        let found = self.calls.get(&volumes.object_path("", name)).await;
        found.map_err(|error| super::message(&error))
    }

    fn no_volume(&self, key: &Key, why: &str) -> End {
        self.fail(
            key,
            &format!("error executing PVAction for {}: {why}", id(key)),
        );
        End::FAILED
    }
}
