//! Blobs on their way into packs, and packs on their way into the bucket. A blob that is known
//! already is not stored again.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tokio::{runtime::Handle, sync::Semaphore, task::JoinSet};

use super::{
    files::{File, Files},
    id::Id,
    index::{self, Blob, Entry, Index, Pack},
    pack::{Builder, Built},
    stop::Stop,
};
use crate::{Error, Progress, Result};

/// How much is compressed: fast, since whoever waits waits for this.
const LEVEL: i32 = 1;

/// Packs what is new.
pub(crate) struct Saver {
    files: Files,
    index: Arc<Index>,
    stop: Arc<Stop>,
    handle: Handle,
    /// What is stored now, or is about to be.
    new: Mutex<HashSet<(Blob, Id)>>,
    data: Mutex<Builder>,
    trees: Mutex<Builder>,
    /// Room for packs that are on their way.
    room: Arc<Semaphore>,
    puts: Mutex<JoinSet<()>>,
    /// Memory of packs that are in the bucket, for the next ones.
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Packs that are in the bucket and in no index file yet.
    stored: Arc<Mutex<Vec<Pack>>>,
    counts: Counts,
    /// Told of bytes of files when they are in the bucket.
    progress: Arc<Progress>,
}

/// What was new.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) data_blobs: AtomicU64,
    pub(crate) tree_blobs: AtomicU64,
    pub(crate) raw: AtomicU64,
    pub(crate) packed: AtomicU64,
}

/// What a thread needs to pack blobs.
pub(crate) struct Desk {
    zstd: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
    sealed: Vec<u8>,
}

impl Desk {
    pub(crate) fn new() -> Result<Self> {
        let zstd = zstd::bulk::Compressor::new(LEVEL).map_err(Error::unexpected)?;
        Ok(Self {
            zstd,
            packed: Vec::new(),
            sealed: Vec::new(),
        })
    }
}

