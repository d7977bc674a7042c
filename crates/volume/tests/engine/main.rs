//! The embedded engine on a folder: what goes in comes back, and what is damaged is named. What the
//! real restic makes of it is in the scenarios.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod device;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bowline_api::v1::{BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation};
use bowline_vault::{Bucket, Location};
use bowline_volume::{
    Download, Downloaded, Engine, Error, Progress, Upload, Uploaded,
    embedded::{Budget, Identity, Repository},
};
use rustix::fs::{XattrFlags, lgetxattr, setxattr};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const FOLDER: &str = "restic/shop";

/// A bucket, a volume and an empty volume.
struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["store/b", "source", "target"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("store/b").join(FOLDER)
    }

    fn bucket(&self) -> Bucket {
        let spec = BackupStorageLocationSpec {
            provider: "filesystem".to_owned(),
            config: Some(BTreeMap::from([(
                "path".to_owned(),
                self.dir.path().join("store").display().to_string(),
            )])),
            object_storage: ObjectStorageLocation {
                bucket: "b".to_owned(),
                ..Default::default()
            },
            ..Default::default()
        };
        let object = BackupStorageLocation::new("velero", "default", spec);
        bowline_vault::open(&Location {
            object,
            ..Default::default()
        })
        .unwrap()
    }

    async fn create(&self) -> Repository {
        let made = Repository::create(self.bucket(), FOLDER, "pw", identity("node"), budget());
        made.await.unwrap()
    }

    async fn open(&self, password: &str) -> Result<Repository, Error> {
        Repository::open(self.bucket(), FOLDER, password, identity("node"), budget()).await
    }

    fn upload(&self, parent: Option<&str>) -> Upload {
        Upload {
            source: self.source(),
            path: "/host_pods/uid/volumes/kubernetes.io~csi/pv/mount".to_owned(),
            tags: vec!["backup=b".to_owned()],
            parent: parent.map(str::to_owned),
            ..Default::default()
        }
    }

    fn download(&self, snapshot: &str) -> Download {
        Download {
            snapshot: snapshot.to_owned(),
            target: self.target(),
            ..Default::default()
        }
    }

    /// The files of a folder of the repository, largest first.
    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.repository().join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
        files
    }
}

fn identity(host: &str) -> Identity {
    Identity {
        hostname: host.to_owned(),
        since: jiff::Timestamp::now(),
    }
}

fn budget() -> Budget {
    Budget {
        patience: Duration::ZERO,
        ..Budget::default()
    }
}

async fn put(repository: &Repository, upload: &Upload) -> Result<Uploaded, Error> {
    let progress = Arc::new(Progress::default());
    let uploaded = repository
        .upload(upload, &progress, &CancellationToken::new())
        .await?;
    assert_eq!(progress.get(), (uploaded.bytes, uploaded.bytes));
    Ok(uploaded)
}

async fn get(repository: &Repository, download: &Download) -> Result<Downloaded, Error> {
    let progress = Arc::new(Progress::default());
    repository
        .download(download, &progress, &CancellationToken::new())
        .await
}

/// Bytes that look random, the same each time.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// All that matters of a tree: paths, kinds, contents, modes, owners, times, attributes, links.
fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut picture = BTreeMap::new();
    let mut inodes = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            let found = fs::symlink_metadata(&path).unwrap();
            let inside = path.strip_prefix(root).unwrap().to_owned();
            let same = inodes
                .entry(found.ino())
                .or_insert_with(|| inside.clone())
                .clone();
            let contents = if found.is_symlink() {
                format!("{:?}", fs::read_link(&path).unwrap())
            } else if found.is_file() {
                let bytes = fs::read(&path).unwrap();
                format!("{} {:x}", bytes.len(), ring_digest(&bytes))
            } else {
                String::new()
            };
            let mut value = vec![0; 100];
            let attribute = lgetxattr(&path, "user.note", &mut value)
                .map(|length| String::from_utf8_lossy(&value[..length]).into_owned());
            picture.insert(
                inside,
                format!(
                    "{:o} {}:{} {}.{} {contents} {attribute:?} {}",
                    found.mode(),
                    found.uid(),
                    found.gid(),
                    found.mtime(),
                    found.mtime_nsec(),
                    same.display()
                ),
            );
            if found.is_dir() {
                folders.push(path);
            }
        }
    }
    picture
}

