//! CSI snapshots of claims, taken while the backup runs: which claims, and when. Whoever takes them
//! stands behind a trait.
//!
//! As with native snapshots, claims of pods with hooks are taken while these are frozen, all of a block
//! at the same time, and all others when the pods are done.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bowline_api::v2alpha1::DataUpload;
use futures::{StreamExt, stream};
use kube::ResourceExt;
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};

use super::{
    item::{At, ENDED, Run},
    track::key,
};
use crate::{
    action::{Related, claims, text},
    csi::{self, Cut},
    discovery::Resource,
    list::{self, Query},
    log::About,
    object::Facts,
};

/// Claims that are worked on at the same time.
pub(super) const PARALLEL_CLAIMS: usize = 64;

/// Why a volume of another kind has no CSI snapshot, in Velero's words.
const NO_CSI: &str = "skipped b/c it's not a CSI volume";

/// Takes CSI snapshots of claims.
#[async_trait]
pub trait CsiSnapshots: Send + Sync {
    /// Takes one of a claim that is bound to a volume, and waits until the driver has it.
    ///
    /// # Errors
    /// Why there is none, though there should be. Nothing of it stays in the cluster then.
    async fn take(&self, claim: &Value, volume: &Value) -> Result<Cut, String>;

    /// Has the data of a claim's snapshot moved into the bucket.
    ///
    /// # Errors
    /// Why nobody moves it. The snapshot is gone then, too.
    async fn upload(&self, claim: &Value, cut: &Cut) -> Result<DataUpload, String>;

    /// Takes snapshots of several claims of a namespace at one moment: those whose label says that they
    /// are of this group. With the claims come their volumes. By the names of the claims.
    ///
    /// # Errors
    /// Why there are none.
    async fn take_group(
        &self,
        group: &str,
        members: &[(Value, Value)],
    ) -> Result<BTreeMap<String, Cut>, String>;
}

/// What belongs into a backup with a claim.
pub(super) enum With {
    /// Its snapshot.
    Snapshot(Related),
    /// What moves the data of its snapshot. It goes on when the claim is stored.
    Upload(Box<DataUpload>),
}

/// The CSI snapshots of a run.
pub(super) struct Csi {
    taker: Arc<dyn CsiSnapshots>,
    /// What became of each claim: each is decided once.
    cuts: Memo<Option<Cut>>,
    /// Groups that were taken: the cuts of their members, by claim.
    groups: Memo<BTreeMap<String, Cut>>,
    room: Semaphore,
}

impl Csi {
    pub(super) fn new(taker: Arc<dyn CsiSnapshots>) -> Self {
        Self {
            taker,
            cuts: Memo::default(),
            groups: Memo::default(),
            room: Semaphore::new(PARALLEL_CLAIMS),
        }
    }
}

/// Things that are done once, by name.
struct Memo<T>(Mutex<HashMap<String, Once<T>>>);

