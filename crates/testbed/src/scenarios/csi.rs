//! The bed's own CSI driver: that it is one, and that snapshots on a bed are real.

pub(super) mod exchange;
pub(super) mod killed;
pub(super) mod pods;
pub(super) mod sanity;

use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};
use kube::api::{DeleteParams, ListParams};

use crate::{
    build::CSI_DRIVER,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    scene::Scene,
    wait_for,
};

/// Snapshots take as long here.
const TAKES: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(60);
/// Where something is written into a block volume; no whole number of pages.
const OFFSET: u64 = 1_000_003;

/// Claims are provisioned without a node; snapshots are copies, wait and fail when they are to; what
/// is deleted is gone from the driver's folder.
pub(super) async fn works(scene: &Scene) -> anyhow::Result<String> {
    let csi = Csi::on(scene.bed()).await?;
    let namespace = scene.namespace("csi").await?;
    let story = Story {
        scene,
        csi,
        namespace,
    };
    for kind in Kind::ALL {
        story.comes_back(kind).await?;
    }
    story.fails_and_recovers().await?;
    story.groups().await?;
    story.outlives_its_driver().await?;
    story.goes().await?;
    Ok("claims of files and of blocks, each back from its snapshot; a failed one, a group of 2, a killed driver; nothing stays".to_owned())
}

struct Story<'a> {
    scene: &'a Scene,
    csi: Csi,
    namespace: String,
}

