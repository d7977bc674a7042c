//! Snapshots of volumes, taken while the backup runs: which volumes, and when. Whoever takes them
//! stands behind a trait.
//!
//! A volume that pods with hooks use is taken with them, while they are frozen; so all other volumes
//! wait until the pods are done. What is left to do for a snapshot once it is taken (two-stage
//! plugins upload it then) begins when the pods are let go.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bowline_api::files::Snapshot;
use serde_json::Value;

use super::{
    csi::is_claims,
    item::{ENDED, Run},
};
use crate::{
    action::{claims, text},
    csi::driver,
    discovery::Resource,
    log::{About, Level},
};

/// Takes snapshots of volumes.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Takes one of a PersistentVolume.
    ///
    /// # Errors
    /// Why there is none, though there should be.
    async fn take(&self, volume: &Value, zone: &str) -> Result<Taken, String>;

    /// A volume whose snapshot was taken is in the archive, and its pods are let go.
    fn release(&self, volume: &str);

    /// Volumes that are in the archive, but whose snapshot is not where it is safe yet. For each that
    /// gets there the progress of the backup is told.
    fn pending(&self) -> u64;

    /// All that were taken, or tried.
    fn records(&self) -> Vec<Snapshot>;
}

/// What became of an attempt to take a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Nobody knows this kind of volume.
    Nobody,
    /// There is one.
    Whole,
    /// There is one, and something is left to do before it is safe.
    Pending,
}

/// Objects that are backed up together, between the hooks of their pods.
#[derive(Debug, Default)]
pub(super) struct Frozen(Mutex<HashSet<String>>);

impl Frozen {
    fn hold(&self, volume: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(volume.to_owned());
    }

    fn take(&self) -> HashSet<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn is_volumes(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "persistentvolumes"
}

impl Run {
    fn snapshots(&self) -> Option<&Arc<dyn Snapshots>> {
        self.volumes.snapshots.as_ref()
    }

    /// Whether objects of this resource wait until the pods are done.
    pub(super) fn waits_for_pods(&self, resource: &Resource) -> bool {
        let has_native = self.snapshots().is_some() && is_volumes(resource);
        has_native || self.volumes.csi.is_some() && is_claims(resource)
    }

    /// Takes a snapshot of a volume, if one is wanted and somebody can.
    pub(super) async fn snapshot(&self, volume: &Value) -> Result<Taken, String> {
        let Some(snapshots) = self.snapshots() else {
            return Ok(Taken::Nobody);
        };
        self.volumes.ledger().volume(volume);
        if self.volumes.csi.is_some() && driver(volume).is_some() {
            // Its claim decides.
            return Ok(Taken::Nobody);
        }
        if !self.wants_snapshot(volume).await {
            return Ok(Taken::Nobody);
        }
        let zone = zone(volume);
        if self.volumes.moves_data {
            let about = About::object("persistentvolumes", "", text(volume, "/metadata/name"));
            let why =
                "VolumeSnapshot has no CSI volume to move data of; a native snapshot is taken";
            self.log.write(Level::Warning, why, &about);
        }
        // One that was asked for is waited for: else nobody would know of it.
        let _held = self.held.begin();
        if self.over.is_cancelled() {
            return Err(ENDED.to_owned());
        }
        snapshots.take(volume, &zone).await
    }

    /// Takes the volumes of a frozen pod now. A list may have brought its claims before, and their
    /// volumes were left for later.
    pub(super) async fn take_volumes(&self, pod: &Value, frozen: &Frozen) {
        let kinds = (
            self.position("persistentvolumes"),
            self.position("persistentvolumeclaims"),
        );
        let (Some(volumes), Some(of_claims)) = kinds else {
            return;
        };
        if self.snapshots().is_none() {
            return;
        }
        let namespace = text(pod, "/metadata/namespace");
        for name in claims(pod) {
            let Ok(claim) = self.find("persistentvolumeclaims", namespace, name).await else {
                continue;
            };
            let volume = text(&claim, "/spec/volumeName");
            let is_bound = text(&claim, "/status/phase") == "Bound" && !volume.is_empty();
            let is_wanted =
                self.is_taken(of_claims, namespace, name) || self.will_be_listed(volumes, "");
            if is_bound && is_wanted && !self.is_taken(volumes, "", volume) {
                self.fetch(volumes, "", volume, false, Some(frozen)).await;
            }
        }
    }

