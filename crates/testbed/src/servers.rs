//! The two servers that scenarios compare, as processes: the real Velero and ours. They take turns
//! in the same namespace, on the same location.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bowline_api::{
    names::{DEFAULT_LOCATION, DEFAULT_NAMESPACE},
    v1::{
        Backup, BackupPhase, BackupStorageLocation, BackupStorageLocationPhase, Restore,
        RestorePhase,
    },
};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Process, peer, scene::Scene, wait_for};

/// Whose server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// The real Velero.
    Velero,
    /// Bowline.
    Ours,
}

impl Server {
    /// Both, the one to compare with first.
    pub const BOTH: [Self; 2] = [Self::Velero, Self::Ours];

    /// What it is called in tables, and in names of backups.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Velero => "velero",
            Self::Ours => "bowline",
        }
    }

    /// Starts it with more flags; back once it has looked at its location. What
    /// [`peer::prepare`] makes must be there.
    pub async fn start(self, scene: &Scene, flags: &[&str]) -> anyhow::Result<Process> {
        self.start_with(scene, flags, &[]).await
    }

    /// The same, with environment variables.
    pub async fn start_with(
        self,
        scene: &Scene,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Process> {
        forget_validation(&scene.client()).await?;
        match self {
            Self::Velero => peer::serve(scene, flags).await,
            Self::Ours => {
                let server = launch(scene, flags, env)?;
                location_available(scene, &server).await?;
                Ok(server)
            }
        }
    }
}

/// Starts our server and does not wait for anything.
pub fn launch(scene: &Scene, flags: &[&str], env: &[(&str, &str)]) -> anyhow::Result<Process> {
    let mut command = scene.bowline();
    command
        .args(["server", "--namespace", DEFAULT_NAMESPACE])
        .args(["--metrics-address", "127.0.0.1:0"])
        .args(flags)
        .envs(env.iter().copied())
        .env("NO_PROXY", "*")
        .current_dir(scene.folder());
    scene.start("bowline-server", command)
}

/// Makes the next server look at the location at once, however recently another one did.
async fn forget_validation(client: &Client) -> anyhow::Result<()> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let nothing = json!({ "status": { "lastValidationTime": null, "phase": null } });
    locations
        .patch(
            DEFAULT_LOCATION,
            &PatchParams::default(),
            &Patch::Merge(nothing),
        )
        .await
        .context("forget what is known of the location")?;
    Ok(())
}

/// Waits until a server has found the location good, since [`forget_validation`].
async fn location_available(scene: &Scene, server: &Process) -> anyhow::Result<()> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let available = wait_for(
        "the location to be available",
        Duration::from_secs(60),
        async || {
            if !server.is_alive() {
                return Ok(Some(false));
            }
            let status = locations
                .get(DEFAULT_LOCATION)
                .await?
                .status
                .unwrap_or_default();
            if status.phase == Some(BackupStorageLocationPhase::Available) {
                return Ok(Some(true));
            }
            bail!(
                "phase {:?}, {}",
                status.phase,
                status.message.unwrap_or_default()
            )
        },
    );
    if !available.await? {
        server.check()?;
    }
    Ok(())
}

/// A backup that has ended.
#[derive(Debug)]
pub struct Ended {
    /// As it was seen last.
    pub backup: Backup,
    /// From the request to make it until its last phase was seen.
    pub took: Duration,
}

impl Ended {
    /// Its last phase.
    #[must_use]
    pub fn phase(&self) -> BackupPhase {
        let status = self.backup.status.as_ref();
        status.and_then(|s| s.phase.clone()).unwrap_or_default()
    }

    /// The objects in it, as its status says.
    #[must_use]
    pub fn items(&self) -> i64 {
        let progress = self
            .backup
            .status
            .as_ref()
            .and_then(|s| s.progress.as_ref());
        progress.and_then(|p| p.items_backed_up).unwrap_or_default()
    }

