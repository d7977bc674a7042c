//! `velero.io/pod-volume-restore`: a pod whose volumes were copied file by file waits in its first
//! init container until they are filled.

mod container;

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use bowline_api::{
    names::{LEGACY_RESTORE_WAIT, RESTORE_WAIT, SERVER, annotation},
    v1::{PodVolumeBackup, Restore},
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::container::Settings;
use super::{
    Cluster, Executed, RestoreItemAction, config::Configs, items, pod::PODS, retain_items,
};
use crate::action::{Refused, text};

const NAME: &str = "velero.io/pod-volume-restore";

pub(super) struct Action {
    client: Client,
    namespace: String,
    settings: Result<Settings, Refused>,
    /// The image, unless the settings have one.
    image: OnceCell<String>,
    /// Volumes with a snapshot, by pod.
    volumes: HashMap<String, BTreeSet<String>>,
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
            volumes: with_snapshots(&cluster.pod_volume_backups),
        }
    }

    /// The volumes of a pod that have to be filled. Pods of very old backups name them themselves.
    fn volumes_of(&self, pod: &Value, pristine: &Value) -> BTreeSet<String> {
        let known = self.volumes.get(&key(
            text(pristine, "/metadata/namespace"),
            text(pod, "/metadata/name"),
        ));
        let volumes: BTreeSet<String> = known
            .into_iter()
            .flatten()
            .filter(|volume| can_be_filled(pod, volume))
            .cloned()
            .collect();
        match volumes.is_empty() {
            true => in_annotations(pod).collect(),
            false => volumes,
        }
    }

    async fn image(&self, settings: &Settings) -> Result<String, Refused> {
        if let Some(image) = &settings.image {
            return Ok(image.clone());
        }
        let image = self.image.get_or_try_init(|| self.server_image()).await?;
        Ok(image.clone())
    }

    /// The image that the server runs from.
    async fn server_image(&self) -> Result<String, Refused> {
        let failed = |why: String| {
            let of = format!("{}/{SERVER}", self.namespace);
            Refused(format!("get the image of Deployment {of}: {why}"))
        };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let server = deployments.get(SERVER).await;
        let server = server.map_err(|error| failed(error.to_string()))?;
        let containers = server.spec.and_then(|spec| spec.template.spec);
        let mut containers = containers.into_iter().flat_map(|spec| spec.containers);
        let image = containers.next().and_then(|container| container.image);
        image.ok_or_else(|| failed("it has none".to_owned()))
    }
}

#[async_trait]
impl RestoreItemAction for Action {
    fn name(&self) -> &str {
        NAME
    }

    fn applies_to(&self, kind: &str, pod: &Value) -> bool {
        kind == PODS
            && (items(pod, "/spec/initContainers").iter().any(waits)
                || in_annotations(pod).next().is_some()
                || !self.volumes.is_empty() && !self.volumes_of(pod, pod).is_empty())
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

fn key(namespace: &str, pod: &str) -> String {
    format!("{namespace}/{pod}")
}

/// Without a snapshot there is nothing to fill the volume with.
fn with_snapshots(backups: &[PodVolumeBackup]) -> HashMap<String, BTreeSet<String>> {
    let mut volumes: HashMap<String, BTreeSet<String>> = HashMap::new();
    for backup in backups {
        let snapshot = backup
            .status
            .as_ref()
            .and_then(|status| status.snapshot_id.as_deref());
        if snapshot.is_none_or(str::is_empty) {
            continue;
        }
        let pod = &backup.spec.pod;
        let pod = key(
            pod.namespace.as_deref().unwrap_or_default(),
            pod.name.as_deref().unwrap_or_default(),
        );
        let of_pod = volumes.entry(pod).or_default();
        of_pod.insert(backup.spec.volume.clone());
    }
    volumes
}

/// Old versions copied volumes that Kubernetes fills.
fn can_be_filled(pod: &Value, name: &str) -> bool {
    !items(pod, "/spec/volumes").iter().any(|volume| {
        volume["name"] == name
            && (volume["projected"].is_object() || volume["downwardAPI"].is_object())
    })
}

fn in_annotations(pod: &Value) -> impl Iterator<Item = String> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let keys = annotations.into_iter().flat_map(|entries| entries.keys());
    keys.filter_map(|key| key.strip_prefix(annotation::LEGACY_SNAPSHOT_PREFIX))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests;
