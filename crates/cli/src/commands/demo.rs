//! `bowline demo`: a cluster that is not there, with a sample application in it.

mod backup;
mod node;
mod restore;
mod volume;

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use bowline_api::crd;
use bowline_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, PostParams},
    discovery::{ApiResource, Scope, pinned_kind},
};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

use self::volume::Sum;
use super::apiserver::{documents, interrupted};

const SHOP: &str = include_str!("../../demo/shop.yaml");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// End once everything has been shown
    #[arg(long)]
    exit: bool,

    /// A folder for the backups, which stays; without it, a temporary one
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,

    /// Where to listen for kubectl; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: std::net::SocketAddr,
}

pub(crate) async fn run(args: Args, out: &mut impl Write) -> anyhow::Result<()> {
    let began = Instant::now();
    let into = args.into;
    if let Some(folder) = &into
        && backup::is_in(folder)
    {
        anyhow::bail!(
            "{} holds a backup of the demo already: remove it, or name another folder",
            folder.display()
        );
    }
    let folder = Folder::new()?;
    let server = ApiServer::default();
    let client = Client::new(server.clone(), "default");
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let until = async {
            let _ = ended.await;
        };
        server.serve(listener, None, until).await
    });
    writeln!(
        out,
        "A Kubernetes API runs in this process, in memory. No cluster is needed or touched."
    )?;

    let kinds = crd::all();
    for kind in &kinds {
        create(&client, kind).await?;
    }
    let shop = documents(SHOP)?;
    for object in &shop {
        create(&client, object).await?;
    }
    writeln!(
        out,
        "{} kinds and {} objects of a small shop created",
        kinds.len(),
        shop.len()
    )?;
    let mut node = tokio::spawn(node::run(client.clone(), folder.path.clone()));
    show(&client, out).await?;
    let before = fill(&client, &folder.path, out).await?;
    let bucket = into.unwrap_or_else(|| folder.path.join("backups"));
    let backups = backup::Servers::start(&client, &bucket, &folder.path).await?;
    let is_terminal = std::io::stdout().is_terminal();
    backup::show(&client, &bucket, is_terminal, out).await?;
    restore::show(&client, is_terminal, out).await?;
    compare(&client, &folder.path, &before, out).await?;
    writeln!(out, "Ready after {:.1} s.", began.elapsed().as_secs_f64())?;

    if !args.exit {
        writeln!(out, "\nLook around with kubectl, from another terminal:")?;
        for words in [
            "get pods,pvc,services -n shop",
            "describe pod database-0 -n shop",
            "get backups,restores,backupstoragelocations -n velero",
        ] {
            writeln!(out, "  kubectl --server http://{address} {words}")?;
        }
        writeln!(
            out,
            "Volumes are folders in {}. Ctrl-C ends it.",
            folder.path.join("pods").display()
        )?;
        out.flush()?;
        tokio::select! {
            () = interrupted() => {}
            ended = node_failed(&mut node) => return ended,
        }
    }
    backups.stop().await?;
    node.abort();
    let _ = end.send(());
    serving.await??;
    Ok(())
}

/// The pretend node plays for as long as the demo does; if it ends, the demo says why.
async fn node_failed(node: &mut JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    node.await?.context("the pretend node ended")
}

/// Creates any object, as kubectl does.
async fn create(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("an object without a kind")?;
    let (resource, capabilities) =
        pinned_kind(client, &kube::core::GroupVersionKind::try_from(&types)?).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("create {} {name}", types.kind))?;
    Ok(())
}

/// Waits until every pod runs and shows them.
async fn show(client: &Client, out: &mut impl Write) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "shop");
    let deadline = Instant::now() + std::time::Duration::from_secs(30);
    let pods = loop {
        let found = pods.list(&ListParams::default()).await?;
        let running =
            |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        if found.items.iter().all(running) {
            break found;
        }
        anyhow::ensure!(Instant::now() < deadline, "the pods do not start");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    for pod in pods {
        let status = pod.status.unwrap_or_default();
        writeln!(
            out,
            "  pod {:<12} {:<8} {}",
            pod.metadata.name.unwrap_or_default(),
            status.phase.unwrap_or_default(),
            status.pod_ip.unwrap_or_default()
        )?;
    }
    let claims: Api<DynamicObject> = {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(&());
        Api::namespaced_with(client.clone(), "shop", &resource)
    };
    for claim in claims.list(&ListParams::default()).await? {
        writeln!(
            out,
            "  claim {:<10} {:<8} {}",
            claim.metadata.name.unwrap_or_default(),
            claim.data["status"]["phase"].as_str().unwrap_or_default(),
            claim.data["spec"]["volumeName"]
                .as_str()
                .unwrap_or_default()
        )?;
    }
    Ok(())
}

/// Puts files into the volume of the database.
async fn fill(client: &Client, folder: &Path, out: &mut impl Write) -> anyhow::Result<Sum> {
    let place = orders(client, folder).await?;
    let filling = move || volume::fill(&place).and_then(|()| volume::sum(&place));
    let sum = tokio::task::spawn_blocking(filling).await??;
    writeln!(out, "  volume orders    {}", shown(&sum))?;
    Ok(sum)
}

/// Whether the volume has what it had.
async fn compare(
    client: &Client,
    folder: &Path,
    before: &Sum,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let place = orders(client, folder).await?;
    let now = tokio::task::spawn_blocking(move || volume::sum(&place)).await??;
    anyhow::ensure!(
        now == *before,
        "the volume has {} instead of {}, or others",
        shown(&now),
        shown(before)
    );
    writeln!(
        out,
        "Its volume is back too: {}, every byte as before.",
        shown(&now)
    )?;
    Ok(())
}

async fn orders(client: &Client, folder: &Path) -> anyhow::Result<PathBuf> {
    node::volume(client, folder, "shop", "database-0", "orders").await
}

fn shown(sum: &Sum) -> String {
    format!("{} MB in {} files", sum.bytes / 1_000_000, sum.files)
}

/// A folder that goes with the demo.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("bowline-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
