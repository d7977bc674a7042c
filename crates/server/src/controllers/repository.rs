//! BackupRepository: opened, made where there is none, and tidied up from time to time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::{
    Time,
    v1::{
        BackupRepository, BackupRepositoryPhase as Phase, BackupStorageLocation,
        BackupStorageLocationAccessMode as AccessMode, BackupStorageLocationSpec,
        RepositoryMaintenance, RepositoryMaintenanceResult as Outcome, UploaderType,
    },
};
use bowline_volume::program::identifier;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt, runtime::controller::Action};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::{LOOK, Reconciler, at, patiently};
use crate::{
    Context, Error, Result,
    context::Running,
    repositories::{self, CHANGED, not_ready},
};

/// The controller's name.
pub const NAME: &str = "backup-repo";

/// How long after a failure the next try is.
const AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// How long after a maintenance that failed, or found somebody at work, the next one is.
const MAINTAIN_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// Maintenances that are remembered.
const REMEMBERED: usize = 3;

/// Looks after repositories until the server stops; returns when a maintenance under way has ended.
pub async fn run(ctx: Arc<Context>) {
    let tasks = TaskTracker::new();
    let repositories = Repositories {
        ctx: Arc::clone(&ctx),
        seen: Mutex::default(),
        pauses: Mutex::default(),
        busy: Arc::default(),
        slot: Arc::new(Semaphore::new(1)),
        tasks: tasks.clone(),
    };
    super::run(&ctx, repositories).await;
    tasks.close();
    tasks.wait().await;
}

struct Repositories {
    ctx: Arc<Context>,
    /// Where each repository was when it was last looked at.
    seen: Mutex<HashMap<String, BackupStorageLocationSpec>>,
    /// When something that failed may be tried again.
    pauses: Mutex<HashMap<String, Timestamp>>,
    /// Repositories that are being tidied up.
    busy: Arc<Running>,
    /// One at a time: it takes memory, and the bucket's patience.
    slot: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// What a repository needs.
#[derive(Debug, PartialEq)]
enum Step {
    /// It is not ours to look after.
    Leave,
    /// It cannot be used, for this reason.
    Refuse(String),
    /// It must say first where it is, and how often it is tidied up.
    Settle(String),
    /// Its location has changed.
    Invalidate,
    Connect,
    Maintain,
    Wait(Timestamp),
    Rest,
}

/// What is known besides the object.
struct Facts<'a> {
    location: Option<&'a BackupStorageLocation>,
    /// The location is another than when this process last looked.
    is_changed: bool,
    /// Nothing is tried before this.
    pause: Option<Timestamp>,
    now: Timestamp,
}

fn next(repository: &BackupRepository, facts: &Facts<'_>) -> Step {
    let spec = &repository.spec;
    if !UploaderType::is_restic(spec.repository_type.as_ref()) {
        return Step::Leave;
    }
    let Some(location) = facts.location else {
        let name = &spec.backup_storage_location;
        return Step::Refuse(format!("backup storage location {name} not found"));
    };
    let identifier = match identifier(&location.spec, &spec.volume_namespace) {
        Ok(identifier) => identifier,
        Err(why) => return Step::Refuse(why),
    };
    let frequency = spec.maintenance_frequency.nanos().unwrap_or_default();
    if spec.restic_identifier.as_deref() != Some(&identifier) || frequency <= 0 {
        return Step::Settle(identifier);
    }
    let status = repository.status.as_ref();
    let is_ready = status.and_then(|s| s.phase.as_ref()) == Some(&Phase::Ready);
    if is_ready && facts.is_changed {
        return Step::Invalidate;
    }
    let pause = facts.pause.filter(|pause| *pause > facts.now);
    if !is_ready {
        return pause.map_or(Step::Connect, Step::Wait);
    }
    if is_read_only(location) {
        return Step::Rest;
    }
    let due = due(repository, SignedDuration::from_nanos(frequency)).max(pause);
    match due {
        Some(due) if due > facts.now => Step::Wait(due),
        _ => Step::Maintain,
    }
}

