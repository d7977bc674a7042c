//! `bowline schedule create`: a template for backups, and the times to make them.

use std::io::Write;

use anyhow::bail;
use bowline_api::v1::{Schedule, ScheduleSpec};
use kube::{Api, ResourceExt, api::PostParams};

use crate::{
    cluster::Plain,
    commands::backup::spec::SpecArgs,
    context::Context,
    flags::{
        self, OptionalBool,
        names::{LONGEST_LABEL, check_name},
    },
    output::{self, TableArgs},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name
    name: String,

    #[command(flatten)]
    spec: SpecArgs,

    /// When: `0 1 * * *`, `@every 6h`, `@daily`, with `CRON_TZ=<zone> ` before it if need be
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "CRON"
    )]
    schedule: String,

    /// Make the schedule the owner of its backups: deleted with it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    use_owner_references_in_backup: bool,

    /// Create it paused
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    paused: bool,

    /// Leave out the backup that would be due at once
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    skip_immediately: Option<OptionalBool>,

    #[command(flatten)]
    output: TableArgs,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.schedule.is_empty() {
        bail!("--schedule is required");
    }
    check_times(&args.schedule).map_err(anyhow::Error::msg)?;
    // The name becomes the value of a label on every backup.
    check_name("schedule", &args.name, LONGEST_LABEL).map_err(anyhow::Error::msg)?;
    let spec = ScheduleSpec {
        template: args.spec.build()?,
        schedule: args.schedule,
        use_owner_references_in_backup: Some(args.use_owner_references_in_backup),
        paused: args.paused.then_some(true),
        skip_immediately: args.skip_immediately.and_then(|flag| flag.0),
        ..Default::default()
    };
    let mut schedule = Schedule::new(&ctx.namespace, &args.name, spec);
    args.spec.metadata.add_to(&mut schedule.metadata);

    let prints_only = args.output.output.is_some();
    if prints_only && !args.spec.names_locations() {
        return output::print_one(schedule, &args.output, out);
    }
    let client = ctx.client().await?;
    args.spec.check_locations(&client, &ctx.namespace).await?;
    if prints_only {
        return output::print_one(schedule, &args.output, out);
    }
    let api: Api<Schedule> = Api::namespaced(client, &ctx.namespace);
    api.create(&PostParams::default(), &schedule)
        .await
        .plain()?;
    writeln!(
        out,
        "Schedule \"{}\" created successfully.",
        schedule.name_any()
    )?;
    Ok(())
}

/// The shape of a cron expression; its numbers are the server's to judge.
fn check_times(text: &str) -> Result<(), String> {
    let zoned = text.starts_with("CRON_TZ=") || text.starts_with("TZ=");
    let times = match zoned {
        true => text.split_once(' ').map_or("", |(_, times)| times),
        false => text,
    };
    if times.trim_start().starts_with('@') {
        return Ok(());
    }
    let fields: Vec<&str> = times.split_whitespace().collect();
    match fields.len() {
        5 => Ok(()),
        found => Err(format!(
            "invalid schedule: expected exactly 5 fields, found {found}: [{}]",
            fields.join(" ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::check_times;

    #[test]
    fn times_have_five_fields_or_a_name() {
        for good in [
            "0 1 * * *",
            "@every 6h",
            "@daily",
            "CRON_TZ=Asia/Tokyo * 12 * * *",
            "TZ=UTC @hourly",
        ] {
            assert_eq!(check_times(good), Ok(()), "{good}");
        }
        for bad in [" ", "0 * * * * *", "* * *", "CRON_TZ=UTC"] {
            assert!(check_times(bad).is_err(), "{bad}");
        }
    }
}
