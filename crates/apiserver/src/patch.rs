//! Patches: JSON, merge and strategic merge, and server-side apply; from what a client sent to the
//! object that it asks for. What becomes of that is up to [`commit`].

use serde_json::{Value, json};

use crate::{
    lifecycle,
    merge::{self, Operation},
    read::single,
    scale,
    server::{Answer, Call},
    status::{Cause, Result, Status},
    store::State,
    write::{
        check_namespace, check_options, check_revision, check_type, clean, commit, conflict, judge,
        parse_yaml, remove, typed,
    },
};

pub(crate) fn patch(call: &Call, body: &[u8]) -> Result<Answer> {
    let kind = PatchKind::of(call)?;
    check_options(call, "PatchOptions")?;
    if kind != PatchKind::Apply && !call.query.get("force").is_empty() {
        let why = "Forbidden: may not be specified for non-apply patch";
        return Err(Status::options(
            "PatchOptions",
            "FieldValueForbidden",
            "force",
            why,
        ));
    }
    let key = call.key();
    let mut state = call.server.store.write();
    let old = state.get(call.id(), &key).map(|object| object.value());
    if kind == PatchKind::Apply {
        return apply(call, &mut state, old, body);
    }
    let Some(old) = old else {
        return Err(call.not_found(&key.name));
    };
    let as_seen = match call.subresource() {
        "scale" => scale::of(call, &old)?,
        _ => typed(call, old.clone()),
    };
    let mut new = kind.apply_to(call, &as_seen, body)?;
    if call.subresource() == "scale" {
        let new = scale::update(call, &old, &new)?;
        let object = commit(call, &mut state, Some(old), new, Operation::Update)?;
        return scale::get(call, &object.value());
    }
    check_type(call, &mut new)?;
    if new["metadata"]["name"] != key.name.as_str() {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            new["metadata"]["name"].as_str().unwrap_or_default(),
            key.name
        )));
    }
    check_namespace(call, &mut new)?;
    check_revision(call, &old, &new, false)?;
    let text = quoted(call, &new);
    let cleaned = clean(call, &mut new).and_then(|findings| judge(call, findings));
    let warnings = cleaned.map_err(|status| unreadable(&text, status))?;
    let object = commit(call, &mut state, Some(old), new, Operation::Update)?;
    let mut answer = single(call, 200, &object);
    answer.warnings = warnings;
    Ok(answer)
}

fn apply(call: &Call, state: &mut State, old: Option<Value>, body: &[u8]) -> Result<Answer> {
    if call.query.get("fieldManager").is_empty() {
        return Err(Status {
            details: Some(
                json!({ "kind": "PatchOptions", "group": "meta.k8s.io", "causes": [{
                "reason": "FieldValueRequired",
                "message": "Required value: is required for apply patch",
                "field": "fieldManager",
            }] }),
            ),
            ..Status::new(
                422,
                "Invalid",
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            )
        });
    }
    let (mut applied, duplicates) = parse_yaml(body)?;
    let untyped = applied["apiVersion"].is_null() || applied["kind"].is_null();
    if untyped || applied["kind"] != call.resource.kind.as_str() && call.resource.custom.is_none() {
        let version = applied["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = applied["kind"].as_str().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={kind}"
        )));
    }
    check_type(call, &mut applied)?;
    let mut placed = applied.clone();
    check_namespace(call, &mut placed)?;
    let key = call.key();
    match applied["metadata"]["name"].as_str() {
        None => applied["metadata"]["name"] = key.name.clone().into(),
        Some(name) if name != key.name => {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                key.name
            )));
        }
        _ => {}
    }
    if old.is_none() {
        lifecycle::check_parent(call, state, &key.name)?;
        if applied["metadata"]["uid"].is_string() {
            return Err(conflict(
                call,
                &key.name,
                "uid mismatch: the provided object specified uid, and no existing object was found",
            ));
        }
    }
    only_own_part(call, &mut applied);
    if let Some(old) = &old {
        check_revision(call, old, &applied, false)?;
    }
    let api_version = call.resource.api_version();
    let actor = call.actor(&api_version);
    let force = call.query.is_true("force");
    let live = old.clone().map(|old| typed(call, old));
    let mut new = merge::apply(
        live.as_ref(),
        &applied,
        &call.resource.schema,
        &actor,
        force,
    )?;
    if let Some(namespace) = &call.target.namespace {
        new["metadata"]["namespace"] = namespace.clone().into();
    }
    let mut findings = duplicates;
    findings.extend(clean(call, &mut new)?);
    let warnings = judge(call, findings)?;
    let code = if old.is_some() { 200 } else { 201 };
    let object = commit(call, state, old, new, Operation::Apply)?;
    let mut answer = single(call, code, &object);
    answer.warnings = warnings;
    Ok(answer)
}

