//! One namespace with a claim for every way in which data is kept, and one whose data is not: backed
//! up, lost, restored into another namespace, and told of in both directions.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use bowline_api::names::DEFAULT_NAMESPACE;
use serde_json::{Value, json};

use super::{
    pod_volumes,
    snapshots::stage::{LOCATION, Stage, Volume},
};
use crate::{
    bed::BUSYBOX,
    contents::Contents,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    peer,
    scene::{Scene, run},
    servers, wait_for,
};

/// Claims of the CSI driver: copied by the pod's node, kept by a CSI snapshot, and skipped.
const COPIED: &str = "copied";
const CLOUD: &str = "cloud";
const SCRATCH: &str = "scratch";
/// The volume of the plugin, as the pod names it.
const DISK: &str = "disk";
/// Which volumes have data afterwards.
const KEPT: [&str; 3] = [COPIED, CLOUD, DISK];
const FEATURES: &str = "--features=EnableCSI";
const FILL: &str = "for v in copied cloud disk scratch; do mkdir -p /$v/deep && echo $v >/$v/file && \
    dd if=/dev/urandom of=/$v/deep/noise bs=64k count=16 2>/dev/null; done; sync";

/// All of it.
pub(super) async fn is_told(scene: &Scene) -> anyhow::Result<String> {
    let csi = Csi::on(scene.bed()).await?;
    let disk = scene.folder().join("disk");
    let stage = Stage::set(scene, "every", &disk, "").await?;
    // Restored pods wait with an image of the Deployment that the stage makes.
    peer::import(scene.bed())?;
    let volume = stage.volume("every", 1 << 20).await?;
    let from = &volume.namespace;
    let claims = [COPIED, CLOUD, SCRATCH].map(|name| {
        let mut claim = objects::claim(from, name, Kind::Files, "16Mi");
        claim["metadata"]["labels"] = json!({ "part": name });
        claim
    });
    scene.apply(&claims).await?;
    scene.apply(&[policy(), pod(&volume)]).await?;
    shell(scene, from, FILL).await?;
    let sums = sums(scene, from).await?;

    let node = pod_volumes::stage::node(scene, &[]).await?;
    let plugins = stage.plugins();
    let server = servers::start_on_node(scene, &["--plugin-dir", &plugins, FEATURES]).await?;
    let backup = scene.fresh("every");
    let spec = json!({
        "includedNamespaces": [from],
        "volumeSnapshotLocations": [LOCATION],
        "resourcePolicy": { "kind": "configmap", "name": "volumes" },
    });
    servers::back_up(&scene.client(), &backup, &spec)
        .await?
        .completed()?;
    let rows = Contents::read(&stage.bucket, &backup)?.volume_info()?;
    let methods = by_claim(&rows, "backupMethod");
    let disk_claim = volume.name.as_str();
    let expected = BTreeMap::from([
        (CLOUD.to_owned(), "CSISnapshot".to_owned()),
        (COPIED.to_owned(), "PodVolumeBackup".to_owned()),
        (SCRATCH.to_owned(), String::new()),
        (disk_claim.to_owned(), "NativeSnapshot".to_owned()),
    ]);
    ensure!(methods == expected, "{rows:#?}");
    let native = rows.iter().find(|row| row["pvcName"] == disk_claim);
    let size = native.and_then(|row| row["nativeSnapshotInfo"]["size"].as_i64());
    ensure!(size.is_some_and(|size| size > 1 << 20), "{native:?}");
    let skipped = rows.iter().find(|row| row["pvcName"] == SCRATCH);
    let reason = skipped.and_then(|row| row["skippedReason"].as_str());
    ensure!(reason.is_some_and(|text| !text.is_empty()), "{skipped:?}");

    // Lost, and back under another name.
    let delete = ["delete", "namespace", from, "--timeout=120s"];
    scene.kubectl(&delete).await?;
    scene
        .kubectl(&["delete", "pv", disk_claim, "--timeout=60s"])
        .await?;
    std::fs::remove_dir_all(stage.seen(&volume.folder))?;
    let into = scene.fresh("elsewhere");
    let restore = scene.fresh("every-back");
    let more = json!({ "namespaceMapping": { from: into } });
    stage.restore(&restore, &backup, more).await?.completed()?;
    ready(scene, &into).await?;
    let found = self::sums(scene, &into).await?;
    ensure!(found == sums, "of\n{sums}\nthere is\n{found}");
    let left = shell(scene, &into, "ls /scratch").await?;
    ensure!(left.trim().is_empty(), "the skipped volume has {left}");

    let rows = Contents::of_restore(&stage.bucket, &restore)?.volume_info()?;
    let methods = by_claim(&rows, "restoreMethod");
    let expected = BTreeMap::from([
        (CLOUD.to_owned(), "CSISnapshot".to_owned()),
        (COPIED.to_owned(), "PodVolumeRestore".to_owned()),
        (SCRATCH.to_owned(), String::new()),
        (disk_claim.to_owned(), "NativeSnapshot".to_owned()),
    ]);
    ensure!(methods == expected, "{rows:#?}");

    // Whoever asks is told, by either command line.
    for (kind, name) in [("backup", &backup), ("restore", &restore)] {
        for mut command in [scene.bowline(), scene.program("velero")] {
            command.args([kind, "describe", name, "--details"]);
            let told = run(command).await?;
            for claim in [COPIED, CLOUD] {
                ensure!(told.contains(claim), "{claim} of\n{told}");
            }
        }
        let mut volumes = scene.bowline();
        volumes.args([kind, "volumes", name]);
        // One volume has no copy, so the exit code is 1.
        let table = tokio::process::Command::from(volumes).output().await?;
        let text = String::from_utf8_lossy(&table.stdout).into_owned();
        ensure!(
            table.status.code() == Some(1),
            "{:?}:\n{text}",
            table.status
        );
        for claim in [COPIED, CLOUD, SCRATCH, disk_claim] {
            ensure!(text.contains(claim), "{claim} of\n{text}");
        }
    }
    goes(scene, &stage, &csi, &backup, &into).await?;
    server.stop().await?;
    node.stop().await?;
    scene
        .kubectl(&["delete", "pv", disk_claim, "--ignore-not-found"])
        .await?;
    stage.close().await?;
    Ok(format!(
        "{} volumes by 3 methods and 1 skipped, there and back with the same sums; 4 rows in each file",
        KEPT.len() + 1
    ))
}

