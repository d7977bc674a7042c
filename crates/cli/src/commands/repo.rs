//! `bowline repo get`: repositories of volume data, as a table or as objects.

use std::io::Write;

use bowline_api::v1::{BackupRepository, BackupRepositoryPhase};
use clap::Subcommand;
use kube::ResourceExt;

use crate::{
    context::Context,
    output::{self, GetArgs, Tabular, time::Clock},
};

/// What can be done with repositories.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Get repositories
    Get(GetArgs),
}

pub(crate) async fn run(
    command: Command,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Command::Get(args) = command;
    let client = ctx.client().await?;
    let shown = &args.shown;
    let found = shown
        .find_anywhere::<BackupRepository>(&client, &ctx.namespace)
        .await?;
    let version = found.resource_version.as_deref();
    output::print_list(found.objects, version, &args.output, out)
}

impl Tabular for BackupRepository {
    const COLUMN_NAMES: &'static [&'static str] = &["Name", "Status", "Last Maintenance"];

    fn cells(&self, clock: &Clock) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let phase = status.phase.filter(|phase| !phase.as_str().is_empty());
        vec![
            self.name_any(),
            phase.unwrap_or(BackupRepositoryPhase::New).to_string(),
            clock.show_or(status.last_maintenance_time, "<never>"),
        ]
    }
}
