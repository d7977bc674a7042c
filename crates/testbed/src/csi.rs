//! CSI on a bed: our driver that keeps volumes in a folder, with the controllers that real clusters run
//! beside theirs, and classes for claims, snapshots and groups of snapshots. They are parts of the bed
//! and end with it. A node bed always has them; an API-only bed gets them when a scenario asks.
//!
//! Without a node there are no pods, but volumes are made and claims are bound; what would be in them
//! is written into the driver's folder.

pub mod objects;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use bowline_api::names::label;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::CSINode,
};
use kube::Api;
use serde_json::{Value, json};

use crate::{
    Bed, Mode, Process, bed,
    build::{self, CSI_DRIVER},
    scene::run,
    wait_for,
};

/// What the driver is called in the cluster.
pub const DRIVER: &str = "csi.bowline.test";
/// The StorageClass, the VolumeSnapshotClass and the VolumeGroupSnapshotClass.
pub const CLASS: &str = "csi-dir";

/// Where kubelet looks for drivers.
const REGISTRY: &str = "/var/lib/kubelet/plugins_registry";
const PROVISIONER: &str = "csi-provisioner";
const SNAPSHOTTER: &str = "csi-snapshotter";
const CONTROLLER: &str = "snapshot-controller";
/// What runs, in the order in which it is started.
const PROGRAMS: [&str; 4] = [CSI_DRIVER, PROVISIONER, SNAPSHOTTER, CONTROLLER];
/// What speaks with the driver.
const SIDECARS: [&str; 2] = [PROVISIONER, SNAPSHOTTER];

/// A bed's CSI driver, for looking into it and for making it misbehave.
pub struct Csi {
    bed: Bed,
    folder: PathBuf,
}

impl Csi {
    /// CSI on this bed: what is not there yet is installed, what does not run is started.
    pub async fn on(bed: &Bed) -> anyhow::Result<Self> {
        ensure!(
            bed.mode() != Mode::Embedded,
            "the embedded API server binds no claims"
        );
        let csi = Self {
            bed: bed.clone(),
            folder: bed.folder().join("csi"),
        };
        if !csi.folder.exists() {
            csi.install().await?;
            fs::create_dir_all(&csi.folder)?;
        }
        csi.start().await?;
        Ok(csi)
    }

