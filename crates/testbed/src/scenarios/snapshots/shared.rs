//! A second cluster on the same bucket: what plugins said of snapshots comes along.

use std::time::Duration;

use anyhow::{Context, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{Backup, VolumePluginBackup, VolumePluginPhase},
};
use kube::{Api, ResourceExt, api::ListParams};

use super::stage::{SOON, Stage};
use crate::{
    Bed, Cache, Mode, Process, peer,
    scene::{Scene, run},
    servers::Server,
    wait_for,
};

/// The VolumePluginBackups of one cluster are in the other, and describe shows them there.
pub(in super::super) async fn are_synced(scene: &Scene) -> anyhow::Result<String> {
    let disk = scene.folder().join("disk");
    let stage = Stage::set(scene, "shared", &disk, "").await?;
    let volume = stage.volume("data", 4 << 20).await?;
    let server = stage.server().await?;
    let name = scene.fresh("first");
    stage.back_up(&name, &volume).await?.completed()?;
    let here = stage.tracked(&name).await?;
    let here = here.first().context("nothing was written down here")?;

    let cache = Cache::open()?;
    let other = Bed::up(&cache, Mode::Api, Some(Process::me()?), &|_| ()).await?;
    let there = Scene::new(&other)?;
    let seen = look_at(&there, &stage, &name, here).await;
    let why = match &seen {
        Ok(()) => String::new(),
        Err(_) => there.diagnose().await,
    };
    there.end().await?;
    other.down().await?;
    seen.with_context(|| why)?;

    stage.delete(&name).await?;
    stage.is_clean().await?;
    server.stop().await?;
    stage.close().await?;
    Ok(format!("{} and what it says, in both", here.name_any()))
}

async fn look_at(
    scene: &Scene,
    stage: &Stage<'_>,
    backup: &str,
    expected: &VolumePluginBackup,
) -> anyhow::Result<()> {
    peer::prepare(scene, &stage.bucket).await?;
    let mut install = scene.bowline();
    install.args(["install", "--crds-only"]);
    run(install).await?;
    let server = Server::Ours
        .start(scene, &["--backup-sync-period", "5s"])
        .await?;
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    wait_for("the backup there", SOON, async || {
        Ok(backups.get_opt(backup).await?)
    })
    .await?;
    let objects: Api<VolumePluginBackup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let found = wait_for(
        "what the plugin said, there",
        Duration::from_secs(30),
        async || Ok(objects.get_opt(&expected.name_any()).await?),
    )
    .await?;
    ensure!(
        found.spec == expected.spec && found.status == expected.status,
        "{found:?} is not {expected:?}"
    );
    let phase = found.status.and_then(|status| status.phase);
    ensure!(phase == Some(VolumePluginPhase::Completed), "{phase:?}");
    let mut describe = scene.bowline();
    describe.args(["backup", "describe", backup, "--details"]);
    let described = run(describe).await?;
    ensure!(described.contains(&expected.name_any()), "{described}");
    let count = objects.list(&ListParams::default()).await?.items.len();
    ensure!(count == 1, "there are {count}");
    server.stop().await
}
