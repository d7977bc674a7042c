//! DataDownload: a snapshot of a repository goes into a new volume, which is then handed over to the claim
//! that waits for it.
//!
//! ```text
//!   a claim of the movement's name ─▶ its volume is filled ─▶ written down in the movement
//!   ─▶ Retain ─▶ pod and claim go ─▶ the volume is the other claim's ─▶ bound ─▶ its policy again
//! ```

use std::{collections::BTreeMap, time::Duration};

use bowline_api::{
    names::{annotation, exposer_pod_group, label, label_value},
    v2alpha1::DataDownload,
};
use bowline_engine::movement::{Mover, owner_reference};
use bowline_vault::crash;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod,
        VolumeResourceRequirements,
    },
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::json;

use super::{
    super::{Node, copy::change, metrics::Direction, mover::Verdict},
    Movement,
    expose::{self, Exposure},
    upload::class_missing,
};
use crate::{Context, Error, Result};

/// How long a claim may take to be there or to be bound when nobody says.
const LIMIT: Duration = Duration::from_secs(600);
/// How long it is waited for a pod that uses a claim whose volume depends on that pod's node.
const UNUSED: Duration = Duration::from_secs(60);
/// How long the pod and claim of a movement may take to go.
const GOING: Duration = Duration::from_secs(120);
/// A watch that failed is begun again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// The node that the scheduler chose for the pod of a claim.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

impl Movement for DataDownload {
    const LABEL: &'static str = label::DATA_DOWNLOAD;
    const GROUP: &'static str = exposer_pod_group::GENERIC_RESTORE;
    const COMMAND: &'static str = "restore";
    const FLAG: &'static str = "data-download";
    const FAILED: &'static str = "data path restore failed";
    const DIRECTION: Direction = Direction::Download;

    fn mover(&self) -> Mover<'_> {
        Mover::of(self.spec.datamover.as_deref())
    }

    fn taker(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        status.accepted_by_node.as_deref().filter(|n| !n.is_empty())
    }

    fn node(&self) -> Option<&str> {
        let node = self.status.as_ref()?.node.as_deref();
        node.filter(|node| !node.is_empty())
    }

    fn set_node(&mut self, node: &str) {
        self.status_mut().node = Some(node.to_owned());
    }

    fn taken_at(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.accepted_timestamp?.0)
    }

    fn patience(&self) -> Option<Duration> {
        let nanos = self.spec.operation_timeout.nanos().ok()?;
        let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0)?;
        Some(Duration::from_nanos(nanos))
    }

    async fn expose(&self, node: &Node) -> Result<Result<Exposure, String>> {
        let ctx = &node.ctx;
        let target = match waiting(ctx, self).await? {
            Ok(target) => target,
            Err(why) => return Ok(Err(why)),
        };
        let spec = target.spec.unwrap_or_default();
        let mode = spec.volume_mode.clone();
        let mode = mode.unwrap_or_else(|| "Filesystem".to_owned());
        let config = self.spec.data_mover_config.as_ref();
        let moved = config.and_then(|config| config.get("volumeMode"));
        if let Some(moved) = moved.filter(|moved| !moved.is_empty() && **moved != mode) {
            return Ok(Err(format!(
                "its data is of a volume of mode {moved}, and claim {} wants mode {mode}",
                target_of(self)
            )));
        }
        let class = spec.storage_class_name.clone().unwrap_or_default();
        if let Some(why) = class_missing(ctx, &class).await? {
            return Ok(Err(why));
        }
        let on = match node.config.binds_at_once() {
            true => None,
            false => node_of(ctx, self, &class).await?,
        };
        let claim = claim(self, &spec, &ctx.namespace);
        let made = expose::create(&expose::api::<PersistentVolumeClaim>(ctx), &claim).await?;
        Ok(made.map(|()| Exposure {
            is_block: mode == "Block",
            read_only: false,
            class,
            node: on,
        }))
    }

    fn concluding(&self) -> Option<Verdict> {
        let annotations = self.annotations();
        annotations.get(annotation::VOLUME)?;
        let bytes = annotations.get(annotation::MOVED_BYTES)?.parse().ok()?;
        Some(Verdict {
            total_bytes: bytes,
            ..Verdict::default()
        })
    }

    async fn conclude(&self, node: &Node, verdict: &Verdict) -> Result<Result<(), String>> {
        let ctx = &node.ctx;
        let found = ctx.find::<Self>(&self.name_any()).await?;
        let Some(found) = found.filter(|found| found.uid() == self.uid()) else {
            return Ok(Err("it was deleted".to_owned()));
        };
        let volume = match found.annotations().get(annotation::VOLUME) {
            Some(volume) => volume.clone(),
            None => match write_down(ctx, &found, verdict).await? {
                Ok(volume) => volume,
                Err(why) => return Ok(Err(why)),
            },
        };
        hand_over(ctx, &found, &volume).await
    }

    async fn undo(&self, ctx: &Context) -> Result<()> {
        let Some(volume) = self.annotations().get(annotation::VOLUME) else {
            return Ok(());
        };
        let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
        let Some(found) = expose::find(&volumes, volume).await? else {
            return Ok(());
        };
        // Without the mark it was handed over.
        let Some(policy) = found.annotations().get(annotation::RECLAIM_POLICY) else {
            return Ok(());
        };
        let claim = expose::find(&targets(ctx, self), &self.spec.target_volume.pvc).await?;
        match claim.is_some_and(|claim| has_volume(&claim, &found)) {
            // The claim has it, with all its data.
            true => give_back(ctx, volume, policy).await,
            false => expose::reclaim(ctx, volume).await,
        }
    }

    fn note(&mut self, _: &Verdict) {}
}

