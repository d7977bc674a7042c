//! Our server and node process around a node with pods, and ways to look behind them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_LOCATION, DEFAULT_NAMESPACE, REPO_CREDENTIALS_DEFAULT, label},
    v1::{BackupStorageLocation, DataPathPhase, PodVolumeBackup, PodVolumeRestore},
    v2alpha1::{DataDownload, DataUpload},
};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    Process,
    bed::{BUSYBOX, Bucket, NODE, PODS},
    machine, ours, peer,
    relay::Relay,
    scene::{Scene, run},
    servers::{Server, Work},
    wait_for,
};

/// What a small volume takes at most, whatever happens to it.
pub(super) const SOON: Duration = Duration::from_secs(90);

/// A location, and everything that pods need to come back with their volumes.
pub(in super::super) struct Stage<'a> {
    pub(super) scene: &'a Scene,
    pub(in super::super) bucket: Bucket,
    is_installed: bool,
}

impl<'a> Stage<'a> {
    pub(super) async fn set(scene: &'a Scene, bucket: &str) -> anyhow::Result<Self> {
        let bucket = scene.bucket(bucket)?;
        peer::prepare(scene, &bucket).await?;
        // Restored pods wait with the image of the Deployment that `prepare` makes.
        peer::import(scene.bed())?;
        Ok(Self {
            scene,
            bucket,
            is_installed: false,
        })
    }

    /// The same with both processes in the cluster, as users have them; the store is reached at
    /// this address.
    pub(super) async fn install(
        scene: &'a Scene,
        bucket: &str,
        address: SocketAddr,
    ) -> anyhow::Result<Self> {
        Self::install_with(scene, bucket, address, &[]).await
    }

    /// The same, with more flags.
    pub(in super::super) async fn install_with(
        scene: &'a Scene,
        bucket: &str,
        address: SocketAddr,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let bucket = scene.bucket(bucket)?;
        ours::install(scene, &bucket, &format!("http://{address}"), flags).await?;
        Ok(Self {
            scene,
            bucket,
            is_installed: true,
        })
    }

    pub(in super::super) async fn close(self) -> anyhow::Result<()> {
        match self.is_installed {
            true => ours::uninstall(self.scene).await,
            false => peer::remove(self.scene).await,
        }
    }

    /// Both processes.
    pub(super) async fn start(&self) -> anyhow::Result<(Process, Process)> {
        let node = self.node().await?;
        Ok((self.server().await?, node))
    }

    pub(super) async fn server(&self) -> anyhow::Result<Process> {
        Server::Ours.start(self.scene, &[]).await
    }

    /// The node process; back once it has shown that it is there.
    pub(super) async fn node(&self) -> anyhow::Result<Process> {
        self.node_with(&[]).await
    }

    /// The same, with more flags.
    pub(super) async fn node_with(&self, flags: &[&str]) -> anyhow::Result<Process> {
        node(self.scene, flags).await
    }

    /// Lets the location's bucket be reached at another address.
    pub(super) async fn reach(&self, address: SocketAddr) -> anyhow::Result<()> {
        let locations: Api<BackupStorageLocation> =
            Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let url = json!({ "spec": { "config": { "s3Url": format!("http://{address}") } } });
        let params = PatchParams::default();
        locations
            .patch(DEFAULT_LOCATION, &params, &Patch::Merge(url))
            .await?;
        Ok(())
    }

    /// Makes pods and waits until they are ready.
    pub(super) async fn pods(&self, namespace: &str, pods: &[Value]) -> anyhow::Result<()> {
        self.scene.apply(pods).await?;
        self.ready(namespace).await
    }

    /// Waits until all pods of a namespace are ready.
    pub(super) async fn ready(&self, namespace: &str) -> anyhow::Result<()> {
        let wait = ["wait", "pod", "--all", "--for=condition=Ready"];
        let wait = [&["-n", namespace], &wait[..], &["--timeout=120s"]].concat();
        self.scene.kubectl(&wait).await.map(drop)
    }

