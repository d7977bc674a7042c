//! The node process and the server are killed in the middle of both directions. All of it ends,
//! and ends well; the repository is clean.

use std::time::Duration;

use anyhow::{Context, ensure};
use bowline_api::v1::{DataPathPhase, PodVolumeBackup, PodVolumeRestore};
use serde_json::json;

use super::stage::{Copy, Stage, Watch, passing, pod, slow_store};
use crate::{
    Process,
    scene::Scene,
    servers::{self, Ended, EndedRestore},
    tree,
};

const BYTES: usize = 48 << 20;
const DELAY: Duration = Duration::from_millis(15);
/// A lease of a killed process runs out, and the copy is made again.
const LIMIT: Duration = Duration::from_secs(150);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Node,
    Server,
}

/// The story.
pub(in crate::scenarios) async fn in_the_middle(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::set(scene, "volumes-killed").await?;
    let relay = slow_store(scene, DELAY).await?;
    stage.reach(relay.address).await?;
    let mut running = stage.start().await?;
    let mut told = Vec::new();
    for victim in [Victim::Node, Victim::Server] {
        let play = Play {
            stage: &stage,
            victim,
            namespace: scene
                .namespace(&format!("{victim:?}").to_lowercase())
                .await?,
        };
        let times = play.play(&mut running).await;
        let (there, back) = times.with_context(|| format!("{victim:?} was killed"))?;
        told.push(format!(
            "{victim:?} killed: there {:.0} s later, back {:.0} s later",
            there.as_secs_f64(),
            back.as_secs_f64()
        ));
    }
    for process in [&running.0, &running.1] {
        process.stop().await?;
    }
    stage.close().await?;
    Ok(told.join("; "))
}

struct Play<'a> {
    stage: &'a Stage<'a>,
    victim: Victim,
    namespace: String,
}

impl Play<'_> {
    /// One victim in both directions; gives how long each took from the kill to the end.
    async fn play(&self, running: &mut (Process, Process)) -> anyhow::Result<(Duration, Duration)> {
        let (stage, namespace) = (self.stage, &self.namespace);
        let scene = stage.scene;
        let pods = [
            pod(namespace, "large", &[("large", passing())]),
            pod(namespace, "small", &[("small", passing())]),
        ];
        stage.pods(namespace, &pods).await?;
        let large = stage.folder(namespace, "large", "large").await?;
        let seed = if self.victim == Victim::Node { 1 } else { 2 };
        tree::noise(&large.join("noise"), BYTES, seed)?;
        let small = stage.folder(namespace, "small", "small").await?;
        tree::fill(&small)?;
        let expected = [tree::read(&large, &[])?, tree::read(&small, &[])?];

        let name = scene.fresh(&format!("killed-{seed}"));
        let watch: Watch<PodVolumeBackup> = Watch::start(scene);
        let spec = json!({ "includedNamespaces": [namespace] });
        let made = servers::create_backup(&scene.client(), &name, &spec).await?;
        watch.in_the_middle("large").await?;
        let began = self.kill(running).await?;
        let backup = servers::ended(&scene.client(), &made, LIMIT).await?;
        let there = began.elapsed();
        let took = there;
        Ended { backup, took }.completed().context("there")?;
        for copy in stage.copies(&name).await? {
            ensure!(copy.phase() == DataPathPhase::Completed, "there: {copy:?}");
        }
        stage.is_clean(namespace).await?;

        stage.forget(namespace).await?;
        let watch: Watch<PodVolumeRestore> = Watch::start(scene);
        let restore = scene.fresh(&format!("killed-{seed}-back"));
        let spec = json!({ "backupName": name });
        let made = servers::create_restore(&scene.client(), &restore, &spec).await?;
        watch.in_the_middle("large").await?;
        let began = self.kill(running).await?;
        let restore = servers::ended(&scene.client(), &made, LIMIT).await?;
        let back = began.elapsed();
        let took = back;
        EndedRestore { restore, took }.completed().context("back")?;
        stage.ready(namespace).await?;
        let found = [
            tree::read(
                &stage.folder(namespace, "large", "large").await?,
                &[".velero"],
            )?,
            tree::read(
                &stage.folder(namespace, "small", "small").await?,
                &[".velero"],
            )?,
        ];
        for (expected, found) in expected.iter().zip(&found) {
            tree::same(expected, found).context("what came back")?;
        }
        stage.is_clean(namespace).await?;
        Ok((there, back))
    }

    /// Kills the victim and starts another in its place.
    async fn kill(&self, running: &mut (Process, Process)) -> anyhow::Result<std::time::Instant> {
        let began = std::time::Instant::now();
        match self.victim {
            Victim::Server => {
                running.0.kill().await?;
                running.0 = servers::launch(self.stage.scene, &[], &[])?;
            }
            Victim::Node => {
                running.1.kill().await?;
                running.1 = self.stage.node().await?;
            }
        }
        Ok(began)
    }
}
