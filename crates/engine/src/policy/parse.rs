//! From the text of a ConfigMap to policies. Unknown keys are refused, and so is all that Velero
//! refuses, in its words.

mod check;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    Action, ActionType, Conditions, Csi, IncludeExclude, NamespaceFilter, Nfs, Policies,
    ResourceFilter, VolumePolicy, volume::Capacity,
};
use crate::{
    filter::{Lists, Pattern},
    selector,
};

const VERSION: &str = "v1";

/// What the policies are for; a restore takes filters only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A backup.
    Backup,
    /// A restore.
    Restore,
}

/// Why policies are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The ConfigMap cannot be had.
    #[error("fail to get ResourcePolicies {config_map} ConfigMap: {why}")]
    Get {
        /// `namespace/name` of the ConfigMap.
        config_map: String,
        /// What the API server said.
        why: String,
    },
    /// The text cannot be made sense of.
    #[error("{0}")]
    Read(String),
    /// The text makes sense, but is not sound.
    #[error("{0}")]
    Validate(String),
}

impl Error {
    /// The words for a backup or restore that named the policies. Velero says `owner`, the
    /// `namespace/name` of the backup, where one would expect that of the ConfigMap.
    #[must_use]
    pub fn for_owner(&self, owner: &str) -> String {
        match self {
            Self::Get { .. } => self.to_string(),
            Self::Read(why) => {
                format!("fail to read the ResourcePolicies from ConfigMap {owner}: {why}")
            }
            Self::Validate(why) => {
                format!("fail to validate ResourcePolicies in ConfigMap {owner}: {why}")
            }
        }
    }

    /// The words for the volume policies of the whole installation, by `namespace/name`.
    #[must_use]
    pub fn for_global(&self, config_map: &str) -> String {
        let (what, why) = match self {
            Self::Get { why, .. } => ("get global backup volume policies", why),
            Self::Read(why) => ("read global backup volume policies from", why),
            Self::Validate(why) => ("validate global backup volume policies in", why),
        };
        format!("fail to {what} ConfigMap {config_map}: {why}")
    }
}

impl Policies {
    /// The policies of a ConfigMap; it must have exactly one key, whatever its name.
    pub fn from_config_map(
        namespace: &str,
        name: &str,
        data: &BTreeMap<String, String>,
        purpose: Purpose,
    ) -> Result<Self, Error> {
        let mut texts = data.values();
        match (texts.next(), texts.next()) {
            (Some(text), None) => Self::parse(text, purpose),
            _ => Err(Error::Read(format!(
                "illegal resource policies {namespace}/{name} configmap"
            ))),
        }
    }

    /// The policies of a text.
    pub fn parse(text: &str, purpose: Purpose) -> Result<Self, Error> {
        let raw: Document<Map<String, Value>> = yaml(text).map_err(|why| {
            Error::Read(format!(
                "failed to decode yaml data into resource policies  {why}"
            ))
        })?;
        for policy in &raw.volume_policies {
            check::check_types(&policy.conditions).map_err(Error::Read)?;
        }
        // Read once more, now with the types of conditions: `storageClass: [1]` keeps its text.
        let document: Document<RawConditions> = yaml(text)
            .map_err(|why| Error::Read(format!("failed to decode volume conditions: {why}")))?;
        let capacities = document
            .volume_policies
            .iter()
            .map(|policy| Capacity::parse(&policy.conditions.capacity))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::Read)?;
        document
            .check(&capacities, purpose)
            .map_err(Error::Validate)?;
        document.build(capacities).map_err(Error::Validate)
    }
}

/// Reads YAML; unknown keys and keys that stand there twice are refused.
pub(crate) fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string())
}

/// A value that may be written as null, for its default.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[serde(bound(deserialize = "C: Deserialize<'de> + Default"))]
struct Document<C> {
    #[serde(default, deserialize_with = "or_default")]
    version: String,
    #[serde(default = "Vec::new", deserialize_with = "or_default")]
    volume_policies: Vec<RawVolumePolicy<C>>,
    #[serde(default)]
    include_exclude_policy: Option<IncludeExclude>,
    #[serde(default)]
    cluster_scoped_filter_policy: Option<RawClusterFilter>,
    #[serde(default, deserialize_with = "or_default")]
    namespaced_filter_policies: Vec<RawNamespaceFilter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(bound(deserialize = "C: Deserialize<'de> + Default"))]
