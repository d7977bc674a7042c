//! Server, node process, mover and pod die in the middle of both directions, and movements are canceled:
//! what can go on goes on, and nothing is left.

use std::{fs, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, NODE_AGENT, SERVER, label},
    v1::{Backup, BackupPhase, DataPathPhase, Restore, RestorePhase},
    v2alpha1::{DataDownload, DataUpload},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    Data,
    stage::{FILES, Stage},
};
use crate::{
    Process,
    scenarios::pod_volumes::stage::{Copy, Watch},
    scene::Scene,
    servers::{self, Ended, EndedRestore},
    wait_for,
};

/// Leases run out, pods come back, and all is moved again.
const LIMIT: Duration = Duration::from_secs(240);
const SOON: Duration = Duration::from_secs(90);

/// Who dies in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// The server's process.
    Server,
    /// The node's process.
    Node,
    /// The process in the pod that moves the data.
    Mover,
    /// That pod.
    Pod,
}

const VICTIMS: [Victim; 4] = [Victim::Server, Victim::Node, Victim::Mover, Victim::Pod];

/// The story.
pub(in super::super) async fn in_the_middle(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::install(scene, "moves-killed").await?;
    let before = stage.lists().await?;
    let mut told = Vec::new();
    for victim in VICTIMS {
        let name = format!("{victim:?}").to_lowercase();
        let namespace = scene.namespace(&name).await?;
        let times = dies(&stage, victim, &namespace).await;
        let (there, back) = times.with_context(|| format!("{victim:?} died"))?;
        stage.is_as(&before).await?;
        told.push(format!(
            "{victim:?} died: there {:.0} s later, back {:.0} s later",
            there.as_secs_f64(),
            back.as_secs_f64()
        ));
    }
    stage.close_killed().await?;
    Ok(format!("{}; nothing is left", told.join("; ")))
}

/// Both ways, in the middle.
pub(in super::super) async fn are_canceled(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::install(scene, "moves-canceled").await?;
    let before = stage.lists().await?;
    let namespace = scene.namespace("canceled").await?;
    canceled(&stage, &namespace).await?;
    stage.is_as(&before).await?;
    stage.close().await?;
    Ok("canceled there and back, then moved again; nothing is left".to_owned())
}

/// One victim in both directions; gives how long each took from the death to the end.
async fn dies(
    stage: &Stage<'_>,
    victim: Victim,
    namespace: &str,
) -> anyhow::Result<(Duration, Duration)> {
    let scene = stage.scene;
    stage.claims(namespace).await?;
    let data = stage.fill(namespace).await?;
    let name = scene.fresh(&format!("b-{victim:?}").to_lowercase());
    let watch: Watch<DataUpload> = Watch::start(scene);
    let spec = json!({ "includedNamespaces": [namespace], "snapshotMoveData": true });
    let made = servers::create_backup(&scene.client(), &name, &spec).await?;
    let moving = watch.in_the_middle(FILES).await?;
    let began = kill(scene, victim, &moving.name_any()).await?;
    let backup = servers::ended(&scene.client(), &made, LIMIT).await?;
    let there = began.elapsed();
    Ended {
        backup,
        took: there,
    }
    .completed()
    .context("there")?;
    for upload in stage.uploads(&name).await? {
        ensure!(
            upload.phase() == DataPathPhase::Completed,
            "there: {upload:?}"
        );
    }
    stage.volumes().is_clean(namespace).await?;

    stage.lose(namespace).await?;
    stage.is_empty().await.context("when all is lost")?;
    let watch: Watch<DataDownload> = Watch::start(scene);
    let restore = format!("{name}-back");
    let spec = json!({ "backupName": name });
    let made = servers::create_restore(&scene.client(), &restore, &spec).await?;
    let moving = watch.in_the_middle(FILES).await?;
    let began = kill(scene, victim, &moving.name_any()).await?;
    let ended = servers::ended(&scene.client(), &made, LIMIT).await?;
    let back = began.elapsed();
    EndedRestore {
        restore: ended,
        took: back,
    }
    .completed()
    .context("back")?;
    stage.has(namespace, &data).await?;
    ends(stage, namespace, &name).await?;
    Ok((there, back))
}

/// The namespace and the backup go.
async fn ends(stage: &Stage<'_>, namespace: &str, backup: &str) -> anyhow::Result<()> {
    stage.lose(namespace).await?;
    stage.delete(backup).await
}

