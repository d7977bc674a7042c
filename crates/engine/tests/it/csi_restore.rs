//! Claims that are filled from CSI snapshots.

use std::sync::Arc;

use bowline_engine::{
    csi::derived_name,
    log::{Level, Log},
    progress::Progress,
    restore::{self, action},
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    backup::cluster,
    csi::{csi_claim, kinds},
    restore::{archive, job},
};

fn objects() -> Vec<Value> {
    let mut claim = csi_claim("data", json!({"velero.io/volume-snapshot-name": "s"}));
    claim[0]["metadata"]["annotations"] = json!({"velero.io/volume-snapshot-name": "s"});
    claim.extend([
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"namespace": "shop", "name": "s"},
            "spec": {"source": {"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": "old"},
            "status": {"boundVolumeSnapshotContentName": "content"},
        }),
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": "content"},
            "spec": {
                "driver": "d", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"},
                "volumeSnapshotRef": {"namespace": "shop", "name": "s", "uid": "x"},
            },
            "status": {"snapshotHandle": "h"},
        }),
    ]);
    claim
}

struct Restored {
    claim: Value,
    snapshot: Option<DynamicObject>,
    content: Option<DynamicObject>,
    errors: i64,
}

/// Restores into a cluster that has these objects already.
async fn restored(there: &[Value], spec: Value) -> Restored {
    let all: Vec<Value> = kinds().into_iter().chain(there.iter().cloned()).collect();
    let server = cluster(&all).await;
    let client = Client::new(server.clone(), "default");
    let (log, progress) = (
        Log::new("restore", "velero/r", Level::Debug),
        Arc::new(Progress::default()),
    );
    let namespace = spec["namespaceMapping"]["shop"].as_str();
    let namespace = namespace.unwrap_or("shop").to_owned();
    let mut job = job(&server, spec, &log, &progress).await;
    job.actions.extend(action::csi::all(&client, None));
    restore::run(job, archive(&objects(), &[])).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let claim = claims.get("data").await.unwrap();
    let kind = |kind: &str| {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind);
        ApiResource::from_gvk(&kind)
    };
    let name = derived_name("uid-of-r", "s");
    let snapshots: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &namespace, &kind("VolumeSnapshot"));
    let contents: Api<DynamicObject> = Api::all_with(client, &kind("VolumeSnapshotContent"));
    Restored {
        claim: serde_json::to_value(claim).unwrap(),
        snapshot: snapshots.get_opt(&name).await.unwrap(),
        content: contents.get_opt(&name).await.unwrap(),
        errors: log.take().errors,
    }
}

#[tokio::test]
async fn a_claim_comes_back_from_its_snapshot_wherever_it_goes() {
    let name = derived_name("uid-of-r", "s");
    // Also where only the claim is asked for.
    for (spec, namespace) in [
        (json!({}), "shop"),
        (
            json!({"includedResources": ["persistentvolumeclaims"]}),
            "shop",
        ),
        (json!({"namespaceMapping": {"shop": "copy"}}), "copy"),
    ] {
        let made = restored(&[], spec.clone()).await;
        assert_eq!(made.errors, 0, "{spec}");
        let claim = &made.claim["spec"];
        assert_eq!(claim["dataSource"]["name"], json!(name), "{spec}");
        assert_eq!(claim["volumeName"], json!(null), "{spec}");
        let annotations = &made.claim["metadata"]["annotations"];
        assert_eq!(annotations["velero.io/volume-snapshot-name"], json!(null));
        let snapshot = made.snapshot.unwrap().data;
        assert_eq!(
            snapshot["spec"],
            json!({"source": {"volumeSnapshotContentName": name}})
        );
        let content = made.content.unwrap().data;
        assert_eq!(content["spec"]["deletionPolicy"], "Retain");
        assert_eq!(content["spec"]["source"], json!({"snapshotHandle": "h"}));
        let of = &content["spec"]["volumeSnapshotRef"];
        assert_eq!(*of, json!({"namespace": namespace, "name": name}), "{spec}");
    }
}

#[tokio::test]
async fn a_claim_that_is_there_is_left_alone() {
    let there = csi_claim("data", json!({"mine": "yes"}));
    let made = restored(&there, json!({})).await;
    assert_eq!(made.claim["metadata"]["labels"], json!({"mine": "yes"}));
    assert_eq!(made.claim["spec"]["dataSource"], json!(null));
    assert_eq!(made.claim["spec"]["volumeName"], "pv-data");
}

#[tokio::test]
async fn without_volumes_claims_are_empty_and_nothing_else_comes() {
    let made = restored(&[], json!({"restorePVs": false})).await;
    assert_eq!(made.errors, 0);
    assert_eq!(made.claim["spec"]["dataSource"], json!(null));
    assert_eq!(made.claim["spec"]["volumeName"], json!(null));
    assert!(made.snapshot.is_none() && made.content.is_none());
}
