//! What modifiers take, and what they make of objects.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;

fn parsed(text: &str) -> Result<Modifiers, String> {
    let map =
        json!({"metadata": {"namespace": "velero", "name": "m"}, "data": {"rules.yaml": text}});
    Modifiers::parse(&serde_json::from_value::<ConfigMap>(map).unwrap())
}

/// Modifiers with these rules, in JSON, which is YAML too.
fn modifiers(rules: &Value) -> Modifiers {
    let document = json!({"version": "v1", "resourceModifierRules": rules});
    let modifiers = parsed(&document.to_string()).unwrap();
    modifiers.validate().unwrap();
    modifiers
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web-1", "labels": {"app": "web", "tier": "front"}},
        "spec": {"replicas": 1, "paused": true, "template": {"spec": {"containers": [
            {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"},
        ]}}},
    })
}

#[test]
fn a_config_map_has_one_text() {
    for data in [json!(null), json!({}), json!({"a": "", "b": ""})] {
        let map = json!({"metadata": {"namespace": "velero", "name": "m"}, "data": data});
        let refused = Modifiers::parse(&serde_json::from_value(map).unwrap()).err();
        assert_eq!(
            refused.as_deref(),
            Some("illegal resource modifiers velero/m configmap")
        );
    }
}

#[test]
fn what_is_not_known_cannot_be_read() {
    for text in [
        "version: [",
        "version: v1\nrules: []",
        "version: v1\nresourceModifierRules:\n- conditions: {kind: pods}",
        "version: v1\nresourceModifierRules:\n- conditions:\n    labelSelector: {labels: {}}",
        "version: v1\nresourceModifierRules:\n- patches:\n  - {op: add}",
        "version: v1\nversion: v1",
    ] {
        let why = parsed(text).err().unwrap();
        let start = "failed to decode yaml data into resource modifiers, err: ";
        assert!(why.starts_with(start), "{text}: {why}");
    }
}

#[test]
fn unsound_rules_are_refused() {
    let pods = json!({"groupResource": "pods"});
    let remove = json!([{"operation": "remove", "path": "/a"}]);
    for (document, why) in [
        (
            json!({"version": "v2", "resourceModifierRules": []}),
            "unsupported resource modifier version v2",
        ),
        (json!({}), "unsupported resource modifier version "),
        (
            json!({"version": "V1"}),
            "resource modifier rules cannot be empty",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"patches": remove}]}),
            "groupkResource cannot be empty",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "patches": remove, "mergePatches": [{}]}]}),
            "only one of patches, mergePatches, strategicPatches can be specified",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "patches": [{"path": "/a"}]}]}),
            "operation cannot be empty",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "patches": [{"operation": "Delete"}]}]}),
            "unsupported operation Delete",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "patches": [{"operation": "Add"}]}]}),
            "path cannot be empty",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods}]}),
            "resourceModifierRules[0].patches: no patch data found",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "mergePatches": [{"patchData": "text"}]}]}),
            "resourceModifierRules[0].mergePatches[0]: patchData: must be an object",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "strategicPatches": [{}]}]}),
            "resourceModifierRules[0].strategicPatches[0]: patchData: must be an object",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": {"groupResource": "pods", "matches": [{"value": "a"}]}, "patches": remove}]}),
            "resourceModifierRules[0].conditions.matches[0]: path: path is required for match rule",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "patches": remove}, {"conditions": {"groupResource": "{pods"}, "patches": remove}]}),
            "resourceModifierRules[1].conditions.groupResource: \"{pods\": ",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": {"groupResource": "pods", "namespaces": ["[a"]}, "patches": remove}]}),
            "resourceModifierRules[0].conditions.namespaces[0]: \"[a\": ",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": {"groupResource": "pods", "resourceNameRegex": "("}, "patches": remove}]}),
            "resourceModifierRules[0].conditions.resourceNameRegex: ",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": {"groupResource": "pods", "labelSelector": {"matchLabels": {"a b": "c"}}}, "patches": remove}]}),
            "resourceModifierRules[0].conditions.labelSelector: ",
        ),
        (
            json!({"version": "v1", "resourceModifierRules": [{"conditions": pods, "patches": [{"operation": "add", "path": "/a", "value": "{a"}]}]}),
            "resourceModifierRules[0].patches[0]: value: \"{a\" is not JSON: ",
        ),
    ] {
        let modifiers = parsed(&document.to_string()).unwrap();
        let refused = modifiers.validate().unwrap_err();
        assert!(refused.starts_with(why), "{document}: {refused}");
    }
}

