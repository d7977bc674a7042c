//! The embedded engine: repositories of restic's format, read and written here.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_vault::Bucket;
use tokio_util::sync::CancellationToken;

use crate::{Download, Downloaded, Engine, Error, Progress, Result, Upload, Uploaded};

/// Who works on a repository, as its locks say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node, or the pod.
    pub hostname: String,
    /// When this process began: older locks of the same host are a predecessor's, and stale.
    pub since: jiff::Timestamp,
}

/// How much may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of file data that are held in memory.
    pub memory: usize,
    /// Threads that read, pack and write files.
    pub threads: usize,
    /// How long to wait for somebody else's exclusive lock.
    pub patience: Duration,
}

/// A repository that was opened. Cheap to clone.
#[derive(Clone)]
pub struct Repository {}

/// What maintenance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Bytes of packs that were removed.
    pub freed: u64,
    /// Bytes of packs that are left.
    pub kept: u64,
}

impl Repository {
    /// Makes a new repository in a folder of a bucket (`restic/<namespace>`).
    pub async fn create(
        bucket: Bucket,
        folder: &str,
        password: &str,
        identity: Identity,
        budget: Budget,
    ) -> Result<Self> {
        let _ = (bucket, folder, password, identity, budget);
        Err(Error::Cancelled)
    }

    /// Opens a repository; [`Error::NoRepository`] when there is none.
    pub async fn open(
        bucket: Bucket,
        folder: &str,
        password: &str,
        identity: Identity,
        budget: Budget,
    ) -> Result<Self> {
        let _ = (bucket, folder, password, identity, budget);
        Err(Error::Cancelled)
    }

    /// Removes snapshots by id, or the beginning of one; those that are not there are no error.
    /// Their data goes with the next [`maintain`](Self::maintain).
    pub async fn forget(&self, snapshots: &[String]) -> Result<()> {
        let _ = snapshots;
        Err(Error::Cancelled)
    }

    /// Removes data that no snapshot needs, and stale locks. Nobody else may use the repository
    /// meanwhile: [`Error::Locked`] when somebody does.
    pub async fn maintain(&self, cancel: &CancellationToken) -> Result<Maintained> {
        let _ = cancel;
        Err(Error::Cancelled)
    }
}

#[async_trait]
impl Engine for Repository {
    async fn upload(
        &self,
        upload: &Upload,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Uploaded> {
        let _ = (upload, progress, cancel);
        Err(Error::Cancelled)
    }

    async fn download(
        &self,
        download: &Download,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Downloaded> {
        let _ = (download, progress, cancel);
        Err(Error::Cancelled)
    }
}
