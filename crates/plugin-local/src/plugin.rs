//! The plugin itself: what hosts ask, in the order of a snapshot's life.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bowline_api::names::snapshot_tag;
use bowline_plugin::kinds::{Config, NewVolume, Progress, VolumeSnapshotter};
use bowline_vault::bucket::UploadLimit;
use rustix::fs::{Mode, mkdirat, openat};
use serde_json::Value;

use crate::{
    Error, Result, Vault, Vaults, clone,
    clones::{Clones, Found, Purpose, VOLUME},
    error::chain,
    host::{FOLDER, PRIVATE},
    names::{NodePath, SnapshotId},
    new_volume,
    persistent_volume::{self, Kind},
    repository,
    running::{Running, Way},
    settings::Settings,
};

/// Making a folder takes no longer, unless the file system is frozen: then it takes until somebody
/// thaws it, who may be waiting for us.
const FROZEN: Duration = Duration::from_secs(20);

/// The snapshotter of a node's own volumes.
pub struct Local {
    vaults: Box<dyn Vaults>,
    node: Option<String>,
    /// Whether somebody will ask for uploads.
    host_uploads: bool,
    setup: Mutex<Option<Arc<Setup>>>,
    running: Running,
    /// Snapshots that are being uploaded or deleted, each by one at a time.
    busy: Mutex<HashMap<SnapshotId, Arc<tokio::sync::Mutex<()>>>>,
    /// What volumes are that were asked for.
    kinds: Mutex<HashMap<String, Kind>>,
}

struct Setup {
    settings: Settings,
    /// For all uploads together.
    limit: Option<UploadLimit>,
    clones: Arc<Clones>,
}

impl Local {
    /// A snapshotter that is not set up yet. The node is the one that it runs on, if that is known.
    #[must_use]
    pub fn new(vaults: impl Vaults + 'static, node: Option<String>, host_uploads: bool) -> Self {
        repository::started();
        Self {
            vaults: Box::new(vaults),
            node,
            host_uploads,
            setup: Mutex::default(),
            running: Running::default(),
            busy: Mutex::default(),
            kinds: Mutex::default(),
        }
    }

    fn setup(&self) -> Result<Arc<Setup>> {
        let setup = lock(&self.setup).clone();
        setup.ok_or_else(|| Error::refused("the plugin was not set up: Init comes first"))
    }

    async fn vault(&self, setup: &Setup) -> Result<Vault> {
        let location = setup.settings.location.as_deref();
        let mut vault = self.vaults.open(location).await?;
        if let Some(limit) = &setup.limit {
            vault.bucket = vault.bucket.with_upload_limit(limit.clone());
        }
        Ok(vault)
    }

    /// Waits until nobody else is at a snapshot.
    async fn claim(&self, id: &SnapshotId) -> tokio::sync::OwnedMutexGuard<()> {
        let busy = Arc::clone(lock(&self.busy).entry(id.clone()).or_default());
        busy.lock_owned().await
    }

    /// Does some copying that can be watched.
    async fn watched<T>(
        &self,
        id: &SnapshotId,
        way: Way,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let done = work.await;
        let error = done.as_ref().err().map(|error| chain(error));
        self.running.end(id, way, error.unwrap_or_default());
        done
    }

    /// A clone of a volume; its name.
    async fn take(&self, volume: &str, tags: &BTreeMap<String, String>) -> Result<SnapshotId> {
        let tag = |name: &str| tags.get(name).cloned().unwrap_or_default();
        let purpose = Purpose {
            volume: NodePath::parse("volume", volume)?,
            persistent_volume: tag(snapshot_tag::VOLUME),
            backup: tag(snapshot_tag::BACKUP),
            backup_uid: tag(snapshot_tag::BACKUP_UID),
        };
        let clones = Arc::clone(&self.setup()?.clones);
        let begun = blocking(move || clones.begin(purpose));
        // What is made too late is dropped, and goes.
        let Ok(begun) = tokio::time::timeout(FROZEN, begun).await else {
            return Err(Error::refused(format!(
                "nothing could be written beside volume {volume} for {} seconds: its file system \
                 seems to be frozen. A pre hook must quiet the writer, not freeze the file system \
                 that the clone is made in",
                FROZEN.as_secs()
            )));
        };
        let begun = begun?;
        let (id, about) = blocking(move || begun.fill()).await?;
        tracing::info!(
            volume = about.volume,
            bytes = about.bytes,
            copied = about.copied,
            "snapshot {id} taken"
        );
        Ok(id)
    }

