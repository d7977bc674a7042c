//! Both servers restore what both have backed up: each finds the backups in the bucket, and what
//! comes out of them is what went in.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::{Backup, Restore, RestorePhase},
};
use k8s_openapi::api::core::v1::Namespace;
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
    servers::{self, Ended, Server},
    wait_for, zoo,
};

/// Kinds that are not restored, or that controllers make anew.
const NOT_COMPARED: [&str; 4] = ["Event", "Endpoints", "EndpointSlice", "Lease"];

/// Cluster-scoped kinds that are not restored, or that are seen to otherwise.
const KEPT: [&str; 5] = [
    "namespaces",
    "nodes",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    // A request of another life is not signed again.
    "certificatesigningrequests.certificates.k8s.io",
];

/// Objects by kind, namespace and name.
pub(super) type Objects = BTreeMap<String, Value>;

/// The story: each server backs the zoo up, and each restores both backups into a cluster without
/// it. What comes out is what went in, whoever did what.
pub(super) async fn four_ways(scene: &Scene) -> anyhow::Result<String> {
    let client = scene.client();
    let bucket = scene.bucket("exchange")?;
    peer::prepare(scene, &bucket).await?;
    zoo::make(&client).await?;
    let before = objects(&client).await?;
    let spec = json!({ "includedNamespaces": zoo::NAMESPACES, "includeClusterResources": true });
    let mut made = Vec::new();
    for server in Server::BOTH {
        let process = server.start(scene, &[]).await?;
        let name = scene.fresh(server.name());
        let ended = servers::back_up(&client, &name, &spec).await?.completed()?;
        process.stop().await?;
        made.push((server, name, ended));
    }
    // All that is left of them is in the bucket.
    let backups: Api<Backup> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    for (_, name, _) in &made {
        backups.delete(name, &DeleteParams::default()).await?;
    }
    let mut failures = Vec::new();
    for by in Server::BOTH {
        let process = by.start(scene, &[]).await?;
        for (of, name, ended) in &made {
            delete_zoo(&client).await?;
            synced(&backups, name, ended).await?;
            if by == Server::Velero && *of == Server::Ours {
                commands_work(scene, name).await?;
            }
            let (who, whose) = (by.name(), of.name());
            let lines = restored(scene, name, &before).await?;
            let about = |line| format!("{whose}'s backup restored by {who}: {line}");
            failures.extend(lines.into_iter().map(about));
        }
        process.stop().await?;
    }
    peer::remove(scene).await?;
    delete_zoo(&client).await?;
    if !failures.is_empty() {
        bail!("before | after:\n{}", failures.join("\n"));
    }
    Ok(format!("{} objects as before, four ways", before.len()))
}

/// Waits until the server has found a backup in the bucket, with its status.
async fn synced(backups: &Api<Backup>, name: &str, ended: &Ended) -> anyhow::Result<()> {
    let soon = Duration::from_secs(100);
    let found = wait_for("the server to find the backup", soon, async || {
        Ok(backups.get_opt(name).await?)
    })
    .await?;
    let status = |backup: &Backup| serde_json::to_value(&backup.status);
    ensure!(
        status(&found)? == status(&ended.backup)?,
        "synced as {:?}",
        found.status
    );
    Ok(())
}

/// Restores a backup with the server that runs. Returns what is not as before.
async fn restored(scene: &Scene, backup: &str, before: &Objects) -> anyhow::Result<Vec<String>> {
    let client = scene.client();
    let restore = scene.fresh("back");
    let args = [
        "restore",
        "create",
        &restore,
        "--from-backup",
        backup,
        "--wait",
    ];
    velero(scene, &args).await?;
    let restores: Api<Restore> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let status = restores.get(&restore).await?.status.unwrap_or_default();
    let describe = velero(scene, &["restore", "describe", &restore, "--details"]).await?;
    let mut lines = compare(before, &objects(&client).await?, backup);
    let logs = velero(scene, &["restore", "logs", &restore]).await?;
    ensure!(logs.contains("level=info"), "the log is {logs:?}");
    velero(scene, &["restore", "delete", &restore, "--confirm"]).await?;
    wait_for("the restore to go", Duration::from_secs(60), async || {
        Ok(restores.get_opt(&restore).await?.is_none().then_some(()))
    })
    .await?;
    if status.phase != Some(RestorePhase::Completed) {
        lines.push(format!("ended as {status:?}\n{describe}"));
    }
    Ok(lines)
}

