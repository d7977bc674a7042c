//! Snapshots of CSI volumes by the real Velero and by ours: each restores and deletes what either made.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{names::DEFAULT_NAMESPACE, v1::Backup};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::{get, put};
use crate::{
    bed::Bucket,
    contents::Contents,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    peer,
    scene::{Scene, run},
    servers::{self, Server},
    wait_for,
};

/// The claims, and what is in each.
const CLAIMS: [(&str, Kind, &[u8; 6]); 3] = [
    ("ledger", Kind::Files, b"ledger"),
    ("photos", Kind::Files, b"photos"),
    ("device", Kind::Blocks, b"device"),
];
const FLAGS: [&str; 1] = ["--features=EnableCSI"];
const SOON: Duration = Duration::from_secs(120);

struct Story<'a> {
    scene: &'a Scene,
    csi: Csi,
    bucket: Bucket,
    namespace: String,
}

/// Two backups, four restores, two deletions.
pub(in super::super) async fn both_ways(scene: &Scene) -> anyhow::Result<String> {
    let csi = Csi::on(scene.bed()).await?;
    let before = (csi.volumes()?, csi.snapshots()?);
    let bucket = scene.bucket("csi")?;
    peer::prepare(scene, &bucket).await?;
    let story = Story {
        scene,
        csi,
        bucket,
        namespace: scene.namespace("csi").await?,
    };
    story.fill().await?;
    for by in Server::BOTH {
        let told = story.back_up(by).await;
        told.with_context(|| format!("backed up by {}", by.name()))?;
    }
    story.lose().await?;
    for by in Server::BOTH {
        let server = by.start(scene, &FLAGS).await?;
        for of in Server::BOTH {
            let told = story.restore(by, of).await;
            told.with_context(|| format!("{} restores {}'s", by.name(), of.name()))?;
        }
        server.kill().await?;
    }
    for (by, of) in [
        (Server::Velero, Server::Ours),
        (Server::Ours, Server::Velero),
    ] {
        let told = story.delete(by, of).await;
        told.with_context(|| format!("{} deletes {}'s", by.name(), of.name()))?;
    }
    story.goes(&before).await?;
    peer::remove(scene).await?;
    Ok(format!(
        "{} volumes by each server, restored by each from each, deleted by the other; nothing stays",
        CLAIMS.len()
    ))
}

