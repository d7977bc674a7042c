//! Writing: entries become tar bytes in batches, batches are compressed apart from each other (on
//! as many threads as one likes), and the pieces are joined into one gzip member.
//!
//! ```text
//!   Batch::add ─▶ Packer::pack (any thread) ─▶ Writer::push ─▶ ByteStream ─▶ store
//! ```
//!
//! A piece is deflated on its own and ends on a byte (a sync flush), so pieces may be joined in any
//! order; the checksum of the whole is made from those of the pieces.

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::{ByteStream, Error};

const BLOCK: usize = 512;
/// What deflate ends with: an empty last block.
const LAST_BLOCK: [u8; 2] = [3, 0];
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// Packed bytes gathered before they are sent on.
const SEND: usize = 128 * 1024;

/// Entries as tar bytes.
#[derive(Debug, Default)]
pub struct Batch {
    tar: Vec<u8>,
    mtime: u64,
}

/// A compressed batch.
#[derive(Debug)]
pub struct Packed {
    deflated: Vec<u8>,
    checksum: crc32fast::Hasher,
    size: u64,
}

impl Batch {
    /// An empty batch whose entries will bear this time, in seconds since 1970.
    #[must_use]
    pub fn new(mtime: u64) -> Self {
        Self {
            tar: Vec::new(),
            mtime,
        }
    }

    /// The tar bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tar.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tar.is_empty()
    }

    /// Forgets the entries and keeps the memory.
    pub fn clear(&mut self) {
        self.tar.clear();
    }

    /// Adds a file.
    pub fn add(&mut self, path: &str, body: &[u8]) {
        let mut header = Header::new(body.len() as u64, self.mtime, b'0');
        if !header.set_path(path) {
            self.add_extended(path);
            header.set_short_path(path);
        }
        self.tar.extend_from_slice(&header.finish());
        self.add_body(body);
    }

    /// A PAX header with the path of the next entry, for paths that a plain header cannot hold.
    fn add_extended(&mut self, path: &str) {
        let record = pax_record("path", path);
        let mut header = Header::new(record.len() as u64, 0, b'x');
        header.set_short_path(&format!("PaxHeaders.0/{path}"));
        self.tar.extend_from_slice(&header.finish());
        self.add_body(record.as_bytes());
    }

    fn add_body(&mut self, body: &[u8]) {
        self.tar.extend_from_slice(body);
        let padding = body.len().next_multiple_of(BLOCK) - body.len();
        self.tar.resize(self.tar.len() + padding, 0);
    }
}

/// Compresses batches. Keeps its memory, of which deflate needs a good deal, from one to the next.
#[derive(Debug)]
pub struct Packer(Compress);

impl Packer {
    /// One that takes this much trouble, from 1 to 9.
    #[must_use]
    pub fn new(level: u32) -> Self {
        Self(Compress::new(Compression::new(level), false))
    }

    /// Compresses the entries of a batch. Takes a while: not for an async thread.
    #[must_use]
    pub fn pack(&mut self, batch: &Batch) -> Packed {
        let tar = &batch.tar;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(tar);
        let mut deflated = Vec::with_capacity(tar.len() / 4 + 4096);
        let deflate = &mut self.0;
        deflate.reset();
        loop {
            let done = usize::try_from(deflate.total_in()).expect("a batch fits into memory");
            if deflated.capacity() - deflated.len() < 1024 {
                deflated.reserve(deflated.len() / 2 + 4096);
            }
            let status = deflate
                .compress_vec(&tar[done..], &mut deflated, FlushCompress::Sync)
                .expect("deflating has no way to fail");
            let all_in = usize::try_from(deflate.total_in()) == Ok(tar.len());
            // A flush is complete when it left room in the output.
            if all_in && status != Status::StreamEnd && deflated.len() < deflated.capacity() {
                break;
            }
        }
        Packed {
            deflated,
            checksum,
            size: tar.len() as u64,
        }
    }
}

/// Joins packed batches into an archive.
#[derive(Debug)]
pub struct Writer {
    out: mpsc::Sender<Piece>,
    buffer: Vec<u8>,
    checksum: crc32fast::Hasher,
    size: u64,
    sent: u64,
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// The reader of the stream is gone; it knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody takes the archive any more")]
pub struct Closed;

/// A writer and the stream of what it writes. Unless [`Writer::finish`] is called the stream ends
/// in an error, so that a store keeps nothing.
#[must_use]
pub fn stream() -> (Writer, ByteStream) {
    let (out, pieces) = mpsc::channel(2);
    let writer = Writer {
        out,
        buffer: GZIP_HEADER.to_vec(),
        checksum: crc32fast::Hasher::new(),
        size: 0,
        sent: 0,
    };
    let stream = futures::stream::unfold(Some(pieces), |pieces| async move {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(pieces))),
            Some(Piece::End) => None,
            None => Some((
                Err(Error::Cancelled {
                    action: "write archive".to_owned(),
                }),
                None,
            )),
        }
    });
    (writer, stream.boxed())
}

impl Writer {
    /// Adds a batch; waits while the store is behind.
    pub async fn push(&mut self, packed: Packed) -> Result<(), Closed> {
        self.checksum.combine(&packed.checksum);
        self.size += packed.size;
        self.buffer.extend_from_slice(&packed.deflated);
        if self.buffer.len() >= SEND {
            self.send().await?;
        }
        Ok(())
    }

