//! Cells as a real kube-apiserver 1.34.4 gave them for the same objects.

use super::*;

const BORN: &str = "2026-11-15T14:18:41Z";

/// Cells of an object born a minute and a half before.
fn cells(columns: &Columns, mut object: Value) -> Value {
    let born: Timestamp = BORN.parse().expect("a time");
    object["metadata"]["creationTimestamp"] = json!(BORN);
    json!(columns.cells(&object, born + jiff::SignedDuration::from_secs(90)))
}

fn row(group: &str, resource: &str, object: Value) -> Value {
    cells(&built_in(group, resource), object)
}

fn headers(columns: &Columns) -> Vec<String> {
    columns
        .definitions()
        .iter()
        .map(|column| {
            let text = |key: &str| column[key].as_str().expect("text").to_owned();
            let (name, kind, format) = (text("name"), text("type"), text("format"));
            format!("{name}:{kind}:{format}:{}", column["priority"])
        })
        .collect()
}

#[test]
fn columns_of_built_in_resources() {
    assert_eq!(
        headers(&built_in("batch", "cronjobs")),
        [
            "Name:string:name:0",
            "Schedule:string::0",
            "Timezone:string::0",
            "Suspend:boolean::0",
            "Active:integer::0",
            "Last Schedule:string::0",
            "Age:string::0",
            "Containers:string::1",
            "Images:string::1",
            "Selector:string::1"
        ]
    );
    let default = ["Name:string:name:0", "Created At:date::0"];
    for (group, resource) in [
        ("", "limitranges"),
        ("rbac.authorization.k8s.io", "roles"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ] {
        assert_eq!(headers(&built_in(group, resource)), default, "{resource}");
    }
    assert_eq!(
        row("", "limitranges", json!({"metadata": {"name": "lr"}})),
        json!(["lr", BORN])
    );
}

#[test]
fn ages() {
    let minute = 60;
    let (hour, day) = (60 * minute, 24 * 60 * minute);
    let year = 365 * day;
    for (seconds, want) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (10 * minute, "10m"),
        (179 * minute, "179m"),
        (3 * hour + 10 * minute, "3h10m"),
        (8 * hour + 10 * minute, "8h"),
        (47 * hour, "47h"),
        (4 * day, "4d"),
        (4 * day + hour, "4d1h"),
        (8 * day + hour, "8d"),
        (2 * year - 1, "729d"),
        (2 * year + 10 * day, "2y10d"),
        (9 * year, "9y"),
    ] {
        assert_eq!(human(seconds), want);
    }
    let unborn = json!({"metadata": {"name": "x", "creationTimestamp": null}});
    let row = built_in("", "namespaces").cells(&unborn, Timestamp::UNIX_EPOCH);
    assert_eq!(row, [json!("x"), json!(""), json!("<unknown>")]);
}

