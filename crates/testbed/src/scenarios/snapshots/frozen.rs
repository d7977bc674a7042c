//! A pod that writes without pause: it is frozen for the moment of the clone, and the upload comes
//! after.

use std::{
    fs,
    path::Path,
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{Backup, BackupPhase, VolumePluginBackup, VolumePluginRestore},
};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use super::{
    describe,
    stage::{Stage, Volume},
};
use crate::{
    bed::BUSYBOX,
    scenarios::looking::{Looking, backup_state, download_state, in_the_middle, upload_state},
    scene::Scene,
    servers::{self, ended},
    tree, wait_for,
};

/// Bytes that take a minute, at [`PACE`].
const NOISE: usize = 300 << 20;
const PACE: &str = "5Mi";
/// The longest that the writer may be frozen, in hundredths of a second.
const FREEZE: u64 = 200;
/// Writes a line for each turn: a number and the uptime, to the hundredth of a second.
const WRITER: &str = "n=0; while :; do read up rest < /proc/uptime; echo $n $up; n=$((n+1)); done";

/// The whole story, on a loop-mounted xfs.
pub(in super::super) async fn for_a_moment(scene: &Scene) -> anyhow::Result<String> {
    let disk = scene.folder().join("xfs");
    mount(scene, &disk)?;
    let stage = Stage::set(scene, "frozen", &disk, PACE).await?;
    let volume = stage.volume("data", NOISE).await?;
    let pod = writer(&volume);
    scene.apply(std::slice::from_ref(&pod)).await?;
    ready(scene, &volume).await?;
    let server = stage.server_on_node().await?;

    let phases = Looking::on::<Backup>(scene, backup_state).await?;
    let uploads = Looking::on::<VolumePluginBackup>(scene, upload_state).await?;
    let printed = scene.folder().join("watched");
    let mut watch = scene.program("kubectl");
    watch
        .args(["get", "volumepluginbackups", "-n", DEFAULT_NAMESPACE, "-w"])
        .stdout(Stdio::from(fs::File::create(&printed)?));
    let mut watch = tokio::process::Command::from(watch)
        .kill_on_drop(true)
        .spawn()?;
    let name = scene.fresh("frozen");
    let made = servers::create_backup(&scene.client(), &name, &stage.spec(&volume)).await?;
    let shown = shown(scene, &stage, &name).await?;
    let backup = ended(&scene.client(), &made, Duration::from_secs(300)).await?;
    watch.kill().await?;
    let status = backup.status.unwrap_or_default();
    ensure!(status.phase == Some(BackupPhase::Completed), "{status:?}");

    let log = fs::read_to_string(stage.seen(&volume.folder).join("log"))?;
    let gap = longest_gap(&log)?;
    ensure!(
        gap < FREEZE,
        "the writer was frozen for {gap} hundredths of a second"
    );
    let took = upload_took(&stage, &name).await?;
    ensure!(took >= 45, "the upload took {took} s only");
    let (phases, uploads) = (phases.seen(), uploads.seen());
    let moved = in_the_middle(&uploads);
    ensure!(moved >= 5, "{uploads:?}");
    let waited = phases
        .iter()
        .filter(|phase| phase.starts_with("WaitingForPluginOperations"));
    ensure!(waited.count() >= 1, "{phases:?}");
    let lines = fs::read_to_string(&printed)?.lines().count();
    ensure!(lines > 5, "kubectl saw {lines} lines");
    let described = describe(scene, "backup", &name).await?;
    ensure!(described.contains("hook window"), "{described}");

    let frozen = [gap / 100, gap % 100];
    let seen = back(scene, &stage, &volume, &name).await?;
    stage.delete(&name).await?;
    stage.is_clean().await?;
    server.stop().await?;
    stage.close().await?;
    unmount(scene, &disk)?;
    Ok(format!(
        "frozen for {}.{:02} s, uploaded in {took} s (seen {moved} times, described at {}), back with {seen} looks",
        frozen[0],
        frozen[1],
        shown.join(" and ")
    ))
}

fn mount(scene: &Scene, disk: &Path) -> anyhow::Result<()> {
    let image = scene.folder().join("xfs.img");
    fs::create_dir_all(disk)?;
    fs::File::create(&image)?.set_len(3 << 30)?;
    let (image, disk) = (image.to_string_lossy(), disk.to_string_lossy());
    let node = |program: &str, args: &[&str]| scene.bed().run_on_node(program, args);
    node("mkfs.xfs", &["-q", "-m", "reflink=1", &image])?;
    node("mount", &["-o", "loop", &image, &disk])?;
    Ok(())
}

fn unmount(scene: &Scene, disk: &Path) -> anyhow::Result<()> {
    let disk = disk.to_string_lossy();
    scene.bed().run_on_node("umount", &["-l", &disk]).map(drop)
}

