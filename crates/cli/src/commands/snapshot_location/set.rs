//! `bowline snapshot-location set`: changes what is named, and nothing else.

use std::io::Write;

use bowline_api::{names::annotation, v1::VolumeSnapshotLocation};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::snapshot_type;
use crate::{cluster::Plain, commands::location::credential, context::Context, flags::Map};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The location
    name: String,

    /// The Secret and its key with the credentials, as NAME=KEY
    #[arg(long, value_name = "MAP")]
    credential: Vec<Map>,

    /// Whether snapshots stay where they are made (local) or are uploaded (cloud); an empty word
    /// leaves it to the plugin
    #[arg(long, value_name = "TYPE", value_parser = snapshot_type)]
    snapshot_type: Option<String>,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let credential = credential(&args.credential)?;
    let mut change = json!({});
    if let Some(credential) = credential {
        change["spec"] = json!({ "credential": credential });
    }
    if let Some(kind) = &args.snapshot_type {
        let kind = Some(kind).filter(|kind| !kind.is_empty());
        change["metadata"] = json!({ "annotations": { annotation::SNAPSHOT_TYPE: kind } });
    }
    let api: Api<VolumeSnapshotLocation> = Api::namespaced(ctx.client().await?, &ctx.namespace);
    api.patch(&args.name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .plain()?;
    writeln!(
        out,
        "Volume snapshot location \"{}\" configured successfully.",
        args.name
    )?;
    Ok(())
}
