//! What every store must do alike. One suite, for whoever has a store to try.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::{Bucket, ByteStream, Error};

/// How long something that happens behind a call's back may take.
const SOON: Duration = Duration::from_secs(20);

/// Keys that are hard to write in a URL, a file name or XML.
const ODD: &[&str] = &[
    "backups/a b/100%.gz",
    "backups/system:node/é+ü&<x>.json",
    "backups/q/what?#=1;'\"~*!()@,$.gz",
    "backups/p/%2e%2E%2F.gz",
    "backups/.hidden/..also..hidden",
    "backups/longer-than-most-because-a-name-may-have-up-to-253-characters-and-then-a-suffix/\
     longer-than-most-because-a-name-may-have-up-to-253-characters-and-then-a-suffix-logs.gz",
];

/// Runs the whole suite in an empty bucket, which is empty again afterwards.
///
/// # Panics
/// At the first difference from what is promised.
pub async fn suite(bucket: &Bucket) {
    missing_objects(bucket).await;
    bodies(bucket).await;
    ranges(bucket).await;
    overwriting(bucket).await;
    odd_keys(bucket).await;
    listing(bucket).await;
    failed_puts(bucket).await;
    dropped_puts(bucket).await;
    hostile_keys(bucket).await;
    deleting(bucket).await;
    assert_eq!(bucket.list("").await.expect("list all"), []);
}

/// A signed URL brings its object, and no other; the same address without a signature brings
/// nothing. For stores that answer over HTTP.
///
/// # Panics
/// At the first difference from what is promised.
pub async fn signed_urls(bucket: &Bucket) {
    let (key, other) = ("backups/s/s-logs.gz", "backups/s/s.tar.gz");
    for key in [key, other] {
        let body = Bytes::from(key);
        bucket.put(key, body).await.expect("put what is signed");
    }
    let ttl = Duration::from_secs(600);
    let url = bucket.sign(key, ttl).await.expect("sign a URL");
    let (plain, _) = url.split_once('?').expect("a signature");
    for (url, expected) in [
        (&*url, Some(key)),
        (&*url.replace(key, other), None),
        (plain, None),
    ] {
        let answer = reqwest::get(url).await.expect("an answer");
        let is_good = answer.status().is_success();
        let body = answer.text().await.expect("all of the answer");
        assert_eq!(is_good.then_some(&*body), expected, "{url}");
    }
    bucket.delete_folder("backups/s").await.expect("delete it");
}

async fn missing_objects(bucket: &Bucket) {
    let key = "backups/none/velero-backup.json";
    assert!(!bucket.exists(key).await.expect("look for none"));
    let error = bucket.get(key).await.err().expect("nothing to get");
    assert!(error.is_not_found(), "{error}");
    assert!(error.to_string().ends_with("not found"), "{error}");
    assert_eq!(bucket.read(key).await.expect("read none"), None);
    assert!(bucket.backup("none").await.expect("no backup").is_none());
    assert_eq!(bucket.list("backups/").await.expect("list nothing"), []);
    assert_eq!(bucket.backups().await.expect("no backups"), [""; 0]);
    bucket.delete(key).await.expect("delete none");
    bucket.check().await.expect("an empty bucket is fine");
}

async fn bodies(bucket: &Bucket) {
    for size in [0, 1, 5 << 20, (5 << 20) + 1, 12 << 20] {
        let key = format!("backups/sizes/{size}");
        let body = pattern(size);
        let chunks = chunked(&body, 70_001);
        bucket.put_stream(&key, chunks).await.expect("put a stream");
        let back = bucket.read(&key).await.expect("read it back");
        assert!(back.as_deref() == Some(&body[..]), "{size} bytes differ");
        let listed = bucket.list(&key).await.expect("list it");
        assert_eq!(listed[0].size, size as u64);
        bucket.delete(&key).await.expect("delete it");
    }
}

async fn ranges(bucket: &Bucket) {
    let key = "restic/n/data/ab/abc";
    let body: Vec<u8> = (0..6 << 20).map(|i: u32| (i >> 8) as u8).collect();
    bucket.put(key, body.clone().into()).await.expect("put");
    let end = body.len() as u64;
    for (from, to) in [(0, 1), (0, end), (end - 5, end), (70_000, 5 << 20)] {
        let part = bucket.read_range(key, from..to).await.expect("a part");
        assert!(part[..] == body[from as usize..to as usize], "{from}..{to}");
    }
    let beyond = bucket.read_range(key, end - 5..end + 5).await;
    assert!(beyond.is_err(), "read beyond the end");
    let missing = bucket.read_range("restic/n/data/no", 0..5).await;
    assert!(missing.is_err_and(|e| e.is_not_found()), "read of nothing");
    bucket.delete(key).await.expect("delete");
}

async fn overwriting(bucket: &Bucket) {
    let key = "backups/over/over.tar.gz";
    for body in [pattern(6 << 20), pattern(10), pattern(0), pattern(7)] {
        bucket.put(key, body.clone()).await.expect("put again");
        let back = bucket.read(key).await.expect("read the new one");
        assert!(back.as_deref() == Some(&body[..]));
    }
    bucket.delete(key).await.expect("delete it");
    assert!(!bucket.exists(key).await.expect("look for it"));
}

async fn odd_keys(bucket: &Bucket) {
    for key in ODD {
        let body = Bytes::from(*key);
        bucket.put(key, body.clone()).await.expect(key);
        assert!(bucket.exists(key).await.expect(key), "{key}");
        assert_eq!(bucket.read(key).await.expect(key), Some(body.to_vec()));
    }
    let mut expected: Vec<_> = ODD.iter().map(|key| (*key).to_owned()).collect();
    expected.sort_unstable();
    assert_eq!(keys(bucket, "backups/").await, expected);
    for key in ODD {
        bucket.delete(key).await.expect(key);
    }
    assert_eq!(keys(bucket, "").await, [""; 0]);
}