/// A custom resource's status is applied through its own door only.
fn only_own_part(call: &Call, applied: &mut Value) {
    if call.resource.custom.is_none() || !call.resource.has_status() {
        return;
    }
    match call.subresource() {
        "status" => {
            if let Some(fields) = applied.as_object_mut() {
                fields.retain(|key, _| {
                    matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status")
                });
            }
        }
        _ => remove(applied, "status"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    fn of(call: &Call) -> Result<Self> {
        let custom = call.resource.custom.is_some();
        match call.content_type.as_str() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status {
                details: Some(json!({})),
                ..Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            }),
        }
    }

    fn apply_to(self, call: &Call, object: &Value, body: &[u8]) -> Result<Value> {
        let broken = |error: serde_json::Error| {
            let why = match error.is_eof() {
                true => "unexpected end of JSON input".to_owned(),
                false => error.to_string(),
            };
            Status::bad_request(format!("error decoding patch: {why}"))
        };
        match self {
            Self::Json => {
                let patch: Value = serde_json::from_slice(body).map_err(broken)?;
                let Value::Array(patch) = patch else {
                    return Err(Status::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                        go_kind(&patch)
                    )));
                };
                merge::json_patch(object, &patch, merge::Absent::Added).map_err(|_| Status {
                    details: Some(json!({})),
                    ..Status::new(
                        422,
                        "Invalid",
                        "the server rejected our request due to an error in our request",
                    )
                })
            }
            Self::Merge => {
                let patch: Value = serde_json::from_slice(body).map_err(broken)?;
                if !patch.is_object() {
                    return Err(Status::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        go_kind(&patch)
                    )));
                }
                let mut new = object.clone();
                merge::merge_patch(&mut new, &patch);
                Ok(new)
            }
            Self::Strategic | Self::Apply => {
                let patch: Value = serde_json::from_slice(body).map_err(broken)?;
                merge::strategic(object, &patch, &call.resource.schema)
            }
        }
    }
}

/// A patch whose result cannot be read is refused with the result.
fn unreadable(text: &str, status: Status) -> Status {
    let why = match status.message.split_once(" cannot be handled as a ") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, why)| why),
        None => &status.message,
    };
    let cause = Cause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {text}: {why}"),
        field: "patch".into(),
    };
    let mut refusal = Status::invalid("", "", "", &[cause]);
    if let Some(details) = refusal.details.as_mut().and_then(Value::as_object_mut) {
        details.remove("kind");
    }
    refusal
}

/// An object as refusals of patches quote it: with Go's order of metadata for built-in kinds.
fn quoted(call: &Call, object: &Value) -> String {
    const METADATA: [&str; 15] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    const MANAGER: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    let join = |parts: Vec<String>| format!("{{{}}}", parts.join(","));
    let ordered = |value: &Value, order: &[&str], text: &dyn Fn(&str, &Value) -> String| {
        let known = order.iter().filter_map(|key| Some((*key, value.get(key)?)));
        join(
            known
                .map(|(key, value)| format!("{}:{}", json!(key), text(key, value)))
                .collect(),
        )
    };
    let text = match call.resource.custom {
        Some(_) => object.to_string(),
        None => {
            let fields = object.as_object().into_iter().flatten();
            join(
                fields
                    .map(|(key, value)| {
                        let value = match key.as_str() {
                            "metadata" => ordered(value, &METADATA, &|key, value| match key {
                                "managedFields" => {
                                    let entries = crate::registry::items(value).iter();
                                    let entries: Vec<String> = entries
                                        .map(|entry| {
                                            ordered(entry, &MANAGER, &|_, v| v.to_string())
                                        })
                                        .collect();
                                    format!("[{}]", entries.join(","))
                                }
                                _ => value.to_string(),
                            }),
                            _ => value.to_string(),
                        };
                        format!("{}:{value}", json!(key))
                    })
                    .collect(),
            )
        }
    };
    Value::from(text).to_string()
}

/// What Go calls the type of a JSON value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}
