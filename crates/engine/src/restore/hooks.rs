//! Restore hooks: init containers for restored pods, and commands run in them once they are up.
//!
//! Which hooks a pod has is a pure decision over its object: annotations win, and then the spec's
//! hooks of that sort are not looked at. Init containers are put in by an action, before the pod is
//! created; commands are run by [`PostHooks`], after it.

mod init;
mod pods;
mod post;

use bowline_api::{
    Duration,
    names::{annotation, hook_setting},
    v1::{ExecHook, ExecRestoreHook, HookErrorMode, RestoreHook, RestoreHooks, RestoreSpec},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::{
    action::text,
    filter::Lists,
    hooks::{Hook, Source, command},
    selector,
};

pub use post::{PostHooks, Tell};

/// The hooks of a restore's spec, with their selections made ready.
#[derive(Debug, Clone, Default)]
pub struct SpecHooks {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    namespaces: Lists,
    selector: Option<LabelSelector>,
    hooks: Vec<RestoreHook>,
}

/// A command for a restored pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodHook {
    /// The command; its container is always given.
    pub hook: Hook,
    /// How long to wait for the container; none for as long as it takes.
    pub wait_timeout: Option<std::time::Duration>,
    /// Whether the container must be ready, and not only run.
    pub wait_for_ready: bool,
}

impl PodHook {
    fn container(&self) -> &str {
        self.hook.exec.container.as_deref().unwrap_or_default()
    }
}

impl SpecHooks {
    /// Reads the hooks of a spec.
    ///
    /// # Errors
    /// When a selector is not sound.
    pub fn new(hooks: Option<&RestoreHooks>) -> Result<Self, String> {
        let mut entries = Vec::new();
        for hooks in hooks.iter().flat_map(|hooks| &hooks.resources).flatten() {
            if let Some(Err(why)) = hooks.label_selector.as_ref().map(selector::check) {
                return Err(format!("label selector of hook {:?}: {why}", hooks.name));
            }
            entries.push(Entry {
                name: hooks.name.clone(),
                namespaces: Lists::new(
                    hooks.included_namespaces.iter().flatten(),
                    hooks.excluded_namespaces.iter().flatten(),
                ),
                selector: hooks.label_selector.clone(),
                hooks: hooks.post_hooks.clone().unwrap_or_default(),
            });
        }
        Ok(Self { entries })
    }

    /// The commands for a pod as it was restored, in its new namespace, in the order to run them.
    #[must_use]
    pub fn commands_for(&self, pod: &Value) -> Vec<PodHook> {
        let Some(first) = pod.pointer("/spec/containers/0") else {
            return Vec::new();
        };
        let first = text(first, "/name");
        if let Some(hook) = in_annotations(pod, first) {
            return vec![hook];
        }
        let mut commands = Vec::new();
        for entry in self.entries_for(text(pod, "/metadata/namespace"), pod) {
            for (index, hook) in entry.hooks.iter().enumerate() {
                let exec = hook.exec.as_ref();
                commands.extend(exec.map(|exec| in_spec(&entry.name, index, exec, first)));
            }
        }
        commands
    }

    /// The entries that are for a pod which is to be in this namespace.
    fn entries_for<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a Value,
    ) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| {
            let selector = entry.selector.as_ref();
            entry.namespaces.includes(namespace)
                && selector.is_none_or(|selector| selector::selects(selector, pod))
        })
    }
}

fn in_spec(name: &str, index: usize, exec: &ExecRestoreHook, first: &str) -> PodHook {
    let container = exec.container.as_deref().filter(|name| !name.is_empty());
    PodHook {
        hook: Hook {
            source: Source::Spec,
            name: name.to_owned(),
            index,
            exec: ExecHook {
                container: Some(container.unwrap_or(first).to_owned()),
                command: exec.command.clone(),
                on_error: exec.on_error.clone(),
                timeout: exec.exec_timeout.clone(),
                ..Default::default()
            },
            warning: None,
        },
        wait_timeout: exec.wait_timeout.as_ref().and_then(positive),
        wait_for_ready: exec.wait_for_ready == Some(true),
    }
}

/// The command that a pod's annotations give.
fn in_annotations(pod: &Value, first: &str) -> Option<PodHook> {
    let annotations = &pod["metadata"]["annotations"];
    let setting = |name: &str| {
        let key = format!("{}{name}", annotation::POST_RESTORE_HOOK_PREFIX);
        let value = annotations.get(key)?.as_str()?;
        (!value.is_empty()).then_some(value)
    };
    let command = command(setting(hook_setting::COMMAND)?);
    let mut warnings = Vec::new();
    let mut duration = |name: &str, what: &str| -> Option<Duration> {
        let text = setting(name)?;
        let parsed = text.parse();
        parsed
            .map_err(|why| warnings.push(format!("Unable to parse {what} {text}, ignoring: {why}")))
            .ok()
    };
    let timeout = duration(hook_setting::EXEC_TIMEOUT, "exec timeout");
    let wait = duration(hook_setting::WAIT_TIMEOUT, "wait timeout");
    let ready = setting(hook_setting::WAIT_FOR_READY).map(|text| (text, yes_or_no(text)));
    if let Some((text, None)) = ready {
        warnings.push(format!("Unable to parse wait for ready {text}, ignoring"));
    }
    let on_error = setting(hook_setting::ON_ERROR).map(HookErrorMode::from);
    Some(PodHook {
        hook: Hook {
            source: Source::Annotation,
            name: String::new(),
            index: 0,
            exec: ExecHook {
                container: Some(setting(hook_setting::CONTAINER).unwrap_or(first).to_owned()),
                command,
                on_error: on_error.filter(|mode| !matches!(mode, HookErrorMode::Other(_))),
                timeout,
                ..Default::default()
            },
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
        },
        wait_timeout: wait.as_ref().and_then(positive),
        wait_for_ready: ready.is_some_and(|(_, ready)| ready == Some(true)),
    })
}

fn positive(duration: &Duration) -> Option<std::time::Duration> {
    duration.to_std().ok().filter(|limit| !limit.is_zero())
}

/// A boolean in any of the spellings that Go takes.
pub(super) fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// What is wrong with the hooks of a spec.
#[must_use]
pub fn validate(spec: &RestoreSpec) -> Vec<String> {
    let mut errors = Vec::new();
    let entries = spec.hooks.iter().flat_map(|hooks| &hooks.resources);
    for (index, entry) in entries.flatten().enumerate() {
        if let Some(Err(why)) = entry.label_selector.as_ref().map(selector::check) {
            errors.push(format!("invalid restore hooks: {why}"));
        }
        for (at, hook) in entry.post_hooks.iter().flatten().enumerate() {
            let init = hook.init.iter().flat_map(|init| &init.init_containers);
            for why in init.flatten().filter_map(|c| init::check(c).err()) {
                let name = &entry.name;
                errors.push(format!(
                    "invalid init container in restore hook {name:?}: {why}"
                ));
            }
            let exec = hook.exec.iter();
            let durations = exec.flat_map(|exec| {
                [
                    ("execTimeout", &exec.exec_timeout),
                    ("waitTimeout", &exec.wait_timeout),
                ]
            });
            for (field, duration) in durations {
                if let Some(Err(why)) = duration.as_ref().map(Duration::nanos) {
                    errors.push(format!(
                        "spec.hooks.resources[{index}].postHooks[{at}].exec.{field}: {why}"
                    ));
                }
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests;
