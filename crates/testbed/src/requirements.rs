//! What this machine must have, and what does not run without it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

/// Programs of Debian that a node bed runs, and their packages.
const PACKAGES: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("busybox", "busybox-static"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("losetup", "mount"),
    ("mkfs.xfs", "xfsprogs"),
];

/// The Debian packages that a node bed lacks, each once.
#[must_use]
pub fn missing_packages() -> Vec<&'static str> {
    let mut missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Says why no bed can be built or started, if so.
pub fn go() -> anyhow::Result<()> {
    let found = Command::new("go").arg("version").output();
    if !found.is_ok_and(|o| o.status.success()) {
        bail!(
            "Go is not installed: the bed's programs (Kubernetes, S3, Velero) cannot be built, \
             so no scenario runs on a real cluster; Go 1.26 or later is needed"
        );
    }
    Ok(())
}

/// Says what a program that is not on the path is missed for.
pub(crate) fn program(name: &str, without: &str) -> anyhow::Result<()> {
    if find(name).is_none() {
        bail!("{name} is not installed: {without}");
    }
    Ok(())
}

/// Says why no node bed can be started, if so.
pub fn node() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "not root: a node needs namespaces, mounts and cgroups, so scenarios with pods do not run; \
             API-only beds do"
        );
    }
    let missing = missing_packages();
    if !missing.is_empty() {
        bail!(
            "missing packages; install them with: apt-get install -y {}",
            missing.join(" ")
        );
    }
    Ok(())
}

/// A program on the path, or at its place.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|p| p.exists());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| fs::metadata(file).is_ok_and(|m| m.is_file()))
}

/// The busybox that images are made of; it must be static, since images have no libraries.
pub(crate) fn busybox() -> anyhow::Result<PathBuf> {
    let Some(path) = find("busybox") else {
        bail!("busybox is missing; install it with: apt-get install -y busybox-static");
    };
    if is_dynamic(&path) {
        bail!(
            "{} is not static; install the one that is with: apt-get install -y busybox-static",
            path.display()
        );
    }
    Ok(path)
}

/// Says that a program does not run where there are no libraries, if so.
pub(crate) fn is_static(path: &Path) -> anyhow::Result<()> {
    if is_dynamic(path) {
        bail!(
            "{} is not static, so no image is made of it",
            path.display()
        );
    }
    Ok(())
}

/// Whether an ELF file asks for a loader, which is an absolute path inside it.
fn is_dynamic(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    let head = &bytes[..bytes.len().min(4096)];
    head.windows(8)
        .any(|w| w == b"ld-linux" || w == b"/ld-musl")
}
