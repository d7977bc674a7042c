//! Label and field selectors of lists, watches and deletions.

use serde_json::Value;

use crate::{
    registry::ResourceType,
    status::{Result, Status},
    store::Object,
};

/// What a request selects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

#[derive(Debug, Clone)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str, resource: &ResourceType) -> Result<Self> {
        Ok(Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(fields, resource)?,
        })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels.iter().all(|r| r.matches(object)) && self.matches_fields(object)
    }

    fn matches_fields(&self, object: &Object) -> bool {
        // Only the rarer fields need the object to be parsed.
        let mut parsed: Option<Value> = None;
        self.fields.iter().all(|field| {
            let found = match field.path.as_str() {
                "metadata.name" => object.key.name == field.value,
                "metadata.namespace" => object.key.namespace == field.value,
                path => {
                    let value = parsed.get_or_insert_with(|| object.value());
                    field_text(value, path) == field.value
                }
            };
            found == field.equal
        })
    }
}

impl Requirement {
    fn matches(&self, object: &Object) -> bool {
        let value = object
            .labels
            .iter()
            .find(|(key, _)| *key == self.key)
            .map(|(_, value)| value);
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.contains(v)),
            Test::NotIn(values) => !value.is_some_and(|v| values.contains(v)),
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::Above(limit) => number().is_some_and(|n| n > *limit),
            Test::Below(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

/// A field as field selectors compare it: texts as they are, absent as empty.
fn field_text(value: &Value, path: &str) -> String {
    let found = path.split('.').fold(value, |value, key| &value[key]);
    match found {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => found.to_string(),
        // A bool that is not there reads as false, a number as zero.
        _ if path == "spec.unschedulable" || path == "spec.hostNetwork" => "false".to_owned(),
        _ if path.ends_with("status.replicas") || path == "status.successful" => "0".to_owned(),
        _ => String::new(),
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>> {
    let refuse = |why: String| match why.starts_with("found ") && !why.contains("'('") {
        true => Status::bad_request(why),
        false => Status::bad_request(format!("unable to parse requirement: {why}")),
    };
    let mut requirements = Vec::new();
    for part in split_outside_parentheses(text) {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(Status::bad_request(
                "found '', expected: identifier after ','",
            ));
        }
        let requirement = parse_requirement(part).map_err(refuse)?;
        check_key(&requirement.key).map_err(refuse)?;
        requirements.push(requirement);
    }
    Ok(requirements)
}

fn parse_requirement(part: &str) -> std::result::Result<Requirement, String> {
    let make = |key: &str, test| Requirement {
        key: key.trim().to_owned(),
        test,
    };
    if let Some(key) = part.strip_prefix('!') {
        return Ok(make(key, Test::Missing));
    }
    for (word, negative) in [(" notin ", true), (" in ", false)] {
        let spaced = part.replacen('(', " (", 1);
        if let Some((key, values)) = spaced.split_once(word) {
            let values = values.trim();
            let inner = values.strip_prefix('(').and_then(|v| v.strip_suffix(')'));
            let Some(inner) = inner else {
                return Err(format!("found '{values}' expected: '('"));
            };
            let values: Vec<String> = inner.split(',').map(|v| v.trim().to_owned()).collect();
            for value in &values {
                check_value(key.trim(), value)?;
            }
            let test = if negative {
                Test::NotIn(values)
            } else {
                Test::In(values)
            };
            return Ok(make(key, test));
        }
    }
    for (sign, negative) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = part.split_once(sign) {
            let value = value.trim().to_owned();
            if key.trim().is_empty() {
                return Err(format!(
                    "found '{sign}', expected: !, identifier, or 'end of string'"
                ));
            }
            let mut words = value.split(|c: char| c.is_whitespace() || "=!".contains(c));
            if let Some(odd) = words.nth(1) {
                return Err(format!("found '{odd}', expected: ',' or 'end of string'"));
            }
            check_value(key.trim(), &value)?;
            let test = if negative {
                Test::NotIn(vec![value])
            } else {
                Test::In(vec![value])
            };
            return Ok(make(key, test));
        }
    }
    for (sign, above) in [('>', true), ('<', false)] {
        if let Some((key, value)) = part.split_once(sign) {
            let limit = value.trim().parse().map_err(|_| {
                format!("values[0]: Invalid value: \"{}\": for 'Gt', 'Lt' operators, the value must be an integer", value.trim())
            })?;
            return Ok(make(
                key,
                if above {
                    Test::Above(limit)
                } else {
                    Test::Below(limit)
                },
            ));
        }
    }
    if part.ends_with(" in") || part.ends_with(" notin") {
        return Err("found '' expected: '('".to_owned());
    }
    if part.contains(char::is_whitespace) {
        let odd = part.split_whitespace().nth(1).unwrap_or_default();
        return Err(format!(
            "found '{odd}', expected: in, notin, =, ==, !=, gt, lt"
        ));
    }
    Ok(make(part, Test::Exists))
}

const NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn check_key(key: &str) -> std::result::Result<(), String> {
    let name = key.rsplit('/').next().unwrap_or_default();
    if is_label_name(name) {
        return Ok(());
    }
    Err(format!("<nil>: Invalid value: \"{key}\": {NAME_RULE}"))
}

fn check_value(key: &str, value: &str) -> std::result::Result<(), String> {
    if value.is_empty() || is_label_name(value) {
        return Ok(());
    }
    Err(format!(
        "values[0][{key}]: Invalid value: \"{value}\": {VALUE_RULE}"
    ))
}

fn is_label_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_fields(text: &str, resource: &ResourceType) -> Result<Vec<FieldRequirement>> {
    let mut requirements = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let split = part
            .split_once("!=")
            .map(|(path, value)| (path, value, false))
            .or_else(|| {
                part.split_once("==")
                    .map(|(path, value)| (path, value, true))
            })
            .or_else(|| {
                part.split_once('=')
                    .map(|(path, value)| (path, value, true))
            });
        let Some((path, value, equal)) = split else {
            return Err(Status::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{part}'"
            )));
        };
        if !is_selectable(resource, path) {
            return Err(Status::bad_request(unsupported(resource, path)));
        }
        requirements.push(FieldRequirement {
            path: path.to_owned(),
            value: value.to_owned(),
            equal,
        });
    }
    Ok(requirements)
}

fn unsupported(resource: &ResourceType, path: &str) -> String {
    let plain = resource.custom.is_none() && built_in_fields(resource).is_empty();
    match plain {
        true => format!(
            "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
        false => format!("field label not supported: {path}"),
    }
}

fn is_selectable(resource: &ResourceType, path: &str) -> bool {
    path == "metadata.name"
        || (path == "metadata.namespace" && (resource.namespaced || resource.custom.is_none()))
        || resource
            .custom
            .as_ref()
            .is_some_and(|c| c.selectable.iter().any(|field| field == path))
        || (resource.custom.is_none() && built_in_fields(resource).contains(&path))
}

/// The fields that built-in kinds can be selected by, beyond name and namespace.
fn built_in_fields(resource: &ResourceType) -> &'static [&'static str] {
    match (resource.group(), resource.plural()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => &[],
    }
}