#[test]
fn conditions_choose_objects() {
    for (conditions, matches) in [
        (json!({"groupResource": "deployments.apps"}), true),
        (json!({"groupResource": "deployments"}), false),
        (json!({"groupResource": "*"}), false),
        (json!({"groupResource": "*.apps"}), true),
        (json!({"groupResource": "*.*"}), true),
        (json!({"groupResource": "**"}), true),
        (json!({"groupResource": "deploy**"}), true),
        (json!({"groupResource": "{pods,deployments.apps}"}), true),
        (json!({"groupResource": "{pods,statefulsets.apps}"}), false),
        (json!({"groupResource": "**", "namespaces": ["shop"]}), true),
        (
            json!({"groupResource": "**", "namespaces": ["s*", "other"]}),
            true,
        ),
        (json!({"groupResource": "**", "namespaces": ["*"]}), true),
        (
            json!({"groupResource": "**", "namespaces": ["other"]}),
            false,
        ),
        (
            json!({"groupResource": "**", "resourceNameRegex": "^web-.*"}),
            true,
        ),
        (
            json!({"groupResource": "**", "resourceNameRegex": "b-1"}),
            true,
        ),
        (
            json!({"groupResource": "**", "resourceNameRegex": "^b"}),
            false,
        ),
        (
            json!({"groupResource": "**", "labelSelector": {"matchLabels": {"app": "web"}}}),
            true,
        ),
        (
            json!({"groupResource": "**", "labelSelector": {"matchLabels": {"app": "db"}}}),
            false,
        ),
        (
            json!({"groupResource": "**", "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}),
            true,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/replicas", "value": "1"}]}),
            true,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/replicas", "value": "\"1\""}]}),
            false,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/paused", "value": "true"}, {"path": "/spec/replicas", "value": "2"}]}),
            false,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/missing/deep", "value": "1"}]}),
            false,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/missing", "value": "null"}]}),
            true,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/missing"}]}),
            false,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/template/spec/containers/1/image", "value": "b:1"}]}),
            true,
        ),
        (
            json!({"groupResource": "**", "matches": [{"path": "/spec/template/spec/containers/7", "value": "b:1"}]}),
            false,
        ),
    ] {
        let add = json!([{"operation": "add", "path": "/hit", "value": "yes"}]);
        let modifiers = modifiers(&json!([{"conditions": conditions, "patches": add}]));
        let mut object = deployment();
        assert_eq!(modifiers.apply("deployments.apps", &mut object), [""; 0]);
        assert_eq!(object.get("hit").is_some(), matches, "{conditions}");
    }
}

#[test]
fn namespaces_do_not_matter_to_cluster_scoped_objects() {
    let modifiers = modifiers(&json!([{
        "conditions": {"groupResource": "persistentvolumes", "namespaces": ["shop"]},
        "mergePatches": [{"patchData": "spec: {a: 1}"}],
    }]));
    let mut volume =
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}});
    modifiers.apply("persistentvolumes", &mut volume);
    assert_eq!(volume["spec"], json!({"a": 1}));
}

#[test]
fn json_patches_change_what_they_point_at() {
    let containers = "/spec/template/spec/containers";
    for (patches, expected) in [
        (
            json!([{"operation": "replace", "path": "/spec/replicas", "value": "3"}]),
            Ok(("/spec/replicas", json!(3))),
        ),
        (
            json!([{"operation": "Replace", "path": "/spec/replicas", "value": "\"3\""}]),
            Ok(("/spec/replicas", json!("3"))),
        ),
        (
            json!([{"operation": "add", "path": format!("{containers}/-"), "value": "{\"name\": \"c\"}"}]),
            Ok(("/spec/template/spec/containers/2/name", json!("c"))),
        ),
        (
            json!([{"operation": "remove", "path": format!("{containers}/0")}]),
            Ok(("/spec/template/spec/containers/0/name", json!("b"))),
        ),
        (
            json!([{"operation": "copy", "from": "/metadata/name", "path": "/metadata/labels/a~1b"}]),
            Ok(("/metadata/labels/a~1b", json!("web-1"))),
        ),
        (
            json!([{"operation": "move", "from": "/spec/replicas", "path": "/spec/moved"}]),
            Ok(("/spec/moved", json!(1))),
        ),
        (
            json!([{"operation": "test", "path": "/spec/replicas", "value": "1"}, {"operation": "replace", "path": "/spec/replicas", "value": "2"}]),
            Ok(("/spec/replicas", json!(2))),
        ),
        // The whole rule is for nothing, and nothing is wrong.
        (
            json!([{"operation": "replace", "path": "/spec/replicas", "value": "9"}, {"operation": "test", "path": "/spec/paused", "value": "false"}]),
            Ok(("/spec/replicas", json!(1))),
        ),
        (
            json!([{"operation": "replace", "path": "/spec/replicas", "value": "9"}, {"operation": "replace", "path": "/spec/missing", "value": "1"}]),
            Err(
                "error in applying patch error in applying JSON Patch replace operation does not apply: doc is missing path: /spec/missing: missing value",
            ),
        ),
        (
            json!([{"operation": "test", "path": "/missing/deep", "value": "1"}]),
            Err(
                "error in applying patch error in applying JSON Patch test operation does not apply: doc is missing path: /missing/deep: missing value",
            ),
        ),
        (
            json!([{"operation": "remove", "path": "/kind"}]),
            Err(
                "error in applying patch error in unmarshalling modified object: 'kind' is missing",
            ),
        ),
    ] {
        let rules = json!([{"conditions": {"groupResource": "**"}, "patches": patches}]);
        let mut object = deployment();
        let errors = modifiers(&rules).apply("deployments.apps", &mut object);
        match expected {
            Ok((path, value)) => {
                assert_eq!(errors, [""; 0], "{patches}");
                assert_eq!(object.pointer(path), Some(&value), "{patches}");
            }
            Err(why) => {
                assert_eq!(errors, [why], "{patches}");
                assert_eq!(object, deployment(), "{patches}");
            }
        }
    }
}

