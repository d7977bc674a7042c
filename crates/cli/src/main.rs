//! The `bowline` program: one subcommand per file in `commands`.

mod commands;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand};

/// Backup, restore and migration for Kubernetes.
#[derive(Parser)]
#[command(name = "bowline", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try it without a cluster: a small shop in an embedded Kubernetes API.
    Demo(commands::demo::Args),
    /// Serve an in-memory Kubernetes API.
    Apiserver(commands::apiserver::Args),
    /// Run the server: the control plane.
    Server(Box<commands::server::Args>),
    /// Put Bowline into a cluster; so far its CustomResourceDefinitions.
    Install(commands::install::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing chose a TLS provider before main");
    let done = match args.command {
        Command::Demo(args) => commands::demo::run(args, &mut io::stdout().lock()).await,
        Command::Apiserver(args) => commands::apiserver::run(args, &mut io::stdout().lock()).await,
        Command::Server(args) => commands::server::run(*args).await,
        Command::Install(args) => commands::install::run(args, &mut io::stdout().lock()).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bowline: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Whoever reads us has seen enough, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|io| io.kind() == io::ErrorKind::BrokenPipe)
}

#[expect(
    clippy::print_stderr,
    reason = "talk goes to stderr, and here is where we talk"
)]
fn say(message: &str) {
    eprintln!("{message}");
}
