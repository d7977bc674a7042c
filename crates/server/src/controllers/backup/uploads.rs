//! The second stage of snapshots: plugins bring them to where they are safe, in the background, a few
//! at a time, after the pods of their volumes were let go.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_engine::progress::Progress;
use bowline_plugin::{Code, Error};
use tokio::{sync::Semaphore, sync::watch, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

use super::tracked::Tracked;
use crate::snapshotters::{Snapshotter, is_missing};

/// Snapshots of one backup that are uploaded at the same time.
const PARALLEL: usize = 4;
/// How often a plugin is asked how far it is.
const TICK: Duration = Duration::from_secs(1);
/// After so many answers in a row that are errors it is not asked any more.
const PATIENCE: u32 = 3;

/// What became of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The snapshot is safe.
    Safe,
    /// The plugin has no second stage, and nothing to say of the first.
    Nothing,
    /// It is not, for this reason.
    Failed(String),
}

/// A snapshot to upload.
pub(super) struct Upload {
    /// The PersistentVolume, by name.
    pub(super) volume: String,
    /// The snapshot, as the plugin names it.
    pub(super) snapshot: String,
    pub(super) snapshotter: Arc<Snapshotter>,
    pub(super) tracked: Option<Arc<Tracked>>,
    /// How long a plugin may go on that says in the object how far it is, rather than here.
    pub(super) limit: Duration,
}

/// The uploads of one backup, by volume; none while they are not over. They end with this.
pub(super) struct Uploads {
    ends: watch::Sender<BTreeMap<String, Option<End>>>,
    room: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
    progress: Arc<Progress>,
}

impl Uploads {
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self {
            ends: watch::Sender::default(),
            room: Arc::new(Semaphore::new(PARALLEL)),
            tasks: Mutex::default(),
            progress: Arc::clone(progress),
        }
    }

    /// One that will come.
    pub(super) fn expect(&self, volume: &str) {
        self.ends.send_modify(|ends| {
            ends.insert(volume.to_owned(), None);
        });
    }

    /// One that is over, though nobody did anything here.
    pub(super) fn over(&self, volume: &str, end: End) {
        self.ends.send_modify(|ends| {
            ends.insert(volume.to_owned(), Some(end));
        });
    }

    /// Begins one, as soon as there is room.
    pub(super) fn start(&self, upload: Upload) {
        self.expect(&upload.volume);
        let (ends, room) = (self.ends.clone(), Arc::clone(&self.room));
        let progress = Arc::clone(&self.progress);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(async move {
            let _room = room.acquire().await;
            let end = upload.run().await;
            match &end {
                End::Failed(why) => tracing::warn!(
                    volume = upload.volume,
                    snapshot = upload.snapshot,
                    "upload failed: {why}"
                ),
                _ => progress.more(1),
            }
            ends.send_modify(|ends| {
                ends.insert(upload.volume, Some(end));
            });
        });
    }

    pub(super) fn ends(&self) -> BTreeMap<String, Option<End>> {
        self.ends.borrow().clone()
    }

    pub(super) fn pending(&self) -> usize {
        let ends = self.ends.borrow();
        ends.values().filter(|end| end.is_none()).count()
    }

    /// Waits until another one is over.
    pub(super) fn changes(&self) -> watch::Receiver<BTreeMap<String, Option<End>>> {
        self.ends.subscribe()
    }
}

impl Upload {
    async fn run(&self) -> End {
        if let Some(tracked) = &self.tracked {
            tracked.start().await;
        }
        let ended = self.upload().await;
        let Some(tracked) = &self.tracked else {
            return ended.unwrap_or_else(End::Failed);
        };
        match (tracked.end(ended.as_ref().map(drop)).await, ended) {
            (Ok(()), Ok(end)) => end,
            (Err(why), _) | (_, Err(why)) => End::Failed(why),
        }
    }

    async fn upload(&self) -> Result<End, String> {
        if !self.snapshotter.may_upload() {
            return self.without_upload().await;
        }
        let mut called = self.call().await;
        if matches!(&called, Err(error) if error.code() == Some(Code::Unavailable)) {
            // Its process died. The call may be repeated for the same snapshot, and only this one.
            called = self.call().await;
        }
        match called {
            Ok(()) => Ok(End::Safe),
            Err(error) if error.code() == Some(Code::Unimplemented) => {
                if is_missing(&error) {
                    self.snapshotter.cannot_upload();
                }
                self.without_upload().await
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// A plugin without a second stage. It may still be at work, and say so in its object.
    async fn without_upload(&self) -> Result<End, String> {
        match &self.tracked {
            Some(tracked) if tracked.is_by_plugin() => {
                let last = tracked.wait(self.limit).await;
                last.judge(self.limit).map(|()| End::Safe)
            }
            _ => Ok(End::Nothing),
        }
    }

    /// Calls the plugin, and asks it meanwhile how far it is.
    async fn call(&self) -> Result<(), Error> {
        let telling = self.tracked.clone().map(|tracked| {
            let (snapshotter, snapshot) = (Arc::clone(&self.snapshotter), self.snapshot.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                tell(&snapshotter, &snapshot, &tracked).await;
            }))
        });
        let uploaded = self
            .snapshotter
            .plugin
            .upload_snapshot(&self.snapshot)
            .await;
        drop(telling);
        // The last figures, which nobody may have asked for yet.
        if uploaded.is_ok()
            && let Some(tracked) = &self.tracked
        {
            ask(&self.snapshotter, &self.snapshot, tracked).await;
        }
        uploaded
    }
}

/// Asks a plugin how far it is until it cannot say.
async fn tell(snapshotter: &Snapshotter, snapshot: &str, tracked: &Tracked) {
    let mut failures = 0;
    while snapshotter.may_tell() && failures < PATIENCE && !tracked.is_by_plugin() {
        tokio::time::sleep(TICK).await;
        failures = match ask(snapshotter, snapshot, tracked).await {
            true => 0,
            false => failures + 1,
        };
    }
}

async fn ask(snapshotter: &Snapshotter, snapshot: &str, tracked: &Tracked) -> bool {
    if tracked.is_by_plugin() {
        return true;
    }
    match snapshotter.progress(snapshot, None).await {
        Some(progress) => {
            tracked.tell(&progress).await;
            true
        }
        None => false,
    }
}
