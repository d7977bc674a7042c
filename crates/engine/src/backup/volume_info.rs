//! What became of each volume: notes taken while a backup runs, and the file made of them.

use std::collections::{BTreeMap, BTreeSet};

use bowline_api::{
    Time,
    files::{
        BackupMethod, BackupOperation, BackupVolumeInfo, CsiSnapshotInfo, NativeSnapshotInfo,
        PodVolumeInfo, PvInfo, Snapshot, SnapshotDataMovementInfo, SnapshotPhase, VolumeResult,
    },
    names::{annotation, label},
    v1::{DataPathPhase, PodVolumeBackup, UploaderType},
    v2alpha1::DataUpload,
};
use kube::ResourceExt;
use serde_json::Value;

use super::track::key;
use crate::{
    action::text,
    csi::{self, Cut, operation::ACTION},
    movement::Mover,
    policy::{ActionType, Policies, VolumeFacts},
};

/// Ways of keeping a volume's data, as reasons name them.
const POD_VOLUME: &str = "podvolume";
const SNAPSHOT: &str = "volumeSnapshot";
const CSI_SNAPSHOT: &str = "csiSnapshot";
const ANY: &str = "any";

/// Velero's words for volumes that nobody took a snapshot of.
const NOT_WANTED: &str = "not satisfy the criteria for VolumePolicy or the legacy snapshot way";
const NO_SNAPSHOTTER: &str = "no applicable volumesnapshotter found";
const BY_POLICY: &str = "skipped due to resource policy ";

/// Velero's word for what is not known of a snapshot that is moved.
const UNKNOWN: &str = "unknown";

/// Ours, for what Velero does not speak of.
const UNBOUND: &str = "the claim is not bound to a volume";
const NO_VOLUME: &str = "its volume is not in the backup";
const NO_CLAIM: &str = "its claim is not in the backup";
const LOST_COPY: &str = "its copy is not there any more";

/// What is known of the volumes of a backup so far. Claims are `<namespace>/<name>`.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// Volumes that somebody has seen.
    volumes: BTreeMap<String, Volume>,
    /// Claims that somebody has seen.
    claims: BTreeMap<String, Claim>,
    /// Why the files of claims were not copied.
    left: BTreeMap<String, String>,
    /// Claims that annotations of a pod choose.
    by_pod: BTreeSet<String>,
    /// Claims whose files are copied.
    copied: BTreeSet<String>,
    /// CSI snapshots of claims.
    cuts: BTreeMap<String, Cut>,
    /// Why claims have none.
    uncut: BTreeMap<String, String>,
    /// Those of them that should have one.
    failed: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Volume {
    claim: Option<(String, String)>,
    facts: VolumeFacts,
    info: PvInfo,
    is_csi: bool,
    is_stored: bool,
}

#[derive(Debug, Clone)]
struct Claim {
    facts: VolumeFacts,
    namespace: String,
    name: String,
    /// The volume it is bound to; empty if it is not.
    volume: String,
    is_stored: bool,
}

/// What a backup has done about volumes, and what it was to do.
#[derive(Clone, Copy, Default)]
pub(super) struct Told<'a> {
    pub(super) snapshots: &'a [Snapshot],
    pub(super) copies: &'a [PodVolumeBackup],
    pub(super) operations: &'a [BackupOperation],
    pub(super) policies: Option<&'a Policies>,
    pub(super) with_snapshots: bool,
    pub(super) with_csi: bool,
}

impl Ledger {
    /// A PersistentVolume is in the archive.
    pub(super) fn volume(&mut self, pv: &Value) {
        self.see(pv).is_stored = true;
    }

    /// Somebody has looked at a PersistentVolume.
    pub(super) fn known_volume(&mut self, pv: &Value) {
        self.see(pv);
    }