fn ring_digest(bytes: &[u8]) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    u64::from_le_bytes(digest.as_ref()[..8].try_into().unwrap())
}

/// A volume with a bit of everything.
fn fill(root: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).unwrap();
    for folder in ["empty", "deep/er/and/deeper", "odd names"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    write("small", b"hello");
    write("nothing", b"");
    write("deep/er/and/deeper/leaf", b"leaf");
    write("large", &noise(1, 5 << 20));
    write(
        "text",
        "the same line again and again\n".repeat(100_000).as_bytes(),
    );
    write("same as large", &noise(1, 5 << 20));
    for name in [
        "new\nline",
        "quote\"back\\slash",
        "größe",
        "tab\t",
        "-rf",
        "a'b$c",
    ] {
        fs::write(root.join("odd names").join(name), name).unwrap();
    }
    use std::os::unix::ffi::OsStrExt;
    let latin = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(root.join("odd names").join(latin), b"coffee").unwrap();
    symlink("small", root.join("link")).unwrap();
    symlink("/etc/passwd", root.join("elsewhere")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fs::hard_link(root.join("large"), root.join("hard link")).unwrap();
    for (name, mode) in [
        ("small", 0o4755),
        ("text", 0o400),
        ("deep/er", 0o1777),
        ("empty", 0o500),
    ] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    setxattr(
        root.join("small"),
        "user.note",
        b"remember",
        XattrFlags::empty(),
    )
    .unwrap();
    setxattr(
        root.join("deep"),
        "user.note",
        b"folders too",
        XattrFlags::empty(),
    )
    .unwrap();
    let holes = fs::File::create(root.join("sparse")).unwrap();
    holes.set_len(64 << 20).unwrap();
    holes.write_all_at(b"an island", 20 << 20).unwrap();
    drop(holes);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(root.join("nothing"), Some(1234), Some(4321)).unwrap();
        std::os::unix::fs::lchown(root.join("link"), Some(1234), Some(4321)).unwrap();
    }
    // Times that are not now.
    for name in ["small", "deep/er"] {
        let file = fs::File::open(root.join(name)).unwrap();
        let then = std::time::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        file.set_modified(then).unwrap();
    }
}

#[tokio::test]
async fn a_volume_comes_back_as_it_was() {
    let bed = Bed::new();
    fill(&bed.source());
    let repository = bed.create().await;
    let first = put(&repository, &bed.upload(None)).await.unwrap();
    assert_eq!((first.unreadable.len(), first.remarks.len()), (0, 0));
    let snapshot = first.snapshot.unwrap();

    // By a short id, by somebody who opens the repository anew.
    let again = bed.open("pw").await.unwrap();
    let got = get(&again, &bed.download(&snapshot[..8])).await.unwrap();
    assert_eq!(
        (got.problems, got.bytes, got.files),
        (vec![], first.bytes, first.files)
    );
    let mut expected = picture(&bed.source());
    assert!(expected.remove(Path::new("socket")).is_some());
    assert_eq!(picture(&bed.target()), expected);
    let blocks = fs::metadata(bed.target().join("sparse")).unwrap().blocks();
    assert!(
        blocks * 512 < 1 << 20,
        "{blocks} blocks for a file of holes"
    );
    assert!(bed.files("locks").is_empty(), "locks are left");
}

#[tokio::test]
async fn what_is_known_is_not_stored_again() {
    let bed = Bed::new();
    fill(&bed.source());
    let repository = bed.create().await;
    let first = put(&repository, &bed.upload(None)).await.unwrap();
    let snapshot = first.snapshot.clone().unwrap();
    let before = bed.files("data").len();
    for parent in [Some(&*snapshot), None, Some("0123abcd")] {
        let second = put(&repository, &bed.upload(parent)).await.unwrap();
        assert_eq!((second.added, second.bytes), (0, first.bytes), "{parent:?}");
        assert_eq!(bed.files("data").len(), before);
    }
    // A change, a new file, one that goes, one that becomes a folder.
    let source = bed.source();
    let mut large = noise(1, 5 << 20);
    large[3 << 20..][..4].copy_from_slice(b"diff");
    fs::write(source.join("large"), large).unwrap();
    fs::write(source.join("deep/new"), b"new").unwrap();
    fs::remove_file(source.join("text")).unwrap();
    fs::remove_file(source.join("nothing")).unwrap();
    fs::create_dir(source.join("nothing")).unwrap();
    let third = put(&repository, &bed.upload(Some(&snapshot)))
        .await
        .unwrap();
    assert!(
        third.added > 0 && third.added < first.added,
        "{} added",
        third.added
    );
    let got = get(&repository, &bed.download(&third.snapshot.unwrap()))
        .await
        .unwrap();
    assert_eq!(got.problems, []);
    let mut expected = picture(&source);
    expected.remove(Path::new("socket"));
    assert_eq!(picture(&bed.target()), expected);
}

