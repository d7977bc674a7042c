//! `bowline backup-location get`: locations as a table or as objects.

use std::io::Write;

use bowline_api::v1::{
    BackupStorageLocation, BackupStorageLocationAccessMode, BackupStorageLocationPhase,
};
use kube::ResourceExt;

use crate::{
    context::Context,
    flags,
    output::{self, GetArgs, Tabular, time::Clock},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    get: GetArgs,

    /// Only the default one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    default: bool,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let mut found = args
        .get
        .shown
        .find::<BackupStorageLocation>(&client, &ctx.namespace)
        .await?;
    if args.default {
        let is_default = |location: &BackupStorageLocation| location.spec.default == Some(true);
        found.objects.retain(is_default);
    }
    let version = found.resource_version.as_deref();
    output::print_list(found.objects, version, &args.get.output, out)
}

impl Tabular for BackupStorageLocation {
    const COLUMN_NAMES: &'static [&'static str] = &[
        "Name",
        "Provider",
        "Bucket/Prefix",
        "Phase",
        "Last Validated",
        "Access Mode",
        "Default",
    ];

    fn cells(&self, clock: &Clock) -> Vec<String> {
        let (spec, status) = (&self.spec, self.status.clone().unwrap_or_default());
        let storage = &spec.object_storage;
        let place = match storage.prefix.as_deref() {
            None | Some("") => storage.bucket.clone(),
            Some(prefix) => format!("{}/{prefix}", storage.bucket),
        };
        let unknown = || "Unknown".to_owned();
        let phase = status.phase.filter(|phase| !phase.as_str().is_empty());
        let mode = spec
            .access_mode
            .clone()
            .filter(|mode| !mode.as_str().is_empty());
        vec![
            self.name_any(),
            spec.provider.clone(),
            place,
            phase.map_or_else(unknown, |phase: BackupStorageLocationPhase| {
                phase.to_string()
            }),
            status
                .last_validation_time
                .map_or_else(unknown, |time| clock.show(time.0)),
            mode.unwrap_or(BackupStorageLocationAccessMode::ReadWrite)
                .to_string(),
            match spec.default {
                Some(true) => "true".to_owned(),
                _ => String::new(),
            },
        ]
    }
}