    fn see(&mut self, pv: &Value) -> &mut Volume {
        let claim = pv.pointer("/spec/claimRef").map(|claim| {
            let part = |pointer| text(claim, pointer).to_owned();
            (part("/namespace"), part("/name"))
        });
        let labels = pv.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.map(|labels| {
            let pair = |(key, value): (&String, &Value)| {
                (key.clone(), value.as_str().unwrap_or_default().to_owned())
            };
            labels.iter().map(pair).collect()
        });
        let name = text(pv, "/metadata/name").to_owned();
        let known = self.volumes.get(&name);
        let volume = Volume {
            claim,
            facts: VolumeFacts::of_pv(pv),
            info: PvInfo {
                reclaim_policy: text(pv, "/spec/persistentVolumeReclaimPolicy").to_owned(),
                labels,
                ..PvInfo::default()
            },
            is_csi: csi::driver(pv).is_some(),
            is_stored: known.is_some_and(|known| known.is_stored),
        };
        let place = self.volumes.entry(name);
        let known = place.or_insert_with(|| volume.clone());
        *known = volume;
        known
    }

    /// Somebody has looked at a claim.
    pub(super) fn claim(&mut self, claim: &Value) {
        let (namespace, name) = (
            text(claim, "/metadata/namespace"),
            text(claim, "/metadata/name"),
        );
        let is_bound = text(claim, "/status/phase") == "Bound";
        let volume = Some(text(claim, "/spec/volumeName")).filter(|_| is_bound);
        let key = key(namespace, name);
        let known = self.claims.get(&key);
        let claim = Claim {
            facts: VolumeFacts::default().with_pvc(claim),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            volume: volume.unwrap_or_default().to_owned(),
            is_stored: known.is_some_and(|known| known.is_stored),
        };
        self.claims.insert(key, claim);
    }

    /// A claim is in the archive.
    pub(super) fn stored_claim(&mut self, claim: &Value) {
        self.claim(claim);
        let key = key(
            text(claim, "/metadata/namespace"),
            text(claim, "/metadata/name"),
        );
        if let Some(claim) = self.claims.get_mut(&key) {
            claim.is_stored = true;
        }
    }

    /// Annotations of a pod choose the claim.
    pub(super) fn by_pod(&mut self, claim: &str) {
        self.by_pod.insert(claim.to_owned());
    }

    /// Nobody chose the claim in this pod. A better reason stays.
    pub(super) fn out(&mut self, claim: &str, pod: &str) {
        let why = || format!("opted out due to annotation in pod {pod}");
        self.left.entry(claim.to_owned()).or_insert_with(why);
    }

    /// The files of a claim were to be copied, but.
    pub(super) fn left(&mut self, claim: &str, why: &str) {
        self.left.insert(claim.to_owned(), why.to_owned());
    }

    /// The files of a claim are copied.
    pub(super) fn copied(&mut self, claim: &str) {
        self.copied.insert(claim.to_owned());
    }

    /// A claim has a CSI snapshot.
    pub(super) fn csi(&mut self, claim: &str, cut: Cut) {
        self.cuts.insert(claim.to_owned(), cut);
    }

    /// A claim has none, for this reason.
    pub(super) fn csi_left(&mut self, claim: &str, why: &str) {
        self.cuts.remove(claim);
        self.uncut.insert(claim.to_owned(), why.to_owned());
    }

    /// A claim should have one and does not; it is told even if it is not in the archive for that.
    pub(super) fn csi_failed(&mut self, claim: &str, why: &str) {
        self.csi_left(claim, why);
        self.failed.insert(claim.to_owned());
    }

    /// A claim has one, and no use for it.
    pub(super) fn csi_lost(&mut self, claim: &str, why: &str) {
        if self.cuts.contains_key(claim) {
            self.csi_failed(claim, why);
        }
    }

    /// Whether a snapshot is wanted of a volume, by its own claim if none is named.
    pub(super) fn wants_snapshot(
        &self,
        name: &str,
        claim: Option<&str>,
        policies: Option<&Policies>,
        with_snapshots: bool,
    ) -> bool {
        let Some(volume) = self.volumes.get(name) else {
            return false;
        };
        let own = volume.claim_key();
        let told = Told {
            policies,
            with_snapshots,
            ..Told::default()
        };
        self.decide(volume, claim.or(own.as_deref()), &told).1
    }