    async fn wants_snapshot(&self, volume: &Value) -> bool {
        let claim = |pointer: &str| text(volume, &format!("/spec/claimRef/{pointer}")).to_owned();
        let (namespace, name) = (claim("namespace"), claim("name"));
        if self.volumes.policies().is_some()
            && !name.is_empty()
            && let Ok(found) = self.find("persistentvolumeclaims", &namespace, &name).await
        {
            self.volumes.ledger().claim(&found);
        }
        let volumes = &self.volumes;
        volumes.ledger().wants_snapshot(
            text(volume, "/metadata/name"),
            None,
            volumes.policies(),
            volumes.with_snapshots,
        )
    }

    /// A volume with a snapshot is in the archive.
    pub(super) fn taken(&self, volume: &str, frozen: Option<&Frozen>) {
        match frozen {
            Some(frozen) => frozen.hold(volume),
            None => self.release(volume),
        }
    }

    fn release(&self, volume: &str) {
        if let Some(snapshots) = self.snapshots() {
            snapshots.release(volume);
        }
    }

    /// The pods are let go.
    pub(super) fn thaw(&self, frozen: &Frozen) {
        for volume in frozen.take() {
            self.release(&volume);
        }
    }

    pub(super) fn pending(&self) -> u64 {
        self.snapshots().map_or(0, |snapshots| snapshots.pending())
    }

    pub(super) fn records(&self) -> Vec<Snapshot> {
        self.snapshots()
            .map_or_else(Vec::new, |snapshots| snapshots.records())
    }
}

/// Labels that name the zone of a volume.
const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];
/// What volumes of regions have instead, with a zone each.
const GKE: &str = "topology.gke.io/zone";
/// Keys by which nodes are chosen that are in the zone of a volume.
const TERMS: [&str; 7] = [
    "topology.ebs.csi.aws.com/zone",
    "topology.disk.csi.azure.com/zone",
    GKE,
    "topology.cinder.csi.openstack.org/zone",
    "topology.manila.csi.openstack.org/zone",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

/// Where a volume is; empty when it does not say.
fn zone(volume: &Value) -> String {
    let labels = &volume["metadata"]["labels"];
    if let Some(zone) = LABELS.iter().find_map(|label| labels[*label].as_str()) {
        return zone.to_owned();
    }
    let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms");
    let expressions = terms
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|term| term["matchExpressions"].as_array())
        .flatten();
    for expression in expressions {
        let key = expression["key"].as_str().unwrap_or_default();
        if expression["operator"] != "In" || !TERMS.contains(&key) {
            continue;
        }
        let values = expression["values"].as_array().into_iter().flatten();
        let zones: Vec<&str> = values.filter_map(Value::as_str).collect();
        match zones.first() {
            Some(_) if key == GKE => return zones.join("__"),
            Some(first) => return (*first).to_owned(),
            None => {}
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zones_are_where_clouds_write_them() {
        let term = |key: &str, operator: &str, values: &[&str]| {
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "else", "operator": "In", "values": ["x"]}]},
                {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
            ]}}}})
        };
        for (volume, expected) in [
            (json!({}), ""),
            (
                json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a", "failure-domain.beta.kubernetes.io/zone": "b"}}}),
                "a",
            ),
            (
                json!({"metadata": {"labels": {"failure-domain.beta.kubernetes.io/zone": "b"}}}),
                "b",
            ),
            (
                term("topology.ebs.csi.aws.com/zone", "In", &["c", "d"]),
                "c",
            ),
            (term("topology.gke.io/zone", "In", &["c", "d"]), "c__d"),
            (term("topology.gke.io/zone", "NotIn", &["c"]), ""),
            (term("kubernetes.io/hostname", "In", &["n1"]), ""),
        ] {
            assert_eq!(zone(&volume), expected, "{volume}");
        }
    }
}
