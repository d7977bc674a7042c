//! Builds the bed's programs from Go modules, each once.
//!
//! A main package of a dependency builds from any module that requires it; the modules under `go/`
//! do just that and pin every version in `go.mod` and `go.sum`. Two have sources of their own. A
//! program is built again when its pins, its sources or its recipe change.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use crate::{Cache, Say};

/// The Kubernetes that beds run.
pub const KUBERNETES: &str = "1.34.4";
/// The Velero that Bowline is compared with.
pub const VELERO: &str = "1.18.3";
/// Its plugin for S3.
pub const VELERO_PLUGIN_FOR_AWS: &str = "1.14.3";

/// Our own plugin for tests, made with Velero's framework.
pub const PLAIN_PLUGIN: &str = "plain-plugin";
/// Our own CSI driver for tests, which keeps volumes in a folder.
pub const CSI_DRIVER: &str = "csi-driver";

/// A program and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The name of the file.
    pub name: &'static str,
    /// The folder under `go/` with the pins.
    module: &'static str,
    package: &'static str,
    /// `-X` settings, as the releases set them.
    settings: &'static [(&'static str, &'static str)],
    cgo: bool,
}

const KUBERNETES_VERSION: &[(&str, &str)] = &[
    ("k8s.io/component-base/version.gitVersion", "v1.34.4"),
    ("k8s.io/component-base/version.gitMajor", "1"),
    ("k8s.io/component-base/version.gitMinor", "34"),
];
const VELERO_VERSION: &[(&str, &str)] = &[(
    "github.com/vmware-tanzu/velero/pkg/buildinfo.Version",
    "v1.18.3",
)];

/// The folder under `go/` with the pins of the snapshot controllers and their CRDs.
const EXTERNAL_SNAPSHOTTER: &str = "external-snapshotter";

const fn program(name: &'static str, module: &'static str, package: &'static str) -> Program {
    Program {
        name,
        module,
        package,
        settings: &[],
        cgo: false,
    }
}

const fn kubernetes(name: &'static str, package: &'static str) -> Program {
    Program {
        settings: KUBERNETES_VERSION,
        ..program(name, "kubernetes", package)
    }
}

const fn velero(name: &'static str, package: &'static str) -> Program {
    Program {
        settings: VELERO_VERSION,
        ..program(name, "velero", package)
    }
}

/// Every program of a bed, those that others wait for first.
pub const PROGRAMS: &[Program] = &[
    program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    kubernetes(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    Program {
        cgo: true,
        ..kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet")
    },
    program(
        "versitygw",
        "versitygw",
        "github.com/versity/versitygw/cmd/versitygw",
    ),
    program("restic", "restic", "github.com/restic/restic/cmd/restic"),
    velero("velero", "github.com/vmware-tanzu/velero/cmd/velero"),
    velero(
        "velero-restore-helper",
        "github.com/vmware-tanzu/velero/cmd/velero-restore-helper",
    ),
    program(
        "velero-plugin-for-aws",
        "velero-plugin-for-aws",
        "github.com/vmware-tanzu/velero-plugin-for-aws/velero-plugin-for-aws",
    ),
    program(PLAIN_PLUGIN, PLAIN_PLUGIN, "."),
    program(CSI_DRIVER, CSI_DRIVER, "."),
    program(
        "csi-provisioner",
        "external-provisioner",
        "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner",
    ),
    program(
        "csi-snapshotter",
        EXTERNAL_SNAPSHOTTER,
        "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
    ),
    program(
        "snapshot-controller",
        EXTERNAL_SNAPSHOTTER,
        "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
    ),
    program(
        "csi-sanity",
        "csi-test",
        "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
    ),
];

/// Programs that measurements alone run; no bed waits for them.
pub const RIVALS: &[Program] = &[program("kopia", "kopia", "github.com/kopia/kopia")];

/// Builds what beds run and is missing or out of date.
pub fn all(cache: &Cache, say: Say<'_>) -> anyhow::Result<()> {
    build(cache, PROGRAMS.iter(), say)
}

/// Builds the programs of these names, whoever runs them.
pub fn named(cache: &Cache, names: &[String], say: Say<'_>) -> anyhow::Result<()> {
    let known = || PROGRAMS.iter().chain(RIVALS);
    if let Some(name) = names.iter().find(|name| !known().any(|p| p.name == **name)) {
        let known: Vec<&str> = known().map(|p| p.name).collect();
        bail!(
            "no program is called {name}; there are {}",
            known.join(", ")
        );
    }
    let chosen = known().filter(|p| names.iter().any(|name| name == p.name));
    build(cache, chosen, say)
}

/// One build runs at a time on a machine's cache.
fn build<'a>(
    cache: &Cache,
    programs: impl Iterator<Item = &'a Program>,
    say: Say<'_>,
) -> anyhow::Result<()> {
    let guard = fs::File::create(cache.bin().join(".lock"))?;
    guard.lock().context("wait for another build")?;
    let due: Vec<&Program> = programs.filter(|p| !p.is_current(cache)).collect();
    if due.is_empty() {
        return Ok(());
    }
    crate::requirements::go()?;
    for (at, program) in due.iter().enumerate() {
        say(&format!(
            "building {} ({} of {})",
            program.name,
            at + 1,
            due.len()
        ));
        let began = Instant::now();
        program.build(cache)?;
        say(&format!(
            "built {} in {} s",
            program.name,
            began.elapsed().as_secs()
        ));
    }
    Ok(())
}

