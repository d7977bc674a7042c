//! `bowline plugin add`: one more init container for the server, which begins anew with it.

use std::io::{self, Write};

use super::{container::container, deployment::Deployment};
use crate::{context::Context, flags, select::ask};

/// What is said before the question.
const WARNING: &str = "bowline plugin add may cause the Velero server pod restart, so it is a \
                       dangerous operation\n\
                       once the server restarts, ongoing jobs begin anew, and fail if it is Velero's.\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image
    image: String,

    /// When the image is pulled: Always, IfNotPresent or Never
    #[arg(long, default_value = "IfNotPresent", value_parser = pull_policy, value_name = "POLICY")]
    image_pull_policy: String,

    /// Do not ask
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    confirm: bool,
}

fn pull_policy(text: &str) -> Result<String, String> {
    match text {
        "Always" | "IfNotPresent" | "Never" => Ok(text.to_owned()),
        other => Err(format!("invalid value: {other:?}")),
    }
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    if !args.confirm && !ask(WARNING, out, &mut io::stdin().lock())? {
        return Ok(());
    }
    let mut deployment = Deployment::find(ctx.client().await?, &ctx.namespace).await?;
    deployment.add_folder();
    let plugins = deployment.plugins();
    let new = container(&args.image, &args.image_pull_policy, plugins);
    plugins.push(new);
    deployment.write().await
}
