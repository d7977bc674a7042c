//! `cargo xtask bench`: timings, which belong nowhere else. Everything measured is a release build
//! without libraries, as in the image, this program included.

mod apiserver;
mod backup;
mod csi;
mod movement;
mod plugin_call;
mod pod_volume;
mod restore;
mod round;
mod stage;
mod table;
mod volume;

use std::{env, path::PathBuf, process::Command};

use anyhow::ensure;

use crate::image;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum What {
    /// The embedded API server: memory, lists, watchers
    Apiserver,
    /// Backups by Velero and by Bowline of the same cluster into the same store
    Backup(backup::Args),
    /// Restores by Velero and by Bowline of the same backup into empty clusters
    Restore(restore::Args),
    /// A plugin's action that does nothing, called for every object, by Velero and by Bowline
    PluginCall(plugin_call::Args),
    /// Claims of a CSI driver, into snapshots and back, by Velero and by Bowline
    Csi(csi::Args),
    /// The same, with the data of the snapshots moved into the bucket and back
    Movement(movement::Args),
    /// A pod's volume by Velero and by Bowline in the cluster, with their node agents
    PodVolume(pod_volume::Args),
    /// Volumes into repositories and back, by restic, kopia and Bowline
    Volume(volume::Args),
}

pub(crate) async fn run(what: What) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        return in_release();
    }
    match what {
        What::Apiserver => apiserver::run().await,
        What::Backup(args) => backup::run(&args).await,
        What::Restore(args) => restore::run(&args).await,
        What::PluginCall(args) => plugin_call::run(&args).await,
        What::Csi(args) => csi::run(&args).await,
        What::Movement(args) => movement::run(&args).await,
        What::PodVolume(args) => pod_volume::run(&args).await,
        What::Volume(args) => volume::run(&args).await,
    }
}

/// Builds our programs for release and runs this one again.
fn in_release() -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = image::target();
    let built = Command::new(cargo)
        .current_dir(crate::root())
        .args(["build", "--quiet", "--release", "--target", &target])
        .args(["--package", "bowline", "--package", "xtask", "--bins"])
        .args(["--package", "bowline-volume", "--example", "copy"])
        .env("RUSTFLAGS", image::STATIC)
        .status()?;
    ensure!(built.success(), "the release build failed");
    let release = image::target_folder().join(target).join("release/xtask");
    let ran = Command::new(release)
        .args(env::args_os().skip(1))
        .status()?;
    ensure!(ran.success(), "the measurement failed");
    Ok(())
}

/// Our program in its release build, which is beside this one.
fn bowline() -> anyhow::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("bowline"))
}
