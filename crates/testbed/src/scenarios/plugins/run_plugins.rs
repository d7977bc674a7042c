//! `velero run-plugins` as a plugin of ours: what is built in is not called twice, the rest is called,
//! and what both have gives the same.

mod compare;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, annotation, label},
    v1::PodVolumeBackup,
};
use bowline_plugin::host::{Plugins, Registry, Settings};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use self::compare::Compared;
use super::{ours, script};
use crate::{
    contents::Contents,
    peer,
    scene::Scene,
    servers::{self, Server},
    zoo,
};

/// The backup that restores are said to be from.
const BACKUP: &str = "compared";

/// The folder, our server, and the comparison.
pub(in crate::scenarios) async fn is_a_plugin(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("velero")?;
    peer::prepare(scene, &bucket).await?;
    zoo::make(&scene.client()).await?;
    scene.apply(&configuration()).await?;
    let folder = folder(scene)?;

    let plugins = plugins(scene, &folder).await?;
    let compared = compare(scene, &plugins).await;
    plugins.stop().await;
    let compared = compared?;

    let flags = ["--plugin-dir", &*folder.to_string_lossy()];
    let server = Server::Ours.start(scene, &flags).await?;
    listed_once(scene).await?;
    let name = scene.fresh("with-velero");
    let spec = json!({ "includedNamespaces": ["zoo"], "includeClusterResources": true });
    let made = servers::back_up(&scene.client(), &name, &spec).await?;
    let contents = Contents::read(&bucket, &name)?;
    let results = &contents.files["-results.gz"];
    made.completed().with_context(|| results.to_string())?;
    let log = contents.files["-logs.gz"].to_string();
    ensure!(
        log.contains("Executing RemapCRDVersionAction (plugin velero)"),
        "its action on definitions was not called: {log}"
    );
    ensure!(
        !log.contains("Executing podAction") && !log.contains("Executing PVCAction"),
        "what is built in was called again: {log}"
    );
    server.stop().await?;
    peer::remove(scene).await?;
    Ok(compared)
}

/// Velero's own actions as a plugin.
fn folder(scene: &Scene) -> anyhow::Result<PathBuf> {
    let folder = scene.folder().join("velero-as-plugin");
    let velero = scene.bed().program_file("velero");
    let text = format!("exec {} run-plugins \"$@\"", velero.display());
    script(&folder, "velero", &text)?;
    Ok(folder)
}

/// The plugin under our host, without a server.
async fn plugins(scene: &Scene, folder: &std::path::Path) -> anyhow::Result<Plugins> {
    let settings = Settings {
        args: vec!["--namespace".into(), DEFAULT_NAMESPACE.into()],
        env: vec![
            ("KUBECONFIG".into(), scene.bed().kubeconfig().into()),
            ("VELERO_NAMESPACE".into(), DEFAULT_NAMESPACE.into()),
            ("NO_PROXY".into(), "*".into()),
        ],
        sink: None,
    };
    let registry = Registry::read(folder, &settings).await;
    ensure!(
        registry.troubles().is_empty() && registry.entries().len() > 30,
        "{registry:?}"
    );
    Ok(Plugins::new(Arc::new(registry), settings))
}

/// `plugin get` has everything, and nothing twice.
async fn listed_once(scene: &Scene) -> anyhow::Result<()> {
    let listed = ours(scene, &["plugin", "get"]).await?;
    let mut times: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for line in listed.lines() {
        *times.entry(line.split_whitespace().collect()).or_default() += 1;
    }
    for wanted in [
        "velero.io/crd-remap-version BackupItemAction",
        "velero.io/csi-pvc-backupper BackupItemActionV2",
        "velero.io/pod RestoreItemAction",
        "velero.io/dataupload-delete DeleteItemAction",
    ] {
        let words: Vec<&str> = wanted.split(' ').collect();
        ensure!(times.contains_key(&words), "{wanted} is not in\n{listed}");
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "twice: {twice:?}");
    Ok(())
}

/// What some restore actions read: their ConfigMaps, and a pod volume of the backup.
fn configuration() -> Vec<Value> {
    let config = |name: &str, data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": DEFAULT_NAMESPACE,
                "labels": {
                    "velero.io/plugin-config": "",
                    format!("velero.io/{name}"): "RestoreItemAction",
                },
            },
            "data": data,
        })
    };
    vec![
        config(
            "change-image-name",
            json!({ "one": "busybox,registry.example/busybox" }),
        ),
        config("change-storage-class", json!({ "zoo-slow": "zoo-fast" })),
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": "zoo-fast" },
            "provisioner": "zoo.example.com/none",
        }),
        json!({
            "apiVersion": "velero.io/v1",
            "kind": "PodVolumeBackup",
            "metadata": {
                "name": "compared-x",
                "namespace": DEFAULT_NAMESPACE,
                "labels": { label::BACKUP_NAME: BACKUP },
                "annotations": { annotation::PVC_NAME: "data" },
            },
            "spec": {
                "node": "n", "volume": "data", "repoIdentifier": "r", "uploaderType": "restic",
                "backupStorageLocation": "default",
                "pod": { "kind": "Pod", "namespace": "zoo", "name": "web-0" },
            },
            "status": { "phase": "Completed", "snapshotID": "s" },
        }),
    ]
}

async fn compare(scene: &Scene, plugins: &Plugins) -> anyhow::Result<String> {
    let copies: Api<PodVolumeBackup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let copies = copies.list(&Default::default()).await?.items;
    ensure!(
        copies.iter().any(|copy| copy.name_any() == "compared-x"),
        "the pod volume is not there"
    );
    let compared = Compared::new(scene.client(), plugins, copies).await?;
    let backups = compared.backup_actions().await?;
    let blocks = compared.block_actions().await?;
    let restores = compared.restore_actions().await?;
    Ok(format!(
        "the same from both: {backups} results of backup actions, {blocks} of block actions, \
         {restores} of restore actions; the rest is called in a backup"
    ))
}
