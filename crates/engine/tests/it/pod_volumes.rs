//! Volumes of pods, copied while a backup runs. Whoever copies them is played here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bowline_api::v1::{DataPathPhase, PodVolumeBackup};
use bowline_engine::backup::{PodVolume, PodVolumes};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::backup::{Made, Script, back_up_volumes, cluster};

/// Notes what is asked of it. Copies end when they are told to, or at once.
#[derive(Default)]
struct Copier {
    story: Arc<Script>,
    begun: Mutex<BTreeMap<String, PodVolumeBackup>>,
    /// Copies of these pods are over only when [`Notify`] says so.
    slow: Option<(String, Notify)>,
    /// Nodes without a node process.
    dead: Vec<String>,
}

#[async_trait]
impl PodVolumes for Copier {
    async fn begin(&self, pod: &Value, volumes: &[PodVolume]) -> Vec<Result<String, String>> {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let mut begun = Vec::new();
        for volume in volumes {
            if self.dead.iter().any(|dead| dead == node) {
                begun.push(Err(format!("nobody on {node}")));
                continue;
            }
            let copy = format!("{name}.{}", volume.name);
            self.story.tell(&format!("begin {copy}"));
            let claim = volume.claim.as_ref().map(|claim| claim.name.clone());
            let object = json!({
                "metadata": {"name": copy, "annotations": {"velero.io/pvc-name": claim}},
                "spec": {
                    "node": node, "pod": {"namespace": "shop", "name": name},
                    "volume": volume.name, "backupStorageLocation": "l", "repoIdentifier": "",
                },
                "status": {"phase": "Completed", "snapshotID": "s"},
            });
            let mut object: PodVolumeBackup = without_nulls(object);
            if volume.name == "bad" {
                object.status_mut().phase = Some(DataPathPhase::Failed);
                object.status_mut().message = Some("no room".to_owned());
            }
            self.begun.lock().unwrap().insert(copy.clone(), object);
            begun.push(Ok(copy));
        }
        begun
    }

    async fn wait(&self, copies: &[String]) {
        if let Some((pod, over)) = &self.slow
            && copies.iter().any(|copy| copy.starts_with(pod.as_str()))
        {
            over.notified().await;
        }
        for copy in copies {
            self.story.tell(&format!("end {copy}"));
        }
    }

    async fn finish(&self) -> Vec<PodVolumeBackup> {
        self.begun.lock().unwrap().values().cloned().collect()
    }
}

fn without_nulls(mut object: Value) -> PodVolumeBackup {
    if object["metadata"]["annotations"]["velero.io/pvc-name"].is_null() {
        object["metadata"]["annotations"] = json!({});
    }
    serde_json::from_value(object).unwrap()
}

/// A running pod whose annotation chooses all its volumes.
fn pod(name: &str, node: &str, annotations: Value, volumes: Value) -> Value {
    let names: Vec<&str> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| volume["name"].as_str().unwrap())
        .collect();
    let mounts: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
        .collect();
    let mut annotations = annotations;
    annotations["backup.velero.io/backup-volumes"] = json!(names.join(","));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "spec": {
            "nodeName": node, "volumes": volumes,
            "containers": [{"name": "c", "image": "x", "volumeMounts": mounts}],
        },
        "status": {"phase": "Running"},
    })
}

fn hooks() -> Value {
    json!({"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"})
}

fn claim(name: &str) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"volumeName": format!("pv-{name}")}, "status": {"phase": "Bound"},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{name}")},
            "spec": {
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "shop", "name": name},
            },
        }),
    ]
}

async fn back_up(objects: &[Value], copier: &Arc<Copier>) -> Made {
    let server = cluster(objects).await;
    let exec = Arc::clone(&copier.story);
    let spec = json!({"includedNamespaces": ["shop"]});
    back_up_volumes(&server, spec, exec, Some(Arc::clone(copier) as _)).await
}

#[tokio::test]
async fn a_pod_with_hooks_is_let_go_when_its_volumes_are_copied() {
    let empty = json!([{"name": "v", "emptyDir": {}}]);
    let objects = [pod("db", "n1", hooks(), empty)];
    let copier = Arc::new(Copier::default());
    let made = back_up(&objects, &copier).await;
    assert_eq!(
        copier.story.told(),
        ["shop/db: freeze", "begin db.v", "end db.v", "shop/db: thaw"]
    );
    assert_eq!(made.log.errors, 0, "{:?}", made.log.results);
    assert_eq!(made.outcome.pod_volumes.len(), 1);
    assert_eq!(made.outcome.volumes.len(), 1);
    assert!(
        made.entries
            .contains_key("resources/pods/namespaces/shop/db.json")
    );
}

