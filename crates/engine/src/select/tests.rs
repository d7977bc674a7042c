use serde_json::json;

use super::*;
use crate::object::Canonical;

fn resource(name: &str, kind: &str, namespaced: bool) -> Resource {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        other_names: Vec::new(),
        verbs: Vec::new(),
        preferred: true,
    }
}

fn discovery() -> Discovery {
    Discovery {
        resources: vec![
            resource("namespaces", "Namespace", false),
            resource("nodes", "Node", false),
            resource("pods", "Pod", true),
            resource("secrets", "Secret", true),
            resource("widgets.example.com", "Widget", true),
            resource("gadgets.example.com", "Gadget", false),
        ],
        broken: Vec::new(),
    }
}

fn live() -> Vec<LiveNamespace> {
    ["a", "b", "hidden"]
        .map(|name| LiveNamespace {
            name: name.to_owned(),
            labels: if name == "hidden" {
                BTreeMap::from([(label::EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned())])
            } else {
                BTreeMap::from([("name".to_owned(), name.to_owned())])
            },
            active: true,
        })
        .to_vec()
}

fn select(spec: serde_json::Value) -> (Selection, Vec<String>) {
    let spec: BackupSpec = serde_json::from_value(spec).unwrap();
    Selection::new(&spec, &discovery(), &live(), None).unwrap()
}

/// The resources that a spec collects.
fn collected(spec: serde_json::Value) -> Vec<String> {
    let (selection, _) = select(spec);
    discovery()
        .resources
        .iter()
        .filter(|r| selection.collects(r))
        .map(Resource::group_resource)
        .collect()
}

const ALL: [&str; 6] = [
    "namespaces",
    "nodes",
    "pods",
    "secrets",
    "widgets.example.com",
    "gadgets.example.com",
];

#[test]
fn a_backup_without_filters_holds_the_whole_cluster() {
    assert_eq!(collected(json!({})), ALL);
    let auto = json!({
        "includedNamespaces": ["*"],
        "excludedClusterScopedResources": ["volumesnapshotcontents.snapshot.storage.k8s.io"],
        "excludedNamespaceScopedResources": ["volumesnapshots.snapshot.storage.k8s.io"],
    });
    assert_eq!(collected(auto.clone()), ALL);
    assert_eq!(select(auto).1, Vec::<String>::new());
    assert_eq!(collected(json!({"includeClusterResources": true})), ALL);
}