#[tokio::test]
async fn zeros_are_the_same_pieces_whether_they_are_holes_or_not() {
    let bed = Bed::new();
    let size = 9 << 20;
    let file = fs::File::create(bed.source().join("file")).unwrap();
    file.set_len(size).unwrap();
    let repository = bed.create().await;
    let holes = put(&repository, &bed.upload(None)).await.unwrap();
    file.write_all_at(&vec![0; size as usize], 0).unwrap();
    let zeros = put(&repository, &bed.upload(None)).await.unwrap();
    assert_eq!((holes.bytes, zeros.bytes), (size, size));
    // The tree is new, since the file has another time.
    assert!(holes.added >= 512 << 10 && holes.added < 520 << 10);
    assert!(zeros.added < 8 << 10, "{} added", zeros.added);
}

#[tokio::test]
async fn an_empty_folder_makes_no_snapshot() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let uploaded = put(&repository, &bed.upload(None)).await.unwrap();
    assert_eq!(uploaded, Uploaded::default());
    assert!(!bed.repository().join("snapshots").exists());
}

#[tokio::test]
async fn other_files_stay_unless_they_are_to_go() {
    let bed = Bed::new();
    fs::write(bed.source().join("a"), b"new").unwrap();
    fs::create_dir(bed.source().join("folder")).unwrap();
    fs::write(bed.source().join("folder/b"), b"new too").unwrap();
    let repository = bed.create().await;
    let snapshot = put(&repository, &bed.upload(None))
        .await
        .unwrap()
        .snapshot
        .unwrap();

    // A hostile volume: links where files and folders are to be.
    let outside = bed.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("b"), b"not yours").unwrap();
    fs::write(outside.join("precious"), b"not yours").unwrap();
    symlink(outside.join("precious"), bed.target().join("a")).unwrap();
    symlink(&outside, bed.target().join("folder")).unwrap();
    fs::create_dir(bed.target().join("mine")).unwrap();
    fs::write(bed.target().join("mine/file"), b"mine").unwrap();
    let got = get(&repository, &bed.download(&snapshot)).await.unwrap();
    assert_eq!(got.problems, []);
    assert_eq!(fs::read(outside.join("precious")).unwrap(), b"not yours");
    assert_eq!(fs::read(outside.join("b")).unwrap(), b"not yours");
    assert_eq!(fs::read(bed.target().join("a")).unwrap(), b"new");
    assert_eq!(fs::read(bed.target().join("folder/b")).unwrap(), b"new too");
    assert_eq!(fs::read(bed.target().join("mine/file")).unwrap(), b"mine");

    let download = Download {
        delete_extra: true,
        ..bed.download(&snapshot)
    };
    get(&repository, &download).await.unwrap();
    assert_eq!(picture(&bed.target()).len(), 3);
}

#[tokio::test]
async fn a_folder_in_the_way_is_named_and_left() {
    let bed = Bed::new();
    fs::write(bed.source().join("a"), b"file").unwrap();
    fs::write(bed.source().join("b"), b"file").unwrap();
    let repository = bed.create().await;
    let snapshot = put(&repository, &bed.upload(None))
        .await
        .unwrap()
        .snapshot
        .unwrap();
    fs::create_dir(bed.target().join("a")).unwrap();
    fs::write(bed.target().join("a/kept"), b"kept").unwrap();
    let got = get(&repository, &bed.download(&snapshot)).await.unwrap();
    assert_eq!(got.problems.len(), 1);
    assert_eq!(got.problems[0].path, "a");
    assert_eq!(fs::read(bed.target().join("a/kept")).unwrap(), b"kept");
    assert_eq!(fs::read(bed.target().join("b")).unwrap(), b"file");
}