    /// The file: volumes that were left out, then those with native snapshots, with CSI snapshots, those
    /// whose files were copied, and those whose snapshots are moved. Every claim in the archive is there once.
    pub(super) fn info(&self, told: &Told<'_>) -> Vec<BackupVolumeInfo> {
        let mut with_data: Vec<BackupVolumeInfo> = told
            .snapshots
            .iter()
            .map(|snapshot| snapshot_entry(snapshot, &self.volumes))
            .collect();
        let cuts = || self.cuts.iter();
        let kept = cuts().filter(|(_, cut)| cut.upload.is_none());
        with_data.extend(kept.map(|(claim, cut)| self.cut_entry(claim, cut, told.operations)));
        let bound = self.bound();
        with_data.extend(told.copies.iter().map(|copy| entry(copy, &bound)));
        with_data.extend(cuts().filter_map(|(claim, cut)| {
            let upload = cut.upload.as_deref()?;
            Some(self.moved_entry(claim, cut, upload))
        }));
        let mut rows = self.without_data(&with_data, told);
        rows.extend(with_data);
        rows
    }

    /// Volumes by their claims.
    fn bound(&self) -> BTreeMap<(String, String), (&String, &Volume)> {
        let by_volume = self.volumes.iter().filter_map(|(name, volume)| {
            let claim = volume.claim.clone()?;
            Some((claim, (name, volume)))
        });
        let by_claim = self.claims.values().filter_map(|claim| {
            let volume = self.volumes.get_key_value(&claim.volume)?;
            Some(((claim.namespace.clone(), claim.name.clone()), volume))
        });
        by_volume.chain(by_claim).collect()
    }

    /// The rows of volumes and claims that have none with data.
    fn without_data(
        &self,
        with_data: &[BackupVolumeInfo],
        told: &Told<'_>,
    ) -> Vec<BackupVolumeInfo> {
        let mut named: BTreeSet<String> = with_data.iter().filter_map(claim_of).collect();
        let kept: BTreeSet<&str> = with_data
            .iter()
            .filter_map(|info| info.pv_name.as_deref())
            .collect();
        let mut rows = Vec::new();
        for (name, volume) in self.volumes.iter().filter(|(_, v)| v.is_stored) {
            if kept.contains(name.as_str()) {
                continue;
            }
            let mut row = volume.entry(name);
            let mut claim = volume.claim_key();
            let elsewhere = |claim: &String| {
                let known = self.claims.get(claim);
                named.contains(claim)
                    || known.is_some_and(|known| known.is_stored && known.volume != *name)
            };
            if claim.as_ref().is_some_and(elsewhere) {
                // The claim has another volume by now.
                (row.pvc_name, row.pvc_namespace) = (None, None);
                claim = None;
            }
            named.extend(claim.clone());
            row.skipped = true;
            row.skipped_reason = Some(self.reasons(Some(volume), claim.as_deref(), told));
            rows.push(row);
        }
        for (key, claim) in &self.claims {
            let is_told = claim.is_stored || self.failed.contains(key);
            if named.contains(key) || !is_told {
                continue;
            }
            let volume = self.volumes.get(&claim.volume);
            rows.push(BackupVolumeInfo {
                pvc_name: Some(claim.name.clone()),
                pvc_namespace: Some(claim.namespace.clone()),
                pv_name: Some(claim.volume.clone()).filter(|name| !name.is_empty()),
                pv_info: volume.map(|volume| volume.info.clone()),
                skipped: true,
                skipped_reason: Some(self.reasons(volume, Some(key), told)),
                ..BackupVolumeInfo::default()
            });
        }
        rows
    }

