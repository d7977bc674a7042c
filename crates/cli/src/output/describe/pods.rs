//! Volumes of pods that are copied file by file, backed up or restored: they are objects of the
//! cluster, and so they are live.

use std::collections::BTreeMap;

use bowline_api::v1::{
    DataMoveProgress, DataPathPhase, PodVolumeBackup, PodVolumeRestore, UploaderType,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use super::Describer;
use crate::output::pace::{Pace, State, Transfer};

/// The copy of one volume.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodVolume {
    /// `namespace/name`.
    pod: String,
    volume: String,
    uploader: String,
    phase: Option<DataPathPhase>,
    message: String,
    started: Option<Timestamp>,
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
            message: status.message.unwrap_or_default(),
            started: status.start_timestamp.map(|time| time.0),
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
            message: status.message.unwrap_or_default(),
            started: status.start_timestamp.map(|time| time.0),
            progress: status.progress.unwrap_or_default(),
            incremental: 0,
        }
    }
}

impl PodVolume {
    /// `namespace/pod: volume`.
    fn label(&self) -> String {
        format!("{}: {}", self.pod, self.volume)
    }

    /// Where the copy stands, as a word.
    pub(crate) fn phase(&self) -> &str {
        match &self.phase {
            Some(phase) if !phase.as_str().is_empty() => phase.as_str(),
            _ => DataPathPhase::New.as_str(),
        }
    }

    fn state(&self) -> State {
        match &self.phase {
            Some(DataPathPhase::InProgress) => State::Moving,
            Some(phase) if phase.is_over() => State::Over,
            _ => State::Waiting,
        }
    }

    /// How far the copy is, for a display.
    pub(crate) fn transfer(&self) -> Transfer {
        Transfer {
            label: self.label(),
            state: self.state(),
            done: self.progress.bytes_done.unwrap_or_default(),
            total: self.progress.total_bytes.unwrap_or_default(),
            since: self.started,
        }
    }

    fn pace(&self, now: Timestamp) -> Pace {
        self.transfer().pace(now)
    }