#[tokio::test]
async fn repositories_are_told_apart() {
    let bed = Bed::new();
    let missing = bed.open("pw").await.err().unwrap();
    assert_eq!(missing.to_string(), "there is no repository at restic/shop");
    bed.create().await;
    let wrong = bed.open("guess").await.err().unwrap();
    assert_eq!(
        wrong.to_string(),
        "wrong password for the repository at restic/shop"
    );
    let again = Repository::create(bed.bucket(), FOLDER, "pw", identity("n"), budget()).await;
    let text = again.err().unwrap().to_string();
    assert_eq!(text, "there is a repository at restic/shop already");
    let none = get(&bed.open("pw").await.unwrap(), &bed.download("abcd1234")).await;
    let text = none.err().unwrap().to_string();
    assert_eq!(text, "no single snapshot abcd1234 in the repository");
    // Half made: a key and no config.
    fs::remove_file(bed.repository().join("config")).unwrap();
    bed.create().await;
    bed.open("pw").await.unwrap();
}

#[tokio::test]
async fn a_missing_or_damaged_pack_is_named_with_its_files() {
    let bed = Bed::new();
    fs::write(bed.source().join("large"), noise(2, 20 << 20)).unwrap();
    fs::write(bed.source().join("small"), b"fine").unwrap();
    let repository = bed.create().await;
    let snapshot = put(&repository, &bed.upload(None))
        .await
        .unwrap()
        .snapshot
        .unwrap();
    let pack = bed.files("data").remove(0);
    let bytes = fs::read(&pack).unwrap();
    let name = pack.file_name().unwrap().to_string_lossy()[..8].to_owned();

    let mut damaged = bytes.clone();
    damaged[100_000] ^= 1;
    fs::write(&pack, damaged).unwrap();
    let got = get(&repository, &bed.download(&snapshot)).await.unwrap();
    let [problem] = &got.problems[..] else {
        panic!("{:?}", got.problems)
    };
    assert_eq!(problem.path, "large");
    assert!(
        problem
            .reason
            .starts_with(&format!("pack {name} of the repository is damaged: blob ")),
        "{}",
        problem.reason
    );
    assert_eq!(fs::read(bed.target().join("small")).unwrap(), b"fine");

    fs::remove_file(&pack).unwrap();
    let got = get(&repository, &bed.download(&snapshot)).await.unwrap();
    let why = format!("pack {name} of the repository is damaged: it is missing");
    let problem = &got.problems[0];
    assert_eq!((&*problem.path, &*problem.reason), ("large", &*why));

    // And maintenance touches nothing when something is missing.
    let before = bed.files("");
    let refused = repository.maintain(&CancellationToken::new()).await;
    assert_eq!(refused.err().unwrap().to_string(), why);
    assert_eq!(bed.files(""), before);

    fs::write(&pack, bytes).unwrap();
    let got = get(&repository, &bed.download(&snapshot)).await.unwrap();
    assert_eq!(got.problems, []);
    let index = bed.files("index").remove(0);
    let mut bytes = fs::read(&index).unwrap();
    bytes[20] ^= 1;
    fs::write(&index, bytes).unwrap();
    let text = get(&repository, &bed.download(&snapshot))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        text.starts_with("index ") && text.ends_with("its contents are not what its name says"),
        "{text}"
    );
    let text = put(&repository, &bed.upload(None))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(text.starts_with("index "), "{text}");
}

