//! Volumes that claims got anew: they are given the labels and the reclaim policy of those that they
//! stand for, as soon as they are bound. Done again, it finds them so.

use std::{collections::BTreeSet, time::Duration};

use bowline_api::{
    files::{
        BackupMethod, BackupVolumeInfo, OperationPhase, PvInfo, ResourceList, RestoreOperation,
    },
    v1::Restore,
};
use bowline_engine::movement::DOWNLOAD_ACTION;
use bowline_vault::crash;
use futures::{StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{Context, error::chain};

/// Volumes that are waited for at the same time.
const PARALLEL: usize = 3;
/// How often one is looked at, to begin with and at the longest.
const LOOK: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// A claim that has a new volume, and the one that it had.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Anew {
    /// The claim's namespace now.
    namespace: String,
    claim: String,
    /// The old volume.
    volume: String,
    traits: PvInfo,
}

/// Claims that this restore made and that get a new volume.
pub(super) fn anew(
    restore: &Restore,
    infos: Vec<BackupVolumeInfo>,
    list: &ResourceList,
    operations: &[RestoreOperation],
) -> Vec<Anew> {
    let made: BTreeSet<&str> = list
        .get("v1/PersistentVolumeClaim")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.strip_suffix("(created)"))
        .collect();
    let mapping = restore.spec.namespace_mapping.as_ref();
    let mut found = Vec::new();
    for info in infos {
        let is_provisioned = matches!(
            info.backup_method,
            Some(BackupMethod::PodVolumeBackup | BackupMethod::CsiSnapshot)
        );
        let (Some(traits), true) = (info.pv_info, is_provisioned) else {
            continue;
        };
        let source = info.pvc_namespace.unwrap_or_default();
        let target = mapping.and_then(|mapping| mapping.get(&source));
        let one = Anew {
            namespace: target.unwrap_or(&source).clone(),
            claim: info.pvc_name.unwrap_or_default(),
            volume: info.pv_name.unwrap_or_default(),
            traits,
        };
        let name = format!("{}/{}", one.namespace, one.claim);
        let is_waiting = operations
            .iter()
            .any(|operation| is_unfinished(operation, &one));
        if made.contains(name.as_str()) && !is_waiting && !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Whether data is moved into a claim's volume, and is not all there.
fn is_unfinished(operation: &RestoreOperation, anew: &Anew) -> bool {
    let of = &operation.spec.resource_identifier;
    operation.spec.restore_item_action == DOWNLOAD_ACTION
        && of.resource == "persistentvolumeclaims"
        && of.namespace == anew.namespace
        && of.name == anew.claim
        && operation.status.phase != Some(OperationPhase::Completed)
}

/// Sees to all of them. Returns what went wrong, by namespace.
pub(super) async fn settle(ctx: &Context, anew: Vec<Anew>) -> Vec<(String, String)> {
    let until = Instant::now() + ctx.settings.resource_timeout;
    stream::iter(anew)
        .map(|anew| async move {
            let done = one(ctx, &anew, until).await;
            done.err().map(|why| {
                let Anew { claim, volume, .. } = &anew;
                let why =
                    format!("fail to patch dynamic PV, err: {why}, PVC: {claim}, PV: {volume}");
                (anew.namespace.clone(), why)
            })
        })
        .buffer_unordered(PARALLEL)
        .filter_map(std::future::ready)
        .collect()
        .await
}

async fn one(ctx: &Context, anew: &Anew, until: Instant) -> Result<(), String> {
    let mut pause = LOOK.0;
    loop {
        let step = match look(ctx, anew).await {
            Ok(step) => step,
            // What fails in passing may work a moment later.
            Err(error) => Step::Wait(chain(&error)),
        };
        let why = match step {
            Step::Leave(why) => {
                let Anew {
                    namespace, claim, ..
                } = anew;
                tracing::debug!(namespace, claim, "its volume stays as it is: {why}");
                return Ok(());
            }
            Step::Refuse(why) => return Err(why),
            Step::Patch(name, patch) => {
                crash::here("before patch persistent volume");
                let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
                let params = PatchParams::default();
                let patched = volumes.patch(&name, &params, &Patch::Merge(&patch)).await;
                crash::here("after patch persistent volume");
                match patched {
                    Ok(_) => return Ok(()),
                    Err(error) => format!("patch {name}: {}", chain(&error)),
                }
            }
            Step::Wait(why) => why,
        };
        if Instant::now() + pause > until {
            return Err(why);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK.1);
    }
}

async fn look(ctx: &Context, anew: &Anew) -> Result<Step, kube::Error> {
    let client = || ctx.client.clone();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client(), &anew.namespace);
    let claim = claims.get_opt(&anew.claim).await?;
    let spec = claim.as_ref().and_then(|claim| claim.spec.as_ref());
    let name = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    let volume = match spec.and_then(|spec| name(&spec.volume_name)) {
        Some(name) => {
            Api::<PersistentVolume>::all(client())
                .get_opt(&name)
                .await?
        }
        None => None,
    };
    let class = match spec.and_then(|spec| name(&spec.storage_class_name)) {
        Some(name) if volume.is_none() => Api::<StorageClass>::all(client()).get_opt(&name).await?,
        _ => None,
    };
    Ok(step(anew, claim.as_ref(), class.as_ref(), volume.as_ref()))
}

