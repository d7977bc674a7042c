//! A tree of files with everything that a copy can get wrong, and what two trees differ in.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, File, FileTimes, Permissions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, llistxattr, lsetxattr, mknodat};
use sha2::{Digest, Sha256};

/// Bytes of a sparse file that are on the disk.
const ISLAND: usize = 4096;
/// Bytes of a sparse file in all.
const SEA: u64 = 12 << 20;

/// What is known of a file, except its path and its time of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `file`, `folder`, `link`, `pipe` and so on.
    pub kind: &'static str,
    /// The permissions, with the set-id and sticky bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// When it was written.
    pub time: (i64, i64),
    /// The digest of a file, or what a link points to.
    pub contents: String,
    /// How many names it has.
    pub names: u64,
    /// Attributes and their values.
    pub attributes: BTreeMap<String, Vec<u8>>,
}

/// Files by their path in the tree, as it is shown.
pub type Tree = BTreeMap<String, Entry>;

/// Fills a folder; needs root, since not every file is to be root's.
pub fn fill(folder: &Path) -> anyhow::Result<()> {
    fill_some(folder).with_context(|| format!("fill {}", folder.display()))
}

fn fill_some(folder: &Path) -> anyhow::Result<()> {
    let at = |name: &str| folder.join(name);
    // Contents of every size.
    fs::write(at("empty"), "")?;
    fs::write(at("line"), "a line\n")?;
    noise(&at("chunks"), 5 << 20, 1)?;
    noise(&at("chunks-again"), 5 << 20, 1)?;
    let mut sparse = File::create(at("sparse"))?;
    sparse.write_all(&[b'a'; ISLAND])?;
    sparse.seek(SeekFrom::Start(SEA - ISLAND as u64))?;
    sparse.write_all(&[b'z'; ISLAND])?;
    fs::create_dir(at("many"))?;
    for n in 0..300 {
        fs::write(at(&format!("many/{n}")), format!("file {n}\n").repeat(n))?;
    }
    // Folders.
    fs::create_dir_all(at("deep/er/and/deep/er"))?;
    fs::write(at("deep/er/and/deep/er/file"), "down here")?;
    fs::create_dir(at("bare"))?;
    // Names.
    fs::create_dir(at("names"))?;
    for name in [
        &b"with space"[..],
        b"new\nline",
        b"-dash",
        b"quote\"and\\slash",
        b"*",
        "ünïcødé ⚓".as_bytes(),
        b"not \xff utf-8 \xc3",
        &[b'n'; 255],
    ] {
        fs::write(at("names").join(OsStr::from_bytes(name)), name)?;
    }
    // Links.
    symlink("line", at("to-line"))?;
    symlink("nowhere/to/be/found", at("to-nothing"))?;
    symlink("/etc", at("to-outside"))?;
    symlink("many", at("to-folder"))?;
    fs::hard_link(at("chunks"), at("many/chunks-by-another-name"))?;
    fs::hard_link(at("line"), at("line-too"))?;
    mknodat(
        CWD,
        at("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )?;
    // Owners and modes, links' too.
    lchown(at("many/1"), Some(1000), Some(2000))?;
    lchown(at("many/2"), Some(65534), Some(65534))?;
    lchown(at("bare"), Some(1000), Some(1000))?;
    lchown(at("to-nothing"), Some(1000), Some(1000))?;
    for (name, mode) in [
        ("many/1", 0o600),
        ("many/2", 0o000),
        ("many/3", 0o4755),
        ("many/4", 0o2711),
        ("bare", 0o1777),
        ("deep/er", 0o2750),
        ("deep/er/and", 0o500),
    ] {
        fs::set_permissions(at(name), Permissions::from_mode(mode))?;
    }
    // Attributes, and rights of one more user (an ACL).
    set(&at("line"), "user.colour", b"red")?;
    set(&at("many/5"), "user.bytes", &[0, 255, 1, 254])?;
    set(&at("bare"), "user.of-a-folder", b"yes")?;
    set(&at("many/6"), "system.posix_acl_access", &ACL)?;
    // Times, to the nanosecond.
    let then = SystemTime::UNIX_EPOCH + Duration::new(981_173_106, 123_456_789);
    let times = FileTimes::new().set_modified(then);
    for name in ["line", "many/7", "sparse", "deep/er/and/deep"] {
        File::open(at(name))?.set_times(times)?;
    }
    Ok(())
}

/// `u::rw-,u:1000:r--,g::r--,m::r--,o::---` as Linux keeps it.
const ACL: [u8; 44] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 255, 255, 255, 255, //
    2, 0, 4, 0, 232, 3, 0, 0, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    16, 0, 4, 0, 255, 255, 255, 255, //
    32, 0, 0, 0, 255, 255, 255, 255,
];

/// Writes bytes that no two chunks have in common and that do not shrink.
pub fn noise(path: &Path, bytes: usize, seed: u64) -> anyhow::Result<()> {
    let mut number = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut all = Vec::with_capacity(bytes + 8);
    while all.len() < bytes {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        all.extend_from_slice(&number.to_le_bytes());
    }
    fs::write(path, &all[..bytes]).with_context(|| format!("write {}", path.display()))
}

fn set(path: &Path, name: &str, value: &[u8]) -> anyhow::Result<()> {
    lsetxattr(path, name, value, XattrFlags::empty())
        .with_context(|| format!("set {name} of {}", path.display()))
}

/// Reads a tree; what is at its top under one of the names in `without` does not count.
pub fn read(folder: &Path, without: &[&str]) -> anyhow::Result<Tree> {
    let mut tree = Tree::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let entries = fs::read_dir(folder.join(&below))
            .with_context(|| format!("read {}", folder.join(&below).display()))?;
        for entry in entries {
            let path = below.join(entry?.file_name());
            if without.iter().any(|name| path == Path::new(name)) {
                continue;
            }
            let known = entry_of(&folder.join(&path))
                .with_context(|| format!("look at {}", path.display()))?;
            if known.kind == "folder" {
                waiting.push(path.clone());
            }
            tree.insert(shown(&path), known);
        }
    }
    Ok(tree)
}

