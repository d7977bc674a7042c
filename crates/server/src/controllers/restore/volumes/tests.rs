//! Which new volumes are made like the old ones, and when.

use bowline_api::v1::RestoreSpec;

use super::*;

fn the_claim() -> Anew {
    Anew {
        namespace: "copy".to_owned(),
        claim: "data".to_owned(),
        volume: "pv-1".to_owned(),
        traits: serde_json::from_value(json!({"reclaimPolicy": "Retain", "labels": {"disk": "a"}}))
            .unwrap(),
    }
}

#[test]
fn claims_of_this_restore_that_were_copied() {
    let spec = RestoreSpec {
        namespace_mapping: Some([("shop".to_owned(), "copy".to_owned())].into()),
        ..RestoreSpec::default()
    };
    let restore = Restore::new("velero", "r", spec);
    let info = |method: &str, rest: Value| -> BackupVolumeInfo {
        let mut info = json!({
            "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv-1", "backupMethod": method,
            "pvInfo": {"reclaimPolicy": "Retain", "labels": {"disk": "a"}},
        });
        for (key, value) in rest.as_object().unwrap() {
            info[key] = value.clone();
        }
        serde_json::from_value(info).unwrap()
    };
    let list = |entry: &str| -> ResourceList {
        [(
            "v1/PersistentVolumeClaim".to_owned(),
            vec![entry.to_owned()],
        )]
        .into()
    };
    let operation = |phase: &str| -> RestoreOperation {
        serde_json::from_value(json!({
            "spec": {
                "restoreName": "r", "restoreUID": "u", "operationID": "o", "restoreItemAction": DOWNLOAD_ACTION,
                "resourceIdentifier": {"Group": "", "Resource": "persistentvolumeclaims", "Namespace": "copy", "Name": "data"},
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    };
    let made = "copy/data(created)";
    for (infos, entry, operations, expected) in [
        (vec![info("PodVolumeBackup", json!({}))], made, vec![], 1),
        (vec![info("CSISnapshot", json!({}))], made, vec![], 1),
        (
            vec![info("CSISnapshot", json!({}))],
            made,
            vec![operation("Completed")],
            1,
        ),
        (
            vec![info("CSISnapshot", json!({}))],
            made,
            vec![operation("Failed")],
            0,
        ),
        (vec![info("NativeSnapshot", json!({}))], made, vec![], 0),
        (
            vec![info("PodVolumeBackup", json!({"pvInfo": null}))],
            made,
            vec![],
            0,
        ),
        (
            vec![info("PodVolumeBackup", json!({}))],
            "copy/data(skipped)",
            vec![],
            0,
        ),
        (
            vec![info("PodVolumeBackup", json!({}))],
            "shop/data(created)",
            vec![],
            0,
        ),
        // One volume of two pods.
        (vec![info("PodVolumeBackup", json!({})); 2], made, vec![], 1),
    ] {
        let found = anew(&restore, infos.clone(), &list(entry), &operations);
        assert_eq!(
            found,
            vec![the_claim(); expected],
            "{infos:?} {entry} {operations:?}"
        );
    }
}

#[test]
fn a_new_volume_is_patched_once_it_is_bound() {
    let claim = |phase: &str| -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv-2"}, "status": {"phase": phase}})).unwrap()
    };
    let class = |mode: &str| -> StorageClass {
        serde_json::from_value(
            json!({"metadata": {"name": "fast"}, "provisioner": "p", "volumeBindingMode": mode}),
        )
        .unwrap()
    };
    let volume = |phase: &str, claim: &str, policy: &str, labels: Value| -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": "pv-2", "labels": labels},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "copy", "name": claim}},
            "status": {"phase": phase},
        }))
        .unwrap()
    };
    let wait = |why: &str| Step::Wait(why.to_owned());
    let patched = |labels: Value| {
        Step::Patch(
            "pv-2".to_owned(),
            json!({"metadata": {"labels": labels}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}}),
        )
    };
    let (later, now) = (class("WaitForFirstConsumer"), class("Immediate"));
    let unlike = volume("Bound", "data", "Delete", json!({"zone": "b"}));
    let like = volume("Bound", "data", "Retain", json!({"disk": "a", "zone": "b"}));
    let foreign = volume("Bound", "other", "Delete", json!({}));
    let refused =
        "PV was bound by unexpected PVC, unexpected PVC: copy/other, expected PVC: copy/data";
    for (claim, class, volume, expected) in [
        (None, None, None, Step::Leave("the claim is gone")),
        (
            Some(claim("Pending")),
            Some(&later),
            None,
            Step::Leave("no pod uses the claim yet"),
        ),
        (
            Some(claim("Pending")),
            Some(&now),
            None,
            wait("the claim is not bound"),
        ),
        (
            Some(claim("Pending")),
            None,
            None,
            wait("the claim is not bound"),
        ),
        (
            Some(claim("Bound")),
            None,
            None,
            wait("the claim is not bound"),
        ),
        (
            Some(claim("Bound")),
            None,
            Some(&volume("Available", "data", "Delete", json!({}))),
            wait("volume pv-2 is not bound"),
        ),
        (
            Some(claim("Bound")),
            None,
            Some(&foreign),
            Step::Refuse(refused.to_owned()),
        ),
        (
            Some(claim("Bound")),
            None,
            Some(&unlike),
            patched(json!({"zone": null, "disk": "a"})),
        ),
        (
            Some(claim("Bound")),
            None,
            Some(&like),
            Step::Leave("it is as the old one was"),
        ),
    ] {
        assert_eq!(step(&the_claim(), claim.as_ref(), class, volume), expected);
    }
}