impl Story<'_> {
    fn name(&self, of: Server) -> String {
        self.scene.fresh(of.name())
    }

    async fn fill(&self) -> anyhow::Result<()> {
        let claim =
            |(name, kind, _): &(&str, Kind, _)| objects::claim(&self.namespace, name, *kind, "8Mi");
        let claims: Vec<Value> = CLAIMS.iter().map(claim).collect();
        self.scene.apply(&claims).await?;
        for (name, kind, text) in CLAIMS {
            let handle = self.csi.bound(&self.namespace, name).await?;
            put(&self.csi.volume(&handle), kind, text)?;
        }
        Ok(())
    }

    /// A snapshot for each claim, and no object of it in the cluster.
    async fn back_up(&self, by: Server) -> anyhow::Result<()> {
        let before = self.csi.snapshots()?;
        let server = by.start(self.scene, &FLAGS).await?;
        let spec = json!({ "includedNamespaces": [self.namespace] });
        let name = self.name(by);
        servers::back_up(&self.scene.client(), &name, &spec)
            .await?
            .completed()?;
        server.kill().await?;
        let after = self.csi.snapshots()?;
        let new: BTreeSet<String> = after.difference(&before).cloned().collect();
        ensure!(new.len() == CLAIMS.len(), "the driver has {new:?} more");
        self.no_objects().await?;

        let contents = Contents::read(&self.bucket, &name)?;
        let rows = contents.volume_info()?;
        let handles = handles(&rows)?;
        ensure!(
            handles == new,
            "the file says {handles:?}, the driver {new:?}"
        );
        for row in &rows {
            ensure!(
                row["backupMethod"] == "CSISnapshot" && row["result"] == "succeeded",
                "{row}"
            );
        }
        Ok(())
    }

    async fn no_objects(&self) -> anyhow::Result<()> {
        wait_for("snapshots and contents to go", SOON, async || {
            let all = ListParams::default();
            let snapshots = objects::snapshots(self.scene.client(), &self.namespace);
            let left = snapshots.list(&all).await?.items;
            ensure!(left.is_empty(), "there are {left:?}");
            let left = objects::contents(self.scene.client())
                .list(&all)
                .await?
                .items;
            ensure!(left.is_empty(), "there are {left:?}");
            Ok(Some(()))
        })
        .await
    }

    async fn lose(&self) -> anyhow::Result<()> {
        let delete = ["delete", "namespace", &self.namespace, "--timeout=120s"];
        self.scene.kubectl(&delete).await.map(drop)
    }

    /// Into a namespace of its own, with the data that was there.
    async fn restore(&self, by: Server, of: Server) -> anyhow::Result<()> {
        let name = self.scene.fresh(&format!("{}-{}", by.name(), of.name()));
        let into = format!("{name}-back");
        let spec = json!({
            "backupName": self.name(of),
            "namespaceMapping": { &self.namespace: into },
        });
        servers::restore(&self.scene.client(), &name, &spec)
            .await?
            .completed()?;
        for (claim, kind, text) in CLAIMS {
            let handle = self.csi.bound(&into, claim).await?;
            let found = get(&self.csi.volume(&handle), kind)?;
            ensure!(
                found == text,
                "{claim} has {:?}",
                String::from_utf8_lossy(&found)
            );
        }
        let contents = Contents::of_restore(&self.bucket, &name)?;
        let rows = contents.volume_info()?;
        ensure!(rows.len() == CLAIMS.len(), "{rows:?}");
        for row in &rows {
            ensure!(
                row["restoreMethod"] == "CSISnapshot" && row["pvcNamespace"] == into.as_str(),
                "{row}"
            );
        }
        let taken = rows_of_backup(&self.bucket, &self.name(of))?;
        ensure!(handles(&rows)? == handles(&taken)?, "{rows:?} of {taken:?}");
        self.described(by, &name).await
    }

    /// Both command lines tell of every volume.
    async fn described(&self, by: Server, restore: &str) -> anyhow::Result<()> {
        for mut command in [self.scene.bowline(), self.scene.program("velero")] {
            command.args(["restore", "describe", restore, "--details"]);
            let told = run(command).await?;
            for (claim, ..) in CLAIMS {
                ensure!(told.contains(claim), "restored by {}:\n{told}", by.name());
            }
        }
        Ok(())
    }

    async fn delete(&self, by: Server, of: Server) -> anyhow::Result<()> {
        let rows = rows_of_backup(&self.bucket, &self.name(of))?;
        let gone = handles(&rows)?;
        let server = by.start(self.scene, &FLAGS).await?;
        let name = self.name(of);
        let mut delete = self.scene.bowline();
        delete.args(["backup", "delete", &name, "--confirm"]);
        run(delete).await?;
        let backups: Api<Backup> = Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        wait_for("the backup to go", SOON, async || {
            Ok(backups.get_opt(&name).await?.is_none().then_some(()))
        })
        .await?;
        wait_for("its snapshots to go", SOON, async || {
            let left = self.csi.snapshots()?;
            let left: Vec<_> = left.intersection(&gone).collect();
            ensure!(left.is_empty(), "the driver has {left:?}");
            Ok(Some(()))
        })
        .await?;
        server.kill().await
    }

    /// The driver has what it had.
    async fn goes(&self, before: &(BTreeSet<String>, BTreeSet<String>)) -> anyhow::Result<()> {
        for by in Server::BOTH {
            for of in Server::BOTH {
                let name = self.scene.fresh(&format!("{}-{}", by.name(), of.name()));
                let namespace = format!("{name}-back");
                let delete = ["delete", "namespace", &namespace, "--timeout=120s"];
                self.scene.kubectl(&delete).await?;
            }
        }
        // What the restores made refers to snapshots that are gone.
        objects::contents(self.scene.client())
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        wait_for("all of it to go", SOON, async || {
            let now = (self.csi.volumes()?, self.csi.snapshots()?);
            ensure!(&now == before, "the driver has {now:?}");
            Ok(Some(()))
        })
        .await
    }
}

fn rows_of_backup(bucket: &Bucket, backup: &str) -> anyhow::Result<Vec<Value>> {
    Contents::read(bucket, backup)?.volume_info()
}

fn handles(rows: &[Value]) -> anyhow::Result<BTreeSet<String>> {
    let handle = |row: &Value| {
        let handle = row["csiSnapshotInfo"]["snapshotHandle"].as_str();
        handle.map(str::to_owned).with_context(|| row.to_string())
    };
    rows.iter().map(handle).collect()
}
