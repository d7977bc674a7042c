//! `bowline restore volumes`: what became of each volume of a restore, one row each.

mod live;

use std::{io::Write, process::ExitCode};

use anyhow::bail;
use bowline_api::{
    files::RestoreVolumeInfo,
    v1::{DownloadTargetKind, Restore, RestorePhase},
};
use kube::Api;

use super::{describe::files, phase};
use crate::{
    cluster::{Plain, is_not_found},
    context::Context,
    download::file::File,
    output::volumes::{Source, Volume, VolumesArgs, print},
};

pub(crate) async fn run(
    args: VolumesArgs,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let client = ctx.client().await?;
    let api: Api<Restore> = Api::namespaced(client.clone(), &ctx.namespace);
    let name = &args.name;
    let restore = match api.get(name).await {
        Err(error) if is_not_found(&error) => bail!("Restore \"{name}\" does not exist."),
        other => other.plain()?,
    };
    let phase = phase(&restore);
    if matches!(phase, RestorePhase::FailedValidation | RestorePhase::Failed) {
        bail!("restore \"{name}\" is {phase}: it has no volumes");
    }
    let files = files(ctx, &client, &args.trust, &restore).await;
    let found: File<Vec<RestoreVolumeInfo>> =
        files.read(DownloadTargetKind::RestoreVolumeInfo).await;
    let (volumes, caveat) = match found {
        File::Found(infos) => {
            let mut volumes: Vec<Volume> = infos.iter().map(Volume::from).collect();
            live::settle(ctx, &client, &restore, &mut volumes).await;
            (volumes, None)
        }
        File::Failed(why) => bail!("get restore volume info: {why}"),
        File::Unreadable(why) => bail!("read restore volume info: {why}"),
        File::Missing => {
            let volumes = live::copies(ctx, &client, &restore).await;
            (volumes, Some(why_incomplete(name, &restore)))
        }
    };
    let source = Source {
        kind: "restore",
        name: name.clone(),
        caveat,
    };
    print(volumes, &source, &args, out)
}

/// What is said of a restore whose file is not there.
fn why_incomplete(name: &str, restore: &Restore) -> String {
    let ended = restore.status.as_ref().and_then(|s| s.completion_timestamp);
    match ended {
        Some(_) => format!(
            "restore \"{name}\" has no volume info: an old version made it, or its log says why; only \
             copies that are still in the cluster are known"
        ),
        None => format!(
            "restore \"{name}\" is not over: its volume info is not written yet, and only copies that \
             were begun are known"
        ),
    }
}
