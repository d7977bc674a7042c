//! `cargo xtask image`: a program as a container image, in an archive that `ctr images import`,
//! `docker load` and `podman load` read. Needs neither Docker nor a base image.
//!
//! Programs are linked statically against glibc. Names are resolved by glibc's own code for files
//! and DNS, which is part of the library since 2.34; older ones would load it from files that the
//! image does not have.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};
use bowline_testbed::image::{self, Image};

use crate::{root, say};

/// The first glibc that resolves names without loading libraries.
const GLIBC: (u32, u32) = (2, 34);

/// What makes a program need no libraries.
pub(crate) const STATIC: &str = "-C target-feature=+crt-static";

/// Arguments of `cargo xtask image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which program
    #[arg(value_enum, default_value_t)]
    program: Program,

    /// The archive; without it, `<program>-image.tar` in the target folder
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The image's name and tag; without it, `docker.io/bowline/<program>:v<version>`
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,

    /// A static program that is there already, instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// The programs of which there are images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Program {
    /// Bowline itself
    #[default]
    Bowline,
    /// The plugin for volumes of a node
    #[value(name = "plugin-local")]
    PluginLocal,
}

impl Program {
    /// The package, and the file that comes of it.
    fn name(self) -> &'static str {
        match self {
            Self::Bowline => "bowline",
            Self::PluginLocal => "bowline-plugin-local",
        }
    }

    fn image(self, tag: &str, binary: &Path) -> Image {
        match self {
            Self::Bowline => Image::bowline(tag, binary),
            Self::PluginLocal => Image::plugin(tag, binary),
        }
    }
}

pub(crate) fn write(args: Args) -> anyhow::Result<()> {
    let name = args.program.name();
    let binary = match args.binary {
        Some(binary) => binary,
        None => build(name)?,
    };
    check_static(&binary)?;
    let path = args
        .output
        .unwrap_or_else(|| target_folder().join(format!("{name}-image.tar")));
    let tag = args.tag.unwrap_or_else(|| {
        let version = env!("CARGO_PKG_VERSION");
        format!("docker.io/bowline/{name}:v{version}")
    });
    // A plugin runs in the server's container, with what that trusts.
    if args.program == Program::Bowline && image::certificates().is_none() {
        say(
            "this machine trusts no certificates, so the image does not either; locations may bring theirs",
        );
    }
    args.program.image(&tag, &binary).write(&path)?;
    let size = path.metadata()?.len() as f64 / 1e6;
    say(&format!("wrote {} ({size:.1} MB): {}", path.display(), tag));
    Ok(())
}

/// Builds a program, apart from those that need libraries.
fn build(name: &str) -> anyhow::Result<PathBuf> {
    check_glibc()?;
    let target = target();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--release", "--locked", "--package", name])
        .args(["--target", &target])
        .env("RUSTFLAGS", STATIC)
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "the static program does not build");
    Ok(target_folder().join(target).join("release").join(name))
}

/// What it is built for. Said, since libraries of the build itself cannot be static.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

pub(crate) fn target_folder() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn check_glibc() -> anyhow::Result<()> {
    let output = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .context("run getconf, to learn the version of glibc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match glibc_version(&text) {
        Some(version) if version >= GLIBC => Ok(()),
        Some((major, minor)) => bail!(
            "glibc {major}.{minor} cannot resolve names in a static program; {}.{} is needed",
            GLIBC.0,
            GLIBC.1
        ),
        None => bail!(
            "getconf GNU_LIBC_VERSION says {:?}: a static glibc is needed",
            text.trim()
        ),
    }
}

/// `glibc 2.36` as numbers.
fn glibc_version(text: &str) -> Option<(u32, u32)> {
    let version = text.trim().strip_prefix("glibc ")?;
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

/// The image has no libraries and nobody to load them.
fn check_static(binary: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(binary).with_context(|| format!("open {}", binary.display()))?;
    if let Some(loader) = interpreter(&bytes) {
        bail!("{} is not static: it wants {loader}", binary.display());
    }
    Ok(())
}

/// The loader that a 64-bit ELF program asks for.
fn interpreter(elf: &[u8]) -> Option<String> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = elf.get(at..at + bytes)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    };
    elf.strip_prefix(b"\x7fELF\x02\x01")?;
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|segment| {
        let at = usize::try_from(table + segment * size).ok()?;
        if number(at, 4)? != u64::from(INTERPRETER) {
            return None;
        }
        let from = usize::try_from(number(at + 8, 8)?).ok()?;
        let length = usize::try_from(number(at + 32, 8)?).ok()?;
        let name = elf.get(from..from + length)?;
        Some(
            String::from_utf8_lossy(name)
                .trim_end_matches('\0')
                .to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (text, wanted) in [
            ("glibc 2.36\n", Some((2, 36))),
            ("glibc 2.9", Some((2, 9))),
            ("glibc 2.34.9000", Some((2, 34))),
            ("musl", None),
            ("", None),
        ] {
            assert_eq!(glibc_version(text), wanted, "{text}");
        }
        assert!((2, 9) < GLIBC && (2, 36) > GLIBC);
    }

    #[test]
    fn a_program_that_needs_a_loader_is_refused() {
        // This very test is such a program, unless the workspace is built statically.
        let own = std::fs::read(env::current_exe().unwrap()).unwrap();
        let is_static = cfg!(target_feature = "crt-static");
        assert_eq!(interpreter(&own).is_none(), is_static);
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
        assert_eq!(interpreter(b"\x7fELF\x02\x01"), None);
    }
}
