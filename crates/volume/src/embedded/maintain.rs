//! Maintenance: what no snapshot needs goes.
//!
//! Decided is first, over the index alone; then what is still needed of packs that go is copied,
//! the index is written anew, and only then is anything removed. A crash in between leaves more than
//! is needed, never less.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use super::{
    Repository,
    blobs::{Opener, Trees},
    files::{File, Files},
    id::Id,
    index::{self, Blob, Index, Pack, Placed},
    lock::{LOST_IT, Lock},
    pack,
    save::Saver,
    snapshot::Snapshot,
    stop::{Stop, StopOnDrop},
    tree::Kind,
};
use crate::{Error, Result};

/// The part of all data that may stay though nobody needs it: copying it would cost more.
const WASTE: f64 = 0.05;
/// Packs smaller than this are put together, when there are many.
const SMALL: u64 = pack::FULL as u64 / 4;
const MANY: usize = 16;

/// What maintenance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Bytes of packs that were removed.
    pub freed: u64,
    /// Bytes of packs that are left.
    pub kept: u64,
}

/// What becomes of packs; numbers are those of the index.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    keep: Vec<usize>,
    /// What is needed of these is copied to new ones.
    copy: Vec<usize>,
    remove: Vec<usize>,
}

/// A pack: its bytes, and how many of them are needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    total: u64,
    used: u64,
}

pub(super) async fn run(repository: &Repository, cancel: &CancellationToken) -> Result<Maintained> {
    let files = &repository.files;
    let lock = Lock::exclusive(files, &repository.identity).await?;
    let lost = lock.lost.clone();
    let maintained = tokio::select! {
        maintained = maintain(repository) => maintained,
        () = cancel.cancelled() => Err(Error::Cancelled),
        () = lost.cancelled() => Err(Error::Locked(LOST_IT.to_owned())),
    };
    lock.release().await;
    maintained
}

async fn maintain(repository: &Repository) -> Result<Maintained> {
    let files = &repository.files;
    let index = Arc::new(Index::read(files).await?);
    let there: HashMap<Id, u64> = files.place.list(File::Pack).await?.into_iter().collect();
    let needed = needed(files, &index).await?;
    let chosen = choose(&index, &needed)?;
    let mut uses = uses(&index, &chosen);
    for (number, pack) in index.packs.iter().enumerate() {
        match there.get(pack) {
            Some(size) => uses[number].total = *size,
            None if uses[number].used > 0 => {
                return Err(File::Pack.damaged(pack, "it is missing"));
            }
            None => uses[number] = Use::default(),
        }
    }
    let plan = decide(&uses);
    let indexed: HashSet<Id> = index.packs.iter().copied().collect();
    let strays: Vec<Id> = there
        .keys()
        .filter(|id| !indexed.contains(id))
        .copied()
        .collect();
    let is_idle = plan.copy.is_empty() && plan.remove.is_empty();
    if !is_idle {
        copy(repository, &index, &chosen, &plan.copy).await?;
        rewrite(files, &index, &plan.keep).await?;
    }
    let gone = plan.copy.iter().chain(&plan.remove);
    let gone: Vec<Id> = gone
        .map(|number| index.packs[*number])
        .chain(strays)
        .collect();
    for pack in &gone {
        files.place.remove(File::Pack, pack).await?;
    }
    let size = |id: &Id| there.get(id).copied().unwrap_or_default();
    let copied: u64 = plan.copy.iter().map(|number| uses[*number].used).sum();
    let freed: u64 = gone.iter().map(size).sum();
    Ok(Maintained {
        freed: freed.saturating_sub(copied),
        kept: (there.values().sum::<u64>() + copied).saturating_sub(freed),
    })
}

/// All blobs that snapshots need. Anything that cannot be read ends it: nothing is removed then.
async fn needed(files: &Files, index: &Arc<Index>) -> Result<HashSet<(Blob, Id)>> {
    let trees = Trees::new(files, index);
    let mut needed = HashSet::new();
    let mut folders = Vec::new();
    for (id, _) in files.place.list(File::Snapshot).await? {
        if let Some(snapshot) = Snapshot::read(files, id).await? {
            folders.push(snapshot.tree);
        }
    }
    while let Some(folder) = folders.pop() {
        if !needed.insert((Blob::Tree, folder)) {
            continue;
        }
        for node in trees.read(&folder).await? {
            if node.kind == Kind::File {
                needed.extend(node.content.iter().map(|id| (Blob::Data, *id)));
            }
            folders.extend(node.subtree);
        }
    }
    Ok(needed)
}

/// For each place in the index whether it is needed. Of a blob with several places one is.
fn choose(index: &Index, needed: &HashSet<(Blob, Id)>) -> Result<Vec<bool>> {
    let mut chosen = Vec::with_capacity(index.entries().len());
    let mut found = 0;
    let mut last = None;
    for entry in index.entries() {
        let key = (entry.blob(), entry.id);
        let is_needed = last != Some(key) && needed.contains(&key);
        found += usize::from(is_needed);
        if is_needed {
            last = Some(key);
        }
        chosen.push(is_needed);
    }
    if found == needed.len() {
        return Ok(chosen);
    }
    let missing = needed
        .iter()
        .find(|(blob, id)| index.find(*blob, id).is_none());
    Err(Error::Damaged {
        file: missing.map_or_else(String::new, |(_, id)| format!("blob {}", id.short())),
        reason: "a snapshot needs it and no index knows it".to_owned(),
    })
}

fn uses(index: &Index, chosen: &[bool]) -> Vec<Use> {
    let mut uses = vec![Use::default(); index.packs.len()];
    for (entry, is_chosen) in index.entries().iter().zip(chosen) {
        let pack = &mut uses[entry.pack()];
        pack.total += u64::from(entry.length);
        if *is_chosen {
            pack.used += u64::from(entry.length);
        }
    }
    uses
}

