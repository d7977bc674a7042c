//! `bowline snapshot-location …`: where plugins keep snapshots of volumes.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod set;

use std::io::Write;

use bowline_api::names::snapshot_type;
use clap::Subcommand;

use crate::{context::Context, output::GetArgs, select::DeleteArgs};

/// What can be done with volume snapshot locations.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a volume snapshot location
    Create(create::Args),
    /// Get volume snapshot locations
    Get(GetArgs),
    /// Change a volume snapshot location
    Set(set::Args),
    /// Delete volume snapshot locations
    Delete(DeleteArgs),
}

pub(crate) async fn run(
    command: Command,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create::run(args, ctx, out).await,
        Command::Get(args) => get::run(args, ctx, out).await,
        Command::Set(args) => set::run(args, ctx, out).await,
        Command::Delete(args) => delete::run(args, ctx, out).await,
    }
}

/// `local`, `cloud`, or nothing for neither.
fn snapshot_type(text: &str) -> Result<String, String> {
    match text {
        "" | snapshot_type::LOCAL | snapshot_type::CLOUD => Ok(text.to_owned()),
        other => Err(format!("invalid value: {other:?}")),
    }
}
