//! The host and a plugin of ours as two processes. What Velero's own plugins and server make of them
//! is in the scenarios.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    collections::BTreeMap,
    env,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bowline_plugin::{
    Code, Error,
    host::{Level, Line, Plugins, Registry, Settings},
    kinds::{Body, Config, Kind, NewVolume, ObjectStore, VolumeSnapshotter},
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use tempfile::TempDir;

const PRETEND: &str = "example.com/pretend";

/// A folder with the plugin, and what it said.
struct Bed {
    folder: TempDir,
    settings: Settings,
    said: Arc<Mutex<Vec<Line>>>,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(example("pretend"), folder.path().join("pretend")).unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&said);
        let settings = Settings {
            args: vec!["--log-level=debug".into(), "--unknown=x".into()],
            sink: Some(Arc::new(move |line| note.lock().unwrap().push(line))),
            ..Settings::default()
        };
        Self {
            folder,
            settings,
            said,
        }
    }

    async fn registry(&self) -> Registry {
        Registry::read(self.folder.path(), &self.settings).await
    }

    async fn plugins(&self) -> Plugins {
        Plugins::new(Arc::new(self.registry().await), self.settings.clone())
    }

    async fn snapshotter(&self) -> (Plugins, Arc<dyn VolumeSnapshotter>) {
        let plugins = self.plugins().await;
        let snapshotter = plugins.volume_snapshotter(PRETEND).unwrap();
        let config = Config::from([("key".to_owned(), "value".to_owned())]);
        snapshotter.init(&config).await.unwrap();
        (plugins, snapshotter)
    }
}

/// Cargo builds examples before tests.
fn example(name: &str) -> PathBuf {
    let own = env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    profile.join("examples").join(name)
}

async fn snapshot(of: &dyn VolumeSnapshotter, volume: &str) -> Result<String, Error> {
    of.create_snapshot(volume, "z", &BTreeMap::new()).await
}

fn is_alive(pid: &str) -> bool {
    // A zombie is dead, though its folder is there.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('Z'));
    state == Some(false)
}

#[tokio::test]
async fn a_plugin_is_listed_asked_and_ended() {
    let bed = Bed::new();
    let registry = bed.registry().await;
    let list: Vec<_> = registry
        .entries()
        .iter()
        .map(|e| (e.kind, &*e.name))
        .collect();
    assert_eq!(
        list,
        [
            (Kind::BackupItemActionV2, "example.com/act"),
            (Kind::BackupItemActionV2, "example.com/grow"),
            (Kind::VolumeSnapshotter, PRETEND),
            (Kind::ObjectStore, PRETEND),
        ]
    );
    let (plugins, snapshotter) = bed.snapshotter().await;
    let tags = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let id = snapshotter.create_snapshot("v", "z", &tags).await.unwrap();
    assert_eq!(id, r#"v in z {"a": "b"}"#);
    let new = NewVolume {
        snapshot: "s".to_owned(),
        iops: Some(7),
        ..NewVolume::default()
    };
    let made = snapshotter.create_volume(&new).await.unwrap();
    assert_eq!(made, format!("{new:?}"));
    assert_eq!(snapshotter.volume_info("5", "").await.unwrap().1, Some(5));
    let volume =
        json!({"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"disk": "d"}});
    let id = snapshotter.volume_id(&volume).await.unwrap();
    assert_eq!(id.as_deref(), Some("d"));
    let changed = snapshotter.set_volume_id(&volume, "e").await.unwrap();
    assert_eq!(changed["spec"]["disk"], "e");
    let nothing = snapshotter.set_volume_id(&json!({"spec": {}}), "e").await;
    let why = nothing.unwrap_err().to_string();
    assert!(
        why.ends_with("that is none: no metadata or no spec"),
        "{why}"
    );
    let none = snapshotter.volume_id(&json!({})).await.unwrap();
    assert_eq!(none, None);
    let progress = snapshotter.progress("s", Some("v")).await.unwrap();
    assert_eq!((progress.done, progress.total), (3, 4));
    assert_eq!(progress.description, "s Some(\"v\")");
    // What a plugin does not have.
    let error = snapshotter.upload_snapshot("s").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unimplemented));

    let pid = snapshot(&*snapshotter, "pid").await.unwrap();
    assert!(is_alive(&pid));
    let began = Instant::now();
    plugins.stop().await;
    assert!(!is_alive(&pid), "{pid} goes on");
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "it had to be killed"
    );
}

#[tokio::test]
async fn a_plugin_that_dies_is_started_again_as_it_was_set_up() {
    let bed = Bed::new();
    let (plugins, snapshotter) = bed.snapshotter().await;
    let error = snapshot(&*snapshotter, "die").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
    let text = error.to_string();
    assert!(
        text.ends_with("pretend is gone: it exited with code 9"),
        "{text}"
    );
    assert_eq!(snapshot(&*snapshotter, "config").await.unwrap(), "value");
    plugins.stop().await;
}

