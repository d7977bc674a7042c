//! The repositories that this node copies into and from, opened once and kept.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::Duration,
};

use bowline_api::v1::{BackupStorageLocation, BackupStorageLocationSpec};
use bowline_vault::Location;
use bowline_volume::{
    Engine,
    embedded::{Budget, Identity, Repository},
    program::Restic,
};
use tokio::{sync::Mutex, time::Instant};

use super::Settings;
use crate::{
    Context,
    error::chain,
    repositories::{folder, password},
};

/// Repositories that are kept open; those used longest ago are closed first.
const KEPT: usize = 8;

/// A location and a namespace.
type Key = (String, String);

/// The repositories of this node.
pub(super) struct Repositories {
    identity: Identity,
    budget: Budget,
    /// The restic program, when that is to copy, and how often to look how far it is.
    program: Option<(PathBuf, Duration)>,
    kept: std::sync::Mutex<HashMap<Key, Kept>>,
}

struct Kept {
    used: Instant,
    /// Locked while it is being opened, so that others wait and do not open it too.
    open: Arc<Mutex<Option<Open>>>,
}

struct Open {
    with: With,
    engine: Arc<dyn Engine>,
}

/// What a repository was opened with. When that changes it must be opened anew.
#[derive(PartialEq)]
struct With {
    spec: BackupStorageLocationSpec,
    secrets: [Option<Vec<u8>>; 3],
    password: String,
}

impl Repositories {
    /// None are open yet. The memory is that of all `slots` copies together.
    pub(super) fn new(settings: &Settings, slots: usize) -> Self {
        Self::named(
            &format!("node-agent-{}", settings.node_name),
            settings,
            slots,
        )
    }

    /// The same for a process of another name. Locks of this name from before it began are taken for
    /// those of its predecessor, so nobody else may have it.
    pub(super) fn named(name: &str, settings: &Settings, slots: usize) -> Self {
        let memory = settings.memory / slots.max(1) as u64;
        Self {
            identity: Identity {
                // No host has this name, so nobody's locks are taken for ours.
                hostname: name.to_owned(),
                since: jiff::Timestamp::now(),
            },
            budget: Budget {
                memory: usize::try_from(memory).unwrap_or(usize::MAX),
                patience: settings.resource_timeout.max(Duration::from_secs(1)),
                ..Budget::default()
            },
            program: settings
                .restic_binary
                .clone()
                .map(|binary| (binary, settings.interval())),
            kept: std::sync::Mutex::default(),
        }
    }

    /// Who its locks are said to be of.
    #[cfg(test)]
    pub(super) fn name(&self) -> &str {
        &self.identity.hostname
    }

    /// The repository of a namespace in a location, or why it cannot be had.
    pub(super) async fn get(
        &self,
        ctx: &Context,
        location: &str,
        namespace: &str,
    ) -> Result<Arc<dyn Engine>, Refusal> {
        if location.is_empty() || namespace.is_empty() {
            let why = "it says no location, or no namespace".to_owned();
            return Err(Refusal::Named(why));
        }
        let (location, with) = with(ctx, location).await.map_err(Refusal::Named)?;
        let place = self.place(&location.object.metadata.name, namespace);
        let mut open = place.lock().await;
        if let Some(open) = open.as_ref().filter(|open| open.with == with) {
            return Ok(Arc::clone(&open.engine));
        }
        let engine = self
            .engine(ctx, &location, namespace, &with.password)
            .await?;
        *open = Some(Open {
            with,
            engine: Arc::clone(&engine),
        });
        Ok(engine)
    }

    /// The next copy opens it anew: something went wrong with it.
    pub(super) fn forget(&self, location: &str, namespace: &str) {
        let key = (location.to_owned(), namespace.to_owned());
        self.lock().remove(&key);
    }

    /// The engine is chosen here: the restic program when one is given, else our own.
    async fn engine(
        &self,
        ctx: &Context,
        location: &Location,
        namespace: &str,
        password: &str,
    ) -> Result<Arc<dyn Engine>, Refusal> {
        let unusable = |e: &dyn std::error::Error| Refusal::Named(chain(e));
        if let Some((binary, interval)) = &self.program {
            let restic = Restic::at(binary, location, namespace, password);
            let restic = restic.map_err(|e| unusable(&e))?;
            return Ok(Arc::new(Restic {
                interval: *interval,
                patience: self.budget.patience,
                ..restic
            }));
        }
        let bucket = bowline_vault::open(location).map_err(|e| unusable(&e))?;
        let bucket = bucket
            .with_cancel(ctx.stop.clone())
            .with_metrics(ctx.metrics.store.clone());
        let folder = folder(namespace);
        let identity = self.identity.clone();
        match Repository::open(bucket, &folder, password, identity, self.budget).await {
            Ok(repository) => Ok(Arc::new(repository)),
            Err(bowline_volume::Error::Cancelled) => Err(Refusal::Cancelled),
            Err(error) => Err(unusable(&error)),
        }
    }

    fn place(&self, location: &Option<String>, namespace: &str) -> Arc<Mutex<Option<Open>>> {
        let key = (location.clone().unwrap_or_default(), namespace.to_owned());
        let mut kept = self.lock();
        if kept.len() >= KEPT && !kept.contains_key(&key) {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                kept.remove(&key);
            }
        }
        let place = kept.entry(key).or_insert_with(|| Kept {
            used: Instant::now(),
            open: Arc::default(),
        });
        place.used = Instant::now();
        Arc::clone(&place.open)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a repository cannot be had.
#[derive(Debug)]
pub(super) enum Refusal {
    /// For a reason that belongs into the status.
    Named(String),
    /// Because somebody ended it.
    Cancelled,
}

/// A location, and all that its repositories depend on.
async fn with(ctx: &Context, name: &str) -> Result<(Location, With), String> {
    let found = ctx.find::<BackupStorageLocation>(name).await;
    let found = found.map_err(|e| e.chain())?;
    let object = found.ok_or_else(|| format!("backup storage location {name} not found"))?;
    let location = ctx.location(&object).await.map_err(|e| e.chain())?;
    let password = password(ctx).await.map_err(|e| e.chain())?;
    let with = With {
        spec: location.object.spec.clone(),
        secrets: [
            location.credential.clone(),
            location.ca_cert.clone(),
            location.customer_key.clone(),
        ],
        password,
    };
    Ok((location, with))
}
