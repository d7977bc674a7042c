//! The walk through a snapshot's trees: folders are made at once, files are cut into parts of packs
//! that others fetch.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use crossbeam_channel::Sender;
use rustix::{
    fs::{Dir, ftruncate},
    io::Errno,
};

use super::{
    super::{
        blobs::Trees,
        id::Id,
        index::{Blob, Entry},
        tree::{Kind, Node},
    },
    Run,
    disk::Disk,
    place,
};
use crate::{Error, Result};

/// The most that is fetched of a pack at once.
pub(super) const PART: usize = 4 << 20;
/// Pieces in one part at most.
const PIECES: usize = 512;
/// Pieces that are next to each other but for so many bytes are fetched together.
const GAP: u32 = 64 << 10;
/// Files that are sorted by pack together.
const FILES: usize = 8192;
/// Pieces of these files.
pub(super) const WANTS: usize = 32_768;

/// Where a piece goes.
pub(super) enum Target {
    File(Arc<Unfinished>),
    Device(Arc<Disk>),
}

/// A file that is being written.
pub(super) struct Unfinished {
    pub(super) path: Box<[u8]>,
    pub(super) node: Node,
    /// Pieces that are not written yet.
    pub(super) left: AtomicUsize,
    /// Whether a piece cannot be had.
    pub(super) failed: AtomicBool,
    /// Whether it was made already: it has several pieces.
    pub(super) is_made: bool,
}

/// A piece of a file, or of a device.
pub(super) struct Want {
    pub(super) entry: Entry,
    pub(super) target: Target,
    pub(super) offset: u64,
}

/// A part of a pack, and what is in it.
pub(super) struct Part {
    pub(super) pack: Id,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) wants: Vec<Want>,
}

/// A second name of a file.
struct Link {
    of: Box<[u8]>,
    path: Box<[u8]>,
}

/// What walks.
pub(super) struct Planner<'a> {
    run: &'a Run,
    trees: &'a Trees,
    wants: Vec<Want>,
    waiting: usize,
    /// Files with several links, by inode and device: the first that came.
    linked: HashMap<(u64, u64), Box<[u8]>>,
    /// Links to make when all files are there.
    links: Vec<Link>,
    /// Folders, whose times and modes come last.
    folders: Vec<(Box<[u8]>, Node)>,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// A folder that is being walked.
struct Level {
    fd: OwnedFd,
    path: Vec<u8>,
    nodes: std::vec::IntoIter<Node>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(run: &'a Run, trees: &'a Trees) -> Self {
        Self {
            run,
            trees,
            wants: Vec::new(),
            waiting: 0,
            linked: HashMap::new(),
            links: Vec::new(),
            folders: Vec::new(),
            files: 0,
            bytes: 0,
        }
    }

    /// Walks all trees and hands out all parts.
    pub(super) fn walk(&mut self, tree: Id, parts: &Sender<Part>) -> Result<()> {
        let top = place::open_folder(&self.run.root, b"");
        let top = top.map_err(|error| failed("open", b".", error))?;
        let mut levels = vec![self.level(top, Vec::new(), &tree)?];
        while let Some(level) = levels.last_mut() {
            if self.run.stop.is_stopped() {
                return Ok(());
            }
            let Some(node) = level.nodes.next() else {
                levels.pop();
                continue;
            };
            let path = join(&level.path, &node.name);
            match node.kind {
                Kind::Dir => {
                    let below = self.folder(&level.fd, path, node)?;
                    levels.extend(below);
                }
                Kind::File => self.file(path, node)?,
                Kind::Socket | Kind::Irregular => {}
                _ => self.special(&level.fd, &path, &node)?,
            }
            if self.waiting >= FILES || self.wants.len() >= WANTS {
                self.waiting = 0;
                hand_out(self.run, std::mem::take(&mut self.wants), parts);
            }
        }
        hand_out(self.run, std::mem::take(&mut self.wants), parts);
        Ok(())
    }

    fn level(&self, fd: OwnedFd, path: Vec<u8>, tree: &Id) -> Result<Level> {
        let nodes = self.run.handle.block_on(self.trees.read(tree))?;
        if self.run.delete_extra {
            self.remove_extra(&fd, &path, &nodes);
        }
        Ok(Level {
            fd,
            path,
            nodes: nodes.into_iter(),
        })
    }

