//! Defaults as Velero persists them, and every refusal, one by one.

use serde_json::{Value, json};

use super::*;
use crate::policy::Purpose;

fn location(name: &str) -> BackupStorageLocation {
    serde_json::from_value(json!({
        "metadata": { "name": name }, "status": { "phase": "Available" }
    }))
    .unwrap()
}

fn snapshot_location(name: &str, provider: &str) -> VolumeSnapshotLocation {
    serde_json::from_value(json!({
        "metadata": { "name": name }, "spec": { "provider": provider }
    }))
    .unwrap()
}

fn facts() -> Facts {
    Facts {
        now: "2026-11-15T03:00:00Z".parse().unwrap(),
        defaults: Defaults::default(),
        locations: vec![location("default")],
        snapshot_locations: Vec::new(),
        default_snapshot_locations: BTreeMap::new(),
        namespaces: Vec::new(),
        cluster_version: ClusterVersion {
            major: "1".into(),
            minor: "34".into(),
            git: "v1.34.4".into(),
        },
        policies: Ok(None),
        global_policy_configmap: None,
    }
}

fn backup(spec: Value) -> Backup {
    let object = json!({ "metadata": { "name": "b", "namespace": "velero" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn errors(spec: Value, facts: &Facts) -> Vec<String> {
    let prepared = prepare(backup(spec), facts);
    let persisted = prepared.backup.status.unwrap().validation_errors;
    assert_eq!(persisted.unwrap_or_default(), prepared.errors);
    prepared.errors
}

/// The spec after preparation, as JSON.
fn spec(spec: Value, facts: &Facts) -> Value {
    let prepared = prepare(backup(spec), facts);
    assert_eq!(prepared.errors, [""; 0]);
    serde_json::to_value(prepared.backup.spec).unwrap()
}

#[test]
fn an_empty_spec_becomes_what_velero_persists() {
    let prepared = prepare(backup(json!({})), &facts());
    assert_eq!(prepared.errors, [""; 0]);
    assert_eq!(
        serde_json::to_value(&prepared.backup).unwrap(),
        json!({
            "metadata": {
                "name": "b",
                "namespace": "velero",
                "labels": { "velero.io/storage-location": "default" },
                "annotations": {
                    "velero.io/resource-timeout": "10m0s",
                    "velero.io/source-cluster-k8s-gitversion": "v1.34.4",
                    "velero.io/source-cluster-k8s-major-version": "1",
                    "velero.io/source-cluster-k8s-minor-version": "34"
                }
            },
            "spec": {
                "includedNamespaces": ["*"],
                "excludedClusterScopedResources": ["volumesnapshotcontents.snapshot.storage.k8s.io"],
                "excludedNamespaceScopedResources": ["volumesnapshots.snapshot.storage.k8s.io"],
                "ttl": "720h0m0s",
                "volumeGroupSnapshotLabelKey": "velero.io/volume-group",
                "storageLocation": "default",
                "defaultVolumesToFsBackup": false,
                "csiSnapshotTimeout": "10m0s",
                "itemOperationTimeout": "4h0m0s",
                "snapshotMoveData": false
            },
            "status": {
                "version": 1,
                "formatVersion": "1.1.0",
                "expiration": "2026-12-15T03:00:00Z"
            }
        })
    );
    assert_eq!(prepared.location, Some(location("default")));
}

/// The golden transitions: what Velero made of a backup that was ready to start.
#[test]
fn velero_s_own_backups_are_prepared_alike() {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../api/tests/golden/objects/transitions"
    );
    for name in [
        "basic",
        "hooked",
        "badhook",
        "dup",
        "bulk-killed",
        "invalid",
    ] {
        let text = std::fs::read_to_string(format!("{golden}/backup-{name}.yaml")).unwrap();
        let states: Vec<Backup> = serde_saphyr::from_multiple(&text).unwrap();
        let phase = |backup: &Backup| backup.status.as_ref()?.phase.clone();
        let ready = states
            .iter()
            .position(|s| phase(s) == Some("ReadyToStart".into()))
            .unwrap();
        let (before, after) = (&states[ready], &states[ready + 1]);
        let status = after.status.clone().unwrap();

        let Time(expiration) = status.expiration.unwrap();
        let ttl = after.spec.ttl.as_ref().unwrap().nanos().unwrap();
        let facts = Facts {
            now: expiration - SignedDuration::from_nanos(ttl),
            snapshot_locations: vec![snapshot_location("zone-a", "x")],
            policies: match &before.spec.resource_policy {
                None => Ok(None),
                Some(_) => Err("fail to get ResourcePolicies velero/nosuch ConfigMap: ConfigMap \"nosuch\" not found".into()),
            },
            ..facts()
        };
        let prepared = prepare(before.clone(), &facts).backup;
        assert_eq!(prepared.spec, after.spec, "{name}");
        assert_eq!(prepared.metadata.labels, after.metadata.labels, "{name}");
        assert_eq!(
            prepared.metadata.annotations, after.metadata.annotations,
            "{name}"
        );
        let ours = prepared.status.unwrap();
        assert_eq!(
            (
                ours.version,
                ours.format_version,
                ours.expiration,
                ours.validation_errors
            ),
            (
                status.version,
                status.format_version,
                status.expiration,
                status.validation_errors
            ),
            "{name}"
        );
    }
}

#[test]
fn what_a_spec_says_is_kept() {
    let given = json!({
        "ttl": "1h30m", "volumeGroupSnapshotLabelKey": "group", "csiSnapshotTimeout": "1m",
        "itemOperationTimeout": "2h", "defaultVolumesToFsBackup": true, "snapshotMoveData": true,
        "includedNamespaces": ["web"]
    });
    let prepared = prepare(backup(given), &facts());
    let spec = serde_json::to_value(&prepared.backup.spec).unwrap();
    assert_eq!(spec["ttl"], "1h30m0s");
    assert_eq!(spec["volumeGroupSnapshotLabelKey"], "group");
    assert_eq!(spec["csiSnapshotTimeout"], "1m0s");
    assert_eq!(spec["itemOperationTimeout"], "2h0m0s");
    assert_eq!(spec["defaultVolumesToFsBackup"], true);
    assert_eq!(spec["snapshotMoveData"], true);
    assert_eq!(spec["includedNamespaces"], json!(["web"]));
    let expiration = prepared.backup.status.unwrap().expiration.unwrap();
    assert_eq!(expiration.to_string(), "2026-11-15T04:30:00Z");
}

#[test]
fn the_old_name_of_fs_backup_counts_when_true() {
    for (given, expected) in [
        (json!({ "defaultVolumesToRestic": true }), true),
        (
            json!({ "defaultVolumesToRestic": true, "defaultVolumesToFsBackup": false }),
            true,
        ),
        (
            json!({ "defaultVolumesToRestic": false, "defaultVolumesToFsBackup": true }),
            true,
        ),
        (json!({ "defaultVolumesToRestic": false }), false),
    ] {
        assert_eq!(spec(given, &facts())["defaultVolumesToFsBackup"], expected);
    }
    let mut facts = facts();
    facts.defaults.volumes_to_fs_backup = true;
    facts.defaults.snapshot_move_data = true;
    let spec = spec(json!({ "ttl": "0s", "csiSnapshotTimeout": "0s" }), &facts);
    assert_eq!(spec["defaultVolumesToFsBackup"], true);
    assert_eq!(spec["snapshotMoveData"], true);
    assert_eq!(spec["ttl"], "720h0m0s");
    assert_eq!(spec["csiSnapshotTimeout"], "10m0s");
}

#[test]
fn bad_durations_are_refused_by_field() {
    let bad =
        "invalid duration \"3 days\": expected numbers with units, such as \"1h30m\" or \"720h\"";
    let hook = json!({ "resources": [
        {}, { "post": [{ "exec": { "timeout": "1s" } }, { "exec": { "timeout": "3 days" } }] }
    ] });
    for (given, error) in [
        (json!({ "ttl": "3 days" }), format!("spec.ttl: {bad}")),
        (
            json!({ "ttl": "-5h" }),
            "spec.ttl must not be negative: -5h0m0s".to_owned(),
        ),
        (
            json!({ "csiSnapshotTimeout": "3 days" }),
            format!("spec.csiSnapshotTimeout: {bad}"),
        ),
        (
            json!({ "itemOperationTimeout": "3 days" }),
            format!("spec.itemOperationTimeout: {bad}"),
        ),
        (
            json!({ "hooks": hook }),
            format!("spec.hooks.resources[1].post[1].exec.timeout: {bad}"),
        ),
    ] {
        assert_eq!(errors(given.clone(), &facts()), [error], "{given}");
    }
    let refused = prepare(backup(json!({ "ttl": "-5h" })), &facts());
    assert_eq!(refused.backup.status.unwrap().expiration, None);
}

#[test]
fn a_storage_location_is_named_or_marked_or_the_server_s() {
    let mut marked = location("marked");
    marked.spec.default = Some(true);
    let mut facts = facts();
    for (locations, given, chosen) in [
        (
            vec![location("default"), location("other")],
            json!({}),
            "default",
        ),
        (
            vec![location("default"), marked.clone()],
            json!({}),
            "marked",
        ),
        (
            vec![location("default"), marked],
            json!({ "storageLocation": "default" }),
            "default",
        ),
    ] {
        facts.locations = locations;
        let prepared = prepare(backup(given), &facts);
        assert_eq!(prepared.errors, [""; 0]);
        assert_eq!(
            prepared.location,
            Some(location(chosen)).map(|mut l| {
                l.spec.default = (chosen == "marked").then_some(true);
                l
            })
        );
        assert_eq!(
            prepared.backup.spec.storage_location.as_deref(),
            Some(chosen)
        );
        assert_eq!(
            prepared.backup.metadata.labels.unwrap()[label::STORAGE_LOCATION],
            chosen
        );
    }
}

#[test]
fn a_location_that_cannot_be_used_is_refused() {
    let start =
        "an existing backup storage location was not specified at backup creation time and the";
    let end = "Please address this issue (see `velero backup-location -h` for options) and create a new backup. Error: BackupStorageLocation.velero.io";
    let mut read_only = location("default");
    read_only.spec.access_mode = Some("ReadOnly".into());
    let mut untried = location("default");
    untried.status = None;
    let mut both = read_only.clone();
    both.status = Some(serde_json::from_value(json!({ "phase": "Unavailable" })).unwrap());
    let read_only_error = "backup can't be created because backup storage location default is currently in read-only mode";
    let unavailable =
        "backup can't be created because BackupStorageLocation default is in Unavailable status.";
    for (locations, given, expected) in [
        (
            vec![],
            json!({}),
            vec![format!(
                "{start} server default default does not exist. {end} \"default\" not found"
            )],
        ),
        (
            vec![],
            json!({ "storageLocation": "x" }),
            vec![format!(
                "{start} default x was not found. {end} \"x\" not found"
            )],
        ),
        (vec![read_only], json!({}), vec![read_only_error.to_owned()]),
        (vec![untried], json!({}), vec![unavailable.to_owned()]),
        (
            vec![both],
            json!({}),
            vec![read_only_error.to_owned(), unavailable.to_owned()],
        ),
    ] {
        let facts = Facts {
            locations,
            ..facts()
        };
        assert_eq!(errors(given, &facts), expected);
    }
}

#[test]
fn a_long_location_name_becomes_a_label_value() {
    let name = "the-really-long-location-name-that-is-much-more-than-63-characters";
    let facts = Facts {
        locations: vec![location(name)],
        ..facts()
    };
    let prepared = prepare(backup(json!({ "storageLocation": name })), &facts);
    assert_eq!(prepared.errors, [""; 0]);
    assert_eq!(
        prepared.backup.metadata.labels.unwrap()[label::STORAGE_LOCATION],
        "the-really-long-location-name-that-is-much-more-than-63-c69e779"
    );
}

#[test]
fn there_is_one_snapshot_location_per_provider() {
    let all = [("a1", "aws"), ("a2", "aws"), ("g", "gcp")];
    let missing = |name: &str| format!("VolumeSnapshotLocation.velero.io \"{name}\" not found");
    let need = |name: &str| {
        format!(
            "a VolumeSnapshotLocation CRD for the location {name} with the name specified in the backup spec needs to be created before this snapshot can be executed. Error: {}",
            missing(name)
        )
    };
    for (there, default, named, expected) in [
        (&all[..0], "", "", Ok("")),
        (&all[2..], "", "", Ok("g")),
        (&all[..], "", "a2", Ok("a2 g")),
        (&all[..], "", "a2 a2 g", Ok("a2 g")),
        (&all[..], "", "g a1", Ok("g a1")),
        (&all[..], "a2", "", Ok("a2 g")),
        (&all[..], "a2", "a1", Ok("a1 g")),
        (&all[..], "", "", Err(vec!["provider aws has more than one possible volume snapshot location, and none were specified explicitly or as a default".to_owned()])),
        (&all[..], "gone", "", Err(vec![format!("error getting volume snapshot location named gone: {}", missing("gone"))])),
        (&all[..], "", "a1 a2", Err(vec!["more than one VolumeSnapshotLocation name specified for provider aws: a2; unexpected name was a1".to_owned()])),
        (&all[..], "", "x y", Err(vec![need("x"), need("y")])),
    ] {
        let facts = Facts {
            snapshot_locations: there.iter().map(|(n, p)| snapshot_location(n, p)).collect(),
            default_snapshot_locations: BTreeMap::from([("aws".into(), default.into())]),
            ..facts()
        };
        let named: Vec<&str> = named.split_whitespace().collect();
        let prepared = prepare(backup(json!({ "volumeSnapshotLocations": named })), &facts);
        let spec = prepared.backup.spec.volume_snapshot_locations.unwrap_or_default();
        match expected {
            Ok(chosen) => {
                assert_eq!(prepared.errors, [""; 0]);
                assert_eq!(spec, chosen.split_whitespace().collect::<Vec<_>>());
                let names: Vec<_> = prepared.snapshot_locations.into_iter().filter_map(|l| l.metadata.name).collect();
                assert_eq!(names, spec);
            }
            Err(expected) => {
                assert_eq!(prepared.errors, expected);
                assert_eq!(spec, named);
                assert_eq!(prepared.snapshot_locations, []);
            }
        }
    }
}

#[test]
fn snapshot_kinds_are_excluded_from_every_backup() {
    let (vs, vsc) = (SNAPSHOTS, SNAPSHOT_CONTENTS);
    for (given, expected) in [
        (
            json!({ "includedResources": ["pods"] }),
            json!({ "includedResources": ["pods"], "excludedResources": [vs, vsc] }),
        ),
        (
            json!({ "includeClusterResources": true }),
            json!({ "includeClusterResources": true, "excludedResources": [vs, vsc] }),
        ),
        (
            json!({ "excludedResources": [vsc, "pods"] }),
            json!({ "excludedResources": [vsc, "pods", vs] }),
        ),
        (
            json!({ "includedResources": [vs, "pods"] }),
            json!({ "includedResources": ["pods"], "excludedResources": [vs, vsc] }),
        ),
        (
            json!({ "includedNamespaceScopedResources": [vs, "pods"], "excludedClusterScopedResources": ["*"] }),
            json!({
                "includedNamespaceScopedResources": ["pods"],
                "excludedNamespaceScopedResources": [vs],
                "excludedClusterScopedResources": ["*", vsc]
            }),
        ),
    ] {
        let found = spec(given, &facts());
        let found: serde_json::Map<String, Value> = found
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(key, _)| key.ends_with("Resources"))
            .collect();
        assert_eq!(Value::from(found), expected);
    }
}

#[test]
fn unsound_filters_are_refused() {
    let star = "includes list must either contain '*' only, or a non-empty list of items";
    for (given, expected) in [
        (
            json!({ "includedResources": ["*", "pods"] }),
            format!("Invalid included/excluded resource lists: {star}"),
        ),
        (
            json!({ "includedClusterScopedResources": ["*", "nodes"] }),
            format!("Invalid cluster-scoped included/excluded resource lists: {star}"),
        ),
        (
            json!({ "includedNamespaceScopedResources": ["pods"], "excludedNamespaceScopedResources": ["*"] }),
            "Invalid namespace-scoped included/excluded resource lists: when exclude is '*', include cannot have value".to_owned(),
        ),
        (
            json!({ "includedNamespaces": ["web"], "excludedNamespaces": ["web"] }),
            "Invalid included/excluded namespace lists: excludes list cannot contain an item in the includes list: web".to_owned(),
        ),
        (
            json!({ "excludedNamespaces": ["*"] }),
            "Invalid included/excluded namespace lists: excludes list cannot contain '*'".to_owned(),
        ),
        (
            json!({ "includedNamespaces": ["a**"] }),
            "Invalid included/excluded namespace lists: wildcard pattern contains consecutive asterisks (only single * allowed)".to_owned(),
        ),
        (
            json!({ "includedResources": ["pods"], "excludedClusterScopedResources": ["nodes"] }),
            "include-resources, exclude-resources and include-cluster-resources are old filter parameters.\ninclude-cluster-scoped-resources, exclude-cluster-scoped-resources, include-namespace-scoped-resources and exclude-namespace-scoped-resources are new filter parameters.\nThey cannot be used together".to_owned(),
        ),
    ] {
        let found = errors(given.clone(), &facts());
        // An excluded `*` is also an item of both lists, since no includes become `*`.
        assert_eq!(found.first(), Some(&expected), "{given}");
    }
}

#[test]
fn a_hidden_namespace_is_no_exclude_and_may_be_named() {
    let hide = BTreeMap::from([(label::EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned())]);
    let show = BTreeMap::from([(label::EXCLUDE_FROM_BACKUP.to_owned(), "false".to_owned())]);
    let facts = Facts {
        namespaces: vec![
            ("dark".into(), hide),
            ("light".into(), show),
            ("web".into(), BTreeMap::new()),
        ],
        ..facts()
    };
    for given in [json!({}), json!({ "includedNamespaces": ["dark", "web"] })] {
        let prepared = prepare(backup(given), &facts);
        assert_eq!(prepared.errors, [""; 0]);
        assert_eq!(prepared.backup.spec.excluded_namespaces, None);
        assert_eq!(prepared.hidden_namespaces, ["dark"]);
    }
}

#[test]
fn unsound_selectors_are_refused_by_field_and_empty_ones_are_none() {
    let some = json!({ "matchLabels": { "a": "b" } });
    let odd = json!({ "matchExpressions": [{ "key": "a", "operator": "Is" }] });
    let why = "\"Is\" is not a valid label selector operator";
    for (given, expected) in [
        (json!({ "labelSelector": {} }), None),
        (json!({ "labelSelector": {}, "orLabelSelectors": [some] }), None),
        (json!({ "labelSelector": some, "orLabelSelectors": [] }), None),
        (
            json!({ "labelSelector": some, "orLabelSelectors": [some] }),
            Some("encountered labelSelector as well as orLabelSelectors in backup spec, only one can be specified".to_owned()),
        ),
        (json!({ "labelSelector": odd }), Some(format!("spec.labelSelector: {why}"))),
        (json!({ "orLabelSelectors": [some, odd] }), Some(format!("spec.orLabelSelectors[1]: {why}"))),
        (
            json!({ "hooks": { "resources": [{ "labelSelector": odd }] } }),
            Some(format!("spec.hooks.resources[0].labelSelector: {why}")),
        ),
        (
            json!({ "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } }),
            Some("spec.labelSelector: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".to_owned()),
        ),
    ] {
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(errors(given.clone(), &facts()), expected, "{given}");
    }
}

#[test]
fn policies_are_refused_when_unsound_or_with_old_filters() {
    let with = |text: &str| Facts {
        policies: Ok(Some(Policies::parse(text, Purpose::Backup).unwrap())),
        ..facts()
    };
    let lists = "version: v1\nincludeExcludePolicy: {}";
    let cluster = "version: v1\nclusterScopedFilterPolicy: {resourceFilters: [{kinds: [Node]}]}";
    let namespaced =
        "version: v1\nnamespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{}]}]";
    let volumes = "version: v1\nvolumePolicies: [{action: {type: skip}}]";
    let start = "include-resources, exclude-resources and include-cluster-resources are old filter parameters.\nThey cannot be used with";
    let filters = format!("{start} namespace-scoped or fine-grained global filter policies.");
    let old = json!({ "includeClusterResources": false });
    for (facts, given, expected) in [
        (
            Facts {
                policies: Err("no".into()),
                ..facts()
            },
            json!({}),
            vec!["invalid resource policies: no".to_owned()],
        ),
        (with(lists), json!({}), vec![]),
        (with(cluster), json!({}), vec![]),
        (with(namespaced), json!({}), vec![]),
        (with(volumes), old.clone(), vec![]),
        (
            with(lists),
            old.clone(),
            vec![format!("{start} include-exclude policies.")],
        ),
        (with(cluster), old.clone(), vec![filters.clone()]),
        (with(namespaced), old.clone(), vec![filters]),
    ] {
        assert_eq!(errors(given, &facts), expected);
    }
}

#[test]
fn the_global_policies_are_named_in_an_annotation() {
    let mut facts = Facts {
        global_policy_configmap: Some("rules".into()),
        ..facts()
    };
    let named = |facts: &Facts| {
        let annotations = prepare(backup(json!({})), facts)
            .backup
            .metadata
            .annotations;
        annotations
            .unwrap()
            .get(annotation::GLOBAL_VOLUME_POLICY)
            .cloned()
    };
    assert_eq!(named(&facts).as_deref(), Some("rules"));
    facts.policies = Err("gone".into());
    assert_eq!(named(&facts), None);
}
