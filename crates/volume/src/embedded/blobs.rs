//! Reading blobs: decrypted, unpacked, and checked against their ids.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::{
    crypto::Key,
    files::{File, Files},
    id::Id,
    index::{Blob, Entry, Index},
    tree::{self, Node},
};
use crate::{Error, Result};

/// Packs with trees that are kept in memory.
const KEPT: usize = 3;
/// What is read at once of a pack with trees.
const LARGEST: u64 = 20 << 20;

/// Unpacks blobs; one for each thread.
pub(crate) struct Opener {
    zstd: zstd::bulk::Decompressor<'static>,
    raw: Vec<u8>,
}

impl Opener {
    pub(crate) fn new() -> Result<Self> {
        let zstd = zstd::bulk::Decompressor::new().map_err(Error::unexpected)?;
        let raw = Vec::new();
        Ok(Self { zstd, raw })
    }

    /// The contents of a blob, from its bytes in the pack, which are decrypted in place.
    pub(crate) fn open<'a>(
        &'a mut self,
        key: &Key,
        entry: &Entry,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], String> {
        let plain = key
            .open(sealed)
            .map_err(|_| format!("blob {} cannot be decrypted", entry.id.short()))?;
        let text = if entry.raw == 0 {
            &*plain
        } else {
            self.raw.clear();
            self.raw.reserve(entry.raw as usize);
            self.zstd
                .decompress_to_buffer(plain, &mut self.raw)
                .map_err(|e| format!("blob {}: {e}", entry.id.short()))?;
            &self.raw
        };
        if Id::of(text) != entry.id {
            return Err(format!(
                "blob {} is not what its name says",
                entry.id.short()
            ));
        }
        Ok(text)
    }
}

/// Reads trees. Those of one snapshot are next to each other, so a pack is read at once.
pub(crate) struct Trees {
    files: Files,
    index: Arc<Index>,
    /// Where the trees of each pack begin and end.
    spans: Vec<(u32, u32)>,
    kept: Mutex<Vec<Kept>>,
}

struct Kept {
    pack: usize,
    from: u32,
    bytes: Bytes,
}

impl Trees {
    pub(crate) fn new(files: &Files, index: &Arc<Index>) -> Self {
        let mut spans = vec![(u32::MAX, 0); index.packs.len()];
        for entry in index.entries() {
            if entry.blob() == Blob::Tree {
                let (from, to) = &mut spans[entry.pack()];
                *from = entry.offset.min(*from);
                *to = (entry.offset + entry.length).max(*to);
            }
        }
        Self {
            files: files.clone(),
            index: Arc::clone(index),
            spans,
            kept: Mutex::default(),
        }
    }

    /// Reads a folder.
    pub(crate) async fn read(&self, id: &Id) -> Result<Vec<Node>> {
        let entry = self.index.find(Blob::Tree, id);
        let entry = *entry.ok_or_else(|| Error::Damaged {
            file: format!("tree {}", id.short()),
            reason: "no index knows it".to_owned(),
        })?;
        let mut sealed = self.sealed(&entry).await?;
        let pack = &self.index.packs[entry.pack()];
        let damaged = |reason: String| File::Pack.damaged(pack, reason);
        let mut opener = Opener::new()?;
        let opened = opener.open(&self.files.key, &entry, &mut sealed);
        tree::read(opened.map_err(damaged)?).map_err(damaged)
    }

    async fn sealed(&self, entry: &Entry) -> Result<Vec<u8>> {
        let (from, to) = self.spans[entry.pack()];
        let pack = &self.index.packs[entry.pack()];
        let cut = |kept: &Kept| {
            let start = (entry.offset - kept.from) as usize;
            kept.bytes[start..start + entry.length as usize].to_vec()
        };
        if let Some(kept) = self.kept().iter().find(|kept| kept.pack == entry.pack()) {
            return Ok(cut(kept));
        }
        let place = &self.files.place;
        if u64::from(to - from) > LARGEST {
            let part = place.part(pack, entry.offset.into(), entry.length.into());
            return Ok(part.await?.to_vec());
        }
        let bytes = place.part(pack, from.into(), u64::from(to - from)).await?;
        let fresh = Kept {
            pack: entry.pack(),
            from,
            bytes,
        };
        let sealed = cut(&fresh);
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push(fresh);
        Ok(sealed)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
