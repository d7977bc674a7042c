//! The CSI snapshots of one backup: made as objects, and waited for until the driver has them.

mod group;
pub(in crate::controllers) mod moved;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bowline_api::{
    names::FEATURE_CSI,
    v1::{Backup, BackupStorageLocation},
    v2alpha1::DataUpload,
};
use bowline_engine::{
    backup::CsiSnapshots,
    csi::{self, Cut, RETAIN},
    log::{About, Level, Log},
    movement,
};
use bowline_vault::crash;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::Instant};
use tokio_util::task::TaskTracker;

use crate::{
    Context, Error, Result,
    csi::{
        classes, contents,
        handover::{self, Stays},
        object, patch, snapshots, value,
    },
    nodes, repositories,
};

/// Velero's words for a cluster whose nodes nobody looks after.
const NO_NODE: &str =
    "CSI PVC BIA cannot proceed: node-agent is not ready for snapshot data movement";
/// How long to wait when a backup does not say.
const LIMIT: Duration = Duration::from_secs(600);
/// A watch that failed is begun again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Why a repository cannot be used, if it cannot.
type Ensured = OnceCell<Result<(), String>>;

/// The CSI snapshots of one backup.
pub(super) struct Csi {
    pub(super) ctx: Arc<Context>,
    pub(super) backup: Arc<Backup>,
    location: BackupStorageLocation,
    /// Why the repositories of namespaces cannot be used, if they cannot; found out once.
    repositories: Mutex<HashMap<String, Arc<Ensured>>>,
    pub(super) log: Log,
    /// All classes of snapshots.
    classes: OnceCell<Vec<Value>>,
    /// Drivers by storage class; none for a class that is not there.
    drivers: Mutex<HashMap<String, Option<String>>>,
    /// Snapshots that are being made: what is asked for is waited for, or nobody would know of it.
    pub(super) making: TaskTracker,
}

impl Csi {
    /// None when the server does not have the feature.
    pub(super) fn new(
        ctx: &Arc<Context>,
        backup: &Backup,
        location: &BackupStorageLocation,
        log: &Log,
    ) -> Option<Arc<Self>> {
        ctx.settings.has_feature(FEATURE_CSI).then(|| {
            Arc::new(Self {
                ctx: Arc::clone(ctx),
                backup: Arc::new(backup.clone()),
                location: location.clone(),
                repositories: Mutex::default(),
                log: log.clone(),
                classes: OnceCell::new(),
                drivers: Mutex::default(),
                making: TaskTracker::new(),
            })
        })
    }

    /// Whether the data of snapshots is moved by this program.
    fn moves_data(&self) -> bool {
        handover::moves_data(&self.backup)
    }

    /// Until when snapshots are waited for.
    pub(super) fn until(&self) -> Instant {
        let said = self.backup.spec.csi_snapshot_timeout.as_ref();
        let nanos = said.and_then(|said| said.nanos().ok());
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        let limit = nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
        Instant::now() + limit.unwrap_or(LIMIT)
    }

    /// The driver of a claim: who provisions for its class, or, if that is gone, whose volume it has.
    async fn driver(&self, claim: &Value, volume: &Value) -> Result<String> {
        let class = claim["spec"]["storageClassName"].as_str();
        let class = class.unwrap_or_default();
        let known = {
            let drivers = self.drivers.lock();
            let drivers = drivers.unwrap_or_else(PoisonError::into_inner);
            drivers.get(class).cloned()
        };
        let provisioner = match known {
            Some(known) => known,
            None if class.is_empty() => None,
            None => {
                let all: Api<StorageClass> = Api::all(self.ctx.client.clone());
                let found = all.get_opt(class).await;
                let found = found.map_err(Error::api(format!("read StorageClass {class}")))?;
                let found = found.map(|class| class.provisioner);
                let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
                drivers.insert(class.to_owned(), found.clone());
                found
            }
        };
        let of_volume = || csi::driver(volume).unwrap_or_default().to_owned();
        Ok(provisioner.unwrap_or_else(of_volume))
    }

