//! The files of a repository, by what they are. Names are what their bytes hash to, so a file that
//! was damaged is known by its name.

use std::sync::Arc;

use bowline_vault::Bucket;
use bytes::Bytes;

use super::{crypto::Key, id::Id};
use crate::{Error, Result};

/// What kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum File {
    Key,
    Lock,
    Snapshot,
    Index,
    Pack,
}

/// No file besides packs is larger when it is unpacked.
const LARGEST: u64 = 2 << 30;

/// A repository's place in a bucket.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) bucket: Bucket,
    /// With a slash at its end.
    pub(crate) folder: Arc<str>,
}

/// A repository's files, and what opens them.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) place: Place,
    pub(crate) key: Arc<Key>,
    /// The format: 1, or 2, which compresses.
    pub(crate) version: u32,
}

impl File {
    fn folder(self) -> &'static str {
        match self {
            Self::Key => "keys",
            Self::Lock => "locks",
            Self::Snapshot => "snapshots",
            Self::Index => "index",
            Self::Pack => "data",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Lock => "lock",
            Self::Snapshot => "snapshot",
            Self::Index => "index",
            Self::Pack => "pack",
        }
    }

    /// For people: `pack 0a1b2c3d`.
    pub(crate) fn named(self, id: &Id) -> String {
        format!("{} {}", self.word(), id.short())
    }

    pub(crate) fn damaged(self, id: &Id, reason: impl ToString) -> Error {
        Error::Damaged {
            file: self.named(id),
            reason: reason.to_string(),
        }
    }
}

impl Place {
    pub(crate) fn new(bucket: Bucket, folder: &str) -> Self {
        Self {
            bucket,
            folder: format!("{}/", folder.trim_matches('/')).into(),
        }
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        self.folder.trim_end_matches('/').to_owned()
    }

    pub(crate) fn config(&self) -> String {
        format!("{}config", self.folder)
    }

    fn key(&self, kind: File, id: &Id) -> String {
        let (folder, name) = (&self.folder, id.to_string());
        match kind {
            File::Pack => format!("{folder}data/{}/{name}", &name[..2]),
            _ => format!("{folder}{}/{name}", kind.folder()),
        }
    }

    /// Files of a kind, with their sizes. What has another name is none of ours.
    pub(crate) async fn list(&self, kind: File) -> Result<Vec<(Id, u64)>> {
        let prefix = format!("{}{}/", self.folder, kind.folder());
        let entries = self.bucket.list(&prefix).await?;
        let named = entries.into_iter().filter_map(|entry| {
            let (_, name) = entry.key.rsplit_once('/')?;
            Some((Id::parse(name)?, entry.size))
        });
        Ok(named.collect())
    }

    /// A whole file as it is stored; none when it is not there, an error when it is damaged.
    pub(crate) async fn load(&self, kind: File, id: &Id) -> Result<Option<Vec<u8>>> {
        let Some(bytes) = self.bucket.read(&self.key(kind, id)).await? else {
            return Ok(None);
        };
        if Id::of(&bytes) != *id {
            return Err(kind.damaged(id, "its contents are not what its name says"));
        }
        Ok(Some(bytes))
    }

    /// A part of a pack.
    pub(crate) async fn part(&self, pack: &Id, offset: u64, length: u64) -> Result<Bytes> {
        let key = self.key(File::Pack, pack);
        let part = self.bucket.read_range(&key, offset..offset + length).await;
        part.map_err(|error| match error {
            bowline_vault::Error::NotFound { .. } => File::Pack.damaged(pack, "it is missing"),
            bowline_vault::Error::Damaged { reason, .. } => File::Pack.damaged(pack, reason),
            other => other.into(),
        })
    }

    pub(crate) async fn put(&self, kind: File, id: &Id, bytes: Bytes) -> Result<()> {
        Ok(self.bucket.put(&self.key(kind, id), bytes).await?)
    }

    /// Removes a file; one that is not there is no error.
    pub(crate) async fn remove(&self, kind: File, id: &Id) -> Result<()> {
        Ok(self.bucket.delete(&self.key(kind, id)).await?)
    }
}

impl Files {
    /// Reads a file and decrypts it; none when it is not there.
    pub(crate) async fn read(&self, kind: File, id: &Id) -> Result<Option<Vec<u8>>> {
        let Some(mut sealed) = self.place.load(kind, id).await? else {
            return Ok(None);
        };
        let opened = self.key.open(&mut sealed);
        let text = opened.map_err(|_| kind.damaged(id, "it cannot be decrypted"))?;
        match text.first() {
            Some(b'{' | b'[') => Ok(Some(text.to_vec())),
            Some(2) => {
                let unpacked = unpack(&text[1..]).map_err(|e| kind.damaged(id, e))?;
                Ok(Some(unpacked))
            }
            _ => Err(kind.damaged(id, "it is of an unknown format")),
        }
    }

    /// Encrypts a file and stores it under its name.
    pub(crate) async fn write(&self, kind: File, text: &[u8]) -> Result<Id> {
        let mut sealed = Vec::new();
        if self.version >= 2 {
            let mut packed = vec![2];
            let more = zstd::bulk::compress(text, 3).map_err(Error::unexpected)?;
            packed.extend_from_slice(&more);
            self.key.seal(&packed, &mut sealed);
        } else {
            self.key.seal(text, &mut sealed);
        }
        let id = Id::of(&sealed);
        self.place.put(kind, &id, sealed.into()).await?;
        Ok(id)
    }
}

fn unpack(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, Read};
    let mut text = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed)?;
    decoder.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(Error::other("it is too large"));
    }
    Ok(text)
}
