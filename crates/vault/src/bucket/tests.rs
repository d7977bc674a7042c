//! The bucket on a folder: the shared suite, and what is only true of folders.

use std::path::Path;

use bowline_api::v1::{BackupSpec, BackupStorageLocation};
use futures::TryStreamExt;
use serde_json::json;

use super::*;
use crate::{Location, open, store::filesystem};

fn location(root: &Path, prefix: &str, config: serde_json::Value) -> Location {
    let mut config = config;
    config["path"] = json!(root.to_str());
    let object: BackupStorageLocation = serde_json::from_value(json!({
        "metadata": {"name": "default", "namespace": "velero"},
        "spec": {
            "provider": "filesystem",
            "objectStorage": {"bucket": "bowl", "prefix": prefix},
            "config": config,
        },
    }))
    .unwrap();
    Location {
        object,
        ..Default::default()
    }
}

fn bucket(root: &Path, prefix: &str) -> Bucket {
    open(&location(root, prefix, json!({}))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_behaves_as_a_bucket() {
    for prefix in ["", "team-a/x"] {
        let root = tempfile::tempdir().unwrap();
        crate::behaviour::suite(&bucket(root.path(), prefix)).await;
    }
}

/// For a store of one's own: `BOWLINE_VAULT_LOCATION` is a file with a BackupStorageLocation in
/// JSON, of an empty bucket; `BOWLINE_VAULT_CREDENTIAL` one with what its Secret holds. With
/// `BOWLINE_VAULT_UNSIGNED` no URL is tried: a stand-in may have no keys to sign with.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_the_environment_behaves_as_a_bucket() {
    let Ok(file) = std::env::var("BOWLINE_VAULT_LOCATION") else {
        println!("skipped: BOWLINE_VAULT_LOCATION names no location");
        return;
    };
    let location = Location {
        object: serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap(),
        credential: std::env::var("BOWLINE_VAULT_CREDENTIAL")
            .ok()
            .map(|file| std::fs::read(file).unwrap()),
        ..Default::default()
    };
    let bucket = open(&location).unwrap();
    crate::behaviour::suite(&bucket).await;
    if std::env::var("BOWLINE_VAULT_UNSIGNED").is_ok() {
        println!("skipped: signed URLs, as BOWLINE_VAULT_UNSIGNED asks");
        return;
    }
    crate::behaviour::signed_urls(&bucket).await;
}

#[tokio::test]
async fn a_folder_that_is_not_mounted_is_not_an_empty_bucket() {
    let root = tempfile::tempdir().unwrap();
    let bucket = bucket(&root.path().join("gone"), "");
    let error = bucket.check().await.unwrap_err().to_string();
    assert!(error.contains("gone: No such file"), "{error}");
    assert!(bucket.put("x", Bytes::new()).await.is_err());
}

#[tokio::test]
async fn leftovers_of_a_crash_are_invisible() {
    let root = tempfile::tempdir().unwrap();
    let bucket = bucket(root.path(), "");
    let folder = root.path().join("bowl/backups/b");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(".bowline-tmp-1-2-3"), "half").unwrap();
    assert_eq!(bucket.list("").await.unwrap(), []);
    assert_eq!(bucket.backups().await.unwrap(), [""; 0]);
    assert!(bucket.exists("backups/b/.bowline-tmp-1-2-3").await.is_err());
}

#[tokio::test]
async fn links_lead_nowhere() {
    let root = tempfile::tempdir().unwrap();
    let bucket = bucket(root.path(), "");
    std::fs::write(root.path().join("secret"), "s").unwrap();
    std::fs::create_dir_all(root.path().join("bowl/backups")).unwrap();
    let links = [("bowl/backups/f", "secret"), ("bowl/backups/d", "")];
    for (link, target) in links {
        std::os::unix::fs::symlink(root.path().join(target), root.path().join(link)).unwrap();
    }
    for key in ["backups/f", "backups/d/secret"] {
        let error = bucket.read(key).await.unwrap_err().to_string();
        assert!(error.ends_with(" is a link"), "{error}");
        assert!(bucket.put(key, Bytes::new()).await.is_err());
        assert!(bucket.delete(key).await.is_err());
    }
    assert_eq!(bucket.list("").await.unwrap(), []);
}

#[tokio::test]
async fn urls_need_an_address_and_are_checked_by_the_same_key() {
    let root = tempfile::tempdir().unwrap();
    let ttl = Duration::from_secs(600);
    let error = bucket(root.path(), "p").sign("k", ttl).await.unwrap_err();
    assert!(error.to_string().contains("set publicUrl"), "{error}");

    let mut location = location(root.path(), "p", json!({"publicUrl": "https://h/bowline"}));
    location.credential = Some(b"shared key\n".to_vec());
    let url = open(&location).unwrap().sign("k", ttl).await.unwrap();
    let (start, signature) = url.split_once("&signature=").unwrap();
    let (start, expires) = start.split_once("?expires=").unwrap();
    assert_eq!(start, "https://h/bowline/objects/bowl/p/k");
    let expires: u64 = expires.parse().unwrap();
    let signer = filesystem::signer(&location).unwrap();
    assert!(signer.check("bowl", "p/k", expires, signature, expires - 1));
    assert!(!filesystem::Signer::process().check("bowl", "p/k", expires, signature, 0));
}

