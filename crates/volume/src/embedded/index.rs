//! Which blob is in which pack. All of a repository's is in memory while it is used, so it is kept
//! small: 48 bytes for each blob, sorted by id.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use super::{
    files::{File, Files},
    id::Id,
};
use crate::Result;

/// Index files that are read at the same time.
const PARALLEL: usize = 4;
/// Blobs in one index file at most, as we write them.
pub(crate) const FULL: usize = 50_000;

/// What a blob is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Blob {
    Data,
    Tree,
}

/// Where a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: Id,
    /// The pack's number, and whether it is a tree in the highest bit.
    pack: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    /// Its length before it was compressed; zero when it was not.
    pub(crate) raw: u32,
}

const TREE: u32 = 1 << 31;

impl Entry {
    pub(crate) fn blob(&self) -> Blob {
        if self.pack & TREE == 0 {
            Blob::Data
        } else {
            Blob::Tree
        }
    }

    pub(crate) fn pack(&self) -> usize {
        (self.pack & !TREE) as usize
    }

    /// The length of the blob itself.
    pub(crate) fn size(&self) -> u64 {
        let overhead = super::crypto::OVERHEAD as u32;
        let plain = self.length.saturating_sub(overhead);
        u64::from(if self.raw == 0 { plain } else { self.raw })
    }
}

/// What a pack holds, as index files say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pack {
    pub(crate) id: Id,
    pub(crate) blobs: Vec<Placed>,
}

/// A blob in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) id: Id,
    pub(crate) blob: Blob,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) raw: u32,
}

/// All blobs of a repository.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By id.
    entries: Vec<Entry>,
    pub(crate) packs: Vec<Id>,
    /// The files it was read from.
    pub(crate) files: Vec<Id>,
}

impl Index {
    /// Reads all index files.
    pub(crate) async fn read(files: &Files) -> Result<Self> {
        let named = files.place.list(File::Index).await?;
        let mut index = Self::default();
        let mut numbers = HashMap::new();
        let mut read = stream::iter(named)
            .map(|(id, _)| async move { Ok::<_, crate::Error>((id, one(files, id).await?)) })
            .buffer_unordered(PARALLEL);
        while let Some((id, packs)) = read.try_next().await? {
            // One that is gone was replaced meanwhile by others, which the list may not have had.
            let Some(packs) = packs else { continue };
            index.files.push(id);
            for pack in &packs {
                index.add(pack, &mut numbers);
            }
        }
        drop(read);
        index.sort();
        Ok(index)
    }

    fn add(&mut self, pack: &Pack, numbers: &mut HashMap<Id, u32>) {
        let number = *numbers.entry(pack.id).or_insert_with(|| {
            self.packs.push(pack.id);
            (self.packs.len() - 1) as u32
        });
        self.entries.extend(pack.blobs.iter().map(|placed| Entry {
            id: placed.id,
            pack: number | if placed.blob == Blob::Tree { TREE } else { 0 },
            offset: placed.offset,
            length: placed.length,
            raw: placed.raw,
        }));
    }

    fn sort(&mut self) {
        self.entries
            .sort_unstable_by_key(|e| (e.id, e.pack, e.offset));
        self.entries.dedup_by_key(|e| (e.id, e.pack, e.offset));
        self.entries.shrink_to_fit();
    }

    #[cfg(test)]
    fn of<'a>(packs: impl IntoIterator<Item = &'a Pack>) -> Self {
        let mut index = Self::default();
        let mut numbers = HashMap::new();
        for pack in packs {
            index.add(pack, &mut numbers);
        }
        index.sort();
        index
    }

    /// All places of all blobs, by id.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where a blob is.
    pub(crate) fn find(&self, blob: Blob, id: &Id) -> Option<&Entry> {
        let first = self.entries.partition_point(|entry| entry.id < *id);
        let mut same = self.entries[first..].iter().take_while(|e| e.id == *id);
        same.find(|entry| entry.blob() == blob)
    }
}

