//! Volumes of pods that were copied file by file: which snapshot belongs to which volume, and the
//! requests to fill them, which are made as soon as their pod is there.
//!
//! A request's name follows from the restore, the pod and the volume, so a restore that is made again
//! finds the requests of the first time. Who fills the volumes, and who waits for that, is not known
//! here.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    sync::{Arc, MutexGuard, PoisonError},
};

use bowline_api::{
    StringMap, VeleroResource,
    names::{annotation, label, label_value, uploader_setting},
    v1::{
        DataPathPhase, PodVolumeBackup, PodVolumeRestore, PodVolumeRestoreSpec, Restore,
        UploaderConfigForRestore, UploaderType,
    },
};
use k8s_openapi::{
    api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    calls::Write,
    dry::Filled,
    item::{Ready, Run},
    message,
    notes::Unfilled,
    track::Key,
};
use crate::{
    action::text,
    log::{About, Level},
};

/// How much of a restore's name goes into those of its requests, as in generated names.
const BASE: usize = 52;
/// Bytes of the digest that tells requests apart.
const TOLD_APART: usize = 5;

/// How the volumes of pods come back.
#[derive(Debug, Clone, Default)]
pub struct PodVolumes {
    /// What the backup has of them.
    pub copies: Arc<Copies>,
    /// The location of the backup, by name.
    pub location: String,
    /// What comes before the namespace in the name of a repository, as restic spells it; empty if it
    /// has none.
    pub repositories: String,
}

impl PodVolumes {
    fn repository(&self, namespace: &str) -> String {
        match self.repositories.trim_end_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/{namespace}"),
        }
    }
}

/// A volume of a pod, and the snapshot that it is filled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolume {
    /// The volume's name in the pod.
    pub volume: String,
    /// The claim behind it.
    pub claim: Option<String>,
    /// The snapshot in the repository.
    pub snapshot: String,
    /// Its bytes, if the backup says.
    pub size: Option<i64>,
    /// The format of the repository.
    pub uploader: UploaderType,
}

impl PodVolume {
    /// Why it cannot be filled. Its pod waits all the same: better that it does not start than that
    /// it starts without its data.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let Self {
            snapshot, uploader, ..
        } = self;
        match uploader {
            UploaderType::Restic | UploaderType::Unset => None,
            UploaderType::Kopia => Some(format!(
                "snapshot {snapshot} is in a repository of kopia's format, which this version does not read"
            )),
            UploaderType::Other(other) => Some(format!(
                "snapshot {snapshot} is in a repository of an unknown format, {other:?}"
            )),
        }
    }
}

/// A request to fill a volume, as it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Filling {
    /// The request.
    pub request: PodVolumeRestore,
    /// The claim behind the volume.
    pub claim: Option<String>,
}

/// What a backup has of the volumes of pods.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// By pod (`namespace/name`) and volume.
    pods: HashMap<String, BTreeMap<String, Copied>>,
    /// Claims with a copy, `namespace/name`.
    claims: HashSet<String>,
}

#[derive(Debug, Clone)]
struct Copied {
    /// None if there is none.
    snapshot: Option<String>,
    size: Option<i64>,
    uploader: UploaderType,
    /// Why it has none, unless the volume was empty.
    lost: Option<String>,
}

impl Copied {
    fn of(backup: &PodVolumeBackup) -> Self {
        let status = backup.status.clone().unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let snapshot = status.snapshot_id.filter(|id| !id.is_empty());
        let is_lost = snapshot.is_none() && phase != DataPathPhase::Completed;
        Self {
            snapshot,
            size: status.progress.and_then(|progress| progress.total_bytes),
            uploader: match backup.spec.uploader_type.clone() {
                None | Some(UploaderType::Unset) => UploaderType::Restic,
                Some(uploader) => uploader,
            },
            lost: is_lost.then(|| {
                let why = status.message.unwrap_or_default();
                let name = backup.name_any();
                let phase = Some(phase.as_str()).filter(|phase| !phase.is_empty());
                let said = format!("PodVolumeBackup {name} is {}", phase.unwrap_or("New"));
                match why.as_str() {
                    "" => said,
                    why => format!("{said}: {why}"),
                }
            }),
        }
    }
}

