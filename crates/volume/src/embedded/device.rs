//! Block devices, and files that stand for one: in a snapshot, a file with all that is on it.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{FileType, Mode, OFlags, SeekFrom, fstat, open, seek, stat},
    io::Errno,
};

use crate::{Error, Result};

/// The only file in the snapshot of a device.
pub(super) const NAME: &str = "volume.img";

/// A device that was opened.
pub(super) struct Device {
    pub(super) fd: OwnedFd,
    pub(super) size: u64,
    /// Whether it is a file.
    pub(super) is_file: bool,
    /// Whether it is a file with holes.
    pub(super) is_sparse: bool,
}

/// What a device is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// To write to a device, nobody else may have it to themselves: a mounted one is refused.
    Write,
}

impl Device {
    pub(super) fn open(path: &Path, access: Access) -> Result<Self> {
        let failed = |error: Errno| Error::File {
            action: "open",
            path: path.display().to_string(),
            source: error.into(),
        };
        // Before it is opened: a pipe would wait, a tape would wind back.
        let is_file = is_file(path, stat(path).map_err(failed)?.st_mode)?;
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write if is_file => OFlags::RDWR,
            Access::Write => OFlags::RDWR | OFlags::EXCL,
        };
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&fd).map_err(failed)?;
        // Something else may have taken its name since it was looked at.
        if self::is_file(path, found.st_mode)? != is_file {
            return Err(failed(Errno::NXIO));
        }
        let size = seek(&fd, SeekFrom::End(0)).map_err(failed)?;
        seek(&fd, SeekFrom::Start(0)).map_err(failed)?;
        let blocks = u64::try_from(found.st_blocks).unwrap_or_default();
        Ok(Self {
            fd,
            size,
            is_file,
            is_sparse: is_file && blocks * 512 < size,
        })
    }
}

/// Whether it is a file; if not, it is a block device, or an error.
fn is_file(path: &Path, mode: u32) -> Result<bool> {
    let what = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => return Ok(true),
        FileType::BlockDevice => return Ok(false),
        FileType::Directory => "a folder",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "something else",
    };
    Err(Error::NotADevice {
        path: path.display().to_string(),
        what,
    })
}