    /// What Velero does not tell: how far it is in bytes, or why it failed.
    fn remark(&self, now: Timestamp) -> Option<String> {
        match self.phase {
            Some(DataPathPhase::InProgress) => self.started.map(|_| self.pace(now).to_string()),
            _ => self.message.lines().next().map(str::to_owned),
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
        let now = d.clock.now;
        for (phase, group) in self.sorted(volumes) {
            if !details {
                d.field(
                    depth,
                    &phase,
                    format!("{}{}", group.len(), sum(&group, now)),
                );
                continue;
            }
            d.line(format_args!("{tabs}{phase}:"));
            for (pod, volumes) in by_pod(&group) {
                let names: Vec<String> = volumes.iter().map(|volume| decorated(volume)).collect();
                let more = remarks(&volumes, now);
                d.line(format_args!("{tabs}\t{pod}: {}{more}", names.join(", ")));
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
                    .map(|(pod, volumes)| {
                        let names: Vec<String> = volumes.into_iter().map(decorated).collect();
                        json!({ pod: names.join(", ") })
                    })
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

/// All that is known of each volume, for programs; Velero has no such list.
pub(crate) fn list(volumes: &[PodVolume], now: Timestamp) -> Value {
    let mut volumes: Vec<&PodVolume> = volumes.iter().collect();
    volumes.sort_by_key(|volume| volume.label());
    let entry = |volume: &PodVolume| {
        let pace = volume.pace(now);
        let mut value = json!({
            "pod": volume.pod,
            "volume": volume.volume,
            "phase": volume.phase(),
            "bytesDone": pace.done,
            "totalBytes": pace.total,
        });
        if let Some(rate) = pace.rate {
            value["bytesPerSecond"] = json!(rate as u64);
        }
        if let Some(left) = pace.left() {
            value["secondsLeft"] = json!(left.as_secs());
        }
        if !volume.message.is_empty() {
            value["message"] = json!(volume.message);
        }
        value
    };
    volumes.into_iter().map(entry).collect()
}

fn by_pod<'a>(volumes: &[&'a PodVolume]) -> BTreeMap<&'a str, Vec<&'a PodVolume>> {
    let mut pods: BTreeMap<&str, Vec<&PodVolume>> = BTreeMap::new();
    for volume in volumes {
        pods.entry(&volume.pod).or_default().push(volume);
    }
    let by_name = |volumes: &mut Vec<&PodVolume>| volumes.sort_by_key(|volume| decorated(volume));
    pods.values_mut().for_each(by_name);
    pods
}

/// How far the moving ones of a group are together. Stands behind Velero's words.
fn sum(volumes: &[&PodVolume], now: Timestamp) -> String {
    let moving = volumes
        .iter()
        .filter(|volume| volume.state() == State::Moving);
    let paces: Vec<Pace> = moving
        .filter(|volume| volume.started.is_some())
        .map(|volume| volume.pace(now))
        .collect();
    match paces.is_empty() {
        true => String::new(),
        false => format!(" [{}]", paces.into_iter().sum::<Pace>()),
    }
}

/// What there is to say of the volumes of one pod. Stands behind Velero's words.
fn remarks(volumes: &[&PodVolume], now: Timestamp) -> String {
    let remark = |volume: &&PodVolume| {
        let remark = volume.remark(now)?;
        match volumes.len() {
            1 => Some(remark),
            _ => Some(format!("{}: {remark}", volume.volume)),
        }
    };
    let remarks: Vec<String> = volumes.iter().filter_map(remark).collect();
    match remarks.is_empty() {
        true => String::new(),
        false => format!(" [{}]", remarks.join("; ")),
    }
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

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::output::{describe::Colour, time::Clock};

    const MIB: i64 = 1024 * 1024;

    fn now() -> Timestamp {
        "2026-11-15T03:30:00Z".parse().unwrap()
    }

    fn volume(name: &str, phase: &str, done: i64, since: Option<&str>, message: &str) -> PodVolume {
        let status = json!({
            "phase": phase,
            "message": message,
            "startTimestamp": since,
            "progress": {"totalBytes": 300 * MIB, "bytesDone": done},
        });
        let object: PodVolumeBackup = serde_json::from_value(json!({
            "apiVersion": "velero.io/v1",
            "kind": "PodVolumeBackup",
            "metadata": {"name": name},
            "spec": {
                "node": "n",
                "pod": {"namespace": "shop", "name": "db-0"},
                "volume": name,
                "backupStorageLocation": "default",
                "repoIdentifier": "",
                "uploaderType": "restic",
            },
            "status": status,
        }))
        .unwrap();
        PodVolume::from(&object)
    }

    fn described(volumes: &[PodVolume], details: bool) -> String {
        let clock = Clock {
            now: now(),
            zone: TimeZone::UTC,
        };
        let mut d = Describer::new(Colour::Off, &clock);
        Phases::OF_BACKUP.text(&mut d, 1, volumes, details);
        d.finish()
    }

    #[test]
    fn what_velero_does_not_tell_stands_behind_its_words() {
        let ten_seconds = Some("2026-11-15T03:29:50Z");
        let big = volume("big", "InProgress", 100 * MIB, ten_seconds, "");
        let slow = volume("slow", "InProgress", 10 * MIB, ten_seconds, "");
        let early = volume("early", "InProgress", 30 * MIB, None, "");
        let gone = volume(
            "gone",
            "Failed",
            0,
            ten_seconds,
            "no such volume\nat line 7",
        );
        for (volumes, details, wanted) in [
            (
                vec![big.clone()],
                true,
                "  In Progress:\n    shop/db-0: big (33.33%) [100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left]\n",
            ),
            (
                vec![slow.clone(), big.clone()],
                true,
                "  In Progress:\n    shop/db-0: big (33.33%), slow (3.33%) \
                 [big: 100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left; \
                 slow: 10.00 MiB of 300.00 MiB, 1.00 MiB/s, 5m left]\n",
            ),
            (
                vec![slow, big],
                false,
                "  In Progress:  2 [110.00 MiB of 600.00 MiB, 11.00 MiB/s, 45s left]\n",
            ),
            (
                vec![early.clone()],
                true,
                "  In Progress:\n    shop/db-0: early (10.00%)\n",
            ),
            (vec![early], false, "  In Progress:  1\n"),
            (
                vec![gone],
                true,
                "  Failed:\n    shop/db-0: gone [no such volume]\n",
            ),
        ] {
            assert_eq!(described(&volumes, details), wanted);
        }
    }

    #[test]
    fn programs_get_numbers() {
        let ten_seconds = Some("2026-11-15T03:29:50Z");
        let volumes = [
            volume("b", "Failed", 0, ten_seconds, "full\ndisk"),
            volume("a", "InProgress", 100 * MIB, ten_seconds, ""),
        ];
        assert_eq!(
            list(&volumes, now()),
            json!([
                {
                    "pod": "shop/db-0", "volume": "a", "phase": "InProgress",
                    "bytesDone": 100 * MIB, "totalBytes": 300 * MIB,
                    "bytesPerSecond": 10 * MIB, "secondsLeft": 20,
                },
                {
                    "pod": "shop/db-0", "volume": "b", "phase": "Failed",
                    "bytesDone": 0, "totalBytes": 300 * MIB, "message": "full\ndisk",
                },
            ])
        );
    }
}