/// The packs of one index file; none when it is gone.
pub(crate) async fn one(files: &Files, id: Id) -> Result<Option<Vec<Pack>>> {
    let Some(text) = files.read(File::Index, &id).await? else {
        return Ok(None);
    };
    let parsed = tokio::task::spawn_blocking(move || parse(&text)).await?;
    parsed.map(Some).map_err(|e| File::Index.damaged(&id, e))
}

/// The JSON of an index file.
pub(crate) fn write(packs: &[Pack]) -> Vec<u8> {
    use std::io::Write;
    let mut out = b"{\"packs\":[".to_vec();
    for (at, pack) in packs.iter().enumerate() {
        out.extend_from_slice(if at > 0 {
            b",{\"id\":\""
        } else {
            b"{\"id\":\""
        });
        pack.id.write(&mut out);
        out.extend_from_slice(b"\",\"blobs\":[");
        for (at, blob) in pack.blobs.iter().enumerate() {
            out.extend_from_slice(if at > 0 {
                b",{\"id\":\""
            } else {
                b"{\"id\":\""
            });
            blob.id.write(&mut out);
            let kind = match blob.blob {
                Blob::Data => "data",
                Blob::Tree => "tree",
            };
            // Nothing goes wrong with memory.
            let _ = write!(
                out,
                "\",\"type\":\"{kind}\",\"offset\":{},\"length\":{}",
                blob.offset, blob.length
            );
            if blob.raw != 0 {
                let _ = write!(out, ",\"uncompressed_length\":{}", blob.raw);
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
    }
    out.extend_from_slice(b"]}");
    out
}

fn parse(text: &[u8]) -> Result<Vec<Pack>, String> {
    #[derive(Deserialize)]
    struct File {
        packs: Option<Vec<ReadPack>>,
    }
    #[derive(Deserialize)]
    struct ReadPack {
        id: Id,
        blobs: Option<Vec<ReadBlob>>,
    }
    #[derive(Deserialize)]
    struct ReadBlob {
        id: Id,
        #[serde(rename = "type")]
        kind: Word,
        offset: u32,
        length: u32,
        #[serde(default)]
        uncompressed_length: u32,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Data,
        Tree,
    }
    let file: File = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let packs = file.packs.unwrap_or_default().into_iter();
    let packs = packs.map(|pack| Pack {
        id: pack.id,
        blobs: pack
            .blobs
            .unwrap_or_default()
            .into_iter()
            .map(|blob| Placed {
                id: blob.id,
                blob: match blob.kind {
                    Word::Data => Blob::Data,
                    Word::Tree => Blob::Tree,
                },
                offset: blob.offset,
                length: blob.length,
                raw: blob.uncompressed_length,
            })
            .collect(),
    });
    Ok(packs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(number: u8, ids: impl IntoIterator<Item = Id>) -> Pack {
        let placed = ids.into_iter().enumerate().map(|(at, id)| Placed {
            id,
            blob: if at % 2 == 0 { Blob::Data } else { Blob::Tree },
            offset: at as u32 * 100,
            length: 100,
            raw: at as u32 % 3 * 50,
        });
        Pack {
            id: Id([number; 32]),
            blobs: placed.collect(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let packs = vec![pack(1, [Id::of(b"a"), Id::of(b"b")]), pack(2, [])];
        assert_eq!(parse(&write(&packs)), Ok(packs));
        assert!(parse(b"{\"packs\":[{\"id\":\"12\"}]}").is_err());
    }

    #[test]
    fn every_blob_is_found_and_no_other() {
        let ids = |from: u32, to: u32| (from..to).map(|n| Id::of(&n.to_le_bytes()));
        for count in [0, 1, 15, 17, 1000, 20_000] {
            let packs = [pack(1, ids(0, count / 2)), pack(2, ids(count / 2, count))];
            let index = Index::of(&packs);
            for placed in packs.iter().flat_map(|pack| &pack.blobs) {
                let found = index.find(placed.blob, &placed.id).copied().unwrap();
                assert_eq!((found.offset, found.raw), (placed.offset, placed.raw));
            }
            assert!(ids(count, count + 500).all(|id| index.find(Blob::Data, &id).is_none()));
        }
    }
}