#[tokio::test]
async fn forgotten_data_goes_and_the_rest_stays() {
    let bed = Bed::new();
    let repository = bed.create().await;
    fs::write(bed.source().join("old"), noise(3, 20 << 20)).unwrap();
    fs::write(bed.source().join("both"), noise(4, 10 << 20)).unwrap();
    let first = put(&repository, &bed.upload(None))
        .await
        .unwrap()
        .snapshot
        .unwrap();
    fs::remove_file(bed.source().join("old")).unwrap();
    fs::write(bed.source().join("new"), noise(5, 3 << 20)).unwrap();
    let second = put(&repository, &bed.upload(Some(&first)))
        .await
        .unwrap()
        .snapshot
        .unwrap();
    let nothing = repository
        .maintain(&CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(nothing.freed, 0);

    // A pack that nobody knows, as an upload that was killed leaves it.
    let stray = bed.repository().join("data/00").join("00".repeat(32));
    fs::create_dir_all(stray.parent().unwrap()).unwrap();
    fs::write(&stray, b"stray").unwrap();
    repository
        .forget(&[first[..8].to_owned(), "ffffffff".to_owned()])
        .await
        .unwrap();
    let done = repository
        .maintain(&CancellationToken::new())
        .await
        .unwrap();
    assert!(done.freed > 19 << 20, "{done:?}");
    assert!(!stray.exists());
    let left: u64 = bed
        .files("data")
        .iter()
        .map(|f| fs::metadata(f).unwrap().len())
        .sum();
    assert!(left < 15 << 20, "{left} bytes are left");
    let got = get(&repository, &bed.download(&second)).await.unwrap();
    assert_eq!(got.problems, []);
    assert_eq!(picture(&bed.target()), picture(&bed.source()));
    let again = repository
        .maintain(&CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(again.freed, 0);
}

/// An upload that has begun, of a file that takes a while.
async fn upload_in_the_middle(
    bed: &Bed,
    repository: &Repository,
    cancel: &CancellationToken,
) -> tokio::task::JoinHandle<Result<Uploaded, Error>> {
    fs::write(bed.source().join("file"), noise(6, 64 << 20)).unwrap();
    let progress = Arc::new(Progress::default());
    let uploading = {
        let (repository, upload) = (repository.clone(), bed.upload(None));
        let (progress, cancel) = (Arc::clone(&progress), cancel.clone());
        tokio::spawn(async move { repository.upload(&upload, &progress, &cancel).await })
    };
    let until = Instant::now() + Duration::from_secs(20);
    while progress.get().1 == 0 {
        assert!(Instant::now() < until, "the upload does not begin");
        tokio::task::yield_now().await;
    }
    assert_eq!(
        progress.get().0,
        64 << 20,
        "the total is known before the end"
    );
    uploading
}

#[tokio::test]
async fn locks_are_written_and_honoured() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let cancel = CancellationToken::new();
    // Somebody is uploading; maintenance must wait.
    let uploading = upload_in_the_middle(&bed, &repository, &cancel).await;
    let refused = repository.maintain(&CancellationToken::new()).await;
    let text = refused.err().unwrap().to_string();
    assert!(
        text.starts_with("the repository is locked: by process "),
        "{text}"
    );
    assert!(text.contains(" on node since "), "{text}");

    // It is cancelled: soon, without a snapshot, and its lock goes.
    let asked = Instant::now();
    cancel.cancel();
    let ended = uploading.await.unwrap();
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert!(asked.elapsed() < Duration::from_secs(1));
    let until = Instant::now() + Duration::from_secs(20);
    while !bed.files("locks").is_empty() {
        assert!(Instant::now() < until, "the lock stays");
        tokio::task::yield_now().await;
    }
    assert!(!bed.repository().join("snapshots").exists());
    // A pack that was on its way may come after the lock is gone; nobody knows of it, and the next
    // maintenance removes it.
    loop {
        repository
            .maintain(&CancellationToken::new())
            .await
            .unwrap();
        if bed.files("data").is_empty() {
            break;
        }
        assert!(
            Instant::now() < until,
            "what the cancelled upload left stays"
        );
    }
}

#[tokio::test]
async fn a_volume_that_goes_away_makes_no_snapshot() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let uploading = upload_in_the_middle(&bed, &repository, &CancellationToken::new()).await;
    fs::rename(bed.source(), bed.dir.path().join("elsewhere")).unwrap();
    fs::create_dir(bed.source()).unwrap();
    let error = uploading.await.unwrap().err().unwrap();
    assert_eq!(
        error.to_string(),
        "the volume disappeared while it was read"
    );
    assert!(!bed.repository().join("snapshots").exists());
}

#[tokio::test]
async fn a_volume_that_is_gone_is_an_error_with_its_path() {
    let bed = Bed::new();
    let repository = bed.create().await;
    fs::remove_dir(bed.source()).unwrap();
    let error = put(&repository, &bed.upload(None)).await.err().unwrap();
    let path = bed.source().display().to_string();
    assert_eq!(error.to_string(), format!("open {path}"));
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .contains("No such file")
    );
}
