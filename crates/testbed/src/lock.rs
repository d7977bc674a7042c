//! The machine-wide lock of the node bed: who has it, and whether they still do.

use std::{
    fs::{self, File},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::Process;

/// Who has the node bed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// The bed's folder.
    pub(crate) bed: PathBuf,
    /// Since when.
    pub(crate) since: String,
    /// The program without which the bed is worth nothing; none if it is to stay by itself.
    pub(crate) owner: Option<Process>,
    /// Process 1 of the bed's namespaces, once it runs; until then, the program that starts it.
    pub(crate) keeper: Process,
}

impl Holder {
    /// A bed counts as held while its keeper lives and nobody was cut off from it.
    pub(crate) fn is_alive(&self) -> bool {
        self.keeper.is_alive() && self.owner.as_ref().is_none_or(Process::is_alive)
    }
}

/// The lock file, open and locked for as long as this value lives. Held while a bed is started or
/// ended; what it says holds in between.
pub(crate) struct NodeLock {
    file: File,
    path: PathBuf,
}

impl NodeLock {
    /// Where the lock is on this machine; `/run` is empty after a restart, as the lock should be.
    pub(crate) fn path() -> PathBuf {
        let folder = Path::new("/run/lock");
        let folder = if folder.is_dir() {
            folder
        } else {
            Path::new("/tmp")
        };
        folder.join("bowline-node-bed.json")
    }

    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("open the lock {}", path.display()))?;
        file.lock()
            .with_context(|| format!("lock {}", path.display()))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    pub(crate) fn holder(&mut self) -> anyhow::Result<Option<Holder>> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).map(Some).with_context(|| {
            format!(
                "read the lock {}; remove it if no bed runs",
                self.path.display()
            )
        })
    }

    /// Fails if somebody has the bed; gives the holder whose bed is stale, if there is one.
    pub(crate) fn stale(&mut self) -> anyhow::Result<Option<Holder>> {
        match self.holder()? {
            Some(holder) if holder.is_alive() => bail!(
                "this machine's node bed is in use since {} ({}); `cargo xtask bed down` ends it",
                holder.since,
                holder.bed.display()
            ),
            other => Ok(other),
        }
    }

    pub(crate) fn set(&mut self, holder: &Holder) -> anyhow::Result<()> {
        self.write(&serde_json::to_vec_pretty(holder)?)
    }

    pub(crate) fn clear(&mut self) -> anyhow::Result<()> {
        self.write(b"")
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(bytes)?;
        Ok(())
    }
}

/// Who has the node bed now, for those who only ask; they need no right to write.
pub(crate) fn holder() -> Option<Holder> {
    serde_json::from_slice(&fs::read(NodeLock::path()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Holder, NodeLock};
    use crate::Process;

    fn holder(owner: Option<Process>, keeper: Process) -> Holder {
        Holder {
            bed: PathBuf::from("/somewhere"),
            since: "2026-11-15T03:19:32Z".into(),
            owner,
            keeper,
        }
    }

    fn gone() -> Process {
        Process {
            started: 0,
            ..Process::me().unwrap()
        }
    }

    #[test]
    fn a_held_lock_says_who_has_it_and_a_stale_one_is_seen_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let me = Process::me().unwrap();

        let mut lock = NodeLock::open(&path).unwrap();
        assert_eq!(lock.stale().unwrap(), None);

        lock.set(&holder(None, me.clone())).unwrap();
        drop(lock);
        let mut lock = NodeLock::open(&path).unwrap();
        let refusal = lock.stale().unwrap_err().to_string();
        assert!(
            refusal.contains("/somewhere") && refusal.contains("bed down"),
            "{refusal}"
        );

        for stale in [holder(None, gone()), holder(Some(gone()), me)] {
            lock.set(&stale).unwrap();
            assert_eq!(lock.stale().unwrap(), Some(stale));
        }

        lock.clear().unwrap();
        assert_eq!(lock.holder().unwrap(), None);
    }
}
