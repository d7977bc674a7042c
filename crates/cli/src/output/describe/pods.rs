//! Volumes of pods that are copied file by file, backed up or restored: they are objects of the
//! cluster, and so they are live.

use std::collections::BTreeMap;

use bowline_api::v1::{
    DataMoveProgress, DataPathPhase, PodVolumeBackup, PodVolumeRestore, UploaderType,
};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use super::Describer;

/// The copy of one volume.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodVolume {
    /// `namespace/name`.
    pod: String,
    volume: String,
    uploader: String,
    phase: Option<DataPathPhase>,
    progress: DataMoveProgress,
    incremental: i64,
}

impl From<&PodVolumeBackup> for PodVolume {
    fn from(object: &PodVolumeBackup) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        Self {
            pod: pod(&spec.pod),
            volume: spec.volume.clone(),
            uploader: uploader(spec.uploader_type.as_ref()),
            phase: status.phase,
            progress: status.progress.unwrap_or_default(),
            incremental: status.incremental_bytes.unwrap_or_default(),
        }
    }
}

impl From<&PodVolumeRestore> for PodVolume {
    fn from(object: &PodVolumeRestore) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        Self {
            pod: pod(&spec.pod),
            volume: spec.volume.clone(),
            uploader: uploader(spec.uploader_type.as_ref()),
            phase: status.phase,
            progress: status.progress.unwrap_or_default(),
            incremental: 0,
        }
    }
}

fn pod(pod: &ObjectReference) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    format!("{}/{}", name(&pod.namespace), name(&pod.name))
}

fn uploader(uploader: Option<&UploaderType>) -> String {
    uploader.map(ToString::to_string).unwrap_or_default()
}

/// The program that copies them; all have the same.
pub(crate) fn uploader_of(volumes: &[PodVolume]) -> &str {
    volumes.first().map_or("", |volume| &volume.uploader)
}

/// Volumes under headings for their phases, which have an order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases(&'static [&'static str]);

impl Phases {
    /// Those of a backup.
    pub(crate) const OF_BACKUP: Self = Self(&[
        "Completed",
        "Failed",
        "Canceled",
        "In Progress",
        "Canceling",
        "Prepared",
        "Accepted",
        "New",
    ]);
    /// Those of a restore.
    pub(crate) const OF_RESTORE: Self = Self(&[
        "Completed",
        "Canceled",
        "Failed",
        "In Progress",
        "Canceling",
        "Prepared",
        "Accepted",
        "New",
    ]);

    /// For people, so many levels deep: how many in each phase, or with details which.
    pub(crate) fn text(
        self,
        d: &mut Describer<'_>,
        depth: usize,
        volumes: &[PodVolume],
        details: bool,
    ) {
        let tabs = "\t".repeat(depth);
        for (phase, group) in self.sorted(volumes) {
            if !details {
                d.field(depth, &phase, group.len());
                continue;
            }
            d.line(format_args!("{tabs}{phase}:"));
            for (pod, volumes) in by_pod(&group) {
                d.line(format_args!("{tabs}\t{pod}: {}", volumes.join(", ")));
            }
        }
    }

    /// For programs.
    pub(crate) fn structured(self, volumes: &[PodVolume], details: bool) -> Value {
        let group = |(phase, group): (String, Vec<&PodVolume>)| {
            let value = match details {
                false => json!(group.len()),
                true => by_pod(&group)
                    .into_iter()
                    .map(|(pod, volumes)| json!({ pod: volumes.join(", ") }))
                    .collect(),
            };
            (phase, value)
        };
        self.sorted(volumes).into_iter().map(group).collect()
    }

    /// Groups in the order of their headings; a phase we do not know comes last, under its own name.
    fn sorted(self, volumes: &[PodVolume]) -> Vec<(String, Vec<&PodVolume>)> {
        let empty = |name: &&str| ((*name).to_owned(), Vec::new());
        let mut groups: Vec<(String, Vec<&PodVolume>)> = self.0.iter().map(empty).collect();
        for volume in volumes {
            let heading = match &volume.phase {
                Some(DataPathPhase::InProgress) => "In Progress",
                Some(phase) if !phase.as_str().is_empty() => phase.as_str(),
                _ => "New",
            };
            match groups.iter_mut().find(|(name, _)| name == heading) {
                Some((_, group)) => group.push(volume),
                None => groups.push((heading.to_owned(), vec![volume])),
            }
        }
        groups.retain(|(_, group)| !group.is_empty());
        groups
    }
}

fn by_pod(volumes: &[&PodVolume]) -> BTreeMap<String, Vec<String>> {
    let mut pods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for volume in volumes {
        pods.entry(volume.pod.clone())
            .or_default()
            .push(decorated(volume));
    }
    pods.values_mut().for_each(|volumes| volumes.sort());
    pods
}

/// The volume's name, and how far or how large it is.
fn decorated(volume: &PodVolume) -> String {
    let (name, incremental) = (&volume.volume, volume.incremental);
    let total = volume.progress.total_bytes.unwrap_or_default();
    let done = volume.progress.bytes_done.unwrap_or_default();
    match volume.phase {
        Some(DataPathPhase::InProgress) if total != 0 => {
            format!("{name} ({:.2}%)", done as f64 / total as f64 * 100.0)
        }
        Some(DataPathPhase::Completed) if incremental > 0 => {
            format!("{name} (size: {total}, incremental size: {incremental})")
        }
        Some(DataPathPhase::Completed) if total > 0 => format!("{name} (size: {total})"),
        _ => name.clone(),
    }
}