fn is_read_only(location: &BackupStorageLocation) -> bool {
    location.spec.access_mode == Some(AccessMode::ReadOnly)
}

/// When the next maintenance is due; none when there never was one.
fn due(repository: &BackupRepository, frequency: SignedDuration) -> Option<Timestamp> {
    let status = repository.status.as_ref()?;
    let after = |time: Option<Time>, wait| time.and_then(|time| time.0.checked_add(wait).ok());
    let regular = after(status.last_maintenance_time, frequency);
    let last = status
        .recent_maintenance
        .as_ref()
        .and_then(|all| all.last());
    let failed = last.filter(|last| last.result == Some(Outcome::Failed));
    let again = failed.and_then(|last| after(last.complete_timestamp, MAINTAIN_AGAIN));
    regular.max(again)
}

/// The repository after a maintenance. The last few are remembered.
fn maintained(
    repository: &BackupRepository,
    result: &Result<(), String>,
    began: Timestamp,
    ended: Timestamp,
) -> BackupRepository {
    let mut new = repository.clone();
    let status = new.status_mut();
    if result.is_ok() {
        status.last_maintenance_time = Some(Time(ended));
    }
    let history = status.recent_maintenance.get_or_insert_default();
    history.push(RepositoryMaintenance {
        result: Some(match result {
            Ok(()) => Outcome::Succeeded,
            Err(_) => Outcome::Failed,
        }),
        start_timestamp: Some(Time(began)),
        complete_timestamp: Some(Time(ended)),
        message: result.clone().err(),
        ..RepositoryMaintenance::default()
    });
    let surplus = history.len().saturating_sub(REMEMBERED);
    history.drain(..surplus);
    new
}

impl Reconciler for Repositories {
    type Object = BackupRepository;
    const NAME: &'static str = NAME;

    async fn reconcile(self: Arc<Self>, repository: Arc<BackupRepository>) -> Result<Action> {
        let ctx = &self.ctx;
        let name = repository.name_any();
        if self.busy.contains(&name) || repository.metadata.deletion_timestamp.is_some() {
            return Ok(Action::requeue(LOOK));
        }
        let location = &repository.spec.backup_storage_location;
        let location = ctx.find::<BackupStorageLocation>(location).await?;
        let now = ctx.now();
        let facts = Facts {
            location: location.as_ref(),
            is_changed: self.is_changed(&name, location.as_ref()),
            pause: self.pauses().get(&name).copied(),
            now,
        };
        let step = next(&repository, &facts);
        let is_invalid = step == Step::Invalidate;
        if !is_invalid {
            self.saw(&name, location.as_ref());
        }
        let mut new = (*repository).clone();
        match step {
            Step::Leave => return Ok(Action::await_change()),
            Step::Rest => return Ok(Action::requeue(LOOK)),
            Step::Wait(until) => return Ok(at(until, now)),
            Step::Refuse(why) => not_ready(&mut new, &why),
            Step::Invalidate => {
                self.pauses().remove(&name);
                not_ready(&mut new, CHANGED);
            }
            Step::Settle(identifier) => {
                self.pauses().remove(&name);
                self.settle(&mut new, identifier).await;
            }
            Step::Connect => {
                // There is one, or the step were another.
                if let Some(location) = &location {
                    self.connect(&mut new, location).await?;
                }
            }
            Step::Maintain => {
                if let Some(location) = location {
                    self.maintain(&repository, location);
                }
                return Ok(Action::requeue(LOOK));
            }
        }
        ctx.update(&*repository, &new).await?;
        if is_invalid {
            // Not before it is written down.
            self.saw(&name, location.as_ref());
        }
        Ok(Action::requeue(LOOK))
    }

    fn gone(&self, name: &str) {
        self.seen().remove(name);
        self.pauses().remove(name);
    }
}

