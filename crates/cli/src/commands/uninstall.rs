//! `bowline uninstall`: takes Bowline out of a cluster. What is in buckets stays.
//!
//! Objects with finalizers go first, while somebody is there to deal with them; the kinds go last,
//! and only if no other namespace has objects of them.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bowline_api::{
    names::{NODE_AGENT, REPO_CREDENTIALS_SECRET, SERVER, finalizer},
    v1::{PodVolumeBackup, PodVolumeRestore, Restore},
    v2alpha1::{DataDownload, DataUpload},
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Namespace, Secret},
        rbac::v1::ClusterRoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::install;
use crate::{
    cluster::{Plain, is_not_found},
    context::Context,
    flags,
    select::{Kind, ask},
};

/// How long the server may take to let go of its objects.
const GRACE: Duration = Duration::from_secs(60);
/// The same where no server runs in the cluster; one may run elsewhere.
const SHORT_GRACE: Duration = Duration::from_secs(5);
/// How long namespace and kinds may take to go.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often is looked whether something is gone.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not ask
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    force: bool,

    /// Accepted for compatibility: it is always waited for
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    wait: bool,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let (client, namespace) = (ctx.client().await?, ctx.namespace.as_str());
    if !args.force {
        writeln!(
            out,
            "You are about to uninstall Bowline from namespace {namespace}."
        )?;
        warn_of_password(&client, namespace, out).await?;
        if !ask("", out, &mut io::stdin().lock())? {
            return Ok(());
        }
    }
    // Kinds must not go before their objects, whose finalizers would then hold the namespace.
    remove_namespace(&client, namespace, out).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = install::binding_name(namespace);
    match remove(&bindings, &binding).await? {
        true => writeln!(out, "ClusterRoleBinding/{binding}: deleted")?,
        false => writeln!(
            out,
            "ClusterRoleBinding/{binding}: does not exist, skipping"
        )?,
    }
    remove_kinds(&client, out).await?;
    writeln!(out, "Bowline uninstalled ⛵")?;
    Ok(())
}

/// Who set a password of their own and loses it cannot read volume data any more.
async fn warn_of_password(
    client: &Client,
    namespace: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    if secrets
        .get_metadata_opt(REPO_CREDENTIALS_SECRET)
        .await
        .plain()?
        .is_some()
    {
        writeln!(
            out,
            "Secret {REPO_CREDENTIALS_SECRET} goes with it: keep a copy if you set the password of volume \
             repositories yourself."
        )?;
    }
    Ok(())
}

async fn remove_namespace(
    client: &Client,
    namespace: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces
        .get_metadata_opt(namespace)
        .await
        .plain()?
        .is_none()
    {
        writeln!(out, "Namespace/{namespace}: does not exist, skipping")?;
        return Ok(());
    }
    remove_finalized(client, namespace, out).await?;
    remove(&namespaces, namespace).await?;
    writeln!(out, "Waiting for namespace {namespace} to be deleted")?;
    out.flush()?;
    let deadline = Instant::now() + PATIENCE;
    while let Some(left) = namespaces.get_opt(namespace).await.plain()? {
        if Instant::now() > deadline {
            bail!(
                "namespace {namespace} is not gone after {} s{}",
                PATIENCE.as_secs(),
                what_remains(&left)
            );
        }
        sleep(PAUSE).await;
    }
    writeln!(out, "Namespace/{namespace}: deleted")?;
    Ok(())
}

/// What the cluster says keeps a namespace from going.
fn what_remains(namespace: &Namespace) -> String {
    let conditions = namespace
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let messages = conditions
        .filter(|condition| condition.status == "True")
        .filter_map(|condition| condition.message.clone());
    let messages: Vec<String> = messages.collect();
    match messages.is_empty() {
        true => String::new(),
        false => format!(": {}", messages.join("; ")),
    }
}

