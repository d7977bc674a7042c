//! Volumes whose snapshots a plugin uploads or brings back: they are objects of the cluster, and so
//! they are live. Velero has no such thing.

use bowline_api::{
    StringMap,
    v1::{VolumeOperationProgress, VolumePluginBackup, VolumePluginPhase, VolumePluginRestore},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Describer;
use crate::output::pace::{Pace, State, Transfer};

/// The phases, in the order of their headings.
const PHASES: &[&str] = &["Completed", "Failed", "In Progress", "New"];

/// What a plugin does with one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PluginVolume {
    /// The persistent volume; a restore may not know it yet.
    volume: String,
    snapshot: String,
    plugin: String,
    phase: Option<VolumePluginPhase>,
    message: String,
    started: Option<Timestamp>,
    progress: VolumeOperationProgress,
    /// What the plugin wants people to know.
    words: StringMap,
}

impl From<&VolumePluginBackup> for PluginVolume {
    fn from(object: &VolumePluginBackup) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        // Without an id of its own the object is named after the snapshot.
        let snapshot = status.snapshot_id.filter(|id| !id.is_empty());
        Self {
            volume: spec.volume.clone(),
            snapshot: snapshot
                .or_else(|| object.metadata.name.clone())
                .unwrap_or_default(),
            plugin: spec.plugin.clone(),
            phase: status.phase,
            message: status.message.unwrap_or_default(),
            started: status.start_timestamp.map(|time| time.0),
            progress: status.progress.unwrap_or_default(),
            words: spec.plugin_specific.clone().unwrap_or_default(),
        }
    }
}

impl From<&VolumePluginRestore> for PluginVolume {
    fn from(object: &VolumePluginRestore) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        Self {
            volume: status.volume_id.unwrap_or_default(),
            snapshot: spec.snapshot_id.clone(),
            plugin: spec.plugin.clone(),
            phase: status.phase,
            message: status.message.unwrap_or_default(),
            started: status.start_timestamp.map(|time| time.0),
            progress: status.progress.unwrap_or_default(),
            words: spec.plugin_specific.clone().unwrap_or_default(),
        }
    }
}

impl PluginVolume {
    /// The volume, or while that is not known the snapshot.
    fn label(&self) -> &str {
        match self.volume.as_str() {
            "" => &self.snapshot,
            volume => volume,
        }
    }

    /// Where it stands, as a word.
    fn phase(&self) -> &str {
        match &self.phase {
            Some(phase) if !phase.as_str().is_empty() => phase.as_str(),
            _ => VolumePluginPhase::New.as_str(),
        }
    }

    fn state(&self) -> State {
        match &self.phase {
            Some(VolumePluginPhase::InProgress) => State::Moving,
            Some(VolumePluginPhase::Completed | VolumePluginPhase::Failed) => State::Over,
            _ => State::Waiting,
        }
    }

    /// How far it is, for a display.
    pub(crate) fn transfer(&self) -> Transfer {
        Transfer {
            label: self.label().to_owned(),
            state: self.state(),
            done: self.progress.bytes_done.unwrap_or_default(),
            total: self.progress.total_bytes.unwrap_or_default(),
            since: self.started,
        }
    }

    fn pace(&self, now: Timestamp) -> Pace {
        self.transfer().pace(now)
    }

    /// `33.33% (100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left)`; nothing if there is nothing to
    /// tell.
    fn progress(&self, now: Timestamp) -> Option<String> {
        let pace = self.pace(now);
        match (pace.percentage(), pace.done) {
            (Some(percentage), _) => Some(format!("{percentage:.2}% ({pace})")),
            (None, 0) => None,
            (None, _) => Some(pace.to_string()),
        }
    }
}

/// For people, under a heading so many levels deep: how many in each phase, or with details all
/// about each.
pub(crate) fn text(
    d: &mut Describer<'_>,
    depth: usize,
    heading: &str,
    volumes: &[PluginVolume],
    details: bool,
) {
    let (tabs, now) = ("\t".repeat(depth), d.clock.now);
    if !details {
        d.line(format_args!(
            "{tabs}{heading} (specify --details for more information):"
        ));
        for (phase, group) in by_phase(volumes) {
            let count = format!("{}{}", group.len(), sum(&group, now));
            d.field(depth + 1, &phase, count);
        }
        return;
    }
    d.line(format_args!("{tabs}{heading}:"));
    for volume in sorted(volumes) {
        d.line(format_args!("{tabs}\t{}:", volume.label()));
        d.field(depth + 2, "Plugin", &volume.plugin);
        d.field(depth + 2, "Snapshot ID", &volume.snapshot);
        d.field(depth + 2, "Phase", volume.phase());
        if let Some(progress) = volume.progress(now) {
            d.field(depth + 2, "Progress", progress);
        }
        if let Some(line) = volume.message.lines().next() {
            d.field(depth + 2, "Message", line);
        }
        for (key, value) in &volume.words {
            d.field(depth + 2, key, value);
        }
    }
}