#[test]
fn pods() {
    let running = json!({"running": {}});
    let ended = |code: i64, signal: i64, reason: &str| {
        json!({"terminated": {
            "exitCode": code, "signal": signal, "reason": reason,
            "finishedAt": "2024-03-01T00:00:00Z",
        }})
    };
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let container = |name: &str, state: &Value, restarts: i64| {
        json!({
            "name": name, "state": state, "restartCount": restarts,
            "ready": state == &running, "started": state == &running,
            "lastState": if restarts > 0 { ended(1, 0, "") } else { json!({}) },
        })
    };
    let pod = |inits: &[Value], status: Value| {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": inits},
            "status": status,
        });
        let row = row("", "pods", pod);
        json!([row[1], row[2], row[3]])
    };
    let two = |a: &Value, b: &Value| json!([container("a", a, 0), container("b", b, 0)]);
    let done = ended(0, 0, "Completed");

    for (status, want) in [
        (json!({"phase": "Pending"}), json!(["0/2", "Pending", "0"])),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            json!(["0/2", "Evicted", "0"]),
        ),
        (
            json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            json!(["0/2", "SchedulingGated", "0"]),
        ),
        (
            json!({"phase": "Running", "containerStatuses": [
                container("a", &waiting("CrashLoopBackOff"), 5), container("b", &running, 0)]}),
            json!(["1/2", "CrashLoopBackOff", "5 (2y259d ago)"]),
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": two(&done, &done)}),
            json!(["0/2", "Completed", "0"]),
        ),
        (
            json!({"phase": "Running", "containerStatuses": two(&done, &running),
                "conditions": [{"type": "Ready", "status": "True"}]}),
            json!(["1/2", "Running", "0"]),
        ),
        (
            json!({"phase": "Running", "containerStatuses": two(&done, &running)}),
            json!(["1/2", "NotReady", "0"]),
        ),
        (
            json!({"phase": "Failed", "containerStatuses": two(&ended(137, 9, ""), &running)}),
            json!(["1/2", "Signal:9", "0"]),
        ),
        (
            json!({"phase": "Failed", "containerStatuses": two(&ended(3, 0, ""), &running)}),
            json!(["1/2", "ExitCode:3", "0"]),
        ),
    ] {
        assert_eq!(pod(&[], status.clone()), want, "{status}");
    }

    let inits = [json!({"name": "i1"}), json!({"name": "i2"})];
    for (first, second, want) in [
        (&done, &running, json!(["0/2", "Init:1/2", "0"])),
        (
            &waiting("PodInitializing"),
            &done,
            json!(["0/2", "Init:0/2", "0"]),
        ),
        (
            &waiting("ImagePullBackOff"),
            &done,
            json!(["0/2", "Init:ImagePullBackOff", "0"]),
        ),
        (
            &ended(2, 0, ""),
            &done,
            json!(["0/2", "Init:ExitCode:2", "0"]),
        ),
        (
            &ended(2, 9, ""),
            &done,
            json!(["0/2", "Init:Signal:9", "0"]),
        ),
        (
            &ended(2, 0, "Error"),
            &done,
            json!(["0/2", "Init:Error", "0"]),
        ),
    ] {
        let statuses = json!([container("i1", first, 0), container("i2", second, 0)]);
        let status = json!({"phase": "Pending", "initContainerStatuses": statuses});
        assert_eq!(pod(&inits, status), want);
    }
    let sidecar = [json!({"name": "i1", "restartPolicy": "Always"})];
    let status = json!({
        "phase": "Running",
        "initContainerStatuses": [container("i1", &running, 4)],
        "containerStatuses": [container("a", &running, 1), container("b", &running, 0)],
    });
    assert_eq!(
        pod(&sidecar, status),
        json!(["3/3", "Running", "5 (2y259d ago)"])
    );

    for (phase, reason, want) in [
        ("Running", "", "Terminating"),
        ("Failed", "", "Failed"),
        ("Failed", "NodeLost", "Unknown"),
    ] {
        let pod = json!({
            "metadata": {"name": "p", "deletionTimestamp": BORN},
            "spec": {"nodeName": "n", "readinessGates": [
                {"conditionType": "a.b/c"}, {"conditionType": "a.b/d"}]},
            "status": {"phase": phase, "reason": reason, "podIPs": [{"ip": "10.1.1.1"}],
                "conditions": [{"type": "a.b/c", "status": "True"}]},
        });
        let want = json!([
            "p", "0/0", want, "0", "90s", "10.1.1.1", "n", "<none>", "1/2"
        ]);
        assert_eq!(row("", "pods", pod), want);
    }
}

