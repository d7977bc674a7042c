//! Packs: blobs one after another, then a header that lists them, encrypted, and its length.

use super::{
    crypto::{Key, OVERHEAD},
    id::Id,
    index::{Blob, Pack, Placed},
};

/// A pack that has so many bytes is full.
pub(crate) const FULL: usize = 16 << 20;
/// A header has at most so many blobs; restic reads no larger one.
const MOST: usize = 300_000;

/// A pack that is being filled.
#[derive(Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    blobs: Vec<Placed>,
    /// Bytes of files that are in it.
    moved: u64,
}

/// A full pack.
pub(crate) struct Built {
    pub(crate) pack: Pack,
    pub(crate) bytes: Vec<u8>,
    pub(crate) moved: u64,
}

impl Builder {
    /// A pack in memory that was used before.
    pub(crate) fn with(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            bytes,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Adds a blob that was sealed; true when the pack is full.
    pub(crate) fn add(&mut self, blob: Blob, id: Id, sealed: &[u8], raw: u32) -> bool {
        if self.bytes.capacity() == 0 {
            // Once, for a pack that gets full; pages that stay untouched cost nothing.
            self.bytes.reserve_exact(FULL + (1 << 20));
        }
        self.blobs.push(Placed {
            id,
            blob,
            offset: self.bytes.len() as u32,
            length: sealed.len() as u32,
            raw,
        });
        self.bytes.extend_from_slice(sealed);
        self.bytes.len() >= FULL || self.blobs.len() >= MOST
    }

    /// Notes bytes of files that the last blob brought.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    /// Ends the pack.
    pub(crate) fn build(self, key: &Key) -> Built {
        let mut header = Vec::with_capacity(self.blobs.len() * 41);
        for blob in &self.blobs {
            let kind = match blob.blob {
                Blob::Data => 0,
                Blob::Tree => 1,
            };
            header.push(if blob.raw == 0 { kind } else { kind + 2 });
            header.extend_from_slice(&blob.length.to_le_bytes());
            if blob.raw != 0 {
                header.extend_from_slice(&blob.raw.to_le_bytes());
            }
            header.extend_from_slice(&blob.id.0);
        }
        let mut bytes = self.bytes;
        key.seal(&header, &mut bytes);
        let length = (header.len() + OVERHEAD) as u32;
        bytes.extend_from_slice(&length.to_le_bytes());
        Built {
            pack: Pack {
                id: Id::of(&bytes),
                blobs: self.blobs,
            },
            bytes,
            moved: self.moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_what_is_before_it() {
        let key = Key::random();
        let mut builder = Builder::default();
        assert!(builder.is_empty());
        assert!(!builder.add(Blob::Data, Id([1; 32]), b"first", 0));
        assert!(!builder.add(Blob::Tree, Id([2; 32]), b"second", 99));
        let built = builder.build(&key);
        assert_eq!(built.pack.id, Id::of(&built.bytes));
        assert_eq!(&built.bytes[..11], b"firstsecond");
        let (rest, length) = built.bytes.split_at(built.bytes.len() - 4);
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let mut header = rest[11..].to_vec();
        assert_eq!(header.len(), length);
        let header = key.open(&mut header).unwrap();
        let mut expected = vec![0, 5, 0, 0, 0];
        expected.extend([1; 32]);
        expected.extend([3, 6, 0, 0, 0, 99, 0, 0, 0]);
        expected.extend([2; 32]);
        assert_eq!(header, expected);
        let offsets: Vec<_> = built.pack.blobs.iter().map(|b| b.offset).collect();
        assert_eq!(offsets, [0, 5]);
    }
}