/// For programs: how many in each phase, and with details all about each.
pub(crate) fn structured(volumes: &[PluginVolume], details: bool, now: Timestamp) -> Value {
    let count = |(phase, group): (String, Vec<&PluginVolume>)| (phase, json!(group.len()));
    let phases: serde_json::Map<String, Value> = by_phase(volumes).into_iter().map(count).collect();
    let mut value = json!({ "phases": phases });
    if details {
        let list: Vec<Value> = sorted(volumes).into_iter().map(|v| entry(v, now)).collect();
        value["volumes"] = json!(list);
    }
    value
}

fn entry(volume: &PluginVolume, now: Timestamp) -> Value {
    let pace = volume.pace(now);
    let mut value = json!({
        "volume": volume.volume,
        "plugin": volume.plugin,
        "snapshotID": volume.snapshot,
        "phase": volume.phase(),
        "bytesDone": pace.done,
        "totalBytes": pace.total,
    });
    if let Some(percentage) = pace.percentage() {
        value["percentage"] = json!((percentage * 100.0).round() / 100.0);
    }
    if let Some(rate) = pace.rate {
        value["bytesPerSecond"] = json!(rate as u64);
    }
    if let Some(left) = pace.left() {
        value["secondsLeft"] = json!(left.as_secs());
    }
    if !volume.message.is_empty() {
        value["message"] = json!(volume.message);
    }
    if !volume.words.is_empty() {
        value["pluginSpecific"] = json!(volume.words);
    }
    value
}

fn sorted(volumes: &[PluginVolume]) -> Vec<&PluginVolume> {
    let mut volumes: Vec<&PluginVolume> = volumes.iter().collect();
    volumes.sort_by_key(|volume| (volume.label(), volume.snapshot.as_str()));
    volumes
}

/// Groups in the order of their headings; a phase we do not know comes last, under its own name.
fn by_phase(volumes: &[PluginVolume]) -> Vec<(String, Vec<&PluginVolume>)> {
    let mut groups: Vec<(String, Vec<&PluginVolume>)> = Vec::new();
    for volume in volumes {
        let heading = match volume.phase() {
            "InProgress" => "In Progress",
            phase => phase,
        };
        match groups.iter_mut().find(|(name, _)| name == heading) {
            Some((_, group)) => group.push(volume),
            None => groups.push((heading.to_owned(), vec![volume])),
        }
    }
    let place = |name: &str| PHASES.iter().position(|phase| *phase == name);
    groups.sort_by_key(|(name, _)| (place(name).unwrap_or(PHASES.len()), name.clone()));
    groups
}

