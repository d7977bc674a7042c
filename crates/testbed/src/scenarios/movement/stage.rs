//! Our processes in a cluster with CSI, two claims with data, and lists of all that movements could leave.

use std::{collections::BTreeSet, fs, io::Write, path::Path, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::Backup,
    v2alpha1::{DataDownload, DataUpload},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use super::{super::pod_volumes, Data};
use crate::{
    bed::Bucket,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    ours,
    relay::Relay,
    scene::{Scene, run},
    tree, wait_for,
};

pub(in super::super) const FILES: &str = "files";
pub(in super::super) const BLOCKS: &str = "blocks";
/// Bytes of files that take a while on the way to a slow store.
const NOISE: usize = 64 << 20;
/// The device, and the part of it that nobody has written to.
const DEVICE: usize = 64 << 20;
pub(in super::super) const HOLE: usize = 40 << 20;
/// On every part that goes to S3 or comes from it.
const DELAY: Duration = Duration::from_millis(30);
const SOON: Duration = Duration::from_secs(180);

/// Everything that a scenario needs.
pub(in super::super) struct Stage<'a> {
    pub(in super::super) scene: &'a Scene,
    pub(in super::super) bucket: Bucket,
    pub(in super::super) csi: Csi,
    volumes: pod_volumes::stage::Stage<'a>,
    _relay: Relay,
}

/// What movements could leave, by name.
pub(in super::super) type Lists = BTreeSet<String>;

impl<'a> Stage<'a> {
    pub(in super::super) async fn install(scene: &'a Scene, bucket: &str) -> anyhow::Result<Self> {
        let csi = Csi::on(scene.bed()).await?;
        let relay = pod_volumes::stage::slow_store(scene, DELAY).await?;
        let flags = ["--features=EnableCSI"];
        let volumes =
            pod_volumes::stage::Stage::install_with(scene, bucket, relay.address, &flags).await?;
        Ok(Self {
            scene,
            bucket: volumes.bucket.clone(),
            csi,
            volumes,
            _relay: relay,
        })
    }

