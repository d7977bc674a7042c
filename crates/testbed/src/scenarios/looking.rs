//! Looking on at objects while a server works on them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{Backup, BackupPhase, VolumePluginBackup, VolumePluginRestore},
};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use crate::scene::Scene;

/// What was seen of objects, in order.
pub(super) struct Looking {
    seen: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Looking {
    /// At all objects of a kind from now on, by what is to be noted of them.
    pub(super) async fn on<K>(
        scene: &Scene,
        note: impl Fn(&K) -> Option<String> + Send + 'static,
    ) -> anyhow::Result<Self>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let objects: Api<K> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
        let list = objects.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let changes = objects.watch(&WatchParams::default(), &version).await;
            let keep = |text| {
                let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                seen.push(text);
            };
            let mut changes = match changes {
                Ok(changes) => changes.boxed(),
                Err(error) => return keep(format!("could not look: {error}")),
            };
            loop {
                match changes.next().await {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        note(&object).into_iter().for_each(keep);
                    }
                    Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
                    other => return keep(format!("no longer looking: {other:?}")),
                }
            }
        });
        Ok(Self {
            seen,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// What was different, in order.
    pub(super) fn seen(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = BTreeSet::new();
        let new = seen.iter().filter(|text| known.insert(text.as_str()));
        new.cloned().collect()
    }
}

/// `Phase done/total` of a backup.
pub(super) fn backup_state(backup: &Backup) -> Option<String> {
    let status = backup.status.as_ref()?;
    let phase = status.phase.clone().unwrap_or_default();
    let progress = status.progress.clone().unwrap_or_default();
    let count = |n: Option<i64>| n.unwrap_or_default();
    Some(match phase {
        BackupPhase::WaitingForPluginOperations => format!(
            "{} {}/{}",
            phase.as_str(),
            count(progress.items_backed_up),
            count(progress.total_items)
        ),
        _ => phase.as_str().to_owned(),
    })
}

/// `Phase done/total` of what a plugin does.
macro_rules! plugin_state {
    ($name:ident, $kind:ty) => {
        pub(super) fn $name(object: &$kind) -> Option<String> {
            let status = object.status.as_ref()?;
            let phase = status.phase.clone().unwrap_or_default();
            let progress = status.progress.clone().unwrap_or_default();
            Some(format!(
                "{} {}/{}",
                phase.as_str(),
                progress.bytes_done.unwrap_or_default(),
                progress.total_bytes.unwrap_or_default()
            ))
        }
    };
}

plugin_state!(upload_state, VolumePluginBackup);
plugin_state!(download_state, VolumePluginRestore);

/// How often something was seen in the middle: in progress, with some of its bytes and not all.
pub(super) fn in_the_middle(seen: &[String]) -> usize {
    let middle = |text: &&String| {
        let numbers = text.strip_prefix("InProgress ").unwrap_or_default();
        let (done, total) = numbers.split_once('/').unwrap_or_default();
        let number = |text: &str| text.parse::<i64>().unwrap_or_default();
        number(done) > 0 && number(done) < number(total)
    };
    seen.iter().filter(middle).count()
}
