//! How threads that work together end early: the first error, or a wish from outside.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{Error, Result};

/// Told when the work is to end; keeps the first reason.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Stop {
    /// Whether to go no further.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the work; the first error is the one that is told.
    pub(crate) fn fail(&self, error: Error) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The error that ended the work, if one did.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_stopped() {
            return Ok(());
        }
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        Err(first.take().unwrap_or(Error::Cancelled))
    }
}

/// Ends the work when it is dropped: a caller who goes away takes the threads along.
#[derive(Default)]
pub(crate) struct StopOnDrop(pub(crate) std::sync::Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}
