//! Parts of packs, fetched, decrypted and written to the files that need them.

use std::{os::fd::OwnedFd, sync::atomic::Ordering};

use crossbeam_channel::Receiver;
use rustix::{
    fs::ftruncate,
    io::{Errno, pwrite},
};

use super::{
    super::{blobs::Opener, files::File, index::Entry, zeros::is_zero},
    Run, place,
    plan::{Part, Target, Unfinished, Want},
};
use crate::{Error, Result};

/// Zeros of this size are left out of a sparse file.
const BLOCK: usize = 4096;

/// What each thread has.
pub(super) struct Fetcher<'a> {
    run: &'a Run,
    opener: Opener,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(run: &'a Run) -> Result<Self> {
        Ok(Self {
            run,
            opener: Opener::new()?,
        })
    }

    pub(super) fn work(mut self, parts: &Receiver<Part>) -> Result<()> {
        while let Ok(part) = parts.recv() {
            if self.run.stop.is_stopped() {
                return Ok(());
            }
            self.part(part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: Part) -> Result<()> {
        let place = &self.run.repository.files.place;
        let fetching = place.part(&part.pack, part.offset.into(), part.length.into());
        let mut bytes = match self.run.handle.block_on(fetching) {
            // Usually nobody else holds these bytes, so that they are decrypted where they are.
            Ok(bytes) => bytes
                .try_into_mut()
                .unwrap_or_else(|bytes| bytes[..].into()),
            Err(error @ Error::Damaged { .. }) => {
                let why = error.to_string();
                return part
                    .wants
                    .iter()
                    .try_for_each(|want| fail(self.run, want, &why));
            }
            Err(error) => return Err(error),
        };
        let mut wants = part.wants.into_iter().peekable();
        while let Some(first) = wants.next() {
            if self.run.stop.is_stopped() {
                return Ok(());
            }
            let entry = first.entry;
            let mut same = vec![first];
            while let Some(more) = wants.next_if(|want| want.entry == entry) {
                same.push(more);
            }
            let start = (entry.offset - part.offset) as usize;
            let sealed = &mut bytes[start..start + entry.length as usize];
            self.piece(&entry, sealed, &same, &part.pack)?;
        }
        Ok(())
    }

    /// Writes a piece wherever it belongs.
    fn piece(
        &mut self,
        entry: &Entry,
        sealed: &mut [u8],
        wants: &[Want],
        pack: &super::super::id::Id,
    ) -> Result<()> {
        let run = self.run;
        let opened = self.opener.open(&run.repository.files.key, entry, sealed);
        let text = match opened {
            Ok(text) => text,
            Err(reason) => {
                let why = File::Pack.damaged(pack, reason).to_string();
                return wants.iter().try_for_each(|want| fail(run, want, &why));
            }
        };
        for want in wants {
            write(run, want, text)?;
        }
        Ok(())
    }
}

/// Notes, once, that a file lacks a piece.
fn fail(run: &Run, want: &Want, why: &str) -> Result<()> {
    let target = match &want.target {
        Target::File(target) => target,
        Target::Device(disk) => {
            disk.lack(run, why);
            return Ok(());
        }
    };
    if !target.failed.swap(true, Ordering::Relaxed) {
        run.problems.add(&target.path, why);
    }
    done(run, target, None)
}

fn write(run: &Run, want: &Want, text: &[u8]) -> Result<()> {
    let target = match &want.target {
        Target::File(target) => target,
        Target::Device(disk) => return disk.write(run, text, want.offset),
    };
    let opened = if target.is_made {
        place::open(&run.root, &target.path)
    } else {
        place::create(&run.root, &target.path)
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(error) => return run.cannot("open", &target.path, error),
    };
    let written = if run.is_sparse || is_zero(text) {
        sparse(&fd, text, want.offset, target)
    } else {
        all(&fd, text, want.offset)
    };
    if let Err(error) = written {
        return run.cannot("write", &target.path, error);
    }
    run.progress.more(text.len() as u64);
    done(run, target, Some(&fd))
}

/// One piece less to wait for; the last one settles the file.
fn done(run: &Run, target: &Unfinished, fd: Option<&OwnedFd>) -> Result<()> {
    if target.left.fetch_sub(1, Ordering::AcqRel) != 1 {
        return Ok(());
    }
    match fd {
        Some(fd) => run.settle(fd, &target.path, &target.node),
        // The last piece was one that cannot be had; the others may be there.
        None => match place::open(&run.root, &target.path) {
            Ok(fd) => run.settle(&fd, &target.path, &target.node),
            Err(_) => Ok(()),
        },
    }
}

pub(super) fn all(fd: &OwnedFd, mut text: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !text.is_empty() {
        let written = pwrite(fd, text, offset)?;
        text = &text[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Writes what is not zero; the rest of a new file is.
fn sparse(fd: &OwnedFd, text: &[u8], offset: u64, target: &Unfinished) -> Result<(), Errno> {
    if !target.is_made {
        ftruncate(fd, target.node.size)?;
    }
    let mut from = 0;
    while from < text.len() {
        // Blocks of the file, not of the piece.
        let first = BLOCK - ((offset as usize + from) % BLOCK);
        let to = (from + first).min(text.len());
        if is_zero(&text[from..to]) {
            from = to;
            continue;
        }
        let mut end = to;
        while end < text.len() {
            let next = (end + BLOCK).min(text.len());
            if is_zero(&text[end..next]) {
                break;
            }
            end = next;
        }
        all(fd, &text[from..end], offset + from as u64)?;
        from = end;
    }
    Ok(())
}
