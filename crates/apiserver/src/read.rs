//! Get and list: objects, tables and metadata, in pages of one moment.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

use crate::{
    protobuf::base64,
    registry::ResourceType,
    request::Form,
    selector::Selector,
    server::{Answer, Call},
    status::{Cause, Result, Status},
    store::{Key, Object, Objects},
};

/// Snapshots of lists that somebody may page on in.
#[derive(Default)]
pub(crate) struct Pages {
    newest: VecDeque<(String, u64, Arc<Objects>)>,
}

/// How many paged lists can be under way before the oldest is forgotten.
const PAGES: usize = 256;

impl Pages {
    pub(crate) fn clear(&mut self) {
        self.newest.clear();
    }

    fn keep(&mut self, revision: u64, objects: Arc<Objects>) -> String {
        if let Some((id, ..)) = self
            .newest
            .iter()
            .find(|(_, r, o)| *r == revision && Arc::ptr_eq(o, &objects))
        {
            return id.clone();
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        self.newest.push_back((id.clone(), revision, objects));
        while self.newest.len() > PAGES {
            self.newest.pop_front();
        }
        id
    }

    fn find(&self, id: &str) -> Option<(u64, Arc<Objects>)> {
        let found = self.newest.iter().find(|(known, ..)| known == id)?;
        Some((found.1, found.2.clone()))
    }
}

pub(crate) fn get(call: &Call) -> Result<Answer> {
    check_form(call)?;
    let state = call.server.store.read();
    let key = call.key();
    let wanted = call.query.get("resourceVersion");
    if !wanted.is_empty() {
        revision(wanted).map_err(plain_revision_error)?;
    }
    let object = state
        .get(call.id(), &key)
        .ok_or_else(|| call.not_found(&key.name))?;
    if call.subresource() == "scale" {
        return crate::scale::get(call, &object.value());
    }
    Ok(single(call, 200, &object))
}

/// A table holds as much of each object as one of three words says.
fn check_form(call: &Call) -> Result<()> {
    let given = call.query.get("includeObject");
    if call.form == Form::Table && !matches!(given, "" | "None" | "Metadata" | "Object") {
        return Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: \"{given}\": must be 'Metadata', 'Object', 'None', or empty"
        )));
    }
    Ok(())
}

/// One object in the form that was asked for.
pub(crate) fn single(call: &Call, code: u16, object: &Object) -> Answer {
    match call.form {
        Form::Plain => Answer::bytes(code, with_type(&call.resource, object)),
        Form::Metadata => Answer::value(code, &partial(&object.value(), "PartialObjectMetadata")),
        Form::Table => {
            let rows = vec![row(call, &object.value())];
            let metadata = json!({ "resourceVersion": object.revision.to_string() });
            Answer::value(code, &table(call, &metadata, rows, true))
        }
    }
}

/// An object as bytes, with its apiVersion and kind in front.
pub(crate) fn with_type(resource: &ResourceType, object: &Object) -> BytesMut {
    let mut out = BytesMut::with_capacity(object.body.len() + 96);
    put_with_type(&mut out, resource, object);
    out
}

fn put_with_type(out: &mut BytesMut, resource: &ResourceType, object: &Object) {
    out.put_slice(b"{\"apiVersion\":\"");
    out.put_slice(resource.api_version().as_bytes());
    out.put_slice(b"\",\"kind\":\"");
    out.put_slice(resource.kind.as_bytes());
    out.put_slice(b"\",");
    out.put_slice(&object.body[1..]);
}

pub(crate) fn list(call: &Call) -> Result<Answer> {
    check_form(call)?;
    let page = Page::read(call)?;
    match call.form {
        Form::Plain => Ok(Answer::bytes(200, plain_list(call, &page))),
        Form::Metadata => {
            let items: Vec<Value> = page
                .items
                .iter()
                .map(|object| partial(&object.value(), "PartialObjectMetadata"))
                .collect();
            let list = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": page.metadata(false),
                "items": items,
            });
            Ok(Answer::value(200, &list))
        }
        Form::Table => {
            let rows = page
                .items
                .iter()
                .map(|object| row(call, &object.value()))
                .collect();
            Ok(Answer::value(
                200,
                &table(call, &page.metadata(false), rows, true),
            ))
        }
    }
}