#[test]
fn merge_patches_replace_lists_and_strategic_ones_merge_them() {
    let patch = "spec:\n  paused: null\n  template:\n    spec:\n      containers:\n      - {name: b, image: 'b:2'}";
    let second = r#"{"spec": {"replicas": 5}}"#;
    let rules = |kind: &str| json!([{"conditions": {"groupResource": "**"}, kind: [{"patchData": patch}, {"patchData": second}]}]);
    for (kind, containers) in [
        ("mergePatches", json!([{"name": "b", "image": "b:2"}])),
        (
            "strategicPatches",
            json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:2"}]),
        ),
    ] {
        let mut object = deployment();
        let errors = modifiers(&rules(kind)).apply("deployments.apps", &mut object);
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            object["spec"],
            json!({"replicas": 5, "template": {"spec": {"containers": containers}}})
        );
    }
}

#[test]
fn strategic_patches_are_for_kinds_that_are_known() {
    let rules = json!([{"conditions": {"groupResource": "**"}, "strategicPatches": [{"patchData": "spec: {a: {b: 1}}"}]}]);
    let modifiers = modifiers(&rules);
    for (version, kind, expected) in [
        ("velero.io/v1", "Schedule", Ok(())),
        ("snapshot.storage.k8s.io/v1", "VolumeSnapshot", Ok(())),
        (
            "networking.k8s.io/v1",
            "Ingress",
            Err(
                "error in applying patch no kind \"Ingress\" is registered for version \"networking.k8s.io/v1\"; use mergePatches",
            ),
        ),
        (
            "v1",
            "Pod",
            Err(
                "error in applying patch error in applying Strategic Patch unable to find api field in struct PodSpec for the json field \"a\"",
            ),
        ),
    ] {
        let before = json!({"apiVersion": version, "kind": kind, "spec": {"a": {"c": 2}}});
        let mut object = before.clone();
        let errors = modifiers.apply("x", &mut object);
        match expected {
            Ok(()) => {
                assert_eq!(errors, [""; 0], "{kind}");
                assert_eq!(object["spec"], json!({"a": {"b": 1, "c": 2}}));
            }
            Err(why) => {
                assert_eq!(errors, [why]);
                assert_eq!(object, before);
            }
        }
    }
}

#[test]
fn rules_add_up_and_look_at_what_came() {
    let replicas = |old: &str, new: &str| {
        json!({
            "conditions": {"groupResource": "**", "matches": [{"path": "/spec/replicas", "value": old}]},
            "patches": [{"operation": "replace", "path": "/spec/replicas", "value": new}],
        })
    };
    let fails = json!({"conditions": {"groupResource": "**"}, "patches": [{"operation": "remove", "path": "/missing"}]});
    let pauses = json!({"conditions": {"groupResource": "**"}, "mergePatches": [{"patchData": "{spec: {paused: false}}"}]});
    let rules = json!([replicas("1", "2"), replicas("2", "3"), fails, pauses]);
    let mut object = deployment();
    let errors = modifiers(&rules).apply("deployments.apps", &mut object);
    assert_eq!(
        errors,
        [
            "error in applying patch error in applying JSON Patch remove operation does not apply: doc is missing path: /missing: missing value"
        ]
    );
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["spec"]["paused"], false);
}
