//! Conditions on volumes and the action they lead to.

use std::collections::{BTreeMap, BTreeSet};

use bowline_api::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What happens to the volumes that some conditions match.
#[derive(Debug, Clone)]
pub struct VolumePolicy {
    /// All of these must hold.
    pub conditions: Conditions,
    /// What happens then.
    pub action: Action,
}

/// What happens to a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// The way of backing it up.
    pub kind: ActionType,
    /// Settings for whoever carries it out.
    pub parameters: Map<String, Value>,
}

/// A way of backing up a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionType {
    /// Its data is not backed up at all.
    Skip,
    /// A snapshot, native or CSI, whatever annotations and `snapshotVolumes` say.
    Snapshot,
    /// File by file.
    FsBackup,
    /// By a plugin; nothing is done here.
    Custom,
}

impl ActionType {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "skip" => Self::Skip,
            "snapshot" => Self::Snapshot,
            "fs-backup" => Self::FsBackup,
            "custom" => Self::Custom,
            _ => return None,
        })
    }

    /// The spelling in a policy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Snapshot => "snapshot",
            Self::FsBackup => "fs-backup",
            Self::Custom => "custom",
        }
    }
}

/// Conditions on a volume; those that are not given hold for every volume.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    pub(super) capacity: Capacity,
    pub(super) storage_class: Vec<String>,
    pub(super) nfs: Option<Nfs>,
    pub(super) csi: Option<Csi>,
    pub(super) volume_types: Vec<String>,
    pub(super) pvc_labels: BTreeMap<String, String>,
    pub(super) pvc_phase: Vec<String>,
    pub(super) pvc_volume_mode: String,
    pub(super) pvc_access_modes: Vec<String>,
}

impl Conditions {
    /// Whether all of them hold.
    #[must_use]
    pub fn matches(&self, volume: &VolumeFacts) -> bool {
        let one_of = |list: &[String], item: &str| {
            list.is_empty() || !item.is_empty() && list.iter().any(|listed| listed == item)
        };
        let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();

        self.capacity.contains(volume.capacity)
            && one_of(&self.storage_class, &volume.storage_class)
            && self.nfs.as_ref().is_none_or(|nfs| nfs.accepts(volume))
            && self.csi.as_ref().is_none_or(|csi| csi.accepts(volume))
            && one_of(&self.volume_types, &volume.volume_type)
            && self
                .pvc_labels
                .iter()
                .all(|(key, value)| volume.pvc_labels.get(key) == Some(value))
            && one_of(&self.pvc_phase, &volume.pvc_phase)
            && (self.pvc_volume_mode.is_empty() || self.pvc_volume_mode == volume.pvc_volume_mode)
            && (self.pvc_access_modes.is_empty()
                || self.pvc_access_modes.len() == volume.pvc_access_modes.len()
                    && set(&self.pvc_access_modes) == set(&volume.pvc_access_modes))
    }
}

/// A range of sizes, both ends included; zero means no bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) low: Quantity,
    pub(super) high: Quantity,
}

const ZERO: Quantity = Quantity::from_bytes(0);

impl Default for Capacity {
    fn default() -> Self {
        Self {
            low: ZERO,
            high: ZERO,
        }
    }
}

impl Capacity {
    /// `low,high`; either side may be empty.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let wrong = || format!("wrong format of Capacity {text}");
        let (low, high) = text.split_once(',').ok_or_else(wrong)?;
        if high.contains(',') {
            return Err(wrong());
        }
        let bound = |text: &str| match text.trim() {
            "" => Ok(ZERO),
            amount => amount
                .parse()
                .map_err(|e| format!("wrong format of Capacity {text} with err {e}")),
        };
        Ok(Self {
            low: bound(low)?,
            high: bound(high)?,
        })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.high >= self.low || self.low != ZERO && self.high == ZERO {
            return Ok(());
        }
        Err(format!(
            "illegal values for capacity {},{}",
            self.low, self.high
        ))
    }

    fn contains(&self, amount: Quantity) -> bool {
        self.low <= amount && (self.high == ZERO || amount <= self.high)
    }
}

/// An NFS volume; as a condition, what is empty fits any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nfs {
    /// The server.
    pub server: String,
    /// The exported path.
    pub path: String,
}

impl Nfs {
    fn accepts(&self, volume: &VolumeFacts) -> bool {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        volume
            .nfs
            .as_ref()
            .is_some_and(|nfs| fits(&self.path, &nfs.path) && fits(&self.server, &nfs.server))
    }
}

