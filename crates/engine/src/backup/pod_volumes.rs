//! Volumes of pods, copied file by file while the backup runs: which ones, begun when their pod is
//! in the archive, each claim once. Whoever copies them stands behind a trait.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bowline_api::{
    files::BackupVolumeInfo,
    names::annotation,
    v1::{DataPathPhase, PodVolumeBackup},
};
use serde_json::Value;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::{
    Job,
    choose::{self, Choice, Known, Rules, Verdict},
    csi::{Csi, is_claims},
    item::Run,
    later::Later,
    snapshots::{Snapshots, is_volumes},
    track::key,
    volume_info::{Ledger, Told},
};
use crate::{action::text, discovery::Resource, log::About, object::Facts, policy::Policies};

/// Pods of one node that are frozen at the same time while their volumes are copied: enough to keep
/// the node busy, few enough that nobody is frozen only to wait.
const FROZEN: usize = 4;
/// Pods without hooks whose copies are begun at the same time.
const BEGUN: usize = 16;
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

/// Copies volumes of pods, file by file.
#[async_trait]
pub trait PodVolumes: Send + Sync {
    /// Begins to copy volumes of a pod. For each, in the same order: the name of its copy, or why
    /// there is none. A copy that was begun before, for this backup, is not begun again.
    async fn begin(&self, pod: &Value, volumes: &[PodVolume]) -> Vec<Result<String, String>>;

    /// Waits until these copies are over, well or not.
    async fn wait(&self, copies: &[String]);

    /// Waits until all copies of the backup are over, and returns them.
    async fn finish(&self) -> Vec<PodVolumeBackup>;
}

/// A volume to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolume {
    /// Its name in the pod.
    pub name: String,
    /// Its claim; none for a volume that the pod alone has.
    pub claim: Option<Claim>,
}

/// A claim that a pod mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
}

/// What a run knows of volumes.
pub(super) struct Volumes {
    copier: Option<Arc<dyn PodVolumes>>,
    policies: Option<Arc<Policies>>,
    by_default: bool,
    pub(super) with_snapshots: bool,
    /// Whether the data of snapshots is to be moved.
    pub(super) moves_data: bool,
    pub(super) snapshots: Option<Arc<dyn Snapshots>>,
    pub(super) csi: Option<Csi>,
    ledger: Mutex<Ledger>,
    /// The copy of each claim. Locked while it is decided who copies: of pods that share one, the
    /// next is asked when the first could not.
    taken: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<String>>>>>,
    /// Room for pods whose copies are begun.
    begun: Semaphore,
    /// Room for frozen pods, by node.
    nodes: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Volumes {
    pub(super) fn new(job: &Job) -> Self {
        let spec = &job.backup.spec;
        Self {
            copier: job.pod_volumes.clone(),
            policies: job.policies.clone(),
            by_default: spec.default_volumes_to_fs_backup == Some(true),
            with_snapshots: spec.snapshot_volumes != Some(false),
            moves_data: spec.snapshot_move_data == Some(true),
            snapshots: job.snapshots.clone(),
            csi: job.csi.clone().map(Csi::new),
            ledger: Mutex::default(),
            taken: Mutex::default(),
            begun: Semaphore::new(BEGUN),
            nodes: Mutex::default(),
        }
    }

    /// Whether a pod may have volumes to copy; false is certain.
    pub(super) fn concern(&self, resource: &Resource, pod: &Facts<'_>) -> bool {
        is_pods(resource)
            && self.copier.is_some()
            && (pod.annotations_mention(annotation::BACKUP_VOLUMES)
                || (self.by_default || self.policies().is_some()) && pod.mentions("\"volumes\""))
    }

    /// The policies, if they are about volumes.
    pub(super) fn policies(&self) -> Option<&Policies> {
        let policies = self.policies.as_deref();
        policies.filter(|policies| !policies.volume_policies.is_empty())
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, claim: &str) -> Arc<tokio::sync::Mutex<Option<String>>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(taken.entry(claim.to_owned()).or_default())
    }

