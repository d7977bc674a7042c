//! One object on its way into the archive: selected, claimed, changed by actions, stored, and what
//! it brings along.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::{
    Time,
    files::{BackupOperation, BackupOperationSpec, OperationPhase, OperationStatus, ResourceList},
    names::{annotation, label},
    v1::{Backup, HookStatus},
};
use bowline_vault::archive::write::{Closed, Packed, Writer};
use futures::{StreamExt, stream};
use http::Request;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Job, Settings,
    block::Hooks,
    csi::{PARALLEL_CLAIMS, With, is_claims},
    held::Held,
    later::Later,
    plan::{List, Listing},
    pod_volumes::{Volumes, is_pods},
    sink::{Desk, Joining, Sink},
    snapshots::{Frozen, Taken, is_volumes},
    track::{self, Tracker},
};
use crate::{
    action::{BackupItemAction, ItemBlockAction, Related, take_annotation, text},
    discovery::{Discovery, Resource},
    list::{self, Query},
    log::{About, Level, Log},
    movement,
    object::Facts,
    progress::Progress,
    select::{LiveNamespace, Selection},
};

/// Objects with actions that are worked on at the same time, for each list.
const PARALLEL_ITEMS: usize = 8;
/// Batches of one list that are packed at the same time.
const PARALLEL_BATCHES: usize = 2;
/// Reads that fail in passing are tried again, so many times.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Why something is not in a backup that was ended early.
pub(super) const ENDED: &str = "the backup was ended";

/// A backup while it runs.
pub(super) struct Run {
    pub(super) client: Client,
    pub(super) backup: Arc<Backup>,
    settings: Settings,
    progress: Arc<Progress>,
    pub(super) log: Log,
    pub(super) hooks: Hooks,
    pub(super) volumes: Volumes,
    later: mpsc::UnboundedSender<Later>,
    discovery: Discovery,
    selection: Selection,
    actions: Vec<Arc<dyn BackupItemAction>>,
    pub(super) block_actions: Vec<Arc<dyn ItemBlockAction>>,
    operations: Mutex<Vec<BackupOperation>>,
    tracker: Tracker,
    sink: Sink,
    /// What is not cut off when the run ends early.
    pub(super) held: Held,
    /// The run is to end early: nothing new is begun.
    pub(super) over: CancellationToken,
}

/// A resource's place in the discovery.
pub(super) type At = usize;

/// Whether an object is in the archive, or rightly not; false when it should be and is not.
type Fine = bool;

impl Run {
    pub(super) fn start(
        job: &Job,
        archive: Writer,
        discovery: Discovery,
        selection: Selection,
        actions: Vec<Arc<dyn BackupItemAction>>,
        hooks: Hooks,
        later: mpsc::UnboundedSender<Later>,
    ) -> (Self, Joining) {
        let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        let (sink, joining) = Sink::start(archive, now);
        let run = Self {
            client: job.client.clone(),
            backup: Arc::clone(&job.backup),
            settings: job.settings,
            progress: Arc::clone(&job.progress),
            log: job.log.clone(),
            hooks,
            volumes: Volumes::new(job),
            later,
            discovery,
            selection,
            actions,
            block_actions: job.block_actions.clone(),
            operations: Mutex::default(),
            tracker: Tracker::default(),
            sink,
            held: Held::default(),
            over: job.cancel.child_token(),
        };
        (run, joining)
    }

    pub(super) fn stored(&self) -> (ResourceList, u64) {
        self.tracker.resource_list(&self.discovery.resources)
    }

    pub(super) fn hook_status(&self) -> HookStatus {
        self.hooks.tracker.status()
    }

    pub(super) fn resource(&self, at: At) -> &Resource {
        &self.discovery.resources[at]
    }

    pub(super) fn place(&self, at: At, namespace: &str, name: &str) -> About {
        About::object(&self.resource(at).group_resource(), namespace, name)
    }

    pub(super) fn is_taken(&self, at: At, namespace: &str, name: &str) -> bool {
        self.tracker.is_claimed(at, namespace, name)
    }

    pub(super) fn is_stored(&self, at: At, namespace: &str, name: &str) -> bool {
        self.tracker.is_stored(at, namespace, name)
    }