    async fn upload(&self, id: &SnapshotId) -> Result<()> {
        let setup = self.setup()?;
        let _claim = self.claim(id).await;
        let progress = self.running.begin(id, Way::Up);
        let work = async {
            let vault = self.vault(&setup).await?;
            let stored = repository::find(&vault, id).await?;
            let clone = find(&setup, id).await?;
            match (stored, clone) {
                (Some(_), None) => return Ok(()),
                // Only the clone was left.
                (Some(_), Some(_)) => {}
                (None, Some(clone)) => {
                    let is_there = async || is_there(&setup, id, &clone).await;
                    repository::upload(&vault, id, &clone, &progress, is_there).await?;
                    tracing::info!(bytes = clone.about.bytes, "snapshot {id} uploaded");
                }
                (None, None) => return Err(nowhere(id)),
            }
            if let Err(error) = remove(&setup, id).await {
                tracing::warn!("the clone of snapshot {id} is left: {}", chain(&error));
            }
            Ok(())
        };
        self.watched(id, Way::Up, work).await
    }

    /// A new volume; its folder. From the clone if it is still here, since that takes no time.
    async fn restore(&self, id: &SnapshotId) -> Result<NodePath> {
        let setup = self.setup()?;
        let progress = self.running.begin(id, Way::Back);
        let work = async {
            if let Some(clone) = find(&setup, id).await? {
                progress.expect(clone.about.bytes);
                let (setup, id) = (Arc::clone(&setup), id.clone());
                let progress = Arc::clone(&progress);
                let made = blocking(move || from_clone(&setup.clones, &id, &clone, &progress));
                if let Some(path) = made.await? {
                    return Ok(path);
                }
            }
            let vault = self.vault(&setup).await?;
            let Some(stored) = repository::find(&vault, id).await? else {
                return Err(nowhere(id));
            };
            let original = stored.volume()?;
            let new = {
                let setup = Arc::clone(&setup);
                blocking(move || new_volume::NewVolume::begin(&setup.clones.host, &original))
                    .await?
            };
            let done = stored.download(new.folder(), &progress).await;
            blocking(move || done.and_then(|()| new.finish())).await
        };
        let path = self.watched(id, Way::Back, work).await?;
        tracing::info!("snapshot {id} is volume {path}");
        Ok(path)
    }

    async fn delete(&self, id: &SnapshotId) -> Result<()> {
        let setup = self.setup()?;
        let _claim = self.claim(id).await;
        remove(&setup, id).await?;
        let clones = Arc::clone(&setup.clones);
        if let Err(error) = blocking(move || clones.tidy_all()).await {
            tracing::warn!("what is left of others stays: {}", chain(&error));
        }
        repository::delete(&self.vault(&setup).await?, id).await
    }

    /// The folder of a volume, if it is one.
    fn folder(&self, volume: &Value) -> Result<Option<NodePath>> {
        let Some((kind, path)) = persistent_volume::folder(volume)? else {
            return Ok(None);
        };
        if let Some(node) = &self.node
            && let Some(elsewhere) = persistent_volume::elsewhere(volume, node)
        {
            return Err(Error::refused(format!(
                "PersistentVolume {} is on {elsewhere}, and this plugin runs on node {node}",
                persistent_volume::name(volume)
            )));
        }
        lock(&self.kinds).insert(path.to_string(), kind);
        Ok(Some(path))
    }
}

#[async_trait]
impl VolumeSnapshotter for Local {
    async fn init(&self, config: &Config) -> bowline_plugin::Result<()> {
        let settings = Settings::parse(config)?;
        let clones = Arc::new(Clones::new(&settings.host_root, settings.folder.clone())?);
        *lock(&self.setup) = Some(Arc::new(Setup {
            limit: settings.bytes_per_second.map(UploadLimit::new),
            settings,
            clones,
        }));
        Ok(())
    }

