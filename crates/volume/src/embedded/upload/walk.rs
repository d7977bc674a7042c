//! The walk through the folder that is copied, in the order of names.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, atomic::Ordering},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, Stat, openat, readlinkat, statat},
    io::Errno,
};

use super::{
    super::{
        blobs::Trees,
        id::Id,
        index::Blob,
        save::Desk,
        tree::{Kind, Node},
    },
    Run,
    file::{Job, Pool, Slot, Source},
    folder::{Above, Folder, Root},
    stat,
};
use crate::{Error, Result};

/// What walks.
pub(super) struct Walker<'a, 'pool> {
    run: &'a Run,
    pool: &'pool Pool<'a>,
    trees: &'a Trees,
    root: &'a Root,
    handle: tokio::runtime::Handle,
}

/// A folder that is being walked.
struct Level<'a> {
    folder: Arc<Folder<'a>>,
    fd: Arc<OwnedFd>,
    path: Arc<[u8]>,
    names: std::vec::IntoIter<CString>,
    /// The same folder in the snapshot before, by name.
    old: std::iter::Peekable<std::vec::IntoIter<Node>>,
}

impl<'a, 'pool> Walker<'a, 'pool> {
    pub(super) fn new(
        run: &'a Run,
        pool: &'pool Pool<'a>,
        trees: &'a Trees,
        root: &'a Root,
    ) -> Self {
        Self {
            run,
            pool,
            trees,
            root,
            handle: tokio::runtime::Handle::current(),
        }
    }

    /// Walks it all. Folders that are deep cost memory here, not stack.
    pub(super) fn walk(&self, source: &OwnedFd, old: Option<Id>) -> Result<()> {
        let mut desk = Desk::new()?;
        let top = openat(source, c".", FOLDER, Mode::empty()).map_err(|e| unreadable(b".", e))?;
        let names = list(&top).map_err(|e| unreadable(b".", e))?;
        let above = Above::Root(self.root);
        let mut levels = vec![self.level(above, top, Arc::from(&b""[..]), names, old)];
        while let Some(level) = levels.last_mut() {
            if self.run.stop.is_stopped() {
                return Ok(());
            }
            match level.names.next() {
                Some(name) => {
                    let below = self.entry(level, &name);
                    levels.extend(below);
                }
                None => {
                    level.folder.close(self.run, &mut desk)?;
                    levels.pop();
                }
            }
        }
        Ok(())
    }

