//! What must not be cut off in its middle when a backup is ended: pods that are frozen, and snapshots
//! that are being taken.

use std::time::Duration;

use tokio::sync::watch;

/// How long it is waited for.
const LAST: Duration = Duration::from_secs(30);

/// How much there is of it right now.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(watch::Sender<usize>);

impl Held {
    /// Something begins; it is over when this is dropped.
    pub(super) fn begin(&self) -> Holding<'_> {
        self.0.send_modify(|count| *count += 1);
        Holding(self)
    }

    /// Waits until nothing is held any more, for as long as anybody can be expected to.
    pub(super) async fn nothing(&self) {
        let mut count = self.0.subscribe();
        let _ = tokio::time::timeout(LAST, count.wait_for(|count| *count == 0)).await;
    }
}

/// See [`Held::begin`].
#[derive(Debug)]
pub(super) struct Holding<'a>(&'a Held);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
