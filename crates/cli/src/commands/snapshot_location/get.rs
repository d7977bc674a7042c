//! `bowline snapshot-location get`: locations as a table or as objects.

use std::io::Write;

use bowline_api::v1::VolumeSnapshotLocation;
use kube::ResourceExt;

use crate::{
    context::Context,
    output::{self, GetArgs, Tabular, time::Clock},
};

pub(crate) async fn run(args: GetArgs, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args
        .shown
        .find::<VolumeSnapshotLocation>(&client, &ctx.namespace)
        .await?;
    let version = found.resource_version.as_deref();
    output::print_list(found.objects, version, &args.output, out)
}

impl Tabular for VolumeSnapshotLocation {
    const COLUMN_NAMES: &'static [&'static str] = &["Name", "Provider"];

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![self.name_any(), self.spec.provider.clone()]
    }
}