    /// Deletes a namespace and waits until it is gone.
    pub(in super::super) async fn forget(&self, namespace: &str) -> anyhow::Result<()> {
        let delete = ["delete", "namespace", namespace, "--timeout=120s"];
        self.scene.kubectl(&delete).await.map(drop)
    }

    /// Where an emptyDir of a pod is on this machine.
    pub(super) async fn folder(
        &self,
        namespace: &str,
        pod: &str,
        volume: &str,
    ) -> anyhow::Result<PathBuf> {
        let pods: Api<Pod> = Api::namespaced(self.scene.client(), namespace);
        let uid = pods.get(pod).await?.metadata.uid.unwrap_or_default();
        let volumes = self.scene.bed().pod_folder(&uid).join("volumes");
        let folder = volumes.join("kubernetes.io~empty-dir").join(volume);
        ensure!(folder.is_dir(), "{} is not there", folder.display());
        Ok(folder)
    }

    /// The copies that a backup made.
    pub(super) async fn copies(&self, backup: &str) -> anyhow::Result<Vec<PodVolumeBackup>> {
        let all: Api<PodVolumeBackup> = Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let of = ListParams::default().labels(&format!("{}={backup}", label::BACKUP_NAME));
        Ok(all.list(&of).await?.items)
    }

    /// The copies that a restore made.
    pub(super) async fn returns(&self, restore: &str) -> anyhow::Result<Vec<PodVolumeRestore>> {
        let all: Api<PodVolumeRestore> = Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE);
        let of = ListParams::default().labels(&format!("{}={restore}", label::RESTORE_NAME));
        Ok(all.list(&of).await?.items)
    }

    /// Where a namespace's repository is, as restic says it.
    pub(super) fn repository(&self, namespace: &str) -> String {
        let Bucket { name, s3 } = &self.bucket;
        format!("s3:{}/{name}/restic/{namespace}", s3.endpoint)
    }

    /// Where the files of a namespace's repository are on this machine.
    pub(super) fn repository_folder(&self, namespace: &str) -> PathBuf {
        self.bucket.folder().join("restic").join(namespace)
    }

    /// Runs restic on a namespace's repository, in a folder.
    pub(in super::super) async fn restic(
        &self,
        namespace: &str,
        folder: &Path,
        args: &[&str],
    ) -> anyhow::Result<String> {
        self.restic_with(REPO_CREDENTIALS_DEFAULT, namespace, folder, args)
            .await
    }

    async fn restic_with(
        &self,
        password: &str,
        namespace: &str,
        folder: &Path,
        args: &[&str],
    ) -> anyhow::Result<String> {
        let mut restic = self.scene.program("restic");
        restic
            .args(["--no-cache", "--repo", &self.repository(namespace)])
            .args(args)
            .env("RESTIC_PASSWORD", password)
            .env("AWS_ACCESS_KEY_ID", &self.bucket.s3.access_key)
            .env("AWS_SECRET_ACCESS_KEY", &self.bucket.s3.secret_key)
            .current_dir(folder);
        run(restic).await
    }

    /// restic finds nothing wrong with a namespace's repository, and reads all of it.
    pub(in super::super) async fn is_clean(&self, namespace: &str) -> anyhow::Result<()> {
        self.is_clean_with(REPO_CREDENTIALS_DEFAULT, namespace)
            .await
    }

    /// The same, of one with another password.
    pub(super) async fn is_clean_with(
        &self,
        password: &str,
        namespace: &str,
    ) -> anyhow::Result<()> {
        let check = ["check", "--read-data", "--no-lock"];
        let told = self
            .restic_with(password, namespace, self.scene.folder(), &check)
            .await
            .with_context(|| format!("the repository of {namespace}"))?;
        ensure!(told.contains("no errors were found"), "check says {told}");
        Ok(())
    }

    /// Our command line.
    pub(super) async fn bowline(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.scene.bowline();
        command.args(args);
        run(command).await
    }
}

