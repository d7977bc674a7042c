//! The life of a snapshot, on folders: what hosts ask, in their order.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    collections::BTreeMap,
    fs,
    io::{Seek, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use bowline_api::v1::{BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation};
use bowline_plugin::kinds::{Config, NewVolume, VolumeSnapshotter};
use bowline_plugin_local::{Local, Result, Vault, Vaults};
use bowline_vault::Location;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, setxattr};
use serde_json::json;
use tempfile::TempDir;

/// A location that is a folder.
struct Folder(PathBuf);

#[async_trait]
impl Vaults for Folder {
    async fn open(&self, location: Option<&str>) -> Result<Vault> {
        assert_eq!(location, Some("near"));
        let path = self.0.display().to_string();
        let spec = BackupStorageLocationSpec {
            provider: "filesystem".to_owned(),
            config: Some(BTreeMap::from([("path".to_owned(), path)])),
            object_storage: ObjectStorageLocation {
                bucket: "b".to_owned(),
                ..Default::default()
            },
            ..Default::default()
        };
        let object = BackupStorageLocation::new("velero", "near", spec);
        let location = Location {
            object,
            ..Default::default()
        };
        Ok(Vault {
            bucket: bowline_vault::open(&location)?,
            password: "pw".to_owned(),
        })
    }
}

/// A node and a location.
struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["node/data/vol", "store/b"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn node(&self, path: &str) -> PathBuf {
        self.dir.path().join("node").join(path)
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("store/b/plugins/bowline-local/pv-1")
    }

    /// Another process of the plugin.
    async fn plugin(&self, more: &[(&str, &str)], host_uploads: bool) -> Local {
        let vaults = Folder(self.dir.path().join("store"));
        let plugin = Local::new(vaults, Some("here".to_owned()), host_uploads);
        let root = self.node("").display().to_string();
        let mut config = Config::from([
            ("hostRoot".to_owned(), root),
            ("backupLocation".to_owned(), "near".to_owned()),
        ]);
        let more = more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        config.extend(more);
        plugin.init(&config).await.unwrap();
        plugin
    }

    /// What is in the snapshot folder.
    fn clones(&self) -> Vec<String> {
        names(&self.node("data/.bowline-snapshots"))
    }

    fn notes(&self) -> Vec<String> {
        names(&self.node("var/lib/bowline-plugin-local"))
    }

    fn fill(&self) {
        let at = |name: &str| self.node("data/vol").join(name);
        fs::create_dir_all(at("deep/er")).unwrap();
        fs::write(at("deep/file"), "one").unwrap();
        fs::hard_link(at("deep/file"), at("deep/er/second")).unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(
            at("").join(std::ffi::OsStr::from_bytes(b"odd \xff\nname")),
            "two",
        )
        .unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        let mut sparse = fs::File::create(at("sparse")).unwrap();
        sparse.seek(std::io::SeekFrom::Start(4 << 20)).unwrap();
        sparse.write_all(&[3; 5000]).unwrap();
        sparse.set_len(9 << 20).unwrap();
        let big: Vec<u8> = (0..3_000_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::write(at("big"), big).unwrap();
        let set = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("deep/file", 0o4751);
        set("deep", 0o1711);
        set("", 0o2750);
        // Not everywhere are there attributes.
        let _ = setxattr(at("empty"), "user.note", b"n", XattrFlags::empty());
        let _ = setxattr(at(""), "user.top", b"t", XattrFlags::empty());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("empty"), Some(1234), Some(4321)).unwrap();
            std::os::unix::fs::lchown(at("link"), Some(12), Some(43)).unwrap();
            std::os::unix::fs::chown(at(""), Some(99), Some(98)).unwrap();
            set("", 0o2750);
        }
    }
}

