//! Every claim in a backup has one row that says what became of its data, whatever the settings are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bowline_api::{
    files::{BackupMethod, Snapshot, SnapshotPhase},
    v1::PodVolumeBackup,
};
use bowline_engine::{
    backup::{PodVolume, PodVolumes, Snapshots, Taken},
    policy::{Policies, Purpose},
};
use serde_json::{Value, json};

use crate::{
    backup::{Made, Script, back_up_job, cluster},
    csi::{Driver, csi_claim, kinds},
};

/// Takes snapshots of the volume `pv-native`, and knows no other.
#[derive(Default)]
struct Camera(Mutex<bool>);

#[async_trait::async_trait]
impl Snapshots for Camera {
    async fn take(&self, volume: &Value, _: &str) -> Result<Taken, String> {
        if volume["metadata"]["name"] != "pv-native" {
            return Ok(Taken::Nobody);
        }
        *self.0.lock().unwrap() = true;
        Ok(Taken::Whole)
    }

    fn release(&self, _: &str) {}

    fn pending(&self) -> u64 {
        0
    }

    fn records(&self) -> Vec<Snapshot> {
        let mut record = Snapshot::default();
        record.spec.persistent_volume_name = "pv-native".to_owned();
        record.status.phase = Some(SnapshotPhase::Completed);
        let is_taken = *self.0.lock().unwrap();
        is_taken.then_some(record).into_iter().collect()
    }
}

/// Copies whatever it is asked to.
#[derive(Default)]
struct Copier(Mutex<Vec<PodVolumeBackup>>);

#[async_trait::async_trait]
impl PodVolumes for Copier {
    async fn begin(&self, pod: &Value, volumes: &[PodVolume]) -> Vec<Result<String, String>> {
        let begin = |volume: &PodVolume| {
            let claim = volume.claim.as_ref().unwrap();
            let copy = json!({
                "metadata": {"name": volume.name, "annotations": {"velero.io/pvc-name": claim.name}},
                "spec": {
                    "node": "n1", "pod": {"namespace": "shop", "name": pod["metadata"]["name"]},
                    "volume": volume.name, "backupStorageLocation": "l", "repoIdentifier": "",
                },
                "status": {"phase": "Completed", "snapshotID": "s"},
            });
            let copy = serde_json::from_value(copy).unwrap();
            self.0.lock().unwrap().push(copy);
            Ok(volume.name.clone())
        };
        volumes.iter().map(begin).collect()
    }

    async fn wait(&self, _: &[String]) {}

    async fn finish(&self) -> Vec<PodVolumeBackup> {
        self.0.lock().unwrap().clone()
    }
}

/// Kinds of volumes; each claim is named after the kind of its volume.
const KINDS: [&str; 4] = ["csi", "native", "neither", "unbound"];

fn objects() -> Vec<Value> {
    let label = json!({"told": "yes"});
    let mut objects = kinds();
    objects.push(json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "class"}, "driver": "d"}));
    for kind in KINDS {
        let mut pair = csi_claim(kind, label.clone());
        match kind {
            "csi" => {}
            "unbound" => {
                pair.pop();
                pair[0]["spec"]
                    .as_object_mut()
                    .unwrap()
                    .remove("volumeName");
                pair[0]["status"] = json!({"phase": "Pending"});
            }
            _ => {
                pair[1]["spec"].as_object_mut().unwrap().remove("csi");
                pair[1]["spec"]["nfs"] = json!({"server": "s", "path": "/"});
            }
        }
        objects.extend(pair);
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": format!("web-{kind}")},
            "spec": {
                "nodeName": "n1", "volumes": [{"name": kind, "persistentVolumeClaim": {"claimName": kind}}],
                "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": kind, "mountPath": "/v"}]}],
            },
            "status": {"phase": if kind == "unbound" { "Pending" } else { "Running" }},
        }));
    }
    objects
}

/// The settings of one backup.
#[derive(Debug, Clone, Copy)]
struct Case {
    policy: &'static str,
    with_snapshots: bool,
    by_default: bool,
    with_csi: bool,
    with_volumes: bool,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for policy in ["", "skip", "fs-backup", "snapshot", "custom"] {
            for bits in 0..16 {
                all.push(Self {
                    policy,
                    with_snapshots: bits & 1 == 0,
                    by_default: bits & 2 != 0,
                    with_csi: bits & 4 != 0,
                    with_volumes: bits & 8 == 0,
                });
            }
        }
        all
    }

    /// How the data of a volume is kept.
    fn method(self, kind: &str) -> Option<BackupMethod> {
        let is_copied = self.policy == "fs-backup" || self.policy.is_empty() && self.by_default;
        let is_cut = self.policy == "snapshot"
            || self.policy.is_empty() && self.with_snapshots && !self.by_default;
        match kind {
            "unbound" => None,
            _ if is_copied => Some(BackupMethod::PodVolumeBackup),
            "csi" if is_cut && self.with_csi => Some(BackupMethod::CsiSnapshot),
            // It is taken with its object.
            "native" if is_cut && self.with_volumes => Some(BackupMethod::NativeSnapshot),
            _ => None,
        }
    }

    async fn back_up(self) -> Made {
        let server = cluster(&objects()).await;
        let mut spec = json!({
            "includedNamespaces": ["shop"], "snapshotVolumes": self.with_snapshots,
            "defaultVolumesToFsBackup": self.by_default,
            "excludedResources": [
                "volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io",
            ],
        });
        if !self.with_volumes {
            let excluded = spec["excludedResources"].as_array_mut();
            excluded.unwrap().push(json!("persistentvolumes"));
        }
        back_up_job(&server, spec, |job| {
            job.pod_volumes = Some(Arc::new(Copier::default()));
            job.snapshots = Some(Arc::new(Camera::default()));
            let driver = Driver {
                server: server.clone(),
                script: Arc::new(Script::default()),
            };
            job.csi = self.with_csi.then(|| Arc::new(driver) as _);
            job.policies = (!self.policy.is_empty()).then(|| {
                let text = format!(
                    "version: v1\nvolumePolicies:\n- conditions: {{pvcLabels: {{told: 'yes'}}}}\n  action: {{type: {}}}\n",
                    self.policy
                );
                Arc::new(Policies::parse(&text, Purpose::Backup).unwrap())
            });
        })
        .await
    }
}

#[tokio::test]
async fn every_claim_has_one_row_with_data_or_with_a_reason() {
    let cases = Case::all();
    assert_eq!(cases.len(), 80);
    for case in cases {
        let made = case.back_up().await;
        let mut rows: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for row in &made.outcome.volumes {
            let claim = row.pvc_name.as_deref().unwrap_or_default();
            rows.entry(claim).or_default().push(row);
        }
        for kind in KINDS {
            let path = format!("resources/persistentvolumeclaims/namespaces/shop/{kind}.json");
            assert!(
                made.entries.contains_key(&path),
                "{case:?} {kind}: {:?}",
                made.log.results
            );
            let rows = rows.get(kind).map_or(&[][..], Vec::as_slice);
            let [row] = rows else {
                panic!("{case:?} {kind}: {rows:?}");
            };
            assert_eq!(row.backup_method, case.method(kind), "{case:?} {kind}");
            let why = row.skipped_reason.as_deref().unwrap_or_default();
            assert_eq!(row.skipped, row.backup_method.is_none(), "{case:?} {kind}");
            assert_eq!(row.skipped, !why.is_empty(), "{case:?} {kind}");
        }
        assert_eq!(rows.len(), KINDS.len(), "{case:?}: {rows:?}");
    }
}
