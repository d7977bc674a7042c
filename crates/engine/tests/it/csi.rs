//! CSI snapshots of claims, in the order that hooks want, and what of them is in the archive.

use std::{collections::BTreeMap, sync::Arc};

use bowline_api::{files::BackupMethod, v1::Backup, v2alpha1::DataUpload};
use bowline_apiserver::ApiServer;
use bowline_engine::{backup::CsiSnapshots, csi::Cut, movement};
use serde_json::{Value, json};

use crate::backup::{Made, Script, back_up_job, cluster, hooked};

/// The kinds of snapshots, as far as anybody here needs them.
pub(crate) fn kinds() -> Vec<Value> {
    [
        ("VolumeSnapshot", "Namespaced"),
        ("VolumeSnapshotContent", "Cluster"),
        ("VolumeSnapshotClass", "Cluster"),
    ]
    .map(|(kind, scope)| {
        let singular = kind.to_lowercase();
        let plural = match singular.as_str() {
            "volumesnapshotclass" => "volumesnapshotclasses".to_owned(),
            other => format!("{other}s"),
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.snapshot.storage.k8s.io"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, test only"},
            },
            "spec": {
                "group": "snapshot.storage.k8s.io", "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
    })
    .into()
}

/// A claim that is bound to a volume of a CSI driver, and the volume.
pub(crate) fn csi_claim(name: &str, labels: Value) -> Vec<Value> {
    let volume = format!("pv-{name}");
    vec![
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name, "labels": labels},
            "spec": {
                "volumeName": volume, "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Bound"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
                "csi": {"driver": "d", "volumeHandle": name}, "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "shop", "name": name},
            },
        }),
    ]
}

/// Plays the part of the server and of the driver: snapshots are there at once, except of one claim.
pub(crate) struct Driver {
    pub(crate) server: ApiServer,
    pub(crate) script: Arc<Script>,
}

impl Driver {
    fn cut(&self, claim: &str, group: Option<&str>) -> Cut {
        let (name, content) = (format!("velero-{claim}-x"), format!("content-{claim}"));
        let mut cut = Cut {
            snapshot: json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": {"namespace": "shop", "name": name},
                "spec": {"volumeSnapshotClassName": "class", "source": {"persistentVolumeClaimName": claim}},
                "status": {"boundVolumeSnapshotContentName": content, "creationTime": "2026-11-16T14:00:00Z", "readyToUse": false},
            }),
            content: json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
                "metadata": {"name": content, "annotations": {
                    "csi.storage.k8s.io/snapshotter-secret-name": "key",
                    "csi.storage.k8s.io/snapshotter-secret-namespace": "other",
                }},
                "spec": {"driver": "d"},
                "status": {"snapshotHandle": format!("handle-{claim}"), "restoreSize": 2_i64 << 30},
            }),
            upload: None,
        };
        if let Some(group) = group {
            cut.content["status"]["volumeGroupSnapshotHandle"] = json!(group);
        }
        self.server.load(&cut.snapshot).unwrap();
        self.server.load(&cut.content).unwrap();
        cut
    }
}

#[async_trait::async_trait]
impl CsiSnapshots for Driver {
    async fn take(&self, claim: &Value, volume: &Value) -> Result<Cut, String> {
        let name = claim["metadata"]["name"].as_str().unwrap();
        assert_eq!(claim["spec"]["volumeName"], volume["metadata"]["name"]);
        self.script.tell(&format!("cut {name}"));
        match name {
            "broken" => Err("no room".to_owned()),
            name => Ok(self.cut(name, None)),
        }
    }

    async fn upload(&self, claim: &Value, cut: &Cut) -> Result<DataUpload, String> {
        let name = claim["metadata"]["name"].as_str().unwrap();
        self.script.tell(&format!("move {name}"));
        if name == "stuck" {
            return Err("nobody is there".to_owned());
        }
        let backup: Backup = serde_json::from_value(
            json!({"metadata": {"name": "b", "uid": "u"}, "spec": {"storageLocation": "default"}}),
        )
        .unwrap();
        let mut upload = movement::upload(claim, cut, &backup, "velero");
        upload.metadata.name = Some(format!("b-{name}"));
        Ok(upload)
    }

    async fn take_group(
        &self,
        group: &str,
        members: &[(Value, Value)],
    ) -> Result<BTreeMap<String, Cut>, String> {
        let names = members
            .iter()
            .map(|(claim, _)| claim["metadata"]["name"].as_str().unwrap());
        let names: Vec<&str> = names.collect();
        self.script
            .tell(&format!("cut {} of {group}", names.join(" and ")));
        let cut = |name: &str| (name.to_owned(), self.cut(name, Some(group)));
        Ok(names.into_iter().map(cut).collect())
    }
}

