//! A plugin made with Velero's own framework, which knows of nothing that we add: snapshots, actions
//! and their operations are the same under either server, and ours does not complain.

mod stage;
pub(in crate::scenarios) mod telling;

use std::fs;

use anyhow::{Context, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{Backup, BackupPhase, RestorePhase},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use self::stage::{LOCATION, OTHER, SLOW, SOON, Stage, data};
use crate::{
    Process,
    contents::{Contents, differences},
    peer,
    scenarios::exchange::velero,
    scene::{Scene, run},
    servers::{self, Server},
    wait_for,
};

/// What differs from one backup to the next.
const FLEETING: [&str; 14] = [
    "backupName",
    "backupUID",
    "providerVolumeID",
    "providerSnapshotID",
    "snapshotHandle",
    "operationID",
    "created",
    "started",
    "updated",
    "startTimestamp",
    "completionTimestamp",
    "nCompleted",
    "error",
    // Of the volume, which may come from a restore.
    "labels",
];

/// The story: the same with our server and with Velero's, and the files say the same.
pub(in crate::scenarios) async fn is_as_good(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("plain")?;
    peer::prepare(scene, &bucket).await?;
    let mut crds = scene.bowline();
    crds.args(["install", "--crds-only"]);
    run(crds).await?;
    let stage = Stage::set(scene, bucket, "example.com/plain").await?;
    let mut told = Vec::new();
    for server in [Server::Ours, Server::Velero] {
        let played = play(&stage, server).await;
        told.push(played.with_context(|| format!("with the server of {}", server.name()))?);
    }
    let found = differences(&told[1], &told[0]);
    ensure!(found.is_empty(), "velero | ours\n{}", found.join("\n"));
    stage.clear().await?;
    peer::remove(scene).await?;
    Ok("a volume there and back twice, 4 operations, and nothing to complain of".to_owned())
}

/// One server's turn; what its files say.
async fn play(stage: &Stage<'_>, server: Server) -> anyhow::Result<Value> {
    let process = stage.start(server).await?;
    let name = stage.scene.fresh(&format!("{}-backup", server.name()));
    back_up(stage, &name).await?;
    let contents = Contents::read(&stage.bucket, &name)?;
    is_whole(stage, &contents)?;
    is_described(stage, &name, &contents).await?;
    come_back(stage, &name).await?;
    beside(stage, &name).await?;
    if server == Server::Ours {
        is_quiet(stage, &process).await?;
    }
    let stuck = stuck(stage, server).await?;
    deleted(stage, server, &name, &contents).await?;
    process.check()?;
    process.stop().await?;
    let told = json!({
        "snapshots": &contents.files["-volumesnapshots.json.gz"],
        "volumes": &contents.files["-volumeinfo.json.gz"],
        "operations": &contents.files["-itemoperations.json.gz"],
        "stuck": stuck,
    });
    Ok(lasting(&told))
}

/// What does not differ from one backup to the next.
fn lasting(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.clone();
            for (name, field) in &mut fields {
                *field = match FLEETING.contains(&name.as_str()) {
                    true => json!("some"),
                    false => lasting(field),
                };
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.iter().map(lasting).collect(),
        other => other.clone(),
    }
}

/// A backup that is seen to wait for the plugin. Meanwhile the object is changed that is to be read
/// again afterwards.
async fn back_up(stage: &Stage<'_>, name: &str) -> anyhow::Result<()> {
    let client = stage.scene.client();
    let spec = json!({
        "includedNamespaces": [stage.namespace],
        "volumeSnapshotLocations": [LOCATION],
    });
    let mut last = servers::create_backup(&client, name, &spec).await?;
    let mut phases = Vec::new();
    let see = |backup: &Backup| phases.push(phase(backup));
    let followed = servers::follow(&client, &mut last, see);
    let changed = async {
        let backups: Api<Backup> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        wait_for("the backup to wait", SOON, async || {
            let now = phase(&backups.get(name).await?).to_string();
            Ok(now.starts_with("WaitingForPlugin").then_some(()))
        })
        .await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &stage.namespace);
        let change = Patch::Merge(json!({ "data": { "changed": name } }));
        maps.patch(OTHER, &PatchParams::default(), &change).await?;
        anyhow::Ok(())
    };
    let (followed, changed) = tokio::join!(followed, changed);
    followed?;
    changed.with_context(|| format!("phases were {phases:?}"))?;
    let complaints = complaints(&Contents::read(&stage.bucket, name)?);
    ensure!(
        phase(&last) == BackupPhase::Completed && complaints.is_empty(),
        "{name} went through {phases:?}:\n{}",
        complaints.join("\n")
    );
    ensure!(
        phases.contains(&BackupPhase::WaitingForPluginOperations),
        "{name} did not wait: {phases:?}"
    );
    let status = last.status.unwrap_or_default();
    let counts = [
        status.volume_snapshots_attempted,
        status.volume_snapshots_completed,
        status.backup_item_operations_attempted,
        status.backup_item_operations_completed,
    ];
    ensure!(counts == [Some(1); 4], "{name} counts {counts:?}");
    Ok(())
}