pub(super) async fn velero(scene: &Scene, args: &[&str]) -> anyhow::Result<String> {
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

/// Removes what a restore brings back: the zoo's namespaces, and what of it is cluster-scoped.
async fn delete_zoo(client: &Client) -> anyhow::Result<()> {
    zoo::release(client).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in zoo::NAMESPACES {
        match namespaces.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done?),
        }
    }
    let soon = Duration::from_secs(90);
    wait_for("the namespaces to go", soon, async || {
        let mut left = Vec::new();
        for name in zoo::NAMESPACES {
            left.extend(namespaces.get_opt(name).await?);
        }
        Ok(left.is_empty().then_some(()))
    })
    .await?;
    for (api, name, _) in of_the_cluster(client).await? {
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done.with_context(|| format!("delete {name}"))?),
        }
    }
    wait_for("the rest to go", soon, async || {
        let left = of_the_cluster(client).await?;
        let left: Vec<String> = left.into_iter().map(|(_, name, _)| name).collect();
        ensure!(left.is_empty(), "there are {left:?}");
        Ok(Some(()))
    })
    .await
}

/// The zoo's cluster-scoped objects that a restore brings back.
async fn of_the_cluster(
    client: &Client,
) -> anyhow::Result<Vec<(Api<DynamicObject>, String, Value)>> {
    let mut found = Vec::new();
    let groups = Discovery::new(client.clone()).run().await?;
    for (resource, can) in groups
        .groups()
        .flat_map(|group| group.recommended_resources())
    {
        let name = if resource.group.is_empty() {
            resource.plural.clone()
        } else {
            format!("{}.{}", resource.plural, resource.group)
        };
        if can.scope != Scope::Cluster
            || !can.supports_operation(verbs::LIST)
            || !can.supports_operation(verbs::DELETE)
            || KEPT.contains(&name.as_str())
        {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list,
            // Its definition is going.
            Err(kube::Error::Api(status)) if [404, 405].contains(&status.code) => continue,
            Err(error) => return Err(error).with_context(|| format!("list {name}")),
        };
        for object in list {
            let key = object.name_any();
            if key.contains("zoo") || resource.group.contains("zoo") {
                let mut value = serde_json::to_value(&object)?;
                value["kind"] = json!(resource.kind);
                found.push((api.clone(), key, value));
            }
        }
    }
    Ok(found)
}

/// What the backup must hold: the namespaces, what lives in them, and the volume.
async fn objects(client: &Client) -> anyhow::Result<Objects> {
    let mut found = in_namespaces(client, &zoo::NAMESPACES).await?;
    for (_, name, object) in of_the_cluster(client).await? {
        let kind = object["kind"].as_str().unwrap_or_default();
        found.insert(format!("{kind} {name}"), object);
    }
    Ok(found)
}

/// Namespaces and all that lives in them.
pub(super) async fn in_namespaces(client: &Client, namespaces: &[&str]) -> anyhow::Result<Objects> {
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
        for namespace in namespaces {
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
    let all: Api<Namespace> = Api::all(client.clone());
    for name in namespaces {
        let object = serde_json::to_value(all.get(name).await?)?;
        found.insert(format!("Namespace {name}"), object);
    }
    Ok(found)
}

fn compare(before: &Objects, after: &Objects, backup: &str) -> Vec<String> {
    let extra = after.keys().filter(|key| !before.contains_key(*key));
    let mut lines: Vec<String> = extra.map(|key| format!("{key} was not there")).collect();
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
pub(super) fn essence(object: &Value, backup: &str) -> Value {
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
    object["metadata"] = json!({
        "labels": labels,
        "annotations": annotations,
        "managers": managers(&metadata["managedFields"]),
    });
    for given in [
        "/status",
        "/data/token",
        "/spec/clusterIP",
        "/spec/clusterIPs",
        "/spec/claimRef/uid",
        "/spec/claimRef/resourceVersion",
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

/// Who manages fields of an object, statuses apart. Where nobody did, the server does now; the
/// namespaces it makes are its own.
fn managers(fields: &Value) -> Vec<String> {
    let entries = fields.as_array().into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry["subresource"].is_null())
        .filter(|entry| {
            !["velero-server", "bowline", "unknown"]
                .iter()
                .any(|m| entry["manager"] == *m)
        })
        .map(|entry| format!("{}, {}", entry["manager"], entry["operation"]))
        .collect();
    names.sort();
    names.dedup();
    names
}