impl Repositories {
    /// Writes down where a repository is. One that was elsewhere is not ready.
    async fn settle(&self, repository: &mut BackupRepository, identifier: String) {
        let settings = &self.ctx.settings;
        let was_elsewhere = repository.spec.restic_identifier.is_some();
        let spec = &mut repository.spec;
        if spec.restic_identifier.as_ref() != Some(&identifier) {
            spec.restic_identifier = Some(identifier);
        }
        if spec.maintenance_frequency.nanos().unwrap_or_default() <= 0 {
            spec.maintenance_frequency = settings.default_repo_maintain_frequency.into();
        }
        if spec.repository_config.is_none() {
            spec.repository_config = self.config().await;
        }
        let status = repository.status.as_ref();
        if was_elsewhere && status.and_then(|s| s.phase.as_ref()) == Some(&Phase::Ready) {
            not_ready(repository, CHANGED);
        }
    }

    /// What `--backup-repository-configmap` says of repositories of this format.
    async fn config(&self) -> Option<BTreeMap<String, String>> {
        let name = &self.ctx.settings.backup_repository_configmap;
        if name.is_empty() {
            return None;
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.ctx.client.clone(), &self.ctx.namespace);
        let found = match maps.get_opt(name).await {
            Ok(found) => found?,
            Err(error) => {
                tracing::warn!("read ConfigMap {name}: {error}");
                return None;
            }
        };
        let text = found.data?.remove("restic")?;
        match config(&text) {
            Ok(config) => Some(config),
            Err(error) => {
                tracing::warn!("ConfigMap {name} is of no use for repositories: {error}");
                None
            }
        }
    }

    /// Opens the repository, or makes it, and writes down how that went.
    async fn connect(
        &self,
        repository: &mut BackupRepository,
        location: &BackupStorageLocation,
    ) -> Result<()> {
        let ctx = &self.ctx;
        let namespace = &repository.spec.volume_namespace;
        let opened = if is_read_only(location) {
            repositories::open(ctx, location, namespace).await
        } else {
            repositories::open_or_create(ctx, location, namespace).await
        };
        let name = repository.name_any();
        match opened {
            Ok(_) => {
                self.pauses().remove(&name);
                let status = repository.status_mut();
                status.phase = Some(Phase::Ready);
                status.message = None;
                status
                    .last_maintenance_time
                    .get_or_insert_with(|| Time(ctx.now()));
                tracing::info!(repository = name, "ready");
            }
            Err(error @ Error::Api { .. }) => return Err(error),
            Err(error) => {
                let why = error.chain();
                tracing::warn!(repository = name, "not ready: {why}");
                self.pause(&name, AGAIN);
                not_ready(repository, &why);
            }
        }
        Ok(())
    }

    /// Tidies a repository up, beside everything else. When another one has its turn, this one is
    /// looked at again later.
    fn maintain(&self, repository: &BackupRepository, location: BackupStorageLocation) {
        let name = repository.name_any();
        let Ok(slot) = Arc::clone(&self.slot).try_acquire_owned() else {
            return;
        };
        if self.ctx.stop.is_cancelled() || !self.busy.start(&name) {
            return;
        }
        // Whatever comes of it, not at once again.
        self.pause(&name, MAINTAIN_AGAIN);
        let (ctx, busy) = (Arc::clone(&self.ctx), Arc::clone(&self.busy));
        let repository = repository.clone();
        self.tasks.spawn(async move {
            if let Err(error) = maintain(&ctx, &repository, &location).await {
                tracing::error!(repository = name, "maintenance: {}", error.chain());
            }
            busy.finish(&name);
            drop(slot);
        });
    }

    fn pause(&self, name: &str, wait: SignedDuration) {
        if let Ok(until) = self.ctx.now().checked_add(wait) {
            self.pauses().insert(name.to_owned(), until);
        }
    }

    fn is_changed(&self, name: &str, location: Option<&BackupStorageLocation>) -> bool {
        let seen = self.seen();
        match (seen.get(name), location) {
            (Some(seen), Some(location)) => is_other(seen, &location.spec),
            _ => false,
        }
    }