/// The claim that a download is for.
fn target_of(download: &DataDownload) -> String {
    let target = &download.spec.target_volume;
    format!("{}/{}", target.namespace, target.pvc)
}

fn targets(ctx: &Context, download: &DataDownload) -> Api<PersistentVolumeClaim> {
    Api::namespaced(ctx.client.clone(), &download.spec.target_volume.namespace)
}

/// The claim that waits for its volume. The inner error is for a person.
async fn waiting(
    ctx: &Context,
    download: &DataDownload,
) -> Result<Result<PersistentVolumeClaim, String>> {
    let (claims, of) = (targets(ctx, download), target_of(download));
    let name = &download.spec.target_volume.pvc;
    let is_there = |claim: Option<&PersistentVolumeClaim>| claim.is_some();
    let limit = download.patience().unwrap_or(LIMIT);
    let found = tokio::time::timeout(limit, await_condition(claims, name, is_there)).await;
    let claim = match found {
        Ok(Ok(Some(claim))) => claim,
        Ok(Ok(None)) => return Err(Error::Setup(format!("claim {of} is not there yet"))),
        Ok(Err(error)) => return Err(Error::Setup(format!("watch claim {of}: {error}"))),
        Err(_) => return Ok(Err(format!("claim {of} was not made in {limit:?}"))),
    };
    let volume = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.clone());
    match volume.filter(|volume| !volume.is_empty()) {
        Some(volume) => Ok(Err(format!("claim {of} has volume {volume} already"))),
        None => Ok(Ok(claim)),
    }
}

/// The node that the volume must be usable on: that of the pod that uses the claim, where the storage
/// class waits for one.
async fn node_of(ctx: &Context, download: &DataDownload, class: &str) -> Result<Option<String>> {
    let classes: Api<StorageClass> = Api::all(ctx.client.clone());
    let found = match class {
        "" => None,
        class => expose::find(&classes, class).await?,
    };
    let mode = found.and_then(|class| class.volume_binding_mode);
    if mode.as_deref() != Some("WaitForFirstConsumer") {
        return Ok(None);
    }
    let (claims, name) = (targets(ctx, download), &download.spec.target_volume.pvc);
    let selected = |claim: &PersistentVolumeClaim| {
        let node = claim.annotations().get(SELECTED_NODE).cloned();
        node.filter(|node| !node.is_empty())
    };
    let has_one =
        |claim: Option<&PersistentVolumeClaim>| claim.is_none_or(|c| selected(c).is_some());
    let limit = download.patience().unwrap_or(LIMIT);
    let began = tokio::time::Instant::now();
    while began.elapsed() < limit {
        let left = limit.saturating_sub(began.elapsed()).min(UNUSED);
        let choosing = await_condition(claims.clone(), name, has_one);
        match tokio::time::timeout(left, choosing).await {
            Ok(Ok(claim)) => return Ok(claim.as_ref().and_then(selected)),
            Ok(Err(error)) => {
                tracing::debug!(name, "watch: {error}");
                tokio::time::sleep(AGAIN).await;
            }
            // Nobody uses it: any node will do.
            Err(_) if !is_used(ctx, download).await? => return Ok(None),
            Err(_) => {}
        }
    }
    Ok(None)
}

async fn is_used(ctx: &Context, download: &DataDownload) -> Result<bool> {
    let target = &download.spec.target_volume;
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &target.namespace);
    let list = pods.list(&kube::api::ListParams::default()).await;
    let list = list.map_err(Error::api(format!("list pods of {}", target.namespace)))?;
    Ok(list.items.into_iter().any(|pod| {
        let volumes = pod.spec.and_then(|spec| spec.volumes).unwrap_or_default();
        let mut claims = volumes
            .into_iter()
            .filter_map(|v| v.persistent_volume_claim);
        claims.any(|claim| claim.claim_name == target.pvc)
    }))
}

