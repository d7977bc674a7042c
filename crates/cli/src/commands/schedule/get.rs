//! `bowline schedule get`: schedules as a table or as objects.

use std::io::Write;

use bowline_api::{
    Duration,
    v1::{Schedule, SchedulePhase},
};
use kube::ResourceExt;

use crate::{
    context::Context,
    flags::selector,
    output::{
        self, GetArgs, Tabular,
        time::{Clock, is_zero},
    },
};

pub(crate) async fn run(args: GetArgs, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args
        .shown
        .find_anywhere::<Schedule>(&client, &ctx.namespace)
        .await?;
    let version = found.resource_version.as_deref();
    output::print_list(found.objects, version, &args.output, out)
}

impl Tabular for Schedule {
    const COLUMN_NAMES: &'static [&'static str] = &[
        "Name",
        "Status",
        "Created",
        "Schedule",
        "Backup TTL",
        "Last Backup",
        "Selector",
        "Paused",
    ];

    fn cells(&self, clock: &Clock) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let template = &self.spec.template;
        let created = self.metadata.creation_timestamp.as_ref();
        let last = status.last_backup.filter(|time| !is_zero(*time));
        vec![
            self.name_any(),
            phase(&status.phase).to_string(),
            // Go's zero time, before there is one.
            created.map_or_else(
                || "0001-01-01 00:00:00 +0000 UTC".to_owned(),
                |time| clock.show(time.0),
            ),
            self.spec.schedule.clone(),
            template.ttl.clone().unwrap_or(Duration::ZERO).to_string(),
            clock.age(last.map(|time| time.0)),
            selector::show(template.label_selector.as_ref()),
            self.spec.paused.unwrap_or_default().to_string(),
        ]
    }
}

/// The phase, which a fresh schedule does not have yet.
pub(super) fn phase(phase: &Option<SchedulePhase>) -> SchedulePhase {
    match phase {
        Some(phase) if !phase.as_str().is_empty() => phase.clone(),
        _ => SchedulePhase::New,
    }
}
