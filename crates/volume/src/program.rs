//! The restic program as an engine: `backup --json`, `restore`, `stats --json`.
//!
//! How far it is, is looked at once in a while: in a backup the last line of its output says so; in
//! a restore it is what the folder has grown by, of the size that `stats` has told before.

mod child;
mod environment;
mod fault;
mod identifier;
mod messages;
mod run;
mod size;
#[cfg(test)]
mod tests;

pub use environment::{Environment, environment};
pub use identifier::identifier;

use std::{
    convert::Infallible,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bowline_vault::{Location, location};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};
use tokio_util::sync::CancellationToken;

use self::{
    child::{Ended, Output},
    messages::Summary,
};
use crate::{
    Download, Downloaded, Engine, Error, Mode, Problem, Progress, Result, Upload, Uploaded,
};

/// How often to look how far it is.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait for somebody else's exclusive lock.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long to wait before the next try.
const PAUSE: Duration = Duration::from_secs(5);

/// A repository that the restic program reads and writes.
#[derive(Clone)]
pub struct Restic {
    /// The program.
    pub binary: PathBuf,
    /// The repository, as restic names it.
    pub repository: String,
    /// Its password.
    pub password: String,
    /// What restic needs to get there.
    pub environment: Environment,
    /// Where restic keeps what it has read before; without, it chooses a place itself.
    pub cache: Option<PathBuf>,
    /// The CA bundle to trust, in PEM.
    pub ca: Option<Vec<u8>>,
    /// Whether certificates are not looked at.
    pub insecure_tls: bool,
    /// How often to look how far it is.
    pub interval: Duration,
    /// How long to wait for somebody else's exclusive lock.
    pub patience: Duration,
}

/// Says where, and nothing that lets others in.
impl fmt::Debug for Restic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restic")
            .field("binary", &self.binary)
            .field("repository", &fault::shown(&self.repository))
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

impl Restic {
    /// A repository that can be reached as things are: a folder, say.
    #[must_use]
    pub fn new(binary: &Path, repository: &str, password: &str) -> Self {
        Self {
            binary: binary.to_owned(),
            repository: repository.to_owned(),
            password: password.to_owned(),
            environment: Environment::default(),
            cache: None,
            ca: None,
            insecure_tls: false,
            interval: INTERVAL,
            patience: PATIENCE,
        }
    }

    /// The repository of a namespace's volumes in a location.
    ///
    /// # Errors
    /// When restic cannot reach such a location.
    pub fn at(binary: &Path, location: &Location, namespace: &str, password: &str) -> Result<Self> {
        let refuse = |why| Error::Program(why);
        let trust = location::trust(location)?;
        Ok(Self {
            environment: environment(location).map_err(refuse)?,
            ca: trust.ca,
            insecure_tls: trust.is_blind,
            ..Self::new(
                binary,
                &identifier(&location.object.spec, namespace).map_err(refuse)?,
                password,
            )
        })
    }

    /// Tries again while somebody else has locked the repository, and patience lasts.
    async fn patiently<T, F>(
        &self,
        cancel: &CancellationToken,
        attempt: impl Fn() -> F + Send + Sync,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let until = Instant::now() + self.patience;
        loop {
            match attempt().await {
                Err(Error::Locked(_)) if Instant::now() < until => tokio::select! {
                    () = sleep(PAUSE) => {}
                    () = cancel.cancelled() => return Err(Error::Cancelled),
                },
                result => return result,
            }
        }
    }

