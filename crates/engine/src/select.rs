//! What belongs into a backup: pure decisions over its spec, the resources that the cluster serves
//! and the namespaces that it has.
//!
//! There are two styles of resource filters. The old one has one pair of lists for everything and a
//! switch for cluster-scoped kinds; the new one has a pair of lists for each scope.

use std::collections::{BTreeMap, BTreeSet};

use bowline_api::{names::label, v1::BackupSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    discovery::{Discovery, Resource},
    filter::{self, Lists, Namespaces},
    object::Facts,
    policy::{Policies, ResourceFilter},
    selector,
};

/// CSI snapshots are left to the actions that make them; the server adds these to every spec.
pub const AUTO_EXCLUDED: [&str; 2] = [
    "volumesnapshots.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
];

const NAMESPACES: &str = "namespaces";

/// A namespace of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveNamespace {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is in use: not on its way out.
    pub active: bool,
}

impl LiveNamespace {
    fn is_hidden(&self) -> bool {
        self.labels
            .get(label::EXCLUDE_FROM_BACKUP)
            .is_some_and(|value| value == "true")
    }
}

/// What belongs into a backup.
#[derive(Debug, Clone)]
pub struct Selection {
    namespaces: Namespaces,
    hidden: BTreeSet<String>,
    rules: Rules,
    selectors: Vec<LabelSelector>,
    /// The same as the API takes them; one empty one when there are none.
    queries: Vec<String>,
    policies: Policies,
}

#[derive(Debug, Clone)]
enum Rules {
    Old {
        lists: Lists,
        cluster: Option<bool>,
    },
    New {
        cluster: Lists,
        namespaced: Lists,
        whole_cluster: bool,
    },
}

/// Whose selectors count.
enum Filter<'a> {
    /// Those of a policy.
    Own(&'a ResourceFilter),
    /// Those of the backup.
    General,
    /// A policy leaves the resource out.
    Nothing,
}

/// Why an object is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Its namespace or kind is not asked for: nothing to speak of.
    Unselected,
    /// It says so itself.
    Labelled,
    /// It is being deleted.
    Deleting,
}

impl Left {
    /// The reason, for what should be told.
    #[must_use]
    pub fn why(self) -> Option<&'static str> {
        match self {
            Self::Unselected => None,
            Self::Labelled => {
                Some("left out because of its label velero.io/exclude-from-backup=true")
            }
            Self::Deleting => Some("left out because it is being deleted"),
        }
    }
}

impl Selection {
    /// Reads the filters of a spec. The second value has remarks about items that mean nothing here.
    pub fn new(
        spec: &BackupSpec,
        discovery: &Discovery,
        live: &[LiveNamespace],
        policies: Option<&Policies>,
    ) -> Result<(Self, Vec<String>), String> {
        let names: Vec<&str> = live.iter().map(|ns| ns.name.as_str()).collect();
        let list = |items: &Option<Vec<String>>| items.clone().unwrap_or_default();
        let namespaces = filter::resolve(
            &list(&spec.included_namespaces),
            &list(&spec.excluded_namespaces),
            &names,
        )?;
        let mut remarks = Vec::new();
        let mut policies = policies.cloned().unwrap_or_default();
        let group_resource = |kind: &str| discovery.resolve(kind).map(Resource::group_resource);
        remarks.extend(policies.resolve_kinds(group_resource));
        let rules = rules(
            spec,
            discovery,
            &policies,
            namespaces.is_everything(),
            &mut remarks,
        );
        let selectors: Vec<LabelSelector> = spec
            .label_selector
            .iter()
            .chain(spec.or_label_selectors.iter().flatten())
            .filter(|selector| !selector::is_empty(selector))
            .cloned()
            .collect();
        // One or-selector that selects all makes the others pointless.
        let selects_all = spec
            .or_label_selectors
            .iter()
            .flatten()
            .any(selector::is_empty);
        let selectors = if selects_all { Vec::new() } else { selectors };
        let queries = queries(&selectors)?;
        let selection = Self {
            namespaces,
            hidden: live
                .iter()
                .filter(|ns| ns.is_hidden())
                .map(|ns| ns.name.clone())
                .collect(),
            rules,
            selectors,
            queries,
            policies,
        };
        Ok((selection, remarks))
    }

