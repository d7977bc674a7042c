//! Our plugin under the real Velero, which knows nothing of a second stage.

use anyhow::ensure;
use serde_json::json;

use super::stage::{LOCATION, Stage};
use crate::{
    scene::{Scene, run},
    servers::Server,
    tree,
};

/// Listed, a volume backed up with all its data, and restored.
pub(in super::super) async fn works(scene: &Scene) -> anyhow::Result<String> {
    let disk = scene.folder().join("disk");
    let stage = Stage::set(scene, "under-velero", &disk, "").await?;
    let volume = stage.volume("data", 8 << 20).await?;
    let before = tree::read(&volume.folder, &[])?;
    let server = Server::Velero.start(scene, &[]).await?;
    let mut get = scene.program("velero");
    get.args(["plugin", "get"]);
    let listed = run(get).await?;
    ensure!(
        listed.lines().any(|line| {
            line.split_whitespace()
                .eq(["bowline.io/local", "VolumeSnapshotter"])
        }),
        "{listed}"
    );

    let name = scene.fresh("theirs");
    stage.back_up(&name, &volume).await?.completed()?;
    let expected = [(volume.name.clone(), "Completed".to_owned())];
    ensure!(
        stage.records(&name)? == expected,
        "{:?}",
        stage.records(&name)?
    );
    // It was uploaded before the snapshot was said to be taken.
    ensure!(stage.clones().is_empty(), "{:?}", stage.clones());
    ensure!(
        stage.stored() == 1,
        "{} snapshots are in the bucket",
        stage.stored()
    );
    let mut describe = scene.program("velero");
    describe.args(["backup", "describe", &name, "--details"]);
    let described = run(describe).await?;
    ensure!(described.contains(&volume.name), "{described}");

    stage.lose(&volume).await?;
    let back = scene.fresh("back");
    stage.restore(&back, &name, json!({})).await?.completed()?;
    let folder = stage.folder_of(&volume.name).await?;
    tree::same(&before, &tree::read(&folder, &[])?)?;
    server.kill().await?;

    // What Velero made is ours to restore and to delete.
    stage
        .lose(&super::stage::Volume { folder, ..volume })
        .await?;
    let server = stage.server().await?;
    let back = scene.fresh("by-ours");
    stage.restore(&back, &name, json!({})).await?.completed()?;
    let folder = stage.folder_of(&scene.fresh("data")).await?;
    tree::same(&before, &tree::read(&folder, &[])?)?;
    stage.delete(&name).await?;
    stage.is_clean().await?;
    server.stop().await?;
    stage.close().await?;
    Ok(format!(
        "listed, {} files of location {LOCATION} there and back, by Velero and by ours",
        before.len()
    ))
}
