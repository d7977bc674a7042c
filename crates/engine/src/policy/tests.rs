//! Tables for every condition, filter and refusal.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::filter::Lists;

fn parse(text: &str) -> Result<Policies, Error> {
    Policies::parse(text, Purpose::Backup)
}

/// One volume policy with these conditions, in YAML flow style.
fn with_conditions(conditions: &str) -> String {
    format!("version: v1\nvolumePolicies:\n- conditions: {conditions}\n  action: {{type: skip}}\n")
}

fn holds(conditions: &str, volume: &VolumeFacts) -> bool {
    let policies = parse(&with_conditions(conditions)).expect(conditions);
    policies.volume_action(volume).is_some()
}

fn pv(spec: Value) -> VolumeFacts {
    VolumeFacts::of_pv(&json!({ "spec": spec }))
}

#[test]
fn sizes_are_compared_with_both_ends_included() {
    let volume = pv(json!({ "capacity": { "storage": "10Gi" } }));
    let none = VolumeFacts::default();
    for (capacity, ten, zero) in [
        ("\"10Gi,100Gi\"", true, false),
        ("\"1Gi,10Gi\"", true, false),
        ("\"11Gi,\"", false, false),
        ("\"10Gi,\"", true, false),
        ("\",9Gi\"", false, true),
        ("\",10Gi\"", true, true),
        ("\"0,10Gi\"", true, true),
        ("\" 1Gi , 10240Mi \"", true, false),
        ("\",\"", true, true),
        ("\"\"", true, true),
    ] {
        let conditions = format!("{{capacity: {capacity}}}");
        assert_eq!(holds(&conditions, &volume), ten, "{capacity}");
        assert_eq!(holds(&conditions, &none), zero, "{capacity}");
    }
}

#[test]
fn every_condition_on_the_volume_matches_as_in_velero() {
    let gp2 = pv(json!({ "storageClassName": "gp2" }));
    let nfs = pv(json!({ "nfs": { "server": "s", "path": "/p" } }));
    let csi = pv(json!({ "csi": { "driver": "d", "volumeAttributes": { "k": "v", "x": "y" } } }));
    let bare_csi = pv(json!({ "csi": { "driver": "d" } }));
    let empty = VolumeFacts::of_pod_volume(&json!({ "name": "tmp", "emptyDir": {} }));
    for (conditions, volume, expected) in [
        ("", &empty, true),
        ("{}", &empty, true),
        ("{storageClass: [gp2, ssd]}", &gp2, true),
        ("{storageClass: [ssd]}", &gp2, false),
        ("{storageClass: [\"\"]}", &empty, false),
        ("{storageClass: []}", &empty, true),
        ("{storageClass: null}", &empty, true),
        ("{nfs: {}}", &nfs, true),
        ("{nfs: {}}", &csi, false),
        ("{nfs: }", &csi, true),
        ("{nfs: {server: s}}", &nfs, true),
        ("{nfs: {server: t}}", &nfs, false),
        ("{nfs: {path: /p}}", &nfs, true),
        ("{nfs: {path: /q}}", &nfs, false),
        ("{nfs: {server: t, path: /p}}", &nfs, false),
        ("{nfs: {server: s, path: /p}}", &nfs, true),
        ("{csi: {}}", &csi, true),
        ("{csi: {}}", &nfs, false),
        ("{csi: {driver: d}}", &csi, true),
        ("{csi: {driver: e}}", &csi, false),
        ("{csi: {driver: d}}", &nfs, false),
        ("{csi: {driver: d, volumeAttributes: {k: v}}}", &csi, true),
        ("{csi: {driver: d, volumeAttributes: {k: w}}}", &csi, false),
        ("{csi: {driver: d, volumeAttributes: {z: v}}}", &csi, false),
        (
            "{csi: {driver: d, volumeAttributes: {z: \"\"}}}",
            &csi,
            true,
        ),
        (
            "{csi: {driver: d, volumeAttributes: {k: v}}}",
            &bare_csi,
            false,
        ),
        ("{csi: {driver: d, volumeAttributes: {}}}", &bare_csi, true),
        ("{volumeTypes: [emptyDir, nfs]}", &empty, true),
        ("{volumeTypes: [emptyDir, nfs]}", &nfs, true),
        ("{volumeTypes: [emptyDir, nfs]}", &csi, false),
        ("{volumeTypes: [nfs], nfs: {server: t}}", &nfs, false),
    ] {
        assert_eq!(
            holds(conditions, volume),
            expected,
            "{conditions} {volume:?}"
        );
    }
}

