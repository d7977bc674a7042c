//! The bytes of a file: shared, or copied without its holes.

use std::{collections::HashSet, os::fd::OwnedFd};

use bowline_volume::Progress;
use rustix::{
    fs::{SeekFrom, fstat, ftruncate, ioctl_ficlone, seek},
    io::{Errno, pread, pwrite},
};

/// What is copied at once.
const STEP: usize = 1 << 20;

/// Clones contents, and remembers what file systems cannot do.
pub(super) struct Contents<'a> {
    pub(super) progress: &'a Progress,
    /// File systems whose files cannot be shared with those of the clone.
    apart: HashSet<u64>,
    buffer: Vec<u8>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(progress: &'a Progress) -> Self {
        Self {
            progress,
            apart: HashSet::new(),
            buffer: Vec::new(),
        }
    }

    /// Makes a new file like another one of a device and a size; its size in the end, and how many
    /// bytes were copied for it.
    pub(super) fn clone(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        device: u64,
        size: u64,
    ) -> Result<(u64, u64), Errno> {
        if size == 0 {
            return Ok((0, 0));
        }
        if !self.apart.contains(&device) {
            match ioctl_ficlone(to, from) {
                Ok(()) => {
                    self.progress.more(size);
                    return Ok((length(to)?, 0));
                }
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(errno),
                Err(Errno::NOTSUP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
                    self.apart.insert(device);
                }
                // This one file, for a reason of its own.
                Err(_) => {}
            }
        }
        self.copy(from, to, size)
    }

    fn copy(&mut self, from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(u64, u64), Errno> {
        let (mut at, mut copied) = (0, 0);
        while let Some((start, end)) = data(from, at, size)? {
            let read = self.range(from, to, start, end)?;
            copied += read;
            self.progress.more(read);
            at = start + read;
            // It has become shorter.
            if at < end {
                break;
            }
        }
        // One that grows has the size it had; one that shrinks has no zeros it never had.
        let size = size.min(length(from)?);
        ftruncate(to, size)?;
        self.progress.more(size.saturating_sub(copied));
        Ok((size, copied))
    }

    /// Copies a range; the bytes that were there.
    fn range(&mut self, from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<u64, Errno> {
        self.buffer.resize(STEP, 0);
        let mut at = start;
        while at < end {
            let wanted = usize::try_from(end - at).map_or(STEP, |left| left.min(STEP));
            let read = pread(from, &mut self.buffer[..wanted], at)?;
            if read == 0 {
                break;
            }
            let mut rest = &self.buffer[..read];
            while !rest.is_empty() {
                let written = pwrite(to, rest, at)?;
                rest = &rest[written..];
                at += written as u64;
            }
        }
        Ok(at - start)
    }
}

/// The next part of a file with something in it.
fn data(file: &OwnedFd, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    if at >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) if start >= size => return Ok(None),
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that knows of no holes.
        Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Some((at, size))),
        Err(errno) => return Err(errno),
    };
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end.min(size))))
}

fn length(file: &OwnedFd) -> Result<u64, Errno> {
    Ok(u64::try_from(fstat(file)?.st_size).unwrap_or_default())
}
