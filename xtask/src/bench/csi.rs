//! `cargo xtask bench csi`: many claims of a CSI driver, backed up and restored by Velero and by Bowline
//! in turns: how long the snapshots take, how long it takes until the claims are back, and how long the
//! restore's volume info.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bowline_api::files::restore_suffix;
use bowline_testbed::{
    Cache, Mode, Process,
    bed::Bucket,
    csi::{
        Csi,
        objects::{self, Kind},
    },
    peer,
    scene::Scene,
    servers::{self, Server, ended},
};
use serde_json::json;

use super::{
    round::{Meter, Round, median},
    stage,
    table::verdict,
};
use crate::say;

/// A server of many claims takes its time.
const LIMIT: Duration = Duration::from_secs(7200);
/// What our server says when a restore's volume info is written.
const WRITTEN: &str = "volume info is written";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many claims there are
    #[arg(long, default_value_t = 200)]
    claims: usize,
    /// How often each server backs them up and restores them
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

/// A backup and a restore by one server.
#[derive(Debug, Clone, Copy)]
struct Pass {
    backup: Round,
    restore: Round,
    /// How long the restore's volume info took.
    told: Duration,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    stage::on_bed(&cache, Mode::Api, async |scene| measure(scene, args).await).await
}

async fn measure(scene: &Scene, args: &Args) -> anyhow::Result<()> {
    let csi = Csi::on(scene.bed()).await?;
    let bucket = scene.bucket("bench")?;
    peer::prepare(scene, &bucket).await?;
    let namespace = scene.namespace("claims").await?;
    let names: Vec<String> = (0..args.claims).map(|n| format!("claim-{n:04}")).collect();
    let claims: Vec<_> = names
        .iter()
        .map(|name| objects::claim(&namespace, name, Kind::Files, "1Mi"))
        .collect();
    let began = Instant::now();
    scene.apply(&claims).await?;
    for name in &names {
        csi.bound(&namespace, name).await?;
    }
    say(&format!(
        "\n{} claims, bound in {:.1} s",
        names.len(),
        began.elapsed().as_secs_f64()
    ));
    let mut columns = Server::BOTH.map(|_| Vec::new());
    for n in 1..=args.rounds {
        // Ours first: if the other takes all evening, there is something to read meanwhile.
        for (server, passes) in Server::BOTH.into_iter().zip(&mut columns).rev() {
            let id = format!("{}-{n}", server.name());
            let pass = pass(scene, &bucket, (&namespace, &names), server, &id).await?;
            say(&format!(
                "  {:<7} backup  {n}  {}",
                server.name(),
                pass.backup
            ));
            say(&format!(
                "  {:<7} restore {n}  {}; volume info {:.3} s",
                server.name(),
                pass.restore,
                pass.told.as_secs_f64()
            ));
            passes.push(pass);
        }
    }
    let [velero, ours] = columns;
    say(&table(&velero, &ours));
    Ok(())
}

async fn pass(
    scene: &Scene,
    bucket: &Bucket,
    (namespace, names): (&str, &[String]),
    server: Server,
    id: &str,
) -> anyhow::Result<Pass> {
    let process = server.start(scene, &["--features=EnableCSI"]).await?;
    let client = scene.client();

    let name = scene.fresh(&format!("{id}-there"));
    let meter = Meter::start(&process)?;
    let began = Instant::now();
    let spec = json!({ "includedNamespaces": [namespace], "csiSnapshotTimeout": "10m" });
    let made = servers::create_backup(&client, &name, &spec).await?;
    let backup = servers::Ended {
        backup: ended(&client, &made, LIMIT).await?,
        took: began.elapsed(),
    };
    let measured = meter.stop(backup.took, backup.items())?;
    let backup = backup.completed()?;
    let status = backup.backup.status.clone().unwrap_or_default();
    let taken = status.csi_volume_snapshots_completed.unwrap_or_default();
    ensure!(
        usize::try_from(taken)? == names.len(),
        "{taken} snapshots of {}",
        names.len()
    );

    let back = scene.fresh(&format!("{id}-back"));
    let meter = Meter::start(&process)?;
    let spec = json!({ "backupName": name, "namespaceMapping": { namespace: back } });
    let restore = servers::restore(&client, &back, &spec).await?;
    let restored = meter.stop(restore.took, restore.items())?;
    restore.completed()?;
    let told = match server {
        Server::Velero => between_files(bucket, &back)?,
        Server::Ours => in_the_log(&process, &back)?,
    };
    process.stop().await?;
    scene.kubectl(&["delete", "namespace", &back]).await?;
    Ok(Pass {
        backup: measured,
        restore: restored,
        told,
    })
}