/// The claim whose volume is filled: like the one that waits, but for what keeps that one waiting.
fn claim(
    download: &DataDownload,
    wanted: &PersistentVolumeClaimSpec,
    namespace: &str,
) -> PersistentVolumeClaim {
    let name = download.name_any();
    let labels = [
        (label::DATA_DOWNLOAD, label_value(&name)),
        (label::EXCLUDE_FROM_BACKUP, "true".to_owned()),
    ];
    let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value)).into();
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.name = Some(name);
    claim.metadata.namespace = Some(namespace.to_owned());
    claim.metadata.labels = Some(labels);
    claim.metadata.owner_references = Some(vec![owner_reference(download)]);
    claim.spec = Some(PersistentVolumeClaimSpec {
        access_modes: wanted.access_modes.clone(),
        resources: Some(room(download, wanted)),
        storage_class_name: wanted.storage_class_name.clone(),
        volume_attributes_class_name: wanted.volume_attributes_class_name.clone(),
        volume_mode: wanted.volume_mode.clone(),
        ..PersistentVolumeClaimSpec::default()
    });
    claim
}

/// What the claim asks for: as much as the one that waits, and room for a device's data, which may be
/// more than was asked for once.
fn room(download: &DataDownload, wanted: &PersistentVolumeClaimSpec) -> VolumeResourceRequirements {
    let mut resources = wanted.resources.clone().unwrap_or_default();
    let needed = download.spec.snapshot_size.filter(|size| *size > 0);
    if let Some(needed) = needed.filter(|_| wanted.volume_mode.as_deref() == Some("Block")) {
        let needed = bowline_api::Quantity::from_bytes(needed);
        let requests = resources.requests.get_or_insert_default();
        let asked = requests.get("storage");
        let asked = asked.and_then(|asked| asked.0.parse::<bowline_api::Quantity>().ok());
        if asked.is_none_or(|asked| asked < needed) {
            requests.insert("storage".to_owned(), Quantity(needed.to_string()));
        }
    }
    resources
}

/// Writes down which volume has the data: from then on its pod and claim are of no more use.
async fn write_down(
    ctx: &Context,
    download: &DataDownload,
    verdict: &Verdict,
) -> Result<Result<String, String>> {
    let claims: Api<PersistentVolumeClaim> = expose::api(ctx);
    let claim = expose::find(&claims, &download.name_any()).await?;
    let volume = claim.and_then(|claim| claim.spec?.volume_name);
    let Some(volume) = volume.filter(|volume| !volume.is_empty()) else {
        return Ok(Err("the claim with its data has no volume".to_owned()));
    };
    let bytes = verdict.total_bytes.to_string();
    let written = change(ctx, download, |download| {
        let annotations = download.annotations_mut();
        annotations.insert(annotation::VOLUME.to_owned(), volume.clone());
        annotations.insert(annotation::MOVED_BYTES.to_owned(), bytes.clone());
    });
    match written.await? {
        Some(_) => {
            crash::here("after volume written down");
            Ok(Ok(volume))
        }
        None => Ok(Err("it was ended meanwhile".to_owned())),
    }
}

/// Gives the volume to the claim that waits for it. Can be repeated.
async fn hand_over(
    ctx: &Context,
    download: &DataDownload,
    volume: &str,
) -> Result<Result<(), String>> {
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let Some(found) = expose::find(&volumes, volume).await? else {
        return Ok(Err(format!(
            "PersistentVolume {volume} with its data is gone"
        )));
    };
    let target = &download.spec.target_volume;
    let (claims, of) = (targets(ctx, download), target_of(download));
    let Some(claim) = expose::find(&claims, &target.pvc).await? else {
        return Ok(Err(format!("claim {of} is gone")));
    };
    let spec = found.spec.clone().unwrap_or_default();
    let bound_to = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.clone());
    match bound_to.filter(|name| !name.is_empty()) {
        Some(other) if other != volume => {
            return Ok(Err(format!("claim {of} has volume {other} meanwhile")));
        }
        _ => {}
    }
    let kept = found.annotations().get(annotation::RECLAIM_POLICY);
    let policy = kept.cloned().or(spec.persistent_volume_reclaim_policy);
    let policy = policy.unwrap_or_else(|| "Delete".to_owned());
    // It must not go with the claim that it has now.
    let patch = json!({
        "metadata": {"annotations": {annotation::RECLAIM_POLICY: policy}},
        "spec": {"persistentVolumeReclaimPolicy": "Retain"},
    });
    expose::patch_volume(ctx, volume, &patch).await?;
    crash::here("after volume kept");
    if let Err(why) = let_go(ctx, &download.name_any()).await? {
        return Ok(Err(why));
    }
    crash::here("after volume free");
    let uid = claim.uid();
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.clone());
    let wanted = selector.and_then(|selector| selector.match_labels);
    let patch = json!({
        "metadata": {"labels": wanted.unwrap_or_default()},
        "spec": {"claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": target.namespace,
            "name": target.pvc,
            "uid": uid,
            "resourceVersion": claim.resource_version(),
        }},
    });
    if expose::patch_volume(ctx, volume, &patch).await?.is_none() {
        return Ok(Err(format!(
            "PersistentVolume {volume} with its data is gone"
        )));
    }
    crash::here("after volume given");
    let patch = json!({"metadata": {"uid": uid}, "spec": {"volumeName": volume}});
    let patched = claims
        .patch(&target.pvc, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    match patched {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if expose::is_refusal(status.code) => {
            return Ok(Err(format!(
                "claim {of} does not take volume {volume}: {}",
                status.message
            )));
        }
        Err(error) => return Err(Error::api(format!("patch claim {of}"))(error)),
    }
    let limit = download.patience().unwrap_or(LIMIT);
    if !is_bound(&claims, &target.pvc, limit).await {
        return Ok(Err(format!(
            "claim {of} is not bound to volume {volume} after {limit:?}"
        )));
    }
    crash::here("after volume bound");
    give_back(ctx, volume, &policy).await?;
    Ok(Ok(()))
}

