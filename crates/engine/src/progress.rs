//! How far a run is.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// How far a run is; read by whoever likes, at any time.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    stage: Mutex<String>,
}

impl Progress {
    /// Objects in all and objects done.
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Relaxed);
        (self.total.load(Ordering::Relaxed).max(done), done)
    }

    /// What is being done, in a few words; empty where a run has no stages.
    #[must_use]
    pub fn stage(&self) -> String {
        let stage = self.stage.lock();
        stage.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what is being done.
    pub fn enter(&self, stage: &str) {
        let mut current = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        stage.clone_into(&mut current);
    }

    pub(crate) fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn grow(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// Objects that are done now.
    pub fn more(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// The end, but for some that somebody else will tell of.
    pub(crate) fn finish(&self, total: u64, pending: u64) {
        self.done
            .store(total.saturating_sub(pending), Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}
