//! What a store must be able to do: the calls of the plugin protocol, so that built-in stores and
//! external ones look alike.

pub mod filesystem;

mod aws;
mod azure;
mod credentials;
mod gcp;
mod http;
mod reason;
mod remote;
mod settings;
mod upload;

pub(crate) use settings::Settings;

use std::{fmt::Debug, ops::Range, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};

use crate::{Error, Result};

/// Bytes as they come.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// An object and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The size in bytes.
    pub size: u64,
}

/// One bucket of an object store. Keys have no leading slash.
#[async_trait]
pub trait ObjectStore: Send + Sync + Debug {
    /// Stores an object. It is visible only once it is whole: when `body` ends in an error, or the
    /// call is dropped, nothing is.
    async fn put(&self, key: &str, body: ByteStream) -> Result<()>;
    /// Reads an object; [`Error::NotFound`] when there is none.
    async fn get(&self, key: &str) -> Result<ByteStream>;
    /// Stores an object that is at hand as a whole.
    async fn put_whole(&self, key: &str, body: Bytes) -> Result<()> {
        self.put(key, stream::iter([Ok(body)]).boxed()).await
    }
    /// Reads a part of an object; [`Error::Damaged`] when that is not all there.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let mut body = self.get(key).await?;
        let (mut skip, wanted) = (range.start, range.end.saturating_sub(range.start));
        let mut part = BytesMut::new();
        while (part.len() as u64) < wanted
            && let Some(chunk) = body.next().await
        {
            let mut chunk = chunk?;
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
            let _ = chunk.split_to(skipped);
            skip -= skipped as u64;
            let missing = usize::try_from(wanted).unwrap_or(usize::MAX) - part.len();
            chunk.truncate(missing);
            part.extend_from_slice(&chunk);
        }
        whole(key, &range, part.freeze())
    }
    /// Whether there is such an object.
    async fn exists(&self, key: &str) -> Result<bool>;
    /// All objects whose keys begin with `prefix`, in order.
    async fn list(&self, prefix: &str) -> Result<Vec<Entry>>;
    /// The folders directly under `prefix` (empty, or ending in `/`), in full, with their `/`.
    async fn folders(&self, prefix: &str) -> Result<Vec<String>>;
    /// Removes an object; one that is not there is no error.
    async fn delete(&self, key: &str) -> Result<()>;
    /// A URL that anybody can read the object with for a while.
    async fn sign(&self, key: &str, ttl: Duration) -> Result<String>;
    /// Whom to name when no answer comes: a URL, a folder, a plugin.
    fn endpoint(&self) -> &str {
        "the object store"
    }
}

/// How another program gets at a bucket as the same somebody. Not to be shown: it holds secrets.
///
/// Variables are those that the provider's own libraries read. One without a value must not be
/// set, lest the program takes itself for somebody else.
pub enum Access {
    /// S3.
    Aws {
        /// Who we are, and the region.
        variables: Vec<(&'static str, String)>,
    },
    /// Azure Blob Storage.
    Azure {
        /// The storage account.
        account: String,
        /// Its URL.
        endpoint: String,
        /// Its key, when the credentials hold it.
        key: Option<String>,
        /// Who we are, when they do not.
        variables: Vec<(&'static str, String)>,
    },
    /// Google Cloud Storage.
    Gcp {
        /// Its URL.
        endpoint: String,
        /// The text of the account's key file; without, we are the machine.
        account: Option<String>,
    },
    /// A folder.
    Folder,
}

/// How another program gets at the bucket of a built-in provider.
pub(crate) fn access(provider: &str, settings: &Settings) -> Result<Access> {
    match provider.strip_prefix("velero.io/").unwrap_or(provider) {
        "aws" => aws::access(settings),
        "azure" => azure::access(settings),
        "gcp" => gcp::access(settings),
        "filesystem" | "fs" => Ok(Access::Folder),
        _ => Err(unknown(provider)),
    }
}

/// A part of an object, if it is as long as it must be.
fn whole(key: &str, range: &Range<u64>, part: Bytes) -> Result<Bytes> {
    if part.len() as u64 == range.end.saturating_sub(range.start) {
        return Ok(part);
    }
    Err(Error::Damaged {
        key: key.to_owned(),
        reason: format!("it ends before byte {}", range.end),
    })
}

/// The providers that are built in, by the names a location may call them.
const PROVIDERS: &[(&str, Provider)] = &[
    ("aws", aws::open),
    ("azure", azure::open),
    ("filesystem", filesystem::open),
    ("fs", filesystem::open),
    ("gcp", gcp::open),
];

type Provider = fn(&Settings) -> Result<Arc<dyn ObjectStore>>;

/// Whether a provider is built in, with or without `velero.io/` before its name.
#[must_use]
pub fn is_built_in(provider: &str) -> bool {
    find(provider).is_some()
}

fn find(provider: &str) -> Option<Provider> {
    let name = provider.strip_prefix("velero.io/").unwrap_or(provider);
    let (_, open) = PROVIDERS.iter().find(|(known, _)| *known == name)?;
    Some(*open)
}

/// Opens the store of a built-in provider.
pub(crate) fn open(provider: &str, settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let open = find(provider).ok_or_else(|| unknown(provider))?;
    open(settings)
}

fn unknown(provider: &str) -> Error {
    let known: Vec<_> = PROVIDERS.iter().map(|(name, _)| *name).collect();
    Error::Settings(format!(
        "unknown object storage provider {provider:?}; known are {}",
        known.join(", ")
    ))
}
