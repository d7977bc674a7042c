//! Block devices, and files that stand for one.

use std::{os::unix::fs::OpenOptionsExt, process::Command};

use bowline_volume::Mode;

use super::*;

const MIB: usize = 1 << 20;

impl Bed {
    /// A file with these bytes, which stands for a device.
    fn image(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn upload_device(&self, device: &Path) -> Upload {
        Upload {
            source: device.to_owned(),
            mode: Mode::Device,
            ..self.upload(None)
        }
    }

    fn download_device(&self, snapshot: &str, device: &Path) -> Download {
        Download {
            target: device.to_owned(),
            mode: Mode::Device,
            ..self.download(snapshot)
        }
    }

    /// Bytes of all packs.
    fn stored(&self) -> u64 {
        let sizes = self.files("data").into_iter();
        sizes.map(|file| fs::metadata(file).unwrap().len()).sum()
    }
}

/// Data, and zeros between it that begin and end anywhere.
fn mixed() -> Vec<u8> {
    let mut bytes = vec![0; 41 * MIB + 12_345];
    for (at, length) in [
        (0, 3 * MIB + 17),
        (20 * MIB - 5, 100),
        (30 * MIB + 1, 2 * MIB),
        (33 * MIB, 200_000),
    ] {
        bytes[at..at + length].copy_from_slice(&noise(at as u64, length));
    }
    // Within a piece.
    bytes[MIB + 999..MIB + 300_000].fill(0);
    bytes
}

async fn snapshot(repository: &Repository, upload: &Upload) -> String {
    put(repository, upload).await.unwrap().snapshot.unwrap()
}

fn says(result: Result<impl std::fmt::Debug, Error>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn a_device_comes_back_as_it_was() {
    let bed = Bed::new();
    let (bytes, repository) = (mixed(), bed.create().await);
    let device = bed.image("device", &bytes);
    let link = bed.dir.path().join("link");
    symlink(&device, &link).unwrap();
    let uploaded = put(&repository, &bed.upload_device(&link)).await.unwrap();
    assert_eq!((uploaded.files, uploaded.bytes), (1, bytes.len() as u64));
    assert_eq!((uploaded.unreadable, uploaded.remarks), (vec![], vec![]));
    let snapshot = uploaded.snapshot.unwrap();

    // Onto a larger one, full of old data; what is behind stays.
    let old = vec![0xff; bytes.len() + 100_000];
    let target = bed.image("larger", &old);
    let link = bed.dir.path().join("other link");
    symlink(&target, &link).unwrap();
    let got = get(&repository, &bed.download_device(&snapshot[..8], &link)).await;
    let expected = Downloaded {
        files: 1,
        bytes: bytes.len() as u64,
        ..Default::default()
    };
    assert_eq!(got.unwrap(), expected);
    let found = fs::read(&target).unwrap();
    assert!(found[..bytes.len()] == bytes, "the data differs");
    assert!(found[bytes.len()..] == old[bytes.len()..], "what is behind");
    let room = fs::metadata(&target).unwrap().blocks() * 512;
    assert!(room < 10 << 20, "{room} bytes for a file of holes");

    // Again, onto what is there now, and onto a file that has to grow.
    let smaller = bed.image("smaller", &old[..MIB]);
    for target in [target, smaller] {
        let download = bed.download_device(&snapshot, &target);
        get(&repository, &download).await.unwrap();
        assert!(fs::read(&target).unwrap()[..bytes.len()] == bytes);
    }

    // In a folder it is a file.
    get(&repository, &bed.download(&snapshot)).await.unwrap();
    let image = bed.target().join("volume.img");
    assert!(fs::read(&image).unwrap() == bytes);
    assert_eq!(fs::metadata(image).unwrap().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn zeros_cost_nothing_whether_they_are_holes_or_not() {
    let bed = Bed::new();
    let repository = bed.create().await;
    // As large as a few of the largest pieces, and some of the smallest.
    let size = 33 * MIB + MIB / 2;
    let device = bed.image("device", &vec![0; size]);
    let first = put(&repository, &bed.upload_device(&device)).await.unwrap();
    assert_eq!(first.bytes, size as u64);
    assert!(first.added < 9 << 20, "{} added", first.added);
    assert!(bed.stored() < 10_000, "{} stored", bed.stored());

    let holes = bed.dir.path().join("holes");
    let file = fs::File::create(&holes).unwrap();
    file.set_len(size as u64).unwrap();
    let second = put(&repository, &bed.upload_device(&holes)).await.unwrap();
    assert_eq!((second.added, second.bytes), (0, size as u64));

    let target = bed.image("disk", &vec![0xff; size]);
    let download = bed.download_device(&first.snapshot.unwrap(), &target);
    get(&repository, &download).await.unwrap();
    assert!(fs::read(&target).unwrap() == vec![0; size]);
    let room = fs::metadata(&target).unwrap().blocks() * 512;
    assert!(room < 1 << 20, "{room} bytes for zeros");
}

#[tokio::test]
async fn only_what_has_changed_is_stored_again() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let mut bytes = noise(7, 32 * MIB);
    let device = bed.image("device", &bytes);
    let first = put(&repository, &bed.upload_device(&device)).await.unwrap();
    assert!(first.added >= bytes.len() as u64);
    // Another device with the same contents, and with a parent or without.
    let other = bed.image("other", &bytes);
    for parent in [None, first.snapshot.clone()] {
        let upload = Upload {
            parent,
            ..bed.upload_device(&other)
        };
        let same = put(&repository, &upload).await.unwrap();
        assert_eq!((same.added, same.bytes), (0, first.bytes));
        assert!(same.snapshot.is_some());
    }

    for at in [5 * MIB, 20 * MIB] {
        bytes[at..at + 4].copy_from_slice(b"diff");
    }
    fs::write(&device, &bytes).unwrap();
    let upload = Upload {
        parent: first.snapshot.clone(),
        ..bed.upload_device(&device)
    };
    let changed = put(&repository, &upload).await.unwrap();
    assert!(
        changed.added > 0 && changed.added < 12 << 20,
        "{} added",
        changed.added
    );
    let target = bed.image("disk", b"");
    let download = bed.download_device(&changed.snapshot.unwrap(), &target);
    get(&repository, &download).await.unwrap();
    assert!(fs::read(&target).unwrap() == bytes);
}

#[tokio::test]
async fn what_is_no_device_is_refused_by_name() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let place = |name: &str| bed.dir.path().join(name);
    let pipe = place("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    for (path, expected) in [
        (bed.source(), "is a folder, not a block device"),
        (pipe, "is a pipe, not a block device"),
        (
            "/dev/null".into(),
            "is a character device, not a block device",
        ),
        (bed.image("empty", b""), "has no bytes"),
    ] {
        let expected = format!("{} {expected}", path.display());
        says(put(&repository, &bed.upload_device(&path)).await, &expected);
        if !path.is_file() {
            let download = bed.download_device("abcd1234", &path);
            says(get(&repository, &download).await, &expected);
        }
    }
    let nowhere = place("nowhere");
    let expected = format!("open {}", nowhere.display());
    let upload = bed.upload_device(&nowhere);
    says(put(&repository, &upload).await, &expected);
    let download = bed.download_device("abcd1234", &nowhere);
    says(get(&repository, &download).await, &expected);
    assert!(!nowhere.exists());
    assert!(!bed.repository().join("snapshots").exists());
}

#[tokio::test]
async fn a_snapshot_of_files_goes_onto_no_device() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let target = bed.image("disk", b"untouched");
    fs::create_dir(bed.source().join("folder")).unwrap();
    let of_a_folder = snapshot(&repository, &bed.upload(None)).await;
    fs::remove_dir(bed.source().join("folder")).unwrap();
    for name in ["a", "b"] {
        fs::write(bed.source().join(name), name).unwrap();
    }
    let of_files = snapshot(&repository, &bed.upload(None)).await;
    for id in [of_a_folder, of_files] {
        let expected = format!("snapshot {} is of files, not of a block device", &id[..8]);
        let download = bed.download_device(&id, &target);
        says(get(&repository, &download).await, &expected);
    }
    assert_eq!(fs::read(&target).unwrap(), b"untouched");
}

#[tokio::test]
async fn copies_of_devices_end_at_once_when_they_are_cancelled() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let bytes = noise(8, 64 * MIB);
    let device = bed.image("device", &bytes);
    let upload = bed.upload_device(&device);
    let cancelled = in_the_middle(bytes.len(), async |progress, cancel| {
        repository.upload(&upload, progress, cancel).await.map(drop)
    });
    cancelled.await;
    assert!(!bed.repository().join("snapshots").exists());

