//! Our CustomResourceDefinitions: as much as Velero's, taken by the real API server, and kind to
//! objects from a newer version.

mod compare;

use std::{fs, path::Path, process::Command};

use anyhow::{Context, ensure};
use bowline_api::{VeleroResource, crd, v1};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    peer,
    scene::{Scene, run, velero_objects},
};

/// Everything in the CRDs that the real `velero install` prints is in those that ours prints.
pub(super) async fn cover_velero(scene: &Scene) -> anyhow::Result<String> {
    let theirs = items(&run(peer::crds_of_velero(scene)).await?)?;
    let ours = items(&run(install(scene, &["--dry-run", "-o", "yaml"])).await?)?;
    ensure!(theirs.len() == 13, "Velero has {} kinds", theirs.len());
    let comparison = compare::crds(&theirs, &ours);
    ensure!(
        comparison.shortfalls.is_empty(),
        "short of Velero's:\n{}",
        comparison.shortfalls.join("\n")
    );
    Ok(comparison.to_string())
}

/// The real API server takes our CRDs, and what Velero wrote fits into them without a loss.
pub(super) async fn are_accepted(scene: &Scene) -> anyhow::Result<String> {
    let kinds = crd::KINDS.len();
    let created = run(install(scene, &[])).await?;
    ensure!(created.matches(": created").count() == kinds, "{created}");
    let again = run(install(scene, &[])).await?;
    ensure!(
        again.matches(": already exists, proceeding").count() == kinds,
        "{again}"
    );
    let applied = run(install(scene, &["--apply"])).await?;
    ensure!(applied.matches(": applied").count() == kinds, "{applied}");
    let conditions = scene
        .kubectl(&[
            "get",
            "crd",
            "-o",
            "jsonpath={.items[*].status.conditions[?(@.status!='True')].message}",
        ])
        .await?;
    ensure!(
        conditions.trim().is_empty(),
        "a CRD has a complaint: {conditions}"
    );

    let namespace = scene.namespace("objects").await?;
    let mut sent = golden_objects(&namespace)?;
    sent.push(plugin_progress(&namespace));
    let file = scene.folder().join("objects.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": &sent });
    fs::write(&file, serde_json::to_vec(&list)?)?;
    scene
        .kubectl(&["create", "--validate=strict", "-f", &file.to_string_lossy()])
        .await?;

    let stored = velero_objects(&scene.client(), &namespace).await?;
    for object in &sent {
        let same_name = |(kind, stored): &&(String, Value)| {
            object["kind"] == kind.as_str()
                && stored["metadata"]["name"] == object["metadata"]["name"]
        };
        let (_, found) = stored
            .iter()
            .find(same_name)
            .context("an object is not there")?;
        for part in ["spec", "status"] {
            ensure!(
                found[part] == object[part],
                "{} {}: {part} was changed from {} to {}",
                object["kind"],
                object["metadata"]["name"],
                object[part],
                found[part]
            );
        }
    }
    let read: v1::VolumePluginBackup = Api::namespaced(scene.client(), &namespace)
        .get("snap-1")
        .await?;
    let progress = read
        .status
        .and_then(|s| s.progress)
        .context("no progress")?;
    ensure!(progress.total_bytes == Some(9) && progress.bytes_done == Some(4));
    peer::remove(scene).await?;
    Ok(format!(
        "{kinds} kinds established, {} objects stored unchanged",
        sent.len()
    ))
}

/// A field and a phase that we do not know survive our read, change and write.
pub(super) async fn newer_objects_survive(scene: &Scene) -> anyhow::Result<String> {
    let mut newer = crd::of::<v1::Backup>();
    let schema = &mut newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    schema["spec"]["properties"]["colour"] = json!({ "type": "string" });
    schema["spec"]["properties"]["hooks"]["properties"]["mode"] = json!({ "type": "string" });
    let status = &mut schema["status"]["properties"];
    status["mood"] = json!({ "type": "string" });
    status["phase"]["enum"]
        .as_array_mut()
        .context("phases are an enum")?
        .push("Teleporting".into());
    scene.apply(&[newer]).await?;
    scene
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd/backups.velero.io",
        ])
        .await?;

    let namespace = scene.namespace("future").await?;
    let object = json!({
        "apiVersion": "velero.io/v1",
        "kind": v1::Backup::KIND,
        "metadata": { "name": "b", "namespace": namespace },
        "spec": { "ttl": "1h30m", "colour": "mauve", "hooks": { "mode": "strict" } },
        "status": { "phase": "Teleporting", "mood": "calm" },
    });
    scene.apply(std::slice::from_ref(&object)).await?;
    let backups: Api<v1::Backup> = Api::namespaced(scene.client(), &namespace);
    let mut backup = backups.get("b").await?;
    backup.status_mut().warnings = Some(3);
    backups
        .replace("b", &PostParams::default(), &backup)
        .await?;

    let stored = velero_objects(&scene.client(), &namespace).await?;
    let (_, stored) = stored.first().context("the backup is gone")?;
    ensure!(
        stored["spec"]
            == json!({ "ttl": "1h30m0s", "colour": "mauve", "hooks": { "mode": "strict" } }),
        "spec is now {}",
        stored["spec"]
    );
    ensure!(
        stored["status"] == json!({ "phase": "Teleporting", "mood": "calm", "warnings": 3 }),
        "status is now {}",
        stored["status"]
    );
    peer::remove(scene).await?;
    Ok("3 unknown fields and 1 unknown phase kept".to_owned())
}

fn install(scene: &Scene, more: &[&str]) -> Command {
    let mut command = scene.bowline();
    command.args(["install", "--crds-only"]).args(more);
    command
}

fn items(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let list: Value = serde_saphyr::from_str(yaml)?;
    Ok(list["items"].as_array().context("not a list")?.clone())
}

/// Objects of the real Velero in their last states, as they could be created anew.
fn golden_objects(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/golden/objects/terminal");
    let mut objects = Vec::new();
    for entry in fs::read_dir(folder)? {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&fs::read_to_string(entry?.path())?)?;
        for mut object in documents {
            let old = object["metadata"].take();
            object["metadata"] = json!({
                "name": old["name"],
                "namespace": namespace,
                "labels": old["labels"].as_object().cloned().unwrap_or_default(),
            });
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Progress as a plugin sends it whose Go type has no JSON names.
fn plugin_progress(namespace: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1",
        "kind": v1::VolumePluginBackup::KIND,
        "metadata": { "name": "snap-1", "namespace": namespace },
        "spec": { "volume": "pv-1", "backup": "b", "plugin": "example.io/blocks" },
        "status": { "phase": "", "snapshotID": "snap-1", "progress": { "TotalBytes": 9, "BytesDone": 4 } },
    })
}
