//! Resource modifiers: changes that the user asks for, made to objects between the actions and the
//! cluster. A ConfigMap holds rules; a rule has conditions, and patches of one kind.

mod parse;
mod value;

use bowline_apiserver::{Absent, BadPatch, json_patch, merge_patch, strategic_merge};
use globset::GlobMatcher;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use regex::Regex;
use serde_json::Value;

use crate::{action::text, filter::Lists, selector};

/// The groups and versions that take strategic merge patches: what Velero's server knows by heart.
const STRATEGIC: &[&str] = &[
    "v1",
    "apps/v1",
    "batch/v1",
    "velero.io/v1",
    "velero.io/v2alpha1",
    "snapshot.storage.k8s.io/v1",
    "groupsnapshot.storage.k8s.io/v1beta2",
];

/// The rules of a restore.
pub struct Modifiers {
    version: String,
    rules: Vec<parse::Rule>,
}

impl Modifiers {
    /// Changes an object of `kind` (`pods`, `deployments.apps`) that still has its original
    /// namespace. What went wrong is returned; what worked is kept.
    pub fn apply(&self, kind: &str, object: &mut Value) -> Vec<String> {
        let mut errors = Vec::new();
        // All conditions look at the object as it came, whatever the first rules make of it.
        let mut matched = Vec::new();
        for rule in &self.rules {
            match &rule.sound {
                Ok(sound) if sound.conditions.match_object(kind, object) => {
                    matched.push(&sound.patch);
                }
                Ok(_) => {}
                Err(why) => errors.push(why.clone()),
            }
        }
        for patch in matched {
            match patch.apply(object) {
                Ok(()) => {}
                Err(why) => errors.push(format!("error in applying patch {why}")),
            }
        }
        errors
    }
}

/// A rule that can be used.
struct Sound {
    conditions: Conditions,
    patch: Patch,
}

/// What an object must be like.
struct Conditions {
    namespaces: Lists,
    kinds: GlobMatcher,
    name: Option<Regex>,
    labels: Option<LabelSelector>,
    /// Operations `test` of a JSON patch.
    tests: Vec<Value>,
}

impl Conditions {
    fn match_object(&self, kind: &str, object: &Value) -> bool {
        let namespace = text(object, "/metadata/namespace");
        let name = text(object, "/metadata/name");
        (namespace.is_empty() || self.namespaces.includes(namespace))
            && self.kinds.is_match(kind.replace('.', "/"))
            && self.name.as_ref().is_none_or(|regex| regex.is_match(name))
            && self
                .labels
                .as_ref()
                .is_none_or(|labels| selector::selects(labels, object))
            && (self.tests.is_empty() || json_patch(object, &self.tests, Absent::Refused).is_ok())
    }
}

/// Patches of one kind, one after the other; each of them is sound JSON.
enum Patch {
    /// The operations of a JSON patch.
    Json(Vec<Value>),
    Merge(Vec<Value>),
    Strategic(Vec<Value>),
}

impl Patch {
    /// Changes the object, or leaves it as it is.
    fn apply(&self, object: &mut Value) -> Result<(), String> {
        let patched = match self {
            Self::Json(operations) => match json_patch(object, operations, Absent::Refused) {
                Ok(patched) => patched,
                // That is what a test is for.
                Err(BadPatch::TestFailed(_)) => return Ok(()),
                Err(why) => return Err(format!("error in applying JSON Patch {why}")),
            },
            Self::Merge(patches) => {
                let mut patched = object.clone();
                for patch in patches {
                    merge_patch(&mut patched, patch);
                }
                patched
            }
            Self::Strategic(patches) => strategic(object, patches)?,
        };
        if text(&patched, "/kind").is_empty() {
            return Err("error in unmarshalling modified object: 'kind' is missing".to_owned());
        }
        *object = patched;
        Ok(())
    }
}

fn strategic(object: &Value, patches: &[Value]) -> Result<Value, String> {
    let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    if !STRATEGIC.contains(&version) {
        return Err(format!(
            "no kind {kind:?} is registered for version {version:?}; use mergePatches"
        ));
    }
    let mut patched = object.clone();
    for patch in patches {
        patched = strategic_merge(version, kind, &patched, patch)
            .map_err(|status| format!("error in applying Strategic Patch {}", status.message))?;
    }
    Ok(patched)
}

#[cfg(test)]
mod tests;
