//! Claims whose data was moved. Whoever makes DataDownloads is played here.

use std::sync::{Arc, Mutex};

use bowline_api::{
    files::BackupVolumeInfo,
    v2alpha1::{DataDownload, DataDownloadSpec},
};
use bowline_apiserver::ApiServer;
use bowline_engine::{
    log::{Level, Log, Written},
    progress::Progress,
    restore::{self, Job, Outcome, action, dry::Step, moved::Downloads, notes::Moved},
};
use http::Request;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::{
    backup::cluster,
    csi::csi_claim,
    restore::{archive, job},
};

/// Remembers what it is asked to make, once each; or makes nothing.
#[derive(Default)]
struct Maker {
    made: Mutex<Vec<DataDownload>>,
    refuses: bool,
}

#[async_trait::async_trait]
impl Downloads for Maker {
    async fn ensure(&self, download: &DataDownload) -> Result<(), String> {
        if self.refuses {
            return Err("not today".to_owned());
        }
        let mut made = self.made.lock().unwrap();
        if !made.iter().any(|of| of.name_any() == download.name_any()) {
            made.push(download.clone());
        }
        Ok(())
    }
}

/// A claim of an archive whose data was moved, its volume, and the upload; none if that is missing.
fn objects(mover: &str, status: Option<Value>) -> Vec<Value> {
    let mut objects = csi_claim("data", json!({}));
    objects[0]["metadata"]["uid"] = json!("c1");
    objects[0]["metadata"]["annotations"] = json!({
        "velero.io/data-upload-name": "elsewhere/b-x", "velero.io/volume-snapshot-name": "velero-data-x",
    });
    objects.extend(status.map(|status| {
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
            "metadata": {"namespace": "elsewhere", "name": "b-x"},
            "spec": {
                "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop", "datamover": mover,
                "backupStorageLocation": "theirs", "operationTimeout": "10m0s",
            },
            "status": status,
        })
    }));
    objects
}

fn whole() -> Option<Value> {
    Some(json!({
        "phase": "Completed", "snapshotID": "1a2b", "progress": {"totalBytes": 7, "bytesDone": 7},
    }))
}

fn volume_info() -> Vec<BackupVolumeInfo> {
    let info = json!([{
        "pvcName": "data", "pvcNamespace": "shop", "pvName": "pv-data", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true,
    }]);
    serde_json::from_value(info).unwrap()
}

async fn moving(server: &ApiServer, spec: Value, maker: &Arc<Maker>, log: &Log) -> Job {
    let client = Client::new(server.clone(), "default");
    let mut job = job(server, spec, log, &Arc::new(Progress::default())).await;
    job.actions.extend(action::csi::all(&client, None));
    job.volumes = volume_info();
    job.pod_volumes.location = "ours".to_owned();
    job.downloads = Some(Arc::clone(maker) as _);
    job
}

struct Restored {
    server: ApiServer,
    outcome: Outcome,
    log: Written,
}

async fn restored(
    server: ApiServer,
    objects: &[Value],
    spec: Value,
    maker: &Arc<Maker>,
) -> Restored {
    let log = Log::new("restore", "velero/r", Level::Debug);
    let job = moving(&server, spec, maker, &log).await;
    let outcome = restore::run(job, archive(objects, &[])).await.unwrap();
    Restored {
        server,
        outcome,
        log: log.take(),
    }
}

async fn get(server: &ApiServer, path: &str) -> Option<Value> {
    let client = Client::new(server.clone(), "default");
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.ok()
}

impl Restored {
    async fn claim(&self, namespace: &str) -> Option<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/data");
        get(&self.server, &path).await
    }

    fn errors(&self) -> Value {
        serde_json::to_value(&self.log.results.errors).unwrap()
    }
}

