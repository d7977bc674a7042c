//! What is made in the cluster for a movement, and how it goes again: a pod, its claim, and for an
//! upload a snapshot with its content. All have the movement's name. Can be repeated.

use std::time::Duration;

use bowline_api::{
    names::{NODE_AGENT, label_value},
    v1::DataPathPhase as Phase,
};
use bowline_engine::movement::owner_reference;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::DaemonSet,
        core::v1::{ContainerStatus, Event, PersistentVolume, PersistentVolumeClaim, Pod},
    },
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::wait::await_condition,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    super::{Node, copy, metrics::Direction, mover::Verdict},
    Movement,
    pod::{self, Wanted},
};
use crate::{
    Context, Error, Result,
    csi::{contents, delete, gone, snapshots, value},
};

/// A watch that failed is begun again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an object may take to go.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a mover may be restarted before its pod is given up.
const RESTARTS: i32 = 5;
/// Why a container that waits will not run, whoever waits for it.
const HOPELESS: &[&str] = &["ErrImageNeverPull", "InvalidImageName"];

/// What the pod is to be like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exposure {
    pub(crate) is_block: bool,
    pub(crate) read_only: bool,
    /// The storage class of the volume.
    pub(crate) class: String,
    /// The only node on which the volume is of use.
    pub(crate) node: Option<String>,
}

/// How far a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// It does not run yet.
    Waiting,
    /// It runs on this node.
    Running(String),
    /// It has ended well, and says this.
    Ended { on: String, message: String },
    /// It is no more, or of no use any more.
    Lost(String),
    /// It will not run, nor would another.
    Hopeless(String),
}

/// Makes the pod, unless there is one. The inner error is for a person.
pub(super) async fn pod<K: Movement>(
    node: &Node,
    movement: &K,
    exposure: &Exposure,
    on: Option<&str>,
) -> Result<Result<(), String>> {
    let ctx = &node.ctx;
    let (name, uid) = (movement.name_any(), movement.uid().unwrap_or_default());
    let pods: Api<Pod> = api(ctx);
    if let Some(found) = find(&pods, &name).await? {
        if !matches!(look_at(Some(&found), &uid), Look::Lost(_)) {
            return Ok(Ok(()));
        }
        remove(&pods, &found).await?;
        if !is_gone(&pods, &found, PATIENCE).await {
            return Ok(Err(format!("pod {name} that was lost does not go")));
        }
    }
    let daemons: Api<DaemonSet> = api(ctx);
    let Some(daemons) = find(&daemons, NODE_AGENT).await? else {
        return Ok(Err(format!(
            "DaemonSet {NODE_AGENT} not found in namespace {}: pods that move data are made like its pods",
            ctx.namespace
        )));
    };
    let wanted = Wanted {
        name: &name,
        namespace: &ctx.namespace,
        uid: &uid,
        owner: owner_reference(movement),
        label: K::LABEL,
        group: K::GROUP,
        command: K::COMMAND,
        flag: K::FLAG,
        is_block: exposure.is_block,
        read_only: exposure.read_only,
        class: &exposure.class,
        node: on.or(exposure.node.as_deref()),
    };
    match pod::pod(&daemons, &wanted, &node.config, &node.settings) {
        Ok(pod) => create(&pods, &pod).await,
        Err(why) => Ok(Err(why)),
    }
}

