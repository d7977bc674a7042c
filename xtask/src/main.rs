//! What developers and CI run beside `cargo test`: generated files, the test bed, the scenarios.

mod bed;
mod bench;
mod conformance;
mod crds;
mod e2e;
mod image;
mod kubernetes_api;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

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
    /// Record the real API server's groups and schemas for the embedded one
    KubernetesApi,
    /// Record the real API server's answers to the conformance scripts
    Conformance {
        /// Only this group
        group: Option<String>,
    },
    /// Write the program, or a plugin, as a container image, without Docker
    Image(image::Args),
    /// Measure
    #[command(subcommand)]
    Bench(bench::What),
    /// A real cluster on this machine
    #[command(subcommand)]
    Bed(bed::Command),
    /// Run scenarios on real clusters, all or the named ones
    E2e { names: Vec<String> },
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Crds => crds::write(),
        Command::KubernetesApi => kubernetes_api::record().await,
        Command::Conformance { group } => conformance::record(group.as_deref()).await,
        Command::Image(args) => image::write(args),
        Command::Bench(what) => bench::run(what).await,
        Command::Bed(command) => bed::run(command).await,
        Command::E2e { names } => e2e::run(&names).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
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
