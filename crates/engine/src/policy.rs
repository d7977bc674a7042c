//! Resource policies: the ConfigMap that says what happens to which volumes, and which objects of
//! which namespaces belong to a backup.
//!
//! ```text
//!   parse     YAML to policies, refused in Velero's words when unsound
//!   volume    conditions on volumes, and the action of the first entry that matches
//!   filters   lists of kinds, names and selectors for namespaces and for cluster-scoped kinds
//! ```
//!
//! Reading the ConfigMap is left to others; nothing here touches a cluster.

mod filters;
mod parse;
mod volume;

use bowline_api::v1::Backup;

pub use filters::{IncludeExclude, NamespaceFilter, ResourceFilter};
pub use parse::{Error, Purpose};
pub(crate) use parse::{RawSelector, or_default, yaml};
pub use volume::{Action, ActionType, Conditions, Csi, Nfs, VolumeFacts, VolumePolicy};

/// The only kind that a backup's `resourcePolicy` may have to be looked at, in any case.
const CONFIG_MAP: &str = "configmap";

/// The policies of a backup or restore.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// What happens to volumes; the first that matches decides.
    pub volume_policies: Vec<VolumePolicy>,
    /// Kinds to add to the backup's own lists.
    pub include_exclude: Option<IncludeExclude>,
    /// Filters for cluster-scoped kinds; kinds not named keep the general rules.
    pub cluster_scoped: Option<Vec<ResourceFilter>>,
    /// Filters for the kinds of some namespaces; kinds not named are left out there.
    pub namespaced: Vec<NamespaceFilter>,
}

impl Policies {
    /// What to do with a volume; none if no entry says.
    #[must_use]
    pub fn volume_action(&self, volume: &VolumeFacts) -> Option<&Action> {
        self.volume_policies
            .iter()
            .find(|policy| policy.conditions.matches(volume))
            .map(|policy| &policy.action)
    }

    /// The filter of a namespace: one that names it, else the first whose glob matches.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str) -> Option<&NamespaceFilter> {
        let exact = self.namespaced.iter().find(|f| f.is_named(namespace));
        exact.or_else(|| self.namespaced.iter().find(|f| f.fits(namespace)))
    }

    /// The filter of a cluster-scoped kind, `resource.group`.
    #[must_use]
    pub fn for_cluster_kind(&self, resource: &str) -> Option<&ResourceFilter> {
        filters::of_kind(self.cluster_scoped.as_deref()?, resource)
    }

    /// Whether the name of an object passes the filter of its kind, if there is one. A kind that a
    /// namespace does not list passes here: items that plugins add may have it.
    #[must_use]
    pub fn allows_name(&self, resource: &str, namespace: Option<&str>, name: &str) -> bool {
        let filter = match namespace {
            Some(namespace) => self
                .for_namespace(namespace)
                .and_then(|filter| filter.for_kind(resource)),
            None => self.for_cluster_kind(resource),
        };
        filter.is_none_or(|filter| filter.allows_name(name))
    }

    /// Turns the kinds of all filters into `resource.group`. The ones that `resolve` does not know
    /// stay as they are, and are returned as warnings.
    pub fn resolve_kinds(&mut self, resolve: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let cluster = self.cluster_scoped.iter_mut().flatten();
        let namespaced = self.namespaced.iter_mut().flat_map(|f| &mut f.filters);
        let mut warnings = Vec::new();
        for filter in cluster.chain(namespaced) {
            for kind in filter.resolve_kinds(&resolve) {
                warnings.push(format!(
                    "Cannot resolve kind via discovery, using as-is: {kind}"
                ));
            }
        }
        warnings
    }

    /// Whether there are filters of kinds, names or selectors, which do not go with old-style lists.
    #[must_use]
    pub fn has_filters(&self) -> bool {
        self.cluster_scoped.is_some() || !self.namespaced.is_empty()
    }

    /// The backup's own policies, then the volume policies of the whole installation; nothing else
    /// of the latter counts.
    #[must_use]
    pub fn with_global(own: Option<Self>, global: Option<Self>) -> Option<Self> {
        let Some(global) = global else { return own };
        let mut policies = own.unwrap_or_default();
        policies.volume_policies.extend(global.volume_policies);
        Some(policies)
    }
}

/// The ConfigMap with the policies of a backup, by name. Another kind of reference is ignored, as
/// Velero does.
#[must_use]
pub fn config_map_of(backup: &Backup) -> Option<&str> {
    let reference = backup.spec.resource_policy.as_ref()?;
    let is_config_map = reference.kind.eq_ignore_ascii_case(CONFIG_MAP);
    is_config_map.then_some(reference.name.as_str())
}

#[cfg(test)]
mod tests;