#[test]
fn other_built_in_resources() {
    let ingress = json!([{"ip": "9.9.9.9"}, {"hostname": "a-long-hostname.example.com"}]);
    let template = json!({"spec": {"containers": [
        {"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}]}});
    for (group, resource, object, want) in [
        (
            "apps",
            "deployments",
            json!({"spec": {"replicas": 3, "template": template, "selector": {
                "matchLabels": {"app": "d1", "aa": "bb"}, "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["web", "api"]},
                    {"key": "b", "operator": "DoesNotExist"},
                    {"key": "zz", "operator": "Exists"},
                    {"key": "nn", "operator": "NotIn", "values": ["x"]}]}},
                "status": {"updatedReplicas": 2}}),
            json!([
                "x",
                "0/3",
                2,
                0,
                "90s",
                "a,b",
                "i:1,i:2",
                "aa=bb,app=d1,!b,nn notin (x),tier in (api,web),zz"
            ]),
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"parallelism": 4, "template": template},
                "status": {"startTime": BORN}}),
            json!([
                "x", "Running", "0/1 of 4", "90s", "90s", "a,b", "i:1,i:2", "<none>"
            ]),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.153.240"],
                "ports": [{"port": 80, "nodePort": 32597, "protocol": "TCP"}]},
                "status": {"loadBalancer": {"ingress": ingress}}}),
            json!([
                "x",
                "LoadBalancer",
                "10.96.153.240",
                "9.9.9.9,a-long-hostname.example.com",
                "80:32597/TCP",
                "90s",
                "<none>"
            ]),
        ),
        (
            "networking.k8s.io",
            "ingresses",
            json!({"spec": {"ingressClassName": "nginx", "tls": [{}], "rules": [
                {"host": "a.b"}, {"host": "b.b"}, {"host": "c.b"}, {"host": "d.b"}, {}]}}),
            json!([
                "x",
                "nginx",
                "a.b,b.b,c.b + 2 more...",
                "",
                "80, 443",
                "90s"
            ]),
        ),
        (
            "networking.k8s.io",
            "ipaddresses",
            json!({"spec": {"parentRef":
                {"group": "", "resource": "services", "namespace": "n", "name": "s"}}}),
            json!(["x", "services/n/s", "90s"]),
        ),
        (
            "",
            "endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "ports": [{"port": 80}, {"port": 81}]}]}),
            json!([
                "x",
                "10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...",
                "90s"
            ]),
        ),
        (
            "",
            "resourcequotas",
            json!({"status": {"hard": {"limits.cpu": "1", "requests.cpu": "2", "pods": "10"},
                "used": {"limits.cpu": "900m", "pods": "5"}}}),
            json!([
                "x",
                "pods: 5/10, requests.cpu: 0/2",
                "limits.cpu: 900m/1",
                "90s"
            ]),
        ),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            json!({"spec": {"minReplicas": 1, "maxReplicas": 5,
                "scaleTargetRef": {"kind": "Deployment", "name": "d1"}, "metrics": [
                    {"type": "Resource", "resource":
                        {"name": "cpu", "target": {"averageUtilization": 80}}},
                    {"type": "External", "external": {"target": {"value": "30"}}},
                    {"type": "Pods", "pods": {"target": {"averageValue": "1"}}}]},
                "status": {"currentReplicas": 2, "currentMetrics": [
                    {"type": "Resource", "resource": {"current": {"averageUtilization": 42}}},
                    {"type": "External", "external": {"current": {"averageValue": "1"}}}]}}),
            json!([
                "x",
                "Deployment/d1",
                "cpu: 42%/80%, <nil>/30 + 1 more...",
                "1",
                5,
                2,
                "90s"
            ]),
        ),
        (
            "events.k8s.io",
            "events",
            json!({"regarding": {"kind": "Pod", "name": "p"}, "type": "Warning", "reason": "R",
                "note": " new ", "reportingController": "a.b/c", "reportingInstance": "inst",
                "eventTime": "2026-11-15T14:18:41.000000Z"}),
            json!([
                "90s",
                "Warning",
                "R",
                "pod/p",
                "",
                "a.b/c, inst",
                "new",
                "90s",
                1,
                "x"
            ]),
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            json!({"spec": {"policyName": "p", "paramRef": {"selector": {
                "matchLabels": {"a": "b"}, "matchExpressions": [
                    {"key": "k", "operator": "In", "values": ["x1", "y1"]}]}}}}),
            json!([
                "x",
                "p",
                "&LabelSelector{MatchLabels:map[string]string{a: b,},\
                MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{\
                Key:k,Operator:In,Values:[x1 y1],},},}",
                "90s"
            ]),
        ),
    ] {
        let mut object = object;
        object["metadata"]["name"] = json!("x");
        assert_eq!(row(group, resource, object), want, "{resource}");
    }
}

#[test]
fn columns_of_custom_resources() {
    assert_eq!(headers(&custom(&[])), ["Name:string:name:0", "Age:date::0"]);
    let bar = json!({"metadata": {"name": "b"}});
    assert_eq!(cells(&custom(&[]), bar), json!(["b", "90s"]));
    let broken = [
        json!({"name": "A", "type": "integer", "format": "int32", "priority": 1, "jsonPath": ".a"}),
        json!({"name": "B", "type": "string", "jsonPath": ".b["}),
    ];
    assert_eq!(
        headers(&custom(&broken)),
        ["Name:string:name:0", "A:integer:int32:1"]
    );
}

