//! `bowline install`: the CustomResourceDefinitions, printed or put into a cluster.

use std::{io::Write, time::Duration};

use anyhow::{Context as _, bail};
use bowline_api::crd;
use clap::ValueEnum;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::context::Context;

/// How long new kinds may take to be served.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the CustomResourceDefinitions
    #[arg(long, required = true)]
    crds_only: bool,

    /// Change nothing; with `-o`, print what would be created
    #[arg(long)]
    dry_run: bool,

    /// Print the objects in this format
    #[arg(short, long)]
    output: Option<Output>,

    /// Bring definitions that exist already up to date, by server-side apply
    #[arg(long)]
    apply: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Yaml,
    Json,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut impl Write) -> anyhow::Result<()> {
    let crds = crd::all();
    if let Some(output) = args.output {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": &crds });
        let text = match output {
            Output::Yaml => serde_saphyr::to_string(&list)?,
            Output::Json => serde_json::to_string_pretty(&list)? + "\n",
        };
        out.write_all(text.as_bytes())?;
    }
    if args.dry_run {
        return Ok(());
    }
    let client = ctx.client().await?;
    let api: Api<CustomResourceDefinition> = Api::all(client);
    for crd in &crds {
        install(&api, crd, args.apply, out).await?;
    }
    wait_until_served(&api, &crds).await
}

async fn install(
    api: &Api<CustomResourceDefinition>,
    crd: &Value,
    apply: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let object: CustomResourceDefinition = serde_json::from_value(crd.clone())?;
    let name = object.name_any();
    let done = if apply {
        api.patch(
            &name,
            &PatchParams::apply("bowline").force(),
            &Patch::Apply(crd),
        )
        .await
        .with_context(|| format!("apply CustomResourceDefinition {name}"))?;
        "applied"
    } else {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => "created",
            Err(kube::Error::Api(status)) if status.code == 409 => "already exists, proceeding",
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("create CustomResourceDefinition {name}"));
            }
        }
    };
    writeln!(out, "CustomResourceDefinition/{name}: {done}")?;
    Ok(())
}

async fn wait_until_served(
    api: &Api<CustomResourceDefinition>,
    crds: &[Value],
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
    for crd in crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        while !is_established(&api.get(name).await?) {
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "CustomResourceDefinition {name} is not served after {} s; \
                     `kubectl describe crd {name}` says why",
                    READY_TIMEOUT.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    crd.status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| c.type_ == "Established" && c.status == "True")
}
