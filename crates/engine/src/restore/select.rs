//! What of an archive is restored: pure decisions over the spec and the names that the cluster
//! gives to resources.

use std::collections::BTreeMap;

use bowline_api::v1::RestoreSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use crate::{
    discovery::{Discovery, Resource},
    filter::Lists,
    movement::UPLOADS,
    policy::Policies,
    selector,
};

/// Kinds that are never restored: what a cluster makes for itself, and what a server looks after.
pub const NEVER: [&str; 9] = [
    "nodes",
    "events",
    "events.events.k8s.io",
    "backups.velero.io",
    "restores.velero.io",
    "resticrepositories.velero.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "backuprepositories.velero.io",
];

/// What of an archive is restored.
#[derive(Debug, Clone)]
pub struct Selection {
    kinds: Lists,
    namespaces: Lists,
    cluster: Option<bool>,
    selectors: Vec<LabelSelector>,
    policies: Policies,
    mapping: BTreeMap<String, String>,
    status: Option<Lists>,
}

impl Selection {
    /// Reads the filters of a spec. The second value has remarks about items that mean nothing here.
    #[must_use]
    pub fn new(
        spec: &RestoreSpec,
        discovery: &Discovery,
        policies: Option<&Policies>,
    ) -> (Self, Vec<String>) {
        let mut policies = policies.cloned().unwrap_or_default();
        let group_resource = |kind: &str| discovery.resolve(kind).map(Resource::group_resource);
        let remarks = policies.resolve_kinds(group_resource);
        let resolve = |items: &Option<Vec<String>>| -> Vec<String> {
            let items = items.iter().flatten();
            items
                .map(|item| group_resource(item).unwrap_or_else(|| item.clone()))
                .collect()
        };
        let mut excluded = resolve(&spec.excluded_resources);
        excluded.extend(NEVER.map(str::to_owned));
        let or = spec.or_label_selectors.iter().flatten();
        let selects_all = or.clone().any(selector::is_empty);
        let selectors = spec.label_selector.iter().chain(or);
        let selection = Self {
            kinds: Lists::new(resolve(&spec.included_resources), excluded),
            namespaces: Lists::new(
                spec.included_namespaces.iter().flatten(),
                spec.excluded_namespaces.iter().flatten(),
            ),
            cluster: spec.include_cluster_resources,
            selectors: selectors
                .filter(|selector| !selects_all && !selector::is_empty(selector))
                .cloned()
                .collect(),
            policies,
            mapping: spec
                .namespace_mapping
                .clone()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            status: spec.restore_status.as_ref().map(|status| {
                Lists::new(
                    resolve(&status.included_resources),
                    resolve(&status.excluded_resources),
                )
            }),
        };
        (selection, remarks)
    }

    /// Whether an object is asked for; `namespace` is the one in the archive, empty for
    /// cluster-scoped objects.
    #[must_use]
    pub fn selects(&self, kind: &str, namespace: &str, name: &str, body: &[u8]) -> bool {
        // They say where moved data is, whatever the filters are.
        if kind == UPLOADS {
            return self.matches(&self.selectors, body);
        }
        let in_scope = if namespace.is_empty() {
            self.cluster
                .unwrap_or_else(|| self.namespaces.is_everything())
        } else {
            self.namespaces.includes(namespace)
        };
        if !in_scope || !self.kinds.includes(kind) {
            return false;
        }
        let own = if namespace.is_empty() {
            self.policies.for_cluster_kind(kind)
        } else {
            match self.policies.for_namespace(namespace) {
                Some(filter) => match filter.for_kind(kind) {
                    Some(own) => Some(own),
                    None => return false,
                },
                None => None,
            }
        };
        match own {
            Some(own) => own.allows_name(name) && self.matches(own.selectors(), body),
            None => self.matches(&self.selectors, body),
        }
    }

    /// Whether an object that another one needs may come along.
    #[must_use]
    pub fn admits(&self, kind: &str, namespace: &str) -> bool {
        if kind == UPLOADS {
            return true;
        }
        let in_scope = if namespace.is_empty() {
            self.cluster != Some(false)
        } else {
            self.namespaces.includes(namespace)
        };
        in_scope && self.kinds.includes(kind)
    }

