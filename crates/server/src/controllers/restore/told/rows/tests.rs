use bowline_api::{v1::PodVolumeRestore, v2alpha1::DataDownload};
use bowline_engine::restore::{notes::Unfilled, pod_volume::Filling};
use serde_json::{Value, json};

use super::*;

/// What is known in a test; all of it may be empty.
#[derive(Default)]
struct Story {
    restore: Restore,
    backup: Vec<BackupVolumeInfo>,
    notes: Notes,
    snapshots: HashMap<String, NativeSnapshotInfo>,
    native: BTreeMap<String, Made>,
    filled: Vec<Filled>,
    seen: Seen,
}

impl Story {
    fn rows(&self) -> Vec<RestoreVolumeInfo> {
        let known = Known {
            restore: &self.restore,
            backup: &self.backup,
            notes: &self.notes,
            snapshots: &self.snapshots,
            native: &self.native,
            filled: &self.filled,
        };
        rows(&known, &self.seen)
    }

    /// The same as JSON.
    fn values(&self) -> Vec<Value> {
        let value = |row| serde_json::to_value(row).unwrap();
        self.rows().into_iter().map(value).collect()
    }

    fn claim(&mut self, name: &str, volume: &str, done: Option<Done>) {
        self.notes.claims.push(Claim {
            source_namespace: "shop".to_owned(),
            source_name: name.to_owned(),
            namespace: "copy".to_owned(),
            name: name.to_owned(),
            volume: volume.to_owned(),
            moved: None,
            done,
        });
    }

    fn volume(&mut self, name: &str, claim: Option<&str>, fate: Fate, done: Option<Done>) {
        self.notes.volumes.push(Volume {
            source_name: name.to_owned(),
            name: name.to_owned(),
            claim: claim.map(|claim| ("shop".to_owned(), claim.to_owned())),
            fate: Some(fate),
            done,
        });
    }

    /// A claim of the cluster; `Null` for one that is gone.
    fn live(&mut self, name: &str, claim: Value, csi: Option<Csi>) {
        let of = ("copy".to_owned(), name.to_owned());
        let live = match claim.is_null() {
            true => None,
            false => Some(Live {
                claim: serde_json::from_value(claim).unwrap(),
                csi,
            }),
        };
        self.seen.claims.insert(of, live);
    }

    fn backed_up(&mut self, info: Value) {
        self.backup.push(serde_json::from_value(info).unwrap());
    }
}

