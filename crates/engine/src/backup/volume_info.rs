//! What became of each volume: notes taken while a backup runs, and the file made of them.

use std::collections::{BTreeMap, BTreeSet};

use bowline_api::{
    files::{
        BackupMethod, BackupVolumeInfo, NativeSnapshotInfo, PodVolumeInfo, PvInfo, Snapshot,
        SnapshotPhase, VolumeResult,
    },
    names::annotation,
    v1::{DataPathPhase, PodVolumeBackup},
};
use kube::ResourceExt;
use serde_json::Value;

use super::track::key;
use crate::{
    action::text,
    policy::{ActionType, Policies, VolumeFacts},
};

/// Ways of keeping a volume's data, as reasons name them.
const POD_VOLUME: &str = "podvolume";
const SNAPSHOT: &str = "volumeSnapshot";
const ANY: &str = "any";

/// Velero's words for volumes that nobody took a snapshot of.
const NOT_WANTED: &str = "not satisfy the criteria for VolumePolicy or the legacy snapshot way";
const NO_SNAPSHOTTER: &str = "no applicable volumesnapshotter found";
const BY_POLICY: &str = "skipped due to resource policy ";

/// What is known of the volumes of a backup so far. Claims are `<namespace>/<name>`.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// Volumes in the archive.
    volumes: BTreeMap<String, Volume>,
    /// Claims in the archive, as far as policies want to know them.
    claims: BTreeMap<String, VolumeFacts>,
    /// Why the files of claims were not copied.
    left: BTreeMap<String, String>,
    /// Claims that annotations of a pod choose.
    by_pod: BTreeSet<String>,
    /// Claims whose files are copied.
    copied: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Volume {
    claim: Option<(String, String)>,
    facts: VolumeFacts,
    info: PvInfo,
}

impl Ledger {
    /// A PersistentVolume is in the archive.
    pub(super) fn volume(&mut self, pv: &Value) {
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
        let volume = Volume {
            claim,
            facts: VolumeFacts::of_pv(pv),
            info: PvInfo {
                reclaim_policy: text(pv, "/spec/persistentVolumeReclaimPolicy").to_owned(),
                labels,
                ..PvInfo::default()
            },
        };
        let name = text(pv, "/metadata/name").to_owned();
        self.volumes.insert(name, volume);
    }

    /// A claim is in the archive.
    pub(super) fn claim(&mut self, claim: &Value) {
        let name = key(
            text(claim, "/metadata/namespace"),
            text(claim, "/metadata/name"),
        );
        let facts = VolumeFacts::default().with_pvc(claim);
        self.claims.insert(name, facts);
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

    /// Whether a snapshot is wanted of a volume in the archive.
    pub(super) fn wants_snapshot(
        &self,
        name: &str,
        policies: Option<&Policies>,
        with_snapshots: bool,
    ) -> bool {
        let Some(volume) = self.volumes.get(name) else {
            return false;
        };
        let claim = volume.claim_key();
        self.decide(volume, claim.as_deref(), policies, with_snapshots)
            .1
    }

    /// The file: volumes that were left out, then those with snapshots, then those whose files were
    /// copied.
    pub(super) fn info(
        &self,
        snapshots: &[Snapshot],
        copies: &[PodVolumeBackup],
        policies: Option<&Policies>,
        with_snapshots: bool,
    ) -> Vec<BackupVolumeInfo> {
        let skipped = self.volumes.iter().filter_map(|(name, volume)| {
            let claim = volume.claim_key();
            let is_taken = |snapshot: &Snapshot| snapshot.spec.persistent_volume_name == *name;
            if claim.as_ref().is_some_and(|c| self.copied.contains(c))
                || snapshots.iter().any(is_taken)
            {
                return None;
            }
            let mut info = volume.entry(name);
            info.skipped = true;
            info.skipped_reason =
                Some(self.reasons(volume, claim.as_deref(), policies, with_snapshots));
            Some(info)
        });
        let bound: BTreeMap<_, _> = self
            .volumes
            .iter()
            .filter_map(|(name, volume)| Some((volume.claim.as_ref()?, (name, volume))))
            .collect();
        let taken = snapshots
            .iter()
            .map(|snapshot| snapshot_entry(snapshot, &self.volumes));
        let copied = copies.iter().map(|copy| entry(copy, &bound));
        skipped.chain(taken).chain(copied).collect()
    }

    /// What policies say of a volume, and whether a snapshot of it is wanted.
    fn decide(
        &self,
        volume: &Volume,
        claim: Option<&str>,
        policies: Option<&Policies>,
        with_snapshots: bool,
    ) -> (Option<ActionType>, bool) {
        let facts = match claim.and_then(|claim| self.claims.get(claim)) {
            Some(of_claim) => VolumeFacts {
                pvc_labels: of_claim.pvc_labels.clone(),
                pvc_phase: of_claim.pvc_phase.clone(),
                pvc_volume_mode: of_claim.pvc_volume_mode.clone(),
                pvc_access_modes: of_claim.pvc_access_modes.clone(),
                ..volume.facts.clone()
            },
            None => volume.facts.clone(),
        };
        let action = policies
            .and_then(|policies| policies.volume_action(&facts))
            .map(|action| action.kind);
        let by_pod = claim.is_some_and(|claim| self.by_pod.contains(claim));
        let wanted = match action {
            Some(action) => action == ActionType::Snapshot,
            None => with_snapshots && !by_pod,
        };
        (action, wanted)
    }

    fn reasons(
        &self,
        volume: &Volume,
        claim: Option<&str>,
        policies: Option<&Policies>,
        with_snapshots: bool,
    ) -> String {
        let (action, wanted) = self.decide(volume, claim, policies, with_snapshots);
        let mut reasons = BTreeMap::new();
        if action == Some(ActionType::Skip) && claim.is_some() {
            reasons.insert(ANY, BY_POLICY);
        }
        if let Some(why) = claim.and_then(|claim| self.left.get(claim)) {
            reasons.insert(POD_VOLUME, why);
        }
        reasons.insert(SNAPSHOT, if wanted { NO_SNAPSHOTTER } else { NOT_WANTED });
        reasons
            .into_iter()
            .map(|(approach, reason)| format!("{approach}: {reason};"))
            .collect()
    }
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
    bound: &BTreeMap<&(String, String), (&String, &Volume)>,
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
        let info = ledger.info(&[], &[], policies, with_snapshots);
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
        let info = serde_json::to_value(ledger.info(&[], &[], None, true)).unwrap();
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
        assert_eq!(
            skipped(&ledger, None, true),
            [pair("free", snapshots), pair("idle", &idle)]
        );
        assert_eq!(
            skipped(&ledger, None, false),
            [pair("free", none), pair("idle", &idle)]
        );

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
        let info = serde_json::to_value(ledger.info(&[], &copies, None, true)).unwrap();
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