#[test]
fn every_condition_on_the_claim_matches_as_in_velero() {
    let pvc = json!({
        "metadata": { "labels": { "a": "b", "c": "d" } },
        "spec": { "volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"] },
        "status": { "phase": "Bound" }
    });
    let claimed = VolumeFacts::default().with_pvc(&pvc);
    let free = VolumeFacts::default();
    for (conditions, with_claim, without) in [
        ("{pvcLabels: {a: b}}", true, false),
        ("{pvcLabels: {a: b, c: d}}", true, false),
        ("{pvcLabels: {a: x}}", false, false),
        ("{pvcLabels: {a: b, z: z}}", false, false),
        ("{pvcLabels: {}}", true, true),
        ("{pvcPhase: [Pending, Bound]}", true, false),
        ("{pvcPhase: [Lost]}", false, false),
        ("{pvcPhase: []}", true, true),
        ("{pvcVolumeMode: Filesystem}", true, false),
        ("{pvcVolumeMode: Block}", false, false),
        ("{pvcVolumeMode: \"\"}", true, true),
        (
            "{pvcAccessModes: [ReadOnlyMany, ReadWriteOnce]}",
            true,
            false,
        ),
        ("{pvcAccessModes: [ReadWriteOnce]}", false, false),
        ("{pvcAccessModes: []}", true, true),
    ] {
        assert_eq!(holds(conditions, &claimed), with_claim, "{conditions}");
        assert_eq!(holds(conditions, &free), without, "{conditions}");
    }
}

#[test]
fn facts_are_read_from_a_persistent_volume_a_pod_volume_and_a_claim() {
    let facts = pv(json!({
        "capacity": { "storage": "1Gi" }, "storageClassName": "fast", "claimRef": {},
        "csi": { "driver": "d", "volumeAttributes": { "k": "v" } }
    }));
    assert_eq!(
        facts,
        VolumeFacts {
            capacity: "1Gi".parse().unwrap(),
            storage_class: "fast".into(),
            csi: Some(Csi {
                driver: "d".into(),
                volume_attributes: Some(BTreeMap::from([("k".into(), "v".into())])),
            }),
            volume_type: "csi".into(),
            ..Default::default()
        }
    );
    for (volume, kind) in [
        (json!({ "emptyDir": {} }), "emptyDir"),
        (json!({ "hostPath": { "path": "/" } }), "hostPath"),
        (json!({ "storageos": {} }), "storageOS"),
        (json!({ "persistentVolumeClaim": { "claimName": "c" } }), ""),
        (json!({ "emptyDir": null }), ""),
    ] {
        assert_eq!(VolumeFacts::of_pod_volume(&volume).volume_type, kind);
    }
}

