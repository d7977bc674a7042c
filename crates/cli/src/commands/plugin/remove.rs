//! `bowline plugin remove`: takes an init container away from the server, which begins anew without
//! it.

use anyhow::bail;

use super::deployment::Deployment;
use crate::context::Context;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The init container's name, or its image
    #[arg(value_name = "NAME|IMAGE")]
    plugin: String,
}

pub(crate) async fn run(args: Args, ctx: &Context) -> anyhow::Result<()> {
    let mut deployment = Deployment::find(ctx.client().await?, &ctx.namespace).await?;
    let plugin = args.plugin.as_str();
    let plugins = deployment.plugins();
    let found = plugins
        .iter()
        .position(|container| container["name"] == plugin || container["image"] == plugin);
    let Some(found) = found else {
        bail!("init container {plugin} not found in Velero server deployment");
    };
    plugins.remove(found);
    deployment.write().await
}