/// How far the moving ones are together.
fn sum(volumes: &[&PluginVolume], now: Timestamp) -> String {
    let moving = volumes
        .iter()
        .filter(|volume| volume.state() == State::Moving);
    let paces: Vec<Pace> = moving.map(|volume| volume.pace(now)).collect();
    match paces.is_empty() {
        true => String::new(),
        false => format!(" [{}]", paces.into_iter().sum::<Pace>()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::output::{describe::Colour, time::Clock};

    const MIB: i64 = 1024 * 1024;

    fn clock() -> Clock {
        Clock {
            now: "2026-11-15T03:30:00Z".parse().unwrap(),
            zone: TimeZone::UTC,
        }
    }

    fn upload(volume: &str, status: Value) -> PluginVolume {
        let object: VolumePluginBackup = serde_json::from_value(json!({
            "metadata": {"name": format!("snap-{volume}")},
            "spec": {"volume": volume, "backup": "b", "plugin": "acme.io/disk"},
            "status": status,
        }))
        .unwrap();
        PluginVolume::from(&object)
    }

    fn some() -> Vec<PluginVolume> {
        vec![
            upload("pv-new", json!(null)),
            upload(
                "pv-moving",
                json!({
                    "phase": "InProgress", "snapshotID": "Snap/1",
                    "startTimestamp": "2026-11-15T03:29:50Z",
                    "progress": {"TotalBytes": 300 * MIB, "BytesDone": 100 * MIB},
                }),
            ),
            upload(
                "pv-lost",
                json!({"phase": "Failed", "message": "no room\nat all"}),
            ),
            upload(
                "pv-done",
                json!({"phase": "Completed", "progress": {"totalBytes": MIB, "bytesDone": MIB}}),
            ),
            upload(
                "pv-odd",
                json!({"phase": "Paused", "progress": {"bytesDone": MIB}}),
            ),
        ]
    }

    fn described(volumes: &[PluginVolume], details: bool) -> String {
        let clock = clock();
        let mut d = Describer::new(Colour::Off, &clock);
        text(&mut d, 1, "Volume Plugin Backups", volumes, details);
        d.finish()
    }

    #[test]
    fn without_details_phases_are_counted() {
        assert_eq!(
            described(&some(), false),
            "  Volume Plugin Backups (specify --details for more information):\n\
             \x20   Completed:    1\n\
             \x20   Failed:       1\n\
             \x20   In Progress:  1 [100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left]\n\
             \x20   New:          1\n\
             \x20   Paused:       1\n"
        );
    }

    #[test]
    fn with_details_each_is_told() {
        let volumes = some();
        assert_eq!(
            described(&volumes[1..], true),
            "  Volume Plugin Backups:\n\
             \x20   pv-done:\n\
             \x20     Plugin:       acme.io/disk\n\
             \x20     Snapshot ID:  snap-pv-done\n\
             \x20     Phase:        Completed\n\
             \x20     Progress:     100.00% (1.00 MiB of 1.00 MiB)\n\
             \x20   pv-lost:\n\
             \x20     Plugin:       acme.io/disk\n\
             \x20     Snapshot ID:  snap-pv-lost\n\
             \x20     Phase:        Failed\n\
             \x20     Message:      no room\n\
             \x20   pv-moving:\n\
             \x20     Plugin:       acme.io/disk\n\
             \x20     Snapshot ID:  Snap/1\n\
             \x20     Phase:        InProgress\n\
             \x20     Progress:     33.33% (100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left)\n\
             \x20   pv-odd:\n\
             \x20     Plugin:       acme.io/disk\n\
             \x20     Snapshot ID:  snap-pv-odd\n\
             \x20     Phase:        Paused\n\
             \x20     Progress:     1.00 MiB\n"
        );
    }

    #[test]
    fn programs_get_numbers() {
        let volumes = &some()[1..3];
        assert_eq!(
            structured(volumes, false, clock().now),
            json!({"phases": {"Failed": 1, "In Progress": 1}})
        );
        assert_eq!(
            structured(volumes, true, clock().now)["volumes"],
            json!([
                {
                    "volume": "pv-lost", "plugin": "acme.io/disk", "snapshotID": "snap-pv-lost",
                    "phase": "Failed", "bytesDone": 0, "totalBytes": 0,
                    "message": "no room\nat all",
                },
                {
                    "volume": "pv-moving", "plugin": "acme.io/disk", "snapshotID": "Snap/1",
                    "phase": "InProgress", "bytesDone": 100 * MIB, "totalBytes": 300 * MIB,
                    "percentage": 33.33, "bytesPerSecond": 10 * MIB, "secondsLeft": 20,
                },
            ])
        );
    }

    #[test]
    fn a_restore_is_named_by_its_snapshot_until_it_has_a_volume() {
        let of = |status: Value| {
            let object: VolumePluginRestore = serde_json::from_value(json!({
                "metadata": {"name": "x"},
                "spec": {
                    "snapshotID": "snap-1", "backup": "b", "plugin": "acme.io/disk",
                    "pluginSpecific": {"Zone": "a"},
                },
                "status": status,
            }))
            .unwrap();
            described(&[PluginVolume::from(&object)], true)
        };
        assert!(of(json!({})).contains("    snap-1:\n"));
        let known = of(json!({"volumeID": "vol-7"}));
        assert!(known.contains("    vol-7:\n"), "{known}");
        assert!(known.ends_with("Zone:         a\n"), "{known}");
    }
}