    fn node(&self, node: &str) -> Arc<Semaphore> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = nodes.entry(node.to_owned());
        Arc::clone(room.or_insert_with(|| Arc::new(Semaphore::new(FROZEN))))
    }
}

/// A pod with what becomes of its volumes.
pub(super) struct Decided {
    pub(super) pod: Value,
    pub(super) choices: Vec<Choice>,
}

impl Decided {
    pub(super) fn has_copies(&self) -> bool {
        let mut choices = self.choices.iter();
        choices.any(|choice| choice.verdict == Verdict::Copy)
    }
}

pub(super) fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

impl Run {
    /// An object is in the archive: volumes and claims are noted.
    pub(super) fn note(&self, resource: &Resource, raw: &[u8]) {
        if !resource.group.is_empty() {
            return;
        }
        let (is_volume, is_claim) = (is_volumes(resource), is_claims(resource));
        if !is_volume && !is_claim {
            return;
        }
        // What is in the archive is JSON.
        let Ok(object) = serde_json::from_slice(raw) else {
            return;
        };
        let mut ledger = self.volumes.ledger();
        if is_volume {
            ledger.volume(&object);
        } else {
            ledger.stored_claim(&object);
        }
    }

    /// A pod is in the archive, and no hooks are: its volumes are copied while the rest goes on.
    pub(super) async fn pod_stored(&self, raw: &[u8]) {
        let Ok(pod) = serde_json::from_slice(raw) else {
            return;
        };
        let decided = self.decide(pod).await;
        if decided.has_copies() {
            self.later(Later::Pod(Box::new(decided)));
        } else {
            self.tell(&decided);
        }
    }

    /// Decides what becomes of a pod's volumes; nothing happens yet.
    pub(super) async fn decide(&self, pod: Value) -> Decided {
        let choices = if self.volumes.copier.is_some() {
            let rules = self.rules();
            let known = self.known(&pod, &choose::needed(&pod, &rules)).await;
            choose::select(&pod, &known, &rules)
        } else {
            Vec::new()
        };
        // Snapshots of this pod's volumes may come before its copies.
        let namespace = text(&pod, "/metadata/namespace");
        for claim in choices
            .iter()
            .filter(|c| c.by_pod)
            .filter_map(|c| c.claim.as_ref())
        {
            self.volumes.ledger().by_pod(&key(namespace, &claim.name));
        }
        Decided { pod, choices }
    }

