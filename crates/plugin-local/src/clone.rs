//! Clones of folders: every file shares its blocks with the original where the file system can do
//! that, and is copied where it cannot. Never is it the same file under a second name, which would
//! change with the original.
//!
//! A volume may be in use, by somebody who means no good: what was a folder when it was looked at
//! and is a link when it is opened ends the clone.

mod attributes;
mod contents;

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    vec,
};

use bowline_volume::Progress;
use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmodat, chownat,
        fchmod, fchown, fstat, futimens, linkat, mkdirat, mknodat, openat, readlinkat, statat,
        symlinkat, utimensat,
    },
    io::Errno,
};

use self::contents::Contents;
use crate::{
    Error, Result,
    host::{FOLDER, PRIVATE, kind, list, open_below},
};

/// What a clone came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cloned {
    /// Files; one with several names counts for each.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// How many of these were copied.
    pub(crate) copied: u64,
}

/// A folder that is being cloned.
struct Level {
    from: OwnedFd,
    to: OwnedFd,
    found: Stat,
    /// In the volume.
    path: Vec<u8>,
    names: vec::IntoIter<CString>,
}

struct Cloner<'a> {
    /// The clone.
    root: OwnedFd,
    /// The name of folders that are left out: those in which clones are.
    skip: Option<&'a CStr>,
    contents: Contents<'a>,
    /// Files with several names that were cloned already: where.
    linked: HashMap<(u64, u64), Vec<u8>>,
    cloned: Cloned,
    is_root: bool,
}

/// Clones all that is in a folder into a new one, which becomes like it.
pub(crate) fn tree(
    from: &OwnedFd,
    to: OwnedFd,
    skip: Option<&CStr>,
    progress: &Progress,
) -> Result<Cloned> {
    let failed = |errno| at(b".", errno);
    let from = openat(from, c".", FOLDER, Mode::empty()).map_err(failed)?;
    let root = openat(&to, c".", FOLDER, Mode::empty()).map_err(failed)?;
    let top = level(from, to, Vec::new()).map_err(failed)?;
    let mut cloner = Cloner {
        root,
        skip,
        contents: Contents::new(progress),
        linked: HashMap::new(),
        cloned: Cloned::default(),
        is_root: rustix::process::geteuid().is_root(),
    };
    // Deep folders cost descriptors here, not stack.
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.names.next() {
            let path = join(&level.path, &name);
            let below = cloner.entry(level, &name, &path);
            levels.extend(below.map_err(|errno| at(&path, errno))?);
        } else {
            let settled = cloner.settle(level.from.as_fd(), level.to.as_fd(), &level.found);
            settled.map_err(|errno| at(&level.path, errno))?;
            levels.pop();
        }
    }
    Ok(cloner.cloned)
}

fn level(from: OwnedFd, to: OwnedFd, path: Vec<u8>) -> Result<Level, Errno> {
    let found = fstat(&from)?;
    let names = list(&from)?.into_iter();
    Ok(Level {
        from,
        to,
        found,
        path,
        names,
    })
}