fn plain_list(call: &Call, page: &Page) -> BytesMut {
    let size: usize = page.items.iter().map(|object| object.body.len() + 1).sum();
    let mut out = BytesMut::with_capacity(size + 256);
    let head = json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.resource.api_version(),
        "metadata": page.metadata(call.resource.custom.is_some()),
    });
    let head = head.to_string();
    out.put_slice(&head.as_bytes()[..head.len() - 1]);
    out.put_slice(b",\"items\":[");
    for (at, object) in page.items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        // Items of built-in lists carry no type of their own.
        match &call.resource.custom {
            Some(_) => put_with_type(&mut out, &call.resource, object),
            None => out.put_slice(&object.body),
        }
    }
    out.put_slice(b"]}");
    out
}

/// What a list gives: the items, the moment they are from, and where the next page begins.
struct Page {
    revision: u64,
    items: Vec<Arc<Object>>,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Page {
    /// Lists of custom kinds say that there is no next page, others say nothing.
    fn metadata(&self, custom: bool) -> Value {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if let Some(next) = &self.next {
            metadata["continue"] = next.as_str().into();
        } else if custom {
            metadata["continue"] = "".into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }

    fn read(call: &Call) -> Result<Self> {
        let selector = call.selector()?;
        let limit = call.query.number("limit").filter(|limit| *limit > 0);
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (revision, objects, after) = Self::moment(call)?;
        let namespace = call.target.namespace.as_deref();
        let start = match (&after, namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included(Key {
                namespace: namespace.to_owned(),
                name: String::new(),
            }),
            (None, None) => Bound::Unbounded,
        };
        let in_scope = |key: &Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        let mut rest = objects
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| in_scope(key));
        let mut items = Vec::new();
        let mut more = false;
        for (_, object) in rest.by_ref() {
            if !selector.matches(object) {
                continue;
            }
            if limit.is_some_and(|limit| items.len() >= limit) {
                more = true;
                break;
            }
            items.push(object.clone());
        }
        let next = items.last().filter(|_| more).map(|last| {
            let id = call.server.pages().keep(revision, objects.clone());
            token(&id, revision, &last.key)
        });
        // With a selector, nobody counts what is left.
        let remaining = (more && selector.is_everything()).then(|| rest.count() + 1);
        Ok(Self {
            revision,
            items,
            next,
            remaining,
        })
    }

    /// The objects to list from: those of now, or of the list that is paged on in.
    fn moment(call: &Call) -> Result<(u64, Arc<Objects>, Option<Key>)> {
        let given = call.query.get("continue");
        let wanted = call.query.get("resourceVersion");
        if given.is_empty() {
            let state = call.server.store.read();
            if !wanted.is_empty() {
                let wanted = revision(wanted)?;
                if wanted > state.revision {
                    return Err(too_new(wanted, state.revision));
                }
                if call.query.get("resourceVersionMatch") == "Exact" && wanted < state.revision {
                    check_version_match(call)?;
                    let past = state.table(call.id()).map(|table| table.objects_at(wanted));
                    return match past {
                        Some(Some(objects)) => Ok((wanted, objects, None)),
                        None => Ok((wanted, Arc::default(), None)),
                        Some(None) => Err(expired(
                            "The resourceVersion for the provided list is too old.",
                        )),
                    };
                }
            }
            check_version_match(call)?;
            return Ok((state.revision, state.objects(call.id()), None));
        }
        if !wanted.is_empty() && wanted != "0" {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (id, after) = read_token(given).map_err(|why| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        })?;
        match call.server.pages().find(&id) {
            Some((revision, objects)) => Ok((revision, objects, Some(after))),
            None => Err(expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            )),
        }
    }
}

