//! Cells that take more than one field: where a service is reached, what an
//! autoscaler measures.
//!
//! Objects are arbitrary JSON here. What has an unexpected type counts as missing.

use super::human;
use super::kinds::{age, at, count, int, items, join, plain, text};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
const UNKNOWN: &str = super::UNKNOWN;

/// One field of the first condition of a type, or nothing.
pub(super) fn condition_text(object: &Value, place: &str, kind: &str, key: &str) -> String {
    condition(object, place, kind)
        .map(|condition| text(condition, key))
        .unwrap_or_default()
}

fn condition<'a>(object: &'a Value, place: &str, kind: &str) -> Option<&'a Value> {
    items(object, place)
        .iter()
        .find(|condition| text(condition, "/type") == kind)
}

pub(super) fn condition_is_true(object: &Value, place: &str, kind: &str) -> bool {
    condition_text(object, place, kind, "/status") == "True"
}

pub(super) fn component_status(object: &Value) -> String {
    match condition(object, "/conditions", "Healthy") {
        None => "Unknown",
        Some(condition) if text(condition, "/status") == "True" => "Healthy",
        Some(_) => "Unhealthy",
    }
    .to_owned()
}

/// `a=b,c=d`, in order.
pub(super) fn labels(object: &Value, place: &str) -> String {
    or(pairs(object, place, "=").join(","), NONE)
}

/// The value, or this when it is empty.
pub(super) fn or(value: String, missing: &str) -> String {
    match value.as_str() {
        "" => missing.to_owned(),
        _ => value,
    }
}

fn pairs(object: &Value, place: &str, between: &str) -> Vec<String> {
    let mut pairs: Vec<String> = entries(object, place)
        .map(|(key, value)| format!("{key}{between}{}", plain(value)))
        .collect();
    pairs.sort();
    pairs
}

fn entries<'a>(object: &'a Value, place: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let map = at(object, place).and_then(Value::as_object);
    map.into_iter().flatten()
}

/// A label selector in the form `-l` takes.
pub(super) fn selector(object: &Value, place: &str, empty: &str, wrong: &str) -> String {
    let selector = at(object, place).unwrap_or(&Value::Null);
    let mut parts: Vec<(String, String)> = entries(selector, "/matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", plain(value))))
        .collect();
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let mut values: Vec<String> = items(expression, "/values").iter().map(plain).collect();
        values.sort();
        let part = match (text(expression, "/operator").as_str(), values.as_slice()) {
            ("In", [_, ..]) => format!("{key} in ({})", values.join(",")),
            ("NotIn", [_, ..]) => format!("{key} notin ({})", values.join(",")),
            ("Exists", []) => key.clone(),
            ("DoesNotExist", []) => format!("!{key}"),
            _ => return wrong.to_owned(),
        };
        parts.push((key, part));
    }
    parts.sort_by(|one, other| one.0.cmp(&other.0));
    let parts: Vec<String> = parts.into_iter().map(|part| part.1).collect();
    or(parts.join(","), empty)
}

/// `one/other` of a part of the object, or this when there is no such part.
pub(super) fn pair_in(object: &Value, part: &str, keys: [&str; 2], missing: &str) -> String {
    match at(object, part) {
        Some(part) => keys.map(|key| text(part, key)).join("/"),
        None => missing.to_owned(),
    }
}

/// The age there, or this when nothing is set.
pub(super) fn age_or(object: &Value, place: &str, missing: &str, now: Timestamp) -> String {
    match at(object, place) {
        Some(_) => age(object, place, now),
        None => missing.to_owned(),
    }
}

pub(super) fn job_status(job: &Value) -> String {
    let has = |kind: &str| condition_is_true(job, "/status/conditions", kind);
    let deleted = at(job, "/metadata/deletionTimestamp").is_some();
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if deleted => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
    .to_owned()
}

