//! Files: read, cut into pieces, and packed, by several threads. A large file is read by one of
//! them and packed by all, and so is a device.

use std::{
    ffi::{CStr, CString},
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::Scope,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rustix::{
    fs::{Mode, OFlags, SeekFrom, fstat, openat, seek},
    io::Errno,
};

use super::{
    super::{
        chunker::{MAX, MIN},
        device::Device,
        id::Id,
        save::{Desk, lock},
        tree::Node,
        zeros,
    },
    Run, device,
    folder::Folder,
    holes::{Holes, Next},
    stat,
    walk::attributes_unread,
};
use crate::{Error, Result};

/// Files that wait for a thread.
const WAITING: usize = 256;
/// What is read at once of a large file.
pub(super) const STEP: usize = 1 << 20;
/// How often a thread without work looks whether there is more to come.
const LOOK: Duration = Duration::from_millis(2);

/// A file to copy.
pub(super) struct Job<'a> {
    pub(super) slot: Slot<'a>,
    pub(super) source: Source,
}

/// Where a file belongs.
pub(super) struct Slot<'a> {
    pub(super) folder: Arc<Folder<'a>>,
    pub(super) at: usize,
    pub(super) path: Arc<[u8]>,
}

/// What is to be read.
pub(super) enum Source {
    /// An entry of a folder.
    Entry(Arc<OwnedFd>, CString),
    /// A device, whose entry is known but for the contents.
    Device(Box<(Device, Node)>),
}

/// A large file whose pieces are packed by several threads.
struct Large<'a> {
    slot: Slot<'a>,
    is_device: bool,
    node: Mutex<Option<Node>>,
    pieces: Mutex<Vec<Id>>,
    /// Pieces that are not packed yet, and one for the thread that reads.
    open: AtomicUsize,
}

/// A large file that is being read.
struct Reading<'a> {
    large: Arc<Large<'a>>,
    /// The smallest pieces, all zeros, that come next and are in no list yet.
    zeros: u64,
}

struct Piece<'a> {
    of: Arc<Large<'a>>,
    number: usize,
    data: Vec<u8>,
}

/// The threads.
pub(super) struct Pool<'a> {
    jobs: Sender<Job<'a>>,
}

/// What each thread has.
struct Worker<'a> {
    run: &'a Run,
    desk: Desk,
    buffer: Vec<u8>,
    /// Pieces of zeros that are stored, and their sizes.
    zeros: Vec<(usize, Id)>,
    jobs: Receiver<Job<'a>>,
    pieces: Receiver<Piece<'a>>,
    hand_over: Sender<Piece<'a>>,
    /// Memory of pieces that were packed, for the next ones.
    spare: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    /// Threads that read a large file.
    reading: Arc<AtomicUsize>,
}

impl<'a> Pool<'a> {
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        run: &'a Run,
        threads: usize,
    ) -> Self
    where
        'a: 'scope,
    {
        let (jobs, waiting) = bounded(WAITING);
        let (hand_over, pieces) = bounded(threads);
        let spare = bounded(threads);
        let reading = Arc::new(AtomicUsize::new(0));
        for _ in 0..threads {
            let (jobs, pieces) = (waiting.clone(), pieces.clone());
            let (hand_over, reading) = (hand_over.clone(), Arc::clone(&reading));
            let spare = spare.clone();
            scope.spawn(move || {
                let worked = Desk::new().and_then(|desk| {
                    let worker = Worker {
                        run,
                        desk,
                        buffer: Vec::new(),
                        zeros: Vec::new(),
                        jobs,
                        pieces,
                        hand_over,
                        spare,
                        reading,
                    };
                    worker.work()
                });
                if let Err(error) = worked {
                    run.stop.fail(error);
                }
            });
        }
        Self { jobs }
    }

    /// Hands a file to whoever is free; waits when all are busy.
    pub(super) fn send(&self, job: Job<'a>) {
        // Nobody is there to take it only when an error has ended them all.
        let _ = self.jobs.send(job);
    }

    /// There are no more files.
    pub(super) fn finish(self) {
        drop(self.jobs);
    }
}

impl<'a> Worker<'a> {
    fn work(mut self) -> Result<()> {
        loop {
            if self.run.stop.is_stopped() {
                return Ok(());
            }
            if let Ok(piece) = self.pieces.try_recv() {
                self.piece(piece)?;
                continue;
            }
            let (jobs, pieces) = (self.jobs.clone(), self.pieces.clone());
            crossbeam_channel::select! {
                recv(pieces) -> piece => if let Ok(piece) = piece {
                    self.piece(piece)?;
                },
                recv(jobs) -> job => match job {
                    Ok(job) => self.job(job)?,
                    Err(_) => return self.rest(),
                },
            }
        }
    }

    /// All files are taken; what others read may still come in pieces.
    fn rest(mut self) -> Result<()> {
        while self.reading.load(Ordering::Acquire) > 0 || !self.pieces.is_empty() {
            if self.run.stop.is_stopped() {
                return Ok(());
            }
            if let Ok(piece) = self.pieces.recv_timeout(LOOK) {
                self.piece(piece)?;
            }
        }
        Ok(())
    }

