//! Filters by kind, name and label, for some namespaces or for cluster-scoped kinds, and the kinds
//! that a policy adds to a backup's lists.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use crate::filter::{Lists, Pattern};

/// Kinds to add to the backup's lists of either scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct IncludeExclude {
    /// For `includedClusterScopedResources`.
    #[serde(default, deserialize_with = "super::parse::or_default")]
    pub included_cluster_scoped_resources: Vec<String>,
    /// For `excludedClusterScopedResources`.
    #[serde(default, deserialize_with = "super::parse::or_default")]
    pub excluded_cluster_scoped_resources: Vec<String>,
    /// For `includedNamespaceScopedResources`.
    #[serde(default, deserialize_with = "super::parse::or_default")]
    pub included_namespace_scoped_resources: Vec<String>,
    /// For `excludedNamespaceScopedResources`.
    #[serde(default, deserialize_with = "super::parse::or_default")]
    pub excluded_namespace_scoped_resources: Vec<String>,
}

impl IncludeExclude {
    /// Adds the kinds to the lists of a backup. An item that a list of the backup matches already,
    /// as include or exclude, is not added: the backup's word counts.
    ///
    /// `resolve` turns a kind into `resource.group`, leaves an unknown one as it is, and gives none
    /// for one of the wrong scope; its second argument is true for the namespaced lists.
    pub fn merge(
        &self,
        namespaced: &mut Lists,
        cluster: &mut Lists,
        resolve: impl Fn(&str, bool) -> Option<String>,
    ) {
        let resolved = |items: &[String], scope| -> Vec<String> {
            items.iter().filter_map(|i| resolve(i, scope)).collect()
        };
        for item in resolved(&self.excluded_namespace_scoped_resources, true) {
            namespaced.exclude_if_new(&item);
        }
        for item in resolved(&self.included_namespace_scoped_resources, true) {
            namespaced.include_if_new(&item);
        }
        for item in resolved(&self.excluded_cluster_scoped_resources, false) {
            cluster.exclude_if_new(&item);
        }
        for item in resolved(&self.included_cluster_scoped_resources, false) {
            cluster.include_if_new(&item);
        }
    }
}

/// The filters of some namespaces: a list of all that is allowed there.
#[derive(Debug, Clone)]
pub struct NamespaceFilter {
    pub(super) namespaces: Vec<Pattern>,
    pub(super) filters: Vec<ResourceFilter>,
}

impl NamespaceFilter {
    /// The filter of a kind, `resource.group`: its own, else the catch-all. None means that objects
    /// of the kind are not collected in these namespaces.
    #[must_use]
    pub fn for_kind(&self, resource: &str) -> Option<&ResourceFilter> {
        of_kind(&self.filters, resource)
            .or_else(|| self.filters.iter().find(|filter| filter.is_catch_all()))
    }

    pub(super) fn is_named(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|n| n.text() == namespace)
    }

    pub(super) fn fits(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|n| n.matches(namespace))
    }
}

/// The filter that names a kind; of several, the last.
pub(super) fn of_kind<'a>(
    filters: &'a [ResourceFilter],
    resource: &str,
) -> Option<&'a ResourceFilter> {
    filters
        .iter()
        .rev()
        .find(|filter| !filter.is_catch_all() && filter.kinds.iter().any(|k| k == resource))
}

/// Which objects of some kinds are wanted.
#[derive(Debug, Clone, Default)]
pub struct ResourceFilter {
    /// As given until [`Policies::resolve_kinds`](super::Policies::resolve_kinds) makes them
    /// `resource.group`.
    pub(super) kinds: Vec<String>,
    pub(super) selectors: Vec<LabelSelector>,
    pub(super) names: Lists,
}

impl ResourceFilter {
    /// Whether it is for all kinds that no other filter names.
    #[must_use]
    pub fn is_catch_all(&self) -> bool {
        is_catch_all(&self.kinds)
    }

    /// The selectors that replace those of the backup: an object needs to match one of them. None
    /// means that labels do not matter.
    #[must_use]
    pub fn selectors(&self) -> &[LabelSelector] {
        &self.selectors
    }

    /// Whether an object of this name is wanted.
    #[must_use]
    pub fn allows_name(&self, name: &str) -> bool {
        self.names.includes(name)
    }

    /// Replaces the kinds by what they resolve to; returns those that do not.
    pub(super) fn resolve_kinds(
        &mut self,
        resolve: impl Fn(&str) -> Option<String>,
    ) -> Vec<String> {
        if self.is_catch_all() {
            return Vec::new();
        }
        let mut unknown = Vec::new();
        for kind in &mut self.kinds {
            match resolve(kind) {
                Some(resource) => *kind = resource,
                None => unknown.push(kind.clone()),
            }
        }
        unknown
    }
}

pub(super) fn is_catch_all(kinds: &[String]) -> bool {
    matches!(kinds, []) || matches!(kinds, [kind] if kind == "*")
}
