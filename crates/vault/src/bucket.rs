//! A bucket as backups see it: keys, and the one layer of retries, timeouts and metrics.
//!
//! Every call can be given up by dropping its future; nothing goes on behind its back but the
//! cleaning up of an unfinished upload.

mod attempt;
mod gzip;
mod metrics;
mod pace;

pub use metrics::Metrics;
pub use pace::UploadLimit;

use std::{ops::Range, sync::Arc, time::Duration};

use bowline_api::{GROUP, json, v1::Backup};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use self::{
    attempt::{SMALL, cancelled},
    metrics::Operation,
};
use crate::{ByteStream, Error, ObjectStore, Result, crash, store::Entry};

/// The folders that may be at the top of a bucket, or of the location's prefix in it.
const FOLDERS: &[&str] = &[
    "backups", "restores", "restic", "metadata", "plugins", "kopia",
];

/// How long reading one file of ours may take.
const FILE: Duration = Duration::from_secs(600);

/// How many bytes of a file are kept in memory at most, unpacked.
const LARGEST: usize = 1 << 30;

/// Objects that are removed at the same time.
const DELETES: usize = 8;

/// The bucket and folder of a location.
#[derive(Debug, Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    cancel: CancellationToken,
    metrics: Metrics,
    limit: Option<UploadLimit>,
}

/// The key of a file of a backup, by its suffix: `backups/b/b-logs.gz`.
#[must_use]
pub fn backup_file(backup: &str, suffix: &str) -> String {
    format!("backups/{backup}/{backup}{suffix}")
}

/// The key of the object that makes a backup exist: `backups/b/velero-backup.json`.
#[must_use]
pub fn backup_object(backup: &str) -> String {
    format!("backups/{backup}/{}", bowline_api::files::BACKUP_OBJECT)
}

/// The key of a file of a restore, by its suffix: `restores/r/restore-r-logs.gz`.
#[must_use]
pub fn restore_file(restore: &str, suffix: &str) -> String {
    // The one file without the word in front.
    let word = if suffix == bowline_api::files::restore_suffix::VOLUME_INFO {
        ""
    } else {
        "restore-"
    };
    format!("restores/{restore}/{word}{restore}{suffix}")
}

