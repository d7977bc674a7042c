//! What the real server fills in per kind and the embedded one does not: the one table of it.
//!
//! A path is left out of both answers where its value is exactly the default, and its mention in
//! `managedFields` with it. Any other value at such a path is compared.

use serde_json::{Map, Value};

/// Kinds with the paths of the pod specs in them.
const POD_SPECS: [(&str, &str); 9] = [
    ("Pod", "/spec"),
    ("PodTemplate", "/template/spec"),
    ("ReplicationController", "/spec/template/spec"),
    ("Deployment", "/spec/template/spec"),
    ("ReplicaSet", "/spec/template/spec"),
    ("StatefulSet", "/spec/template/spec"),
    ("DaemonSet", "/spec/template/spec"),
    ("Job", "/spec/template/spec"),
    ("CronJob", "/spec/jobTemplate/spec/template/spec"),
];

/// Paths in a pod spec, and the defaults in JSON.
const IN_POD_SPEC: [(&str, &str); 13] = [
    ("/volumes/*/configMap/defaultMode", "420"),
    ("/volumes/*/secret/defaultMode", "420"),
    ("/restartPolicy", r#""Always""#),
    ("/terminationGracePeriodSeconds", "30"),
    ("/dnsPolicy", r#""ClusterFirst""#),
    ("/securityContext", "{}"),
    ("/schedulerName", r#""default-scheduler""#),
    (
        "/containers/*/terminationMessagePath",
        r#""/dev/termination-log""#,
    ),
    ("/containers/*/terminationMessagePolicy", r#""File""#),
    ("/containers/*/imagePullPolicy", r#""Always""#),
    ("/containers/*/imagePullPolicy", r#""IfNotPresent""#),
    ("/containers/*/resources", "{}"),
    ("/containers/*/ports/*/protocol", r#""TCP""#),
];

/// Paths in other kinds.
const IN_KIND: [(&str, &str, &str); 14] = [
    ("Pod", "/spec/enableServiceLinks", "true"),
    ("Pod", "/spec/preemptionPolicy", r#""PreemptLowerPriority""#),
    ("Pod", "/spec/priority", "0"),
    ("Pod", "/spec/serviceAccount", r#""default""#),
    ("Pod", "/spec/serviceAccountName", r#""default""#),
    (
        "Pod",
        "/spec/tolerations",
        r#"[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},
            {"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}]"#,
    ),
    ("Pod", "/status/qosClass", r#""BestEffort""#),
    ("Deployment", "/spec/progressDeadlineSeconds", "600"),
    ("Deployment", "/spec/revisionHistoryLimit", "10"),
    ("Deployment", "/spec/replicas", "1"),
    (
        "Deployment",
        "/spec/strategy",
        r#"{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}"#,
    ),
    ("ReplicaSet", "/spec/replicas", "1"),
    (
        "PersistentVolumeClaim",
        "/spec/volumeMode",
        r#""Filesystem""#,
    ),
    ("PersistentVolume", "/spec/volumeMode", r#""Filesystem""#),
];

/// Takes the defaults out of an object of a kind.
pub(super) fn strip(kind: &str, object: &mut Value) {
    let in_pods = POD_SPECS
        .iter()
        .filter(|(of, _)| *of == kind)
        .flat_map(|(_, at)| {
            IN_POD_SPEC
                .iter()
                .map(move |(path, value)| (format!("{at}{path}"), *value))
        });
    let in_kind = IN_KIND
        .iter()
        .filter(|(of, ..)| *of == kind)
        .map(|(_, path, value)| ((*path).to_owned(), *value));
    for (path, value) in in_pods.chain(in_kind).collect::<Vec<_>>() {
        let default: Value = serde_json::from_str(value).unwrap_or(Value::Null);
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if remove(object, &parts, &default) {
            forget_owners(object, &parts);
        }
    }
}

fn remove(value: &mut Value, path: &[&str], default: &Value) -> bool {
    match (path, value) {
        ([last], Value::Object(map)) if map.get(*last) == Some(default) => {
            map.remove(*last).is_some()
        }
        (["*", rest @ ..], Value::Array(items)) => {
            // Each one, not only the first: `any` would stop early.
            items
                .iter_mut()
                .filter_map(|item| remove(item, rest, default).then_some(()))
                .count()
                > 0
        }
        ([first, rest @ ..], Value::Object(map)) if !rest.is_empty() => map
            .get_mut(*first)
            .is_some_and(|value| remove(value, rest, default)),
        _ => false,
    }
}

fn forget_owners(object: &mut Value, path: &[&str]) {
    let entries = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        if let Some(fields) = entry["fieldsV1"].as_object_mut() {
            forget(fields, path);
        }
    }
}

fn forget(fields: &mut Map<String, Value>, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let keys: Vec<String> = match *first {
        "*" => fields
            .keys()
            .filter(|key| key.starts_with("k:"))
            .cloned()
            .collect(),
        name => vec![format!("f:{name}")],
    };
    for key in keys {
        if rest.is_empty() {
            fields.remove(&key);
        } else if let Some(inner) = fields.get_mut(&key).and_then(Value::as_object_mut)
            && !inner.is_empty()
        {
            forget(inner, rest);
            if inner.is_empty() {
                fields.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_defaults_go_and_their_owners_with_them() {
        let mut object = json!({
            "metadata": { "managedFields": [{ "fieldsV1": { "f:spec": {
                "f:dnsPolicy": {}, "f:restartPolicy": {},
                "f:containers": { "k:{\"name\":\"a\"}": { ".": {}, "f:resources": {}, "f:name": {} } },
            } } }] },
            "spec": { "dnsPolicy": "ClusterFirst", "restartPolicy": "Never", "containers": [{ "name": "a", "resources": {} }] },
        });
        strip("Pod", &mut object);
        assert_eq!(
            object,
            json!({
                "metadata": { "managedFields": [{ "fieldsV1": { "f:spec": {
                    "f:restartPolicy": {},
                    "f:containers": { "k:{\"name\":\"a\"}": { ".": {}, "f:name": {} } },
                } } }] },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "a" }] },
            })
        );
    }

    #[test]
    fn every_default_in_the_table_is_json() {
        for value in IN_POD_SPEC
            .iter()
            .map(|(_, value)| value)
            .chain(IN_KIND.iter().map(|(.., value)| value))
        {
            serde_json::from_str::<Value>(value).unwrap();
        }
    }
}
