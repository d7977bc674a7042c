//! Which volumes of a pod are copied file by file, and why others are not. Pure.
//!
//! A policy that matches decides; else the pod's annotations do: they name the volumes to copy, or
//! with `defaultVolumesToFsBackup` those not to copy. What is chosen may still not be possible.

use std::collections::BTreeMap;

use bowline_api::names::annotation;
use serde_json::Value;

use super::pod_volumes::Claim;
use crate::{
    action::text,
    policy::{ActionType, Policies, VolumeFacts},
};

/// Sources whose content is an object of its own, or not the pod's.
const NEVER: [&str; 5] = [
    "hostPath",
    "secret",
    "configMap",
    "projected",
    "downwardAPI",
];
/// Volumes of service accounts, as old clusters named them.
const TOKENS: &str = "default-token";

/// What a backup says about volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules<'a> {
    pub(super) policies: Option<&'a Policies>,
    /// Volumes are copied unless their pod says otherwise.
    pub(super) by_default: bool,
    /// Whether claims are in the backup at all.
    pub(super) with_claims: bool,
}

/// Claims of a pod and the volumes they are bound to, by name; the text says why one is not known.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) claims: BTreeMap<String, Result<Value, String>>,
    pub(super) volumes: BTreeMap<String, Result<Value, String>>,
}

/// What becomes of one volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// The volume's name in the pod.
    pub(super) volume: String,
    /// Its claim, if it has one.
    pub(super) claim: Option<Claim>,
    /// Whether the pod's annotations choose it, whatever a policy says.
    pub(super) by_pod: bool,
    pub(super) verdict: Verdict,
}

/// Whether a volume is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Copy,
    /// Nobody chose it.
    Out,
    /// It was chosen, but there is nothing to copy now, for this reason.
    Skip(String),
    /// It was chosen, or might have been, and cannot be copied: an error.
    Refuse(String),
}

/// Decides about all volumes of a pod that can be copied at all.
pub(super) fn select(pod: &Value, known: &Known, rules: &Rules<'_>) -> Vec<Choice> {
    let idle = idle(pod);
    volumes(pod)
        .filter(|volume| is_possible(volume, rules))
        .map(|volume| {
            let by_pod = is_named(pod, text(volume, "/name"), rules.by_default);
            let verdict = match is_chosen(volume, known, rules, by_pod) {
                Err(why) => Verdict::Refuse(why),
                Ok(false) => Verdict::Out,
                Ok(true) => match &idle {
                    Some(why) => Verdict::Skip(problem(pod, why)),
                    None => hindrance(pod, volume, known),
                },
            };
            Choice {
                volume: text(volume, "/name").to_owned(),
                claim: claim(volume).map(|name| Claim {
                    name: name.to_owned(),
                    uid: known.uid(name),
                }),
                by_pod,
                verdict,
            }
        })
        .collect()
}

/// Claims that [`select`] must know: those of volumes that may be chosen.
pub(super) fn needed<'a>(pod: &'a Value, rules: &Rules<'_>) -> Vec<&'a str> {
    let has_policies = rules
        .policies
        .is_some_and(|policies| !policies.volume_policies.is_empty());
    volumes(pod)
        .filter(|volume| is_possible(volume, rules))
        .filter(|volume| has_policies || is_named(pod, text(volume, "/name"), rules.by_default))
        .filter_map(claim)
        .collect()
}

/// Volumes that the pod's annotation names and that it does not have.
pub(super) fn strangers(pod: &Value) -> Vec<String> {
    let has = |name: &str| volumes(pod).any(|volume| text(volume, "/name") == name);
    names(pod, annotation::BACKUP_VOLUMES)
        .filter(|name| !has(name))
        .map(str::to_owned)
        .collect()
}

/// Why all volumes of a pod are skipped.
pub(super) fn problem(pod: &Value, why: &str) -> String {
    format!(
        "encountered a problem with backing up the PVC of pod {}: {why}",
        shown(pod)
    )
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten()
}

fn claim(volume: &Value) -> Option<&str> {
    let name = text(volume, "/persistentVolumeClaim/claimName");
    (!name.is_empty()).then_some(name)
}

fn shown(pod: &Value) -> String {
    format!(
        "{}/{}",
        text(pod, "/metadata/namespace"),
        text(pod, "/metadata/name")
    )
}

fn is_possible(volume: &Value, rules: &Rules<'_>) -> bool {
    let is = |source: &str| volume.get(source).is_some_and(|value| !value.is_null());
    !NEVER.into_iter().any(is)
        && !text(volume, "/name").starts_with(TOKENS)
        && (rules.with_claims || claim(volume).is_none())
}

/// The names in an annotation; blanks belong to them, as in Velero.
fn names<'a>(pod: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    let annotations = pod.pointer("/metadata/annotations");
    let list = annotations.and_then(|all| all.get(key)?.as_str());
    let list = list.filter(|list| !list.is_empty());
    list.into_iter().flat_map(|list| list.split(','))
}

