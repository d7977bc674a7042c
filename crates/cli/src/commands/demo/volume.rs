//! What is in the demo's volume: orders of a shop, 200 MB of them, and what they add up to.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ring::{
    digest::{Context, SHA256},
    rand::{SecureRandom, SystemRandom},
};

/// Receipts, which do not compress: how many, and how large.
const RECEIPTS: (usize, usize) = (100, 3 << 19);
/// Days of orders, which do.
const DAYS: (usize, usize) = (400, 128 << 10);

/// A volume's files, bytes, and a digest of all names and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) files: u64,
    pub(super) bytes: u64,
    digest: Vec<u8>,
}

/// Fills the volume.
pub(super) fn fill(root: &Path) -> io::Result<()> {
    let random = SystemRandom::new();
    fs::create_dir_all(root.join("receipts"))?;
    let mut receipt = vec![0; RECEIPTS.1];
    for number in 0..RECEIPTS.0 {
        random.fill(&mut receipt).map_err(io::Error::other)?;
        fs::write(root.join(format!("receipts/{number:03}.pdf")), &receipt)?;
    }
    for day in 0..DAYS.0 {
        let folder = root.join(format!("orders/{}", 2024 + day / 365));
        fs::create_dir_all(&folder)?;
        let line = format!("day {day}, customer 4711, 2 × bowline, 12.50 EUR\n");
        let orders = line.repeat(DAYS.1 / line.len());
        fs::write(folder.join(format!("{:03}.csv", day % 365)), orders)?;
    }
    Ok(())
}

/// Adds up what is there.
pub(super) fn sum(root: &Path) -> io::Result<Sum> {
    let mut files = Vec::new();
    list(root, &mut files)?;
    files.sort();
    let mut context = Context::new(&SHA256);
    let mut bytes = 0;
    for file in &files {
        let contents = fs::read(file)?;
        let name = file.strip_prefix(root).unwrap_or(file);
        context.update(name.as_os_str().as_encoded_bytes());
        context.update(&contents);
        bytes += contents.len() as u64;
    }
    Ok(Sum {
        files: files.len() as u64,
        bytes,
        digest: context.finish().as_ref().to_vec(),
    })
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_and_a_changed_name_show() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), b"one").unwrap();
        let before = sum(dir.path()).unwrap();
        assert_eq!((before.files, before.bytes), (1, 3));
        fs::write(dir.path().join("a/b"), b"two").unwrap();
        assert_ne!(sum(dir.path()).unwrap(), before);
        fs::write(dir.path().join("a/b"), b"one").unwrap();
        assert_eq!(sum(dir.path()).unwrap(), before);
        fs::rename(dir.path().join("a/b"), dir.path().join("a/c")).unwrap();
        assert_ne!(sum(dir.path()).unwrap(), before);
    }
}