    /// Whether an object would be taken on now.
    pub(super) fn is_free(&self, at: At, facts: &Facts<'_>) -> bool {
        self.selection
            .admits(self.resource(at), facts, false)
            .is_ok()
            && !self
                .tracker
                .is_claimed(at, &facts.namespace(), &facts.name())
    }

    /// The place of a resource, `pods` or `deployments.apps`.
    pub(super) fn position(&self, group_resource: &str) -> Option<At> {
        self.discovery.position(group_resource)
    }

    pub(super) fn collects(&self, resource: &Resource) -> bool {
        self.selection.collects(resource)
    }

    /// Leaves something for later. When nobody is there to do it, the run is over.
    pub(super) fn later(&self, work: Later) {
        let _ = self.later.send(work);
    }

    pub(super) fn drop_item(&self, at: At, namespace: &str, name: &str) {
        self.tracker.dropped(at, namespace, name);
    }

    /// Copies what the lists of one resource bring.
    pub(super) async fn listing(self: Arc<Self>, listing: Listing) {
        let at = listing.resource;
        self.ordered(at).await;
        stream::iter(listing.lists)
            .for_each_concurrent(self.settings.parallel, |list| {
                let run = Arc::clone(&self);
                async move { run.list(at, list).await }
            })
            .await;
    }

    async fn list(self: &Arc<Self>, at: At, list: List) {
        let namespace = list.namespace.as_deref();
        let query = Query {
            path: self.resource(at).path(namespace),
            selector: list.selector.clone(),
            page: self.settings.page,
            metadata_only: false,
        };
        let (out, batches) = mpsc::channel::<list::Batch>(1);
        let client = self.client.clone();
        let listing = AbortOnDropHandle::new(tokio::spawn(async move {
            list::all(&client, &query, &out).await
        }));
        let batches = stream::unfold(batches, |mut batches| async move {
            batches.recv().await.map(|batch| (batch, batches))
        });
        batches
            .map(|batch| {
                let run = Arc::clone(self);
                self.sink.at_desk(move |desk| run.pack(at, &batch, desk))
            })
            .buffer_unordered(PARALLEL_BATCHES)
            .for_each(|packed| async {
                // A panic is a fault of ours; the objects of that batch are missing, so say so.
                match packed {
                    Ok((packed, rest)) => {
                        if let Some(packed) = packed {
                            let _ = self.sink.send(packed).await;
                        }
                        self.one_by_one(at, rest).await;
                    }
                    Err(panic) => self.log.error(
                        "Objects could not be packed",
                        &self
                            .place(at, namespace.unwrap_or_default(), "")
                            .because(panic),
                    ),
                }
            })
            .await;
        let failed = match listing.await {
            Ok(Ok(()) | Err(list::Error::Closed)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        let about = self.place(at, namespace.unwrap_or_default(), "");
        self.log
            .error("Error listing items", &about.because(failed));
    }

    /// Packs the objects that need nothing but copying. Returns the others as they came.
    fn pack(
        &self,
        at: At,
        batch: &list::Batch,
        desk: &mut Desk,
    ) -> (Option<Packed>, Vec<(Vec<u8>, bool)>) {
        let Desk {
            packer,
            batch: tar,
            canonical,
            body,
        } = desk;
        let resource = self.resource(at);
        let (api_version, kind) = (resource.api_version(), resource.kind.as_str());
        let actions = self.actions_for(resource);
        let mut rest = Vec::new();
        let mut done = 0;
        for raw in batch.objects() {
            body.clear();
            let facts = match canonical.write(raw, &api_version, kind, body) {
                Ok(facts) => facts,
                Err(error) => {
                    let about = self.place(at, "", "").because(error);
                    self.log.error("Error backing up item", &about);
                    continue;
                }
            };
            if self.is_left(at, &facts, false) {
                continue;
            }
            let in_block = self.has_hooks(resource, &facts) || self.is_blocked(resource, &facts);
            if self.waits_for_pods(resource) && !in_block {
                self.tracker.expect(at, &facts.namespace(), &facts.name());
                continue;
            }
            if in_block
                || actions.iter().any(|a| a.concerns(&facts))
                || self.volumes.concern(resource, &facts)
            {
                rest.push((raw.to_vec(), in_block));
                continue;
            }
            let (namespace, name) = (facts.namespace(), facts.name());
            if !self.tracker.claim(at, &namespace, &name) {
                continue;
            }
            for path in paths(resource, &facts.api_version(), &namespace, &name) {
                tar.add(&path, body);
            }
            self.tracker.stored(at, &namespace, &name);
            self.note(resource, raw);
            self.log_stored(at, &namespace, &name);
            done += 1;
        }
        self.progress.more(done);
        ((!tar.is_empty()).then(|| packer.pack(tar)), rest)
    }

    fn actions_for(&self, resource: &Resource) -> Vec<&Arc<dyn BackupItemAction>> {
        let all = self.actions.iter();
        all.filter(|action| action.applies_to(resource)).collect()
    }

    fn log_stored(&self, at: At, namespace: &str, name: &str) {
        if self.log.takes(Level::Debug) {
            let about = self.place(at, namespace, name);
            self.log.write(Level::Debug, "Backed up item", &about);
        }
    }

    /// Whether an object is not for this backup; says so where somebody would wonder.
    fn is_left(&self, at: At, facts: &Facts<'_>, insisted: bool) -> bool {
        match self.selection.admits(self.resource(at), facts, insisted) {
            Ok(()) => false,
            Err(left) => {
                if let Some(why) = left.why() {
                    let (namespace, name) = (facts.namespace(), facts.name());
                    if self.tracker.claim(at, &namespace, &name) {
                        self.tracker.dropped(at, &namespace, &name);
                        self.log.skipped(why, &self.place(at, &namespace, &name));
                    }
                }
                true
            }
        }
    }

    fn has_hooks(&self, resource: &Resource, facts: &Facts<'_>) -> bool {
        is_pods(resource) && self.hooks.concern(facts)
    }

    /// Objects with actions, or in a block with others (the flag).
    async fn one_by_one(&self, at: At, objects: Vec<(Vec<u8>, bool)>) {
        stream::iter(objects)
            .for_each_concurrent(PARALLEL_ITEMS, |(raw, in_block)| async move {
                if in_block {
                    self.block(at, vec![raw]).await;
                } else {
                    self.object(at, raw, false, None).await;
                }
            })
            .await;
    }

    /// Takes an object on, unless it is somebody else's or not for this backup: then none.
    pub(super) fn take_on<'a>(&self, at: At, raw: &'a [u8], insisted: bool) -> Option<Facts<'a>> {
        let facts = match Facts::of(raw) {
            Ok(facts) => facts,
            Err(error) => {
                let about = self.place(at, "", "").because(error);
                self.log.error("Error backing up item", &about);
                return None;
            }
        };
        if self.is_left(at, &facts, insisted) {
            return None;
        }
        let (namespace, name) = (facts.namespace(), facts.name());
        let claimed = self.tracker.claim(at, &namespace, &name)
            || (insisted && self.tracker.reclaim(at, &namespace, &name));
        claimed.then_some(facts)
    }

