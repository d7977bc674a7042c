//! What developers and CI run beside `cargo test`: generated files, the test bed, the scenarios.

mod bed;
mod crds;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write deploy/crds/*.yaml from the types
    Crds,
    /// A real cluster on this machine
    #[command(subcommand)]
    Bed(bed::Command),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Crds => crds::write(),
        Command::Bed(command) => bed::run(command).await,
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

#[expect(clippy::print_stdout, reason = "this is a tool for the terminal")]
fn say(line: &str) {
    println!("{line}");
}
