//! Calls to the cluster on behalf of a restore: as many at the same time as it takes well, again
//! when it asks for patience.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bowline_vault::crash;
use http::{Method, Request, header};
use kube::{Client, core::Status};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::list::escape;

/// Calls at the same time, to begin with and at most.
const MOST: usize = 16;
/// So many calls in a row that went well allow for one more at the same time.
const CALM: u32 = 64;
/// A call that fails in passing is sent again, so many times.
const TRIES: u32 = 8;
/// One that the API server stumbles over may only seem to; so many times.
const STUMBLES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const LONGEST: Duration = Duration::from_secs(10);

/// The cluster, taken at its own pace.
pub(super) struct Calls {
    client: Client,
    pace: Pace,
    /// Calls sent, for whoever wants to know what an object costs.
    sent: AtomicU64,
}

/// What is wanted of an object that was written: its metadata, as it is now.
#[derive(Debug, Deserialize)]
pub(super) struct Head {
    pub(super) metadata: Value,
}

/// How a write is named where a test may end the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write(pub(super) &'static str);

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            pace: Pace::new(MOST),
            sent: AtomicU64::new(0),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Calls sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Reads an object; none when it is not there.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>, kube::Error> {
        match self.call(Method::GET, path, "", Vec::new()).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object in somebody's name. An answer that was lost leads to "already exists".
    pub(super) async fn create(
        &self,
        what: Write,
        collection: &str,
        object: &Value,
        manager: Option<&str>,
    ) -> Result<Head, kube::Error> {
        let path = match manager {
            Some(manager) => format!("{collection}?fieldManager={}", escape(manager)),
            None => collection.to_owned(),
        };
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.write(what, Method::POST, &path, JSON, body).await
    }

    /// Merges a patch into an object.
    pub(super) async fn patch(
        &self,
        what: Write,
        path: &str,
        patch: &Value,
    ) -> Result<Head, kube::Error> {
        let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
        self.write(what, Method::PATCH, path, MERGE, body).await
    }

    /// Tries a patch, without doing it.
    pub(super) async fn try_patch(&self, path: &str, patch: &Value) -> Result<(), kube::Error> {
        let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
        let path = format!("{path}?dryRun=All");
        let tried = self.call::<Head>(Method::PATCH, &path, MERGE, body).await;
        tried.map(drop)
    }

    /// Tries to create an object, without doing it.
    pub(super) async fn try_create(
        &self,
        collection: &str,
        object: &Value,
    ) -> Result<(), kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let path = format!("{collection}?dryRun=All");
        let tried = self.call::<Head>(Method::POST, &path, JSON, body).await;
        tried.map(drop)
    }

    /// Replaces an object.
    pub(super) async fn replace(
        &self,
        what: Write,
        path: &str,
        object: &Value,
    ) -> Result<Head, kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.write(what, Method::PUT, path, JSON, body).await
    }

    async fn write(
        &self,
        what: Write,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<Head, kube::Error> {
        crash::here(&format!("before {}", what.0));
        let done = self.call(method, path, kind, body).await;
        crash::here(&format!("after {}", what.0));
        done
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<T, kube::Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut request = Request::builder().method(&method).uri(path);
            if !kind.is_empty() {
                request = request.header(header::CONTENT_TYPE, kind);
            }
            let request = request.body(body.clone()).map_err(kube::Error::HttpError)?;
            let done = {
                let _turn = self.pace.turn().await;
                self.sent.fetch_add(1, Ordering::Relaxed);
                self.client.request::<T>(request).await
            };
            match done {
                Ok(object) => {
                    self.pace.well();
                    return Ok(object);
                }
                Err(error) if tries < most(&method, &error) => {
                    if is_busy(&error) {
                        self.pace.slower();
                    }
                    let pause = wish(&error).unwrap_or_else(|| PAUSE * (1 << tries.min(7)));
                    tokio::time::sleep(pause.min(LONGEST)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

fn is_busy(error: &kube::Error) -> bool {
    status(error).is_some_and(|s| s.code == 429)
}

/// How often a call that ended like this is sent, if it may work a moment later.
fn most(method: &Method, error: &kube::Error) -> u32 {
    match error {
        kube::Error::Api(status) => match status.code {
            // Others create at the same time, and something is counted.
            409 if method == Method::POST && status.reason == "Conflict" => TRIES,
            429 | 502 | 503 | 504 => TRIES,
            _ if status.reason == "ServerTimeout" => TRIES,
            // The store behind it changes its leader; or a webhook does not answer, and will not.
            500 => STUMBLES,
            _ => 1,
        },
        kube::Error::HyperError(_) | kube::Error::Service(_) => TRIES,
        _ => 1,
    }
}

/// How long the API server wants us to wait.
fn wish(error: &kube::Error) -> Option<Duration> {
    let seconds = status(error)?.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// How many calls go out at the same time: half as many when the cluster is busy, more again while
/// it is not.
#[derive(Debug)]
struct Pace {
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// Turns to take away when they come back.
    debt: usize,
    calm: u32,
}

/// One call's turn.
struct Turn<'a> {
    pace: &'a Pace,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        if state.debt > 0
            && let Some(permit) = self.permit.take()
        {
            state.debt -= 1;
            permit.forget();
        }
    }
}

impl Pace {
    fn new(limit: usize) -> Self {
        Self {
            turns: Semaphore::new(limit),
            state: Mutex::new(State {
                limit,
                debt: 0,
                calm: 0,
            }),
        }
    }

    async fn turn(&self) -> Turn<'_> {
        let permit = self.turns.acquire().await.expect("nobody closes it");
        Turn {
            pace: self,
            permit: Some(permit),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn well(&self) {
        let mut state = self.state();
        state.calm += 1;
        if state.calm < CALM || state.limit >= MOST {
            return;
        }
        state.calm = 0;
        state.limit += 1;
        if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.turns.add_permits(1);
        }
    }

    fn slower(&self) {
        let mut state = self.state();
        // Once for each wave of refusals: those that were under way do not count again.
        if state.calm == 0 && state.limit < MOST {
            return;
        }
        let fewer = state.limit / 2;
        if fewer > 0 {
            state.debt += state.limit - fewer;
            state.limit = fewer;
        }
        state.calm = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_cluster_gets_half_and_a_calm_one_more() {
        let pace = Pace::new(MOST);
        let turns: Vec<_> = futures::future::join_all((0..MOST).map(|_| pace.turn())).await;
        pace.slower();
        pace.slower();
        drop(turns);
        assert_eq!(pace.turns.available_permits(), MOST / 2);
        for _ in 0..CALM {
            pace.well();
        }
        assert_eq!(pace.turns.available_permits(), MOST / 2 + 1);
        for _ in 0..10_000 {
            pace.well();
        }
        assert_eq!(pace.turns.available_permits(), MOST);
    }
}
