//! From the text of a ConfigMap to rules. Unknown keys are refused, and so is all that Velero
//! refuses, in its words; and what it would stumble over at each object, with its place.

use globset::{GlobBuilder, GlobMatcher};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Conditions, Modifiers, Patch, Sound, value};
use crate::{
    filter::{Lists, Pattern},
    policy::{RawSelector, or_default, yaml},
    selector,
};

const OPERATIONS: &[&str] = &["add", "remove", "replace", "test", "move", "copy"];

impl Modifiers {
    /// The modifiers of a ConfigMap; it must have exactly one key, whatever its name.
    ///
    /// # Errors
    /// When the text cannot be made sense of. Whether it is sound is for [`Modifiers::validate`].
    pub fn parse(config_map: &ConfigMap) -> Result<Self, String> {
        let mut texts = config_map.data.iter().flatten();
        let (Some((_, text)), None) = (texts.next(), texts.next()) else {
            return Err(format!(
                "illegal resource modifiers {}/{} configmap",
                config_map.namespace().unwrap_or_default(),
                config_map.name_any()
            ));
        };
        let document: Document = yaml(text).map_err(|why| {
            format!("failed to decode yaml data into resource modifiers, err: {why}")
        })?;
        let rules = document.resource_modifier_rules.into_iter().enumerate();
        Ok(Self {
            version: document.version,
            rules: rules
                .map(|(index, raw)| Rule {
                    sound: raw
                        .build()
                        .map_err(|why| format!("resourceModifierRules[{index}].{why}")),
                    raw,
                })
                .collect(),
        })
    }

    /// Whether they are sound.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), String> {
        if !self.version.eq_ignore_ascii_case("v1") {
            return Err(format!(
                "unsupported resource modifier version {}",
                self.version
            ));
        }
        if self.rules.is_empty() {
            return Err("resource modifier rules cannot be empty".to_owned());
        }
        self.rules.iter().try_for_each(|rule| rule.raw.check())?;
        let mut unsound = self
            .rules
            .iter()
            .filter_map(|rule| rule.sound.as_ref().err());
        unsound.next().map_or(Ok(()), |why| Err(why.clone()))
    }
}

