//! `bowline backup-location set`: changes what is named, and nothing else.

use std::{io::Write, path::PathBuf};

use bowline_api::v1::BackupStorageLocation;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{credential, defaults, encoded_certificate};
use crate::{
    cluster::{Hinted, Plain},
    context::Context,
    flags::{self, Map, OptionalBool},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The location
    name: String,

    /// A file of certificates to trust the store with; an empty name forgets those that are set
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    cacert: Option<PathBuf>,

    /// The Secret and its key with the credentials, as NAME=KEY
    #[arg(long, value_name = "MAP")]
    credential: Vec<Map>,

    /// Whether it is for backups that name no location
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    default: Option<OptionalBool>,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let credential = credential(&args.credential)?;
    let certificate = match &args.cacert {
        None => None,
        Some(path) if path.as_os_str().is_empty() => Some(None),
        Some(path) => Some(Some(encoded_certificate(path)?)),
    };
    let api: Api<BackupStorageLocation> = Api::namespaced(ctx.client().await?, &ctx.namespace);
    let name = &args.name;
    api.get(name).await.plain()?;
    let default = args.default.and_then(|flag| flag.0);
    let mut is_default_already = false;
    if default == Some(true) {
        let others: Vec<String> = defaults(&api)
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        is_default_already = others == [name.as_str()];
        if !others.is_empty() && !is_default_already {
            return Err(Hinted::error(
                "there are already exist default backup storage locations, please unset them first",
                format!(
                    "`bowline backup-location set {} --default=false`",
                    others[0]
                ),
            ));
        }
    }
    if is_default_already {
        writeln!(
            out,
            "Backup storage location \"{name}\" is already the default backup storage location."
        )?;
        if credential.is_none() && certificate.is_none() {
            return Ok(());
        }
    }

    let mut change = json!({ "spec": {} });
    if let Some(default) = default {
        change["spec"]["default"] = json!(default.then_some(true));
    }
    if let Some(certificate) = certificate {
        change["spec"]["objectStorage"] = json!({ "caCert": certificate });
    }
    if let Some(credential) = credential {
        change["spec"]["credential"] = json!(credential);
    }
    api.patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .plain()?;
    writeln!(
        out,
        "Backup storage location \"{name}\" configured successfully."
    )?;
    Ok(())
}