impl Copies {
    /// Reads what a backup says of its pod volumes.
    #[must_use]
    pub fn new(backups: &[PodVolumeBackup]) -> Self {
        let mut copies = Self::default();
        for backup in backups {
            let pod = &backup.spec.pod;
            let namespace = pod.namespace.as_deref().unwrap_or_default();
            let copied = Copied::of(backup);
            let claim = backup.annotations().get(annotation::PVC_NAME);
            if let Some(claim) = claim.filter(|_| copied.snapshot.is_some()) {
                copies.claims.insert(key(namespace, claim));
            }
            let of_pod = copies
                .pods
                .entry(key(namespace, pod.name.as_deref().unwrap_or_default()))
                .or_default();
            of_pod.insert(backup.spec.volume.clone(), copied);
        }
        copies
    }

    /// The volumes of a pod that are to be filled, by name; the namespace is that of the backup. Pods
    /// of very old backups name their snapshots themselves.
    #[must_use]
    pub fn of(&self, pod: &Value, namespace: &str) -> Vec<PodVolume> {
        let known = self.pods.get(&key(namespace, text(pod, "/metadata/name")));
        let snapshots = known.into_iter().flatten().filter_map(|(volume, copied)| {
            let snapshot = copied.snapshot.clone()?;
            let source = source(pod, volume).filter(|source| can_be_filled(source))?;
            Some(PodVolume {
                claim: claim(source),
                volume: volume.clone(),
                snapshot,
                size: copied.size,
                uploader: copied.uploader.clone(),
            })
        });
        let volumes: Vec<PodVolume> = snapshots.collect();
        match volumes.is_empty() {
            true => in_annotations(pod).collect(),
            false => volumes,
        }
    }

    /// Volumes of a pod that have no snapshot though they should, and why.
    fn lost<'a>(
        &'a self,
        pod: &'a Value,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let known = self.pods.get(&key(namespace, text(pod, "/metadata/name")));
        known.into_iter().flatten().filter_map(|(volume, copied)| {
            source(pod, volume)?;
            Some((volume.as_str(), copied.lost.as_deref()?))
        })
    }

    /// Whether there is a copy of what a claim stands for.
    pub(super) fn has_claim(&self, namespace: &str, name: &str) -> bool {
        self.claims.contains(&key(namespace, name))
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// A volume of a pod.
fn source<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes
        .into_iter()
        .flatten()
        .find(|volume| volume["name"] == name)
}

/// Old versions copied volumes that Kubernetes fills.
fn can_be_filled(source: &Value) -> bool {
    !source["projected"].is_object() && !source["downwardAPI"].is_object()
}

fn claim(source: &Value) -> Option<String> {
    let name = source["persistentVolumeClaim"]["claimName"].as_str();
    name.map(str::to_owned)
}

fn in_annotations(pod: &Value) -> impl Iterator<Item = PodVolume> {
    let annotations = pod["metadata"]["annotations"].as_object();
    annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let volume = key.strip_prefix(annotation::LEGACY_SNAPSHOT_PREFIX)?;
            let snapshot = value.as_str().filter(|id| !id.is_empty())?;
            Some(PodVolume {
                volume: volume.to_owned(),
                claim: claim(source(pod, volume)?),
                snapshot: snapshot.to_owned(),
                size: None,
                uploader: UploaderType::Restic,
            })
        })
}

/// What a request is about, besides its volume.
struct Asked<'a> {
    restore: &'a Restore,
    namespace: &'a str,
    pod: &'a str,
    pod_uid: &'a str,
    /// The pod's namespace in the backup.
    source: &'a str,
    claim_uid: Option<&'a str>,
}