    /// Namespaces asked for by name that do not exist.
    #[must_use]
    pub fn missing_namespaces(&self) -> &[String] {
        self.namespaces.missing()
    }

    /// Whether objects of this namespace are asked for.
    #[must_use]
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.includes(namespace) && !self.hidden.contains(namespace)
    }

    /// Whether one list for all namespaces brings what is asked for, and nothing else.
    #[must_use]
    pub fn has_all_namespaces(&self) -> bool {
        self.namespaces.is_everything() && self.hidden.is_empty() && !self.has_namespace_filters()
    }

    /// Whether some namespaces have filters of their own.
    #[must_use]
    pub fn has_namespace_filters(&self) -> bool {
        !self.policies.namespaced.is_empty()
    }

    /// Label selectors for lists of a collected resource, each with a call of its own; an empty one
    /// selects all. None when the namespace's own filter does not have the resource.
    #[must_use]
    pub fn queries(&self, resource: &Resource, namespace: Option<&str>) -> Vec<String> {
        match self.own_filter(resource, namespace) {
            Filter::Own(filter) => {
                // Their selectors were checked when the policies were read.
                queries(filter.selectors()).unwrap_or_default()
            }
            Filter::General => self.queries.clone(),
            Filter::Nothing => Vec::new(),
        }
    }

    /// Whether a list of the resource would bring an object with these labels.
    #[must_use]
    pub fn selects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let selectors = match self.own_filter(resource, namespace) {
            Filter::Own(filter) => filter.selectors(),
            Filter::General => &self.selectors,
            Filter::Nothing => return false,
        };
        selectors.is_empty() || selectors.iter().any(|s| selector::matches(s, labels))
    }

    fn own_filter(&self, resource: &Resource, namespace: Option<&str>) -> Filter<'_> {
        let name = resource.group_resource();
        match namespace {
            Some(namespace) => match self.policies.for_namespace(namespace) {
                Some(filter) => filter.for_kind(&name).map_or(Filter::Nothing, Filter::Own),
                None => Filter::General,
            },
            None if !resource.namespaced => self
                .policies
                .for_cluster_kind(&name)
                .map_or(Filter::General, Filter::Own),
            None => Filter::General,
        }
    }

    /// Whether objects of this resource are looked for.
    #[must_use]
    pub fn collects(&self, resource: &Resource) -> bool {
        let name = resource.group_resource();
        match &self.rules {
            Rules::Old { lists, cluster } => {
                let in_scope = resource.namespaced
                    || match cluster {
                        Some(wanted) => *wanted,
                        None => name == NAMESPACES || self.namespaces.is_everything(),
                    };
                in_scope && lists.includes(&name)
            }
            Rules::New { namespaced, .. } if resource.namespaced => namespaced.includes(&name),
            Rules::New {
                cluster,
                whole_cluster,
                ..
            } => {
                !cluster.excludes(&name)
                    && (*whole_cluster || cluster.names(&name) || name == NAMESPACES)
            }
        }
    }

    /// Whether this resource was left out by somebody who named it, so that it does not even come
    /// along with others.
    #[must_use]
    pub fn bans(&self, resource: &Resource) -> bool {
        let name = resource.group_resource();
        match &self.rules {
            Rules::Old { lists, cluster } => {
                lists.excludes(&name)
                    || (!resource.namespaced
                        && match cluster {
                            Some(wanted) => !wanted,
                            None => !lists.includes(&name),
                        })
            }
            Rules::New { namespaced, .. } if resource.namespaced => namespaced.excludes(&name),
            Rules::New { cluster, .. } => cluster.excludes(&name),
        }
    }

    /// Whether an object is taken, listed or brought along. One that another action insists on only
    /// has to exist.
    pub fn admits(
        &self,
        resource: &Resource,
        object: &Facts<'_>,
        insisted: bool,
    ) -> Result<(), Left> {
        if !insisted {
            let wanted = if resource.namespaced {
                self.has_namespace(&object.namespace()) && self.collects(resource)
            } else {
                resource.group_resource() == NAMESPACES || !self.bans(resource)
            } && self.allows_name(resource, object);
            if !wanted {
                return Err(Left::Unselected);
            }
            if object.label(label::EXCLUDE_FROM_BACKUP).as_deref() == Some("true") {
                return Err(Left::Labelled);
            }
        }
        if object.is_deleting() {
            return Err(Left::Deleting);
        }
        Ok(())
    }

    fn allows_name(&self, resource: &Resource, object: &Facts<'_>) -> bool {
        if !self.policies.has_filters() {
            return true;
        }
        let namespace = object.namespace();
        let namespace = resource.namespaced.then_some(namespace.as_ref());
        self.policies
            .allows_name(&resource.group_resource(), namespace, &object.name())
    }

    /// Whether a namespace itself is stored although no object in it is.
    #[must_use]
    pub fn tracks(&self, namespace: &LiveNamespace) -> bool {
        if !namespace.active || !self.has_namespace(&namespace.name) {
            return false;
        }
        self.selectors.is_empty()
            || self
                .selectors
                .iter()
                .any(|selector| selector::matches(selector, &namespace.labels))
            || !self.namespaces.is_everything()
    }
}