async fn cut(objects: &[Value], spec: Value) -> (Made, Vec<String>) {
    let mut all = kinds();
    all.extend([
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "class"}, "driver": "d"}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "other", "name": "key"}}),
    ]);
    all.extend_from_slice(objects);
    let server = cluster(&all).await;
    let script = Arc::new(Script::default());
    let made = back_up_job(&server, spec, |job| {
        job.exec = Arc::clone(&script) as _;
        job.csi = Some(Arc::new(Driver {
            server: server.clone(),
            script: Arc::clone(&script),
        }));
    })
    .await;
    (made, script.told())
}

fn frozen() -> Value {
    json!({"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"})
}

const EXCLUDED: [&str; 2] = [
    "volumesnapshots.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
];

#[tokio::test]
async fn claims_of_frozen_pods_are_cut_between_the_hooks_and_others_after() {
    let mut objects = csi_claim("data", json!({}));
    objects.extend(csi_claim("idle", json!({})));
    objects.push(hooked("db", frozen(), "data"));
    let spec = json!({"includedNamespaces": ["shop"], "excludedResources": EXCLUDED});
    let (made, told) = cut(&objects, spec).await;
    assert_eq!(made.log.errors, 0, "{:?}", made.log.results);
    assert_eq!(
        told,
        ["shop/db: freeze", "cut data", "shop/db: thaw", "cut idle"]
    );
    // The claim tells its snapshot, and asks for as much room as that needs.
    let claim = &made.entries["resources/persistentvolumeclaims/namespaces/shop/data.json"];
    assert_eq!(
        claim["metadata"]["annotations"],
        json!({"velero.io/volume-snapshot-name": "velero-data-x"})
    );
    assert_eq!(
        claim["metadata"]["labels"],
        json!({"velero.io/volume-snapshot-name": "velero-data-x", "velero.io/backup-name": "b"})
    );
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
    // All that a restore needs is there, whatever was excluded.
    for path in [
        "volumesnapshots.snapshot.storage.k8s.io/namespaces/shop/velero-data-x",
        "volumesnapshotcontents.snapshot.storage.k8s.io/cluster/content-data",
        "volumesnapshotclasses.snapshot.storage.k8s.io/cluster/class",
        "volumesnapshots.snapshot.storage.k8s.io/v1-preferredversion/namespaces/shop/velero-idle-x",
        "secrets/namespaces/other/key",
        "customresourcedefinitions.apiextensions.k8s.io/cluster/volumesnapshots.snapshot.storage.k8s.io",
    ] {
        let path = format!("resources/{path}.json");
        assert!(made.entries.contains_key(&path), "{path}");
    }
    let operation = &made.outcome.operations[0].spec;
    assert_eq!(
        operation.backup_item_action,
        "velero.io/csi-volumesnapshot-backupper"
    );
    assert_eq!(made.outcome.operations.len(), 2);
    let again = operation.post_operation_items.as_ref().unwrap();
    assert_eq!(
        again.iter().map(|item| &item.resource).collect::<Vec<_>>(),
        ["volumesnapshots", "volumesnapshotcontents"]
    );
    // As Velero writes it, before it knows how the operation ended.
    let mut row = serde_json::to_value(&made.outcome.volumes[0]).unwrap();
    let id = row["csiSnapshotInfo"]["operationID"].take();
    assert_eq!(id, json!(operation.operation_id));
    assert_eq!(
        row,
        json!({
            "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv-data", "backupMethod": "CSISnapshot",
            "snapshotDataMoved": false, "preserveLocalSnapshot": true, "skipped": false,
            "startTimestamp": "2026-11-16T14:00:00Z",
            "csiSnapshotInfo": {
                "snapshotHandle": "handle-data", "size": 2_i64 << 30, "driver": "d", "vscName": "content-data",
                "operationID": null, "ReadyToUse": false,
            },
            "pvInfo": {"reclaimPolicy": "Delete", "labels": null},
        })
    );
}

#[tokio::test]
async fn a_claim_without_its_snapshot_is_an_error_with_a_row() {
    let mut objects = csi_claim("broken", json!({}));
    objects.extend(csi_claim("fine", json!({})));
    let spec = json!({"includedNamespaces": ["shop"]});
    let (made, _) = cut(&objects, spec.clone()).await;
    assert_eq!(made.log.errors, 1, "{:?}", made.log.results);
    let claims = "resources/persistentvolumeclaims/namespaces/shop";
    assert!(!made.entries.contains_key(&format!("{claims}/broken.json")));
    assert!(made.entries.contains_key(&format!("{claims}/fine.json")));
    let row = &made.outcome.volumes[0];
    assert_eq!(row.pvc_name.as_deref(), Some("broken"));
    assert_eq!(row.skipped_reason.as_deref(), Some("csiSnapshot: no room;"));
    assert_eq!(made.outcome.volumes.len(), 2);
}

