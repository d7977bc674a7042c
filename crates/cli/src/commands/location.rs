//! `bowline backup-location …`: where backups are kept.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod set;

use std::{fs, io::Write, path::Path};

use anyhow::{Context as _, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use bowline_api::{StringMap, v1::BackupStorageLocation};
use clap::Subcommand;
use k8s_openapi::api::core::v1::SecretKeySelector;
use kube::{Api, api::ListParams};

use crate::{cluster::Plain, context::Context, flags::Map, select::DeleteArgs};

/// What can be done with backup storage locations.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a backup storage location
    Create(create::Args),
    /// Get backup storage locations
    Get(get::Args),
    /// Change a backup storage location
    Set(set::Args),
    /// Delete backup storage locations
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

/// The certificates of a file, as a location holds them.
fn encoded_certificate(path: &Path) -> anyhow::Result<String> {
    let bundle = fs::read(path).with_context(|| format!("open {}", path.display()))?;
    Ok(BASE64_STANDARD.encode(bundle))
}

/// The Secret and its key of `--credential`, if given.
pub(super) fn credential(flags: &[Map]) -> anyhow::Result<Option<SecretKeySelector>> {
    let pairs: StringMap = Map::merged(flags).unwrap_or_default();
    if pairs.len() > 1 {
        bail!("--credential can only contain 1 key/value pair");
    }
    let selector = |(name, key)| SecretKeySelector {
        name,
        key,
        optional: None,
    };
    Ok(pairs.into_iter().next().map(selector))
}

/// The locations that are the default; there should be one at most.
async fn defaults(api: &Api<BackupStorageLocation>) -> anyhow::Result<Vec<BackupStorageLocation>> {
    let mut all = api.list(&ListParams::default()).await.plain()?.items;
    all.retain(|location| location.spec.default == Some(true));
    Ok(all)
}