#[test]
fn cells_of_custom_resources() {
    let show = |kind: &str, path: &str, object: &Value| {
        let column = json!({"name": "C", "type": kind, "jsonPath": path});
        cells(&custom(&[column]), object.clone())[1].clone()
    };
    let full = json!({
        "metadata": {"annotations": {"tab.example.com/x": "esc"}},
        "spec": {
            "any": {"b": 1, "a": "<&>"}, "null": null, "float": 3.7, "big": 123_456_789.5,
            "small": 1e-7, "date": BORN, "no": "nope", "empty": "",
            "list": [{"x": "one", "k": 1}, {"x": "two", "k": 2}, {"x": "three"}],
        },
        "status": {"conditions": [
            {"type": "Foo", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    for (kind, path, want) in [
        ("string", ".spec.missing.deep", Value::Null),
        ("string", ".spec.null", json!("<no value>")),
        (
            "string",
            ".spec.any",
            json!(r#"{"a":"\u003c\u0026\u003e","b":1}"#),
        ),
        ("string", ".spec.big", json!("1.234567895e+08")),
        ("string", ".spec.small", json!("1e-07")),
        ("string", ".spec.float", json!("3.7")),
        (
            "string",
            r".metadata.annotations.tab\.example\.com/x",
            json!("esc"),
        ),
        (
            "string",
            r".metadata.annotations['tab\.example\.com/x']",
            json!("esc"),
        ),
        (
            "string",
            r#".status.conditions[?(@.type=="Ready")].status"#,
            json!("True"),
        ),
        (
            "string",
            r".status.conditions[?(@.type == 'Ready')].status",
            json!("True"),
        ),
        (
            "string",
            r#".status.conditions[?(@.type=="None")].status"#,
            Value::Null,
        ),
        ("string", ".spec.list[0].x", json!("one")),
        ("string", ".spec.list[-1].x", json!("three")),
        ("string", ".spec.list[3].x", Value::Null),
        ("string", ".spec.list[1:2].x", json!("two")),
        ("string", ".spec.list[*].x", json!("one")),
        ("string", ".spec.list[?(@.k>1)].x", json!("two")),
        ("string", ".spec.list[?(@.k)].x", json!("one")),
        ("string", r#".spec.list[?(@.k=="1")].x"#, Value::Null),
        ("string", ".spec.any[0]", Value::Null),
        ("string", ".spec..x", json!("one")),
        ("integer", ".spec.float", json!(3)),
        ("integer", ".spec.no", Value::Null),
        ("number", ".spec.float", json!(3.7)),
        ("boolean", ".spec.no", Value::Null),
        ("date", ".spec.date", json!("90s")),
        ("date", ".spec.no", json!("<invalid>")),
        ("date", ".spec.empty", json!("<unknown>")),
        ("date", ".spec.float", Value::Null),
    ] {
        assert_eq!(show(kind, path, &full), want, "{path}");
    }
}

#[test]
fn odd_objects_do_no_harm() {
    let odd = [
        json!(null),
        json!("text"),
        json!([1, [2]]),
        json!({"metadata": 5, "spec": [], "status": "x", "subsets": [null, 1, {"ports": [[]]}]}),
        json!({"spec": {"containers": "x", "rules": [0, 0, 0, 0], "metrics": [7, {"type": "Pods"}],
            "selector": {"matchLabels": [], "matchExpressions": [{}, 1]}, "type": "LoadBalancer"},
            "status": {"initContainerStatuses": [1], "containerStatuses": [{"restartCount": "x"}],
                "conditions": {}, "hard": [1]}}),
    ];
    for (group, resource, fields) in kinds::KINDS {
        let columns = built_in(group, resource);
        for object in &odd {
            assert_eq!(columns.cells(object, Timestamp::MAX).len(), fields.len());
        }
    }
    for path in [
        "",
        ".",
        "..",
        "[",
        ".a[?(",
        ".a[?(@",
        "'",
        ".a[1:2:0]",
        ".a[,]",
        ".ü[?('é'=='é')]",
    ] {
        let column = json!({"name": "C", "type": "string", "jsonPath": path});
        custom(&[column]).cells(&json!({"a": [1, 2], "ü": [1]}), Timestamp::MIN);
    }
}
