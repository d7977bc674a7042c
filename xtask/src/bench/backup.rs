//! `cargo xtask bench backup`: the same cluster, backed up by Velero and by Bowline in turns into
//! the same store, and what listing and compressing alone take.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{Read, Write as _},
    time::Instant,
};

use anyhow::Context;
use bowline_api::names::DEFAULT_NAMESPACE;
use bowline_engine::{
    discovery::{Discovery, Versions},
    list,
};
use bowline_testbed::{
    Cache, Mode,
    bed::Bucket,
    fill::Fill,
    peer,
    scene::Scene,
    servers::{self, Server},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::json;

use super::{
    round::{Meter, Round},
    stage,
    table::{Column, table},
};
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

/// How much faster than a server we want to be with so many objects.
fn target(server: Server, objects: usize) -> Option<f64> {
    match (server, objects) {
        (Server::Velero, 10_000) => Some(12.0),
        (Server::Velero, 50_000) => Some(25.0),
        _ => None,
    }
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    stage::on_bed(&cache, Mode::Api, async |scene| measure(scene, args).await).await
}

async fn measure(scene: &Scene, args: &Args) -> anyhow::Result<()> {
    let bucket = scene.bucket("bench")?;
    peer::prepare(scene, &bucket).await?;
    let is_asked = |server: Server| args.servers.iter().any(|name| name == server.name());
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
        let mut columns = Server::BOTH.map(|server| Column {
            name: server.name(),
            rounds: Vec::new(),
            target: target(server, objects),
        });
        for n in 1..=args.rounds {
            for (server, column) in Server::BOTH.into_iter().zip(&mut columns) {
                if is_asked(server) {
                    let (round, archive) = round(scene, &bucket, server, n).await?;
                    say(&format!(
                        "  {} {n}  {round}; {archive:.1} MB",
                        server.name()
                    ));
                    column.rounds.push(round);
                }
            }
        }
        let floors = floors(scene).await?;
        say(&floors);
        say(&table(&columns, MEMORY));
        fs::remove_dir_all(bucket.folder().join("backups"))?;
    }
    Ok(())
}

/// One backup by a fresh server, and the size of its archive in MB.
async fn round(
    scene: &Scene,
    bucket: &Bucket,
    server: Server,
    n: usize,
) -> anyhow::Result<(Round, f64)> {
    let name = format!("{}-{n}", scene.fresh(server.name()));
    let process = server.start(scene, &[]).await?;
    let meter = Meter::start(&process)?;
    let ended = servers::back_up(&scene.client(), &name, &json!({})).await?;
    let round = meter.stop(ended.took, ended.items())?;
    process.stop().await?;
    ended.completed()?;
    let folder = bucket.folder().join("backups").join(&name);
    let archive = fs::metadata(folder.join(format!("{name}.tar.gz")))?.len();
    // The next round has as many objects as this one; the last archive stays for the floors.
    scene
        .kubectl(&["-n", DEFAULT_NAMESPACE, "delete", "backup", &name])
        .await?;
    let kept = scene.folder().join("last.tar.gz");
    fs::rename(folder.join(format!("{name}.tar.gz")), kept)?;
    fs::remove_dir_all(folder)?;
    Ok((round, archive as f64 / 1e6))
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
