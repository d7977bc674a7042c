//! `bowline restore delete`: deletes restores and their files; what they restored stays.

use std::io::Write;

use bowline_api::v1::Restore;
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
    let restores = args
        .confirmed_and_found::<Restore>("restore", ctx, &client, out)
        .await?;
    let api: Api<Restore> = Api::namespaced(client, &ctx.namespace);
    let mut errors = Vec::new();
    for restore in &restores {
        let name = restore.name_any();
        match api.delete(&name, &DeleteParams::default()).await.plain() {
            Ok(_) => writeln!(
                out,
                "Request to delete restore \"{name}\" submitted successfully.\n\
                 The restore will be fully deleted after all associated data (restore files in \
                 object storage) are removed."
            )?,
            Err(error) => errors.push(error),
        }
    }
    all_or_error(errors)
}
