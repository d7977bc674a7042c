//! Runs commands in restored pods, each when its container is up. Pods do not wait for each other,
//! and what fails in one does not concern the others.

use std::{
    collections::{BTreeMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::v1::HookErrorMode;
use kube::Client;
use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    PodHook, SpecHooks,
    pods::{Container, Pods, Seen},
};
use crate::{
    action::text,
    hooks::{Exec, HookTracker, Level, Message, Phase, execute},
};

/// Where the story of a pod's hooks goes, with its namespace and name. Errors are told here, and
/// returned by [`PostHooks::finish`]: count them once.
pub type Tell = Arc<dyn Fn(&str, &str, Message) + Send + Sync>;

/// The commands of one restore, from the first pod to the last.
pub struct PostHooks {
    hooks: Arc<SpecHooks>,
    pods: Pods,
    runner: Arc<Runner>,
    started: Mutex<Started>,
}

/// The pods that have hooks.
#[derive(Default)]
struct Started {
    names: HashSet<(String, String)>,
    /// Namespace and errors of each.
    tasks: JoinSet<(String, Vec<String>)>,
}

impl PostHooks {
    /// For the pods that the restore of this name makes.
    #[must_use]
    pub fn new(
        client: Client,
        restore: &str,
        hooks: Arc<SpecHooks>,
        exec: Arc<dyn Exec>,
        tracker: Arc<HookTracker>,
        tell: Tell,
    ) -> Self {
        Self {
            hooks,
            pods: Pods::new(client, restore),
            runner: Arc::new(Runner {
                exec,
                tracker,
                tell,
                over: CancellationToken::new(),
            }),
            started: Mutex::default(),
        }
    }

    /// Looks after a pod that this restore has made, in the background. False if it has no hooks, or
    /// is looked after already.
    pub fn start(&self, pod: &Value) -> bool {
        let hooks = self.hooks.commands_for(pod);
        if hooks.is_empty() {
            return false;
        }
        let mut visit = Visit::new(&self.runner, pod, hooks);
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (visit.namespace.clone(), visit.name.clone());
        if !started.names.insert(name) {
            return false;
        }
        visit.refuse_unknown();
        let seen = self.pods.follow(&visit.namespace, &visit.name);
        started.tasks.spawn(visit.run(seen));
        true
    }

    /// Waits until all hooks are over, and gives what went wrong by namespace. Pods whose hooks say
    /// how long to wait are given that time; the others `limit` from now on. What then did not run
    /// has failed.
    pub async fn finish(self, limit: Duration) -> BTreeMap<String, Vec<String>> {
        let started = self.started.into_inner();
        let mut tasks = started.unwrap_or_else(PoisonError::into_inner).tasks;
        let over = &self.runner.over;
        let mut deadline = pin!(sleep(limit));
        let mut errors: BTreeMap<String, Vec<String>> = BTreeMap::new();
        loop {
            let ended = tokio::select! {
                ended = tasks.join_next() => ended,
                () = &mut deadline, if !over.is_cancelled() => {
                    over.cancel();
                    continue;
                }
            };
            match ended {
                None => return errors,
                Some(Ok((_, failed))) if failed.is_empty() => {}
                Some(Ok((namespace, failed))) => {
                    errors.entry(namespace).or_default().extend(failed);
                }
                Some(Err(panic)) => {
                    let of_none = errors.entry(String::new()).or_default();
                    of_none.push(format!("hooks of a pod: {panic}"));
                }
            }
        }
    }
}

/// What all pods share.
struct Runner {
    exec: Arc<dyn Exec>,
    tracker: Arc<HookTracker>,
    tell: Tell,
    /// Pods whose hooks do not say how long to wait are not waited for any more.
    over: CancellationToken,
}

/// One pod and its hooks.
struct Visit {
    runner: Arc<Runner>,
    namespace: String,
    name: String,
    pod: Value,
    /// Hooks that did not run yet, by container.
    waiting: Vec<(String, Vec<PodHook>)>,
    since: Instant,
    errors: Vec<String>,
}

impl Visit {
    /// Counts the hooks as attempted.
    fn new(runner: &Arc<Runner>, pod: &Value, hooks: Vec<PodHook>) -> Self {
        let mut visit = Self {
            runner: Arc::clone(runner),
            namespace: text(pod, "/metadata/namespace").to_owned(),
            name: text(pod, "/metadata/name").to_owned(),
            pod: pod.clone(),
            waiting: Vec::new(),
            since: Instant::now(),
            errors: Vec::new(),
        };
        for hook in hooks {
            let Visit {
                namespace, name, ..
            } = &visit;
            runner
                .tracker
                .attempt(namespace, name, Phase::Post, &hook.hook);
            let container = hook.container().to_owned();
            match visit.waiting.iter_mut().find(|(c, _)| *c == container) {
                Some((_, hooks)) => hooks.push(hook),
                None => visit.waiting.push((container, vec![hook])),
            }
        }
        visit
    }

    /// A container that the pod does not have never comes up.
    fn refuse_unknown(&mut self) {
        let containers = self.pod.pointer("/spec/containers");
        let names: Vec<&str> = containers
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|container| text(container, "/name"))
            .collect();
        let waiting = std::mem::take(&mut self.waiting);
        let (known, unknown) = waiting
            .into_iter()
            .partition(|(container, _)| names.contains(&container.as_str()));
        self.waiting = unknown;
        self.give_up("the pod has no such container");
        self.waiting = known;
    }

    /// Runs the hooks of each container when it is up, until all ran or none can run any more.
    async fn run(mut self, mut seen: watch::Receiver<Seen>) -> (String, Vec<String>) {
        let limit = self.longest_wait();
        let deadline = limit.map(|limit| self.since + limit);
        let over = self.runner.over.clone();
        while !self.waiting.is_empty() {
            let now = seen.borrow_and_update().clone();
            let why = match self.look(&now).await {
                Look::Again => continue,
                Look::Over(why) => Some(why),
                Look::Later => tokio::select! {
                    changed = seen.changed() => {
                        changed.err().map(|_| "the pod cannot be watched".to_owned())
                    }
                    why = expired(deadline, limit) => Some(why),
                    () = over.cancelled(), if limit.is_none() => {
                        Some("its container did not come up in time".to_owned())
                    }
                },
            };
            if let Some(why) = why {
                self.give_up(&why);
            }
        }
        (self.namespace, self.errors)
    }

    /// The time for all hooks together, if all of them say how long they wait.
    fn longest_wait(&self) -> Option<Duration> {
        let hooks = self.waiting.iter().flat_map(|(_, hooks)| hooks);
        let waits: Option<Vec<Duration>> = hooks.map(|hook| hook.wait_timeout).collect();
        waits?.into_iter().max()
    }

    /// Runs what can run now.
    async fn look(&mut self, seen: &Seen) -> Look {
        let containers = match seen {
            Seen::NotYet => return Look::Later,
            Seen::Gone => return Look::Over("the pod was deleted".to_owned()),
            Seen::Ended(phase) => return Look::Over(format!("the pod entered phase {phase}")),
            Seen::Alive(containers) => containers,
        };
        let up = |(name, hooks): &(String, Vec<PodHook>)| is_up(containers, name, hooks);
        let Some(at) = self.waiting.iter().position(up) else {
            return Look::Later;
        };
        match self.run_in_container(at).await {
            Ok(()) => Look::Again,
            Err(name) => Look::Over(format!("hook {name} failed before")),
        }
    }

    /// Runs the hooks of a container in order; gives the name of one whose failure is the end.
    async fn run_in_container(&mut self, at: usize) -> Result<(), String> {
        let hooks = std::mem::take(&mut self.waiting[at].1);
        let mut hooks = hooks.into_iter();
        for hook in hooks.by_ref() {
            if self.run_one(&hook).await.is_err()
                && hook.hook.exec.on_error == Some(HookErrorMode::Fail)
            {
                self.waiting[at].1 = hooks.collect();
                return Err(hook.hook.shown_name().to_owned());
            }
        }
        self.waiting.remove(at);
        Ok(())
    }

    async fn run_one(&mut self, hook: &PodHook) -> Result<(), ()> {
        let (name, container) = (hook.hook.shown_name(), hook.container());
        let waited = self.since.elapsed();
        let expired = hook.wait_timeout.is_some_and(|limit| waited > limit);
        if expired {
            let why = format!("hook {name} in container {container} expired before executing");
            self.tell(hook, &why);
            self.failed(hook, why);
            if hook.hook.exec.on_error == Some(HookErrorMode::Fail) {
                return Err(());
            }
        }
        let runner = &self.runner;
        let (namespace, pod) = (self.namespace.as_str(), self.name.as_str());
        let mut log = |message| (runner.tell)(namespace, pod, message);
        let result = execute(&*runner.exec, &self.pod, Phase::Post, &hook.hook, &mut log).await;
        match result {
            Ok(()) => {
                let tracker = &runner.tracker;
                tracker.record(namespace, pod, Phase::Post, &hook.hook, false);
                Ok(())
            }
            // It is counted once, as expired.
            Err(_) if expired => Err(()),
            Err(why) => {
                let why =
                    format!("hook {name} in container {container} failed to execute, err: {why}");
                self.failed(hook, why);
                Err(())
            }
        }
    }

    /// Nothing of what is left can run.
    fn give_up(&mut self, why: &str) {
        let left = std::mem::take(&mut self.waiting);
        for hook in left.iter().flat_map(|(_, hooks)| hooks) {
            let why = format!(
                "hook {} in container {} in pod {}/{} not executed: {why}",
                hook.hook.shown_name(),
                hook.container(),
                self.namespace,
                self.name
            );
            self.tell(hook, &why);
            self.failed(hook, why);
        }
    }

    fn tell(&self, hook: &PodHook, why: &str) {
        let message = Message {
            level: Level::Error,
            text: why.to_owned(),
            error: None,
            fields: vec![("hookSource", hook.hook.source.as_str().to_owned())],
        };
        (self.runner.tell)(&self.namespace, &self.name, message);
    }

    fn failed(&mut self, hook: &PodHook, why: String) {
        let tracker = &self.runner.tracker;
        tracker.record(&self.namespace, &self.name, Phase::Post, &hook.hook, true);
        self.errors.push(why);
    }
}

/// What a look at a pod came to.
enum Look {
    /// Something ran; the pod may have changed meanwhile.
    Again,
    /// Nothing can run yet.
    Later,
    /// Nothing will run any more, for this reason.
    Over(String),
}

fn is_up(containers: &[Container], name: &str, hooks: &[PodHook]) -> bool {
    let must_be_ready = hooks.iter().any(|hook| hook.wait_for_ready);
    containers.iter().any(|container| {
        container.name == name
            && match must_be_ready {
                true => container.is_ready,
                false => container.is_running,
            }
    })
}

/// Ends when the time for the pod is over; never if it has all the time there is.
async fn expired(deadline: Option<Instant>, limit: Option<Duration>) -> String {
    match (deadline, limit) {
        (Some(deadline), Some(limit)) => {
            sleep_until(deadline).await;
            format!("its container did not come up within {limit:?}")
        }
        _ => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
