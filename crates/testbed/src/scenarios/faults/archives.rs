//! Archives that nobody should trust, made by hand.

use std::io::Write;

use anyhow::Context;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tar::{EntryType, Header};

const MIB: usize = 1 << 20;

/// A file of an archive, whatever it is called and says it is.
pub(super) struct File {
    pub(super) path: &'static str,
    pub(super) kind: EntryType,
    pub(super) body: Vec<u8>,
}

/// A ConfigMap of namespace `shop`, where it belongs.
pub(super) fn map(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "shop" },
        "data": { "of": name },
    })
}

/// A file at a path.
pub(super) fn file(path: &'static str, body: impl Into<Vec<u8>>) -> File {
    File {
        path,
        kind: EntryType::Regular,
        body: body.into(),
    }
}

/// An archive with one good ConfigMap `m0`, and these files.
pub(super) fn with(files: &[File]) -> anyhow::Result<Vec<u8>> {
    let good = [
        file("metadata/version", "1.1.0\n"),
        file(
            "resources/configmaps/namespaces/shop/m0.json",
            map("m0").to_string(),
        ),
    ];
    let mut builder = tar::Builder::new(Vec::new());
    for File { path, kind, body } in good.iter().chain(files) {
        let header = header(path, *kind, body.len());
        builder.append(&header, &body[..])?;
    }
    gzip(&builder.into_inner()?)
}

/// A header with a path that the library would not let pass.
fn header(path: &str, kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    if kind == EntryType::Symlink {
        header.as_old_mut().linkname[..11].copy_from_slice(b"/etc/passwd");
    }
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size as u64);
    header.set_cksum();
    header
}

/// One entry that says it is larger than any object.
pub(super) fn giant() -> anyhow::Result<Vec<u8>> {
    let path = "resources/configmaps/namespaces/shop/giant.json";
    gzip(header(path, EntryType::Regular, 65 * MIB).as_bytes())
}

/// Entries of zeros: each may pass, but all together they are a thousand times their packed size.
pub(super) fn bomb() -> anyhow::Result<Vec<u8>> {
    let zeros = gzip(&vec![0; MIB])?;
    let mut packed = Vec::new();
    for n in 0..10 {
        let path = format!("resources/configmaps/namespaces/shop/bomb{n}.json");
        packed.extend(gzip(
            header(&path, EntryType::Regular, 60 * MIB).as_bytes(),
        )?);
        for _ in 0..60 {
            packed.extend_from_slice(&zeros);
        }
    }
    Ok(packed)
}

/// Packs bytes.
pub(super) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish().context("pack")
}
