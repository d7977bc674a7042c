//! Velero's own plugin for S3, unchanged, as our object store.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_LOCATION, DEFAULT_NAMESPACE, annotation},
    v1::{
        Backup, BackupStorageLocation, BackupStorageLocationPhase as Phase, DownloadRequest,
        DownloadTargetKind,
    },
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{files, ours, said};
use crate::{
    Process, contents, peer,
    scene::Scene,
    servers::{self, Server},
    wait_for,
};

const PROGRAM: &str = "velero-plugin-for-aws";
const SOON: Duration = Duration::from_secs(60);

/// A location whose provider is built in, and asks for the plugin: what it takes, what it cannot do,
/// and a backup in it from its making to its deletion.
pub(in crate::scenarios) async fn keeps_a_backup(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("plugin")?;
    peer::prepare(scene, &bucket).await?;
    ask_for_plugin(scene).await?;
    let plugins = scene.folder().join("our-plugins");
    fs::create_dir_all(&plugins)?;
    let flags = ["--plugin-dir", &*plugins.to_string_lossy()];

    let without = servers::launch(scene, &flags, &[])?;
    let why = message(scene, &without, Phase::Unavailable).await?;
    ensure!(
        why.contains("unable to locate ObjectStore plugin named aws"),
        "without the plugin: {why}"
    );
    without.stop().await?;

    fs::copy(scene.bed().program_file(PROGRAM), plugins.join(PROGRAM))?;
    let server = Server::Ours.start(scene, &flags).await?;
    let log = said(&server)?;
    ensure!(
        log.contains("name=\"velero.io/aws\""),
        "it is not listed:\n{log}"
    );
    let refusals = refusals(scene, &server).await?;

    let namespace = scene.namespace("shop").await?;
    let name = back_up(scene, &namespace).await?;
    restore(scene, &name, &namespace).await?;
    download(scene, &name, &namespace).await?;
    signed_by_the_plugin(scene, &name).await?;
    delete(scene, &name).await?;
    let left = files(&bucket.folder())?;
    ensure!(left.is_empty(), "left of it: {left:?}");
    server.stop().await?;
    peer::remove(scene).await?;
    Ok(format!(
        "a backup made, restored, downloaded and deleted; {refusals} refusals in the plugin's words"
    ))
}

async fn ask_for_plugin(scene: &Scene) -> anyhow::Result<()> {
    let wish = json!({ "metadata": { "annotations": { annotation::USE_PLUGIN: "true" } } });
    patch(scene, wish).await
}

async fn patch(scene: &Scene, change: serde_json::Value) -> anyhow::Result<()> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let (params, change) = (PatchParams::default(), Patch::Merge(change));
    let patched = locations.patch(DEFAULT_LOCATION, &params, &change);
    patched.await.context("change the location")?;
    Ok(())
}

/// Waits until the location is in a phase; what it says then.
async fn message(scene: &Scene, server: &Process, phase: Phase) -> anyhow::Result<String> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    wait_for("the location", SOON, async || {
        server.check()?;
        let location = locations.get(DEFAULT_LOCATION).await?;
        let status = location.status.unwrap_or_default();
        let message = status.message.unwrap_or_default();
        ensure!(
            status.phase.as_ref() == Some(&phase),
            "it is {:?}: {message}",
            status.phase
        );
        Ok(Some(message))
    })
    .await
}

