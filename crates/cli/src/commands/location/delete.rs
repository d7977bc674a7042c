//! `bowline backup-location delete`: forgets a bucket and the objects that stand for its contents.
//! What is in the bucket stays there.

use std::io::Write;

use bowline_api::{
    names::{label, label_value},
    v1::{Backup, BackupRepository, BackupStorageLocation},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::{
    cluster::{Plain, all_or_error},
    context::Context,
    select::{DeleteArgs, Kind},
};

pub(crate) async fn run(
    args: DeleteArgs,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let (locations, mut errors) = args
        .confirmed::<BackupStorageLocation>("backup-location", ctx, &client, out)
        .await?;
    let api: Api<BackupStorageLocation> = Api::namespaced(client.clone(), &ctx.namespace);
    for location in &locations {
        let name = location.name_any();
        if let Err(error) = api.delete(&name, &DeleteParams::default()).await.plain() {
            errors.push(error);
            continue;
        }
        writeln!(
            out,
            "Backup storage location \"{name}\" deleted successfully."
        )?;
        errors.extend(forget::<Backup>("Backup", &name, ctx, &client, out).await?);
        errors.extend(
            forget::<BackupRepository>("Backup repository", &name, ctx, &client, out).await?,
        );
    }
    all_or_error(errors)
}

/// Deletes the objects of a kind that belong to a location.
async fn forget<K: Kind>(
    kind: &str,
    location: &str,
    ctx: &Context,
    client: &Client,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<anyhow::Error>> {
    let api: Api<K> = Api::namespaced(client.clone(), &ctx.namespace);
    let label = format!("{}={}", label::STORAGE_LOCATION, label_value(location));
    let objects = match api
        .list(&ListParams::default().labels(&label))
        .await
        .plain()
    {
        Ok(objects) => objects,
        Err(error) => {
            let what = kind.to_lowercase();
            return Ok(vec![error.context(format!(
                "find {what} objects associated with BSL \"{location}\""
            ))]);
        }
    };
    let mut errors = Vec::new();
    for object in &objects.items {
        let name = object.name_any();
        match api.delete(&name, &DeleteParams::default()).await.plain() {
            Ok(_) => writeln!(
                out,
                "{kind} associated with deleted BSL(s) \"{name}\" deleted successfully."
            )?,
            Err(error) => errors.push(error.context(format!(
                "delete {} \"{name}\" associated with deleted BSL",
                kind.to_lowercase()
            ))),
        }
    }
    Ok(errors)
}
