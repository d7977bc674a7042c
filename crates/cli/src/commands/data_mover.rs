//! `bowline data-mover`: the process in a pod that moves the data of one volume. Made by node agents.

use bowline_server::node::mover::{self, Settings};
use tokio_util::sync::CancellationToken;

use super::server::{start_log, stop_on_signal};
use crate::context::Context;

/// Commands of `bowline data-mover`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Move the data of a snapshot's volume into the bucket.
    Backup(Box<BackupArgs>),
    /// Move data from the bucket into a volume.
    Restore(Box<RestoreArgs>),
}

/// Arguments of `bowline data-mover backup`.
#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// The DataUpload.
    #[arg(long, value_name = "NAME")]
    data_upload: String,
    #[command(flatten)]
    settings: Settings,
}

/// Arguments of `bowline data-mover restore`.
#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The DataDownload.
    #[arg(long, value_name = "NAME")]
    data_download: String,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) async fn run(command: Command, ctx: &Context) -> anyhow::Result<()> {
    let settings = match &command {
        Command::Backup(args) => &args.settings,
        Command::Restore(args) => &args.settings,
    };
    start_log(settings.log_level, settings.log_format);
    let client = ctx.client().await?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let namespace = &ctx.namespace;
    let moved = match &command {
        Command::Backup(args) => {
            mover::back_up(client, namespace, &args.data_upload, &args.settings, stop).await
        }
        Command::Restore(args) => {
            mover::restore(client, namespace, &args.data_download, &args.settings, stop).await
        }
    };
    moved.map_err(|error| anyhow::anyhow!(error.chain()))
}