/// The programs that are not there, or not from the current pins.
pub fn due(cache: &Cache) -> Vec<&'static str> {
    PROGRAMS
        .iter()
        .filter(|p| !p.is_current(cache))
        .map(|p| p.name)
        .collect()
}

impl Program {
    fn folder(&self) -> PathBuf {
        pins("go").join(self.module)
    }

    fn link_flags(&self) -> String {
        let settings = self
            .settings
            .iter()
            .map(|(name, value)| format!(" -X {name}={value}"));
        format!("-s -w{}", settings.collect::<String>())
    }

    /// What the program is made from, in one word.
    fn key(&self) -> anyhow::Result<String> {
        let pins = ["go.mod", "go.sum"].map(|file| self.folder().join(file));
        let mut files = pins.to_vec();
        files.extend(self.sources()?);
        let recipe = format!("{} {} {}", self.package, self.link_flags(), self.cgo);
        hash(&files, &recipe)
    }

    /// The sources that are ours; most modules have none.
    fn sources(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.folder())? {
            found.push(entry?.path());
        }
        found.retain(|path| path.extension().is_some_and(|ext| ext == "go"));
        found.sort();
        Ok(found)
    }

    fn stamp(&self, cache: &Cache) -> PathBuf {
        cache.bin().join(format!(".{}.key", self.name))
    }

    fn is_current(&self, cache: &Cache) -> bool {
        let stamp = fs::read_to_string(self.stamp(cache)).ok();
        cache.program(self.name).is_file() && stamp.is_some() && stamp == self.key().ok()
    }

    fn build(&self, cache: &Cache) -> anyhow::Result<()> {
        let new = cache.bin().join(format!(".{}.new", self.name));
        let output = Command::new("go")
            .current_dir(self.folder())
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags"])
            .arg(self.link_flags())
            .arg("-o")
            .arg(&new)
            .arg(self.package)
            .env("CGO_ENABLED", if self.cgo { "1" } else { "0" })
            .env_remove("GOFLAGS")
            .stdin(Stdio::null())
            .output()
            .context("run go")?;
        if !output.status.success() {
            bail!(
                "go build {} failed in {}:\n{}",
                self.package,
                self.folder().display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        // The key goes last: a program without one is built again.
        fs::rename(&new, cache.program(self.name))?;
        fs::write(self.stamp(cache), self.key()?)?;
        Ok(())
    }
}

/// The files of the CRDs for snapshots and groups of them, as the pinned module has them.
pub(crate) fn snapshot_crds() -> anyhow::Result<Vec<PathBuf>> {
    let folder = module_folder(
        EXTERNAL_SNAPSHOTTER,
        "github.com/kubernetes-csi/external-snapshotter/client/v8",
    )?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join("config/crd"))? {
        found.push(entry?.path());
    }
    found.retain(|path| path.file_name().is_some_and(|n| n != "kustomization.yaml"));
    found.sort();
    Ok(found)
}

/// Where Go keeps a pinned module; it is fetched if it is not there.
fn module_folder(pinned_by: &str, module: &str) -> anyhow::Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Answer {
        #[serde(rename = "Dir")]
        folder: PathBuf,
    }
    let output = Command::new("go")
        .current_dir(pins("go").join(pinned_by))
        .args(["mod", "download", "-json", module])
        .env_remove("GOFLAGS")
        .stdin(Stdio::null())
        .output()
        .context("run go")?;
    if !output.status.success() {
        bail!(
            "go mod download {module} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)?;
    Ok(answer.folder)
}

/// A folder of this crate with pins.
pub(crate) fn pins(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// The contents of files and a recipe, in one word.
pub(crate) fn hash(files: &[PathBuf], recipe: &str) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for path in files {
        hash.update(fs::read(path).with_context(|| format!("read {}", path.display()))?);
    }
    hash.update(recipe);
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::{CSI_DRIVER, PLAIN_PLUGIN, PROGRAMS};

    #[test]
    fn what_is_ours_is_made_of_sources_too() {
        for program in PROGRAMS {
            let sources = program.sources().unwrap();
            let ours = [PLAIN_PLUGIN, CSI_DRIVER].contains(&program.name);
            assert_eq!(!sources.is_empty(), ours, "{}: {sources:?}", program.name);
        }
    }
}
