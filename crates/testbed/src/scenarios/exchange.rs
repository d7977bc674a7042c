//! Velero restores what we backed up: it finds the backup in the bucket, and what comes out of it
//! is what went in.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::{Backup, Restore, RestorePhase},
};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams},
    discovery::{Discovery, Scope, verbs},
};
use serde_json::{Value, json};

use crate::{
    contents::differences,
    peer,
    scene::{Scene, run},
    servers::{self, Server},
    wait_for, zoo,
};

/// Kinds that are not restored, or that controllers make anew.
const NOT_COMPARED: [&str; 4] = ["Event", "Endpoints", "EndpointSlice", "Lease"];

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// The story.
pub(super) async fn velero_reads_ours(scene: &Scene) -> anyhow::Result<String> {
    let client = scene.client();
    let bucket = scene.bucket("ours")?;
    peer::prepare(scene, &bucket).await?;
    zoo::make(&client).await?;
    let before = objects(&client).await?;

    let server = Server::Ours.start(scene, &[]).await?;
    let name = scene.fresh("ours");
    let spec = json!({ "includedNamespaces": zoo::NAMESPACES });
    let ended = servers::back_up(&client, &name, &spec).await?.completed()?;
    server.stop().await?;

    // All that is left of it is in the bucket.
    let backups: Api<Backup> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    backups.delete(&name, &DeleteParams::default()).await?;
    delete_zoo(&client).await?;

    let server = Server::Velero.start(scene, &[]).await?;
    let synced = wait_for(
        "velero to find the backup",
        Duration::from_secs(100),
        async || Ok(backups.get_opt(&name).await?),
    )
    .await?;
    ensure!(
        serde_json::to_value(&synced.status)? == serde_json::to_value(&ended.backup.status)?,
        "synced as {:?}",
        synced.status
    );
    commands_work(scene, &name).await?;
    let restore = scene.fresh("back");
    velero(
        scene,
        &[
            "restore",
            "create",
            &restore,
            "--from-backup",
            &name,
            "--wait",
        ],
    )
    .await?;
    let restores: Api<Restore> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let status = restores.get(&restore).await?.status.unwrap_or_default();
    let describe = velero(scene, &["restore", "describe", &restore, "--details"]).await?;
    ensure!(
        status.phase == Some(RestorePhase::Completed),
        "the restore ended as {status:?}\n{describe}"
    );
    let after = objects(&client).await?;
    let lines = compare(&before, &after, &name);
    velero(scene, &["restore", "delete", &restore, "--confirm"]).await?;
    wait_for("the restore to go", Duration::from_secs(60), async || {
        Ok(restores.get_opt(&restore).await?.is_none().then_some(()))
    })
    .await?;
    server.stop().await?;
    peer::remove(scene).await?;
    delete_zoo(&client).await?;
    if !lines.is_empty() {
        bail!("before | after:\n{}\n{describe}", lines.join("\n"));
    }
    Ok(format!("{} objects as before", before.len()))
}

async fn velero(scene: &Scene, args: &[&str]) -> anyhow::Result<String> {
    let mut command = scene.program("velero");
    command.args(args).current_dir(scene.folder());
    run(command).await
}

/// What reads the other files of a backup.
async fn commands_work(scene: &Scene, name: &str) -> anyhow::Result<()> {
    let text = velero(scene, &["backup", "describe", name, "--details"]).await?;
    for part in ["Phase:  ", "Completed", "v1/ConfigMap:", "zoo/frozen"] {
        ensure!(
            text.contains(part),
            "describe does not say {part:?}:\n{text}"
        );
    }
    ensure!(!text.contains("<error"), "describe has errors:\n{text}");
    let text = velero(scene, &["backup", "logs", name]).await?;
    ensure!(text.contains("level=info"), "the log is {text:?}");
    let file = scene.folder().join("download.tar.gz");
    let to = file.to_string_lossy();
    velero(scene, &["backup", "download", name, "--output", &to]).await?;
    let kept = scene.folder().join("download.tar.gz");
    ensure!(fs::metadata(kept)?.len() > 1000, "the archive is short");
    Ok(())
}

