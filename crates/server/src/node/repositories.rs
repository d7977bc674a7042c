//! The repositories that this node copies into and from, opened once and kept.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use bowline_api::{
    names::{REPO_CREDENTIALS_KEY, REPO_CREDENTIALS_SECRET},
    v1::{BackupStorageLocation, BackupStorageLocationSpec},
};
use bowline_vault::Location;
use bowline_volume::{
    Engine,
    embedded::{Budget, Identity, Repository},
};
use k8s_openapi::api::core::v1::SecretKeySelector;
use tokio::{sync::Mutex, time::Instant};

use super::Settings;
use crate::{Context, error::chain};

/// Repositories that are kept open; those used longest ago are closed first.
const KEPT: usize = 8;

/// A location and a namespace.
type Key = (String, String);

/// The repositories of this node.
pub(super) struct Repositories {
    identity: Identity,
    budget: Budget,
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
        let memory = settings.memory / slots.max(1) as u64;
        Self {
            identity: Identity {
                // No host has this name, so nobody's locks are taken for ours.
                hostname: format!("node-agent-{}", settings.node_name),
                since: jiff::Timestamp::now(),
            },
            budget: Budget {
                memory: usize::try_from(memory).unwrap_or(usize::MAX),
                patience: settings.resource_timeout.max(Duration::from_secs(1)),
                ..Budget::default()
            },
            kept: std::sync::Mutex::default(),
        }
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

    /// THE ENGINE IS CHOSEN HERE, and nowhere else: so far there is but the embedded one.
    /// (`Settings::validate` refuses `--restic-binary` until there is another.)
    async fn engine(
        &self,
        ctx: &Context,
        location: &Location,
        namespace: &str,
        password: &str,
    ) -> Result<Arc<dyn Engine>, Refusal> {
        let bucket = bowline_vault::open(location).map_err(|e| Refusal::Named(chain(&e)))?;
        let bucket = bucket
            .with_cancel(ctx.stop.clone())
            .with_metrics(ctx.metrics.store.clone());
        let folder = format!("restic/{namespace}");
        let identity = self.identity.clone();
        match Repository::open(bucket, &folder, password, identity, self.budget).await {
            Ok(repository) => Ok(Arc::new(repository)),
            Err(bowline_volume::Error::Cancelled) => Err(Refusal::Cancelled),
            Err(error) => Err(Refusal::Named(chain(&error))),
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
    let key = SecretKeySelector {
        name: REPO_CREDENTIALS_SECRET.to_owned(),
        key: REPO_CREDENTIALS_KEY.to_owned(),
        optional: None,
    };
    let password = ctx.secret(&key).await;
    let password = password.map_err(|why| format!("the repository's password: {why}"))?;
    let password = String::from_utf8(password)
        .map_err(|_| "the repository's password is not text".to_owned())?;
    let with = With {
        spec: location.object.spec.clone(),
        secrets: [
            location.credential.clone(),
            location.ca_cert.clone(),
            location.customer_key.clone(),
        ],
        password: password.trim().to_owned(),
    };
    Ok((location, with))
}
