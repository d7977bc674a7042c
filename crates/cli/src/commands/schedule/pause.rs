//! `bowline schedule pause` and `unpause`.

use std::io::Write;

use bowline_api::v1::Schedule;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    cluster::{Plain, all_or_error},
    context::Context,
    flags::OptionalBool,
    select::Chosen,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// Leave out the backup that would be due at once when the schedule goes on
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    skip_immediately: Option<OptionalBool>,
}

/// What the schedules are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Paused,
    Running,
}

pub(crate) async fn run(
    args: Args,
    wish: Wish,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    args.chosen.check("schedule")?;
    let client = ctx.client().await?;
    let (schedules, mut errors) = args
        .chosen
        .find::<Schedule>(&client, &ctx.namespace)
        .await?;
    if schedules.is_empty() {
        writeln!(out, "No schedules found")?;
        return Ok(());
    }
    let word = match wish {
        Wish::Paused => "paused",
        Wish::Running => "unpaused",
    };
    let wanted = wish == Wish::Paused;
    let skip = args.skip_immediately.and_then(|flag| flag.0);
    let api: Api<Schedule> = Api::namespaced(client, &ctx.namespace);
    for schedule in &schedules {
        let name = schedule.name_any();
        if schedule.spec.paused.unwrap_or_default() == wanted {
            writeln!(out, "Schedule {name} is already {word}, skip")?;
            continue;
        }
        // A null takes a field away, which is how Velero's client leaves it as well.
        let paused = wanted.then_some(true);
        let change = json!({ "spec": { "paused": paused, "skipImmediately": skip } });
        let patch = Patch::Merge(&change);
        match api
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .plain()
        {
            Ok(_) => writeln!(out, "Schedule {name} {word} successfully")?,
            Err(error) => errors.push(error),
        }
    }
    all_or_error(errors)
}