    /// Ends the archive. Returns its size in bytes, compressed.
    pub async fn finish(mut self) -> Result<u64, Closed> {
        let mut end = Batch::new(0);
        end.tar.resize(2 * BLOCK, 0);
        self.push(Packer::new(1).pack(&end)).await?;
        self.buffer.extend_from_slice(&LAST_BLOCK);
        let checksum = self.checksum.clone().finalize();
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        let size = u32::try_from(self.size & u64::from(u32::MAX)).expect("masked");
        self.buffer.extend_from_slice(&size.to_le_bytes());
        self.send().await?;
        self.out.send(Piece::End).await.map_err(|_| Closed)?;
        Ok(self.sent)
    }

    async fn send(&mut self) -> Result<(), Closed> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        self.sent += bytes.len() as u64;
        self.out.send(Piece::Bytes(bytes)).await.map_err(|_| Closed)
    }
}

/// A tar header of the `ustar` kind.
struct Header([u8; BLOCK]);

impl Header {
    fn new(size: u64, mtime: u64, kind: u8) -> Self {
        let mut header = Self([0; BLOCK]);
        header.octal(100, 8, if kind == b'0' { 0o755 } else { 0 });
        header.octal(108, 8, 0);
        header.octal(116, 8, 0);
        header.octal(124, 12, size);
        header.octal(136, 12, mtime);
        header.0[156] = kind;
        header.0[257..265].copy_from_slice(b"ustar\x0000");
        header.octal(329, 8, 0);
        header.octal(337, 8, 0);
        header
    }

    /// Digits filled up with zeros, and a NUL; a size too large for them in base 256.
    fn octal(&mut self, at: usize, width: usize, value: u64) {
        let field = &mut self.0[at..at + width];
        if value >= 1 << (3 * (width - 1)) {
            field[0] = 0x80;
            field[width - 8..].copy_from_slice(&value.to_be_bytes());
            return;
        }
        let mut rest = value;
        for digit in field[..width - 1].iter_mut().rev() {
            *digit = b'0' + (rest & 7) as u8;
            rest >>= 3;
        }
    }

    /// Puts the path into name and prefix; false when it does not fit or is not ASCII.
    fn set_path(&mut self, path: &str) -> bool {
        let path = path.as_bytes();
        if !path.is_ascii() || path.contains(&0) {
            return false;
        }
        if path.len() <= 100 {
            self.0[..path.len()].copy_from_slice(path);
            return true;
        }
        // The longest prefix leaves the shortest name.
        let Some(cut) = path[..path.len().min(156)].iter().rposition(|b| *b == b'/') else {
            return false;
        };
        let (prefix, name) = (&path[..cut], &path[cut + 1..]);
        if prefix.is_empty() || name.is_empty() || name.len() > 100 {
            return false;
        }
        self.0[..name.len()].copy_from_slice(name);
        self.0[345..345 + prefix.len()].copy_from_slice(prefix);
        true
    }

    /// What readers that do not know PAX will see.
    fn set_short_path(&mut self, path: &str) {
        let ascii = path.bytes().map(|b| if b.is_ascii() { b } else { b'_' });
        for (slot, byte) in self.0[..100].iter_mut().zip(ascii) {
            *slot = byte;
        }
    }

    fn finish(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|b| u64::from(*b)).sum();
        self.octal(148, 7, sum);
        self.0
    }
}

/// `<length> <key>=<value>\n`, where the length counts itself.
fn pax_record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use futures::TryStreamExt;

    use super::*;

    async fn whole(batches: Vec<Batch>) -> (Vec<u8>, u64) {
        let (mut writer, stream) = stream();
        let writing = async move {
            let mut packer = Packer::new(6);
            for batch in batches {
                writer.push(packer.pack(&batch)).await.unwrap();
            }
            writer.finish().await.unwrap()
        };
        let reading = stream.try_fold(Vec::new(), |mut all, piece| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        });
        let (size, bytes) = tokio::join!(writing, reading);
        (bytes.unwrap(), size)
    }

    fn entries(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        tar.entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                let mut body = Vec::new();
                entry.read_to_end(&mut body).unwrap();
                assert_eq!(entry.header().mode().unwrap(), 0o755);
                assert_eq!(entry.header().mtime().unwrap(), 77);
                (path, body)
            })
            .collect()
    }

    #[tokio::test]
    async fn any_reader_finds_what_was_added() {
        let deep = format!(
            "resources/pods/namespaces/{}/{}.json",
            "n".repeat(63),
            "p".repeat(253)
        );
        let split = format!("{}/{}", "d".repeat(155), "f".repeat(100));
        let files = [
            ("metadata/version", b"1.1.0\n".to_vec()),
            ("resources/roles/cluster/system:näme.json", b"{}".to_vec()),
            (deep.as_str(), vec![b'x'; 513]),
            (split.as_str(), Vec::new()),
            ("big", (0..300_000_u32).flat_map(u32::to_le_bytes).collect()),
        ];
        let batches = files
            .iter()
            .map(|(path, body)| {
                let mut batch = Batch::new(77);
                batch.add(path, body);
                batch
            })
            .collect();
        let (archive, size) = whole(batches).await;
        assert_eq!(size, archive.len() as u64);
        let expected: Vec<_> = files
            .iter()
            .map(|(path, body)| ((*path).to_owned(), body.clone()))
            .collect();
        assert!(entries(&archive) == expected);
    }

    #[tokio::test]
    async fn an_archive_left_unfinished_is_an_error() {
        let (mut writer, stream) = stream();
        let mut batch = Batch::new(0);
        batch.add("a", b"b");
        writer.push(Packer::new(1).pack(&batch)).await.unwrap();
        drop(writer);
        let read: Result<Vec<Bytes>, _> = stream.try_collect().await;
        assert!(matches!(read, Err(Error::Cancelled { .. })));
    }
}
