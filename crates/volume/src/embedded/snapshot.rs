//! Snapshots: a tree, and what is said of it.

use futures::{StreamExt, TryStreamExt, future, stream};
use serde::{Deserialize, Serialize};

use super::{
    files::{File, Files},
    id::Id,
};
use crate::{Error, Result};

/// A snapshot, as its file has it. Fields that are not known here are not kept: a snapshot is never
/// written again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<Id>,
    pub(crate) tree: Id,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) hostname: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) username: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) program_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<Summary>,
}

/// What an upload came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    pub(crate) backup_start: String,
    pub(crate) backup_end: String,
    pub(crate) files_new: u64,
    pub(crate) files_changed: u64,
    pub(crate) files_unmodified: u64,
    pub(crate) dirs_new: u64,
    pub(crate) dirs_changed: u64,
    pub(crate) dirs_unmodified: u64,
    pub(crate) data_blobs: u64,
    pub(crate) tree_blobs: u64,
    pub(crate) data_added: u64,
    pub(crate) data_added_packed: u64,
    pub(crate) total_files_processed: u64,
    pub(crate) total_bytes_processed: u64,
}

/// What a repository says of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its full id.
    pub id: String,
    /// When it was begun, as its maker wrote it.
    pub time: String,
    /// The paths that it says it is of.
    pub paths: Vec<String>,
    /// `key=value`.
    pub tags: Vec<String>,
    /// Its files and their bytes, if its maker has counted them.
    pub size: Option<(u64, u64)>,
}

/// Snapshots that are read at the same time.
const AT_ONCE: usize = 8;

/// All of them, the oldest first.
pub(super) async fn list(files: &Files) -> Result<Vec<Listed>> {
    let all = files.place.list(File::Snapshot).await?;
    let reads = all.into_iter().map(|(id, _)| async move {
        let found = Snapshot::read(files, id).await?;
        Ok::<_, Error>(found.map(|snapshot| snapshot.listed(id)))
    });
    let read = stream::iter(reads).buffer_unordered(AT_ONCE);
    let mut listed: Vec<Listed> = read.try_filter_map(future::ok).try_collect().await?;
    listed.sort_by(|a, b| (&a.time, &a.id).cmp(&(&b.time, &b.id)));
    Ok(listed)
}

impl Snapshot {
    fn listed(self, id: Id) -> Listed {
        let count = |s: Summary| (s.total_files_processed, s.total_bytes_processed);
        Listed {
            id: id.to_string(),
            time: self.time,
            paths: self.paths,
            tags: self.tags,
            size: self.summary.map(count),
        }
    }

    /// Reads the snapshot that has this id, or alone has one that begins like this.
    pub(crate) async fn find(files: &Files, name: &str) -> Result<(Id, Self)> {
        let missing = || Error::NoSnapshot(name.to_owned());
        let id = match Id::parse(name) {
            Some(id) => id,
            None => {
                let is_prefix = !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit());
                let all = files.place.list(File::Snapshot).await?;
                let wanted = name.to_ascii_lowercase();
                let mut like = all
                    .iter()
                    .filter(|(id, _)| id.to_string().starts_with(&wanted));
                match (is_prefix, like.next(), like.next()) {
                    (true, Some((id, _)), None) => *id,
                    _ => return Err(missing()),
                }
            }
        };
        let found = Self::read(files, id).await?;
        found.map(|snapshot| (id, snapshot)).ok_or_else(missing)
    }

    /// Reads a snapshot; none when it is gone.
    pub(crate) async fn read(files: &Files, id: Id) -> Result<Option<Self>> {
        let Some(text) = files.read(File::Snapshot, &id).await? else {
            return Ok(None);
        };
        let snapshot = serde_json::from_slice(&text);
        snapshot
            .map(Some)
            .map_err(|e| File::Snapshot.damaged(&id, e))
    }

    pub(crate) async fn write(&self, files: &Files) -> Result<Id> {
        let text = serde_json::to_vec(self).expect("strings and numbers are JSON");
        files.write(File::Snapshot, &text).await
    }
}
