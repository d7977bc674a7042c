use super::*;

fn restore(spec: Value) -> Restore {
    let restore = json!({
        "apiVersion": "velero.io/v1", "kind": "Restore",
        "metadata": {"name": "r", "uid": "u"}, "spec": spec,
    });
    serde_json::from_value(restore).unwrap()
}

fn plain() -> Restore {
    restore(json!({}))
}

fn mapped() -> Restore {
    restore(json!({"namespaceMapping": {"shop": "copy"}}))
}

fn without_volumes() -> Restore {
    restore(json!({"restorePVs": false}))
}

#[test]
fn a_claim_is_filled_from_its_snapshot() {
    let pristine = json!({
        "metadata": {"namespace": "shop", "name": "data", "annotations": {"velero.io/volume-snapshot-name": "velero-data-x"}},
        "spec": {"volumeName": "pv", "dataSourceRef": {"name": "old"}, "storageClassName": "fast"},
    });
    assert_eq!(snapshot_of(&pristine), Some("velero-data-x"));
    let executed = claim(pristine.clone(), &pristine, &plain());
    assert_eq!(
        executed.object["spec"],
        json!({
            "storageClassName": "fast",
            "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": derived_name("u", "velero-data-x")},
        })
    );
    assert_eq!(
        executed.related,
        [Related::new(csi::SNAPSHOTS, "shop", "velero-data-x")]
    );
    let mut moved = pristine;
    moved["metadata"]["annotations"]["velero.io/data-upload-name"] = json!("velero/b-x");
    assert_eq!(snapshot_of(&moved), None);
}

#[test]
fn a_snapshot_is_made_of_a_content_with_its_name() {
    let pristine = json!({
        "metadata": {
            "namespace": "shop", "name": "s", "labels": {"a": "b", "velero.io/backup-uid": "bu"},
            "annotations": {"velero.io/csi-vsc-deletion-policy": "Delete", "bowline.io/server-namespace": "velero"},
        },
        "spec": {"volumeSnapshotClassName": "c", "source": {"persistentVolumeClaimName": "data"}},
        "status": {"boundVolumeSnapshotContentName": "content"},
    });
    let executed = snapshot(pristine.clone(), &pristine, &plain()).unwrap();
    let name = derived_name("u", "s");
    assert_eq!(
        executed.object["spec"],
        json!({"source": {"volumeSnapshotContentName": name}})
    );
    assert_eq!(
        executed.object["metadata"],
        json!({
            "namespace": "shop", "name": name, "labels": {"a": "b"},
            "annotations": {"velero.io/csi-vsc-deletion-policy": "Retain", "restore.velero.io/must-include-additional-items": "true"},
        })
    );
    assert_eq!(
        executed.related,
        [Related::new(csi::CONTENTS, "", "content")]
    );
    assert!(snapshot(json!({}), &json!({"metadata": {"name": "s"}}), &plain()).is_err());
    for action in [snapshot, class] {
        let executed = action(pristine.clone(), &pristine, &without_volumes());
        assert!(executed.unwrap().skip);
    }
}

#[test]
fn a_content_stands_for_what_is_there() {
    let pristine = json!({
        "metadata": {"name": "content", "labels": {"velero.io/backup-name": "b", "velero.io/backup-uid": "bu"}},
        "spec": {
            "driver": "d", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"}, "sourceVolumeMode": "Block",
            "volumeSnapshotClassName": "old",
            "volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": "shop", "name": "s", "uid": "x", "resourceVersion": "7"},
        },
        "status": {"snapshotHandle": "h"},
    });
    let name = derived_name("u", "s");
    for (restore, namespace) in [(plain(), "shop"), (mapped(), "copy")] {
        let class = Some("new".to_owned());
        let executed = content::change(pristine.clone(), &pristine, &restore, class).unwrap();
        assert_eq!(
            executed.object["spec"],
            json!({
                "driver": "d", "deletionPolicy": "Retain", "source": {"snapshotHandle": "h"}, "sourceVolumeMode": "Block",
                "volumeSnapshotClassName": "new",
                "volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": namespace, "name": name},
            })
        );
        assert_eq!(
            executed.object["metadata"],
            json!({"name": name, "labels": {"velero.io/backup-name": "b"}})
        );
    }
    let executed = content::change(pristine.clone(), &pristine, &plain(), None).unwrap();
    assert_eq!(
        executed.object["spec"]["volumeSnapshotClassName"],
        json!(null)
    );
    let mut bare = pristine;
    bare["status"] = json!({});
    assert!(content::change(bare.clone(), &bare, &plain(), None).is_err());
}
