//! The server's Deployment, changed in place. Its pod stays JSON, so that nothing of it is lost that
//! we do not know.

use anyhow::bail;
use bowline_api::names::{SERVER, label};
use k8s_openapi::api::apps::v1;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::container::{VOLUME, mount, volume};
use crate::cluster::Plain;

/// The lists of a pod that plugins are in.
const LISTS: [&str; 3] = ["initContainers", "containers", "volumes"];

/// The Deployment, and what its pod is to be.
pub(super) struct Deployment {
    api: Api<DynamicObject>,
    object: DynamicObject,
    pod: Value,
}

impl Deployment {
    /// Finds it: by its label, and by its container.
    pub(super) async fn find(client: Client, namespace: &str) -> anyhow::Result<Self> {
        let resource = ApiResource::erase::<v1::Deployment>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let labels = format!("{}={SERVER}", label::COMPONENT);
        let all = api.list(&ListParams::default().labels(&labels)).await;
        for object in all.plain()?.items {
            let pod = object.data["spec"]["template"]["spec"].clone();
            if items(&pod, "containers").iter().any(is_server) {
                return Ok(Self { api, object, pod });
            }
        }
        bail!("Velero deployment not found")
    }

    /// The init containers.
    pub(super) fn plugins(&mut self) -> &mut Vec<Value> {
        list(&mut self.pod, "initContainers")
    }

    /// Sees to it that the server has a folder of plugins.
    pub(super) fn add_folder(&mut self) {
        let is_it = |entry: &Value| entry["name"] == VOLUME;
        if !items(&self.pod, "volumes").iter().any(is_it) {
            list(&mut self.pod, "volumes").push(volume());
        }
        for container in list(&mut self.pod, "containers") {
            if is_server(container) && !items(container, "volumeMounts").iter().any(is_it) {
                list(container, "volumeMounts").push(mount());
            }
        }
    }

    /// Writes what is another now. Whoever changed the Deployment meanwhile is not overruled.
    pub(super) async fn write(self) -> anyhow::Result<()> {
        let before = &self.object.data["spec"]["template"]["spec"];
        let mut change = json!({});
        for key in LISTS {
            let now = &self.pod[key];
            if *now != before[key] {
                let is_empty = now.as_array().is_some_and(Vec::is_empty);
                change[key] = if is_empty { Value::Null } else { now.clone() };
            }
        }
        let patch = json!({
            "metadata": { "resourceVersion": self.object.metadata.resource_version },
            "spec": { "template": { "spec": change } },
        });
        let (name, params) = (self.object.name_any(), PatchParams::default());
        self.api
            .patch(&name, &params, &Patch::Merge(&patch))
            .await
            .plain()?;
        Ok(())
    }
}

fn is_server(container: &Value) -> bool {
    container["name"] == SERVER
}

fn items<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[], Vec::as_slice)
}

/// A list, made if it is not there.
fn list<'a>(of: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let list = &mut of[key];
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().expect("it is a list now")
}
