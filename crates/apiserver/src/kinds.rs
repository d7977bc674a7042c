//! What single kinds need that nothing works without: defaults, addresses of services, and the
//! names and conditions of CustomResourceDefinitions. Everything else about single kinds is left out.

use serde_json::{Value, json};

use crate::{
    lifecycle::{CRD_FINALIZER, CRD_GROUP, CRDS, core},
    registry::{ResourceType, items, text},
    server::Call,
    status::{Cause, Result, Status},
    store::{ResourceId, State},
    write::time,
};

/// Whether objects of a kind count their generations.
pub(crate) fn has_generation(resource: &ResourceType) -> bool {
    if resource.custom.is_some() {
        return true;
    }
    matches!(
        (resource.group(), resource.plural()),
        (
            "apps",
            "deployments" | "daemonsets" | "statefulsets" | "replicasets"
        ) | ("batch", "jobs" | "cronjobs")
            | (
                "networking.k8s.io",
                "ingresses" | "networkpolicies" | "ingressclasses"
            )
            | ("policy", "poddisruptionbudgets")
            | ("", "replicationcontrollers" | "pods" | "podtemplates")
            | ("admissionregistration.k8s.io", _)
            | ("flowcontrol.apiserver.k8s.io", _)
            | ("discovery.k8s.io", "endpointslices")
            | (CRD_GROUP, CRDS)
    )
}

/// Whether a client's status is dropped from a new object; nodes say of themselves what they are.
pub(crate) fn resets_status(resource: &ResourceType) -> bool {
    !(resource.group().is_empty() && resource.plural() == "nodes")
}

