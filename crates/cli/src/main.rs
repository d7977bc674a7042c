//! The `bowline` program: one subcommand per file in `commands`.

mod cluster;
mod commands;
mod config;
mod context;
mod download;
mod flags;
mod output;
mod select;
mod server_status;
mod wait;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};

use cluster::Hinted;
use context::{Context, Globals};

/// Back up and restore Kubernetes cluster resources.
///
/// Commands read in both orders: `bowline backup get` and `bowline get backups` are the same.
#[derive(Parser)]
#[command(name = "bowline", version, args_override_self = true)]
struct Args {
    #[command(flatten)]
    globals: Globals,

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
    /// Run the node agent: copies volumes of one node
    #[command(subcommand)]
    NodeAgent(commands::node_agent::Command),
    /// Move the data of one volume, in a pod that a node agent made
    #[command(subcommand, hide = true)]
    DataMover(commands::data_mover::Command),
    /// Wait in a restored pod until its volumes are complete
    #[command(hide = true)]
    RestoreHelper(commands::restore_helper::Args),
    /// Put Bowline into a cluster.
    Install(Box<commands::install::Args>),
    /// Take Bowline out of a cluster; what is in buckets stays.
    Uninstall(commands::uninstall::Args),
    /// Work with backups
    #[command(subcommand)]
    Backup(commands::backup::Command),
    /// Work with restores
    #[command(subcommand)]
    Restore(commands::restore::Command),
    /// Work with schedules
    #[command(subcommand)]
    Schedule(commands::schedule::Command),
    /// Work with backup storage locations
    #[command(subcommand)]
    BackupLocation(commands::location::Command),
    /// Work with volume snapshot locations
    #[command(subcommand)]
    SnapshotLocation(commands::snapshot_location::Command),
    /// Work with plugins
    #[command(subcommand)]
    Plugin(commands::plugin::Command),
    /// Work with repositories of volume data
    #[command(subcommand)]
    Repo(commands::repo::Command),
    /// Create things
    #[command(subcommand)]
    Create(commands::verbs::Create),
    /// Get things
    #[command(subcommand)]
    Get(commands::verbs::Get),
    /// Describe things
    #[command(subcommand)]
    Describe(commands::verbs::Describe),
    /// Delete things
    #[command(subcommand)]
    Delete(commands::verbs::Delete),
    /// Print the versions of client and server
    Version(commands::version::Args),
    /// The client itself
    #[command(subcommand)]
    Client(commands::client::Command),
    /// Print a completion script
    Completion(commands::completion::Args),
}

fn main() -> ExitCode {
    // Each thread keeps memory of its own; none of what blocks here gains from more threads. A copy
    // of a volume however keeps one for as long as it takes, and needs others beside it.
    let copies = std::env::args_os().any(|word| word == "node-agent");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(if copies { 256 } else { 8 })
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(start()),
        Err(error) => {
            say(&format!("bowline: start threads: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn start() -> ExitCode {
    if let Some(args) = commands::restore_helper::by_name(std::env::args_os()) {
        return ended(commands::restore_helper::run(args, &mut io::stdout()).await);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing chose a TLS provider before main");
    ended(run(args, &mut io::stdout()).await)
}

fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bowline: {error:#}"));
            if let Some(hint) = Hinted::of(&error) {
                say(&format!("hint: {hint}"));
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args, mut out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let ctx = Context::new(args.globals);
    match args.command {
        Command::Demo(args) => commands::demo::run(args, &mut out).await?,
        Command::Apiserver(args) => commands::apiserver::run(args, &mut out).await?,
        Command::Server(args) => commands::server::run(*args, &ctx).await?,
        Command::NodeAgent(command) => commands::node_agent::run(command, &ctx).await?,
        Command::DataMover(command) => commands::data_mover::run(command, &ctx).await?,
        Command::RestoreHelper(args) => return commands::restore_helper::run(args, out).await,
        Command::Install(args) => commands::install::run(*args, &ctx, out).await?,
        Command::Uninstall(args) => commands::uninstall::run(args, &ctx, out).await?,
        Command::Backup(command) => return commands::backup::run(command, &ctx, out).await,
        Command::Restore(command) => return commands::restore::run(command, &ctx, out).await,
        Command::Schedule(command) => commands::schedule::run(command, &ctx, out).await?,
        Command::BackupLocation(command) => commands::location::run(command, &ctx, out).await?,
        Command::SnapshotLocation(command) => {
            commands::snapshot_location::run(command, &ctx, out).await?;
        }
        Command::Plugin(command) => commands::plugin::run(command, &ctx, out).await?,
        Command::Repo(command) => commands::repo::run(command, &ctx, out).await?,
        Command::Create(command) => return commands::verbs::create(command, &ctx, out).await,
        Command::Get(command) => commands::verbs::get(command, &ctx, out).await?,
        Command::Describe(command) => commands::verbs::describe(command, &ctx, out).await?,
        Command::Delete(command) => commands::verbs::delete(command, &ctx, out).await?,
        Command::Version(args) => commands::version::run(args, &ctx, out).await?,
        Command::Client(command) => commands::client::run(command, out)?,
        Command::Completion(args) => commands::completion::run(&args, Args::command(), out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Help is what was asked for, also by a lone `bowline backup`; anything else is a mistake, and exits
/// as Velero does.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = io::stdout().write_all(text.as_bytes());
        return ExitCode::SUCCESS;
    }
    let message = text.strip_prefix("error: ").unwrap_or(&text);
    say(&format!("bowline: {}", message.trim_end()));
    ExitCode::FAILURE
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
