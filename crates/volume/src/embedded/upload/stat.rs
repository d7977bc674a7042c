//! What is known of a file without reading it.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use jiff::Timestamp;
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

use super::super::tree::{Attribute, Kind, Node, Time, mode};

/// What an entry is.
pub(super) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::Dev,
        FileType::CharacterDevice => Kind::Chardev,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        _ => Kind::Irregular,
    }
}

/// An entry without its contents and attributes.
pub(super) fn node(name: &[u8], stat: &Stat) -> Node {
    let kind = kind(stat);
    let special = match kind {
        Kind::Dir => mode::DIR,
        Kind::Symlink => mode::SYMLINK,
        Kind::Dev => mode::DEVICE,
        Kind::Chardev => mode::DEVICE | mode::CHARDEV,
        Kind::Fifo => mode::FIFO,
        _ => 0,
    };
    let has_links = !matches!(kind, Kind::Dir | Kind::Fifo | Kind::Socket);
    #[allow(clippy::useless_conversion, reason = "narrower on other machines")]
    let links = if has_links { stat.st_nlink.into() } else { 0 };
    let mtime = time(stat.st_mtime, stat.st_mtime_nsec);
    let is_device = matches!(kind, Kind::Dev | Kind::Chardev);
    Node {
        name: name.to_vec(),
        kind,
        mode: mode::from_unix(stat.st_mode) | special,
        mtime,
        // The last time somebody read it is of no interest, and would change every tree.
        atime: mtime,
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        uid: stat.st_uid,
        gid: stat.st_gid,
        user: "".into(),
        group: "".into(),
        inode: stat.st_ino,
        device_id: if kind == Kind::File && links > 1 {
            stat.st_dev
        } else {
            0
        },
        size: if kind == Kind::File { size(stat) } else { 0 },
        links,
        target: Vec::new(),
        attributes: Vec::new(),
        device: if is_device { stat.st_rdev } else { 0 },
        content: Vec::new(),
        subtree: None,
    }
}

/// The size of a file.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// Whether a file has holes.
pub(super) fn is_sparse(stat: &Stat) -> bool {
    u64::try_from(stat.st_blocks).unwrap_or_default() * 512 < size(stat)
}

/// Whether a file is as it was. Any change of its contents, owner or attributes changes its ctime; but
/// one that is not settled may have been read before its last change.
pub(super) fn is_same(old: &Node, stat: &Stat, settled: Timestamp) -> bool {
    moment(old.ctime) < settled
        && old.kind == kind(stat)
        && old.inode == stat.st_ino
        && old.ctime == time(stat.st_ctime, stat.st_ctime_nsec)
        && old.mtime == time(stat.st_mtime, stat.st_mtime_nsec)
        && (old.kind != Kind::File || old.size == size(stat))
}

/// A file's time; one that nobody can mean is never settled.
fn moment(time: Time) -> Timestamp {
    let nanos = i32::try_from(time.nanos).unwrap_or_default();
    Timestamp::new(time.seconds, nanos).unwrap_or(Timestamp::MAX)
}

fn time<N: TryInto<u32>>(seconds: i64, nanos: N) -> Time {
    Time {
        seconds,
        nanos: nanos.try_into().unwrap_or_default(),
    }
}

/// The extended attributes of an open file.
pub(super) fn attributes(fd: BorrowedFd<'_>) -> Result<Vec<Attribute>, Errno> {
    read_attributes(
        |list| rustix::fs::flistxattr(fd, list),
        |name, value| rustix::fs::fgetxattr(fd, name, value),
    )
}

/// The extended attributes of an entry that is not opened: a link, a device.
pub(super) fn attributes_at(folder: impl AsFd, name: &CStr) -> Result<Vec<Attribute>, Errno> {
    let mut path = format!("/proc/self/fd/{}/", folder.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    read_attributes(
        |list| rustix::fs::llistxattr(&*path, list),
        |name, value| rustix::fs::lgetxattr(&*path, name, value),
    )
}

fn read_attributes(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Attribute>, Errno> {
    let mut names = [0; 256];
    let mut more = Vec::new();
    let names: &[u8] = match list(&mut names) {
        Ok(length) => &names[..length],
        Err(Errno::RANGE) => {
            more.resize(64 << 10, 0);
            let length = list(&mut more)?;
            &more[..length]
        }
        // A file system without attributes.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut attributes = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 << 10];
        match get(name, &mut value) {
            Ok(length) => value.truncate(length),
            // Gone meanwhile, or listed and not for reading.
            Err(Errno::NODATA | Errno::NOTSUP) => continue,
            Err(error) => return Err(error),
        }
        attributes.push(Attribute {
            name: String::from_utf8_lossy(name).into(),
            value: value.into(),
        });
    }
    attributes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_settled_is_not_the_same() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = rustix::fs::fstat(file.as_file()).unwrap();
        let old = node(b"file", &found);
        let later = |seconds: i64| {
            let seconds = jiff::SignedDuration::from_secs(seconds);
            moment(old.ctime).checked_add(seconds).unwrap()
        };
        assert!(is_same(&old, &found, later(1)));
        assert!(!is_same(&old, &found, later(0)));
        assert!(!is_same(&old, &found, later(-1)));
    }
}
