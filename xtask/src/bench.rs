//! `cargo xtask bench`: timings, which belong nowhere else. Everything measured is a release build,
//! this program included.

mod apiserver;
mod backup;
mod restore;
mod round;
mod stage;
mod table;
mod volume;

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, ensure};

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum What {
    /// The embedded API server: memory, lists, watchers
    Apiserver,
    /// Backups by Velero and by Bowline of the same cluster into the same store
    Backup(backup::Args),
    /// Restores by Velero and by Bowline of the same backup into empty clusters
    Restore(restore::Args),
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
        What::Volume(args) => volume::run(&args).await,
    }
}

/// Builds our programs for release and runs this one again.
fn in_release() -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(crate::root())
        .args(["build", "--quiet", "--release"])
        .args(["--package", "bowline", "--package", "xtask", "--bins"])
        .args(["--package", "bowline-volume", "--example", "copy"])
        .status()?;
    ensure!(built.success(), "the release build failed");
    let me = env::current_exe()?;
    let profiles = me.parent().and_then(|p| p.parent());
    let release = profiles
        .context("this program is not where cargo puts it")?
        .join("release/xtask");
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
