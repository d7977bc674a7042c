use std::{
    ffi::OsStr,
    fs,
    io::{Seek, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{XattrFlags, setxattr};

use super::*;

/// A volume, and a place for its clone.
struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["from", "to", "outside"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn from(&self, name: &str) -> PathBuf {
        self.dir.path().join("from").join(name)
    }

    fn to(&self, name: &str) -> PathBuf {
        self.dir.path().join("to").join(name)
    }

    fn open(&self, name: &str) -> OwnedFd {
        rustix::fs::open(self.dir.path().join(name), FOLDER, Mode::empty()).unwrap()
    }

    fn clone(&self) -> Result<Cloned> {
        let progress = Progress::default();
        let cloned = tree(
            &self.open("from"),
            self.open("to"),
            Some(c".mine"),
            &progress,
        )?;
        assert_eq!(progress.get().1, cloned.bytes);
        Ok(cloned)
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode()
}

#[test]
fn a_clone_is_like_the_original_and_apart_from_it() {
    let bed = Bed::new();
    fs::create_dir_all(bed.from("deep/er")).unwrap();
    fs::write(bed.from("deep/file"), "one").unwrap();
    fs::hard_link(bed.from("deep/file"), bed.from("deep/er/second")).unwrap();
    fs::write(bed.from("empty"), "").unwrap();
    let odd = OsStr::from_bytes(b"odd \xff\n\\name");
    fs::write(bed.from("").join(odd), "two!").unwrap();
    fs::create_dir(bed.from(".mine")).unwrap();
    fs::write(bed.from(".mine/clone"), "x").unwrap();
    fs::set_permissions(bed.from("deep/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(bed.from("deep"), fs::Permissions::from_mode(0o1711)).unwrap();
    fs::set_permissions(bed.from(""), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../outside", bed.from("link")).unwrap();
    rustix::fs::mknodat(
        bed.open("from"),
        "pipe",
        FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bed.from("socket")).unwrap();

    let cloned = bed.clone().unwrap();
    assert_eq!((cloned.files, cloned.bytes), (4, 10));
    assert!(!bed.to(".mine").exists() && !bed.to("socket").exists());
    assert_eq!(fs::read(bed.to("").join(odd)).unwrap(), b"two!");
    assert_eq!(fs::read(bed.to("empty")).unwrap(), b"");
    assert_eq!(
        fs::read_link(bed.to("link")).unwrap(),
        Path::new("../outside")
    );
    for name in ["", "deep", "deep/file", "deep/er/second", "link", "pipe"] {
        assert_eq!(mode(&bed.from(name)), mode(&bed.to(name)), "{name}");
        let time = |path: PathBuf| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.mtime(), found.mtime_nsec())
        };
        assert_eq!(time(bed.from(name)), time(bed.to(name)), "{name}");
    }
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(bed.to("deep/file")), inode(bed.to("deep/er/second")));
    assert_ne!(inode(bed.to("deep/file")), inode(bed.from("deep/file")));
    // The writer goes on; the clone does not change.
    fs::write(bed.from("deep/file"), "another").unwrap();
    assert_eq!(fs::read(bed.to("deep/file")).unwrap(), b"one");
}

#[test]
fn attributes_and_owners_are_kept() {
    let bed = Bed::new();
    fs::write(bed.from("file"), "x").unwrap();
    let value = vec![7; 3000];
    let set = setxattr(bed.from("file"), "user.note", &value, XattrFlags::empty());
    if set == Err(Errno::NOTSUP) {
        eprintln!("skipped: this file system has no attributes");
        return;
    }
    setxattr(bed.from(""), "user.top", b"t", XattrFlags::empty()).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(bed.from("file"), Some(1234), Some(4321)).unwrap();
    }
    bed.clone().unwrap();
    let mut read = vec![0; 4096];
    let length = rustix::fs::getxattr(bed.to("file"), "user.note", &mut read).unwrap();
    assert_eq!(read[..length], value);
    assert_eq!(
        rustix::fs::getxattr(bed.to(""), "user.top", &mut read),
        Ok(1)
    );
    if is_root {
        let found = fs::metadata(bed.to("file")).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 4321));
    }
}

#[test]
fn holes_stay_holes() {
    let bed = Bed::new();
    let mut file = fs::File::create(bed.from("sparse")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file.seek(std::io::SeekFrom::Start(8 << 20)).unwrap();
    file.write_all(&[2; 5000]).unwrap();
    file.set_len(32 << 20).unwrap();
    let cloned = bed.clone().unwrap();
    assert_eq!(cloned.bytes, 32 << 20);
    let (from, to) = (
        fs::metadata(bed.from("sparse")).unwrap(),
        fs::metadata(bed.to("sparse")).unwrap(),
    );
    assert_eq!(from.len(), to.len());
    assert!(to.blocks() * 512 < 1 << 20, "{} blocks", to.blocks());
    assert!(fs::read(bed.from("sparse")).unwrap() == fs::read(bed.to("sparse")).unwrap());
}

#[test]
fn what_becomes_a_link_is_not_followed() {
    let bed = Bed::new();
    fs::write(bed.dir.path().join("outside/secret"), "s").unwrap();
    fs::create_dir(bed.from("folder")).unwrap();
    fs::write(bed.from("file"), "x").unwrap();
    // As it is between the look at an entry and its opening, when somebody is quick.
    let progress = Progress::default();
    let mut cloner = Cloner {
        root: bed.open("to"),
        skip: None,
        contents: Contents::new(&progress),
        linked: HashMap::new(),
        cloned: Cloned::default(),
        is_root: false,
    };
    let top = level(bed.open("from"), bed.open("to"), Vec::new()).unwrap();
    fs::remove_dir(bed.from("folder")).unwrap();
    fs::remove_file(bed.from("file")).unwrap();
    symlink("../outside", bed.from("folder")).unwrap();
    symlink("../outside/secret", bed.from("file")).unwrap();
    let swapped = cloner.folder(&top, c"folder", b"folder").map(drop);
    assert!(matches!(swapped, Err(Errno::NOTDIR | Errno::LOOP)));
    assert_eq!(cloner.file(&top, c"file", b"file"), Err(Errno::LOOP));
    let error = at(b"folder", Errno::LOOP).to_string();
    assert!(
        error.contains("folder") && error.contains("became"),
        "{error}"
    );
    assert_eq!(fs::read_dir(bed.to("")).unwrap().count(), 0);
}
