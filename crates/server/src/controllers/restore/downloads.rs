//! DataDownloads of a restore, made once each.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_api::{names::label, v2alpha1::DataDownload};
use bowline_engine::{
    movement::Mover,
    restore::{
        moved,
        notes::{Moved, Notes},
    },
};
use bowline_vault::crash;
use kube::ResourceExt;

use crate::{Context, Error, Result};

/// One that cannot be made in passing is tried again, so many times.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);

/// Makes DataDownloads.
pub(super) struct Downloads(pub(super) Arc<Context>);

#[async_trait]
impl moved::Downloads for Downloads {
    async fn ensure(&self, download: &DataDownload) -> Result<(), String> {
        let mut pause = PAUSE;
        let mut tries = 0;
        loop {
            tries += 1;
            match ensure(&self.0, download).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let name = download.name_any();
                    return Err(format!("another DataDownload is called {name}"));
                }
                Err(error) if tries < TRIES && may_pass(&error) => {
                    tracing::warn!("{}", error.chain());
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(error.chain()),
            }
        }
    }
}

/// Makes one, or finds it; false if what is there is another.
async fn ensure(ctx: &Context, wanted: &DataDownload) -> Result<bool> {
    crash::here("before DataDownload");
    let made = ctx.create(wanted).await?;
    crash::here("after DataDownload");
    if made.is_some() {
        return Ok(true);
    }
    let found = ctx.find::<DataDownload>(&wanted.name_any()).await?;
    let operation = |of: &DataDownload| of.labels().get(label::ASYNC_OPERATION_ID).cloned();
    let is_same = |found: &DataDownload| {
        operation(found) == operation(wanted)
            && found.spec.target_volume == wanted.spec.target_volume
    };
    // One that is gone again is said so when it is asked about.
    Ok(found.as_ref().is_none_or(is_same))
}

/// Whether the next try may go well: the API server did not say no.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Api { source, .. } => match &**source {
            kube::Error::Api(status) => status.code == 429 || status.code >= 500,
            _ => true,
        },
        _ => false,
    }
}

/// The namespaces of our repositories that data is moved back from.
pub(super) fn namespaces(notes: &Notes) -> impl Iterator<Item = &str> {
    let downloads = notes.claims.iter().filter_map(|claim| match &claim.moved {
        Some(Moved::Awaited(download)) => Some(&download.spec),
        _ => None,
    });
    downloads
        .filter(|spec| Mover::of(spec.datamover.as_deref()) == Mover::Ours)
        .map(|spec| spec.source_namespace.as_str())
}