/// Decides by how much of each pack is needed.
fn decide(uses: &[Use]) -> Plan {
    let mut plan = Plan::default();
    let used: u64 = uses.iter().map(|pack| pack.used).sum();
    let waste = |pack: &Use| pack.total.saturating_sub(pack.used);
    let (mut partly, mut small) = (Vec::new(), Vec::new());
    for (number, pack) in uses.iter().enumerate() {
        match pack.used {
            0 => plan.remove.push(number),
            _ if pack.total < SMALL => small.push(number),
            _ => partly.push(number),
        }
    }
    if small.len() >= MANY {
        plan.copy.append(&mut small);
    }
    partly.append(&mut small);
    // The most wasteful first, until what is wasted is little.
    let share = |number: usize| waste(&uses[number]) as f64 / uses[number].total.max(1) as f64;
    partly.sort_by(|a, b| share(*b).total_cmp(&share(*a)).then(a.cmp(b)));
    let mut wasted: u64 = partly.iter().map(|number| waste(&uses[*number])).sum();
    let allowed = (used as f64 * WASTE) as u64;
    for number in partly {
        // A header is no waste, and there is always one.
        if wasted > allowed && share(number) > WASTE {
            wasted -= waste(&uses[number]);
            plan.copy.push(number);
        } else {
            plan.keep.push(number);
        }
    }
    plan.copy.sort_unstable();
    plan.keep.sort_unstable();
    plan
}

/// Copies what is needed of packs that go.
async fn copy(
    repository: &Repository,
    index: &Arc<Index>,
    chosen: &[bool],
    packs: &[usize],
) -> Result<()> {
    if packs.is_empty() {
        return Ok(());
    }
    let going: HashSet<usize> = packs.iter().copied().collect();
    let entries = index.entries().iter().zip(chosen);
    let mut wanted: Vec<_> = entries
        .filter(|(entry, is_chosen)| **is_chosen && going.contains(&entry.pack()))
        .map(|(entry, _)| *entry)
        .collect();
    wanted.sort_unstable_by_key(|entry| (entry.pack(), entry.offset));
    let stop = Arc::new(Stop::default());
    let _ending = StopOnDrop(Arc::clone(&stop));
    let saver = Saver::new(
        &repository.files,
        &Arc::default(),
        &stop,
        2,
        &Arc::default(),
    );
    let (files, index) = (repository.files.clone(), Arc::clone(index));
    let copying = tokio::task::spawn_blocking(move || {
        let handle = tokio::runtime::Handle::current();
        let mut opener = Opener::new()?;
        for entry in wanted {
            if stop.is_stopped() {
                return stop.check();
            }
            let pack = &index.packs[entry.pack()];
            let part = files
                .place
                .part(pack, entry.offset.into(), entry.length.into());
            let sealed = handle.block_on(part)?;
            // A damaged blob must not get a new home.
            let opened = opener
                .open(&files.key, &entry, &mut sealed.to_vec())
                .map(drop);
            opened.map_err(|reason| File::Pack.damaged(pack, reason))?;
            saver.copy(&entry, &sealed)?;
        }
        saver.finish()
    });
    copying.await?
}

/// Writes the index of the packs that stay, and removes the one before.
async fn rewrite(files: &Files, index: &Index, keep: &[usize]) -> Result<()> {
    let mut packs: HashMap<usize, Pack> = keep
        .iter()
        .map(|number| {
            let id = index.packs[*number];
            (
                *number,
                Pack {
                    id,
                    blobs: Vec::new(),
                },
            )
        })
        .collect();
    for entry in index.entries() {
        if let Some(pack) = packs.get_mut(&entry.pack()) {
            pack.blobs.push(Placed {
                id: entry.id,
                blob: entry.blob(),
                offset: entry.offset,
                length: entry.length,
                raw: entry.raw,
            });
        }
    }
    let mut batch = Vec::new();
    let mut blobs = 0;
    for number in keep {
        let Some(mut pack) = packs.remove(number) else {
            continue;
        };
        pack.blobs.sort_unstable_by_key(|blob| blob.offset);
        blobs += pack.blobs.len();
        batch.push(pack);
        if blobs >= index::FULL {
            files.write(File::Index, &index::write(&batch)).await?;
            (batch, blobs) = (Vec::new(), 0);
        }
    }
    if !batch.is_empty() {
        files.write(File::Index, &index::write(&batch)).await?;
    }
    for id in &index.files {
        files.place.remove(File::Index, id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn plan(packs: &[(u64, u64)]) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let uses: Vec<_> = packs
            .iter()
            .map(|(total, used)| Use {
                total: total * MB,
                used: used * MB,
            })
            .collect();
        let plan = decide(&uses);
        (plan.keep, plan.copy, plan.remove)
    }

    #[test]
    fn packs_nobody_needs_go_and_little_waste_stays() {
        assert_eq!(
            plan(&[(16, 16), (16, 0), (0, 0)]),
            (vec![0], vec![], vec![1, 2])
        );
        // One of sixteen in a hundred is less than a twentieth.
        let mut packs = vec![(16, 16); 20];
        packs.push((16, 8));
        assert_eq!(plan(&packs).1, Vec::<usize>::new());
        // The most wasteful first.
        assert_eq!(
            plan(&[(16, 15), (16, 2), (16, 8)]),
            (vec![0], vec![1, 2], vec![])
        );
    }

    #[test]
    fn many_small_packs_become_few() {
        assert_eq!(plan(&[(1, 1); 15]).1, Vec::<usize>::new());
        assert_eq!(plan(&[(1, 1); 16]).1.len(), 16);
    }
}