/// What the plugin does not take is told in its own words; how many there were.
async fn refusals(scene: &Scene, server: &Process) -> anyhow::Result<usize> {
    // The wrong key, and a setting that only the plugin looks at.
    let wrong = json!({ "stringData": {
        "wrong": "[default]\naws_access_key_id=nobody\naws_secret_access_key=wrong\n",
    } });
    let secret = serde_json::to_string(&wrong)?;
    let secrets = ["-n", DEFAULT_NAMESPACE, "patch", "secret"];
    let name = bowline_api::names::CLOUD_CREDENTIALS_SECRET;
    let args = [&secrets[..], &[name, "--type=merge", "-p", &secret]].concat();
    scene.kubectl(&args).await?;
    let key = |key: &str| json!({ "spec": { "credential": { "name": name, "key": key } } });
    let setting = |value: Option<&str>| json!({ "spec": { "config": { "sheepcount": value } } });
    let cases = [
        (
            key("wrong"),
            key(bowline_api::names::CLOUD_CREDENTIALS_KEY),
            "No user exists with the provided access key ID",
        ),
        (setting(Some("seven")), setting(None), "sheepcount"),
    ];
    let number = cases.len();
    for (bad, good, word) in cases {
        patch(scene, bad).await?;
        let why = message(scene, server, Phase::Unavailable).await?;
        let begin = "rpc error: code = Unknown desc = ";
        ensure!(why.contains(begin) && why.contains(word), "{word}: {why}");
        patch(scene, good).await?;
        message(scene, server, Phase::Available).await?;
    }
    Ok(number)
}

async fn back_up(scene: &Scene, namespace: &str) -> anyhow::Result<String> {
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "settings", "namespace": namespace },
        "data": { "mode": "<fast> & safe" },
    });
    scene.apply(&[map]).await?;
    let name = scene.fresh("kept");
    let spec = json!({ "includedNamespaces": [namespace] });
    let made = servers::back_up(&scene.client(), &name, &spec).await?;
    made.completed()?;
    Ok(name)
}

async fn restore(scene: &Scene, backup: &str, namespace: &str) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(scene.client(), namespace);
    maps.delete("settings", &DeleteParams::default()).await?;
    let spec = json!({ "backupName": backup });
    let made = servers::restore(&scene.client(), &scene.fresh("back"), &spec).await?;
    made.completed()?;
    let back = maps.get("settings").await?.data.unwrap_or_default();
    let mode = back.get("mode").map(String::as_str);
    ensure!(mode == Some("<fast> & safe"), "it came back as {back:?}");
    Ok(())
}

/// The archive, the log and the rest come through URLs that the plugin has signed.
async fn download(scene: &Scene, backup: &str, namespace: &str) -> anyhow::Result<()> {
    let file = scene.folder().join(format!("{backup}.tar.gz"));
    let to = file.to_string_lossy();
    ours(scene, &["backup", "download", backup, "--output", &to]).await?;
    let archive = contents::archive(&file)?;
    let path = format!("resources/configmaps/namespaces/{namespace}/settings.json");
    ensure!(archive.contains_key(&path), "{path} is not in the archive");
    let log = ours(scene, &["backup", "logs", backup]).await?;
    ensure!(log.contains("Backed up a total of"), "its log is {log}");
    let told = ours(scene, &["backup", "describe", backup, "--details"]).await?;
    ensure!(told.contains("v1/ConfigMap"), "it is described as {told}");
    Ok(())
}

/// Amazon's library for Go, in which the plugin is written, signs a parameter that ours does not have.
async fn signed_by_the_plugin(scene: &Scene, backup: &str) -> anyhow::Result<()> {
    let requests: Api<DownloadRequest> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let request = serde_json::from_value(json!({
        "apiVersion": "velero.io/v1",
        "kind": "DownloadRequest",
        "metadata": { "name": scene.fresh("url") },
        "spec": { "target": { "kind": DownloadTargetKind::BackupLog, "name": backup } },
    }))?;
    requests.create(&PostParams::default(), &request).await?;
    let url = wait_for("a URL", SOON, async || {
        let request = requests.get(&scene.fresh("url")).await?;
        Ok(request.status.and_then(|status| status.download_url))
    });
    let url = url.await?;
    ensure!(url.contains("x-id=GetObject"), "signed by whom? {url}");
    Ok(())
}

async fn delete(scene: &Scene, backup: &str) -> anyhow::Result<()> {
    ours(scene, &["backup", "delete", backup, "--confirm"]).await?;
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    wait_for("the backup to go", SOON, async || {
        Ok(backups.get_opt(backup).await?.is_none().then_some(()))
    })
    .await
}