fn filetime(path: &Path) -> rustix::fs::Timestamps {
    let found = fs::metadata(path).unwrap();
    let time = rustix::fs::Timespec {
        tv_sec: found.mtime(),
        tv_nsec: found.mtime_nsec(),
    };
    rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn tags(backup: &str) -> BTreeMap<String, String> {
    [("velero.io/pv", "pv-1"), ("velero.io/backup", backup)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn new(snapshot: &str) -> NewVolume {
    NewVolume {
        snapshot: snapshot.to_owned(),
        ..NewVolume::default()
    }
}

/// All that is to be the same, by path.
fn facts(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut facts = BTreeMap::new();
    let mut links: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let inner = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
        let owner = (found.mode(), found.uid(), found.gid());
        let time = (found.mtime(), found.mtime_nsec());
        let mut fact = format!("{owner:?} {time:?}");
        let mut list = [0; 1024];
        let length = llistxattr(&path, &mut list).unwrap_or_default();
        let mut attributes: Vec<_> = list[..length]
            .split(|b| *b == 0)
            .filter(|name| name.starts_with(b"user."))
            .collect();
        attributes.sort_unstable();
        for name in attributes {
            let mut value = [0; 64];
            let length = lgetxattr(&path, name, &mut value).unwrap();
            fact.push_str(&format!(" {name:?}={:?}", &value[..length]));
        }
        if found.is_dir() {
            let below = fs::read_dir(&path).unwrap();
            paths.extend(below.map(|entry| entry.unwrap().path()));
        } else if found.is_symlink() {
            fact.push_str(&format!(" -> {:?}", fs::read_link(&path).unwrap()));
        } else {
            let bytes = fs::read(&path).unwrap();
            let sum = bytes.iter().fold(7_u64, |sum, b| {
                sum.wrapping_mul(31).wrapping_add((*b).into())
            });
            fact.push_str(&format!(" {} {sum}", bytes.len()));
            if found.nlink() > 1 {
                links.entry(found.ino()).or_default().extend(inner);
            }
        }
        facts.insert(inner.to_vec(), fact);
    }
    facts.insert(
        b"links".to_vec(),
        format!("{:?}", links.values().collect::<Vec<_>>()),
    );
    facts
}

#[tokio::test]
async fn a_volume_goes_up_and_comes_back() {
    let bed = Bed::new();
    bed.fill();
    let before = facts(&bed.node("data/vol"));
    let volume = json!({
        "metadata": { "name": "pv-1" },
        "spec": { "hostPath": { "path": "/data/vol/" } },
    });

    let plugin = bed.plugin(&[], true).await;
    let path = plugin.volume_id(&volume).await.unwrap().unwrap();
    assert_eq!(path, "/data/vol");
    let info = plugin.volume_info(&path, "").await.unwrap();
    assert_eq!(info, ("hostPath".to_owned(), None));
    let id = plugin.create_snapshot(&path, "", &tags("b")).await.unwrap();
    assert!(id.starts_with("pv-1.") && id.len() == 15, "{id}");
    let files = ["", ".json", ".new"].map(|suffix| format!("{id}{suffix}"));
    assert_eq!(bed.clones(), files);
    assert_eq!(bed.notes(), [id.as_str()]);
    let folder = fs::metadata(bed.node("data/.bowline-snapshots")).unwrap();
    assert_eq!(folder.mode() & 0o7777, 0o700);
    // The writer goes on.
    fs::write(bed.node("data/vol/deep/file"), "changed").unwrap();

    // The upload may be asked of another process.
    let plugin = bed.plugin(&[], true).await;
    let progress = plugin.progress(&id, None).await.unwrap();
    assert_eq!((progress.started, progress.is_completed), (None, false));
    plugin.upload_snapshot(&id).await.unwrap();
    let progress = plugin.progress(&id, None).await.unwrap();
    assert!(progress.is_completed && progress.error.is_empty());
    let bytes: i64 = 3 * 3 + 3_000_000 + (9 << 20);
    assert_eq!((progress.done, progress.total), (bytes, bytes));
    assert_eq!((bed.clones(), bed.notes()), (vec![], vec![]));
    // Again, and by another process: nothing more comes of it.
    let snapshots = || names(&bed.repository().join("snapshots"));
    let first = snapshots();
    assert_eq!(first.len(), 1);
    plugin.upload_snapshot(&id).await.unwrap();
    bed.plugin(&[], true)
        .await
        .upload_snapshot(&id)
        .await
        .unwrap();
    assert_eq!(snapshots(), first);

    // The old folder is still there: beside it.
    let plugin = bed.plugin(&[], true).await;
    let other = plugin.create_volume(&new(&id)).await.unwrap();
    assert!(other.starts_with("/data/vol-"), "{other}");
    assert_eq!(facts(&bed.node(&other[1..])), before);
    let progress = plugin.progress(&id, Some("x")).await.unwrap();
    assert_eq!((progress.done, progress.is_completed), (bytes, true));
    // It is gone: in its place.
    fs::remove_dir_all(bed.node("data/vol")).unwrap();
    assert_eq!(plugin.create_volume(&new(&id)).await.unwrap(), "/data/vol");
    assert_eq!(facts(&bed.node("data/vol")), before);
    assert!(
        names(&bed.node("data"))
            .iter()
            .all(|n| !n.ends_with(".tmp"))
    );
    let changed = plugin.set_volume_id(&volume, &other).await.unwrap();
    assert_eq!(changed["spec"]["hostPath"]["path"], *other);

    for _ in 0..2 {
        plugin.delete_snapshot(&id).await.unwrap();
    }
    assert_eq!(snapshots(), [""; 0]);
    let packs = names(&bed.repository().join("data"));
    let packs = packs
        .iter()
        .flat_map(|f| names(&bed.repository().join("data").join(f)));
    assert_eq!(packs.count(), 0);
    let error = plugin.create_volume(&new(&id)).await.unwrap_err();
    assert!(error.to_string().contains(&id), "{error}");
    let error = plugin.upload_snapshot(&id).await.unwrap_err();
    assert!(
        error.to_string().contains("neither on this node"),
        "{error}"
    );
}

#[tokio::test]
async fn a_host_that_asks_for_no_upload_gets_it_at_once() {
    let bed = Bed::new();
    bed.fill();
    let plugin = bed.plugin(&[], false).await;
    let id = plugin
        .create_snapshot("/data/vol", "", &tags("b"))
        .await
        .unwrap();
    assert_eq!(bed.clones(), [""; 0]);
    assert_eq!(names(&bed.repository().join("snapshots")).len(), 1);
    fs::remove_dir_all(bed.node("data/vol")).unwrap();
    assert_eq!(plugin.create_volume(&new(&id)).await.unwrap(), "/data/vol");
    // A location that cannot be used leaves no clone that nobody would delete.
    fs::remove_dir_all(bed.dir.path().join("store")).unwrap();
    let failed = plugin.create_snapshot("/data/vol", "", &tags("c")).await;
    assert!(failed.is_err());
    assert_eq!((bed.clones(), bed.notes()), (vec![], vec![]));
}

#[tokio::test]
async fn a_clone_alone_is_enough() {
    let bed = Bed::new();
    bed.fill();
    let before = facts(&bed.node("data/vol"));
    for config in [&[][..], &[("snapshotFolder", "/snapshots")]] {
        let plugin = bed.plugin(config, true).await;
        let id = plugin
            .create_snapshot("/data/vol", "", &tags("b"))
            .await
            .unwrap();
        fs::remove_dir_all(bed.node("data/vol")).unwrap();
        let plugin = bed.plugin(config, true).await;
        assert_eq!(plugin.create_volume(&new(&id)).await.unwrap(), "/data/vol");
        assert_eq!(facts(&bed.node("data/vol")), before);
        plugin.delete_snapshot(&id).await.unwrap();
        assert_eq!((bed.clones(), bed.notes()), (vec![], vec![]));
    }
    assert_eq!(names(&bed.node("snapshots")), [""; 0]);
    assert!(!bed.repository().exists());
}

#[tokio::test]
async fn an_empty_volume_is_something_too() {
    let bed = Bed::new();
    fs::set_permissions(bed.node("data/vol"), fs::Permissions::from_mode(0o1770)).unwrap();
    let before = facts(&bed.node("data/vol"));
    let plugin = bed.plugin(&[], false).await;
    let id = plugin
        .create_snapshot("/data/vol", "", &BTreeMap::new())
        .await
        .unwrap();
    assert!(id.starts_with("vol."), "{id}");
    fs::remove_dir_all(bed.node("data/vol")).unwrap();
    plugin.create_volume(&new(&id)).await.unwrap();
    assert_eq!(facts(&bed.node("data/vol")), before);
}

#[tokio::test]
async fn what_killed_runs_have_left_goes() {
    let bed = Bed::new();
    bed.fill();
    let plugin = bed.plugin(&[], true).await;
    let take = async |backup| {
        plugin
            .create_snapshot("/data/vol", "", &tags(backup))
            .await
            .unwrap()
    };
    let kept = take("a").await;
    let lost = take("b").await;
    // As if the second had been killed before its end, and another one while it was removed.
    let folder = bed.node("data/.bowline-snapshots");
    fs::rename(folder.join(&lost), folder.join(format!("{lost}.tmp"))).unwrap();
    fs::create_dir(folder.join("pv-9.0123456789.tmp")).unwrap();
    fs::write(folder.join("pv-9.0123456780.json"), "{").unwrap();
    let next = take("c").await;
    let mut expected = [&kept, &next]
        .map(|id| ["", ".json", ".new"].map(|suffix| format!("{id}{suffix}")))
        .concat();
    expected.sort();
    assert_eq!(bed.clones(), expected);
    assert_eq!(bed.notes().len(), 2);
    // A backup that is made again has no use for what its first try has made.
    let again = take("c").await;
    let mut expected = [&kept, &again]
        .map(|id| ["", ".json", ".new"].map(|suffix| format!("{id}{suffix}")))
        .concat();
    expected.sort();
    assert_eq!(bed.clones(), expected);

    // A restore that was killed, and a folder that only looks like one.
    let half = bed.node("data/vol-0123456789.tmp");
    fs::create_dir_all(half.join("volume/x")).unwrap();
    fs::set_permissions(&half, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir_all(bed.node("data/vol-0123456780.tmp/mine")).unwrap();
    plugin.create_volume(&new(&again)).await.unwrap();
    assert!(!half.exists());
    assert!(bed.node("data/vol-0123456780.tmp/mine").exists());
}

#[tokio::test]
async fn an_upload_that_is_not_whole_is_made_again() {
    let bed = Bed::new();
    bed.fill();
    let plugin = bed.plugin(&[], true).await;
    let id = plugin
        .create_snapshot("/data/vol", "", &tags("b"))
        .await
        .unwrap();
    // A file goes, as when somebody else is removing the clone.
    let clone = bed.node("data/.bowline-snapshots").join(&id);
    let file = clone.join("volume/big");
    fs::rename(&file, bed.node("aside")).unwrap();
    let error = plugin.upload_snapshot(&id).await.unwrap_err();
    assert!(error.to_string().contains("as a whole"), "{error}");
    assert_eq!(names(&bed.repository().join("snapshots")), [""; 0]);
    assert!(clone.exists());
    fs::rename(bed.node("aside"), &file).unwrap();
    let top = filetime(&bed.node("data/vol"));
    rustix::fs::utimensat(
        rustix::fs::CWD,
        clone.join("volume"),
        &top,
        rustix::fs::AtFlags::empty(),
    )
    .unwrap();
    plugin.upload_snapshot(&id).await.unwrap();
    assert_eq!(bed.clones(), [""; 0]);
    let before = facts(&bed.node("data/vol"));
    fs::remove_dir_all(bed.node("data/vol")).unwrap();
    plugin.create_volume(&new(&id)).await.unwrap();
    assert_eq!(facts(&bed.node("data/vol")), before);
    plugin.delete_snapshot(&id).await.unwrap();
    assert_eq!(names(&bed.repository().join("snapshots")), [""; 0]);
}

#[tokio::test]
async fn tricks_with_paths_are_refused() {
    let bed = Bed::new();
    bed.fill();
    fs::create_dir_all(bed.node("secret/vol")).unwrap();
    symlink("secret", bed.node("link")).unwrap();
    symlink("/etc", bed.node("data/etc")).unwrap();
    let plugin = bed.plugin(&[], true).await;
    for path in [
        "",
        "data/vol",
        "/",
        "/data/../secret",
        "/data/./vol",
        "/link/vol",
        "/data/etc",
        "/data/vol/deep/file",
        "/data/none",
    ] {
        let tags = tags("b");
        let error = plugin.create_snapshot(path, "", &tags).await.unwrap_err();
        assert!(error.to_string().contains(path), "{path}: {error}");
        plugin.volume_info(path, "").await.unwrap_err();
    }
    for id in ["", "..", "../x.0123456789", "a/b.0123456789", "pv-1"] {
        let named = format!("{id:?}");
        let errors = [
            plugin.upload_snapshot(id).await.unwrap_err(),
            plugin.delete_snapshot(id).await.unwrap_err(),
            plugin.create_volume(&new(id)).await.unwrap_err(),
            plugin.progress(id, None).await.unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains(&named), "{error}");
        }
    }
    // Somebody has put a link in the place of the snapshot folder, or a folder of his own.
    let folder = bed.node("data/.bowline-snapshots");
    symlink("../secret", &folder).unwrap();
    let error = plugin.create_snapshot("/data/vol", "", &tags("b")).await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains(".bowline-snapshots")
    );
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = plugin.create_snapshot("/data/vol", "", &tags("b")).await;
    assert!(error.unwrap_err().to_string().contains("mode 0700"));
    fs::remove_dir(&folder).unwrap();
    assert_eq!(names(&bed.node("secret")), ["vol"]);
    // A snapshot folder in the volume itself would never end.
    let plugin = bed
        .plugin(&[("snapshotFolder", "/data/vol/deep")], true)
        .await;
    let error = plugin.create_snapshot("/data/vol", "", &tags("b")).await;
    assert!(error.unwrap_err().to_string().contains("in the volume"));
}

#[tokio::test]
async fn a_clone_that_became_a_link_is_not_uploaded() {
    let bed = Bed::new();
    bed.fill();
    let plugin = bed.plugin(&[], true).await;
    let id = plugin
        .create_snapshot("/data/vol", "", &tags("b"))
        .await
        .unwrap();
    fs::create_dir_all(bed.node("secret/volume")).unwrap();
    fs::write(bed.node("secret/volume/s"), "s").unwrap();
    let folder = bed.node("data/.bowline-snapshots");
    fs::rename(folder.join(&id), bed.node("aside")).unwrap();
    symlink(bed.node("secret"), folder.join(&id)).unwrap();
    let error = plugin.upload_snapshot(&id).await.unwrap_err();
    assert!(error.to_string().contains(&id), "{error}");
    assert_eq!(names(&bed.repository().join("snapshots")), [""; 0]);
    plugin.delete_snapshot(&id).await.unwrap();
    assert!(bed.node("secret/volume/s").exists());
    assert_eq!(bed.clones(), [""; 0]);
}

#[tokio::test]
async fn nothing_works_before_it_is_set_up_nor_on_another_node() {
    let bed = Bed::new();
    let vaults = Folder(bed.dir.path().join("store"));
    let plugin = Local::new(vaults, Some("here".to_owned()), true);
    let error = plugin
        .create_snapshot("/data/vol", "", &tags("b"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("Init"), "{error}");
    let config = Config::from([("colour".to_owned(), "red".to_owned())]);
    let error = plugin.init(&config).await.unwrap_err().to_string();
    assert!(
        error.contains("[colour]") && error.contains("hostRoot"),
        "{error}"
    );
    let config = Config::from([("hostRoot".to_owned(), "/no/such/root".to_owned())]);
    let error = plugin.init(&config).await.unwrap_err().to_string();
    assert!(error.contains("/no/such/root"), "{error}");
    let terms = json!([{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": ["there"] },
    ] }]);
    let volume = json!({ "metadata": { "name": "pv-2" }, "spec": {
        "local": { "path": "/data/vol" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": terms } },
    } });
    let error = plugin.volume_id(&volume).await.unwrap_err().to_string();
    assert!(
        error.contains("pv-2") && error.contains("there") && error.contains("here"),
        "{error}"
    );
    let moved = plugin.set_volume_id(&volume, "/data/new").await.unwrap();
    assert_eq!(moved["spec"]["local"]["path"], "/data/new");
    assert_eq!(
        plugin.volume_id(&moved).await.unwrap().as_deref(),
        Some("/data/new")
    );
    let other = json!({ "metadata": { "name": "pv-3" }, "spec": { "csi": {} } });
    assert_eq!(plugin.volume_id(&other).await.unwrap(), None);
}