#[tokio::test]
async fn a_moved_claim_waits_for_a_download_that_is_an_operation() {
    for (mover, spec, namespace) in [
        ("bowline", json!({}), "shop"),
        (
            "bowline",
            json!({"namespaceMapping": {"shop": "copy"}}),
            "copy",
        ),
        (
            "somebody",
            json!({"includedResources": ["persistentvolumeclaims"]}),
            "shop",
        ),
    ] {
        let maker = Arc::new(Maker::default());
        let objects = objects(mover, whole());
        let done = restored(cluster(&[]).await, &objects, spec.clone(), &maker).await;
        assert_eq!(done.log.errors, 0, "{}", done.errors());
        let made = maker.made.lock().unwrap().clone();
        assert_eq!(made.len(), 1, "{spec}");
        let claim = done.claim(namespace).await.unwrap();
        let labels = &claim["spec"]["selector"]["matchLabels"];
        let name = made[0].name_any();
        assert_eq!(
            labels["velero.io/dynamic-pv-restore"],
            json!(format!("{namespace}.data.{}", &name[name.len() - 5..]))
        );
        for field in ["volumeName", "dataSource", "dataSourceRef"] {
            assert_eq!(claim["spec"][field], json!(null), "{spec}");
        }
        let annotations = &claim["metadata"]["annotations"];
        assert_eq!(annotations["velero.io/data-upload-name"], json!(null));
        let DataDownloadSpec {
            target_volume: target,
            backup_storage_location,
            datamover,
            snapshot_id,
            snapshot_size,
            ..
        } = made[0].spec.clone();
        assert_eq!(
            (target.namespace.as_str(), target.pvc.as_str()),
            (namespace, "data")
        );
        assert_eq!(
            (backup_storage_location.as_str(), datamover.as_deref()),
            ("ours", Some(mover))
        );
        assert_eq!((snapshot_id.as_str(), snapshot_size), ("1a2b", Some(7)));

        let operation = &done.outcome.operations[0];
        assert_eq!(
            serde_json::to_value(&operation.spec).unwrap(),
            json!({
                "restoreName": "r", "restoreUID": "uid-of-r",
                "restoreItemAction": "velero.io/csi-pvc-restorer", "operationID": "dd-uid-of-r.c1",
                "resourceIdentifier": {
                    "Group": "", "Resource": "persistentvolumeclaims", "Namespace": namespace, "Name": "data",
                },
            })
        );
        let noted = &done.outcome.notes.claims[0];
        assert_eq!(noted.moved, Some(Moved::Awaited(Box::new(made[0].clone()))));
        // The volume is not the old one, and neither the upload nor its namespace comes along.
        assert!(
            get(&done.server, "/api/v1/persistentvolumes/pv-data")
                .await
                .is_none()
        );
        assert!(
            get(&done.server, "/api/v1/namespaces/elsewhere")
                .await
                .is_none()
        );
        let list = &done.outcome.resource_list;
        assert_eq!(
            list["velero.io/v2alpha1/DataUpload"],
            ["elsewhere/b-x(skipped)"]
        );
    }
}

#[tokio::test]
async fn data_that_cannot_come_back_costs_the_claim_by_name() {
    let failed = json!({"phase": "Failed", "message": "disk on fire"});
    for (mover, status, expected) in [
        (
            "bowline",
            None,
            "DataUpload elsewhere/b-x is not in the backup",
        ),
        (
            "bowline",
            Some(failed),
            "DataUpload elsewhere/b-x is Failed: disk on fire",
        ),
        (
            "velero",
            whole(),
            "moved by Velero with kopia, which this version cannot read",
        ),
        (
            "",
            whole(),
            "moved by Velero with kopia, which this version cannot read",
        ),
    ] {
        let maker = Arc::new(Maker::default());
        let mut objects = objects(mover, status);
        objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "s"}}));
        let done = restored(cluster(&[]).await, &objects, json!({}), &maker).await;
        assert_eq!(done.log.errors, 1, "{}", done.errors());
        let why = done.errors()["namespaces"]["shop"][0].to_string();
        assert!(why.contains("persistentvolumeclaims/shop/data: "), "{why}");
        assert!(why.contains(expected), "{why}");
        assert!(done.claim("shop").await.is_none(), "{expected}");
        assert!(maker.made.lock().unwrap().is_empty());
        let noted = &done.outcome.notes.claims[0];
        let is_noted = |why: &str| why.contains(expected);
        assert!(matches!(&noted.moved, Some(Moved::Refused(why)) if is_noted(why)));
        // The rest goes on.
        let list = &done.outcome.resource_list;
        assert_eq!(list["v1/Secret"], ["shop/s(created)"]);
        assert_eq!(list["v1/PersistentVolumeClaim"], ["shop/data(failed)"]);
        assert_eq!(done.outcome.operations, []);
    }
}

