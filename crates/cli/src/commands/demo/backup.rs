//! The demo's backup: a server in this process, a folder for a bucket, and a look at what is in it.

use std::{collections::BTreeMap, io::Write, path::Path, time::Duration};

use anyhow::{Context, bail};
use bowline_api::{
    files::backup_suffix,
    names::DEFAULT_NAMESPACE,
    v1::{
        Backup, BackupPhase, BackupSpec, BackupStorageLocation, BackupStorageLocationPhase,
        BackupStorageLocationSpec, ObjectStorageLocation,
    },
};
use bowline_server::{Settings, node};
use bowline_vault::{Location, archive::read::Reader, bucket::backup_file};
use futures::future::BoxFuture;
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{commands::backup::create::phase, wait};

const BUCKET: &str = "demo";
const NAME: &str = "shop";

/// The demo's own server, and the process of its node.
pub(super) struct Servers {
    stop: CancellationToken,
    running: JoinHandle<bowline_server::Result<()>>,
    node: JoinHandle<bowline_server::Result<()>>,
}

impl Servers {
    /// Starts them, with a location in a folder. `kubelet` has the folders of pods.
    pub(super) async fn start(
        client: &Client,
        folder: &Path,
        kubelet: &Path,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder.join(BUCKET))
            .with_context(|| format!("create {}", folder.display()))?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DEFAULT_NAMESPACE}});
        super::create(client, &namespace).await?;
        super::create(client, &helper()).await?;
        let locations: Api<BackupStorageLocation> =
            Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        let location = location(folder);
        locations
            .create(&PostParams::default(), &location)
            .await
            .context("create the location")?;
        let stop = CancellationToken::new();
        let mut settings = Settings::default();
        "127.0.0.1:0".clone_into(&mut settings.metrics_address);
        let mut node = node::Settings::default();
        "127.0.0.1:0".clone_into(&mut node.metrics_address);
        super::node::NAME.clone_into(&mut node.node_name);
        node.host_pods = kubelet.join("pods");
        let (ours, until) = (client.clone(), stop.clone());
        let connect = move || -> BoxFuture<'static, bowline_server::Result<Client>> {
            let client = ours.clone();
            Box::pin(async move { Ok(client) })
        };
        let running = tokio::spawn(async move {
            bowline_server::run(Box::new(connect), DEFAULT_NAMESPACE, settings, until).await
        });
        let (ours, until) = (client.clone(), stop.clone());
        let node =
            tokio::spawn(async move { node::run(ours, DEFAULT_NAMESPACE, node, until).await });
        let mut servers = Self {
            stop,
            running,
            node,
        };
        servers.is_ready(&locations).await?;
        Ok(servers)
    }

    async fn is_ready(&mut self, locations: &Api<BackupStorageLocation>) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            if self.running.is_finished() {
                (&mut self.running).await?.context("the server ended")?;
                bail!("the server ended");
            }
            let status = locations.get("default").await?.status.unwrap_or_default();
            match status.phase {
                Some(BackupStorageLocationPhase::Available) => return Ok(()),
                Some(BackupStorageLocationPhase::Unavailable) => {
                    bail!("{}", status.message.unwrap_or_default())
                }
                _ if tokio::time::Instant::now() > deadline => bail!("the server does not start"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await??;
        Ok(self.node.await??)
    }
}

/// Which image waits in restored pods; installed servers take their own.
fn helper() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "restore-helper", "namespace": DEFAULT_NAMESPACE, "labels": {
            "velero.io/plugin-config": "", "velero.io/pod-volume-restore": "RestoreItemAction",
        } },
        "data": { "image": "example.com/bowline:pretend" },
    })
}

fn location(folder: &Path) -> BackupStorageLocation {
    let spec = BackupStorageLocationSpec {
        provider: "filesystem".to_owned(),
        config: Some(BTreeMap::from([(
            "path".to_owned(),
            folder.display().to_string(),
        )])),
        object_storage: ObjectStorageLocation {
            bucket: BUCKET.to_owned(),
            ..ObjectStorageLocation::default()
        },
        default: Some(true),
        ..BackupStorageLocationSpec::default()
    };
    BackupStorageLocation::new(DEFAULT_NAMESPACE, "default", spec)
}

/// Whether a folder has the demo's backup from an earlier time.
pub(super) fn is_in(folder: &Path) -> bool {
    folder.join(BUCKET).join("backups").join(NAME).exists()
}

/// Backs the shop up, and shows how that goes and what came of it.
pub(super) async fn show(
    client: &Client,
    folder: &Path,
    is_terminal: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let backups: Api<Backup> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let spec = BackupSpec {
        included_namespaces: Some(vec!["shop".to_owned()]),
        default_volumes_to_fs_backup: Some(true),
        ..BackupSpec::default()
    };
    let backup = Backup::new(DEFAULT_NAMESPACE, NAME, spec);
    writeln!(
        out,
        "\nA backup of namespace shop, as `bowline backup create {NAME} --include-namespaces shop --default-volumes-to-fs-backup --wait` makes it:"
    )?;
    backups
        .create(&PostParams::default(), &backup)
        .await
        .context("create the backup")?;
    let ended = wait::until_over(backups, NAME, is_terminal, out).await?;
    if phase(&ended) != BackupPhase::Completed {
        let status = ended.status.clone().unwrap_or_default();
        let why = status
            .failure_reason
            .or_else(|| status.validation_errors.map(|e| e.join("; ")));
        bail!(
            "backup {} ended {}: {}",
            ended.name_any(),
            phase(&ended),
            why.unwrap_or_default()
        );
    }
    contents(folder, out).await
}

/// Lists what the archive holds, by resource.
async fn contents(folder: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let bucket = bowline_vault::open(&Location {
        object: location(folder),
        ..Location::default()
    })?;
    let key = backup_file(NAME, backup_suffix::CONTENTS);
    let mut archive = Reader::new(&key, bucket.get(&key).await?);
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Some(item) = archive.next().await? {
        if let Some(entry) = item.entry.filter(|entry| entry.version.is_none()) {
            found.entry(entry.resource).or_default().push(entry.name);
        }
    }
    let size = bucket
        .list(&key)
        .await?
        .first()
        .map_or(0, |entry| entry.size);
    let count: usize = found.values().map(Vec::len).sum();
    let shown = folder.join(BUCKET).join(&key);
    writeln!(out, "{count} objects, {size} bytes in {}:", shown.display())?;
    let width = found.keys().map(String::len).max().unwrap_or_default();
    for (resource, mut names) in found {
        names.sort();
        writeln!(out, "  {resource:<width$}  {}", names.join(", "))?;
    }
    Ok(())
}