/// Waits until a pod is as wanted.
pub(super) async fn look<K: Movement>(
    ctx: &Context,
    movement: &K,
    is_so: impl Fn(&Look) -> bool,
) -> Look {
    let (name, uid) = (movement.name_any(), movement.uid().unwrap_or_default());
    let pods: Api<Pod> = api(ctx);
    loop {
        let condition = |pod: Option<&Pod>| is_so(&look_at(pod, &uid));
        match await_condition(pods.clone(), &name, condition).await {
            Ok(pod) => return look_at(pod.as_ref(), &uid),
            Err(error) => {
                tracing::debug!(name, "watch: {error}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// How far a pod of a movement with this uid is.
fn look_at(pod: Option<&Pod>, uid: &str) -> Look {
    let Some(pod) = pod else {
        return Look::Lost("its pod is gone".to_owned());
    };
    let name = pod.name_any();
    if !pod::is_of(pod, uid) {
        return Look::Hopeless(format!("there is a pod {name} that is not of it"));
    }
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let on = on.unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    // Others may have put one of theirs beside it.
    let container = containers.iter().find(|container| container.name == uid);
    let state = container.and_then(|container| container.state.as_ref());
    if let Some(end) = state.and_then(|state| state.terminated.as_ref())
        && end.exit_code == 0
    {
        let message = end.message.clone().unwrap_or_default();
        return Look::Ended { on, message };
    }
    if let Some(why) = container.and_then(worn_out) {
        return Look::Hopeless(format!("pod {name}: {why}"));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Look::Lost(format!("pod {name} was deleted"));
    }
    let phase = status.phase.as_deref().unwrap_or_default();
    if matches!(phase, "Failed" | "Unknown") {
        let why = status.reason.into_iter().chain(status.message);
        let why: Vec<String> = why.collect();
        return Look::Lost(format!("pod {name} is {phase} {}", why.join(": ")));
    }
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    if let Some(reason) = reason.filter(|reason| HOPELESS.contains(reason)) {
        let message = waiting.and_then(|waiting| waiting.message.clone());
        let message = message.unwrap_or_default();
        return Look::Hopeless(format!("pod {name} cannot start: {reason}: {message}"));
    }
    match phase {
        "Running" if !on.is_empty() => Look::Running(on),
        _ => Look::Waiting,
    }
}

/// Whether a mover was restarted too often, and what ended it last.
fn worn_out(container: &ContainerStatus) -> Option<String> {
    let last = container.last_state.as_ref()?.terminated.as_ref()?;
    (container.restart_count > RESTARTS).then(|| {
        let reason = last.reason.as_deref().unwrap_or("it ended");
        let said = last.message.as_deref().unwrap_or_default();
        let times = container.restart_count;
        format!(
            "the mover was restarted {times} times, last after {reason} (code {}) {said}",
            last.exit_code
        )
    })
}

/// Why a pod does not run, as far as the cluster says.
pub(super) async fn diagnose(ctx: &Context, name: &str) -> String {
    let mut said = Vec::new();
    let pods: Api<Pod> = api(ctx);
    match find(&pods, name).await {
        Ok(Some(pod)) => said.extend(complaints(&pod)),
        Ok(None) => said.push("there is no pod yet".to_owned()),
        Err(error) => said.push(error.chain()),
    }
    let claims: Api<PersistentVolumeClaim> = api(ctx);
    if let Ok(Some(claim)) = find(&claims, name).await {
        let phase = claim.status.and_then(|status| status.phase);
        let class = claim.spec.and_then(|spec| spec.storage_class_name);
        let (phase, class) = (phase.unwrap_or_default(), class.unwrap_or_default());
        if phase != "Bound" {
            said.push(format!("claim {name} of storage class {class} is {phase}"));
        }
    }
    said.extend(warnings(ctx, name).await);
    said.join("; ")
}

fn complaints(pod: &Pod) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.into_iter().flatten();
    let unmet = conditions.filter(|condition| condition.status == "False");
    let unmet = unmet.filter_map(|condition| condition.message);
    let containers = status.container_statuses.into_iter().flatten();
    let waiting = containers.filter_map(|container| container.state?.waiting);
    let waiting = waiting.filter_map(|waiting| {
        let message = waiting.message.unwrap_or_default();
        Some(format!("{} {message}", waiting.reason?))
    });
    let phase = status.phase.unwrap_or_default();
    let itself = format!("pod {} is {phase}", pod.name_any());
    [itself].into_iter().chain(unmet).chain(waiting).collect()
}

/// The last warnings about a pod and its claim.
async fn warnings(ctx: &Context, name: &str) -> Vec<String> {
    let events: Api<Event> = api(ctx);
    let selector = format!("involvedObject.name={name},type=Warning");
    let list = events.list(&ListParams::default().fields(&selector)).await;
    let mut found: Vec<Event> = list.map(|list| list.items).unwrap_or_default();
    found.sort_by_key(|event| event.last_timestamp.clone().map(|time| time.0));
    let mut said: Vec<String> = Vec::new();
    for event in found.into_iter().rev() {
        let reason = event.reason.unwrap_or_default();
        let text = format!("{reason}: {}", event.message.unwrap_or_default());
        if said.len() < 2 && !said.contains(&text) {
            said.push(text);
        }
    }
    said
}

/// Ends a movement's pod, so that its mover lets its repository go.
pub(super) async fn stop(ctx: &Context, name: &str) -> Result<()> {
    let pods: Api<Pod> = api(ctx);
    let Some(pod) = find(&pods, name).await? else {
        return Ok(());
    };
    remove(&pods, &pod).await?;
    match is_gone(&pods, &pod, PATIENCE).await {
        true => Ok(()),
        false => Err(Error::Setup(format!("pod {name} does not end"))),
    }
}

/// Clears away what was made for a movement that is over, and lets it go.
pub(crate) async fn tidy<K: Movement>(ctx: &Context, movement: &K) -> Result<()> {
    let found = ctx.find::<K>(&movement.name_any()).await?;
    let found = found.filter(|found| found.uid() == movement.uid());
    if found.as_ref().unwrap_or(movement).phase() != Phase::Completed {
        found.as_ref().unwrap_or(movement).undo(ctx).await?;
    }
    clear::<K>(ctx, &movement.name_any()).await?;
    let released = copy::change_always(ctx, movement, |movement| {
        if movement.phase().is_over() {
            copy::release(movement);
        }
    });
    released.await.map(drop)
}

/// Removes everything that was made for a movement of this name. A volume that was handed over is no
/// longer its own.
pub(crate) async fn clear<K: Movement>(ctx: &Context, name: &str) -> Result<()> {
    let is_ours = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(K::LABEL) == Some(&label_value(name))
    };
    let pods: Api<Pod> = api(ctx);
    if let Some(pod) = find(&pods, name).await?.filter(|pod| is_ours(pod.labels())) {
        remove(&pods, &pod).await?;
        // Its claim would only go after it.
        if !is_gone(&pods, &pod, PATIENCE).await {
            return Err(Error::Setup(format!("pod {name} does not end")));
        }
    }
    let claims: Api<PersistentVolumeClaim> = api(ctx);
    let claim = find(&claims, name).await?;
    if let Some(claim) = claim.filter(|claim| is_ours(claim.labels())) {
        let volume = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_name.clone());
        if let Some(volume) = volume.filter(|volume| !volume.is_empty()) {
            reclaim(ctx, &volume).await?;
        }
        remove(&claims, &claim).await?;
        if !is_gone(&claims, &claim, PATIENCE).await {
            return Err(Error::Setup(format!("claim {name} does not go")));
        }
        reclaim_late(ctx, claim.uid().as_deref()).await?;
    }
    // Snapshots before contents: one that misses its content gets another.
    let api = snapshots(&ctx.client, &ctx.namespace);
    if let Some(snapshot) = dynamic::<K>(&api, name).await? {
        delete(&api, &snapshot).await?;
        if !gone(&api, &snapshot, PATIENCE).await {
            return Err(Error::Setup(format!("VolumeSnapshot {name} does not go")));
        }
    }
    let api = contents(&ctx.client);
    if let Some(content) = dynamic::<K>(&api, name).await? {
        // Its driver's side waits for the snapshot's end, which it may have missed.
        let marks = json!({"metadata": {"annotations": {
            bowline_api::names::annotation::SNAPSHOT_BEING_DELETED: "yes",
        }}});
        crate::csi::patch(&api, name, &marks).await?;
        delete(&api, &content).await?;
    }
    Ok(())
}

async fn dynamic<K: Movement>(
    api: &Api<kube::api::DynamicObject>,
    name: &str,
) -> Result<Option<serde_json::Value>> {
    let found = match api.get_opt(name).await {
        Ok(found) => found,
        // The cluster does not have the kind.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => return Err(Error::api(format!("read {name}"))(error)),
    };
    let found = found.filter(|found| found.labels().get(K::LABEL) == Some(&label_value(name)));
    Ok(found.as_ref().map(value))
}

/// A volume that was made for a movement goes with its claim, whatever its class says.
pub(super) async fn reclaim(ctx: &Context, volume: &str) -> Result<()> {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    patch_volume(ctx, volume, &patch).await.map(drop)
}

/// A volume that was made while its claim went, and that nobody has.
async fn reclaim_late(ctx: &Context, claim: Option<&str>) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let list = volumes.list(&ListParams::default()).await;
    for volume in list.map_err(Error::api("list PersistentVolumes"))? {
        let spec = volume.spec.clone().unwrap_or_default();
        let of = spec.claim_ref.and_then(|of| of.uid);
        let is_kept = spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete");
        if claim.is_some() && of.as_deref() == claim && is_kept {
            reclaim(ctx, &volume.name_any()).await?;
        }
    }
    Ok(())
}

/// Patches a volume; none when it is gone.
pub(super) async fn patch_volume(
    ctx: &Context,
    name: &str,
    patch: &serde_json::Value,
) -> Result<Option<PersistentVolume>> {
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let params = PatchParams::default();
    match volumes.patch(name, &params, &Patch::Merge(patch)).await {
        Ok(volume) => Ok(Some(volume)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(Error::api(format!("patch PersistentVolume {name}"))(error)),
    }
}

/// Objects of a kind in the server's namespace.
pub(super) fn api<K>(ctx: &Context) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(ctx.client.clone(), &ctx.namespace)
}

pub(super) async fn find<K>(api: &Api<K>, name: &str) -> Result<Option<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let kind = K::kind(&());
    let found = api.get_opt(name).await;
    found.map_err(Error::api(format!("read {kind} {name}")))
}

