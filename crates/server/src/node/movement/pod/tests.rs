use serde_json::{Value, json};

use super::*;

fn daemons() -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": "node-agent"},
        "spec": {
            "selector": {},
            "template": {
                "metadata": {
                    "labels": {"name": "node-agent", "azure.workload.identity/use": "true"},
                    "annotations": {"iam.amazonaws.com/role": "r", "other": "o"},
                },
                "spec": {
                    "serviceAccountName": "velero",
                    "containers": [{
                        "name": "node-agent",
                        "image": "bowline:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bowline"],
                        "args": ["node-agent", "server"],
                        "env": [{"name": "NODE_NAME", "value": "x"}],
                        "volumeMounts": [
                            {"name": "host-pods", "mountPath": "/host_pods"},
                            {"name": "cloud-credentials", "mountPath": "/credentials"},
                        ],
                    }],
                    "volumes": [
                        {"name": "host-pods", "hostPath": {"path": "/var/lib/kubelet/pods"}},
                        {"name": "cloud-credentials", "secret": {"secretName": "cloud-credentials"}},
                    ],
                    "tolerations": [{"operator": "Exists"}, {"key": "CriticalAddonsOnly", "operator": "Exists"}],
                },
            },
        },
    }))
    .unwrap()
}

fn made(config: Value, is_block: bool, node: Option<&str>) -> Value {
    pod_of(&daemons(), config, is_block, node)
}

fn pod_of(daemons: &DaemonSet, config: Value, is_block: bool, node: Option<&str>) -> Value {
    let wanted = Wanted {
        name: "b-x1",
        namespace: "velero",
        uid: "u-1",
        owner: OwnerReference {
            uid: "u-1".to_owned(),
            ..OwnerReference::default()
        },
        label: label::DATA_UPLOAD,
        group: "snapshot-exposer",
        command: "backup",
        flag: "data-upload",
        is_block,
        read_only: false,
        class: "fast",
        node,
    };
    let config: Config = serde_json::from_value(config).unwrap();
    let pod = pod(daemons, &wanted, &config, &Settings::default()).unwrap();
    serde_json::to_value(pod).unwrap()
}

#[test]
fn a_pod_is_like_those_of_node_processes_but_sees_nothing_of_the_node() {
    let pod = made(json!({}), false, None);
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "azure.workload.identity/use": "true",
            "velero.io/data-upload": "b-x1",
            "velero.io/exclude-from-backup": "true",
            "velero.io/exposer-pod-group": "snapshot-exposer",
        })
    );
    assert_eq!(
        pod["metadata"]["annotations"],
        json!({"iam.amazonaws.com/role": "r"})
    );
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], "velero");
    assert_eq!(spec["restartPolicy"], "OnFailure");
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 1);
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "cloud-credentials", "secret": {"secretName": "cloud-credentials"}},
            {"name": "u-1", "persistentVolumeClaim": {"claimName": "b-x1"}},
        ])
    );
    let container = &spec["containers"][0];
    assert_eq!(container["image"], "bowline:1");
    assert_eq!(container["command"], json!(["/bowline"]));
    assert_eq!(
        container["args"],
        json!([
            "data-mover",
            "backup",
            "--volume-path=/u-1",
            "--volume-mode=Filesystem",
            "--data-upload=b-x1",
            "--resource-timeout=600s",
            "--log-level=info",
            "--log-format=text",
            "--memory=134217728",
        ])
    );
    assert_eq!(
        container["volumeMounts"],
        json!([
            {"name": "cloud-credentials", "mountPath": "/credentials"},
            {"name": "u-1", "mountPath": "/u-1"},
        ])
    );
    assert!(container["resources"].is_null());
}

#[test]
fn it_runs_only_where_node_processes_may() {
    let like: Affinity = serde_json::from_value(json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]},
    }}))
    .unwrap();
    let mut daemons = daemons();
    let template = &mut daemons.spec.as_mut().unwrap().template;
    template.spec.as_mut().unwrap().affinity = Some(like);
    let terms = |node| {
        let pod = pod_of(&daemons, json!({}), false, node);
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"]
            .clone()
    };
    let os = json!({"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]});
    let field = |node| json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    assert_eq!(
        terms(None),
        json!([
            {"matchExpressions": [os, {"key": "zone", "operator": "In", "values": ["a"]}]},
            {"matchExpressions": [os], "matchFields": field("n1")},
        ])
    );
    let on = json!([{"matchExpressions": [os], "matchFields": field("n2")}]);
    assert_eq!(terms(Some("n2")), on);
}

#[test]
fn a_block_volume_is_a_device() {
    let pod = made(json!({}), true, None);
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["volumeDevices"],
        json!([{"name": "u-1", "devicePath": "/u-1"}])
    );
    assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 1);
    assert!(
        container["args"]
            .as_array()
            .unwrap()
            .contains(&json!("--volume-mode=Block"))
    );
}

#[test]
fn the_config_map_says_what_it_may_use_and_where_it_runs() {
    let config = json!({
        "podResources": {"cpuRequest": "100m", "memoryLimit": "1Gi"},
        "priorityClassName": "low",
        "podLabels": {"team": "a", "velero.io/data-upload": "mine"},
        "podAnnotations": {"note": "n"},
        "loadAffinity": [{"storageClass": "fast", "nodeSelector": {
            "matchLabels": {"disk": "ssd"},
            "matchExpressions": [{"key": "zone", "operator": "Exists"}],
        }}],
    });
    let pod = made(config.clone(), false, None);
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}})
    );
    assert_eq!(pod["spec"]["priorityClassName"], "low");
    assert_eq!(pod["metadata"]["labels"]["team"], "a");
    assert_eq!(pod["metadata"]["labels"]["velero.io/data-upload"], "b-x1");
    assert_eq!(pod["metadata"]["annotations"]["note"], "n");
    let windows = json!({"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]});
    assert_eq!(
        terms_of(&pod),
        json!([{"matchExpressions": [
            windows,
            {"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "zone", "operator": "Exists"},
        ]}])
    );
    // A volume that is of use on one node is filled there.
    assert_eq!(
        terms_of(&made(config, false, Some("n1"))),
        json!([{
            "matchExpressions": [windows],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        }])
    );
}

fn terms_of(pod: &Value) -> Value {
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
}

#[test]
fn a_daemon_set_with_two_containers_is_no_model() {
    let mut daemons = daemons();
    let spec = daemons
        .spec
        .as_mut()
        .unwrap()
        .template
        .spec
        .as_mut()
        .unwrap();
    let again = spec.containers[0].clone();
    spec.containers.push(again);
    let wanted = Wanted {
        name: "n",
        namespace: "velero",
        uid: "u",
        owner: OwnerReference::default(),
        label: label::DATA_UPLOAD,
        group: "g",
        command: "backup",
        flag: "data-upload",
        is_block: false,
        read_only: false,
        class: "",
        node: None,
    };
    let why = pod(&daemons, &wanted, &Config::default(), &Settings::default()).unwrap_err();
    assert!(why.contains("exactly one container"), "{why}");
}