    /// Takes an object on and stores it. While pods are frozen for it, what it brings along is
    /// stored at once, rather than when a list comes to that.
    fn object<'a>(
        &'a self,
        at: At,
        raw: Vec<u8>,
        insisted: bool,
        frozen: Option<&'a Frozen>,
    ) -> Pin<Box<dyn Future<Output = Fine> + Send + 'a>> {
        Box::pin(async move {
            let Some(facts) = self.take_on(at, &raw, insisted) else {
                return true;
            };
            let fine = self.settle(at, &facts, frozen).await;
            if is_pods(self.resource(at)) && self.is_stored(at, &facts.namespace(), &facts.name()) {
                self.pod_stored(&raw).await;
            }
            fine
        })
    }

    /// Stores an object that was taken on, or says why not.
    pub(super) async fn settle(&self, at: At, facts: &Facts<'_>, frozen: Option<&Frozen>) -> Fine {
        let (namespace, name) = (facts.namespace(), facts.name());
        match self.store(at, facts, frozen).await {
            Ok(Some(taken)) => {
                self.tracker.stored(at, &namespace, &name);
                self.note(self.resource(at), facts.raw);
                // It counts when its snapshot is safe.
                if taken != Taken::Pending {
                    self.progress.more(1);
                }
                self.log_stored(at, &namespace, &name);
                true
            }
            Ok(None) => {
                self.tracker.dropped(at, &namespace, &name);
                self.lose_cut(at, facts, "the claim is not in the backup");
                true
            }
            Err(why) => {
                self.tracker.dropped(at, &namespace, &name);
                self.lose_cut(at, facts, &why);
                let about = self.place(at, &namespace, &name).because(why);
                self.log.error("Error backing up item", &about);
                false
            }
        }
    }

    /// Runs the actions, takes a volume's snapshot, and writes what is left; none when an action wants
    /// it left out.
    async fn store(
        &self,
        at: At,
        facts: &Facts<'_>,
        frozen: Option<&Frozen>,
    ) -> Result<Option<Taken>, String> {
        if self.over.is_cancelled() {
            return Err(ENDED.to_owned());
        }
        let resource = self.resource(at);
        let mut object: Value =
            serde_json::from_slice(facts.raw).map_err(|error| error.to_string())?;
        say_kind(resource, &mut object);
        for action in self.actions_for(resource) {
            if !action.concerns(facts) {
                continue;
            }
            let executed = tokio::select! {
                executed = action.execute(object, &self.backup) => executed,
                () = self.over.cancelled() => return Err(ENDED.to_owned()),
            };
            let executed = executed.map_err(|refused| format!("{}: {refused}", action.name()))?;
            object = executed.object;
            if !executed.operation_id.is_empty() {
                self.operation(
                    at,
                    facts,
                    action.name(),
                    executed.operation_id,
                    executed.post_operation,
                );
            }
            let insisted = take_annotation(&mut object, annotation::BACKUP_MUST_INCLUDE);
            for related in executed.related {
                if !self.bring(&related, insisted, frozen).await {
                    return Err(format!(
                        "{} {} could not be backed up",
                        related.group_resource,
                        track::key(&related.namespace, &related.name)
                    ));
                }
            }
        }
        if take_annotation(&mut object, annotation::SKIP_FROM_BACKUP) {
            return Ok(None);
        }
        if is_claims(resource)
            && let Some(with) = self.cut(&mut object).await?
        {
            match with {
                With::Snapshot(snapshot) => {
                    let fine = self.bring(&snapshot, true, frozen).await;
                    // One that is gone meanwhile is only a remark there.
                    if !fine || !self.has(&snapshot) {
                        return Err(format!(
                            "VolumeSnapshot {} could not be backed up",
                            snapshot.name
                        ));
                    }
                }
                With::Upload(upload) => {
                    let id = upload.labels().get(label::ASYNC_OPERATION_ID);
                    let namespace = upload.namespace().unwrap_or_default();
                    let itself = Related::new(movement::UPLOADS, &namespace, &upload.name_any());
                    let id = id.cloned().unwrap_or_default();
                    self.operation(at, facts, movement::UPLOAD_ACTION, id, vec![itself]);
                }
            }
        }
        let taken = if is_volumes(resource) {
            self.snapshot(&object).await?
        } else {
            Taken::Nobody
        };
        let body = bowline_api::json::to_vec(&object).map_err(|error| error.to_string())?;
        // An action may have given it another place.
        let (namespace, name) = (
            text(&object, "/metadata/namespace"),
            text(&object, "/metadata/name"),
        );
        let paths = paths(resource, &facts.api_version(), namespace, name);
        let stored = self.sink.add(&paths, &body).await;
        stored.map_err(|Closed| "the archive could not be stored".to_owned())?;
        if taken != Taken::Nobody {
            self.taken(name, frozen);
        }
        Ok(Some(taken))
    }

    /// Whether an object is in the backup.
    fn has(&self, object: &Related) -> bool {
        let at = self.discovery.position(&object.group_resource);
        at.is_some_and(|at| self.tracker.is_stored(at, &object.namespace, &object.name))
    }

    /// A plugin goes on working for an object.
    fn operation(
        &self,
        at: At,
        facts: &Facts<'_>,
        action: &str,
        id: String,
        post_operation: Vec<Related>,
    ) {
        let now = Time(jiff::Timestamp::now());
        let item = Related::new(
            &self.resource(at).group_resource(),
            &facts.namespace(),
            &facts.name(),
        );
        let items = post_operation.into_iter().map(Related::identifier);
        let operation = BackupOperation {
            spec: BackupOperationSpec {
                backup_name: self.backup.name_any(),
                backup_uid: self.backup.uid().unwrap_or_default(),
                backup_item_action: action.to_owned(),
                resource_identifier: item.identifier(),
                operation_id: id,
                post_operation_items: Some(items.collect()).filter(|i: &Vec<_>| !i.is_empty()),
                ..BackupOperationSpec::default()
            },
            status: OperationStatus {
                phase: Some(OperationPhase::New),
                created: Some(now),
                ..OperationStatus::default()
            },
            ..BackupOperation::default()
        };
        let operations = self.operations.lock();
        let mut operations = operations.unwrap_or_else(PoisonError::into_inner);
        operations.push(operation);
    }

    /// What plugins go on with.
    pub(super) fn operations(&self) -> Vec<BackupOperation> {
        let operations = self.operations.lock();
        operations.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sees to it that an object that another one needs is in the backup too.
    async fn bring(&self, related: &Related, insisted: bool, frozen: Option<&Frozen>) -> Fine {
        let Related {
            group_resource,
            namespace,
            name,
        } = related;
        let Some(at) = self.discovery.position(group_resource) else {
            let about = About::object(group_resource, namespace, name);
            self.log.warning(
                "Additional item is of a kind that the cluster does not have",
                &about,
            );
            return true;
        };
        if !insisted && self.tracker.is_claimed(at, namespace, name) {
            return true;
        }
        let comes_later =
            self.will_be_listed(at, namespace) || self.waits_for_pods(self.resource(at));
        if !insisted && frozen.is_none() && comes_later {
            self.tracker.expect(at, namespace, name);
            return true;
        }
        self.fetch(at, namespace, name, insisted, frozen).await
    }

    pub(super) fn will_be_listed(&self, at: At, namespace: &str) -> bool {
        let resource = self.resource(at);
        let place = resource.namespaced.then_some(namespace);
        self.selection.collects(resource)
            && place.is_none_or(|namespace| self.selection.has_namespace(namespace))
            && self.selection.queries(resource, place) == [""]
    }

    /// Reads an object and takes it on.
    pub(super) async fn fetch(
        &self,
        at: At,
        namespace: &str,
        name: &str,
        insisted: bool,
        frozen: Option<&Frozen>,
    ) -> Fine {
        match self.read(at, namespace, name).await {
            Ok(Some(raw)) => self.object(at, raw, insisted, frozen).await,
            Ok(None) => {
                let about = self.place(at, namespace, name);
                let why = "Additional item was not found in Kubernetes API, can't back it up";
                self.log.warning(why, &about);
                true
            }
            Err(error) => {
                let about = self.place(at, namespace, name).because(error);
                self.log.error("Error getting additional item", &about);
                false
            }
        }
    }

    pub(super) async fn read(
        &self,
        at: At,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<u8>>, kube::Error> {
        let path = self.resource(at).object_path(namespace, name);
        let request = Request::get(path)
            .body(Vec::new())
            .expect("escaped paths are URIs");
        let mut tries = 0;
        loop {
            tries += 1;
            match self.client.request_text(request.clone()).await {
                Ok(text) => return Ok(Some(text.into_bytes())),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(kube::Error::Api(status)) if status.code < 500 => {
                    return Err(kube::Error::Api(status));
                }
                Err(error) if tries >= TRIES => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE * tries).await,
            }
        }
    }

    /// Objects that the spec wants first, in its order.
    async fn ordered(&self, at: At) {
        let plural = &self.resource(at).plural;
        let ordered = self.backup.spec.ordered_resources.as_ref();
        let Some(names) = ordered.and_then(|ordered| ordered.get(plural)) else {
            return;
        };
        let mut found = Vec::new();
        let names = names.split(',').map(str::trim);
        for item in names.filter(|item| !item.is_empty()) {
            let (namespace, name) = item.split_once('/').unwrap_or(("", item));
            match self.read(at, namespace, name).await {
                Ok(Some(raw)) if self.is_selected(at, namespace, &raw) => found.push(raw),
                Ok(_) => {
                    let why = format!("Cannot find resource '{item}'.");
                    self.log.warning(&why, &About::default());
                }
                Err(error) => {
                    let about = self.place(at, namespace, name).because(error);
                    self.log.error("Error getting ordered item", &about);
                }
            }
        }
        if plural == "pods" {
            // Ordered pods are one block: all are frozen before the first is taken.
            self.block(at, found).await;
        } else {
            for raw in found {
                self.object(at, raw, false, None).await;
            }
        }
    }

    /// Whether a list would have brought it.
    pub(super) fn is_selected(&self, at: At, namespace: &str, raw: &[u8]) -> bool {
        let labels = Facts::of(raw).map(|facts| facts.labels());
        let resource = self.resource(at);
        let place = resource.namespaced.then_some(namespace);
        self.selection
            .selects(resource, place, &labels.unwrap_or_default())
    }

    /// After the lists: what was expected of them and did not come, namespaces, definitions.
    pub(super) async fn rest(&self, live: &[LiveNamespace]) {
        loop {
            let missing = self.tracker.missing();
            if missing.is_empty() {
                break;
            }
            // Claims mostly wait for their snapshots.
            let (claims, others): (Vec<_>, Vec<_>) = missing
                .into_iter()
                .partition(|(at, ..)| is_claims(self.resource(*at)));
            for (items, parallel) in [(claims, PARALLEL_CLAIMS), (others, PARALLEL_ITEMS)] {
                stream::iter(items)
                    .for_each_concurrent(parallel, |(at, namespace, name)| async move {
                        self.fetch(at, &namespace, &name, false, None).await;
                    })
                    .await;
            }
        }
        self.namespaces(live).await;
        self.definitions().await;
    }

    async fn namespaces(&self, live: &[LiveNamespace]) {
        let Some(at) = self.discovery.position("namespaces") else {
            return;
        };
        if !self.selection.collects(self.resource(at)) {
            return;
        }
        let tracked = live.iter().filter(|ns| self.selection.tracks(ns));
        let mut wanted: BTreeSet<String> = tracked.map(|ns| ns.name.clone()).collect();
        let used = self.tracker.namespaces();
        wanted.extend(
            used.into_iter()
                .filter(|ns| self.selection.has_namespace(ns)),
        );
        stream::iter(wanted)
            .for_each_concurrent(PARALLEL_ITEMS, |namespace| async move {
                // One that came into being meanwhile is taken too. One that is not there at all is
                // none of ours: a cluster may keep objects of a namespace longer than itself.
                if live.iter().any(|ns| ns.name == namespace) {
                    self.fetch(at, "", &namespace, false, None).await;
                } else if let Ok(Some(raw)) = self.read(at, "", &namespace).await {
                    self.object(at, raw, false, None).await;
                }
            })
            .await;
    }

    /// Custom resources are of no use without their definitions.
    async fn definitions(&self) {
        let Some(at) = self.discovery.position(DEFINITIONS) else {
            return;
        };
        let definitions = self.resource(at);
        // A list brings them all, unless labels choose among them.
        if self.will_be_listed(at, "") || self.selection.bans(definitions) {
            return;
        }
        for resource in self.tracker.resources() {
            let resource = self.resource(resource);
            if !resource.group.contains('.') {
                continue;
            }
            let name = resource.group_resource();
            match self.read(at, "", &name).await {
                Ok(Some(raw)) => {
                    self.object(at, raw, false, None).await;
                }
                Ok(None) => {}
                Err(error) => {
                    let about = self.place(at, "", &name).because(error);
                    self.log
                        .error("Error getting the definition of a custom kind", &about);
                }
            }
        }
    }

    /// Ends the archive.
    pub(super) async fn finish(&self) -> Result<(), Closed> {
        self.sink.flush().await?;
        self.sink.close();
        Ok(())
    }
}

/// Says in an object what it is: in lists they do not.
pub(super) fn say_kind(resource: &Resource, object: &mut Value) {
    if let Value::Object(fields) = object {
        let api_version = || Value::String(resource.api_version());
        fields.entry("apiVersion").or_insert_with(api_version);
        let kind = || Value::String(resource.kind.clone());
        fields.entry("kind").or_insert_with(kind);
    }
}

/// Where an object stands in the archive.
pub(super) fn paths(
    resource: &Resource,
    api_version: &str,
    namespace: &str,
    name: &str,
) -> Vec<String> {
    let version = match api_version.rsplit('/').next() {
        Some(own) if !own.is_empty() => own,
        _ => &resource.version,
    };
    let kind = resource.group_resource();
    let place = if namespace.is_empty() {
        format!("cluster/{name}.json")
    } else {
        format!("namespaces/{namespace}/{name}.json")
    };
    if resource.preferred {
        vec![
            format!("resources/{kind}/{place}"),
            format!("resources/{kind}/{version}-preferredversion/{place}"),
        ]
    } else {
        vec![format!("resources/{kind}/{version}/{place}")]
    }
}
