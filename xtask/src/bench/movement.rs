//! `cargo xtask bench movement`: claims of a CSI driver whose snapshots are moved into the bucket and
//! back, by Velero (kopia) and by Bowline, each put into the cluster by its own `install`.
//!
//! ```text
//!   claims, filled ─▶ for each round and server: install ─▶ backup that moves ─▶ restore into another
//!                     namespace, compared ─▶ uninstall
//! ```

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use bowline_testbed::{
    Cache, Mode,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    measure::quiet,
    ours, peer,
    scene::{self, Scene},
    servers::{self, Server},
    tree,
};
use serde_json::json;

use super::{round::median, stage, table::verdict};
use crate::say;

/// How often the memory of all processes is added up.
const TICK: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(60);
/// Files in a claim.
const FILES: usize = 20;
const FEATURES: &str = "--features=EnableCSI";
/// How much faster than Velero we want to be.
const TARGETS: [(&str, Option<f64>); 4] = [
    ("backup, s", Some(1.0)),
    ("restore, s", Some(1.0)),
    ("backup, MB", None),
    ("restore, MB", None),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many claims there are
    #[arg(long, default_value_t = 10)]
    claims: usize,
    /// How many megabytes are in each
    #[arg(long, default_value_t = 500)]
    megabytes: usize,
    /// How often each server moves them there and back
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    stage::on_bed(&cache, Mode::Node, async |scene| measure(scene, args).await).await
}

async fn measure(scene: &Scene, args: &Args) -> anyhow::Result<()> {
    let csi = Csi::on(scene.bed()).await?;
    let namespace = scene.namespace("moving").await?;
    let names: Vec<String> = (0..args.claims).map(|n| format!("claim-{n}")).collect();
    let size = format!("{}Mi", args.megabytes + 64);
    let claims: Vec<_> = names
        .iter()
        .map(|name| objects::claim(&namespace, name, Kind::Files, &size))
        .collect();
    scene.apply(&claims).await?;
    for (seed, name) in names.iter().enumerate() {
        let folder = csi.volume(&csi.bound(&namespace, name).await?);
        tokio::task::block_in_place(|| fill(&folder, args.megabytes, seed))?;
    }
    say(&format!(
        "\n{} claims of {} MB in {FILES} files each",
        args.claims, args.megabytes
    ));
    let mut columns = Server::BOTH.map(|_| Vec::new());
    for n in 1..=args.rounds {
        for (server, passes) in Server::BOTH.into_iter().zip(&mut columns) {
            let id = format!("{}-{n}", server.name());
            let pass = pass(scene, &csi, (&namespace, &names), server, &id).await;
            let pass = pass.with_context(|| id.clone())?;
            say(&format!(
                "  {id:<10} backup {:>7.2} s, {:>5.0} MB  restore {:>7.2} s, {:>5.0} MB",
                pass[0], pass[2], pass[1], pass[3]
            ));
            passes.push(pass);
        }
    }
    let [velero, ours] = columns;
    say(&table(&velero, &ours));
    Ok(())
}

fn fill(folder: &std::path::Path, megabytes: usize, seed: usize) -> anyhow::Result<()> {
    let each = (megabytes * 1_000_000) / FILES;
    for n in 0..FILES {
        let seed = u64::try_from(seed * FILES + n)?;
        tree::noise(&folder.join(format!("noise-{n}")), each, seed + 1)?;
    }
    Ok(())
}

/// Seconds there and back, and the most memory on both ways.
type Pass = [f64; 4];