fn check_version_match(call: &Call) -> Result<()> {
    let how = call.query.get("resourceVersionMatch");
    let version = call.query.get("resourceVersion");
    let mut causes = Vec::new();
    let mut refuse = |reason, field: &str, message: String| {
        causes.push(Cause {
            reason,
            message,
            field: field.to_owned(),
        });
    };
    const FORBIDDEN: &str = "FieldValueForbidden";
    match how {
        "" => {}
        "Exact" | "NotOlderThan" if version.is_empty() => refuse(
            FORBIDDEN,
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
                .into(),
        ),
        "Exact" if version == "0" => refuse(
            FORBIDDEN,
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
                .into(),
        ),
        "Exact" | "NotOlderThan" => {}
        other => refuse(
            "FieldValueNotSupported",
            "resourceVersionMatch",
            format!(
                "Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\", \"\""
            ),
        ),
    }
    if !call.query.get("sendInitialEvents").is_empty() {
        let message = "Forbidden: sendInitialEvents is forbidden for list";
        refuse(FORBIDDEN, "sendInitialEvents", message.into());
    }
    match causes.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid("meta.k8s.io", "ListOptions", "", &causes)),
    }
}

impl Call {
    pub(crate) fn selector(&self) -> Result<Selector> {
        Selector::parse(
            self.query.get("labelSelector"),
            self.query.get("fieldSelector"),
            &self.resource,
        )
    }
}

/// A revision that a client sent.
pub(crate) fn revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
        ))
    })
}

/// Single objects and watches do not dress up that error as lists do.
pub(crate) fn plain_revision_error(status: Status) -> Status {
    Status::internal(status.message.replacen("invalid resource version: ", "", 1))
}

pub(crate) fn too_new(wanted: u64, current: u64) -> Status {
    Status {
        details: Some(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        })),
        ..Status::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {wanted}, current: {current}"),
        )
    }
}

pub(crate) fn expired(message: &str) -> Status {
    Status::new(410, "Expired", message)
}

/// The next page's place: the snapshot and the last key, in the envelope that clients know.
fn token(id: &str, revision: u64, last: &Key) -> String {
    let start = format!("{id}/{}/{}", last.namespace, last.name);
    let token = json!({ "v": "meta.k8s.io/v1", "rv": revision, "start": start });
    let text = base64(token.to_string().as_bytes());
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

fn read_token(token: &str) -> std::result::Result<(String, Key), String> {
    let bytes = unbase64(token).ok_or("illegal base64 data")?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    match token["v"].as_str().unwrap_or_default() {
        "meta.k8s.io/v1" => {}
        other => {
            return Err(format!(
                "server does not recognize this encoded version {other}"
            ));
        }
    }
    let start = token["start"].as_str().unwrap_or_default();
    let mut parts = start.splitn(3, '/').map(str::to_owned);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(id), Some(namespace), Some(name)) => Ok((id, Key { namespace, name })),
        _ => Err("encoded start is not one of ours".to_owned()),
    }
}

/// Undoes URL-safe base64 without padding.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut group, mut bits) = (0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        group = group << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits & 255) as u8);
        }
    }
    Some(bytes)
}

/// The metadata of an object alone.
pub(crate) fn partial(value: &Value, kind: &str) -> Value {
    json!({
        "kind": kind,
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"],
    })
}

/// A row of a table: cells, and as much of the object as was asked for.
pub(crate) fn row(call: &Call, value: &Value) -> Value {
    let object = match call.query.get("includeObject") {
        "None" => Value::Null,
        "Object" => {
            let mut object = value.clone();
            object["apiVersion"] = call.resource.api_version().into();
            object["kind"] = call.resource.kind.clone().into();
            object
        }
        _ => partial(value, "PartialObjectMetadata"),
    };
    json!({ "cells": call.resource.columns.cells(value, call.now), "object": object })
}

/// A table around rows; headers are sent once in a stream.
pub(crate) fn table(call: &Call, metadata: &Value, rows: Vec<Value>, headers: bool) -> Value {
    let definitions = match headers {
        true => Value::from(call.resource.columns.definitions()),
        false => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}
