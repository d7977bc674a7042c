//! Reads a backup's archive as it comes: gzip around tar, one entry after the other, never on disk.
//!
//! An archive comes from a bucket that others can write to. Whatever would reach outside, hide
//! something, or eat the memory is refused as [`Error::Damaged`], naming the entry: absolute paths
//! and `..`, links and devices, the same path twice, entries and archives beyond the [`Limits`],
//! bad checksums, anything cut short or appended. Accepted are all kinds of long names, folders,
//! and gzip in several members.
//!
//! Unpacking needs no thread of its own: it goes in steps of 64 KiB, so memory is that, a chunk of
//! the body, and the one entry that is asked for.

mod entry;
mod gunzip;
mod header;

pub use entry::Entry;

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use bytes::Bytes;

use self::{
    gunzip::Gunzip,
    header::{BLOCK, Header, Kind},
};
use crate::{ByteStream, Error, Result};

/// The longest extended header: names have their limits, and PAX holds little else.
const LONGEST_EXTENSION: u64 = 1 << 20;

/// How much an archive may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest entry. Kubernetes takes objects of a few MiB at most; 64 MiB unless told.
    pub entry: u64,
    /// The largest archive, unpacked; 256 GiB unless told.
    pub total: u64,
    /// How many times larger than packed it may be, unpacked; 500 unless told. Objects that are
    /// much alike reach 100; what is made to explode comes near gzip's limit of 1032.
    pub ratio: u64,
    /// Up to this size the ratio does not matter; 256 MiB unless told.
    pub harmless: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entry: 64 << 20,
            total: 256 << 30,
            ratio: 500,
            harmless: 256 << 20,
        }
    }
}

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The path, relative, without `.` and `..`.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The object that the path stands for, where it does.
    pub entry: Option<Entry>,
}

/// An archive being read.
pub struct Reader {
    key: String,
    body: Gunzip,
    limits: Limits,
    hash: RandomState,
    /// Hashes of the paths so far: paths themselves would need ten times the memory.
    seen: HashSet<u64>,
    path: String,
    /// What is left of the current entry, and of its last block.
    left: u64,
    padding: u64,
    is_over: bool,
}

impl Reader {
    /// Reads what a body brings; `key` is for errors.
    #[must_use]
    pub fn new(key: &str, body: ByteStream) -> Self {
        Self::with_limits(key, body, Limits::default())
    }

    /// The same with limits of one's own.
    #[must_use]
    pub fn with_limits(key: &str, body: ByteStream, limits: Limits) -> Self {
        Self {
            key: key.to_owned(),
            body: Gunzip::new(key, body, limits),
            limits,
            hash: RandomState::new(),
            seen: HashSet::new(),
            path: String::new(),
            left: 0,
            padding: 0,
            is_over: false,
        }
    }

    /// Goes on to the next file, passing over the body of the one before if nobody wanted it.
    /// None comes only after the whole archive was read and its checksums were right.
    ///
    /// # Errors
    /// The body's, and [`Error::Damaged`] for an archive that cannot be trusted. Nothing sensible
    /// comes after an error.
    pub async fn next(&mut self) -> Result<Option<Item>> {
        if self.is_over {
            return Ok(None);
        }
        let rest = self.left + self.padding;
        self.body.skip(rest).await?;
        (self.left, self.padding) = (0, 0);
        let mut long = Extension::default();
        loop {
            let Some(block) = self.block().await? else {
                return self.end().await;
            };
            let header = Header::parse(&block).map_err(|reason| self.damaged(reason))?;
            let size = match header.kind {
                Kind::File | Kind::Folder => long.size.unwrap_or(header.size),
                _ => header.size,
            };
            if size > self.limits.total {
                self.path = header.path;
                return Err(self.damaged(format!("has {size} bytes, which cannot be")));
            }
            self.left = size;
            self.padding = size.next_multiple_of(BLOCK as u64) - size;
            match header.kind {
                Kind::Pax => long
                    .pax(&self.extension().await?)
                    .map_err(|e| self.damaged(e))?,
                Kind::LongName => {
                    let name = self.extension().await?;
                    long.name(&name).map_err(|e| self.damaged(e))?;
                }
                // Nobody here needs what holds for all entries, nor the names of links.
                Kind::Global | Kind::LongLink => drop(self.extension().await?),
                Kind::Folder | Kind::File => {
                    let name = long.path.take().unwrap_or(header.path);
                    if let Some(item) = self.item(&name, size, header.kind)? {
                        return Ok(Some(item));
                    }
                    self.body.skip(size + self.padding).await?;
                    (self.left, self.padding) = (0, 0);
                    long = Extension::default();
                }
                Kind::Other(what) => {
                    self.path = long.path.take().unwrap_or(header.path);
                    return Err(self.damaged(format!("is {what}, which no backup holds")));
                }
            }
        }
    }

