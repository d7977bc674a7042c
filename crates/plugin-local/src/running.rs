//! How far copies are, for whoever asks.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bowline_plugin::kinds;
use bowline_volume::Progress;
use jiff::Timestamp;

use crate::names::SnapshotId;

/// Which way a snapshot goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Up,
    Back,
}

/// The copies of this process: those under way, and those that are over.
#[derive(Default)]
pub(crate) struct Running(Mutex<HashMap<(SnapshotId, Way), Copying>>);

struct Copying {
    progress: Arc<Progress>,
    started: Timestamp,
    ended: Option<(Timestamp, String)>,
}

impl Running {
    /// A copy begins.
    pub(crate) fn begin(&self, id: &SnapshotId, way: Way) -> Arc<Progress> {
        let progress = Arc::default();
        let copying = Copying {
            progress: Arc::clone(&progress),
            started: Timestamp::now(),
            ended: None,
        };
        self.lock().insert((id.clone(), way), copying);
        progress
    }

    /// A copy is over; an error in words, or nothing.
    pub(crate) fn end(&self, id: &SnapshotId, way: Way, error: String) {
        if let Some(copying) = self.lock().get_mut(&(id.clone(), way)) {
            copying.ended = Some((Timestamp::now(), error));
        }
    }

    /// How far a copy is. One that has not begun in this process has no time of its start.
    pub(crate) fn progress(&self, id: &SnapshotId, way: Way) -> kinds::Progress {
        let running = self.lock();
        let Some(copying) = running.get(&(id.clone(), way)) else {
            return kinds::Progress {
                units: "Bytes".to_owned(),
                updated: Some(Timestamp::now()),
                ..kinds::Progress::default()
            };
        };
        let (total, done) = copying.progress.get();
        let count = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let (updated, error) = match &copying.ended {
            Some((at, error)) => (*at, error.clone()),
            None => (Timestamp::now(), String::new()),
        };
        let word = match (way, copying.ended.is_some()) {
            (Way::Up, false) => "Uploading",
            (Way::Up, true) => "Upload ended",
            (Way::Back, false) => "Restoring",
            (Way::Back, true) => "Restore ended",
        };
        kinds::Progress {
            is_completed: copying.ended.is_some(),
            error,
            done: count(done),
            total: count(total),
            units: "Bytes".to_owned(),
            description: word.to_owned(),
            started: Some(copying.started),
            updated: Some(updated),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(SnapshotId, Way), Copying>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_followed_from_before_its_start_to_its_end() {
        let (running, id) = (Running::default(), SnapshotId::new("v"));
        let before = running.progress(&id, Way::Up);
        assert_eq!((before.started, before.is_completed), (None, false));
        assert_eq!(before.units, "Bytes");
        let progress = running.begin(&id, Way::Up);
        progress.expect(10);
        progress.more(4);
        let now = running.progress(&id, Way::Up);
        assert_eq!((now.done, now.total, now.is_completed), (4, 10, false));
        assert!(now.started.is_some());
        assert_eq!(running.progress(&id, Way::Back).started, None);
        running.end(&id, Way::Up, "no".to_owned());
        let after = running.progress(&id, Way::Up);
        assert_eq!((after.is_completed, &*after.error), (true, "no"));
        // Once more.
        running.begin(&id, Way::Up);
        assert!(!running.progress(&id, Way::Up).is_completed);
    }
}