/// A rule as it was written, and what was made of it.
pub(super) struct Rule {
    raw: RawRule,
    pub(super) sound: Result<Sound, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    #[serde(default, deserialize_with = "or_default")]
    version: String,
    #[serde(default, deserialize_with = "or_default")]
    resource_modifier_rules: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRule {
    #[serde(default, deserialize_with = "or_default")]
    conditions: RawConditions,
    #[serde(default, deserialize_with = "or_default")]
    patches: Vec<RawOperation>,
    #[serde(default, deserialize_with = "or_default")]
    merge_patches: Vec<RawPatch>,
    #[serde(default, deserialize_with = "or_default")]
    strategic_patches: Vec<RawPatch>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawConditions {
    #[serde(default, deserialize_with = "or_default")]
    namespaces: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    group_resource: String,
    #[serde(default, deserialize_with = "or_default")]
    resource_name_regex: String,
    #[serde(default)]
    label_selector: Option<RawSelector>,
    #[serde(default, deserialize_with = "or_default")]
    matches: Vec<RawMatch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMatch {
    #[serde(default, deserialize_with = "or_default")]
    path: String,
    #[serde(default, deserialize_with = "or_default")]
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOperation {
    #[serde(default, deserialize_with = "or_default")]
    operation: String,
    #[serde(default, deserialize_with = "or_default")]
    from: String,
    #[serde(default, deserialize_with = "or_default")]
    path: String,
    #[serde(default, deserialize_with = "or_default")]
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawPatch {
    #[serde(default, deserialize_with = "or_default")]
    patch_data: String,
}

impl RawRule {
    /// What Velero checks.
    fn check(&self) -> Result<(), String> {
        if self.conditions.group_resource.is_empty() {
            return Err("groupkResource cannot be empty".to_owned());
        }
        let kinds = [
            !self.patches.is_empty(),
            !self.merge_patches.is_empty(),
            !self.strategic_patches.is_empty(),
        ];
        if kinds.into_iter().filter(|given| *given).count() > 1 {
            return Err(
                "only one of patches, mergePatches, strategicPatches can be specified".to_owned(),
            );
        }
        for RawOperation {
            operation, path, ..
        } in &self.patches
        {
            if operation.is_empty() {
                return Err("operation cannot be empty".to_owned());
            }
            if !OPERATIONS.contains(&operation.to_lowercase().as_str()) {
                return Err(format!("unsupported operation {operation}"));
            }
            if path.is_empty() {
                return Err("path cannot be empty".to_owned());
            }
        }
        Ok(())
    }

    fn build(&self) -> Result<Sound, String> {
        let patch = if !self.patches.is_empty() {
            Patch::Json(each(&self.patches, "patches", RawOperation::build)?)
        } else if !self.merge_patches.is_empty() {
            Patch::Merge(each(&self.merge_patches, "mergePatches", RawPatch::build)?)
        } else if !self.strategic_patches.is_empty() {
            let patches = each(&self.strategic_patches, "strategicPatches", RawPatch::build)?;
            Patch::Strategic(patches)
        } else {
            return Err("patches: no patch data found".to_owned());
        };
        let conditions = self.conditions.build();
        Ok(Sound {
            conditions: conditions.map_err(|why| format!("conditions.{why}"))?,
            patch,
        })
    }
}

/// Builds each item of a list; an error says where it is.
fn each<T, U>(
    items: &[T],
    list: &str,
    build: impl Fn(&T) -> Result<U, String>,
) -> Result<Vec<U>, String> {
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| build(item).map_err(|why| format!("{list}[{index}]: {why}")))
        .collect()
}

impl RawConditions {
    fn build(&self) -> Result<Conditions, String> {
        each(&self.namespaces, "namespaces", |name| {
            Pattern::strict(name).map_err(|why| format!("{name:?}: {why}"))
        })?;
        let name = match self.resource_name_regex.as_str() {
            "" => None,
            regex => {
                let regex = Regex::new(regex);
                Some(regex.map_err(|why| format!("resourceNameRegex: {why}"))?)
            }
        };
        let labels = self.label_selector.as_ref().map(RawSelector::build);
        if let Some(Err(why)) = labels.as_ref().map(selector::check) {
            return Err(format!("labelSelector: {why}"));
        }
        Ok(Conditions {
            namespaces: Lists::new(&self.namespaces, [""; 0]),
            kinds: kinds(&self.group_resource)
                .map_err(|why| format!("groupResource: {:?}: {why}", self.group_resource))?,
            name,
            labels,
            tests: each(&self.matches, "matches", RawMatch::build)?,
        })
    }
}

/// A glob whose `*` stops at dots, and whose `**` does not.
fn kinds(text: &str) -> Result<GlobMatcher, String> {
    // Globs know slashes as what to stop at.
    GlobBuilder::new(&text.replace('.', "/"))
        .literal_separator(!text.contains("**"))
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|why| why.kind().to_string())
}

impl RawMatch {
    fn build(&self) -> Result<Value, String> {
        if self.path.is_empty() {
            return Err("path: path is required for match rule".to_owned());
        }
        let value = value::parse(&self.value).map_err(|why| format!("value: {why}"))?;
        Ok(json!({"op": "test", "path": value::unescaped(&self.path), "value": value}))
    }
}

impl RawOperation {
    fn build(&self) -> Result<Value, String> {
        let name = self.operation.to_lowercase();
        let path = value::unescaped(&self.path);
        Ok(match name.as_str() {
            "move" | "copy" => {
                json!({"op": name, "from": value::unescaped(&self.from), "path": path})
            }
            "remove" => json!({"op": name, "path": path}),
            _ => {
                let value = value::parse(&self.value).map_err(|why| format!("value: {why}"))?;
                json!({"op": name, "path": path, "value": value})
            }
        })
    }
}

impl RawPatch {
    fn build(&self) -> Result<Value, String> {
        match yaml(&self.patch_data) {
            Ok(patch @ Value::Object(_)) => Ok(patch),
            Ok(_) => Err("patchData: must be an object".to_owned()),
            Err(why) => Err(format!("patchData: {why}")),
        }
    }
}
