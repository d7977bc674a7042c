//! Sending a stream whose length nobody knows: small bodies in one request, others in parts.
//!
//! Memory is three parts: two on their way and the one being filled.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::{
    MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, TagSet, path::Path,
};
use tokio::task::JoinSet;

use crate::{ByteStream, Error};

/// The smallest part that S3 takes, unless it is the last one.
pub(super) const PART: usize = 5 << 20;

/// After so many parts their size doubles: 10,000 is the most that S3 takes, and ten steps reach
/// beyond the largest object it can hold.
const STEP: usize = 1000;

/// Parts on their way at the same time.
const IN_FLIGHT: usize = 2;

/// How long each step of cleaning up after a failed upload may take.
const ABORT: Duration = Duration::from_secs(30);

/// Why an upload failed: the body's error, or the store's.
pub(super) enum Failure {
    Body(Error),
    Store(object_store::Error),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

/// Sends `body` to `path`. After an error, or when dropped, nothing is left of it.
pub(super) async fn send(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    tags: &TagSet,
    first_part: usize,
    body: ByteStream,
) -> Result<(), Failure> {
    let mut parts = Parts {
        body,
        rest: Bytes::new(),
        room: 0,
    };
    let first = parts.next(first_part).await?;
    if first.is_last {
        let options = PutOptions {
            tags: tags.clone(),
            ..Default::default()
        };
        store.put_opts(path, first.payload, options).await?;
        return Ok(());
    }
    let options = PutMultipartOptions {
        tags: tags.clone(),
        ..Default::default()
    };
    let mut upload = Upload {
        running: JoinSet::new(),
        upload: Some(store.put_multipart_opts(path, options).await?),
    };
    match upload.send(first, parts, first_part).await {
        Ok(()) => Ok(()),
        Err(failure) => {
            upload.abort().await;
            Err(failure)
        }
    }
}

/// The size of the part with this number.
fn part_size(first: usize, number: usize) -> usize {
    first << (number / STEP).min(10)
}

struct Part {
    payload: PutPayload,
    is_last: bool,
}

/// A body cut into parts of exact sizes: some stores want all but the last to be equal.
struct Parts {
    body: ByteStream,
    rest: Bytes,
    /// What to make room for at once: nothing before it is known that the body is large.
    room: usize,
}

impl Parts {
    async fn next(&mut self, size: usize) -> Result<Part, Failure> {
        // Small chunks are copied together: keeping each would keep whatever it is a slice of.
        let mut part = BytesMut::with_capacity(size.min(self.room));
        loop {
            let take = self.rest.len().min(size - part.len());
            part.extend_from_slice(&self.rest.split_to(take));
            // A full part is only handed out once there is more, so that the last one is known.
            if part.len() == size && !self.rest.is_empty() {
                self.room = usize::MAX;
                return Ok(Part {
                    payload: part.freeze().into(),
                    is_last: false,
                });
            }
            match self.body.next().await {
                Some(Ok(chunk)) => self.rest = chunk,
                Some(Err(error)) => return Err(Failure::Body(error)),
                None => {
                    return Ok(Part {
                        payload: part.freeze().into(),
                        is_last: true,
                    });
                }
            }
        }
    }
}

/// Parts on their way.
type Running = JoinSet<object_store::Result<()>>;

/// An upload in parts that has not been completed.
struct Upload {
    running: Running,
    upload: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    async fn send(&mut self, first: Part, mut parts: Parts, size: usize) -> Result<(), Failure> {
        let Some(upload) = self.upload.as_mut() else {
            return Ok(());
        };
        let mut part = first;
        let mut number = 0;
        loop {
            while self.running.len() >= IN_FLIGHT {
                joined(self.running.join_next().await)?;
            }
            self.running.spawn(upload.put_part(part.payload));
            if part.is_last {
                break;
            }
            number += 1;
            part = parts.next(part_size(size, number)).await?;
        }
        while let Some(result) = self.running.join_next().await {
            joined(Some(result))?;
        }
        upload.complete().await?;
        self.upload = None;
        Ok(())
    }

    async fn abort(&mut self) {
        if let Some(upload) = self.upload.take() {
            abort(upload, std::mem::take(&mut self.running)).await;
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(abort(upload, std::mem::take(&mut self.running)));
        }
    }
}

fn joined(
    result: Option<Result<object_store::Result<()>, tokio::task::JoinError>>,
) -> object_store::Result<()> {
    match result {
        None => Ok(()),
        Some(Ok(result)) => result,
        Some(Err(source)) => Err(object_store::Error::JoinError { source }),
    }
}

/// Best effort: what stays is invisible, and goes by the bucket's own rule for such leftovers.
///
/// Parts on their way are waited for. A store may go on with a part after we have hung up, and one
/// that it finishes after the upload was aborted stays for good.
async fn abort(mut upload: Box<dyn MultipartUpload>, mut running: Running) {
    let finished = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(ABORT, finished).await.is_err() {
        running.shutdown().await;
    }
    match tokio::time::timeout(ABORT, upload.abort()).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("an unfinished upload could not be removed; its parts are invisible");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[test]
    fn ten_thousand_parts_hold_the_largest_object() {
        let all: u64 = (0..10_000).map(|n| part_size(PART, n) as u64).sum();
        assert_eq!(part_size(PART, 999), PART);
        assert_eq!(part_size(PART, 1000), 2 * PART);
        assert!(all > 4 << 40, "{all}");
    }

    async fn sizes(chunks: &[usize], size: usize) -> Vec<(usize, bool)> {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|n| Ok(Bytes::from(vec![7; *n])))
            .collect();
        let mut parts = Parts {
            body: stream::iter(chunks).boxed(),
            rest: Bytes::new(),
            room: 0,
        };
        let mut all = Vec::new();
        loop {
            let Ok(part) = parts.next(size).await else {
                panic!("a part")
            };
            all.push((part.payload.content_length(), part.is_last));
            if part.is_last {
                return all;
            }
        }
    }

    #[tokio::test]
    async fn parts_are_cut_to_size() {
        assert_eq!(sizes(&[], 10).await, [(0, true)]);
        assert_eq!(sizes(&[10], 10).await, [(10, true)]);
        assert_eq!(sizes(&[3, 3, 3, 3], 10).await, [(10, false), (2, true)]);
        assert_eq!(
            sizes(&[25], 10).await,
            [(10, false), (10, false), (5, true)]
        );
        assert_eq!(
            sizes(&[0, 10, 0, 10, 0], 10).await,
            [(10, false), (10, true)]
        );
    }
}
