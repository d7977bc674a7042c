//! Copies are begun, watched and ended on the embedded API server; the node process is played here.

use bowline_api::Time;
use bowline_apiserver::ApiServer;
use bowline_engine::{backup::Claim, log::Level};
use kube::{Client, api::DeleteParams};
use serde_json::json;

use super::*;
use crate::Settings;

struct Scene {
    server: ApiServer,
    ctx: Arc<Context>,
    backup: Backup,
    location: BackupStorageLocation,
    log: Log,
}

impl Scene {
    /// A server, a location, a repository that is ready, and a node `n1` that lives.
    fn new() -> Self {
        let server = ApiServer::default();
        for crd in bowline_api::crd::all() {
            server.load(&crd).unwrap();
        }
        let now = jiff::Timestamp::now();
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "velero"}}),
            json!({
                "apiVersion": "velero.io/v1", "kind": "BackupRepository",
                "metadata": {"namespace": "velero", "name": "shop-l-restic"},
                "spec": {
                    "volumeNamespace": "shop", "backupStorageLocation": "l",
                    "repositoryType": "restic", "resticIdentifier": "/x/b/restic/shop",
                    "maintenanceFrequency": "1h",
                },
                "status": {"phase": "Ready"},
            }),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"namespace": "velero", "name": "bowline-node-n1"},
                "spec": {
                    "holderIdentity": "n1", "leaseDurationSeconds": 30,
                    "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
                },
            }),
        ] {
            server.load(&object).unwrap();
        }
        let client = Client::new(server.clone(), "velero");
        let location = json!({
            "provider": "fs", "config": {"path": "/x"}, "objectStorage": {"bucket": "b"},
        });
        let mut backup = Backup::new("velero", "nightly", Default::default());
        backup.metadata.uid = Some("u".to_owned());
        backup.spec.storage_location = Some("l".to_owned());
        backup.status_mut().start_timestamp = Some(Time(now));
        // Copies go with it.
        server
            .load(&serde_json::to_value(&backup).unwrap())
            .unwrap();
        Self {
            server,
            ctx: Arc::new(Context::new(client, "velero", Settings::default())),
            backup,
            location: BackupStorageLocation::new(
                "velero",
                "l",
                serde_json::from_value(location).unwrap(),
            ),
            log: Log::new("backup", "velero/nightly", Level::Info),
        }
    }

    fn copies(&self, is_resumed: bool) -> Copies {
        Copies::new(
            &self.ctx,
            &self.backup,
            &self.location,
            &self.log,
            is_resumed,
        )
    }

    /// What the node process writes.
    async fn end(&self, name: &str, phase: DataPathPhase) {
        let old = self
            .ctx
            .find::<PodVolumeBackup>(name)
            .await
            .unwrap()
            .unwrap();
        let mut new = old.clone();
        new.status_mut().phase = Some(phase);
        self.ctx.update(&old, &new).await.unwrap();
    }

    async fn names(&self) -> Vec<String> {
        let all = self.ctx.list::<PodVolumeBackup>("").await.unwrap();
        all.iter().map(ResourceExt::name_any).collect()
    }
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}")},
        "spec": {"nodeName": "n1"},
    })
}

fn volume(name: &str, claim: Option<&str>) -> PodVolume {
    PodVolume {
        name: name.to_owned(),
        claim: claim.map(|claim| Claim {
            name: claim.to_owned(),
            uid: format!("uid-{claim}"),
        }),
    }
}

#[tokio::test]
async fn the_object_is_the_one_that_velero_makes() {
    let mut scene = Scene::new();
    scene.backup.spec.uploader_config =
        serde_json::from_value(json!({"parallelFilesUpload": 4})).unwrap();
    let made = object(
        &scene.backup,
        &pod("web"),
        &volume("v", Some("data")),
        "/x/b",
    );
    assert_eq!(
        serde_json::to_value(made).unwrap(),
        json!({
            "apiVersion": "velero.io/v1",
            "kind": "PodVolumeBackup",
            "metadata": {
                "generateName": "nightly-",
                "namespace": "velero",
                "labels": {
                    "velero.io/backup-name": "nightly",
                    "velero.io/backup-uid": "u",
                    "velero.io/pvc-uid": "uid-data",
                },
                "annotations": {"velero.io/pvc-name": "data"},
                "ownerReferences": [{
                    "apiVersion": "velero.io/v1", "kind": "Backup", "name": "nightly", "uid": "u",
                    "controller": true,
                }],
            },
            "spec": {
                "node": "n1",
                "pod": {"kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web"},
                "volume": "v",
                "backupStorageLocation": "l",
                "repoIdentifier": "/x/b",
                "uploaderType": "restic",
                "uploaderSettings": {"ParallelFilesUpload": "4"},
                "tags": {
                    "backup": "nightly", "backup-uid": "u", "ns": "shop", "pod": "web",
                    "pod-uid": "uid-web", "pvc-uid": "uid-data", "volume": "v",
                },
            },
        })
    );
    let bare = object(&scene.backup, &pod("web"), &volume("v", None), "");
    assert_eq!(bare.metadata.annotations, None);
    assert!(!bare.labels().contains_key(label::PVC_UID));
}

