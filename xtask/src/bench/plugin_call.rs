//! `cargo xtask bench plugin-call`: what a call to a plugin costs. The same ConfigMaps are backed up by
//! Velero and by Bowline in turns, without a plugin and with one whose action does nothing to each of
//! them.

use std::{fs, time::Instant};

use anyhow::ensure;
use bowline_api::names::DEFAULT_NAMESPACE;
use bowline_testbed::{
    Cache, Mode,
    bed::Bucket,
    build::PLAIN_PLUGIN,
    fill::Fill,
    peer,
    scene::{self, Scene},
    servers::{self, Server},
};
use serde_json::json;

use super::{
    round::{Meter, Round, median},
    stage,
    table::verdict,
};
use crate::say;

/// The action, as servers list it.
const ACTION: &str = "example.com/nothing";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many ConfigMaps the cluster has
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How often each server makes the backup, with the plugin and without it
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// The rounds of one server.
#[derive(Debug, Default)]
struct Column {
    without: Vec<Round>,
    with: Vec<Round>,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    stage::on_bed(&cache, Mode::Api, async |scene| measure(scene, args).await).await
}

async fn measure(scene: &Scene, args: &Args) -> anyhow::Result<()> {
    let bucket = scene.bucket("bench")?;
    peer::prepare(scene, &bucket).await?;
    let fill = Fill::of_config_maps("fill", args.objects);
    let began = Instant::now();
    fill.make(&scene.client()).await?;
    say(&format!(
        "\n{} ConfigMaps in {} namespaces, filled up in {:.1} s",
        fill.objects(),
        fill.namespaces,
        began.elapsed().as_secs_f64()
    ));
    let mut columns = Server::BOTH.map(|_| Column::default());
    for n in 1..=args.rounds {
        for (server, column) in Server::BOTH.into_iter().zip(&mut columns) {
            for (plugged, rounds) in [(false, &mut column.without), (true, &mut column.with)] {
                let round = round(scene, &bucket, server, plugged, n).await?;
                let with = if plugged { "with" } else { "without" };
                say(&format!("  {:<7} {with:<7} {n}  {round}", server.name()));
                rounds.push(round);
            }
        }
    }
    let [velero, ours] = columns;
    say(&table(&velero, &ours));
    Ok(())
}

/// One backup by a fresh server.
async fn round(
    scene: &Scene,
    bucket: &Bucket,
    server: Server,
    plugged: bool,
    n: usize,
) -> anyhow::Result<Round> {
    let name = format!("{}-{plugged}-{n}", scene.fresh(server.name()));
    let mut programs = match server {
        Server::Velero => vec!["velero-plugin-for-aws"],
        Server::Ours => Vec::new(),
    };
    programs.extend(plugged.then_some(PLAIN_PLUGIN));
    let folder = format!("{}-{plugged}", server.name());
    let folder = peer::plugins(scene, &folder, &programs)?;
    let flags = ["--plugin-dir", &*folder.to_string_lossy()];
    let process = server.start(scene, &flags).await?;
    let mut list = scene.bowline();
    list.args(["plugin", "get"]);
    let listed = scene::run(list).await?;
    ensure!(
        listed.contains(ACTION) == plugged,
        "the server has these plugins:\n{listed}"
    );
    let meter = Meter::start(&process)?;
    let spec = json!({ "includedNamespaces": ["fill-*"], "includedResources": ["configmaps"] });
    let ended = servers::back_up(&scene.client(), &name, &spec).await?;
    let round = meter.stop(ended.took, ended.items())?;
    process.stop().await?;
    ended.completed()?;
    scene
        .kubectl(&["-n", DEFAULT_NAMESPACE, "delete", "backup", &name])
        .await?;
    fs::remove_dir_all(bucket.folder().join("backups").join(&name))?;
    Ok(round)
}

/// Medians of both servers, what a call costs each, and whether ours costs no more.
fn table(velero: &Column, ours: &Column) -> String {
    let seconds = |rounds: &[Round]| median(rounds, |round| round.wall.as_secs_f64());
    let shown = |figure: Option<f64>| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"))
    };
    let line = |name: &str, of: &dyn Fn(&Column) -> Option<f64>| {
        let (their, our) = (of(velero), of(ours));
        let ratio = their.zip(our).map(|(their, our)| their / our);
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}x"));
        format!(
            "  {name:<19} {:>9} {:>9} {ratio:>9}",
            shown(their),
            shown(our)
        )
    };
    let good = per_call(velero)
        .zip(per_call(ours))
        .map(|(their, our)| our <= their);
    [
        format!(
            "  {:<19} {:>9} {:>9} {:>9}",
            "medians", "velero", "bowline", "vs velero"
        ),
        line("without plugin, s", &|column| seconds(&column.without)),
        line("with plugin, s", &|column| seconds(&column.with)),
        format!(
            "{}  {}",
            line("a call, µs", &per_call),
            verdict(good, "no more than velero")
        ),
    ]
    .join("\n")
}

/// What a call adds, in microseconds.
fn per_call(column: &Column) -> Option<f64> {
    let seconds = |rounds: &[Round]| median(rounds, |round| round.wall.as_secs_f64());
    let calls = column.with.first()?.items;
    let more = seconds(&column.with)? - seconds(&column.without)?;
    Some(more * 1e6 / calls as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Column, table};
    use crate::bench::round::Round;

    fn rounds(seconds: &[u64]) -> Vec<Round> {
        let round = |&seconds| Round {
            wall: Duration::from_secs(seconds),
            cpu: Duration::ZERO,
            peak: 0.0,
            items: 10_000,
            load: 0.0,
        };
        seconds.iter().map(round).collect()
    }

    #[test]
    fn a_call_is_what_the_plugin_adds() {
        let velero = Column {
            without: rounds(&[20, 24, 22]),
            with: rounds(&[32, 30, 33]),
        };
        let ours = Column {
            without: rounds(&[2, 1, 2]),
            with: rounds(&[4, 4, 9]),
        };
        assert_eq!(
            format!("\n{}", table(&velero, &ours)),
            "
  medians                velero   bowline vs velero
  without plugin, s       22.00      2.00     11.0x
  with plugin, s          32.00      4.00      8.0x
  a call, µs            1000.00    200.00      5.0x  wanted no more than velero: reached"
        );
    }

    #[test]
    fn without_a_round_there_is_no_verdict() {
        let text = table(&Column::default(), &Column::default());
        assert!(text.ends_with("wanted no more than velero"), "{text}");
    }
}
