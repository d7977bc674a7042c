//! `cargo xtask e2e`: the scenarios on real clusters.

use std::{env, process::Command};

use anyhow::{Context, bail};
use bowline_testbed::{Cache, Process, bed, run, scenarios};

use crate::say;

pub(crate) async fn run(names: &[String]) -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for program in ["bowline", "bowline-plugin-local"] {
        let built = Command::new(&cargo)
            .current_dir(crate::root())
            // Scenarios end it at certain places.
            .args(["rustc", "--quiet", "--package", program, "--bin", program])
            .args(["--features", "bowline-vault/crash-points"])
            // It runs on this machine and, without any library, in pods.
            .args(["--", "-C", "target-feature=+crt-static"])
            .args(["-C", "strip=debuginfo"])
            .status()?;
        if !built.success() {
            bail!("{program} does not build");
        }
    }
    let built = Command::new(&cargo)
        .current_dir(crate::root())
        // The plugin that misbehaves.
        .args(["build", "--quiet", "--package", "bowline-plugin"])
        .args(["--example", "pretend"])
        .status()?;
    if !built.success() {
        bail!("the plugin for tests does not build");
    }
    let cache = Cache::open()?;
    let me = Process::me()?;
    let report = tokio::select! {
        report = run::run(&cache, scenarios::ALL, names, &say) => report?,
        _ = tokio::signal::ctrl_c() => {
            bed::down_all(&cache, Some(&me), &say).await.context("end the beds")?;
            bail!("interrupted");
        }
    };
    say(&format!("\n{report}"));
    if !report.is_good() {
        bail!("not all scenarios passed");
    }
    Ok(())
}