pub(super) fn completions(job: &Value) -> String {
    let succeeded = int(job, "/status/succeeded");
    match (at(job, "/spec/completions"), int(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{}", plain(wanted)),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        _ => format!("{succeeded}/1"),
    }
}

pub(super) fn job_duration(job: &Value, now: Timestamp) -> String {
    let time = |place: &str| text(job, place).parse::<Timestamp>().ok();
    let end = time("/status/completionTime").unwrap_or(now);
    match time("/status/startTime") {
        Some(start) => human(end.duration_since(start).as_secs()),
        None => String::new(),
    }
}

pub(super) fn suspend(cron_job: &Value) -> String {
    match cron_job.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    }
    .to_owned()
}

/// The first text that is not empty.
pub(super) fn first_text(object: &Value, places: &[&str]) -> String {
    places
        .iter()
        .map(|place| text(object, place))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// The first few of a list, and how many more there are.
pub(super) fn first_few(all: &[String], few: usize, between: &str, empty: &str) -> String {
    match all.len().checked_sub(few) {
        Some(more) if more > 0 => format!("{} + {more} more...", all[..few].join(between)),
        _ if all.is_empty() => empty.to_owned(),
        _ => all.join(between),
    }
}

pub(super) fn node_status(node: &Value) -> String {
    // Of two conditions of a type the later counts.
    let ready = items(node, "/status/conditions")
        .iter()
        .rfind(|condition| text(condition, "/type") == "Ready");
    let status = match ready {
        None => "Unknown",
        Some(ready) if text(ready, "/status") == "True" => "Ready",
        Some(_) => "NotReady",
    };
    match node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        true => format!("{status},SchedulingDisabled"),
        false => status.to_owned(),
    }
}

pub(super) fn node_roles(node: &Value) -> String {
    let roles: BTreeSet<String> = entries(node, "/metadata/labels")
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role.to_owned()),
                None => (key == "kubernetes.io/role").then(|| plain(value)),
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    or(Vec::from_iter(roles).join(","), NONE)
}

pub(super) fn node_address(node: &Value, kind: &str) -> String {
    items(node, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == kind)
        .map_or_else(|| NONE.to_owned(), |address| text(address, "/address"))
}

pub(super) fn volume_phase(object: &Value) -> String {
    match at(object, "/metadata/deletionTimestamp") {
        Some(_) => "Terminating".to_owned(),
        None => text(object, "/status/phase"),
    }
}

/// What a claim got, once it is bound.
pub(super) fn bound(claim: &Value, show: fn(&Value) -> String) -> String {
    match text(claim, "/spec/volumeName").as_str() {
        "" => String::new(),
        _ => show(claim),
    }
}

pub(super) fn modes(modes: &[Value]) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> = SHORT
        .iter()
        .filter(|(mode, _)| modes.iter().any(|given| given == mode))
        .map(|(_, short)| *short)
        .collect();
    shown.join(",")
}

/// The scalar there, or this when nothing is set.
pub(super) fn quantity(object: &Value, place: &str, missing: &str) -> String {
    at(object, place).map_or_else(|| missing.to_owned(), plain)
}

pub(super) fn storage_class(object: &Value) -> String {
    const BETA: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    at(object, BETA).map_or_else(|| text(object, "/spec/storageClassName"), plain)
}

pub(super) fn storage_class_name(class: &Value) -> String {
    let name = text(class, "/metadata/name");
    let default = [
        "storageclass.kubernetes.io",
        "storageclass.beta.kubernetes.io",
    ]
    .iter()
    .any(|prefix| {
        let place = format!("/metadata/annotations/{prefix}~1is-default-class");
        text(class, &place) == "true"
    });
    match default {
        true => format!("{name} (default)"),
        false => name,
    }
}

pub(super) fn token_requests(driver: &Value) -> String {
    match at(driver, "/spec/tokenRequests") {
        Some(_) => join(items(driver, "/spec/tokenRequests"), "/audience", ","),
        None => UNSET.to_owned(),
    }
}

pub(super) fn lifecycle_modes(driver: &Value) -> String {
    or(
        join(items(driver, "/spec/volumeLifecycleModes"), "", ","),
        NONE,
    )
}

pub(super) fn quota(quota: &Value, limits: bool) -> String {
    let used = &quota["status"]["used"];
    let mut parts: Vec<(&String, String)> = entries(quota, "/status/hard")
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = used.get(resource).map_or_else(|| "0".to_owned(), plain);
            (resource, format!("{resource}: {used}/{}", plain(hard)))
        })
        .collect();
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|part| part.1).collect();
    parts.join(", ")
}

