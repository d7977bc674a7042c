use bowline_volume::Problem;
use serde_json::{Value, json};

use super::*;

fn backup(value: Value) -> PodVolumeBackup {
    serde_json::from_value(value).unwrap()
}

fn other(uid: &str, started: &str, change: &[(&str, Value)]) -> PodVolumeBackup {
    let mut value = json!({
        "metadata": {"uid": uid},
        "spec": {
            "backupStorageLocation": "default", "uploaderType": "restic",
            "pod": {"namespace": "ns"},
        },
        "status": {
            "phase": "Completed", "snapshotID": format!("snapshot-{uid}"),
            "startTimestamp": format!("2026-01-{started}T00:00:00Z"),
        },
    });
    for (pointer, to) in change {
        *value.pointer_mut(pointer).unwrap() = to.clone();
    }
    backup(value)
}

#[test]
fn the_parent_is_the_newest_good_one_of_the_same_kind() {
    let mine = other("me", "20", &[("/status/phase", json!("InProgress"))]);
    let others = [
        other("old", "01", &[]),
        other("right", "09", &[("/spec/uploaderType", json!(""))]),
        other("failed", "10", &[("/status/phase", json!("Failed"))]),
        other(
            "elsewhere",
            "11",
            &[("/spec/backupStorageLocation", json!("second"))],
        ),
        other("kopia", "12", &[("/spec/uploaderType", json!("kopia"))]),
        other("empty", "13", &[("/status/snapshotID", json!(""))]),
        other("moved", "14", &[("/spec/pod/namespace", json!("ns2"))]),
        other("me", "20", &[]),
    ];
    assert_eq!(parent(&mine, &others).as_deref(), Some("snapshot-right"));
    assert_eq!(parent(&mine, &others[2..]), None);
}

#[test]
fn tags_are_keys_and_values() {
    let backup = backup(json!({"spec": {"tags": {"volume": "v", "backup": "b"}}}));
    assert_eq!(tags(&backup), ["backup=b", "volume=v"]);
    assert_eq!(tags(&PodVolumeBackup::default()), Vec::<String>::new());
}

#[test]
fn kopia_is_refused_by_name() {
    for (uploader, refused) in [
        (Value::Null, false),
        (json!("restic"), false),
        (json!("kopia"), true),
    ] {
        let backup = backup(json!({"spec": {"uploaderType": uploader}}));
        let why = backup.refusal();
        assert_eq!(why.is_some(), refused, "{uploader}");
        assert!(why.is_none_or(|why| why.contains("kopia")));
    }
}

#[test]
fn the_status_says_what_came_of_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("u/volumes/p/v")).unwrap();
    let place = Place::at(folder.path(), "u", "v").unwrap();
    let problem = |path: &str| Problem {
        path: path.to_owned(),
        reason: "bad".to_owned(),
    };
    let good = Uploaded {
        snapshot: Some("id".to_owned()),
        bytes: 7,
        added: 3,
        ..Uploaded::default()
    };
    let unreadable = Uploaded {
        unreadable: vec![problem("a"), problem("b")],
        remarks: vec![problem("c")],
        ..good.clone()
    };
    let remarked = Uploaded {
        remarks: vec![problem("c")],
        ..good.clone()
    };
    let gone = Some("volume v of pod ns/p went while it was copied");
    for (uploaded, went, phase, message, snapshot) in [
        (good.clone(), None, Phase::Completed, None, Some("id")),
        (
            Uploaded::default(),
            None,
            Phase::Completed,
            Some("volume was empty so no snapshot was taken"),
            None,
        ),
        (
            unreadable,
            None,
            Phase::Failed,
            Some(
                "data path backup failed: 2 files could not be read and are not in the snapshot: \
                 a: bad; b: bad",
            ),
            Some("id"),
        ),
        (
            remarked,
            None,
            Phase::Completed,
            Some("1 file not in the snapshot as expected: c: bad"),
            Some("id"),
        ),
        (
            good,
            gone,
            Phase::Failed,
            Some("data path backup failed: volume v of pod ns/p went while it was copied"),
            Some("id"),
        ),
    ] {
        let done = outcome(uploaded, went, &place);
        assert_eq!((done.phase, done.message.as_deref()), (phase, message));
        let mut backup = PodVolumeBackup::default();
        (done.edit)(&mut backup);
        let status = backup.status.unwrap();
        assert_eq!(status.snapshot_id.as_deref(), snapshot);
        assert_eq!(status.incremental_bytes, snapshot.map(|_| 3));
        assert_eq!(status.path, Some(place.folder.display().to_string()));
    }
}