    fn saw(&self, name: &str, location: Option<&BackupStorageLocation>) {
        let mut seen = self.seen();
        match location {
            Some(location) => seen.insert(name.to_owned(), location.spec.clone()),
            None => seen.remove(name),
        };
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<String, BackupStorageLocationSpec>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pauses(&self) -> std::sync::MutexGuard<'_, HashMap<String, Timestamp>> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a location leads elsewhere, or in another way.
fn is_other(old: &BackupStorageLocationSpec, new: &BackupStorageLocationSpec) -> bool {
    old.object_storage != new.object_storage
        || old.config != new.config
        || old.provider != new.provider
        || old.credential != new.credential
}

/// The settings in a ConfigMap: words and numbers, as text.
fn config(text: &str) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let values: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)?;
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(values
        .into_iter()
        .map(|(key, value)| (key, text(value)))
        .collect())
}

/// Tidies a repository up and writes down how that went. When somebody works on it, that is no
/// failure: it is tried again later.
async fn maintain(
    ctx: &Arc<Context>,
    repository: &BackupRepository,
    location: &BackupStorageLocation,
) -> Result<()> {
    let name = repository.name_any();
    let began = ctx.now();
    tracing::info!(repository = name, "maintenance begins");
    let namespace = &repository.spec.volume_namespace;
    let done = match repositories::open(ctx, location, namespace).await {
        Ok(opened) => opened.maintain(&ctx.stop).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    if ctx.stop.is_cancelled() {
        return Ok(());
    }
    let result = match done {
        Ok(done) => {
            let (freed, kept) = (done.freed, done.kept);
            tracing::info!(repository = name, freed, kept, "maintenance done");
            Ok(())
        }
        Err(Error::Volume(bowline_volume::Error::Locked(who))) => {
            tracing::info!(repository = name, "maintenance waits: {who}");
            return Ok(());
        }
        Err(error) => Err(error.chain()),
    };
    let ended = ctx.now();
    let duration = Duration::try_from(ended.duration_since(began)).unwrap_or_default();
    ctx.metrics
        .maintenance_finished(&name, duration, result.is_ok());
    if let Err(why) = &result {
        tracing::error!(repository = name, "maintenance failed: {why}");
    }
    patiently(ctx, || async {
        let Some(old) = ctx.find::<BackupRepository>(&name).await? else {
            return Ok(());
        };
        let new = maintained(&old, &result, began, ended);
        ctx.update(&old, &new).await.map(drop)
    })
    .await
}

#[cfg(test)]
mod tests {
    use bowline_api::{Duration as GoDuration, v1::BackupRepositorySpec};
    use serde_json::json;

    use super::*;

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn location() -> BackupStorageLocation {
        let spec = json!({"provider": "gcp", "objectStorage": {"bucket": "b"}});
        BackupStorageLocation::new("velero", "l", serde_json::from_value(spec).unwrap())
    }

    fn repository(phase: Option<Phase>, last: Option<i64>) -> BackupRepository {
        let spec = BackupRepositorySpec {
            volume_namespace: "shop".to_owned(),
            backup_storage_location: "l".to_owned(),
            restic_identifier: Some("gs:b:/restic/shop".to_owned()),
            maintenance_frequency: GoDuration::from_secs(100),
            ..BackupRepositorySpec::default()
        };
        let mut repository = BackupRepository::new("velero", "r", spec);
        repository.status_mut().phase = phase;
        repository.status_mut().last_maintenance_time = last.map(|last| Time(time(last)));
        repository
    }

    #[test]
    fn repositories_are_opened_and_tidied_up_when_due() {
        let location = location();
        let mut read_only = location.clone();
        read_only.spec.access_mode = Some(AccessMode::ReadOnly);
        let facts = |location, is_changed, pause: Option<i64>| Facts {
            location,
            is_changed,
            pause: pause.map(time),
            now: time(1000),
        };
        let usual = || facts(Some(&location), false, None);
        let (new, ready, not_ready) = (None, Some(Phase::Ready), Some(Phase::NotReady));
        for (phase, last, facts, expected) in [
            (new.clone(), None, usual(), Step::Connect),
            (Some(Phase::New), None, usual(), Step::Connect),
            (not_ready.clone(), None, usual(), Step::Connect),
            (
                not_ready.clone(),
                None,
                facts(Some(&location), false, Some(1010)),
                Step::Wait(time(1010)),
            ),
            (
                not_ready,
                None,
                facts(Some(&location), false, Some(990)),
                Step::Connect,
            ),
            (ready.clone(), Some(950), usual(), Step::Wait(time(1050))),
            (ready.clone(), Some(900), usual(), Step::Maintain),
            (ready.clone(), None, usual(), Step::Maintain),
            (
                ready.clone(),
                Some(800),
                facts(Some(&location), false, Some(1005)),
                Step::Wait(time(1005)),
            ),
            (
                ready.clone(),
                Some(950),
                facts(Some(&location), true, None),
                Step::Invalidate,
            ),
            (
                ready.clone(),
                Some(0),
                facts(Some(&read_only), false, None),
                Step::Rest,
            ),
            (
                new,
                None,
                facts(Some(&read_only), false, None),
                Step::Connect,
            ),
            (
                ready,
                None,
                facts(None, false, None),
                Step::Refuse("backup storage location l not found".to_owned()),
            ),
        ] {
            let repository = repository(phase.clone(), last);
            assert_eq!(next(&repository, &facts), expected, "{phase:?} {last:?}");
        }
    }

    #[test]
    fn what_is_not_as_it_should_be_is_written_down_first() {
        let location = location();
        let facts = Facts {
            location: Some(&location),
            is_changed: false,
            pause: None,
            now: time(0),
        };
        let settle = || Step::Settle("gs:b:/restic/shop".to_owned());
        let mut elsewhere = repository(Some(Phase::Ready), None);
        elsewhere.spec.restic_identifier = Some("gs:c:/restic/shop".to_owned());
        assert_eq!(next(&elsewhere, &facts), settle());
        let mut never = repository(None, None);
        never.spec.maintenance_frequency = GoDuration::ZERO;
        assert_eq!(next(&never, &facts), settle());
        let mut kopia = repository(None, None);
        kopia.spec.repository_type = Some(UploaderType::Kopia);
        assert_eq!(next(&kopia, &facts), Step::Leave);
    }

    #[test]
    fn the_last_three_maintenances_are_remembered() {
        let mut repository = repository(Some(Phase::Ready), Some(0));
        for (n, result) in [
            Ok(()),
            Err("no room".to_owned()),
            Ok(()),
            Err("no".to_owned()),
        ]
        .into_iter()
        .enumerate()
        {
            let began = i64::try_from(n).unwrap() * 10;
            repository = maintained(&repository, &result, time(began), time(began + 5));
        }
        let status = repository.status.clone().unwrap();
        assert_eq!(status.last_maintenance_time, Some(Time(time(25))));
        let history: Vec<_> = status
            .recent_maintenance
            .unwrap()
            .into_iter()
            .map(|one| (one.result.unwrap(), one.message))
            .collect();
        assert_eq!(
            history,
            [
                (Outcome::Failed, Some("no room".to_owned())),
                (Outcome::Succeeded, None),
                (Outcome::Failed, Some("no".to_owned())),
            ]
        );
        assert_eq!(
            due(&repository, SignedDuration::from_secs(100)),
            Some(time(335)),
            "after a failure soon, but not at once"
        );
    }

    #[test]
    fn only_changes_that_lead_elsewhere_count() {
        let old = location().spec;
        let mut new = old.clone();
        new.default = Some(true);
        assert!(!is_other(&old, &new));
        new.object_storage.prefix = Some("p".to_owned());
        assert!(is_other(&old, &new));
    }

    #[test]
    fn settings_are_text() {
        let found = config(r#"{"cacheLimitMB": 5000, "fullMaintenanceInterval": "normalGC"}"#);
        let expected = [
            ("cacheLimitMB", "5000"),
            ("fullMaintenanceInterval", "normalGC"),
        ];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(found.unwrap(), expected.into());
        assert!(config("[]").is_err());
    }
}