    /// What policies say of a volume, and whether a snapshot of it is wanted.
    fn decide(
        &self,
        volume: &Volume,
        claim: Option<&str>,
        told: &Told<'_>,
    ) -> (Option<ActionType>, bool) {
        let facts = match claim.and_then(|claim| self.claims.get(claim)) {
            Some(Claim { facts, .. }) => VolumeFacts {
                pvc_labels: facts.pvc_labels.clone(),
                pvc_phase: facts.pvc_phase.clone(),
                pvc_volume_mode: facts.pvc_volume_mode.clone(),
                pvc_access_modes: facts.pvc_access_modes.clone(),
                ..volume.facts.clone()
            },
            None => volume.facts.clone(),
        };
        let action = told
            .policies
            .and_then(|policies| policies.volume_action(&facts))
            .map(|action| action.kind);
        let by_pod = claim.is_some_and(|claim| self.by_pod.contains(claim));
        let wanted = match action {
            Some(action) => action == ActionType::Snapshot,
            None => told.with_snapshots && !by_pod,
        };
        (action, wanted)
    }

    /// Why a volume or a claim has no data.
    fn reasons(&self, volume: Option<&Volume>, claim: Option<&str>, told: &Told<'_>) -> String {
        let mut reasons: BTreeMap<&str, String> = BTreeMap::new();
        let known = claim.and_then(|claim| self.claims.get(claim));
        if known.is_some_and(|claim| claim.volume.is_empty()) {
            reasons.insert(ANY, UNBOUND.to_owned());
        }
        if claim.is_some_and(|claim| self.copied.contains(claim)) {
            reasons.insert(POD_VOLUME, LOST_COPY.to_owned());
        } else if let Some(why) = claim.and_then(|claim| self.left.get(claim)) {
            reasons.insert(POD_VOLUME, why.clone());
        }
        let uncut = claim.and_then(|claim| self.uncut.get(claim));
        if let Some(why) = uncut {
            reasons.insert(CSI_SNAPSHOT, why.clone());
        }
        if let Some(volume) = volume {
            let (action, wanted) = self.decide(volume, claim, told);
            if action == Some(ActionType::Skip) && claim.is_some() {
                reasons.insert(ANY, BY_POLICY.to_owned());
            }
            let (approach, why) = match (told.with_csi && volume.is_csi, wanted) {
                (true, _) if uncut.is_some() => (CSI_SNAPSHOT, None),
                (true, false) => (CSI_SNAPSHOT, Some(NOT_WANTED)),
                (true, true) => (CSI_SNAPSHOT, Some(NO_CLAIM)),
                (false, _) if !volume.is_stored => (SNAPSHOT, Some(NO_VOLUME)),
                (false, true) => (SNAPSHOT, Some(NO_SNAPSHOTTER)),
                (false, false) => (SNAPSHOT, Some(NOT_WANTED)),
            };
            if let Some(why) = why {
                reasons.insert(approach, why.to_owned());
            }
        } else if known.is_some_and(|claim| !claim.volume.is_empty()) {
            reasons.insert(SNAPSHOT, NO_VOLUME.to_owned());
        }
        let reasons = reasons.into_iter();
        reasons
            .map(|(approach, reason)| format!("{approach}: {reason};"))
            .collect()
    }

    /// The entry of a CSI snapshot. How it ended is known when its operation is over.
    fn csi_entry(&self, claim: &str) -> BackupVolumeInfo {
        let known = self.claims.get(claim);
        let volume = known.and_then(|known| self.volumes.get_key_value(&known.volume));
        let mut info = volume.map_or_else(BackupVolumeInfo::default, |(name, v)| v.entry(name));
        let (namespace, name) = claim.split_once('/').unwrap_or(("", claim));
        info.pvc_name = Some(name.to_owned());
        info.pvc_namespace = Some(namespace.to_owned());
        info.backup_method = Some(BackupMethod::CsiSnapshot);
        info
    }

    /// The entry of a claim whose snapshot is moved, while that goes on.
    fn moved_entry(&self, claim: &str, cut: &Cut, upload: &DataUpload) -> BackupVolumeInfo {
        let mut info = self.csi_entry(claim);
        info.snapshot_data_moved = true;
        info.start_timestamp = cut.taken_at().map(Time);
        let unknown = || UNKNOWN.to_owned();
        info.csi_snapshot_info = Some(CsiSnapshotInfo {
            snapshot_handle: unknown(),
            driver: text(&cut.content, "/spec/driver").to_owned(),
            vsc_name: unknown(),
            operation_id: Some(unknown()),
            ..CsiSnapshotInfo::default()
        });
        let operation = upload.labels().get(label::ASYNC_OPERATION_ID);
        let mover = Mover::of(upload.spec.datamover.as_deref());
        let uploader = match mover {
            Mover::Ours => UploaderType::Restic,
            Mover::Velero | Mover::Other(_) => UploaderType::Kopia,
        };
        info.snapshot_data_movement_info = Some(SnapshotDataMovementInfo {
            data_mover: mover.name().to_owned(),
            uploader_type: uploader.as_str().to_owned(),
            operation_id: operation.cloned().unwrap_or_default(),
            ..SnapshotDataMovementInfo::default()
        });
        info
    }

