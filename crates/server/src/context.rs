//! What every reconciler has at hand: the cluster, the clock, the buckets, the counters.

use std::{collections::BTreeSet, sync::Mutex};

use bowline_api::{VeleroResource, json::merge_patch, v1::BackupStorageLocation};
use bowline_vault::{Bucket, Location};
use k8s_openapi::api::core::v1::{Secret, SecretKeySelector};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{Error, Result, Settings, metrics::Metrics, plugins::Plugins};

/// What every reconciler has at hand.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// The namespace of the server and of all objects it looks after.
    pub namespace: String,
    /// The flags.
    pub settings: Settings,
    /// The counters.
    pub metrics: Metrics,
    /// When this process began.
    pub started: jiff::Timestamp,
    /// Ends when the server is to stop: nothing new is begun.
    pub stop: CancellationToken,
    /// Ends when work under way must stop too: the server's patience is over, or it is no longer
    /// the leader.
    pub abort: CancellationToken,
    /// Backups that this server is working on.
    pub running: Running,
    /// Restores that this server is working on.
    pub restoring: Running,
    /// DataUploads that this process looks after.
    pub moving_out: Running,
    /// DataDownloads that this process looks after.
    pub moving_in: Running,
    /// Programs that add to what it can do.
    pub plugins: Plugins,
}

/// Names of what somebody in this process works on.
#[derive(Debug, Default)]
pub struct Running(Mutex<BTreeSet<String>>);

impl Running {
    /// Whether somebody works on it.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.lock().contains(name)
    }

    /// Claims one until [`finish`](Self::finish); false when somebody has it already.
    pub fn start(&self, name: &str) -> bool {
        self.lock().insert(name.to_owned())
    }

    /// Lets one go.
    pub fn finish(&self, name: &str) {
        self.lock().remove(name);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0
            .lock()
            .expect("nothing panics while it holds the set")
    }
}

impl Context {
    /// A server that has just begun.
    #[must_use]
    pub fn new(client: Client, namespace: &str, settings: Settings) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            settings,
            metrics: Metrics::default(),
            started: jiff::Timestamp::now(),
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            running: Running::default(),
            restoring: Running::default(),
            moving_out: Running::default(),
            moving_in: Running::default(),
            plugins: Plugins::default(),
        }
    }

    /// The objects of a kind in the server's namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: VeleroResource + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    /// Opens the bucket of a location, with the Secrets it refers to. Its calls end when the server
    /// is to stop.
    pub async fn bucket(&self, location: &BackupStorageLocation) -> Result<Bucket> {
        let location = self.location(location).await?;
        let bucket = match self.plugins.bucket(&location).await? {
            Some(bucket) => bucket,
            None => bowline_vault::open(&location)?,
        };
        Ok(bucket
            .with_cancel(self.stop.clone())
            .with_metrics(self.metrics.store.clone()))
    }

    /// A location with the Secrets it refers to.
    pub async fn location(&self, location: &BackupStorageLocation) -> Result<Location> {
        let secret = |key| async move { self.secret(&key).await };
        let resolved = Location::resolve(location, secret).await;
        resolved.map_err(Error::Credentials)
    }

    /// A key of a Secret in the server's namespace, or why there is none.
    pub(crate) async fn secret(&self, key: &SecretKeySelector) -> Result<Vec<u8>, String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get_opt(&key.name)
            .await
            .map_err(|e| format!("read secret {}: {e}", key.name))?
            .ok_or_else(|| format!("secret {} not found", key.name))?;
        secret
            .data
            .and_then(|mut data| data.remove(&key.key))
            .map(|value| value.0)
            .ok_or_else(|| format!("secret {} has no key {}", key.name, key.key))
    }

    /// Writes what `new` has different from `old`, as one merge patch; sends nothing when that is
    /// nothing. With `old`'s resource version the write is refused when somebody was faster.
    pub async fn update<K>(&self, old: &K, new: &K) -> Result<K>
    where
        K: VeleroResource
            + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + std::fmt::Debug,
    {
        let value = |object: &K| serde_json::to_value(object).expect("our own types are JSON");
        let Some(mut patch) = merge_patch(&value(old), &value(new)) else {
            return Ok(new.clone());
        };
        if let (Some(version), Some(patch)) = (old.resource_version(), patch.as_object_mut()) {
            patch
                .entry("metadata")
                .or_insert_with(|| Value::Object(Map::new()))
                .as_object_mut()
                .expect("metadata is an object on both sides")
                .insert("resourceVersion".to_owned(), Value::String(version));
        }
        let name = old.name_any();
        self.api::<K>()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(Error::api(format!("patch {} {name}", K::KIND)))
    }
}
