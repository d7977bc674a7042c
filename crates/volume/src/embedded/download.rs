//! Copying a snapshot into a folder or a block device.
//!
//! One thread walks the snapshot's trees, makes folders and notes which pieces each file needs. These
//! are sorted by pack, so that a pack is read in large parts; several threads fetch parts, decrypt
//! them and write files. Nothing outside the folder is touched, whatever links are in it. A device is
//! a single file that is there already.

mod disk;
mod fetch;
mod place;
mod plan;

use std::{os::fd::OwnedFd, sync::Arc};

use crossbeam_channel::{Sender, bounded};
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;

use self::{
    disk::{Disk, Wanted},
    fetch::Fetcher,
    plan::{Part, Planner},
};
use super::{
    Repository,
    blobs::Trees,
    device::{Access, Device},
    id::Id,
    index::Index,
    lock::Lock,
    problems::Problems,
    snapshot::Snapshot,
    stop::Stop,
    tree::Kind,
};
use crate::{Download, Downloaded, Error, Mode, Progress, Result};

/// A download while it runs; all threads share it.
struct Run {
    repository: Repository,
    index: Arc<Index>,
    /// The folder, or the device.
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

/// Where it goes.
enum Opened {
    Folder(OwnedFd),
    Device(Device),
}

/// Copies a snapshot.
pub(super) async fn run(
    repository: &Repository,
    download: &Download,
    progress: &Arc<Progress>,
    cancel: &CancellationToken,
) -> Result<Downloaded> {
    let target = open(download)?;
    Lock::hold(repository, cancel, async |_, stop| {
        locked(repository, download, target, progress, stop).await
    })
    .await
}

fn open(download: &Download) -> Result<Opened> {
    let path = &download.target;
    if download.mode == Mode::Device {
        return Device::open(path, Access::Write).map(Opened::Device);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    root.map(Opened::Folder).map_err(|error| Error::File {
        action: "open",
        path: path.display().to_string(),
        source: error.into(),
    })
}

async fn locked(
    repository: &Repository,
    download: &Download,
    target: Opened,
    progress: &Arc<Progress>,
    stop: &Arc<Stop>,
) -> Result<Downloaded> {
    let files = &repository.files;
    let (index, found) = tokio::join!(
        Index::read(files),
        Snapshot::find(files, &download.snapshot)
    );
    let (index, (id, snapshot)) = (Arc::new(index?), found?);
    let trees = Trees::new(files, &index);
    let (root, device) = match target {
        Opened::Folder(root) => (root, None),
        Opened::Device(device) => {
            let wanted = Wanted {
                tree: snapshot.tree,
                snapshot: id.short(),
                path: download.target.display().to_string(),
                size: device.size,
                is_file: device.is_file,
            };
            (device.fd, Some(wanted))
        }
    };
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
        tokio::task::spawn_blocking(move || match device {
            Some(wanted) => copy_image(&run, &trees, wanted, threads),
            None => copy(&run, &trees, snapshot.tree, threads),
        })
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
    let mut planner = Planner::new(run, trees);
    fetch(run, threads, |parts| planner.walk(tree, parts))?;
    planner.finish();
    run.stop.check()?;
    Ok((planner.files, planner.bytes))
}

/// The same for a device.
fn copy_image(run: &Arc<Run>, trees: &Trees, wanted: Wanted, threads: usize) -> Result<(u64, u64)> {
    let disk = Disk::prepare(run, trees, wanted)?;
    fetch(run, threads, |parts| disk.plan(run, parts))?;
    disk.finish(run)?;
    Ok((1, disk.size()))
}

/// Fetches and writes all parts that are planned.
fn fetch(
    run: &Arc<Run>,
    threads: usize,
    plan: impl FnOnce(&Sender<Part>) -> Result<()>,
) -> Result<()> {
    // Threads wait for the bucket half of their time, or more.
    let most = (run.repository.budget.memory / (3 * plan::PART)).max(2);
    let threads = (threads.max(1) * 2).min(most);
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
        if let Err(error) = plan(&parts) {
            run.stop.fail(error);
        }
    });
    run.stop.check()
}
