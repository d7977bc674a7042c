//! Unpacks gzip, of one member or several, in small steps.

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use futures::StreamExt;

use super::Limits;
use crate::{ByteStream, Error, Result};

/// How much is unpacked at a time.
const STEP: usize = 64 << 10;

pub(super) struct Gunzip {
    key: String,
    body: ByteStream,
    limits: Limits,
    packed: Bytes,
    inflate: Option<Decompress>,
    /// Whether a member has ended: the body may end where one did, and nowhere else.
    is_whole: bool,
    step: Vec<u8>,
    /// The part of `step` that nobody has taken.
    from: usize,
    to: usize,
    bytes_in: u64,
    bytes_out: u64,
}

impl Gunzip {
    pub(super) fn new(key: &str, body: ByteStream, limits: Limits) -> Self {
        Self {
            key: key.to_owned(),
            body,
            limits,
            packed: Bytes::new(),
            inflate: None,
            is_whole: false,
            step: vec![0; STEP],
            from: 0,
            to: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Adds exactly `size` bytes to `into`.
    pub(super) async fn read(&mut self, mut size: usize, into: &mut Vec<u8>) -> Result<()> {
        while size > 0 {
            let taken = self.take(size).await?;
            into.extend_from_slice(&self.step[taken.clone()]);
            size -= taken.len();
        }
        Ok(())
    }

    /// Passes over exactly `size` bytes.
    pub(super) async fn skip(&mut self, mut size: u64) -> Result<()> {
        while size > 0 {
            let most = usize::try_from(size).unwrap_or(usize::MAX);
            size -= self.take(most).await?.len() as u64;
        }
        Ok(())
    }

    /// Whatever is next; none at the end.
    pub(super) async fn more(&mut self) -> Result<Option<&[u8]>> {
        if self.from == self.to && !self.unpack().await? {
            return Ok(None);
        }
        let taken = self.from..self.to;
        self.from = self.to;
        Ok(Some(&self.step[taken]))
    }

    /// Takes up to `most` bytes, which must be there.
    async fn take(&mut self, most: usize) -> Result<std::ops::Range<usize>> {
        if self.from == self.to && !self.unpack().await? {
            return Err(self.damaged("the archive is cut short"));
        }
        let taken = self.from..self.to.min(self.from.saturating_add(most));
        self.from = taken.end;
        Ok(taken)
    }

    /// Unpacks a step; false at the end.
    async fn unpack(&mut self) -> Result<bool> {
        (self.from, self.to) = (0, 0);
        while self.to == 0 {
            if self.packed.is_empty() {
                match self.body.next().await {
                    Some(chunk) => self.packed = chunk?,
                    None if self.inflate.is_none() && self.is_whole => return Ok(false),
                    None => return Err(self.damaged("the gzip stream is cut short")),
                }
                continue;
            }
            let is_first_step = self.inflate.is_none();
            let inflate = self.inflate.get_or_insert_with(|| Decompress::new_gzip(15));
            let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(&self.packed, &mut self.step, FlushDecompress::None);
            let read = inflate.total_in() - before_in;
            let wrote = inflate.total_out() - before_out;
            let status = match status {
                Ok(status) if read > 0 || wrote > 0 || status == Status::StreamEnd => status,
                // No progress is no more of an answer than an error.
                _ if is_first_step && self.is_whole => {
                    return Err(self.damaged("something follows the end of the gzip stream"));
                }
                _ => return Err(self.damaged("not gzip, or damaged")),
            };
            self.packed
                .advance(usize::try_from(read).unwrap_or(usize::MAX));
            self.to = usize::try_from(wrote).unwrap_or_default();
            self.bytes_in += read;
            self.bytes_out += wrote;
            if status == Status::StreamEnd {
                self.inflate = None;
                self.is_whole = true;
            }
            self.check()?;
        }
        Ok(true)
    }

    fn check(&self) -> Result<()> {
        let Limits {
            total,
            ratio,
            harmless,
            ..
        } = self.limits;
        if self.bytes_out > total {
            return Err(self.damaged(&format!("unpacks to more than the limit of {total} bytes")));
        }
        if self.bytes_out > harmless && self.bytes_out / ratio.max(1) > self.bytes_in {
            return Err(self.damaged(&format!("unpacks to more than {ratio} times its size")));
        }
        Ok(())
    }

    fn damaged(&self, reason: &str) -> Error {
        Error::Damaged {
            key: self.key.clone(),
            reason: reason.to_owned(),
        }
    }
}
