//! Where programs and beds live: `bowline` in the user's cache folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// The project's folder in the user's cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$XDG_CACHE_HOME/bowline`, or `~/.cache/bowline`.
    pub fn open() -> anyhow::Result<Self> {
        let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| Path::new(dir).is_absolute()) {
            Some(dir) => PathBuf::from(dir),
            None => {
                let home = env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?;
                PathBuf::from(home).join(".cache")
            }
        };
        Self::at(base.join("bowline"))
    }

    pub(crate) fn at(root: PathBuf) -> anyhow::Result<Self> {
        let cache = Self { root };
        for folder in [cache.bin(), cache.beds()] {
            fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        }
        Ok(cache)
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The programs that were built.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// One program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin().join(name)
    }

    /// What npm installed, a folder each.
    #[must_use]
    pub fn npm(&self) -> PathBuf {
        self.root.join("npm")
    }

    /// The state of beds, a folder each.
    #[must_use]
    pub fn beds(&self) -> PathBuf {
        self.root.join("beds")
    }
}
