//! The real Velero, whose restic restores still work, restores volumes that we copied.

use anyhow::{Context, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{Backup, PodVolumeBackup, Restore, RestorePhase},
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use super::stage::{Copy, SOON, Stage, passing, pod};
use crate::{
    peer,
    scene::{Scene, run},
    servers, tree, wait_for,
};

/// Copied by us; then all of it goes but the bucket, and Velero finds it there.
pub(in crate::scenarios) async fn restores_ours(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::set(scene, "handed-over").await?;
    let (server, node) = stage.start().await?;
    let namespace = scene.namespace("book").await?;
    let volumes = [("pages", passing()), ("notes", passing())];
    let book = pod(&namespace, "book", &volumes);
    stage.pods(&namespace, &[book]).await?;
    let mut expected = Vec::new();
    for (volume, _) in &volumes {
        let folder = stage.folder(&namespace, "book", volume).await?;
        tree::fill(&folder)?;
        expected.push(tree::read(&folder, &[])?);
    }
    let backup = scene.fresh("book");
    let spec = json!({ "includedNamespaces": [namespace] });
    servers::back_up(&scene.client(), &backup, &spec)
        .await?
        .completed()?;
    for process in [&server, &node] {
        process.stop().await?;
    }
    stage.forget(&namespace).await?;
    peer::remove(scene).await?;

    peer::install(scene.bed(), &stage.bucket, &[]).await?;
    found(&stage, &backup, volumes.len()).await?;
    let restore = scene.fresh("book-back");
    let mut velero = scene.program("velero");
    velero
        .args(["restore", "create", &restore, "--wait"])
        .args(["--from-backup", &backup]);
    run(velero).await?;
    let restores: Api<Restore> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let status = restores.get(&restore).await?.status.unwrap_or_default();
    let returns = stage.returns(&restore).await?;
    ensure!(
        status.phase == Some(RestorePhase::Completed),
        "velero's restore ended as {status:?}, with {:?}",
        returns.iter().map(Copy::message).collect::<Vec<_>>()
    );
    stage.ready(&namespace).await?;
    for ((volume, _), expected) in volumes.iter().zip(&expected) {
        let folder = stage.folder(&namespace, "book", volume).await?;
        let restored = tree::read(&folder, &[".velero"])?;
        tree::same(expected, &restored).with_context(|| format!("{volume} by velero"))?;
    }
    stage.is_clean(&namespace).await?;
    peer::uninstall(scene).await?;
    Ok(format!(
        "velero {} restores {} volumes, {} files, just as they were",
        crate::build::VELERO,
        volumes.len(),
        expected.iter().map(tree::Tree::len).sum::<usize>()
    ))
}

/// Waits until a server has taken a backup and its copies of volumes from the bucket.
pub(super) async fn found(stage: &Stage<'_>, backup: &str, volumes: usize) -> anyhow::Result<()> {
    let client = stage.scene.client();
    let backups: Api<Backup> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let copies: Api<PodVolumeBackup> = Api::namespaced(client, DEFAULT_NAMESPACE);
    wait_for("the backup to be found", SOON, async || {
        if backups.get_opt(backup).await?.is_none() {
            return Ok(None);
        }
        let all = copies.list(&ListParams::default()).await?;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        ensure!(names.len() == volumes, "its volumes are {names:?}");
        Ok(Some(()))
    })
    .await
}
