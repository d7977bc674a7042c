//! A cluster in memory, a folder with buckets, and controllers that can be stopped and started.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bowline_api::{
    VeleroResource,
    v1::{Backup, BackupStorageLocation},
};
use bowline_apiserver::ApiServer;
use bowline_server::{Context, Settings};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, api::PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Backups that Velero made.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/tests/golden/bucket");

pub(crate) struct Scene {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) ctx: Arc<Context>,
    settings: Settings,
    folder: TempDir,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ctx.stop.cancel();
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    /// With these settings.
    pub(crate) fn with(settings: Settings) -> Self {
        let server = ApiServer::default();
        for crd in bowline_api::crd::all() {
            server.load(&crd).unwrap();
        }
        server
            .load(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero"}}))
            .unwrap();
        let client = Client::new(server.clone(), "velero");
        Self {
            ctx: context(&client, &settings),
            server,
            client,
            settings,
            folder: TempDir::new().unwrap(),
        }
    }

    /// Stops all controllers; those that are started from now on know nothing of before.
    pub(crate) fn restart(&mut self) {
        self.ctx.stop.cancel();
        self.ctx = context(&self.client, &self.settings);
    }

    /// The server dies, with all it is at; another one begins.
    pub(crate) fn kill(&mut self) {
        self.ctx.abort.cancel();
        self.restart();
    }

    /// Starts a controller.
    pub(crate) fn start<F>(&self, controller: impl FnOnce(Arc<Context>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(controller(Arc::clone(&self.ctx)));
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: VeleroResource + Resource<Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "velero")
    }

    /// Creates an object of the server's namespace.
    pub(crate) async fn create<K>(&self, mut object: Value) -> K
    where
        K: VeleroResource + Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        object["apiVersion"] = format!("velero.io/{}", K::VERSION).into();
        object["kind"] = K::KIND.into();
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    /// Puts in an object with times and phases of its own, as somebody else left it.
    pub(crate) fn load<K: VeleroResource>(&self, name: &str, rest: Value) {
        let mut object = json!({
            "apiVersion": format!("velero.io/{}", K::VERSION),
            "kind": K::KIND,
            "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-of-{name}")},
        });
        merge(&mut object, rest);
        self.server.load(&object).unwrap();
    }

    pub(crate) async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: VeleroResource + Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        self.api::<K>().get_opt(name).await.ok().flatten()
    }

    /// Names of all objects of a kind, sorted.
    pub(crate) async fn names<K>(&self) -> Vec<String>
    where
        K: VeleroResource + Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        let list = self.api::<K>().list(&ListParams::default()).await;
        let mut names: Vec<_> = match list {
            Ok(list) => list.iter().map(ResourceExt::name_any).collect(),
            Err(_) => vec!["(no answer)".to_owned()],
        };
        names.sort_unstable();
        names
    }

    /// The folder of a bucket.
    pub(crate) fn bucket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A location in a folder, with a bucket of its own name.
    pub(crate) async fn location(&self, name: &str, spec: Value) -> BackupStorageLocation {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {
                "provider": "filesystem",
                "config": {"path": self.folder.path()},
                "objectStorage": {"bucket": name},
            },
        });
        merge(&mut object["spec"], spec);
        self.create(object).await
    }

    /// A location that was found available.
    pub(crate) fn available(&self, name: &str, rest: Value) {
        let mut object = json!({
            "spec": {
                "provider": "filesystem",
                "config": {"path": self.folder.path()},
                "objectStorage": {"bucket": name},
            },
            "status": {"phase": "Available", "lastValidationTime": "2026-11-15T03:00:00Z"},
        });
        merge(&mut object, rest);
        self.load::<BackupStorageLocation>(name, object);
    }

    /// Copies a folder of Velero's bucket into a bucket.
    pub(crate) fn golden(&self, bucket: &str, folder: &str) {
        copy(
            &Path::new(GOLDEN).join(folder),
            &self.bucket(bucket).join(folder),
        );
    }

    /// Puts the object of a backup, and its archive, into a bucket.
    pub(crate) fn put_backup(&self, bucket: &str, backup: &Backup) {
        let name = backup.name_any();
        let folder = self.bucket(bucket).join("backups").join(&name);
        fs::create_dir_all(&folder).unwrap();
        let text = serde_json::to_vec(backup).unwrap();
        fs::write(folder.join("velero-backup.json"), text).unwrap();
        fs::write(folder.join(format!("{name}.tar.gz")), "archive").unwrap();
    }
}

fn context(client: &Client, settings: &Settings) -> Arc<Context> {
    Arc::new(Context::new(client.clone(), "velero", settings.clone()))
}

/// A backup as it lies in a bucket.
pub(crate) fn backup(name: &str, status: Value) -> Backup {
    serde_json::from_value(json!({
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {"name": name, "namespace": "elsewhere", "uid": "old"},
        "spec": {},
        "status": status,
    }))
    .unwrap()
}

/// Waits for something to become so.
pub(crate) async fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while !is().await {
        assert!(
            tokio::time::Instant::now() < end,
            "waited too long for {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Puts all of a value into another.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
