//! Snapshots of volumes, in the order that hooks want.

use std::sync::{Arc, Mutex};

use bowline_api::files::{BackupMethod, Snapshot, SnapshotPhase};
use bowline_engine::backup::{self, Error, Snapshots, Taken};
use bowline_vault::archive::write;
use serde_json::{Value, json};

use crate::backup::{Made, Script, app, back_up_job, cluster, hooked, job};

/// Takes snapshots of volumes, except of one, and remembers in the script when.
struct Camera {
    script: Arc<Script>,
    taken: Mutex<Vec<String>>,
}

impl Camera {
    fn new(script: &Arc<Script>) -> Arc<Self> {
        Arc::new(Self {
            script: Arc::clone(script),
            taken: Mutex::default(),
        })
    }
}

#[async_trait::async_trait]
impl Snapshots for Camera {
    async fn take(&self, volume: &Value, zone: &str) -> Result<Taken, String> {
        let name = volume["metadata"]["name"].as_str().unwrap();
        self.script.tell(&format!("take {name} in {zone:?}"));
        match name {
            "strange" => return Ok(Taken::Nobody),
            "broken" => return Err("error taking snapshot of volume: no".to_owned()),
            _ => {}
        }
        self.taken.lock().unwrap().push(name.to_owned());
        Ok(match name {
            "at-once" => Taken::Whole,
            _ => Taken::Pending,
        })
    }

    fn release(&self, volume: &str) {
        self.script.tell(&format!("release {volume}"));
    }

    fn pending(&self) -> u64 {
        let taken = self.taken.lock().unwrap();
        taken.iter().filter(|name| *name != "at-once").count() as u64
    }

    fn records(&self) -> Vec<Snapshot> {
        let record = |name: &String| {
            let mut record = Snapshot::default();
            record.spec.persistent_volume_name.clone_from(name);
            record.status.phase = Some(SnapshotPhase::Completed);
            record
        };
        self.taken.lock().unwrap().iter().map(record).collect()
    }
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
            "claimRef": {"namespace": "shop", "name": "data"},
        },
    })
}

async fn photograph(objects: &[Value], spec: Value) -> (Made, Vec<String>) {
    let server = cluster(objects).await;
    let script = Arc::new(Script::default());
    let made = back_up_job(&server, spec, |job| {
        job.exec = Arc::clone(&script) as _;
        job.snapshots = Some(Camera::new(&script) as _);
    })
    .await;
    (made, script.told())
}

#[tokio::test]
async fn a_volume_is_taken_between_the_hooks_of_its_pods_and_released_after() {
    let hooks = json!({"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"});
    let mut objects = app();
    objects.push(hooked("db", hooks, "data"));
    objects.push(volume("at-once"));
    // Whether lists bring volumes, or claims do.
    for spec in [
        json!({"includeClusterResources": true}),
        json!({"includedNamespaces": ["shop"]}),
    ] {
        let (made, told) = photograph(&objects, spec).await;
        assert_eq!(made.log.errors, 0, "{:?}", made.log.results);
        assert_eq!(
            told[..4],
            [
                "shop/db: freeze",
                "take pv-1 in \"\"",
                "shop/db: thaw",
                "release pv-1"
            ]
        );
        let (total, done) = made.progress;
        assert_eq!(total - done, 1, "it counts when it is safe");
    }
}

#[tokio::test]
async fn volumes_without_pods_are_taken_too_and_failures_cost_what_they_must() {
    let objects = ["at-once", "strange", "broken"].map(volume);
    let (made, mut told) = photograph(&objects, json!({"includeClusterResources": true})).await;
    told.sort();
    assert_eq!(
        told,
        [
            "release at-once",
            "take at-once in \"\"",
            "take broken in \"\"",
            "take strange in \"\"",
        ]
    );
    let has = |name: &str| {
        let path = format!("resources/persistentvolumes/cluster/{name}.json");
        made.entries.contains_key(&path)
    };
    assert!(has("at-once") && has("strange") && !has("broken"));
    assert_eq!(made.log.errors, 1, "{:?}", made.log.results);
    let info = |name: &str| {
        let mut infos = made.outcome.volumes.iter();
        infos
            .find(|info| info.pv_name.as_deref() == Some(name))
            .unwrap()
    };
    assert_eq!(
        info("at-once").backup_method,
        Some(BackupMethod::NativeSnapshot)
    );
    assert_eq!(
        info("strange").skipped_reason.as_deref(),
        Some("volumeSnapshot: no applicable volumesnapshotter found;")
    );
}

#[tokio::test]
async fn a_backup_without_snapshots_takes_none() {
    let (_, told) = photograph(&[volume("at-once")], json!({"snapshotVolumes": false})).await;
    assert_eq!(told, [""; 0]);
}

/// Does something in the middle of taking a snapshot.
struct Interrupted<F> {
    script: Arc<Script>,
    interrupt: F,
}

#[async_trait::async_trait]
impl<F: Fn() + Send + Sync> Snapshots for Interrupted<F> {
    async fn take(&self, _: &Value, _: &str) -> Result<Taken, String> {
        self.script.tell("take");
        (self.interrupt)();
        // Whoever wants to end the run has every chance.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        self.script.tell("taken");
        Ok(Taken::Whole)
    }

    fn release(&self, _: &str) {}

    fn pending(&self) -> u64 {
        0
    }

    fn records(&self) -> Vec<Snapshot> {
        Vec::new()
    }
}

#[tokio::test]
async fn a_backup_that_ends_early_lets_pods_go_and_knows_its_snapshots() {
    let hooks = json!({"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"});
    let mut objects = app();
    objects.push(hooked("db", hooks, "data"));
    let server = cluster(&objects).await;
    // Somebody deletes it, or the bucket takes no more.
    for is_deleted in [true, false] {
        let script = Arc::new(Script::default());
        let mut job = job(&server, json!({"includedNamespaces": ["shop"]}));
        let (writer, stream) = write::stream();
        let (cancel, stream) = (job.cancel.clone(), Mutex::new(Some(stream)));
        job.exec = Arc::clone(&script) as _;
        job.snapshots = Some(Arc::new(Interrupted {
            script: Arc::clone(&script),
            interrupt: move || match is_deleted {
                true => cancel.cancel(),
                false => drop(stream.lock().unwrap().take()),
            },
        }));
        let ended = backup::run(job, writer).await.unwrap_err();
        let expected = match is_deleted {
            true => matches!(ended, Error::Cancelled),
            false => matches!(ended, Error::Archive),
        };
        assert!(expected, "{ended:?}");
        let told = script.told();
        assert_eq!(told, ["shop/db: freeze", "take", "taken", "shop/db: thaw"]);
    }
}