    fn job(&mut self, job: Job<'a>) -> Result<()> {
        match job.source {
            Source::Entry(fd, name) => self.file(job.slot, &fd, &name),
            Source::Device(device) => {
                let (device, node) = *device;
                let is_sparse = device.is_sparse;
                let large = Large::new(job.slot, node, true);
                self.large(large, &device.fd.into(), is_sparse, device.size)
            }
        }
    }

    fn file(&mut self, slot: Slot<'a>, fd: &OwnedFd, name: &CStr) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(fd, name, flags, Mode::empty());
        let opened = opened.and_then(|fd| Ok((fstat(&fd)?, fd)));
        let (found, fd) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.lost(slot, error),
        };
        // Something else may have taken its name since it was looked at.
        let mut node = stat::node(name.to_bytes(), &found);
        if node.kind != super::super::tree::Kind::File {
            return self.lost(slot, Errno::NOENT);
        }
        match stat::attributes(fd.as_fd()) {
            Ok(attributes) => node.attributes = attributes,
            Err(error) => self
                .run
                .unreadable
                .add(&slot.path, attributes_unread(error)),
        }
        let mut file = std::fs::File::from(fd);
        if stat::size(&found) >= MIN as u64 {
            let is_sparse = stat::is_sparse(&found);
            return self.large(Large::new(slot, node, false), &file, is_sparse, u64::MAX);
        }
        self.buffer.clear();
        self.buffer.reserve(node.size as usize + 1);
        let limit = MIN as u64;
        let read = (&mut file).take(limit).read_to_end(&mut self.buffer);
        match read {
            // It has grown since.
            Ok(length) if length as u64 == limit => {
                if let Err(error) = io::Seek::rewind(&mut file) {
                    return self.lost(slot, errno(&error));
                }
                let is_sparse = stat::is_sparse(&found);
                self.large(Large::new(slot, node, false), &file, is_sparse, u64::MAX)
            }
            Ok(length) => {
                node.size = length as u64;
                if length > 0 {
                    let id = self.run.saver.save_data(&self.buffer, &mut self.desk)?;
                    node.content = vec![id];
                }
                self.run.took(node.size);
                let Slot { folder, at, .. } = slot;
                folder.bring(self.run, at, Some(node), false, &mut self.desk)
            }
            Err(error) => self.lost(slot, errno(&error)),
        }
    }

    fn lost(&mut self, slot: Slot<'a>, error: Errno) -> Result<()> {
        self.run.leave_out(&slot.path, error);
        let Slot { folder, at, .. } = slot;
        folder.bring(self.run, at, None, false, &mut self.desk)
    }

    /// Reads a large file up to a limit, and hands its pieces to whoever is free.
    fn large(
        &mut self,
        large: Arc<Large<'a>>,
        file: &std::fs::File,
        is_sparse: bool,
        limit: u64,
    ) -> Result<()> {
        self.reading.fetch_add(1, Ordering::AcqRel);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut reading = Reading { large, zeros: 0 };
        let read = self.pieces(&mut reading, file, is_sparse, limit, &mut buffer);
        buffer.shrink_to(2 * STEP);
        self.buffer = buffer;
        let large = reading.large;
        let closed = match read {
            Ok(size) => large.end(size).and_then(|()| self.close(&large)),
            Err(Failure::File(error)) if large.is_device => Err(large.unread(error)),
            Err(Failure::File(error)) => {
                self.run.unreadable.add(&large.slot.path, error);
                *lock(&large.node) = None;
                self.close(&large)
            }
            Err(Failure::Repository(error)) => Err(error),
        };
        self.reading.fetch_sub(1, Ordering::AcqRel);
        closed
    }

    /// The bytes that were read.
    fn pieces(
        &mut self,
        reading: &mut Reading<'a>,
        mut file: &std::fs::File,
        is_sparse: bool,
        limit: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, Failure> {
        let mut holes = Holes::new(is_sparse, limit);
        let mut trail = reading.large.is_device.then(device::Trail::default);
        let (mut at, mut seen, mut is_end) = (0_u64, 0, false);
        while !is_end || !buffer.is_empty() {
            if self.run.stop.is_stopped() {
                return Err(Failure::Repository(Error::Cancelled));
            }
            if !is_end && buffer.len() < MAX {
                match holes.next(file, at)? {
                    Next::Data(length) => {
                        let wanted = length.min(STEP as u64).min(limit - at);
                        let read = (&mut file).take(wanted).read_to_end(buffer)?;
                        at += read as u64;
                        is_end = read == 0;
                    }
                    Next::Hole(length) => {
                        // What was read before it is a piece, whatever its size.
                        if !buffer.is_empty() {
                            self.hand_over(reading, buffer)?;
                            buffer.clear();
                            seen = 0;
                        }
                        // What is left of it is read.
                        let count = length / MIN as u64;
                        self.zeros(reading, count)?;
                        at += count * MIN as u64;
                        seek(file, SeekFrom::Start(at))?;
                    }
                }
                if let Some(trail) = &mut trail {
                    trail.drop_up_to(file, at);
                }
            }
            if seen < MIN {
                let count = zeros::pieces(buffer);
                if count > 0 {
                    self.zeros(reading, count as u64)?;
                    buffer.drain(..count * MIN);
                    seen = 0;
                    continue;
                }
            }
            let cut = match self.run.repository.chunker.cut(buffer, seen) {
                Some(cut) => cut,
                None if is_end => buffer.len(),
                None => {
                    seen = buffer.len();
                    continue;
                }
            };
            if cut > 0 {
                self.hand_over(reading, &buffer[..cut])?;
                buffer.drain(..cut);
            }
            seen = 0;
        }
        self.note_zeros(reading, MIN)?;
        Ok(at)
    }

    /// So many of the smallest pieces are zeros; nobody has to look at them. On a device, which may
    /// be large and empty, many of them become one.
    fn zeros(&mut self, reading: &mut Reading<'a>, count: u64) -> Result<(), Failure> {
        reading.zeros += count;
        let size = if reading.large.is_device { MAX } else { MIN };
        self.note_zeros(reading, size)
    }

    /// Puts zeros into the list, in pieces of a size, as far as they fill one.
    fn note_zeros(&mut self, reading: &mut Reading<'a>, size: usize) -> Result<(), Failure> {
        let in_one = (size / MIN) as u64;
        let count = reading.zeros / in_one;
        if count == 0 {
            return Ok(());
        }
        reading.zeros %= in_one;
        let mut told = count * size as u64;
        self.run.took(told);
        let known = self.zeros.iter().find(|(known, _)| *known == size);
        let id = match known {
            Some((_, id)) => *id,
            None => {
                let saved = self.run.saver.save_data(zeros::of(size), &mut self.desk);
                let id = saved.map_err(Failure::Repository)?;
                self.zeros.push((size, id));
                // The first is told of when it is stored.
                told -= size as u64;
                id
            }
        };
        self.run.progress.more(told);
        let mut pieces = lock(&reading.large.pieces);
        pieces.extend(std::iter::repeat_n(id, count as usize));
        Ok(())
    }

    /// Gives a piece to somebody who is free, or packs it.
    fn hand_over(&mut self, reading: &mut Reading<'a>, data: &[u8]) -> Result<(), Failure> {
        // Those were before it.
        self.note_zeros(reading, MIN)?;
        let large = &reading.large;
        let number = {
            let mut pieces = lock(&large.pieces);
            pieces.push(Id::default());
            pieces.len() - 1
        };
        large.open.fetch_add(1, Ordering::Relaxed);
        let packed = if self.hand_over.is_full() {
            self.pack(large, number, data)
        } else {
            let mut copied = self.spare.1.try_recv().unwrap_or_default();
            copied.extend_from_slice(data);
            let piece = Piece {
                of: Arc::clone(large),
                number,
                data: copied,
            };
            match self.hand_over.try_send(piece) {
                Ok(()) => Ok(()),
                Err(TrySendError::Full(piece) | TrySendError::Disconnected(piece)) => {
                    self.piece(piece)
                }
            }
        };
        packed.map_err(Failure::Repository)
    }

    fn piece(&mut self, mut piece: Piece<'a>) -> Result<()> {
        self.pack(&piece.of, piece.number, &piece.data)?;
        piece.data.clear();
        // When there is enough of it already, it is let go.
        let _ = self.spare.0.try_send(piece.data);
        Ok(())
    }

    fn pack(&mut self, large: &Arc<Large<'a>>, number: usize, data: &[u8]) -> Result<()> {
        let id = self.run.saver.save_data(data, &mut self.desk)?;
        lock(&large.pieces)[number] = id;
        self.run.took(data.len() as u64);
        self.close(large)
    }

    /// One less to wait for; the last one brings the file to its folder.
    fn close(&mut self, large: &Arc<Large<'a>>) -> Result<()> {
        if large.open.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        let node = lock(&large.node).take().map(|mut node| {
            node.content = std::mem::take(&mut *lock(&large.pieces));
            node
        });
        let Slot { folder, at, .. } = &large.slot;
        folder.bring(self.run, *at, node, false, &mut self.desk)
    }
}

impl<'a> Large<'a> {
    fn new(slot: Slot<'a>, node: Node, is_device: bool) -> Arc<Self> {
        Arc::new(Self {
            slot,
            is_device,
            node: Mutex::new(Some(node)),
            pieces: Mutex::default(),
            open: AtomicUsize::new(1),
        })
    }

    /// All of it was read. The size of a file is what it turned out to be; a device has one.
    fn end(&self, size: u64) -> Result<()> {
        let mut node = lock(&self.node);
        match &mut *node {
            Some(node) if self.is_device && node.size != size => {
                Err(self.unread(io::ErrorKind::UnexpectedEof.into()))
            }
            Some(node) => {
                node.size = size;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn unread(&self, source: io::Error) -> Error {
        Error::File {
            action: "read",
            path: String::from_utf8_lossy(&self.slot.path).into_owned(),
            source,
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Why a file was not read to its end.
enum Failure {
    File(io::Error),
    Repository(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::File(error.into())
    }
}
