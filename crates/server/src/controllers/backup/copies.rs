//! The pod volumes of one backup, as PodVolumeBackups: made here, carried out by the node processes,
//! and watched until they are over.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bowline_api::{
    names::{annotation, label, label_value, tag, uploader_setting},
    v1::{
        Backup, BackupStorageLocation, DataPathPhase, PodVolumeBackup, PodVolumeBackupSpec,
        UploaderType,
    },
};
use bowline_engine::{
    backup::{PodVolume, PodVolumes},
    log::{About, Log},
};
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    ResourceExt,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio::{
    sync::{OnceCell, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{Context, Error, Result, nodes, repositories};

/// What copies are told when nobody waits for them any longer, and what the log says.
const TIMEOUT: &str = "Cancel PVB on pod volume timeout";
pub(super) const FAILED: &str = "Cancel PVB because the backup failed";
pub(super) const DELETED: &str = "Cancel PVB because the backup is deleted";
const TIMED_OUT: &str = "timed out waiting for all PodVolumeBackups to complete";
/// A generated name that is taken is generated again, so many times.
const TRIES: usize = 8;
/// When a call fails, the next look at what is to be cancelled is this much later.
const AGAIN: Duration = Duration::from_secs(1);

/// The copies of one backup.
pub(super) struct Copies {
    ctx: Arc<Context>,
    backup: Arc<Backup>,
    location: BackupStorageLocation,
    log: Log,
    /// A server before this one may have made some.
    is_resumed: bool,
    deadline: Instant,
    /// Where restic finds the repository of each namespace, or why it cannot be used.
    repositories: Mutex<HashMap<String, Arc<Found>>>,
    /// Begins with the first pod that has something to copy.
    watched: OnceCell<Watched>,
}

/// Where a repository is, or why it cannot be used; found out once.
type Found = OnceCell<Result<String, String>>;

/// All copies of the backup by name, kept up to date.
struct Watched {
    seen: watch::Sender<BTreeMap<String, Seen>>,
    _task: AbortOnDropHandle<()>,
}

/// A copy as it was last seen.
#[derive(Debug, Clone)]
struct Seen {
    copy: PodVolumeBackup,
    /// Somebody deleted the object.
    is_gone: bool,
}

impl Seen {
    fn is_over(&self) -> bool {
        self.is_gone || phase(&self.copy).is_some_and(DataPathPhase::is_over)
    }
}

fn phase(copy: &PodVolumeBackup) -> Option<&DataPathPhase> {
    copy.status.as_ref()?.phase.as_ref()
}

impl Copies {
    pub(super) fn new(
        ctx: &Arc<Context>,
        backup: &Backup,
        location: &BackupStorageLocation,
        log: &Log,
        is_resumed: bool,
    ) -> Self {
        let status = backup.status.as_ref();
        let start = status.and_then(|status| status.start_timestamp);
        let passed = start.map_or(Duration::ZERO, |start| {
            Duration::try_from(ctx.now().duration_since(start.0)).unwrap_or_default()
        });
        let limit = timeout(backup, ctx.settings.fs_backup_timeout);
        if let Err(bad) = &limit {
            log.warning(bad, &About::default());
        }
        let limit = limit.unwrap_or(ctx.settings.fs_backup_timeout);
        Self {
            ctx: Arc::clone(ctx),
            backup: Arc::new(backup.clone()),
            location: location.clone(),
            log: log.clone(),
            is_resumed,
            deadline: Instant::now() + limit.saturating_sub(passed),
            repositories: Mutex::default(),
            watched: OnceCell::new(),
        }
    }

    /// Nobody needs the copies, for this reason.
    pub(super) async fn give_up(&self, why: &str) {
        let watched = match self.is_resumed {
            true => self.watched().await.ok(),
            false => self.watched.get(),
        };
        if let Some(watched) = watched {
            cancel(&self.ctx, &watched.seen, why).await;
        }
    }

    async fn watched(&self) -> Result<&Watched> {
        self.watched
            .get_or_try_init(|| async {
                let api = self.ctx.api::<PodVolumeBackup>();
                let labels = of_backup(&self.backup);
                let found = self.ctx.list::<PodVolumeBackup>(&labels).await?;
                let found = found.into_iter().map(|copy| {
                    let is_gone = false;
                    (copy.name_any(), Seen { copy, is_gone })
                });
                let (seen, _) = watch::channel(found.collect());
                let watching = Watching {
                    ctx: Arc::clone(&self.ctx),
                    seen: seen.clone(),
                    log: self.log.clone(),
                    deadline: self.deadline,
                };
                let events = watcher(api, watcher::Config::default().labels(&labels));
                let task = tokio::spawn(watching.run(events.default_backoff()));
                Ok(Watched {
                    seen,
                    _task: AbortOnDropHandle::new(task),
                })
            })
            .await
    }

    async fn repository(&self, namespace: &str) -> Result<String, String> {
        let slot = {
            let all = self.repositories.lock();
            let mut all = all.unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(namespace.to_owned()).or_default())
        };
        let ensured = slot.get_or_init(|| async {
            let ensured = repositories::ensure(&self.ctx, &self.location, namespace).await;
            ensured.unwrap_or_else(|error| Err(error.chain()))
        });
        ensured.await.clone()
    }

    /// Begins all, or says why none.
    async fn try_begin(
        &self,
        pod: &Value,
        volumes: &[PodVolume],
    ) -> Result<Vec<Result<String, String>>, String> {
        if Instant::now() >= self.deadline {
            return Err(TIMED_OUT.to_owned());
        }
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let alive = nodes::check(&self.ctx, node).await;
        alive.unwrap_or_else(|error| Err(error.chain()))?;
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let repository = self.repository(namespace).await?;
        let watched = self.watched().await.map_err(|error| error.chain())?;
        let mut begun = Vec::new();
        for volume in volumes {
            let wanted = object(&self.backup, pod, volume, &repository);
            let there = same(&watched.seen.borrow(), &wanted);
            begun.push(match there {
                Some(name) => Ok(name),
                None => self.create(watched, &wanted).await,
            });
        }
        Ok(begun)
    }

    async fn create(&self, watched: &Watched, wanted: &PodVolumeBackup) -> Result<String, String> {
        let api = self.ctx.api::<PodVolumeBackup>();
        for _ in 0..TRIES {
            match api.create(&PostParams::default(), wanted).await {
                Ok(copy) => {
                    let name = copy.name_any();
                    // The watch may know more by now.
                    watched.seen.send_modify(|seen| {
                        let is_gone = false;
                        seen.entry(name.clone()).or_insert(Seen { copy, is_gone });
                    });
                    return Ok(name);
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => {
                    let error = Error::api("create PodVolumeBackup")(error);
                    return Err(error.chain());
                }
            }
        }
        Err("create PodVolumeBackup: all names are taken".to_owned())
    }
}

#[async_trait]
impl PodVolumes for Copies {
    async fn begin(&self, pod: &Value, volumes: &[PodVolume]) -> Vec<Result<String, String>> {
        match self.try_begin(pod, volumes).await {
            Ok(begun) => begun,
            Err(why) => vec![Err(why); volumes.len()],
        }
    }

    async fn wait(&self, copies: &[String]) {
        let Some(watched) = self.watched.get() else {
            return;
        };
        let mut seen = watched.seen.subscribe();
        let all = |seen: &BTreeMap<String, Seen>| {
            copies
                .iter()
                .all(|name| seen.get(name).is_none_or(Seen::is_over))
        };
        // The sender lives as long as this.
        let _ = seen.wait_for(all).await;
    }

    async fn finish(&self) -> Vec<PodVolumeBackup> {
        if !self.is_resumed && self.watched.get().is_none() {
            return Vec::new();
        }
        let watched = match self.watched().await {
            Ok(watched) => watched,
            Err(error) => {
                let why = "Error listing the pod volumes of an earlier try";
                self.log
                    .error(why, &About::default().because(error.chain()));
                return Vec::new();
            }
        };
        let going_on = watched
            .seen
            .borrow()
            .values()
            .filter(|s| !s.is_over())
            .count();
        self.log
            .info(&format!("Waiting for completion of PVB: {going_on} left"));
        let mut seen = watched.seen.subscribe();
        let _ = seen.wait_for(|seen| seen.values().all(Seen::is_over)).await;
        let copies = watched.seen.borrow().values().cloned().collect::<Vec<_>>();
        copies.into_iter().map(last).collect()
    }
}

/// A copy as it goes into the bucket.
fn last(seen: Seen) -> PodVolumeBackup {
    let mut copy = seen.copy;
    if !phase(&copy).is_some_and(DataPathPhase::is_over) {
        let status = copy.status_mut();
        status.phase = Some(DataPathPhase::Failed);
        status.message = Some("the PodVolumeBackup was deleted before it was over".to_owned());
    }
    copy
}

/// How long copies of a backup may take, from its beginning.
fn timeout(backup: &Backup, default: Duration) -> Result<Duration, String> {
    let Some(own) = backup.annotations().get(annotation::POD_VOLUME_TIMEOUT) else {
        return Ok(default);
    };
    let own = own.parse::<bowline_api::Duration>().and_then(|own| {
        let own = own.to_std();
        own.map_err(Clone::clone)
    });
    own.map_err(|bad| format!("annotation {}: {bad}", annotation::POD_VOLUME_TIMEOUT))
}

/// The labels of all copies of a backup.
fn of_backup(backup: &Backup) -> String {
    format!(
        "{}={},{}={}",
        label::BACKUP_NAME,
        label_value(&backup.name_any()),
        label::BACKUP_UID,
        backup.uid().unwrap_or_default()
    )
}

/// The copy that somebody has begun already: of the same volume of the same pod, or of the same
/// claim.
fn same(seen: &BTreeMap<String, Seen>, wanted: &PodVolumeBackup) -> Option<String> {
    let claim = wanted.labels().get(label::PVC_UID);
    let pod = &wanted.spec.pod;
    let is_same = |there: &PodVolumeBackup| {
        let is_claim = claim.is_some() && there.labels().get(label::PVC_UID) == claim;
        let is_pod = there.spec.pod.namespace == pod.namespace && there.spec.pod.name == pod.name;
        is_claim || is_pod && there.spec.volume == wanted.spec.volume
    };
    seen.iter()
        .find(|(_, there)| !there.is_gone && is_same(&there.copy))
        .map(|(name, _)| name.clone())
}

/// The object that asks for a copy of a volume.
fn object(backup: &Backup, pod: &Value, volume: &PodVolume, repository: &str) -> PodVolumeBackup {
    let text = |pointer| {
        let text = pod.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let (uid, backup_uid) = (text("/metadata/uid"), backup.uid().unwrap_or_default());
    let mut labels = BTreeMap::from([
        (
            label::BACKUP_NAME.to_owned(),
            label_value(&backup.name_any()),
        ),
        (label::BACKUP_UID.to_owned(), backup_uid.clone()),
    ]);
    let mut tags = BTreeMap::from(
        [
            (tag::BACKUP, backup.name_any()),
            (tag::BACKUP_UID, backup_uid.clone()),
            (tag::POD, name.clone()),
            (tag::POD_UID, uid.clone()),
            (tag::NAMESPACE, namespace.clone()),
            (tag::VOLUME, volume.name.clone()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    let mut annotations = None;
    if let Some(claim) = &volume.claim {
        labels.insert(label::PVC_UID.to_owned(), claim.uid.clone());
        tags.insert(tag::PVC_UID.to_owned(), claim.uid.clone());
        annotations = Some([(annotation::PVC_NAME.to_owned(), claim.name.clone())].into());
    }
    let uploader = backup.spec.uploader_config.as_ref();
    let parallel = uploader.and_then(|config| config.parallel_files_upload);
    let parallel = parallel.filter(|parallel| *parallel > 0);
    let spec = PodVolumeBackupSpec {
        node: text("/spec/nodeName"),
        pod: ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace),
            name: Some(name),
            uid: Some(uid),
            ..ObjectReference::default()
        },
        volume: volume.name.clone(),
        backup_storage_location: backup.spec.storage_location.clone().unwrap_or_default(),
        repo_identifier: repository.to_owned(),
        uploader_type: Some(UploaderType::Restic),
        tags: Some(tags),
        uploader_settings: parallel.map(|parallel| {
            let key = uploader_setting::PARALLEL_FILES_UPLOAD.to_owned();
            [(key, parallel.to_string())].into()
        }),
        ..PodVolumeBackupSpec::default()
    };
    let mut copy = PodVolumeBackup::new("", "", spec);
    copy.metadata = ObjectMeta {
        generate_name: Some(format!("{}-", backup.name_any())),
        namespace: backup.namespace(),
        labels: Some(labels),
        annotations,
        owner_references: Some(vec![OwnerReference {
            api_version: "velero.io/v1".to_owned(),
            kind: "Backup".to_owned(),
            name: backup.name_any(),
            uid: backup_uid,
            controller: Some(true),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    };
    copy
}

/// Keeps what is known of copies up to date, and ends those that take too long.
struct Watching {
    ctx: Arc<Context>,
    seen: watch::Sender<BTreeMap<String, Seen>>,
    log: Log,
    deadline: Instant,
}

impl Watching {
    async fn run(
        self,
        events: impl futures::Stream<Item = Result<watcher::Event<PodVolumeBackup>, watcher::Error>>,
    ) {
        let mut events = std::pin::pin!(events);
        // Names that a new list has brought so far; others may have been deleted meanwhile.
        let mut listed = Vec::new();
        let mut is_late = false;
        let mut look = self.deadline;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.take(event, &mut listed).await,
                    Some(Err(error)) => tracing::warn!("watch pod volume backups: {error}"),
                    None => return,
                },
                () = tokio::time::sleep_until(look) => {
                    if !is_late {
                        is_late = true;
                        self.log.error(TIMED_OUT, &About::default());
                    }
                    look = Instant::now() + AGAIN;
                    cancel(&self.ctx, &self.seen, TIMEOUT).await;
                }
            }
        }
    }

    async fn take(&self, event: watcher::Event<PodVolumeBackup>, listed: &mut Vec<String>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(copy) => {
                listed.push(copy.name_any());
                self.saw(copy);
            }
            watcher::Event::InitDone => self.look_for_lost(listed).await,
            watcher::Event::Apply(copy) => self.saw(copy),
            watcher::Event::Delete(copy) => {
                self.saw(copy.clone());
                self.lost(&copy.name_any());
            }
        }
    }

    fn saw(&self, copy: PodVolumeBackup) {
        let name = copy.name_any();
        self.seen.send_modify(|seen| {
            let is_gone = false;
            seen.insert(name, Seen { copy, is_gone });
        });
    }

    fn lost(&self, name: &str) {
        self.seen.send_modify(|seen| {
            if let Some(seen) = seen.get_mut(name) {
                seen.is_gone = true;
            }
        });
    }

    /// A list without a copy may also be older than the copy.
    async fn look_for_lost(&self, listed: &[String]) {
        let missing: Vec<String> = self
            .seen
            .borrow()
            .iter()
            .filter(|(name, seen)| !seen.is_gone && !listed.contains(name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in missing {
            match self.ctx.find::<PodVolumeBackup>(&name).await {
                Ok(Some(_)) => {}
                Ok(None) => self.lost(&name),
                Err(error) => tracing::warn!("{}", error.chain()),
            }
        }
    }
}

/// Asks for an end of all copies that are not over.
async fn cancel(ctx: &Context, seen: &watch::Sender<BTreeMap<String, Seen>>, why: &str) {
    let going_on: Vec<PodVolumeBackup> = seen
        .borrow()
        .values()
        .filter(|seen| !seen.is_over() && seen.copy.spec.cancel != Some(true))
        .map(|seen| seen.copy.clone())
        .collect();
    for copy in going_on {
        let mut new = copy.clone();
        new.spec.cancel = Some(true);
        new.status_mut().message = Some(why.to_owned());
        match ctx.update(&copy, &new).await {
            Ok(_) => tracing::info!(copy = copy.name_any(), "{why}"),
            // The next look sees it as it is by then.
            Err(error) if error.is_stale() => {}
            Err(error) => tracing::warn!("{}", error.chain()),
        }
    }
}

#[cfg(test)]
mod tests;