pub(super) fn subjects(binding: &Value, kind: &str) -> String {
    let names: Vec<String> = items(binding, "/subjects")
        .iter()
        .filter(|subject| text(subject, "/kind") == kind)
        .map(|subject| match kind {
            "ServiceAccount" => pair_in(subject, "", ["/namespace", "/name"], ""),
            _ => text(subject, "/name"),
        })
        .collect();
    names.join(", ")
}

// Events have other field names in events.k8s.io than in the core group.

pub(super) fn event_first(event: &Value, now: Timestamp) -> String {
    let first = ["/firstTimestamp", "/deprecatedFirstTimestamp"]
        .into_iter()
        .find(|place| at(event, place).is_some());
    age(event, first.unwrap_or("/eventTime"), now)
}

pub(super) fn event_last(event: &Value, now: Timestamp) -> String {
    let last = ["/lastTimestamp", "/deprecatedLastTimestamp"]
        .into_iter()
        .find(|place| at(event, place).is_some());
    match (at(event, "/series"), last) {
        (Some(series), _) => age(series, "/lastObservedTime", now),
        (None, Some(place)) => age(event, place, now),
        (None, None) => event_first(event, now),
    }
}

pub(super) fn event_count(event: &Value) -> Value {
    if at(event, "/series").is_some() {
        return json!(int(event, "/series/count"));
    }
    // The newer API does not count what happened once.
    match int(event, "/count").max(int(event, "/deprecatedCount")) {
        0 => json!(1),
        count => json!(count),
    }
}

pub(super) fn event_object(event: &Value) -> String {
    let kind = first_text(event, &["/involvedObject/kind", "/regarding/kind"]).to_lowercase();
    match first_text(event, &["/involvedObject/name", "/regarding/name"]) {
        name if name.is_empty() => kind,
        name => format!("{kind}/{name}"),
    }
}

pub(super) fn event_message(event: &Value) -> String {
    first_text(event, &["/message", "/note"]).trim().to_owned()
}

pub(super) fn event_source(event: &Value) -> String {
    let component = first_text(
        event,
        &[
            "/source/component",
            "/deprecatedSource/component",
            "/reportingComponent",
            "/reportingController",
        ],
    );
    let host = [
        "/source/host",
        "/deprecatedSource/host",
        "/reportingInstance",
    ];
    match first_text(event, &host) {
        host if host.is_empty() => component,
        host => format!("{component}, {host}"),
    }
}

pub(super) fn metrics(autoscaler: &Value) -> String {
    let current = items(autoscaler, "/status/currentMetrics");
    let mut metrics: Vec<String> = items(autoscaler, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(index, metric)| measured(metric, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    // autoscaling/v1 knows this one metric.
    if let Some(target) = at(autoscaler, "/spec/targetCPUUtilizationPercentage") {
        let current = percent(
            autoscaler,
            "/status/currentCPUUtilizationPercentage",
            UNKNOWN,
        );
        metrics.push(format!("cpu: {current}/{}%", plain(target)));
    }
    first_few(&metrics, 2, ", ", NONE)
}

fn measured(metric: &Value, status: &Value) -> String {
    let kind = text(metric, "/type");
    let key = match kind.as_str() {
        "External" => "/external",
        "Object" => "/object",
        "Pods" => "/pods",
        "Resource" => "/resource",
        "ContainerResource" => "/containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = at(metric, key).unwrap_or(&Value::Null);
    let status = at(status, key);
    let current = |place: &str, missing: &str| match status {
        Some(status) => quantity(status, place, missing),
        None => UNKNOWN.to_owned(),
    };
    let average = at(wanted, "/target/averageValue").map(plain);
    match (kind.as_str(), average) {
        ("External" | "Object", Some(average)) => {
            format!(
                "{}/{average} (avg)",
                current("/current/averageValue", UNKNOWN)
            )
        }
        ("External" | "Object", None) => {
            let target = quantity(wanted, "/target/value", "<nil>");
            format!("{}/{target}", current("/current/value", "<nil>"))
        }
        ("Pods", average) => {
            let target = average.unwrap_or_else(|| "<nil>".to_owned());
            format!("{}/{target}", current("/current/averageValue", "<nil>"))
        }
        (_, Some(average)) => {
            let current = current("/current/averageValue", "<nil>");
            format!("{}: {current}/{average}", text(wanted, "/name"))
        }
        (_, None) => {
            let status = status.unwrap_or(&Value::Null);
            let current = percent(status, "/current/averageUtilization", UNKNOWN);
            let target = percent(wanted, "/target/averageUtilization", "<auto>");
            format!("{}: {current}/{target}", text(wanted, "/name"))
        }
    }
}

fn percent(object: &Value, place: &str, missing: &str) -> String {
    at(object, place).map_or_else(|| missing.to_owned(), |value| format!("{}%", plain(value)))
}

pub(super) fn controller(revision: &Value) -> String {
    let owner = items(revision, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner["controller"] == true);
    let Some(owner) = owner else {
        return NONE.to_owned();
    };
    let kind = text(owner, "/kind").to_lowercase();
    match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), text(owner, "/name")),
        None => format!("{kind}/{}", text(owner, "/name")),
    }
}

