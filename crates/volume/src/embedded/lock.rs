//! Locks, as restic keeps them: a file that says who works on the repository. Many may share it;
//! maintenance wants it for itself. A lock that is not renewed is stale after half an hour.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Identity, Repository,
    files::{File, Files},
    id::Id,
    stop::{Stop, StopOnDrop},
};
use crate::{Error, Result};

/// A lock that was not renewed for so long is nobody's.
const STALE: SignedDuration = SignedDuration::from_mins(30);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(300);
/// When it could not be renewed for so long, the work ends before others think it is stale.
const LOST: Duration = Duration::from_secs(25 * 60);
/// Others who came at the same time show up within this, even if the store does not tell at once.
const SETTLE: Duration = Duration::from_millis(200);
/// How long giving it back may take; a caller who was cancelled waits for it.
const GIVE_BACK: Duration = Duration::from_millis(500);
pub(super) const LOST_IT: &str = "our own lock could not be renewed";
/// How often a lock that is in the way is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A lock's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Written {
    time: String,
    exclusive: bool,
    hostname: String,
    username: String,
    pid: i64,
}

/// A lock that is held. Dropped without [`release`](Self::release), its file goes a little later.
pub(crate) struct Lock {
    held: Arc<Held>,
    /// Ends when the lock is lost.
    pub(crate) lost: CancellationToken,
    _renewing: AbortOnDropHandle<()>,
    settled: Option<tokio::task::JoinHandle<Result<()>>>,
}

struct Held {
    files: Files,
    identity: Identity,
    exclusive: bool,
    /// The file's present name; none when it is gone.
    id: Mutex<Option<Id>>,
}

impl Lock {
    /// Does some work under a lock that others share. However it ends, cancelled or not, its threads
    /// are told to stop, and the lock is given back before this returns, or given up on after a
    /// moment.
    pub(crate) async fn hold<T>(
        repository: &Repository,
        cancel: &CancellationToken,
        work: impl AsyncFnOnce(&mut Self, &Arc<Stop>) -> Result<T>,
    ) -> Result<T> {
        let Repository {
            files,
            identity,
            budget,
            ..
        } = repository;
        let mut lock = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Error::Cancelled),
            lock = Self::take(files, identity, false, budget.patience) => lock?,
        };
        let lost = lock.lost.clone();
        let ending = StopOnDrop::default();
        let done = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            () = lost.cancelled() => Err(Error::Locked(LOST_IT.to_owned())),
            done = work(&mut lock, &ending.0) => done,
        };
        drop(ending);
        let _ = tokio::time::timeout(GIVE_BACK, lock.release()).await;
        done
    }

    /// Locks the repository for nobody else.
    pub(crate) async fn exclusive(files: &Files, identity: &Identity) -> Result<Self> {
        let mut lock = Self::take(files, identity, true, Duration::ZERO).await?;
        lock.confirm().await?;
        Ok(lock)
    }

    async fn take(
        files: &Files,
        identity: &Identity,
        exclusive: bool,
        patience: Duration,
    ) -> Result<Self> {
        let until = Instant::now() + patience;
        while let Some(other) = in_the_way(files, identity, exclusive, None).await? {
            if Instant::now() >= until {
                return Err(Error::Locked(other));
            }
            tokio::time::sleep(LOOK).await;
        }
        let held = Arc::new(Held {
            files: files.clone(),
            identity: identity.clone(),
            exclusive,
            id: Mutex::default(),
        });
        held.write().await?;
        let lost = CancellationToken::new();
        let renewing = tokio::spawn(renew(Arc::clone(&held), lost.clone()));
        let settling = Arc::clone(&held);
        Ok(Self {
            held,
            lost,
            _renewing: AbortOnDropHandle::new(renewing),
            settled: Some(tokio::spawn(async move {
                // Who removes things gives a slow store the time to show who else has come.
                if exclusive {
                    tokio::time::sleep(SETTLE).await;
                }
                settling.alone().await
            })),
        })
    }

    /// Waits until it is certain that nobody else came at the same time. Work that can be thrown
    /// away may begin before.
    pub(crate) async fn confirm(&mut self) -> Result<()> {
        if let Some(settled) = self.settled.take() {
            settled.await.unwrap_or(Err(Error::Cancelled))?;
        }
        if self.lost.is_cancelled() {
            return Err(Error::Locked(LOST_IT.to_owned()));
        }
        Ok(())
    }

    /// Gives it back.
    pub(crate) async fn release(self) {
        self.held.remove().await;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(settled) = self.settled.take() {
            settled.abort();
        }
        let held = Arc::clone(&self.held);
        if held.has_file()
            && let Ok(handle) = tokio::runtime::Handle::try_current()
        {
            handle.spawn(async move { held.remove().await });
        }
    }
}

