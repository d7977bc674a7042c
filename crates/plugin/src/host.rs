//! Plugins that are processes: found, started, asked, started again when they have died, and ended.
//!
//! ```text
//!   Registry: folder ─▶ programs ─▶ each is started once and lists (kind, name)
//!   Plugins, for one operation: (kind, name) ─▶ a client ─▶ the process of its program, started at the first call
//! ```

mod call;
mod clients;
mod connection;
mod launch;
mod log;
mod registry;

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

pub(crate) use self::launch::{COOKIE, CORE_VERSION, LIFELINE, UPLOADS, VERSION};
use self::{call::Program, clients::Client};
pub use self::{
    log::{Level, Line},
    registry::{Entry, Registry, Trouble},
};
use crate::{
    Error, Result,
    kinds::{
        BackupItemAction, DeleteItemAction, ItemBlockAction, Kind, ObjectStore, RestoreItemAction,
        VolumeSnapshotter,
    },
};

/// Who hears what plugins say.
pub type Sink = Arc<dyn Fn(Line) + Send + Sync>;

/// How plugins are started.
#[derive(Clone, Default)]
pub struct Settings {
    /// Flags that each is given.
    pub args: Vec<OsString>,
    /// What is in their environment besides ours.
    pub env: Vec<(OsString, OsString)>,
    /// Who hears what they say; nobody if it is none.
    pub sink: Option<Sink>,
}

impl Settings {
    fn say(&self, line: Line) {
        if let Some(sink) = &self.sink {
            sink(line);
        }
    }
}

/// The plugins of one operation. Processes begin when they are needed; [`stop`](Self::stop) ends
/// them.
pub struct Plugins {
    registry: Arc<Registry>,
    settings: Settings,
    programs: Mutex<HashMap<PathBuf, Arc<Program>>>,
}

impl Plugins {
    /// Plugins of a registry.
    #[must_use]
    pub fn new(registry: Arc<Registry>, settings: Settings) -> Self {
        Self {
            registry,
            settings,
            programs: Mutex::default(),
        }
    }

    /// What there is.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    fn program(&self, path: &Path) -> Arc<Program> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let program = programs.entry(path.to_owned());
        Arc::clone(program.or_insert_with(|| Arc::new(Program::new(path, &self.settings))))
    }

    fn client(&self, kinds: &[Kind], name: &str) -> Result<Client> {
        let found = kinds
            .iter()
            .find_map(|kind| self.registry.find(*kind, name));
        let entry = found.ok_or_else(|| {
            let kind = kinds.first().map_or("", |kind| kind.name());
            Error::Other(format!("unable to locate {kind} plugin named {name}"))
        })?;
        Ok(Client {
            program: self.program(&entry.program),
            kind: entry.kind,
            name: entry.name.clone(),
        })
    }

    /// An object store, by its name or its provider's.
    pub fn object_store(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let client = self.client(&[Kind::ObjectStore], name)?;
        Ok(Arc::new(clients::Store(client)))
    }

    /// A snapshotter, by its name or its provider's.
    pub fn volume_snapshotter(&self, name: &str) -> Result<Arc<dyn VolumeSnapshotter>> {
        let client = self.client(&[Kind::VolumeSnapshotter], name)?;
        Ok(Arc::new(clients::Snapshotter(client)))
    }

    /// An action of either version.
    pub fn backup_item_action(&self, name: &str) -> Result<Arc<dyn BackupItemAction>> {
        let kinds = [Kind::BackupItemActionV2, Kind::BackupItemAction];
        Ok(Arc::new(clients::Backup(self.client(&kinds, name)?)))
    }

    /// An action of either version.
    pub fn restore_item_action(&self, name: &str) -> Result<Arc<dyn RestoreItemAction>> {
        let kinds = [Kind::RestoreItemActionV2, Kind::RestoreItemAction];
        Ok(Arc::new(clients::Restore(self.client(&kinds, name)?)))
    }

    /// An action.
    pub fn delete_item_action(&self, name: &str) -> Result<Arc<dyn DeleteItemAction>> {
        let client = self.client(&[Kind::DeleteItemAction], name)?;
        Ok(Arc::new(clients::Delete(client)))
    }

    /// An action.
    pub fn item_block_action(&self, name: &str) -> Result<Arc<dyn ItemBlockAction>> {
        let client = self.client(&[Kind::ItemBlockAction], name)?;
        Ok(Arc::new(clients::Block(client)))
    }

    /// Ends all processes, and waits for what they have to say.
    pub async fn stop(&self) {
        let programs = {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *programs)
        };
        futures::future::join_all(programs.values().map(|program| program.stop())).await;
    }
}
