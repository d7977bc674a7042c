//! `cargo xtask bench restore`: the same backup, restored into an empty cluster by Velero with its
//! defaults, by Velero with raised limits and by Bowline, and what creating the objects alone takes.
//!
//! ```text
//!   a cluster is filled ─▶ backed up once ─▶ the bucket is kept
//!   for each round: fresh cluster ─▶ copy of the bucket ─▶ server finds the backup ─▶ restore
//! ```

mod floor;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, label},
    v1::Backup,
};
use bowline_testbed::{
    Cache, Mode, Process,
    fill::Fill,
    measure, peer,
    scene::{self, Scene},
    servers::{self, Server},
    wait_for,
};
use clap::ValueEnum;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, ServiceAccount},
    rbac::v1::Role,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::json;
use tempfile::TempDir;

use self::floor::Floor;
use super::{
    round::{Meter, Round, median},
    stage,
    table::{Column, table, verdict},
};
use crate::say;

/// The most memory that our server may have, in MB.
const MEMORY: f64 = 96.0;
/// How much longer an object may take among many than among fewer.
const GROWTH: f64 = 1.2;
const BACKUP: &str = "filled";
const RESTORE: &str = "back";
const SOON: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many objects the backup has
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How many objects a second backup has, which Bowline alone restores; empty for none
    #[arg(long, default_value = "50000")]
    alone: Alone,
    /// How often Bowline restores a backup
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How often Velero does, with each of its settings
    #[arg(long, default_value_t = 1)]
    velero_rounds: usize,
    /// Who restores
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "velero,velero-raised,bowline"
    )]
    servers: Vec<Who>,
}

/// A number of objects, or none.
#[derive(Debug, Clone, Copy)]
struct Alone(Option<usize>);

impl FromStr for Alone {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|objects| Self(Some(objects)))
    }
}

/// A server and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    /// Velero with its defaults
    Velero,
    /// Velero with raised limits of requests
    VeleroRaised,
    /// Bowline with its defaults
    Bowline,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Velero => "velero",
            Self::VeleroRaised => "velero-raised",
            Self::Bowline => "bowline",
        }
    }

    fn server(self) -> Server {
        match self {
            Self::Velero | Self::VeleroRaised => Server::Velero,
            Self::Bowline => Server::Ours,
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::VeleroRaised => &["--client-qps", "5000", "--client-burst", "10000"],
            Self::Velero | Self::Bowline => &[],
        }
    }

    /// How much faster than it we want to be with so many objects.
    fn target(self, objects: usize) -> Option<f64> {
        match (self, objects) {
            (Self::Velero, 10_000) => Some(30.0),
            (Self::VeleroRaised, 10_000) => Some(20.0),
            _ => None,
        }
    }
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    let is_asked = |who: &Who| args.servers.contains(who);
    // Those that are not asked for keep their columns.
    let all: Vec<(Who, usize)> = Who::value_variants()
        .iter()
        .map(|who| match who {
            who if !is_asked(who) => (*who, 0),
            Who::Velero | Who::VeleroRaised => (*who, args.velero_rounds),
            Who::Bowline => (*who, args.rounds),
        })
        .collect();
    let few = measure(&cache, args.objects, &all).await?;
    let Some(objects) = args.alone.0.filter(|_| is_asked(&Who::Bowline)) else {
        return Ok(());
    };
    let many = measure(&cache, objects, &[(Who::Bowline, args.rounds)]).await?;
    say(&growth(few, many));
    Ok(())
}