#[test]
fn the_first_entry_that_matches_decides() {
    let text = "
version: v1
volumePolicies:
- conditions: {volumeTypes: [nfs]}
  action: {type: fs-backup}
- conditions: {capacity: \"1Gi,\"}
  action: {type: snapshot}
- conditions: {storageClass: [own]}
  action: {type: custom, parameters: {how: well, times: 3}}
- action: {type: skip}
";
    let policies = parse(text).unwrap();
    let action = |volume: &VolumeFacts| policies.volume_action(volume).unwrap().clone();
    let nfs = pv(json!({ "capacity": { "storage": "2Gi" }, "nfs": {} }));
    assert_eq!(action(&nfs).kind, ActionType::FsBackup);
    let big = pv(json!({ "capacity": { "storage": "2Gi" }, "storageClassName": "own" }));
    assert_eq!(action(&big).kind, ActionType::Snapshot);
    let own = action(&pv(json!({ "storageClassName": "own" })));
    assert_eq!(own.kind, ActionType::Custom);
    assert_eq!(
        Value::from(own.parameters),
        json!({ "how": "well", "times": 3 })
    );
    assert_eq!(action(&VolumeFacts::default()).kind, ActionType::Skip);
    assert_eq!(action(&VolumeFacts::default()).kind.as_str(), "skip");
    assert!(Policies::default().volume_action(&nfs).is_none());
}

#[test]
fn global_volume_policies_come_after_the_backup_s_own() {
    let own = parse(&with_conditions("{volumeTypes: [nfs]}")).unwrap();
    let global = parse(
        "version: v1
volumePolicies: [{action: {type: snapshot}}]
namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [Pod]}]}]",
    )
    .unwrap();
    let both = Policies::with_global(Some(own.clone()), Some(global.clone())).unwrap();
    let kinds: Vec<ActionType> = both.volume_policies.iter().map(|p| p.action.kind).collect();
    assert_eq!(kinds, [ActionType::Skip, ActionType::Snapshot]);
    let alone = Policies::with_global(None, Some(global)).unwrap();
    assert_eq!(alone.volume_policies.len(), 1);
    assert!(!alone.has_filters());
    assert!(Policies::with_global(None, None).is_none());
    assert_eq!(
        Policies::with_global(Some(own), None)
            .unwrap()
            .volume_policies
            .len(),
        1
    );
}

#[test]
fn policy_lists_give_way_to_those_of_the_backup() {
    let policies = parse(
        "version: v1
includeExcludePolicy:
  includedClusterScopedResources: [crd, pod, pv]
  excludedClusterScopedResources: [sc]
  includedNamespaceScopedResources: [cm, unknown.example.com, secret]
  excludedNamespaceScopedResources: [deploy, pod, pvc]",
    )
    .unwrap();
    let resolve = |item: &str, namespaced: bool| {
        let (resource, scope) = match item {
            "crd" => ("customresourcedefinitions.apiextensions.k8s.io", false),
            "pv" => ("persistentvolumes", false),
            "sc" => ("storageclasses.storage.k8s.io", false),
            "cm" => ("configmaps", true),
            "secret" => ("secrets", true),
            "deploy" => ("deployments.apps", true),
            "pod" => ("pods", true),
            "pvc" => ("persistentvolumeclaims", true),
            other => (other, namespaced),
        };
        (scope == namespaced).then(|| resource.to_owned())
    };
    let mut namespaced = Lists::new(["deploy*"], ["secrets"]);
    let mut cluster = Lists::new(["persistentvolumes"], [""; 0]);
    let policy = policies.include_exclude.unwrap();
    policy.merge(&mut namespaced, &mut cluster, resolve);

    let lists = |lists: &Lists| {
        let texts = |i: &mut dyn Iterator<Item = &str>| i.collect::<Vec<_>>().join(" ");
        (texts(&mut lists.included()), texts(&mut lists.excluded()))
    };
    assert_eq!(
        lists(&namespaced),
        (
            "deploy* configmaps unknown.example.com".into(),
            "secrets pods persistentvolumeclaims".into()
        )
    );
    assert_eq!(
        lists(&cluster),
        (
            "persistentvolumes customresourcedefinitions.apiextensions.k8s.io".into(),
            "storageclasses.storage.k8s.io".into()
        )
    );
}

const FILTERS: &str = "
version: v1
clusterScopedFilterPolicy:
  resourceFilters:
  - kinds: [ClusterRole]
    names: [app-*]
    excludedNames: [app-x]
    labelSelector: {matchLabels: {a: b}}
