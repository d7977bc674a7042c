//! One object on its way into the cluster: prepared by actions and modifiers, then created, merged
//! into what is there, or left alone.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use bowline_api::{
    files::{
        BackupMethod, BackupVolumeInfo, OperationPhase, OperationStatus, ResourceIdentifier,
        RestoreOperation, RestoreOperationSpec,
    },
    names::annotation,
    v1::{ExistingResourcePolicy, Restore},
    v2alpha1::DataDownload,
};
use kube::ResourceExt;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Settings,
    action::{PODS, RestoreItemAction},
    calls::{Calls, Write},
    dry::{Dry, Planned},
    existing::{self, Existing, Verdict},
    message,
    modifier::Modifiers,
    moved::Downloads,
    namespace::{self, Namespaces},
    notes::{Notebook, Open},
    owners,
    plan::{DEFINITIONS, Item},
    pod_volume::{Filling, PodVolume, PodVolumes},
    select::Selection,
    snapshots::Snapshots,
    spool::Spool,
    track::{Claim, Done, Key, Tracker},
    volume::{self, Fate},
};
use crate::{
    action::{Related, take_annotation, text},
    discovery::{Discovery, Resource},
    log::{About, Level, Log},
    movement::UPLOADS,
    progress::Progress,
};

/// How often it is asked whether what an action needs is ready.
const READY: std::time::Duration = std::time::Duration::from_secs(1);
/// How often a definition is looked at until it can be used.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);
/// A status that somebody else changed meanwhile is written again, so many times.
const TRIES: u32 = 5;
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A restore while it runs.
pub(super) struct Run {
    pub(super) calls: Calls,
    pub(super) restore: Arc<Restore>,
    pub(super) settings: Settings,
    pub(super) progress: Arc<Progress>,
    pub(super) log: Log,
    pub(super) spool: Spool,
    pub(super) discovery: RwLock<Arc<Discovery>>,
    pub(super) selection: Selection,
    pub(super) actions: Vec<Arc<dyn RestoreItemAction>>,
    pub(super) modifiers: Option<Arc<Modifiers>>,
    /// What the backup says of volumes, by name.
    pub(super) volumes: HashMap<String, BackupVolumeInfo>,
    /// How the volumes of pods come back.
    pub(super) pod_volumes: PodVolumes,
    /// Makes volumes of snapshots.
    pub(super) snapshots: Option<Arc<dyn Snapshots>>,
    /// Has moved data brought back.
    pub(super) downloads: Option<Arc<dyn Downloads>>,
    /// Volumes that have another name now.
    pub(super) renamed: Mutex<HashMap<String, String>>,
    /// Volumes of pods that somebody fills now.
    pub(super) fillings: Mutex<Vec<Filling>>,
    /// What became of volumes.
    pub(super) notes: Notebook,
    pub(super) tracker: Tracker,
    pub(super) namespaces: Namespaces,
    /// Volumes that are made anew.
    pub(super) anew: Mutex<HashSet<String>>,
    pub(super) operations: Mutex<Vec<RestoreOperation>>,
    /// What this restore makes is not older than this.
    pub(super) since: jiff::Timestamp,
    /// Whether another server began it.
    pub(super) resumed: bool,
    /// Collects what would happen, and nothing does.
    pub(super) dry: Option<Dry>,
}

/// Why an object is restored.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// It is selected.
    Selected,
    /// Another one needs it; the flag says that filters do not matter.
    By(&'a Key, bool),
}

/// Whether an object, and what it brought along, caused neither warnings nor errors.
type Clean = bool;

/// What became of an object.
pub(super) struct End {
    /// None for what the resource list does not speak of.
    done: Option<Done>,
    clean: Clean,
}

impl End {
    const SKIPPED: Self = Self {
        done: Some(Done::Skipped),
        clean: true,
    };
    pub(super) const UNSPOKEN: Self = Self {
        done: None,
        clean: true,
    };
    pub(super) const FAILED: Self = Self {
        done: Some(Done::Failed),
        clean: false,
    };
}

