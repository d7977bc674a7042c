//! Deletion: at once, after finalizers, after a grace period; of one object or of many.

use serde_json::{Value, json};

use crate::{
    lifecycle, protobuf,
    read::single,
    registry::{ResourceType, items},
    server::{Answer, Call, Inner, details},
    status::{Result, Status},
    store::{Key, ResourceId, State},
    validate,
    write::{conflict, time},
};

/// How a deletion is to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    propagation: Propagation,
    grace: Option<i64>,
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

impl Options {
    /// A deletion that waits for what the object owns.
    pub(crate) fn foreground() -> Self {
        Self {
            propagation: Propagation::Foreground,
            ..Self::default()
        }
    }

    fn read(call: &Call, body: &[u8]) -> Result<Self> {
        let sent = match body {
            [] => json!({}),
            body if call.content_type == "application/vnd.kubernetes.protobuf" => {
                protobuf::decode(body)?
            }
            body => {
                validate::parse(body)
                    .map_err(|status| {
                        // The real server does not show the options again.
                        let (message, _) = status
                            .message
                            .rsplit_once(" (")
                            .unwrap_or((&status.message, ""));
                        Status::internal(message)
                    })?
                    .0
            }
        };
        if sent["propagationPolicy"].is_number() {
            return Err(Status::internal(
                "json: cannot unmarshal number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
            ));
        }
        let policy = match call.query.get("propagationPolicy") {
            "" => sent["propagationPolicy"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            given => given.to_owned(),
        };
        let orphan = match call.query.get("orphanDependents") {
            "" => sent["orphanDependents"].as_bool(),
            given => Some(given == "true"),
        };
        if !policy.is_empty() && orphan.is_some() {
            let why = format!(
                "Invalid value: \"{policy}\": orphanDependents and deletionPropagation cannot be both set"
            );
            return Err(Status::options(
                "DeleteOptions",
                "FieldValueInvalid",
                "propagationPolicy",
                &why,
            ));
        }
        let propagation = match (policy.as_str(), orphan) {
            ("", Some(true)) | ("Orphan", _) => Propagation::Orphan,
            ("" | "Background", _) => Propagation::Background,
            ("Foreground", _) => Propagation::Foreground,
            (other, _) => return Err(unknown_policy(other)),
        };
        let dry = items(&sent["dryRun"]).iter().any(|word| word == "All");
        Ok(Self {
            propagation,
            grace: call
                .query
                .number("gracePeriodSeconds")
                .or_else(|| sent["gracePeriodSeconds"].as_i64()),
            uid: sent["preconditions"]["uid"].as_str().map(str::to_owned),
            revision: sent["preconditions"]["resourceVersion"]
                .as_str()
                .map(str::to_owned),
            dry_run: call.dry_run || dry,
        })
    }
}

fn unknown_policy(policy: &str) -> Status {
    let why = format!(
        "Unsupported value: \"{policy}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
    );
    Status::options(
        "DeleteOptions",
        "FieldValueNotSupported",
        "propagationPolicy",
        &why,
    )
}

pub(crate) fn one(call: &Call, body: &[u8]) -> Result<Answer> {
    let options = Options::read(call, body)?;
    let key = call.key();
    let mut state = call.server.store.write();
    let object = state
        .get(call.id(), &key)
        .ok_or_else(|| call.not_found(&key.name))?;
    for (wanted, have, what) in [
        (&options.uid, object.uid.as_str(), "UID"),
        (
            &options.revision,
            &object.revision.to_string(),
            "ResourceVersion",
        ),
    ] {
        if let Some(wanted) = wanted
            && wanted != have
        {
            let what_happened = match what {
                "UID" => "deleted and then recreated",
                _ => "modified",
            };
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). The object might have been {what_happened}"
            );
            let mut refusal = conflict(call, &key.name, &why);
            // Here the real server names the kind where it names the resource elsewhere.
            let (resource, kind) = (call.resource.qualified(), &call.resource.kind);
            refusal.message = refusal.message.replacen(&resource, kind, 1);
            if let Some(details) = &mut refusal.details {
                details["kind"] = kind.as_str().into();
            }
            return Err(refusal);
        }
    }
    lifecycle::check_deletion(call, &key)?;
    let before = object.clone();
    if options.dry_run {
        return Ok(gone(call, &before.value(), &before));
    }
    delete(&call.server, &mut state, call.id(), &key, &options);
    match state.get(call.id(), &key) {
        Some(still_there) => Ok(single(call, 200, &still_there)),
        None => Ok(gone(call, &before.value(), &before)),
    }
}

