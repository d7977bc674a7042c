//! What a pod's containers amount to: the Ready, Status and Restarts columns.
//!
//! The order of the rules is the real server's; later ones overrule earlier ones.

use super::calc::{NONE, condition_is_true};
use super::kinds::{at, count, int, items, text};
use super::since;
use jiff::Timestamp;
use serde_json::Value;

/// A pod's state.
pub(super) struct Pod {
    ready: usize,
    total: usize,
    /// The Status column.
    pub(super) status: String,
    restarts: Restarts,
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Pod {
    pub(super) fn new(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let reason = text(pod, "/status/reason");
        let inits = items(pod, "/spec/initContainers");
        let sidecars: Vec<String> = inits
            .iter()
            .filter(|init| text(init, "/restartPolicy") == "Always")
            .map(|init| text(init, "/name"))
            .collect();
        let gated = items(pod, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == "PodScheduled"
                && text(condition, "/reason") == "SchedulingGated"
        });
        let mut state = Self {
            ready: 0,
            total: count(pod, "/spec/containers") + sidecars.len(),
            status: if gated {
                "SchedulingGated".to_owned()
            } else if reason.is_empty() {
                phase.clone()
            } else {
                reason.clone()
            },
            restarts: Restarts::default(),
        };

        let mut sidecar_restarts = Restarts::default();
        let mut initializing = false;
        for (index, container) in items(pod, "/status/initContainerStatuses")
            .iter()
            .enumerate()
        {
            state.restarts.add(container);
            let sidecar = sidecars.contains(&text(container, "/name"));
            if sidecar {
                sidecar_restarts.add(container);
            }
            let ended = at(container, "/state/terminated");
            if ended.is_some_and(|ended| int(ended, "/exitCode") == 0) {
                continue;
            }
            if sidecar && container["started"] == true {
                state.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = text(container, "/state/waiting/reason");
            state.status = match ended {
                Some(ended) => format!("Init:{}", ending(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    format!("Init:{waiting}")
                }
                None => format!("Init:{index}/{}", inits.len()),
            };
            initializing = true;
            break;
        }

        if !initializing || condition_is_true(pod, "/status/conditions", "Initialized") {
            // Restarts of containers that are done initializing say nothing any more.
            state.restarts = sidecar_restarts;
            state.count_containers(pod);
        }

        if at(pod, "/metadata/deletionTimestamp").is_some() {
            if reason == "NodeLost" {
                state.status = "Unknown".to_owned();
            } else if phase != "Failed" && phase != "Succeeded" {
                state.status = "Terminating".to_owned();
            }
        }
        state
    }

    fn count_containers(&mut self, pod: &Value) {
        let mut running = false;
        // Backwards, so that the first container with something to say has the last word.
        for container in items(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.status = waiting;
            } else if let Some(ended) = at(container, "/state/terminated") {
                self.status = ending(ended);
            } else if container["ready"] == true && at(container, "/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && running {
            let ready = items(pod, "/status/conditions").iter().any(|condition| {
                text(condition, "/type") == "Ready" && text(condition, "/status") == "True"
            });
            self.status = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }

    pub(super) fn ready(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    pub(super) fn restarts(&self, now: Timestamp) -> String {
        let Restarts { count, last } = self.restarts;
        match last {
            Some(last) if count != 0 => format!("{count} ({} ago)", since(last, now)),
            _ => count.to_string(),
        }
    }
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(int(container, "/restartCount"));
        let ended = text(container, "/lastState/terminated/finishedAt")
            .parse()
            .ok();
        self.last = self.last.max(ended);
    }
}

fn ending(terminated: &Value) -> String {
    match (text(terminated, "/reason"), int(terminated, "/signal")) {
        (reason, _) if !reason.is_empty() => reason,
        (_, 0) => format!("ExitCode:{}", int(terminated, "/exitCode")),
        (_, signal) => format!("Signal:{signal}"),
    }
}

pub(super) fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| condition_is_true(pod, "/status/conditions", &text(gate, "/conditionType")));
    format!("{}/{}", open.count(), gates.len())
}
