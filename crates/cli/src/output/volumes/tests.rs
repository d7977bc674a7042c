use bowline_api::{
    files::{BackupVolumeInfo, RestoreVolumeInfo},
    v2alpha1::DataUpload,
};
use serde_json::json;

use super::*;

fn of_backup(info: Value) -> Volume {
    let info: BackupVolumeInfo = serde_json::from_value(info).unwrap();
    Volume::from(&info)
}

fn of_restore(info: Value) -> Volume {
    let info: RestoreVolumeInfo = serde_json::from_value(info).unwrap();
    Volume::from(&info)
}

/// What matters most of a volume.
fn told(volume: &Volume) -> (&str, Method, Outcome, bool) {
    (&volume.name, volume.method, volume.result, volume.good)
}

#[test]
fn results_of_a_backup_are_those_of_the_file_or_follow_from_phases() {
    let pod = |phase: &str| json!({"backupMethod": "PodVolumeBackup", "pvbInfo": {"podNamespace": "n", "podName": "p", "volumeName": "v", "Phase": phase}});
    let csi = |ready: Value| json!({"pvcNamespace": "n", "pvcName": "c", "backupMethod": "CSISnapshot", "csiSnapshotInfo": {"snapshotHandle": "h", "ReadyToUse": ready}});
    let native =
        |handle: &str| json!({"pvName": "pv", "nativeSnapshotInfo": {"snapshotHandle": handle}});
    let moved = |phase: &str| json!({"pvcNamespace": "n", "pvcName": "c", "backupMethod": "CSISnapshot", "snapshotDataMoved": true, "snapshotDataMovementInfo": {"Phase": phase}});
    use Method::{CsiSnapshot, DataMovement, NativeSnapshot, None, PodVolume};
    for (info, expected) in [
        (
            pod("Completed"),
            ("n/p:v", PodVolume, Outcome::Succeeded, true),
        ),
        (pod("Failed"), ("n/p:v", PodVolume, Outcome::Failed, false)),
        (
            csi(json!(true)),
            ("n/c", CsiSnapshot, Outcome::Succeeded, true),
        ),
        (
            csi(json!(null)),
            ("n/c", CsiSnapshot, Outcome::Pending, false),
        ),
        (
            native("s"),
            ("pv", NativeSnapshot, Outcome::Succeeded, true),
        ),
        (native(""), ("pv", NativeSnapshot, Outcome::Failed, false)),
        (
            moved("Completed"),
            ("n/c", DataMovement, Outcome::Succeeded, true),
        ),
        (
            moved("Canceled"),
            ("n/c", DataMovement, Outcome::Failed, false),
        ),
        (
            json!({"pvName": "pv", "skipped": true, "skippedReason": "any: why;"}),
            ("pv", None, Outcome::NoData, false),
        ),
        (json!({}), ("<unknown>", None, Outcome::Unknown, false)),
    ] {
        let volume = of_backup(info.clone());
        assert_eq!(told(&volume), expected, "{info}");
    }
    let mut failed = csi(json!(true));
    failed["result"] = json!("failed");
    assert_eq!(of_backup(failed).result, Outcome::Failed);
}

#[test]
fn results_of_a_restore_follow_from_what_is_written() {
    let row = |rest: Value| {
        let mut info = json!({"pvcNamespace": "n", "pvcName": "c", "snapshotDataMoved": false});
        info.as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        of_restore(info)
    };
    for (info, result, good) in [
        (
            json!({"skipped": true, "skippedReason": "why"}),
            Outcome::NoData,
            false,
        ),
        (json!({"kept": true}), Outcome::Kept, true),
        (
            json!({"restoreMethod": "PodVolumeRestore", "result": "succeeded"}),
            Outcome::Succeeded,
            true,
        ),
        (
            json!({"restoreMethod": "PodVolumeRestore", "result": "failed"}),
            Outcome::Failed,
            false,
        ),
        // Velero's say less.
        (
            json!({"restoreMethod": "PodVolumeRestore", "pvrInfo": {"Phase": ""}}),
            Outcome::Unknown,
            false,
        ),
        (
            json!({"restoreMethod": "NativeSnapshot"}),
            Outcome::Succeeded,
            true,
        ),
        (
            json!({"restoreMethod": "CSISnapshot", "pvName": "pv"}),
            Outcome::Succeeded,
            true,
        ),
        (
            json!({"restoreMethod": "CSISnapshot"}),
            Outcome::Pending,
            false,
        ),
        // It waits for somebody to use it.
        (
            json!({"restoreMethod": "CSISnapshot", "csiSnapshotInfo": {"ReadyToUse": true}}),
            Outcome::Pending,
            true,
        ),
        (
            json!({"restoreMethod": "CSISnapshot", "snapshotDataMoved": true, "pvName": "pv"}),
            Outcome::Unknown,
            false,
        ),
    ] {
        let volume = row(info.clone());
        assert_eq!((volume.result, volume.good), (result, good), "{info}");
    }
    let mapped = row(json!({"originalPvcNamespace": "old", "kept": true}));
    assert_eq!(mapped.original_claim.as_deref(), Some("old/c"));
}

