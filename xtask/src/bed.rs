//! `cargo xtask bed`: the cluster on this machine.

use std::time::Instant;

use bowline_testbed::{Bed, Cache, Mode, azurite, bed, build, peer, requirements};
use clap::Subcommand;

use crate::say;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build the programs of the bed, each once, or the named ones
    Build { names: Vec<String> },
    /// Start a bed; without more, one with a node
    Up {
        /// Only the API, on free ports; any number run side by side
        #[arg(long, conflicts_with = "velero")]
        api_only: bool,
        /// Install the real Velero in it, with node agents, backing up into the bed's S3
        #[arg(long)]
        velero: bool,
    },
    /// End every bed
    Down,
    /// Show the beds and what they lack
    Status,
    /// Print the missing Debian packages, for scripts
    Packages,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    let cache = Cache::open()?;
    match command {
        Command::Build { names } if !names.is_empty() => build::named(&cache, &names, &say)?,
        Command::Build { .. } => {
            build::all(&cache, &say)?;
            if let Err(why) = azurite::install(&cache, &say).await {
                say(&format!("without azurite: {why:#}"));
            }
            say(&format!("programs are in {}", cache.bin().display()));
        }
        Command::Up { api_only, velero } => {
            let mode = if api_only { Mode::Api } else { Mode::Node };
            let began = Instant::now();
            let bed = Bed::up(&cache, mode, None, &say).await?;
            say(&format!("up in {:.1} s", began.elapsed().as_secs_f64()));
            if velero {
                peer::install(&bed, &bed.bucket("velero")?, &[]).await?;
                say(&format!(
                    "velero installed after {:.1} s",
                    began.elapsed().as_secs_f64()
                ));
            }
            say(&format!(
                "S3 at {}; its keys are in {}/bed.json",
                bed.s3().endpoint,
                bed.folder().display()
            ));
            say(&format!("export KUBECONFIG={}", bed.kubeconfig().display()));
            say(&format!("export PATH={}:$PATH", cache.bin().display()));
        }
        Command::Down => bed::down_all(&cache, None, &say).await?,
        Command::Status => status(&cache)?,
        Command::Packages => say(&requirements::missing_packages().join(" ")),
    }
    Ok(())
}

fn status(cache: &Cache) -> anyhow::Result<()> {
    let due = build::due(cache);
    if !due.is_empty() {
        say(&format!("to build: {}", due.join(", ")));
        if let Err(lack) = requirements::go() {
            say(&lack.to_string());
        }
    }
    if let Err(lack) = requirements::node() {
        say(&lack.to_string());
    }
    let beds = bed::status(cache)?;
    if beds.is_empty() {
        say("no bed runs");
    }
    for bed in beds {
        say(&format!(
            "{}  {}  {}",
            bed.folder.display(),
            bed.server,
            bed.s3
        ));
        for (process, alive) in bed.processes {
            let state = if alive { "runs" } else { "ended" };
            say(&format!(
                "  {:<24} {:>8}  {state}",
                process.name, process.pid
            ));
        }
    }
    Ok(())
}
