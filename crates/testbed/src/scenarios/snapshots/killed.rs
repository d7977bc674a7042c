//! Server and plugin die in every stage of a snapshot's life: the ends are right, and no snapshot is
//! left that deleting the backups would miss.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{
        Backup, BackupPhase, Restore, RestorePhase, VolumePluginBackup, VolumePluginPhase,
        VolumePluginRestore,
    },
};
use kube::{Api, api::ListParams};
use serde_json::json;

use super::stage::{SOON, Stage, Volume};
use crate::{
    Process,
    scenarios::killed::free_lease,
    scene::Scene,
    servers::{self, Work, ended},
    tree::{self, Tree},
    wait_for,
};

/// How often a restore is begun until its plugin dies in its middle.
const TRIES: usize = 8;
/// Places in the making of a snapshot, from its taking to the end.
const PLACES: [&str; 6] = [
    "after CreateSnapshot",
    "after VolumePluginBackup",
    "before patch WaitingForPluginOperations",
    "after patch WaitingForPluginOperations",
    "before patch Finalizing",
    "after patch Finalizing",
];
const RESTORE_PLACES: [&str; 2] = [
    "after CreateVolumeFromSnapshot",
    "after VolumePluginRestore",
];
/// So much takes a few seconds to upload, at [`PACE`].
const SMALL: usize = 40 << 20;
const PACE: &str = "8Mi";
/// So much takes a while to copy, whatever the disk.
const BIG: usize = 400 << 20;

/// What the story needs at every turn.
struct Story<'a> {
    scene: &'a Scene,
    stage: Stage<'a>,
    /// Backups, for the end.
    backups: Vec<String>,
}

/// All of it.
pub(in super::super) async fn in_the_middle(scene: &Scene) -> anyhow::Result<String> {
    let disk = scene.folder().join("disk");
    let stage = Stage::set(scene, "snapshots-killed", &disk, "").await?;
    let mut story = Story {
        scene,
        stage,
        backups: Vec::new(),
    };
    // The location is known to be good before the first one dies.
    story.stage.server().await?.kill().await?;
    let small = story.stage.volume("small", SMALL).await?;
    for place in PLACES {
        let told = story.server_dies_at(place, &small).await;
        told.with_context(|| format!("the server died {place}"))?;
    }
    story.stage.locate(PACE).await?;
    story
        .server_dies_in_upload(&small)
        .await
        .context("the server died in an upload")?;
    story
        .plugin_dies_in_upload(&small, 1)
        .await
        .context("the plugin died in an upload")?;
    story
        .plugin_dies_in_upload(&small, 2)
        .await
        .context("the plugin died twice")?;
    story.stage.locate("").await?;
    let big = story.stage.volume("big", BIG).await?;
    story
        .plugin_dies_in_clone(&big)
        .await
        .context("the plugin died in a clone")?;
    let whole = story
        .server_dies_in_clone(&big)
        .await
        .context("the server died in a clone")?;
    story.restores(&big, &whole).await?;

    let Story { stage, backups, .. } = story;
    let server = stage.server().await?;
    for backup in &backups {
        stage.delete(backup).await?;
    }
    stage.is_clean().await?;
    server.stop().await?;
    stage.close().await?;
    Ok(format!(
        "{} places and 9 moments; {} backups deleted, nothing is left",
        PLACES.len() + RESTORE_PLACES.len(),
        backups.len()
    ))
}