    async fn class(&self, claim: &Value, volume: &Value) -> Result<String, String> {
        let driver = self.driver(claim, volume).await.map_err(|e| e.chain())?;
        let listing = self.classes.get_or_try_init(|| async {
            let list = classes(&self.ctx.client).list(&ListParams::default()).await;
            let list = list.map_err(Error::api("list VolumeSnapshotClasses"))?;
            Ok::<_, Error>(list.items.iter().map(value).collect())
        });
        let all = listing.await.map_err(|error| error.chain())?;
        let about = about(claim);
        let remark = |why: String| self.log.write(Level::Info, &why, &about);
        let annotations = self.backup.annotations();
        let class = csi::class::choose(claim, annotations, &driver, all, remark);
        class.map(str::to_owned)
    }

    /// Makes a VolumeSnapshot. Once asked for it is made, whoever has given up meanwhile.
    async fn make(&self, wanted: Value) -> Result<Value, String> {
        let namespace = wanted["metadata"]["namespace"].as_str().unwrap_or_default();
        let api = snapshots(&self.ctx.client, namespace);
        let making = self.making.spawn(async move {
            crash::here("before VolumeSnapshot");
            let made = api.create(&PostParams::default(), &object(wanted)).await;
            crash::here("after VolumeSnapshot");
            made
        });
        let made = making.await.map_err(|panic| panic.to_string())?;
        made.map(|made| value(&made))
            .map_err(|error| Error::api("error creating volume snapshot")(error).chain())
    }

    /// Waits until the driver has a snapshot.
    pub(super) async fn wait(&self, snapshot: &Value, until: Instant) -> Result<Cut, String> {
        let (namespace, name) = place(snapshot);
        let api = snapshots(&self.ctx.client, namespace);
        let bound = |snapshot: &Value| csi::bound_content(snapshot).is_some();
        let snapshot = become_so(&api, name, until, bound).await?;
        let content = csi::bound_content(&snapshot).unwrap_or_default();
        let has_handle = |content: &Value| csi::handle(content).is_some();
        let api = contents(&self.ctx.client);
        let content = become_so(&api, content, until, has_handle).await?;
        Ok(Cut {
            snapshot,
            content,
            upload: None,
        })
    }

    /// Writes down what is needed later: whose content it is, and in the snapshot what the content is.
    pub(super) async fn mark(&self, cut: Cut) -> Result<Cut, String> {
        let gone = |what: &str| format!("{what} was deleted while it was backed up");
        let (namespace, name) = place(&cut.snapshot);
        let (_, content) = place(&cut.content);
        let mut marks = csi::marks(&self.backup, &self.ctx.namespace);
        if self.moves_data() && csi::group_handle(&cut.content).is_none() {
            // Its data is moved whatever becomes of its namespace.
            marks["spec"]["deletionPolicy"] = json!(RETAIN);
        }
        let api = contents(&self.ctx.client);
        let marked = patch(&api, content, &marks)
            .await
            .map_err(|error| error.chain())?;
        let content = marked.ok_or_else(|| gone(content))?;
        let annotations = json!({"metadata": {"annotations": csi::annotations(&content)}});
        let api = snapshots(&self.ctx.client, namespace);
        let marked = patch(&api, name, &annotations)
            .await
            .map_err(|error| error.chain())?;
        let snapshot = marked.ok_or_else(|| gone(name))?;
        Ok(Cut {
            snapshot,
            content,
            upload: None,
        })
    }

    /// Makes the DataUpload of a snapshot.
    async fn start_upload(&self, claim: &Value, cut: &Cut) -> Result<DataUpload, String> {
        if self.moves_data() {
            if !nodes::any(&self.ctx).await.map_err(|error| error.chain())? {
                return Err(format!("{NO_NODE}: no node process runs"));
            }
            let namespace = claim["metadata"]["namespace"].as_str().unwrap_or_default();
            self.repository(namespace).await?;
        }
        let wanted = movement::upload(claim, cut, &self.backup, &self.ctx.namespace);
        let api = self.ctx.api::<DataUpload>();
        let making = self.making.spawn(async move {
            crash::here("before DataUpload");
            let made = api.create(&PostParams::default(), &wanted).await;
            crash::here("after DataUpload");
            made
        });
        let made = making.await.map_err(|panic| panic.to_string())?;
        made.map_err(|error| Error::api("error creating DataUpload")(error).chain())
    }

