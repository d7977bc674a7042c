//! The scale subresource: a small view on an object's replicas.

use serde_json::{Value, json};

use crate::{
    server::{Answer, Call},
    status::{Cause, Result, Status},
};

pub(crate) fn get(call: &Call, object: &Value) -> Result<Answer> {
    Ok(Answer::value(200, &of(call, object)?))
}

/// The view of an object.
pub(crate) fn of(call: &Call, object: &Value) -> Result<Value> {
    let meta = &object["metadata"];
    let paths = Paths::of(call);
    let selector = match &paths.selector {
        Some(path) => match at(object, path) {
            Value::String(text) => text.clone(),
            selector => selector_text(selector),
        },
        None => String::new(),
    };
    let mut metadata = json!({ "name": meta["name"] });
    for key in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !meta[key].is_null() {
            metadata[key] = meta[key].clone();
        }
    }
    let mut status = json!({ "replicas": at(object, &paths.status).as_i64().unwrap_or(0) });
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if let Some(replicas) = at(object, &paths.spec).as_i64().filter(|n| *n != 0) {
        spec["replicas"] = replicas.into();
    }
    Ok(json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }))
}

/// The object with the replicas that a view asks for.
pub(crate) fn update(call: &Call, object: &Value, scale: &Value) -> Result<Value> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if replicas < 0 {
        let (group, kind, field, rule) = match &call.resource.custom {
            Some(_) => (
                call.resource.group(),
                call.resource.kind.as_str(),
                ".spec.replicas",
                "should be a non-negative integer",
            ),
            None => (
                "autoscaling",
                "Scale",
                "spec.replicas",
                "must be greater than or equal to 0",
            ),
        };
        let causes = [Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {replicas}: {rule}"),
            field: field.into(),
        }];
        return Err(Status::invalid(group, kind, name, &causes));
    }
    let sent = scale["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    if !sent.is_empty() && object["metadata"]["resourceVersion"] != sent {
        return Err(crate::write::modified(call, name));
    }
    let mut new = object.clone();
    let mut place = &mut new;
    for key in Paths::of(call).spec.split('.') {
        place = &mut place[key];
    }
    *place = replicas.into();
    Ok(new)
}

struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

impl Paths {
    fn of(call: &Call) -> Self {
        let scale = call
            .resource
            .custom
            .as_ref()
            .and_then(|custom| custom.scale.clone());
        let path = |value: &Value| value.as_str().map(|p| p.trim_start_matches('.').to_owned());
        match scale {
            Some(scale) => Self {
                spec: path(&scale["specReplicasPath"]).unwrap_or_default(),
                status: path(&scale["statusReplicasPath"]).unwrap_or_default(),
                selector: path(&scale["labelSelectorPath"]),
            },
            None => Self {
                spec: "spec.replicas".to_owned(),
                status: "status.replicas".to_owned(),
                selector: Some("spec.selector".to_owned()),
            },
        }
    }
}

fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, key| &value[key])
}

/// A selector as one text: `app=web,tier in (a,b)`.
fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().or_else(|| {
        let plain = selector.as_object()?;
        (!plain.contains_key("matchExpressions")).then_some(plain)
    });
    let mut parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in crate::registry::items(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = crate::registry::items(&expression["values"])
            .iter()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.join(",")
}
