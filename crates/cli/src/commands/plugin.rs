//! `bowline plugin …`: the plugins of the server. They come as images, each an init container of
//! the server's Deployment that copies its programs into a volume.

pub(crate) mod add;
pub(crate) mod container;
pub(crate) mod deployment;
pub(crate) mod get;
pub(crate) mod remove;

use std::io::Write;

use clap::Subcommand;

use crate::context::Context;

/// What can be done with plugins.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Add a plugin
    Add(add::Args),
    /// Remove a plugin
    Remove(remove::Args),
    /// Get the plugins of the server
    Get(get::Args),
}

pub(crate) async fn run(
    command: Command,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        Command::Add(args) => add::run(args, ctx, out).await,
        Command::Remove(args) => remove::run(args, ctx).await,
        Command::Get(args) => get::run(args, ctx, out).await,
    }
}
