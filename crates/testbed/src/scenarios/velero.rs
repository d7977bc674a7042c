//! The real Velero on the bed, and whether our types read all that it writes.

use std::{fs::File, io::Read, path::Path, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{
    crd::KINDS,
    files::{
        BACKUP_OBJECT, BackupOperation, BackupVolumeInfo, ResourceList, Results,
        backup_suffix as suffix,
    },
    json,
    names::DEFAULT_NAMESPACE,
    v1::{Backup, BackupPhase, PodVolumeBackup},
};
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    bed::{BUSYBOX, Bucket},
    peer,
    scene::{Scene, run, velero_objects},
    wait_for,
};

/// Velero's server outside the cluster: backs up, is killed, comes back, restores.
pub(super) async fn as_a_process(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("velero")?;
    peer::prepare(scene, &bucket).await?;
    let server = peer::serve(scene, &[], &[]).await?;
    let namespace = scene.namespace("shop").await?;
    scene
        .kubectl(&[
            "-n",
            &namespace,
            "create",
            "configmap",
            "settings",
            "--from-literal=mode=<fast> & safe",
        ])
        .await?;
    let backup = back_up(scene, &namespace).await?;
    server.kill().await?;
    ensure!(!server.is_alive());

    let settings: Api<ConfigMap> = Api::namespaced(scene.client(), &namespace);
    settings.delete("settings", &Default::default()).await?;
    let server = peer::serve(scene, &[], &[]).await?;
    velero(
        scene,
        &["restore", "create", "--from-backup", &backup, "--wait"],
    )
    .await?;
    let restored = wait_for("the restored object", Duration::from_secs(30), async || {
        Ok(settings.get_opt("settings").await?)
    })
    .await?;
    let mode = restored.data.unwrap_or_default().remove("mode");
    ensure!(
        mode.as_deref() == Some("<fast> & safe"),
        "restored with {mode:?}"
    );

    let objects = objects_round_trip(scene).await?;
    let files = files_round_trip(&bucket, &backup)?;
    server.kill().await?;
    // Its restores have a finalizer that only a server takes off.
    let restores = scene
        .kubectl(&["-n", DEFAULT_NAMESPACE, "get", "restores", "-o", "name"])
        .await?;
    for restore in restores.lines() {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        scene
            .kubectl(&[
                "-n",
                DEFAULT_NAMESPACE,
                "patch",
                restore,
                "--type=merge",
                "-p",
                patch,
            ])
            .await?;
    }
    peer::remove(scene).await?;
    Ok(format!(
        "backup, kill -9, restore; {objects} objects and {files} files round-trip"
    ))
}

/// Velero installed in the cluster by its own `velero install`: backs up a pod's volume.
pub(super) async fn in_the_cluster(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("velero")?;
    peer::install(scene.bed(), &bucket, &[]).await?;
    let namespace = scene.namespace("ledger").await?;
    scene
        .apply(&[serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "book",
                "namespace": namespace,
                "annotations": { "backup.velero.io/backup-volumes": "pages" },
            },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "book",
                    "image": BUSYBOX,
                    "command": ["sh", "-c", "seq 1 1000 >/pages/one; exec sleep 3600"],
                    "volumeMounts": [{ "name": "pages", "mountPath": "/pages" }],
                }],
                "volumes": [{ "name": "pages", "emptyDir": {} }],
            },
        })])
        .await?;
    scene
        .kubectl(&[
            "-n",
            &namespace,
            "wait",
            "--for=condition=Ready",
            "pod/book",
            "--timeout=120s",
        ])
        .await?;
    let backup = back_up(scene, &namespace).await?;

    let volumes: Api<PodVolumeBackup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let copies = volumes.list(&Default::default()).await?;
    let progress = copies
        .iter()
        .filter_map(|copy| copy.status.as_ref()?.progress.as_ref())
        .find_map(|progress| progress.bytes_done)
        .context("no pod volume was copied")?;
    let objects = objects_round_trip(scene).await?;
    let files = files_round_trip(&bucket, &backup)?;
    peer::uninstall(scene).await?;
    Ok(format!(
        "velero install, {progress} bytes of a pod volume; {objects} objects and {files} files round-trip"
    ))
}

async fn velero(scene: &Scene, args: &[&str]) -> anyhow::Result<String> {
    let mut command = scene.program("velero");
    command.args(args);
    run(command).await
}

/// Backs up a namespace with Velero's command line, to the end; gives the backup's name.
async fn back_up(scene: &Scene, namespace: &str) -> anyhow::Result<String> {
    let name = scene.fresh("b1");
    let args = [
        "backup",
        "create",
        &name,
        "--include-namespaces",
        namespace,
        "--wait",
    ];
    velero(scene, &args).await?;
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let status = backups.get(&name).await?.status.unwrap_or_default();
    ensure!(
        status.phase == Some(BackupPhase::Completed),
        "the backup ended as {status:?}"
    );
    Ok(name)
}

/// Reads every object of Velero's kinds as our types and writes it again; returns how many.
async fn objects_round_trip(scene: &Scene) -> anyhow::Result<usize> {
    let objects = velero_objects(&scene.client(), DEFAULT_NAMESPACE).await?;
    for (kind, object) in &objects {
        let known = KINDS.iter().find(|known| known.name == kind);
        let known = known.with_context(|| format!("kind {kind} has no type"))?;
        let again = (known.rewrite)(object.clone())?;
        ensure!(again == *object, "{kind} was {object}\nand is {again}");
    }
    ensure!(!objects.is_empty(), "there are no objects to read");
    Ok(objects.len())
}

/// Reads the JSON files of a backup as our types and writes them again; returns how many.
fn files_round_trip(bucket: &Bucket, backup: &str) -> anyhow::Result<usize> {
    let folder = bucket.folder().join("backups").join(backup);
    let file = |suffix: &str| folder.join(format!("{backup}{suffix}"));
    same_bytes::<ResourceList>(&file(suffix::RESOURCE_LIST))?;
    same_bytes::<Results>(&file(suffix::RESULTS))?;
    same_bytes::<Vec<BackupVolumeInfo>>(&file(suffix::VOLUME_INFO))?;
    same_bytes::<Vec<BackupOperation>>(&file(suffix::ITEM_OPERATIONS))?;
    same_value::<Option<Vec<PodVolumeBackup>>>(&serde_json::from_slice(&gunzip(&file(
        suffix::POD_VOLUME_BACKUPS,
    ))?)?)?;
    same_value::<Backup>(&serde_json::from_reader(File::open(
        folder.join(BACKUP_OBJECT),
    )?)?)?;
    Ok(6)
}

fn same_value<T: Serialize + DeserializeOwned>(value: &Value) -> anyhow::Result<()> {
    let again = serde_json::to_value(serde_json::from_value::<T>(value.clone())?)?;
    ensure!(again == *value, "was {value}\nand is {again}");
    Ok(())
}

fn same_bytes<T: Serialize + DeserializeOwned>(path: &Path) -> anyhow::Result<()> {
    let bytes = gunzip(path)?;
    let mut again = json::to_vec(&serde_json::from_slice::<T>(&bytes)?)?;
    again.push(b'\n');
    ensure!(
        again == bytes,
        "{} was {}and is {}",
        path.display(),
        String::from_utf8_lossy(&bytes),
        String::from_utf8_lossy(&again)
    );
    Ok(())
}

fn gunzip(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    GzDecoder::new(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}
