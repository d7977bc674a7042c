//! `bowline restore …`: restores, from their creation to their deletion.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod describe;
mod dry_run;
pub(crate) mod get;
pub(crate) mod logs;
mod spec;
pub(crate) mod volumes;

use std::{io::Write, process::ExitCode};

use bowline_api::v1::{Restore, RestorePhase};
use clap::Subcommand;

use crate::{
    context::Context,
    output::{GetArgs, describe::format::DescribeArgs, volumes::VolumesArgs},
    select::DeleteArgs,
};

/// What can be done with restores.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a restore
    Create(Box<create::Args>),
    /// Get restores
    Get(GetArgs),
    /// Describe restores
    Describe(DescribeArgs),
    /// Get the log of a restore
    Logs(logs::Args),
    /// Show what became of each volume; exits with 1 when one has no good copy
    Volumes(VolumesArgs),
    /// Delete restores
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
        Command::Volumes(args) => return volumes::run(args, ctx, out).await,
        Command::Delete(args) => delete::run(args, ctx, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a restore stands; one that nobody looked at yet is new.
fn phase(restore: &Restore) -> RestorePhase {
    let status = restore.status.as_ref();
    let phase = status.and_then(|status| status.phase.clone());
    phase
        .filter(|phase| !phase.as_str().is_empty())
        .unwrap_or(RestorePhase::New)
}

/// The same as words, which also say that the restore is being deleted.
fn phase_in_words(restore: &Restore) -> String {
    let phase = phase(restore);
    match restore.metadata.deletion_timestamp {
        Some(_) => format!("{phase} (Deleting)"),
        None => phase.to_string(),
    }
}
