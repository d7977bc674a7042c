//! Watch: every change of a selection, from a moment on.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt, channel::Channel};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{sync::watch::Receiver, time::Instant};

use crate::{
    read::{self, expired, partial, plain_revision_error, revision, row, table, with_type},
    request::Form,
    selector::Selector,
    server::{Answer, BoxError, Call},
    status::{Result, Status},
    store::{Change, Event, Object},
};

/// How often a quiet watch is told where it is, if it asks for that.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long a watch lasts that does not say.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Where a watch begins.
enum Start {
    /// With all that is there now.
    Now,
    /// With what came after this revision.
    After(u64),
}

pub(crate) fn start(call: &Call) -> Result<Answer> {
    let selector = call.selector()?;
    let wanted = call.query.get("resourceVersion");
    let initial = call.query.get("sendInitialEvents");
    let how = call.query.get("resourceVersionMatch");
    check_initial_events(initial, how)?;
    let begin = match (initial, wanted) {
        ("true", _) | (_, "" | "0") => Start::Now,
        (_, wanted) => Start::After(revision(wanted).map_err(plain_revision_error)?),
    };
    if call.query.get("sendInitialEvents") == "false" && matches!(wanted, "" | "0") {
        let now = call.server.store.read().revision;
        return Ok(stream(call, selector, Start::After(now)));
    }
    Ok(stream(call, selector, begin))
}