/// Starts the node process with more flags; back once it has shown that it is there.
pub(in super::super) async fn node(scene: &Scene, flags: &[&str]) -> anyhow::Result<Process> {
    node_that(scene, flags, &[]).await
}

/// The same with more variables.
pub(in super::super) async fn node_that(
    scene: &Scene,
    flags: &[&str],
    env: &[(&str, &str)],
) -> anyhow::Result<Process> {
    let since = Timestamp::now();
    let node = launch_node(scene, flags, env).await?;
    let leases: Api<Lease> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let name = format!("bowline-node-{NODE}");
    wait_for("the node's sign of life", SOON, async || {
        if !node.is_alive() {
            return Ok(Some(()));
        }
        let lease = leases.get(&name).await?.spec.unwrap_or_default();
        let renewed = lease.renew_time.context("never renewed")?.0;
        Ok((renewed.as_second() >= since.as_second()).then_some(()))
    })
    .await?;
    node.check()?;
    Ok(node)
}

/// The same, back at once: it may die before it has shown that it is there.
pub(in super::super) async fn launch_node(
    scene: &Scene,
    flags: &[&str],
    env: &[(&str, &str)],
) -> anyhow::Result<Process> {
    let mut command = scene.bowline();
    command
        .args(["node-agent", "server", "--namespace", DEFAULT_NAMESPACE])
        .args(["--node-name", NODE, "--host-pods", PODS])
        .args(["--metrics-address", "127.0.0.1:0"])
        // So that not all of a volume is read before any of it is stored.
        .args(["--memory", "32Mi"])
        .args(flags)
        .env("RESTIC_CACHE_DIR", scene.folder().join("restic-cache"))
        .env("NO_PROXY", "*")
        .envs(env.iter().copied());
    scene.start_on_node("bowline-node", &command).await
}

/// A way to the bed's store on which everything takes a while, for pods and for this machine.
pub(in super::super) async fn slow_store(scene: &Scene, delay: Duration) -> anyhow::Result<Relay> {
    let s3 = &scene.bed().s3().endpoint;
    let (_, to) = s3.split_once("//").context("not an address")?;
    Relay::narrow(machine::OUTSIDE.into(), to, delay).await
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pod that sleeps, with these volumes at `/<name>`.
pub(super) fn pod(namespace: &str, name: &str, volumes: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = volumes.iter().map(|(name, _)| *name).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": { "backup.velero.io/backup-volumes": names.join(",") },
        },
        "spec": spec(volumes),
    })
}

/// The spec of such a pod.
pub(super) fn spec(volumes: &[(&str, Value)]) -> Value {
    let mounts = volumes
        .iter()
        .map(|(name, _)| json!({ "name": name, "mountPath": format!("/{name}") }));
    let sources = volumes.iter().map(|(name, source)| {
        let mut volume = source.clone();
        volume["name"] = json!(name);
        volume
    });
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "main",
            "image": BUSYBOX,
            "command": ["sleep", "3600"],
            "volumeMounts": mounts.collect::<Vec<_>>(),
        }],
        "volumes": sources.collect::<Vec<_>>(),
    })
}

/// A volume that lives as long as its pod.
pub(super) fn passing() -> Value {
    json!({ "emptyDir": {} })
}

/// What is said of a copy in either direction.
pub(in super::super) trait Copy: Work {
    fn volume(&self) -> &str;
    fn phase(&self) -> DataPathPhase;
    /// Bytes done and in all.
    fn bytes(&self) -> (i64, i64);
    fn message(&self) -> String;
}

