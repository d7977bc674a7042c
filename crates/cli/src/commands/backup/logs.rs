//! `bowline backup logs`: the log that the server kept with the backup.

use std::io::Write;

use anyhow::bail;
use bowline_api::v1::{Backup, BackupPhase, DownloadTargetKind};
use kube::Api;

use crate::{
    cluster::{Plain, is_not_found},
    context::Context,
    download::{Downloader, FetchArgs},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backup
    name: String,

    #[command(flatten)]
    fetch: FetchArgs,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let api: Api<Backup> = Api::namespaced(client.clone(), &ctx.namespace);
    let name = &args.name;
    let backup = match api.get(name).await {
        Err(error) if is_not_found(&error) => bail!("backup \"{name}\" does not exist"),
        other => other.plain()?,
    };
    let phase = backup.status.as_ref().and_then(|s| s.phase.as_ref());
    if !phase.is_some_and(has_log) {
        bail!(
            "logs for backup \"{name}\" are not available until it's finished processing, please \
             wait until the backup has a phase of Completed or Failed and try again"
        );
    }
    let downloader = Downloader::of_backup(ctx, &client, &args.fetch.trust, &backup).await?;
    downloader
        .log::<Backup>(DownloadTargetKind::BackupLog, args.fetch.timeout()?, out)
        .await
}

/// Whether a backup in this phase has its log in the bucket.
fn has_log(phase: &BackupPhase) -> bool {
    matches!(
        phase,
        BackupPhase::Completed
            | BackupPhase::PartiallyFailed
            | BackupPhase::Failed
            | BackupPhase::WaitingForPluginOperations
            | BackupPhase::WaitingForPluginOperationsPartiallyFailed
            | BackupPhase::Finalizing
            | BackupPhase::FinalizingPartiallyFailed
    )
}
