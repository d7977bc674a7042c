//! Volumes of pods on a real node: copied into the bucket with their pods, and back, byte by byte
//! and attribute by attribute; and restic agrees with the repository.

pub(super) mod era;
pub(super) mod faults;
pub(super) mod killed;
pub(super) mod stage;
pub(super) mod uploaders;
pub(super) mod velero;

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::v1::{DataPathPhase, PodVolumeBackup, PodVolumeRestore};
use serde_json::{Value, json};

use self::stage::{Copy, Stage, Watch};
use crate::{bed::NODE, scene::Scene, servers, tree};

/// What is in the volume that takes a while.
const LARGE: usize = 96 << 20;
/// With this on every part that goes to S3 or comes from it, that volume takes some seconds.
const DELAY: Duration = Duration::from_millis(30);

/// A StatefulSet with a claim and volumes of its pod is backed up with hooks, deleted and restored.
pub(super) async fn come_back(scene: &Scene) -> anyhow::Result<String> {
    let relay = stage::slow_store(scene, DELAY).await?;
    let stage = Stage::install(scene, "volumes", relay.address).await?;

    let namespace = scene.namespace("ledger").await?;
    let class = scene.fresh("local");
    let disks = [scene.folder().join("disk-1"), scene.folder().join("disk-2")];
    let mut objects = vec![storage_class(&class)];
    for (n, disk) in disks.iter().enumerate() {
        fs::create_dir_all(disk)?;
        objects.push(local_volume(
            &scene.fresh(&format!("disk-{n}")),
            &class,
            disk,
        ));
    }
    objects.push(stateful_set(&namespace, &class));
    scene.apply(&objects).await?;
    let rollout = ["-n", &namespace, "rollout", "status", "statefulset/db"];
    let rollout = [&rollout[..], &["--timeout=120s"]].concat();
    scene.kubectl(&rollout).await?;
    let first = disks
        .iter()
        .find(|disk| disk.join("here").exists())
        .context("the pod has written nowhere")?;
    let cache = stage.folder(&namespace, "db-0", "cache").await?;
    tree::fill(first)?;
    tree::fill(&cache)?;
    let large = stage.folder(&namespace, "db-0", "large").await?;
    tree::noise(&large.join("noise"), LARGE, 5)?;
    let expected = [
        tree::read(first, &[])?,
        tree::read(&cache, &[])?,
        tree::read(&large, &[])?,
    ];

    // There, with the file that the hooks make and remove.
    let watch: Watch<PodVolumeBackup> = Watch::start(scene);
    let backup = scene.fresh("ledger");
    let spec = json!({ "includedNamespaces": [namespace] });
    let there = servers::back_up(&scene.client(), &backup, &spec)
        .await?
        .completed()?;
    let up = watch.judge(Some("large")).await.context("of the backup")?;
    ensure!(!first.join("frozen").exists(), "the post hook did not run");
    let copies = stage.copies(&backup).await?;
    ensure!(copies.len() == 3, "{} volumes were copied", copies.len());
    for copy in &copies {
        ensure!(
            copy.phase() == DataPathPhase::Completed && copy.spec.node == NODE,
            "{copy:?}"
        );
    }
    let described = stage
        .bowline(&["backup", "describe", &backup, "--details"])
        .await?;
    shows_volumes(&described)?;

    // And back.
    stage.forget(&namespace).await?;
    let watch: Watch<PodVolumeRestore> = Watch::start(scene);
    let restore = scene.fresh("ledger-back");
    let spec = json!({ "backupName": backup });
    let back = servers::restore(&scene.client(), &restore, &spec)
        .await?
        .completed()?;
    let down = watch.judge(Some("large")).await.context("of the restore")?;
    scene.kubectl(&rollout).await?;
    let second = disks.iter().find(|disk| *disk != first);
    let second = second.context("there is no other disk")?;
    ensure!(
        second.join("frozen").exists(),
        "the pre hook did not run before the copy"
    );
    let found = [
        tree::read(second, &[".velero", "frozen"])?,
        tree::read(
            &stage.folder(&namespace, "db-0", "cache").await?,
            &[".velero"],
        )?,
        tree::read(
            &stage.folder(&namespace, "db-0", "large").await?,
            &[".velero"],
        )?,
    ];
    for (expected, found) in expected.iter().zip(&found) {
        tree::same(expected, found).context("restored by us")?;
    }
    let described = stage
        .bowline(&["restore", "describe", &restore, "--details"])
        .await?;
    shows_volumes(&described)?;

    // restic, on the same repository.
    stage.is_clean(&namespace).await?;
    let cache_copy = copies.iter().find(|copy| copy.volume() == "cache");
    let by_restic = restored_by_restic(&stage, &namespace, cache_copy).await?;
    tree::same(&expected[1], &tree::read(&by_restic, &[])?).context("restored by restic")?;

    scene
        .kubectl(&["delete", "storageclass", &class, "--ignore-not-found"])
        .await?;
    stage.close().await?;
    Ok(format!(
        "3 volumes, {} files; there in {:.1} s, back in {:.1} s, seen in their middle {up} and {down} times",
        expected.iter().map(|tree| tree.len()).sum::<usize>(),
        there.took.as_secs_f64(),
        back.took.as_secs_f64()
    ))
}

/// Every volume with its pod.
fn shows_volumes(described: &str) -> anyhow::Result<()> {
    for volume in ["data", "cache", "large"] {
        let is_there = described
            .lines()
            .any(|line| line.contains("db-0") && line.contains(volume));
        ensure!(is_there, "{volume} is not in\n{described}");
    }
    Ok(())
}

/// A snapshot of ours, restored by restic into a folder of its own.
async fn restored_by_restic(
    stage: &Stage<'_>,
    namespace: &str,
    copy: Option<&PodVolumeBackup>,
) -> anyhow::Result<std::path::PathBuf> {
    let snapshot = copy
        .and_then(|copy| copy.status.as_ref()?.snapshot_id.clone())
        .context("there is no snapshot")?;
    let target = stage.scene.folder().join("by-restic");
    fs::create_dir_all(&target)?;
    stage
        .restic(namespace, &target, &["restore", &snapshot, "--target", "."])
        .await?;
    Ok(target)
}

fn storage_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": name },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// A folder of the node as a volume for any claim of the class.
fn local_volume(name: &str, class: &str, folder: &Path) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "local": { "path": folder },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                "key": "kubernetes.io/hostname", "operator": "In", "values": [NODE],
            }] }] } },
        },
    })
}

/// A database, more or less: quiet while it is copied.
fn stateful_set(namespace: &str, class: &str) -> Value {
    let volumes = [("cache", stage::passing()), ("large", stage::passing())];
    let mut spec = stage::spec(&volumes);
    if let Some(mounts) = spec["containers"][0]["volumeMounts"].as_array_mut() {
        mounts.push(json!({ "name": "data", "mountPath": "/data" }));
    }
    spec["containers"][0]["command"] = json!([
        "sh",
        "-c",
        "[ -e /data/here ] || touch /data/here; exec sleep 3600"
    ]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "db", "namespace": namespace },
        "spec": {
            "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": {
                    "labels": { "app": "db" },
                    "annotations": {
                        "backup.velero.io/backup-volumes": "data,cache,large",
                        "pre.hook.backup.velero.io/command": "[\"touch\", \"/data/frozen\"]",
                        "post.hook.backup.velero.io/command": "[\"rm\", \"/data/frozen\"]",
                    },
                },
                "spec": spec,
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": class,
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }],
        },
    })
}
