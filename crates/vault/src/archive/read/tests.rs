//! Velero's archives, and archives made by somebody who wishes us ill.

use std::{io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, stream};

use super::*;

/// Reads all of it, in chunks of an odd size.
async fn read(packed: &[u8], limits: Limits) -> Result<Vec<(Item, Bytes)>> {
    let chunks: Vec<_> = packed
        .chunks(777)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    let mut reader = Reader::with_limits("b.tar.gz", stream::iter(chunks).boxed(), limits);
    let mut all = Vec::new();
    while let Some(item) = reader.next().await? {
        let body = reader.body().await?;
        all.push((item, body));
    }
    assert_eq!(reader.next().await?, None);
    Ok(all)
}

async fn paths(packed: &[u8]) -> Vec<String> {
    let all = read(packed, Limits::default()).await.unwrap();
    all.into_iter().map(|(item, _)| item.path).collect()
}

async fn refusal(packed: &[u8]) -> String {
    let error = read(packed, Limits::default()).await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    error.to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// A header written by hand, as the `tar` crate would not.
fn header(path: &str, size: u64, kind: u8) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let name = path.as_bytes();
    block[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u64 = block.iter().map(|b| u64::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn file(path: &str, body: &[u8], kind: u8) -> Vec<u8> {
    let mut bytes = header(path, body.len() as u64, kind);
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = entries.concat();
    tar.extend_from_slice(&[0; 2 * BLOCK]);
    gzip(&tar)
}

fn golden(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/golden/bucket/backups");
    std::fs::read(root.join(name).join(format!("{name}.tar.gz"))).unwrap()
}

#[tokio::test]
async fn archives_of_velero_are_read_whole() {
    for name in ["basic", "everything", "hooked", "plain"] {
        let all = read(&golden(name), Limits::default()).await.unwrap();
        let (first, version) = &all[0];
        assert_eq!(
            (first.path.as_str(), &version[..]),
            ("metadata/version", &b"1.1.0\n"[..])
        );
        assert!(all.len() > 2, "{name}");
        for (item, body) in &all[1..] {
            let entry = item.entry.as_ref().expect(&item.path);
            let object: serde_json::Value = serde_json::from_slice(body).unwrap();
            assert_eq!(object["metadata"]["name"], entry.name.as_str());
            assert_eq!(
                object["metadata"]["namespace"].as_str(),
                entry.namespace.as_deref()
            );
            assert_eq!(item.size, body.len() as u64);
        }
    }
}

#[tokio::test]
async fn bodies_nobody_wants_are_passed_over() {
    let packed = golden("basic");
    let mut reader = Reader::new("k", stream::iter([Ok(packed.clone().into())]).boxed());
    let mut found = Vec::new();
    while let Some(item) = reader.next().await.unwrap() {
        found.push(item.path);
    }
    assert_eq!(found, paths(&packed).await);
}

fn pax(name: &str) -> Vec<u8> {
    let record = format!(" path={name}\n");
    let record = format!("{}{record}", record.len() + 3);
    archive(&[
        file("PaxHeaders/x", record.as_bytes(), b'x'),
        file("short", b"{}", b'0'),
    ])
}

fn gnu(name: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    tar.append_data(&mut header, name, &b"{}"[..]).unwrap();
    gzip(&tar.into_inner().unwrap())
}

#[tokio::test]
async fn long_names_come_in_three_ways() {
    for (letter, count) in [("é", 126), ("e", 253)] {
        let name = format!(
            "resources/configmaps/namespaces/{}/{}.json",
            "n".repeat(63),
            letter.repeat(count)
        );
        for packed in [pax(&name), gnu(&name)] {
            let all = read(&packed, Limits::default()).await.unwrap();
            assert_eq!(all[0].0.path, name);
            let entry = all[0].0.entry.as_ref().unwrap();
            assert_eq!(entry.name.chars().count(), count);
            assert_eq!(&all[0].1[..], b"{}");
        }
    }
    // The third: a name in two fields, as far as it goes.
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    let name = format!(
        "resources/pods/cluster/{}/{}.json",
        "d".repeat(100),
        "e".repeat(90)
    );
    header.set_path(&name).unwrap();
    header.set_size(0);
    header.set_cksum();
    tar.append(&header, std::io::empty()).unwrap();
    assert_eq!(paths(&gzip(&tar.into_inner().unwrap())).await, [name]);
}

#[tokio::test]
async fn folders_members_and_dots_are_accepted() {
    let one = [
        header("resources/", 0, b'5'),
        header("./", 0, b'5'),
        file("./a", b"1", b'0'),
    ];
    let two = [
        file("b", b"", 0),
        file("c", b"3", b'7'),
        vec![0; 10 * BLOCK],
    ];
    let mut packed = gzip(&one.concat());
    packed.extend(gzip(&[]));
    packed.extend(gzip(&two.concat()));
    assert_eq!(paths(&packed).await, ["a", "b", "c"]);
    assert_eq!(paths(&archive(&[])).await, [""; 0]);
}

#[tokio::test]
async fn hostile_entries_are_refused_by_name() {
    let mut wrong_sum = file("a", b"x", b'0');
    wrong_sum[0] = b'b';
    let sparse = file("PaxHeaders/x", b"22 GNU.sparse.major=1\n", b'x');
    for (entries, words) in [
        (
            vec![file("/etc/passwd", b"x", b'0')],
            "\"/etc/passwd\": the path is absolute",
        ),
        (
            vec![file("a/../../b", b"x", b'0')],
            "\"a/../../b\": the path leaves the archive",
        ),
        (
            vec![file("..", b"", b'5')],
            "\"..\": the path leaves the archive",
        ),
        (
            vec![file("a//b", b"x", b'0')],
            "\"a//b\": the path has an empty part",
        ),
        (
            vec![file("a\nb", b"x", b'0')],
            "\"a\\nb\": the path has a control character",
        ),
        (vec![file("", b"x", b'0')], "an entry has no name"),
        (
            vec![header("a", 0, b'2')],
            "\"a\": is a link, which no backup holds",
        ),
        (vec![header("a", 0, b'1')], "\"a\": is a link"),
        (vec![header("a", 0, b'3')], "\"a\": is a device"),
        (vec![header("a", 0, b'6')], "\"a\": is a pipe"),
        (vec![header("a", 0, b'!')], "\"a\": is of an unknown type"),
        (vec![sparse], "a sparse file is no entry"),
        (
            vec![file("a", b"x", b'0'), file("./a", b"x", b'0')],
            "\"a\": is there twice",
        ),
        (
            vec![header("a", 65 << 20, b'0')],
            "\"a\": has 68157440 bytes, more than the limit",
        ),
        (
            vec![header("a", 2 << 20, b'L')],
            "an extended header is too long",
        ),
        (
            vec![file("x", b"99 path=a\n", b'x')],
            "a PAX header cannot be understood",
        ),
        (
            vec![file("x", b"2 \n", b'x')],
            "a PAX header cannot be understood",
        ),
        (
            vec![file("x", b"0", b'x')],
            "a PAX header cannot be understood",
        ),
        (vec![wrong_sum], "a header's checksum is wrong"),
        (
            vec![vec![0; BLOCK], file("a", b"x", b'0')],
            "a block of the end is missing",
        ),
        (
            vec![vec![0; 2 * BLOCK], file("a", b"x", b'0')],
            "something follows the end of the archive",
        ),
    ] {
        let text = refusal(&archive(&entries)).await;
        assert!(
            text.starts_with("b.tar.gz: ") && text.contains(words),
            "{text}"
        );
    }
}

#[tokio::test]
async fn whatever_is_cut_off_is_missed() {
    let packed = golden("basic");
    for cut in (0..packed.len())
        .step_by(97)
        .chain(packed.len() - 20..packed.len())
    {
        let text = refusal(&packed[..cut]).await;
        assert!(text.contains("cut short"), "{cut}: {text}");
    }
    // A sound gzip stream around a tar that ends too early.
    let tar = [
        file("a", b"x", b'0'),
        file("b", &[b'y'; 600], b'0'),
        vec![0; 2 * BLOCK],
    ]
    .concat();
    for cut in (0..tar.len())
        .step_by(61)
        .chain([511, 512, 513, tar.len() - 1])
    {
        let text = refusal(&gzip(&tar[..cut])).await;
        assert!(text.contains("cut short"), "{cut}: {text}");
    }
}

#[tokio::test]
async fn whatever_is_changed_or_added_is_noticed() {
    let packed = archive(&[file("a", b"some text", b'0'), file("b", b"more", b'0')]);
    let whole = read(&packed, Limits::default()).await.unwrap();
    for at in 0..packed.len() {
        for bit in [1, 0x80] {
            let mut changed = packed.clone();
            changed[at] ^= bit;
            // Some bits mean nothing, such as the time in gzip's header.
            if let Ok(read) = read(&changed, Limits::default()).await {
                assert!(read == whole, "byte {at}");
            }
        }
    }
    for tail in [
        &b"x"[..],
        &[0; 512],
        b"\x1f\x8b",
        b"garbage garbage garbage",
    ] {
        let text = refusal(&[&packed[..], tail].concat()).await;
        let words = ["something follows the end", "cut short", "not gzip"];
        assert!(words.iter().any(|words| text.contains(words)), "{text}");
    }
}

#[tokio::test]
async fn bombs_are_refused_before_they_explode() {
    let entries: Vec<_> = (0..6)
        .map(|n| file(&format!("{n}"), &vec![0; 1 << 20], b'0'))
        .collect();
    let packed = archive(&entries);
    let limits = Limits {
        harmless: 1 << 20,
        ..Default::default()
    };
    let error = read(&packed, limits).await.unwrap_err().to_string();
    assert_eq!(error, "b.tar.gz: unpacks to more than 500 times its size");
    let limits = Limits {
        total: 3 << 20,
        ..Default::default()
    };
    let error = read(&packed, limits).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "b.tar.gz: unpacks to more than the limit of 3145728 bytes"
    );
    assert_eq!(read(&packed, Limits::default()).await.unwrap().len(), 6);
}

#[tokio::test]
async fn errors_of_the_body_are_passed_on() {
    let packed = golden("basic");
    let broken = Error::Store {
        action: "get b".into(),
        reason: "gone".into(),
        retryable: true,
    };
    let chunks = [Ok(Bytes::copy_from_slice(&packed[..100])), Err(broken)];
    let mut reader = Reader::new("k", stream::iter(chunks).boxed());
    let error = loop {
        match reader.next().await {
            Ok(item) => assert!(item.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "get b: gone");
}
