//! Native snapshots by our own plugin for local volumes, in two stages.

pub(super) mod frozen;
pub(super) mod killed;
pub(super) mod shared;
pub(super) mod stage;
pub(super) mod under_velero;

use anyhow::ensure;
use bowline_api::v1::{Backup, VolumePluginBackup, VolumePluginRestore};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use self::stage::Stage;
use super::looking::{Looking, backup_state, download_state, in_the_middle, upload_state};
use crate::{
    scene::{Scene, run},
    tree,
};

/// Bytes of a volume that take several seconds to upload, at [`PACE`].
const NOISE: usize = 72 << 20;
const PACE: &str = "12Mi";

/// A volume's life: snapshot, upload in the background, restore, restore beside itself, deletion.
pub(super) async fn come_back(scene: &Scene) -> anyhow::Result<String> {
    let disk = scene.folder().join("disk");
    let stage = Stage::set(scene, "snapshots", &disk, PACE).await?;
    let volume = stage.volume("data", NOISE).await?;
    let before = tree::read(&volume.folder, &[])?;
    let server = stage.server().await?;

    let phases = Looking::on::<Backup>(scene, backup_state).await?;
    let uploads = Looking::on::<VolumePluginBackup>(scene, upload_state).await?;
    let name = scene.fresh("first");
    let ended = stage.back_up(&name, &volume).await?.completed()?;
    let (phases, uploads) = (phases.seen(), uploads.seen());
    let (items, waiting) = (
        ended.items(),
        format!(
            "WaitingForPluginOperations {}/{}",
            ended.items() - 1,
            ended.items()
        ),
    );
    ensure!(
        phases.contains(&waiting),
        "the volume counted before its upload had returned: {phases:?}"
    );
    let moved = in_the_middle(&uploads);
    ensure!(moved >= 2, "the upload was not seen moving: {uploads:?}");
    let expected = [(volume.name.clone(), "Completed".to_owned())];
    ensure!(
        stage.records(&name)? == expected,
        "{:?}",
        stage.records(&name)?
    );
    let tracked = stage.tracked(&name).await?;
    ensure!(
        tracked.len() == 1
            && uploads
                .last()
                .is_some_and(|last| last.starts_with("Completed")),
        "{uploads:?}"
    );
    ensure!(stage.clones().is_empty(), "{:?}", stage.clones());
    let described = describe(scene, "backup", &name).await?;
    for words in [volume.name.as_str(), "bowline.io/local", "100"] {
        ensure!(described.contains(words), "no {words} in\n{described}");
    }

    stage.lose(&volume).await?;
    let downloads = Looking::on::<VolumePluginRestore>(scene, download_state).await?;
    let back = scene.fresh("back");
    stage.restore(&back, &name, json!({})).await?.completed()?;
    let folder = stage.folder_of(&volume.name).await?;
    tree::same(&before, &tree::read(&folder, &[])?)?;
    let downloads = downloads.seen();
    ensure!(
        downloads
            .last()
            .is_some_and(|last| last.starts_with("Completed")),
        "{downloads:?}"
    );
    let described = describe(scene, "restore", &back).await?;
    ensure!(described.contains("bowline.io/local"), "{described}");

    beside_itself(scene, &stage, &volume, &name).await?;

    stage.delete(&name).await?;
    stage.is_clean().await?;
    server.stop().await?;
    stage.close().await?;
    Ok(format!(
        "{items} items, the volume's upload seen {moved} times on its way, {} files back, and beside themselves",
        before.len()
    ))
}

async fn describe(scene: &Scene, kind: &str, name: &str) -> anyhow::Result<String> {
    let mut describe = scene.bowline();
    describe.args([kind, "describe", name, "--details"]);
    run(describe).await
}

/// A second restore into another namespace, while the first volume is there: it gets a name and a
/// folder of its own.
async fn beside_itself(
    scene: &Scene,
    stage: &Stage<'_>,
    volume: &stage::Volume,
    backup: &str,
) -> anyhow::Result<()> {
    let other = scene.fresh("other");
    let mapping = json!({ "namespaceMapping": { &volume.namespace: other } });
    let name = scene.fresh("beside");
    stage.restore(&name, backup, mapping).await?.completed()?;
    let volumes: Api<PersistentVolume> = Api::all(scene.client());
    let all = volumes.list(&ListParams::default()).await?;
    let clone = all.iter().find(|pv| {
        let original = pv.annotations().get("velero.io/original-pv-name");
        original == Some(&volume.name)
    });
    let clone = clone.ok_or_else(|| anyhow::anyhow!("there is no second volume"))?;
    ensure!(
        clone.name_any().starts_with("velero-clone-"),
        "{}",
        clone.name_any()
    );
    let (first, second) = (
        stage.folder_of(&volume.name).await?,
        stage.folder_of(&clone.name_any()).await?,
    );
    ensure!(first != second, "both are {}", first.display());
    tree::same(&tree::read(&first, &[])?, &tree::read(&second, &[])?)?;
    let claims = scene
        .kubectl(&[
            "get",
            "pvc",
            "-n",
            &other,
            "-o",
            "jsonpath={.items[*].spec.volumeName}",
        ])
        .await?;
    ensure!(claims == clone.name_any(), "the claim wants {claims}");
    Ok(())
}