/// Removes the zoo's namespaces and the volume that is bound in them.
async fn delete_zoo(client: &Client) -> anyhow::Result<()> {
    zoo::release(client).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in zoo::NAMESPACES {
        namespaces.delete(name, &DeleteParams::default()).await?;
    }
    wait_for(
        "the namespaces to go",
        Duration::from_secs(90),
        async || {
            let mut left = Vec::new();
            for name in zoo::NAMESPACES {
                left.extend(namespaces.get_opt(name).await?);
            }
            Ok(left.is_empty().then_some(()))
        },
    )
    .await?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes
        .delete("zoo-volume", &DeleteParams::default())
        .await?;
    wait_for("the volume to go", Duration::from_secs(60), async || {
        Ok(volumes.get_opt("zoo-volume").await?.is_none().then_some(()))
    })
    .await
}

/// What the backup must hold: the namespaces, what lives in them, and the volume.
async fn objects(client: &Client) -> anyhow::Result<Objects> {
    let mut found = Objects::new();
    let groups = Discovery::new(client.clone()).run().await?;
    for (resource, can) in groups
        .groups()
        .flat_map(|group| group.recommended_resources())
    {
        if !can.supports_operation(verbs::CREATE)
            || can.scope == Scope::Cluster
            || NOT_COMPARED.contains(&resource.kind.as_str())
        {
            continue;
        }
        for namespace in zoo::NAMESPACES {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), namespace, &resource);
            let list = match api.list(&ListParams::default()).await {
                Ok(list) => list,
                Err(kube::Error::Api(status)) if [404, 405].contains(&status.code) => continue,
                Err(error) => {
                    return Err(error).with_context(|| format!("list {}", resource.plural));
                }
            };
            for object in list {
                let key = format!("{} {namespace}/{}", resource.kind, object.name_any());
                found.insert(key, serde_json::to_value(object)?);
            }
        }
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in zoo::NAMESPACES {
        let object = serde_json::to_value(namespaces.get(name).await?)?;
        found.insert(format!("Namespace {name}"), object);
    }
    Ok(found)
}

fn compare(before: &Objects, after: &Objects, backup: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, one) in before {
        let hidden = one["metadata"]["labels"][label::EXCLUDE_FROM_BACKUP] == "true"
            || !one["metadata"]["deletionTimestamp"].is_null();
        match after.get(key) {
            Some(_) if hidden => lines.push(format!("{key} is back, and should not be")),
            None if hidden => {}
            None => lines.push(format!("{key} is not back")),
            Some(other) => {
                let found = differences(&essence(one, backup), &essence(other, backup));
                lines.extend(found.into_iter().map(|line| format!("{key}{line}")));
            }
        }
    }
    lines
}

/// An object without what a cluster gives it, and what a restore adds.
fn essence(object: &Value, backup: &str) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].take();
    let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    let added = labels.remove(label::BACKUP_NAME);
    debug_assert!(added.is_none_or(|name| name == backup));
    labels.remove(label::RESTORE_NAME);
    let mut annotations = metadata["annotations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    annotations.retain(|key, _| {
        !key.starts_with("pv.kubernetes.io/") && key != "kubernetes.io/service-account.uid"
    });
    object["metadata"] = json!({ "labels": labels, "annotations": annotations });
    for given in [
        "/status",
        "/data/token",
        "/spec/clusterIP",
        "/spec/clusterIPs",
        // A job finds its pods by its uid.
        "/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid",
        "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid",
        "/spec/template/metadata/labels/controller-uid",
    ] {
        if let Some(value) = object.pointer_mut(given) {
            *value = json!("given by the cluster");
        }
    }
    // A bound claim is stored without what it was found by.
    if !object["spec"]["volumeName"].is_null()
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("selector");
    }
    object
}
