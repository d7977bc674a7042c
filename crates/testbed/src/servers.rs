//! The two servers that scenarios compare, as processes: the real Velero and ours. They take turns
//! in the same namespace, on the same location.

use std::{
    fmt::Debug,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bowline_api::{
    names::{DEFAULT_LOCATION, DEFAULT_NAMESPACE},
    v1::{
        Backup, BackupPhase, BackupStorageLocation, BackupStorageLocationPhase, DataPathPhase,
        PodVolumeBackup, PodVolumeRestore, Restore, RestorePhase,
    },
    v2alpha1::{DataDownload, DataUpload},
};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
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
            Self::Velero => peer::serve(scene, flags, env).await,
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
    scene.start("bowline-server", command(scene, flags, env))
}

/// Starts our server where it sees what the node has mounted; back once it has looked at its location.
pub async fn start_on_node(scene: &Scene, flags: &[&str]) -> anyhow::Result<Process> {
    forget_validation(&scene.client()).await?;
    let command = command(scene, flags, &[]);
    let server = scene.start_on_node("bowline-server", &command).await?;
    location_available(scene, &server).await?;
    Ok(server)
}

fn command(scene: &Scene, flags: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = scene.bowline();
    command
        .args(["server", "--namespace", DEFAULT_NAMESPACE])
        .args(["--metrics-address", "127.0.0.1:0"])
        .args(flags)
        .envs(env.iter().copied())
        .env("NO_PROXY", "*")
        .current_dir(scene.folder());
    command
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

/// A restore that has ended.
#[derive(Debug)]
pub struct EndedRestore {
    /// As it was seen last.
    pub restore: Restore,
    /// From the request to make it until its last phase was seen.
    pub took: Duration,
}

impl EndedRestore {
    /// Its last phase.
    #[must_use]
    pub fn phase(&self) -> RestorePhase {
        let status = self.restore.status.as_ref();
        status.and_then(|s| s.phase.clone()).unwrap_or_default()
    }

    /// The objects that it restored, as its status says.
    #[must_use]
    pub fn items(&self) -> i64 {
        let status = self.restore.status.as_ref();
        let progress = status.and_then(|s| s.progress.as_ref());
        progress.and_then(|p| p.items_restored).unwrap_or_default()
    }

    /// Fails unless it is `Completed`.
    pub fn completed(self) -> anyhow::Result<Self> {
        if self.phase() != RestorePhase::Completed {
            let status = serde_json::to_string(&self.restore.status)?;
            bail!("restore {} ended as {status}", self.restore.name_any());
        }
        Ok(self)
    }
}

/// What a server works on until its last phase.
pub trait Work:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    /// Whether it is in its last phase.
    fn is_over(&self) -> bool;
}

/// Work of a node's process, of which there is some for each volume.
macro_rules! volume_work {
    ($kind:ty) => {
        impl Work for $kind {
            fn is_over(&self) -> bool {
                let phase = self.status.as_ref().and_then(|s| s.phase.as_ref());
                phase.is_some_and(DataPathPhase::is_over)
            }
        }
    };
}

volume_work!(PodVolumeBackup);
volume_work!(PodVolumeRestore);
volume_work!(DataUpload);
volume_work!(DataDownload);

impl Work for Backup {
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

impl Work for Restore {
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

/// Makes a backup of this spec, without waiting for more.
pub async fn create_backup(client: &Client, name: &str, spec: &Value) -> anyhow::Result<Backup> {
    create(client, name, spec).await
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
    create(client, name, spec).await
}

/// Makes a restore of this spec and watches it to its end.
pub async fn restore(client: &Client, name: &str, spec: &Value) -> anyhow::Result<EndedRestore> {
    let began = Instant::now();
    let made: Restore = create(client, name, spec).await?;
    let restore = ended(client, &made, Duration::from_secs(3600)).await?;
    Ok(EndedRestore {
        restore,
        took: began.elapsed(),
    })
}

async fn create<K: Work>(client: &Client, name: &str, spec: &Value) -> anyhow::Result<K> {
    let all: Api<K> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": name, "namespace": DEFAULT_NAMESPACE },
        "spec": spec,
    });
    let object = serde_json::from_value(object)?;
    all.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("create {} {name}", kind::<K>()))
}

/// Watches a backup or a restore until its last phase.
pub async fn ended<K: Work>(client: &Client, from: &K, limit: Duration) -> anyhow::Result<K> {
    let mut last = from.clone();
    match tokio::time::timeout(limit, follow(client, &mut last, |_| {})).await {
        Ok(done) => done.map(|()| last),
        Err(_) => bail!(
            "{} {} has not ended after {} s: {}",
            kind::<K>(),
            from.name_any(),
            limit.as_secs(),
            serde_json::to_value(&last)?["status"]
        ),
    }
}

/// Watches until the last phase, and shows each change.
pub async fn follow<K: Work>(
    client: &Client,
    last: &mut K,
    mut see: impl FnMut(&K),
) -> anyhow::Result<()> {
    let name = last.name_any();
    let all: Api<K> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    while !last.is_over() {
        let version = last.resource_version().unwrap_or_default();
        let mut changes = all.watch(&only, &version).await?.boxed();
        while let Some(change) = changes.next().await {
            match change {
                Ok(WatchEvent::Added(new) | WatchEvent::Modified(new)) => *last = new,
                Ok(WatchEvent::Deleted(_)) => bail!("{} {name} was deleted", kind::<K>()),
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(_)) | Err(_) => {
                    *last = all.get(&name).await?;
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

fn kind<K: Work>() -> String {
    K::kind(&()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::{Restore, RestorePhase};

    use super::Work;

    #[test]
    fn a_restore_is_over_in_its_last_phase_only() {
        for (phase, expected) in [
            (None, false),
            (Some(RestorePhase::New), false),
            (Some(RestorePhase::InProgress), false),
            (Some(RestorePhase::WaitingForPluginOperations), false),
            (Some(RestorePhase::FinalizingPartiallyFailed), false),
            (Some(RestorePhase::Completed), true),
            (Some(RestorePhase::PartiallyFailed), true),
            (Some(RestorePhase::Failed), true),
            (Some(RestorePhase::FailedValidation), true),
        ] {
            let mut restore = Restore::default();
            restore.status_mut().phase = phase.clone();
            assert_eq!(restore.is_over(), expected, "{phase:?}");
        }
    }
}