fn check_initial_events(initial: &str, how: &str) -> Result<()> {
    let (field, message) = match (initial, how) {
        ("", "") => return Ok(()),
        ("", _) => (
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (_, "NotOlderThan") => return Ok(()),
        (_, "") => (
            "resourceVersionMatch",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        _ => (
            "resourceVersionMatch",
            "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
        ),
    };
    let reason = if message.starts_with("Forbidden") {
        "FieldValueForbidden"
    } else {
        "FieldValueNotSupported"
    };
    Err(Status {
        details: Some(
            json!({ "kind": "ListOptions", "group": "meta.k8s.io", "causes": [{
            "reason": reason, "message": message, "field": field,
        }] }),
        ),
        ..Status::new(
            422,
            "Invalid",
            format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}"),
        )
    })
}

fn stream(call: &Call, selector: Selector, begin: Start) -> Answer {
    let (sender, body) = Channel::<Bytes, BoxError>::new(64);
    let seconds = call.query.number("timeoutSeconds").filter(|s| *s > 0);
    let timeout = seconds.map_or(TIMEOUT, |s| Duration::from_secs(s.unsigned_abs()));
    // The first look happens before the answer, so that nothing after it is missed.
    let (first, position, changes) = {
        let mut state = call.server.store.write();
        let now = state.revision;
        let table = state.table_mut(call.id());
        let changes = table.subscribe();
        match begin {
            Start::Now => (Ok(table.objects.clone()), now, changes),
            Start::After(revision) if revision > now => {
                (Err(Some(read::too_new(revision, now))), now, changes)
            }
            Start::After(revision) => match table.events_after(revision) {
                Some(_) => (Err(None), revision, changes),
                None => {
                    let message = format!("too old resource version: {revision} ({now})");
                    (Err(Some(expired(&message))), now, changes)
                }
            },
        }
    };
    let watcher = Watcher {
        call: call.shallow(),
        selector,
        position,
        headers_sent: false,
        bookmarks: call.query.is_true("allowWatchBookmarks"),
    };
    let mark_initial = call.query.is_true("sendInitialEvents") && watcher.bookmarks;
    tokio::spawn(watcher.run(sender, first, changes, timeout, mark_initial));
    let mut answer = Answer::bytes(200, Bytes::new());
    answer.body = body.boxed();
    answer
}

struct Watcher {
    call: Call,
    selector: Selector,
    position: u64,
    headers_sent: bool,
    bookmarks: bool,
}

type Sender = http_body_util::channel::Sender<Bytes, BoxError>;
type First = std::result::Result<Arc<BTreeMap<crate::store::Key, Arc<Object>>>, Option<Status>>;

impl Watcher {
    async fn run(
        mut self,
        mut sender: Sender,
        first: First,
        mut changes: Receiver<u64>,
        timeout: Duration,
        mark_initial: bool,
    ) {
        let end = Instant::now() + timeout;
        match first {
            Ok(objects) => {
                for object in objects.values() {
                    if !self.in_scope(object) {
                        continue;
                    }
                    let line = self.line("ADDED", object);
                    if send(&mut sender, line).await.is_err() {
                        return;
                    }
                }
                if mark_initial && send(&mut sender, self.bookmark(true)).await.is_err() {
                    return;
                }
            }
            Err(Some(status)) => {
                let _ = send(&mut sender, error_line(&status)).await;
                return;
            }
            Err(None) => {}
        }
        let mut next_bookmark = Instant::now() + BOOKMARKS;
        loop {
            let events = {
                let state = self.call.server.store.read();
                match state.table(self.call.id()) {
                    Some(table) => table.events_after(self.position).ok_or(state.revision),
                    // The kind itself is gone.
                    None => return,
                }
            };
            match events {
                Ok(events) => {
                    for event in events {
                        self.position = event.revision;
                        if let Some(line) = self.event(&event)
                            && send(&mut sender, line).await.is_err()
                        {
                            return;
                        }
                    }
                }
                Err(now) => {
                    let message = format!("too old resource version: {} ({now})", self.position);
                    let _ = send(&mut sender, error_line(&expired(&message))).await;
                    return;
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(end) => return,
                () = tokio::time::sleep_until(next_bookmark), if self.bookmarks => {
                    next_bookmark = Instant::now() + BOOKMARKS;
                    if send(&mut sender, self.bookmark(false)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn in_scope(&self, object: &Object) -> bool {
        let namespace = self.call.target.namespace.as_deref();
        namespace.is_none_or(|namespace| object.key.namespace == namespace)
            && self.selector.matches(object)
    }

    /// What an event means for this selection: an object may come into it or leave it.
    fn event(&mut self, event: &Event) -> Option<Bytes> {
        let is = self.in_scope(&event.object);
        let was = event
            .previous
            .as_ref()
            .is_some_and(|previous| self.in_scope(previous));
        let kind = match (event.change, was, is) {
            (Change::Deleted, true, _) | (Change::Modified, true, false) => "DELETED",
            (Change::Added, _, true) | (Change::Modified, false, true) => "ADDED",
            (Change::Modified, true, true) => "MODIFIED",
            _ => return None,
        };
        if event.change == Change::Modified && kind == "DELETED" {
            // The client is shown the last state that it selected, at the revision of the change.
            let previous = event.previous.as_ref()?;
            let mut value = previous.value();
            value["metadata"]["resourceVersion"] = event.revision.to_string().into();
            return Some(self.value_line(kind, &value));
        }
        Some(self.line(kind, &event.object))
    }

    fn line(&mut self, kind: &str, object: &Object) -> Bytes {
        if self.call.form != Form::Plain {
            return self.value_line(kind, &object.value());
        }
        let mut out = BytesMut::with_capacity(object.body.len() + 128);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        out.put_slice(&with_type(&self.call.resource, object));
        out.put_slice(b"}\n");
        out.freeze()
    }

    fn value_line(&mut self, kind: &str, value: &Value) -> Bytes {
        let object = match self.call.form {
            Form::Plain => {
                let mut object = value.clone();
                object["apiVersion"] = self.call.resource.api_version().into();
                object["kind"] = self.call.resource.kind.clone().into();
                object
            }
            Form::Metadata => partial(value, "PartialObjectMetadata"),
            Form::Table => {
                self.call.now = Timestamp::now();
                let metadata = json!({ "resourceVersion": value["metadata"]["resourceVersion"] });
                let headers = !std::mem::replace(&mut self.headers_sent, true);
                table(&self.call, &metadata, vec![row(&self.call, value)], headers)
            }
        };
        json_line(&json!({ "type": kind, "object": object }))
    }

    fn bookmark(&mut self, initial: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": self.position.to_string() });
        if initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.call.form {
            Form::Table => table(&self.call, &metadata, Vec::new(), false),
            _ => json!({
                "kind": self.call.resource.kind,
                "apiVersion": self.call.resource.api_version(),
                "metadata": metadata,
            }),
        };
        json_line(&json!({ "type": "BOOKMARK", "object": object }))
    }
}

async fn send(sender: &mut Sender, line: Bytes) -> std::result::Result<(), ()> {
    sender.send(Frame::data(line)).await.map_err(drop)
}

fn error_line(status: &Status) -> Bytes {
    json_line(&json!({ "type": "ERROR", "object": status.to_value() }))
}

fn json_line(value: &Value) -> Bytes {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

impl Call {
    /// What a watch needs of a call for as long as it lasts.
    fn shallow(&self) -> Self {
        Self {
            server: self.server.clone(),
            resource: self.resource.clone(),
            target: self.target.clone(),
            query: self.query.clone(),
            form: self.form,
            manager: String::new(),
            content_type: String::new(),
            now: self.now,
            dry_run: false,
        }
    }
}
