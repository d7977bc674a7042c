//! The process ends where it is told to, and leaves a note.

use std::process::Command;

use bowline_vault::{Bucket, Location, crash, open};
use serde_json::json;

fn bucket(root: &std::path::Path) -> Bucket {
    let location = json!({"spec": {
        "provider": "filesystem",
        "objectStorage": {"bucket": "b"},
        "config": {"path": root},
    }});
    open(&Location {
        object: serde_json::from_value(location).expect("a location"),
        ..Default::default()
    })
    .expect("a folder opens")
}

/// Not a test by itself: the process that is ended.
#[tokio::test]
async fn victim() {
    let Ok(root) = std::env::var("BOWLINE_CRASH_VICTIM") else {
        return;
    };
    let bucket = bucket(root.as_ref());
    bucket.put("backups/x/x-logs.gz", "1".into()).await.unwrap();
    bucket.put("backups/x/x.tar.gz", "2".into()).await.unwrap();
    crash::here("not here");
}

#[tokio::test]
async fn a_process_ends_before_or_after_a_put() {
    for (place, files) in [
        ("before put .tar.gz", &["backups/x/x-logs.gz"][..]),
        (
            "after put .tar.gz",
            &["backups/x/x-logs.gz", "backups/x/x.tar.gz"],
        ),
        ("nowhere", &["backups/x/x-logs.gz", "backups/x/x.tar.gz"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let note = root.path().join("note");
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim"])
            .env("BOWLINE_CRASH_VICTIM", root.path())
            .env("BOWLINE_CRASH_AT", place)
            .env("BOWLINE_CRASH_NOTE", &note)
            .output()
            .unwrap();
        assert_eq!(ended.status.success(), place == "nowhere");
        if place != "nowhere" {
            assert_eq!(
                std::fs::read_to_string(&note).unwrap(),
                format!("{place}\n")
            );
        }
        let found = bucket(root.path()).list("").await.unwrap();
        let found: Vec<_> = found.into_iter().map(|entry| entry.key).collect();
        assert_eq!(found, files);
    }
}
