//! `bowline backup-location create`: a bucket for backups.

use std::{io::Write, path::PathBuf};

use anyhow::bail;
use bowline_api::{
    Duration,
    v1::{
        BackupStorageLocation, BackupStorageLocationAccessMode, BackupStorageLocationSpec,
        ObjectStorageLocation,
    },
};
use kube::{Api, api::PostParams};

use super::{credential, defaults, encoded_certificate};
use crate::{
    cluster::{Hinted, Plain},
    context::Context,
    flags::{
        self, Map,
        names::{LONGEST_NAME, check_labels, check_name},
    },
    output::{self, TableArgs},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name
    name: String,

    /// The kind of store, such as aws, azure, gcp or filesystem
    #[arg(long, default_value = "", hide_default_value = true)]
    provider: String,

    /// The bucket
    #[arg(long, default_value = "", hide_default_value = true)]
    bucket: String,

    /// The Secret and its key with the credentials, as NAME=KEY
    #[arg(long, value_name = "MAP")]
    credential: Vec<Map>,

    /// Use it for backups that name no location
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    default: bool,

    /// The folder in the bucket
    #[arg(long)]
    prefix: Option<String>,

    /// How often the bucket is looked through for backups; 0s means never
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    backup_sync_period: Option<Duration>,

    /// How often the bucket is tried; 0s means once
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    validation_frequency: Option<Duration>,

    /// Settings of the provider, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    config: Vec<Map>,

    /// Labels, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    labels: Vec<Map>,

    /// A file of certificates to trust the store with
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    cacert: Option<PathBuf>,

    /// ReadWrite or ReadOnly
    #[arg(long, default_value = "ReadWrite", value_parser = access_mode, value_name = "MODE")]
    access_mode: BackupStorageLocationAccessMode,

    #[command(flatten)]
    output: TableArgs,
}

fn access_mode(text: &str) -> Result<BackupStorageLocationAccessMode, String> {
    match BackupStorageLocationAccessMode::from(text) {
        BackupStorageLocationAccessMode::Other(_) => Err(format!("invalid value: {text:?}")),
        known => Ok(known),
    }
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let location = build(&args, &ctx.namespace)?;
    if args.output.output.is_some() {
        return output::print_one(location, &args.output, out);
    }
    let api: Api<BackupStorageLocation> = Api::namespaced(ctx.client().await?, &ctx.namespace);
    if args.default && !defaults(&api).await?.is_empty() {
        return Err(Hinted::error(
            "there is already exist default backup storage location, please unset it first or do \
             not set --default flag",
            "`bowline backup-location get --default` shows it, \
             `bowline backup-location set <name> --default=false` unsets it",
        ));
    }
    api.create(&PostParams::default(), &location)
        .await
        .plain()?;
    writeln!(
        out,
        "Backup storage location \"{}\" configured successfully.",
        args.name
    )?;
    Ok(())
}

fn build(args: &Args, namespace: &str) -> anyhow::Result<BackupStorageLocation> {
    check_name("backup storage location", &args.name, LONGEST_NAME).map_err(anyhow::Error::msg)?;
    for (flag, value) in [("--provider", &args.provider), ("--bucket", &args.bucket)] {
        if value.is_empty() {
            bail!("{flag} is required");
        }
    }
    let labels = Map::merged(&args.labels);
    check_labels(labels.as_ref()).map_err(|error| anyhow::anyhow!("--labels: {error}"))?;
    let file = args
        .cacert
        .as_ref()
        .filter(|path| !path.as_os_str().is_empty());
    let spec = BackupStorageLocationSpec {
        provider: args.provider.clone(),
        config: Map::merged(&args.config),
        credential: credential(&args.credential)?,
        object_storage: ObjectStorageLocation {
            bucket: args.bucket.clone(),
            prefix: args.prefix.clone().filter(|prefix| !prefix.is_empty()),
            ca_cert: file.map(|path| encoded_certificate(path)).transpose()?,
            ..Default::default()
        },
        default: args.default.then_some(true),
        access_mode: Some(args.access_mode.clone()),
        backup_sync_period: args.backup_sync_period.clone(),
        validation_frequency: args.validation_frequency.clone(),
        ..Default::default()
    };
    let mut location = BackupStorageLocation::new(namespace, &args.name, spec);
    location.metadata.labels = labels;
    Ok(location)
}
