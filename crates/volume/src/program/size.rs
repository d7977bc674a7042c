//! How much is in a folder.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;

/// The sizes of all files below a folder; several names of one file count once, and what cannot be
/// looked at does not count. Sparse files count by what is on the disk: they have their full size
/// from the beginning. None when `stop` came first.
pub(super) fn of(folder: &Path, sparse: bool, stop: &CancellationToken) -> Option<u64> {
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    let mut linked = HashSet::new();
    let mut sum = 0;
    while let Some(folder) = folders.pop() {
        if stop.is_cancelled() {
            return None;
        }
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file()
                && (metadata.nlink() == 1 || linked.insert((metadata.dev(), metadata.ino())))
            {
                sum += match sparse {
                    true => metadata.len().min(metadata.blocks() * 512),
                    false => metadata.len(),
                };
            }
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_once_and_links_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/ten"), b"0123456789").unwrap();
        fs::hard_link(path("a/b/ten"), path("again")).unwrap();
        std::os::unix::fs::symlink("a/b/ten", path("link")).unwrap();
        std::os::unix::fs::symlink(".", path("a/loop")).unwrap();
        let holes = fs::File::create(path("holes")).unwrap();
        holes.set_len(1 << 30).unwrap();
        let stop = CancellationToken::new();
        assert_eq!(of(folder.path(), false, &stop), Some((1 << 30) + 10));
        assert!(of(folder.path(), true, &stop).unwrap() <= 10);
        assert_eq!(of(&path("nowhere"), false, &stop), Some(0));
        stop.cancel();
        assert_eq!(of(folder.path(), false, &stop), None);
    }
}
