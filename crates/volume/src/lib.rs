//! Volumes in repositories of restic's format: folders and block devices copied in, and back.
//!
//! Two engines do it, each of which can go on where the other stopped: [`embedded`], which is the
//! default, and [`program`], which runs restic. What they have in common is [`Engine`].

pub mod embedded;
mod error;
pub mod program;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub use error::{Error, Result};

/// Copies volumes into a repository, and back.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Copies what is in a volume into the repository. When `cancel` ends it, [`Error::Cancelled`]
    /// comes within a second, and there is no snapshot.
    async fn upload(
        &self,
        upload: &Upload,
        progress: &std::sync::Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Uploaded>;

    /// Copies a snapshot into a volume. What else is in it stays as it is.
    async fn download(
        &self,
        download: &Download,
        progress: &std::sync::Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Downloaded>;
}

/// What a volume is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A folder with files.
    #[default]
    Folder,
    /// A block device, or a file that stands for one. Links to it are followed.
    Device,
}

/// A volume to copy into a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upload {
    /// The folder, whose entries go to the top of the snapshot; or the device, which becomes its only
    /// file.
    pub source: PathBuf,
    /// Which of the two.
    pub mode: Mode,
    /// The path that the snapshot says it is of; absolute.
    pub path: String,
    /// `key=value`, as they are to be written.
    pub tags: Vec<String>,
    /// The snapshot that it is probably much like: an id, or the beginning of one. A device is read
    /// as a whole all the same.
    pub parent: Option<String>,
    /// What was changed at this moment or later is read, whatever the parent has: the snapshot of a file
    /// system that nobody had stopped may know of a change and not have it yet. None: a little before
    /// the parent was begun, which is right for files that are read where they are used.
    pub settled: Option<jiff::Timestamp>,
    /// Files that are read at the same time, or threads for a device; none leaves it to the engine.
    pub parallel: Option<usize>,
}

/// What an upload came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// The snapshot's full id; none when a folder was empty, and no snapshot was made.
    pub snapshot: Option<String>,
    /// Files in the snapshot.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were new to the repository, before they were compressed.
    pub added: u64,
    /// What could not be read and is not in the snapshot, though it should be.
    pub unreadable: Vec<Problem>,
    /// What was gone when its turn came, and other remarks; the snapshot is right without it.
    pub remarks: Vec<Problem>,
}

/// A snapshot to copy into a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Download {
    /// The snapshot: an id, or the beginning of one.
    pub snapshot: String,
    /// The folder, or the device; it must exist. A device has room for the data; a file that stands
    /// for one grows.
    pub target: PathBuf,
    /// Which of the two. The snapshot of a device is a large file to a folder.
    pub mode: Mode,
    /// Leave holes where there are zeros. On a device there are always holes, where it can have any.
    pub sparse: bool,
    /// Remove what is in the folder and not in the snapshot. Nothing is removed from a device.
    pub delete_extra: bool,
    /// Files that are written at the same time, or threads for a device; none leaves it to the
    /// engine.
    pub parallel: Option<usize>,
}

/// What a download came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Downloaded {
    /// Files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is not as it should be: a file, an owner, an attribute.
    pub problems: Vec<Problem>,
    /// What this volume cannot hold, and no volume of its kind can: extended attributes, say.
    pub remarks: Vec<Problem>,
}

/// Something about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path in the volume.
    pub path: String,
    /// What about it.
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// How far a copy is, for whoever wants to look.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Bytes in all, as far as is known, and bytes done. Never more done than there are.
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Relaxed);
        (self.total.load(Ordering::Relaxed).max(done), done)
    }

    /// So many bytes are to come in all.
    pub fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// So many bytes more are done.
    pub fn more(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, total: u64, done: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// The end: all of it is done.
    pub(crate) fn finish(&self, bytes: u64) {
        self.set(bytes, bytes);
    }
}