/// Gives a volume the policy that it is to have, and takes off the mark.
async fn give_back(ctx: &Context, volume: &str, policy: &str) -> Result<()> {
    let patch = json!({
        "metadata": {"annotations": {annotation::RECLAIM_POLICY: null}},
        "spec": {"persistentVolumeReclaimPolicy": policy},
    });
    expose::patch_volume(ctx, volume, &patch).await.map(drop)
}

/// Whether a claim and a volume are each other's.
fn has_volume(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let of = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let wanted = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_ref());
    of.is_some_and(|of| of.uid.is_some() && of.uid == claim.uid())
        && wanted == Some(&volume.name_any())
}

/// Removes the pod and the claim of a movement, and waits until they are gone.
async fn let_go(ctx: &Context, name: &str) -> Result<Result<(), String>> {
    let pods: Api<Pod> = expose::api(ctx);
    if let Some(pod) = expose::find(&pods, name).await? {
        expose::remove(&pods, &pod).await?;
        if !expose::is_gone(&pods, &pod, GOING).await {
            return Ok(Err(format!("pod {name} does not end")));
        }
    }
    let claims: Api<PersistentVolumeClaim> = expose::api(ctx);
    if let Some(claim) = expose::find(&claims, name).await? {
        expose::remove(&claims, &claim).await?;
        if !expose::is_gone(&claims, &claim, GOING).await {
            return Ok(Err(format!("claim {name} does not go")));
        }
    }
    Ok(Ok(()))
}

async fn is_bound(claims: &Api<PersistentVolumeClaim>, name: &str, limit: Duration) -> bool {
    let is_bound = |claim: Option<&PersistentVolumeClaim>| {
        claim.is_some_and(|claim| {
            let phase = claim
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase == Some("Bound")
        })
    };
    let waiting = tokio::time::timeout(limit, async {
        while await_condition(claims.clone(), name, is_bound)
            .await
            .is_err()
        {
            tokio::time::sleep(AGAIN).await;
        }
    });
    waiting.await.is_ok()
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::ApiServer;
    use kube::Client;

    use super::*;
    use crate::Settings;

    #[tokio::test]
    async fn a_volume_that_its_claim_has_stays_as_it_was() {
        for (given, policy) in [(true, "Retain"), (false, "Delete")] {
            let server = ApiServer::default();
            let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"namespace": "shop", "name": "data", "uid": "c1"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "volumeName": "pv",
                },
            });
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": "pv", "annotations": {annotation::RECLAIM_POLICY: "Retain"}},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "d", "volumeHandle": "h"},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {
                        "namespace": "shop", "name": "data", "uid": if given { "c1" } else { "c0" },
                    },
                },
            });
            for object in [namespace("shop"), claim, volume] {
                server.load(&object).unwrap();
            }
            let client = Client::new(server, "velero");
            let ctx = Context::new(client, "velero", Settings::default());
            let mut download = DataDownload::default();
            let target = &mut download.spec.target_volume;
            (target.namespace, target.pvc) = ("shop".to_owned(), "data".to_owned());
            let annotations = download.annotations_mut();
            annotations.insert(annotation::VOLUME.to_owned(), "pv".to_owned());
            download.undo(&ctx).await.unwrap();
            let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
            let volume = volumes.get("pv").await.unwrap();
            let is_marked = volume
                .annotations()
                .contains_key(annotation::RECLAIM_POLICY);
            assert_eq!(is_marked, !given, "given {given}");
            let found = volume.spec.and_then(|s| s.persistent_volume_reclaim_policy);
            assert_eq!(found.as_deref(), Some(policy), "given {given}");
        }
    }
}