/// Selectors as the API takes them; one empty one when there are none.
fn queries(selectors: &[LabelSelector]) -> Result<Vec<String>, String> {
    if selectors.is_empty() {
        return Ok(vec![String::new()]);
    }
    selectors.iter().map(selector::to_query).collect()
}

fn rules(
    spec: &BackupSpec,
    discovery: &Discovery,
    policies: &Policies,
    all_namespaces: bool,
    remarks: &mut Vec<String>,
) -> Rules {
    let mut resolve = |field: &str, items: &Option<Vec<String>>, scope: Option<bool>| {
        let mut out = Vec::new();
        for item in items.iter().flatten() {
            match discovery.resolve(item) {
                Some(resource)
                    if scope.is_some_and(|namespaced| namespaced != resource.namespaced) =>
                {
                    let is = if resource.namespaced {
                        "namespaced"
                    } else {
                        "cluster-scoped"
                    };
                    remarks.push(format!("{item} in {field} means nothing: it is {is}"));
                }
                Some(resource) => out.push(resource.group_resource()),
                None => {
                    let known = item.contains(['*', '?', '[', '{'])
                        || AUTO_EXCLUDED.contains(&item.as_str());
                    if !known {
                        remarks.push(format!(
                            "{item} in {field} means nothing: the cluster has no such resource"
                        ));
                    }
                    out.push(item.clone());
                }
            }
        }
        out
    };
    let is_set = |items: &Option<Vec<String>>| items.iter().flatten().next().is_some();
    if spec.include_cluster_resources.is_some()
        || is_set(&spec.included_resources)
        || is_set(&spec.excluded_resources)
    {
        return Rules::Old {
            lists: Lists::new(
                resolve("includedResources", &spec.included_resources, None),
                resolve("excludedResources", &spec.excluded_resources, None),
            ),
            cluster: spec.include_cluster_resources,
        };
    }
    let mut whole_cluster = all_namespaces
        && !is_set(&spec.included_cluster_scoped_resources)
        && !is_set(&spec.included_namespace_scoped_resources);
    let mut cluster = Lists::new(
        resolve(
            "includedClusterScopedResources",
            &spec.included_cluster_scoped_resources,
            Some(false),
        ),
        resolve(
            "excludedClusterScopedResources",
            &spec.excluded_cluster_scoped_resources,
            Some(false),
        ),
    );
    let mut namespaced = Lists::new(
        resolve(
            "includedNamespaceScopedResources",
            &spec.included_namespace_scoped_resources,
            Some(true),
        ),
        resolve(
            "excludedNamespaceScopedResources",
            &spec.excluded_namespace_scoped_resources,
            Some(true),
        ),
    );
    if let Some(more) = &policies.include_exclude {
        whole_cluster &= more.included_cluster_scoped_resources.is_empty()
            && more.included_namespace_scoped_resources.is_empty();
        more.merge(
            &mut namespaced,
            &mut cluster,
            |item, scope| match discovery.resolve(item) {
                Some(resource) => (resource.namespaced == scope).then(|| resource.group_resource()),
                None => Some(item.to_owned()),
            },
        );
    }
    Rules::New {
        cluster,
        namespaced,
        whole_cluster,
    }
}

#[cfg(test)]
mod tests;