    fn level(
        &self,
        above: Above<'a>,
        fd: OwnedFd,
        path: Arc<[u8]>,
        names: Vec<CString>,
        old: Option<Id>,
    ) -> Level<'a> {
        // An old tree that cannot be read any more costs time, and is not our concern here.
        let old = old.and_then(|id| {
            let nodes = self.handle.block_on(self.trees.read(&id)).ok()?;
            Some((id, nodes))
        });
        let known = old.as_ref().map(|(id, nodes)| (*id, nodes.len()));
        let nodes = old.map(|(_, nodes)| nodes).unwrap_or_default();
        Level {
            folder: Folder::new(above, known),
            fd: Arc::new(fd),
            path,
            names: names.into_iter(),
            old: nodes.into_iter().peekable(),
        }
    }

    /// One entry; the level below if it is a folder.
    fn entry(&self, level: &mut Level<'a>, name: &CStr) -> Option<Level<'a>> {
        let path = join(&level.path, name);
        let old = take_old(&mut level.old, name.to_bytes());
        let found = match statat(&level.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(error) => {
                self.run.leave_out(&path, error);
                level.folder.mark_changed();
                return None;
            }
        };
        match stat::kind(&found) {
            Kind::Dir => self.folder(level, name, path, &found, old),
            Kind::File => {
                self.file(level, name, path, &found, old);
                None
            }
            // What a socket is for does not outlive its process.
            Kind::Socket | Kind::Irregular => None,
            _ => {
                self.special(level, name, &path, &found, old);
                None
            }
        }
    }

    fn folder(
        &self,
        level: &Level<'a>,
        name: &CStr,
        path: Vec<u8>,
        found: &Stat,
        old: Option<Node>,
    ) -> Option<Level<'a>> {
        let opened = openat(&level.fd, name, FOLDER, Mode::empty()).and_then(|fd| {
            let names = list(&fd)?;
            Ok((fd, names))
        });
        let (fd, names) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.run.leave_out(&path, error);
                level.folder.mark_changed();
                return None;
            }
        };
        let old_tree = old.as_ref().and_then(|old| old.subtree);
        let node = match old.filter(|old| stat::is_same(old, found, self.run.settled)) {
            Some(old) => old,
            None => {
                level.folder.mark_changed();
                let mut node = stat::node(name.to_bytes(), found);
                match stat::attributes(fd.as_fd()) {
                    Ok(attributes) => node.attributes = attributes,
                    Err(error) => self.run.unreadable.add(&path, attributes_unread(error)),
                }
                node
            }
        };
        let at = level.folder.expect();
        let above = Above::Folder(
            Arc::clone(&level.folder),
            at,
            Mutex::new(Some(Box::new(node))),
        );
        Some(self.level(above, fd, path.into(), names, old_tree))
    }

    fn file(&self, level: &Level<'a>, name: &CStr, path: Vec<u8>, found: &Stat, old: Option<Node>) {
        let run = self.run;
        let is_known = old.is_some();
        if let Some(old) =
            old.filter(|old| stat::is_same(old, found, run.settled) && run.has_all(old))
        {
            run.counts.files_same.fetch_add(1, Ordering::Relaxed);
            run.took(old.size);
            run.progress.more(old.size);
            level.folder.same(old);
            return;
        }
        let count = if is_known {
            &run.counts.files_changed
        } else {
            &run.counts.files_new
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.pool.send(Job {
            slot: Slot {
                folder: Arc::clone(&level.folder),
                at: level.folder.expect(),
                path: path.into(),
            },
            source: Source::Entry(Arc::clone(&level.fd), name.to_owned()),
        });
    }

    /// Links, devices, pipes.
    fn special(
        &self,
        level: &Level<'a>,
        name: &CStr,
        path: &[u8],
        found: &Stat,
        old: Option<Node>,
    ) {
        if let Some(old) = old.filter(|old| stat::is_same(old, found, self.run.settled)) {
            level.folder.same(old);
            return;
        }
        let mut node = stat::node(name.to_bytes(), found);
        if node.kind == Kind::Symlink {
            match readlinkat(&level.fd, name, Vec::new()) {
                Ok(target) => node.target = target.into_bytes(),
                Err(error) => {
                    self.run.leave_out(path, error);
                    level.folder.mark_changed();
                    return;
                }
            }
        }
        match stat::attributes_at(&level.fd, name) {
            Ok(attributes) => node.attributes = attributes,
            // Links and devices seldom may have any; not to be let look is as good as none.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => {}
            Err(error) => self.run.unreadable.add(path, attributes_unread(error)),
        }
        level.folder.changed(node);
    }
}

impl Run {
    /// Notes something that is not there any more, or cannot be read.
    pub(super) fn leave_out(&self, path: &[u8], error: Errno) {
        if error == Errno::NOENT {
            self.remarks
                .add(path, "it was gone before it could be read");
        } else {
            self.unreadable.add(path, error);
        }
    }

    /// Whether all pieces of a file are in the repository.
    fn has_all(&self, node: &Node) -> bool {
        let has = |id: &Id| self.index.find(Blob::Data, id).is_some();
        node.content.iter().all(has)
    }

    /// Notes bytes that will be in the snapshot.
    pub(super) fn took(&self, bytes: u64) {
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The names in a folder, sorted.
fn list(fd: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn join(folder: &[u8], name: &CStr) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.to_bytes().len());
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    path
}

/// The entry of this name, from a folder in the order of names.
fn take_old(old: &mut std::iter::Peekable<std::vec::IntoIter<Node>>, name: &[u8]) -> Option<Node> {
    while old.peek().is_some_and(|node| *node.name < *name) {
        old.next();
    }
    old.next_if(|node| *node.name == *name)
}

fn unreadable(path: &[u8], error: Errno) -> Error {
    Error::File {
        action: "read",
        path: String::from_utf8_lossy(path).into_owned(),
        source: error.into(),
    }
}

pub(super) fn attributes_unread(error: Errno) -> String {
    format!("its attributes cannot be read: {error}")
}