#[test]
fn a_backup_may_have_a_timeout_of_its_own() {
    let hour = Duration::from_secs(3600);
    let with = |text: Option<&str>| {
        let mut backup = Backup::default();
        if let Some(text) = text {
            let key = annotation::POD_VOLUME_TIMEOUT.to_owned();
            backup.annotations_mut().insert(key, text.to_owned());
        }
        timeout(&backup, hour)
    };
    assert_eq!(with(None), Ok(hour));
    assert_eq!(with(Some("2m")), Ok(Duration::from_secs(120)));
    assert!(
        with(Some("soon"))
            .unwrap_err()
            .starts_with("annotation velero.io/pod-volume-timeout: invalid duration")
    );
}

#[tokio::test]
async fn copies_are_made_once_and_awaited() {
    let scene = Scene::new();
    let copies = scene.copies(false);
    assert_eq!(copies.finish().await, []);
    let volumes = [volume("a", None), volume("b", Some("data"))];
    let begun = copies.begin(&pod("web"), &volumes).await;
    let names: Vec<String> = begun.into_iter().map(Result::unwrap).collect();
    assert_eq!(scene.names().await.len(), 2);

    // Another server takes over: same pod, and another pod with the same claim.
    let later = scene.copies(true);
    let again = later.begin(&pod("web"), &volumes).await;
    assert_eq!(again, names.iter().cloned().map(Ok).collect::<Vec<_>>());
    let other = later.begin(&pod("api"), &[volume("x", Some("data"))]).await;
    assert_eq!(other, [Ok(names[1].clone())]);
    assert_eq!(scene.names().await.len(), 2);

    scene.end(&names[0], DataPathPhase::Completed).await;
    copies.wait(&names[..1]).await;
    let ended = scene.end(&names[1], DataPathPhase::Failed);
    let (all, ()) = tokio::join!(later.finish(), ended);
    let phases: Vec<_> = all
        .iter()
        .map(|copy| phase(copy).unwrap().clone())
        .collect();
    assert_eq!(phases.len(), 2);
    assert!(phases.contains(&DataPathPhase::Failed));
}

#[tokio::test]
async fn a_deleted_copy_is_a_failed_one() {
    let scene = Scene::new();
    let copies = scene.copies(false);
    let begun = copies.begin(&pod("web"), &[volume("a", None)]).await;
    let name = begun[0].clone().unwrap();
    let api = scene.ctx.api::<PodVolumeBackup>();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let all = copies.finish().await;
    let status = all[0].status.clone().unwrap();
    assert_eq!(status.phase, Some(DataPathPhase::Failed));
    assert_eq!(
        status.message.as_deref(),
        Some("the PodVolumeBackup was deleted before it was over")
    );
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_cancelled_and_still_awaited() {
    let mut scene = Scene::new();
    let key = annotation::POD_VOLUME_TIMEOUT.to_owned();
    scene.backup.annotations_mut().insert(key, "10m".to_owned());
    let copies = scene.copies(false);
    let begun = copies.begin(&pod("web"), &[volume("a", None)]).await;
    let name = begun[0].clone().unwrap();
    let cancelled = kube::runtime::wait::await_condition(
        scene.ctx.api::<PodVolumeBackup>(),
        &name,
        |copy: Option<&PodVolumeBackup>| copy.is_some_and(|c| c.spec.cancel == Some(true)),
    );
    let copy = cancelled.await.unwrap().unwrap();
    assert_eq!(copy.status.unwrap().message.as_deref(), Some(TIMEOUT));
    let late = copies.begin(&pod("api"), &[volume("a", None)]).await;
    assert_eq!(late, [Err(TIMED_OUT.to_owned())]);
    let ended = scene.end(&name, DataPathPhase::Canceled);
    let (all, ()) = tokio::join!(copies.finish(), ended);
    assert_eq!(phase(&all[0]), Some(&DataPathPhase::Canceled));
    assert_eq!(scene.log.counts(), (0, 1));
}

#[tokio::test]
async fn nodes_without_a_process_and_repositories_that_fail_are_named() {
    let scene = Scene::new();
    let copies = scene.copies(false);
    let mut elsewhere = pod("web");
    elsewhere["spec"]["nodeName"] = json!("n2");
    let volumes = [volume("a", None), volume("b", None)];
    let why = "daemonset pod not found in running state in node n2".to_owned();
    assert_eq!(
        copies.begin(&elsewhere, &volumes).await,
        [Err(why.clone()), Err(why)]
    );
    scene
        .server
        .load(&json!({
            "apiVersion": "velero.io/v1", "kind": "BackupRepository",
            "metadata": {"namespace": "velero", "name": "other-l-restic"},
            "spec": {
                "volumeNamespace": "other", "backupStorageLocation": "l",
                "resticIdentifier": "/x/b/restic/other", "maintenanceFrequency": "1h",
            },
            "status": {"phase": "NotReady", "message": "wrong password"},
        }))
        .unwrap();
    let mut other = pod("web");
    other["metadata"]["namespace"] = json!("other");
    assert_eq!(
        copies.begin(&other, &volumes[..1]).await,
        [Err(
            "backup repository other-l-restic is not ready: wrong password".to_owned()
        )]
    );
    assert_eq!(scene.names().await, [""; 0]);
}