/// Creates an object, unless it is there. The inner error: the cluster does not want it.
pub(super) async fn create<K>(api: &Api<K>, object: &K) -> Result<Result<(), String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let what = format!("create {} {}", K::kind(&()), object.name_any());
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Ok(())),
        Err(kube::Error::Api(status)) if is_refusal(status.code) => {
            Ok(Err(format!("{what}: {}", status.message)))
        }
        Err(error) => Err(Error::api(what)(error)),
    }
}

/// Whether another try would be answered in the same way.
pub(super) fn is_refusal(code: u16) -> bool {
    matches!(code, 400 | 403 | 404 | 422)
}

pub(super) async fn remove<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = object.name_any();
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(Error::api(format!("delete {} {name}", K::kind(&())))(error)),
    }
}

/// Waits until this very object is gone; false when it is not within the limit.
pub(super) async fn is_gone<K>(api: &Api<K>, object: &K, limit: Duration) -> bool
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let (name, uid) = (object.name_any(), object.uid());
    let waiting = tokio::time::timeout(limit, async {
        let is_gone = |found: Option<&K>| found.is_none_or(|found| found.uid() != uid);
        while await_condition(api.clone(), &name, is_gone).await.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
    });
    waiting.await.is_ok()
}

/// Ends a movement whose node process is gone. An upload is as good as the last words of its pod.
pub(crate) async fn abandon<K: Movement>(ctx: &Context, movement: &K, why: &str) -> Result<()> {
    let now = ctx.now();
    let verdict = match K::DIRECTION {
        Direction::Upload => last_words(ctx, movement).await?,
        // Its volume has yet to be handed over.
        Direction::Download => None,
    };
    copy::change(ctx, movement, |movement| match &verdict {
        Some(verdict) => {
            super::settle(movement, verdict, now);
        }
        None if movement.is_unwanted() => {
            copy::finish(movement, Phase::Canceled, Some(why), now);
        }
        None => copy::finish(movement, Phase::Failed, Some(why), now),
    })
    .await?;
    tidy(ctx, movement).await
}

/// What the pod of a movement has said at its end.
async fn last_words<K: Movement>(ctx: &Context, movement: &K) -> Result<Option<Verdict>> {
    let uid = movement.uid().unwrap_or_default();
    let pods: Api<Pod> = api(ctx);
    let pod = find(&pods, &movement.name_any()).await?;
    Ok(match look_at(pod.as_ref(), &uid) {
        Look::Ended { message, .. } => {
            Verdict::parse(&message).filter(|verdict| super::is_sound::<K>(verdict))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests;
