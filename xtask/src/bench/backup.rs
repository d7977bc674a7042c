//! `cargo xtask bench backup`: the same cluster, backed up by Velero and by Bowline in turns into
//! the same store, and what listing and compressing alone take.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{Read, Write as _},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bowline_api::names::DEFAULT_NAMESPACE;
use bowline_engine::{
    discovery::{Discovery, Versions},
    list,
};
use bowline_testbed::{
    Bed, Cache, Mode, Process,
    bed::{self, Bucket},
    fill::Fill,
    measure::Usage,
    peer,
    scene::Scene,
    servers::{self, Server},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::json;

use crate::say;

/// The most memory that our server may have, in MB.
const MEMORY: f64 = 64.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many objects the cluster has, once after another
    #[arg(long, value_delimiter = ',', default_value = "10000,50000")]
    objects: Vec<usize>,
    /// How often each server makes the backup
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Which servers: velero, bowline
    #[arg(long, value_delimiter = ',', default_value = "velero,bowline")]
    servers: Vec<String>,
}

/// How much faster than Velero we want to be with so many objects.
fn target(objects: usize) -> Option<f64> {
    match objects {
        10_000 => Some(12.0),
        50_000 => Some(25.0),
        _ => None,
    }
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    let me = Process::me()?;
    let bed = Bed::up(&cache, Mode::Api, Some(me.clone()), &say).await?;
    let outcome = tokio::select! {
        outcome = on(&bed, args) => outcome,
        _ = tokio::signal::ctrl_c() => {
            bed::down_all(&cache, Some(&me), &say).await.context("end the bed")?;
            bail!("interrupted");
        }
    };
    bed.down().await?;
    outcome
}

async fn on(bed: &Bed, args: &Args) -> anyhow::Result<()> {
    let scene = Scene::new(bed)?.with_bowline(super::bowline()?);
    let outcome = measure(&scene, args).await;
    if outcome.is_err() {
        say(&scene.diagnose().await);
    }
    scene.end().await?;
    outcome
}

async fn measure(scene: &Scene, args: &Args) -> anyhow::Result<()> {
    let bucket = scene.bucket("bench")?;
    peer::prepare(scene, &bucket).await?;
    let servers: Vec<Server> = Server::BOTH
        .into_iter()
        .filter(|server| args.servers.iter().any(|name| name == server.name()))
        .collect();
    let mut objects = args.objects.clone();
    objects.sort_unstable();
    for objects in objects {
        let fill = Fill::of("fill", objects);
        let began = Instant::now();
        fill.make(&scene.client()).await?;
        say(&format!(
            "\n{objects} objects in {} namespaces, filled up in {:.1} s",
            fill.namespaces,
            began.elapsed().as_secs_f64()
        ));
        let mut rounds = Vec::new();
        for n in 1..=args.rounds {
            for server in &servers {
                let round = round(scene, &bucket, *server, n).await?;
                say(&format!("  {} {n}  {round}", server.name()));
                rounds.push((*server, round));
            }
        }
        let floors = floors(scene).await?;
        say(&floors);
        say(&table(objects, &rounds));
        fs::remove_dir_all(bucket.folder().join("backups"))?;
    }
    Ok(())
}

/// What one backup took.
#[derive(Debug, Clone, Copy)]
struct Round {
    wall: Duration,
    cpu: Duration,
    /// In MB, without plugins.
    peak: f64,
    items: i64,
    archive: f64,
    load: f64,
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>7.2} s  cpu {:>6.2} s  peak {:>5.0} MB  {} items, {:.1} MB; load before {:.1}",
            self.wall.as_secs_f64(),
            self.cpu.as_secs_f64(),
            self.peak,
            self.items,
            self.archive,
            self.load
        )
    }
}

/// One backup by a fresh server.
async fn round(scene: &Scene, bucket: &Bucket, server: Server, n: usize) -> anyhow::Result<Round> {
    let name = format!("{}-{n}", scene.fresh(server.name()));
    let process = server.start(scene, &[]).await?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default().parse()?;
    Usage::forget_peak(&process)?;
    let before = Usage::of(&process)?;
    let ended = servers::back_up(&scene.client(), &name, &json!({})).await?;
    let after = Usage::of(&process)?;
    process.stop().await?;
    let ended = ended.completed()?;
    let folder = bucket.folder().join("backups").join(&name);
    let archive = fs::metadata(folder.join(format!("{name}.tar.gz")))?.len();
    // The next round has as many objects as this one; the last archive stays for the floors.
    scene
        .kubectl(&["-n", DEFAULT_NAMESPACE, "delete", "backup", &name])
        .await?;
    let kept = scene.folder().join("last.tar.gz");
    fs::rename(folder.join(format!("{name}.tar.gz")), kept)?;
    fs::remove_dir_all(folder)?;
    Ok(Round {
        wall: ended.took,
        cpu: after.cpu.saturating_sub(before.cpu),
        peak: after.peak as f64 / 1e6,
        items: ended.items(),
        archive: archive as f64 / 1e6,
        load,
    })
}