namespacedFilterPolicies:
- namespaces: ['team-*']
  resourceFilters:
  - kinds: [Deployment, cm, Mystery]
    orLabelSelectors: [{matchLabels: {a: b}}, {}, {matchExpressions: [{key: c, operator: Exists}]}]
    excludedNames: [tmp-?]
- namespaces: [team-1, other]
  resourceFilters:
  - kinds: [Secret]
    names: [keep]
  - labelSelector: {}
- namespaces: ['*']
  resourceFilters:
  - kinds: ['*']
";

fn resolved() -> (Policies, Vec<String>) {
    let mut policies = parse(FILTERS).unwrap();
    let warnings = policies.resolve_kinds(|kind| {
        Some(
            match kind {
                "ClusterRole" => "clusterroles.rbac.authorization.k8s.io",
                "Deployment" => "deployments.apps",
                "cm" => "configmaps",
                "Secret" => "secrets",
                _ => return None,
            }
            .to_owned(),
        )
    });
    (policies, warnings)
}

#[test]
fn a_namespace_s_own_name_beats_globs_and_the_first_glob_beats_the_next() {
    let (policies, _) = resolved();
    for (namespace, kinds) in [
        ("team-1", "Secret"),
        ("other", "Secret"),
        ("team-2", "Deployment"),
        ("else", "*"),
    ] {
        let filter = policies.for_namespace(namespace).unwrap();
        let raw = parse(FILTERS).unwrap();
        let raw = raw.for_namespace(namespace).unwrap();
        assert_eq!(raw.filters[0].kinds[0], kinds, "{namespace}");
        assert_eq!(filter.filters.len(), raw.filters.len());
    }
    assert!(Policies::default().for_namespace("team-1").is_none());
}

#[test]
fn a_namespace_with_filters_allows_what_they_list_and_nothing_else() {
    let (policies, warnings) = resolved();
    assert_eq!(
        warnings,
        ["Cannot resolve kind via discovery, using as-is: Mystery"]
    );
    for (namespace, resource, collected, selectors) in [
        ("team-2", "deployments.apps", true, 2),
        ("team-2", "configmaps", true, 2),
        ("team-2", "Mystery", true, 2),
        ("team-2", "secrets", false, 0),
        ("team-1", "secrets", true, 0),
        ("team-1", "pods", true, 0),
        ("else", "pods", true, 0),
    ] {
        let filter = policies
            .for_namespace(namespace)
            .unwrap()
            .for_kind(resource);
        assert_eq!(filter.is_some(), collected, "{namespace} {resource}");
        let found = filter.map_or(0, |filter| filter.selectors().len());
        assert_eq!(found, selectors, "{namespace} {resource}");
    }
}

#[test]
fn names_are_filtered_by_kind_and_unlisted_kinds_pass() {
    let (policies, _) = resolved();
    let roles = "clusterroles.rbac.authorization.k8s.io";
    for (resource, namespace, name, allowed) in [
        (roles, None, "app-1", true),
        (roles, None, "app-x", false),
        (roles, None, "web", false),
        ("nodes", None, "web", true),
        ("configmaps", Some("team-2"), "web", true),
        ("configmaps", Some("team-2"), "tmp-1", false),
        ("configmaps", Some("team-2"), "tmp-12", true),
        ("secrets", Some("team-2"), "tmp-1", true),
        ("secrets", Some("team-1"), "keep", true),
        ("secrets", Some("team-1"), "drop", false),
        ("pods", Some("team-1"), "any", true),
    ] {
        assert_eq!(
            policies.allows_name(resource, namespace, name),
            allowed,
            "{resource} {namespace:?} {name}"
        );
    }
    assert_eq!(
        policies.for_cluster_kind(roles).unwrap().selectors().len(),
        1
    );
    assert!(policies.for_cluster_kind("nodes").is_none());
}