    /// The CRDs of the pinned release, and the classes.
    async fn install(&self) -> anyhow::Result<()> {
        let crds = build::snapshot_crds()?;
        for verb in [
            ["apply", "--server-side"].as_slice(),
            &["wait", "--for=condition=Established", "--timeout=60s"],
        ] {
            let mut kubectl = self.bed.program("kubectl");
            kubectl.args(verb);
            for crd in &crds {
                kubectl.arg("-f").arg(crd);
            }
            run(kubectl).await?;
        }
        let file = self.bed.folder().join("csi-classes.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": classes() });
        fs::write(&file, serde_json::to_vec(&list)?)?;
        let mut kubectl = self.bed.program("kubectl");
        kubectl.args(["apply", "-f"]).arg(&file);
        run(kubectl).await.map(drop)
    }

    async fn start(&self) -> anyhow::Result<()> {
        if self.bed.running(CSI_DRIVER).is_none() {
            // They end when they lose their driver, but in their own time.
            for name in SIDECARS {
                if let Some(process) = self.bed.running(name) {
                    process.kill().await?;
                }
            }
        }
        for name in PROGRAMS {
            if self.bed.running(name).is_some() {
                continue;
            }
            let args = self.args(name);
            let process = self.bed.start(name, &args).await?;
            if name == CSI_DRIVER {
                self.answers(&process).await?;
            }
        }
        if self.bed.mode() == Mode::Node {
            self.registered().await?;
        }
        Ok(())
    }

    fn args(&self, name: &str) -> Vec<String> {
        let socket = self.folder.join("csi.sock").display().to_string();
        let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
        if name == CSI_DRIVER {
            let mut args = vec![
                flag("folder", &self.folder.display()),
                flag("endpoint", &socket),
                flag("node", &bed::NODE),
            ];
            if self.bed.mode() == Mode::Node {
                args.push(format!("--kubelet={REGISTRY}/{DRIVER}-reg.sock"));
            }
            return args;
        }
        let mut args = vec![
            flag("kubeconfig", &self.bed.kubeconfig().display()),
            flag("kube-api-qps", &200),
            flag("kube-api-burst", &400),
            flag("retry-interval-start", &"200ms"),
            flag("retry-interval-max", &"2s"),
        ];
        if SIDECARS.contains(&name) {
            args.push(flag("csi-address", &socket));
            args.push(flag("timeout", &"60s"));
        }
        if name != PROVISIONER {
            args.push(flag("feature-gates", &"CSIVolumeGroupSnapshot=true"));
        }
        args
    }

    /// Waits until the driver listens.
    async fn answers(&self, driver: &Process) -> anyhow::Result<()> {
        let socket = self.folder.join("csi.sock");
        wait_for("the CSI driver", Duration::from_secs(30), async || {
            driver.check()?;
            Ok(std::os::unix::net::UnixStream::connect(&socket)
                .is_ok()
                .then_some(()))
        })
        .await
    }

    /// Waits until kubelet knows the driver.
    async fn registered(&self) -> anyhow::Result<()> {
        let nodes: Api<CSINode> = Api::all(self.bed.client());
        let what = "kubelet to know the CSI driver";
        wait_for(what, Duration::from_secs(60), async || {
            let Some(node) = nodes.get_opt(bed::NODE).await? else {
                return Ok(None);
            };
            let known = node.spec.drivers.iter().any(|d| d.name == DRIVER);
            Ok(known.then_some(()))
        })
        .await
    }

    /// A part of it by the name of its program, if it runs.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<Process> {
        self.bed.running(name)
    }

    /// The handles of all volumes.
    pub fn volumes(&self) -> anyhow::Result<BTreeSet<String>> {
        self.inventory("volumes")
    }

    /// The handles of all snapshots.
    pub fn snapshots(&self) -> anyhow::Result<BTreeSet<String>> {
        self.inventory("snapshots")
    }

    /// The handles of all groups of snapshots.
    pub fn groups(&self) -> anyhow::Result<BTreeSet<String>> {
        self.inventory("groups")
    }

    fn inventory(&self, kind: &str) -> anyhow::Result<BTreeSet<String>> {
        let mut handles = BTreeSet::new();
        for entry in fs::read_dir(self.folder.join(kind))? {
            handles.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(handles)
    }

    /// What is in a volume: a folder, or the file of a block volume.
    #[must_use]
    pub fn volume(&self, handle: &str) -> PathBuf {
        self.data("volumes", handle)
    }

    /// What is in a snapshot, likewise.
    #[must_use]
    pub fn snapshot(&self, handle: &str) -> PathBuf {
        self.data("snapshots", handle)
    }

    fn data(&self, kind: &str, handle: &str) -> PathBuf {
        self.folder.join(kind).join(handle).join("data")
    }

    /// The handle of the volume that a claim is bound to, once it is.
    pub async fn bound(&self, namespace: &str, claim: &str) -> anyhow::Result<String> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.bed.client(), namespace);
        let volumes: Api<PersistentVolume> = Api::all(self.bed.client());
        let what = format!("claim {claim} to be bound");
        wait_for(&what, Duration::from_secs(60), async || {
            let status = claims.get_status(claim).await?;
            let phase = status.status.and_then(|s| s.phase);
            let name = status.spec.and_then(|s| s.volume_name);
            ensure!(phase.as_deref() == Some("Bound"), "it is {phase:?}");
            let volume = volumes.get(&name.context("bound to nothing")?).await?;
            let csi = volume.spec.and_then(|s| s.csi).context("no CSI volume")?;
            Ok(Some(csi.volume_handle))
        })
        .await
    }

    /// New snapshots fail with this text, or no longer.
    pub fn fail_snapshots(&self, why: Option<&str>) -> anyhow::Result<()> {
        self.want("fail-snapshots", why)
    }

    /// New snapshots are ready so long after they were taken, or at once.
    pub fn ready_after(&self, time: Option<Duration>) -> anyhow::Result<()> {
        let text = time.map(|time| format!("{}ms", time.as_millis()));
        self.want("snapshot-ready-after", text.as_deref())
    }

    fn want(&self, file: &str, text: Option<&str>) -> anyhow::Result<()> {
        let file = self.folder.join(file);
        match text {
            Some(text) => write_whole(&file, text)?,
            None => match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            },
        }
        Ok(())
    }
}

/// The driver may read it at any moment.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

fn classes() -> [Value; 4] {
    [
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": { "name": DRIVER },
            "spec": { "attachRequired": false, "podInfoOnMount": false, "fsGroupPolicy": "File" },
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": CLASS },
            "provisioner": DRIVER,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }),
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshotClass",
            "metadata": {
                "name": CLASS,
                "labels": { label::CSI_VOLUME_SNAPSHOT_CLASS: "true" },
            },
            "driver": DRIVER,
            "deletionPolicy": "Delete",
        }),
        json!({
            "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2",
            "kind": "VolumeGroupSnapshotClass",
            "metadata": {
                "name": CLASS,
                "labels": { label::CSI_VOLUME_GROUP_SNAPSHOT_CLASS: "true" },
            },
            "driver": DRIVER,
            "deletionPolicy": "Delete",
        }),
    ]
}
