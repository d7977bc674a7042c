//! `bowline schedule describe`: schedules with their templates.

use std::io::Write;

use bowline_api::v1::{Schedule, SchedulePhase};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::get::phase;
use crate::{
    commands::backup::describe::{spec as spec_text, structured},
    context::Context,
    output::{
        describe::{
            Colour, Describer,
            format::{Descriptions, FormatArgs},
        },
        time::Clock,
    },
    select::Shown,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args
        .shown
        .find_anywhere::<Schedule>(&client, &ctx.namespace)
        .await?;
    let clock = ctx.clock();
    let mut descriptions = Descriptions::new(&args.format, out);
    for schedule in &found.objects {
        descriptions.add(
            || for_people(schedule, ctx.colour, &clock),
            || for_programs(schedule, &clock),
        )?;
    }
    descriptions.finish()
}

fn for_people(schedule: &Schedule, colour: Colour, clock: &Clock) -> String {
    let mut d = Describer::new(colour, clock);
    let (spec, status) = (&schedule.spec, schedule.status.clone().unwrap_or_default());
    d.metadata(&schedule.metadata);
    d.blank();
    let phase = phase(&status.phase);
    let word = match phase {
        SchedulePhase::Enabled => colour.green(phase.as_str()),
        SchedulePhase::FailedValidation => colour.red(phase.as_str()),
        _ => phase.to_string(),
    };
    d.field(0, "Phase", word);
    d.reference("Resource policies", spec.template.resource_policy.as_ref());
    spec_text::uploader(&mut d, &spec.template);
    d.validation_errors(status.validation_errors.as_ref());
    d.blank();
    d.field(0, "Paused", spec.paused.unwrap_or_default());
    d.blank();
    d.field(0, "Schedule", &spec.schedule);
    d.blank();
    d.line("Backup Template:");
    d.indented(|d| spec_text::text(d, &spec.template));
    d.blank();
    d.field(
        0,
        "Last Backup",
        clock.show_or(status.last_backup, "<never>"),
    );
    d.finish()
}

/// In the manner of a backup's; Velero has no such thing.
fn for_programs(schedule: &Schedule, clock: &Clock) -> Value {
    let (spec, status) = (&schedule.spec, schedule.status.clone().unwrap_or_default());
    let mut value = json!({
        "metadata": {
            "name": schedule.name_any(),
            "namespace": schedule.namespace().unwrap_or_default(),
            "labels": schedule.metadata.labels,
            "annotations": schedule.metadata.annotations,
        },
        "phase": phase(&status.phase),
        "paused": spec.paused.unwrap_or_default(),
        "schedule": spec.schedule,
        "backupTemplate": structured::spec(&spec.template),
        "lastBackup": clock.show_or(status.last_backup, "<never>"),
    });
    if let Some(policy) = &spec.template.resource_policy {
        value["resourcePolicies"] = json!({ "type": policy.kind, "name": policy.name });
    }
    if let Some(errors) = status.validation_errors.filter(|errors| !errors.is_empty()) {
        value["validationErrors"] = json!(errors);
    }
    value
}
