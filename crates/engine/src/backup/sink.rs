//! The way into the archive: many hands bring packed batches, one joins them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use bowline_vault::archive::{
    FORMAT_VERSION, VERSION_FILE,
    write::{Batch, Closed, Packed, Packer, Writer},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{JoinError, JoinHandle},
};

use crate::object::Canonical;

/// Tar bytes of single objects that are gathered before they are packed.
const GATHER: usize = 128 * 1024;
/// Each object is there twice, so that even little effort finds much.
const LEVEL: u32 = 2;

/// Takes entries from many tasks.
#[derive(Debug)]
pub(super) struct Sink {
    /// None once the archive is ended.
    out: Mutex<Option<mpsc::Sender<Packed>>>,
    /// Whether it was ended on purpose: a run that was dropped leaves no archive.
    is_whole: Arc<AtomicBool>,
    single: Mutex<Batch>,
    mtime: u64,
    desks: Desks,
}

/// What packing needs, kept from one batch to the next.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) packer: Packer,
    pub(super) batch: Batch,
    pub(super) canonical: Canonical,
    pub(super) body: Vec<u8>,
}

/// As many as there are cores; who finds none waits.
#[derive(Debug)]
struct Desks {
    count: Semaphore,
    free: Mutex<Vec<Desk>>,
}

impl Desks {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            count: Semaphore::new(cores.min(8)),
            free: Mutex::default(),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Desk>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The archive being joined; ends with its size.
pub(super) type Joining = JoinHandle<Result<u64, Closed>>;

impl Sink {
    pub(super) fn start(mut writer: Writer, mtime: u64) -> (Self, Joining) {
        let (out, mut packed) = mpsc::channel::<Packed>(2);
        let is_whole = Arc::new(AtomicBool::new(false));
        let whole = Arc::clone(&is_whole);
        let joining = tokio::spawn(async move {
            let mut first = Batch::new(mtime);
            first.add(VERSION_FILE, format!("{FORMAT_VERSION}\n").as_bytes());
            writer.push(Packer::new(LEVEL).pack(&first)).await?;
            while let Some(packed) = packed.recv().await {
                writer.push(packed).await?;
            }
            if !whole.load(Ordering::Acquire) {
                return Err(Closed);
            }
            writer.finish().await
        });
        let sink = Self {
            out: Mutex::new(Some(out)),
            is_whole,
            single: Mutex::new(Batch::new(mtime)),
            mtime,
            desks: Desks::new(),
        };
        (sink, joining)
    }

    fn batch(&self) -> Batch {
        Batch::new(self.mtime)
    }

    /// Hands a packed batch over; waits while the store is behind.
    pub(super) async fn send(&self, packed: Packed) -> Result<(), Closed> {
        let out = self.lock_out().clone().ok_or(Closed)?;
        out.send(packed).await.map_err(|_| Closed)
    }

    /// Nothing more will come: the archive is whole.
    pub(super) fn close(&self) {
        self.is_whole.store(true, Ordering::Release);
        self.lock_out().take();
    }

    fn lock_out(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<Packed>>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the entries of one object.
    pub(super) async fn add(&self, paths: &[String], body: &[u8]) -> Result<(), Closed> {
        let full = {
            let mut batch = self.single.lock().unwrap_or_else(PoisonError::into_inner);
            for path in paths {
                batch.add(path, body);
            }
            (batch.len() >= GATHER).then(|| std::mem::replace(&mut *batch, self.batch()))
        };
        match full {
            Some(batch) => self.pack_and_send(batch).await,
            None => Ok(()),
        }
    }

    /// Sends what single objects have left behind.
    pub(super) async fn flush(&self) -> Result<(), Closed> {
        let batch = {
            let mut batch = self.single.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *batch, self.batch())
        };
        if batch.is_empty() {
            return Ok(());
        }
        self.pack_and_send(batch).await
    }

    async fn pack_and_send(&self, batch: Batch) -> Result<(), Closed> {
        let packed = self.at_desk(move |desk| desk.packer.pack(&batch)).await;
        self.send(packed.map_err(|_| Closed)?).await
    }

    /// Does work that takes a while, on a blocking thread, when a desk is free.
    pub(super) async fn at_desk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let _permit = self.desks.count.acquire().await.expect("nobody closes it");
        let free = self.desks.free().pop();
        let mut desk = free.unwrap_or_else(|| Desk {
            packer: Packer::new(LEVEL),
            batch: self.batch(),
            canonical: Canonical::default(),
            body: Vec::new(),
        });
        let (done, desk) = tokio::task::spawn_blocking(move || {
            desk.batch.clear();
            let done = work(&mut desk);
            (done, desk)
        })
        .await?;
        // One that had to hold a very large object is let go.
        if desk.body.capacity() + desk.batch.len() < 16 * GATHER {
            self.desks.free().push(desk);
        }
        Ok(done)
    }
}