#[tokio::test]
async fn a_backup_is_written_as_velero_writes_it() {
    let root = tempfile::tempdir().unwrap();
    let bucket = bucket(root.path(), "");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/golden/bucket/backups");
    let text = std::fs::read(golden.join("basic/velero-backup.json")).unwrap();
    let backup: Backup = serde_json::from_slice(&text).unwrap();
    bucket.put_backup(&backup).await.unwrap();
    assert_eq!(bucket.backup("basic").await.unwrap(), Some(backup));
    let written = bucket.read(&backup_object("basic")).await.unwrap().unwrap();
    let (written, text) = (
        String::from_utf8(written).unwrap(),
        String::from_utf8(text).unwrap(),
    );
    assert!(
        written.starts_with("{\n  \"kind\": \"Backup\",\n  \"apiVersion\": \"velero.io/v1\",\n")
    );
    // The order inside of metadata is another one, which no reader minds.
    let lines = |text: &str| -> Vec<String> {
        let mut lines: Vec<_> = text
            .lines()
            .map(|l| l.trim_end_matches(',').to_owned())
            .collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(&written), lines(&text));
    assert_eq!(bucket.backups().await.unwrap(), ["basic"]);
}

#[tokio::test]
async fn other_kinds_are_no_backups() {
    let root = tempfile::tempdir().unwrap();
    let bucket = bucket(root.path(), "");
    for (text, words) in [
        (
            r#"{"kind":"Restore","apiVersion":"velero.io/v1"}"#,
            "unexpected type",
        ),
        (
            r#"{"kind":"Backup","apiVersion":"ark/v1"}"#,
            "unexpected type",
        ),
        ("<html>", "not a Backup"),
    ] {
        bucket.put(&backup_object("b"), text.into()).await.unwrap();
        let error = bucket.backup("b").await.unwrap_err();
        let line = error.to_string();
        assert!(matches!(error, Error::Damaged { .. }), "{line}");
        assert!(line.starts_with("backups/b/velero-backup.json: ") && line.contains(words));
    }
    let nobody = Backup::new("velero", "", BackupSpec::default());
    assert!(bucket.put_backup(&nobody).await.is_err());
}

#[tokio::test]
async fn json_files_are_packed_lines_and_damage_names_the_file() {
    let root = tempfile::tempdir().unwrap();
    let bucket = bucket(root.path(), "");
    let key = backup_file("b", "-results.gz");
    let value = json!({"a": "<&>"});
    bucket.put_json(&key, &value).await.unwrap();
    let packed = bucket.read(&key).await.unwrap().unwrap();
    let text = gzip::unpack(&packed, 100).unwrap();
    assert_eq!(text, b"{\"a\":\"\\u003c\\u0026\\u003e\"}\n");
    assert_eq!(bucket.json(&key).await.unwrap(), Some(value));
    let none: Option<serde_json::Value> = bucket.json("no").await.unwrap();
    assert_eq!(none, None);
    bucket.put(&key, packed[..9].to_vec().into()).await.unwrap();
    let error = bucket.json::<serde_json::Value>(&key).await.unwrap_err();
    assert!(
        error.to_string().starts_with("backups/b/b-results.gz: "),
        "{error}"
    );
}

#[tokio::test]
async fn a_cancelled_bucket_gives_up_before_and_in_the_middle() {
    let root = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let bucket = bucket(root.path(), "").with_cancel(cancel.clone());
    bucket.put("a", vec![0; 1 << 20].into()).await.unwrap();
    let mut body = bucket.get("a").await.unwrap();
    body.try_next().await.unwrap().unwrap();
    let endless = stream::pending().boxed();
    let put = bucket.put_stream("b", endless);
    cancel.cancel();
    assert!(matches!(put.await, Err(Error::Cancelled { .. })));
    let rest: Vec<_> = body.collect().await;
    assert!(matches!(rest[..], [Err(Error::Cancelled { .. })]));
    let error = bucket.exists("a").await.unwrap_err();
    assert_eq!(error.to_string(), "look for a: cancelled");
}

#[derive(Debug, Default)]
struct Shaky {
    calls: std::sync::Mutex<u32>,
    retryable: bool,
}

#[async_trait::async_trait]
impl ObjectStore for Shaky {
    async fn put(&self, _: &str, _: ByteStream) -> Result<()> {
        std::future::pending().await
    }
    async fn get(&self, _: &str) -> Result<ByteStream> {
        std::future::pending().await
    }
    async fn exists(&self, key: &str) -> Result<bool> {
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        match *calls {
            3 => Ok(true),
            _ => Err(Error::Store {
                action: format!("look for {key}"),
                reason: "busy".into(),
                retryable: self.retryable,
            }),
        }
    }
    async fn list(&self, _: &str) -> Result<Vec<Entry>> {
        Ok(Vec::new())
    }
    async fn folders(&self, _: &str) -> Result<Vec<String>> {
        let names = ["a/", "b/", "backups/", "c/", "d/"];
        Ok(names.map(|name| format!("p/{name}")).to_vec())
    }
    async fn delete(&self, _: &str) -> Result<()> {
        Ok(())
    }
    async fn sign(&self, _: &str, _: Duration) -> Result<String> {
        Ok(String::new())
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_may_help_is_tried_again() {
    for (retryable, works, calls) in [(true, true, 3), (false, false, 1)] {
        let store = Arc::new(Shaky {
            retryable,
            ..Default::default()
        });
        let bucket = Bucket::new(store.clone(), "");
        assert_eq!(bucket.exists("k").await.is_ok(), works);
        assert_eq!(*store.calls.lock().unwrap(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_an_error_within_a_minute() {
    let bucket = Bucket::new(Arc::new(Shaky::default()), "");
    let error = bucket.put("k", Bytes::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "put k: no answer from the object store within 60 seconds"
    );
}

#[tokio::test]
async fn many_foreign_folders_are_counted_and_three_named() {
    let bucket = Bucket::new(Arc::new(Shaky::default()), "/p/");
    assert_eq!(
        bucket.check().await.unwrap_err().to_string(),
        "Backup store contains 4 invalid top-level directories: [a b c ...]"
    );
}