    /// The same, as far as repositories and pods are concerned.
    pub(in super::super) fn volumes(&self) -> &pod_volumes::stage::Stage<'a> {
        &self.volumes
    }

    pub(in super::super) async fn close(self) -> anyhow::Result<()> {
        self.volumes.close().await
    }

    /// The same, when processes were killed.
    pub(in super::super) async fn close_killed(self) -> anyhow::Result<()> {
        ours::remove(self.scene).await
    }

    /// Makes the claims of a namespace.
    pub(in super::super) async fn claims(&self, namespace: &str) -> anyhow::Result<()> {
        self.scene
            .apply(&[
                objects::claim(namespace, FILES, Kind::Files, "256Mi"),
                objects::claim(namespace, BLOCKS, Kind::Blocks, "64Mi"),
            ])
            .await
    }

    /// Puts data into both volumes.
    pub(in super::super) async fn fill(&self, namespace: &str) -> anyhow::Result<Data> {
        let folder = self.csi.volume(&self.csi.bound(namespace, FILES).await?);
        tree::fill(&folder)?;
        tree::noise(&folder.join("noise"), NOISE, 11)?;
        let device = self.csi.volume(&self.csi.bound(namespace, BLOCKS).await?);
        write_device(&device, &self.scene.folder().join("device-noise"))?;
        let blocks = fs::read(&device)?;
        ensure!(
            blocks.len() == DEVICE,
            "the device has {} bytes",
            blocks.len()
        );
        Ok(Data {
            files: tree::read(&folder, &[])?,
            blocks,
        })
    }

    /// The volumes of a namespace have this data, and the device its hole.
    pub(in super::super) async fn has(&self, namespace: &str, data: &Data) -> anyhow::Result<()> {
        let folder = self.csi.volume(&self.csi.bound(namespace, FILES).await?);
        tree::same(&data.files, &tree::read(&folder, &[])?)?;
        let device = self.csi.volume(&self.csi.bound(namespace, BLOCKS).await?);
        ensure!(fs::read(&device)? == data.blocks, "the device is another");
        let used = usize::try_from(tree::on_disk(&device)?)?;
        let most = DEVICE - HOLE + (4 << 20);
        ensure!(
            used <= most,
            "the device has lost its holes: {used} bytes are used"
        );
        Ok(())
    }

    /// Deletes a namespace, and waits until the driver has none of its volumes.
    pub(in super::super) async fn lose(&self, namespace: &str) -> anyhow::Result<()> {
        let mut handles = Vec::new();
        for claim in [FILES, BLOCKS] {
            handles.push(self.csi.bound(namespace, claim).await?);
        }
        self.volumes.forget(namespace).await?;
        wait_for("the volumes to go", SOON, async || {
            let left = self.csi.volumes()?;
            let ours = handles.iter().filter(|handle| left.contains(*handle));
            let ours: Vec<_> = ours.collect();
            ensure!(ours.is_empty(), "the driver has {ours:?}");
            Ok(Some(()))
        })
        .await
    }

    /// No snapshot is anywhere.
    pub(in super::super) async fn is_empty(&self) -> anyhow::Result<()> {
        wait_for("the snapshots to go", SOON, async || {
            let snapshots = self.csi.snapshots()?;
            ensure!(snapshots.is_empty(), "the driver has {snapshots:?}");
            for api in objects::everywhere(&self.scene.client()) {
                let found = api.list(&ListParams::default()).await?;
                let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
                ensure!(names.is_empty(), "there are {names:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// Pods and claims of movements, volumes, snapshots and contents, here and in the driver.
    pub(in super::super) async fn lists(&self) -> anyhow::Result<Lists> {
        let client = self.scene.client();
        let mut found = Lists::new();
        let here = |kind: &str, names: Vec<String>| {
            let line = move |name: String| format!("{kind} {name}");
            names.into_iter().map(line).collect::<Vec<_>>()
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        let movers = format!("{},{}", label::EXPOSER_POD_GROUP, label::EXPOSER_POD_GROUP);
        found.extend(here("pod", names(&pods, &movers).await?));
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        found.extend(here("claim", names(&claims, "").await?));
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        found.extend(here("volume", names(&volumes, "").await?));
        for api in objects::everywhere(&client) {
            let list = api.list(&ListParams::default()).await?;
            let named = list.iter().map(ResourceExt::name_any).collect();
            found.extend(here("snapshot", named));
        }
        found.extend(here(
            "driver's volume",
            self.csi.volumes()?.into_iter().collect(),
        ));
        found.extend(here(
            "driver's snapshot",
            self.csi.snapshots()?.into_iter().collect(),
        ));
        Ok(found)
    }

    /// Everything is as it was.
    pub(in super::super) async fn is_as(&self, before: &Lists) -> anyhow::Result<()> {
        wait_for("nothing to be left", SOON, async || {
            let now = self.lists().await?;
            let more: Vec<_> = now.difference(before).collect();
            ensure!(more.is_empty(), "there are {more:?}");
            Ok(Some(()))
        })
        .await
    }

    pub(in super::super) async fn uploads(&self, backup: &str) -> anyhow::Result<Vec<DataUpload>> {
        let all: Api<DataUpload> = Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let of = ListParams::default().labels(&format!("{}={backup}", label::BACKUP_NAME));
        Ok(all.list(&of).await?.items)
    }

    pub(in super::super) async fn downloads(
        &self,
        restore: &str,
    ) -> anyhow::Result<Vec<DataDownload>> {
        let all: Api<DataDownload> = Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let of = ListParams::default().labels(&format!("{}={restore}", label::RESTORE_NAME));
        Ok(all.list(&of).await?.items)
    }

    /// The snapshot in the repository that a claim was moved into.
    pub(in super::super) async fn snapshot(
        &self,
        backup: &str,
        claim: &str,
    ) -> anyhow::Result<String> {
        let uploads = self.uploads(backup).await?;
        let upload = uploads.into_iter().find(|u| u.spec.source_pvc == claim);
        let id = upload.and_then(|upload| upload.status?.snapshot_id);
        id.context("there is no snapshot")
    }

    /// Deletes a backup, and waits until it is gone.
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
}

/// Noise at both ends, and a hole in between.
fn write_device(device: &Path, noise: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;

    tree::noise(noise, DEVICE - HOLE, 12)?;
    let noise = fs::read(noise)?;
    let half = noise.len() / 2;
    let mut file = fs::OpenOptions::new().write(true).open(device)?;
    file.write_all_at(&noise[..half], 0)?;
    file.write_all_at(
        &noise[half..],
        u64::try_from(DEVICE - (noise.len() - half))?,
    )?;
    file.flush()?;
    file.sync_all()?;
    if usize::try_from(tree::on_disk(device)?)? > DEVICE - HOLE + (1 << 20) {
        bail!("the device has no hole to begin with");
    }
    Ok(())
}

async fn names<K>(api: &Api<K>, labels: &str) -> anyhow::Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let list = api.list(&ListParams::default().labels(labels)).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}