/// The pod, with hooks that stop and go on with its writer.
fn writer(volume: &Volume) -> Value {
    let signal = |name: &str| format!("[\"sh\", \"-c\", \"kill -{name} $(cat /tmp/pid)\"]");
    let run = format!("sh -c '{WRITER}' >> /data/log & echo $! > /tmp/pid; wait");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "writer",
            "namespace": volume.namespace,
            "annotations": {
                "pre.hook.backup.velero.io/command": signal("STOP"),
                "post.hook.backup.velero.io/command": signal("CONT"),
            },
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "command": ["sh", "-c", run],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": volume.name } }],
        },
    })
}

async fn ready(scene: &Scene, volume: &Volume) -> anyhow::Result<()> {
    let wait = [
        "wait",
        "pod",
        "writer",
        "--for=condition=Ready",
        "--timeout=120s",
    ];
    let args = [&["-n", volume.namespace.as_str()][..], &wait].concat();
    scene.kubectl(&args).await.map(drop)
}

/// What describe says of the upload, twice, with something in between.
async fn shown(scene: &Scene, stage: &Stage<'_>, backup: &str) -> anyhow::Result<Vec<String>> {
    let shown = Mutex::new(Vec::<String>::new());
    let limit = Duration::from_secs(120);
    wait_for("describe to show it moving", limit, async || {
        let tracked = stage.tracked(backup).await?;
        ensure!(!tracked.is_empty(), "nothing is written down");
        let described = describe(scene, "backup", backup).await?;
        let percent = described
            .split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '%'))
            .find(|word| word.ends_with('%') && *word != "0.00%" && *word != "100.00%");
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(percent) = percent.map(str::to_owned)
            && !shown.contains(&percent)
        {
            shown.push(percent);
        }
        ensure!(shown.len() >= 2, "{described}");
        Ok(Some(()))
    })
    .await?;
    Ok(shown.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The longest time between two lines of the writer, in hundredths of a second. Its numbers have no
/// gap.
fn longest_gap(log: &str) -> anyhow::Result<u64> {
    let (mut last, mut longest) = (None::<(u64, u64)>, 0);
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let (number, up) = line
            .split_once(' ')
            .with_context(|| format!("line {line:?}"))?;
        let turn = (number.parse()?, up.replace('.', "").parse()?);
        if let Some((number, up)) = last {
            ensure!(turn.0 == number + 1, "{} follows {number}", turn.0);
            longest = longest.max(turn.1 - up);
        }
        last = Some(turn);
    }
    ensure!(last.is_some(), "the writer wrote nothing");
    Ok(longest)
}

async fn upload_took(stage: &Stage<'_>, backup: &str) -> anyhow::Result<i64> {
    let tracked = stage.tracked(backup).await?;
    let status = tracked.first().and_then(|object| object.status.clone());
    let status = status.context("nothing is written down")?;
    let second = |time: Option<bowline_api::Time>| time.map(|time| time.0.as_second());
    let began = second(status.start_timestamp).context("it never began")?;
    let ended = second(status.completion_timestamp).context("it never ended")?;
    Ok(ended - began)
}

/// Everything is lost, and comes back; how often the restore was seen on its way.
async fn back(
    scene: &Scene,
    stage: &Stage<'_>,
    volume: &Volume,
    backup: &str,
) -> anyhow::Result<usize> {
    let before = tree::read(&stage.seen(&volume.folder), &["log"])?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(scene.client(), &volume.namespace);
    pods.delete("writer", &DeleteParams::default().grace_period(0))
        .await?;
    wait_for("the pod to go", Duration::from_secs(60), async || {
        Ok(pods.get_opt("writer").await?.is_none().then_some(()))
    })
    .await?;
    stage.lose(volume).await?;
    scene
        .kubectl(&["delete", "namespace", &volume.namespace])
        .await?;
    let downloads = Looking::on::<VolumePluginRestore>(scene, download_state).await?;
    let name = scene.fresh("thawed");
    stage.restore(&name, backup, json!({})).await?.completed()?;
    ready(scene, volume).await?;
    let folder = stage.folder_of(&volume.name).await?;
    let folder = stage.seen(&folder);
    tree::same(&before, &tree::read(&folder, &["log"])?)?;
    // The pod writes again, from zero: what was there before it is whole lines.
    let log = fs::read_to_string(folder.join("log"))?;
    let again = log.rfind("\n0 ");
    let old = again.map_or(log.as_str(), |at| &log[..=at]);
    longest_gap(old).context("the restored log")?;
    // At full speed it may be over before anybody looks twice; `telling-plugin` sees it move.
    let seen = wait_for("its last look", Duration::from_secs(30), async || {
        let seen = downloads.seen();
        let last = seen.last().and_then(|last| last.strip_prefix("Completed "));
        let bytes = last.and_then(|last| last.rsplit('/').next()?.parse::<usize>().ok());
        ensure!(bytes.is_some_and(|bytes| bytes >= NOISE), "{seen:?}");
        Ok(Some(seen))
    })
    .await?;
    let described = describe(scene, "restore", &name).await?;
    ensure!(described.contains("bowline.io/local"), "{described}");
    Ok(in_the_middle(&seen))
}
