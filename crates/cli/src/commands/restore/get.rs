//! `bowline restore get`: restores as a table or as objects.

use std::io::Write;

use bowline_api::v1::{Restore, RestorePhase};
use kube::ResourceExt;

use super::{phase, phase_in_words};
use crate::{
    context::Context,
    flags::selector,
    output::{self, GetArgs, Tabular, time::Clock},
};

/// How Go prints the time of an object that was never created.
const NEVER: &str = "0001-01-01 00:00:00 +0000 UTC";

pub(crate) async fn run(args: GetArgs, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let mut found = args.shown.find::<Restore>(&client, &ctx.namespace).await?;
    // In every format, as Velero has it.
    for restore in &mut found.objects {
        if restore.metadata.deletion_timestamp.is_some() {
            let words = RestorePhase::Other(phase_in_words(restore));
            restore.status.get_or_insert_default().phase = Some(words);
        }
    }
    let version = found.resource_version.as_deref();
    output::print_list(found.objects, version, &args.output, out)
}

impl Tabular for Restore {
    const COLUMN_NAMES: &'static [&'static str] = &[
        "Name",
        "Backup",
        "Status",
        "Started",
        "Completed",
        "Errors",
        "Warnings",
        "Created",
        "Selector",
    ];

    fn cells(&self, clock: &Clock) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let time = |time: Option<bowline_api::Time>| {
            time.map_or_else(|| "<nil>".to_owned(), |time| clock.show(time.0))
        };
        let created = self.metadata.creation_timestamp.as_ref();
        vec![
            self.name_any(),
            self.spec.backup_name.clone().unwrap_or_default(),
            phase(self).to_string(),
            time(status.start_timestamp),
            time(status.completion_timestamp),
            status.errors.unwrap_or_default().to_string(),
            status.warnings.unwrap_or_default().to_string(),
            created.map_or_else(|| NEVER.to_owned(), |time| clock.show(time.0)),
            selector::show(self.spec.label_selector.as_ref()),
        ]
    }
}
