//! Namespaces that objects are restored into: each is looked at once, made if it is not there, and
//! waited for while an old one of its name is on its way out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::Instant};

use super::{calls::Write, existing::is_younger, item::Run, track::Done};

const POLL: Duration = Duration::from_millis(500);

/// Namespaces by their new names.
#[derive(Debug, Default)]
pub(super) struct Namespaces(Mutex<HashMap<String, Looked>>);

/// How a namespace was found, once somebody has looked.
type Looked = Arc<OnceCell<Result<State, String>>>;

/// How a namespace was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It was there.
    Found,
    /// This restore made it.
    Made,
    /// It is not there, and nothing is made now.
    Missing,
}

impl Namespaces {
    fn cell(&self, name: &str) -> Looked {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(cells.entry(name.to_owned()).or_default())
    }
}

impl Run {
    /// Sees to it that a namespace is there; `original` is its name in the archive.
    pub(super) async fn ensure_namespace(
        &self,
        target: &str,
        original: &str,
    ) -> Result<State, String> {
        let cell = self.namespaces.cell(target);
        let mut first = false;
        let state = cell
            .get_or_init(|| {
                first = true;
                self.make_namespace(target, original)
            })
            .await;
        match state {
            // The ones that come later do not wait again, and say so.
            Err(why) if !first && why.starts_with("timed out") => Err(format!(
                "skipping polling for terminating namespace {target}: {why}"
            )),
            other => other.clone(),
        }
    }

    async fn make_namespace(&self, target: &str, original: &str) -> Result<State, String> {
        let path = format!("/api/v1/namespaces/{target}");
        let until = Instant::now() + self.settings.terminating_timeout;
        let mut sent = false;
        loop {
            let found = self.calls.get(&path).await;
            let found = found.map_err(|error| {
                format!(
                    "error getting namespace {target}: {}",
                    super::message(&error)
                )
            })?;
            match found {
                None if self.is_dry() => return Ok(State::Missing),
                None => {
                    // None when it is there after all: somebody else was faster, or the answer to
                    // us was lost.
                    if let Some(state) = self.create_namespace(target, original).await? {
                        return Ok(state);
                    }
                    sent = true;
                }
                Some(live) if is_terminating(&live) && !self.is_dry() => {
                    if Instant::now() >= until {
                        return Err(format!(
                            "timed out waiting for terminating namespace {target} to disappear before restoring"
                        ));
                    }
                    self.log.info(&format!(
                        "Namespace {target} is terminating; waiting until it is gone"
                    ));
                    tokio::time::sleep(POLL).await;
                }
                // One that is younger than a restore that was begun before is that one's work.
                Some(live) if (sent || self.resumed) && is_younger(&live, self.since) => {
                    self.note_namespace(target, original);
                    return Ok(State::Made);
                }
                Some(_) => return Ok(State::Found),
            }
        }
    }

    async fn create_namespace(
        &self,
        target: &str,
        original: &str,
    ) -> Result<Option<State>, String> {
        let object = self.stored_namespace(target, original);
        let what = Write("create namespace");
        match self
            .calls
            .create(what, "/api/v1/namespaces", &object, None)
            .await
        {
            Ok(_) => {
                self.note_namespace(target, original);
                Ok(Some(State::Made))
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
            Err(error) => Err(format!(
                "error creating namespace {target}: {}",
                super::message(&error)
            )),
        }
    }

    /// The namespace as the archive has it, or a bare one.
    fn stored_namespace(&self, target: &str, original: &str) -> Value {
        let stored = self
            .spool
            .find("namespaces", "", original)
            .and_then(|place| self.spool.body(place).ok())
            .and_then(|body| serde_json::from_slice::<Value>(&body).ok())
            .unwrap_or_default();
        let mut object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target}});
        for key in ["labels", "annotations"] {
            if stored["metadata"][key].is_object() {
                object["metadata"][key] = stored["metadata"][key].clone();
            }
        }
        // A label that the cluster keeps in step with the name.
        if target != original
            && let Some(labels) = object["metadata"]["labels"].as_object_mut()
        {
            labels.remove("kubernetes.io/metadata.name");
        }
        object
    }

    fn note_namespace(&self, target: &str, original: &str) {
        self.tracker
            .record("v1/Namespace", "", target, Done::Created);
        // One that is selected counts when its turn comes.
        let stored = self.spool.find("namespaces", "", original);
        if !stored.is_some_and(|place| place.selected) {
            self.progress.grow(1);
            self.progress.more(1);
        }
    }
}

fn is_terminating(namespace: &Value) -> bool {
    namespace["status"]["phase"] == "Terminating"
        || !namespace["metadata"]["deletionTimestamp"].is_null()
}