/// Defaults of the few kinds that nothing works without; whoever writes the object owns them.
pub(crate) fn default(id: &ResourceId, old: Option<&Value>, new: &mut Value) {
    match (&*id.group, &*id.plural) {
        ("", "namespaces") => {
            let name = text(&new["metadata"]["name"]);
            new["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
        }
        ("", "secrets") => complete_secret(new),
        ("", "services") => default_service(old, new),
        ("", "pods") => new
            .pointer_mut("/spec")
            .into_iter()
            .for_each(default_containers),
        ("", "podtemplates") => new
            .pointer_mut("/template")
            .into_iter()
            .for_each(default_template),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets")
        | ("batch", "jobs") => {
            new.pointer_mut("/spec/template")
                .into_iter()
                .for_each(default_template);
        }
        ("batch", "cronjobs") => {
            new.pointer_mut("/spec/jobTemplate/spec/template")
                .into_iter()
                .for_each(default_template);
        }
        _ => {}
    }
}

/// Parts of a pod that are there even when they are empty.
fn default_template(template: &mut Value) {
    if template.is_object() && template["metadata"].is_null() {
        template["metadata"] = json!({});
    }
    template
        .pointer_mut("/spec")
        .into_iter()
        .for_each(default_containers);
}

fn default_containers(spec: &mut Value) {
    for list in ["/containers", "/initContainers", "/ephemeralContainers"] {
        for container in list_mut(spec, list) {
            if container.is_object() && container["resources"].is_null() {
                container["resources"] = json!({});
            }
        }
    }
}

/// The items of a list inside, if it is there.
fn list_mut<'a>(value: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    value
        .pointer_mut(path)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// What the server itself decides about an object: addresses, phases, names of kinds.
pub(crate) fn complete(
    call: &Call,
    state: &State,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<()> {
    let id = call.id();
    match (&*id.group, &*id.plural) {
        ("", "namespaces") => match old {
            None => {
                let mut finalizers = items(&new["spec"]["finalizers"]).to_vec();
                if !finalizers.iter().any(|f| f == "kubernetes") {
                    finalizers.push("kubernetes".into());
                }
                new["spec"] = json!({ "finalizers": finalizers });
                new["status"] = json!({ "phase": "Active" });
            }
            Some(old) if call.subresource() != "finalize" => new["spec"] = old["spec"].clone(),
            Some(_) => {}
        },
        ("", "services") => complete_service(state, old, new)?,
        ("", "pods") if old.is_none() => {
            new["status"] = json!({ "phase": "Pending", "qosClass": qos(new) });
        }
        ("", "persistentvolumes" | "persistentvolumeclaims") if old.is_none() => {
            new["status"] = json!({ "phase": "Pending" });
        }
        (CRD_GROUP, CRDS) => establish(new, &time(call.now)),
        _ => {}
    }
    Ok(())
}

/// `stringData` goes into `data`, in base64.
fn complete_secret(secret: &mut Value) {
    let plain = secret
        .as_object_mut()
        .and_then(|secret| secret.remove("stringData"));
    let plain = plain.unwrap_or_default();
    for (key, value) in plain.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        secret["data"][key.as_str()] = crate::protobuf::base64(text.as_bytes()).into();
    }
    if text(&secret["type"]).is_empty() {
        secret["type"] = "Opaque".into();
    }
}

/// The class of service that a pod's requests and limits give it.
fn qos(pod: &Value) -> &'static str {
    let containers = items(&pod["spec"]["containers"]);
    let set = |c: &Value, what: &str| {
        c["resources"][what]
            .as_object()
            .is_some_and(|m| !m.is_empty())
    };
    if !containers
        .iter()
        .any(|c| set(c, "requests") || set(c, "limits"))
    {
        return "BestEffort";
    }
    let full = |c: &Value| {
        ["cpu", "memory"].iter().all(|r| {
            let limit = &c["resources"]["limits"][r];
            let request = &c["resources"]["requests"][r];
            !limit.is_null() && (request.is_null() || request == limit)
        })
    };
    if containers.iter().all(full) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn default_service(old: Option<&Value>, new: &mut Value) {
    let kind = new["spec"]["type"]
        .as_str()
        .unwrap_or("ClusterIP")
        .to_owned();
    let mut defaults = vec![
        ("type", json!("ClusterIP")),
        ("sessionAffinity", json!("None")),
    ];
    if kind != "ExternalName" {
        defaults.push(("internalTrafficPolicy", json!("Cluster")));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        defaults.push(("externalTrafficPolicy", json!("Cluster")));
    }
    if kind == "LoadBalancer" {
        defaults.push(("allocateLoadBalancerNodePorts", json!(true)));
    }
    for (key, default) in defaults {
        if new["spec"][key].is_null() {
            new["spec"][key] = default;
        }
    }
    for port in list_mut(new, "/spec/ports") {
        if port["protocol"].is_null() {
            port["protocol"] = "TCP".into();
        }
        if port["targetPort"].is_null() {
            port["targetPort"] = port["port"].clone();
        }
    }
    if old.is_none() && new["status"].is_null() {
        new["status"] = json!({ "loadBalancer": {} });
    }
}

/// An address in 10.96.0.0/16 and ports in 30000–32767, each given out once.
fn complete_service(state: &State, old: Option<&Value>, new: &mut Value) -> Result<()> {
    let kind = text(&new["spec"]["type"]);
    if kind == "ExternalName" {
        return Ok(());
    }
    // A headless service that selects nothing may be of either family.
    let open = new["spec"]["clusterIP"] == "None" && new["spec"]["selector"].is_null();
    let (families, policy) = match open {
        true => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        false => (json!(["IPv4"]), "SingleStack"),
    };
    for (key, default) in [("ipFamilies", families), ("ipFamilyPolicy", policy.into())] {
        if new["spec"][key].is_null() {
            new["spec"][key] = default;
        }
    }
    let all = state.objects(&core("services"));
    let own = text(&new["metadata"]["uid"]);
    let others: Vec<Value> = all
        .values()
        .filter(|o| o.uid != own)
        .map(|o| o.value())
        .collect();
    let name = text(&new["metadata"]["name"]);
    let refuse = |field: &str, message: String| {
        let cause = Cause {
            reason: "FieldValueInvalid",
            message,
            field: field.to_owned(),
        };
        Status::invalid("", "Service", &name, &[cause])
    };

    if let Some(old) = old
        && new["spec"]["clusterIP"].is_null()
    {
        new["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
    }
    if let Some(old) = old {
        let (was, is) = (
            text(&old["spec"]["clusterIP"]),
            text(&new["spec"]["clusterIP"]),
        );
        if !was.is_empty() && was != "None" && was != is && !is.is_empty() {
            let message = format!("Invalid value: [\"{is}\"]: may not change once set");
            return Err(refuse("spec.clusterIPs[0]", message));
        }
    }
    match text(&new["spec"]["clusterIP"]).as_str() {
        "None" => {}
        "" => {
            let taken = |ip: &str| others.iter().any(|o| o["spec"]["clusterIP"] == ip);
            let free = (1_u32..65_534)
                .map(|n| (n * 7919 + 257) % 65_533 + 1)
                .map(|n| format!("10.96.{}.{}", n >> 8, n & 255))
                .find(|ip| !taken(ip) && ip != "10.96.0.1");
            new["spec"]["clusterIP"] = free.unwrap_or_default().into();
        }
        ip if others.iter().any(|o| o["spec"]["clusterIP"] == ip) => {
            let message = format!(
                "Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: provided IP is already allocated"
            );
            return Err(refuse("spec.clusterIPs", message));
        }
        _ => {}
    }
    new["spec"]["clusterIPs"] = json!([new["spec"]["clusterIP"]]);

    let wants_ports = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    let mut taken: Vec<i64> = others
        .iter()
        .flat_map(|o| {
            items(&o["spec"]["ports"])
                .iter()
                .filter_map(|p| p["nodePort"].as_i64())
                .collect::<Vec<_>>()
        })
        .collect();
    let before: Vec<Value> = old
        .map(|o| items(&o["spec"]["ports"]).to_vec())
        .unwrap_or_default();
    for (at, port) in list_mut(new, "/spec/ports").enumerate() {
        if !wants_ports {
            continue;
        }
        if port["nodePort"].is_null() {
            let same = before
                .iter()
                .find(|b| b["port"] == port["port"] && b["protocol"] == port["protocol"]);
            if let Some(was) = same.and_then(|b| b["nodePort"].as_i64()) {
                port["nodePort"] = was.into();
            }
        }
        match port["nodePort"].as_i64() {
            None => {
                let free = (0..2768)
                    .map(|n| 30_000 + (n * 613 + 97) % 2768)
                    .find(|n| !taken.contains(n));
                port["nodePort"] = free.unwrap_or(30_000).into();
            }
            Some(given) if !(30_000..=32_767).contains(&given) => {
                let message = format!(
                    "Invalid value: {given}: provided port is not in the valid range. The range of valid ports is 30000-32767"
                );
                return Err(refuse(&format!("spec.ports[{at}].nodePort"), message));
            }
            Some(given) if taken.contains(&given) => {
                let message = format!("Invalid value: {given}: provided port is already allocated");
                return Err(refuse(&format!("spec.ports[{at}].nodePort"), message));
            }
            Some(_) => {}
        }
        taken.extend(port["nodePort"].as_i64());
    }
    Ok(())
}

/// A CustomResourceDefinition as it is once its names are accepted and its kind is served.
pub(crate) fn establish(crd: &mut Value, now: &str) {
    let kind = text(&crd["spec"]["names"]["kind"]);
    let names = &mut crd["spec"]["names"];
    if text(&names["singular"]).is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if text(&names["listKind"]).is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    if crd["spec"]["conversion"].is_null() {
        crd["spec"]["conversion"] = json!({ "strategy": "None" });
    }
    let names = crd["spec"]["names"].clone();
    let storage: Vec<Value> = items(&crd["spec"]["versions"])
        .iter()
        .filter(|v| v["storage"] == true)
        .map(|v| v["name"].clone())
        .collect();
    let mut stored = items(&crd["status"]["storedVersions"]).to_vec();
    for version in storage {
        if !stored.contains(&version) {
            stored.push(version);
        }
    }
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": "True",
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        })
    };
    if crd["status"]["conditions"].is_null() {
        crd["status"]["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted"
            ),
        ]);
    }
    crd["status"]["acceptedNames"] = names;
    crd["status"]["storedVersions"] = stored.into();
    let finalizers = items(&crd["metadata"]["finalizers"]);
    if crd["metadata"]["deletionTimestamp"].is_null()
        && !finalizers.iter().any(|f| f == CRD_FINALIZER)
    {
        let mut finalizers = finalizers.to_vec();
        finalizers.push(CRD_FINALIZER.into());
        crd["metadata"]["finalizers"] = finalizers.into();
    }
}
