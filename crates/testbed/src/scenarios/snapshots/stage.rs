//! A folder as a PersistentVolume, and our plugin that takes snapshots of it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::{Backup, VolumePluginBackup},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    Mode, Process,
    bed::{self, Bucket},
    contents::Contents,
    peer,
    scene::{Scene, run},
    servers::{self, Ended, EndedRestore, Server},
    tree, wait_for,
};

/// The plugin's program, beside our own.
const PLUGIN: &str = "bowline-plugin-local";
/// Where snapshots go.
pub(in super::super) const LOCATION: &str = "disks";
/// What a small volume takes at most, whatever happens to it.
pub(super) const SOON: Duration = Duration::from_secs(120);

/// A location for backups, one for snapshots, and a folder with volumes.
pub(in super::super) struct Stage<'a> {
    pub(in super::super) scene: &'a Scene,
    pub(in super::super) bucket: Bucket,
    /// The disk, as whoever has it names it.
    disk: PathBuf,
    /// Where the root of whoever has it is seen.
    root: PathBuf,
}

/// A volume with its claim.
pub(in super::super) struct Volume {
    pub(in super::super) namespace: String,
    /// The name of the volume and of its claim.
    pub(in super::super) name: String,
    pub(in super::super) folder: PathBuf,
}

impl<'a> Stage<'a> {
    /// With volumes on a disk; `pace` limits uploads, in bytes a second.
    pub(in super::super) async fn set(
        scene: &'a Scene,
        bucket: &str,
        disk: &Path,
        pace: &str,
    ) -> anyhow::Result<Self> {
        let bucket = scene.bucket(bucket)?;
        peer::prepare(scene, &bucket).await?;
        let mut install = scene.bowline();
        install.args(["install", "--crds-only"]);
        run(install).await?;
        let plugins = scene.folder().join("plugins");
        fs::create_dir_all(&plugins)?;
        let plugin = plugins.join(PLUGIN);
        if !plugin.exists() {
            fs::copy(bed::bowline()?.with_file_name(PLUGIN), &plugin)
                .context("copy the plugin, which `cargo xtask e2e` builds")?;
        }
        let stage = Self {
            scene,
            bucket,
            disk: disk.to_owned(),
            root: match scene.bed().mode() {
                Mode::Node => scene.bed().node_root()?,
                _ => PathBuf::from("/"),
            },
        };
        stage.locate(pace).await?;
        Ok(stage)
    }

    /// The location of snapshots, with a pace for uploads; empty for none.
    pub(super) async fn locate(&self, pace: &str) -> anyhow::Result<()> {
        let mut config = json!({});
        if !pace.is_empty() {
            config["uploadBytesPerSecond"] = json!(pace);
        }
        let location = json!({
            "apiVersion": "velero.io/v1",
            "kind": "VolumeSnapshotLocation",
            "metadata": { "name": LOCATION, "namespace": DEFAULT_NAMESPACE },
            "spec": { "provider": "bowline.io/local", "config": config },
        });
        self.scene.apply(&[location]).await
    }

    pub(in super::super) fn plugins(&self) -> String {
        let folder = self.scene.folder().join("plugins");
        folder.to_string_lossy().into_owned()
    }