#[test]
fn old_filters() {
    for (spec, expected) in [
        (json!({"includedResources": ["po"]}), vec![]),
        (json!({"includedResources": ["Pod"]}), vec!["pods"]),
        (
            json!({"includedResources": ["*"], "includedNamespaces": ["a"]}),
            vec!["namespaces", "pods", "secrets", "widgets.example.com"],
        ),
        (
            json!({"includeClusterResources": false}),
            vec!["pods", "secrets", "widgets.example.com"],
        ),
        (
            json!({"excludedResources": ["secrets", "gadgets.example.com"]}),
            vec!["namespaces", "nodes", "pods", "widgets.example.com"],
        ),
        (
            json!({"includedResources": ["*.example.com"]}),
            vec!["widgets.example.com", "gadgets.example.com"],
        ),
        (
            json!({"includeClusterResources": true, "includedNamespaces": ["a"]}),
            ALL.to_vec(),
        ),
    ] {
        assert_eq!(collected(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn new_filters() {
    for (spec, expected) in [
        (
            json!({"includedNamespaceScopedResources": ["pods"]}),
            vec!["namespaces", "pods"],
        ),
        (
            json!({"includedClusterScopedResources": ["*"], "includedNamespaces": ["a"]}),
            ALL.to_vec(),
        ),
        (
            json!({"includedClusterScopedResources": ["gadget"]}),
            vec![
                "namespaces",
                "pods",
                "secrets",
                "widgets.example.com",
                "gadgets.example.com",
            ],
        ),
        (
            json!({"excludedNamespaceScopedResources": ["*"], "includedClusterScopedResources": ["nodes"]}),
            vec!["namespaces", "nodes"],
        ),
        (
            json!({"excludedClusterScopedResources": ["nodes"]}),
            vec![
                "namespaces",
                "pods",
                "secrets",
                "widgets.example.com",
                "gadgets.example.com",
            ],
        ),
        (
            json!({"includedNamespaces": ["a"]}),
            vec!["namespaces", "pods", "secrets", "widgets.example.com"],
        ),
    ] {
        assert_eq!(collected(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn names_that_mean_nothing_are_remarked() {
    let (_, remarks) = select(json!({"includedClusterScopedResources": ["pods", "nosuch"]}));
    assert_eq!(
        remarks,
        [
            "pods in includedClusterScopedResources means nothing: it is namespaced",
            "nosuch in includedClusterScopedResources means nothing: the cluster has no such resource",
        ]
    );
}

#[test]
fn single_objects() {
    let (selection, _) = select(
        json!({"includedNamespaces": ["a", "hidden"], "excludedClusterScopedResources": ["nodes"]}),
    );
    let admits = |resource: &str, object: serde_json::Value, insisted| {
        let raw = serde_json::to_vec(&json!({"metadata": object})).unwrap();
        let mut out = Vec::new();
        let facts = Canonical::default()
            .write(&raw, "v1", "X", &mut out)
            .unwrap();
        let discovery = discovery();
        selection.admits(discovery.find(resource).unwrap(), &facts, insisted)
    };
    assert_eq!(admits("pods", json!({"namespace": "a"}), false), Ok(()));
    assert_eq!(
        admits("pods", json!({"namespace": "b"}), false),
        Err(Left::Unselected)
    );
    assert_eq!(admits("pods", json!({"namespace": "b"}), true), Ok(()));
    assert_eq!(
        admits("pods", json!({"namespace": "hidden"}), false),
        Err(Left::Unselected)
    );
    assert_eq!(
        admits("gadgets.example.com", json!({}), false),
        Ok(()),
        "cluster-scoped, brought along"
    );
    assert_eq!(admits("nodes", json!({}), false), Err(Left::Unselected));
    let labels = json!({"namespace": "a", "labels": {"velero.io/exclude-from-backup": "true"}});
    assert_eq!(admits("pods", labels, false), Err(Left::Labelled));
    let deleting = json!({"namespace": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(admits("pods", deleting, true), Err(Left::Deleting));
}

#[test]
fn the_hiding_label_hides_one_namespace_and_changes_nothing_else() {
    let (selection, _) = select(json!({}));
    assert!(!selection.has_namespace("hidden"));
    assert!(selection.has_namespace("a"));
    assert_eq!(collected(json!({"includedResources": ["*"]})), ALL);
}

#[test]
fn namespaces_without_objects() {
    let tracked = |spec: serde_json::Value| -> Vec<String> {
        let (selection, _) = select(spec);
        live()
            .iter()
            .filter(|ns| selection.tracks(ns))
            .map(|ns| ns.name.clone())
            .collect()
    };
    assert_eq!(tracked(json!({})), ["a", "b"]);
    assert_eq!(tracked(json!({"labelSelector": {}})), ["a", "b"]);
    assert_eq!(
        tracked(json!({"labelSelector": {"matchLabels": {"name": "b"}}})),
        ["b"]
    );
    assert_eq!(
        tracked(
            json!({"includedNamespaces": ["a"], "labelSelector": {"matchLabels": {"name": "b"}}})
        ),
        ["a"]
    );
    assert_eq!(
        tracked(
            json!({"orLabelSelectors": [{"matchLabels": {"name": "b"}}, {"matchLabels": {"name": "a"}}]})
        ),
        ["a", "b"]
    );
}

#[test]
fn namespaces_with_filters_of_their_own() {
    let policies = Policies::parse(
        r#"
version: v1
clusterScopedFilterPolicy:
  resourceFilters:
  - kinds: [Gadget]
    names: ["keep-*"]
namespacedFilterPolicies:
- namespaces: [a]
  resourceFilters:
  - kinds: [Secret]
    labelSelector: {matchLabels: {tier: gold}}
    excludedNames: [tmp]
"#,
        crate::policy::Purpose::Backup,
    )
    .unwrap();
    let spec = BackupSpec::default();
    let (selection, _) = Selection::new(&spec, &discovery(), &live(), Some(&policies)).unwrap();
    let discovery = discovery();
    let queries =
        |resource: &str, namespace| selection.queries(discovery.find(resource).unwrap(), namespace);
    assert_eq!(queries("secrets", Some("a")), ["tier=gold"]);
    assert_eq!(queries("pods", Some("a")), Vec::<String>::new());
    assert_eq!(queries("pods", Some("b")), [""]);
    assert!(!selection.has_all_namespaces());
    let admits = |resource: &str, namespace: &str, name: &str| {
        let raw = serde_json::to_vec(&json!({"metadata": {"namespace": namespace, "name": name}}))
            .unwrap();
        let mut out = Vec::new();
        let facts = Canonical::default()
            .write(&raw, "v1", "X", &mut out)
            .unwrap();
        selection
            .admits(discovery.find(resource).unwrap(), &facts, false)
            .is_ok()
    };
    assert!(admits("secrets", "a", "x"));
    assert!(!admits("secrets", "a", "tmp"));
    assert!(admits("secrets", "b", "tmp"));
    assert!(admits("gadgets.example.com", "", "keep-1"));
    assert!(!admits("gadgets.example.com", "", "other"));
}
