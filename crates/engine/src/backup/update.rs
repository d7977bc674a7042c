//! An archive made anew with objects as they are now: what plugins worked on after the backup had
//! copied it.

use std::collections::BTreeMap;

use bowline_api::files::ResourceIdentifier;
use bowline_vault::archive::{
    VERSION_FILE,
    read::Reader,
    write::{Closed, Writer},
};
use http::Request;
use kube::Client;

use super::{item::paths, sink::Sink};
use crate::{
    discovery::Discovery,
    log::{About, Log},
    object::Canonical,
};

/// Why there is no new archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The old one cannot be read.
    #[error(transparent)]
    Read(#[from] bowline_vault::Error),
    /// The new one is not taken; its store knows why.
    #[error("the archive could not be stored")]
    Closed(#[from] Closed),
}

/// Copies an archive, with these objects read again. One that is gone stays as it was.
pub async fn update(
    client: &Client,
    discovery: &Discovery,
    items: &[ResourceIdentifier],
    mut old: Reader,
    new: Writer,
    log: &Log,
) -> Result<(), Error> {
    let mut fresh = read(client, discovery, items, log).await;
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let (sink, joining) = Sink::start(new, now);
    while let Some(item) = old.next().await? {
        // The sink has put one there already.
        if item.path == VERSION_FILE {
            continue;
        }
        let body = old.body().await?;
        let body = fresh.remove(&item.path).map_or(body, Into::into);
        sink.add(&[item.path], &body).await?;
    }
    for (path, body) in fresh {
        sink.add(&[path], &body).await?;
    }
    sink.flush().await?;
    sink.close();
    joining.await.map_err(|_| Closed)??;
    Ok(())
}

/// The objects as they are now, by their places in the archive.
async fn read(
    client: &Client,
    discovery: &Discovery,
    items: &[ResourceIdentifier],
    log: &Log,
) -> BTreeMap<String, Vec<u8>> {
    let mut fresh = BTreeMap::new();
    for item in items {
        let name = if item.group.is_empty() {
            item.resource.clone()
        } else {
            format!("{}.{}", item.resource, item.group)
        };
        let about = About::object(&name, &item.namespace, &item.name);
        let Some(resource) = discovery.find(&name) else {
            log.error("The cluster does not know this kind any more", &about);
            continue;
        };
        let path = resource.object_path(&item.namespace, &item.name);
        let request = Request::get(path)
            .body(Vec::new())
            .expect("escaped paths are URIs");
        let raw = match client.request_text(request).await {
            Ok(raw) => raw,
            Err(error) => {
                log.error("Error getting item", &about.because(error));
                continue;
            }
        };
        let mut body = Vec::new();
        let written = Canonical::default().write(
            raw.as_bytes(),
            &resource.api_version(),
            &resource.kind,
            &mut body,
        );
        match written {
            Ok(facts) => {
                let places = paths(resource, &facts.api_version(), &item.namespace, &item.name);
                for path in places {
                    fresh.insert(path, body.clone());
                }
            }
            Err(error) => log.error("Error backing up item", &about.because(error)),
        }
    }
    fresh
}
