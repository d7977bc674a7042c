//! Every object and file in `tests/golden` is read, written again, and equal.
//!
//! Objects are compared as JSON values. Files without Kubernetes metadata, and the entries of
//! archives, are compared byte by byte: the metadata of `k8s-openapi` has another field order.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use bowline_api::{
    crd::{KINDS, Kind},
    files::{
        BACKUP_OBJECT, BackupOperation, BackupVolumeInfo, ResourceList, RestoreOperation,
        RestoreVolumeInfo, Results, Snapshot, backup_suffix as suffix,
    },
    json, v1,
};
use flate2::read::GzDecoder;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// How many of what was compared, so that nothing is left out unseen.
type Counts = BTreeMap<String, usize>;

fn golden(folder: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in folder.read_dir().expect("golden folder") {
            let path = entry.expect("golden entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    walk(&root.join(folder), &mut found);
    found.sort();
    found
}

fn count(counts: &mut Counts, what: impl Into<String>) {
    *counts.entry(what.into()).or_default() += 1;
}

fn through<T: Serialize + DeserializeOwned>(value: &Value) -> Value {
    let read: T = serde_json::from_value(value.clone()).expect("readable");
    serde_json::to_value(read).expect("writable")
}

fn through_kind(object: &Value) -> Value {
    let is_it = |kind: &&Kind| {
        object["kind"] == kind.name
            && object["apiVersion"] == format!("velero.io/{}", kind.version).as_str()
    };
    let Some(kind) = KINDS.iter().find(is_it) else {
        panic!(
            "a kind without a type: {} {}",
            object["apiVersion"], object["kind"]
        );
    };
    (kind.rewrite)(object.clone()).expect("readable and writable")
}

#[test]
fn objects_round_trip() {
    let mut counts = Counts::new();
    for path in golden("objects") {
        let text = std::fs::read_to_string(&path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in documents {
            assert_eq!(through_kind(&object), object, "{}", path.display());
            count(&mut counts, object["kind"].as_str().unwrap());
        }
    }
    println!("objects: {counts:#?}");
    assert_eq!(counts.values().sum::<usize>(), 245, "{counts:#?}");
}

/// What `-o yaml` and `-o json` printed; an object that never was in a cluster has a `null` time.
#[test]
fn printed_objects_round_trip() {
    let mut counts = Counts::new();
    for path in golden("cli") {
        let text = std::fs::read_to_string(&path).unwrap();
        let (_command, rest) = text.split_once('\n').unwrap();
        let (printed, _exit) = rest.split_once("\n--- exit 0").unwrap();
        let mut object: Value = serde_saphyr::from_str(printed).unwrap();
        let written = through_kind(&object);
        if object["metadata"]["creationTimestamp"].is_null() {
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("creationTimestamp");
        }
        assert_eq!(written, object, "{}", path.display());
        count(&mut counts, object["kind"].as_str().unwrap());
    }
    println!("printed: {counts:#?}");
    assert_eq!(counts.values().sum::<usize>(), 5, "{counts:#?}");
}

#[test]
fn bucket_files_round_trip() {
    let mut counts = Counts::new();
    for path in golden("bucket") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let restore = path.to_str().unwrap().contains("/restores/");
        let kind = if name == BACKUP_OBJECT {
            let object: Value = serde_json::from_reader(File::open(&path).unwrap()).unwrap();
            assert_eq!(through_kind(&object), object, "{}", path.display());
            BACKUP_OBJECT
        } else if name.ends_with(suffix::POD_VOLUME_BACKUPS) {
            let list: Value = serde_json::from_slice(&gunzip(&path)).unwrap();
            assert_eq!(
                through::<Option<Vec<v1::PodVolumeBackup>>>(&list),
                list,
                "{}",
                path.display()
            );
            "podvolumebackups"
        } else if name.ends_with(suffix::VOLUME_SNAPSHOTS) {
            same_bytes::<Option<Vec<Snapshot>>>(&path);
            "volumesnapshots"
        } else if name.ends_with(suffix::ITEM_OPERATIONS) && restore {
            same_bytes::<Vec<RestoreOperation>>(&path);
            "restore itemoperations"
        } else if name.ends_with(suffix::ITEM_OPERATIONS) {
            same_bytes::<Vec<BackupOperation>>(&path);
            "itemoperations"
        } else if name.ends_with(suffix::RESOURCE_LIST) {
            same_bytes::<ResourceList>(&path);
            "resource-list"
        } else if name.ends_with(suffix::RESULTS) {
            same_bytes::<Results>(&path);
            "results"
        } else if name.ends_with(suffix::VOLUME_INFO) && restore {
            same_bytes::<Vec<RestoreVolumeInfo>>(&path);
            "restore volumeinfo"
        } else if name.ends_with(suffix::VOLUME_INFO) {
            same_bytes::<Vec<BackupVolumeInfo>>(&path);
            "volumeinfo"
        } else if name.ends_with(suffix::CONTENTS) {
            for _ in 0..archive_entries(&path) {
                count(&mut counts, "archive entry");
            }
            "archive"
        } else if name.ends_with(suffix::LOG) {
            "log (not JSON, left alone)"
        } else {
            panic!("a file without a type: {}", path.display());
        };
        count(&mut counts, kind);
    }
    println!("bucket: {counts:#?}");
    assert_eq!(counts.remove("archive entry"), Some(702), "{counts:#?}");
    assert_eq!(counts.values().sum::<usize>(), 83, "{counts:#?}");
}

/// The examples of the format that no golden file shows: operations, native and CSI snapshots.
#[test]
fn rare_entries_round_trip() {
    for (text, back) in [
        rare::<Vec<BackupOperation>>(
            r#"[{"spec":{"backupName":"b1","backupUID":"0f","backupItemAction":"velero.io/csi-volumesnapshot-backupper","resourceIdentifier":{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"shop","Name":"velero-data-abcde"},"operationID":"shop/velero-data-abcde/2025-03-01T02:00:07Z","postOperationItems":[{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshotcontents","Namespace":"","Name":"snapcontent-1"}]},"status":{"phase":"Completed","created":"2025-03-01T02:00:07Z","started":"2025-03-01T02:00:07Z","updated":"2025-03-01T02:00:20Z"}},{"spec":{"backupName":"b1","backupUID":"0f","backupItemAction":"x/y","resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"a","Name":"b"},"operationID":"o","postOperationItems":null},"status":{"phase":"InProgress","nCompleted":1,"nTotal":2,"operationUnits":"bytes","description":"d"}}]"#,
        ),
        rare::<Vec<RestoreOperation>>(
            r#"[{"spec":{"restoreName":"r1","restoreUID":"1f","restoreItemAction":"velero.io/csi-pvc-restorer","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"shop","Name":"data"},"operationID":"dd-1"},"status":{"phase":"Failed","error":"no"}}]"#,
        ),
        rare::<Vec<Snapshot>>(
            r#"[{"spec":{"backupName":"b1","backupUID":"0f","location":"zone-a","persistentVolumeName":"pv-1","providerVolumeID":"vol-1","volumeType":"gp3","volumeAZ":"eu-1a","volumeIOPS":3000},"status":{"providerSnapshotID":"snap-1","phase":"Completed"}},{"spec":{"backupName":"b1","backupUID":"0f","location":"zone-a","persistentVolumeName":"pv-2","providerVolumeID":"vol-2","volumeType":""},"status":{"phase":"Failed"}}]"#,
        ),
        rare::<Vec<BackupVolumeInfo>>(
            r#"[{"pvcName":"data","pvcNamespace":"shop","pvName":"pv-1","backupMethod":"CSISnapshot","snapshotDataMoved":false,"preserveLocalSnapshot":true,"skipped":false,"startTimestamp":"2025-03-01T02:00:05Z","result":"succeeded","csiSnapshotInfo":{"snapshotHandle":"h","size":1048576,"driver":"d","vscName":"v","operationID":"o","ReadyToUse":null},"pvInfo":{"reclaimPolicy":"Delete","labels":{"a":"b"}}},{"backupMethod":"CSISnapshot","snapshotDataMoved":true,"preserveLocalSnapshot":false,"skipped":false,"snapshotDataMovementInfo":{"dataMover":"velero","uploaderType":"kopia","retainedSnapshot":"vs","snapshotHandle":"s","operationID":"o","size":1,"incrementalSize":-1,"Phase":"Completed"},"pvInfo":{"reclaimPolicy":"Delete","labels":null}},{"backupMethod":"NativeSnapshot","snapshotDataMoved":false,"preserveLocalSnapshot":false,"skipped":false,"nativeSnapshotInfo":{"snapshotHandle":"snap-1","volumeType":"gp3","volumeAZ":"a","iops":"0","Phase":"Completed"}}]"#,
        ),
        rare::<Vec<RestoreVolumeInfo>>(
            r#"[{"pvcName":"logs","pvcNamespace":"web","pvName":"pv-3","restoreMethod":"PodVolumeRestore","snapshotDataMoved":false,"pvrInfo":{"snapshotHandle":"81","uploaderType":"kopia","volumeName":"logs","podName":"web-0","podNamespace":"web","Phase":""}},{"restoreMethod":"CSISnapshot","snapshotDataMoved":false,"csiSnapshotInfo":{"snapshotHandle":"snap","size":2,"driver":"d","vscName":"v","ReadyToUse":true}}]"#,
        ),
    ] {
        assert_eq!(back, text);
    }
}

fn rare<T: Serialize + DeserializeOwned>(text: &str) -> (String, String) {
    let read: T = serde_json::from_str(text).unwrap();
    (
        text.to_owned(),
        String::from_utf8(json::to_vec(&read).unwrap()).unwrap(),
    )
}

fn gunzip(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

fn same_bytes<T: Serialize + DeserializeOwned>(path: &Path) {
    let bytes = gunzip(path);
    let read: T = serde_json::from_slice(&bytes).unwrap();
    let mut written = json::to_vec(&read).unwrap();
    written.push(b'\n');
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&written), text(&bytes), "{}", path.display());
}

/// Reads every object of an archive, writes it again and compares the bytes; returns how many.
fn archive_entries(path: &Path) -> usize {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let mut seen = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if name == "metadata/version" {
            assert_eq!(bytes, b"1.1.0\n");
            continue;
        }
        let object: Value = serde_json::from_slice(&bytes).unwrap();
        let written = json::to_vec(&object).unwrap();
        assert!(written == bytes, "{}: {name} differs", path.display());
        seen += 1;
    }
    seen
}