    /// Sees to it that the repository of a namespace can be used.
    async fn repository(&self, namespace: &str) -> Result<(), String> {
        let cell = {
            let all = self.repositories.lock();
            let mut all = all.unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(namespace.to_owned()).or_default())
        };
        let found = cell.get_or_init(|| async {
            let ensured = repositories::ensure(&self.ctx, &self.location, namespace).await;
            ensured.unwrap_or_else(|error| Err(error.chain())).map(drop)
        });
        found.await.clone()
    }

    /// Removes what there is of this backup, since nobody needs it.
    pub(super) async fn discard(&self) -> Result<()> {
        self.making.close();
        self.making.wait().await;
        discard(&self.ctx, &self.backup).await
    }

    pub(super) async fn drop_one(&self, snapshot: &Value) {
        if let Err(error) = handover::discard(&self.ctx.client, snapshot).await {
            // Whoever ends the backup tries again.
            tracing::warn!(
                "VolumeSnapshot {} stays: {}",
                place(snapshot).1,
                error.chain()
            );
        }
    }
}

#[async_trait]
impl CsiSnapshots for Csi {
    async fn take(&self, claim: &Value, volume: &Value) -> Result<Cut, String> {
        let class = self.class(claim, volume).await?;
        let until = self.until();
        let wanted = csi::snapshot_of(claim, &class, &self.backup, &self.ctx.namespace);
        let snapshot = self.make(wanted).await?;
        let cut = match self.wait(&snapshot, until).await {
            Ok(cut) => self.mark(cut).await,
            Err(why) => Err(why),
        };
        if cut.is_err() {
            self.drop_one(&snapshot).await;
        }
        cut
    }

    async fn upload(&self, claim: &Value, cut: &Cut) -> Result<DataUpload, String> {
        let uploaded = self.start_upload(claim, cut).await;
        // A member of a group goes with it.
        if uploaded.is_err() && csi::group_handle(&cut.content).is_none() {
            self.drop_one(&cut.snapshot).await;
        }
        uploaded
    }

    async fn take_group(
        &self,
        group: &str,
        members: &[(Value, Value)],
    ) -> Result<BTreeMap<String, Cut>, String> {
        self.group(group, members).await
    }
}

/// Removes the snapshots of a backup, and what moves their data.
pub(super) async fn discard(ctx: &Context, backup: &Backup) -> Result<()> {
    let uid = backup.uid().unwrap_or_default();
    moved::discard(ctx, &uid, |_| true).await?;
    for why in handover::clear(&ctx.client, &uid, Stays::None).await? {
        tracing::warn!(backup = %backup.name_any(), "{why}");
    }
    Ok(())
}

/// Watches an object until something is so. The error says what it waited for last.
pub(super) async fn become_so(
    api: &Api<DynamicObject>,
    name: &str,
    until: Instant,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value, String> {
    let latest = Mutex::new(None);
    let gone = format!("{name} was deleted while it was waited for");
    loop {
        let condition = |object: Option<&DynamicObject>| {
            let Some(object) = object.map(value) else {
                return true;
            };
            let is_so = is_so(&object);
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            *latest = Some(object);
            is_so
        };
        let waiting = await_condition(api.clone(), name, condition);
        match tokio::time::timeout_at(until, waiting).await {
            Ok(Ok(Some(object))) => return Ok(value(&object)),
            Ok(Ok(None)) => return Err(gone),
            Ok(Err(error)) => {
                tracing::debug!(name, "watch: {error}");
                tokio::time::sleep(AGAIN).await;
            }
            Err(_) => {
                let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                let wrong = latest.as_ref().and_then(csi::error);
                let why = wrong.map_or_else(String::new, |why| format!(": {why}"));
                return Err(format!(
                    "timed out awaiting reconciliation of volumesnapshot: {name}{why}"
                ));
            }
        }
        if Instant::now() >= until {
            return Err(format!(
                "timed out awaiting reconciliation of volumesnapshot: {name}"
            ));
        }
    }
}

pub(super) fn place(object: &Value) -> (&str, &str) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn about(claim: &Value) -> About {
    let (namespace, name) = place(claim);
    About::object("persistentvolumeclaims", namespace, name)
}