/// Velero puts the file of operations, makes the volume info and puts that.
fn between_files(bucket: &Bucket, restore: &str) -> anyhow::Result<Duration> {
    let folder = bucket.folder().join("restores").join(restore);
    let put = |suffix: &str| -> anyhow::Result<_> {
        let names = fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
        let found = names.iter().find(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().ends_with(suffix)
        });
        let found = found.with_context(|| format!("no file {suffix} of {restore}"))?;
        Ok(found.metadata()?.modified()?)
    };
    let before = put(restore_suffix::ITEM_OPERATIONS)?;
    Ok(put(restore_suffix::VOLUME_INFO)?.duration_since(before)?)
}

/// Ours says it.
fn in_the_log(process: &Process, restore: &str) -> anyhow::Result<Duration> {
    let log = fs::read_to_string(&process.log)?;
    said(&log, restore).with_context(|| format!("the log says nothing of {restore}"))
}

fn said(log: &str, restore: &str) -> Option<Duration> {
    let of = format!("restore={restore}");
    let mut lines = log.lines();
    let line = lines.find(|line| line.contains(WRITTEN) && line.contains(&of))?;
    let millis = line.split("millis=").nth(1)?.split(' ').next()?;
    millis.parse().ok().map(Duration::from_millis)
}

fn table(velero: &[Pass], ours: &[Pass]) -> String {
    let line = |name: &str, wanted: Option<f64>, of: fn(&Pass) -> f64| {
        let (their, our) = (median(velero, of), median(ours, of));
        let shown = |figure: Option<f64>| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.3}"))
        };
        let ratio = their.zip(our).map(|(their, our)| their / our);
        let fast = wanted.map_or_else(String::new, |wanted| {
            verdict(ratio.map(|ratio| ratio >= wanted), &format!("{wanted}x"))
        });
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}x"));
        let (their, our) = (shown(their), shown(our));
        let line = format!("  {name:<15} {their:>9} {our:>9} {ratio:>9}  {fast}");
        line.trim_end().to_owned()
    };
    [
        format!(
            "  {:<15} {:>9} {:>9} {:>9}",
            "medians", "velero", "bowline", "vs velero"
        ),
        line("backup, s", Some(10.0), |pass| {
            pass.backup.wall.as_secs_f64()
        }),
        // The driver fills one volume after the other, for both.
        line("restore, s", None, |pass| pass.restore.wall.as_secs_f64()),
        line("volume info, s", Some(1.0), |pass| pass.told.as_secs_f64()),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Pass, said, table};
    use crate::bench::round::Round;

    #[test]
    fn medians_and_how_much_faster() {
        let round = |seconds| Round {
            wall: Duration::from_secs(seconds),
            cpu: Duration::ZERO,
            peak: 0.0,
            items: 0,
            load: 0.0,
        };
        let pass = |backup, restore, told| Pass {
            backup: round(backup),
            restore: round(restore),
            told: Duration::from_millis(told),
        };
        let text = table(&[pass(1000, 60, 800)], &[pass(10, 10, 80)]);
        assert_eq!(
            format!("\n{text}"),
            "
  medians            velero   bowline vs velero
  backup, s        1000.000    10.000    100.0x  wanted 10x: reached
  restore, s         60.000    10.000      6.0x
  volume info, s      0.800     0.080     10.0x  wanted 1x: reached"
        );
    }

    #[test]
    fn the_log_says_how_long() {
        let log = "INFO ended restore=a\nINFO volume info is written restore=b rows=2 millis=7 x\n\
                   INFO volume info is written restore=a rows=2 millis=31\n";
        assert_eq!(said(log, "a"), Some(Duration::from_millis(31)));
        assert_eq!(said(log, "c"), None);
    }
}
