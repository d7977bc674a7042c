//! Copying a folder or a block device into a repository.
//!
//! One thread walks the folder and compares with the snapshot before; files that differ go to
//! threads that read, cut and pack them. A folder's tree is written when all its entries are known,
//! by whoever brought the last one. A device is a folder with one file, which is always read.

mod device;
mod file;
mod folder;
mod holes;
mod scan;
mod stat;
mod walk;

use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::{SignedDuration, Timestamp};
use rustix::{
    fs::{OFlags, Stat},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use self::{file::Pool, folder::Root, walk::Walker};
use super::{
    Repository,
    blobs::Trees,
    device::{Access, Device},
    id::Id,
    index::Index,
    lock::Lock,
    problems::Problems,
    save::Saver,
    snapshot::{Snapshot, Summary},
    stop::Stop,
};
use crate::{Error, Mode, Progress, Result, Upload, Uploaded};

/// What snapshots say of who made them; Velero's do the same.
const HOST: &str = "velero";

/// How long a file that is mapped into memory may be changed without its times telling: until its pages
/// are written out, which the kernel does after half a minute.
const MAPPED: SignedDuration = SignedDuration::from_secs(60);

/// An upload while it runs; all threads share it.
struct Run {
    repository: Repository,
    saver: Saver,
    index: Arc<Index>,
    progress: Arc<Progress>,
    stop: Arc<Stop>,
    counts: Counts,
    /// What has changed since then is not taken from the parent.
    settled: Timestamp,
    unreadable: Problems,
    remarks: Problems,
}

#[derive(Default)]
struct Counts {
    files_new: AtomicU64,
    files_changed: AtomicU64,
    files_same: AtomicU64,
    dirs_new: AtomicU64,
    dirs_changed: AtomicU64,
    dirs_same: AtomicU64,
    bytes: AtomicU64,
}

/// What is copied.
enum Source {
    Folder(OwnedFd),
    Device(Device),
}

/// Copies a volume.
pub(super) async fn run(
    repository: &Repository,
    upload: &Upload,
    progress: &Arc<Progress>,
    cancel: &CancellationToken,
) -> Result<Uploaded> {
    let source = open(upload)?;
    Lock::hold(repository, cancel, async |lock, stop| {
        locked(repository, upload, source, progress, stop, lock).await
    })
    .await
}

async fn locked(
    repository: &Repository,
    upload: &Upload,
    source: Source,
    progress: &Arc<Progress>,
    stop: &Arc<Stop>,
    lock: &mut Lock,
) -> Result<Uploaded> {
    let began = Timestamp::now();
    let files = &repository.files;
    // The index is read under the lock: what it knows is not removed meanwhile.
    let (index, parent) = tokio::join!(Index::read(files), parent(repository, upload));
    let (index, parent) = (Arc::new(index?), parent?);
    let packs = (repository.budget.memory / (24 << 20)).clamp(1, 4);
    let run = Arc::new(Run {
        repository: repository.clone(),
        saver: Saver::new(files, &index, stop, packs, progress),
        index: Arc::clone(&index),
        progress: Arc::clone(progress),
        stop: Arc::clone(stop),
        counts: Counts::default(),
        settled: settled(upload, parent.as_ref().map(|(_, parent)| parent)),
        unreadable: Problems::default(),
        remarks: Problems::default(),
    });
    let trees = Trees::new(files, &index);
    let threads = upload.parallel.unwrap_or(repository.budget.threads).max(1);
    let old = parent.as_ref().map(|(_, parent)| parent.tree);
    let path = upload.source.clone();
    let copying = {
        let run = Arc::clone(&run);
        tokio::task::spawn_blocking(move || match source {
            Source::Folder(source) => copy(&run, source, &path, &trees, old, threads),
            Source::Device(source) => device::copy(&run, source, &path, old, threads),
        })
    };
    let tree = copying.await??;
    lock.confirm().await?;
    finish(&run, upload, parent.map(|(id, _)| id), tree, began).await
}

/// Whether a folder is not what it was when its files were looked for: removed or unmounted, its
/// files were not found for that reason.
fn is_elsewhere(source: &Path, found: &Stat) -> bool {
    let place = |stat: &Stat| (stat.st_dev, stat.st_ino);
    rustix::fs::lstat(source).map_or(true, |now| place(&now) != place(found))
}

fn open(upload: &Upload) -> Result<Source> {
    let path = &upload.source;
    if upload.mode == Mode::Device {
        let device = Device::open(path, Access::Read)?;
        return match device.size {
            0 => Err(Error::Empty(path.display().to_string())),
            _ => Ok(Source::Device(device)),
        };
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    opened.map(Source::Folder).map_err(|e| unreadable(path, e))
}

fn unreadable(path: &Path, error: Errno) -> Error {
    Error::File {
        action: "open",
        path: path.display().to_string(),
        source: error.into(),
    }
}

/// Since when changes are not believed to be in the parent.
fn settled(upload: &Upload, parent: Option<&Snapshot>) -> Timestamp {
    let begun = parent.and_then(|parent| parent.time.parse::<Timestamp>().ok());
    let usual = begun.and_then(|begun| begun.checked_sub(MAPPED).ok());
    let usual = usual.unwrap_or(Timestamp::MIN);
    upload.settled.map_or(usual, |settled| settled.min(usual))
}

/// The snapshot before; one that is not there any more is no loss but of time.
async fn parent(repository: &Repository, upload: &Upload) -> Result<Option<(Id, Snapshot)>> {
    let Some(name) = upload.parent.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    match Snapshot::find(&repository.files, name).await {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoSnapshot(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Walks and copies; the root's tree, or none when there is nothing in the folder.
fn copy(
    run: &Arc<Run>,
    source: OwnedFd,
    path: &Path,
    trees: &Trees,
    old: Option<Id>,
    threads: usize,
) -> Result<Option<Id>> {
    let found = rustix::fs::fstat(&source).map_err(|e| unreadable(path, e))?;
    let source = Arc::new(source);
    let root = Root::default();
    std::thread::scope(|scope| {
        let scanning = scan::start(scope, run, Arc::clone(&source));
        // Left when all files are packed: until then, the total is of interest.
        std::thread::scope(|scope| {
            let pool = Pool::start(scope, run, threads);
            let walked = Walker::new(run, &pool, trees, &root).walk(&source, old);
            if let Err(error) = walked {
                run.stop.fail(error);
            }
            pool.finish();
        });
        scanning.end();
    });
    run.stop.check()?;
    let tree = root.take();
    if tree.is_some() {
        run.saver.finish()?;
    }
    if is_elsewhere(path, &found) {
        return Err(Error::Disappeared);
    }
    Ok(tree)
}

/// Writes the snapshot, which makes it all exist.
async fn finish(
    run: &Run,
    upload: &Upload,
    parent: Option<Id>,
    tree: Option<Id>,
    began: Timestamp,
) -> Result<Uploaded> {
    run.stop.check()?;
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (counts, new) = (&run.counts, run.saver.counts());
    let bytes = get(&counts.bytes);
    let files = get(&counts.files_new) + get(&counts.files_changed) + get(&counts.files_same);
    let mut uploaded = Uploaded {
        snapshot: None,
        files,
        bytes,
        added: get(&new.raw),
        unreadable: run.unreadable.take(),
        remarks: run.remarks.take(),
    };
    run.progress.finish(bytes);
    let Some(tree) = tree else {
        return Ok(uploaded);
    };
    let snapshot = Snapshot {
        time: began.to_string(),
        parent,
        tree,
        paths: vec![upload.path.clone()],
        hostname: HOST.to_owned(),
        username: "root".to_owned(),
        tags: upload.tags.clone(),
        program_version: format!("bowline {}", env!("CARGO_PKG_VERSION")),
        summary: Some(Summary {
            backup_start: began.to_string(),
            backup_end: Timestamp::now().to_string(),
            files_new: get(&counts.files_new),
            files_changed: get(&counts.files_changed),
            files_unmodified: get(&counts.files_same),
            dirs_new: get(&counts.dirs_new),
            dirs_changed: get(&counts.dirs_changed),
            dirs_unmodified: get(&counts.dirs_same),
            data_blobs: get(&new.data_blobs),
            tree_blobs: get(&new.tree_blobs),
            data_added: get(&new.raw),
            data_added_packed: get(&new.packed),
            total_files_processed: files,
            total_bytes_processed: bytes,
        }),
    };
    let id = snapshot.write(&run.repository.files).await?;
    uploaded.snapshot = Some(id.to_string());
    Ok(uploaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_just_before_a_parent_are_not_settled() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let parent = |time: &str| Snapshot {
            time: time.to_owned(),
            parent: None,
            tree: Id([0; 32]),
            paths: Vec::new(),
            hostname: String::new(),
            username: String::new(),
            tags: Vec::new(),
            program_version: String::new(),
            summary: None,
        };
        let since = |given: Option<Timestamp>, begun: &str| {
            let upload = Upload {
                settled: given,
                ..Upload::default()
            };
            settled(&upload, Some(&parent(begun)))
        };
        assert_eq!(since(None, "1970-01-01T01:00:00+00:00"), at(3540));
        assert_eq!(since(Some(at(600)), "1970-01-01T01:00:00Z"), at(600));
        assert_eq!(since(Some(at(9_999)), "1970-01-01T01:00:00Z"), at(3540));
        let never = since(None, "nonsense");
        assert_eq!(never, Timestamp::MIN, "nothing is believed");
    }
}