    fn remove_extra(&self, fd: &OwnedFd, path: &[u8], nodes: &[Node]) {
        let Ok(entries) = Dir::read_from(fd) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            let is_kept = nodes.iter().any(|node| *node.name == *name);
            if is_kept || matches!(name, b"." | b"..") {
                continue;
            }
            if let Err(error) = place::remove(fd, name) {
                let why = format!("it cannot be removed: {error}");
                self.run.problems.add(&join(path, name), why);
            }
        }
    }

    fn folder(&mut self, above: &OwnedFd, path: Vec<u8>, node: Node) -> Result<Option<Level>> {
        let fd = match place::folder(above, &node.name) {
            Ok(fd) => fd,
            Err(error) => {
                self.run.cannot("make", &path, error)?;
                return Ok(None);
            }
        };
        let tree = node.subtree;
        self.folders.push((path.clone().into(), node));
        let Some(tree) = tree else {
            return Ok(None);
        };
        match self.level(fd, path.clone(), &tree) {
            Ok(level) => Ok(Some(level)),
            Err(error @ Error::Damaged { .. }) => {
                self.run.problems.add(&path, error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn special(&self, above: &OwnedFd, path: &[u8], node: &Node) -> Result<()> {
        if let Err(error) = place::special(above, node) {
            return self.run.cannot("make", path, error);
        }
        let unset = place::settle_special(above, node, self.run.is_root);
        self.run.unset(path, unset);
        Ok(())
    }

    fn file(&mut self, path: Vec<u8>, node: Node) -> Result<()> {
        self.files += 1;
        if node.links > 1 && node.device_id != 0 {
            let key = (node.inode, node.device_id);
            if let Some(first) = self.linked.get(&key) {
                self.links.push(Link {
                    of: first.clone(),
                    path: path.into(),
                });
                self.bytes += node.size;
                self.run.progress.more(node.size);
                return Ok(());
            }
            self.linked.insert(key, path.clone().into());
        }
        self.bytes += node.size;
        let run = self.run;
        let find = |id: &Id| run.index.find(Blob::Data, id).copied();
        let pieces: Option<Vec<Entry>> = node.content.iter().map(find).collect();
        let Some(pieces) = pieces else {
            run.problems
                .add(&path, "a piece of it is in no index of the repository");
            return Ok(());
        };
        let size: u64 = pieces.iter().map(Entry::size).sum();
        if size != node.size {
            let why = format!("its pieces have {size} bytes instead of {}", node.size);
            run.problems.add(&path, why);
            return Ok(());
        }
        if pieces.len() != 1 {
            self.make(&path, &node)?;
        }
        self.want(path, node, pieces);
        Ok(())
    }

    /// Makes a file that does not come in one piece.
    fn make(&self, path: &[u8], node: &Node) -> Result<()> {
        let made = place::create(&self.run.root, path).and_then(|fd| {
            ftruncate(&fd, node.size)?;
            Ok(fd)
        });
        match made {
            Ok(fd) if node.content.is_empty() => self.run.settle(&fd, path, node),
            Ok(_) => Ok(()),
            Err(error) => self.run.cannot("make", path, error),
        }
    }

    fn want(&mut self, path: Vec<u8>, node: Node, pieces: Vec<Entry>) {
        let target = Arc::new(Unfinished {
            path: path.into(),
            node,
            left: AtomicUsize::new(pieces.len()),
            failed: AtomicBool::new(false),
            is_made: pieces.len() != 1,
        });
        let mut offset = 0;
        for entry in pieces {
            let size = entry.size();
            self.wants.push(Want {
                entry,
                target: Target::File(Arc::clone(&target)),
                offset,
            });
            offset += size;
        }
        self.waiting += 1;
    }

    /// When all files are there: further names, and what is said of folders.
    pub(super) fn finish(&mut self) {
        let run = self.run;
        for Link { of, path } in &self.links {
            if let Err(error) = place::link(&run.root, of, path) {
                run.problems
                    .add(path, format!("it cannot be linked: {error}"));
            }
        }
        for (path, node) in self.folders.iter().rev() {
            match place::open_folder(&run.root, path) {
                Ok(fd) => run.unset(path, place::settle(fd.as_fd(), node, run.is_root)),
                Err(error) => run.problems.add(path, error),
            }
        }
    }
}

/// Sorts what is wanted by pack, and hands it out in parts.
pub(super) fn hand_out(run: &Run, mut wants: Vec<Want>, parts: &Sender<Part>) {
    wants.sort_unstable_by_key(|want| (want.entry.pack(), want.entry.offset, want.offset));
    let mut wants = wants.into_iter().peekable();
    while let Some(first) = wants.next() {
        let (pack, offset) = (first.entry.pack(), first.entry.offset);
        let mut end = offset + first.entry.length;
        let mut part = vec![first];
        while let Some(next) = wants.next_if(|next| {
            let entry = &next.entry;
            let is_near = entry.pack() == pack && entry.offset <= end.saturating_add(GAP);
            let to = end.max(entry.offset.saturating_add(entry.length));
            // The same piece again costs nothing.
            let is_small = (to - offset) as usize <= PART && part.len() < PIECES;
            is_near && (is_small || entry.offset < end)
        }) {
            end = end.max(next.entry.offset + next.entry.length);
            part.push(next);
        }
        let part = Part {
            pack: run.index.packs[pack],
            offset,
            length: end - offset,
            wants: part,
        };
        // Nobody is there to take it only when an error has ended them all.
        if parts.send(part).is_err() {
            return;
        }
    }
}

impl Run {
    /// Something could not be made. What concerns the volume as a whole ends it all; the rest is a
    /// problem of that file.
    pub(super) fn cannot(&self, action: &'static str, path: &[u8], error: Errno) -> Result<()> {
        let is_volume = matches!(
            error,
            Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO | Errno::MFILE | Errno::NFILE
        );
        if is_volume {
            return Err(failed(action, path, error));
        }
        self.problems
            .add(path, format!("it cannot be written: {error}"));
        Ok(())
    }

    /// The last of a file: its size is checked, and what is said of it is set.
    pub(super) fn settle(&self, fd: &OwnedFd, path: &[u8], node: &Node) -> Result<()> {
        let fd = fd.as_fd();
        match place::has_size(fd, node.size) {
            Ok(true) => {}
            Ok(false) => self.problems.add(path, "it is not as long as it should be"),
            Err(error) => return self.cannot("look at", path, error),
        }
        self.unset(path, place::settle(fd, node, self.is_root));
        Ok(())
    }

    fn unset(&self, path: &[u8], unset: place::Unset) {
        if let Some(why) = unset.problem {
            self.problems.add(path, why);
        }
        if let Some(why) = unset.remark {
            self.remarks.add(path, why);
        }
    }
}

fn failed(action: &'static str, path: &[u8], error: Errno) -> Error {
    Error::File {
        action,
        path: String::from_utf8_lossy(path).into_owned(),
        source: error.into(),
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