impl Asked<'_> {
    fn request(&self, volume: &PodVolume, volumes: &PodVolumes) -> PodVolumeRestore {
        let restore = self.restore;
        let uid = restore.uid().unwrap_or_default();
        let name = restore.name_any();
        let spec = PodVolumeRestoreSpec {
            pod: ObjectReference {
                kind: Some("Pod".to_owned()),
                namespace: Some(self.namespace.to_owned()),
                name: Some(self.pod.to_owned()),
                uid: Some(self.pod_uid.to_owned()),
                ..ObjectReference::default()
            },
            volume: volume.volume.clone(),
            backup_storage_location: volumes.location.clone(),
            repo_identifier: volumes.repository(self.source),
            uploader_type: Some(volume.uploader.clone()),
            snapshot_id: volume.snapshot.clone(),
            snapshot_size: volume.size,
            source_namespace: self.source.to_owned(),
            uploader_settings: restore.spec.uploader_config.as_ref().map(settings),
            ..PodVolumeRestoreSpec::default()
        };
        let namespace = restore.namespace().unwrap_or_default();
        let named = request_name(&name, &[&uid, self.pod_uid, &volume.volume]);
        let mut request = PodVolumeRestore::new(&namespace, &named, spec);
        let labels = request.labels_mut();
        let mut add =
            |key: &str, value: &str| drop(labels.insert(key.to_owned(), value.to_owned()));
        add(label::RESTORE_NAME, &label_value(&name));
        add(label::RESTORE_UID, &uid);
        add(label::POD_UID, self.pod_uid);
        if let Some(claim) = self.claim_uid {
            add(label::PVC_UID, claim);
        }
        request.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "velero.io/v1".to_owned(),
            kind: Restore::KIND.to_owned(),
            name,
            uid,
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        request
    }
}

/// The same for the same parts.
pub(crate) fn request_name(restore: &str, parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("/"));
    let mut name = restore[..restore.floor_char_boundary(BASE)].to_owned();
    name.push('-');
    for byte in &digest[..TOLD_APART] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn settings(config: &UploaderConfigForRestore) -> StringMap {
    let sparse = config.write_sparse_files.unwrap_or_default();
    let mut settings = StringMap::from([(
        uploader_setting::WRITE_SPARSE_FILES.to_owned(),
        sparse.to_string(),
    )]);
    if let Some(parallel) = config.parallel_files_download.filter(|n| *n > 0) {
        let key = uploader_setting::PARALLEL_FILES_DOWNLOAD.to_owned();
        settings.insert(key, parallel.to_string());
    }
    settings
}

/// How messages name a volume.
fn of_pod(volume: &str, namespace: &str, pod: &str) -> String {
    format!("volume {volume} of pod {namespace}/{pod}")
}

impl Run {
    /// Asks for the volumes of a pod that this restore has made.
    pub(super) async fn fill(&self, key: &Key, ready: &Ready, metadata: &Value) {
        let about = About::object(&key.kind, &key.namespace, &key.name);
        let pod = text(&ready.wanted, "/metadata/name");
        let unfilled = |volume: &str, claim: Option<String>, why: &str| {
            self.notes.unfilled(Unfilled {
                namespace: key.namespace.to_string(),
                pod: pod.to_owned(),
                volume: volume.to_owned(),
                claim,
                why: why.to_owned(),
            });
        };
        for (volume, why) in self.pod_volumes.copies.lost(&ready.wanted, &ready.source) {
            let of = source(&ready.wanted, volume).and_then(claim);
            unfilled(volume, of, &format!("the backup has nothing of it: {why}"));
            let volume = of_pod(volume, &key.namespace, pod);
            let why = format!("{volume} starts empty, because the backup has nothing of it: {why}");
            self.log.told(Level::Warning, &why, &about);
        }
        for volume in &ready.volumes {
            let asked = match volume.refusal() {
                Some(why) => Err(format!("{why}; the pod waits for it until it is deleted")),
                None => self.ask(key, ready, metadata, volume).await,
            };
            match asked {
                Ok(filling) => self.fillings().push(filling),
                Err(why) => {
                    unfilled(&volume.volume, volume.claim.clone(), &why);
                    let volume = of_pod(&volume.volume, &key.namespace, pod);
                    let why = format!("pod volume restore failed: {volume}: {why}");
                    self.log.told(Level::Error, &why, &About::default());
                }
            }
        }
    }

