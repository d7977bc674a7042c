//! `bowline backup describe`: all there is to know about backups, for people or for programs.
//!
//! First everything is gathered ([`facts`]), then it is written down: as text ([`text`]) or as JSON
//! or YAML ([`structured`]). Writing needs no cluster, and is what the tests compare.

pub(crate) mod facts;
pub(crate) mod spec;
pub(crate) mod structured;
mod text;
mod volumes;

use std::io::Write;

use bowline_api::v1::Backup;

use crate::{
    context::Context,
    output::describe::format::{DescribeArgs, Descriptions},
};
use facts::Facts;

pub(crate) async fn run(
    args: DescribeArgs,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args.shown.find::<Backup>(&client, &ctx.namespace).await?;
    let clock = ctx.clock();
    let mut descriptions = Descriptions::new(&args.format, out);
    for backup in found.objects {
        let facts = Facts::gather(ctx, &client, &args.trust, backup, args.details).await;
        descriptions.add(
            || text::describe(&facts, ctx.colour, &clock),
            || structured::describe(&facts, &clock),
        )?;
    }
    descriptions.finish()
}