#[tokio::test]
async fn a_volume_that_was_empty_is_made_anew() {
    let maker = Arc::new(Maker::default());
    let objects = objects("bowline", Some(json!({"phase": "Completed"})));
    let done = restored(cluster(&[]).await, &objects, json!({}), &maker).await;
    assert_eq!(done.log.errors, 0, "{}", done.errors());
    let claim = done.claim("shop").await.unwrap();
    assert_eq!(claim["spec"]["selector"], json!(null));
    assert_eq!(claim["spec"]["volumeName"], json!(null));
    assert_eq!(done.outcome.notes.claims[0].moved, Some(Moved::Empty));
    assert!(maker.made.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_claim_that_is_there_and_one_without_volumes_get_no_data() {
    let there = csi_claim("data", json!({"mine": "yes"}));
    for (there, spec, volume) in [
        (there, json!({}), json!("pv-data")),
        (vec![], json!({"restorePVs": false}), json!(null)),
    ] {
        let maker = Arc::new(Maker::default());
        // Also if there is nothing that could come back.
        let objects = objects("velero", whole());
        let done = restored(cluster(&there).await, &objects, spec.clone(), &maker).await;
        assert_eq!(done.log.errors, 0, "{}", done.errors());
        let claim = done.claim("shop").await.unwrap();
        assert_eq!(claim["spec"]["volumeName"], volume, "{spec}");
        assert_eq!(claim["spec"]["selector"], json!(null), "{spec}");
        assert!(maker.made.lock().unwrap().is_empty());
        assert_eq!(done.outcome.operations, []);
    }
}

#[tokio::test]
async fn made_again_a_restore_finds_its_claim_and_keeps_its_operation() {
    // Also if it got no further than the claim.
    for got_further in [true, false] {
        let first = Arc::new(Maker {
            refuses: !got_further,
            ..Maker::default()
        });
        let objects = objects("bowline", whole());
        let done = restored(cluster(&[]).await, &objects, json!({}), &first).await;
        let before = done.claim("shop").await.unwrap();
        assert_eq!(
            done.log.errors,
            i64::from(!got_further),
            "{}",
            done.errors()
        );
        let again = Arc::new(Maker {
            made: Mutex::new(first.made.lock().unwrap().clone()),
            refuses: false,
        });
        let log = Log::new("restore", "velero/r", Level::Debug);
        let mut job = moving(&done.server, json!({}), &again, &log).await;
        job.resumed = true;
        job.since = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60);
        let outcome = restore::run(job, archive(&objects, &[])).await.unwrap();
        assert_eq!(log.take().errors, 0);
        assert_eq!(again.made.lock().unwrap().len(), 1);
        assert_eq!(outcome.operations.len(), 1);
        assert_eq!(done.claim("shop").await.unwrap(), before);
    }
}

#[tokio::test]
async fn a_claim_whose_download_cannot_be_made_says_so() {
    let maker = Arc::new(Maker {
        refuses: true,
        ..Maker::default()
    });
    let objects = objects("bowline", whole());
    let done = restored(cluster(&[]).await, &objects, json!({}), &maker).await;
    let why = done.errors()["namespaces"]["shop"][0].to_string();
    assert!(
        why.contains("nobody moves its data back: not today"),
        "{why}"
    );
    assert_eq!(done.outcome.operations, []);
    let list = &done.outcome.resource_list;
    assert_eq!(list["v1/PersistentVolumeClaim"], ["shop/data(failed)"]);
}

#[tokio::test]
async fn a_rehearsal_says_what_is_refused_and_writes_nothing() {
    for (mover, is_clean) in [("bowline", true), ("velero", false)] {
        let server = cluster(&[]).await;
        let maker = Arc::new(Maker::default());
        let log = Log::new("restore", "velero/r", Level::Debug);
        let mut job = moving(&server, json!({}), &maker, &log).await;
        job.downloads = None;
        let objects = objects(mover, whole());
        let plan = restore::rehearse(job, archive(&objects, &[]))
            .await
            .unwrap();
        let step = |kind: &str| {
            let mut items = plan.items.iter();
            items
                .find(|item| item.resource == kind)
                .unwrap()
                .step
                .clone()
        };
        let claim = step("persistentvolumeclaims");
        assert_eq!(claim.is_clean(), is_clean, "{claim:?}");
        assert_eq!(claim == Step::Create, is_clean, "{claim:?}");
        assert_eq!(step("datauploads.velero.io").word(), "skip");
        let filled: Vec<_> = plan.volumes.iter().map(|v| v.claim.as_deref()).collect();
        let expected = if is_clean { vec![Some("data")] } else { vec![] };
        assert_eq!(filled, expected);
        assert_eq!(log.take().errors, 0);
        let path = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
        assert!(get(&server, path).await.is_none());
    }
}
