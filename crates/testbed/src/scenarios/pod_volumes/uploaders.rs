//! Both uploaders on one repository: what the built-in engine has copied the restic program brings
//! back, and the other way round; bytes are told on the way, by either.

use std::{path::Path, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::v1::{DataPathPhase, PodVolumeBackup, PodVolumeRestore};
use serde_json::{Value, json};

use super::stage::{Copy, Stage, Watch, passing, pod, slow_store};
use crate::{
    scene::Scene,
    servers,
    tree::{self, Tree},
};

const POD: &str = "pod";
const VOLUME: &str = "data";
/// What is in the volume beside files of all kinds. They are several, since how far the restic
/// program has come with one file on its way back is not to be seen.
const FILES: usize = 24;
const EACH: usize = 3 << 20;
const DELAY: Duration = Duration::from_millis(25);

/// The story.
pub(in crate::scenarios) async fn share(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::set(scene, "both-uploaders").await?;
    let relay = slow_store(scene, DELAY).await?;
    stage.reach(relay.address).await?;
    let restic = scene.bed().program_file("restic");
    let restic = restic.to_string_lossy();
    let program = ["--restic-binary", &restic, "--progress-interval", "200ms"];

    let (server, node) = stage.start().await?;
    let play = Play {
        stage: &stage,
        namespace: scene.namespace("shared").await?,
    };
    let pods = [pod(&play.namespace, POD, &[(VOLUME, passing())])];
    stage.pods(&play.namespace, &pods).await?;
    let folder = stage.folder(&play.namespace, POD, VOLUME).await?;
    tree::fill(&folder)?;
    noise(&folder, 1)?;
    let was = tree::read(&folder, &[])?;
    let one = play.back_up("one", Some(VOLUME)).await?;

    node.stop().await?;
    let node = stage.node_with(&program).await?;
    noise(&folder, 2)?;
    let became = tree::read(&folder, &[])?;
    let two = play.back_up("two", Some(VOLUME)).await?;
    let one_back = play.restore(&one, &was).await?;

    node.stop().await?;
    let node = stage.node().await?;
    let two_back = play.restore(&two, &became).await?;
    // It has little to store, and may be through before it is seen.
    let three = play.back_up("three", None).await?;
    for process in [&node, &server] {
        process.stop().await?;
    }
    // With locks: nobody has left one.
    let check = ["check", "--read-data"];
    let told = stage
        .restic(&play.namespace, scene.folder(), &check)
        .await?;
    ensure!(told.contains("no errors were found"), "check says {told}");
    play.are_made_by(&[(&one, "bowline"), (&two, "restic"), (&three, "bowline")])
        .await?;
    stage.close().await?;
    Ok(format!(
        "{} files and {} MB: there by ours {one}, by restic {two}, by ours again {three}; back what \
         is ours by restic {one_back}, what is restic's by ours {two_back}",
        was.len(),
        (FILES * EACH) >> 20
    ))
}

/// A copy that has been made, in either direction.
struct Made {
    name: String,
    snapshot: String,
    took: Duration,
    seen: usize,
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.took.as_secs_f64();
        write!(f, "in {seconds:.1} s (seen {} times)", self.seen)
    }
}

struct Play<'a> {
    stage: &'a Stage<'a>,
    namespace: String,
}

impl Play<'_> {
    async fn back_up(&self, name: &str, moving: Option<&str>) -> anyhow::Result<Made> {
        let scene = self.stage.scene;
        let name = scene.fresh(name);
        let watch: Watch<PodVolumeBackup> = Watch::start(scene);
        let spec = json!({ "includedNamespaces": [self.namespace] });
        let ended = servers::back_up(&scene.client(), &name, &spec).await?;
        let took = ended.completed()?.took;
        let seen = watch.judge(moving).await;
        let seen = seen.with_context(|| format!("backup {name}"))?;
        let copies = self.stage.copies(&name).await?;
        let [copy] = copies.as_slice() else {
            anyhow::bail!("{} volumes were copied", copies.len());
        };
        is_whole(copy)?;
        let snapshot = copy.status.as_ref().and_then(|s| s.snapshot_id.clone());
        Ok(Made {
            snapshot: snapshot.context("there is no snapshot")?,
            name,
            took,
            seen,
        })
    }

    /// The namespace goes, and comes back as it was in a backup.
    async fn restore(&self, from: &Made, expected: &Tree) -> anyhow::Result<Made> {
        let scene = self.stage.scene;
        self.stage.forget(&self.namespace).await?;
        let name = format!("{}-back", from.name);
        let watch: Watch<PodVolumeRestore> = Watch::start(scene);
        let spec = json!({ "backupName": from.name });
        let ended = servers::restore(&scene.client(), &name, &spec).await?;
        let took = ended.completed()?.took;
        let seen = watch.judge(Some(VOLUME)).await;
        let seen = seen.with_context(|| format!("restore {name}"))?;
        for copy in self.stage.returns(&name).await? {
            is_whole(&copy)?;
        }
        self.stage.ready(&self.namespace).await?;
        let folder = self.stage.folder(&self.namespace, POD, VOLUME).await?;
        let found = tree::read(&folder, &[".velero"])?;
        tree::same(expected, &found).with_context(|| format!("what {name} has restored"))?;
        Ok(Made {
            snapshot: from.snapshot.clone(),
            name,
            took,
            seen,
        })
    }

    /// These snapshots are in the repository, and no others.
    async fn are_made_by(&self, expected: &[(&Made, &str)]) -> anyhow::Result<()> {
        let list = ["snapshots", "--json"];
        let folder = self.stage.scene.folder();
        let told = self.stage.restic(&self.namespace, folder, &list).await?;
        let told: Vec<Value> = serde_json::from_str(&told)?;
        let found = told.iter().map(|snapshot| {
            let text = |name: &str| snapshot[name].as_str().unwrap_or_default();
            let program = text("program_version").split_whitespace().next();
            (text("id"), program.unwrap_or_default())
        });
        let found: Vec<_> = found.collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(made, program)| (made.snapshot.as_str(), *program))
            .collect();
        ensure!(found == expected, "{found:?} instead of {expected:?}");
        Ok(())
    }
}

/// Files of which nothing is in the repository.
fn noise(folder: &Path, seed: u64) -> anyhow::Result<()> {
    for n in 0..FILES {
        let seed = seed << 8 | n as u64;
        tree::noise(&folder.join(format!("noise-{n}")), EACH, seed)?;
    }
    Ok(())
}

/// It ended well, with all bytes of the volume.
fn is_whole(copy: &impl Copy) -> anyhow::Result<()> {
    let (done, total) = copy.bytes();
    ensure!(
        copy.phase() == DataPathPhase::Completed && done == total && done > (FILES * EACH) as i64,
        "it ended as {copy:?}"
    );
    Ok(())
}
