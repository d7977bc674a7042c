//! A bucket behind HTTP, whichever provider's: our calls in terms of the `object_store` crate.

use std::{
    fmt::{self, Debug},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{
    ObjectStoreExt, PutOptions, TagSet,
    list::{PaginatedListOptions, PaginatedListStore},
    path::Path,
    signer::Signer,
};
use reqwest::Method;
use tokio::sync::OnceCell;

use super::{Entry, reason, upload};
use crate::{ByteStream, Error, ObjectStore, Result};

/// A provider's client, by what is done with it.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) objects: Arc<dyn object_store::ObjectStore>,
    pub(super) pages: Arc<dyn PaginatedListStore>,
    pub(super) signer: Arc<dyn Signer>,
}

/// Makes the clients when something must be asked for first, such as the bucket's region.
#[async_trait]
pub(super) trait Connect: Send + Sync {
    async fn connect(&self) -> Result<Clients>;
}

/// A bucket of a provider.
pub(super) struct Remote {
    clients: OnceCell<Clients>,
    connect: Option<Box<dyn Connect>>,
    /// Whom errors are about: `http://host:port`.
    pub(super) endpoint: String,
    pub(super) bucket: String,
    pub(super) tags: TagSet,
    pub(super) part: usize,
}

impl Remote {
    pub(super) fn new(endpoint: String, bucket: &str, clients: Clients) -> Self {
        Self {
            clients: OnceCell::new_with(Some(clients)),
            connect: None,
            endpoint,
            bucket: bucket.to_owned(),
            tags: TagSet::default(),
            part: upload::PART,
        }
    }

    pub(super) fn later(endpoint: String, bucket: &str, connect: impl Connect + 'static) -> Self {
        Self {
            clients: OnceCell::new(),
            connect: Some(Box::new(connect)),
            endpoint,
            bucket: bucket.to_owned(),
            tags: TagSet::default(),
            part: upload::PART,
        }
    }

    async fn clients(&self) -> Result<&Clients> {
        self.clients
            .get_or_try_init(|| async {
                match &self.connect {
                    Some(connect) => connect.connect().await,
                    None => Err(Error::Settings("the store was never opened".into())),
                }
            })
            .await
    }

    fn error(&self, action: &str, key: Option<&str>, error: &object_store::Error) -> Error {
        reason::of(action, key, &self.endpoint, error)
    }

    /// All pages of a listing, each handed to `take`.
    async fn pages(
        &self,
        prefix: &str,
        delimiter: Option<&'static str>,
        mut take: impl FnMut(object_store::ListResult),
    ) -> Result<()> {
        let clients = self.clients().await?;
        let mut token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: delimiter.map(Into::into),
                page_token: token,
                ..Default::default()
            };
            let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
            let page = clients
                .pages
                .list_paginated(prefix, options)
                .await
                .map_err(|e| {
                    let place = format!("list {}/{}", self.bucket, prefix.unwrap_or_default());
                    self.error(&place, None, &e)
                })?;
            take(page.result);
            token = page.page_token;
            if token.is_none() {
                return Ok(());
            }
        }
    }
}

/// Without credentials, which the clients hold.
impl Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

/// A key as it is, or an error: quietly changed keys are found by nobody.
fn path(action: &str, key: &str) -> Result<Path> {
    match Path::parse(key) {
        Ok(path) if !key.is_empty() && path.as_ref() == key => Ok(path),
        _ => Err(Error::Store {
            action: action.to_owned(),
            reason: "not a key that can be used".into(),
            retryable: false,
        }),
    }
}

#[async_trait]
impl ObjectStore for Remote {
    async fn put(&self, key: &str, body: ByteStream) -> Result<()> {
        let action = format!("put {key}");
        let path = path(&action, key)?;
        let clients = self.clients().await?;
        upload::send(&clients.objects, &path, &self.tags, self.part, body)
            .await
            .map_err(|failure| match failure {
                upload::Failure::Body(error) => error,
                upload::Failure::Store(error) => self.error(&action, None, &error),
            })
    }

    async fn put_whole(&self, key: &str, body: Bytes) -> Result<()> {
        let action = format!("put {key}");
        let path = path(&action, key)?;
        let options = PutOptions {
            tags: self.tags.clone(),
            ..Default::default()
        };
        let objects = &self.clients().await?.objects;
        match objects.put_opts(&path, body.into(), options).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(&action, None, &error)),
        }
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let action = format!("get {key}");
        let path = path(&action, key)?;
        let objects = &self.clients().await?.objects;
        match objects.get_range(&path, range.clone()).await {
            Ok(part) => super::whole(key, &range, part),
            Err(error) => Err(self.error(&action, Some(key), &error)),
        }
    }

    async fn get(&self, key: &str) -> Result<ByteStream> {
        let action = format!("get {key}");
        let path = path(&action, key)?;
        let found = self.clients().await?.objects.get(&path).await;
        let found = found.map_err(|e| self.error(&action, Some(key), &e))?;
        let endpoint = self.endpoint.clone();
        Ok(found
            .into_stream()
            .map_err(move |e| reason::of(&action, None, &endpoint, &e))
            .boxed())
    }

    async fn exists(&self, key: &str) -> Result<bool> {
        let action = format!("look for {key}");
        let path = path(&action, key)?;
        match self.clients().await?.objects.head(&path).await {
            Ok(_) => Ok(true),
            Err(error) => match self.error(&action, Some(key), &error) {
                Error::NotFound { .. } => Ok(false),
                error => Err(error),
            },
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        // The client for Azure leaves out an object whose key is the whole prefix; a folder's is
        // nobody's key.
        let folder = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
        self.pages(folder, None, |page| {
            entries.extend(page.objects.into_iter().map(|object| Entry {
                key: object.location.into(),
                size: object.size,
            }));
        })
        .await?;
        // Also those that end in `/`, folders made by some browser: they arrive without it.
        entries.retain(|entry| entry.key.starts_with(prefix));
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>> {
        let mut folders = Vec::new();
        self.pages(prefix, Some("/"), |page| {
            folders.extend(page.common_prefixes.into_iter().map(|p| format!("{p}/")));
        })
        .await?;
        folders.sort_unstable();
        folders.dedup();
        Ok(folders)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let action = format!("delete {key}");
        let path = path(&action, key)?;
        match self.clients().await?.objects.delete(&path).await {
            Ok(()) => Ok(()),
            Err(error) => match self.error(&action, Some(key), &error) {
                Error::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }

    async fn sign(&self, key: &str, ttl: Duration) -> Result<String> {
        let action = format!("sign a URL for {key}");
        let path = path(&action, key)?;
        let signer = &self.clients().await?.signer;
        match signer.signed_url(Method::GET, &path, ttl).await {
            Ok(url) => Ok(url.into()),
            Err(error) => Err(self.error(&action, None, &error)),
        }
    }

    fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