    async fn backup(
        &self,
        upload: &Upload,
        parent: Option<&str>,
        progress: &Progress,
        cancel: &CancellationToken,
    ) -> Result<Uploaded> {
        // The path that the snapshot is of cannot be chosen: restic writes down where it runs.
        let mut args = vec![
            "backup".into(),
            ".".into(),
            "--json".into(),
            "--host=velero".into(),
        ];
        args.extend(upload.tags.iter().map(|tag| format!("--tag={tag}")));
        match upload.settled {
            // restic believes all that a parent says.
            Some(_) => args.push("--force".into()),
            None => args.extend(parent.map(|parent| format!("--parent={parent}"))),
        }
        args.extend(upload.parallel.map(|n| format!("--read-concurrency={n}")));
        let mut child = self.start(&args, &upload.source).await?;
        let output = child.output();
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            ended = child.end() => Some(ended),
            never = sample(&output, self.interval, progress) => match never {},
        };
        let Some(ended) = ended else {
            self.clone().undo(child.interrupt(), upload.source.clone());
            return Err(Error::Cancelled);
        };
        let mut ended = ended.map_err(|e| self.broken(&e))?;
        let (unreadable, remarks) = ended.complaints.problems(&upload.source);
        if ended.code == Some(1) && ended.complaints.all().contains("snapshot is empty") {
            progress.finish(0);
            return Ok(Uploaded {
                unreadable,
                remarks,
                ..Default::default()
            });
        }
        let summary = match (ended.code, ended.summary.take()) {
            (Some(0 | 3), Some(summary)) => summary,
            (Some(0), None) => {
                return Err(Error::Program(
                    "restic backup ended without a summary".into(),
                ));
            }
            _ => return Err(self.fault("backup", &ended, parent)),
        };
        let is_whole = ended.code == Some(0);
        finish(progress, &summary, is_whole);
        Ok(Uploaded {
            snapshot: Some(self.snapshot(&summary, upload, cancel).await?),
            files: summary.total_files_processed,
            bytes: summary.total_bytes_processed,
            added: summary.data_added,
            unreadable: incomplete(is_whole, unreadable, &remarks),
            remarks,
        })
    }

    /// The snapshot that a backup has made. Old versions do not say; then it is the newest that
    /// has the same tags.
    async fn snapshot(
        &self,
        summary: &Summary,
        upload: &Upload,
        cancel: &CancellationToken,
    ) -> Result<String> {
        if let Some(id) = summary.snapshot() {
            return Ok(id.to_owned());
        }
        let tags = format!("--tag={}", upload.tags.join(","));
        let args = [
            "snapshots".into(),
            "--json".into(),
            "--latest=1".into(),
            tags,
        ];
        let ended = self.run(&args, &upload.source, cancel).await?;
        if ended.code != Some(0) {
            return Err(self.fault("snapshots", &ended, None));
        }
        messages::only_snapshot(&ended.last).ok_or_else(|| {
            let tags = upload.tags.join(",");
            Error::Program(format!(
                "restic has no single snapshot with the tags {tags}"
            ))
        })
    }

    /// Waits for a backup that was interrupted; had it just made its snapshot, that goes again.
    fn undo(self, end: JoinHandle<std::io::Result<Ended>>, folder: PathBuf) {
        tokio::spawn(async move {
            let Ok(Ok(Ended {
                summary: Some(summary),
                ..
            })) = end.await
            else {
                return;
            };
            let Some(id) = summary.snapshot() else {
                return;
            };
            let args = ["forget".to_owned(), id.to_owned()];
            let ended = self.run(&args, &folder, &CancellationToken::new()).await;
            let error = match ended {
                Ok(ended) if ended.code == Some(0) => return,
                Ok(ended) => self.fault("forget", &ended, Some(id)),
                Err(error) => error,
            };
            tracing::warn!(snapshot = id, %error, "snapshot of a cancelled upload is left");
        });
    }

    async fn stats(
        &self,
        download: &Download,
        cancel: &CancellationToken,
    ) -> Result<messages::Stats> {
        let id = &download.snapshot;
        let args = [
            "stats".into(),
            id.clone(),
            "--json".into(),
            "--mode=restore-size".into(),
        ];
        let ended = self.run(&args, &download.target, cancel).await?;
        if ended.code != Some(0) {
            return Err(self.fault("stats", &ended, Some(id)));
        }
        let stats = messages::stats(&ended.last)
            .ok_or_else(|| Error::Program("restic stats does not say a size".into()))?;
        match stats.is_of_nothing() {
            true => Err(Error::NoSnapshot(id.clone())),
            false => Ok(stats),
        }
    }

    async fn restore(
        &self,
        download: &Download,
        progress: &Progress,
        cancel: &CancellationToken,
    ) -> Result<Downloaded> {
        let stats = self.stats(download, cancel).await?;
        progress.expect(stats.total_size);
        let growth = Growth::begin(download, stats.total_size, cancel).await?;
        let mut args = vec![
            "restore".into(),
            download.snapshot.clone(),
            "--target=.".into(),
        ];
        args.extend(download.sparse.then(|| "--sparse".into()));
        args.extend(download.delete_extra.then(|| "--delete".into()));
        let mut child = self.start(&args, &download.target).await?;
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Error::Cancelled),
            ended = child.end() => ended,
            never = growth.measure(self.interval, progress) => match never {},
        };
        let ended = ended.map_err(|e| self.broken(&e))?;
        let (problems, gone) = ended.complaints.problems(&download.target);
        let problems: Vec<Problem> = problems.into_iter().chain(gone).collect();
        match ended.code {
            Some(0) => progress.finish(stats.total_size),
            // It has gone on to the end, and says what it could not do.
            Some(1) if !problems.is_empty() && ended.complaints.all().contains("There were ") => {}
            _ => return Err(self.fault("restore", &ended, Some(&download.snapshot))),
        }
        Ok(Downloaded {
            // Folders among them: restic counts both.
            files: stats.total_file_count,
            bytes: stats.total_size,
            problems,
            remarks: Vec::new(),
        })
    }
}