fn phase(backup: &Backup) -> BackupPhase {
    let status = backup.status.as_ref();
    status.and_then(|s| s.phase.clone()).unwrap_or_default()
}

/// Warnings and errors in the log of a backup.
fn complaints(contents: &Contents) -> Vec<String> {
    let log = contents.files["-logs.gz"].as_str().unwrap_or_default();
    let bad = |line: &&str| line.contains("level=warning") || line.contains("level=error");
    log.lines().filter(bad).map(str::to_owned).collect()
}

/// The snapshot is there, the operation is over, and the other object is as it was when that ended.
fn is_whole(stage: &Stage<'_>, contents: &Contents) -> anyhow::Result<()> {
    let records = &contents.files["-volumesnapshots.json.gz"];
    ensure!(
        records[0]["status"]["phase"] == "Completed"
            && records[0]["spec"]["persistentVolumeName"] == stage.volume.as_str(),
        "the snapshot's record is {records}"
    );
    let copy = stage.snapshot(snapshot(contents)?);
    ensure!(data(&copy)? == stage.data, "the snapshot has other data");
    let operations = &contents.files["-itemoperations.json.gz"];
    let status = &operations[0]["status"];
    ensure!(
        status["phase"] == "Completed" && status["nCompleted"] == status["nTotal"],
        "the operations are {operations}"
    );
    let path = format!(
        "resources/configmaps/namespaces/{}/{OTHER}.json",
        stage.namespace
    );
    let stored = &contents.archive[&path];
    let name = &records[0]["spec"]["backupName"];
    ensure!(
        stored["data"]["changed"] == *name,
        "it was not read again: {stored}"
    );
    Ok(())
}

fn snapshot(contents: &Contents) -> anyhow::Result<&str> {
    let records = &contents.files["-volumesnapshots.json.gz"];
    let id = records[0]["status"]["providerSnapshotID"].as_str();
    id.with_context(|| format!("no snapshot in {records}"))
}

/// Both command lines show the snapshot and the operation.
async fn is_described(stage: &Stage<'_>, name: &str, contents: &Contents) -> anyhow::Result<()> {
    let args = ["backup", "describe", name, "--details"];
    let ours = stage.ours(&args).await?;
    let theirs = velero(stage.scene, &args).await?;
    let operations = &contents.files["-itemoperations.json.gz"];
    let operation = operations[0]["spec"]["operationID"].as_str();
    for (whose, text) in [("ours", ours), ("Velero's", theirs)] {
        for part in [
            "Velero-Native Snapshots:",
            &stage.volume,
            snapshot(contents)?,
            "Type:               folder",
            "Result:             succeeded",
            "Backup Item Operations:",
            "example.com/slow",
            operation.unwrap_or("no operation"),
            "3000 of 3000 complete (Milliseconds)",
            "taking its time",
        ] {
            ensure!(
                text.contains(part),
                "describe ({whose}) does not say {part:?}:\n{text}"
            );
        }
        ensure!(
            !text.contains("Volume Plugin Backups"),
            "the plugin has nothing to say:\n{text}"
        );
    }
    Ok(())
}

/// Namespace, volume and data go and come back. The plugin is waited for.
async fn come_back(stage: &Stage<'_>, backup: &str) -> anyhow::Result<()> {
    stage.lose().await?;
    let name = format!("{backup}-back");
    restore(stage, &name, &json!({ "backupName": backup })).await?;
    stage.bound(&stage.namespace).await?;
    let folder = stage.folder(&stage.volume).await?;
    ensure!(
        folder.starts_with(stage.home.join("volumes")),
        "the volume is {}",
        folder.display()
    );
    ensure!(data(&folder)? == stage.data, "other data came back");
    let args = ["restore", "describe", &name, "--details"];
    let text = stage.ours(&args).await?;
    for part in [
        "Restore Item Operations:",
        "example.com/slow-restore",
        "2000 of 2000 complete (Milliseconds)",
    ] {
        ensure!(
            text.contains(part),
            "describe does not say {part:?}:\n{text}"
        );
    }
    Ok(())
}

