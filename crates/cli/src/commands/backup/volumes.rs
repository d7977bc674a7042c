//! `bowline backup volumes`: what became of each volume of a backup, one row each.

mod live;

use std::{io::Write, process::ExitCode};

use anyhow::bail;
use bowline_api::v1::{Backup, BackupPhase};
use kube::Api;

use super::describe::facts::{self, VolumeStep};
use crate::{
    cluster::{Plain, is_not_found},
    context::Context,
    output::volumes::{Source, Volume, VolumesArgs, print},
};

pub(crate) async fn run(
    args: VolumesArgs,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let client = ctx.client().await?;
    let api: Api<Backup> = Api::namespaced(client.clone(), &ctx.namespace);
    let name = &args.name;
    let backup = match api.get(name).await {
        Err(error) if is_not_found(&error) => bail!("Backup \"{name}\" does not exist."),
        other => other.plain()?,
    };
    let status = backup.status.clone().unwrap_or_default();
    let phase = status.phase.clone().unwrap_or_default();
    if matches!(phase, BackupPhase::FailedValidation | BackupPhase::Failed) {
        bail!("backup \"{name}\" is {phase}: it has no volumes");
    }
    let files = facts::files(ctx, &client, &args.trust, &backup).await;
    let found = match facts::volumes(&files, &status).await {
        Ok(found) => found,
        Err((VolumeStep::Read, why)) => bail!("read backup volume info: {why}"),
        Err((_, why)) => bail!("get backup volume info: {why}"),
    };
    let mut volumes: Vec<Volume> = found.all.iter().map(Volume::from).collect();
    let mut caveat = None;
    match found.is_legacy {
        true => {
            volumes.extend(live::copies(ctx, &client, &backup).await);
            caveat = Some(why_incomplete(name, &backup));
        }
        false => live::settle(ctx, &client, &backup, &mut volumes).await,
    }
    let source = Source {
        kind: "backup",
        name: name.clone(),
        caveat,
    };
    print(volumes, &source, &args, out)
}

/// What is said of a backup whose file is not there.
fn why_incomplete(name: &str, backup: &Backup) -> String {
    let ended = backup.status.as_ref().and_then(|s| s.completion_timestamp);
    match ended {
        Some(_) => format!(
            "backup \"{name}\" has no volume info, which old versions did not write: volumes without \
             data are not known"
        ),
        None => format!(
            "backup \"{name}\" is not over: its volume info is not written yet, and only copies that \
             were begun are known"
        ),
    }
}