impl Saver {
    /// `packs`: how many may be on their way at the same time.
    pub(crate) fn new(
        files: &Files,
        index: &Arc<Index>,
        stop: &Arc<Stop>,
        packs: usize,
        progress: &Arc<Progress>,
    ) -> Self {
        Self {
            files: files.clone(),
            index: Arc::clone(index),
            stop: Arc::clone(stop),
            handle: Handle::current(),
            new: Default::default(),
            data: Mutex::default(),
            trees: Mutex::default(),
            room: Arc::new(Semaphore::new(packs.max(1))),
            puts: Mutex::default(),
            spare: Arc::default(),
            stored: Arc::default(),
            counts: Counts::default(),
            progress: Arc::clone(progress),
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Stores a piece of a file unless it is known. Called from threads that may wait.
    pub(crate) fn save_data(&self, text: &[u8], desk: &mut Desk) -> Result<Id> {
        let id = Id::of(text);
        if self.is_new(Blob::Data, &id) {
            self.pack(Blob::Data, id, text, desk)?;
        } else {
            self.progress.more(text.len() as u64);
        }
        Ok(id)
    }

    /// Stores a tree unless it is known.
    pub(crate) fn save_tree(&self, text: &[u8], desk: &mut Desk) -> Result<Id> {
        let id = Id::of(text);
        if self.is_new(Blob::Tree, &id) {
            self.pack(Blob::Tree, id, text, desk)?;
        }
        Ok(id)
    }

    /// Whether nobody has stored it, or is about to.
    fn is_new(&self, blob: Blob, id: &Id) -> bool {
        if self.index.find(blob, id).is_some() {
            return false;
        }
        lock(&self.new).insert((blob, *id))
    }

    fn pack(&self, blob: Blob, id: Id, text: &[u8], desk: &mut Desk) -> Result<()> {
        let mut raw = 0;
        let mut plain = text;
        if self.files.version >= 2 {
            desk.packed.clear();
            desk.packed
                .reserve(zstd::zstd_safe::compress_bound(text.len()));
            desk.zstd
                .compress_to_buffer(text, &mut desk.packed)
                .map_err(Error::unexpected)?;
            // What hardly gets smaller is quicker to read as it is; trees are always packed.
            if blob == Blob::Tree || desk.packed.len() < text.len() - text.len() / 32 {
                raw = text.len() as u32;
                plain = &desk.packed;
            }
        }
        desk.sealed.clear();
        self.files.key.seal(plain, &mut desk.sealed);
        let (count, builder) = match blob {
            Blob::Data => (&self.counts.data_blobs, &self.data),
            Blob::Tree => (&self.counts.tree_blobs, &self.trees),
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.counts
            .raw
            .fetch_add(text.len() as u64, Ordering::Relaxed);
        let packed = desk.sealed.len() as u64;
        self.counts.packed.fetch_add(packed, Ordering::Relaxed);
        let moved = match blob {
            Blob::Data => text.len() as u64,
            Blob::Tree => 0,
        };
        self.add(builder, moved, |builder| {
            builder.add(blob, id, &desk.sealed, raw)
        })
    }

    /// Stores a blob that is sealed already.
    pub(crate) fn copy(&self, entry: &Entry, sealed: &[u8]) -> Result<()> {
        let builder = match entry.blob() {
            Blob::Data => &self.data,
            Blob::Tree => &self.trees,
        };
        self.add(builder, 0, |builder| {
            builder.add(entry.blob(), entry.id, sealed, entry.raw)
        })
    }

    /// Adds a blob, and sends the pack if that makes it full.
    fn add(
        &self,
        builder: &Mutex<Builder>,
        moved: u64,
        add: impl FnOnce(&mut Builder) -> bool,
    ) -> Result<()> {
        let full = {
            let mut builder = lock(builder);
            let is_full = add(&mut builder);
            builder.moved(moved);
            is_full.then(|| {
                let spare = lock(&self.spare).pop().unwrap_or_default();
                std::mem::replace(&mut *builder, Builder::with(spare))
            })
        };
        match full {
            Some(builder) => self.send(builder),
            None => Ok(()),
        }
    }

    /// Puts a full pack into the bucket, when there is room for one more on its way.
    fn send(&self, builder: Builder) -> Result<()> {
        let room = Arc::clone(&self.room).acquire_owned();
        let permit = self.handle.block_on(room).map_err(|_| Error::Cancelled)?;
        if self.stop.is_stopped() {
            return Err(Error::Cancelled);
        }
        let Built { pack, bytes, moved } = builder.build(&self.files.key);
        let (files, stop) = (self.files.clone(), Arc::clone(&self.stop));
        let (stored, spare) = (Arc::clone(&self.stored), Arc::clone(&self.spare));
        let progress = Arc::clone(&self.progress);
        let put = async move {
            let sent = async {
                let bytes = Bytes::from(bytes);
                files.place.put(File::Pack, &pack.id, bytes.clone()).await?;
                if let Ok(bytes) = bytes.try_into_mut() {
                    lock(&spare).push(bytes.into());
                }
                drop(permit);
                progress.more(moved);
                keep(&files, &stored, pack).await
            };
            if let Err(error) = sent.await {
                stop.fail(error);
            }
        };
        let mut puts = lock(&self.puts);
        // Those that are done are let go, so that they do not pile up.
        while puts.try_join_next().is_some() {}
        puts.spawn_on(put, &self.handle);
        Ok(())
    }

    /// Sends what is left, and waits until all packs are in the bucket and in an index.
    pub(crate) fn finish(&self) -> Result<()> {
        for builder in [&self.data, &self.trees] {
            let builder = std::mem::take(&mut *lock(builder));
            if !builder.is_empty() {
                self.send(builder)?;
            }
        }
        let mut puts = std::mem::take(&mut *lock(&self.puts));
        self.handle.block_on(async {
            while let Some(done) = puts.join_next().await {
                done?;
            }
            self.stop.check()?;
            let rest = std::mem::take(&mut *lock(&self.stored));
            if !rest.is_empty() {
                self.files.write(File::Index, &index::write(&rest)).await?;
            }
            Ok(())
        })
    }
}

/// Notes a pack that is in the bucket; writes an index file when there are enough.
async fn keep(files: &Files, stored: &Mutex<Vec<Pack>>, pack: Pack) -> Result<()> {
    let full = {
        let mut stored = lock(stored);
        stored.push(pack);
        let blobs: usize = stored.iter().map(|pack| pack.blobs.len()).sum();
        (blobs >= index::FULL).then(|| std::mem::take(&mut *stored))
    };
    if let Some(packs) = full {
        files.write(File::Index, &index::write(&packs)).await?;
    }
    Ok(())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
