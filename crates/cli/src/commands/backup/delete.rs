//! `bowline backup delete`: asks the server to delete backups and all that belongs to them.

use std::io::Write;

use bowline_api::{
    StringMap,
    names::{label, label_value},
    v1::{Backup, DeleteBackupRequest, DeleteBackupRequestSpec},
};
use kube::{Api, ResourceExt, api::PostParams};

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
    let (backups, mut errors) = args
        .confirmed::<Backup>("backup", ctx, &client, out)
        .await?;
    let api: Api<DeleteBackupRequest> = Api::namespaced(client, &ctx.namespace);
    for backup in &backups {
        let request = request(backup);
        match api.create(&PostParams::default(), &request).await.plain() {
            Ok(_) => writeln!(
                out,
                "Request to delete backup \"{}\" submitted successfully.\n\
                 The backup will be fully deleted after all associated data (disk snapshots, \
                 backup files, restores) are removed.",
                backup.name_any()
            )?,
            Err(error) => errors.push(error),
        }
    }
    all_or_error(errors)
}

fn request(backup: &Backup) -> DeleteBackupRequest {
    let name = backup.name_any();
    let spec = DeleteBackupRequestSpec {
        backup_name: name.clone(),
        ..Default::default()
    };
    let mut request = DeleteBackupRequest::new(&backup.namespace().unwrap_or_default(), "", spec);
    request.metadata.name = None;
    request.metadata.generate_name = Some(format!("{name}-"));
    request.metadata.labels = Some(StringMap::from([
        (label::BACKUP_NAME.to_owned(), label_value(&name)),
        (
            label::BACKUP_UID.to_owned(),
            backup.uid().unwrap_or_default(),
        ),
    ]));
    request
}
