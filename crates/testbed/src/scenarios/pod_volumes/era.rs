//! A backup of the time when Velero ran restic for the volumes of pods: short snapshot ids, the
//! host `velero`, no uploader named, or the id in an annotation of the pod.

use std::{fs::File, io::Write, path::Path};

use anyhow::{Context, ensure};
use bowline_api::{
    files::backup_suffix,
    names::{DEFAULT_LOCATION, DEFAULT_NAMESPACE, label},
    v1::Backup,
};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    stage::{Stage, passing, pod},
    velero,
};
use crate::{
    bed::NODE,
    scene::Scene,
    servers::{self, Server},
    tree,
};

const VOLUME: &str = "pages";
/// Pods, and what knows the snapshot of their volume.
const PODS: [(&str, Known); 3] = [
    ("named", Known::Uploader("restic")),
    ("unnamed", Known::Plain),
    ("noted", Known::Annotation),
];

#[derive(Clone, Copy)]
enum Known {
    /// A PodVolumeBackup says so, and which program made it.
    Uploader(&'static str),
    /// A PodVolumeBackup of before there was a choice.
    Plain,
    /// An annotation of the pod, of before there were such objects in the bucket.
    Annotation,
}

/// Made with restic as that Velero ran it, restored by us.
pub(in crate::scenarios) async fn is_restored(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::set(scene, "era").await?;
    let namespace = scene.namespace("old").await?;
    let pods = PODS.map(|(name, _)| {
        let mut pod = pod(&namespace, name, &[(VOLUME, passing())]);
        // The server that copies the objects has no node agents to ask.
        pod["metadata"]["annotations"] = json!({});
        pod
    });
    stage.pods(&namespace, &pods).await?;
    let top = scene.folder();
    let init = ["init", "--repository-version", "1"];
    stage.restic(&namespace, top, &init).await?;
    let live: Api<Pod> = Api::namespaced(scene.client(), &namespace);
    let (mut expected, mut copies) = (Vec::new(), Vec::new());
    for (name, known) in PODS {
        let folder = stage.folder(&namespace, name, VOLUME).await?;
        tree::fill(&folder)?;
        expected.push(tree::read(&folder, &[])?);
        let tags = tags(&live.get(name).await?);
        let id = copy(&stage, &namespace, &folder, &tags).await?;
        match known {
            Known::Annotation => {
                let note = json!({ "metadata": { "annotations": {
                    format!("snapshot.velero.io/{VOLUME}"): id,
                } } });
                let params = PatchParams::default();
                live.patch(name, &params, &Patch::Merge(note)).await?;
            }
            Known::Uploader(uploader) => copies.push((tags, id, Some(uploader))),
            Known::Plain => copies.push((tags, id, None)),
        }
    }
    let backup = objects(&stage, &namespace).await?;
    let copies: Vec<Value> = copies
        .into_iter()
        .map(|(tags, id, uploader)| stage.old_copy(&backup, &namespace, &tags, &id, uploader))
        .collect();
    let suffix = backup_suffix::POD_VOLUME_BACKUPS;
    let name = backup.name_any();
    let file = format!("backups/{name}/{name}{suffix}");
    gzip(&stage.bucket.folder().join(file), &json!(copies))?;

    stage.forget(&namespace).await?;
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    backups
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let (server, node) = stage.start().await?;
    velero::found(&stage, &name, copies.len()).await?;
    let restore = scene.fresh("old-back");
    let spec = json!({ "backupName": name });
    servers::restore(&scene.client(), &restore, &spec)
        .await?
        .completed()?;
    stage.ready(&namespace).await?;
    for ((name, _), expected) in PODS.iter().zip(&expected) {
        let folder = stage.folder(&namespace, name, VOLUME).await?;
        let restored = tree::read(&folder, &[".velero"])?;
        tree::same(expected, &restored).with_context(|| format!("the volume of {name}"))?;
    }
    for process in [&server, &node] {
        process.stop().await?;
    }
    stage.is_clean(&namespace).await?;
    stage.close().await?;
    Ok(format!(
        "{} volumes of restic's time restored, {} files each",
        PODS.len(),
        expected.first().map_or(0, tree::Tree::len)
    ))
}

/// The objects alone, by the real Velero.
async fn objects(stage: &Stage<'_>, namespace: &str) -> anyhow::Result<Backup> {
    let velero = Server::Velero.start(stage.scene, &[]).await?;
    let name = stage.scene.fresh("old");
    let spec = json!({ "includedNamespaces": [namespace] });
    let ended = servers::back_up(&stage.scene.client(), &name, &spec).await?;
    velero.stop().await?;
    Ok(ended.completed()?.backup)
}

/// What Velero tagged snapshots with.
fn tags(pod: &Pod) -> Vec<(&'static str, String)> {
    vec![
        ("backup", "old".to_owned()),
        (
            "backup-uid",
            "5d1d4b5e-0000-4000-8000-000000000000".to_owned(),
        ),
        ("ns", pod.namespace().unwrap_or_default()),
        ("pod", pod.name_any()),
        ("pod-uid", pod.uid().unwrap_or_default()),
        ("volume", VOLUME.to_owned()),
    ]
}

/// Copies a folder as Velero did; gives the short id that it noted.
async fn copy(
    stage: &Stage<'_>,
    namespace: &str,
    folder: &Path,
    tags: &[(&str, String)],
) -> anyhow::Result<String> {
    let tags: Vec<String> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let flags = tags.iter().map(|tag| format!("--tag={tag}"));
    let flags: Vec<String> = flags.collect();
    let mut args = vec!["backup", ".", "--host=velero", "--json"];
    args.extend(flags.iter().map(String::as_str));
    stage.restic(namespace, folder, &args).await?;
    let all = format!("--tag={}", tags.join(","));
    let list = ["snapshots", "--json", "--latest=1", &all];
    let told = stage.restic(namespace, folder, &list).await?;
    let told: Value = serde_json::from_str(&told)?;
    let id = told[0]["short_id"].as_str().context("no snapshot")?;
    ensure!(id.len() == 8, "the short id is {id}");
    Ok(id.to_owned())
}

impl Stage<'_> {
    /// The object of a copy as it was then.
    fn old_copy(
        &self,
        backup: &Backup,
        namespace: &str,
        tags: &[(&str, String)],
        id: &str,
        uploader: Option<&str>,
    ) -> Value {
        let tags: serde_json::Map<String, Value> = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let mut spec = json!({
            "node": NODE,
            "pod": {
                "kind": "Pod",
                "namespace": namespace,
                "name": tags["pod"],
                "uid": tags["pod-uid"],
            },
            "volume": VOLUME,
            "backupStorageLocation": DEFAULT_LOCATION,
            "repoIdentifier": self.repository(namespace),
            "tags": tags,
        });
        if let Some(uploader) = uploader {
            spec["uploaderType"] = json!(uploader);
        }
        json!({
            "apiVersion": "velero.io/v1",
            "kind": "PodVolumeBackup",
            "metadata": {
                "name": format!("{}-{id}", backup.name_any()),
                "namespace": DEFAULT_NAMESPACE,
                "labels": {
                    label::BACKUP_NAME: backup.name_any(),
                    label::BACKUP_UID: backup.uid(),
                },
            },
            "spec": spec,
            "status": {
                "phase": "Completed",
                "path": format!("/host_pods/{}/volumes/kubernetes.io~empty-dir/{VOLUME}", tags["pod-uid"]),
                "snapshotID": id,
                "startTimestamp": "2022-05-01T10:00:00Z",
                "completionTimestamp": "2022-05-01T10:00:05Z",
                "progress": { "totalBytes": 1000, "bytesDone": 1000 },
            },
        })
    }
}

fn gzip(path: &Path, value: &Value) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
    let mut gzip = GzEncoder::new(file, Compression::default());
    serde_json::to_writer(&mut gzip, value)?;
    gzip.finish()?.flush()?;
    Ok(())
}
