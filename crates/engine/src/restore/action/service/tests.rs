//! Which addresses and node ports a service keeps.

use serde_json::json;

use super::*;

fn changed(service: &Value, preserve: Option<bool>) -> Value {
    let mut restore = Restore::default();
    restore.spec.preserve_node_ports = preserve;
    change(service.clone(), service, &restore).unwrap().object
}

#[test]
fn addresses_go_unless_there_is_to_be_none() {
    for (spec, left) in [
        (
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP"}),
            json!({"type": "ClusterIP"}),
        ),
        (
            json!({"clusterIP": "None", "clusterIPs": ["None"]}),
            json!({"clusterIP": "None", "clusterIPs": ["None"]}),
        ),
        (
            json!({"clusterIP": "", "type": "ExternalName"}),
            json!({"type": "ExternalName"}),
        ),
    ] {
        let service = json!({ "spec": spec });
        assert_eq!(changed(&service, None)["spec"], left);
        assert_eq!(changed(&service, Some(true))["spec"], left);
    }
}

/// A service with these ports, as applied, and with these owners of fields.
fn service(ports: &Value, applied: Option<Value>, owned: &Value) -> Value {
    let mut service = json!({
        "metadata": {"managedFields": [{"manager": "m"}, {"fieldsV1": {"f:spec": owned}}]},
        "spec": {"type": "NodePort", "clusterIP": "None", "ports": ports},
    });
    if let Some(applied) = applied {
        let applied = json!({ "spec": applied }).to_string();
        service["metadata"]["annotations"] = json!({ LAST_APPLIED: applied });
    }
    service
}

#[test]
fn node_ports_stay_if_somebody_asked_for_them() {
    let named = json!([
        {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
        {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
    ]);
    let unnamed = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    let owns = |key: &str| json!({"f:ports": {".": {}, key: {".": {}, "f:nodePort": {}}}});
    let nothing = json!({});
    for (what, ports, applied, owned, kept) in [
        ("nobody", &named, None, &nothing, vec![]),
        (
            "an owner",
            &named,
            None,
            &owns(r#"k:{"port":53,"protocol":"UDP"}"#),
            vec![30053],
        ),
        (
            "an owner of another protocol",
            &named,
            None,
            &owns(r#"k:{"port":53,"protocol":"TCP"}"#),
            vec![],
        ),
        (
            "by name",
            &named,
            Some(
                json!({"ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 53}]}),
            ),
            &nothing,
            vec![30080],
        ),
        (
            "by name, as text",
            &named,
            Some(json!({"ports": [{"name": "dns", "nodePort": "30053"}]})),
            &nothing,
            vec![30053],
        ),
        (
            "zero is not asking",
            &named,
            Some(json!({"ports": [{"name": "http", "nodePort": 0}]})),
            &nothing,
            vec![],
        ),
        (
            "what was applied beats owners",
            &named,
            Some(json!({"ports": []})),
            &owns(r#"k:{"port":53,"protocol":"UDP"}"#),
            vec![],
        ),
        (
            "without a name, by number",
            &unnamed,
            Some(json!({"ports": [{"port": 80, "nodePort": 30080}]})),
            &nothing,
            vec![30080],
        ),
        (
            "without a name, another number",
            &unnamed,
            Some(json!({"ports": [{"port": 80, "nodePort": 30081}]})),
            &nothing,
            vec![],
        ),
        (
            "no ports applied",
            &unnamed,
            Some(json!({})),
            &nothing,
            vec![],
        ),
    ] {
        let service = service(ports, applied, owned);
        let left = changed(&service, Some(false));
        let left = items(&left, "/spec/ports").iter();
        let left: Vec<i64> = left.filter_map(|port| port["nodePort"].as_i64()).collect();
        assert_eq!(left, kept, "{what}");
        assert_eq!(changed(&service, Some(true)), service, "{what}");
    }
}

#[test]
fn a_service_of_a_real_backup_gets_new_ports() {
    let text = include_str!("../../../../tests/golden/service.json");
    let service: Value = serde_json::from_str(text).unwrap();
    let mut expected = service.clone();
    let spec = expected["spec"].as_object_mut().unwrap();
    spec.remove("clusterIP");
    spec.remove("clusterIPs");
    assert_eq!(changed(&service, Some(true)), expected);
    let port = expected["spec"]["ports"][0].as_object_mut().unwrap();
    assert_eq!(port.remove("nodePort"), Some(30519.into()));
    assert_eq!(changed(&service, None), expected);
}

#[test]
fn ports_of_external_names_are_left_alone() {
    let service = json!({"spec": {"type": "ExternalName", "ports": [{"port": 1, "nodePort": 2}]}});
    assert_eq!(changed(&service, None), service);
}

#[test]
fn the_health_check_stays_if_somebody_asked_for_it() {
    let nothing = json!({});
    for (kind, policy, applied, owned, stays) in [
        ("LoadBalancer", "Local", None, &nothing, false),
        ("LoadBalancer", "Cluster", None, &nothing, true),
        ("NodePort", "Local", None, &nothing, true),
        (
            "LoadBalancer",
            "Local",
            Some(json!({"healthCheckNodePort": 31000})),
            &nothing,
            true,
        ),
        (
            "LoadBalancer",
            "Local",
            Some(json!({"healthCheckNodePort": 0})),
            &nothing,
            false,
        ),
        (
            "LoadBalancer",
            "Local",
            Some(json!({})),
            &json!({"f:healthCheckNodePort": {}}),
            true,
        ),
        (
            "LoadBalancer",
            "Local",
            None,
            &json!({"f:healthCheckNodePort": {}}),
            true,
        ),
    ] {
        let what = format!("{kind} {policy} {applied:?} {owned}");
        let mut service = service(&json!([]), applied, owned);
        service["spec"]["type"] = kind.into();
        service["spec"]["externalTrafficPolicy"] = policy.into();
        service["spec"][HEALTH_CHECK] = 31000.into();
        let left = &changed(&service, None)["spec"][HEALTH_CHECK];
        assert_eq!(left.is_number(), stays, "{what}");
        assert_eq!(changed(&service, Some(true)), service, "{what}");
    }
}

#[test]
fn what_was_applied_must_be_readable() {
    for (applied, why) in [
        ("{", "is not JSON"),
        (
            r#"{"spec":{"ports":[{"nodePort":"many"}]}}"#,
            r#"no number: "many""#,
        ),
    ] {
        let service = json!({"metadata": {"annotations": {LAST_APPLIED: applied}}, "spec": {}});
        let refused = change(service.clone(), &service, &Restore::default()).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}
