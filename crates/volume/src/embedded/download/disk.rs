//! A block device that is written. It may be full of old data, so zeros are not left out: where they
//! belong, holes are made, or zeros are written.

use std::{
    num::NonZero,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crossbeam_channel::Sender;
use rustix::{
    fs::{Advice, FallocateFlags, fadvise, fallocate, fsync, ftruncate},
    io::{Errno, pread, retry_on_intr},
};

use super::{
    super::{
        blobs::Trees,
        id::Id,
        index::{Blob, Entry},
        tree::{Kind, Node},
        zeros::{self, is_zero},
    },
    Run,
    fetch::all,
    plan::{Part, Target, WANTS, Want, hand_out},
};
use crate::{Error, Result};

/// Zeros are made by whole blocks of this size: no smaller one is worth a call, and no device has
/// larger ones.
const GRAIN: u64 = 64 << 10;
/// How much is made zero before somebody looks whether to stop.
const STRIDE: u64 = 32 << 20;
/// How much of it is looked at or written at once, where the device does not do it.
const STEP: usize = 1 << 20;
/// What was written is kept in memory up to this, or a little more.
const KEPT: u64 = 64 << 20;

/// A device to write a snapshot to.
pub(super) struct Wanted {
    pub(super) tree: Id,
    /// The snapshot's name, for people.
    pub(super) snapshot: String,
    /// Where the device is.
    pub(super) path: String,
    /// The bytes it has.
    pub(super) size: u64,
    /// Whether it is a file, which grows.
    pub(super) is_file: bool,
}

/// A device that is being written.
pub(super) struct Disk {
    path: String,
    image: Node,
    /// Whether it can have holes, as far as is known.
    can_punch: AtomicBool,
    /// Whether it makes zeros itself.
    can_zero: AtomicBool,
    /// Bytes that were written.
    written: AtomicU64,
    /// Whether a piece cannot be had.
    failed: AtomicBool,
}

impl Disk {
    /// Makes certain that all of it can be had, and has room. Nothing is written before that.
    pub(super) fn prepare(run: &Run, trees: &Trees, wanted: Wanted) -> Result<Arc<Self>> {
        let mut nodes = run.handle.block_on(trees.read(&wanted.tree))?;
        let image = match nodes.pop() {
            Some(node) if nodes.is_empty() && node.kind == Kind::File => node,
            _ => return Err(Error::NoImage(wanted.snapshot)),
        };
        let (has, needs) = (wanted.size, image.size);
        if has < needs && !wanted.is_file {
            return Err(Error::TooSmall { has, needs });
        }
        let mut size = 0;
        for id in &image.content {
            size += entry(run, id)?.size();
        }
        if size != needs {
            return Err(Error::Damaged {
                file: String::from_utf8_lossy(&image.name).into_owned(),
                reason: format!("its pieces have {size} bytes instead of {needs}"),
            });
        }
        let disk = Self::new(wanted.path, image);
        if has < needs {
            ftruncate(&run.root, needs).map_err(|e| disk.failed("grow", e))?;
        }
        run.progress.expect(needs);
        Ok(Arc::new(disk))
    }

    fn new(path: String, image: Node) -> Self {
        Self {
            path,
            image,
            can_punch: AtomicBool::new(true),
            can_zero: AtomicBool::new(true),
            written: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// The bytes of its data.
    pub(super) fn size(&self) -> u64 {
        self.image.size
    }

    /// Makes zeros where they belong, and hands out all other parts.
    pub(super) fn plan(self: &Arc<Self>, run: &Run, parts: &Sender<Part>) -> Result<()> {
        let (mut at, mut zeros_from) = (0, 0);
        let mut wants = Vec::new();
        for id in &self.image.content {
            if run.stop.is_stopped() {
                return Ok(());
            }
            let entry = entry(run, id)?;
            let end = at + entry.size();
            if !zeros::is_piece(id) {
                self.zero(run, zeros_from, at)?;
                zeros_from = end;
                wants.push(Want {
                    entry,
                    target: Target::Device(Arc::clone(self)),
                    offset: at,
                });
            }
            if wants.len() >= WANTS {
                hand_out(run, std::mem::take(&mut wants), parts);
            }
            at = end;
        }
        hand_out(run, wants, parts);
        self.zero(run, zeros_from, at)
    }

    /// Writes a piece.
    pub(super) fn write(&self, run: &Run, text: &[u8], offset: u64) -> Result<()> {
        let mut from = 0;
        while from < text.len() {
            let is_zero = is_zero(&text[from..grain(text, from, offset)]);
            let mut to = from;
            while to < text.len() {
                let next = grain(text, to, offset);
                if self::is_zero(&text[to..next]) != is_zero {
                    break;
                }
                to = next;
            }
            let (start, length) = (offset + from as u64, (to - from) as u64);
            if is_zero {
                self.zero(run, start, start + length)?;
            } else {
                all(&run.root, &text[from..to], start).map_err(|e| self.failed("write", e))?;
                self.wrote(&run.root, length);
                run.progress.more(length);
            }
            from = to;
        }
        Ok(())
    }

    /// Notes, once, that a piece cannot be had.
    pub(super) fn lack(&self, run: &Run, why: &str) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            run.problems.add(&self.image.name, why);
        }
    }

    /// All of it is where it should be, and stays there.
    pub(super) fn finish(&self, run: &Run) -> Result<()> {
        fsync(&run.root).map_err(|e| self.failed("write", e))?;
        forget(&run.root, 0, None);
        Ok(())
    }

    /// Makes a stretch zero.
    fn zero(&self, run: &Run, mut from: u64, to: u64) -> Result<()> {
        while from < to && !run.stop.is_stopped() {
            let end = to.min((from + STRIDE) / GRAIN * GRAIN);
            self.clear(&run.root, from, end)
                .map_err(|e| self.failed("write", e))?;
            run.progress.more(end - from);
            from = end;
        }
        Ok(())
    }

    /// The same, without stopping: whole blocks in the quickest way, and what is before and after
    /// them like any data.
    fn clear(&self, fd: &OwnedFd, from: u64, to: u64) -> Result<(), Errno> {
        let first = from.next_multiple_of(GRAIN);
        let last = to / GRAIN * GRAIN;
        if first >= last {
            return all(fd, zeros::of((to - from) as usize), from);
        }
        all(fd, zeros::of((first - from) as usize), from)?;
        all(fd, zeros::of((to - last) as usize), last)?;
        if attempt(&self.can_punch, fd, FallocateFlags::PUNCH_HOLE, first, last) {
            return Ok(());
        }
        // What is zero already is left so: a volume that takes room only for what was written to it
        // would else take all of it.
        let mut seen = vec![0; STEP];
        let mut at = first;
        while at < last {
            let end = last.min(at + STEP as u64);
            let seen = &mut seen[..(end - at) as usize];
            let is_clear = read(fd, seen, at).is_ok() && is_zero(seen);
            forget(fd, at, NonZero::new(end - at));
            if !is_clear && !attempt(&self.can_zero, fd, FallocateFlags::ZERO_RANGE, at, end) {
                all(fd, zeros::of((end - at) as usize), at)?;
                self.wrote(fd, end - at);
            }
            at = end;
        }
        Ok(())
    }

    /// Now and then, has what was written go to the device and leave the memory.
    fn wrote(&self, fd: &OwnedFd, bytes: u64) {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before / KEPT != (before + bytes) / KEPT {
            forget(fd, 0, None);
        }
    }

    fn failed(&self, action: &'static str, error: Errno) -> Error {
        Error::File {
            action,
            path: self.path.clone(),
            source: error.into(),
        }
    }
}

fn entry(run: &Run, id: &Id) -> Result<Entry> {
    let found = run.index.find(Blob::Data, id).copied();
    found.ok_or_else(|| Error::Damaged {
        file: format!("blob {}", id.short()),
        reason: "no index knows it".to_owned(),
    })
}

/// Where the block ends that has this byte of a piece; blocks of the device, not of the piece.
fn grain(text: &[u8], from: usize, offset: u64) -> usize {
    let rest = GRAIN - (offset + from as u64) % GRAIN;
    text.len().min(from + rest as usize)
}

/// Lets the device make zeros, unless it is known not to do so. Both ways promise that zeros are
/// read afterwards.
fn attempt(can: &AtomicBool, fd: &OwnedFd, way: FallocateFlags, from: u64, to: u64) -> bool {
    if !can.load(Ordering::Relaxed) {
        return false;
    }
    let way = way | FallocateFlags::KEEP_SIZE;
    // Whatever speaks against it: if it is serious, writing will fail as well.
    let is_done = retry_on_intr(|| fallocate(fd, way, from, to - from)).is_ok();
    if !is_done {
        can.store(false, Ordering::Relaxed);
    }
    is_done
}

fn read(fd: &OwnedFd, mut into: &mut [u8], mut at: u64) -> Result<(), Errno> {
    while !into.is_empty() {
        match retry_on_intr(|| pread(fd, &mut *into, at))? {
            0 => return Err(Errno::IO),
            length => {
                into = &mut into[length..];
                at += length as u64;
            }
        }
    }
    Ok(())
}

/// Begins to write what is only in memory, and drops what is not. Nothing is lost if that is not
/// possible.
fn forget(fd: impl AsFd, from: u64, length: Option<NonZero<u64>>) {
    let _ = fadvise(fd, from, length, Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileExt, MetadataExt},
    };

    use super::*;

    const SIZE: usize = 5 << 20;

    fn disk(can_punch: bool, can_zero: bool) -> Disk {
        let mut nodes = crate::embedded::tree::read(
            br#"{"nodes":[{"name":"volume.img","type":"file","size":5242880}]}"#,
        );
        let disk = Disk::new(String::new(), nodes.as_mut().unwrap().remove(0));
        disk.can_punch.store(can_punch, Ordering::Relaxed);
        disk.can_zero.store(can_zero, Ordering::Relaxed);
        disk
    }

    #[test]
    fn stretches_become_zero_in_every_way_and_nothing_else_does() {
        let ways = [(true, true), (false, true), (false, false)];
        let grain = GRAIN as usize;
        for (from, to) in [
            (0, 1),
            (0, SIZE),
            (1, grain),
            (5, grain + 5),
            (grain, 3 * grain),
            (grain - 1, 3 * grain + 1),
            (12_345, 3_456_789),
            (SIZE - 1, SIZE),
        ] {
            for (can_punch, can_zero) in ways {
                let file = tempfile::tempfile().unwrap();
                let mut expected = vec![0xff; SIZE];
                file.write_all_at(&expected, 0).unwrap();
                let fd = OwnedFd::from(file.try_clone().unwrap());
                let disk = disk(can_punch, can_zero);
                disk.clear(&fd, from as u64, to as u64).unwrap();
                expected[from..to].fill(0);
                let mut found = vec![1; SIZE];
                file.read_exact_at(&mut found, 0).unwrap();
                assert!(found == expected, "{from}..{to} {can_punch} {can_zero}");
                assert_eq!(file.metadata().unwrap().len(), SIZE as u64);
            }
        }
    }

    #[test]
    fn what_is_zero_already_takes_no_room() {
        let file: fs::File = tempfile::tempfile().unwrap();
        file.set_len(SIZE as u64).unwrap();
        let fd = OwnedFd::from(file.try_clone().unwrap());
        disk(false, false).clear(&fd, 0, SIZE as u64).unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }

    #[test]
    fn blocks_are_those_of_the_device() {
        let text = vec![0; 200 << 10];
        let block = GRAIN as usize;
        assert_eq!(grain(&text, 0, 0), block);
        assert_eq!(grain(&text, 0, 5), block - 5);
        assert_eq!(grain(&text, block - 5, 5), 2 * block - 5);
        assert_eq!(grain(&text, 199 << 10, 0), 200 << 10);
    }
}