#[tokio::test]
async fn moved_data_is_said_in_the_claim_and_waited_for() {
    let mut objects = csi_claim("data", json!({}));
    objects.extend(csi_claim("stuck", json!({})));
    let spec = json!({"includedNamespaces": ["shop"], "snapshotMoveData": true});
    let (made, mut told) = cut(&objects, spec).await;
    told.sort_unstable();
    assert_eq!(told, ["cut data", "cut stuck", "move data", "move stuck"]);
    assert_eq!(made.log.errors, 1, "{:?}", made.log.results);
    let claims = "resources/persistentvolumeclaims/namespaces/shop";
    let claim = &made.entries[&format!("{claims}/data.json")];
    assert_eq!(
        claim["metadata"]["annotations"],
        json!({
            "velero.io/data-upload-name": "velero/b-data",
            "velero.io/volume-snapshot-name": "velero-data-x",
        })
    );
    assert_eq!(
        claim["spec"]["resources"]["requests"]["storage"], "1Gi",
        "the snapshot is of no use for its restore"
    );
    assert!(!made.entries.contains_key(&format!("{claims}/stuck.json")));
    let is_snapshot = |path: &&String| path.contains("snapshot.storage.k8s.io/namespaces");
    assert_eq!(made.entries.keys().filter(is_snapshot).count(), 0);
    let [operation] = made.outcome.operations.as_slice() else {
        panic!("{:?}", made.outcome.operations);
    };
    let spec = &operation.spec;
    assert_eq!(spec.backup_item_action, "velero.io/csi-pvc-backupper");
    assert!(
        spec.operation_id.starts_with("du-u."),
        "{}",
        spec.operation_id
    );
    assert_eq!(spec.resource_identifier.name, "data");
    let items = spec.post_operation_items.as_ref().unwrap();
    assert_eq!(
        (
            items[0].resource.as_str(),
            items[0].group.as_str(),
            items[0].name.as_str()
        ),
        ("datauploads", "velero.io", "b-data")
    );
    let [left, moved] = made.outcome.volumes.as_slice() else {
        panic!("{:?}", made.outcome.volumes);
    };
    assert_eq!(
        left.skipped_reason.as_deref(),
        Some("csiSnapshot: nobody is there;")
    );
    assert!(moved.snapshot_data_moved && !moved.preserve_local_snapshot);
    let info = moved.snapshot_data_movement_info.as_ref().unwrap();
    assert_eq!(
        (info.data_mover.as_str(), info.uploader_type.as_str()),
        ("bowline", "restic")
    );
    assert_eq!(info.operation_id, spec.operation_id);
    let snapshot = moved.csi_snapshot_info.as_ref().unwrap();
    assert_eq!(
        (snapshot.snapshot_handle.as_str(), snapshot.driver.as_str()),
        ("unknown", "d")
    );
}

#[tokio::test]
async fn a_group_is_cut_at_once_and_its_pods_are_frozen_together() {
    let label = json!({"group": "db"});
    let mut objects = csi_claim("a", label.clone());
    objects.extend(csi_claim("b", label.clone()));
    objects.push(hooked("web-a", frozen(), "a"));
    objects.push(hooked("web-b", frozen(), "b"));
    let unbound = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "name": "c", "labels": label}, "spec": {},
    });
    objects.push(unbound);
    let spec = json!({"includedNamespaces": ["shop"], "volumeGroupSnapshotLabelKey": "group"});
    let (made, told) = cut(&objects, spec).await;
    assert_eq!(made.log.errors, 0, "{:?}", made.log.results);
    assert_eq!(made.log.warnings, 1, "{:?}", made.log.results);
    assert_eq!(
        told,
        [
            "shop/web-a: freeze",
            "shop/web-b: freeze",
            "cut a and b of db",
            "shop/web-a: thaw",
            "shop/web-b: thaw",
        ]
    );
    let cut = made.outcome.volumes.iter();
    let cut = cut.filter(|row| row.backup_method == Some(BackupMethod::CsiSnapshot));
    for row in cut.clone() {
        let info = row.csi_snapshot_info.as_ref().unwrap();
        assert_eq!(info.volume_group_snapshot_handle.as_deref(), Some("db"));
    }
    assert_eq!((cut.count(), made.outcome.volumes.len()), (2, 3));
}
