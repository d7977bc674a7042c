//! What must be so before a server starts.

use std::net::SocketAddr;

use bowline_api::crd;
use k8s_openapi::api::core::v1::{Container, Namespace, Pod};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{Context, Error, Result};

/// The namespace is there.
pub(crate) async fn namespace(ctx: &Context) -> Result<()> {
    let api: Api<Namespace> = Api::all(ctx.client.clone());
    let name = &ctx.namespace;
    match api.get_opt(name).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::Setup(format!(
            "namespace {name} does not exist; create it, or choose another with --namespace"
        ))),
        Err(error) => Err(Error::api(format!("read namespace {name}"))(error)),
    }
}

/// All kinds are served.
pub(crate) async fn definitions(ctx: &Context) -> Result<()> {
    let mut missing = Vec::new();
    for version in ["v1", "v2alpha1"] {
        let group = format!("{}/{version}", bowline_api::GROUP);
        let served = match ctx.client.list_api_group_resources(&group).await {
            Ok(list) => list.resources,
            Err(kube::Error::Api(status)) if status.is_not_found() => Vec::new(),
            Err(error) => return Err(Error::api(format!("read what {group} serves"))(error)),
        };
        let wanted = crd::KINDS.iter().filter(|kind| kind.version == version);
        for kind in wanted {
            if !served.iter().any(|resource| resource.name == kind.plural) {
                missing.push(kind.name);
            }
        }
    }
    // A cluster that had a Velero before has not heard of these.
    let (ours, missing): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|kind| kind.starts_with("VolumePlugin"));
    if missing.is_empty() {
        if !ours.is_empty() {
            tracing::warn!(
                "the cluster does not know {}: plugins cannot tell their progress; install them with \
                 `bowline install --crds-only --apply`",
                ours.join(", ")
            );
        }
        return Ok(());
    }
    Err(Error::Setup(format!(
        "the cluster does not know these kinds of {}: {}; install them with `bowline install --crds-only --apply`",
        bowline_api::GROUP,
        missing.join(", ")
    )))
}

/// No Velero server runs in the namespace: it takes no lease, so both would act.
pub(crate) async fn alone(ctx: &Context) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let pods = match api.list(&ListParams::default()).await {
        Ok(pods) => pods.items,
        Err(error) => {
            tracing::warn!("cannot tell whether a Velero server runs here: {error}");
            return Ok(());
        }
    };
    let own = std::env::var("HOSTNAME").unwrap_or_default();
    match pods
        .iter()
        .find(|pod| pod.name_any() != own && is_velero(pod))
    {
        None => Ok(()),
        Some(pod) => Err(Error::Setup(format!(
            "a Velero server runs in namespace {} (pod {}); it knows no lease, so both would act on \
             the same objects. Stop it first, or start with --beside-velero",
            ctx.namespace,
            pod.name_any()
        ))),
    }
}

/// Whether a pod runs Velero's server, and is not on its way out or done.
fn is_velero(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().any(is_velero_server)
}

fn is_velero_server(container: &Container) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let serves = |words: &Option<Vec<String>>| words.iter().flatten().any(|word| word == "server");
    last.contains("velero")
        && (serves(&container.args) || serves(&container.command))
        && !container
            .args
            .iter()
            .flatten()
            .any(|word| word == "node-agent")
}

/// Who this server is, for the lease: the pod's name, and something that no restart repeats.
pub(crate) fn identity() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "bowline".to_owned());
    format!("{host}_{}", uuid::Uuid::new_v4())
}

/// Where others reach this server, for signed URLs of files.
pub(crate) fn public_url(address: SocketAddr) -> String {
    let port = address.port();
    if !address.ip().is_unspecified() {
        return format!("http://{address}");
    }
    match std::env::var("POD_IP") {
        Ok(ip) if ip.contains(':') => format!("http://[{ip}]:{port}"),
        Ok(ip) if !ip.is_empty() => format!("http://{ip}:{port}"),
        _ => format!("http://127.0.0.1:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn velero_servers_are_told_from_others() {
        let pod = |image: &str, args: &[&str], phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p"}, "status": {"phase": phase},
                "spec": {"containers": [{"name": "velero", "image": image, "command": ["/velero"], "args": args}]},
            }))
            .unwrap()
        };
        let velero = "registry.example/velero/velero:v1.18.3";
        for (pod, expected) in [
            (pod(velero, &["server", "--features="], "Running"), true),
            (pod(velero, &["server"], "Pending"), true),
            (pod(velero, &["server"], "Failed"), false),
            (pod(velero, &["node-agent", "server"], "Running"), false),
            (pod(velero, &["repo-maintenance"], "Running"), false),
            (
                pod("registry.example/velero/bowline:1", &["server"], "Running"),
                false,
            ),
        ] {
            assert_eq!(is_velero(&pod), expected, "{pod:?}");
        }
    }
}
