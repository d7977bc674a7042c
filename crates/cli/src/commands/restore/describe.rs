//! `bowline restore describe`: all there is to know about restores, for people or for programs.
//!
//! As with backups, everything is gathered first ([`facts`]) and then written down, as text
//! ([`text`]) or as JSON or YAML ([`structured`]).

mod facts;
mod structured;
mod text;
mod volumes;

use std::io::Write;

use bowline_api::v1::Restore;

use crate::{
    context::Context,
    output::describe::format::{DescribeArgs, Descriptions},
};
use facts::Facts;

pub(super) use facts::files;

pub(crate) async fn run(
    args: DescribeArgs,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args.shown.find::<Restore>(&client, &ctx.namespace).await?;
    let clock = ctx.clock();
    let mut descriptions = Descriptions::new(&args.format, out);
    for restore in found.objects {
        let facts = Facts::gather(ctx, &client, &args.trust, restore, args.details).await;
        descriptions.add(
            || text::describe(&facts, ctx.colour, &clock),
            || structured::describe(&facts, &clock),
        )?;
    }
    descriptions.finish()
}
