//! Work that takes a while, each with a task of its own: backups and restores.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::{self, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Context, Result, context::Running};

/// The longest pause before another try.
const LONGEST: Duration = Duration::from_secs(60);

/// What is being worked on, and what failed in passing and waits for another try.
pub(crate) struct Runs {
    ctx: Arc<Context>,
    /// Where it is said that somebody works on something.
    running: fn(&Context) -> &Running,
    tasks: JoinSet<Result<()>>,
    names: HashMap<task::Id, String>,
    cancels: HashMap<String, CancellationToken>,
    /// When to try again, and how long that took to come.
    pauses: HashMap<String, (Instant, Duration)>,
}

impl Runs {
    pub(crate) fn new(ctx: &Arc<Context>, running: fn(&Context) -> &Running) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            running,
            tasks: JoinSet::new(),
            names: HashMap::new(),
            cancels: HashMap::new(),
            pauses: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Gives something a task of its own, unless it has one or is to wait. The token ends that task
    /// alone, or with all work of this server.
    pub(crate) fn start<F>(&mut self, name: &str, work: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        if self.is_paused(name) {
            return;
        }
        let Some(claim) = Claim::new(&self.ctx, self.running, name) else {
            return;
        };
        let cancel = self.ctx.abort.child_token();
        let work = work(cancel.clone());
        self.cancels.insert(name.to_owned(), cancel);
        let task = self.tasks.spawn(async move {
            let done = work.await;
            drop(claim);
            done
        });
        self.names.insert(task.id(), name.to_owned());
    }

    /// Ends the work on something, in a moment.
    pub(crate) fn cancel(&self, name: &str) {
        if let Some(cancel) = self.cancels.get(name) {
            cancel.cancel();
        }
    }

    pub(crate) fn is_paused(&self, name: &str) -> bool {
        let pause = self.pauses.get(name);
        pause.is_some_and(|(until, _)| *until > Instant::now())
    }

    /// Waits until one has ended.
    pub(crate) async fn ended(&mut self) {
        let (id, why) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, Ok(())))) => (id, None),
            Some(Ok((id, Err(error)))) => (id, Some(error.chain())),
            Some(Err(panic)) => (panic.id(), Some(panic.to_string())),
            None => return,
        };
        let Some(name) = self.names.remove(&id) else {
            return;
        };
        self.cancels.remove(&name);
        let last = self.pauses.remove(&name);
        if let Some(why) = why {
            let last = last.map_or(Duration::ZERO, |(_, last)| last);
            let pause = (last * 2).clamp(Duration::from_secs(1), LONGEST);
            tracing::warn!(name, "will try again: {why}");
            self.pauses.insert(name, (Instant::now() + pause, pause));
        }
    }

    /// Forgets pauses of what is no more, and ends the work on it.
    pub(crate) fn keep(&mut self, names: &HashSet<String>) {
        self.pauses.retain(|name, _| names.contains(name));
        for (name, cancel) in &self.cancels {
            if !names.contains(name) {
                cancel.cancel();
            }
        }
    }

    /// How long until the next one is to be tried again.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        let now = Instant::now();
        let waits = self
            .pauses
            .values()
            .map(|(until, _)| until.saturating_duration_since(now));
        waits.filter(|wait| !wait.is_zero()).min()
    }
}

/// Something is this server's while it lives.
struct Claim {
    ctx: Arc<Context>,
    running: fn(&Context) -> &Running,
    name: String,
}

impl Claim {
    fn new(ctx: &Arc<Context>, running: fn(&Context) -> &Running, name: &str) -> Option<Self> {
        running(ctx).start(name).then(|| Self {
            ctx: Arc::clone(ctx),
            running,
            name: name.to_owned(),
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        (self.running)(&self.ctx).finish(&self.name);
    }
}
