//! Backup hooks: commands in pods, run before and after their volumes are taken.
//!
//! Which hooks a pod has is a pure decision over the pod's object: annotations win, and then the
//! spec's hooks are not looked at for that phase. Running them goes through [`Exec`], which is a
//! pod's exec call in a cluster and a script in tests. A hook that fails is an error of the backup
//! whatever its `onError` says; `Fail` also leaves the pod out.

mod exec;
mod run;
mod tracker;
mod window;

use bowline_api::{
    Duration,
    names::{annotation, hook_setting},
    v1::{BackupHook, BackupHooks, ExecHook, HookErrorMode},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::{filter::Lists, selector};

pub use exec::{Exec, KubeExec, Output, exit_error};
pub(crate) use run::execute;
pub use run::{Level, Message, Outcome, Verdict, run, run_with};
pub use tracker::HookTracker;
pub(crate) use window::{Timed, Window};

/// Hooks are for pods and nothing else.
const PODS: &str = "pods";

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the pod and its volumes are backed up.
    Pre,
    /// After.
    Post,
}

impl Phase {
    /// The word for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

/// Where a hook is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// In annotations of the pod.
    Annotation,
    /// In the backup's spec.
    Spec,
}

impl Source {
    /// The word for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::Spec => "spec",
        }
    }
}

/// A hook that a pod has.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// Where it is from.
    pub source: Source,
    /// The name of the spec's entry; empty for an annotation.
    pub name: String,
    /// The place in that entry's list.
    pub index: usize,
    /// The command.
    pub exec: ExecHook,
    /// What was odd about it, for a warning.
    pub warning: Option<String>,
}

impl Hook {
    /// The name for people.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        match self.source {
            Source::Annotation => "<from-annotation>",
            Source::Spec => &self.name,
        }
    }
}

/// The hooks of a backup's spec, with their selections made ready.
#[derive(Debug, Clone, Default)]
pub struct SpecHooks {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    namespaces: Lists,
    resources: Lists,
    selector: Option<LabelSelector>,
    pre: Vec<BackupHook>,
    post: Vec<BackupHook>,
}

impl SpecHooks {
    /// Reads the hooks of a spec. `resolve` turns a kind into `resource.group`; one that it does
    /// not know stays as it is.
    pub fn new(
        hooks: Option<&BackupHooks>,
        resolve: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let resolved = |list: &Option<Vec<String>>| -> Vec<String> {
            let items = list.iter().flatten();
            items
                .map(|item| match item.as_str() {
                    "*" => "*".to_owned(),
                    kind => resolve(kind).unwrap_or_else(|| kind.to_owned()),
                })
                .collect()
        };
        let mut entries = Vec::new();
        for hooks in hooks.iter().flat_map(|hooks| &hooks.resources).flatten() {
            if let Some(Err(why)) = hooks.label_selector.as_ref().map(selector::check) {
                return Err(format!("label selector of hook {:?}: {why}", hooks.name));
            }
            // A `*` among the excludes means nothing here, as in Velero.
            let excluded = resolved(&hooks.excluded_resources);
            let excluded = excluded.iter().filter(|item| *item != "*");
            entries.push(Entry {
                name: hooks.name.clone(),
                namespaces: Lists::new(
                    hooks.included_namespaces.iter().flatten(),
                    hooks.excluded_namespaces.iter().flatten(),
                ),
                resources: Lists::new(resolved(&hooks.included_resources), excluded),
                selector: hooks.label_selector.clone(),
                pre: hooks.pre.clone().unwrap_or_default(),
                post: hooks.post.clone().unwrap_or_default(),
            });
        }
        Ok(Self { entries })
    }

    /// Whether the spec has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The hooks that a pod has for a phase, in the order to run them.
    #[must_use]
    pub fn of_pod(&self, pod: &Value, phase: Phase) -> Vec<Hook> {
        match in_annotations(pod, phase) {
            Some(hook) => vec![hook],
            None => self.in_spec(pod, phase),
        }
    }

    fn in_spec(&self, pod: &Value, phase: Phase) -> Vec<Hook> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let applies = |entry: &&Entry| {
            entry.namespaces.includes(namespace)
                && entry.resources.includes(PODS)
                && entry
                    .selector
                    .as_ref()
                    .is_none_or(|selector| selector::selects(selector, pod))
        };
        let mut hooks = Vec::new();
        for entry in self.entries.iter().filter(applies) {
            let list = match phase {
                Phase::Pre => &entry.pre,
                Phase::Post => &entry.post,
            };
            hooks.extend(list.iter().enumerate().map(|(index, hook)| Hook {
                source: Source::Spec,
                name: entry.name.clone(),
                index,
                exec: hook.exec.clone(),
                warning: None,
            }));
        }
        hooks
    }
}

/// The hook that a pod's annotations give for a phase. Keys without a phase, of old, count as
/// `pre` when there are none with it.
fn in_annotations(pod: &Value, phase: Phase) -> Option<Hook> {
    let prefixes: &[&str] = match phase {
        Phase::Pre => &[
            annotation::PRE_BACKUP_HOOK_PREFIX,
            annotation::LEGACY_PRE_BACKUP_HOOK_PREFIX,
        ],
        Phase::Post => &[annotation::POST_BACKUP_HOOK_PREFIX],
    };
    let annotations = &pod["metadata"]["annotations"];
    prefixes.iter().find_map(|prefix| {
        let setting = |name: &str| {
            let value = annotations.get(format!("{prefix}{name}"))?.as_str()?;
            (!value.is_empty()).then_some(value)
        };
        let command = command(setting(hook_setting::COMMAND)?);
        let (timeout, warning) = match setting(hook_setting::TIMEOUT).map(|t| (t, t.parse())) {
            None => (None, None),
            Some((_, Ok(timeout))) => (Some(timeout), None),
            Some((text, Err(why))) => {
                let why: <Duration as std::str::FromStr>::Err = why;
                let text = format!("Unable to parse provided timeout {text}, using default: {why}");
                (None, Some(text))
            }
        };
        let on_error = setting(hook_setting::ON_ERROR).map(HookErrorMode::from);
        Some(Hook {
            source: Source::Annotation,
            name: String::new(),
            index: 0,
            exec: ExecHook {
                container: setting(hook_setting::CONTAINER).map(str::to_owned),
                command,
                on_error: on_error.filter(|mode| !matches!(mode, HookErrorMode::Other(_))),
                timeout,
                ..Default::default()
            },
            warning,
        })
    })
}

/// A list in JSON, or else one word: no shell takes it apart.
pub(crate) fn command(text: &str) -> Vec<String> {
    if text.starts_with('[')
        && let Ok(words) = serde_json::from_str(text)
    {
        return words;
    }
    vec![text.to_owned()]
}

#[cfg(test)]
mod tests;
