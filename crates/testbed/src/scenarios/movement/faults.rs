//! Bad days for moved data: each volume that cannot be moved is named with its reason, the others are
//! moved, and nothing is left.

use std::fs;

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, NODE_AGENT},
    v1::{BackupPhase, DataPathPhase, RestorePhase},
};
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    super::pod_volumes::stage::Copy,
    stage::{BLOCKS, FILES, Stage},
};
use crate::{
    contents::Contents,
    csi::{self, objects},
    scene::Scene,
    servers,
};

/// Drivers that nobody runs: one with a class for snapshots, and one without.
const MUTE: &str = "mute.bowline.test";
const PLAIN: &str = "plain.bowline.test";
const CLAIMS: [(&str, &str); 2] = [("mute", MUTE), ("plain", PLAIN)];
const CONFIG: &str = "movers";
const FULL: &str = "No space left on device";

/// All of them.
pub(in super::super) async fn are_named(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::install(scene, "move-faults").await?;
    argument(&stage, "--data-mover-prepare-timeout=15s").await?;
    let before = stage.lists().await?;
    let namespace = scene.namespace("shop").await?;
    stage.claims(&namespace).await?;
    let data = stage.fill(&namespace).await?;
    let mut told = Vec::new();
    let class = |claim: &str, class: &str| rule(claim, "/spec/storageClassName", class);

    strangers(&stage, &namespace).await?;
    let backup = scene.fresh("strangers");
    let spec = json!({
        "includedNamespaces": [namespace],
        "snapshotMoveData": true,
        "csiSnapshotTimeout": "5s",
    });
    let made = servers::back_up(&scene.client(), &backup, &spec).await?;
    ensure!(
        made.phase() == BackupPhase::PartiallyFailed,
        "{:?}",
        made.backup.status
    );
    let rows = Contents::read(&stage.bucket, &backup)?.volume_info()?;
    for (claim, words) in [
        (
            "mute",
            "timed out awaiting reconciliation of volumesnapshot",
        ),
        ("plain", PLAIN),
    ] {
        let reason = of(&rows, claim)["skippedReason"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        ensure!(reason.contains(words), "{claim}: {reason:?}");
        told.push(format!("{claim} driver: {reason}"));
    }
    for claim in [FILES, BLOCKS] {
        ensure!(of(&rows, claim)["result"] == "succeeded", "{rows:#?}");
    }
    forget_strangers(&stage, &namespace).await?;

    // A claim that asks for less than its data gets a device that holds it; files need a larger volume.
    let small = |claim| rule(claim, "/spec/resources/requests/storage", "16Mi");
    let rules = format!(
        "{}{}{}",
        small(BLOCKS),
        small(FILES),
        class(FILES, &scene.fresh("tight"))
    );
    let into = scene.fresh("small");
    let restore = restored(&stage, &backup, (&namespace, &into), &rules).await?;
    let why = failed(&stage, &restore, FILES).await?;
    ensure!(why.contains(FULL), "too small: {why}");
    told.push(format!("too small: {why}"));
    let device = stage.csi.volume(&stage.csi.bound(&into, BLOCKS).await?);
    ensure!(fs::read(&device)? == data.blocks, "the device is another");
    stage.volumes().forget(&into).await?;

    let rules = format!(
        "{}{}",
        class(BLOCKS, "nowhere"),
        class(FILES, &scene.fresh("mute"))
    );
    let into = scene.fresh("classes");
    let restore = restored(&stage, &backup, (&namespace, &into), &rules).await?;
    for (claim, what, words) in [
        (BLOCKS, "no such class", "storage class nowhere not found"),
        (
            FILES,
            "a class whose driver is gone",
            "unbound immediate PersistentVolumeClaims",
        ),
    ] {
        let why = failed(&stage, &restore, claim).await?;
        ensure!(why.contains(words), "{what}: {why}");
        told.push(format!("{what}: {why}"));
    }
    stage.volumes().forget(&into).await?;
    forget_classes(&stage).await?;
    stage.delete(&backup).await?;

    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG, "namespace": DEFAULT_NAMESPACE },
        "data": { "config.json": json!({ "podResources": { "cpuRequest": "1000" } }).to_string() },
    });
    scene.apply(&[config]).await?;
    argument(&stage, &format!("--node-agent-configmap={CONFIG}")).await?;
    let backup = scene.fresh("full");
    let spec = json!({ "includedNamespaces": [namespace], "snapshotMoveData": true });
    let made = servers::back_up(&scene.client(), &backup, &spec).await?;
    ensure!(
        made.phase() == BackupPhase::PartiallyFailed,
        "{:?}",
        made.backup.status
    );
    for upload in stage.uploads(&backup).await? {
        let why = upload.message();
        ensure!(
            upload.phase() == DataPathPhase::Failed && why.contains("Insufficient cpu"),
            "no room: {why}"
        );
        if upload.spec.source_pvc == FILES {
            told.push(format!("a node without room: {why}"));
        }
    }
    stage.delete(&backup).await?;
    stage.lose(&namespace).await?;
    stage.is_as(&before).await?;
    stage.close_killed().await?;
    Ok(format!("{} bad days\n{}", told.len(), told.join("\n")))
}