    async fn volume_id(&self, volume: &Value) -> bowline_plugin::Result<Option<String>> {
        let folder = self.folder(volume)?;
        Ok(folder.map(|path| path.to_string()))
    }

    async fn volume_info(
        &self,
        volume: &str,
        _zone: &str,
    ) -> bowline_plugin::Result<(String, Option<i64>)> {
        let setup = self.setup()?;
        let path = NodePath::parse("volume", volume)?;
        let kind = lock(&self.kinds).get(path.as_str()).copied();
        blocking(move || setup.clones.host.folder(&path).map(drop)).await?;
        let kind = kind.unwrap_or(Kind::HostPath);
        Ok((kind.name().to_owned(), None))
    }

    async fn create_snapshot(
        &self,
        volume: &str,
        _zone: &str,
        tags: &BTreeMap<String, String>,
    ) -> bowline_plugin::Result<String> {
        let id = self.take(volume, tags).await?;
        // Nobody would ask for the upload later.
        if !self.host_uploads
            && let Err(error) = self.upload(&id).await
        {
            // Nor would anybody delete what has failed.
            if let Err(left) = remove(&self.setup()?, &id).await {
                tracing::warn!("the clone of snapshot {id} is left: {}", chain(&left));
            }
            return Err(error.into());
        }
        Ok(id.to_string())
    }

    async fn upload_snapshot(&self, snapshot: &str) -> bowline_plugin::Result<()> {
        Ok(self.upload(&SnapshotId::parse(snapshot)?).await?)
    }

    async fn progress(
        &self,
        snapshot: &str,
        volume: Option<&str>,
    ) -> bowline_plugin::Result<Progress> {
        let way = match volume {
            Some(_) => Way::Back,
            None => Way::Up,
        };
        let id = SnapshotId::parse(snapshot)?;
        // Who asks knows it.
        let (setup, known) = (self.setup()?, id.clone());
        blocking(move || setup.clones.know(&known)).await?;
        Ok(self.running.progress(&id, way))
    }

    async fn create_volume(&self, volume: &NewVolume) -> bowline_plugin::Result<String> {
        let id = SnapshotId::parse(&volume.snapshot)?;
        Ok(self.restore(&id).await?.to_string())
    }

    async fn set_volume_id(&self, volume: &Value, id: &str) -> bowline_plugin::Result<Value> {
        let path = NodePath::parse("volume", id)?;
        let changed = persistent_volume::with_folder(volume, &path)?;
        Ok(match &self.node {
            Some(node) => persistent_volume::moved_to(changed, node),
            None => changed,
        })
    }

    async fn delete_snapshot(&self, snapshot: &str) -> bowline_plugin::Result<()> {
        Ok(self.delete(&SnapshotId::parse(snapshot)?).await?)
    }
}

async fn find(setup: &Arc<Setup>, id: &SnapshotId) -> Result<Option<Found>> {
    let (setup, id) = (Arc::clone(setup), id.clone());
    blocking(move || setup.clones.find(&id)).await
}

async fn remove(setup: &Arc<Setup>, id: &SnapshotId) -> Result<()> {
    let (setup, id) = (Arc::clone(setup), id.clone());
    blocking(move || setup.clones.remove(&id)).await
}

/// Whether a clone is where it was found. Whoever removes one takes its name away first, so what was
/// read before this was whole.
async fn is_there(setup: &Arc<Setup>, id: &SnapshotId, clone: &Found) -> Result<bool> {
    let now = find(setup, id).await?;
    Ok(now.is_some_and(|now| now.is(clone)))
}

/// A volume like a clone; none if somebody removed the clone meanwhile, who has uploaded it.
fn from_clone(
    clones: &Clones,
    id: &SnapshotId,
    clone: &Found,
    progress: &bowline_volume::Progress,
) -> Result<Option<NodePath>> {
    let original = NodePath::parse("the snapshot's volume", &clone.about.volume)?;
    let new = new_volume::NewVolume::begin(&clones.host, &original)?;
    let made = clone_into(clone, &new, progress);
    if !clones.find(id)?.is_some_and(|now| now.is(clone)) {
        return Ok(None);
    }
    made?;
    new.finish().map(Some)
}

