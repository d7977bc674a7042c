//! The embedded engine: repositories of restic's format, read and written here.
//!
//! ```text
//!   upload     walk ─▶ files ─▶ pieces ─▶ known? ─▶ compress, encrypt ─▶ packs ─▶ bucket
//!                 └─▶ scan (the total)          packs ─▶ index ─▶ snapshot, which makes it exist
//!   download   snapshot ─▶ trees ─▶ which pieces of which packs ─▶ decrypt, check ─▶ files
//!   devices    the same with a single file, which is the device
//! ```

mod blobs;
mod chunker;
mod crypto;
mod device;
mod download;
mod files;
mod id;
mod index;
mod key;
mod lock;
mod maintain;
mod pack;
mod problems;
mod quote;
mod save;
mod snapshot;
mod stop;
mod tree;
mod upload;
mod zeros;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_vault::Bucket;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use maintain::Maintained;
pub use snapshot::Listed;

use self::{
    chunker::Chunker,
    crypto::{Key, random},
    files::{File, Files, Place},
    id::Id,
};
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

impl Default for Budget {
    fn default() -> Self {
        let threads = std::thread::available_parallelism();
        Self {
            memory: 64 << 20,
            threads: threads.map_or(2, std::num::NonZero::get).clamp(2, 8),
            patience: Duration::from_secs(120),
        }
    }
}

/// A repository that was opened. Cheap to clone.
#[derive(Clone)]
pub struct Repository {
    files: Files,
    chunker: Chunker,
    identity: Identity,
    budget: Budget,
}

/// The file `config`.
#[derive(Serialize, Deserialize)]
struct Config {
    version: u32,
    id: String,
    chunker_polynomial: String,
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
        let place = Place::new(bucket, folder);
        let has_keys = !place.list(File::Key).await?.is_empty();
        if place.bucket.exists(&place.config()).await? {
            return Err(Error::Exists(place.shown()));
        }
        // A key without a config is what a crash between the two has left; it is used.
        let key = if has_keys {
            key::open(&place, password).await?
        } else {
            key::create(&place, password, &identity.hostname).await?
        };
        let mut id = [0; 32];
        random(&mut id);
        let config = Config {
            version: 2,
            id: Id(id).to_string(),
            chunker_polynomial: format!("{:x}", chunker::polynomial()),
        };
        let text = serde_json::to_vec(&config).expect("strings and numbers are JSON");
        let mut sealed = Vec::new();
        key.seal(&text, &mut sealed);
        place.bucket.put(&place.config(), sealed.into()).await?;
        Self::with(place, key, &config, identity, budget)
    }

    /// Opens a repository; [`Error::NoRepository`] when there is none.
    pub async fn open(
        bucket: Bucket,
        folder: &str,
        password: &str,
        identity: Identity,
        budget: Budget,
    ) -> Result<Self> {
        let place = Place::new(bucket, folder);
        let Some(mut sealed) = place.bucket.read(&place.config()).await? else {
            return Err(Error::NoRepository(place.shown()));
        };
        let key = key::open(&place, password).await?;
        let text = key
            .open(&mut sealed)
            .map_err(|_| bad_config("it cannot be decrypted"))?;
        let config: Config = serde_json::from_slice(text).map_err(bad_config)?;
        Self::with(place, key, &config, identity, budget)
    }

    fn with(
        place: Place,
        key: Key,
        config: &Config,
        identity: Identity,
        budget: Budget,
    ) -> Result<Self> {
        if !(1..=2).contains(&config.version) {
            let version = config.version;
            return Err(bad_config(format!("version {version} is not known here")));
        }
        let polynomial = u64::from_str_radix(&config.chunker_polynomial, 16);
        let polynomial = polynomial.map_err(bad_config)?;
        if !chunker::is_sound(polynomial) {
            return Err(bad_config("its polynomial cannot be used"));
        }
        Ok(Self {
            files: Files {
                place,
                key: Arc::new(key),
                version: config.version,
            },
            chunker: Chunker::new(polynomial),
            identity,
            budget,
        })
    }

    /// All snapshots, the oldest first.
    pub async fn snapshots(&self) -> Result<Vec<Listed>> {
        snapshot::list(&self.files).await
    }

    /// Removes snapshots by id, or the beginning of one; those that are not there are no error.
    /// Their data goes with the next [`maintain`](Self::maintain).
    pub async fn forget(&self, snapshots: &[String]) -> Result<()> {
        for name in snapshots {
            let id = match Id::parse(name) {
                Some(id) => id,
                None => match snapshot::Snapshot::find(&self.files, name).await {
                    Ok((id, _)) => id,
                    Err(Error::NoSnapshot(_)) => continue,
                    Err(error) => return Err(error),
                },
            };
            self.files.place.remove(File::Snapshot, &id).await?;
        }
        Ok(())
    }

    /// Removes data that no snapshot needs, and stale locks. Nobody else may use the repository
    /// meanwhile: [`Error::Locked`] when somebody does.
    pub async fn maintain(&self, cancel: &CancellationToken) -> Result<Maintained> {
        maintain::run(self, cancel).await
    }
}

fn bad_config(reason: impl ToString) -> Error {
    Error::Damaged {
        file: "config".to_owned(),
        reason: reason.to_string(),
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
        upload::run(self, upload, progress, cancel).await
    }

    async fn download(
        &self,
        download: &Download,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Downloaded> {
        download::run(self, download, progress, cancel).await
    }
}
