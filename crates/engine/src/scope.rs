//! Which objects an action is for, as plugins say it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{discovery::Discovery, filter::Lists, selector};

/// What an action says of the objects that it is for. Nothing said is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct Wanted {
    pub included_namespaces: Vec<String>,
    pub excluded_namespaces: Vec<String>,
    pub included_resources: Vec<String>,
    pub excluded_resources: Vec<String>,
    pub label_selector: String,
}

/// The same, with what the cluster knows.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    resources: Lists,
    /// None when namespaces do not matter.
    namespaces: Option<Lists>,
    labels: Option<LabelSelector>,
}

impl Scope {
    /// The scope of an action. A resource that the cluster does not have is kept as it is, and matches
    /// nothing that the cluster has.
    ///
    /// # Errors
    /// When the label selector cannot be read.
    pub fn new(wanted: &Wanted, discovery: &Discovery) -> Result<Self, String> {
        let resolve = |text: &String| match discovery.resolve(text) {
            Some(resource) => resource.group_resource(),
            None => text.clone(),
        };
        let namespaces = Lists::new(&wanted.included_namespaces, &wanted.excluded_namespaces);
        let labels = selector::parse(&wanted.label_selector)
            .map_err(|why| format!("label selector {:?}: {why}", wanted.label_selector))?;
        Ok(Self {
            resources: Lists::new(
                wanted.included_resources.iter().map(resolve),
                wanted.excluded_resources.iter().map(resolve),
            ),
            namespaces: (!namespaces.is_everything()).then_some(namespaces),
            labels: selector::present(Some(&labels)).cloned(),
        })
    }

    /// Whether it has objects of a resource, `pods` or `deployments.apps`.
    #[must_use]
    pub fn has_kind(&self, group_resource: &str) -> bool {
        self.resources.includes(group_resource)
    }

    /// Whether it has an object of such a resource. One without a namespace is in none.
    #[must_use]
    pub fn has(&self, namespace: &str, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        let in_place = self
            .namespaces
            .as_ref()
            .is_none_or(|lists| !namespace.is_empty() && lists.includes(namespace));
        in_place
            && self
                .labels
                .as_ref()
                .is_none_or(|selector| selector::matches(selector, &labels()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Resource;

    fn scope(wanted: &Wanted) -> Scope {
        let resource = |group: &str, plural: &str, short: &str| Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: String::new(),
            namespaced: true,
            other_names: vec![short.to_owned()],
            verbs: Vec::new(),
            preferred: true,
        };
        let discovery = Discovery {
            resources: vec![
                resource("", "pods", "po"),
                resource("apps", "deployments", "deploy"),
            ],
            ..Discovery::default()
        };
        Scope::new(wanted, &discovery).unwrap()
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn resources_are_looked_up() {
        let all = scope(&Wanted::default());
        assert!(all.has_kind("pods") && all.has("", BTreeMap::new));
        let some = scope(&Wanted {
            included_resources: texts(&["po", "deploy", "teapots.example.com"]),
            excluded_resources: texts(&["deployments"]),
            ..Wanted::default()
        });
        assert!(some.has_kind("pods") && some.has_kind("teapots.example.com"));
        assert!(!some.has_kind("deployments.apps") && !some.has_kind("services"));
    }

    #[test]
    fn a_restricted_action_is_not_for_the_cluster_s_own_objects() {
        for (included, excluded, inside, other) in [
            (&["shop"][..], &[][..], true, false),
            (&[], &["shop"], false, true),
            (&["*"], &[], true, true),
        ] {
            let scope = scope(&Wanted {
                included_namespaces: texts(included),
                excluded_namespaces: texts(excluded),
                ..Wanted::default()
            });
            assert_eq!(scope.has("shop", BTreeMap::new), inside);
            assert_eq!(scope.has("other", BTreeMap::new), other);
            assert_eq!(scope.has("", BTreeMap::new), inside && other);
        }
    }

    #[test]
    fn labels_choose() {
        let scope = scope(&Wanted {
            label_selector: "app=web".to_owned(),
            ..Wanted::default()
        });
        let labels = |value: &str| BTreeMap::from([("app".to_owned(), value.to_owned())]);
        assert!(scope.has("shop", || labels("web")));
        assert!(!scope.has("shop", || labels("db")));
        let bad = Wanted {
            label_selector: "((".to_owned(),
            ..Wanted::default()
        };
        let error = Scope::new(&bad, &Discovery::default()).unwrap_err();
        assert!(error.starts_with("label selector \"((\": "), "{error}");
    }
}