#[test]
fn unreadable_policies_are_refused() {
    let read = |text: &str| match parse(text) {
        Err(Error::Read(why)) => why,
        other => panic!("{text}: {other:?}"),
    };
    for text in [
        "version: v1\nsurprise: 1",
        "version: v1\nvolumePolicies:\n- condition: {}",
        "version: v1\nvolumePolicies:\n- action: {type: skip, kind: x}",
        "version: v1\nvolumePolicies: 3",
        "version: v1\nversion: v1",
        "version: v1\nincludeExcludePolicy: {includedResources: []}",
        "version: v1\nclusterScopedFilterPolicy: {filters: []}",
        "version: v1\nnamespacedFilterPolicies: [{namespace: a}]",
        "version: v1\nnamespacedFilterPolicies: [{resourceFilters: [{kind: a}]}]",
        "version: v1\nnamespacedFilterPolicies: [{resourceFilters: [{labelSelector: {a: b}}]}]",
        "version: [",
        "just words",
        "- a list",
    ] {
        let why = read(text);
        assert!(
            why.starts_with("failed to decode yaml data into resource policies  "),
            "{text}: {why}"
        );
        assert!(!why.contains('\n'), "{why}");
    }
    for conditions in [
        "{size: 1}",
        "{nfs: {host: s}}",
        "{csi: {d: e}}",
        "{storageClass: gp2}",
    ] {
        let why = read(&with_conditions(conditions));
        assert!(
            why.starts_with("failed to decode volume conditions: "),
            "{conditions}: {why}"
        );
    }
    for (conditions, error) in [
        (
            "{pvcLabels: web}",
            "pvcLabels must be a map of string to string, got string",
        ),
        (
            "{pvcLabels: [a]}",
            "pvcLabels must be a map of string to string, got []interface {}",
        ),
        (
            "{pvcLabels: }",
            "pvcLabels must be a map of string to string, got <nil>",
        ),
        (
            "{pvcVolumeMode: [Block]}",
            "pvcVolumeMode must be a string, got []interface {}",
        ),
        (
            "{pvcVolumeMode: 3}",
            "pvcVolumeMode must be a string, got int",
        ),
        (
            "{pvcAccessModes: RWO}",
            "pvcAccessModes must be a list of strings, got string",
        ),
        (
            "{pvcAccessModes: [1.5]}",
            "pvcAccessModes must be a list of strings, got element float64",
        ),
        (
            "{pvcAccessModes: [true]}",
            "pvcAccessModes must be a list of strings, got element bool",
        ),
        ("{capacity: 10Gi}", "wrong format of Capacity 10Gi"),
        (
            "{capacity: \"1Gi,2Gi,3Gi\"}",
            "wrong format of Capacity 1Gi,2Gi,3Gi",
        ),
    ] {
        assert_eq!(read(&with_conditions(conditions)), error);
    }
    let why = read(&with_conditions("{capacity: \"ten,\"}"));
    assert!(
        why.starts_with("wrong format of Capacity ten with err "),
        "{why}"
    );
}