impl Story<'_> {
    fn name(&mut self, name: &str) -> String {
        let name = self.scene.fresh(&format!("{name}-{}", self.backups.len()));
        self.backups.push(name.clone());
        name
    }

    async fn begin(&mut self, volume: &Volume) -> anyhow::Result<Backup> {
        let name = self.name("b");
        servers::create_backup(&self.scene.client(), &name, &self.stage.spec(volume)).await
    }

    /// Starts a server that will die at a place, gives it work, and sees it die.
    async fn dies_at<T>(
        &self,
        place: &str,
        work: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[("BOWLINE_CRASH_AT", place)])?;
        let made = work().await?;
        let died = wait_for("the server to die", SOON, async || {
            Ok((!server.is_alive()).then_some(()))
        });
        died.await.context("the place was not reached")?;
        free_lease(self.scene).await?;
        Ok(made)
    }

    /// The next server sees it through.
    async fn finished<K: Work>(&self, made: &K) -> anyhow::Result<K> {
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[])?;
        let last = ended(&self.scene.client(), made, SOON).await;
        server.kill().await?;
        last
    }

    /// A backup ended well: one snapshot, uploaded, its clone gone.
    fn is_whole(&self, backup: &Backup, volume: &Volume) -> anyhow::Result<()> {
        let status = backup.status.clone().unwrap_or_default();
        ensure!(status.phase == Some(BackupPhase::Completed), "{status:?}");
        let name = backup.metadata.name.clone().unwrap_or_default();
        let records = self.stage.records(&name)?;
        let expected = [(volume.name.clone(), "Completed".to_owned())];
        ensure!(records == expected, "{records:?}");
        // A snapshot that could not be uploaded stays for whoever deletes its backup.
        let mut clones = self.stage.clones();
        clones.retain(|name| name.starts_with(&format!("{}.", volume.name)));
        ensure!(clones.is_empty(), "clones are left: {clones:?}");
        Ok(())
    }

    async fn server_dies_at(&mut self, place: &str, volume: &Volume) -> anyhow::Result<()> {
        let name = self.name("b");
        let made = self
            .dies_at(place, async || {
                servers::create_backup(&self.scene.client(), &name, &self.stage.spec(volume)).await
            })
            .await?;
        let last = self.finished(&made).await?;
        self.is_whole(&last, volume)?;
        let tracked = self.stage.tracked(&name).await?;
        ensure!(tracked.len() == 1, "{} VolumePluginBackups", tracked.len());
        Ok(())
    }

    /// Other data: what is in the repository already is not uploaded.
    fn change(&self, volume: &Volume) -> anyhow::Result<()> {
        let seed = self.backups.len() as u64 + 100;
        tree::noise(&volume.folder.join("noise"), SMALL, seed)
    }

    /// Waits until an upload is seen in its middle.
    async fn uploads(&self, backup: &str) -> anyhow::Result<()> {
        wait_for("an upload in its middle", SOON, async || {
            let tracked = self.stage.tracked(backup).await?;
            let status = tracked.first().and_then(|object| object.status.clone());
            let status = status.context("nothing is written down")?;
            let bytes = status.progress.and_then(|p| p.bytes_done);
            let moves = status.phase == Some(VolumePluginPhase::InProgress)
                && bytes.is_some_and(|bytes| bytes > 0);
            Ok(moves.then_some(()))
        })
        .await
    }

    async fn server_dies_in_upload(&mut self, volume: &Volume) -> anyhow::Result<()> {
        self.change(volume)?;
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[])?;
        let made = self.begin(volume).await?;
        let name = made.metadata.name.clone().unwrap_or_default();
        self.uploads(&name).await?;
        server.kill().await?;
        let last = self.finished(&made).await?;
        self.is_whole(&last, volume)
    }

    /// Once is survived, twice is not.
    async fn plugin_dies_in_upload(&mut self, volume: &Volume, times: usize) -> anyhow::Result<()> {
        self.change(volume)?;
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[])?;
        let made = self.begin(volume).await?;
        let name = made.metadata.name.clone().unwrap_or_default();
        let mut last = None;
        for _ in 0..times {
            self.uploads(&name).await?;
            last = Some(kill_plugin(&server, last).await?);
        }
        let ended = ended(&self.scene.client(), &made, SOON).await?;
        server.kill().await?;
        if times == 1 {
            return self.is_whole(&ended, volume);
        }
        let status = ended.status.unwrap_or_default();
        ensure!(
            status.phase == Some(BackupPhase::PartiallyFailed),
            "{status:?}"
        );
        let records = self.stage.records(&name)?;
        let expected = [(volume.name.clone(), "Failed".to_owned())];
        ensure!(records == expected, "{records:?}");
        let tracked: Api<VolumePluginBackup> =
            Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let found = tracked.list(&ListParams::default()).await?;
        let failed = found.iter().find(|object| object.spec.backup == name);
        let status = failed.and_then(|object| object.status.clone());
        let message = status.and_then(|status| status.message).unwrap_or_default();
        // In a call, or before it could be asked again.
        ensure!(
            message.contains("it was killed by signal 9"),
            "it says {message:?}"
        );
        Ok(())
    }

    /// Waits until a clone is being made.
    async fn clones(&self, volume: &Volume) -> anyhow::Result<()> {
        let before = self.stage.clones();
        let is_new = |name: &String| {
            let is_its = name.starts_with(&format!("{}.", volume.name));
            is_its && name.ends_with(".tmp") && !before.contains(name)
        };
        for _ in 0..120_000 {
            if self.stage.clones().iter().any(is_new) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bail!("no clone was begun")
    }

    async fn plugin_dies_in_clone(&mut self, volume: &Volume) -> anyhow::Result<()> {
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[])?;
        let made = self.begin(volume).await?;
        self.clones(volume).await?;
        kill_plugin(&server, None).await?;
        let ended = ended(&self.scene.client(), &made, SOON).await?;
        server.kill().await?;
        let status = ended.status.unwrap_or_default();
        ensure!(
            status.phase == Some(BackupPhase::PartiallyFailed),
            "{status:?}"
        );
        Ok(())
    }

    /// The backup, which is good for restores.
    async fn server_dies_in_clone(&mut self, volume: &Volume) -> anyhow::Result<String> {
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[])?;
        let made = self.begin(volume).await?;
        self.clones(volume).await?;
        server.kill().await?;
        let last = self.finished(&made).await?;
        self.is_whole(&last, volume)?;
        Ok(last.metadata.name.unwrap_or_default())
    }

    async fn restores(&mut self, volume: &Volume, backup: &str) -> anyhow::Result<()> {
        let before = tree::read(&volume.folder, &[])?;
        let mut volume = Volume {
            namespace: volume.namespace.clone(),
            name: volume.name.clone(),
            folder: volume.folder.clone(),
        };
        for place in RESTORE_PLACES {
            self.stage.lose(&volume).await?;
            let spec = json!({ "backupName": backup });
            let name = self.scene.fresh(&format!("r-{}", place.len()));
            let made = self
                .dies_at(place, async || {
                    servers::create_restore(&self.scene.client(), &name, &spec).await
                })
                .await?;
            volume.folder = self
                .is_back(&made, &volume, &before)
                .await
                .with_context(|| format!("the server died {place}"))?;
        }
        self.stage.lose(&volume).await?;
        free_lease(self.scene).await?;
        let server = self.stage.launch(&[])?;
        let made = self.begin_restore("r-server", backup).await?;
        self.downloads(&made).await?;
        server.kill().await?;
        let back = self.is_back(&made, &volume, &before).await;
        volume.folder = back.context("the server died in a restore")?;

        // It is over in a second: a plugin that dies after that proves nothing.
        for n in 0..TRIES {
            self.stage.lose(&volume).await?;
            free_lease(self.scene).await?;
            let server = self.stage.launch(&[])?;
            let made = self.begin_restore(&format!("r-plugin-{n}"), backup).await?;
            self.downloads(&made).await?;
            kill_plugin(&server, None).await?;
            let last = ended(&self.scene.client(), &made, SOON).await?;
            server.kill().await?;
            let status = last.status.unwrap_or_default();
            if status.phase == Some(RestorePhase::Completed) {
                volume.folder = self.stage.folder_of(&volume.name).await?;
                continue;
            }
            ensure!(
                status.phase == Some(RestorePhase::PartiallyFailed),
                "{status:?}"
            );
            ensure!(!volume.folder.exists(), "a half volume looks whole");
            return Ok(());
        }
        bail!("the plugin never died in the middle of a restore")
    }

    async fn begin_restore(&self, name: &str, backup: &str) -> anyhow::Result<Restore> {
        let spec = json!({ "backupName": backup });
        servers::create_restore(&self.scene.client(), &self.scene.fresh(name), &spec).await
    }

    async fn downloads(&self, restore: &Restore) -> anyhow::Result<()> {
        let objects: Api<VolumePluginRestore> =
            Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let name = restore.metadata.name.clone().unwrap_or_default();
        let of = ListParams::default().labels(&format!("velero.io/restore-name={name}"));
        wait_for("a restore in its middle", SOON, async || {
            let found = objects.list(&of).await?;
            let status = found.items.first().and_then(|object| object.status.clone());
            let bytes = status.and_then(|s| s.progress).and_then(|p| p.bytes_done);
            Ok(bytes.is_some_and(|bytes| bytes > 0).then_some(()))
        })
        .await
    }

    /// The next server restores the volume; its folder.
    async fn is_back(
        &self,
        made: &Restore,
        volume: &Volume,
        before: &Tree,
    ) -> anyhow::Result<PathBuf> {
        let last = self.finished(made).await?;
        let status = last.status.unwrap_or_default();
        ensure!(status.phase == Some(RestorePhase::Completed), "{status:?}");
        let folder = self.stage.folder_of(&volume.name).await?;
        tree::same(before, &tree::read(&folder, &[])?)?;
        Ok(folder)
    }
}

/// Kills the plugin's process of a server, another one than the last; its id.
async fn kill_plugin(server: &Process, last: Option<i32>) -> anyhow::Result<i32> {
    let pid = wait_for("the plugin's process", SOON, async || {
        Ok(child(server.pid, "bowline-plugin-local")?.filter(|pid| Some(*pid) != last))
    })
    .await?;
    let process = rustix::process::Pid::from_raw(pid).context("no process")?;
    rustix::process::kill_process(process, rustix::process::Signal::KILL)?;
    Ok(pid)
}

/// A child of a process, by the name of its program.
fn child(parent: i32, program: &str) -> anyhow::Result<Option<i32>> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let of = after
            .split(' ')
            .nth(1)
            .and_then(|text| text.parse::<i32>().ok());
        let exe = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if of == Some(parent) && exe.file_name().is_some_and(|name| name == program) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