    fn rules(&self) -> Rules<'_> {
        let claims = self.position(CLAIMS).map(|at| self.resource(at));
        Rules {
            policies: self.volumes.policies(),
            by_default: self.volumes.by_default,
            with_claims: claims.is_some_and(|claims| self.collects(claims)),
        }
    }

    /// Reads claims of a pod, and the volumes they are bound to.
    async fn known(&self, pod: &Value, claims: &[&str]) -> Known {
        let mut known = Known::default();
        let namespace = text(pod, "/metadata/namespace");
        for claim in BTreeSet::from_iter(claims) {
            let found = self.find(CLAIMS, namespace, claim).await;
            if let Ok(object) = &found {
                let volume = text(object, "/spec/volumeName");
                if !volume.is_empty() {
                    let found = self.find(VOLUMES, "", volume).await;
                    known.volumes.insert(volume.to_owned(), found);
                }
            }
            known.claims.insert((*claim).to_owned(), found);
        }
        known
    }

    pub(super) async fn find(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, String> {
        let not_found = || format!("{kind} {name:?} not found");
        let at = self.position(kind).ok_or_else(not_found)?;
        let raw = self.read(at, namespace, name).await;
        let raw = raw.map_err(|error| error.to_string())?;
        serde_json::from_slice(&raw.ok_or_else(not_found)?).map_err(|error| error.to_string())
    }

    /// Says what becomes of the volumes that are not copied.
    fn tell(&self, decided: &Decided) {
        let Decided { pod, choices } = decided;
        let (namespace, name) = place(pod);
        let about = About::object("pods", namespace, name);
        let is_done = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let rules = self.rules();
        if !rules.by_default && self.volumes.copier.is_some() {
            for stranger in choose::strangers(pod) {
                let why =
                    format!("No volume named {stranger} found in pod {namespace}/{name}, skipping");
                self.log.warning(&why, &about);
            }
        }
        for choice in choices {
            let claim = choice.claim.as_ref();
            let claim = claim.map(|claim| key(namespace, &claim.name));
            if let Some(claim) = &claim {
                let mut ledger = self.volumes.ledger();
                match &choice.verdict {
                    Verdict::Copy => {}
                    Verdict::Out => ledger.out(claim, name),
                    Verdict::Skip(why) => ledger.left(claim, why),
                    Verdict::Refuse(why) => ledger.left(claim, &choose::problem(pod, why)),
                }
            }
            let volume = &choice.volume;
            match &choice.verdict {
                Verdict::Copy | Verdict::Out => {}
                // Nobody expects data of a job that is over.
                Verdict::Skip(why) if is_done => {
                    let what = format!("Skip pod volume {volume}");
                    self.log.skipped(&what, &about.clone().because(why));
                }
                Verdict::Skip(why) => {
                    let what = format!("Skip pod volume {volume}");
                    self.log.warning(&what, &about.clone().because(why));
                }
                Verdict::Refuse(why) => {
                    let what = format!("Error backing up pod volume {volume}");
                    self.log.error(&what, &about.clone().because(why));
                }
            }
        }
    }

    /// Begins to copy the volumes of a pod that nobody waits for.
    pub(super) async fn begin_beside(&self, decided: &Decided) {
        let _room = self.volumes.begun.acquire().await;
        self.begin_copies(decided).await;
    }

    /// Begins to copy a pod's volumes, and says what becomes of the others. Returns the copies, also
    /// those of claims that another pod brought.
    pub(super) async fn begin_copies(&self, decided: &Decided) -> Vec<String> {
        self.tell(decided);
        let Decided { pod, choices } = decided;
        let Some(copier) = self
            .volumes
            .copier
            .as_ref()
            .filter(|_| decided.has_copies())
        else {
            return Vec::new();
        };
        let (namespace, name) = place(pod);
        let about = About::object("pods", namespace, name);
        let mut taken = self.take(namespace, choices).await;
        let mut copies = Vec::new();
        let mut volumes: Vec<PodVolume> = Vec::new();
        for choice in choices.iter().filter(|c| c.verdict == Verdict::Copy) {
            let copy = choice.claim.as_ref().map(|claim| &*taken[&claim.name]);
            let is_twice = volumes
                .iter()
                .any(|volume| volume.claim.is_some() && volume.claim == choice.claim);
            if let Some(Some(copy)) = copy {
                copies.push(copy.clone());
            }
            if is_twice || matches!(copy, Some(Some(_))) {
                let why = format!(
                    "Pod volume {} uses a persistent volume claim which has already been backed up \
                     from another pod, skipping.",
                    choice.volume
                );
                self.log.write(crate::log::Level::Info, &why, &about);
                continue;
            }
            volumes.push(PodVolume {
                name: choice.volume.clone(),
                claim: choice.claim.clone(),
            });
        }
        if volumes.is_empty() {
            return copies;
        }
        let begun = copier.begin(pod, &volumes).await;
        let mut refused: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (volume, begun) in volumes.iter().zip(begun) {
            let claim = volume.claim.as_ref();
            let claim_key = claim.map(|claim| key(namespace, &claim.name));
            match begun {
                Ok(copy) => {
                    if let Some(slot) = claim.and_then(|claim| taken.get_mut(&claim.name)) {
                        **slot = Some(copy.clone());
                    }
                    if let Some(claim) = claim_key {
                        self.volumes.ledger().copied(&claim);
                    }
                    copies.push(copy);
                }
                Err(why) => {
                    if let Some(claim) = claim_key {
                        let why = choose::problem(pod, &why);
                        self.volumes.ledger().left(&claim, &why);
                    }
                    refused.entry(why).or_default().push(&volume.name);
                }
            }
        }
        for (why, volumes) in refused {
            let what = format!("Error backing up pod volumes {}", volumes.join(", "));
            self.log.error(&what, &about.clone().because(why));
        }
        copies
    }

    /// Takes the claims of volumes to copy, always in the order of their names.
    async fn take(
        &self,
        namespace: &str,
        choices: &[Choice],
    ) -> BTreeMap<String, OwnedMutexGuard<Option<String>>> {
        let claims: BTreeSet<&String> = choices
            .iter()
            .filter(|choice| choice.verdict == Verdict::Copy)
            .filter_map(|choice| Some(&choice.claim.as_ref()?.name))
            .collect();
        let mut taken = BTreeMap::new();
        for claim in claims {
            let slot = self.volumes.claim(&key(namespace, claim));
            taken.insert(claim.clone(), slot.lock_owned().await);
        }
        taken
    }

    /// Waits until copies are over.
    pub(super) async fn wait_for(&self, copies: &[String]) {
        if let Some(copier) = self.volumes.copier.as_ref().filter(|_| !copies.is_empty()) {
            copier.wait(copies).await;
        }
    }

    /// Room for frozen pods on these nodes, always in the order of their names.
    pub(super) async fn room(&self, nodes: BTreeSet<&str>) -> Vec<OwnedSemaphorePermit> {
        let mut room = Vec::new();
        for node in nodes {
            let permit = self.volumes.node(node).acquire_owned().await;
            room.extend(permit);
        }
        room
    }

    /// Waits for all copies. Those that did not work are errors.
    pub(super) async fn finish_copies(&self) -> (Vec<PodVolumeBackup>, Vec<BackupVolumeInfo>) {
        let copies = match &self.volumes.copier {
            Some(copier) => copier.finish().await,
            None => Vec::new(),
        };
        for copy in &copies {
            if let Some((what, about)) = failure(copy) {
                self.log.error(&what, &about);
            }
        }
        let volumes = &self.volumes;
        let info = volumes.ledger().info(&Told {
            snapshots: &self.records(),
            copies: &copies,
            operations: &self.operations(),
            policies: volumes.policies(),
            with_snapshots: volumes.with_snapshots,
            with_csi: volumes.csi.is_some(),
        });
        (copies, info)
    }
}