/// What cannot be avoided, measured in this program.
async fn floors(scene: &Scene) -> anyhow::Result<String> {
    let mut text = String::from("  floors:");
    for at_once in [1, 4] {
        let began = Instant::now();
        let (objects, bytes) = list_all(&scene.client(), at_once).await?;
        write!(
            text,
            " list {:.2} s ({objects} objects, {:.1} MB, {at_once} at a time),",
            began.elapsed().as_secs_f64(),
            bytes as f64 / 1e6
        )?;
    }
    let kept = scene.folder().join("last.tar.gz");
    let mut tar = Vec::new();
    GzDecoder::new(File::open(&kept)?).read_to_end(&mut tar)?;
    fs::remove_file(kept)?;
    for level in [1, 6] {
        let began = Instant::now();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::new(level));
        gzip.write_all(&tar)?;
        let packed = gzip.finish()?.len();
        write!(
            text,
            " gzip -{level} {:.2} s on one core ({:.1} to {:.1} MB),",
            began.elapsed().as_secs_f64(),
            tar.len() as f64 / 1e6,
            packed as f64 / 1e6
        )?;
    }
    text.pop();
    Ok(text)
}

/// Lists every object of the cluster and drops it.
async fn list_all(client: &Client, at_once: usize) -> anyhow::Result<(usize, usize)> {
    let found = Discovery::read(client, Versions::Preferred).await?;
    stream::iter(found.resources)
        .map(|resource| async move {
            let query = list::Query {
                path: resource.path(None),
                ..Default::default()
            };
            let (out, mut batches) = tokio::sync::mpsc::channel(4);
            let count = async {
                let (mut objects, mut bytes) = (0, 0);
                while let Some(batch) = batches.recv().await {
                    let batch: &list::Batch = &batch;
                    objects += batch.len();
                    bytes += batch.objects().map(<[u8]>::len).sum::<usize>();
                }
                (objects, bytes)
            };
            let all = async move { list::all(client, &query, &out).await };
            let (listed, counted) = tokio::join!(all, count);
            listed.with_context(|| format!("list {}", resource.plural))?;
            anyhow::Ok(counted)
        })
        .buffer_unordered(at_once)
        .try_fold((0, 0), async |sum, one| Ok((sum.0 + one.0, sum.1 + one.1)))
        .await
}

type Figure = fn(&Round) -> f64;

fn table(objects: usize, rounds: &[(Server, Round)]) -> String {
    let median = |server: Server, of: Figure| -> Option<f64> {
        let mut all: Vec<f64> = rounds
            .iter()
            .filter(|(of, _)| *of == server)
            .map(|(_, round)| of(round))
            .collect();
        all.sort_by(f64::total_cmp);
        let last = all.len().checked_sub(1)?;
        Some((all[last / 2] + all[all.len() / 2]) / 2.0)
    };
    let figures: [(&str, Figure); 4] = [
        ("time, s", |r| r.wall.as_secs_f64()),
        ("cpu, s", |r| r.cpu.as_secs_f64()),
        ("peak, MB", |r| r.peak),
        ("items/s", |r| r.items as f64 / r.wall.as_secs_f64()),
    ];
    let mut text = format!(
        "  {:<10} {:>9} {:>9} {:>8}\n",
        "medians", "velero", "bowline", "ratio"
    );
    for (name, of) in figures {
        let (velero, ours) = (median(Server::Velero, of), median(Server::Ours, of));
        let show =
            |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.2}"));
        let ratio = velero.zip(ours).map(|(velero, ours)| match name {
            "items/s" => ours / velero,
            _ => velero / ours,
        });
        let wanted = match name {
            "time, s" => target(objects).map(|t| verdict(ratio.map(|r| r >= t), format!("{t}x"))),
            "peak, MB" => Some(verdict(
                ours.map(|o| o <= MEMORY),
                format!("at most {MEMORY} MB"),
            )),
            _ => None,
        };
        let _ = writeln!(
            text,
            "  {name:<10} {:>9} {:>9} {:>8}  {}",
            show(velero),
            show(ours),
            ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.1}x")),
            wanted.unwrap_or_default()
        );
    }
    text.pop();
    text
}

fn verdict(good: Option<bool>, wanted: String) -> String {
    match good {
        Some(true) => format!("wanted {wanted}: reached"),
        Some(false) => format!("wanted {wanted}: MISSED"),
        None => format!("wanted {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bowline_testbed::servers::Server;

    use super::{Round, table};

    #[test]
    fn the_table_has_medians_and_says_what_was_missed() {
        let round = |seconds, peak| Round {
            wall: Duration::from_secs(seconds),
            cpu: Duration::from_secs(seconds),
            peak,
            items: 100,
            archive: 1.0,
            load: 0.0,
        };
        let text = table(
            10_000,
            &[
                (Server::Velero, round(24, 100.0)),
                (Server::Ours, round(2, 50.0)),
                (Server::Velero, round(26, 140.0)),
                (Server::Ours, round(3, 80.0)),
                (Server::Velero, round(20, 140.0)),
                (Server::Ours, round(1, 70.0)),
            ],
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "  time, s        24.00      2.00    12.0x  wanted 12x: reached"
        );
        assert!(
            lines[3].ends_with("wanted at most 64 MB: MISSED"),
            "{}",
            lines[3]
        );
    }
}
