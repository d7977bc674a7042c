//! Runs the hooks of one pod and says what that means for the pod.

use std::fmt;

use bowline_api::{
    Duration,
    v1::{ExecHook, HookErrorMode},
};
use serde_json::Value;

use super::{Exec, Hook, HookTracker, Phase, SpecHooks};

/// What the timeout is when a hook has none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// What became of a pod's hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What to do with the pod.
    pub verdict: Verdict,
    /// What to put into the backup's log, in order.
    pub messages: Vec<Message>,
}

/// What to do with a pod after its hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Back it up; a hook may still have failed.
    GoOn,
    /// A hook with `onError: Fail` failed, for this reason. Before the backup of the pod it means
    /// that neither the pod is stored nor its post hooks are run; after it, nothing more.
    LeaveOut(String),
}

/// How much a message matters. Warnings and errors are counted in the backup's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For the story.
    Info,
    /// A warning of the backup.
    Warning,
    /// An error of the backup.
    Error,
}

/// A line for the backup's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub level: Level,
    /// What happened.
    pub text: String,
    /// Why, if it is an error.
    pub error: Option<String>,
    /// What it is about, by name.
    pub fields: Vec<(&'static str, String)>,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// Runs a pod's hooks for a phase, and gives the messages when all are done.
pub async fn run(
    exec: &dyn Exec,
    hooks: &SpecHooks,
    pod: &Value,
    phase: Phase,
    tracker: &HookTracker,
) -> Outcome {
    let mut messages = Vec::new();
    let mut log = |message| messages.push(message);
    let verdict = run_with(exec, hooks, pod, phase, tracker, &mut log).await;
    Outcome { verdict, messages }
}

/// Runs a pod's hooks for a phase, and gives each message as it comes up.
pub async fn run_with(
    exec: &dyn Exec,
    hooks: &SpecHooks,
    pod: &Value,
    phase: Phase,
    tracker: &HookTracker,
    log: &mut (dyn FnMut(Message) + Send),
) -> Verdict {
    let metadata = &pod["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let name = metadata["name"].as_str().unwrap_or_default();
    let mut failure = None;
    for hook in hooks.of_pod(pod, phase) {
        tracker.attempt(namespace, name, phase, &hook);
        if failure.is_some() {
            continue;
        }
        let result = execute(exec, pod, phase, &hook, &mut *log).await;
        tracker.record(namespace, name, phase, &hook, result.is_err());
        if let Err(why) = result {
            // Not set means "go on", although the log shows `Fail` as the default: so does Velero.
            if hook.exec.on_error == Some(HookErrorMode::Fail) {
                failure = Some(why);
            }
        }
    }
    let Some(why) = failure else {
        return Verdict::GoOn;
    };
    log(Message {
        level: Level::Error,
        text: format!("Error running {} hooks for pod", phase.as_str()),
        error: Some(why.clone()),
        fields: vec![("name", name.to_owned())],
    });
    Verdict::LeaveOut(why)
}

/// Runs one hook of a pod, and tells how it went.
pub(crate) async fn execute(
    exec: &dyn Exec,
    pod: &Value,
    phase: Phase,
    hook: &Hook,
    log: &mut (dyn FnMut(Message) + Send),
) -> Result<(), String> {
    let mut log = Log {
        log,
        fields: vec![
            ("hookSource", hook.source.as_str().to_owned()),
            ("hookType", "exec".to_owned()),
            ("hookPhase", phase.as_str().to_owned()),
        ],
    };
    if let Some(warning) = &hook.warning {
        log.say(Level::Warning, warning.clone(), None);
    }
    let result = run_one(exec, pod, hook, &mut log).await;
    if let Err(why) = &result {
        let text = "Error executing hook".to_owned();
        log.say(Level::Error, text, Some(why.clone()));
    }
    result
}

/// A log with fields that every message has.
struct Log<'a> {
    log: &'a mut (dyn FnMut(Message) + Send),
    fields: Vec<(&'static str, String)>,
}

impl Log<'_> {
    fn say(&mut self, level: Level, text: String, error: Option<String>) {
        (self.log)(Message {
            level,
            text,
            error,
            fields: self.fields.clone(),
        });
    }
}

async fn run_one(
    exec: &dyn Exec,
    pod: &Value,
    hook: &Hook,
    log: &mut Log<'_>,
) -> Result<(), String> {
    let metadata = &pod["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let name = metadata["name"].as_str().unwrap_or_default();
    let container = container_of(pod, &hook.exec)?;
    if hook.exec.command.is_empty() {
        return Err("command is required".to_owned());
    }
    let timeout = hook
        .exec
        .timeout
        .clone()
        .filter(|timeout| timeout.nanos().is_ok_and(|nanos| nanos != 0))
        .unwrap_or(DEFAULT_TIMEOUT);
    let mut log = Log {
        log: &mut *log.log,
        fields: [&log.fields[..], &fields(hook, &container, &timeout)].concat(),
    };

    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        let text = format!("Pod entered phase {phase} before some post-backup exec hooks ran");
        log.say(Level::Info, text, None);
        return Ok(());
    }

    log.say(Level::Info, "running exec hook".to_owned(), None);
    let running = exec.exec(namespace, name, &container, &hook.exec.command);
    let output = match timeout.to_std() {
        // A negative timeout is none, as in Velero.
        Ok(limit) if !limit.is_zero() => tokio::time::timeout(limit, running)
            .await
            .map_err(|_| format!("timed out after {timeout}"))??,
        _ => running.await?,
    };
    log.say(Level::Info, format!("stdout: {}", output.stdout), None);
    log.say(Level::Info, format!("stderr: {}", output.stderr), None);
    output.result
}

/// The container that a hook names, or the first.
fn container_of(pod: &Value, hook: &ExecHook) -> Result<String, String> {
    let containers = pod["spec"]["containers"].as_array();
    let mut names = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container["name"].as_str());
    match hook.container.as_deref().filter(|name| !name.is_empty()) {
        None => names
            .next()
            .map(str::to_owned)
            .ok_or_else(|| "need at least 1 container".to_owned()),
        Some(wanted) if names.any(|name| name == wanted) => Ok(wanted.to_owned()),
        Some(wanted) => Err(format!("no such container: {wanted:?}")),
    }
}

fn fields(hook: &Hook, container: &str, timeout: &Duration) -> [(&'static str, String); 5] {
    let on_error = match &hook.exec.on_error {
        Some(HookErrorMode::Continue) => HookErrorMode::Continue,
        _ => HookErrorMode::Fail,
    };
    [
        ("hookName", hook.shown_name().to_owned()),
        ("hookContainer", container.to_owned()),
        ("hookCommand", format!("[{}]", hook.exec.command.join(" "))),
        ("hookOnError", on_error.to_string()),
        ("hookTimeout", format!("{{{timeout}}}")),
    ]
}
