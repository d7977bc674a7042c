//! `bowline schedule describe`: schedules with their templates.

use std::io::Write;

use bowline_api::v1::{Schedule, SchedulePhase};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::get::phase;
use crate::{
    commands::backup::describe::{Format, print_structured, spec as spec_text, structured},
    context::Context,
    output::{
        describe::{Colour, Describer},
        time::Clock,
    },
    select::Shown,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    shown: Shown,

    /// Output format: plaintext, json or yaml
    #[arg(short, long, default_value_t = Format::Plaintext, value_name = "FORMAT")]
    output: Format,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args
        .shown
        .find_anywhere::<Schedule>(&client, &ctx.namespace)
        .await?;
    let clock = ctx.clock();
    if args.output != Format::Plaintext {
        let values = found.objects.iter().map(|s| for_programs(s, &clock));
        return print_structured(values.collect(), args.output, out);
    }
    let texts: Vec<String> = found
        .objects
        .iter()
        .map(|schedule| for_people(schedule, ctx.colour, &clock))
        .collect();
    out.write_all(texts.join("\n\n").as_bytes())?;
    Ok(())
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
    spec_text::policies(&mut d, &spec.template);
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
