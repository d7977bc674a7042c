//! `bowline backup …`: backups, from their creation to their deletion.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod download;
pub(crate) mod get;
pub(crate) mod logs;
pub(crate) mod spec;
pub(crate) mod volumes;

use std::{io::Write, process::ExitCode};

use clap::Subcommand;

use crate::{
    context::Context,
    output::{GetArgs, describe::format::DescribeArgs, volumes::VolumesArgs},
    select::DeleteArgs,
};

/// What can be done with backups.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a backup
    Create(Box<create::Args>),
    /// Get backups
    Get(GetArgs),
    /// Describe backups
    Describe(DescribeArgs),
    /// Get the log of a backup
    Logs(logs::Args),
    /// Show what became of each volume; exits with 1 when one has no good copy
    Volumes(VolumesArgs),
    /// Download all objects of a backup
    Download(download::Args),
    /// Delete backups
    Delete(DeleteArgs),
}

pub(crate) async fn run(
    command: Command,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => return create::run(*args, ctx, out).await,
        Command::Get(args) => get::run(args, ctx, out).await?,
        Command::Describe(args) => describe::run(args, ctx, out).await?,
        Command::Logs(args) => logs::run(args, ctx, out).await?,
        Command::Download(args) => download::run(args, ctx, out).await?,
        Command::Volumes(args) => return volumes::run(args, ctx, out).await,
        Command::Delete(args) => delete::run(args, ctx, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}