pub(super) fn param_ref(binding: &Value) -> String {
    let Some(reference) = at(binding, "/spec/paramRef") else {
        return UNSET.to_owned();
    };
    let (name, namespace) = (text(reference, "/name"), text(reference, "/namespace"));
    match (
        name.is_empty(),
        namespace.is_empty(),
        at(reference, "/selector"),
    ) {
        (false, true, _) => format!("*/{name}"),
        (false, false, _) => format!("{namespace}/{name}"),
        (true, _, Some(selector)) => go_selector(selector),
        (true, _, None) => UNSET.to_owned(),
    }
}

/// A selector as Go's generated `String` spells it, which the real server lets through here.
fn go_selector(selector: &Value) -> String {
    let labels = pairs(selector, "/matchLabels", ": ");
    let labels: String = labels.iter().map(|label| format!("{label},")).collect();
    let expressions: String = items(selector, "/matchExpressions")
        .iter()
        .map(|expression| {
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(expression, "/key"),
                text(expression, "/operator"),
                join(items(expression, "/values"), "", " "),
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn api_available(service: &Value) -> String {
    let Some(available) = condition(service, "/status/conditions", "Available") else {
        return "Unknown".to_owned();
    };
    match (text(available, "/status"), text(available, "/reason")) {
        (status, reason) if status == "True" || reason.is_empty() => status,
        (status, reason) => format!("{status} ({reason})"),
    }
}

pub(super) fn requested_duration(request: &Value) -> String {
    match at(request, "/spec/expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => human(seconds),
        None => NONE.to_owned(),
    }
}

pub(super) fn csr_condition(request: &Value) -> String {
    let has = |kind: &str| condition(request, "/status/conditions", kind).is_some();
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    status
}

pub(super) fn dangling(schema: &Value) -> String {
    condition(schema, "/status/conditions", "Dangling")
        .map_or_else(|| "?".to_owned(), |condition| text(condition, "/status"))
}

/// Where a priority level says how it queues.
pub(super) const QUEUING: &str = "/spec/limited/limitResponse/queuing";

/// A number of a part that may not be there at all.
pub(super) fn number_in(object: &Value, part: &str, key: &str) -> Value {
    match at(object, part) {
        Some(part) => json!(part[key].as_i64().unwrap_or_default()),
        None => json!(NONE),
    }
}

pub(super) fn claim_state(claim: &Value) -> String {
    let deleted = at(claim, "/metadata/deletionTimestamp").is_some();
    let allocated = at(claim, "/status/allocation").is_some();
    let states = [
        ("deleted", deleted),
        ("pending", !deleted && !allocated),
        ("allocated", allocated),
        (
            "reserved",
            allocated && count(claim, "/status/reservedFor") > 0,
        ),
    ];
    let states: Vec<&str> = states
        .iter()
        .filter(|state| state.1)
        .map(|state| state.0)
        .collect();
    states.join(",")
}