fn clone_into(
    clone: &Found,
    new: &new_volume::NewVolume,
    progress: &bowline_volume::Progress,
) -> Result<()> {
    let failed = |action| Error::file(action, format!("volume {}", clone.about.volume));
    let from = openat(&clone.fd, VOLUME, FOLDER, Mode::empty()).map_err(failed("clone"))?;
    mkdirat(new.folder(), VOLUME, PRIVATE).map_err(failed("make a new"))?;
    let to = openat(new.folder(), VOLUME, FOLDER, Mode::empty());
    let to = to.map_err(failed("open the new"))?;
    clone::tree(&from, to, None, progress).map(drop)
}

fn nowhere(id: &SnapshotId) -> Error {
    Error::refused(format!(
        "snapshot {id} is neither on this node nor in the backup location"
    ))
}

/// On a thread that may wait for disks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::Folder;

    #[test]
    fn a_clone_that_goes_meanwhile_makes_no_volume() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/vol")).unwrap();
        fs::write(dir.path().join("data/vol/file"), "x").unwrap();
        let folder = Folder::Beside("clones".to_owned());
        let clones = Arc::new(Clones::new(dir.path().to_str().unwrap(), folder).unwrap());
        let take = || {
            let purpose = Purpose {
                volume: NodePath::parse("", "/data/vol").unwrap(),
                persistent_volume: String::new(),
                backup: String::new(),
                backup_uid: String::new(),
            };
            let (id, _) = Arc::clone(&clones).begin(purpose).unwrap().fill().unwrap();
            let found = clones.find(&id).unwrap().unwrap();
            (id, found)
        };
        let progress = bowline_volume::Progress::default();
        let (id, found) = take();
        let made = from_clone(&clones, &id, &found, &progress).unwrap();
        assert!(made.is_some());
        clones.remove(&id).unwrap();
        let made = from_clone(&clones, &id, &found, &progress).unwrap();
        assert_eq!(made, None);
        // The folder, the clones, and the one volume.
        assert_eq!(fs::read_dir(dir.path().join("data")).unwrap().count(), 3);
        // Begun and given up.
        let (id, _) = take();
        let purpose = Purpose {
            volume: NodePath::parse("", "/data/vol").unwrap(),
            persistent_volume: String::new(),
            backup: String::new(),
            backup_uid: String::new(),
        };
        drop(Arc::clone(&clones).begin(purpose).unwrap());
        let names = fs::read_dir(dir.path().join("data/clones")).unwrap();
        assert_eq!(names.count(), 2);
        assert!(clones.find(&id).unwrap().is_some());
    }

    #[test]
    fn what_nobody_asks_for_goes_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/vol")).unwrap();
        let folder = Folder::Beside("clones".to_owned());
        let clones = Arc::new(Clones::new(dir.path().to_str().unwrap(), folder).unwrap());
        let take = |backup: &str| {
            let purpose = Purpose {
                volume: NodePath::parse("", "/data/vol").unwrap(),
                persistent_volume: String::new(),
                backup: backup.to_owned(),
                backup_uid: String::new(),
            };
            let (id, _) = Arc::clone(&clones).begin(purpose).unwrap().fill().unwrap();
            id
        };
        let (known, lost, young) = (take("a"), take("b"), take("c"));
        clones.know(&known).unwrap();
        let marker = |id: &SnapshotId| dir.path().join(format!("data/clones/{id}.new"));
        assert!(!marker(&known).exists() && marker(&young).exists());
        let old = std::time::SystemTime::now() - Duration::from_secs(700);
        let file = fs::File::options().write(true).open(marker(&lost)).unwrap();
        file.set_modified(old).unwrap();
        clones.tidy_all().unwrap();
        let is_there = |id| clones.find(id).unwrap().is_some();
        assert!(is_there(&known) && is_there(&young) && !is_there(&lost));
    }
}
