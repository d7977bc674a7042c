//! The kinds of plugins: what each can be asked.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::Value;

use crate::{Error, Result};

/// A kind, as plugins are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Kind {
    BackupItemAction,
    BackupItemActionV2,
    VolumeSnapshotter,
    ObjectStore,
    RestoreItemAction,
    RestoreItemActionV2,
    DeleteItemAction,
    ItemBlockAction,
}

impl Kind {
    /// All, in the order in which a process lists them.
    pub const ALL: [Self; 8] = [
        Self::BackupItemAction,
        Self::BackupItemActionV2,
        Self::VolumeSnapshotter,
        Self::ObjectStore,
        Self::RestoreItemAction,
        Self::RestoreItemActionV2,
        Self::DeleteItemAction,
        Self::ItemBlockAction,
    ];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BackupItemAction => "BackupItemAction",
            Self::BackupItemActionV2 => "BackupItemActionV2",
            Self::VolumeSnapshotter => "VolumeSnapshotter",
            Self::ObjectStore => "ObjectStore",
            Self::RestoreItemAction => "RestoreItemAction",
            Self::RestoreItemActionV2 => "RestoreItemActionV2",
            Self::DeleteItemAction => "DeleteItemAction",
            Self::ItemBlockAction => "ItemBlockAction",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| Error::Other(format!("invalid plugin kind: {text}")))
    }
}

/// What an object store or a snapshotter is set up with.
pub type Config = BTreeMap<String, String>;

/// The bytes of an object.
pub type Body = BoxStream<'static, Result<Bytes>>;

/// Keeps objects in buckets.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Sets it up; comes before anything else.
    async fn init(&self, config: &Config) -> Result<()>;
    /// Stores an object. A body that ends in an error is not stored.
    async fn put(&self, bucket: &str, key: &str, body: Body) -> Result<()>;
    /// Whether there is such an object.
    async fn exists(&self, bucket: &str, key: &str) -> Result<bool>;
    /// Reads an object. There is no way to tell one that is missing from other trouble.
    async fn get(&self, bucket: &str, key: &str) -> Result<Body>;
    /// What is between a prefix and the next delimiter, in full, with both.
    async fn common_prefixes(
        &self,
        bucket: &str,
        delimiter: &str,
        prefix: &str,
    ) -> Result<Vec<String>>;
    /// All keys that begin with a prefix.
    async fn list(&self, bucket: &str, prefix: &str) -> Result<Vec<String>>;
    /// Removes an object.
    async fn delete(&self, bucket: &str, key: &str) -> Result<()>;
    /// A URL with which anybody can read an object for a while.
    async fn sign(&self, bucket: &str, key: &str, ttl: Duration) -> Result<String>;
}

/// A volume to make of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewVolume {
    /// The snapshot.
    pub snapshot: String,
    /// The type that the volume had.
    pub volume_type: String,
    /// Where it is to be.
    pub zone: String,
    /// Its operations in a second, where that can be chosen.
    pub iops: Option<i64>,
}

/// Takes snapshots of volumes.
#[async_trait]
pub trait VolumeSnapshotter: Send + Sync {
    /// Sets it up; comes before anything else.
    async fn init(&self, config: &Config) -> Result<()>;
    /// Makes a volume of a snapshot; its id.
    async fn create_volume(&self, volume: &NewVolume) -> Result<String>;
    /// A volume's type and operations in a second.
    async fn volume_info(&self, volume: &str, zone: &str) -> Result<(String, Option<i64>)>;
    /// Takes a snapshot; its id.
    async fn create_snapshot(
        &self,
        volume: &str,
        zone: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String>;
    /// Removes a snapshot.
    async fn delete_snapshot(&self, snapshot: &str) -> Result<()>;
    /// The id of a PersistentVolume's volume; none if it is not of this plugin's kind.
    async fn volume_id(&self, volume: &Value) -> Result<Option<String>>;
    /// The PersistentVolume with another volume.
    async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value>;
    /// Brings a snapshot to where it is safe; returns when it is there. May be called again for the
    /// same one.
    async fn upload_snapshot(&self, snapshot: &str) -> Result<()> {
        let _ = snapshot;
        Err(Error::unimplemented())
    }
    /// How far a snapshot is; with a volume, how far that one is on its way back.
    async fn progress(&self, snapshot: &str, volume: Option<&str>) -> Result<Progress> {
        let _ = (snapshot, volume);
        Err(Error::unimplemented())
    }
}

/// Which objects an action is for. Nothing said is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct Selector {
    pub included_namespaces: Vec<String>,
    pub excluded_namespaces: Vec<String>,
    pub included_resources: Vec<String>,
    pub excluded_resources: Vec<String>,
    pub label_selector: String,
}

