//! What the tests run against: an embedded Kubernetes API on a socket, a folder of files behind HTTP
//! in place of a bucket, and somebody who signs addresses as the server would.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::Stdio,
};

use axum::{Router, extract::Path, http::StatusCode, routing::get};
use bowline_api::{
    crd,
    files::{backup_suffix, restore_suffix},
    v1::{DownloadRequest, DownloadTargetKind},
};
use bowline_apiserver::ApiServer;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, net::TcpListener, process::Command};

/// A cluster with the kinds of Velero, and a home without a configuration.
pub(crate) struct Bed {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Ran {
    /// It went well and had nothing to say on the side.
    pub(crate) fn well(self) -> String {
        assert_eq!((self.err.as_str(), self.code), ("", 0), "{}", self.out);
        self.out
    }

    /// It failed with these words.
    pub(crate) fn refused(self) -> String {
        assert_eq!((self.out.as_str(), self.code), ("", 1), "{}", self.err);
        self.err
    }
}

impl Bed {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::default();
        let mut objects = crd::all();
        objects
            .push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero"}}));
        for object in &objects {
            server.load(object).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = server.clone();
        tokio::spawn(async move {
            let forever = std::future::pending();
            serving.serve(listener, None, forever).await.unwrap();
        });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "x",
        });
        fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self {
            client: Client::new(server.clone(), "velero"),
            server,
            folder,
        }
    }

    /// The same, with the objects of a golden file.
    pub(crate) fn with(self, file: &str) -> Self {
        for object in golden_objects(file) {
            self.server.load(&object).unwrap();
        }
        self
    }

    /// The same, with the objects of a folder that was made up for tests.
    pub(crate) fn with_made_up(self, folder: &str) -> Self {
        let path = made_up().join(folder).join("objects.json");
        let list: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        for object in list["items"].as_array().unwrap() {
            self.server.load(object).unwrap();
        }
        self
    }

    /// The same, with the pod volumes that a golden backup keeps a list of.
    pub(crate) fn with_pod_volumes_of(self, backup: &str) -> Self {
        let file = format!("{backup}{}", backup_suffix::POD_VOLUME_BACKUPS);
        let path = golden().join("bucket/backups").join(backup).join(file);
        let mut text = String::new();
        GzDecoder::new(fs::File::open(path).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        let volumes: Vec<Value> = serde_json::from_str(&text).unwrap();
        for mut volume in volumes {
            // Lists in files leave these out.
            volume["kind"] = json!("PodVolumeBackup");
            volume["apiVersion"] = json!("velero.io/v1");
            self.server.load(&volume).unwrap();
        }
        self
    }

    /// The same, with somebody to answer download requests from the golden bucket.
    pub(crate) async fn with_bucket(self) -> Self {
        let files = Router::new().route("/{folder}/{name}/{file}", get(bucket_file));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, files).await.unwrap() });
        let requests: Api<DownloadRequest> = Api::namespaced(self.client.clone(), "velero");
        tokio::spawn(async move {
            let events = watcher::watcher(requests.clone(), watcher::Config::default());
            let mut fresh = events.default_backoff().applied_objects().boxed();
            while let Some(request) = fresh.next().await {
                // Objects that are loaded meanwhile end the watch; it begins anew by itself.
                let Ok(request) = request else { continue };
                let status = request.status.clone().unwrap_or_default();
                if status.download_url.is_none() {
                    let target = &request.spec.target;
                    let url = format!("http://{address}/{}", key(&target.kind, &target.name));
                    let status = json!({"status": {"phase": "Processed", "downloadURL": url}});
                    let params = PatchParams::default();
                    requests
                        .patch(&request.name_any(), &params, &Patch::Merge(&status))
                        .await
                        .unwrap();
                }
            }
        });
        self
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        self.run_with_input(args, "").await
    }

    pub(crate) async fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read its input may be gone already.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        Ran {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap(),
        }
    }

    /// The program with this cluster, this home, and the time zone of the golden files.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("HOME", self.folder.path())
            .env("TZ", "UTC")
            .env_remove("VELERO_NAMESPACE")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// The names of the objects of a kind.
    pub(crate) async fn names<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), "velero");
        let all = api.list(&Default::default()).await.unwrap();
        all.items.iter().map(ResourceExt::name_any).collect()
    }
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../api/tests/golden")
}

/// The objects of a file of `objects/terminal`, or the last of one of `objects/transitions`.
pub(crate) fn golden_objects(file: &str) -> Vec<Value> {
    let path = golden().join("objects").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let mut by_name = BTreeMap::new();
    for mut document in documents {
        let items = match document["items"].take() {
            Value::Array(items) => items,
            _ => {
                document.as_object_mut().unwrap().remove("items");
                vec![document]
            }
        };
        for item in items {
            by_name.insert(item["metadata"]["name"].to_string(), item);
        }
    }
    by_name.into_values().collect()
}

async fn bucket_file(
    Path((folder, name, file)): Path<(String, String, String)>,
) -> (StatusCode, Vec<u8>) {
    let path = golden().join("bucket").join(&folder).join(&name);
    if let Ok(bytes) = fs::read(path.join(&file)) {
        return (StatusCode::OK, bytes);
    }
    // Those made up for tests are kept as text.
    let text = file.replace(".json", "").replace(".gz", ".json");
    let path = match folder.as_str() {
        "restores" => made_up().join(format!("{name}-restore")).join(text),
        _ => made_up().join(&name).join(text),
    };
    match fs::read(path) {
        Ok(bytes) => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&bytes).unwrap();
            (StatusCode::OK, gzip.finish().unwrap())
        }
        Err(_) => (StatusCode::NOT_FOUND, Vec::new()),
    }
}

fn made_up() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Where the bucket has a file.
fn key(kind: &DownloadTargetKind, name: &str) -> String {
    let backup = |suffix: &str| format!("backups/{name}/{name}{suffix}");
    let restore = |suffix: &str| format!("restores/{name}/restore-{name}{suffix}");
    match kind {
        DownloadTargetKind::BackupLog => backup(backup_suffix::LOG),
        DownloadTargetKind::BackupContents => backup(backup_suffix::CONTENTS),
        DownloadTargetKind::BackupResults => backup(backup_suffix::RESULTS),
        DownloadTargetKind::BackupResourceList => backup(backup_suffix::RESOURCE_LIST),
        DownloadTargetKind::BackupItemOperations => backup(backup_suffix::ITEM_OPERATIONS),
        DownloadTargetKind::BackupVolumeInfos => backup(backup_suffix::VOLUME_INFO),
        DownloadTargetKind::BackupVolumeSnapshots => backup(backup_suffix::VOLUME_SNAPSHOTS),
        DownloadTargetKind::RestoreLog => restore(restore_suffix::LOG),
        DownloadTargetKind::RestoreResults => restore(restore_suffix::RESULTS),
        DownloadTargetKind::RestoreResourceList => restore(restore_suffix::RESOURCE_LIST),
        DownloadTargetKind::RestoreItemOperations => restore(restore_suffix::ITEM_OPERATIONS),
        DownloadTargetKind::RestoreVolumeInfo => {
            format!("restores/{name}/{name}{}", restore_suffix::VOLUME_INFO)
        }
        _ => backup(".none"),
    }
}
