//! The demo's disaster: the namespace is deleted, restored from the backup, and compared.

use std::{collections::BTreeMap, io::Write, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::{Restore, RestorePhase, RestoreSpec},
};
use bowline_engine::{
    discovery::{Discovery, Versions},
    list::{self, Query},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::wait;

const NAME: &str = "shop-back";
const BACKUP: &str = "shop";
const NAMESPACE: &str = "shop";
/// What a cluster makes by itself.
const NOT_COMPARED: [&str; 3] = ["Event", "Endpoints", "EndpointSlice"];

/// Objects by kind and name, without what a cluster gives them.
type Objects = BTreeMap<String, Value>;

/// Deletes the namespace, restores it, and shows what is not as it was; an error if anything.
pub(super) async fn show(
    client: &Client,
    is_terminal: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let before = objects(client).await?;
    delete(client).await?;
    ensure!(
        objects(client).await?.is_empty(),
        "the namespace is not empty"
    );
    writeln!(
        out,
        "\nNamespace {NAMESPACE} deleted, with all {} objects in it. `bowline restore create {NAME} --from-backup {BACKUP} --wait` brings it back:",
        before.len()
    )?;
    let restores: Api<Restore> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let spec = RestoreSpec {
        backup_name: Some(BACKUP.to_owned()),
        ..RestoreSpec::default()
    };
    let restore = Restore::new(DEFAULT_NAMESPACE, NAME, spec);
    restores
        .create(&PostParams::default(), &restore)
        .await
        .context("create the restore")?;
    let ended = wait::until_over(restores, NAME, is_terminal, out).await?;
    let status = ended.status.clone().unwrap_or_default();
    let phase = status.phase.clone().unwrap_or_default();
    if phase != RestorePhase::Completed {
        let why = status
            .failure_reason
            .or_else(|| status.validation_errors.map(|e| e.join("; ")));
        bail!(
            "restore {} ended {phase}: {}",
            ended.name_any(),
            why.unwrap_or_default()
        );
    }
    let progress = status.progress.unwrap_or_default();
    let items = progress.items_restored.unwrap_or_default();
    super::show(client, out).await?;
    let lines = differences(&before, &objects(client).await?);
    if lines.is_empty() {
        writeln!(
            out,
            "{items} items restored; all {} objects are as before.",
            before.len()
        )?;
        return Ok(());
    }
    for line in &lines {
        writeln!(out, "  {line}")?;
    }
    bail!("{} differences after the restore", lines.len())
}

async fn delete(client: &Client) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete(NAMESPACE, &DeleteParams::default())
        .await
        .context("delete the namespace")?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while namespaces.get_opt(NAMESPACE).await?.is_some() {
        ensure!(Instant::now() < deadline, "the namespace does not go");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// All that lives in the namespace.
async fn objects(client: &Client) -> anyhow::Result<Objects> {
    let mut found = Objects::new();
    let discovery = Discovery::read(client, Versions::Preferred).await?;
    for resource in discovery.resources.iter().filter(|r| r.namespaced) {
        if NOT_COMPARED.contains(&resource.kind.as_str()) {
            continue;
        }
        let query = Query {
            path: resource.path(Some(NAMESPACE)),
            ..Query::default()
        };
        list::each(client, &query, |raw| {
            let Ok(object) = serde_json::from_slice::<Value>(raw) else {
                return;
            };
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let key = format!("{} {name}", resource.kind);
            found.insert(key, essence(&object));
        })
        .await?;
    }
    Ok(found)
}

/// An object without what a cluster gives it, and what a restore adds.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    let strings = |key: &str| -> Map<String, Value> {
        let map = object["metadata"][key].as_object().cloned();
        let ours = [label::BACKUP_NAME, label::RESTORE_NAME];
        let own = |key: &str| !ours.contains(&key) && !key.starts_with("pv.kubernetes.io/");
        map.into_iter()
            .flatten()
            .filter(|(key, _)| own(key))
            .collect()
    };
    let metadata =
        serde_json::json!({"labels": strings("labels"), "annotations": strings("annotations")});
    if let Some(fields) = object.as_object_mut() {
        fields.insert("metadata".to_owned(), metadata);
        fields.remove("status");
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        for given in ["clusterIP", "clusterIPs", "nodeName", "volumeName"] {
            spec.remove(given);
        }
        // What waited for the volumes.
        if let Some(init) = spec.get_mut("initContainers").and_then(Value::as_array_mut) {
            init.retain(|container| container["name"] != "restore-wait");
            if init.is_empty() {
                spec.remove("initContainers");
            }
        }
    }
    object
}

fn differences(before: &Objects, after: &Objects) -> Vec<String> {
    let gone = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .map(|key| format!("{key} is not back"));
    let changed = before
        .iter()
        .filter(|(key, value)| after.get(*key).is_some_and(|other| other != *value))
        .map(|(key, value)| format!("{key} is not as before: {value} became {}", after[key]));
    let new = after
        .keys()
        .filter(|key| !before.contains_key(*key))
        .map(|key| format!("{key} was not there before"));
    gone.chain(changed).chain(new).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_as_before_is_named() {
        let object = |value: &str, node: &str| {
            essence(
                &json!({"metadata": {"name": "x", "uid": node, "labels": {"velero.io/restore-name": node}}, "spec": {"nodeName": node, "a": value}, "status": node}),
            )
        };
        let before = Objects::from([
            ("Pod a".to_owned(), object("1", "n")),
            ("Pod b".to_owned(), object("1", "n")),
        ]);
        let same = Objects::from([
            ("Pod a".to_owned(), object("1", "m")),
            ("Pod b".to_owned(), object("1", "m")),
        ]);
        assert_eq!(differences(&before, &same), Vec::<String>::new());
        let other = Objects::from([
            ("Pod a".to_owned(), object("2", "n")),
            ("Pod c".to_owned(), object("1", "n")),
        ]);
        let lines = differences(&before, &other);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("Pod b is not back"));
        assert!(lines[1].starts_with("Pod a is not as before"));
    }
}