    let snapshot = snapshot(&repository, &upload).await;
    let target = bed.image("disk", b"");
    let download = bed.download_device(&snapshot, &target);
    let cancelled = in_the_middle(bytes.len(), async |progress, cancel| {
        let done = repository.download(&download, progress, cancel).await;
        done.map(drop)
    });
    cancelled.await;
}

/// Cancels a copy when it has begun, and sees it end.
async fn in_the_middle(
    total: usize,
    copy: impl AsyncFnOnce(&Arc<Progress>, &CancellationToken) -> Result<(), Error>,
) {
    let (progress, cancel) = (Arc::<Progress>::default(), CancellationToken::new());
    let cancelling = async {
        let until = Instant::now() + Duration::from_secs(20);
        while progress.get().1 == 0 {
            assert!(Instant::now() < until, "the copy does not begin");
            tokio::task::yield_now().await;
        }
        assert_eq!(progress.get().0, total as u64, "the total is known");
        cancel.cancel();
        Instant::now()
    };
    let (ended, asked) = tokio::join!(copy(&progress, &cancel), cancelling);
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
}

#[tokio::test]
async fn a_damaged_pack_is_named_and_the_rest_is_written() {
    let bed = Bed::new();
    let repository = bed.create().await;
    let bytes = noise(9, 24 * MIB);
    let device = bed.image("device", &bytes);
    let snapshot = snapshot(&repository, &bed.upload_device(&device)).await;
    let pack = bed.files("data").remove(0);
    let mut damaged = fs::read(&pack).unwrap();
    damaged[100_000] ^= 1;
    fs::write(&pack, damaged).unwrap();
    let target = bed.image("disk", &vec![0xff; bytes.len()]);
    let download = bed.download_device(&snapshot, &target);
    let got = get(&repository, &download).await.unwrap();
    let [problem] = &got.problems[..] else {
        panic!("{:?}", got.problems)
    };
    let name = pack.file_name().unwrap().to_string_lossy()[..8].to_owned();
    let why = format!("volume.img: pack {name} of the repository is damaged: blob ");
    assert!(problem.to_string().starts_with(&why), "{problem}");
    let found = fs::read(&target).unwrap();
    let differ = found.iter().zip(&bytes).filter(|(a, b)| a != b).count();
    assert!(differ > 0 && differ < 9 << 20, "{differ} bytes differ");
}