    async fn ask(
        &self,
        key: &Key,
        ready: &Ready,
        metadata: &Value,
        volume: &PodVolume,
    ) -> Result<Filling, String> {
        let claim = match &volume.claim {
            Some(name) => Some(self.claim_uid(&key.namespace, name).await?),
            None => None,
        };
        let asked = Asked {
            restore: &self.restore,
            namespace: &key.namespace,
            pod: text(&ready.wanted, "/metadata/name"),
            pod_uid: metadata["uid"].as_str().unwrap_or_default(),
            source: &ready.source,
            claim_uid: claim.as_deref(),
        };
        let request = asked.request(volume, &self.pod_volumes);
        self.create_once(&request).await?;
        Ok(Filling {
            request,
            claim: volume.claim.clone(),
        })
    }

    async fn claim_uid(&self, namespace: &str, name: &str) -> Result<String, String> {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        let failed = "error getting persistent volume claim for volume";
        match self.calls.get(&path).await {
            Ok(Some(claim)) => Ok(text(&claim, "/metadata/uid").to_owned()),
            Ok(None) => Err(format!("{failed}: there is no claim {namespace}/{name}")),
            Err(error) => Err(format!("{failed}: {}", message(&error))),
        }
    }

    /// Makes a request, unless it was made before.
    async fn create_once(&self, request: &PodVolumeRestore) -> Result<(), String> {
        let namespace = request.namespace().unwrap_or_default();
        let name = request.name_any();
        let plural = PodVolumeRestore::PLURAL;
        let collection = format!("/apis/velero.io/v1/namespaces/{namespace}/{plural}");
        let failed =
            |error: &kube::Error| format!("create PodVolumeRestore {name}: {}", message(error));
        let body = serde_json::to_value(request).map_err(|error| error.to_string())?;
        let what = Write("create pod volume restore");
        let refused = match self.calls.create(what, &collection, &body, None).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !matches!(&refused, kube::Error::Api(status) if status.is_already_exists()) {
            return Err(failed(&refused));
        }
        let live = self.calls.get(&format!("{collection}/{name}")).await;
        let live = live.map_err(|error| failed(&error))?.unwrap_or_default();
        let is_same = |pointer: &str| text(&live, pointer) == text(&body, pointer);
        if is_same("/spec/pod/uid") && is_same("/spec/volume") && is_same("/spec/snapshotID") {
            return Ok(());
        }
        Err(failed(&refused))
    }

    pub(super) fn fillings(&self) -> MutexGuard<'_, Vec<Filling>> {
        self.fillings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a rehearsal says of the volumes of a pod that would be made.
    pub(super) fn rehearse_volumes(&self, key: &Key, ready: &Ready) -> Vec<Filled> {
        let filled = |volume: &str| Filled {
            namespace: key.namespace.to_string(),
            pod: text(&ready.wanted, "/metadata/name").to_owned(),
            volume: volume.to_owned(),
            ..Filled::default()
        };
        let copies = &self.pod_volumes.copies;
        let lost = copies.lost(&ready.wanted, &ready.source);
        let lost = lost.map(|(volume, why)| Filled {
            problem: Some(format!("the backup has nothing of it: {why}")),
            ..filled(volume)
        });
        let found = ready.volumes.iter().map(|volume| Filled {
            claim: volume.claim.clone(),
            snapshot: Some(volume.snapshot.clone()),
            bytes: volume.size,
            problem: volume.refusal(),
            ..filled(&volume.volume)
        });
        let moved = ready.download.as_ref().map(|download| Filled {
            namespace: key.namespace.to_string(),
            claim: Some(text(&ready.wanted, "/metadata/name").to_owned()),
            snapshot: Some(download.spec.snapshot_id.clone()),
            bytes: download.spec.snapshot_size,
            ..Filled::default()
        });
        lost.chain(found).chain(moved).collect()
    }
}

#[cfg(test)]
mod tests;