/// Restored into another namespace while all is there: another volume is made for it.
async fn beside(stage: &Stage<'_>, backup: &str) -> anyhow::Result<()> {
    let other = format!("{backup}-beside");
    let spec = json!({
        "backupName": backup,
        "namespaceMapping": { &stage.namespace: &other },
    });
    restore(stage, &other, &spec).await?;
    stage.bound(&other).await?;
    let volume = stage.volume_of(&other).await?;
    ensure!(
        volume.starts_with("velero-clone-"),
        "the new claim has volume {volume}"
    );
    let folder = stage.folder(&volume).await?;
    ensure!(data(&folder)? == stage.data, "the clone has other data");
    stage.remove(&other, &volume).await
}

/// A restore that is seen to wait for the plugin.
async fn restore(stage: &Stage<'_>, name: &str, spec: &Value) -> anyhow::Result<()> {
    let client = stage.scene.client();
    let mut last = servers::create_restore(&client, name, spec).await?;
    let mut phases = Vec::new();
    servers::follow(&client, &mut last, |restore| {
        let status = restore.status.as_ref();
        phases.push(status.and_then(|s| s.phase.clone()).unwrap_or_default());
    })
    .await?;
    ensure!(
        phases.last() == Some(&RestorePhase::Completed),
        "{name} ended as {:?}",
        last.status
    );
    ensure!(
        phases.contains(&RestorePhase::WaitingForPluginOperations),
        "{name} did not wait: {phases:?}"
    );
    Ok(())
}

/// Our server has not complained, and no object is left that says nothing.
async fn is_quiet(stage: &Stage<'_>, server: &Process) -> anyhow::Result<()> {
    let log = fs::read(&server.log)?;
    let log = String::from_utf8_lossy(&log);
    let complaints: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(" WARN") || line.contains("ERROR"))
        .collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    let kind = "volumepluginbackups";
    let left = ["-n", DEFAULT_NAMESPACE, "get", kind, "-o", "name"];
    let left = stage.scene.kubectl(&left).await?;
    ensure!(left.is_empty(), "there is {left}");
    Ok(())
}

/// An operation that takes too long is given up, and the plugin is told.
async fn stuck(stage: &Stage<'_>, server: Server) -> anyhow::Result<Value> {
    let name = stage.scene.fresh(&format!("{}-stuck", server.name()));
    let spec = json!({
        "includedNamespaces": [stage.stuck],
        "itemOperationTimeout": "2s",
    });
    let ended = servers::back_up(&stage.scene.client(), &name, &spec).await?;
    ensure!(
        ended.phase() == BackupPhase::PartiallyFailed,
        "{name} ended as {:?}",
        ended.backup.status
    );
    let contents = Contents::read(&stage.bucket, &name)?;
    let operations = &contents.files["-itemoperations.json.gz"];
    let status = &operations[0]["status"];
    ensure!(
        status["phase"] == "Failed" && status["error"].is_string(),
        "the operations are {operations}"
    );
    let id = operations[0]["spec"]["operationID"].as_str();
    let note = stage
        .notes
        .join(format!("cancelled-{}", id.unwrap_or_default()));
    ensure!(note.exists(), "{} is not there", note.display());
    Ok(operations.clone())
}

/// The backup goes, and with it the snapshot; the plugin was asked about the object that it wanted.
async fn deleted(
    stage: &Stage<'_>,
    server: Server,
    name: &str,
    contents: &Contents,
) -> anyhow::Result<()> {
    let args = ["backup", "delete", name, "--confirm"];
    match server {
        Server::Ours => stage.ours(&args).await?,
        Server::Velero => velero(stage.scene, &args).await?,
    };
    let backups: Api<Backup> = Api::namespaced(stage.scene.client(), DEFAULT_NAMESPACE);
    wait_for("the backup to go", SOON, async || {
        let found = backups.get_opt(name).await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    let copy = stage.snapshot(snapshot(contents)?);
    ensure!(!copy.exists(), "{} is there", copy.display());
    let notes = fs::read_to_string(stage.notes.join("deleted"))?;
    let noted = format!("{name} {}/{SLOW}", stage.namespace);
    ensure!(
        notes.lines().filter(|line| *line == noted).count() == 1,
        "the plugin has noted {notes:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::lasting;

    #[test]
    fn what_differs_each_time_is_only_known_to_be_there() {
        let one = json!([{ "spec": { "backupUID": "a", "volumeType": "folder" } }]);
        let other = json!([{ "spec": { "backupUID": "b", "volumeType": "folder" } }]);
        assert_eq!(lasting(&one), lasting(&other));
        let without = json!([{ "spec": { "volumeType": "folder" } }]);
        assert_ne!(lasting(&one), lasting(&without));
        let disk = json!([{ "spec": { "backupUID": "a", "volumeType": "disk" } }]);
        assert_ne!(lasting(&one), lasting(&disk));
    }
}
