//! `bowline node-agent server`: the process of one node, in a DaemonSet or on a desk.

use bowline_server::node::{self, Settings};
use tokio_util::sync::CancellationToken;

use super::server::{start_log, stop_on_signal};
use crate::context::Context;

/// Commands of `bowline node-agent`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Copy the volumes of one node's pods, for the server.
    Server(Box<Args>),
}

/// Arguments of `bowline node-agent server`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
}

pub(crate) async fn run(command: Command, ctx: &Context) -> anyhow::Result<()> {
    let Command::Server(args) = command;
    let settings = args.settings;
    start_log(settings.log_level, settings.log_format);
    let client = ctx.client().await?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        "Bowline node agent starts"
    );
    node::run(client, &ctx.namespace, settings, stop)
        .await
        .map_err(|error| anyhow::anyhow!(error.chain()))
}
