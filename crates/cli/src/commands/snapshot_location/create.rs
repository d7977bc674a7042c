//! `bowline snapshot-location create`: a place for snapshots of volumes.

use std::io::Write;

use anyhow::ensure;
use bowline_api::{
    StringMap,
    names::annotation,
    v1::{VolumeSnapshotLocation, VolumeSnapshotLocationSpec},
};
use kube::{Api, api::PostParams};

use super::snapshot_type;
use crate::{
    cluster::Plain,
    commands::location::credential,
    context::Context,
    flags::{
        Map,
        names::{LONGEST_NAME, check_labels, check_name},
    },
    output::{self, TableArgs},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name
    name: String,

    /// The plugin that takes snapshots, such as aws, azure or gcp
    #[arg(long, default_value = "", hide_default_value = true)]
    provider: String,

    /// Settings of the provider, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    config: Vec<Map>,

    /// Labels, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    labels: Vec<Map>,

    /// The Secret and its key with the credentials, as NAME=KEY
    #[arg(long, value_name = "MAP")]
    credential: Vec<Map>,

    /// Whether snapshots stay where they are made (local) or are uploaded (cloud); without it they
    /// are uploaded if the plugin can
    #[arg(long, value_name = "TYPE", value_parser = snapshot_type)]
    snapshot_type: Option<String>,

    #[command(flatten)]
    output: TableArgs,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let location = build(&args, &ctx.namespace)?;
    if args.output.output.is_some() {
        return output::print_one(location, &args.output, out);
    }
    let api: Api<VolumeSnapshotLocation> = Api::namespaced(ctx.client().await?, &ctx.namespace);
    api.create(&PostParams::default(), &location)
        .await
        .plain()?;
    writeln!(
        out,
        "Snapshot volume location \"{}\" configured successfully.",
        args.name
    )?;
    Ok(())
}

fn build(args: &Args, namespace: &str) -> anyhow::Result<VolumeSnapshotLocation> {
    check_name("volume snapshot location", &args.name, LONGEST_NAME).map_err(anyhow::Error::msg)?;
    ensure!(!args.provider.is_empty(), "--provider is required");
    let labels = Map::merged(&args.labels);
    check_labels(labels.as_ref()).map_err(|error| anyhow::anyhow!("--labels: {error}"))?;
    let spec = VolumeSnapshotLocationSpec {
        provider: args.provider.clone(),
        config: Map::merged(&args.config),
        credential: credential(&args.credential)?,
        ..Default::default()
    };
    let mut location = VolumeSnapshotLocation::new(namespace, &args.name, spec);
    location.metadata.labels = labels;
    let kind = args.snapshot_type.clone().filter(|kind| !kind.is_empty());
    location.metadata.annotations =
        kind.map(|kind| StringMap::from([(annotation::SNAPSHOT_TYPE.to_owned(), kind)]));
    Ok(location)
}
