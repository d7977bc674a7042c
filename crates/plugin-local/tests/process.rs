//! The plugin as a process, under our host and with a cluster in memory.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use bowline_apiserver::ApiServer;
use bowline_plugin::{
    host::{Plugins, Registry, Settings},
    kinds::{Config, Kind, NewVolume, VolumeSnapshotter},
};
use bowline_plugin_local::NAME;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline-plugin-local");

/// A cluster, a plugin folder, a node and a bucket.
struct Bed {
    dir: TempDir,
}

impl Bed {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plugins", "node/data/vol", "store/b"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let bed = Self { dir };
        let installed = by_hand(&["install", bed.path("plugins").to_str().unwrap()]);
        assert!(installed.status.success());
        let server = ApiServer::default();
        for crd in bowline_api::crd::all() {
            server.load(&crd).unwrap();
        }
        for object in bed.objects() {
            server.load(&object).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { server.serve(listener, None, std::future::pending()).await });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        fs::write(bed.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn objects(&self) -> [Value; 3] {
        let about = |name: &str| json!({ "name": name, "namespace": "backups" });
        [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "backups" } }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": about("velero-repo-credentials"),
                "data": { "repository-password": "c2VjcmV0Cg==" },
            }),
            json!({
                "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
                "metadata": about("default"),
                "spec": {
                    "provider": "filesystem",
                    "objectStorage": { "bucket": "b", "prefix": "p" },
                    "config": { "path": self.path("store") },
                },
            }),
        ]
    }

    fn repository(&self) -> PathBuf {
        self.path("store/b/p/plugins/bowline-local/pv-1")
    }

    async fn plugins(&self) -> Plugins {
        let mut kubeconfig = std::ffi::OsString::from("--kubeconfig=");
        kubeconfig.push(self.path("kubeconfig"));
        let settings = Settings {
            args: vec![kubeconfig, "--namespace".into(), "backups".into()],
            ..Settings::default()
        };
        let registry = Registry::read(&self.path("plugins"), &settings).await;
        let list: Vec<_> = registry
            .entries()
            .iter()
            .map(|e| (e.kind, &*e.name))
            .collect();
        assert_eq!(list, [(Kind::VolumeSnapshotter, NAME)]);
        Plugins::new(Arc::new(registry), settings)
    }

    async fn snapshotter(
        &self,
        plugins: &Plugins,
        more: &[(&str, &str)],
    ) -> Arc<dyn VolumeSnapshotter> {
        let snapshotter = plugins.volume_snapshotter(NAME).unwrap();
        let root = self.path("node").display().to_string();
        let mut config = Config::from([("hostRoot".to_owned(), root)]);
        config.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        snapshotter.init(&config).await.unwrap();
        snapshotter
    }

    /// Kills the process of the plugin.
    fn kill(&self) {
        let program = fs::canonicalize(self.path("plugins/bowline-plugin-local")).unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let ours: Vec<_> = processes
            .filter(|process| {
                fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program)
            })
            .collect();
        assert_eq!(ours.len(), 1);
        let pid: i32 = ours[0].file_name().to_str().unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

fn by_hand(args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).env_remove("VELERO_PLUGIN");
    command.output().unwrap()
}

/// Objects of a bucket; what a kill has left of one is none.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.retain(|file| {
        !file
            .file_name()
            .is_some_and(|n| n.as_bytes().starts_with(b"."))
    });
    files
}

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([("velero.io/pv".to_owned(), "pv-1".to_owned())])
}

/// Bytes that cannot be packed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn by_hand_it_says_what_it_is() {
    for args in [&[][..], &["server"], &["install", "a", "b"]] {
        let output = by_hand(args);
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("hostPath") && text.contains("install"),
            "{text}"
        );
    }
    assert!(by_hand(&["--help"]).status.success());
    let output = by_hand(&["install", "/no/such/folder"]);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/no/such/folder"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_killed_uploads_again() {
    let bed = Bed::new().await;
    let data = noise(24 << 20);
    fs::write(bed.path("node/data/vol/file"), &data).unwrap();
    let plugins = bed.plugins().await;
    let slow = [("uploadBytesPerSecond", "16Mi")];
    let plugin = bed.snapshotter(&plugins, &slow).await;
    let id = plugin
        .create_snapshot("/data/vol", "", &tags())
        .await
        .unwrap();

    let uploading = {
        let (plugin, id) = (Arc::clone(&plugin), id.clone());
        tokio::spawn(async move { plugin.upload_snapshot(&id).await })
    };
    // The first pack is in the bucket, the second on its way.
    loop {
        let progress = plugin.progress(&id, None).await.unwrap();
        assert!(!progress.is_completed, "{progress:?}");
        if progress.done > 0 {
            assert!(progress.done < progress.total && progress.started.is_some());
            break;
        }
        tokio::task::yield_now().await;
    }
    bed.kill();
    uploading.await.unwrap().unwrap_err();

    plugin.upload_snapshot(&id).await.unwrap();
    assert_eq!(files(&bed.repository().join("snapshots")).len(), 1);
    assert!(!bed.path("node/data/.bowline-snapshots").join(&id).exists());
    fs::remove_dir_all(bed.path("node/data/vol")).unwrap();
    let new = NewVolume {
        snapshot: id.clone(),
        ..NewVolume::default()
    };
    assert_eq!(plugin.create_volume(&new).await.unwrap(), "/data/vol");
    assert!(fs::read(bed.path("node/data/vol/file")).unwrap() == data);
    // The dead one's lock keeps nobody from tidying up.
    plugin.delete_snapshot(&id).await.unwrap();
    for folder in ["snapshots", "data", "locks"] {
        let left = files(&bed.repository().join(folder));
        assert!(left.is_empty(), "{left:?}");
    }
    plugins.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_lacks_is_named() {
    let bed = Bed::new().await;
    let plugins = bed.plugins().await;
    let config = [("backupLocation", "far")];
    let plugin = bed.snapshotter(&plugins, &config).await;
    let id = plugin
        .create_snapshot("/data/vol", "", &tags())
        .await
        .unwrap();
    let error = plugin.upload_snapshot(&id).await.unwrap_err().to_string();
    assert!(error.contains("no BackupStorageLocation far"), "{error}");
    let progress = plugin.progress(&id, None).await.unwrap();
    assert!(progress.is_completed && progress.error.contains("far"));
    plugins.stop().await;
}
