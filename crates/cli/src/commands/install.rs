//! `bowline install`: everything that Bowline needs in a cluster, printed or put there.

mod check;
mod flags;
mod objects;
mod put;
mod ready;
mod workloads;

use std::{fs, io::Write, path::Path};

use anyhow::{Context as _, bail, ensure};
use bowline_api::crd;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{
    cluster::{Plain, is_not_found},
    context::Context,
    say,
};
use check::given;
pub(crate) use flags::Args;
use flags::Output;
pub(crate) use objects::binding_name;

/// The image that is installed unless another is named; `cargo xtask image` makes it.
pub(super) const IMAGE: &str = concat!("bowline/bowline:v", env!("CARGO_PKG_VERSION"));

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let crds = crd::all();
    let others = match args.crds_only {
        true => Vec::new(),
        false => {
            args.check()?;
            let features = ctx.features_of_flag();
            let remarks = args.remarks(&features);
            remarks.iter().for_each(|remark| say(remark));
            let files = Files::read(&args)?;
            objects::all(&args, &ctx.namespace, &features, &files)?
        }
    };
    if let Some(output) = args.output {
        print(output, crds.iter().chain(&others), out)?;
    }
    if args.dry_run {
        return Ok(());
    }
    let client = ctx.client().await?;
    if !args.crds_only {
        check_config_maps(&args, &client, &ctx.namespace).await?;
    }
    for crd in &crds {
        put::object(&client, crd, args.apply, out).await?;
    }
    ready::served(&client, &crds).await?;
    for object in &others {
        put::object(&client, object, args.apply, out).await?;
    }
    match args.crds_only {
        true => Ok(()),
        false => finish(&args, &client, &ctx.namespace, out).await,
    }
}

/// Waits if that is wanted, and says what there is now.
async fn finish(
    args: &Args,
    client: &Client,
    namespace: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.wait {
        writeln!(out, "Waiting for the deployment velero to be ready.")?;
        out.flush()?;
        ready::deployment(client, namespace).await?;
        if args.node_agent.use_node_agent {
            writeln!(out, "Waiting for the daemonset node-agent to be ready.")?;
            out.flush()?;
            ready::daemon_set(client, namespace).await?;
        }
    }
    if given(args.storage.secret_file.as_ref()).is_none() {
        writeln!(out, "\nNo secret file was specified, no Secret created.\n")?;
    }
    if args.storage.no_default_backup_location {
        writeln!(
            out,
            "\nNo bucket and provider were specified, no default backup storage location created.\n"
        )?;
    }
    writeln!(
        out,
        "Bowline is installed! ⛵ Use 'kubectl logs deployment/velero -n {namespace}' to view the status."
    )?;
    Ok(())
}

/// What is read from files that flags name.
struct Files {
    /// The credentials.
    secret: Option<Vec<u8>>,
    /// The certificates to trust.
    certificates: Option<Vec<u8>>,
}

impl Files {
    fn read(args: &Args) -> anyhow::Result<Self> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("open {}", path.display()));
        let storage = &args.storage;
        let file = |flag: &Option<std::path::PathBuf>| {
            let path = given(flag.as_ref());
            path.map(|path| read(path)).transpose()
        };
        Ok(Self {
            secret: file(&storage.secret_file)?,
            certificates: file(&storage.cacert)?,
        })
    }
}

fn print<'a>(
    output: Output,
    objects: impl Iterator<Item = &'a Value>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let objects: Vec<&Value> = objects.collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let text = match output {
        Output::Yaml => serde_saphyr::to_string(&list)?,
        Output::Json => serde_json::to_string_pretty(&list)? + "\n",
    };
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// ConfigMaps that pods will read must be there and make sense before the pods are.
async fn check_config_maps(args: &Args, client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    for (flag, name) in [
        (
            "node-agent-configmap",
            &args.node_agent.node_agent_configmap,
        ),
        (
            "repo-maintenance-job-configmap",
            &args.server.repo_maintenance_job_configmap,
        ),
        (
            "backup-repository-configmap",
            &args.pods.backup_repository_configmap,
        ),
    ] {
        let Some(name) = given(name.as_ref()) else {
            continue;
        };
        let map = match api.get(name).await {
            Err(error) if is_not_found(&error) => {
                bail!("--{flag}: there is no ConfigMap {name} in namespace {namespace}")
            }
            other => other.plain()?,
        };
        let data = map.data.unwrap_or_default();
        ensure!(!data.is_empty(), "--{flag}: ConfigMap {name} has no data");
        for (key, text) in data {
            serde_json::from_str::<serde_json::Map<String, Value>>(&text)
                .with_context(|| format!("--{flag}: read key {key} of ConfigMap {name}"))?;
        }
    }
    Ok(())
}