#[test]
fn orders_put_what_matters_first() {
    let row = |name: &str, rest: Value| {
        let mut info =
            json!({"pvcNamespace": "n", "pvcName": name, "backupMethod": "PodVolumeBackup"});
        info.as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        of_backup(info)
    };
    let mut volumes = vec![
        row(
            "b",
            json!({"pvName": "pv-1", "result": "succeeded", "pvbInfo": {"size": 5}, "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:01:05Z"}),
        ),
        row("a", json!({"pvName": "pv-2", "result": "failed"})),
        row(
            "c",
            json!({"pvName": "pv-0", "result": "succeeded", "backupMethod": "NativeSnapshot", "nativeSnapshotInfo": {"size": 7}}),
        ),
    ];
    for (by, expected) in [
        (SortBy::Name, "abc"),
        (SortBy::Volume, "cba"),
        (SortBy::Method, "abc"),
        (SortBy::Result, "abc"),
        (SortBy::Size, "cba"),
        (SortBy::Time, "bac"),
    ] {
        sort(&mut volumes, by);
        let names: String = volumes
            .iter()
            .filter_map(|v| v.name.strip_prefix("n/"))
            .collect();
        assert_eq!(names, expected, "{by:?}");
    }
    assert_eq!(volumes[0].time().as_deref(), Some("1m5s"));
    let groups = by_method(&volumes);
    let headings: Vec<_> = groups
        .iter()
        .map(|(of, group)| (*of, group.len()))
        .collect();
    assert_eq!(headings, [("Pod Volumes", 2), ("Native Snapshots", 1)]);
}

fn upload(status: Value) -> DataUpload {
    serde_json::from_value(json!({
        "metadata": {"name": "u"},
        "spec": {
            "sourceNamespace": "n", "sourcePVC": "c", "datamover": "bowline",
            "csiSnapshot": {"driver": "csi.example.com"},
        },
        "status": status,
    }))
    .unwrap()
}

#[test]
fn movements_say_how_far_they_are() {
    const MIB: i64 = 1024 * 1024;
    let now: Timestamp = "2026-11-15T03:30:00Z".parse().unwrap();
    let progress = |done: i64| json!({"totalBytes": 300 * MIB, "bytesDone": done});
    for (status, result, size, remark) in [
        (json!(null), Outcome::Pending, None, "New"),
        (
            json!({"phase": "Prepared", "node": "n1"}),
            Outcome::Pending,
            None,
            "Prepared on n1",
        ),
        (
            json!({"phase": "InProgress", "node": "n1", "startTimestamp": "2026-11-15T03:29:50Z", "progress": progress(100 * MIB)}),
            Outcome::Pending,
            Some("300.00 MiB"),
            "InProgress on n1: 33.33% (100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left)",
        ),
        (
            json!({"phase": "Canceling", "node": "n1", "message": "asked to", "progress": progress(30 * MIB)}),
            Outcome::Pending,
            Some("300.00 MiB"),
            "Canceling on n1: 10.00% (30.00 MiB of 300.00 MiB); asked to",
        ),
        (
            json!({"phase": "Failed", "node": "n1", "message": "no room\nat all", "progress": progress(MIB)}),
            Outcome::Failed,
            Some("300.00 MiB"),
            "no room",
        ),
        (
            json!({"phase": "Completed", "node": "n1", "incrementalBytes": 12 * MIB, "progress": progress(300 * MIB)}),
            Outcome::Succeeded,
            Some("300.00 MiB (12.00 MiB new)"),
            "",
        ),
    ] {
        let volume = upload(status.clone()).volume(now);
        assert_eq!((volume.name.as_str(), volume.result), ("n/c", result));
        assert_eq!(volume.by().as_deref(), Some("bowline/restic"));
        assert_eq!(volume.sizes().as_deref(), size, "{status}");
        assert_eq!(volume.remark(), remark, "{status}");
    }
}

#[test]
fn what_the_cluster_does_not_know_stays_as_the_file_has_it() {
    let row = json!({
        "pvcNamespace": "n", "pvcName": "c", "pvName": "pv", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true, "result": "failed",
        "snapshotDataMovementInfo": {"dataMover": "bowline", "uploaderType": "restic", "size": 7, "Phase": "Failed"},
    });
    let now: Timestamp = "2026-11-15T03:30:00Z".parse().unwrap();
    let reason = |status: Value| {
        let mut volume = of_backup(row.clone());
        volume.learn(&upload(status).volume(now));
        assert_eq!(
            (volume.persistent_volume.as_deref(), volume.bytes),
            (Some("pv"), Some(7))
        );
        volume.reason
    };
    for (status, wanted) in [
        (
            json!({"phase": "Failed", "message": "no room"}),
            Some("no room"),
        ),
        (
            json!({"phase": "Canceled"}),
            Some("it is Failed, see the backup's log"),
        ),
        (json!({"phase": "Completed"}), None),
    ] {
        assert_eq!(reason(status).as_deref(), wanted);
    }
}
