//! What the plain plugin works on: a namespace with a claim on a hostPath volume, and ConfigMaps whose
//! labels ask for its actions.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use bowline_api::names::DEFAULT_NAMESPACE;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use serde_json::{Value, json};

use crate::{
    Process,
    bed::Bucket,
    build::PLAIN_PLUGIN,
    peer,
    scene::{Scene, run},
    servers::Server,
    wait_for,
};

/// The location of snapshots.
pub(super) const LOCATION: &str = "plain";
/// The ConfigMap that the plugin is busy with.
pub(super) const SLOW: &str = "slow";
/// The one that is read again when it is done.
pub(super) const OTHER: &str = "other";
const CLAIM: &str = "data";

/// Longer than anything here takes.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// A volume's files by path.
pub(super) type Data = BTreeMap<PathBuf, Vec<u8>>;

pub(super) struct Stage<'a> {
    pub(super) scene: &'a Scene,
    pub(super) bucket: Bucket,
    /// The plugin's folder.
    pub(super) home: PathBuf,
    /// Where the plugin notes what nobody would see otherwise.
    pub(super) notes: PathBuf,
    pub(super) namespace: String,
    /// A namespace whose operation never ends.
    pub(super) stuck: String,
    /// The volume, by name.
    pub(super) volume: String,
    /// What is in it.
    pub(super) data: Data,
}

impl<'a> Stage<'a> {
    /// With a location of one of the plugin's snapshotters.
    pub(super) async fn set(
        scene: &'a Scene,
        bucket: Bucket,
        provider: &str,
    ) -> anyhow::Result<Self> {
        let folder = scene.folder().join("first");
        fs::create_dir_all(folder.join("below"))?;
        fs::write(folder.join("line"), "a line\n")?;
        fs::write(folder.join("below/bytes"), [0, 1, 255].repeat(100_000))?;
        let notes = scene.folder().join("notes");
        fs::create_dir_all(&notes)?;
        let stage = Self {
            scene,
            bucket,
            home: scene.folder().join("plain"),
            notes,
            namespace: scene.namespace("plain").await?,
            stuck: scene.namespace("stuck").await?,
            volume: scene.fresh("volume"),
            data: data(&folder)?,
        };
        scene.apply(&stage.objects(&folder, provider)).await?;
        stage.bound(&stage.namespace).await?;
        Ok(stage)
    }

    fn objects(&self, folder: &Path, provider: &str) -> Vec<Value> {
        let map = |namespace: &str, name: &str, labels: Value| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "namespace": namespace, "name": name, "labels": labels },
                "data": { "k": "v" },
            })
        };
        let asks = json!({
            "example.com/slow": "3s",
            "example.com/slow-restore": "2s",
            "example.com/noted": "yes",
            "example.com/together": OTHER,
        });
        vec![
            json!({
                "apiVersion": "velero.io/v1",
                "kind": "VolumeSnapshotLocation",
                "metadata": { "namespace": DEFAULT_NAMESPACE, "name": LOCATION },
                "spec": { "provider": provider, "config": { "folder": self.home } },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": { "name": self.volume },
                "spec": {
                    "capacity": { "storage": "1Gi" },
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": { "path": folder },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": { "namespace": self.namespace, "name": CLAIM },
                "spec": {
                    "storageClassName": "",
                    "volumeName": self.volume,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }),
            map(&self.namespace, SLOW, asks),
            map(&self.namespace, OTHER, json!({})),
            map(&self.stuck, SLOW, json!({ "example.com/slow": "1h" })),
        ]
    }

    /// Starts a server with the plugin, which asks often how far operations are.
    pub(super) async fn start(&self, server: Server) -> anyhow::Result<Process> {
        let programs: &[&str] = match server {
            Server::Velero => &["velero-plugin-for-aws", PLAIN_PLUGIN],
            Server::Ours => &[PLAIN_PLUGIN],
        };
        let folder = format!("{}-plugins", server.name());
        let folder = peer::plugins(self.scene, &folder, programs)?;
        let flags = [
            "--plugin-dir",
            &folder.to_string_lossy(),
            "--item-operation-sync-frequency",
            "1s",
        ];
        let env = [
            ("PLAIN_PLUGIN_NOTES", &*self.notes.to_string_lossy()),
            ("VELERO_NAMESPACE", DEFAULT_NAMESPACE),
        ];
        server.start_with(self.scene, &flags, &env).await
    }

    /// Runs our command line and gives what it printed.
    pub(super) async fn ours(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.scene.bowline();
        command.args(args);
        run(command).await
    }

    /// Where a snapshot is kept.
    pub(super) fn snapshot(&self, id: &str) -> PathBuf {
        self.home.join("snapshots").join(id)
    }

    /// Waits until the claim of a namespace has its volume.
    pub(super) async fn bound(&self, namespace: &str) -> anyhow::Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.scene.client(), namespace);
        wait_for("the claim to be bound", SOON, async || {
            let phase = claims.get(CLAIM).await?.status.and_then(|s| s.phase);
            ensure!(phase.as_deref() == Some("Bound"), "it is {phase:?}");
            Ok(Some(()))
        })
        .await
    }

    /// The volume of the claim of a namespace.
    pub(super) async fn volume_of(&self, namespace: &str) -> anyhow::Result<String> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.scene.client(), namespace);
        let claim = claims.get(CLAIM).await?;
        let name = claim.spec.and_then(|spec| spec.volume_name);
        name.context("the claim has no volume")
    }

    /// The folder of a volume.
    pub(super) async fn folder(&self, volume: &str) -> anyhow::Result<PathBuf> {
        let volumes: Api<PersistentVolume> = Api::all(self.scene.client());
        let spec = volumes.get(volume).await?.spec.unwrap_or_default();
        let path = spec.host_path.context("no hostPath")?.path;
        Ok(path.into())
    }

    /// Namespace, volume and data go.
    pub(super) async fn lose(&self) -> anyhow::Result<()> {
        let folder = self.folder(&self.volume).await?;
        self.remove(&self.namespace, &self.volume).await?;
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))
    }

    /// Removes a namespace and the volume of its claim.
    pub(super) async fn remove(&self, namespace: &str, volume: &str) -> anyhow::Result<()> {
        for what in [["namespace", namespace], ["persistentvolume", volume]] {
            let [kind, name] = what;
            let args = ["delete", kind, name, "--timeout=60s"];
            self.scene.kubectl(&args).await?;
        }
        Ok(())
    }

    /// Removes what no other scenario should see.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.remove(&self.namespace, &self.volume).await
    }
}

/// The files below a folder.
pub(super) fn data(folder: &Path) -> anyhow::Result<Data> {
    let mut found = Data::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = fs::read_dir(&next).with_context(|| format!("read {}", next.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path)?;
            found.insert(path.strip_prefix(folder)?.to_owned(), bytes);
        }
    }
    Ok(found)
}
