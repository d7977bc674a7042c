//! The data of CSI snapshots moved into the bucket and back, on a real node: a claim of files and one of
//! blocks, by server and node processes as `bowline install` puts them there.

pub(super) mod faults;
pub(super) mod killed;
pub(super) mod places;
pub(super) mod stage;

use std::fs;

use anyhow::{Context, ensure};
use bowline_api::v2alpha1::{DataDownload, DataUpload};
use serde_json::{Value, json};

use self::stage::{BLOCKS, FILES, Stage};
use super::pod_volumes::stage::Watch;
use crate::{
    contents::Contents,
    scene::{Scene, run},
    servers, tree,
};

/// Backed up, lost with namespace and snapshots, and restored.
pub(super) async fn comes_back(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::install(scene, "moves").await?;
    let before = stage.lists().await?;
    let namespace = scene.namespace("shop").await?;
    stage.claims(&namespace).await?;
    let data = stage.fill(&namespace).await?;

    let watch: Watch<DataUpload> = Watch::start(scene);
    let backup = scene.fresh("moved");
    let spec = json!({ "includedNamespaces": [namespace], "snapshotMoveData": true });
    let there = servers::back_up(&scene.client(), &backup, &spec)
        .await?
        .completed()?;
    let up = watch.judge(Some(FILES)).await.context("of the backup")?;
    let rows = Contents::read(&stage.bucket, &backup)?.volume_info()?;
    rows_say(&rows, "backupMethod")?;
    for row in &rows {
        ensure!(row["result"] == "succeeded", "{row:#}");
        ensure!(row["preserveLocalSnapshot"] == false, "{row:#}");
    }
    told(scene, "backup", &backup).await?;

    stage.lose(&namespace).await?;
    stage.is_empty().await.context("when all is lost")?;

    let watch: Watch<DataDownload> = Watch::start(scene);
    let restore = scene.fresh("moved-back");
    let back = servers::restore(&scene.client(), &restore, &json!({ "backupName": backup }))
        .await?
        .completed()?;
    let down = watch.judge(Some(FILES)).await.context("of the restore")?;
    stage.has(&namespace, &data).await?;
    let rows = Contents::of_restore(&stage.bucket, &restore)?.volume_info()?;
    rows_say(&rows, "restoreMethod")?;
    told(scene, "restore", &restore).await?;

    // What restic makes of it.
    let folder = scene.folder().join("by-restic");
    fs::create_dir_all(&folder)?;
    stage.volumes().is_clean(&namespace).await?;
    let id = stage.snapshot(&backup, BLOCKS).await?;
    let restored = ["restore", &id, "--target", "."];
    stage
        .volumes()
        .restic(&namespace, &folder, &restored)
        .await?;
    let image = fs::read(folder.join("volume.img")).context("restored by restic")?;
    ensure!(image == data.blocks, "restic has another image");

    stage.delete(&backup).await?;
    let left = ["snapshots", "--json"];
    let left = stage.volumes().restic(&namespace, &folder, &left).await?;
    ensure!(left.trim() == "[]" || left.trim() == "null", "{left}");
    stage.lose(&namespace).await?;
    stage.is_as(&before).await?;
    stage.close().await?;
    Ok(format!(
        "{} files and a device of {} MiB, {} of them holes; there in {:.1} s (seen {up} times in the middle), back in {:.1} s (seen {down} times); nothing is left",
        data.files.len(),
        data.blocks.len() >> 20,
        stage::HOLE >> 20,
        there.took.as_secs_f64(),
        back.took.as_secs_f64(),
    ))
}

/// One row for each claim, which says that its data was moved.
fn rows_say(rows: &[Value], method: &str) -> anyhow::Result<()> {
    ensure!(rows.len() == 2, "{rows:#?}");
    for row in rows {
        let moved = &row["snapshotDataMovementInfo"];
        let size = moved["size"].as_i64().unwrap_or_default();
        ensure!(
            row[method] == "CSISnapshot"
                && row["snapshotDataMoved"] == true
                && moved["dataMover"] == "bowline"
                && moved["uploaderType"] == "restic"
                && moved["Phase"] == "Completed"
                && moved["snapshotHandle"]
                    .as_str()
                    .is_some_and(|id| id.len() == 64)
                && size > 1 << 20,
            "{row:#}"
        );
    }
    Ok(())
}

/// Both command lines tell of both claims.
async fn told(scene: &Scene, kind: &str, name: &str) -> anyhow::Result<()> {
    for mut command in [scene.bowline(), scene.program("velero")] {
        command.args([kind, "describe", name, "--details"]);
        let told = run(command).await?;
        let moved = told.matches("Data Movement:").count();
        ensure!(moved == 2, "{moved} movements in\n{told}");
        for claim in [FILES, BLOCKS] {
            ensure!(told.contains(&format!("/{claim}:")), "{claim} of\n{told}");
        }
    }
    let mut volumes = scene.bowline();
    volumes.args([kind, "volumes", name]);
    let table = run(volumes).await?;
    for claim in [FILES, BLOCKS] {
        ensure!(table.contains(claim), "{claim} of\n{table}");
    }
    Ok(())
}

/// The trees are compared by the tree module; devices byte by byte.
pub(super) struct Data {
    pub(super) files: tree::Tree,
    pub(super) blocks: Vec<u8>,
}