macro_rules! copy {
    ($kind:ty, $($volume:ident).+) => {
        impl Copy for $kind {
            fn volume(&self) -> &str {
                &self.spec.$($volume).+
            }

            fn phase(&self) -> DataPathPhase {
                let status = self.status.as_ref();
                status.and_then(|s| s.phase.clone()).unwrap_or_default()
            }

            fn bytes(&self) -> (i64, i64) {
                let progress = self.status.as_ref().and_then(|s| s.progress.as_ref());
                let bytes = |p: &bowline_api::v1::DataMoveProgress| {
                    (p.bytes_done.unwrap_or(0), p.total_bytes.unwrap_or(0))
                };
                progress.map_or((0, 0), bytes)
            }

            fn message(&self) -> String {
                let status = self.status.as_ref();
                status.and_then(|s| s.message.clone()).unwrap_or_default()
            }
        }
    };
}

copy!(PodVolumeBackup, volume);
copy!(PodVolumeRestore, volume);
copy!(DataUpload, source_pvc);
copy!(DataDownload, target_volume.pvc);

/// Every state of every copy, as a watch shows them, until it is stopped.
pub(in super::super) struct Watch<K> {
    seen: Arc<Mutex<Vec<K>>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl<K: Copy + Send + Sync + 'static> Watch<K> {
    pub(in super::super) fn start(scene: &Scene) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all: Api<K> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
        let note = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            // Longer than any scenario.
            let params = WatchParams::default().timeout(290);
            // A kind that was just made is not watched at once.
            let watch = async || Ok(Some(all.watch(&params, "0").await?.boxed()));
            let mut changes = wait_for("a watch", SOON, watch).await?;
            while let Some(change) = changes.try_next().await? {
                match change {
                    WatchEvent::Added(new) | WatchEvent::Modified(new) => locked(&note).push(new),
                    WatchEvent::Error(error) => bail!("the watch: {error}"),
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                }
            }
            bail!("the watch has ended")
        });
        Self { seen, task }
    }

    /// Waits until the copy of a volume is in the middle of its bytes.
    pub(in super::super) async fn in_the_middle(&self, volume: &str) -> anyhow::Result<K> {
        wait_for("a copy to be in its middle", SOON, async || {
            let seen = locked(&self.seen);
            let of = seen.iter().filter(|copy| copy.volume() == volume);
            let states: Vec<_> = of.map(|copy| (copy.phase(), copy.bytes())).collect();
            let last = seen.iter().rfind(|copy| copy.volume() == volume);
            if last.is_some_and(Work::is_over) {
                bail!("it is over already: {states:?}");
            }
            let is_in_middle = |copy: &&K| {
                let (done, total) = copy.bytes();
                done > 0 && done < total
            };
            Ok(last.filter(is_in_middle).cloned())
        })
        .await
    }

    /// Ends the watch. What it saw is sound: bytes only grow, and all are done at the end; one of a
    /// volume's states in the middle was seen, if such a volume is named.
    pub(in super::super) async fn judge(self, moving: Option<&str>) -> anyhow::Result<usize> {
        self.task.abort();
        if let Ok(ended) = self.task.await {
            ended?;
        }
        let seen = locked(&self.seen);
        let mut middle = 0;
        let mut last: std::collections::BTreeMap<String, (i64, i64)> = Default::default();
        for copy in seen.iter() {
            let (done, total) = copy.bytes();
            let before = last.insert(copy.name_any(), (done, total));
            let line = || format!("{} {:?}", copy.name_any(), copy.bytes());
            if before.is_some_and(|(before, _)| before > done) {
                bail!("progress went back: {}", line());
            }
            ensure!(total == 0 || done <= total, "too much is done: {}", line());
            if copy.phase() == DataPathPhase::Completed {
                ensure!(done == total, "not all is done at the end: {}", line());
            }
            if done > 0 && done < total && moving == Some(copy.volume()) {
                middle += 1;
            }
        }
        if let Some(volume) = moving {
            let of = seen.iter().filter(|copy| copy.volume() == volume);
            let states: Vec<_> = of.map(|copy| (copy.phase(), copy.bytes())).collect();
            ensure!(middle > 0, "{volume} was never in its middle: {states:?}");
        }
        Ok(middle)
    }
}
