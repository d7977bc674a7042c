//! Create, update and patch: from what a client sent to what is stored.
//!
//! Each runs under the store's lock from the first look to the last write, so that nothing comes in
//! between. Whatever the way in, the result goes through [`commit`]: decoding, metadata, rules of
//! the kind, validation, ownership of fields.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kinds, lifecycle,
    merge::{self, Actor, Operation},
    protobuf,
    read::single,
    scale,
    server::{Answer, Call, details},
    status::{Cause, Result, Status},
    store::{Key, Object, State},
    validate,
};

pub(crate) fn create(call: &Call, body: &[u8]) -> Result<Answer> {
    if !call.subresource().is_empty() {
        return lifecycle::create_subresource(call, body);
    }
    if call.resource.verbs.iter().all(|verb| verb == "create") {
        return lifecycle::create_virtual(call, body);
    }
    check_options(call, "CreateOptions")?;
    let (mut new, mut findings) = incoming(call, body)?;
    findings.extend(clean(call, &mut new)?);
    let warnings = judge(call, findings)?;
    check_namespace(call, &mut new)?;
    let mut state = call.server.store.write();
    let name = new["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    lifecycle::check_parent(call, &state, &name)?;
    give_name(call, &state, &mut new)?;
    let key = key_of(call, &new);
    if state.get(call.id(), &key).is_some() {
        return Err(already_exists(call, &key.name));
    }
    let object = commit(call, &mut state, None, new, Operation::Update)?;
    let mut answer = single(call, 201, &object);
    answer.warnings = warnings;
    Ok(answer)
}

pub(crate) fn update(call: &Call, body: &[u8]) -> Result<Answer> {
    check_options(call, "UpdateOptions")?;
    let (mut new, mut findings) = incoming(call, body)?;
    check_namespace(call, &mut new)?;
    let key = call.key();
    match new["metadata"]["name"].as_str().unwrap_or_default() {
        "" => {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                key.name
            )));
        }
        name if name != key.name => {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                key.name
            )));
        }
        _ => {}
    }
    let mut state = call.server.store.write();
    let old = state
        .get(call.id(), &key)
        .ok_or_else(|| call.not_found(&key.name))?;
    let old = old.value();
    if call.subresource() == "scale" {
        let new = scale::update(call, &old, &new)?;
        let object = commit(call, &mut state, Some(old), new, Operation::Update)?;
        return scale::get(call, &object.value());
    }
    check_revision(call, &old, &new, true)?;
    findings.extend(clean(call, &mut new)?);
    let warnings = judge(call, findings)?;
    let object = commit(call, &mut state, Some(old), new, Operation::Update)?;
    let mut answer = single(call, 200, &object);
    answer.warnings = warnings;
    Ok(answer)
}

impl Call {
    pub(crate) fn actor<'a>(&'a self, api_version: &'a str) -> Actor<'a> {
        Actor {
            manager: &self.manager,
            api_version,
            subresource: self.subresource(),
            now: self.now,
        }
    }
}

/// Checks, completes and stores an object; gives what is (or, on a dry run, would be) stored.
pub(crate) fn commit(
    call: &Call,
    state: &mut State,
    old: Option<Value>,
    mut new: Value,
    operation: Operation,
) -> Result<Arc<Object>> {
    strip_type(&mut new);
    match &old {
        None => begin(call, &mut new),
        Some(old) => go_on(call, old, &mut new),
    }
    kinds::default(call.id(), old.as_ref(), &mut new);
    // What the server allots belongs to nobody, unlike its defaults.
    if operation == Operation::Update {
        let api_version = call.resource.api_version();
        let actor = call.actor(&api_version);
        merge::track_update(old.as_ref(), &mut new, &call.resource.schema, &actor)?;
    }
    if let Some(old) = old.as_ref().filter(|_| call.subresource() == "status") {
        let fields = new.pointer_mut("/metadata/managedFields").map(Value::take);
        new["metadata"] = old["metadata"].clone();
        set(
            &mut new["metadata"],
            "managedFields",
            fields.unwrap_or_default(),
        );
    }
    kinds::complete(call, state, old.as_ref(), &mut new)?;
    let causes = check(call, old.as_ref(), &new);
    if !causes.is_empty() {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Status::invalid(
            call.resource.group(),
            &call.resource.kind,
            name,
            &causes,
        ));
    }
    if let Some(old) = &old
        && unchanged(old, &new)
    {
        let key = call.key();
        if let Some(object) = state.get(call.id(), &key) {
            return Ok(object);
        }
    }
    if call.dry_run {
        return Ok(Arc::new(crate::store::preview(&new, old.as_ref())));
    }
    let is_over = !new["metadata"]["deletionTimestamp"].is_null()
        && crate::registry::items(&new["metadata"]["finalizers"]).is_empty()
        && new["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0)
            == 0
        && lifecycle::may_go(call.id(), &new);
    if is_over {
        let object = Arc::new(crate::store::preview(&new, old.as_ref()));
        lifecycle::remove(&call.server, state, call.id(), &object.key);
        return Ok(object);
    }
    let object = state.put(call.id(), new);
    lifecycle::after(&call.server, state, call.id(), &object, old.as_ref());
    Ok(object)
}

