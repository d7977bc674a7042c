//! Folders whose entries are on their way. The last entry that comes writes the tree, and brings
//! the folder as an entry to the one above, and so on up.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::{
    super::{
        id::Id,
        save::{Desk, lock},
        tree::{self, Node},
    },
    Run,
};
use crate::Result;

/// The tree of the top folder, when it is known.
#[derive(Default)]
pub(super) struct Root(Mutex<Option<Id>>);

impl Root {
    pub(super) fn take(&self) -> Option<Id> {
        lock(&self.0).take()
    }
}

/// A folder whose entries are on their way.
pub(super) struct Folder<'a> {
    above: Above<'a>,
    /// Its entries by number; those that turn out to be gone stay empty.
    entries: Mutex<Vec<Option<Node>>>,
    /// Entries that are not known yet, and one for the walk itself.
    open: AtomicUsize,
    /// Whether something is not as in the old tree.
    changed: AtomicBool,
    /// The tree of the snapshot before, and how many entries it had.
    old: Option<(Id, usize)>,
}

/// Where a folder belongs.
pub(super) enum Above<'a> {
    Root(&'a Root),
    /// An entry of another, and its node but for the tree.
    Folder(Arc<Folder<'a>>, usize, Mutex<Option<Box<Node>>>),
}

impl<'a> Folder<'a> {
    pub(super) fn new(above: Above<'a>, old: Option<(Id, usize)>) -> Arc<Self> {
        Arc::new(Self {
            above,
            entries: Mutex::default(),
            open: AtomicUsize::new(1),
            changed: AtomicBool::new(false),
            old,
        })
    }

    /// Room for one more entry, whose node comes later; entries come in the order of their names.
    pub(super) fn expect(&self) -> usize {
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        entries.push(None);
        entries.len() - 1
    }

    /// An entry that is as it was.
    pub(super) fn same(&self, node: Node) {
        lock(&self.entries).push(Some(node));
    }

    /// An entry that is not as it was.
    pub(super) fn changed(&self, node: Node) {
        self.mark_changed();
        lock(&self.entries).push(Some(node));
    }

    /// Something is not as it was.
    pub(super) fn mark_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Brings an entry that was expected; none when it is gone or cannot be read. Writes the tree
    /// if it was the last.
    pub(super) fn bring(
        self: &Arc<Self>,
        run: &Run,
        at: usize,
        node: Option<Node>,
        is_same: bool,
        desk: &mut Desk,
    ) -> Result<()> {
        lock(&self.entries)[at] = node;
        if !is_same {
            self.changed.store(true, Ordering::Relaxed);
        }
        self.close(run, desk)
    }

    /// One less to wait for.
    pub(super) fn close(self: &Arc<Self>, run: &Run, desk: &mut Desk) -> Result<()> {
        let mut folder = Arc::clone(self);
        loop {
            if folder.open.fetch_sub(1, Ordering::AcqRel) != 1 {
                return Ok(());
            }
            let (tree, is_same) = folder.write(run, desk)?;
            let (above, at, node) = match &folder.above {
                Above::Root(root) => {
                    *lock(&root.0) = tree;
                    return Ok(());
                }
                Above::Folder(above, at, node) => (Arc::clone(above), *at, lock(node).take()),
            };
            let node = node.map(|mut node| {
                node.subtree = tree;
                *node
            });
            lock(&above.entries)[at] = node;
            if !is_same {
                above.changed.store(true, Ordering::Relaxed);
            }
            folder = above;
        }
    }

    /// The tree, and whether it is the old one. None for a top folder with nothing in it.
    fn write(&self, run: &Run, desk: &mut Desk) -> Result<(Option<Id>, bool)> {
        let nodes = std::mem::take(&mut *lock(&self.entries));
        let count = nodes.iter().flatten().count();
        let is_root = matches!(self.above, Above::Root(_));
        if is_root && count == 0 {
            return Ok((None, false));
        }
        let counts = &run.counts;
        if let Some((old, entries)) = self.old {
            if entries == count && !self.changed.load(Ordering::Relaxed) {
                counts.dirs_same.fetch_add(1, Ordering::Relaxed);
                return Ok((Some(old), true));
            }
            counts.dirs_changed.fetch_add(1, Ordering::Relaxed);
        } else {
            counts.dirs_new.fetch_add(1, Ordering::Relaxed);
        }
        let text = tree::write(nodes.iter().flatten());
        drop(nodes);
        let tree = run.saver.save_tree(&text, desk)?;
        Ok((Some(tree), false))
    }
}