/// What a new volume needs next.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// It is not there yet, for this reason.
    Wait(String),
    /// There is nothing to do, for this reason.
    Leave(&'static str),
    /// It is patched.
    Patch(String, Value),
    /// It is somebody else's.
    Refuse(String),
}

fn step(
    anew: &Anew,
    claim: Option<&PersistentVolumeClaim>,
    class: Option<&StorageClass>,
    volume: Option<&PersistentVolume>,
) -> Step {
    let Some(claim) = claim else {
        return Step::Leave("the claim is gone");
    };
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    let mode = class.and_then(|class| class.volume_binding_mode.as_deref());
    if phase == Some("Pending") && mode == Some("WaitForFirstConsumer") {
        return Step::Leave("no pod uses the claim yet");
    }
    let Some(volume) = volume.filter(|_| phase == Some("Bound")) else {
        return Step::Wait("the claim is not bound".to_owned());
    };
    let spec = volume.spec.clone().unwrap_or_default();
    let is_bound = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let Some(of) = spec.claim_ref.filter(|_| is_bound) else {
        return Step::Wait(format!("volume {} is not bound", volume.name_any()));
    };
    let (namespace, name) = (
        of.namespace.unwrap_or_default(),
        of.name.unwrap_or_default(),
    );
    if (&namespace, &name) != (&anew.namespace, &anew.claim) {
        return Step::Refuse(format!(
            "PV was bound by unexpected PVC, unexpected PVC: {namespace}/{name}, expected PVC: {}/{}",
            anew.namespace, anew.claim
        ));
    }
    let policy = spec.persistent_volume_reclaim_policy.unwrap_or_default();
    match patch(&anew.traits, &policy, volume.labels()) {
        Some(patch) => Step::Patch(volume.name_any(), patch),
        None => Step::Leave("it is as the old one was"),
    }
}

/// What makes a volume like the old one; labels are replaced, all of them.
fn patch(
    old: &PvInfo,
    policy: &str,
    labels: &std::collections::BTreeMap<String, String>,
) -> Option<Value> {
    let wanted = old.labels.clone().unwrap_or_default();
    let has_labels = wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value));
    let wants_policy = match old.reclaim_policy.as_str() {
        "" => policy,
        wanted => wanted,
    };
    if policy == wants_policy && has_labels {
        return None;
    }
    let mut changed: Map<String, Value> = labels
        .keys()
        .map(|key| (key.clone(), Value::Null))
        .collect();
    changed.extend(wanted.into_iter().map(|(key, value)| (key, json!(value))));
    Some(json!({
        "metadata": {"labels": changed},
        "spec": {"persistentVolumeReclaimPolicy": wants_policy},
    }))
}

#[cfg(test)]
mod tests;