/// Metadata of a new object.
fn begin(call: &Call, new: &mut Value) {
    let meta = &mut new["metadata"];
    for gone in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
    ] {
        remove(meta, gone);
    }
    meta["uid"] = uuid::Uuid::new_v4().to_string().into();
    meta["creationTimestamp"] = time(call.now).into();
    // Kinds that do not count keep what they are given.
    if kinds::has_generation(&call.resource) {
        meta["generation"] = 1.into();
    }
    if let Some(namespace) = &call.target.namespace {
        new["metadata"]["namespace"] = namespace.clone().into();
    } else {
        remove(&mut new["metadata"], "namespace");
    }
    if call.resource.has_status() && kinds::resets_status(&call.resource) {
        remove(new, "status");
    }
}

/// What an update cannot change, and what counts as a change.
fn go_on(call: &Call, old: &Value, new: &mut Value) {
    if call.resource.has_status() {
        match call.subresource() {
            "status" => {
                // The metadata that was sent counts until ownership is settled.
                let take = |value: &mut Value, path: &str| {
                    value.pointer_mut(path).map(Value::take).unwrap_or_default()
                };
                let status = take(new, "/status");
                let metadata = take(new, "/metadata");
                *new = old.clone();
                set(new, "status", status);
                new["metadata"] = metadata;
            }
            _ => set(new, "status", old["status"].clone()),
        }
    }
    for kept in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "namespace",
    ] {
        let was = old["metadata"][kept].clone();
        let sent = &new["metadata"][kept];
        // What a client leaves out or cannot know is kept; what it changes is refused later.
        if sent.is_null()
            || matches!(
                kept,
                "generation"
                    | "deletionTimestamp"
                    | "deletionGracePeriodSeconds"
                    | "creationTimestamp"
            )
        {
            set(&mut new["metadata"], kept, was);
        }
    }
    remove(&mut new["metadata"], "selfLink");
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    if kinds::has_generation(&call.resource) && counts_as_new_generation(call, old, new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = generation.into();
    }
}