struct RawVolumePolicy<C> {
    #[serde(default, deserialize_with = "or_default")]
    conditions: C,
    #[serde(default, deserialize_with = "or_default")]
    action: RawAction,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawAction {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    parameters: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawConditions {
    #[serde(default, deserialize_with = "or_default")]
    capacity: String,
    #[serde(default, deserialize_with = "or_default")]
    storage_class: Vec<String>,
    #[serde(default)]
    nfs: Option<Nfs>,
    #[serde(default)]
    csi: Option<Csi>,
    #[serde(default, deserialize_with = "or_default")]
    volume_types: Vec<String>,
    #[serde(default)]
    pvc_labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    pvc_phase: Vec<String>,
    #[serde(default)]
    pvc_volume_mode: String,
    #[serde(default)]
    pvc_access_modes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawClusterFilter {
    #[serde(default, deserialize_with = "or_default")]
    resource_filters: Vec<RawFilter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawNamespaceFilter {
    #[serde(default, deserialize_with = "or_default")]
    namespaces: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    resource_filters: Vec<RawFilter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawFilter {
    #[serde(default, deserialize_with = "or_default")]
    kinds: Vec<String>,
    #[serde(default)]
    label_selector: Option<RawSelector>,
    #[serde(default, deserialize_with = "or_default")]
    or_label_selectors: Vec<Option<RawSelector>>,
    #[serde(default, deserialize_with = "or_default")]
    names: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    excluded_names: Vec<String>,
}

/// A label selector as people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawSelector {
    #[serde(default, deserialize_with = "or_default")]
    match_labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_default")]
    match_expressions: Vec<RawRequirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequirement {
    #[serde(default, deserialize_with = "or_default")]
    key: String,
    #[serde(default, deserialize_with = "or_default")]
    operator: String,
    #[serde(default, deserialize_with = "or_default")]
    values: Vec<String>,
}

impl Document<RawConditions> {
    fn build(self, capacities: Vec<Capacity>) -> Result<Policies, String> {
        let volume_policies = self.volume_policies.into_iter().zip(capacities);
        Ok(Policies {
            volume_policies: volume_policies
                .map(|(policy, capacity)| policy.build(capacity))
                .collect::<Result<_, _>>()?,
            include_exclude: self.include_exclude_policy,
            cluster_scoped: self.cluster_scoped_filter_policy.map(|policy| {
                let filters = policy.resource_filters.into_iter();
                filters.map(RawFilter::build).collect()
            }),
            namespaced: self
                .namespaced_filter_policies
                .into_iter()
                .map(|policy| NamespaceFilter {
                    namespaces: policy.namespaces.iter().map(|n| Pattern::new(n)).collect(),
                    filters: policy
                        .resource_filters
                        .into_iter()
                        .map(RawFilter::build)
                        .collect(),
                })
                .collect(),
        })
    }
}

impl RawVolumePolicy<RawConditions> {
    fn build(self, capacity: Capacity) -> Result<VolumePolicy, String> {
        let kind = ActionType::parse(&self.action.kind)
            .ok_or_else(|| format!("invalid action type {}", self.action.kind))?;
        let conditions = self.conditions;
        Ok(VolumePolicy {
            conditions: Conditions {
                capacity,
                storage_class: conditions.storage_class,
                nfs: conditions.nfs,
                csi: conditions.csi,
                volume_types: conditions.volume_types,
                pvc_labels: conditions.pvc_labels,
                pvc_phase: conditions.pvc_phase,
                pvc_volume_mode: conditions.pvc_volume_mode,
                pvc_access_modes: conditions.pvc_access_modes,
            },
            action: Action {
                kind,
                parameters: self.action.parameters,
            },
        })
    }
}

impl RawFilter {
    fn build(self) -> ResourceFilter {
        // At most one of the two is there. An empty selector is no selector, also in the list.
        let all = self.label_selector.into_iter();
        let all = all.chain(self.or_label_selectors.into_iter().flatten());
        ResourceFilter {
            kinds: self.kinds,
            selectors: all
                .map(|selector| selector.build())
                .filter(|selector| !selector::is_empty(selector))
                .collect(),
            names: Lists::new(&self.names, &self.excluded_names),
        }
    }
}

impl RawSelector {
    pub(crate) fn build(&self) -> LabelSelector {
        let expressions = self.match_expressions.iter();
        LabelSelector {
            match_labels: Some(self.match_labels.clone()),
            match_expressions: Some(
                expressions
                    .map(|expression| LabelSelectorRequirement {
                        key: expression.key.clone(),
                        operator: expression.operator.clone(),
                        values: Some(expression.values.clone()),
                    })
                    .collect(),
            ),
        }
    }
}