/// Whether the annotations choose a volume.
fn is_named(pod: &Value, volume: &str, by_default: bool) -> bool {
    if by_default {
        !names(pod, annotation::BACKUP_VOLUMES_EXCLUDES).any(|name| name == volume)
    } else {
        names(pod, annotation::BACKUP_VOLUMES).any(|name| name == volume)
    }
}

/// Whether anybody chooses a volume. An error when nobody can tell.
fn is_chosen(
    volume: &Value,
    known: &Known,
    rules: &Rules<'_>,
    by_pod: bool,
) -> Result<bool, String> {
    let policies = rules.policies.filter(|p| !p.volume_policies.is_empty());
    let Some(policies) = policies else {
        return Ok(by_pod);
    };
    let (facts, unknown) = match claim(volume) {
        None => (VolumeFacts::of_pod_volume(volume), None),
        Some(name) => {
            let claim = known.claim(name)?;
            match known.volume_of(claim) {
                Ok(Some(pv)) => (VolumeFacts::of_pv(pv).with_pvc(claim), None),
                Ok(None) => {
                    let why = format!("PVC {name} is not bound to a volume");
                    (VolumeFacts::default().with_pvc(claim), Some(why))
                }
                Err(why) => (VolumeFacts::default().with_pvc(claim), Some(why)),
            }
        }
    };
    match policies.volume_action(&facts) {
        Some(action) => Ok(action.kind == ActionType::FsBackup),
        None => unknown.map_or(Ok(by_pod), Err),
    }
}

/// Why a pod has nothing that could be read now.
fn idle(pod: &Value) -> Option<String> {
    let phase = text(pod, "/status/phase");
    let place = format!(
        "name={}, namespace={}, phase={phase}",
        text(pod, "/metadata/name"),
        text(pod, "/metadata/namespace")
    );
    if text(pod, "/spec/nodeName").is_empty() {
        Some(format!("pod is not scheduled, {place}"))
    } else if phase != "Running" {
        Some(format!(
            "pod is not in the expected status, {place}: pod is not running"
        ))
    } else if !text(pod, "/metadata/deletionTimestamp").is_empty() {
        Some(format!("pod is being terminated, {place}"))
    } else {
        None
    }
}

/// Whether a volume that was chosen can be copied.
fn hindrance(pod: &Value, volume: &Value, known: &Known) -> Verdict {
    let (name, pod_name) = (text(volume, "/name"), shown(pod));
    if let Some(claim) = claim(volume) {
        match known
            .claim(claim)
            .and_then(|claim| known.volume_of(claim))
            .map(|pv| pv.is_some_and(|pv| pv["spec"].get("hostPath").is_some()))
        {
            Err(why) => return Verdict::Refuse(why),
            Ok(false) => {}
            Ok(true) => {
                return Verdict::Skip(format!(
                    "Volume {name} in pod {pod_name} is a hostPath volume which is not supported \
                     for pod volume backup, skipping"
                ));
            }
        }
    }
    if uses(pod, "volumeDevices", name) {
        return Verdict::Skip(format!(
            "volume {name} declared in pod {pod_name} is a block volume. Block volumes are not \
             supported for fs backup, skipping"
        ));
    }
    if !uses(pod, "volumeMounts", name) {
        return Verdict::Skip(format!(
            "volume {name} is declared in pod {pod_name} but not mounted by any container, skipping"
        ));
    }
    Verdict::Copy
}

/// Whether a container that runs has the volume. Of init containers only those that stay do.
fn uses(pod: &Value, how: &str, volume: &str) -> bool {
    let list = |pointer: &str| {
        let list = pod.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    let stays = |container: &&Value| text(container, "/restartPolicy") == "Always";
    list("/spec/containers")
        .chain(list("/spec/initContainers").filter(stays))
        .filter_map(|container| container.get(how)?.as_array())
        .flatten()
        .any(|used| text(used, "/name") == volume)
}

impl Known {
    fn claim(&self, name: &str) -> Result<&Value, String> {
        let failed = |why: &str| format!("error getting persistent volume claim for volume: {why}");
        match self.claims.get(name) {
            Some(Ok(claim)) => Ok(claim),
            Some(Err(why)) => Err(failed(why)),
            None => Err(failed(&format!(
                "persistentvolumeclaims {name:?} was not read"
            ))),
        }
    }

    /// The volume that a claim is bound to; none when it is bound to none.
    fn volume_of(&self, claim: &Value) -> Result<Option<&Value>, String> {
        let name = text(claim, "/spec/volumeName");
        if name.is_empty() {
            return Ok(None);
        }
        let failed = |why: &str| format!("error getting persistent volume {name}: {why}");
        match self.volumes.get(name) {
            Some(Ok(volume)) => Ok(Some(volume)),
            Some(Err(why)) => Err(failed(why)),
            None => Err(failed("it was not read")),
        }
    }

    /// The uid of a claim; empty when it is not known.
    fn uid(&self, claim: &str) -> String {
        let found = self.claims.get(claim).and_then(|claim| claim.as_ref().ok());
        found
            .map(|claim| text(claim, "/metadata/uid").to_owned())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