/// The backup deleted: no snapshot of it is left, with the driver or elsewhere.
async fn goes(
    scene: &Scene,
    stage: &Stage<'_>,
    csi: &Csi,
    backup: &str,
    into: &str,
) -> anyhow::Result<()> {
    stage.delete(backup).await?;
    scene
        .kubectl(&["delete", "namespace", into, "--timeout=120s"])
        .await?;
    wait_for("the snapshots to go", Duration::from_secs(60), async || {
        let left = csi.snapshots()?;
        ensure!(left.is_empty(), "the driver has {left:?}");
        Ok(Some(()))
    })
    .await?;
    stage.is_clean().await
}

/// What the CSI driver has is copied, snapshotted or skipped, by label.
fn policy() -> Value {
    let rule = |part: &str, action: &str| {
        format!(
            "- conditions:\n    pvcLabels:\n      part: {part}\n  action:\n    type: {action}\n"
        )
    };
    let text = format!(
        "version: v1\nvolumePolicies:\n{}{}",
        rule(COPIED, "fs-backup"),
        rule(SCRATCH, "skip")
    );
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "volumes", "namespace": DEFAULT_NAMESPACE },
        "data": { "policy.yaml": text },
    })
}

fn pod(volume: &Volume) -> Value {
    let volumes = [
        (COPIED, COPIED),
        (CLOUD, CLOUD),
        (SCRATCH, SCRATCH),
        (DISK, &volume.name),
    ];
    let mounts = volumes.map(|(name, _)| json!({ "name": name, "mountPath": format!("/{name}") }));
    let sources = volumes.map(
        |(name, claim)| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } }),
    );
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "user", "namespace": volume.namespace },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "command": ["sleep", "3600"],
                "volumeMounts": mounts,
            }],
            "volumes": sources,
        },
    })
}

async fn ready(scene: &Scene, namespace: &str) -> anyhow::Result<()> {
    let wait = [
        "wait",
        "pod/user",
        "--for=condition=Ready",
        "--timeout=120s",
    ];
    let wait = [&["-n", namespace], &wait[..]].concat();
    scene.kubectl(&wait).await.map(drop)
}

/// Runs a script in the pod, once it is ready.
async fn shell(scene: &Scene, namespace: &str, script: &str) -> anyhow::Result<String> {
    ready(scene, namespace).await?;
    let exec = ["exec", "user", "--", "sh", "-c", script];
    scene
        .kubectl(&[&["-n", namespace], &exec[..]].concat())
        .await
}

/// The sums of all files that are to come back.
async fn sums(scene: &Scene, namespace: &str) -> anyhow::Result<String> {
    let script = format!(
        "cd / && find {} -type f ! -path '*/.velero/*' -print0 | xargs -0 sha256sum | sort | tee /tmp/sums | sha256sum; wc -l </tmp/sums",
        KEPT.join(" ")
    );
    shell(scene, namespace, &script).await
}

/// What is said of each claim.
fn by_claim(rows: &[Value], key: &str) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pair = |row: &Value| (text(&row["pvcName"]), text(&row[key]));
    rows.iter().map(pair).collect()
}