    fn cut_entry(
        &self,
        claim: &str,
        cut: &Cut,
        operations: &[BackupOperation],
    ) -> BackupVolumeInfo {
        let mut info = self.csi_entry(claim);
        let (namespace, _) = claim.split_once('/').unwrap_or(("", claim));
        info.preserve_local_snapshot = true;
        info.start_timestamp = cut.taken_at().map(Time);
        let operation = operations.iter().find(|operation| {
            let of = &operation.spec.resource_identifier;
            operation.spec.backup_item_action == ACTION
                && (of.namespace.as_str(), of.name.as_str()) == (namespace, cut.name())
        });
        info.csi_snapshot_info = Some(CsiSnapshotInfo {
            snapshot_handle: csi::handle(&cut.content).unwrap_or_default().to_owned(),
            size: csi::restore_size(&cut.content).unwrap_or_default(),
            driver: text(&cut.content, "/spec/driver").to_owned(),
            vsc_name: text(&cut.content, "/metadata/name").to_owned(),
            operation_id: operation.map(|operation| operation.spec.operation_id.clone()),
            volume_group_snapshot_handle: csi::group_handle(&cut.content).map(str::to_owned),
            ready_to_use: cut.snapshot["status"]["readyToUse"].as_bool(),
            ..CsiSnapshotInfo::default()
        });
        info
    }
}

/// The claim of a row.
fn claim_of(info: &BackupVolumeInfo) -> Option<String> {
    let namespace = info.pvc_namespace.as_deref().unwrap_or_default();
    Some(key(namespace, info.pvc_name.as_deref()?))
}

/// The entry of a snapshot.
fn snapshot_entry(snapshot: &Snapshot, volumes: &BTreeMap<String, Volume>) -> BackupVolumeInfo {
    let Snapshot { spec, status, .. } = snapshot;
    let name = &spec.persistent_volume_name;
    let mut info = match volumes.get(name) {
        Some(volume) => volume.entry(name),
        None => BackupVolumeInfo {
            pv_name: Some(name.clone()),
            ..BackupVolumeInfo::default()
        },
    };
    let phase = status.phase.clone().unwrap_or_default();
    info.backup_method = Some(BackupMethod::NativeSnapshot);
    info.result = Some(if phase == SnapshotPhase::Completed {
        VolumeResult::Succeeded
    } else {
        VolumeResult::Failed
    });
    info.native_snapshot_info = Some(NativeSnapshotInfo {
        snapshot_handle: status.provider_snapshot_id.clone().unwrap_or_default(),
        volume_type: spec.volume_type.clone(),
        volume_az: spec.volume_az.clone().unwrap_or_default(),
        iops: spec.volume_iops.unwrap_or_default().to_string(),
        phase: phase.as_str().to_owned(),
        ..NativeSnapshotInfo::default()
    });
    info
}