fn bound(volume: &str) -> Value {
    json!({
        "metadata": {"name": "c"},
        "spec": {"volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
    })
}

fn pending() -> Value {
    json!({
        "metadata": {"name": "c"},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    })
}

fn request(phase: &str, claim: Option<&str>, trouble: Option<&str>) -> Filled {
    let request: PodVolumeRestore = serde_json::from_value(json!({
        "metadata": {"name": "r-1", "namespace": "velero"},
        "spec": {
            "pod": {"namespace": "copy", "name": "web"}, "volume": "data", "uploaderType": "restic",
            "snapshotID": "1a2b", "snapshotSize": 7, "backupStorageLocation": "default",
            "repoIdentifier": "", "sourceNamespace": "shop",
        },
        "status": {
            "phase": phase, "node": "n1", "progress": {"totalBytes": 9, "bytesDone": 9},
            "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:04Z",
        },
    }))
    .unwrap();
    Filled {
        filling: Filling {
            request,
            claim: claim.map(str::to_owned),
        },
        trouble: trouble.map(str::to_owned),
    }
}

#[test]
fn a_pod_volume_has_velero_s_row_and_what_velero_leaves_empty() {
    let mut story = Story::default();
    story.claim("data", "pv-1", Some(Done::Created));
    story.live("data", bound("pv-2"), None);
    story.filled = vec![
        request("Completed", Some("data"), None),
        request(
            "Failed",
            None,
            Some("pod volume restore failed: no password"),
        ),
    ];
    let rows = story.values();
    assert_eq!(
        rows[0],
        json!({
            "pvcName": "data", "pvcNamespace": "copy", "pvName": "pv-2",
            "restoreMethod": "PodVolumeRestore", "snapshotDataMoved": false,
            "pvrInfo": {
                "snapshotHandle": "1a2b", "size": 9, "uploaderType": "restic", "volumeName": "data",
                "podName": "web", "podNamespace": "copy", "nodeName": "n1", "Phase": "Completed",
            },
            "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:04Z",
            "result": "succeeded", "capacity": 2_147_483_648_i64,
            "originalPvcNamespace": "shop", "originalPvName": "pv-1",
        })
    );
    assert_eq!(rows[1]["pvcName"], json!(null));
    assert_eq!(rows[1]["result"], "failed");
    assert_eq!(rows[1]["message"], "pod volume restore failed: no password");
    assert_eq!(rows.len(), 2);
}

#[test]
fn native_snapshots_are_told_also_if_a_server_before_this_one_restored_them() {
    let mut story = Story::default();
    story.claim("data", "pv-1", Some(Done::Created));
    story.live("data", bound("clone-1"), None);
    let snapshot = NativeSnapshotInfo {
        snapshot_handle: "snap-1".to_owned(),
        iops: "0".to_owned(),
        ..NativeSnapshotInfo::default()
    };
    for (name, claim, done) in [
        ("pv-1", Some("data"), Done::Created),
        ("pv-2", None, Done::Failed),
    ] {
        story.volume(name, claim, Fate::Snapshot, Some(done));
        story.snapshots.insert(name.to_owned(), snapshot.clone());
    }
    story.notes.volumes[0].name = "clone-1".to_owned();
    let rows = story.values();
    assert_eq!(
        rows[0],
        json!({
            "pvcName": "data", "pvcNamespace": "copy", "pvName": "clone-1",
            "restoreMethod": "NativeSnapshot", "snapshotDataMoved": false,
            "nativeSnapshotInfo": {
                "snapshotHandle": "snap-1", "volumeType": "", "volumeAZ": "", "iops": "0",
                "Phase": "Completed",
            },
            "result": "succeeded", "capacity": 2_147_483_648_i64,
            "originalPvcNamespace": "shop", "originalPvName": "pv-1",
        })
    );
    assert_eq!(rows[1]["originalPvName"], "pv-2");
    assert_eq!(rows[1]["nativeSnapshotInfo"]["Phase"], "Failed");
    assert_eq!(
        rows[1]["message"],
        "the persistent volume could not be restored"
    );

    // With what the run itself was told.
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    let times = Some((at("2026-11-16T10:00:00Z"), at("2026-11-16T10:00:04Z")));
    let (size, failure) = (Some(5), Some("no room".to_owned()));
    let made = |failure| Made {
        times,
        size,
        failure,
    };
    story.native.insert("pv-1".to_owned(), made(None));
    story.native.insert("pv-2".to_owned(), made(failure));
    let rows = story.values();
    assert_eq!(rows[0]["nativeSnapshotInfo"]["size"], 5);
    assert_eq!(rows[0]["completionTimestamp"], "2026-11-16T10:00:04Z");
    assert_eq!(rows[1]["message"], "no room");
    assert_eq!(rows.len(), 2);
}

#[test]
fn csi_snapshots_are_filled_in_from_the_cluster_and_the_backup() {
    let mut story = Story::default();
    let mut known = Csi::default();
    known.info.vsc_name = "content".to_owned();
    known.info.ready_to_use = Some(true);
    let mut broken = known.clone();
    broken.error = Some("no such snapshot".to_owned());
    for (name, claim, csi) in [
        ("bound", bound("pv-2"), known.clone()),
        ("waiting", pending(), known.clone()),
        ("broken", pending(), broken),
    ] {
        story.claim(name, "pv-1", Some(Done::Created));
        story.live(name, claim, Some(csi));
    }
    // One that was there has its own source.
    story.claim("there", "pv-3", Some(Done::Skipped));
    story.live("there", bound("pv-3"), Some(known));
    story.backed_up(json!({
        "pvcName": "bound", "pvcNamespace": "shop", "backupMethod": "CSISnapshot",
        "csiSnapshotInfo": {"snapshotHandle": "h-1", "size": 3, "driver": "d", "vscName": "old", "ReadyToUse": true},
    }));
    let rows = story.values();
    assert_eq!(
        rows[0],
        json!({
            "pvcName": "bound", "pvcNamespace": "copy", "pvName": "pv-2",
            "restoreMethod": "CSISnapshot", "snapshotDataMoved": false,
            "csiSnapshotInfo": {
                "snapshotHandle": "h-1", "size": 3, "driver": "d", "vscName": "content", "ReadyToUse": true,
            },
            "result": "succeeded", "capacity": 2_147_483_648_i64,
            "originalPvcNamespace": "shop", "originalPvName": "pv-1",
        })
    );
    let results: Vec<_> = rows
        .iter()
        .map(|row| (&row["result"], &row["message"]))
        .collect();
    let none = Value::Null;
    assert_eq!(results[1], (&none, &none));
    assert_eq!(results[2], (&json!("failed"), &json!("no such snapshot")));
    assert_eq!(rows[3]["skipped"], true);
    assert_eq!(rows[3]["csiSnapshotInfo"], none);
    assert_eq!(rows.len(), 4);
}

#[test]
fn moved_data_has_its_size_and_phase_and_is_brought_up_to_date() {
    let download = |status: Value| {
        serde_json::from_value(json!({
            "metadata": {"name": "r-1", "labels": {"velero.io/async-operation-id": "dd-1"}},
            "spec": {
                "targetVolume": {"pvc": "data", "pv": "", "namespace": "copy"}, "snapshotID": "s-1",
                "snapshotSize": 7, "backupStorageLocation": "default", "sourceNamespace": "shop",
                "operationTimeout": "10m0s",
            },
            "status": status,
        }))
        .unwrap()
    };
    let mut story = Story::default();
    story.claim("data", "pv-1", Some(Done::Created));
    story.live("data", pending(), None);
    story.seen.downloads = vec![download(json!({"phase": "InProgress"}))];
    let mut rows = story.rows();
    let info = rows[0].snapshot_data_movement_info.clone().unwrap();
    assert_eq!(
        (
            info.size,
            info.phase.as_str(),
            info.uploader_type.as_str(),
            info.data_mover.as_str()
        ),
        (7, "InProgress", "kopia", "velero")
    );
    assert_eq!((&rows[0].result, rows.len()), (&None, 1));

    story.live("data", bound("pv-2"), None);
    story.seen.downloads = vec![download(json!({
        "phase": "Completed", "progress": {"totalBytes": 8, "bytesDone": 8},
        "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:00:04Z",
    }))];
    assert!(open_claim(&rows[0]).is_some());
    refresh(&mut rows[0], &story.seen, &[]);
    assert_eq!(rows[0].pv_name.as_deref(), Some("pv-2"));
    assert_eq!(rows[0].result, Some(VolumeResult::Succeeded));
    let info = rows[0].snapshot_data_movement_info.clone().unwrap();
    assert_eq!((info.size, info.phase.as_str()), (8, "Completed"));
    assert_eq!(open_claim(&rows[0]), None);
}

#[test]
fn moved_data_that_is_waited_for_refused_or_given_up() {
    let download: DataDownload = serde_json::from_value(json!({
        "metadata": {"name": "r-1", "labels": {"velero.io/async-operation-id": "dd-1"}},
        "spec": {
            "targetVolume": {"pvc": "awaited", "pv": "", "namespace": "copy"}, "datamover": "bowline",
        },
    }))
    .unwrap();
    let mut story = Story::default();
    for (name, moved) in [
        ("awaited", Moved::Awaited(Box::new(download))),
        ("refused", Moved::Refused("it is kopia's".to_owned())),
        ("empty", Moved::Empty),
    ] {
        story.claim(name, "pv-1", Some(Done::Created));
        story.live(name, pending(), None);
        story.notes.claims.last_mut().unwrap().moved = Some(moved);
        story.backed_up(json!({
            "pvcName": name, "pvcNamespace": "shop", "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
            "snapshotDataMovementInfo": {
                "dataMover": "velero", "uploaderType": "kopia", "snapshotHandle": "s-1", "operationID": "du-1",
                "size": 7, "Phase": "Completed",
            },
        }));
    }
    // The backup does not say what format the first one has, and nobody could be asked how far it is.
    story.backup.remove(0);
    let mut rows = story.rows();
    assert_eq!(rows.len(), 3);
    let info = rows[0].snapshot_data_movement_info.clone().unwrap();
    let told = (info.data_mover.as_str(), info.uploader_type.as_str());
    assert_eq!(told, ("bowline", "restic"));
    assert_eq!(rows[0].result, None);
    assert_eq!(
        serde_json::to_value(&rows[1]).unwrap(),
        json!({
            "pvcName": "refused", "pvcNamespace": "copy", "originalPvcNamespace": "shop",
            "originalPvName": "pv-1", "restoreMethod": "CSISnapshot", "snapshotDataMoved": true,
            "snapshotDataMovementInfo": {
                "dataMover": "velero", "uploaderType": "kopia", "snapshotHandle": "s-1", "operationID": "",
                "size": 7, "Phase": "",
            },
            "result": "failed", "message": "it is kopia's", "capacity": 1_073_741_824,
        })
    );
    assert_eq!(
        rows[2].skipped_reason.as_deref(),
        Some("provisioned without data: there was nothing on the volume when it was backed up")
    );

    let operation = |phase: &str| -> RestoreOperation {
        serde_json::from_value(json!({
            "spec": {"operationID": "dd-1"}, "status": {"phase": phase, "error": "too late"},
        }))
        .unwrap()
    };
    refresh(&mut rows[0], &story.seen, &[operation("InProgress")]);
    assert_eq!(rows[0].result, None);
    refresh(&mut rows[0], &story.seen, &[operation("Failed")]);
    assert_eq!(rows[0].result, Some(VolumeResult::Failed));
    assert_eq!(rows[0].message.as_deref(), Some("too late"));
    refresh(&mut rows[1], &story.seen, &[operation("Failed")]);
    assert_eq!(rows[1].message.as_deref(), Some("it is kopia's"));
}

/// The reason of the last row, and whether the volume is the backup's own.
fn reason(story: &Story) -> (bool, String) {
    let row = story.rows().pop().unwrap();
    assert_ne!(row.kept, row.skipped);
    (row.kept == Some(true), row.skipped_reason.unwrap())
}

#[test]
fn a_claim_without_data_says_why() {
    const ANEW: Fate = Fate::Anew("it has no snapshot and its reclaim policy is Delete");
    let skipped = |name: &str| json!({"pvcName": name, "pvcNamespace": "shop", "skipped": true, "skippedReason": "volumeSnapshot: nobody took it;"});
    let by =
        |method: &str| json!({"pvcName": "data", "pvcNamespace": "shop", "backupMethod": method});
    let created = Some(Done::Created);
    for (done, fate, info, live, expected) in [
        (
            created,
            Some(ANEW),
            skipped("data"),
            pending(),
            "provisioned without data: the backup has no data of it: volumeSnapshot: nobody took it",
        ),
        (
            created,
            Some(ANEW),
            Value::Null,
            pending(),
            "provisioned without data: it has no snapshot and its reclaim policy is Delete",
        ),
        (
            created,
            Some(ANEW),
            by("PodVolumeBackup"),
            pending(),
            "provisioned without data: no pod was restored that its files are copied with",
        ),
        (
            created,
            Some(ANEW),
            by("CSISnapshot"),
            pending(),
            "provisioned without data: the claim is not made of its CSI snapshot",
        ),
        (
            created,
            Some(Fate::AsIs),
            skipped("data"),
            bound("pv-1"),
            "kept: the volume is the one of the backup, with the data that is on it",
        ),
        (
            created,
            None,
            by("NativeSnapshot"),
            pending(),
            "provisioned without data: its persistent volume, which has the snapshot, is not in the restore",
        ),
        (
            created,
            None,
            Value::Null,
            bound("pv-1"),
            "kept: the volume is the one of the backup, with the data that is on it",
        ),
        (
            Some(Done::Skipped),
            Some(ANEW),
            skipped("data"),
            bound("pv-1"),
            "the claim was there already, and its volume was left as it is",
        ),
        (
            Some(Done::Failed),
            Some(ANEW),
            by("PodVolumeBackup"),
            Value::Null,
            "the claim could not be restored",
        ),
        (
            None,
            Some(ANEW),
            Value::Null,
            Value::Null,
            "the claim was left out",
        ),
    ] {
        let mut story = Story::default();
        story.claim("data", "pv-1", done);
        if let Some(fate) = fate {
            story.volume("pv-1", Some("data"), fate, Some(Done::Skipped));
        }
        if !info.is_null() {
            story.backed_up(info.clone());
        }
        story.live("data", live, None);
        let (is_kept, why) = reason(&story);
        let why = if is_kept { format!("kept: {why}") } else { why };
        assert_eq!(why, expected, "{done:?} {fate:?} {info}");
        assert_eq!(story.rows().len(), 1, "{expected}");
    }
}

#[test]
fn volumes_that_nobody_fills_and_those_without_a_claim_have_rows_too() {
    let mut story = Story::default();
    story.claim("data", "", Some(Done::Created));
    for (claim, volume) in [(Some("data"), "v"), (None, "scratch")] {
        story.notes.unfilled.push(Unfilled {
            namespace: "copy".to_owned(),
            pod: "web".to_owned(),
            volume: volume.to_owned(),
            claim: claim.map(str::to_owned),
            why: "the backup has nothing of it".to_owned(),
        });
    }
    story.volume("spare", None, Fate::AsIs, Some(Done::Created));
    story.volume(
        "lost",
        Some("elsewhere"),
        Fate::Anew("x"),
        Some(Done::Skipped),
    );
    story.volume("not-made", None, Fate::AsIs, Some(Done::Failed));
    let rows = story.rows();
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let volume = [&row.pv_name, &row.original_pv_name].map(text).concat();
            let pod = row.pvr_info.clone().unwrap_or_default().volume_name;
            (text(&row.pvc_name), volume, pod, text(&row.skipped_reason))
        })
        .collect();
    let expected = [
        ("data", "", "v", "the backup has nothing of it"),
        ("", "", "scratch", "the backup has nothing of it"),
        (
            "",
            "spare",
            "",
            "the volume is the one of the backup, with the data that is on it",
        ),
        (
            "elsewhere",
            "lost",
            "",
            "its claim, which would get a new volume, is not in the restore",
        ),
        (
            "",
            "not-made",
            "",
            "the persistent volume could not be restored",
        ),
    ];
    let expected = expected.map(|(a, b, c, d)| (a.into(), b.into(), c.into(), d.into()));
    assert_eq!(told, expected);
}

#[test]
fn without_volumes_native_snapshots_are_left_out_with_the_reason() {
    let mut story = Story::default();
    story.restore.spec.restore_pvs = Some(false);
    story.claim("data", "pv-1", Some(Done::Created));
    story.volume("pv-1", Some("data"), Fate::Snapshot, Some(Done::Created));
    assert_eq!(
        reason(&story),
        (
            false,
            "the restore leaves the data of volumes out (restorePVs is false)".to_owned()
        )
    );
    assert_eq!(story.rows().len(), 1);
}

#[test]
fn a_claim_that_could_not_be_read_still_has_a_row() {
    let mut story = Story::default();
    story.claim("data", "pv-1", Some(Done::Created));
    story.volume(
        "pv-1",
        Some("data"),
        Fate::Anew("it has none"),
        Some(Done::Skipped),
    );
    let rows = story.rows();
    assert_eq!(rows[0].pv_name, None);
    assert_eq!(rows[0].original_pv_name.as_deref(), Some("pv-1"));
    assert_eq!(
        rows[0].skipped_reason.as_deref(),
        Some("provisioned without data: it has none")
    );
}
