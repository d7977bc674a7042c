//! Volumes whose snapshots a plugin uploads or brings back. Velero has no such thing.

use bowline_api::{
    StringMap,
    v1::{VolumeOperationProgress, VolumePluginBackup, VolumePluginPhase, VolumePluginRestore},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::live::Live;
use crate::output::pace::{State, Transfer};

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

impl Live for PluginVolume {
    /// The volume, or while that is not known the snapshot.
    fn label(&self) -> &str {
        match self.volume.as_str() {
            "" => &self.snapshot,
            volume => volume,
        }
    }

    fn name(&self) -> &str {
        &self.snapshot
    }

    fn phase(&self) -> &str {
        match &self.phase {
            Some(phase) if !phase.as_str().is_empty() => phase.as_str(),
            _ => VolumePluginPhase::New.as_str(),
        }
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn transfer(&self) -> Transfer {
        Transfer {
            label: self.label().to_owned(),
            state: match &self.phase {
                Some(VolumePluginPhase::InProgress) => State::Moving,
                Some(VolumePluginPhase::Completed | VolumePluginPhase::Failed) => State::Over,
                _ => State::Waiting,
            },
            done: self.progress.bytes_done.unwrap_or_default(),
            total: self.progress.total_bytes.unwrap_or_default(),
            since: self.started,
        }
    }

    fn facts(&self) -> Vec<(&str, &str)> {
        vec![("Plugin", &self.plugin), ("Snapshot ID", &self.snapshot)]
    }

    fn words(&self) -> Vec<(&str, &str)> {
        let words = self.words.iter();
        words
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }

    fn keys(&self) -> Map<String, Value> {
        let mut keys = Map::from_iter([
            ("volume".to_owned(), json!(self.volume)),
            ("plugin".to_owned(), json!(self.plugin)),
            ("snapshotID".to_owned(), json!(self.snapshot)),
        ]);
        if !self.words.is_empty() {
            keys.insert("pluginSpecific".to_owned(), json!(self.words));
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::output::{
        describe::{
            Colour, Describer,
            live::{structured, text},
        },
        time::Clock,
    };

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
             \x20   In Progress:  1 (33.33%) [100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left]\n\
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