#[tokio::test]
async fn nobody_waits_for_a_slow_copy_but_its_own_pod() {
    let empty = || json!([{"name": "v", "emptyDir": {}}]);
    let mut objects = vec![pod("slow", "n1", hooks(), empty())];
    for n in 0..20 {
        objects.push(pod(&format!("quick-{n}"), "n1", json!({}), empty()));
        objects.push(pod(&format!("hooked-{n}"), "n2", hooks(), empty()));
    }
    let copier = Arc::new(Copier {
        slow: Some(("slow".to_owned(), Notify::new())),
        ..Copier::default()
    });
    let running = back_up(&objects, &copier);
    let others = async {
        // All others are done while the slow one is not.
        let done = |story: &[String]| {
            let count = |word: &str| story.iter().filter(|line| line.contains(word)).count();
            count("begin quick") == 20 && count("thaw") == 20
        };
        copier.story.until(done).await;
        assert!(!copier.story.told().contains(&"end slow.v".to_owned()));
        copier.slow.as_ref().unwrap().1.notify_one();
    };
    let (made, ()) = tokio::join!(running, others);
    assert_eq!(copier.story.told().last().unwrap(), "shop/slow: thaw");
    assert_eq!(made.outcome.pod_volumes.len(), 41);
    assert_eq!(made.outcome.hooks.hooks_attempted, Some(42));
}

#[tokio::test]
async fn a_claim_is_copied_once_by_a_pod_that_can() {
    let mut objects = claim("data");
    let mounted = || json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    objects.push(pod("a", "dead", json!({}), mounted()));
    objects.push(pod("b", "n1", json!({}), mounted()));
    objects.push(pod("c", "n1", json!({}), mounted()));
    let copier = Arc::new(Copier {
        dead: vec!["dead".to_owned()],
        ..Copier::default()
    });
    let made = back_up(&objects, &copier).await;
    assert_eq!(copier.story.told().len(), 1, "{:?}", copier.story.told());
    let info = serde_json::to_value(&made.outcome.volumes).unwrap();
    assert_eq!(info.as_array().unwrap().len(), 1, "{info}");
    assert_eq!(info[0]["pvName"], "pv-data");
    assert_eq!(info[0]["backupMethod"], "PodVolumeBackup");
    assert_eq!(
        info[0]["pvInfo"],
        json!({"reclaimPolicy": "Delete", "labels": null})
    );
}

#[tokio::test]
async fn what_is_not_copied_is_told() {
    let mut objects = [claim("data"), claim("idle"), claim("quiet")].concat();
    let on = |claim: &str| json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    objects.push(pod("lonely", "dead", json!({}), on("data")));
    let mut idle = pod("idle", "n1", json!({}), on("idle"));
    idle["status"]["phase"] = json!("Pending");
    objects.push(idle);
    let mut quiet = pod("quiet", "n1", json!({}), on("quiet"));
    quiet["metadata"]["annotations"] = json!({"backup.velero.io/backup-volumes": "nosuch"});
    objects.push(quiet);
    objects.push(pod(
        "torn",
        "n1",
        json!({}),
        json!([{"name": "bad", "emptyDir": {}}]),
    ));
    let copier = Arc::new(Copier {
        dead: vec!["dead".to_owned()],
        ..Copier::default()
    });
    let made = back_up(&objects, &copier).await;
    let results = &made.log.results;
    let mut errors = results.errors.namespaces.clone().unwrap()["shop"].clone();
    errors.sort_unstable();
    assert_eq!(
        errors,
        [
            " resource: /pods name: /lonely message: /Error backing up pod volumes v error: /nobody on dead",
            " resource: /pods name: /torn message: /pod volume backup failed: no room error: /volume bad",
        ]
    );
    let mut warnings = results.warnings.namespaces.clone().unwrap()["shop"].clone();
    warnings.sort_unstable();
    assert_eq!(
        warnings,
        [
            " resource: /pods name: /idle message: /Skip pod volume v error: /encountered a problem \
             with backing up the PVC of pod shop/idle: pod is not in the expected status, name=idle, \
             namespace=shop, phase=Pending: pod is not running",
            " resource: /pods name: /quiet message: /No volume named nosuch found in pod \
             shop/quiet, skipping",
        ]
    );
    let reasons: Vec<_> = made
        .outcome
        .volumes
        .iter()
        .filter_map(|info| info.skipped_reason.as_deref())
        .collect();
    let not_wanted =
        "volumeSnapshot: not satisfy the criteria for VolumePolicy or the legacy snapshot way;";
    assert_eq!(
        reasons,
        [
            format!("podvolume: encountered a problem with backing up the PVC of pod shop/lonely: nobody on dead;{not_wanted}"),
            format!("podvolume: encountered a problem with backing up the PVC of pod shop/idle: pod is not in the expected status, name=idle, namespace=shop, phase=Pending: pod is not running;{not_wanted}"),
            "podvolume: opted out due to annotation in pod quiet;volumeSnapshot: no applicable volumesnapshotter found;".to_owned(),
        ]
    );
    // Pods are in the archive whatever becomes of their volumes.
    for name in ["lonely", "idle", "quiet", "torn"] {
        let path = format!("resources/pods/namespaces/shop/{name}.json");
        assert!(made.entries.contains_key(&path), "{path}");
    }
}
