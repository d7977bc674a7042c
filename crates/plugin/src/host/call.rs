//! Calls to a program: its process is started at the first, and again when it has died.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::Stream;
use prost::Message;
use tokio::{sync::Mutex, time::timeout};
use tonic::Streaming;

use super::{
    Settings,
    connection::Connection,
    launch::Process,
    log::{Level, Line},
};
use crate::{
    Error, Result, Status,
    error::Code,
    wire::{Addressed, Empty, InitRequest, Method},
};

/// So often a process is started again without a call that went well.
const RESTARTS: u32 = 10;
/// After this, and each time again, it is said that a call has no answer yet.
const STALLED: Duration = Duration::from_secs(60);

/// A program, and the process that runs it now.
pub(super) struct Program {
    path: PathBuf,
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    process: Option<Arc<Process>>,
    /// What has to be said to a new process first.
    inits: Vec<(Method<InitRequest, Empty>, InitRequest)>,
    /// Services and names that this process was asked for.
    asked: HashSet<(&'static str, String)>,
    failures: u32,
}

/// What a call is about, for when it takes long.
pub(super) type About<'a> = &'a (dyn Fn() -> String + Sync);

impl Program {
    pub(super) fn new(path: &Path, settings: &Settings) -> Self {
        Self {
            path: path.to_owned(),
            settings: settings.clone(),
            state: Mutex::default(),
        }
    }

    /// Sets a plugin up, now and whenever its process has to be started again.
    pub(super) async fn init(
        &self,
        method: Method<InitRequest, Empty>,
        request: InitRequest,
    ) -> Result<()> {
        let mut state = self.state.lock().await;
        let process = self.ready(&mut state).await?;
        self.unary(&process, method, request.clone(), &|| {
            "its setup".to_owned()
        })
        .await?;
        let key = (method.service(), request.plugin.clone());
        let other = |(of, old): &(Method<InitRequest, Empty>, InitRequest)| {
            (of.service(), &old.plugin) != (key.0, &key.1)
        };
        state.inits.retain(other);
        state.inits.push((method, request));
        state.asked.insert(key);
        Ok(())
    }

    /// One request, one answer.
    pub(super) async fn call<Q, S>(
        &self,
        method: Method<Q, S>,
        request: Q,
        about: About<'_>,
    ) -> Result<S>
    where
        Q: Addressed,
        S: Message + Default + 'static,
    {
        let mut state = self.state.lock().await;
        let process = self.ready(&mut state).await?;
        let key = (method.service(), request.plugin().to_owned());
        // Plugins in Go make what answers at the first call, and not safely: nobody else comes in.
        if state.asked.contains(&key) {
            drop(state);
            return self.unary(&process, method, request, about).await;
        }
        let answer = self.unary(&process, method, request, about).await;
        state.asked.insert(key);
        answer
    }

    /// Many requests, one answer.
    pub(super) async fn upload<Q, S>(
        &self,
        method: Method<Q, S>,
        requests: impl Stream<Item = Q> + Send + 'static,
        about: About<'_>,
    ) -> Result<S>
    where
        Q: Addressed,
        S: Message + Default + 'static,
    {
        let process = self.ready(&mut *self.state.lock().await).await?;
        let sent = process.connection.upload(method, requests);
        self.seen_through(&process, method.path, about, sent).await
    }

    /// One request, many answers.
    pub(super) async fn download<Q, S>(
        &self,
        method: Method<Q, S>,
        request: Q,
        about: About<'_>,
    ) -> Result<Streaming<S>>
    where
        Q: Addressed,
        S: Message + Default + 'static,
    {
        let process = self.ready(&mut *self.state.lock().await).await?;
        let asked = process.connection.download(method, request);
        self.seen_through(&process, method.path, about, asked).await
    }

    async fn unary<Q, S>(
        &self,
        process: &Process,
        method: Method<Q, S>,
        request: Q,
        about: About<'_>,
    ) -> Result<S>
    where
        Q: Addressed,
        S: Message + Default + 'static,
    {
        let asked = process.connection.unary(method, request);
        self.seen_through(process, method.path, about, asked).await
    }

    /// Waits for an answer, says so when that takes long, and why when there is none.
    async fn seen_through<S>(
        &self,
        process: &Process,
        path: &str,
        about: About<'_>,
        call: impl Future<Output = Result<S, tonic::Status>>,
    ) -> Result<S> {
        let mut call = pin!(call);
        let mut waited = Duration::ZERO;
        let answer = loop {
            match timeout(STALLED, &mut call).await {
                Ok(answer) => break answer,
                Err(_) => {
                    waited += STALLED;
                    self.say_stalled(path, waited, &about());
                }
            }
        };
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        // A connection that breaks says little; how the process ended says more.
        let is_broken = std::error::Error::source(&error).is_some();
        if is_broken && let Some(how) = process.exits_soon().await {
            return Err(Error::Status(Status {
                code: Code::Unavailable,
                message: format!("plugin {} is gone: {how}", self.path.display()),
                place: None,
            }));
        }
        Err(error.into())
    }

    fn say_stalled(&self, path: &str, waited: Duration, about: &str) {
        let (_, method) = path.rsplit_once('/').unwrap_or(("", path));
        let message = format!(
            "plugin {} has not answered {method} for {} s ({about})",
            self.path.display(),
            waited.as_secs()
        );
        tracing::warn!("{message}");
        self.settings.say(Line {
            level: Level::Info,
            message,
            fields: Vec::new(),
        });
    }

    /// The process, which is started if it is not there, or not any more.
    async fn ready(&self, state: &mut State) -> Result<Arc<Process>> {
        if let Some(process) = &state.process
            && process.exited().is_none()
        {
            return Ok(Arc::clone(process));
        }
        if state.failures > RESTARTS {
            return Err(Error::new(
                "unable to restart plugin process: exceeded maximum number of reset failures",
            ));
        }
        if let Some(dead) = state.process.take().and_then(|process| process.exited()) {
            tracing::warn!(plugin = %self.path.display(), "{dead}; it is started again");
        }
        state.asked.clear();
        let process = match self.start(state).await {
            Ok(process) => process,
            Err(error) => {
                state.failures += 1;
                return Err(error);
            }
        };
        state.failures = 0;
        Ok(Arc::clone(state.process.insert(Arc::new(process))))
    }

    async fn start(&self, state: &mut State) -> Result<Process> {
        let process = Process::start(&self.path, &self.settings).await?;
        for (method, request) in &state.inits {
            let again = || "its setup".to_owned();
            self.unary(&process, *method, request.clone(), &again)
                .await?;
            state
                .asked
                .insert((method.service(), request.plugin.clone()));
        }
        Ok(process)
    }

    /// Ends the process, if there is one.
    pub(super) async fn stop(&self) {
        let process = self.state.lock().await.process.take();
        if let Some(process) = process.and_then(Arc::into_inner) {
            process.stop().await;
        }
    }
}

/// A connection for one who asks only what there is.
pub(super) async fn once<S>(
    path: &Path,
    settings: &Settings,
    ask: impl AsyncFnOnce(&Connection) -> Result<S>,
) -> Result<S> {
    let process = Process::start(path, settings).await?;
    let answer = ask(&process.connection).await;
    process.stop().await;
    answer
}
