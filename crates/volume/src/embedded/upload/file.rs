//! Files: read, cut into pieces, and packed, by several threads. A large file is read by one of
//! them and packed by all.

use std::{
    ffi::CString,
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
    fs::{Mode, OFlags, SeekFrom, Stat, fstat, openat, seek},
    io::Errno,
};

use super::{
    super::{
        chunker::{MAX, MIN},
        id::Id,
        save::{Desk, lock},
        tree::Node,
        zeros,
    },
    Run,
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
    pub(super) folder: Arc<Folder<'a>>,
    pub(super) at: usize,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) name: CString,
    pub(super) path: Arc<[u8]>,
}

/// A large file whose pieces are packed by several threads.
struct Large<'a> {
    folder: Arc<Folder<'a>>,
    at: usize,
    node: Mutex<Option<Node>>,
    pieces: Mutex<Vec<Id>>,
    /// Pieces that are not packed yet, and one for the thread that reads.
    open: AtomicUsize,
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
    /// The smallest piece of zeros, once it is stored.
    zeros: Option<Id>,
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
                        zeros: None,
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
                    Ok(job) => self.file(job)?,
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

    fn file(&mut self, job: Job<'a>) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&job.fd, &*job.name, flags, Mode::empty());
        let opened = opened.and_then(|fd| Ok((fstat(&fd)?, fd)));
        let (found, fd) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.lost(job, error),
        };
        // Something else may have taken its name since it was looked at.
        let mut node = stat::node(job.name.to_bytes(), &found);
        if node.kind != super::super::tree::Kind::File {
            return self.lost(job, Errno::NOENT);
        }
        match stat::attributes(fd.as_fd()) {
            Ok(attributes) => node.attributes = attributes,
            Err(error) => self.run.unreadable.add(&job.path, attributes_unread(error)),
        }
        let mut file = std::fs::File::from(fd);
        if stat::size(&found) >= MIN as u64 {
            return self.large(job, file, &found, node);
        }
        self.buffer.clear();
        self.buffer.reserve(node.size as usize + 1);
        let limit = MIN as u64;
        let read = (&mut file).take(limit).read_to_end(&mut self.buffer);
        match read {
            // It has grown since.
            Ok(length) if length as u64 == limit => {
                if let Err(error) = io::Seek::rewind(&mut file) {
                    return self.lost(job, errno(&error));
                }
                self.large(job, file, &found, node)
            }
            Ok(length) => {
                node.size = length as u64;
                if length > 0 {
                    let id = self.run.saver.save_data(&self.buffer, &mut self.desk)?;
                    node.content = vec![id];
                }
                self.run.took(node.size);
                let Job { folder, at, .. } = job;
                folder.bring(self.run, at, Some(node), false, &mut self.desk)
            }
            Err(error) => self.lost(job, errno(&error)),
        }
    }

    fn lost(&mut self, job: Job<'a>, error: Errno) -> Result<()> {
        self.run.leave_out(&job.path, error);
        let Job { folder, at, .. } = job;
        folder.bring(self.run, at, None, false, &mut self.desk)
    }

    /// Reads a large file, and hands its pieces to whoever is free.
    fn large(&mut self, job: Job<'a>, file: std::fs::File, found: &Stat, node: Node) -> Result<()> {
        self.reading.fetch_add(1, Ordering::AcqRel);
        let large = Arc::new(Large {
            folder: job.folder,
            at: job.at,
            node: Mutex::new(Some(node)),
            pieces: Mutex::default(),
            open: AtomicUsize::new(1),
        });
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let read = self.pieces(&large, &file, stat::is_sparse(found), &mut buffer);
        buffer.shrink_to(2 * STEP);
        self.buffer = buffer;
        let size = match read {
            Ok(size) => Some(size),
            Err(Failure::File(error)) => {
                self.run.unreadable.add(&job.path, error);
                None
            }
            Err(Failure::Repository(error)) => {
                self.reading.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
        };
        match (&mut *lock(&large.node), size) {
            (Some(node), Some(size)) => node.size = size,
            (node, _) => *node = None,
        }
        let closed = self.close(&large);
        self.reading.fetch_sub(1, Ordering::AcqRel);
        closed
    }

    /// The bytes that were read.
    fn pieces(
        &mut self,
        large: &Arc<Large<'a>>,
        mut file: &std::fs::File,
        is_sparse: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, Failure> {
        let mut holes = Holes::new(is_sparse);
        let (mut at, mut seen, mut is_end) = (0_u64, 0, false);
        while !is_end || !buffer.is_empty() {
            if self.run.stop.is_stopped() {
                return Err(Failure::Repository(Error::Cancelled));
            }
            if !is_end && buffer.len() < MAX {
                match holes.next(file, at)? {
                    Next::Data(length) => {
                        let wanted = length.min(STEP as u64);
                        let read = (&mut file).take(wanted).read_to_end(buffer)?;
                        at += read as u64;
                        is_end = read == 0;
                    }
                    Next::Hole(length) => {
                        // What was read before it is a piece, whatever its size.
                        if !buffer.is_empty() {
                            self.hand_over(large, buffer)?;
                            buffer.clear();
                            seen = 0;
                        }
                        // What is left of it is read.
                        let count = length / MIN as u64;
                        self.zeros(large, count)?;
                        at += count * MIN as u64;
                        seek(file, SeekFrom::Start(at))?;
                    }
                }
            }
            if seen < MIN {
                let count = zeros::pieces(buffer);
                if count > 0 {
                    self.zeros(large, count as u64)?;
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
                self.hand_over(large, &buffer[..cut])?;
                buffer.drain(..cut);
            }
            seen = 0;
        }
        Ok(at)
    }

    /// So many of the smallest pieces are zeros; nobody has to look at them.
    fn zeros(&mut self, large: &Arc<Large<'a>>, count: u64) -> Result<(), Failure> {
        let mut told = count * MIN as u64;
        self.run.took(told);
        let id = match self.zeros {
            Some(id) => id,
            None => {
                let saved = self.run.saver.save_data(zeros::of(MIN), &mut self.desk);
                // The first is told of when it is stored.
                told -= MIN as u64;
                *self.zeros.insert(saved.map_err(Failure::Repository)?)
            }
        };
        self.run.progress.more(told);
        lock(&large.pieces).extend(std::iter::repeat_n(id, count as usize));
        Ok(())
    }

    /// Gives a piece to somebody who is free, or packs it.
    fn hand_over(&mut self, large: &Arc<Large<'a>>, data: &[u8]) -> Result<(), Failure> {
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
        let folder = &large.folder;
        folder.bring(self.run, large.at, node, false, &mut self.desk)
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