async fn listing(bucket: &Bucket) {
    let all = [
        "backups/a/a.tar.gz",
        "backups/a/deep/er",
        "backups/ab/ab.tar.gz",
        "restores/r/r",
        "top",
    ];
    for key in all {
        bucket.put(key, Bytes::from_static(b"x")).await.expect(key);
    }
    assert_eq!(keys(bucket, "").await, all);
    assert_eq!(keys(bucket, "backups/a/").await, all[..2]);
    assert_eq!(keys(bucket, "backups/a").await, all[..3]);
    assert_eq!(keys(bucket, "backups/a/a").await, all[..1]);
    assert_eq!(keys(bucket, "nothing/").await, [""; 0]);
    assert_eq!(bucket.backups().await.expect("backups"), ["a", "ab"]);
    assert_eq!(
        bucket.folders("").await.expect("top"),
        ["backups", "restores"]
    );
    bucket.check().await.expect("nothing foreign");
    bucket
        .put("foreign/x", Bytes::new())
        .await
        .expect("put a foreign object");
    assert_eq!(
        bucket.check().await.expect_err("foreign").to_string(),
        "Backup store contains invalid top-level directories: [foreign]"
    );
    for folder in ["foreign", "backups/a", "backups/ab/", "restores"] {
        bucket.delete_folder(folder).await.expect("delete a folder");
    }
    assert_eq!(keys(bucket, "").await, ["top"]);
    assert_eq!(bucket.backups().await.expect("no backups"), [""; 0]);
    bucket.delete("top").await.expect("delete the last");
}

/// A body that ends in an error leaves nothing, early or late, and an older object as it was.
async fn failed_puts(bucket: &Bucket) {
    let key = "backups/failed/failed.tar.gz";
    let old = Bytes::from_static(b"old");
    for size in [0, 100, 12 << 20] {
        for before in [None, Some(old.clone())] {
            if let Some(before) = &before {
                bucket.put(key, before.clone()).await.expect("put the old");
            }
            let body = chunked(&pattern(size), 1 << 20).chain(stream::iter([Err(broken())]));
            let result = bucket.put_stream(key, body.boxed()).await;
            let error = result.expect_err("a broken body is no object");
            assert_eq!(error.to_string(), "read the body: broken on purpose");
            let back = bucket.read(key).await.expect("look what is there");
            assert_eq!(back, before.map(|bytes| bytes.to_vec()));
            bucket.delete(key).await.expect("clean up");
        }
    }
    assert_eq!(keys(bucket, "").await, [""; 0]);
}

async fn dropped_puts(bucket: &Bucket) {
    let key = "backups/dropped/dropped.tar.gz";
    let body = chunked(&pattern(12 << 20), 1 << 20).chain(stream::pending());
    let put = bucket.put_stream(key, body.boxed());
    let given_up = tokio::time::timeout(Duration::from_millis(500), put).await;
    assert!(given_up.is_err(), "a body without an end was stored");
    let start = Instant::now();
    while !keys(bucket, "").await.is_empty() {
        assert!(start.elapsed() < SOON, "a dropped put left an object");
        tokio::task::yield_now().await;
    }
    assert!(!bucket.exists(key).await.expect("look for it"));
}

async fn hostile_keys(bucket: &Bucket) {
    for key in [
        "../outside",
        "backups/../../outside",
        "/etc/outside",
        "backups//x",
        "backups/./x",
        "backups/x/",
        "",
    ] {
        let error = bucket.put(key, Bytes::from_static(b"x")).await;
        assert!(error.is_err(), "{key:?} was stored");
        assert!(bucket.get(key).await.is_err(), "{key:?} was read");
        assert!(bucket.delete(key).await.is_err(), "{key:?} was deleted");
    }
}

async fn deleting(bucket: &Bucket) {
    for number in 0..25 {
        let key = format!("backups/many/{number}");
        bucket.put(&key, Bytes::new()).await.expect("put one");
    }
    bucket
        .put("backups/many-more/x", Bytes::new())
        .await
        .expect("put");
    bucket
        .delete_folder("backups/many")
        .await
        .expect("delete all");
    assert_eq!(keys(bucket, "backups/").await, ["backups/many-more/x"]);
    bucket
        .delete_folder("backups/many-more")
        .await
        .expect("delete");
    bucket
        .delete_folder("backups/none")
        .await
        .expect("delete none");
}

async fn keys(bucket: &Bucket, prefix: &str) -> Vec<String> {
    let entries = bucket.list(prefix).await.expect("list");
    entries.into_iter().map(|entry| entry.key).collect()
}

fn broken() -> Error {
    Error::Store {
        action: "read the body".into(),
        reason: "broken on purpose".into(),
        retryable: false,
    }
}

/// Bytes that differ wherever a part could be lost or swapped.
fn pattern(size: usize) -> Bytes {
    (0..size)
        .map(|n| (n ^ (n >> 8) ^ (n >> 16)).to_le_bytes()[0])
        .collect()
}

fn chunked(body: &Bytes, size: usize) -> ByteStream {
    let (body, count) = (body.clone(), body.len().div_ceil(size));
    let cut = move |n: usize| Ok(body.slice(n * size..body.len().min((n + 1) * size)));
    stream::iter((0..count).map(cut)).boxed()
}