type Once<T> = Arc<OnceCell<Result<T, String>>>;

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Memo<T> {
    fn of(&self, name: &str) -> Once<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

pub(super) fn is_claims(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "persistentvolumeclaims"
}

impl Run {
    /// Takes a claim's snapshot, if one is wanted, and says so in the claim. Returns what belongs into
    /// the backup with it.
    pub(super) async fn cut(&self, claim: &mut Value) -> Result<Option<With>, String> {
        let Some(cut) = self.cut_of(claim).await? else {
            return Ok(None);
        };
        let backup = self.backup.name_any();
        if let Some(upload) = &cut.upload {
            csi::keep_moved_claim(claim, &cut, upload, &backup);
            return Ok(Some(With::Upload(upload.clone())));
        }
        csi::keep_claim(claim, &cut, &backup);
        let namespace = text(claim, "/metadata/namespace");
        let snapshot = Related::new(csi::SNAPSHOTS, namespace, cut.name());
        Ok(Some(With::Snapshot(snapshot)))
    }

    /// A claim that is not stored has no use for the snapshot that it may have.
    pub(super) fn lose_cut(&self, at: At, facts: &Facts<'_>, why: &str) {
        if is_claims(self.resource(at)) {
            let claim = key(&facts.namespace(), &facts.name());
            self.volumes.ledger().csi_lost(&claim, why);
        }
    }

    /// Takes the claims of frozen pods, all at the same time.
    pub(super) async fn cut_claims<'a>(&self, pods: impl Iterator<Item = &'a Value>) {
        let kind = self.position("persistentvolumeclaims");
        let (Some(at), Some(_)) = (kind, &self.volumes.csi) else {
            return;
        };
        let used: BTreeSet<(&str, &str)> = pods
            .flat_map(|pod| {
                let namespace = text(pod, "/metadata/namespace");
                claims(pod).map(move |claim| (namespace, claim))
            })
            .collect();
        stream::iter(used)
            .for_each_concurrent(None, |(namespace, name)| async move {
                let Ok(Some(raw)) = self.read(at, namespace, name).await else {
                    return;
                };
                if Facts::of(&raw).is_ok_and(|facts| self.is_free(at, &facts))
                    && let Ok(claim) = serde_json::from_slice(&raw)
                {
                    // What goes wrong is said when the claim is stored.
                    let _ = self.cut_of(&claim).await;
                }
            })
            .await;
    }

    /// A claim's snapshot, taken if it is not yet; none if none is wanted.
    async fn cut_of(&self, claim: &Value) -> Result<Option<Cut>, String> {
        let Some(csi) = &self.volumes.csi else {
            return Ok(None);
        };
        let name = claim_key(claim);
        let cell = csi.cuts.of(&name);
        let cut = cell.get_or_init(|| async {
            let cut = self.take_cut(csi, claim).await;
            let mut ledger = self.volumes.ledger();
            match &cut {
                Ok(Some(cut)) => ledger.csi(&name, cut.clone()),
                Ok(None) => {}
                Err(why) => ledger.csi_failed(&name, why),
            }
            cut
        });
        cut.await.clone()
    }

    async fn take_cut(&self, csi: &Csi, claim: &Value) -> Result<Option<Cut>, String> {
        let Some(volume) = self.csi_volume(claim).await? else {
            return Ok(None);
        };
        let mut cut = match csi::group::of(claim, &self.backup) {
            Some(group) => self.group_cut(csi, claim, group).await?,
            None => {
                let _room = csi.room.acquire().await;
                if self.over.is_cancelled() {
                    return Err(ENDED.to_owned());
                }
                tokio::select! {
                    cut = csi.taker.take(claim, &volume) => cut?,
                    () = self.over.cancelled() => return Err(ENDED.to_owned()),
                }
            }
        };
        if self.volumes.moves_data {
            let upload = tokio::select! {
                upload = csi.taker.upload(claim, &cut) => upload?,
                () = self.over.cancelled() => return Err(ENDED.to_owned()),
            };
            cut.upload = Some(Box::new(upload));
        }
        Ok(Some(cut))
    }

    /// The snapshot of a claim whose group is taken at one moment: the first that comes takes all.
    async fn group_cut(&self, csi: &Csi, claim: &Value, group: &str) -> Result<Cut, String> {
        let namespace = text(claim, "/metadata/namespace");
        let name = text(claim, "/metadata/name");
        let cell = csi.groups.of(&key(namespace, group));
        let cuts = cell.get_or_init(|| async {
            let members = self.members(namespace, group).await?;
            let _room = csi.room.acquire().await;
            tokio::select! {
                cuts = csi.taker.take_group(group, &members) => cuts,
                () = self.over.cancelled() => Err(ENDED.to_owned()),
            }
        });
        let cuts = cuts.await.as_ref();
        let cuts = cuts.map_err(|why| format!("volume group snapshot of {group}: {why}"))?;
        let cut = cuts.get(name).cloned();
        cut.ok_or_else(|| format!("the volume group snapshot of {group} has no snapshot of it"))
    }

    /// Claims of a group of which snapshots are wanted, with their volumes.
    async fn members(&self, namespace: &str, group: &str) -> Result<Vec<(Value, Value)>, String> {
        let mut members = Vec::new();
        for claim in self.group_claims(namespace, group).await? {
            match self.csi_volume(&claim).await? {
                Some(volume) => members.push((claim, volume)),
                None => {
                    let name = text(&claim, "/metadata/name");
                    let about = About::object("persistentvolumeclaims", namespace, name);
                    let why = format!(
                        "It is left out of the volume group snapshot of {group}, though its label says otherwise"
                    );
                    self.log.warning(&why, &about);
                }
            }
        }
        Ok(members)
    }

    async fn group_claims(&self, namespace: &str, group: &str) -> Result<Vec<Value>, String> {
        let Some(at) = self.position("persistentvolumeclaims") else {
            return Ok(Vec::new());
        };
        let key = self.backup.spec.volume_group_snapshot_label_key.as_deref();
        let query = Query {
            path: self.resource(at).path(Some(namespace)),
            selector: format!("{}={group}", key.unwrap_or_default()),
            ..Query::default()
        };
        let mut found = Vec::new();
        let listed = list::each(&self.client, &query, |raw| {
            found.extend(serde_json::from_slice::<Value>(raw));
        });
        let listed = listed.await;
        listed.map_err(|error| format!("list claims: {error}"))?;
        Ok(found)
    }

    /// Other claims that are taken at the same moment as these, so that pods that use them are frozen
    /// together.
    pub(super) async fn fellows(&self, namespace: &str, claims: &BTreeSet<&str>) -> Vec<String> {
        let mut fellows = Vec::new();
        let key = self.backup.spec.volume_group_snapshot_label_key.as_ref();
        if self.volumes.csi.is_none() || key.is_none_or(String::is_empty) {
            return fellows;
        }
        for claim in claims {
            let found = self.find("persistentvolumeclaims", namespace, claim).await;
            let Ok(found) = found else { continue };
            if let Some(group) = csi::group::of(&found, &self.backup) {
                // What goes wrong is said when the claim is taken.
                let all = self.group_claims(namespace, group).await;
                let all = all.unwrap_or_default().into_iter();
                fellows.extend(all.map(|claim| text(&claim, "/metadata/name").to_owned()));
            }
        }
        fellows
    }

    /// The volume of a claim of which a CSI snapshot is wanted.
    async fn csi_volume(&self, claim: &Value) -> Result<Option<Value>, String> {
        let name = claim_key(claim);
        let volume = text(claim, "/spec/volumeName");
        self.volumes.ledger().claim(claim);
        if volume.is_empty() || text(claim, "/status/phase") != "Bound" {
            return Ok(None);
        }
        let found = self.find("persistentvolumes", "", volume).await?;
        let mut ledger = self.volumes.ledger();
        ledger.known_volume(&found);
        if csi::driver(&found).is_none() {
            ledger.csi_left(&name, NO_CSI);
            return Ok(None);
        }
        let (policies, with_snapshots) = (self.volumes.policies(), self.volumes.with_snapshots);
        let is_wanted = ledger.wants_snapshot(volume, Some(&name), policies, with_snapshots);
        Ok(is_wanted.then_some(found))
    }
}

fn claim_key(claim: &Value) -> String {
    key(
        text(claim, "/metadata/namespace"),
        text(claim, "/metadata/name"),
    )
}