/// A CSI volume; as a condition, no driver fits any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Csi {
    /// The driver.
    pub driver: String,
    /// The driver's settings for the volume.
    pub volume_attributes: Option<BTreeMap<String, String>>,
}

impl Csi {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.driver.is_empty() && self.volume_attributes.is_some() {
            return Err(
                "csi driver should not be empty when filtering by volume attributes".to_owned(),
            );
        }
        Ok(())
    }

    fn accepts(&self, volume: &VolumeFacts) -> bool {
        let Some(csi) = &volume.csi else { return false };
        if self.driver.is_empty() {
            return true;
        }
        let wanted = self.volume_attributes.iter().flatten();
        let found = csi.volume_attributes.as_ref().filter(|a| !a.is_empty());
        self.driver == csi.driver
            && wanted.into_iter().all(|(key, value)| {
                // An attribute that the volume does not have counts as empty, as in Go.
                found.is_some_and(|a| a.get(key).map_or("", String::as_str) == value)
            })
    }
}

/// What conditions look at: of the PersistentVolume or the pod's volume, and of the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The size of the PersistentVolume, zero without one.
    pub capacity: Quantity,
    /// The class of the PersistentVolume.
    pub storage_class: String,
    /// Set for an NFS volume.
    pub nfs: Option<Nfs>,
    /// Set for a CSI volume.
    pub csi: Option<Csi>,
    /// The name of the source's field, `emptyDir`.
    pub volume_type: String,
    /// The labels of the claim.
    pub pvc_labels: BTreeMap<String, String>,
    /// The phase of the claim.
    pub pvc_phase: String,
    /// The volume mode of the claim.
    pub pvc_volume_mode: String,
    /// The access modes of the claim.
    pub pvc_access_modes: Vec<String>,
}

impl Default for VolumeFacts {
    fn default() -> Self {
        Self {
            capacity: ZERO,
            storage_class: String::new(),
            nfs: None,
            csi: None,
            volume_type: String::new(),
            pvc_labels: BTreeMap::new(),
            pvc_phase: String::new(),
            pvc_volume_mode: String::new(),
            pvc_access_modes: Vec::new(),
        }
    }
}

/// The sources that have a name as a volume type. A claim is none: its PersistentVolume has one.
const VOLUME_TYPES: [&str; 29] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cinder",
    "cephfs",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flocker",
    "flexVolume",
    "gitRepo",
    "glusterfs",
    "gcePersistentDisk",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

impl VolumeFacts {
    /// The facts of a PersistentVolume.
    #[must_use]
    pub fn of_pv(pv: &Value) -> Self {
        let spec = &pv["spec"];
        Self {
            capacity: text(&spec["capacity"]["storage"]).parse().unwrap_or(ZERO),
            storage_class: text(&spec["storageClassName"]),
            ..Self::of_source(spec)
        }
    }

    /// The facts of an entry of a pod's `volumes`.
    #[must_use]
    pub fn of_pod_volume(volume: &Value) -> Self {
        Self::of_source(volume)
    }

    /// These, and those of the claim.
    #[must_use]
    pub fn with_pvc(self, pvc: &Value) -> Self {
        Self {
            pvc_labels: strings(&pvc["metadata"]["labels"]),
            pvc_phase: text(&pvc["status"]["phase"]),
            pvc_volume_mode: text(&pvc["spec"]["volumeMode"]),
            pvc_access_modes: pvc["spec"]["accessModes"]
                .as_array()
                .map(|modes| modes.iter().map(text).collect())
                .unwrap_or_default(),
            ..self
        }
    }

    fn of_source(source: &Value) -> Self {
        let has = |name: &str| source.get(name).is_some_and(|v| !v.is_null());
        let volume_type = VOLUME_TYPES.into_iter().find(|name| has(name));
        Self {
            nfs: has("nfs").then(|| Nfs {
                server: text(&source["nfs"]["server"]),
                path: text(&source["nfs"]["path"]),
            }),
            csi: has("csi").then(|| Csi {
                driver: text(&source["csi"]["driver"]),
                volume_attributes: Some(strings(&source["csi"]["volumeAttributes"])),
            }),
            // The one source whose field is spelled unlike its type.
            volume_type: match volume_type {
                Some("storageos") => "storageOS".to_owned(),
                other => other.unwrap_or_default().to_owned(),
            },
            ..Self::default()
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}
