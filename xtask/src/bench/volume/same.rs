//! Whether a restored tree is the one that was copied: names, sizes, modes, times, bytes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, anyhow, bail, ensure};

/// Compares two trees, with the times of files or without; gives their bytes.
pub(in crate::bench) fn same(left: &Path, right: &Path, times: bool) -> anyhow::Result<u64> {
    let (mut these, mut those) = (BTreeMap::new(), BTreeMap::new());
    walk(left, left, &mut these)?;
    walk(right, right, &mut those)?;
    for path in these.keys().chain(those.keys()) {
        let both = these.contains_key(path) && those.contains_key(path);
        ensure!(both, "{} is in one tree only", path.display());
    }
    let files: Vec<&PathBuf> = these
        .iter()
        .filter(|(_, entry)| entry.is_file())
        .map(|(path, _)| path)
        .collect();
    for (path, entry) in &these {
        let other = &those[path];
        let facts = |entry: &fs::Metadata| {
            let time = (times && entry.is_file()).then(|| (entry.mtime(), entry.mtime_nsec()));
            let size = entry.is_file().then(|| entry.size());
            (entry.mode(), size, time)
        };
        let (this, that) = (facts(entry), facts(other));
        ensure!(
            this == that,
            "{} differs: {this:?}, {that:?}",
            path.display()
        );
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = files.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = files
            .chunks(part)
            .map(|files| scope.spawn(|| bytes(left, right, files)))
            .collect();
        let each = parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|_| Err(anyhow!("panicked"))));
        each.sum()
    })
}

fn walk(
    top: &Path,
    folder: &Path,
    found: &mut BTreeMap<PathBuf, fs::Metadata>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            walk(top, &path, found)?;
        }
        found.insert(path.strip_prefix(top)?.to_owned(), metadata);
    }
    Ok(())
}

fn bytes(left: &Path, right: &Path, files: &[&PathBuf]) -> anyhow::Result<u64> {
    let mut total = 0;
    let (mut this, mut that) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for file in files {
        let (mut one, mut two) = (File::open(left.join(file))?, File::open(right.join(file))?);
        loop {
            let read = fill(&mut one, &mut this)?;
            if fill(&mut two, &mut that)? != read || this[..read] != that[..read] {
                bail!("{} differs", file.display());
            }
            total += read as u64;
            if read == 0 {
                break;
            }
        }
    }
    Ok(total)
}

fn fill(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read(&mut buffer[have..])? {
            0 => break,
            read => have += read,
        }
    }
    Ok(have)
}