/// The entry of a copy. `bound` are volumes by their claims.
fn entry(
    copy: &PodVolumeBackup,
    bound: &BTreeMap<(String, String), (&String, &Volume)>,
) -> BackupVolumeInfo {
    let namespace = copy.spec.pod.namespace.clone().unwrap_or_default();
    let mut info = match copy.annotations().get(annotation::PVC_NAME) {
        None => BackupVolumeInfo::default(),
        Some(claim) => {
            let of = (namespace.clone(), claim.clone());
            match bound.get(&of) {
                Some((name, volume)) => volume.entry(name),
                None => BackupVolumeInfo {
                    pvc_name: Some(of.1),
                    pvc_namespace: Some(of.0),
                    ..BackupVolumeInfo::default()
                },
            }
        }
    };
    let status = copy.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let uploader = copy.spec.uploader_type.as_ref();
    info.backup_method = Some(BackupMethod::PodVolumeBackup);
    info.start_timestamp = status.start_timestamp;
    info.completion_timestamp = status.completion_timestamp;
    info.result = Some(if phase == DataPathPhase::Completed {
        VolumeResult::Succeeded
    } else {
        VolumeResult::Failed
    });
    info.pvb_info = Some(PodVolumeInfo {
        snapshot_handle: status.snapshot_id.as_deref().and_then(some),
        size: status.progress.and_then(|progress| progress.total_bytes),
        incremental_size: status.incremental_bytes.filter(|bytes| *bytes != 0),
        uploader_type: uploader.map_or_else(String::new, |u| u.as_str().to_owned()),
        volume_name: copy.spec.volume.clone(),
        pod_name: copy.spec.pod.name.clone().unwrap_or_default(),
        pod_namespace: namespace,
        node_name: some(&copy.spec.node),
        phase: phase.as_str().to_owned(),
        ..PodVolumeInfo::default()
    });
    info
}

impl Volume {
    fn claim_key(&self) -> Option<String> {
        let claim = self.claim.as_ref();
        claim.map(|(namespace, name)| key(namespace, name))
    }

