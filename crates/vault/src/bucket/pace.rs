//! Slowness that was asked for: bytes on their way into a bucket wait for their turn.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::time::Instant;

use crate::{ByteStream, Result};

/// What is smaller does not wait: locks, indexes and the like, which others wait for.
const SMALL: usize = 64 << 10;

/// How many bytes may go in a second. All clones share it.
#[derive(Debug, Clone)]
pub struct UploadLimit {
    bytes_per_second: u64,
    /// When all that was let through so far would have passed.
    passed: Arc<Mutex<Instant>>,
}

impl UploadLimit {
    /// So many, beginning now.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            passed: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Waits until so many bytes more have had their time.
    pub(super) async fn wait(&self, bytes: usize) {
        let until = self.take(bytes, Instant::now());
        if bytes >= SMALL {
            tokio::time::sleep_until(until).await;
        }
    }

    /// When so many bytes more will have passed. Time in which nobody came is lost.
    fn take(&self, bytes: usize, now: Instant) -> Instant {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = bytes as f64 / self.bytes_per_second as f64;
        *passed = now.max(*passed) + Duration::from_secs_f64(seconds);
        *passed
    }
}

/// A stream that keeps to a limit.
pub(super) fn slowed(
    body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    limit: UploadLimit,
) -> ByteStream {
    body.then(move |chunk| {
        let limit = limit.clone();
        async move {
            if let Ok(chunk) = &chunk {
                let until = limit.take(chunk.len(), Instant::now());
                tokio::time::sleep_until(until).await;
            }
            chunk
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_wait_for_those_before_them() {
        let limit = UploadLimit::new(1 << 20);
        let start = Instant::now();
        // Whoever comes first waits as well: what is told to be there has had its time.
        limit.wait(2 << 20).await;
        assert_eq!(start.elapsed().as_millis(), 2000);
        let other = limit.clone();
        tokio::join!(other.wait(1 << 20), limit.wait(1 << 20));
        assert_eq!(start.elapsed().as_millis(), 4000);
        // Small ones do not wait, but count.
        limit.wait(SMALL - 1).await;
        assert_eq!(start.elapsed().as_millis(), 4000);
        limit.wait(1 << 20).await;
        assert!(start.elapsed() > Duration::from_millis(5050));
    }

    #[tokio::test(start_paused = true)]
    async fn streams_keep_to_it_too() {
        let limit = UploadLimit::new(1000);
        let chunk = || Ok(Bytes::from_static(&[0; 500]));
        let start = Instant::now();
        let body = slowed(stream::iter([chunk(), chunk(), chunk()]), limit);
        assert_eq!(body.count().await, 3);
        assert_eq!(start.elapsed().as_millis(), 1500);
    }
}