fn check_error(text: &str) -> String {
    match parse(text) {
        Err(Error::Validate(why)) => why,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn unsound_policies_are_refused() {
    let version = "with supported version v1";
    for (text, error) in [
        ("{}".to_owned(), format!("incompatible version number  {version}")),
        ("version: v2".to_owned(), format!("incompatible version number v2 {version}")),
        ("version: 1".to_owned(), format!("incompatible version number 1 {version}")),
        (
            "version: v1\nvolumePolicies: [{action: {type: Skip}}]".to_owned(),
            "invalid action type Skip".to_owned(),
        ),
        (
            "version: v1\nvolumePolicies: [{conditions: {}}]".to_owned(),
            "invalid action type ".to_owned(),
        ),
        (
            with_conditions("{capacity: \"100Gi,10Gi\"}"),
            "illegal values for capacity 100Gi,10Gi".to_owned(),
        ),
        (
            with_conditions("{csi: {volumeAttributes: {a: b}}}"),
            "csi driver should not be empty when filtering by volume attributes".to_owned(),
        ),
        (
            "version: v1\nincludeExcludePolicy: {includedClusterScopedResources: ['*']}".to_owned(),
            "cannot use '*' in includes or excludes filters in the policy".to_owned(),
        ),
        (
            "version: v1\nincludeExcludePolicy: {excludedNamespaceScopedResources: ['*']}".to_owned(),
            "cannot use '*' in includes or excludes filters in the policy".to_owned(),
        ),
        (
            "version: v1
includeExcludePolicy: {includedNamespaceScopedResources: [a], excludedNamespaceScopedResources: [a]}"
                .to_owned(),
            "excludes list cannot contain an item in the includes list: a".to_owned(),
        ),
    ] {
        assert_eq!(check_error(&text), error, "{text}");
    }
}

#[test]
fn unsound_filters_are_refused() {
    for (filters, error) in [
        (
            "[{namespaces: [], resourceFilters: [{}]}]",
            "namespacedFilterPolicies[0]: at least one namespace must be specified",
        ),
        (
            "[{namespaces: [a]}]",
            "namespacedFilterPolicies[0]: at least one resourceFilter must be specified",
        ),
        (
            "[{namespaces: [b, 'a**'], resourceFilters: [{}]}]",
            "namespacedFilterPolicies[0].namespaces[1]: wildcard pattern contains consecutive asterisks (only single * allowed)",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{}, {kinds: ['*']}]}]",
            "namespacedFilterPolicies[0]: only one catch-all resource filter is allowed",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{names: [x]}]}]",
            "namespacedFilterPolicies[0].resourceFilters[0]: names or excludedNames cannot be specified for catch-all filters",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{kinds: ['*'], excludedNames: [x]}]}]",
            "namespacedFilterPolicies[0].resourceFilters[0]: names or excludedNames cannot be specified for catch-all filters",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{kinds: [Pod]}, {kinds: [Job, Pod]}]}]",
            "namespacedFilterPolicies[0]: kind \"Pod\" appears in both resourceFilters[0] and resourceFilters[1]",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{kinds: [Pod], labelSelector: {matchLabels: {a: b}}, orLabelSelectors: [{}]}]}]",
            "namespacedFilterPolicies[0].resourceFilters[0]: labelSelector and orLabelSelectors cannot co-exist",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{labelSelector: {matchExpressions: [{key: a, operator: Is}]}}]}]",
            "namespacedFilterPolicies[0].resourceFilters[0]: invalid label selector: \"Is\" is not a valid label selector operator",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{orLabelSelectors: [{}, {matchExpressions: [{key: a, operator: Is}]}]}]}]",
            "namespacedFilterPolicies[0].resourceFilters[0].orLabelSelectors[1]: invalid label selector: \"Is\" is not a valid label selector operator",
        ),
        (
            "[{namespaces: [a], resourceFilters: [{}]}, {namespaces: [b, a], resourceFilters: [{}]}]",
            "namespacedFilterPolicies: duplicate namespace pattern 'a' found in policies [0 1]",
        ),
        (
            "[{namespaces: [a, a], resourceFilters: [{}]}]",
            "namespacedFilterPolicies: duplicate namespace pattern 'a' found in policies [0 0]",
        ),
    ] {
        let text = format!("version: v1\nnamespacedFilterPolicies: {filters}");
        assert_eq!(check_error(&text), error, "{filters}");
    }
    for (filters, error) in [
        (
            "[]",
            "clusterScopedFilterPolicy: resourceFilters cannot be empty; remove the policy block entirely if it is not needed",
        ),
        (
            "[{kinds: [A]}, {names: [x]}]",
            "clusterScopedFilterPolicy.resourceFilters[1]: kinds must be specified (catch-all is not supported)",
        ),
        (
            "[{kinds: ['*']}]",
            "clusterScopedFilterPolicy.resourceFilters[0]: kinds must be specified (catch-all is not supported)",
        ),
        (
            "[{kinds: [A, A]}]",
            "clusterScopedFilterPolicy: kind \"A\" appears in both resourceFilters[0] and resourceFilters[0]",
        ),
        (
            "[{kinds: [A], labelSelector: {matchLabels: {a: b}}, orLabelSelectors: [{}]}]",
            "clusterScopedFilterPolicy.resourceFilters[0]: labelSelector and orLabelSelectors cannot co-exist",
        ),
    ] {
        let text =
            format!("version: v1\nclusterScopedFilterPolicy: {{resourceFilters: {filters}}}");
        assert_eq!(check_error(&text), error, "{filters}");
    }
    for list in ["names", "excludedNames"] {
        let filter = format!("[{{kinds: [A], {list}: [fine, '[b']}}]");
        let why = check_error(&format!(
            "version: v1\nclusterScopedFilterPolicy: {{resourceFilters: {filter}}}"
        ));
        let place = format!(
            "clusterScopedFilterPolicy.resourceFilters[0].{list}[1]: invalid glob pattern \"[b\": "
        );
        assert!(why.starts_with(&place), "{why}");
    }
}