impl Cloner<'_> {
    /// One entry; the level below if it is a folder. What is gone when its turn comes is left out.
    fn entry(&mut self, level: &Level, name: &CStr, path: &[u8]) -> Result<Option<Level>, Errno> {
        let found = match statat(&level.from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        match kind(found.st_mode) {
            FileType::Directory if self.skip == Some(name) => Ok(None),
            FileType::Directory => self.folder(level, name, path),
            FileType::RegularFile => self.file(level, name, path).map(|()| None),
            // What a socket is for does not outlive its process.
            FileType::Socket | FileType::Unknown => Ok(None),
            _ => self.special(level, name, &found).map(|()| None),
        }
    }

    fn folder(&self, above: &Level, name: &CStr, path: &[u8]) -> Result<Option<Level>, Errno> {
        let from = match openat(&above.from, name, FOLDER, Mode::empty()) {
            Ok(from) => from,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        mkdirat(&above.to, name, PRIVATE)?;
        let to = openat(&above.to, name, FOLDER, Mode::empty())?;
        level(from, to, path.to_vec()).map(Some)
    }

    fn file(&mut self, level: &Level, name: &CStr, path: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = match openat(&level.from, name, flags, Mode::empty()) {
            Ok(from) => from,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let found = fstat(&from)?;
        if kind(found.st_mode) != FileType::RegularFile {
            return Err(Errno::AGAIN);
        }
        let size = u64::try_from(found.st_size).unwrap_or_default();
        let place = (found.st_dev, found.st_ino);
        if found.st_nlink > 1 {
            if let Some(other) = self.linked.get(&place) {
                let (folder, other) = split(other);
                let folder = open_below(&self.root, folder)?;
                linkat(&folder, other, &level.to, name, AtFlags::empty())?;
                self.contents.progress.more(size);
                self.cloned.files += 1;
                self.cloned.bytes += size;
                return Ok(());
            }
            self.linked.insert(place, path.to_vec());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = openat(&level.to, name, flags, Mode::from_raw_mode(0o600))?;
        let (size, copied) = self.contents.clone(&from, &to, found.st_dev, size)?;
        self.settle(from.as_fd(), to.as_fd(), &found)?;
        self.cloned.files += 1;
        self.cloned.bytes += size;
        self.cloned.copied += copied;
        Ok(())
    }

    /// Owner, attributes, mode and times of what is open.
    fn settle(
        &self,
        from: rustix::fd::BorrowedFd<'_>,
        to: rustix::fd::BorrowedFd<'_>,
        found: &Stat,
    ) -> Result<(), Errno> {
        let (uid, gid) = owner(found);
        self.owned(fchown(to, Some(uid), Some(gid)))?;
        attributes::copy(from, to)?;
        // After the owner, since that takes special bits away, and after attributes, since those
        // may need the right to write.
        fchmod(to, permissions(found))?;
        futimens(to, &times(found))
    }

    /// Links, pipes, devices.
    fn special(&self, level: &Level, name: &CStr, found: &Stat) -> Result<(), Errno> {
        let kind = kind(found.st_mode);
        if kind == FileType::Symlink {
            let target = match readlinkat(&level.from, name, Vec::new()) {
                Ok(target) => target,
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            symlinkat(&*target, &level.to, name)?;
        } else {
            let mode = Mode::from_raw_mode(0o600);
            mknodat(&level.to, name, kind, mode, found.st_rdev)?;
        }
        let (uid, gid) = owner(found);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        self.owned(chownat(&level.to, name, Some(uid), Some(gid), flags))?;
        attributes::copy_at(level.from.as_raw_fd(), level.to.as_raw_fd(), name)?;
        if kind != FileType::Symlink {
            chmodat(&level.to, name, permissions(found), AtFlags::empty())?;
        }
        utimensat(&level.to, name, &times(found), flags)
    }

    /// Only root may give files away.
    fn owned(&self, done: Result<(), Errno>) -> Result<(), Errno> {
        match done {
            Err(Errno::PERM) if !self.is_root => Ok(()),
            done => done,
        }
    }
}

fn owner(found: &Stat) -> (Uid, Gid) {
    (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid))
}

fn permissions(found: &Stat) -> Mode {
    Mode::from_raw_mode(found.st_mode & 0o7777)
}

fn times(found: &Stat) -> Timestamps {
    let spec = |seconds: i64, nanos: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanos).unwrap_or_default(),
    };
    Timestamps {
        last_access: spec(found.st_atime, found.st_atime_nsec),
        last_modification: spec(found.st_mtime, found.st_mtime_nsec),
    }
}

fn join(folder: &[u8], name: &CStr) -> Vec<u8> {
    let mut path = folder.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    path
}

/// The folder of a path, and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn at(path: &[u8], errno: Errno) -> Error {
    let path = String::from_utf8_lossy(if path.is_empty() { b"." } else { path });
    match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::AGAIN => Error::refused(format!(
            "clone {path} of the volume: it became something else meanwhile"
        )),
        errno => Error::file("clone file of the volume:", path)(errno),
    }
}

#[cfg(test)]
mod tests;