impl Story<'_> {
    /// What a snapshot holds is what was in the volume when it was taken, and a claim gets it.
    async fn comes_back(&self, kind: Kind) -> anyhow::Result<()> {
        let (name, size) = (kind.volume_mode().to_lowercase(), "8Mi");
        let claim = objects::claim(&self.namespace, &name, kind, size);
        self.scene.apply(&[claim]).await?;
        let volume = self.csi.bound(&self.namespace, &name).await?;
        put(&self.csi.volume(&volume), kind, b"before")?;

        self.csi.ready_after(Some(TAKES))?;
        let taken = self.snapshot(&name, &name).await?;
        self.csi.ready_after(None)?;
        put(&self.csi.volume(&volume), kind, b"after!")?;

        let copy = format!("{name}-copy");
        let claim = objects::claim(&self.namespace, &copy, kind, size);
        let claim = objects::from_snapshot(claim, &name);
        self.scene.apply(&[claim]).await?;
        let restored = self.csi.bound(&self.namespace, &copy).await?;
        ensure!(restored != volume, "the copy is the volume itself");
        for (what, data, expected) in [
            ("the snapshot", self.csi.snapshot(&taken), b"before"),
            ("the copy", self.csi.volume(&restored), b"before"),
            ("the volume", self.csi.volume(&volume), b"after!"),
        ] {
            let found = get(&data, kind)?;
            ensure!(
                found == expected,
                "{what} of {name} has {:?}",
                String::from_utf8_lossy(&found)
            );
        }
        Ok(())
    }

    /// Takes a snapshot; back with its handle when it is ready, which is not before its time.
    async fn snapshot(&self, name: &str, claim: &str) -> anyhow::Result<String> {
        let object = objects::snapshot(&self.namespace, name, claim);
        self.scene.apply(&[object]).await?;
        let all = objects::snapshots(self.scene.client(), &self.namespace);
        let ready = objects::ready(&all, name).await?;
        let seen = SystemTime::now();
        let content = objects::content(self.scene.client(), &ready).await?;
        let made = content.data["status"]["creationTime"].as_u64();
        let made = Duration::from_nanos(made.context("no time of creation")?);
        let age = seen.duration_since(SystemTime::UNIX_EPOCH + made)?;
        ensure!(age >= TAKES, "{name} was ready after {age:?}");
        objects::handle(&content)
    }

    async fn fails_and_recovers(&self) -> anyhow::Result<()> {
        let why = "the disk is on fire";
        let before = self.csi.snapshots()?;
        self.csi.fail_snapshots(Some(why))?;
        let object = objects::snapshot(&self.namespace, "unlucky", "filesystem");
        self.scene.apply(&[object]).await?;
        let all = objects::snapshots(self.scene.client(), &self.namespace);
        let told = objects::failure(&all, "unlucky").await?;
        ensure!(told.contains(why), "the snapshot says {told:?}");
        ensure!(
            self.csi.snapshots()? == before,
            "a failed snapshot is there"
        );
        self.csi.fail_snapshots(None)?;
        objects::ready(&all, "unlucky").await?;
        Ok(())
    }

    /// Volumes of a label are taken together, and go together.
    async fn groups(&self) -> anyhow::Result<()> {
        let label = ("app", "grouped");
        let names = ["one", "two"];
        for name in names {
            let mut claim = objects::claim(&self.namespace, name, Kind::Files, "1Mi");
            claim["metadata"]["labels"] = serde_json::json!({ label.0: label.1 });
            self.scene.apply(&[claim]).await?;
        }
        for name in names {
            let volume = self.csi.bound(&self.namespace, name).await?;
            put(&self.csi.volume(&volume), Kind::Files, name.as_bytes())?;
        }
        let before = self.csi.snapshots()?;
        let group = objects::group(&self.namespace, "both", label);
        self.scene.apply(&[group]).await?;
        let all = objects::groups(self.scene.client(), &self.namespace);
        objects::ready(&all, "both").await?;
        let after = self.csi.snapshots()?;
        let mut found = Vec::new();
        for handle in after.difference(&before) {
            let text = get(&self.csi.snapshot(handle), Kind::Files)?;
            found.push(String::from_utf8(text)?);
        }
        found.sort();
        ensure!(found == names, "the group has {found:?}");
        ensure!(self.csi.groups()?.len() == 1, "there is not one group");

        all.delete("both", &DeleteParams::default()).await?;
        wait_for("the group to go", LIMIT, async || {
            let groups = self.csi.groups()?;
            let snapshots = self.csi.snapshots()?;
            ensure!(groups.is_empty(), "there are {groups:?}");
            ensure!(snapshots == before, "there are {snapshots:?}");
            Ok(Some(()))
        })
        .await
    }

    /// A driver that is killed and started again knows what it had.
    async fn outlives_its_driver(&self) -> anyhow::Result<()> {
        let before = self.csi.snapshots()?;
        let driver = self.csi.process(CSI_DRIVER).context("no driver runs")?;
        driver.kill().await?;
        let csi = Csi::on(self.scene.bed()).await?;
        ensure!(csi.process(CSI_DRIVER) != Some(driver), "it was not killed");
        ensure!(csi.snapshots()? == before, "other snapshots than before");
        let object = objects::snapshot(&self.namespace, "later", "filesystem");
        self.scene.apply(&[object]).await?;
        let all = objects::snapshots(self.scene.client(), &self.namespace);
        objects::ready(&all, "later").await?;
        Ok(())
    }

    /// Deletes everything; nothing of it stays with the driver.
    async fn goes(&self) -> anyhow::Result<()> {
        let all = objects::snapshots(self.scene.client(), &self.namespace);
        all.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        wait_for("the snapshots to go", LIMIT, async || {
            let left = self.csi.snapshots()?;
            ensure!(left.is_empty(), "there are {left:?}");
            Ok(Some(()))
        })
        .await?;
        let claims = ["-n", &self.namespace, "delete", "pvc", "--all"];
        self.scene.kubectl(&claims).await?;
        wait_for("the volumes to go", LIMIT, async || {
            let left = self.csi.volumes()?;
            ensure!(left.is_empty(), "there are {left:?}");
            Ok(Some(()))
        })
        .await
    }
}

fn put(data: &Path, kind: Kind, text: &[u8]) -> anyhow::Result<()> {
    match kind {
        Kind::Files => fs::write(data.join("file"), text)?,
        Kind::Blocks => fs::OpenOptions::new()
            .write(true)
            .open(data)?
            .write_all_at(text, OFFSET)?,
    }
    Ok(())
}

fn get(data: &Path, kind: Kind) -> anyhow::Result<Vec<u8>> {
    match kind {
        Kind::Files => Ok(fs::read(data.join("file"))?),
        Kind::Blocks => {
            let file = fs::File::open(data)?;
            ensure!(
                file.metadata()?.len() == 8 << 20,
                "the device has another size"
            );
            let mut text = vec![0; 6];
            file.read_exact_at(&mut text, OFFSET)?;
            Ok(text)
        }
    }
}