/// The answer when nothing is left: the object for some kinds, a word for the others.
fn gone(call: &Call, value: &Value, object: &crate::store::Object) -> Answer {
    if returns_object(&call.resource) {
        let mut value = value.clone();
        let is = call.resource.plural();
        if is == "pods" || is == "namespaces" {
            value["metadata"]["deletionTimestamp"] = time(call.now).into();
            lifecycle::mark_terminating(call.id(), &mut value);
        }
        if is == "pods" {
            value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            let generation = value["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            value["metadata"]["generation"] = generation.into();
        }
        return single(call, 200, &crate::store::preview(&value, Some(&value)));
    }
    let mut about = details(&call.resource, &object.key.name);
    about["uid"] = object.uid.clone().into();
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": about,
    });
    Answer::value(200, &status)
}

/// Kinds whose deletion answers with the object.
fn returns_object(resource: &ResourceType) -> bool {
    resource.group().is_empty()
        && matches!(
            resource.plural(),
            "pods"
                | "services"
                | "serviceaccounts"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
                | "podtemplates"
                | "namespaces"
        )
        || (resource.group(), resource.plural()) == ("storage.k8s.io", "storageclasses")
        || (resource.group(), resource.plural()) == ("storage.k8s.io", "volumeattachments")
        || (resource.group(), resource.plural()) == ("storage.k8s.io", "csinodes")
        || (resource.group(), resource.plural()) == ("storage.k8s.io", "csidrivers")
}

pub(crate) fn many(call: &Call, body: &[u8]) -> Result<Answer> {
    let options = Options::read(call, body)?;
    let selector = call.selector()?;
    let mut state = call.server.store.write();
    let objects = state.objects(call.id());
    let namespace = call.target.namespace.as_deref();
    let chosen: Vec<_> = objects
        .values()
        .filter(|object| namespace.is_none_or(|namespace| object.key.namespace == namespace))
        .filter(|object| selector.matches(object))
        .cloned()
        .collect();
    if !options.dry_run {
        for object in &chosen {
            delete(&call.server, &mut state, call.id(), &object.key, &options);
        }
    }
    let items: Vec<Value> = chosen
        .iter()
        .map(|object| {
            let mut value = object.value();
            if call.resource.custom.is_some() {
                value["apiVersion"] = call.resource.api_version().into();
                value["kind"] = call.resource.kind.clone().into();
            }
            value
        })
        .collect();
    let list = json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.resource.api_version(),
        "metadata": { "resourceVersion": state.revision.to_string() },
        "items": items,
    });
    Ok(Answer::value(200, &list))
}

/// Deletes an object, or marks it until its finalizers are done and its grace is over.
pub(crate) fn delete(
    server: &Inner,
    state: &mut State,
    id: &ResourceId,
    key: &Key,
    options: &Options,
) {
    let Some(object) = state.get(id, key) else {
        return;
    };
    let mut value = object.value();
    let uid = object.uid.clone();
    let is_deleting = !value["metadata"]["deletionTimestamp"].is_null();
    let mut finalizers: Vec<Value> = items(&value["metadata"]["finalizers"]).to_vec();
    let own = match options.propagation {
        Propagation::Foreground => Some("foregroundDeletion"),
        Propagation::Orphan => Some("orphan"),
        Propagation::Background => None,
    };
    if let Some(own) = own
        && !is_deleting
        && !finalizers.iter().any(|f| f == own)
    {
        finalizers.push(own.into());
    }
    let grace = grace(id, &value, options.grace);
    let waits = !finalizers.is_empty() || grace > 0 || !lifecycle::may_go(id, &value);
    let before = value.clone();
    if !is_deleting {
        value["metadata"]["deletionTimestamp"] = deadline(grace).into();
        value["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        if !finalizers.is_empty() {
            value["metadata"]["finalizers"] = finalizers.into();
        }
        lifecycle::mark_terminating(id, &mut value);
        if value["metadata"]["generation"].is_i64() {
            let generation = value["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            value["metadata"]["generation"] = generation.into();
        }
    } else if grace
        < value["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0)
    {
        value["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        value["metadata"]["deletionTimestamp"] = deadline(grace).into();
    }
    if !waits {
        lifecycle::remove(server, state, id, key);
        return;
    }
    if value != before {
        let object = state.put(id, value);
        lifecycle::after(server, state, id, &object, Some(&before));
    }
    lifecycle::collect(server, state, id, key, &uid);
}

fn deadline(grace: i64) -> String {
    let seconds = jiff::SignedDuration::from_secs(grace);
    time(
        jiff::Timestamp::now()
            .saturating_add(seconds)
            .unwrap_or_else(|_| jiff::Timestamp::now()),
    )
}

/// Only pods that may be running get time to end.
fn grace(id: &ResourceId, value: &Value, asked: Option<i64>) -> i64 {
    if !id.group.is_empty() || &*id.plural != "pods" {
        return 0;
    }
    let phase = value["status"]["phase"].as_str().unwrap_or_default();
    let scheduled = value["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    if !scheduled || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(30);
    asked.unwrap_or(own).max(0)
}