    fn entry(&self, name: &str) -> BackupVolumeInfo {
        let claim = self.claim.as_ref();
        BackupVolumeInfo {
            pvc_name: claim.map(|(_, name)| name.clone()),
            pvc_namespace: claim.map(|(namespace, _)| namespace.clone()),
            pv_name: Some(name.to_owned()),
            pv_info: Some(self.info.clone()),
            ..BackupVolumeInfo::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::Purpose;

    fn volume(name: &str, claim: &str, class: &str) -> Value {
        let mut pv = json!({
            "metadata": {"name": name},
            "spec": {"persistentVolumeReclaimPolicy": "Retain", "storageClassName": class},
        });
        if !claim.is_empty() {
            pv["spec"]["claimRef"] = json!({"namespace": "shop", "name": claim});
        }
        pv
    }

    /// Why each volume was skipped.
    fn skipped(
        ledger: &Ledger,
        policies: Option<&Policies>,
        with_snapshots: bool,
    ) -> Vec<(String, String)> {
        let info = ledger.info(&Told {
            policies,
            with_snapshots,
            ..Told::default()
        });
        let text = |text: Option<String>| text.unwrap_or_default();
        info.into_iter()
            .map(|info| (text(info.pv_name), text(info.skipped_reason)))
            .collect()
    }

    #[test]
    fn a_volume_that_nobody_took_looks_as_velero_writes_it() {
        let mut ledger = Ledger::default();
        ledger.volume(&volume("shop-pv", "shop-data", ""));
        ledger.out("shop/shop-data", "web-8b98795bf-vv5l5");
        // From the bucket of a Velero 1.18.3.
        let expected = json!([{
            "pvcName": "shop-data",
            "pvcNamespace": "shop",
            "pvName": "shop-pv",
            "snapshotDataMoved": false,
            "preserveLocalSnapshot": false,
            "skipped": true,
            "skippedReason": "podvolume: opted out due to annotation in pod web-8b98795bf-vv5l5;volumeSnapshot: no applicable volumesnapshotter found;",
            "pvInfo": {"reclaimPolicy": "Retain", "labels": null},
        }]);
        let info = serde_json::to_value(ledger.info(&Told {
            with_snapshots: true,
            ..Told::default()
        }))
        .unwrap();
        assert_eq!(info, expected);
    }

    #[test]
    fn reasons_follow_policies_and_pods() {
        let mut ledger = Ledger::default();
        ledger.volume(&volume("free", "", ""));
        ledger.volume(&volume("taken", "taken", ""));
        ledger.volume(&volume("idle", "idle", ""));
        ledger.by_pod("shop/idle");
        ledger.left("shop/idle", "it does not run");
        ledger.out("shop/idle", "another");
        ledger.out("shop/taken", "another");
        ledger.copied("shop/taken");
        let pair = |name: &str, why: &str| (name.to_owned(), why.to_owned());
        let snapshots = "volumeSnapshot: no applicable volumesnapshotter found;";
        let none = "volumeSnapshot: not satisfy the criteria for VolumePolicy or the legacy \
                    snapshot way;";
        let idle = format!("podvolume: it does not run;{none}");
        // Nobody knows its copy any more.
        let taken = "podvolume: its copy is not there any more;";
        let rows = |why: &str| {
            let taken = format!("{taken}{why}");
            [
                pair("free", why),
                pair("idle", &idle),
                pair("taken", &taken),
            ]
        };
        assert_eq!(skipped(&ledger, None, true), rows(snapshots));
        assert_eq!(skipped(&ledger, None, false), rows(none));

        let policies = Policies::parse(
            "version: v1\nvolumePolicies:\n- conditions: {pvcLabels: {keep: no-thanks}}\n  action: \
             {type: skip}\n- conditions: {storageClass: [fast]}\n  action: {type: snapshot}\n",
            Purpose::Backup,
        )
        .unwrap();
        let mut ledger = Ledger::default();
        ledger.volume(&volume("a", "a", "fast"));
        ledger.volume(&volume("b", "b", "fast"));
        ledger.claim(&json!({"metadata": {"namespace": "shop", "name": "a", "labels": {"keep": "no-thanks"}}}));
        let both = format!("any: skipped due to resource policy ;{none}");
        assert_eq!(
            skipped(&ledger, Some(&policies), false),
            [pair("a", &both), pair("b", snapshots)]
        );
    }

    #[test]
    fn copies_are_told_with_their_volume() {
        let copy = |annotations: Value, phase: &str| -> PodVolumeBackup {
            serde_json::from_value(json!({
                "metadata": {"name": "b-x", "annotations": annotations},
                "spec": {
                    "node": "n1", "pod": {"namespace": "shop", "name": "web"}, "volume": "v",
                    "backupStorageLocation": "default", "repoIdentifier": "r", "uploaderType": "restic",
                },
                "status": {
                    "phase": phase, "snapshotID": "abc", "progress": {"totalBytes": 7, "bytesDone": 7},
                    "incrementalBytes": 3, "startTimestamp": "2026-11-15T03:19:37Z",
                    "completionTimestamp": "2026-11-15T03:19:39Z",
                },
            }))
            .unwrap()
        };
        let mut ledger = Ledger::default();
        ledger.volume(&volume("pv", "data", ""));
        ledger.copied("shop/data");
        let copies = [
            copy(json!({"velero.io/pvc-name": "data"}), "Completed"),
            copy(json!({}), "Failed"),
            copy(json!({"velero.io/pvc-name": "elsewhere"}), "Canceled"),
        ];
        let info = serde_json::to_value(ledger.info(&Told {
            copies: &copies,
            with_snapshots: true,
            ..Told::default()
        }))
        .unwrap();
        assert_eq!(
            info[0],
            json!({
                "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv",
                "backupMethod": "PodVolumeBackup", "snapshotDataMoved": false,
                "preserveLocalSnapshot": false, "skipped": false,
                "startTimestamp": "2026-11-15T03:19:37Z",
                "completionTimestamp": "2026-11-15T03:19:39Z", "result": "succeeded",
                "pvbInfo": {
                    "snapshotHandle": "abc", "size": 7, "incrementalSize": 3,
                    "uploaderType": "restic", "volumeName": "v", "podName": "web",
                    "podNamespace": "shop", "nodeName": "n1", "Phase": "Completed",
                },
                "pvInfo": {"reclaimPolicy": "Retain", "labels": null},
            })
        );
        assert_eq!(info[1]["result"], "failed");
        assert_eq!(info[1]["pvcName"], json!(null));
        assert_eq!(info[2]["pvcName"], "elsewhere");
        assert_eq!(info.as_array().unwrap().len(), 3);
    }
}