    /// The body of the current file; empty when it was read before.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub async fn body(&mut self) -> Result<Bytes> {
        let size = usize::try_from(self.left).unwrap_or(usize::MAX);
        self.left = 0;
        let mut bytes = Vec::with_capacity(size.min(1 << 20));
        self.body.read(size, &mut bytes).await?;
        Ok(bytes.into())
    }

    /// A checked file, or none for a folder.
    fn item(&mut self, name: &str, size: u64, kind: Kind) -> Result<Option<Item>> {
        let name = name.strip_prefix("./").unwrap_or(name);
        self.path = name.to_owned();
        let is_folder = kind == Kind::Folder || name.ends_with('/');
        let name = if is_folder {
            name.strip_suffix('/').unwrap_or(name)
        } else {
            name
        };
        if is_folder && matches!(name, "" | ".") {
            return Ok(None);
        }
        entry::check(name).map_err(|reason| self.damaged(reason))?;
        if size > self.limits.entry {
            let most = self.limits.entry;
            return Err(self.damaged(format!("has {size} bytes, more than the limit of {most}")));
        }
        if is_folder {
            return Ok(None);
        }
        if !self.seen.insert(self.hash.hash_one(name)) {
            return Err(self.damaged("is there twice"));
        }
        Ok(Some(Item {
            path: name.to_owned(),
            size,
            entry: Entry::parse(name),
        }))
    }

    /// The next header; none for the empty block that begins the end.
    async fn block(&mut self) -> Result<Option<Vec<u8>>> {
        let mut block = Vec::with_capacity(BLOCK);
        self.body.read(BLOCK, &mut block).await?;
        Ok(block.iter().any(|byte| *byte != 0).then_some(block))
    }

    /// What follows the last entry: another empty block, and nothing but zeros to the very end.
    async fn end(&mut self) -> Result<Option<Item>> {
        self.path.clear();
        if self.block().await?.is_some() {
            return Err(self.damaged("a block of the end is missing"));
        }
        while let Some(bytes) = self.body.more().await? {
            if bytes.iter().any(|byte| *byte != 0) {
                return Err(self.damaged("something follows the end of the archive"));
            }
        }
        self.is_over = true;
        Ok(None)
    }

    /// The contents of an extended header.
    async fn extension(&mut self) -> Result<Vec<u8>> {
        if self.left > LONGEST_EXTENSION {
            return Err(self.damaged("an extended header is too long"));
        }
        let size = usize::try_from(self.left).unwrap_or_default();
        let mut bytes = Vec::with_capacity(size);
        self.body.read(size, &mut bytes).await?;
        self.body.skip(self.padding).await?;
        Ok(bytes)
    }

    fn damaged(&self, reason: impl Into<String>) -> Error {
        let key = match self.path.as_str() {
            "" => self.key.clone(),
            path => format!("{}: {path:?}", self.key),
        };
        Error::Damaged {
            key,
            reason: reason.into(),
        }
    }
}

/// What extended headers say about the entry that follows them.
#[derive(Default)]
struct Extension {
    path: Option<String>,
    size: Option<u64>,
}

impl Extension {
    /// Records are `<length> <key>=<value>\n`, where the length counts all of it.
    fn pax(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        const BAD: &str = "a PAX header cannot be understood";
        while !records.is_empty() {
            let space = records.iter().position(|b| *b == b' ').ok_or(BAD)?;
            let length = std::str::from_utf8(&records[..space]).map_err(|_| BAD)?;
            let length: usize = length.parse().map_err(|_| BAD)?;
            if length > records.len() || length < space + 2 || records[length - 1] != b'\n' {
                return Err(BAD);
            }
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|b| *b == b'=').ok_or(BAD)?;
            let value = std::str::from_utf8(&record[equals + 1..]);
            match &record[..equals] {
                b"path" => self.path = Some(value.map_err(|_| BAD)?.to_owned()),
                b"size" => self.size = Some(value.ok().and_then(|v| v.parse().ok()).ok_or(BAD)?),
                key if key.starts_with(b"GNU.sparse.") => return Err("a sparse file is no entry"),
                _ => {}
            }
            records = &records[length..];
        }
        Ok(())
    }

    fn name(&mut self, name: &[u8]) -> Result<(), &'static str> {
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        let name = std::str::from_utf8(&name[..end]).map_err(|_| "a long name is not UTF-8")?;
        self.path = Some(name.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