impl Bucket {
    /// The part of `store` that is below `prefix`. All keys here are relative to it.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/');
        Self {
            store,
            prefix: if prefix.is_empty() {
                String::new()
            } else {
                format!("{prefix}/")
            },
            cancel: CancellationToken::new(),
            metrics: Metrics::default(),
            limit: None,
        }
    }

    /// The same bucket, all of whose calls end with [`Error::Cancelled`] once `cancel` is.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// The same bucket, counting into `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// The same bucket, into which no more is put than a limit allows. What is small goes at once,
    /// at the cost of what comes after it.
    #[must_use]
    pub fn with_upload_limit(mut self, limit: UploadLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether it can be listed and holds nothing foreign at its top.
    pub async fn check(&self) -> Result<()> {
        let folders = self.folders("").await?;
        let foreign: Vec<_> = folders
            .iter()
            .map(String::as_str)
            .filter(|name| !FOLDERS.contains(name))
            .collect();
        match foreign.len() {
            0 => Ok(()),
            1..=3 => Err(Error::ForeignFolders(format!(
                "Backup store contains invalid top-level directories: [{}]",
                foreign.join(" ")
            ))),
            count => Err(Error::ForeignFolders(format!(
                "Backup store contains {count} invalid top-level directories: [{} ...]",
                foreign[..3].join(" ")
            ))),
        }
    }

    /// Names of the folders in `backups/`, sorted.
    pub async fn backups(&self) -> Result<Vec<String>> {
        self.folders("backups/").await
    }

    /// Names of the folders directly under a prefix, without the prefix, sorted.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = self.full(prefix);
        let action = format!("list {prefix}");
        let folders = self
            .attempt(Operation::List, &action, SMALL, || {
                self.store.folders(&prefix)
            })
            .await?;
        let mut names: Vec<_> = folders
            .iter()
            .filter_map(|folder| folder.strip_prefix(&prefix))
            .map(|name| name.trim_end_matches('/').to_owned())
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The Backup object of a backup, or none when there is no such backup.
    pub async fn backup(&self, name: &str) -> Result<Option<Backup>> {
        let key = backup_object(name);
        let Some(bytes) = self.read(&key).await? else {
            return Ok(None);
        };
        let damaged = |reason: String| Error::Damaged {
            key: self.full(&key),
            reason,
        };
        let backup: Backup =
            serde_json::from_slice(&bytes).map_err(|e| damaged(format!("not a Backup: {e}")))?;
        let version = backup.api_version.as_deref().unwrap_or_default();
        let kind = backup.kind.as_deref().unwrap_or_default();
        if version != format!("{GROUP}/v1") || kind != "Backup" {
            return Err(damaged(format!(
                "unexpected type {version:?} {kind:?} instead of \"{GROUP}/v1\" \"Backup\""
            )));
        }
        Ok(Some(backup))
    }

    /// Puts `velero-backup.json`, indented, as Velero writes it.
    pub async fn put_backup(&self, backup: &Backup) -> Result<()> {
        let name = backup.metadata.name.as_deref().unwrap_or_default();
        let key = backup_object(name);
        let mut backup = backup.clone();
        backup.api_version = Some(format!("{GROUP}/v1"));
        backup.kind = Some("Backup".to_owned());
        let body = json::to_vec_pretty(&backup).map_err(|e| unwritable(&key, &e))?;
        self.put(&key, body.into()).await
    }

    /// Puts a small object, trying again where that can help.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        let full = self.full(key);
        let action = format!("put {full}");
        let suffix = crash::suffix(key);
        // A slow line gets a second for each 100 KB.
        let limit = SMALL + Duration::from_secs(body.len() as u64 / 100_000);
        if let Some(own) = &self.limit {
            self.unless_cancelled(&action, own.wait(body.len())).await?;
        }
        crash::here(&format!("before put {suffix}"));
        self.attempt(Operation::Put, &action, limit, || {
            self.store.put_whole(&full, body.clone())
        })
        .await?;
        self.metrics.sent(body.len());
        crash::here(&format!("after put {suffix}"));
        Ok(())
    }

    /// Puts a gzipped JSON value with a newline, in Go's spelling.
    pub async fn put_json<T: serde::Serialize + Sync + ?Sized>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<()> {
        let mut text = json::to_vec(value).map_err(|e| unwritable(key, &e))?;
        text.push(b'\n');
        let packed = gzip::pack(&text).map_err(|e| unwritable(key, &e))?;
        self.put(key, packed.into()).await
    }

    /// Puts what a stream brings, as a whole or not at all.
    pub async fn put_stream(&self, key: &str, body: ByteStream) -> Result<()> {
        let full = self.full(key);
        let action = format!("put {full}");
        let suffix = crash::suffix(key);
        let metrics = self.metrics.clone();
        let body = body.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                metrics.sent(chunk.len());
            }
        });
        let body = match self.limit.clone() {
            Some(limit) => pace::slowed(body, limit),
            None => body.boxed(),
        };
        crash::here(&format!("before put {suffix}"));
        self.unlimited(Operation::Put, &action, self.store.put(&full, body))
            .await?;
        crash::here(&format!("after put {suffix}"));
        Ok(())
    }

    /// Reads an object as it comes.
    pub async fn get(&self, key: &str) -> Result<ByteStream> {
        let full = self.full(key);
        let action = format!("get {full}");
        let body = self
            .attempt(Operation::Get, &action, SMALL, || self.store.get(&full))
            .await?;
        let (cancel, metrics) = (self.cancel.clone(), self.metrics.clone());
        let counted = body.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                metrics.received(chunk.len());
            }
        });
        // Until the token is cancelled; then an error and the end.
        let stop = stream::once(async move {
            cancel.cancelled().await;
            Err(cancelled(&action))
        });
        Ok(until_first_error(counted, stop).boxed())
    }

    /// Reads and unpacks a gzipped JSON file; none when there is no such file.
    pub async fn json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(packed) = self.read(key).await? else {
            return Ok(None);
        };
        let damaged = |reason: String| Error::Damaged {
            key: self.full(key),
            reason,
        };
        let text = gzip::unpack(&packed, LARGEST).map_err(damaged)?;
        drop(packed);
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| damaged(e.to_string()))
    }

    /// Reads a whole object into memory; none when there is no such object.
    pub async fn read(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let full = self.full(key);
        let action = format!("get {full}");
        let read = self
            .attempt(Operation::Get, &action, FILE, || async {
                let mut body = self.store.get(&full).await?;
                let mut bytes = Vec::new();
                while let Some(chunk) = body.next().await {
                    let chunk = chunk?;
                    self.metrics.received(chunk.len());
                    if bytes.len() + chunk.len() > LARGEST {
                        return Err(Error::Damaged {
                            key: full.clone(),
                            reason: format!("larger than {LARGEST} bytes"),
                        });
                    }
                    bytes.extend_from_slice(&chunk);
                }
                Ok(bytes)
            })
            .await;
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a part of an object into memory.
    pub async fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let full = self.full(key);
        let action = format!("get {full}");
        // A slow line gets a second for each 100 KB.
        let length = range.end.saturating_sub(range.start);
        let limit = SMALL + Duration::from_secs(length / 100_000);
        let part = self
            .attempt(Operation::Get, &action, limit, || {
                self.store.get_range(&full, range.clone())
            })
            .await?;
        self.metrics.received(part.len());
        Ok(part)
    }

    /// Whether there is such an object.
    pub async fn exists(&self, key: &str) -> Result<bool> {
        let full = self.full(key);
        let action = format!("look for {full}");
        self.attempt(Operation::Exists, &action, SMALL, || {
            self.store.exists(&full)
        })
        .await
    }

    /// Objects below a prefix.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        let full = self.full(prefix);
        let action = format!("list {full}");
        let mut entries = self
            .attempt(Operation::List, &action, FILE, || self.store.list(&full))
            .await?;
        for entry in &mut entries {
            if entry.key.starts_with(&self.prefix) {
                entry.key.drain(..self.prefix.len());
            }
        }
        Ok(entries)
    }

    /// Removes one object.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let full = self.full(key);
        let action = format!("delete {full}");
        self.attempt(Operation::Delete, &action, SMALL, || {
            self.store.delete(&full)
        })
        .await
    }

    /// Removes all objects of a folder, `velero-backup.json` first; goes on after errors and
    /// returns all of them.
    pub async fn delete_folder(&self, folder: &str) -> std::result::Result<(), Vec<Error>> {
        let folder = folder.trim_matches('/');
        if folder.is_empty() {
            let text = "a folder to delete must have a name";
            return Err(vec![Error::Settings(text.into())]);
        }
        let entries = self
            .list(&format!("{folder}/"))
            .await
            .map_err(|e| vec![e])?;
        let head = format!("{folder}/{}", bowline_api::files::BACKUP_OBJECT);
        let (first, others): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .map(|entry| entry.key)
            .partition(|key| *key == head);
        let mut errors = Vec::new();
        for keys in [first, others] {
            let deletes = keys
                .into_iter()
                .map(|key| async move { self.delete(&key).await });
            let mut results = stream::iter(deletes).buffered(DELETES);
            while let Some(result) = results.next().await {
                errors.extend(result.err());
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    /// A URL to read an object with.
    pub async fn sign(&self, key: &str, ttl: Duration) -> Result<String> {
        let full = self.full(key);
        let action = format!("sign a URL for {full}");
        self.attempt(Operation::Sign, &action, SMALL, || {
            self.store.sign(&full, ttl)
        })
        .await
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

fn unwritable(key: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Store {
        action: format!("put {key}"),
        reason: format!("encode it: {error}"),
        retryable: false,
    }
}

/// Both streams at once, until the first has ended or either has failed.
fn until_first_error(
    body: impl futures::Stream<Item = Result<Bytes>> + Send + 'static,
    stop: impl futures::Stream<Item = Result<Bytes>> + Send + 'static,
) -> impl futures::Stream<Item = Result<Bytes>> + Send + 'static {
    let state = Some((body.boxed(), stop.boxed()));
    stream::unfold(state, |state| async move {
        let (mut body, mut stop) = state?;
        let next = tokio::select! {
            biased;
            next = stop.next() => next,
            next = body.next() => next,
        };
        match next {
            None => None,
            Some(Ok(chunk)) => Some((Ok(chunk), Some((body, stop)))),
            Some(Err(error)) => Some((Err(error), None)),
        }
    })
}

#[cfg(test)]
mod tests;
