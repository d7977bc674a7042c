//! `cargo xtask bench pod-volume`: the volume of a pod in the cluster, backed up and restored by
//! Velero and by Bowline, each put there by its own `install` with node agents.
//!
//! ```text
//!   for each round and server: install ─▶ pod with a filled volume ─▶ backup
//!                              ─▶ restore into another namespace, compared ─▶ uninstall
//! ```
//!
//! No pod is deleted before the end: many inodes that were freed a moment ago make the file system
//! slow for whoever comes next.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, ensure};
use bowline_testbed::{
    Cache, Mode, bed,
    measure::quiet,
    ours, peer,
    scene::{self, Scene},
    servers::{self, Server},
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;

use super::{
    round::median,
    stage,
    table::verdict,
    volume::{
        same::same,
        tree::{Kind, Tree},
    },
};
use crate::say;

const POD: &str = "ledger";
const VOLUME: &str = "data";
const SOON: Duration = Duration::from_secs(60);
/// How much faster than Velero we want to be.
const TARGETS: [(&str, f64); 2] = [("backup", 2.0), ("restore", 6.0)];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each server backs the volume up and restores it
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How much of the volume: 0.1 is a tenth
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    stage::on_bed(&cache, Mode::Node, async |scene| {
        let tree = scene.folder().join("tree");
        let tree = tokio::task::block_in_place(|| Tree::make(&tree, Kind::Pod, args.scale))?;
        say(&format!(
            "\na volume of {:.2} GB in {} files",
            tree.bytes() as f64 / 1e9,
            tree.count()
        ));
        let mut times = Server::BOTH.map(|server| (server, [Vec::new(), Vec::new()]));
        for n in 1..=args.rounds {
            for (server, times) in &mut times {
                let name = format!("{}-{n}", server.name());
                let took = round(scene, *server, &name, &tree)
                    .await
                    .with_context(|| name.clone())?;
                say(&format!(
                    "  {name:<10} backup {:>6.2} s  restore {:>6.2} s",
                    took[0].as_secs_f64(),
                    took[1].as_secs_f64()
                ));
                for (times, took) in times.iter_mut().zip(took) {
                    times.push(took.as_secs_f64());
                }
            }
        }
        say(&report(&times));
        Ok(())
    })
    .await
}

/// One backup and one restore, into a bucket of their own.
async fn round(
    scene: &Scene,
    server: Server,
    name: &str,
    tree: &Tree,
) -> anyhow::Result<[Duration; 2]> {
    let bucket = scene.bucket(name)?;
    match server {
        Server::Velero => peer::install(scene.bed(), &bucket, &[]).await?,
        Server::Ours => ours::install(scene, &bucket, &bucket.s3.endpoint, &[]).await?,
    }
    let namespace = scene.namespace(name).await?;
    scene.apply(&[pod(&namespace)]).await?;
    let volume = volume(scene, &namespace).await?;
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(tree.folder.join(".")).arg(&volume);
    scene::run(copy).await?;
    settle(scene).await?;

    let client = scene.client();
    let spec = json!({ "includedNamespaces": [namespace], "defaultVolumesToFsBackup": true });
    let backup = servers::back_up(&client, name, &spec).await?.completed()?;
    settle(scene).await?;
    let back = scene.fresh(&format!("{name}-back"));
    let spec = json!({ "backupName": name, "namespaceMapping": { &namespace: back } });
    let restore = servers::restore(&client, name, &spec).await?.completed()?;

    let restored = self::volume(scene, &back).await?;
    // Where both say that a volume is done.
    fs::remove_dir_all(restored.join(".velero"))?;
    let bytes = tokio::task::block_in_place(|| same(&tree.folder, &restored, true))?;
    ensure!(bytes == tree.bytes(), "{bytes} bytes were restored");
    for copy in [&volume, &restored] {
        tokio::task::block_in_place(|| tree.empty(copy))?;
    }
    match server {
        Server::Velero => peer::uninstall(scene).await?,
        Server::Ours => ours::uninstall(scene).await?,
    }
    fs::remove_dir_all(bucket.folder())?;
    Ok([backup.took, restore.took])
}

/// What went before is over and written out.
async fn settle(scene: &Scene) -> anyhow::Result<()> {
    scene::run(Command::new("sync")).await?;
    if let Err(error) = quiet(scene.bed().processes(), SOON).await {
        say(&format!("  begun without quiet: {error:#}"));
    }
    Ok(())
}

fn pod(namespace: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": POD },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": bed::BUSYBOX,
                "command": ["sleep", "3600"],
                "volumeMounts": [{ "name": VOLUME, "mountPath": "/data" }],
            }],
            "volumes": [{ "name": VOLUME, "emptyDir": {} }],
        },
    })
}

/// Where the volume of the pod is on this machine, once the pod runs.
async fn volume(scene: &Scene, namespace: &str) -> anyhow::Result<PathBuf> {
    let ready = ["wait", "pod", POD, "--for=condition=Ready"];
    let ready = [&["-n", namespace], &ready[..], &["--timeout=120s"]].concat();
    scene.kubectl(&ready).await?;
    let pods: Api<Pod> = Api::namespaced(scene.client(), namespace);
    let uid = pods.get(POD).await?.metadata.uid.unwrap_or_default();
    let volumes = scene.bed().pod_folder(&uid).join("volumes");
    Ok(volumes.join("kubernetes.io~empty-dir").join(VOLUME))
}

/// Medians side by side.
fn report(times: &[(Server, [Vec<f64>; 2])]) -> String {
    let mut lines = vec![format!("  {:<8}{:>9}{:>9}", "medians", "velero", "bowline")];
    for (at, (step, target)) in TARGETS.iter().enumerate() {
        let of = |server| {
            let times = times.iter().find(|(who, _)| *who == server);
            times.and_then(|(_, times)| median(&times[at], |time| *time))
        };
        let (velero, ours) = (of(Server::Velero), of(Server::Ours));
        let show = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |t| format!("{t:.2}"));
        let ratio = velero.zip(ours).map(|(velero, ours)| velero / ours);
        lines.push(format!(
            "  {step:<8}{:>9}{:>9}  {}x  {}",
            show(velero),
            show(ours),
            show(ratio),
            verdict(ratio.map(|ratio| ratio >= *target), &format!("{target}x"))
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared() {
        let times = [
            (Server::Velero, [vec![20.0, 24.0, 22.0], vec![60.0]]),
            (Server::Ours, [vec![9.0, 11.0], vec![12.0]]),
        ];
        assert_eq!(
            format!("\n{}", report(&times)),
            "
  medians    velero  bowline
  backup      22.00    10.00  2.20x  wanted 2x: reached
  restore     60.00    12.00  5.00x  wanted 6x: MISSED"
        );
    }
}
