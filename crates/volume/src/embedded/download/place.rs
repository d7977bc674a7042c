//! Putting things where they belong: files, owners, modes, attributes, times. Links are never
//! followed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, RawMode, ResolveFlags, Timespec, Timestamps,
        Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, fstat, futimens, lsetxattr,
        mkdirat, mknodat, openat, openat2, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

use super::super::tree::{Kind, Node, Time, mode};

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Makes a folder, or takes one that is there.
pub(super) fn folder(above: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    match mkdirat(above, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    match openat(above, name, FOLDER, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => {
            unlinkat(above, name, AtFlags::empty())?;
            mkdirat(above, name, Mode::from_raw_mode(0o700))?;
            openat(above, name, FOLDER, Mode::empty())
        }
        opened => opened,
    }
}

/// A folder below the root, by its path.
pub(super) fn open_folder(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    openat2(root, path, FOLDER, Mode::empty(), INSIDE)
}

/// Makes a new file below the root, in place of what has its name.
pub(super) fn create(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match openat2(root, path, flags, mode, INSIDE) {
        Err(Errno::EXIST) => {
            let (above, name) = split(path);
            clear(&open_folder(root, above)?, name)?;
            openat2(root, path, flags, mode, INSIDE)
        }
        made => made,
    }
}

/// A file that was made, to write more of it.
pub(super) fn open(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(
        root,
        path,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
        INSIDE,
    )
}

/// The folder of a path, and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Removes a file, a link or an empty folder. One with something in it is left: that is more than
/// was asked for.
pub(super) fn clear(above: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(above, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(above, name, AtFlags::REMOVEDIR),
        Err(Errno::NOENT) => Ok(()),
        cleared => cleared,
    }
}

/// Removes whatever it is, with all that is in it.
pub(super) fn remove(above: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let found = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return unlinkat(above, name, AtFlags::empty());
    }
    let fd = openat(above, name, FOLDER, Mode::empty())?;
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove(&fd, entry.file_name().to_bytes())?;
        }
    }
    unlinkat(above, name, AtFlags::REMOVEDIR)
}

/// Makes a link, a pipe or a device.
pub(super) fn special(above: &OwnedFd, node: &Node) -> Result<(), Errno> {
    let make = || match node.kind {
        Kind::Symlink => symlinkat(&*node.target, above, &*node.name),
        kind => {
            let kind = match kind {
                Kind::Dev => FileType::BlockDevice,
                Kind::Chardev => FileType::CharacterDevice,
                _ => FileType::Fifo,
            };
            let mode = Mode::from_raw_mode(0o600);
            mknodat(above, &*node.name, kind, mode, node.device)
        }
    };
    match make() {
        Err(Errno::EXIST) => {
            clear(above, &node.name)?;
            make()
        }
        made => made,
    }
}

/// What could not be set: what should have been, and what no such volume can hold.
#[derive(Debug, Default)]
pub(super) struct Unset {
    pub(super) problem: Option<String>,
    pub(super) remark: Option<String>,
}

impl Unset {
    /// Notes the first of each; the rest is done all the same.
    fn note(&mut self, what: &str, done: Result<(), Errno>) {
        match done {
            Ok(()) => {}
            Err(error @ Errno::NOTSUP) => {
                self.remark
                    .get_or_insert_with(|| format!("{what}: {error}"));
            }
            Err(error) => {
                self.problem
                    .get_or_insert_with(|| format!("{what}: {error}"));
            }
        }
    }

    fn owner(&mut self, done: Result<(), Errno>, is_root: bool) {
        // Only root may give files away.
        if is_root || done != Err(Errno::PERM) {
            self.note("its owner cannot be set", done);
        }
    }

    fn attribute(&mut self, name: &str, done: Result<(), Errno>) {
        self.note(&format!("its attribute {name} cannot be set"), done);
    }
}

/// What is said of a file besides its contents.
pub(super) fn settle(fd: BorrowedFd<'_>, node: &Node, is_root: bool) -> Unset {
    let mut unset = Unset::default();
    let owner = (Uid::from_raw(node.uid), Gid::from_raw(node.gid));
    unset.owner(fchown(fd, Some(owner.0), Some(owner.1)), is_root);
    for attribute in &node.attributes {
        let (name, value) = (&*attribute.name, &attribute.value);
        unset.attribute(name, fsetxattr(fd, name, value, XattrFlags::empty()));
    }
    // After the owner, since that takes special bits away, and after attributes, since those may
    // need the right to write.
    unset.note("its mode cannot be set", fchmod(fd, permissions(node)));
    unset.note("its times cannot be set", futimens(fd, &times(node)));
    unset
}

/// The same for what is not opened: a link, a device.
pub(super) fn settle_special(above: &OwnedFd, node: &Node, is_root: bool) -> Unset {
    let mut unset = Unset::default();
    let (name, flags) = (&*node.name, AtFlags::SYMLINK_NOFOLLOW);
    let owner = (Uid::from_raw(node.uid), Gid::from_raw(node.gid));
    let done = chownat(above, name, Some(owner.0), Some(owner.1), flags);
    unset.owner(done, is_root);
    let mut path = format!("/proc/self/fd/{}/", above.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    for attribute in &node.attributes {
        let value = &attribute.value;
        let done = lsetxattr(&*path, &*attribute.name, value, XattrFlags::empty());
        unset.attribute(&attribute.name, done);
    }
    if node.kind != Kind::Symlink {
        let done = chmodat(above, name, permissions(node), AtFlags::empty());
        unset.note("its mode cannot be set", done);
    }
    let done = utimensat(above, name, &times(node), flags);
    unset.note("its times cannot be set", done);
    unset
}

/// A second name for a file that was written.
pub(super) fn link(root: &OwnedFd, path: &[u8], to: &[u8]) -> Result<(), Errno> {
    let ((from_folder, from), (to_folder, to)) = (split(path), split(to));
    let (from_folder, to_folder) = (
        open_folder(root, from_folder)?,
        open_folder(root, to_folder)?,
    );
    let link = || rustix::fs::linkat(&from_folder, from, &to_folder, to, AtFlags::empty());
    match link() {
        Err(Errno::EXIST) => {
            clear(&to_folder, to)?;
            link()
        }
        linked => linked,
    }
}

/// Whether a file has the size it should have.
pub(super) fn has_size(fd: BorrowedFd<'_>, size: u64) -> Result<bool, Errno> {
    Ok(u64::try_from(fstat(fd)?.st_size) == Ok(size))
}

fn permissions(node: &Node) -> Mode {
    Mode::from_raw_mode(mode::to_unix(node.mode) as RawMode)
}

fn times(node: &Node) -> Timestamps {
    let spec = |time: Time| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanos.into(),
    };
    Timestamps {
        last_access: spec(node.atime),
        last_modification: spec(node.mtime),
    }
}