#[async_trait]
impl Engine for Restic {
    async fn upload(
        &self,
        upload: &Upload,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Uploaded> {
        refuse_devices(upload.mode)?;
        let parent = upload.parent.as_deref();
        let result = self
            .patiently(cancel, || self.backup(upload, parent, progress, cancel))
            .await;
        match (result, parent) {
            // The parent is there to save time; it may have been deleted with its backup.
            (Err(Error::NoSnapshot(_)), Some(_)) => {
                self.patiently(cancel, || self.backup(upload, None, progress, cancel))
                    .await
            }
            (result, _) => result,
        }
    }

    /// How many files are written at the same time is restic's own affair.
    async fn download(
        &self,
        download: &Download,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Downloaded> {
        refuse_devices(download.mode)?;
        self.patiently(cancel, || self.restore(download, progress, cancel))
            .await
    }
}

fn refuse_devices(mode: Mode) -> Result<()> {
    match mode {
        Mode::Folder => Ok(()),
        Mode::Device => Err(Error::Program(
            "block volumes need the built-in engine: the restic program is used for files only"
                .into(),
        )),
    }
}

/// At the end of a whole backup all is done; of another one, what restic says it has done.
fn finish(progress: &Progress, summary: &Summary, is_whole: bool) {
    let done = summary.total_bytes_processed;
    match is_whole {
        true => progress.finish(done),
        false => progress.set(progress.get().0.max(done), done),
    }
}

/// What is missing in a snapshot that restic calls incomplete; something is, though it may not
/// have said what.
fn incomplete(is_whole: bool, unreadable: Vec<Problem>, remarks: &[Problem]) -> Vec<Problem> {
    if is_whole || !unreadable.is_empty() || !remarks.is_empty() {
        return unreadable;
    }
    vec![Problem {
        path: ".".into(),
        reason: "restic could not read all files, and does not say which".into(),
    }]
}

/// Looks at the last line of a backup's output from time to time.
async fn sample(output: &Output, interval: Duration, progress: &Progress) -> Infallible {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        if let Some((total, done)) = messages::status(&output.last()) {
            progress.set(total, done);
        }
    }
}

fn ticks(interval: Duration) -> tokio::time::Interval {
    let interval = interval.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What a folder has grown by.
struct Growth {
    folder: PathBuf,
    sparse: bool,
    before: u64,
    total: u64,
    stop: CancellationToken,
}

impl Growth {
    async fn begin(download: &Download, total: u64, cancel: &CancellationToken) -> Result<Self> {
        let mut growth = Self {
            folder: download.target.clone(),
            sparse: download.sparse,
            before: 0,
            total,
            stop: cancel.child_token(),
        };
        let size = tokio::select! {
            () = cancel.cancelled() => None,
            size = growth.size() => size,
        };
        growth.before = size.ok_or(Error::Cancelled)?;
        Ok(growth)
    }

    async fn size(&self) -> Option<u64> {
        let (folder, sparse, stop) = (self.folder.clone(), self.sparse, self.stop.clone());
        spawn_blocking(move || size::of(&folder, sparse, &stop))
            .await
            .ok()
            .flatten()
    }

    /// Looks from time to time. What is overwritten does not count until the end.
    async fn measure(&self, interval: Duration, progress: &Progress) -> Infallible {
        let mut ticks = ticks(interval);
        loop {
            ticks.tick().await;
            if let Some(size) = self.size().await {
                let done = size.saturating_sub(self.before).min(self.total);
                progress.set(self.total, done.max(progress.get().1));
            }
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
