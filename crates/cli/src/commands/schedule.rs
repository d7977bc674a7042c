//! `bowline schedule …`: backups at set times.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod get;
pub(crate) mod pause;

use std::io::Write;

use clap::Subcommand;

use crate::{context::Context, output::GetArgs, select::DeleteArgs};

/// What can be done with schedules.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a schedule
    Create(Box<create::Args>),
    /// Get schedules
    Get(GetArgs),
    /// Describe schedules
    Describe(describe::Args),
    /// Pause schedules
    Pause(pause::Args),
    /// Let paused schedules go on
    Unpause(pause::Args),
    /// Delete schedules
    Delete(DeleteArgs),
}

pub(crate) async fn run(
    command: Command,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create::run(*args, ctx, out).await,
        Command::Get(args) => get::run(args, ctx, out).await,
        Command::Describe(args) => describe::run(args, ctx, out).await,
        Command::Pause(args) => pause::run(args, pause::Wish::Paused, ctx, out).await,
        Command::Unpause(args) => pause::run(args, pause::Wish::Running, ctx, out).await,
        Command::Delete(args) => delete::run(args, ctx, out).await,
    }
}
