//! Plugins: others' under our server, and ones that misbehave.

pub(super) mod aws;
pub(super) mod bad;
pub(super) mod plain;
pub(super) mod run_plugins;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{Process, scene::Scene};

/// Puts a program into a plugin folder: a shell script.
fn script(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// All files below a folder.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// What a process has said so far, without colours.
fn said(process: &Process) -> anyhow::Result<String> {
    let text = fs::read(&process.log)?;
    let plain = regex::Regex::new("\u{1b}\\[[0-9;]*m")?;
    let text = String::from_utf8_lossy(&text);
    Ok(plain.replace_all(&text, "").into_owned())
}

/// Runs our command line and gives what it printed.
async fn ours(scene: &Scene, args: &[&str]) -> anyhow::Result<String> {
    let mut command = scene.bowline();
    command.args(args);
    crate::scene::run(command).await
}