/// Ends the victim at once, as the kernel would.
async fn kill(scene: &Scene, victim: Victim, movement: &str) -> anyhow::Result<std::time::Instant> {
    let pods: Api<Pod> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let by = |labels: &str| ListParams::default().labels(labels);
    let began = std::time::Instant::now();
    let list = match victim {
        Victim::Server => {
            pods.list(&by(&format!("{}={SERVER}", label::DEPLOY)))
                .await?
        }
        Victim::Node => {
            pods.list(&by(&format!("{}={NODE_AGENT}", label::ROLE)))
                .await?
        }
        Victim::Mover => {
            let only = format!("metadata.name={movement}");
            pods.list(&ListParams::default().fields(&only)).await?
        }
        Victim::Pod => {
            pods.delete(movement, &DeleteParams::default().grace_period(0))
                .await?;
            return Ok(began);
        }
    };
    let pod = list.items.first().context("there is no such pod")?;
    let uid = pod.uid().context("without a uid")?;
    let process = process_of(&uid).with_context(|| format!("the process of {}", pod.name_any()))?;
    process.kill().await?;
    Ok(began)
}

/// Our program in a pod.
fn process_of(uid: &str) -> anyhow::Result<Process> {
    let in_cgroup = uid.replace('-', "_");
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else {
            continue;
        };
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let groups = read("cgroup");
        let is_there = groups.contains(uid) || groups.contains(&in_cgroup);
        if is_there && read("comm").trim() == "bowline" {
            return Process::of("bowline in a pod", pid, std::path::Path::new("/dev/null"));
        }
    }
    bail!("no process of pod {uid} is called bowline")
}

/// Uploads and downloads that are asked to end in their middle.
async fn canceled(stage: &Stage<'_>, namespace: &str) -> anyhow::Result<()> {
    let scene = stage.scene;
    stage.claims(namespace).await?;
    let data: Data = stage.fill(namespace).await?;
    let name = scene.fresh("b-canceled");
    let watch: Watch<DataUpload> = Watch::start(scene);
    let spec = json!({ "includedNamespaces": [namespace], "snapshotMoveData": true });
    let made = servers::create_backup(&scene.client(), &name, &spec).await?;
    let moving = watch.in_the_middle(FILES).await?;
    cancel::<DataUpload>(scene, &moving.name_any()).await?;
    let ended: Backup = servers::ended(&scene.client(), &made, LIMIT).await?;
    let phase = ended.status.and_then(|status| status.phase);
    ensure!(phase == Some(BackupPhase::PartiallyFailed), "{phase:?}");
    let uploads = stage.uploads(&name).await?;
    for upload in &uploads {
        let expected = match upload.spec.source_pvc == FILES {
            true => DataPathPhase::Canceled,
            false => DataPathPhase::Completed,
        };
        ensure!(upload.phase() == expected, "{upload:?}");
    }
    stage.delete(&name).await?;

    let name = scene.fresh("b-whole");
    servers::back_up(&scene.client(), &name, &spec)
        .await?
        .completed()?;
    stage.lose(namespace).await?;
    let watch: Watch<DataDownload> = Watch::start(scene);
    let restore = format!("{name}-back");
    let again = json!({ "backupName": name });
    let made = servers::create_restore(&scene.client(), &restore, &again).await?;
    let moving = watch.in_the_middle(FILES).await?;
    cancel::<DataDownload>(scene, &moving.name_any()).await?;
    let ended: Restore = servers::ended(&scene.client(), &made, LIMIT).await?;
    let phase = ended.status.and_then(|status| status.phase);
    ensure!(phase == Some(RestorePhase::PartiallyFailed), "{phase:?}");
    for download in stage.downloads(&restore).await? {
        let expected = match download.spec.target_volume.pvc == FILES {
            true => DataPathPhase::Canceled,
            false => DataPathPhase::Completed,
        };
        ensure!(download.phase() == expected, "{download:?}");
    }
    // The backup is none the worse for it.
    stage.volumes().forget(namespace).await?;
    let restore = format!("{name}-again");
    servers::restore(&scene.client(), &restore, &again)
        .await?
        .completed()?;
    stage.has(namespace, &data).await?;
    ends(stage, namespace, &name).await
}

async fn cancel<K>(scene: &Scene, name: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Copy,
{
    let all: Api<K> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
    all.patch(name, &PatchParams::default(), &patch).await?;
    wait_for("it to be canceled", SOON, async || {
        let found = all.get_opt(name).await?;
        Ok(found
            .is_none_or(|found| found.phase().is_over())
            .then_some(()))
    })
    .await
}
