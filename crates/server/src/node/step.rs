//! What a copy needs next. Pure: what is known of it, its pod and this process are arguments.

use bowline_api::{
    names::{LEGACY_RESTORE_WAIT, RESTORE_WAIT},
    v1::{DataPathPhase as Phase, PodVolumeBackup, PodVolumeRestore},
};
use k8s_openapi::api::core::v1::{ContainerState, ObjectReference, Pod};
use kube::ResourceExt;

use super::copy::Copy;

/// What to do about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: it is another node's, or over, or under way, or its pod is not ready.
    Leave,
    /// Begin it, or begin it again after somebody else did.
    Begin,
    /// End the work that is under way.
    Stop,
    /// Nobody works on it, and it is to be canceled.
    Cancel,
    /// Its volume is complete, and nobody has said so.
    Conclude,
    /// Its pod goes on without it.
    TooLate,
    /// It is over; let it go.
    Release,
}

/// What is known of a copy's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not on this node.
    Elsewhere,
    /// On this node; its volume cannot be copied yet.
    Waiting,
    /// Its volume can be copied.
    Ready,
    /// It was here and is no more.
    Gone,
    /// It found its volumes complete.
    Satisfied,
}

/// What a PodVolumeBackup needs next.
pub(super) fn of_backup(
    backup: &PodVolumeBackup,
    node: &str,
    pod: Option<&Pod>,
    is_running: bool,
) -> Step {
    let stage = if backup.spec.node != node {
        Stage::Elsewhere
    } else if pod.is_some_and(|pod| is_the_one(pod, &backup.spec.pod)) {
        Stage::Ready
    } else {
        Stage::Gone
    };
    next(backup, stage, is_running)
}

/// What a PodVolumeRestore needs next.
pub(super) fn of_restore(
    restore: &PodVolumeRestore,
    node: &str,
    pod: Option<&Pod>,
    is_running: bool,
) -> Step {
    let taken_by = restore.status.as_ref().and_then(|s| s.node.as_deref());
    let pod = pod.filter(|pod| is_the_one(pod, &restore.spec.pod));
    let stage = match (taken_by.filter(|name| !name.is_empty()), pod) {
        (Some(other), _) if other != node => Stage::Elsewhere,
        (Some(_), None) => Stage::Gone,
        (_, Some(pod)) => waiting(pod),
        // Nobody has it, and nobody else may ever come for it.
        (None, None) if restore.is_unwanted() => Stage::Gone,
        (None, None) => Stage::Elsewhere,
    };
    next(restore, stage, is_running)
}

fn next<K: Copy>(copy: &K, stage: Stage, is_running: bool) -> Step {
    let phase = copy.phase();
    let is_new = phase == Phase::New;
    match stage {
        Stage::Elsewhere => Step::Leave,
        _ if phase.is_over() => match (is_running, copy.is_held()) {
            (true, _) => Step::Stop,
            (false, true) => Step::Release,
            (false, false) => Step::Leave,
        },
        _ if copy.is_unwanted() => {
            if is_running {
                Step::Stop
            } else {
                Step::Cancel
            }
        }
        Stage::Gone if is_running => Step::Stop,
        _ if is_running => Step::Leave,
        Stage::Waiting => Step::Leave,
        Stage::Satisfied if is_new => Step::TooLate,
        Stage::Satisfied => Step::Conclude,
        // The work itself finds that the pod is gone, and says so.
        Stage::Ready | Stage::Gone => Step::Begin,
    }
}

/// Whether a pod is the one that is meant, and not another one of its name.
pub(super) fn is_the_one(pod: &Pod, meant: &ObjectReference) -> bool {
    let uid = meant.uid.as_deref().unwrap_or_default();
    pod.metadata.name == meant.name
        && pod.metadata.namespace == meant.namespace
        && (uid.is_empty() || pod.uid().as_deref() == Some(uid))
}

/// How far a pod is that waits for its volumes.
fn waiting(pod: &Pod) -> Stage {
    let status = pod.status.as_ref();
    if let Some("Succeeded" | "Failed") = status.and_then(|s| s.phase.as_deref()) {
        return Stage::Gone;
    }
    let statuses = status.and_then(|status| status.init_container_statuses.as_ref());
    let helper = statuses
        .into_iter()
        .flatten()
        .find(|container| is_helper(&container.name));
    match helper.and_then(|helper| helper.state.as_ref()) {
        Some(ContainerState {
            running: Some(_), ..
        }) => Stage::Ready,
        Some(ContainerState {
            terminated: Some(end),
            ..
        }) if end.exit_code == 0 => Stage::Satisfied,
        _ => Stage::Waiting,
    }
}

fn is_helper(name: &str) -> bool {
    matches!(name, RESTORE_WAIT | LEGACY_RESTORE_WAIT)
}

/// Init containers that run before the one that waits, and may meddle with the volumes.
pub(super) fn before_helper(pod: &Pod) -> usize {
    let containers = pod.spec.as_ref().and_then(|s| s.init_containers.as_ref());
    let mut containers = containers.into_iter().flatten();
    containers.position(|c| is_helper(&c.name)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
