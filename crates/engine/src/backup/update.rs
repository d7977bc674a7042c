//! An archive made anew with objects as they are now: what plugins worked on after the backup had
//! copied it.

use std::{collections::BTreeMap, sync::Arc};

use bowline_api::{files::ResourceIdentifier, names::annotation, v1::Backup};
use bowline_vault::archive::{
    VERSION_FILE,
    read::Reader,
    write::{Closed, Writer},
};
use http::Request;
use kube::Client;
use serde_json::Value;

use super::{item::paths, sink::Sink};
use crate::{
    action::{self, BackupItemAction, take_annotation},
    csi,
    discovery::{Discovery, Resource},
    log::{About, Log},
    object::{Canonical, Facts},
};

/// Why there is no new archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The old one cannot be read.
    #[error(transparent)]
    Read(#[from] bowline_vault::Error),
    /// The new one is not taken; its store knows why.
    #[error("the archive could not be stored")]
    Closed(#[from] Closed),
}

/// What is read again, and what is done to it.
pub struct Again<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// What it serves.
    pub discovery: &'a Discovery,
    /// The backup.
    pub backup: &'a Backup,
    /// The objects.
    pub items: &'a [ResourceIdentifier],
    /// Actions besides the built-in ones; they run after those.
    pub actions: &'a [Arc<dyn BackupItemAction>],
    /// Told what happens.
    pub log: &'a Log,
}

/// Copies an archive, with some objects read again. One that is gone stays as it was.
///
/// # Errors
/// When the archive cannot be read or written.
pub async fn update(again: &Again<'_>, mut old: Reader, new: Writer) -> Result<(), Error> {
    let mut fresh = again.read().await;
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let (sink, joining) = Sink::start(new, now);
    while let Some(item) = old.next().await? {
        // The sink has put one there already.
        if item.path == VERSION_FILE {
            continue;
        }
        let body = old.body().await?;
        let body = fresh.remove(&item.path).map_or(body, Into::into);
        sink.add(&[item.path], &body).await?;
    }
    for (path, body) in fresh {
        sink.add(&[path], &body).await?;
    }
    sink.flush().await?;
    sink.close();
    joining.await.map_err(|_| Closed)??;
    Ok(())
}

impl Again<'_> {
    /// The objects as they are now, by their places in the archive.
    async fn read(&self) -> BTreeMap<String, Vec<u8>> {
        let mut actions = match action::built_in(self.client).await {
            Ok(actions) => actions,
            Err(error) => {
                let about = About::default().because(error);
                self.log.error("Error listing items", &about);
                action::without_bindings()
            }
        };
        actions.extend(self.actions.iter().cloned());
        let mut fresh = BTreeMap::new();
        for item in self.items {
            let name = match item.group.as_str() {
                "" => item.resource.clone(),
                group => format!("{}.{group}", item.resource),
            };
            let about = About::object(&name, &item.namespace, &item.name);
            let Some(resource) = self.discovery.find(&name) else {
                let why = "The cluster does not know this kind any more";
                self.log.error(why, &about);
                continue;
            };
            match self.object(resource, item, &actions).await {
                Ok(places) => fresh.extend(places),
                Err(why) => self.log.error("Error backing up item", &about.because(why)),
            }
        }
        fresh
    }

    /// One object, after its actions.
    async fn object(
        &self,
        resource: &Resource,
        item: &ResourceIdentifier,
        actions: &[Arc<dyn BackupItemAction>],
    ) -> Result<Vec<(String, Vec<u8>)>, String> {
        let path = resource.object_path(&item.namespace, &item.name);
        let request = Request::get(path)
            .body(Vec::new())
            .expect("escaped paths are URIs");
        let is_snapshot = item.group == csi::GROUP;
        let raw = match self.client.request_text(request).await {
            Ok(raw) => raw,
            Err(kube::Error::Api(status)) if status.code == 404 && is_snapshot => {
                // Whoever was here before has handed it over already.
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.to_string()),
        };
        let facts = Facts::of(raw.as_bytes()).map_err(|error| error.to_string())?;
        let mut object: Value = serde_json::from_str(&raw).map_err(|error| error.to_string())?;
        if is_snapshot && facts.is_deleting() {
            return Ok(Vec::new());
        }
        if is_snapshot {
            csi::keep_snapshot(&mut object);
        }
        for action in actions {
            if !action.applies_to(resource) || !action.concerns(&facts) {
                continue;
            }
            let executed = action.execute(object, self.backup).await;
            let executed = executed.map_err(|why| format!("{}: {why}", action.name()))?;
            if !executed.operation_id.is_empty() {
                return Err(format!(
                    "{} begins another operation, which nobody waits for any more",
                    action.name()
                ));
            }
            object = executed.object;
        }
        take_annotation(&mut object, annotation::BACKUP_MUST_INCLUDE);
        let raw = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
        let mut body = Vec::new();
        let (api_version, kind) = (resource.api_version(), &resource.kind);
        let written = Canonical::default().write(&raw, &api_version, kind, &mut body);
        let facts = written.map_err(|error| error.to_string())?;
        let places = paths(resource, &facts.api_version(), &item.namespace, &item.name);
        let place = |path| (path, body.clone());
        Ok(places.into_iter().map(place).collect())
    }
}
