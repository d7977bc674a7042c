//! Holes of a file, which need not be read.

use rustix::{
    fs::{SeekFrom, fstat, seek},
    io::Errno,
};

use super::{super::chunker::MIN, file::STEP, stat};

/// What comes next in a file.
pub(super) enum Next {
    Data(u64),
    Hole(u64),
}

/// Where a sparse file has data.
pub(super) struct Holes {
    is_sparse: bool,
    /// Nothing beyond this is of interest.
    limit: u64,
    /// Data is known up to here.
    data_to: u64,
}

impl Holes {
    pub(super) fn new(is_sparse: bool, limit: u64) -> Self {
        let data_to = if is_sparse { 0 } else { u64::MAX };
        Self {
            is_sparse,
            limit,
            data_to,
        }
    }

    /// Leaves the file's position at `at`.
    pub(super) fn next(&mut self, file: &std::fs::File, at: u64) -> Result<Next, Errno> {
        if at < self.data_to {
            return Ok(Next::Data(self.data_to - at));
        }
        let end = stat::size(&fstat(file)?).min(self.limit);
        if at >= end {
            seek(file, SeekFrom::Start(at))?;
            return Ok(Next::Data(STEP as u64));
        }
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // No more data: a hole up to the end.
            Err(Errno::NXIO) => end,
            Err(_) => {
                // A file system that does not know.
                self.is_sparse = false;
                self.data_to = u64::MAX;
                seek(file, SeekFrom::Start(at))?;
                return Ok(Next::Data(u64::MAX));
            }
        };
        let hole = data.min(end).saturating_sub(at);
        if hole >= MIN as u64 {
            return Ok(Next::Hole(hole));
        }
        // A small hole is read with what follows it.
        self.data_to = seek(file, SeekFrom::Hole(data.min(end - 1)))
            .unwrap_or(end)
            .max(at + 1);
        seek(file, SeekFrom::Start(at))?;
        Ok(Next::Data(self.data_to - at))
    }
}
