//! `cargo xtask bench volume`: the same tree into the same store by restic, by kopia and by our
//! engine in turns, and back; and what reading and copying the tree alone take.
//!
//! ```text
//!   for each round and tool: empty repository ─▶ first ─▶ again ─▶ a hundredth changed ─▶ restored, compared
//! ```

mod report;
pub(super) mod same;
mod tool;
pub(super) mod tree;

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context, ensure};
use bowline_testbed::{Cache, Mode, build, measure::Cost, scene::Scene};
use clap::ValueEnum;

use self::{
    report::{Report, Step},
    tool::{Place, Repository, Tool},
    tree::{Kind, State, Tree},
};
use super::stage;
use crate::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which trees, one after another
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "mixed,small,big"
    )]
    trees: Vec<Kind>,
    /// Where the repositories are
    #[arg(long, value_enum, value_delimiter = ',', default_value = "folder,s3")]
    stores: Vec<Store>,
    /// How often each tool copies a tree
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How much of a tree: 0.1 is a tenth
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Who copies
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "restic,kopia,bowline"
    )]
    tools: Vec<Tool>,
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    /// A folder on this machine
    Folder,
    /// The S3 of a bed
    S3,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.scale > 0.0 && args.scale <= 1.0,
        "--scale is {}, not more than 0 and at most 1",
        args.scale
    );
    let cache = Cache::open()?;
    let programs = ["restic", "kopia"].map(str::to_owned);
    build::named(&cache, &programs, &say)?;
    // Of the bed, only S3 has work to do.
    stage::on_bed(&cache, Mode::Embedded, async |scene| {
        for &kind in &args.trees {
            tokio::task::block_in_place(|| measure(scene, &cache, args, kind))?;
        }
        Ok(())
    })
    .await
}

fn measure(scene: &Scene, cache: &Cache, args: &Args, kind: Kind) -> anyhow::Result<()> {
    let folder = scene.folder().join(kind.name());
    let began = Instant::now();
    let tree = Tree::make(&folder.join("tree"), kind, args.scale)?;
    say(&format!(
        "\n{}: {:.2} GiB in {} files, made in {:.1} s",
        kind.name(),
        tree.bytes() as f64 / f64::from(1 << 30),
        tree.count(),
        began.elapsed().as_secs_f64()
    ));
    floors(&tree, &folder)?;
    for &store in &args.stores {
        let (place, name) = match store {
            Store::Folder => (Place::Folder(folder.join("store")), "a folder"),
            Store::S3 => (Place::S3(Box::new(scene.bucket(kind.name())?)), "S3"),
        };
        say(&format!("{} into {name}", kind.name()));
        let mut report = Report::default();
        for n in 1..=args.rounds {
            for &tool in &args.tools {
                let target = folder.join(format!("{store:?}-{n}-{}", tool.name()));
                let own = folder.join("own");
                round(cache, tool, &tree, &place, (&own, &target), &mut report)
                    .with_context(|| format!("{} with {name}", tool.name()))?;
                say(&format!(
                    "  round {n} of {} by {}",
                    args.rounds,
                    tool.name()
                ));
            }
        }
        say(&report.to_string());
        fs::remove_dir_all(place.folder())?;
    }
    Ok(fs::remove_dir_all(folder)?)
}

/// All steps by one tool, in a repository of its own.
fn round(
    cache: &Cache,
    tool: Tool,
    tree: &Tree,
    place: &Place,
    (own, target): (&Path, &Path),
    report: &mut Report,
) -> anyhow::Result<()> {
    tree.set(State::First)?;
    let repository = Repository::create(tool, cache, place, own)?;
    let mut last: Option<String> = None;
    for step in [Step::First, Step::Unchanged, Step::Changed] {
        if step == Step::Changed {
            tree.set(State::Changed)?;
        }
        settle()?;
        let (id, cost) = repository
            .back_up(&tree.folder, last.as_deref())
            .context(step.name())?;
        report.add(step, tool, cost);
        last = Some(id);
    }
    report.size(tool, place.size()?);
    fs::create_dir_all(target)?;
    settle()?;
    let snapshot = last.context("no snapshot")?;
    let cost = repository.restore(&snapshot, target).context("restore")?;
    report.add(Step::Restore, tool, cost);
    let bytes = same::same(&tree.folder, target, true).context("what was restored")?;
    ensure!(bytes == tree.bytes(), "{bytes} bytes were restored");
    // Removed when all have had their turn: many inodes that were freed a moment ago make the file
    // system slow for whoever comes next.
    tree.empty(target)?;
    Ok(fs::remove_dir_all(own)?)
}

/// What was written before is written out, so that nobody pays for another.
fn settle() -> anyhow::Result<()> {
    Cost::of(Command::new("sync")).map(drop)
}

/// What cannot be avoided: reading the tree, and writing it.
fn floors(tree: &Tree, folder: &Path) -> anyhow::Result<()> {
    settle()?;
    let mut read = Command::new("sh");
    read.args(["-c", "find . -type f -exec cat {} + >/dev/null"])
        .current_dir(&tree.folder);
    let (_, read) = Cost::of(read)?;
    let target = folder.join("copied");
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(&tree.folder).arg(&target);
    let (_, copy) = Cost::of(copy)?;
    tree.empty(&target)?;
    say(&format!(
        "  floors: cat {:.2} s, cp -a {:.2} s",
        read.wall.as_secs_f64(),
        copy.wall.as_secs_f64()
    ));
    Ok(())
}
