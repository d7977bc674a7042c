//! A bucket as backups see it: keys, and the one layer of retries, timeouts and metrics.

use std::{sync::Arc, time::Duration};

use bowline_api::v1::Backup;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::{ByteStream, ObjectStore, Result, store::Entry};

/// The bucket and folder of a location.
#[derive(Debug, Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: String,
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

#[expect(unused_variables, clippy::todo, reason = "not written yet")]
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
        }
    }
    /// Whether it can be listed and holds nothing foreign at its top.
    pub async fn check(&self) -> Result<()> {
        todo!()
    }
    /// Names of the folders in `backups/`, sorted.
    pub async fn backups(&self) -> Result<Vec<String>> {
        todo!()
    }
    /// The Backup object of a backup, or none when there is no such backup.
    pub async fn backup(&self, name: &str) -> Result<Option<Backup>> {
        todo!()
    }
    /// Puts `velero-backup.json`, indented, as Velero writes it.
    pub async fn put_backup(&self, backup: &Backup) -> Result<()> {
        todo!()
    }
    /// Puts a small object, trying again where that can help.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        todo!()
    }
    /// Puts a gzipped JSON value with a newline, in Go's spelling.
    pub async fn put_json<T: serde::Serialize + Sync + ?Sized>(
        &self,
        key: &str,
        value: &T,
    ) -> Result<()> {
        todo!()
    }
    /// Puts what a stream brings, as a whole or not at all.
    pub async fn put_stream(&self, key: &str, body: ByteStream) -> Result<()> {
        todo!()
    }
    /// Reads an object as it comes.
    pub async fn get(&self, key: &str) -> Result<ByteStream> {
        todo!()
    }
    /// Reads and unpacks a gzipped JSON file; none when there is no such file.
    pub async fn json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        todo!()
    }
    /// Whether there is such an object.
    pub async fn exists(&self, key: &str) -> Result<bool> {
        todo!()
    }
    /// Objects below a prefix.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        todo!()
    }
    /// Removes one object.
    pub async fn delete(&self, key: &str) -> Result<()> {
        todo!()
    }
    /// Removes all objects of a folder, `velero-backup.json` first; goes on after errors and
    /// returns all of them.
    pub async fn delete_folder(&self, folder: &str) -> std::result::Result<(), Vec<crate::Error>> {
        todo!()
    }
    /// A URL to read an object with.
    pub async fn sign(&self, key: &str, ttl: Duration) -> Result<String> {
        todo!()
    }
}