    fn matches(&self, selectors: &[LabelSelector], body: &[u8]) -> bool {
        if selectors.is_empty() {
            return true;
        }
        let labels = labels(body);
        selectors.iter().any(|s| selector::matches(s, &labels))
    }

    /// Where the objects of a namespace go.
    #[must_use]
    pub fn target<'a>(&'a self, namespace: &'a str) -> &'a str {
        self.mapping
            .get(namespace)
            .map_or(namespace, String::as_str)
    }

    /// Whether a namespace gets another name.
    #[must_use]
    pub fn is_mapped(&self, namespace: &str) -> bool {
        self.mapping.contains_key(namespace)
    }

    /// Whether the status of such objects is restored, as far as the spec says.
    #[must_use]
    pub fn restores_status(&self, kind: &str) -> bool {
        self.status
            .as_ref()
            .is_some_and(|lists| lists.includes(kind))
    }

    /// Whether the spec says anything about statuses.
    #[must_use]
    pub fn knows_status(&self) -> bool {
        self.status.is_some()
    }
}

fn labels(body: &[u8]) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        labels: Option<BTreeMap<String, String>>,
    }
    serde_json::from_slice::<Object>(body)
        .ok()
        .and_then(|object| object.metadata.labels)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selection(spec: Value) -> Selection {
        let spec: RestoreSpec = serde_json::from_value(spec).unwrap();
        Selection::new(&spec, &Discovery::default(), None).0
    }

    /// What a spec selects of a small archive.
    fn selected(spec: Value) -> Vec<&'static str> {
        let selection = selection(spec);
        [
            ("pods", "a", "web", "x"),
            ("pods", "b", "db", "y"),
            ("configmaps", "a", "c", "x"),
            ("persistentvolumes", "", "pv", "y"),
            ("namespaces", "", "b", "y"),
            ("events", "a", "e", "x"),
        ]
        .into_iter()
        .filter(|(kind, namespace, name, app)| {
            let body = json!({"metadata": {"labels": {"app": app}}}).to_string();
            selection.selects(kind, namespace, name, body.as_bytes())
        })
        .map(|(_, _, name, _)| name)
        .collect()
    }

    #[test]
    fn filters_select_what_velero_selects() {
        for (spec, expected) in [
            (json!({}), vec!["web", "db", "c", "pv", "b"]),
            (
                json!({"includedNamespaces": ["*"]}),
                vec!["web", "db", "c", "pv", "b"],
            ),
            // Cluster-scoped objects only with all namespaces, unless told.
            (json!({"includedNamespaces": ["a"]}), vec!["web", "c"]),
            (json!({"excludedNamespaces": ["a"]}), vec!["db"]),
            (
                json!({"includedNamespaces": ["a"], "includeClusterResources": true}),
                vec!["web", "c", "pv", "b"],
            ),
            (
                json!({"includeClusterResources": false}),
                vec!["web", "db", "c"],
            ),
            (
                json!({"includedResources": ["pods", "events"]}),
                vec!["web", "db"],
            ),
            (json!({"excludedResources": ["pods"]}), vec!["c", "pv", "b"]),
            (
                json!({"labelSelector": {"matchLabels": {"app": "x"}}}),
                vec!["web", "c"],
            ),
            (
                json!({"orLabelSelectors": [{"matchLabels": {"app": "z"}}, {"matchLabels": {"app": "y"}}]}),
                vec!["db", "pv", "b"],
            ),
        ] {
            assert_eq!(selected(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn what_others_need_comes_along_unless_ruled_out() {
        let of = |spec: Value| {
            let selection = selection(spec);
            [("persistentvolumes", ""), ("pods", "b"), ("events", "a")]
                .map(|(kind, namespace)| selection.admits(kind, namespace))
        };
        assert_eq!(
            of(json!({"includedNamespaces": ["a"]})),
            [true, false, false]
        );
        assert_eq!(
            of(json!({"includeClusterResources": false})),
            [false, true, false]
        );
    }
}
