//! `bowline restore logs`: the log that the server kept with the restore.

use std::io::Write;

use anyhow::bail;
use bowline_api::v1::{DownloadTargetKind, Restore, RestorePhase};
use kube::Api;

use super::phase;
use crate::{
    cluster::{Plain, is_not_found},
    context::Context,
    download::{Downloader, FetchArgs},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The restore
    name: String,

    #[command(flatten)]
    fetch: FetchArgs,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let api: Api<Restore> = Api::namespaced(client.clone(), &ctx.namespace);
    let name = &args.name;
    let restore = match api.get(name).await {
        Err(error) if is_not_found(&error) => bail!("Restore \"{name}\" does not exist."),
        other => other.plain()?,
    };
    if !has_log(&phase(&restore)) {
        bail!(
            "Logs for restore \"{name}\" are not available until it's finished processing. Please \
             wait until the restore has a phase of Completed or Failed and try again."
        );
    }
    let downloader = Downloader::of_restore(ctx, &client, &args.fetch.trust, &restore).await?;
    downloader
        .log::<Restore>(DownloadTargetKind::RestoreLog, args.fetch.timeout()?, out)
        .await
}

/// Whether a restore in this phase has its log in the bucket.
fn has_log(phase: &RestorePhase) -> bool {
    matches!(
        phase,
        RestorePhase::Completed
            | RestorePhase::PartiallyFailed
            | RestorePhase::Failed
            | RestorePhase::WaitingForPluginOperations
            | RestorePhase::WaitingForPluginOperationsPartiallyFailed
            | RestorePhase::Finalizing
            | RestorePhase::FinalizingPartiallyFailed
    )
}
