//! The server dies in every stage of a CSI snapshot's life: the next one sees each backup through, no
//! VolumeSnapshot or content stays, and the driver has one snapshot a claim until the backup goes.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::{Backup, BackupPhase},
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::{
    Process,
    bed::Bucket,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    peer,
    scenarios::killed::free_lease,
    scene::{Scene, run},
    servers::{self, ended},
    wait_for,
};

/// Where it dies, from the first object to the last.
const PLACES: [&str; 9] = [
    "before VolumeSnapshot",
    "after VolumeSnapshot",
    "after VolumeGroupSnapshot",
    "before patch WaitingForPluginOperations",
    "after patch WaitingForPluginOperations",
    "before patch Finalizing",
    "after patch Finalizing",
    "after snapshot policy",
    "after snapshot deletion",
];
/// Two alone and two of a group.
const CLAIMS: [(&str, Option<&str>); 4] = [
    ("one", None),
    ("two", None),
    ("left", Some("pair")),
    ("right", Some("pair")),
];
const FLAGS: [&str; 1] = ["--features=EnableCSI"];
const SOON: Duration = Duration::from_secs(120);
/// Long enough to be seen in the middle.
const TAKES: Duration = Duration::from_secs(5);

struct Story<'a> {
    scene: &'a Scene,
    csi: Csi,
    namespace: String,
    /// Snapshots that were there before.
    others: BTreeSet<String>,
    backups: Vec<String>,
}

/// All of it.
pub(in super::super) async fn in_the_middle(scene: &Scene) -> anyhow::Result<String> {
    let csi = Csi::on(scene.bed()).await?;
    let bucket: Bucket = scene.bucket("csi-killed")?;
    peer::prepare(scene, &bucket).await?;
    let namespace = scene.namespace("csi").await?;
    let before = objects_there(scene).await?;
    let others = csi.snapshots()?;
    let mut story = Story {
        scene,
        csi,
        namespace,
        others,
        backups: Vec::new(),
    };
    story.fill().await?;
    // The location is known to be good before the first one dies.
    servers::Server::Ours
        .start(scene, &FLAGS)
        .await?
        .kill()
        .await?;
    for place in PLACES {
        let told = story.dies_at(place).await;
        told.with_context(|| format!("the server died {place}"))?;
    }
    let told = story.dies_while_they_are_taken().await;
    told.context("the server died while snapshots were taken")?;

    let server = story.launch(&[]).await?;
    for backup in &story.backups {
        story.delete(backup).await?;
    }
    wait_for("all of them to go", SOON, async || {
        let after = objects_there(scene).await?;
        ensure!(after == before, "there are {after:?}");
        let kept = story.csi.snapshots()?;
        ensure!(kept == story.others, "the driver has {kept:?}");
        Ok(Some(()))
    })
    .await?;
    server.stop().await?;
    peer::remove(scene).await?;
    Ok(format!(
        "{} places and 1 moment; {} backups of {} claims deleted; nothing stays in cluster or driver",
        PLACES.len(),
        story.backups.len(),
        CLAIMS.len(),
    ))
}

impl Story<'_> {
    async fn fill(&self) -> anyhow::Result<()> {
        let claims = CLAIMS.map(|(name, group)| {
            let mut claim = objects::claim(&self.namespace, name, Kind::Files, "1Mi");
            if let Some(group) = group {
                claim["metadata"]["labels"] = json!({ label::VOLUME_GROUP: group });
            }
            claim
        });
        self.scene.apply(&claims).await?;
        for (name, _) in CLAIMS {
            self.csi.bound(&self.namespace, name).await?;
        }
        Ok(())
    }

    async fn launch(&self, env: &[(&str, &str)]) -> anyhow::Result<Process> {
        free_lease(self.scene).await?;
        servers::launch(self.scene, &FLAGS, env)
    }

    async fn begin(&mut self) -> anyhow::Result<Backup> {
        let name = self.scene.fresh(&format!("b-{}", self.backups.len()));
        self.backups.push(name.clone());
        let spec: Value = json!({ "includedNamespaces": [self.namespace] });
        servers::create_backup(&self.scene.client(), &name, &spec).await
    }

    async fn dies_at(&mut self, place: &str) -> anyhow::Result<()> {
        let server = self.launch(&[("BOWLINE_CRASH_AT", place)]).await?;
        let made = self.begin().await?;
        let died = wait_for("the server to die", SOON, async || {
            Ok((!server.is_alive()).then_some(()))
        });
        died.await.context("the place was not reached")?;
        self.finished(&made).await
    }

    /// Killed from outside, when all snapshots are asked for and none is ready.
    async fn dies_while_they_are_taken(&mut self) -> anyhow::Result<()> {
        self.csi.ready_after(Some(TAKES))?;
        let server = self.launch(&[]).await?;
        let made = self.begin().await?;
        wait_for("the snapshots to be taken", SOON, async || {
            let all = objects::snapshots(self.scene.client(), &self.namespace);
            let found = all.list(&ListParams::default()).await?.items;
            Ok((found.len() >= CLAIMS.len()).then_some(()))
        })
        .await?;
        server.kill().await?;
        self.finished(&made).await?;
        self.csi.ready_after(None)
    }

    /// The next server sees it through: one snapshot a claim, and no object.
    async fn finished(&self, made: &Backup) -> anyhow::Result<()> {
        let server = self.launch(&[]).await?;
        let last = ended(&self.scene.client(), made, SOON).await?;
        let status = last.status.unwrap_or_default();
        ensure!(status.phase == Some(BackupPhase::Completed), "{status:?}");
        let expected = self.others.len() + CLAIMS.len() * self.backups.len();
        wait_for("one snapshot a claim", SOON, async || {
            let objects = objects_there(self.scene).await?;
            ensure!(objects.is_empty(), "there are {objects:?}");
            let snapshots = self.csi.snapshots()?;
            ensure!(
                snapshots.len() == expected,
                "the driver has {} of {expected}",
                snapshots.len()
            );
            Ok(Some(()))
        })
        .await?;
        server.kill().await
    }

    async fn delete(&self, backup: &str) -> anyhow::Result<()> {
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

/// The VolumeSnapshots and contents of the cluster, of groups too.
async fn objects_there(scene: &Scene) -> anyhow::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for all in objects::everywhere(&scene.client()) {
        for object in all.list(&ListParams::default()).await?.items {
            let kind = object.types.as_ref().map_or("", |types| &types.kind);
            found.insert(format!("{kind} {}", object.name_any()));
        }
    }
    Ok(found)
}
