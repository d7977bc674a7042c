//! `bowline schedule delete`: no more backups from these schedules.

use std::io::Write;

use bowline_api::v1::Schedule;
use kube::{Api, ResourceExt, api::DeleteParams};

use crate::{
    cluster::{Plain, all_or_error},
    context::Context,
    select::DeleteArgs,
};

pub(crate) async fn run(
    args: DeleteArgs,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let (schedules, mut errors) = args
        .confirmed::<Schedule>("schedule", ctx, &client, out)
        .await?;
    let api: Api<Schedule> = Api::namespaced(client, &ctx.namespace);
    for schedule in &schedules {
        let name = schedule.name_any();
        match api.delete(&name, &DeleteParams::default()).await.plain() {
            Ok(_) => writeln!(out, "Schedule deleted: {name}")?,
            Err(error) => errors.push(error),
        }
    }
    all_or_error(errors)
}