/// Everything with so many objects: each server so many times. Returns how many they were, and the
/// median time that one took ours, in ms.
async fn measure(
    cache: &Cache,
    objects: usize,
    servers: &[(Who, usize)],
) -> anyhow::Result<(usize, Option<f64>)> {
    let kept = stage::on_bed(cache, Mode::Api, async |scene| {
        Kept::make(cache, scene, objects).await
    })
    .await?;
    let mut columns: Vec<Column> = servers
        .iter()
        .map(|(who, _)| Column {
            name: who.name(),
            rounds: Vec::new(),
            target: who.target(objects),
        })
        .collect();
    let most = servers.iter().map(|(_, rounds)| *rounds).max();
    for n in 1..=most.unwrap_or_default() {
        for ((who, rounds), column) in servers.iter().zip(&mut columns) {
            if n <= *rounds {
                let round = stage::on_bed(cache, Mode::Api, async |scene| {
                    round(scene, &kept, *who).await
                });
                let (round, calls) = round.await?;
                let calls = calls.map(|calls| format!("; {:.2} calls an object", kept.each(calls)));
                let calls = calls.unwrap_or_default();
                say(&format!("  {} {n}  {round}{calls}", who.name()));
                column.rounds.push(round);
            }
        }
    }
    say(&floors(cache, &kept).await?);
    say(&table(&columns, MEMORY));
    let ours = columns.iter().find(|c| c.name == Who::Bowline.name());
    let time = ours.and_then(|ours| median(&ours.rounds, |round| round.wall.as_secs_f64()));
    let objects = kept.fill.objects();
    Ok((objects, time.map(|time| time * 1e3 / objects as f64)))
}

/// A backup that has survived its cluster.
struct Kept {
    fill: Fill,
    /// What the backup says it has.
    items: i64,
    /// What was in its bucket.
    folder: TempDir,
}

impl Kept {
    /// Fills a cluster and backs it up.
    async fn make(cache: &Cache, scene: &Scene, objects: usize) -> anyhow::Result<Self> {
        let client = scene.client();
        let bucket = scene.bucket("bench")?;
        peer::prepare(scene, &bucket).await?;
        let fill = Fill::of("fill", objects);
        let began = Instant::now();
        fill.make(&client).await?;
        say(&format!(
            "\n{} objects in {} namespaces, filled up in {:.1} s",
            fill.objects(),
            fill.namespaces,
            began.elapsed().as_secs_f64()
        ));
        let server = Server::Ours.start(scene, &[]).await?;
        wait_for_quiet(scene, Some(&server)).await;
        let spec = json!({ "includedNamespaces": fill.names() });
        let ended = servers::back_up(&client, BACKUP, &spec).await?;
        server.stop().await?;
        let items = ended.completed()?.items();
        // Beside the beds, so that the store's attributes of files can be kept too.
        let folder = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(cache.root())?;
        copy(&bucket.folder(), folder.path()).await?;
        Ok(Self {
            fill,
            items,
            folder,
        })
    }

    fn archive(&self) -> PathBuf {
        let file = format!("{BACKUP}.tar.gz");
        self.folder.path().join("backups").join(BACKUP).join(file)
    }

    fn each(&self, calls: u64) -> f64 {
        calls as f64 / self.fill.objects() as f64
    }
}

/// One restore by a fresh server into a fresh cluster, and how many requests it made, if it says.
async fn round(scene: &Scene, kept: &Kept, who: Who) -> anyhow::Result<(Round, Option<u64>)> {
    let client = scene.client();
    let bucket = scene.bucket("bench")?;
    copy(kept.folder.path(), &bucket.folder()).await?;
    peer::prepare(scene, &bucket).await?;
    let process = who.server().start(scene, who.flags()).await?;
    let backups: Api<Backup> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    wait_for("the server to find the backup", SOON, async || {
        Ok(backups.get_opt(BACKUP).await?)
    })
    .await?;
    wait_for_quiet(scene, Some(&process)).await;
    let meter = Meter::start(&process)?;
    let ended = servers::restore(&client, RESTORE, &json!({ "backupName": BACKUP })).await?;
    let round = meter.stop(ended.took, ended.items())?;
    process.stop().await?;
    let ended = ended.completed()?;
    ensure!(
        ended.items() == kept.items,
        "{} items are restored, the backup has {}",
        ended.items(),
        kept.items
    );
    let (found, wanted) = (restored(&client).await?, kept.fill.objects());
    ensure!(found == wanted, "{found} of {wanted} objects are there");
    let calls = match who.server() {
        Server::Ours => Some(calls(&fs::read_to_string(&process.log)?)?),
        Server::Velero => None,
    };
    Ok((round, calls))
}