impl Held {
    fn id(&self) -> std::sync::MutexGuard<'_, Option<Id>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_file(&self) -> bool {
        self.id().is_some()
    }

    /// Writes a file with the time of now, and removes the one before.
    async fn write(&self) -> Result<()> {
        let written = Written {
            time: Timestamp::now().to_string(),
            exclusive: self.exclusive,
            hostname: self.identity.hostname.clone(),
            username: "root".to_owned(),
            pid: std::process::id().into(),
        };
        let text = serde_json::to_vec(&written).expect("strings and numbers are JSON");
        let new = self.files.write(File::Lock, &text).await?;
        let old = self.id().replace(new);
        if let Some(old) = old {
            self.files.place.remove(File::Lock, &old).await?;
        }
        Ok(())
    }

    async fn remove(&self) {
        let id = self.id().take();
        if let Some(id) = id
            && let Err(error) = self.files.place.remove(File::Lock, &id).await
        {
            tracing::warn!("the lock {} is left behind: {error}", id.short());
        }
    }

    async fn alone(&self) -> Result<()> {
        let own = *self.id();
        match in_the_way(&self.files, &self.identity, self.exclusive, own).await? {
            Some(other) => Err(Error::Locked(other)),
            None => Ok(()),
        }
    }
}

async fn renew(held: Arc<Held>, lost: CancellationToken) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(RENEW).await;
        match held.write().await {
            Ok(()) => renewed = Instant::now(),
            Err(error) => tracing::warn!("a lock could not be renewed: {error}"),
        }
        if renewed.elapsed() >= LOST {
            lost.cancel();
            return;
        }
    }
}

/// The lock that keeps us from locking, if there is one, in words. Stale ones are removed.
async fn in_the_way(
    files: &Files,
    identity: &Identity,
    exclusive: bool,
    own: Option<Id>,
) -> Result<Option<String>> {
    for (id, _) in files.place.list(File::Lock).await? {
        if Some(id) == own {
            continue;
        }
        let Some(text) = files.read(File::Lock, &id).await? else {
            continue;
        };
        let lock: Written =
            serde_json::from_slice(&text).map_err(|e| File::Lock.damaged(&id, e))?;
        if is_stale(&lock, identity, Timestamp::now()) {
            tracing::info!(host = %lock.hostname, since = %lock.time, "removing a stale lock");
            files.place.remove(File::Lock, &id).await?;
        } else if exclusive || lock.exclusive {
            let kind = if lock.exclusive { "exclusively " } else { "" };
            return Ok(Some(format!(
                "{kind}by process {} on {} since {}",
                lock.pid, lock.hostname, lock.time
            )));
        }
    }
    Ok(None)
}

/// Whether nobody holds it any more.
fn is_stale(lock: &Written, identity: &Identity, now: Timestamp) -> bool {
    // A time that cannot be read is not renewed either, by anybody we know.
    let Ok(time) = lock.time.parse::<Timestamp>() else {
        return true;
    };
    let predecessors = lock.hostname == identity.hostname && time < identity.since;
    now.duration_since(time) > STALE || predecessors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_the_dead_are_stale() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let identity = Identity {
            hostname: "node-1".to_owned(),
            since: at("2026-01-01T12:00:00Z"),
        };
        let now = at("2026-01-01T12:10:00Z");
        for (host, time, expected) in [
            ("node-1", "2026-01-01T11:59:59Z", true),
            ("node-1", "2026-01-01T12:00:01Z", false),
            ("node-2", "2026-01-01T11:59:59Z", false),
            ("node-2", "2026-01-01T11:39:00Z", true),
            ("node-2", "2026-01-01T12:39:00.123456789+01:00", true),
            ("node-2", "yesterday", true),
        ] {
            let lock = Written {
                time: time.to_owned(),
                exclusive: true,
                hostname: host.to_owned(),
                username: String::new(),
                pid: 1,
            };
            assert_eq!(is_stale(&lock, &identity, now), expected, "{host} {time}");
        }
    }
}