fn counts_as_new_generation(call: &Call, old: &Value, new: &Value) -> bool {
    let has_status = call.resource.has_status();
    let rest = |value: &Value| -> Vec<(String, Value)> {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter(|(key, _)| *key != "metadata" && !(has_status && *key == "status"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    rest(old) != rest(new)
}

fn check(call: &Call, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let (group, plural) = (call.resource.group(), call.resource.plural());
    let mut causes = validate::metadata(new, group, plural, call.resource.namespaced);
    if let Some(old) = old {
        let changed = validate::metadata_update(old, new);
        // Several layers of the real server look at an update of a built-in kind, and each speaks up.
        let (twice, often) = match call.resource.custom {
            Some(_) => (1, 1),
            None => (2, 4),
        };
        let again = |causes: &[Cause], times| vec![causes; times].concat();
        causes = again(&causes, often);
        causes.extend(again(&changed, twice));
    }
    if call.resource.custom.is_some() {
        match (call.subresource(), call.resource.schema.field("status")) {
            // Through its own door, a status is looked at by itself.
            ("status", Some(schema)) => {
                causes.extend(
                    validate::custom(&new["status"], schema)
                        .into_iter()
                        .map(|cause| Cause {
                            field: format!("status.{}", cause.field),
                            ..cause
                        }),
                );
            }
            _ => causes.extend(validate::custom(new, &call.resource.schema)),
        }
    }
    if group == "apiextensions.k8s.io" && plural == "customresourcedefinitions" {
        causes.extend(validate::crd(new));
    }
    causes
}

/// Whether an update says nothing new; the times in `managedFields` alone are nothing new.
fn unchanged(old: &Value, new: &Value) -> bool {
    let bare = |value: &Value| {
        let mut value = value.clone();
        let entries = value.pointer_mut("/metadata/managedFields");
        for entry in entries.and_then(Value::as_array_mut).into_iter().flatten() {
            remove(entry, "time");
        }
        value
    };
    bare(old) == bare(new)
}

/// The body as a value of this kind, and what is odd about it.
fn incoming(call: &Call, body: &[u8]) -> Result<(Value, Vec<String>)> {
    let kind = match call.subresource() {
        "scale" => "Scale",
        _ => call.resource.kind.as_str(),
    };
    let unrecognized = |status: Status| Status {
        message: format!(
            "the object provided is unrecognized (must be of type {kind}): {}",
            status.message
        ),
        ..status
    };
    let (mut value, findings) = match call.content_type.as_str() {
        "application/vnd.kubernetes.protobuf" if call.resource.custom.is_none() => {
            (protobuf::decode(body)?, Vec::new())
        }
        "application/yaml" => parse_yaml(body)?,
        "" | "application/json" => validate::parse(body).map_err(unrecognized)?,
        _ => return Err(unknown_format()),
    };
    if call.resource.custom.is_some() && value["kind"].is_null() {
        let text = String::from_utf8_lossy(body);
        return Err(unrecognized(Status::bad_request(format!(
            "Object 'Kind' is missing in '{text}' ({})",
            validate::summary(body)
        ))));
    }
    check_type(call, &mut value)?;
    Ok((value, findings))
}

fn unknown_format() -> Status {
    Status::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    )
}

pub(crate) fn parse_yaml(body: &[u8]) -> Result<(Value, Vec<String>)> {
    if body.first() == Some(&b'{') {
        return validate::parse(body);
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    let value = serde_saphyr::from_str(text)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    Ok((value, Vec::new()))
}

/// The object must be of the kind that the path is for. Built-in ones without a type are taken for
/// one of it.
pub(crate) fn check_type(call: &Call, value: &mut Value) -> Result<()> {
    let (expected, expected_kind) = match call.subresource() {
        "scale" => ("autoscaling/v1".to_owned(), "Scale"),
        _ => (call.resource.api_version(), call.resource.kind.as_str()),
    };
    let custom = call.resource.custom.is_some() && call.subresource() != "scale";
    let fallback = if custom { "" } else { &expected };
    let version = value["apiVersion"].as_str().unwrap_or(fallback);
    if version != expected {
        if call.resource.custom.is_some() && !custom {
            return Err(Status::bad_request(
                "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:110\"",
            ));
        }
        if !custom && let Some(kind) = value["kind"].as_str() {
            let known = call.server.registry().by_kind(version, kind).is_some();
            if !known {
                let (_, short) = version.rsplit_once('/').unwrap_or(("", version));
                return Err(Status::bad_request(format!(
                    "{kind} in version \"{short}\" cannot be handled as a {expected_kind}: no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:110\""
                )));
            }
        }
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if let Some(kind) = value["kind"].as_str()
        && kind != expected_kind
    {
        if custom {
            let causes = [Cause {
                reason: "FieldValueInvalid",
                message: format!("Invalid value: \"{kind}\": must be {expected_kind}"),
                field: "kind".into(),
            }];
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Status::invalid(call.resource.group(), kind, name, &causes));
        }
        let (group, version) = expected.rsplit_once('/').unwrap_or(("core", &expected));
        let package = group.split('.').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {expected_kind}: converting ({version}.{kind}) to ({package}.{expected_kind}): unknown conversion"
        )));
    }
    if !value.is_object() {
        *value = json!({});
    }
    value["apiVersion"] = expected.as_str().into();
    value["kind"] = expected_kind.into();
    if value["metadata"].is_null() {
        value["metadata"] = json!({});
    }
    Ok(())
}

pub(crate) fn check_namespace(call: &Call, value: &mut Value) -> Result<()> {
    let Some(namespace) = &call.target.namespace else {
        if call.resource.namespaced {
            return Err(Status::bad_request(
                "an empty namespace may not be set during creation",
            ));
        }
        return Ok(());
    };
    match value["metadata"]["namespace"].as_str() {
        Some(given) if !given.is_empty() && given != namespace => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => {
            value["metadata"]["namespace"] = namespace.clone().into();
            Ok(())
        }
    }
}

/// Drops what the kind does not know, and says what that was.
pub(crate) fn clean(call: &Call, value: &mut Value) -> Result<Vec<String>> {
    let schema = &call.resource.schema;
    if call.resource.custom.is_some() {
        validate::coerce(
            value,
            schema,
            &call.resource.api_version(),
            &call.resource.kind,
        )?;
        let findings = validate::prune(value, schema);
        validate::default(value, schema);
        return Ok(findings);
    }
    validate::decode(
        value,
        schema,
        &call.resource.api_version(),
        &call.resource.kind,
    )
}