/// Deletes what has finalizers of ours. Server and node agents take them away, which for restores
/// takes their files out of the bucket; if they do not in time, they are ended and we do.
async fn remove_finalized(
    client: &Client,
    namespace: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "Waiting for resources with attached finalizers to be deleted"
    )?;
    out.flush()?;
    delete_all::<Restore>(client, namespace).await?;
    delete_all::<PodVolumeBackup>(client, namespace).await?;
    delete_all::<PodVolumeRestore>(client, namespace).await?;
    delete_all::<DataUpload>(client, namespace).await?;
    delete_all::<DataDownload>(client, namespace).await?;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let server = deployments.get_opt(SERVER).await.plain()?;
    let runs = |server: &Deployment| {
        let status = server.status.as_ref();
        status
            .and_then(|s| s.available_replicas)
            .unwrap_or_default()
            > 0
    };
    let grace = match server.as_ref().is_some_and(runs) {
        true => GRACE,
        false => SHORT_GRACE,
    };
    let deadline = Instant::now() + grace;
    while left(client, namespace).await? > 0 {
        if Instant::now() > deadline {
            return remove_by_force(client, namespace).await;
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Ends who could put finalizers back, then takes them away.
async fn remove_by_force(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    remove(&deployments, SERVER).await?;
    remove(&daemon_sets, NODE_AGENT).await?;
    let deadline = Instant::now() + GRACE;
    while deployments
        .get_metadata_opt(SERVER)
        .await
        .plain()?
        .is_some()
        || daemon_sets
            .get_metadata_opt(NODE_AGENT)
            .await
            .plain()?
            .is_some()
    {
        if Instant::now() > deadline {
            bail!("deployment velero or daemonset node-agent in {namespace} does not go");
        }
        sleep(PAUSE).await;
    }
    release::<Restore>(client, namespace, finalizer::RESTORE).await?;
    release::<PodVolumeBackup>(client, namespace, finalizer::POD_VOLUME).await?;
    release::<PodVolumeRestore>(client, namespace, finalizer::POD_VOLUME).await?;
    release::<DataUpload>(client, namespace, finalizer::DATA_UPLOAD_DOWNLOAD).await?;
    release::<DataDownload>(client, namespace, finalizer::DATA_UPLOAD_DOWNLOAD).await
}

/// How many objects with finalizers of ours are left.
async fn left(client: &Client, namespace: &str) -> anyhow::Result<usize> {
    let counts = futures::try_join!(
        count::<Restore>(client, namespace),
        count::<PodVolumeBackup>(client, namespace),
        count::<PodVolumeRestore>(client, namespace),
        count::<DataUpload>(client, namespace),
        count::<DataDownload>(client, namespace),
    )?;
    Ok(counts.0 + counts.1 + counts.2 + counts.3 + counts.4)
}

/// The objects of a kind; none if the cluster does not know the kind.
async fn objects<K: Kind>(client: &Client, namespace: &str) -> anyhow::Result<Vec<K>> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match api.list(&ListParams::default()).await {
        Err(error) if is_not_found(&error) => Ok(Vec::new()),
        other => Ok(other
            .plain()
            .with_context(|| format!("list {}", K::PLURAL))?
            .items),
    }
}

async fn count<K: Kind>(client: &Client, namespace: &str) -> anyhow::Result<usize> {
    Ok(objects::<K>(client, namespace).await?.len())
}

async fn delete_all<K: Kind>(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    for object in objects::<K>(client, namespace).await? {
        remove(&api, &object.name_any()).await?;
    }
    Ok(())
}

/// Takes one finalizer off all objects of a kind; those of others stay.
async fn release<K: Kind>(client: &Client, namespace: &str, ours: &str) -> anyhow::Result<()> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    for object in objects::<K>(client, namespace).await? {
        let (name, all) = (object.name_any(), object.finalizers());
        let others: Vec<&String> = all.iter().filter(|name| *name != ours).collect();
        if others.len() == all.len() {
            continue;
        }
        let patch = json!({ "metadata": {
            "finalizers": others,
            "resourceVersion": object.resource_version(),
        } });
        match api
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Err(error) if is_not_found(&error) => {}
            other => drop(
                other
                    .plain()
                    .with_context(|| format!("release {} {name}", K::KIND))?,
            ),
        }
    }
    Ok(())
}

/// The kinds of an installation go, unless another namespace uses them.
async fn remove_kinds(client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = ListParams::default().labels("component=velero");
    let mut kinds = api.list(&params).await.plain()?.items;
    kinds.retain(|kind| kind.spec.group == bowline_api::GROUP);
    for kind in &kinds {
        if let Some(user) = user_of(client, kind).await? {
            writeln!(
                out,
                "CustomResourceDefinitions stay: namespace {user} has {}",
                kind.spec.names.plural
            )?;
            return Ok(());
        }
    }
    for kind in &kinds {
        remove(&api, &kind.name_any()).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    for kind in &kinds {
        let name = kind.name_any();
        while api.get_metadata_opt(&name).await.plain()?.is_some() {
            if Instant::now() > deadline {
                bail!(
                    "CustomResourceDefinition {name} is not gone after {} s",
                    PATIENCE.as_secs()
                );
            }
            sleep(PAUSE).await;
        }
        writeln!(out, "CustomResourceDefinition/{name}: deleted")?;
    }
    Ok(())
}

/// A namespace that has objects of the kind.
async fn user_of(
    client: &Client,
    kind: &CustomResourceDefinition,
) -> anyhow::Result<Option<String>> {
    let Some(version) = kind.spec.versions.iter().find(|version| version.served) else {
        return Ok(None);
    };
    let names = &kind.spec.names;
    let gvk = GroupVersionKind::gvk(&kind.spec.group, &version.name, &names.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Err(error) if is_not_found(&error) => Ok(None),
        other => {
            let objects = other.plain()?.items;
            Ok(objects.first().and_then(ResourceExt::namespace))
        }
    }
}

/// Deletes an object; whether it was there.
async fn remove<K>(api: &Api<K>, name: &str) -> anyhow::Result<bool>
where
    K: Clone + DeserializeOwned + std::fmt::Debug + Resource<DynamicType = ()>,
{
    match api.delete(name, &DeleteParams::background()).await {
        Err(error) if is_not_found(&error) => Ok(false),
        other => {
            let kind = K::kind(&()).to_lowercase();
            other
                .plain()
                .with_context(|| format!("delete {kind} {name}"))?;
            Ok(true)
        }
    }
}