/// An object ready to be sent.
pub(super) struct Ready {
    /// What is sent, without its managers.
    pub(super) wanted: Value,
    /// As the backup has it, in its new namespace.
    pub(super) pristine: Value,
    /// The namespace that it had.
    pub(super) source: String,
    /// A pod's volumes that are to be filled.
    pub(super) volumes: Vec<PodVolume>,
    /// What brings a claim's data.
    pub(super) download: Option<DataDownload>,
    status: Option<Value>,
    managers: Value,
    clean: Clean,
}

impl Run {
    pub(super) fn is_dry(&self) -> bool {
        self.dry.is_some()
    }

    pub(super) fn discovery(&self) -> Arc<Discovery> {
        let discovery = self.discovery.read();
        Arc::clone(&discovery.unwrap_or_else(PoisonError::into_inner))
    }

    /// Restores an object, once.
    pub(super) fn item<'a>(
        &'a self,
        kind: &'a Arc<str>,
        item: &'a Item,
        asked: Asked<'a>,
    ) -> Pin<Box<dyn Future<Output = Clean> + Send + 'a>> {
        Box::pin(async move {
            let target = self.selection.target(&item.namespace);
            let asker = match asked {
                Asked::Selected => None,
                Asked::By(_, false) if !self.selection.admits(kind, &item.namespace) => {
                    return true;
                }
                Asked::By(asker, _) => Some(asker),
            };
            let key = Key {
                kind: Arc::clone(kind),
                namespace: target.into(),
                name: item.name.clone(),
            };
            match self.tracker.claim(&key, asker) {
                Claim::Mine => {}
                Claim::Over => return true,
                Claim::Wait(mut over) => {
                    // It ends with an error when whoever has it is done.
                    while over.changed().await.is_ok() {}
                    if let Some(asker) = asker {
                        self.tracker.waited(asker);
                    }
                    return true;
                }
            }
            if !item.place.selected {
                self.progress.grow(1);
            }
            let clean = self.work(&key, item).await;
            self.tracker.over(&key);
            self.progress.more(1);
            clean
        })
    }

    async fn work(&self, key: &Key, item: &Item) -> Clean {
        let pristine = match self.read(item) {
            Ok(pristine) => pristine,
            Err(why) => {
                let path = path(&key.kind, &item.namespace, &item.name);
                return self.fail(key, &format!("error decoding {path:?}: {why}"));
            }
        };
        if &*key.kind == "namespaces" {
            let target = self.selection.target(&item.name).to_owned();
            return match self.ensure_namespace(&target, &item.name).await {
                Ok(state) => {
                    self.plan(|| Planned::namespace(&target, state));
                    true
                }
                Err(why) => self.fail_run(&why),
            };
        }
        // What is never restored needs no namespace.
        let namespace = if key.namespace.is_empty() || &*key.kind == UPLOADS {
            namespace::State::Found
        } else {
            match self.ensure_namespace(&key.namespace, &item.namespace).await {
                Ok(state) => state,
                Err(why) => return self.fail_run(&why),
            }
        };
        if existing::is_over(&key.kind, &pristine) {
            self.note(Level::Info, "It is complete - skipping", key);
            self.plan(|| Planned::skip(key, "it is complete"));
            return true;
        }
        let kind = kind_of(&pristine);
        let noted = Open::of(key, item, &pristine);
        let mut name = item.name.to_string();
        let end = match self.prepare(key, pristine).await {
            Ok(ready) => {
                if let Some(other) = ready.wanted["metadata"]["name"].as_str() {
                    name = other.to_owned();
                }
                self.send(key, ready, namespace).await
            }
            Err(end) => end,
        };
        if let Some(noted) = noted {
            self.notes.ended(noted, key, &name, end.done);
        }
        if let Some(done) = end.done {
            self.tracker.record(&kind, &key.namespace, &name, done);
        }
        end.clean
    }

    fn read(&self, item: &Item) -> Result<Value, String> {
        let body = self.spool.body(item.place).map_err(|e| e.to_string())?;
        let object: Value = serde_json::from_slice(&body).map_err(|e| e.to_string())?;
        let typed = |key: &str| object[key].as_str().is_some_and(|text| !text.is_empty());
        if !object["metadata"].is_object() || !typed("kind") || !typed("apiVersion") {
            return Err("Object 'Kind' is missing, or it has no metadata".to_owned());
        }
        Ok(object)
    }

    /// Everything up to the call: volumes, actions, modifiers, names.
    async fn prepare(&self, key: &Key, pristine: Value) -> Result<Ready, End> {
        let mut object = pristine.clone();
        let mut moved = None;
        match &*key.kind {
            PODS if pristine["metadata"]["annotations"][MIRROR].is_string() => {
                self.note(Level::Info, "Not restored because it is a mirror pod", key);
                self.plan(|| Planned::skip(key, "it is a mirror pod"));
                return Err(End::SKIPPED);
            }
            "persistentvolumes" => self.volume(key, &mut object).await?,
            "persistentvolumeclaims" => moved = self.moved(key, &pristine).await?,
            _ => {}
        }
        let status = existing::reset(&mut object);
        let (mut object, mut clean) = self.act(key, object, &pristine).await?;
        if &*key.kind == "persistentvolumeclaims" {
            volume::free_claim(&mut object, |volume| self.is_anew(volume));
            self.follow(&mut object);
        }
        if let Some(modifiers) = &self.modifiers {
            for why in modifiers.apply(&key.kind, &mut object) {
                clean = self.fail(key, &why);
            }
        }
        let download = moved.and_then(|way| self.wait_for_data(key, &way, &pristine, &mut object));
        let source = text(&pristine, "/metadata/namespace").to_owned();
        let volumes = match &*key.kind {
            PODS => self.pod_volumes.copies.of(&object, &source),
            _ => Vec::new(),
        };
        let mut pristine = pristine;
        for object in [&mut object, &mut pristine] {
            if !key.namespace.is_empty() {
                object["metadata"]["namespace"] = Value::String(key.namespace.to_string());
            }
        }
        existing::add_labels(&mut object, &self.restore);
        let managers = object["metadata"]
            .as_object_mut()
            .and_then(|metadata| metadata.remove("managedFields"))
            .unwrap_or_default();
        Ok(Ready {
            wanted: object,
            pristine,
            source,
            volumes,
            download,
            status,
            managers,
            clean,
        })
    }

    /// A volume that comes back as it was, or the end of it.
    async fn volume(&self, key: &Key, volume: &mut Value) -> Result<(), End> {
        let copied =
            |namespace: &str, name: &str| self.pod_volumes.copies.has_claim(namespace, name);
        let snapshots = self.snapshots.as_ref();
        let has_snapshot = snapshots.is_some_and(|snapshots| snapshots.has(&key.name));
        let fate = volume::fate(volume, self.volumes.get(&*key.name), has_snapshot, copied);
        self.notes.fate(&key.name, fate);
        match fate {
            Fate::AsIs => {
                self.unbind(volume);
                Ok(())
            }
            Fate::Anew(why) => {
                self.lock_anew().insert(key.name.to_string());
                self.note(Level::Info, &format!("Made anew by its claim: {why}"), key);
                self.plan(|| Planned::skip(key, &format!("its claim gets a new volume: {why}")));
                Err(End::SKIPPED)
            }
            Fate::Snapshot => self.restore_snapshot(key, volume).await,
        }
    }

    fn lock_anew(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.anew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a claim gets another volume than it had; also if filters keep the volume out of sight.
    fn is_anew(&self, volume: &str) -> bool {
        let info = self.volumes.get(volume);
        let method = info.and_then(|info| info.backup_method.as_ref());
        let is_filled = matches!(
            method,
            Some(BackupMethod::PodVolumeBackup | BackupMethod::CsiSnapshot)
        );
        is_filled || self.lock_anew().contains(volume)
    }

    /// Runs the actions, and restores first what they ask for.
    async fn act(
        &self,
        key: &Key,
        mut object: Value,
        pristine: &Value,
    ) -> Result<(Value, Clean), End> {
        let mut clean = true;
        for action in &self.actions {
            if !action.applies_to(&key.kind, pristine) {
                continue;
            }
            let executed = match action.execute(object, pristine, &self.restore).await {
                Ok(executed) => executed,
                Err(why) => {
                    self.fail(key, &format!("error preparing {}: {why}", id(key)));
                    return Err(End::FAILED);
                }
            };
            if !executed.operation_id.is_empty() {
                self.operation(key, action.name(), executed.operation_id);
            }
            if executed.skip {
                let why = format!("Skipping restore because {} discarded it", action.name());
                self.note(Level::Info, &why, key);
                self.plan(|| Planned::skip(key, &format!("{} leaves it out", action.name())));
                return Err(End {
                    clean,
                    ..End::SKIPPED
                });
            }
            object = executed.object;
            let must = take_annotation(&mut object, annotation::RESTORE_MUST_INCLUDE);
            for related in &executed.related {
                clean &= self.bring(key, related, must).await;
            }
            if executed.wait_for_related && !executed.related.is_empty() && !self.is_dry() {
                clean &= self
                    .wait_for(
                        key,
                        action.as_ref(),
                        &executed.related,
                        executed.ready_timeout,
                    )
                    .await;
            }
        }
        Ok((object, clean))
    }

    /// Waits until what an action asked for is ready; the object goes on in any case.
    async fn wait_for(
        &self,
        key: &Key,
        action: &dyn RestoreItemAction,
        items: &[Related],
        limit: Option<std::time::Duration>,
    ) -> Clean {
        let until = Instant::now() + limit.unwrap_or(self.settings.resource_timeout);
        let why = loop {
            match action.are_ready(items, &self.restore).await {
                Ok(true) => return true,
                Ok(false) if Instant::now() < until => tokio::time::sleep(READY).await,
                Ok(false) => break "timed out waiting for the condition".to_owned(),
                Err(refused) => break refused.to_string(),
            }
        };
        self.fail(
            key,
            &format!("error verifying additional items are ready to use: {why}"),
        )
    }

    async fn bring(&self, asker: &Key, related: &Related, must: bool) -> Clean {
        let Related {
            group_resource,
            namespace,
            name,
        } = related;
        let Some(place) = self.spool.find(group_resource, namespace, name) else {
            let path = path(group_resource, namespace, name);
            let why = format!("unable to restore additional item: {path} is not in the backup");
            let about = About::object(group_resource, namespace, name);
            self.log.told(Level::Warning, &why, &about);
            return false;
        };
        let item = Item {
            namespace: namespace.as_str().into(),
            name: name.as_str().into(),
            place,
        };
        let kind: Arc<str> = group_resource.as_str().into();
        self.item(&kind, &item, Asked::By(asker, must)).await
    }

    pub(super) fn operation(&self, key: &Key, action: &str, operation_id: String) {
        let (resource, group) = key.kind.split_once('.').unwrap_or((&key.kind, ""));
        let operation = RestoreOperation {
            spec: RestoreOperationSpec {
                restore_name: self.restore.name_any(),
                restore_uid: self.restore.uid().unwrap_or_default(),
                restore_item_action: action.to_owned(),
                resource_identifier: ResourceIdentifier {
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    ..ResourceIdentifier::default()
                },
                operation_id,
                ..RestoreOperationSpec::default()
            },
            status: OperationStatus {
                phase: Some(OperationPhase::New),
                created: Some(bowline_api::Time(jiff::Timestamp::now())),
                ..OperationStatus::default()
            },
            ..RestoreOperation::default()
        };
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(operation);
    }

    /// Creates an object, or sees what to do with the one that is there.
    async fn send(&self, key: &Key, ready: Ready, namespace: namespace::State) -> End {
        if let Some(dry) = &self.dry {
            return self.rehearse(dry, key, &ready, namespace).await;
        }
        let resource = match self.endpoint(key, &ready) {
            Ok(resource) => resource,
            Err(why) => {
                self.fail(key, &format!("error restoring {}: {why}", id(key)));
                return End::FAILED;
            }
        };
        let collection = resource.path(resource.namespaced.then_some(&*key.namespace));
        let name = ready.wanted["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let object_path = resource.object_path(&key.namespace, name);
        let maker = owners::maker(&ready.managers);
        let what = Write("create object");
        let created = self
            .calls
            .create(what, &collection, &ready.wanted, maker)
            .await;
        let refused = match created {
            Ok(head) => return self.after(key, &object_path, ready, head.metadata).await,
            Err(error) => error,
        };
        let exists = is_there(&refused, &ready.wanted);
        match self.calls.get(&object_path).await {
            Ok(Some(live)) if existing::is_ours(&live, &ready.wanted, self.since) => {
                let metadata = live["metadata"].clone();
                self.after(key, &object_path, ready, metadata).await
            }
            Ok(Some(live)) => self.settle(key, &object_path, &ready, &live).await,
            Err(error) if exists => {
                self.warn(key, &message(&error));
                End::FAILED
            }
            _ => {
                self.fail(
                    key,
                    &format!("error restoring {}: {}", id(key), message(&refused)),
                );
                End::FAILED
            }
        }
    }

    /// Where such objects live in this cluster. The archive's folder says the resource; only an
    /// action may make another kind of an object.
    pub(super) fn endpoint(&self, key: &Key, ready: &Ready) -> Result<Resource, String> {
        let api_version = ready.wanted["apiVersion"].as_str().unwrap_or_default();
        let kind = ready.wanted["kind"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let plural = key.kind.split('.').next().unwrap_or_default();
        let is_changed = ready.pristine["kind"] != ready.wanted["kind"];
        let discovery = self.discovery();
        let mut served = discovery
            .resources
            .iter()
            .filter(|r| r.group == group && r.version == version && r.kind == kind);
        let found = served.find(|r| is_changed || r.plural == plural);
        found.cloned().ok_or_else(|| {
            format!("the server could not find the requested resource: it does not serve {kind} in {api_version} as {plural}")
        })
    }

    /// What is left to do for an object that this restore has made.
    async fn after(&self, key: &Key, path: &str, ready: Ready, mut metadata: Value) -> End {
        let mut clean = ready.clean;
        if let Some(status) = &ready.status
            && self.restores_status(key, &ready.wanted)
        {
            match self
                .write_status(path, &ready.wanted, status, metadata.clone())
                .await
            {
                Ok(head) => metadata = head,
                Err(error) => clean = self.warn(key, &message(&error)),
            }
        }
        if let Some(patch) = owners::patch(&metadata["managedFields"], &ready.managers) {
            let what = Write("patch managers");
            match self.calls.patch(what, path, &patch).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    clean = self.warn(key, &status.message);
                }
                Err(error) => clean = self.fail(key, &message(&error)),
            }
        }
        if &*key.kind == PODS {
            self.fill(key, &ready, &metadata).await;
        }
        if let Some(download) = &ready.download
            && !self.bring_data(key, &ready.pristine, download).await
        {
            return End::FAILED;
        }
        if &*key.kind == DEFINITIONS {
            clean &= self.wait_for_definition(key, path).await;
        }
        End {
            done: Some(Done::Created),
            clean,
        }
    }

    fn restores_status(&self, key: &Key, object: &Value) -> bool {
        let own = object["metadata"]["annotations"][annotation::RESTORE_STATUS]
            .as_str()
            .map(|text| text.trim().to_lowercase());
        match own.as_deref() {
            Some("true") if self.selection.knows_status() => true,
            Some("false") => false,
            _ => self.selection.restores_status(&key.kind),
        }
    }

    async fn write_status(
        &self,
        path: &str,
        wanted: &Value,
        status: &Value,
        mut metadata: Value,
    ) -> Result<Value, kube::Error> {
        let mut object = wanted.clone();
        object["status"] = status.clone();
        let mut tries = 0;
        loop {
            tries += 1;
            object["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
            let what = Write("put status");
            let done = self
                .calls
                .replace(what, &format!("{path}/status"), &object)
                .await;
            match done {
                Ok(head) => return Ok(head.metadata),
                Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {
                    if let Some(live) = self.calls.get(path).await? {
                        metadata = live["metadata"].clone();
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the kind that a definition makes can be used.
    async fn wait_for_definition(&self, key: &Key, path: &str) -> Clean {
        let until = Instant::now() + self.settings.resource_timeout;
        loop {
            match self.calls.get(path).await {
                Ok(Some(definition)) if is_established(&definition) => return true,
                Ok(_) => {}
                Err(error) => {
                    let why = format!(
                        "error verifying the CRD {} is ready to use: {}",
                        key.name,
                        message(&error)
                    );
                    return self.fail(key, &why);
                }
            }
            if Instant::now() >= until {
                let why = format!(
                    "the CRD {} is not available to use for custom resources",
                    key.name
                );
                return self.fail(key, &why);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn policy(&self) -> Option<&ExistingResourcePolicy> {
        let policy = self.restore.spec.existing_resource_policy.as_ref();
        policy.filter(|policy| !policy.as_str().is_empty())
    }

    pub(super) fn verdict(&self, key: &Key, ready: &Ready, live: &Value) -> Verdict {
        Existing {
            kind: &key.kind,
            live,
            wanted: &ready.wanted,
            pristine: &ready.pristine,
            policy: self.policy(),
        }
        .verdict()
    }

    /// An object that is there already.
    async fn settle(&self, key: &Key, path: &str, ready: &Ready, live: &Value) -> End {
        let skipped = End {
            clean: ready.clean,
            done: Some(if ready.clean {
                Done::Skipped
            } else {
                Done::Failed
            }),
        };
        match self.verdict(key, ready, live) {
            Verdict::Same => {
                let why = "Not restored: it is there already, as the backup has it";
                self.note(Level::Info, why, key);
                skipped
            }
            Verdict::Label(patch) => {
                match self.calls.patch(Write("patch labels"), path, &patch).await {
                    Ok(_) => skipped,
                    Err(error) => {
                        self.fail(key, &message(&error));
                        End::FAILED
                    }
                }
            }
            Verdict::Patch(patch) => {
                match self.calls.patch(Write("patch object"), path, &patch).await {
                    Ok(_) => End {
                        done: Some(Done::Updated),
                        clean: ready.clean,
                    },
                    Err(error) => {
                        self.warn(key, &message(&error));
                        if self.policy() == Some(&ExistingResourcePolicy::Update) {
                            let labels = existing::label_patch(&ready.wanted);
                            if let Err(error) =
                                self.calls.patch(Write("patch labels"), path, &labels).await
                            {
                                self.fail(key, &message(&error));
                            }
                        }
                        End::FAILED
                    }
                }
            }
            Verdict::Differs => {
                self.warn(key, &self.differs(&ready.wanted));
                End::FAILED
            }
        }
    }

    /// What is said of an object that is there, and another.
    fn differs(&self, wanted: &Value) -> String {
        let kind = wanted["kind"].as_str().unwrap_or_default();
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        let which = match self.policy() {
            Some(_) => format!("{kind} {name:?}"),
            None => format!("{kind}:{name}"),
        };
        format!(
            "could not restore, {which} already exists. Warning: the in-cluster version is different than the backed-up version"
        )
    }

    pub(super) fn plan(&self, planned: impl FnOnce() -> Planned) {
        if let Some(dry) = &self.dry {
            dry.add(planned());
        }
    }

    fn about(&self, key: &Key) -> About {
        About::object(&key.kind, &key.namespace, &key.name)
    }

    pub(super) fn note(&self, level: Level, text: &str, key: &Key) {
        self.log.write(level, text, &self.about(key));
    }

    fn warn(&self, key: &Key, why: &str) -> Clean {
        self.log.told(Level::Warning, why, &self.about(key));
        false
    }

    pub(super) fn fail(&self, key: &Key, why: &str) -> Clean {
        self.log.told(Level::Error, why, &self.about(key));
        false
    }

    fn fail_run(&self, why: &str) -> Clean {
        self.log.told(Level::Error, why, &About::default());
        false
    }
}

/// `apps/v1/Deployment`.
fn kind_of(object: &Value) -> String {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    format!("{}/{}", text("apiVersion"), text("kind"))
}

/// How messages name an object.
pub(super) fn id(key: &Key) -> String {
    if key.namespace.is_empty() {
        format!("{}/{}", key.kind, key.name)
    } else {
        format!("{}/{}/{}", key.kind, key.namespace, key.name)
    }
}

/// Where an object is in an archive.
fn path(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("resources/{kind}/cluster/{name}.json")
    } else {
        format!("resources/{kind}/namespaces/{namespace}/{name}.json")
    }
}

/// Whether a refusal means that the object is there already. Services are also refused for ports
/// that they have themselves.
fn is_there(refused: &kube::Error, wanted: &Value) -> bool {
    let kube::Error::Api(status) = refused else {
        return false;
    };
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    status.is_already_exists()
        || (wanted["kind"] == "Service"
            && causes().next().is_some()
            && causes().all(|cause| cause.message.contains("provided port is already allocated")))
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let has = |kind: &str| {
        conditions
            .into_iter()
            .flatten()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    has("Established") && has("NamesAccepted")
}