/// A file as a block device, for as long as this is kept.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can make block devices".to_owned());
        }
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .map_err(|e| format!("losetup: {e}"))?;
        let said = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        match made.status.success() {
            true => Ok(Self(said.into())),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[tokio::test]
async fn real_block_devices_too() {
    let bed = Bed::new();
    let mut bytes = mixed();
    bytes.truncate(41 * MIB);
    let source = bed.image("source device", &bytes);
    let source = match Loop::over(&source) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let repository = bed.create().await;
    let uploaded = put(&repository, &bed.upload_device(&source.0)).await;
    let uploaded = uploaded.unwrap();
    assert_eq!(uploaded.bytes, bytes.len() as u64);
    let id = uploaded.snapshot.unwrap();
    // As files they have the same pieces.
    let copy = bed.image("copy", &bytes);
    let again = put(&repository, &bed.upload_device(&copy)).await.unwrap();
    assert_eq!(again.added, 0);

    let old = vec![0xff; 42 * MIB];
    let file = bed.image("target device", &old);
    let target = Loop::over(&file).unwrap();
    let download = bed.download_device(&id, &target.0);
    // Somebody has it to themselves: a mount, say.
    let busy = fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
        .open(&target.0)
        .unwrap();
    let expected = format!("open {}", target.0.display());
    says(get(&repository, &download).await, &expected);
    drop(busy);
    get(&repository, &download).await.unwrap();
    let found = fs::read(&target.0).unwrap();
    assert!(found[..bytes.len()] == bytes, "the data differs");
    assert!(found[bytes.len()..] == old[bytes.len()..], "what is behind");
    drop(target);

    let file = bed.image("small device", &old[..40 * MIB]);
    let small = Loop::over(&file).unwrap();
    let expected = format!(
        "the volume has {} bytes, and its data needs {}",
        40 * MIB,
        41 * MIB
    );
    let download = bed.download_device(&id, &small.0);
    says(get(&repository, &download).await, &expected);
    assert!(fs::read(&small.0).unwrap() == old[..40 * MIB], "written to");
}