fn place(pod: &Value) -> (&str, &str) {
    (
        text(pod, "/metadata/namespace"),
        text(pod, "/metadata/name"),
    )
}

/// What is to be said of a copy that did not work.
fn failure(copy: &PodVolumeBackup) -> Option<(String, About)> {
    let status = copy.status.as_ref();
    let word = match status.and_then(|status| status.phase.as_ref())? {
        DataPathPhase::Failed => "failed",
        DataPathPhase::Canceled => "canceled",
        _ => return None,
    };
    let why = status.and_then(|status| status.message.as_deref());
    let why = why
        .filter(|why| !why.is_empty())
        .unwrap_or("no reason was given");
    let pod = &copy.spec.pod;
    let about = About::object(
        "pods",
        pod.namespace.as_deref().unwrap_or_default(),
        pod.name.as_deref().unwrap_or_default(),
    );
    let volume = format!("volume {}", copy.spec.volume);
    let what = format!("pod volume backup {word}: {why}");
    Some((what, about.because(volume)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_did_not_work_are_told_in_velero_s_words() {
        let mut copy = PodVolumeBackup::default();
        copy.spec.volume = "v".to_owned();
        copy.spec.pod.namespace = Some("shop".to_owned());
        copy.spec.pod.name = Some("web".to_owned());
        let about = About::object("pods", "shop", "web").because("volume v");
        for (phase, message, expected) in [
            (DataPathPhase::Completed, Some("empty"), None),
            (
                DataPathPhase::Failed,
                Some("no room"),
                Some("pod volume backup failed: no room"),
            ),
            (
                DataPathPhase::Canceled,
                None,
                Some("pod volume backup canceled: no reason was given"),
            ),
        ] {
            copy.status_mut().phase = Some(phase);
            copy.status_mut().message = message.map(str::to_owned);
            let expected = expected.map(|text| (text.to_owned(), about.clone()));
            assert_eq!(failure(&copy), expected);
        }
        assert_eq!(failure(&PodVolumeBackup::default()), None);
    }
}
