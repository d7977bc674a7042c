//! Init containers for restored pods.

use bowline_api::{
    names::{RESTORE_WAIT, annotation, hook_setting},
    v1::Restore,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::SpecHooks;
use crate::{action::text, hooks::command};

impl SpecHooks {
    /// A cheap look: false means that the pod gets no init containers.
    pub(in crate::restore) fn may_have_init(&self, pod: &Value) -> bool {
        let mut hooks = self.entries.iter().flat_map(|entry| &entry.hooks);
        setting(pod, hook_setting::CONTAINER_IMAGE).is_some()
            || hooks.any(|hook| hook.init.is_some())
    }

    /// Puts init containers before those that a pod has, and after the one that waits for volumes.
    /// The pod still has its original namespace.
    pub(in crate::restore) fn add_init(
        &self,
        pod: &mut Value,
        restore: &Restore,
    ) -> Result<(), String> {
        let containers = match in_annotations(pod, restore) {
            Some(container) => vec![container],
            None => self.in_spec(pod, restore)?,
        };
        if containers.is_empty() {
            return Ok(());
        }
        let place = &mut pod["spec"]["initContainers"];
        match place.as_array_mut() {
            Some(own) => {
                let waits = own.first().is_some_and(|own| own["name"] == RESTORE_WAIT);
                let at = usize::from(waits);
                own.splice(at..at, containers);
            }
            None => *place = containers.into(),
        }
        Ok(())
    }

    fn in_spec(&self, pod: &Value, restore: &Restore) -> Result<Vec<Value>, String> {
        let original = text(pod, "/metadata/namespace");
        let mapping = restore.spec.namespace_mapping.as_ref();
        let target = mapping.and_then(|mapping| mapping.get(original));
        let target = target.map_or(original, String::as_str);
        let mut containers = Vec::new();
        for entry in self.entries_for(target, pod) {
            let init = entry.hooks.iter().filter_map(|hook| hook.init.as_ref());
            for container in init.flat_map(|init| &init.init_containers).flatten() {
                check(container)?;
                containers.push(container.clone());
            }
        }
        Ok(containers)
    }
}

/// Whether an init container of a spec has what it needs.
pub(super) fn check(container: &Value) -> Result<(), String> {
    let has_command = container["command"]
        .as_array()
        .is_some_and(|command| !command.is_empty());
    let is_named = !text(container, "/name").is_empty() && !text(container, "/image").is_empty();
    if has_command && is_named {
        return Ok(());
    }
    Err(
        "invalid InitContainer in restore hook, it doesn't have Command, Name or Image field"
            .to_owned(),
    )
}

/// The container that a pod's annotations give. Without a command the image's own is run.
fn in_annotations(pod: &Value, restore: &Restore) -> Option<Value> {
    let image = setting(pod, hook_setting::CONTAINER_IMAGE)?;
    let name = match setting(pod, hook_setting::CONTAINER_NAME) {
        Some(name) => name.to_owned(),
        None => own_name(pod, restore),
    };
    let mut container = json!({"name": name, "image": image});
    if let Some(text) = setting(pod, hook_setting::COMMAND) {
        container["command"] = command(text).into();
    }
    Some(container)
}

fn setting<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let key = format!("{}{name}", annotation::INIT_RESTORE_HOOK_PREFIX);
    let value = pod["metadata"]["annotations"].get(key)?.as_str()?;
    (!value.is_empty()).then_some(value)
}

/// A name that no other restore of the pod gives.
fn own_name(pod: &Value, restore: &Restore) -> String {
    let uid = restore.metadata.uid.as_deref().unwrap_or_default();
    let (namespace, name) = (
        text(pod, "/metadata/namespace"),
        text(pod, "/metadata/name"),
    );
    let [a, b, c, d, ..] = Sha256::digest(format!("{uid}/{namespace}/{name}")).0;
    format!("velero-restore-init-{a:02x}{b:02x}{c:02x}{d:02x}")
}