/// What becomes of odd fields: nothing, a warning, or a refusal.
pub(crate) fn judge(call: &Call, findings: Vec<String>) -> Result<Vec<String>> {
    match call.query.get("fieldValidation") {
        "Ignore" => Ok(Vec::new()),
        "Strict" if !findings.is_empty() => Err(Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            call.resource.kind,
            call.resource.version,
            call.resource.kind,
            findings.join(", ")
        ))),
        _ => Ok(findings),
    }
}

/// Options of a write that have few values.
pub(crate) fn check_options(call: &Call, kind: &str) -> Result<()> {
    let given = call.query.get("fieldValidation");
    if !matches!(given, "" | "Ignore" | "Warn" | "Strict") {
        let why = format!(
            "Unsupported value: \"{given}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        );
        return Err(Status::options(
            kind,
            "FieldValueNotSupported",
            "fieldValidation",
            &why,
        ));
    }
    Ok(())
}

/// A name of its own, or one made up from `generateName`.
fn give_name(call: &Call, state: &State, new: &mut Value) -> Result<()> {
    let version = new["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    if !matches!(version, "" | "0") {
        return Err(Status::internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if !new["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        return Ok(());
    }
    let prefix = new["metadata"]["generateName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if prefix.is_empty() {
        let causes = [Cause {
            reason: "FieldValueRequired",
            message: "Required value: name or generateName is required".into(),
            field: "metadata.name".into(),
        }];
        return Err(Status::invalid(
            call.resource.group(),
            &call.resource.kind,
            "",
            &causes,
        ));
    }
    let prefix: String = prefix.chars().take(58).collect();
    for _ in 0..8 {
        let name = format!("{prefix}{}", random_suffix());
        new["metadata"]["name"] = name.into();
        if state.get(call.id(), &key_of(call, new)).is_none() {
            return Ok(());
        }
    }
    Ok(())
}

/// Five letters and digits that make no words.
fn random_suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = uuid::Uuid::new_v4().as_u128();
    (0..5)
        .map(|_| {
            let at = usize::try_from(random % 27).unwrap_or(0);
            random /= 27;
            char::from(ALPHABET[at])
        })
        .collect()
}

/// An update must be of the object as it is now, if it says which one it is of.
pub(crate) fn check_revision(call: &Call, old: &Value, new: &Value, is_put: bool) -> Result<()> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let sent = new["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    if sent.is_empty() || sent == "0" {
        if is_put && call.resource.custom.is_some() {
            let causes = [Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: 0: must be specified for an update".into(),
                field: "metadata.resourceVersion".into(),
            }];
            return Err(Status::invalid(
                call.resource.group(),
                call.resource.plural(),
                name,
                &causes,
            ));
        }
    } else if old["metadata"]["resourceVersion"] != sent {
        return Err(modified(call, name));
    }
    let uid = new["metadata"]["uid"].as_str().unwrap_or_default();
    let was = old["metadata"]["uid"].as_str().unwrap_or_default();
    if is_put && !uid.is_empty() && uid != was {
        let place = match (call.resource.group(), &call.resource.custom) {
            (group, Some(_)) => format!("{group}/{}", call.resource.plural()),
            _ => call.resource.plural().to_owned(),
        };
        let namespace = call
            .target
            .namespace
            .as_ref()
            .map_or_else(String::new, |ns| format!("/{ns}"));
        return Err(conflict(
            call,
            name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{place}{namespace}/{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {was}"
            ),
        ));
    }
    Ok(())
}

pub(crate) fn modified(call: &Call, name: &str) -> Status {
    conflict(
        call,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

pub(crate) fn conflict(call: &Call, name: &str, why: &str) -> Status {
    Status {
        details: Some(details(&call.resource, name)),
        ..Status::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                call.resource.qualified()
            ),
        )
    }
}

fn already_exists(call: &Call, name: &str) -> Status {
    Status {
        details: Some(details(&call.resource, name)),
        ..Status::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", call.resource.qualified()),
        )
    }
}

fn key_of(call: &Call, value: &Value) -> Key {
    Key {
        namespace: call.target.namespace.clone().unwrap_or_default(),
        name: value["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

pub(crate) fn typed(call: &Call, mut value: Value) -> Value {
    value["apiVersion"] = call.resource.api_version().into();
    value["kind"] = call.resource.kind.clone().into();
    value
}

fn strip_type(value: &mut Value) {
    remove(value, "apiVersion");
    remove(value, "kind");
}

pub(crate) fn remove(value: &mut Value, key: &str) {
    if let Some(object) = value.as_object_mut() {
        object.remove(key);
    }
}

/// Sets a field, or takes it away if there is nothing to set.
pub(crate) fn set(value: &mut Value, key: &str, new: Value) {
    match new {
        Value::Null => remove(value, key),
        new => value[key] = new,
    }
}

/// A time as Kubernetes writes it.
pub(crate) fn time(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
