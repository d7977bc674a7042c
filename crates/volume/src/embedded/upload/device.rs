//! A block device: the only file of its snapshot, read as a whole.

use std::{fs::File, num::NonZero, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use rustix::fs::{Advice, fadvise};

use super::{
    super::{
        device::{Device, NAME},
        id::Id,
        save::Desk,
        tree::{Kind, Node, Time},
    },
    Run,
    file::{Job, Pool, Slot, Source},
    folder::{Above, Folder, Root},
};
use crate::Result;

/// What was read of a device is kept in memory up to this.
const KEPT: u64 = 16 << 20;

/// Copies a device; the tree with its file. The one before is only counted.
pub(super) fn copy(
    run: &Arc<Run>,
    device: Device,
    path: &Path,
    old: Option<Id>,
    threads: usize,
) -> Result<Option<Id>> {
    run.progress.expect(device.size);
    let root = Root::default();
    let count = match old {
        Some(_) => &run.counts.files_changed,
        None => &run.counts.files_new,
    };
    count.store(1, std::sync::atomic::Ordering::Relaxed);
    let mut desk = Desk::new()?;
    let folder = Folder::new(Above::Root(&root), old.map(|old| (old, 1)));
    std::thread::scope(|scope| {
        let pool = Pool::start(scope, run, threads);
        let node = node(device.size);
        pool.send(Job {
            slot: Slot {
                folder: Arc::clone(&folder),
                at: folder.expect(),
                path: path.as_os_str().as_bytes().into(),
            },
            source: Source::Device(Box::new((device, node))),
        });
        pool.finish();
    });
    run.stop.check()?;
    folder.close(run, &mut desk)?;
    drop(folder);
    run.saver.finish()?;
    Ok(root.take())
}

/// What is said of the file. Nothing of the device itself, so that a device with the same contents
/// makes the same tree.
fn node(size: u64) -> Node {
    Node {
        name: NAME.into(),
        kind: Kind::File,
        mode: 0o600,
        mtime: Time::default(),
        atime: Time::default(),
        ctime: Time::default(),
        uid: 0,
        gid: 0,
        user: "".into(),
        group: "".into(),
        inode: 0,
        device_id: 0,
        size,
        links: 1,
        target: Vec::new(),
        attributes: Vec::new(),
        device: 0,
        content: Vec::new(),
        subtree: None,
    }
}

/// What was read of a device stays in memory though nobody needs it, unless somebody says so.
#[derive(Default)]
pub(super) struct Trail {
    dropped: u64,
}

impl Trail {
    /// All before this was read.
    pub(super) fn drop_up_to(&mut self, file: &File, at: u64) {
        let Some(length) = NonZero::new(at - self.dropped) else {
            return;
        };
        if length.get() >= KEPT {
            // Whoever cannot do it has more in memory than is good.
            let _ = fadvise(file, self.dropped, Some(length), Advice::DontNeed);
            self.dropped = at;
        }
    }
}