#[tokio::test]
async fn what_goes_wrong_in_a_plugin_is_told_in_its_words() {
    let bed = Bed::new();
    let (plugins, snapshotter) = bed.snapshotter().await;
    for (volume, expected) in [
        (
            "fail",
            "rpc error: code = Unknown desc = no room: disk full",
        ),
        (
            "panic",
            "rpc error: code = Aborted desc = plugin panicked: no more",
        ),
    ] {
        let error = snapshot(&*snapshotter, volume).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let refused = Config::from([("refuse".to_owned(), "not like that".to_owned())]);
    let error = snapshotter.init(&refused).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = Unknown desc = not like that"
    );
    // It has the setup from before.
    assert_eq!(snapshot(&*snapshotter, "config").await.unwrap(), "value");
    let error = plugins.volume_snapshotter("nobody").err().unwrap();
    assert_eq!(
        error.to_string(),
        "unable to locate VolumeSnapshotter plugin named nobody"
    );
    plugins.stop().await;
}

#[tokio::test]
async fn a_call_that_is_given_up_hinders_nobody() {
    let bed = Bed::new();
    let (plugins, snapshotter) = bed.snapshotter().await;
    let soon = Duration::from_millis(200);
    let given_up = tokio::time::timeout(soon, snapshot(&*snapshotter, "hang")).await;
    assert!(given_up.is_err());
    assert_eq!(snapshot(&*snapshotter, "config").await.unwrap(), "value");
    plugins.stop().await;
}

#[tokio::test]
async fn a_plugin_that_talks_is_heard_and_does_not_stop() {
    let bed = Bed::new();
    let (plugins, snapshotter) = bed.snapshotter().await;
    assert_eq!(snapshot(&*snapshotter, "loud").await.unwrap(), "heard");
    plugins.stop().await;
    let said = bed.said.lock().unwrap();
    let line = said.iter().find(|line| line.message == "loud").unwrap();
    assert_eq!(line.level, Level::Error);
    let volume = ("volume".to_owned(), "loud".to_owned());
    assert!(line.fields.contains(&volume), "{line:?}");
}

#[tokio::test]
async fn large_objects_go_there_and_back() {
    let bed = Bed::new();
    let plugins = bed.plugins().await;
    let grow = plugins.backup_item_action("example.com/grow").unwrap();
    let selector = grow.applies_to().await.unwrap();
    assert_eq!(selector.included_resources, ["pods"]);
    assert_eq!(selector.label_selector, "app=web");
    let backup = Bytes::from_static(b"{}");
    let large = json!({"kind": "Pod", "grow": 100 << 20}).to_string().into();
    let grown = grow.execute(&large, &backup).await.unwrap();
    let grown_item = grown.item.unwrap();
    assert!(grown_item.len() > 100 << 20);
    assert_eq!(grown.operation, "op-1");
    // And as a request; what is as it was comes back.
    let large: Bytes = json!({"kind": "Pod", "text": "x".repeat(20 << 20)})
        .to_string()
        .into();
    let same = grow.execute(&large, &backup).await.unwrap();
    assert_eq!(same.item, Some(large));
    plugins.stop().await;
}

fn body(parts: Vec<Result<Bytes, Error>>) -> Body {
    stream::iter(parts).boxed()
}

async fn read(store: &dyn ObjectStore, key: &str) -> Result<usize, Error> {
    let parts = store.get("b", key).await?;
    let sizes = parts.map_ok(|part| part.len());
    sizes
        .try_fold(0, |all, size| async move { Ok(all + size) })
        .await
}

#[tokio::test]
async fn objects_are_whole_or_not_there() {
    let bed = Bed::new();
    let plugins = bed.plugins().await;
    let store = plugins.object_store(PRETEND).unwrap();
    store.init(&Config::new()).await.unwrap();
    let large = Bytes::from(vec![7; 9 << 20]);
    let parts = vec![Ok(large.clone()), Ok(Bytes::from_static(b"end"))];
    store.put("b", "large", body(parts)).await.unwrap();
    assert_eq!(read(&*store, "large").await.unwrap(), large.len() + 3);
    store.put("b", "empty", body(vec![])).await.unwrap();
    assert_eq!(read(&*store, "empty").await.unwrap(), 0);
    let broken = vec![Ok(large), Err(Error::new("the source is gone"))];
    let error = store.put("b", "broken", body(broken)).await.unwrap_err();
    assert_eq!(error.to_string(), "the source is gone");
    assert!(!store.exists("b", "broken").await.unwrap());
    let error = read(&*store, "broken").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = Unknown desc = no such object"
    );
    let mut keys = store.list("b", "").await.unwrap();
    keys.sort_unstable();
    assert_eq!(keys, ["empty", "large"]);
    store.delete("b", "large").await.unwrap();
    assert!(!store.exists("b", "large").await.unwrap());
    let url = store
        .sign("b", "k", Duration::from_secs(600))
        .await
        .unwrap();
    assert_eq!(url, "https://b/k?600");
    let folders = store.common_prefixes("b", "/", "p/").await.unwrap();
    assert_eq!(folders, ["p/a/"]);
    plugins.stop().await;
}

#[tokio::test]
async fn programs_that_are_no_plugins_are_named() {
    for (how, expected) in [
        (
            "exit",
            "plugin exited before we could connect: it exited with code 3",
        ),
        (
            "garbage",
            "Unrecognized remote plugin message: \"what do you want?\"",
        ),
        ("teapot", "invalid plugin kind: Teapot"),
    ] {
        let mut bed = Bed::new();
        bed.settings.env = vec![("PRETEND".into(), how.into())];
        let registry = bed.registry().await;
        assert!(registry.entries().is_empty());
        let [trouble] = registry.troubles() else {
            panic!("{how}: {:?}", registry.troubles());
        };
        assert!(trouble.reason.contains(expected), "{}", trouble.reason);
    }
}
