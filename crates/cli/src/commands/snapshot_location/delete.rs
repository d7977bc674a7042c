//! `bowline snapshot-location delete`: forgets where snapshots are. The snapshots stay, but backups
//! that have some there can neither be restored nor deleted with them.

use std::io::Write;

use bowline_api::v1::VolumeSnapshotLocation;
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
    let (locations, mut errors) = args
        .confirmed::<VolumeSnapshotLocation>("snapshot-location", ctx, &client, out)
        .await?;
    let api: Api<VolumeSnapshotLocation> = Api::namespaced(client, &ctx.namespace);
    for location in &locations {
        let name = location.name_any();
        match api.delete(&name, &DeleteParams::default()).await.plain() {
            Ok(_) => writeln!(
                out,
                "Volume snapshot location \"{name}\" deleted successfully."
            )?,
            Err(error) => errors.push(error),
        }
    }
    all_or_error(errors)
}