    /// Fails unless it is `Completed`.
    pub fn completed(self) -> anyhow::Result<Self> {
        if self.phase() != BackupPhase::Completed {
            let status = serde_json::to_string(&self.backup.status)?;
            bail!("backup {} ended as {status}", self.backup.name_any());
        }
        Ok(self)
    }
}

/// Makes a backup of this spec, without waiting for more.
pub async fn create_backup(client: &Client, name: &str, spec: &Value) -> anyhow::Result<Backup> {
    create(client, "Backup", name, spec).await
}

/// Makes a backup of this spec and watches it to its end.
pub async fn back_up(client: &Client, name: &str, spec: &Value) -> anyhow::Result<Ended> {
    let began = Instant::now();
    let made = create_backup(client, name, spec).await?;
    let backup = ended(client, &made, Duration::from_secs(600)).await?;
    Ok(Ended {
        backup,
        took: began.elapsed(),
    })
}

/// Makes a restore of this spec, without waiting for more.
pub async fn create_restore(client: &Client, name: &str, spec: &Value) -> anyhow::Result<Restore> {
    create(client, "Restore", name, spec).await
}

async fn create<K: Over>(
    client: &Client,
    kind: &str,
    name: &str,
    spec: &Value,
) -> anyhow::Result<K> {
    let object = json!({
        "apiVersion": "velero.io/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": DEFAULT_NAMESPACE },
        "spec": spec,
    });
    let object: K = serde_json::from_value(object)?;
    let api: Api<K> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("create {kind} {name}"))
}

/// What has a last phase.
pub trait Over:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + serde::Serialize
    + DeserializeOwned
{
    /// Whether it has come to it.
    fn is_over(&self) -> bool;

    /// How it stands, for a message.
    fn shown(&self) -> String {
        let object = serde_json::to_value(self).unwrap_or_default();
        object["status"].to_string()
    }
}

impl Over for Backup {
    fn is_over(&self) -> bool {
        let phase = self.status.as_ref().and_then(|s| s.phase.as_ref());
        matches!(
            phase,
            Some(
                BackupPhase::Completed
                    | BackupPhase::PartiallyFailed
                    | BackupPhase::Failed
                    | BackupPhase::FailedValidation
            )
        )
    }
}

impl Over for Restore {
    fn is_over(&self) -> bool {
        let phase = self.status.as_ref().and_then(|s| s.phase.as_ref());
        matches!(
            phase,
            Some(
                RestorePhase::Completed
                    | RestorePhase::PartiallyFailed
                    | RestorePhase::Failed
                    | RestorePhase::FailedValidation
            )
        )
    }
}

/// Watches a backup or restore until its last phase.
pub async fn ended<K: Over>(client: &Client, from: &K, limit: Duration) -> anyhow::Result<K> {
    let mut last = from.clone();
    match tokio::time::timeout(limit, follow(client, &mut last, |_| {})).await {
        Ok(done) => done.map(|()| last),
        Err(_) => bail!(
            "{} has not ended after {} s: {}",
            from.name_any(),
            limit.as_secs(),
            last.shown()
        ),
    }
}

/// Watches a backup or restore until its last phase, and shows every state of it that is seen.
pub async fn follow<K: Over>(
    client: &Client,
    last: &mut K,
    mut see: impl FnMut(&K),
) -> anyhow::Result<()> {
    let name = last.name_any();
    let api: Api<K> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    while !last.is_over() {
        let version = last.resource_version().unwrap_or_default();
        let mut changes = api.watch(&only, &version).await?.boxed();
        while let Some(change) = changes.next().await {
            match change {
                Ok(WatchEvent::Added(new) | WatchEvent::Modified(new)) => *last = new,
                Ok(WatchEvent::Deleted(_)) => bail!("{name} was deleted"),
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(_)) | Err(_) => {
                    *last = api.get(&name).await?;
                    break;
                }
            }
            see(last);
            if last.is_over() {
                break;
            }
        }
    }
    Ok(())
}
