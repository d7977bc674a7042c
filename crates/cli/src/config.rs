//! The client's configuration file, shared with Velero's: a flat JSON object of strings in
//! `~/.config/velero/config.json`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Keys and values as the file has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Config {
    values: BTreeMap<String, String>,
}

impl Config {
    /// Where the file is, if there is a home.
    pub(crate) fn path() -> Option<PathBuf> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(Path::new(&home).join(".config/velero/config.json"))
    }

    /// Reads the file; a missing one is an empty configuration.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let values = serde_json::from_str(&text)
            .with_context(|| format!("read {}: not an object of strings", path.display()))?;
        Ok(Self { values })
    }

    /// Writes the file, readable by its owner only.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("create {}", folder.display()))?;
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("write {}", path.display()))?;
        writeln!(file, "{}", serde_json::to_string(&self.values)?)
            .with_context(|| format!("write {}", path.display()))
    }

    /// The value of a key, if it has one.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// All keys and values, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Gives a key a value; an empty one removes the key.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.values.remove(key);
        } else {
            self.values.insert(key.to_owned(), value.to_owned());
        }
    }
}
