//! A plugin that says in the cluster how far it is, in objects of its own: they are taken up, waited for
//! and believed.

use std::fs;

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::{Backup, BackupPhase, VolumePluginBackup, VolumePluginRestore},
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use super::{
    snapshot,
    stage::{LOCATION, SOON, Stage, data},
};
use crate::{
    contents::Contents,
    peer,
    scenarios::looking::{Looking, download_state, in_the_middle, upload_state},
    scene::{Scene, run},
    servers::{self, Server},
    wait_for,
};

/// The story: there, back, once without luck, and gone.
pub(in crate::scenarios) async fn is_heard(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("telling")?;
    peer::prepare(scene, &bucket).await?;
    let mut crds = scene.bowline();
    crds.args(["install", "--crds-only"]);
    run(crds).await?;
    let stage = Stage::set(scene, bucket, "example.com/telling").await?;
    let server = stage.start(Server::Ours).await?;
    let name = scene.fresh("told");
    let there = back_up(&stage, &name).await?;
    let back = come_back(&stage, &name).await?;
    let unlucky = scene.fresh("unlucky");
    out_of_luck(&stage, &unlucky).await?;
    for backup in [&name, &unlucky] {
        gone(&stage, backup).await?;
    }
    server.check()?;
    server.stop().await?;
    stage.clear().await?;
    peer::remove(scene).await?;
    Ok(format!(
        "seen {there} times on the way there and {back} on the way back, by the plugin's own word; its failure is the backup's"
    ))
}

fn spec(stage: &Stage<'_>) -> serde_json::Value {
    json!({
        "includedNamespaces": [stage.namespace],
        "volumeSnapshotLocations": [LOCATION],
    })
}

/// The object of a backup's snapshot.
async fn told(stage: &Stage<'_>, backup: &str) -> anyhow::Result<VolumePluginBackup> {
    let objects: Api<VolumePluginBackup> = Api::namespaced(stage.scene.client(), DEFAULT_NAMESPACE);
    let of = ListParams::default().labels(&format!("{}={backup}", label::BACKUP_NAME));
    let mut found = objects.list(&of).await?.items;
    ensure!(found.len() == 1, "{backup} has {found:?}");
    found.pop().context("none")
}

/// A backup whose snapshot is not safe before the plugin has said so.
async fn back_up(stage: &Stage<'_>, name: &str) -> anyhow::Result<usize> {
    let looking = Looking::on::<VolumePluginBackup>(stage.scene, upload_state).await?;
    let ended = servers::back_up(&stage.scene.client(), name, &spec(stage)).await?;
    let ended = ended.completed()?;
    let seen = looking.seen();
    let moved = in_the_middle(&seen);
    ensure!(moved >= 2, "it was seen as {seen:?}");
    ensure!(
        seen.last()
            .is_some_and(|last| last == "Completed 8000/8000"),
        "it was seen as {seen:?}"
    );
    let object = told(stage, name).await?;
    ensure!(
        object.annotations().values().all(|value| value != "server"),
        "the server has written {object:?}"
    );
    let over = object.status.and_then(|status| status.completion_timestamp);
    let all_over = ended.backup.status.and_then(|s| s.completion_timestamp);
    ensure!(
        over.is_some() && all_over >= over,
        "the snapshot was safe at {over:?}, the backup over at {all_over:?}"
    );
    let contents = Contents::read(&stage.bucket, name)?;
    let kept = &contents.files["-volumepluginbackups.json.gz"];
    ensure!(
        kept[0]["status"]["phase"] == "Completed"
            && kept[0]["metadata"]["name"] == snapshot(&contents)?,
        "in the bucket there is {kept}"
    );
    let text = stage
        .ours(&["backup", "describe", name, "--details"])
        .await?;
    for part in ["example.com/telling", snapshot(&contents)?, "100.00%"] {
        ensure!(text.contains(part), "no {part:?} in:\n{text}");
    }
    Ok(moved)
}

/// The volume comes back; the object of that, which names no restore, is found to be this one's.
async fn come_back(stage: &Stage<'_>, backup: &str) -> anyhow::Result<usize> {
    stage.lose().await?;
    let looking = Looking::on::<VolumePluginRestore>(stage.scene, download_state).await?;
    let name = format!("{backup}-back");
    let spec = json!({ "backupName": backup });
    let restored = servers::restore(&stage.scene.client(), &name, &spec).await?;
    restored.completed()?;
    let seen = looking.seen();
    let folder = stage.folder(&stage.volume).await?;
    ensure!(data(&folder)? == stage.data, "other data came back");
    let objects: Api<VolumePluginRestore> =
        Api::namespaced(stage.scene.client(), DEFAULT_NAMESPACE);
    let all = objects.list(&ListParams::default()).await?.items;
    let [object] = all.as_slice() else {
        anyhow::bail!("there are {all:?}");
    };
    ensure!(
        object.name_any().starts_with("telling-")
            && object.labels().get(label::RESTORE_NAME) == Some(&name),
        "there is {object:?}"
    );
    let last = download_state(object);
    ensure!(last.as_deref() == Some("Completed 8000/8000"), "{last:?}");
    let text = stage
        .ours(&["restore", "describe", &name, "--details"])
        .await?;
    for part in ["example.com/telling", "100.00%"] {
        ensure!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let moved = in_the_middle(&seen);
    ensure!(moved >= 2, "it was seen as {seen:?}");
    Ok(moved)
}

/// What the plugin does after CreateSnapshot fails, and it says so in its object only.
async fn out_of_luck(stage: &Stage<'_>, name: &str) -> anyhow::Result<()> {
    let folder = stage.folder(&stage.volume).await?;
    fs::write(folder.join("unlucky"), "")?;
    let ended = servers::back_up(&stage.scene.client(), name, &spec(stage)).await?;
    ensure!(
        ended.phase() == BackupPhase::PartiallyFailed,
        "{name} ended as {:?}",
        ended.backup.status
    );
    let contents = Contents::read(&stage.bucket, name)?;
    let record = &contents.files["-volumesnapshots.json.gz"][0];
    ensure!(
        record["status"]["phase"] == "Failed",
        "the record is {record}"
    );
    let results = contents.files["-results.gz"].to_string();
    ensure!(
        results.contains("the other site is full") && results.contains(&stage.volume),
        "the results are {results}"
    );
    Ok(())
}

/// Deleted with its snapshot and its object.
async fn gone(stage: &Stage<'_>, name: &str) -> anyhow::Result<()> {
    let contents = Contents::read(&stage.bucket, name)?;
    let object = told(stage, name).await?;
    stage.ours(&["backup", "delete", name, "--confirm"]).await?;
    let backups: Api<Backup> = Api::namespaced(stage.scene.client(), DEFAULT_NAMESPACE);
    wait_for("the backup to go", SOON, async || {
        let found = backups.get_opt(name).await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    let copy = stage.snapshot(snapshot(&contents)?);
    ensure!(!copy.exists(), "{} is there", copy.display());
    let objects: Api<VolumePluginBackup> = Api::namespaced(stage.scene.client(), DEFAULT_NAMESPACE);
    let left = objects.get_opt(&object.name_any()).await?;
    ensure!(left.is_none(), "there is {left:?}");
    Ok(())
}