#[test]
fn a_restore_takes_filters_only() {
    let restore = |text: &str| Policies::parse(text, Purpose::Restore);
    assert!(restore(FILTERS).is_ok());
    for (text, error) in [
        (
            &*with_conditions("{}"),
            "volumePolicies are not supported for restore",
        ),
        (
            "version: v1\nincludeExcludePolicy: {}",
            "includeExcludePolicy is not supported for restore",
        ),
    ] {
        assert_eq!(restore(text).unwrap_err(), Error::Validate(error.into()));
    }
}

#[test]
fn a_config_map_has_one_key_of_any_name() {
    let from = |data: &[(&str, &str)]| {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Policies::from_config_map("velero", "rules", &data.collect(), Purpose::Backup)
    };
    assert!(from(&[("any", "version: v1")]).is_ok());
    for data in [&[][..], &[("a", "version: v1"), ("b", "version: v1")]] {
        let why = from(data).unwrap_err();
        assert_eq!(
            why.for_owner("velero/nightly"),
            "fail to read the ResourcePolicies from ConfigMap velero/nightly: illegal resource policies velero/rules configmap"
        );
    }
}

#[test]
fn errors_name_what_velero_names() {
    let get = Error::Get {
        config_map: "velero/rules".into(),
        why: "gone".into(),
    };
    let validate = Error::Validate("bad".into());
    for (text, error) in [
        (
            get.for_owner("velero/b"),
            "fail to get ResourcePolicies velero/rules ConfigMap: gone",
        ),
        (
            validate.for_owner("velero/b"),
            "fail to validate ResourcePolicies in ConfigMap velero/b: bad",
        ),
        (
            get.for_global("velero/rules"),
            "fail to get global backup volume policies ConfigMap velero/rules: gone",
        ),
        (
            Error::Read("bad".into()).for_global("velero/rules"),
            "fail to read global backup volume policies from ConfigMap velero/rules: bad",
        ),
        (
            validate.for_global("velero/rules"),
            "fail to validate global backup volume policies in ConfigMap velero/rules: bad",
        ),
    ] {
        assert_eq!(text, error);
    }
}

#[test]
fn only_a_reference_to_a_config_map_counts() {
    let with = |kind: &str| -> Backup {
        serde_json::from_value(
            json!({ "spec": { "resourcePolicy": { "kind": kind, "name": "r" } } }),
        )
        .unwrap()
    };
    assert_eq!(config_map_of(&with("ConfigMap")), Some("r"));
    assert_eq!(config_map_of(&with("configmap")), Some("r"));
    assert_eq!(config_map_of(&with("Secret")), None);
    assert_eq!(config_map_of(&Backup::default()), None);
}
