//! The way into the archive: many hands bring packed batches, one joins them.

use std::sync::{Mutex, PoisonError};

use bowline_vault::archive::{
    FORMAT_VERSION, VERSION_FILE,
    write::{Batch, Closed, Packed, Writer},
};
use tokio::{sync::mpsc, task::JoinHandle};

/// Tar bytes of single objects that are gathered before they are packed.
const GATHER: usize = 256 * 1024;
/// Objects repeat themselves so much that more effort buys little.
const LEVEL: u32 = 3;

/// Takes entries from many tasks.
#[derive(Debug)]
pub(super) struct Sink {
    /// None once the archive is ended.
    out: Mutex<Option<mpsc::Sender<Packed>>>,
    single: Mutex<Batch>,
    mtime: u64,
}

/// The archive being joined; ends with its size.
pub(super) type Joining = JoinHandle<Result<u64, Closed>>;

impl Sink {
    pub(super) fn start(mut writer: Writer, mtime: u64) -> (Self, Joining) {
        let (out, mut packed) = mpsc::channel::<Packed>(4);
        let joining = tokio::spawn(async move {
            let mut first = Batch::new(mtime);
            first.add(VERSION_FILE, format!("{FORMAT_VERSION}\n").as_bytes());
            writer.push(first.pack(LEVEL)).await?;
            while let Some(packed) = packed.recv().await {
                writer.push(packed).await?;
            }
            writer.finish().await
        });
        let sink = Self {
            out: Mutex::new(Some(out)),
            single: Mutex::new(Batch::new(mtime)),
            mtime,
        };
        (sink, joining)
    }

    /// An empty batch for [`send`](Self::send).
    pub(super) fn batch(&self) -> Batch {
        Batch::new(self.mtime)
    }

    /// Packs a batch; takes a while.
    pub(super) fn pack(batch: &Batch) -> Packed {
        batch.pack(LEVEL)
    }

    /// Hands a packed batch over; waits while the store is behind.
    pub(super) async fn send(&self, packed: Packed) -> Result<(), Closed> {
        let out = self.lock_out().clone().ok_or(Closed)?;
        out.send(packed).await.map_err(|_| Closed)
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
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
        let packed = tokio::task::spawn_blocking(move || Self::pack(&batch))
            .await
            .map_err(|_| Closed)?;
        self.send(packed).await
    }
}
