//! Copying a snapshot into a folder.
//!
//! One thread walks the snapshot's trees, makes folders and notes which pieces each file needs. These
//! are sorted by pack, so that a pack is read in large parts; several threads fetch parts, decrypt
//! them and write files. Nothing outside the folder is touched, whatever links are in it.

mod fetch;
mod place;
mod plan;

use std::{os::fd::OwnedFd, sync::Arc};

use crossbeam_channel::bounded;
use rustix::fs::{Mode, OFlags};
use tokio_util::sync::CancellationToken;

use self::{fetch::Fetcher, plan::Planner};
use super::{
    Repository, blobs::Trees, id::Id, index::Index, lock::Lock, problems::Problems,
    snapshot::Snapshot, stop::Stop, tree::Kind,
};
use crate::{Download, Downloaded, Error, Progress, Result};

/// A download while it runs; all threads share it.
struct Run {
    repository: Repository,
    index: Arc<Index>,
    root: OwnedFd,
    is_sparse: bool,
    delete_extra: bool,
    /// Whether owners can be set at all.
    is_root: bool,
    progress: Arc<Progress>,
    stop: Arc<Stop>,
    problems: Problems,
    remarks: Problems,
    /// Where threads wait for the bucket.
    handle: tokio::runtime::Handle,
}

/// Copies a snapshot.
pub(super) async fn run(
    repository: &Repository,
    download: &Download,
    progress: &Arc<Progress>,
    cancel: &CancellationToken,
) -> Result<Downloaded> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&download.target, flags, Mode::empty());
    let root = root.map_err(|error| Error::File {
        action: "open",
        path: download.target.display().to_string(),
        source: error.into(),
    })?;
    Lock::hold(repository, cancel, async |_, stop| {
        locked(repository, download, root, progress, stop).await
    })
    .await
}

async fn locked(
    repository: &Repository,
    download: &Download,
    root: OwnedFd,
    progress: &Arc<Progress>,
    stop: &Arc<Stop>,
) -> Result<Downloaded> {
    let files = &repository.files;
    let (index, found) = tokio::join!(
        Index::read(files),
        Snapshot::find(files, &download.snapshot)
    );
    let (index, (_, snapshot)) = (Arc::new(index?), found?);
    let trees = Trees::new(files, &index);
    let total = match &snapshot.summary {
        Some(summary) => summary.total_bytes_processed,
        None => size(&trees, snapshot.tree).await?,
    };
    progress.expect(total);
    let run = Arc::new(Run {
        repository: repository.clone(),
        index: Arc::clone(&index),
        root,
        is_sparse: download.sparse,
        delete_extra: download.delete_extra,
        is_root: rustix::process::geteuid().is_root(),
        progress: Arc::clone(progress),
        stop: Arc::clone(stop),
        problems: Problems::default(),
        remarks: Problems::default(),
        handle: tokio::runtime::Handle::current(),
    });
    let threads = download.parallel.unwrap_or(repository.budget.threads);
    let copying = {
        let run = Arc::clone(&run);
        tokio::task::spawn_blocking(move || copy(&run, &trees, snapshot.tree, threads))
    };
    let (written, bytes) = copying.await??;
    let problems = run.problems.take();
    if problems.is_empty() {
        progress.finish(bytes);
    }
    Ok(Downloaded {
        files: written,
        bytes,
        problems,
        remarks: run.remarks.take(),
    })
}

/// What all files of a snapshot have together, when it does not say so itself.
async fn size(trees: &Trees, root: Id) -> Result<u64> {
    let mut total = 0;
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for node in trees.read(&folder).await? {
            if node.kind == Kind::File {
                total += node.size;
            }
            folders.extend(node.subtree);
        }
    }
    Ok(total)
}

/// Files and bytes that were written.
fn copy(run: &Arc<Run>, trees: &Trees, tree: Id, threads: usize) -> Result<(u64, u64)> {
    // Threads wait for the bucket half of their time, or more.
    let most = (run.repository.budget.memory / (3 * plan::PART)).max(2);
    let threads = (threads.max(1) * 2).min(most);
    let mut planner = Planner::new(run, trees);
    std::thread::scope(|scope| {
        let (parts, waiting) = bounded(2);
        for _ in 0..threads {
            let waiting = waiting.clone();
            scope.spawn(move || {
                let worked = Fetcher::new(run).and_then(|fetcher| fetcher.work(&waiting));
                if let Err(error) = worked {
                    run.stop.fail(error);
                }
            });
        }
        drop(waiting);
        if let Err(error) = planner.walk(tree, &parts) {
            run.stop.fail(error);
        }
    });
    run.stop.check()?;
    planner.finish();
    run.stop.check()?;
    Ok((planner.files, planner.bytes))
}
