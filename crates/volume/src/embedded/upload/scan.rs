//! How much there is, found out while the copy is under way.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::Scope,
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use super::{Run, stat};

/// A scan that is under way.
pub(super) struct Scan(Arc<AtomicBool>);

/// Begins to add up the sizes of all files.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: &'scope Arc<Run>,
    root: Arc<OwnedFd>,
) -> Scan {
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    scope.spawn(move || {
        let mut total = 0;
        // Paths from the top: whatever changes its place meanwhile is only an estimate anyway.
        let mut folders = vec![Vec::new()];
        while let Some(path) = folders.pop() {
            if is_done.load(Ordering::Relaxed) || run.stop.is_stopped() {
                return;
            }
            scan(&root, &path, &mut folders, &mut total);
            run.progress.expect(total);
        }
    });
    Scan(done)
}

impl Scan {
    /// Ends it: the copy is done and knows better.
    pub(super) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn scan(root: &OwnedFd, path: &[u8], folders: &mut Vec<Vec<u8>>, total: &mut u64) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let here: &[u8] = if path.is_empty() { b"." } else { path };
    let Ok(folder) = openat(root, here, flags, Mode::empty()) else {
        return;
    };
    let Ok(entries) = Dir::read_from(&folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        match entry.file_type() {
            FileType::Directory if !matches!(name.to_bytes(), b"." | b"..") => {
                let mut below = path.to_vec();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name.to_bytes());
                folders.push(below);
            }
            FileType::RegularFile => {
                if let Ok(found) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    *total += stat::size(&found);
                }
            }
            _ => {}
        }
    }
}