/// Gives node processes one more argument, and waits until they have it.
async fn argument(stage: &Stage<'_>, argument: &str) -> anyhow::Result<()> {
    let patch = json!([{
        "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": argument,
    }]);
    let set = format!("daemonset/{NODE_AGENT}");
    let here = ["-n", DEFAULT_NAMESPACE];
    let patch = patch.to_string();
    let patch = ["patch", &set, "--type=json", "-p", &patch];
    stage.scene.kubectl(&[&here[..], &patch].concat()).await?;
    let rollout = ["rollout", "status", &set, "--timeout=120s"];
    stage.scene.kubectl(&[&here[..], &rollout].concat()).await?;
    Ok(())
}

/// Claims with volumes of drivers that nobody runs, and a class whose volumes hold no more than they say.
async fn strangers(stage: &Stage<'_>, namespace: &str) -> anyhow::Result<()> {
    let scene = stage.scene;
    let mut objects = Vec::new();
    for (claim, driver) in CLAIMS {
        let class = scene.fresh(claim);
        objects.push(json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": class },
            "provisioner": driver,
        }));
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": { "name": class },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": { "driver": driver, "volumeHandle": class },
                "claimRef": { "namespace": namespace, "name": claim },
            },
        }));
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "namespace": namespace, "name": claim },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "volumeName": class,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }));
    }
    objects.push(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": { "name": scene.fresh("mute") },
        "driver": MUTE,
        "deletionPolicy": "Delete",
    }));
    objects.push(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": scene.fresh("tight") },
        "provisioner": csi::DRIVER,
        "parameters": { "in": "memory" },
    }));
    scene.apply(&objects).await?;
    for (claim, _) in CLAIMS {
        let target = format!("pvc/{claim}");
        let bound = [
            "wait",
            &target,
            "--for=jsonpath={.status.phase}=Bound",
            "--timeout=60s",
        ];
        scene
            .kubectl(&[&["-n", namespace], &bound[..]].concat())
            .await?;
    }
    Ok(())
}

/// They go, and with them what the driver's side would let go of if there were one.
async fn forget_strangers(stage: &Stage<'_>, namespace: &str) -> anyhow::Result<()> {
    let scene = stage.scene;
    let contents = objects::contents(scene.client());
    for content in contents.list(&ListParams::default()).await? {
        if content.data["spec"]["driver"] == MUTE {
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let name = content.name_any();
            contents
                .patch(&name, &PatchParams::default(), &free)
                .await?;
        }
    }
    for (claim, _) in CLAIMS {
        let delete = ["-n", namespace, "delete", "pvc", claim, "--timeout=60s"];
        scene.kubectl(&delete).await?;
        let delete = ["delete", "pv", &scene.fresh(claim), "--timeout=60s"];
        scene.kubectl(&delete).await?;
    }
    Ok(())
}

/// The classes go, and the volumes that restores have brought back.
async fn forget_classes(stage: &Stage<'_>) -> anyhow::Result<()> {
    let scene = stage.scene;
    for (claim, _) in CLAIMS {
        let name = scene.fresh(claim);
        let delete = ["delete", "pv", &name, "--timeout=60s"];
        scene.kubectl(&delete).await?;
    }
    for class in ["mute", "plain", "tight"] {
        let name = scene.fresh(class);
        scene.kubectl(&["delete", "storageclass", &name]).await?;
    }
    let name = scene.fresh("mute");
    scene
        .kubectl(&["delete", "volumesnapshotclass", &name])
        .await
        .map(drop)
}

/// The row of a claim.
fn of(rows: &[Value], claim: &str) -> Value {
    let row = rows.iter().find(|row| row["pvcName"] == claim);
    row.cloned().unwrap_or_default()
}

/// A rule that gives a claim another value.
fn rule(claim: &str, path: &str, value: &str) -> String {
    format!(
        "- conditions:\n    groupResource: persistentvolumeclaims\n    resourceNameRegex: \"^{claim}$\"\n  \
         patches:\n  - operation: replace\n    path: {path}\n    value: {value}\n"
    )
}

/// A restore with such rules, which does not do all that was asked for.
async fn restored(
    stage: &Stage<'_>,
    backup: &str,
    (namespace, into): (&str, &str),
    rules: &str,
) -> anyhow::Result<String> {
    let scene = stage.scene;
    let name = format!("{into}-back");
    let rules = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": DEFAULT_NAMESPACE },
        "data": { "rules.yaml": format!("version: v1\nresourceModifierRules:\n{rules}") },
    });
    scene.apply(&[rules]).await?;
    let spec = json!({
        "backupName": backup,
        "namespaceMapping": { namespace: into },
        "resourceModifier": { "kind": "configmap", "name": name },
    });
    let ended = servers::restore(&scene.client(), &name, &spec).await?;
    ensure!(
        ended.phase() == RestorePhase::PartiallyFailed,
        "{:?}",
        ended.restore.status
    );
    Ok(name)
}

/// Why the data of a claim was not moved back; its row says the same.
async fn failed(stage: &Stage<'_>, restore: &str, claim: &str) -> anyhow::Result<String> {
    let downloads = stage.downloads(restore).await?;
    let mut of_claim = downloads
        .iter()
        .filter(|d| d.spec.target_volume.pvc == claim);
    let download = of_claim.next().context("there is no DataDownload")?;
    ensure!(download.phase() == DataPathPhase::Failed, "{download:?}");
    let rows = Contents::of_restore(&stage.bucket, restore)?.volume_info()?;
    let row = of(&rows, claim);
    let why = download.message();
    ensure!(
        row["result"] == "failed" && row["message"] == why.as_str(),
        "{row:#}"
    );
    Ok(why)
}