fn shown(path: &Path) -> String {
    path.as_os_str().as_bytes().escape_ascii().to_string()
}

fn entry_of(path: &Path) -> anyhow::Result<Entry> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    let (kind, contents) = if kind.is_file() {
        ("file", digest(path)?)
    } else if kind.is_dir() {
        ("folder", String::new())
    } else if kind.is_symlink() {
        let to = fs::read_link(path)?.into_os_string().into_vec();
        ("link", to.escape_ascii().to_string())
    } else if kind.is_fifo() {
        ("pipe", String::new())
    } else {
        ("other", String::new())
    };
    Ok(Entry {
        kind,
        // Nobody can set the mode of a link.
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        time: (metadata.mtime(), metadata.mtime_nsec()),
        contents,
        names: if kind == "folder" {
            1
        } else {
            metadata.nlink()
        },
        attributes: attributes(path)?,
    })
}

fn digest(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut part)?;
        if read == 0 {
            break;
        }
        bytes += read;
        hash.update(&part[..read]);
    }
    let mut text = format!("{bytes} bytes ");
    for byte in hash.finalize() {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

fn attributes(path: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0; 4096];
    let length = match llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        // Links have none that a user could set.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::PERM) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let mut value = vec![0; 4096];
        let length = lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(found)
}

/// Fails with the first few differences, if there are any.
pub fn same(expected: &Tree, found: &Tree) -> anyhow::Result<()> {
    let mut differences = Vec::new();
    for (path, entry) in expected {
        match found.get(path) {
            None => differences.push(format!("{path} is missing")),
            Some(other) if other != entry => {
                differences.push(format!("{path} was {entry:?}\nand is {other:?}"));
            }
            Some(_) => {}
        }
    }
    let more = found.keys().filter(|path| !expected.contains_key(*path));
    differences.extend(more.map(|path| format!("{path} was not there")));
    if !differences.is_empty() {
        let few: Vec<&str> = differences.iter().take(5).map(String::as_str).collect();
        bail!("{} differences:\n{}", differences.len(), few.join("\n"));
    }
    Ok(())
}

/// Bytes that a file takes on the disk.
pub fn on_disk(path: &Path) -> anyhow::Result<u64> {
    Ok(fs::metadata(path)?.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::{fill, on_disk, read, same};

    #[test]
    fn a_copy_is_the_same_until_something_changes() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (tree, copy) = (folder.path().join("tree"), folder.path().join("copy"));
        fs::create_dir(&tree).unwrap();
        fill(&tree).unwrap();
        assert!(on_disk(&tree.join("sparse")).unwrap() < 1 << 20);
        let copied = Command::new("cp").arg("-a").args([&tree, &copy]).status();
        assert!(copied.unwrap().success());
        let expected = read(&tree, &[]).unwrap();
        same(&expected, &read(&copy, &[]).unwrap()).unwrap();

        fs::remove_file(copy.join("to-line")).unwrap();
        fs::write(copy.join("many/7"), "other").unwrap();
        fs::write(copy.join("more"), "").unwrap();
        let error = same(&expected, &read(&copy, &["more"]).unwrap()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("2 differences"), "{error}");
        assert!(error.contains("to-line is missing"), "{error}");
    }
}