    /// A path of the disk, as it is seen here.
    pub(in super::super) fn seen(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Our server, with the plugin, on the node.
    pub(super) async fn server_on_node(&self) -> anyhow::Result<Process> {
        servers::start_on_node(self.scene, &["--plugin-dir", &self.plugins()]).await
    }

    /// Our server, with the plugin.
    pub(super) async fn server(&self) -> anyhow::Result<Process> {
        Server::Ours
            .start(self.scene, &["--plugin-dir", &self.plugins()])
            .await
    }

    /// The same, without waiting for anything, and with environment variables.
    pub(super) fn launch(&self, env: &[(&str, &str)]) -> anyhow::Result<Process> {
        servers::launch(self.scene, &["--plugin-dir", &self.plugins()], env)
    }

    /// A volume with files, and noise of this size.
    pub(in super::super) async fn volume(
        &self,
        name: &str,
        noise: usize,
    ) -> anyhow::Result<Volume> {
        let volume = Volume {
            namespace: self.scene.namespace(name).await?,
            name: self.scene.fresh(name),
            folder: self.disk.join(self.scene.fresh(name)),
        };
        let folder = self.seen(&volume.folder);
        fs::create_dir_all(&folder)?;
        tree::fill(&folder)?;
        tree::noise(&folder.join("noise"), noise, 8)?;
        self.bind(&volume).await?;
        Ok(volume)
    }

    /// Makes the objects of a volume, as if somebody had bound them.
    async fn bind(&self, volume: &Volume) -> anyhow::Result<()> {
        let Volume {
            namespace,
            name,
            folder,
        } = volume;
        let common = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "" });
        let mut pv = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": { "name": name },
            "spec": common,
        });
        pv["spec"]["capacity"] = json!({ "storage": "1Gi" });
        pv["spec"]["hostPath"] = json!({ "path": folder });
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        pv["spec"]["claimRef"] = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
        });
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": namespace },
            "spec": common,
        });
        claim["spec"]["volumeName"] = json!(name);
        claim["spec"]["resources"] = json!({ "requests": { "storage": "1Gi" } });
        self.scene.apply(&[pv, claim]).await?;
        if self.scene.bed().mode() == Mode::Node {
            // Somebody does.
            return Ok(());
        }
        let bound = r#"{"status":{"phase":"Bound"}}"#;
        for (kind, place) in [("pv", None), ("pvc", Some(namespace))] {
            let mut args = vec!["patch", kind, name, "--subresource=status"];
            args.extend(["--type=merge", "-p", bound]);
            if let Some(namespace) = place {
                args.extend(["-n", namespace]);
            }
            self.scene.kubectl(&args).await?;
        }
        Ok(())
    }

    /// Removes a volume's objects and its files.
    pub(super) async fn lose(&self, volume: &Volume) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.scene.client(), &volume.namespace);
        let volumes: Api<PersistentVolume> = Api::all(self.scene.client());
        let free = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let plain = kube::api::PatchParams::default();
        claims.delete(&volume.name, &now).await?;
        let _ = claims.patch(&volume.name, &plain, &free).await;
        volumes.delete(&volume.name, &now).await?;
        let _ = volumes.patch(&volume.name, &plain, &free).await;
        wait_for("the volume's objects to go", SOON, async || {
            let gone = claims.get_opt(&volume.name).await?.is_none()
                && volumes.get_opt(&volume.name).await?.is_none();
            Ok(gone.then_some(()))
        })
        .await?;
        fs::remove_dir_all(self.seen(&volume.folder))?;
        Ok(())
    }

    /// The spec of a backup with the volume's snapshot.
    pub(super) fn spec(&self, volume: &Volume) -> Value {
        json!({
            "includedNamespaces": [volume.namespace],
            "volumeSnapshotLocations": [LOCATION],
        })
    }

    pub(super) async fn back_up(&self, name: &str, volume: &Volume) -> anyhow::Result<Ended> {
        servers::back_up(&self.scene.client(), name, &self.spec(volume)).await
    }

    pub(in super::super) async fn restore(
        &self,
        name: &str,
        backup: &str,
        more: Value,
    ) -> anyhow::Result<EndedRestore> {
        let mut spec = json!({ "backupName": backup });
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        servers::restore(&self.scene.client(), name, &spec).await
    }

    /// Where a restored volume is now.
    pub(super) async fn folder_of(&self, volume: &str) -> anyhow::Result<PathBuf> {
        let volumes: Api<PersistentVolume> = Api::all(self.scene.client());
        let found = volumes.get(volume).await?;
        let path = found.spec.and_then(|spec| spec.host_path);
        Ok(path.context("it is no folder")?.path.into())
    }

    /// The VolumePluginBackups of a backup.
    pub(super) async fn tracked(&self, backup: &str) -> anyhow::Result<Vec<VolumePluginBackup>> {
        let objects: Api<VolumePluginBackup> =
            Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let of = ListParams::default().labels(&format!("{}={backup}", label::BACKUP_NAME));
        Ok(objects.list(&of).await?.items)
    }

    /// The phases of the snapshots that the backup's file has, by volume.
    pub(super) fn records(&self, backup: &str) -> anyhow::Result<Vec<(String, String)>> {
        let contents = Contents::read(&self.bucket, backup)?;
        let file = contents.files.get("-volumesnapshots.json.gz");
        let records = file.and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pair = |record: &Value| {
            (
                text(&record["spec"]["persistentVolumeName"]),
                text(&record["status"]["phase"]),
            )
        };
        Ok(records.iter().map(pair).collect())
    }

    /// Clones that are on the disk, whole or not.
    pub(super) fn clones(&self) -> Vec<String> {
        let entries = fs::read_dir(self.seen(&self.disk.join(".bowline-snapshots")));
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }

    /// Snapshots that are in the bucket: files of repositories' folder for them.
    pub(super) fn stored(&self) -> usize {
        let root = self.bucket.folder().join("plugins/bowline-local");
        let repositories = fs::read_dir(root).into_iter().flatten().flatten();
        repositories
            .filter_map(|repository| fs::read_dir(repository.path().join("snapshots")).ok())
            .map(Iterator::count)
            .sum()
    }

    /// Deletes backups by our own command, and waits until they are gone.
    pub(in super::super) async fn delete(&self, backup: &str) -> anyhow::Result<()> {
        let mut delete = self.scene.bowline();
        delete.args(["backup", "delete", backup, "--confirm"]);
        run(delete).await?;
        let backups: Api<Backup> = Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        wait_for("the backup to go", SOON, async || {
            Ok(backups.get_opt(backup).await?.is_none().then_some(()))
        })
        .await
    }

    /// Nothing of any snapshot is left: no clone, no snapshot in the bucket, no object.
    pub(in super::super) async fn is_clean(&self) -> anyhow::Result<()> {
        let (clones, stored) = (self.clones(), self.stored());
        ensure!(clones.is_empty(), "clones are left: {clones:?}");
        ensure!(stored == 0, "{stored} snapshots are left in the bucket");
        let objects: Api<VolumePluginBackup> =
            Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let left = objects.list(&ListParams::default()).await?.items;
        let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "VolumePluginBackups are left: {names:?}");
        Ok(())
    }

    pub(in super::super) async fn close(self) -> anyhow::Result<()> {
        // Where the plugin remembers its folders; nothing is to be left in it.
        let memory = Path::new("/var/lib/bowline-plugin-local");
        if memory.exists() {
            fs::remove_dir(memory).context("the plugin remembers a clone that is gone")?;
        }
        peer::remove(self.scene).await
    }
}