async fn pass(
    scene: &Scene,
    csi: &Csi,
    (namespace, names): (&str, &[String]),
    server: Server,
    id: &str,
) -> anyhow::Result<Pass> {
    let bucket = scene.bucket(id)?;
    match server {
        Server::Velero => peer::install(scene.bed(), &bucket, &[FEATURES]).await?,
        Server::Ours => ours::install(scene, &bucket, &bucket.s3.endpoint, &[FEATURES]).await?,
    }
    settle(scene).await?;
    let client = scene.client();
    let name = scene.fresh(&format!("{id}-there"));
    let memory = Memory::watch(server);
    let spec = json!({ "includedNamespaces": [namespace], "snapshotMoveData": true });
    let backup = servers::back_up(&client, &name, &spec).await?.completed()?;
    let there = memory.most();
    settle(scene).await?;

    let back = scene.fresh(&format!("{id}-back"));
    let memory = Memory::watch(server);
    let spec = json!({ "backupName": name, "namespaceMapping": { namespace: back } });
    let restore = servers::restore(&client, &back, &spec).await?.completed()?;
    let most = memory.most();
    for name in names {
        let folders = [
            csi.volume(&csi.bound(namespace, name).await?),
            csi.volume(&csi.bound(&back, name).await?),
        ];
        tokio::task::block_in_place(|| equal(&folders))?;
    }
    let delete = ["delete", "namespace", &back, "--timeout=120s"];
    scene.kubectl(&delete).await?;
    match server {
        Server::Velero => peer::uninstall(scene).await?,
        Server::Ours => ours::uninstall(scene).await?,
    }
    fs::remove_dir_all(bucket.folder())?;
    Ok([
        backup.took.as_secs_f64(),
        restore.took.as_secs_f64(),
        there,
        most,
    ])
}

fn equal(folders: &[PathBuf; 2]) -> anyhow::Result<()> {
    for n in 0..FILES {
        let [one, other] = [0, 1].map(|at| fs::read(folders[at].join(format!("noise-{n}"))));
        ensure!(
            one? == other?,
            "noise-{n} is another in {}",
            folders[1].display()
        );
    }
    Ok(())
}

/// What went before is over and written out.
async fn settle(scene: &Scene) -> anyhow::Result<()> {
    scene::run(std::process::Command::new("sync")).await?;
    if let Err(error) = quiet(scene.bed().processes(), SOON).await {
        say(&format!("  begun without quiet: {error:#}"));
    }
    Ok(())
}

/// The memory of all processes of a program, added up again and again.
struct Memory {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Memory {
    fn watch(server: Server) -> Self {
        let (most, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (seen, ending) = (Arc::clone(&most), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                seen.fetch_max(resident(server.name()), Ordering::Relaxed);
                std::thread::sleep(TICK);
            }
        });
        Self { most, stop, thread }
    }

    /// The most at one moment, in MB.
    fn most(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.most.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// Resident bytes of all processes of this name that run in pods.
fn resident(name: &str) -> u64 {
    let mut total = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("comm").trim() != name || !read("cgroup").contains("kubepods") {
            continue;
        }
        let status = read("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        total += kilobytes.unwrap_or_default() * 1024;
    }
    total
}

/// Medians side by side.
fn table(velero: &[Pass], ours: &[Pass]) -> String {
    let mut lines = vec![format!(
        "  {:<12}{:>9}{:>9}",
        "medians", "velero", "bowline"
    )];
    for (at, (step, target)) in TARGETS.iter().enumerate() {
        let of = |passes: &[Pass]| {
            let figures: Vec<f64> = passes.iter().map(|pass| pass[at]).collect();
            median(&figures, |figure| *figure)
        };
        let (velero, ours) = (of(velero), of(ours));
        let show =
            |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.2}"));
        let ratio = velero.zip(ours).map(|(velero, ours)| velero / ours);
        let wanted = target.map(|target| {
            let is_reached = ratio.map(|ratio| ratio >= target);
            format!("  {}", verdict(is_reached, &format!("{target}x")))
        });
        lines.push(format!(
            "  {step:<12}{:>9}{:>9}  {}x{}",
            show(velero),
            show(ours),
            show(ratio),
            wanted.unwrap_or_default()
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared() {
        let velero = [[60.0, 90.0, 900.0, 800.0], [62.0, 92.0, 900.0, 800.0]];
        let ours = [[30.5, 91.5, 300.0, 200.0]];
        assert_eq!(
            format!("\n{}", table(&velero, &ours)),
            "
  medians        velero  bowline
  backup, s       61.00    30.50  2.00x  wanted 1x: reached
  restore, s      91.00    91.50  0.99x  wanted 1x: MISSED
  backup, MB     900.00   300.00  3.00x
  restore, MB    800.00   200.00  4.00x"
        );
    }
}