/// Waits until what went before is over, so that it is not measured.
async fn wait_for_quiet(scene: &Scene, server: Option<&Process>) {
    let mut all = scene.bed().processes().to_vec();
    all.extend(server.cloned());
    if let Err(error) = measure::quiet(&all, SOON).await {
        say(&format!("  begun without quiet: {error:#}"));
    }
}

/// Copies what is in a folder, with the attributes in which the store keeps what it knows.
async fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.join(".")).arg(to);
    scene::run(command).await.map(drop)
}

/// The filled-in objects that are there and belong to the restore.
async fn restored(client: &Client) -> anyhow::Result<usize> {
    // What the cluster puts into namespaces by itself has no tier.
    let selector = format!("{}={RESTORE},tier", label::RESTORE_NAME);
    let mut found = 0;
    for resource in [
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<Role>(&()),
        ApiResource::erase::<Deployment>(&()),
    ] {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let mut page = ListParams::default().labels(&selector).limit(1000);
        loop {
            let list = all.list_metadata(&page).await?;
            found += list.items.len();
            match list.metadata.continue_ {
                Some(next) if !next.is_empty() => page = page.continue_token(&next),
                _ => break,
            }
        }
    }
    Ok(found)
}

/// How many requests our server says that the restore took.
fn calls(log: &str) -> anyhow::Result<u64> {
    let line = log
        .lines()
        .find(|line| line.contains("objects are restored"))
        .context("the server's log does not say that objects are restored")?;
    let calls = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("calls="));
    let calls = calls.and_then(|calls| calls.parse().ok());
    calls.with_context(|| format!("no number of calls in {line:?}"))
}

/// What cannot be avoided, measured in this program.
async fn floors(cache: &Cache, kept: &Kept) -> anyhow::Result<String> {
    let floor = Floor::of(&kept.archive())?;
    let calls = kept.each(floor.calls() as u64);
    let mut parts = Vec::new();
    for at_once in [16, 64] {
        let created = stage::on_bed(cache, Mode::Api, async |scene| {
            wait_for_quiet(scene, None).await;
            floor.create(&scene.client(), at_once).await
        });
        let took = created.await?.as_secs_f64();
        parts.push(format!("{took:.2} s with {at_once} at a time"));
    }
    Ok(format!(
        "  floor: create alone {}; {calls:.2} calls an object",
        parts.join(", ")
    ))
}

/// Whether the time for an object stays the same.
fn growth(few: (usize, Option<f64>), many: (usize, Option<f64>)) -> String {
    let show = |(objects, time): (usize, Option<f64>)| match time {
        Some(time) => format!("{time:.3} ms with {objects}"),
        None => format!("unknown with {objects}"),
    };
    let ratio = few.1.zip(many.1).map(|(few, many)| many / few);
    format!(
        "\n  time for an object: {}, {}; {}  {}",
        show(few),
        show(many),
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
        verdict(
            ratio.map(|ratio| ratio <= GROWTH),
            &format!("at most {GROWTH}x")
        )
    )
}

#[cfg(test)]
mod tests {
    use super::{Alone, calls, growth};

    #[test]
    fn calls_are_read_from_the_log() {
        let log = "2026-01-01T00:00:00Z  INFO restore=back phase=\"InProgress\"\n\
                   2026-01-01T00:00:01Z  INFO objects are restored restore=back items=303 calls=309\n";
        assert_eq!(calls(log).unwrap(), 309);
        assert!(calls("nothing").is_err());
    }

    #[test]
    fn an_object_may_take_a_little_longer_among_many() {
        for (many, end) in [
            (Some(1.19), "1.19x  wanted at most 1.2x: reached"),
            (Some(1.21), "1.21x  wanted at most 1.2x: MISSED"),
            (None, "-  wanted at most 1.2x"),
        ] {
            let text = growth((10, Some(1.0)), (50, many));
            assert!(text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn no_second_backup_when_the_number_is_empty() {
        for (text, objects) in [("", Some(None)), ("7", Some(Some(7))), ("x", None)] {
            let found = text.parse().ok().map(|Alone(objects)| objects);
            assert_eq!(found, objects, "{text:?}");
        }
    }
}
