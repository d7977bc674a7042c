//! What is said of a clone, in a file beside it.

use std::{
    ffi::CStr,
    io::{Read, Write},
    os::fd::OwnedFd,
};

use jiff::Timestamp;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// The file is not larger.
const LARGEST: u64 = 64 << 10;

/// What is said of a clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct About {
    /// The volume's folder.
    pub(crate) volume: String,
    /// The PersistentVolume, if that is known.
    #[serde(default)]
    pub(crate) persistent_volume: String,
    /// The backup that wanted it, if that is known.
    #[serde(default)]
    pub(crate) backup: String,
    /// Its uid, if that is known.
    #[serde(default)]
    pub(crate) backup_uid: String,
    pub(crate) created: Timestamp,
    /// Files in it.
    #[serde(default)]
    pub(crate) files: u64,
    /// Their bytes.
    #[serde(default)]
    pub(crate) bytes: u64,
    /// How many of these had to be copied, since the file system could not share them.
    #[serde(default)]
    pub(crate) copied: u64,
}

impl About {
    /// Writes it; a file that is there is overwritten.
    pub(crate) fn write(&self, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        let text = serde_json::to_vec(self).expect("strings and numbers are JSON");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(folder, name, flags, Mode::from_raw_mode(0o600))?;
        let written = std::fs::File::from(fd).write_all(&text);
        written.map_err(|error| errno(&error))
    }

    /// Reads it; none if there is no such file, or nothing in it that can be understood.
    pub(crate) fn read(folder: &OwnedFd, name: &CStr) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(folder, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let mut text = Vec::new();
        let read = std::fs::File::from(fd).take(LARGEST).read_to_end(&mut text);
        read.map_err(|error| errno(&error))?;
        Ok(serde_json::from_slice(&text).ok())
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