/// An object that another one refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct Identifier {
    pub group: String,
    /// The plural, `pods`.
    pub resource: String,
    /// Empty for objects of the cluster.
    pub namespace: String,
    pub name: String,
}

/// How far an operation is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether it is over.
    pub is_completed: bool,
    /// What went wrong; empty for nothing.
    pub error: String,
    /// How much is done.
    pub done: i64,
    /// Of how much.
    pub total: i64,
    /// Of what: `Bytes`.
    pub units: String,
    /// For people.
    pub description: String,
    /// When it began, if it has.
    pub started: Option<Timestamp>,
    /// When this was known.
    pub updated: Option<Timestamp>,
}

/// What an action made of an object that is backed up. Objects are JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// The object, if it is another now.
    pub item: Option<Bytes>,
    /// What belongs into the backup with it.
    pub additional: Vec<Identifier>,
    /// The operation that goes on; empty for none. It must be enough to find the operation again
    /// in another process.
    pub operation: String,
    /// What is read again once that operation is over.
    pub post_operation: Vec<Identifier>,
}

/// Does something to objects on their way into a backup.
#[async_trait]
pub trait BackupItemAction: Send + Sync {
    /// Which objects it is for.
    async fn applies_to(&self) -> Result<Selector>;
    /// Does it to an object of a backup.
    async fn execute(&self, item: &Bytes, backup: &Bytes) -> Result<BackedUp>;
    /// How far an operation is.
    async fn progress(&self, operation: &str, backup: &Bytes) -> Result<Progress> {
        let _ = (operation, backup);
        Err(no_operations())
    }
    /// Ends an operation.
    async fn cancel(&self, operation: &str, backup: &Bytes) -> Result<()> {
        let _ = (operation, backup);
        Ok(())
    }
}

/// What an action made of an object that is restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The object, if it is another now.
    pub item: Option<Bytes>,
    /// What is restored before it.
    pub additional: Vec<Identifier>,
    /// Whether it is not to be restored.
    pub skip: bool,
    /// The operation that goes on; empty for none.
    pub operation: String,
    /// Whether the additional items have to be ready first.
    pub wait_for_additional: bool,
    /// How long that may take; none for the server's own limit.
    pub ready_timeout: Option<Duration>,
}

/// Does something to objects on their way back.
#[async_trait]
pub trait RestoreItemAction: Send + Sync {
    /// Which objects it is for.
    async fn applies_to(&self) -> Result<Selector>;
    /// Does it to an object of a restore; `pristine` is what is in the backup.
    async fn execute(&self, item: &Bytes, pristine: &Bytes, restore: &Bytes) -> Result<Restored>;
    /// How far an operation is.
    async fn progress(&self, operation: &str, restore: &Bytes) -> Result<Progress> {
        let _ = (operation, restore);
        Err(no_operations())
    }
    /// Ends an operation.
    async fn cancel(&self, operation: &str, restore: &Bytes) -> Result<()> {
        let _ = (operation, restore);
        Ok(())
    }
    /// Whether additional items are ready.
    async fn are_ready(&self, items: &[Identifier], restore: &Bytes) -> Result<bool> {
        let _ = (items, restore);
        Ok(true)
    }
}

/// Does something when a backup is deleted, for objects in it.
#[async_trait]
pub trait DeleteItemAction: Send + Sync {
    /// Which objects it is for.
    async fn applies_to(&self) -> Result<Selector>;
    /// Does it for an object of a backup.
    async fn execute(&self, item: &Bytes, backup: &Bytes) -> Result<()>;
}

/// Says which objects are backed up together.
#[async_trait]
pub trait ItemBlockAction: Send + Sync {
    /// Which objects it is for.
    async fn applies_to(&self) -> Result<Selector>;
    /// What belongs into a block with an object.
    async fn related(&self, item: &Bytes, backup: &Bytes) -> Result<Vec<Identifier>>;
}

/// What actions of the first version say of operations.
fn no_operations() -> Error {
    Error::new("Plugin does not support asynchronous operations")
}
