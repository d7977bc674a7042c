//! `velero.io/pod-volume-restore`: a pod whose volumes were copied file by file waits in its first
//! init container until they are filled.

mod container;

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use bowline_api::{
    names::{LEGACY_RESTORE_WAIT, NODE_AGENT, RESTORE_WAIT, SERVER},
    v1::Restore,
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::PodTemplateSpec,
};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::container::Settings;
use super::{
    Cluster, Executed, RestoreItemAction, config::Configs, items, pod::PODS, retain_items,
};
use crate::{
    action::{Refused, text},
    restore::pod_volume::Copies,
};

const NAME: &str = "velero.io/pod-volume-restore";

pub(super) struct Action {
    client: Client,
    namespace: String,
    settings: Result<Settings, Refused>,
    /// The image, unless the settings have one.
    image: OnceCell<String>,
    copies: Arc<Copies>,
}

impl Action {
    pub(super) fn new(cluster: &Cluster, configs: &Configs) -> Self {
        let settings = configs
            .of(NAME)
            .map(|data| Settings::read(&data, &cluster.image_tag));
        Self {
            client: cluster.client.clone(),
            namespace: cluster.namespace.clone(),
            settings,
            image: OnceCell::new_with(cluster.image.clone()),
            copies: Arc::clone(&cluster.copies),
        }
    }

    /// The volumes of a pod that have to be filled. Those that cannot be are among them.
    fn volumes_of(&self, pod: &Value, pristine: &Value) -> BTreeSet<String> {
        let volumes = self.copies.of(pod, text(pristine, "/metadata/namespace"));
        volumes.into_iter().map(|volume| volume.volume).collect()
    }

    async fn image(&self, settings: &Settings) -> Result<String, Refused> {
        if let Some(image) = &settings.image {
            return Ok(image.clone());
        }
        let image = self.image.get_or_try_init(|| self.server_image()).await?;
        Ok(image.clone())
    }

    /// The image that the server runs from. A server outside the cluster has no Deployment; then it
    /// is that of the node processes.
    async fn server_image(&self) -> Result<String, Refused> {
        let namespace = &self.namespace;
        let failed =
            |what: &str, error: &kube::Error| Refused(format!("get the image of {what}: {error}"));
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let server = deployments.get_opt(SERVER).await;
        let server =
            server.map_err(|error| failed(&format!("Deployment {namespace}/{SERVER}"), &error))?;
        if let Some(image) = server.and_then(|server| image_in(server.spec?.template, SERVER)) {
            return Ok(image);
        }
        let agents: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
        let agents = agents.get_opt(NODE_AGENT).await;
        let agents = agents
            .map_err(|error| failed(&format!("DaemonSet {namespace}/{NODE_AGENT}"), &error))?;
        let agents = agents.and_then(|agents| image_in(agents.spec?.template, NODE_AGENT));
        agents.ok_or_else(|| {
            Refused(format!(
                "no image for {RESTORE_WAIT}: there is neither a Deployment {namespace}/{SERVER} nor a DaemonSet {namespace}/{NODE_AGENT}, and no ConfigMap of {NAME} names one"
            ))
        })
    }
}

/// The image of a container, or else of the first one.
fn image_in(template: PodTemplateSpec, container: &str) -> Option<String> {
    let containers = template.spec?.containers;
    let named = containers.iter().find(|c| c.name == container);
    let image = named.or_else(|| containers.first())?.image.clone();
    image.filter(|image| !image.is_empty())
}

#[async_trait]
impl RestoreItemAction for Action {
    fn name(&self) -> &str {
        NAME
    }

    fn applies_to(&self, kind: &str, pod: &Value) -> bool {
        kind == PODS
            && (items(pod, "/spec/initContainers").iter().any(waits)
                || !self.volumes_of(pod, pod).is_empty())
    }

    async fn execute(
        &self,
        mut object: Value,
        pristine: &Value,
        restore: &Restore,
    ) -> Result<Executed, Refused> {
        // One from an earlier restore would wait for what nobody does.
        if let Some(spec) = object.get_mut("spec") {
            retain_items(spec, "initContainers", |container| !waits(container));
        }
        let volumes = self.volumes_of(&object, pristine);
        if !volumes.is_empty() {
            let settings = self.settings.as_ref().map_err(Clone::clone)?;
            let image = self.image(settings).await?;
            let uid = restore.metadata.uid.as_deref().unwrap_or_default();
            let container = settings.container(&object, &image, uid, &volumes);
            put_first(&mut object, container);
        }
        Ok(object.into())
    }
}

fn put_first(pod: &mut Value, container: Value) {
    let containers = &mut pod["spec"]["initContainers"];
    match containers.as_array_mut() {
        Some(containers) => containers.insert(0, container),
        None => *containers = json!([container]),
    }
}

fn waits(container: &Value) -> bool {
    matches!(text(container, "/name"), RESTORE_WAIT | LEGACY_RESTORE_WAIT)
}

#[cfg(test)]
mod tests;
