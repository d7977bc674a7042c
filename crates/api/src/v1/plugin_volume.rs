//! Progress of volume snapshotter plugins: VolumePluginBackup and VolumePluginRestore.
//!
//! Plugins write these, so the schema asks for little: the phase is any text (a plugin written in
//! Go sends `""` before its first word), and the counters are taken in either spelling.

use serde::{Deserialize, Serialize};

use crate::{Column, ColumnType, Extra, StringMap, Time};

resource! {
    /// The upload of one volume snapshot by a plugin, named after the snapshot.
    VolumePluginBackup, "v1", "volumepluginbackups", ["vpb"], [
        Column::text("Status", ".status.phase"),
        Column::new("Started", ".status.startTimestamp", ColumnType::Date),
        Column::new("Bytes Done", ".status.progress.bytesDone", ColumnType::Int64),
        Column::new("Total Bytes", ".status.progress.totalBytes", ColumnType::Int64),
        Column::text("Volume", ".spec.volume"),
        Column::text("Backup", ".spec.backup"),
        Column::AGE,
    ],
    spec: VolumePluginBackupSpec, status: VolumePluginBackupStatus
}

record! {
    /// Which volume of which backup.
    pub struct VolumePluginBackupSpec {
        /// The persistent volume, by name.
        pub volume: String,
        /// The backup, by name.
        pub backup: String,
        /// The plugin, by name.
        pub plugin: String,
        /// What the plugin wants people to know.
        pub plugin_specific: Option<StringMap>,
    }
}

record! {
    /// How far the upload is.
    pub struct VolumePluginBackupStatus {
        /// Where it stands.
        #[schemars(with = "Option<String>")]
        pub phase: Option<VolumePluginPhase>,
        /// The snapshot, as the plugin names it.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// A word about the phase.
        pub message: Option<String>,
        /// When the upload began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it ended.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Bytes done and in all.
        pub progress: Option<VolumeOperationProgress>,
    }
}

resource! {
    /// The restore of one volume snapshot by a plugin.
    VolumePluginRestore, "v1", "volumepluginrestores", ["vpr"], [
        Column::text("Status", ".status.phase"),
        Column::new("Started", ".status.startTimestamp", ColumnType::Date),
        Column::new("Bytes Done", ".status.progress.bytesDone", ColumnType::Int64),
        Column::new("Total Bytes", ".status.progress.totalBytes", ColumnType::Int64),
        Column::text("Snapshot", ".spec.snapshotID"),
        Column::text("Backup", ".spec.backup"),
        Column::AGE,
    ],
    spec: VolumePluginRestoreSpec, status: VolumePluginRestoreStatus
}

record! {
    /// Which snapshot of which backup.
    pub struct VolumePluginRestoreSpec {
        /// The snapshot, as the plugin names it.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: String,
        /// The backup, by name.
        pub backup: String,
        /// The plugin, by name.
        pub plugin: String,
        /// What the plugin wants people to know.
        pub plugin_specific: Option<StringMap>,
    }
}

record! {
    /// How far the restore is.
    pub struct VolumePluginRestoreStatus {
        /// Where it stands.
        #[schemars(with = "Option<String>")]
        pub phase: Option<VolumePluginPhase>,
        /// The persistent volume that the data goes to.
        #[serde(rename = "volumeID")]
        pub volume_id: Option<String>,
        /// A word about the phase.
        pub message: Option<String>,
        /// When the restore began.
        #[schemars(extend("nullable" = true))]
        pub start_timestamp: Option<Time>,
        /// When it ended.
        #[schemars(extend("nullable" = true))]
        pub completion_timestamp: Option<Time>,
        /// Bytes done and in all.
        pub progress: Option<VolumeOperationProgress>,
    }
}

word! {
    /// Where the work of a plugin stands. A fresh object has none, or an empty one.
    pub enum VolumePluginPhase {
        /// Not begun.
        New,
        /// Data moves.
        InProgress,
        /// All data is there.
        Completed,
        /// It failed; the message says why.
        Failed,
    }
}

/// Bytes of a plugin's work, done and in all.
///
/// Written as `totalBytes` and `bytesDone`. The Go type of the design has no JSON names, so plugins
/// may send `TotalBytes` and `BytesDone`; those are read too, unless the proper ones are there.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "ProgressOnTheWire")]
pub struct VolumeOperationProgress {
    /// Bytes of the volume.
    pub total_bytes: Option<i64>,
    /// Bytes moved so far.
    pub bytes_done: Option<i64>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Both spellings, which the schema must know too: unknown fields are pruned.
#[derive(Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
struct ProgressOnTheWire {
    /// Bytes of the volume.
    total_bytes: Option<i64>,
    /// Bytes moved so far.
    bytes_done: Option<i64>,
    /// `totalBytes` as a plugin without JSON names spells it.
    #[serde(rename = "TotalBytes")]
    go_total_bytes: Option<i64>,
    /// `bytesDone` as a plugin without JSON names spells it.
    #[serde(rename = "BytesDone")]
    go_bytes_done: Option<i64>,
    #[serde(flatten)]
    #[schemars(skip)]
    extra: Extra,
}

impl From<ProgressOnTheWire> for VolumeOperationProgress {
    fn from(wire: ProgressOnTheWire) -> Self {
        Self {
            total_bytes: wire.total_bytes.or(wire.go_total_bytes),
            bytes_done: wire.bytes_done.or(wire.go_bytes_done),
            extra: wire.extra,
        }
    }
}

impl schemars::JsonSchema for VolumeOperationProgress {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VolumeOperationProgress".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ProgressOnTheWire::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{VolumeOperationProgress, VolumePluginBackup, VolumePluginPhase};

    #[test]
    fn both_spellings_of_progress_are_read() {
        for (read, written) in [
            (
                json!({"totalBytes": 9, "bytesDone": 4}),
                json!({"totalBytes": 9, "bytesDone": 4}),
            ),
            (
                json!({"TotalBytes": 9, "BytesDone": 4}),
                json!({"totalBytes": 9, "bytesDone": 4}),
            ),
            (
                json!({"TotalBytes": 1, "totalBytes": 9, "rate": 3}),
                json!({"totalBytes": 9, "rate": 3}),
            ),
            (json!({}), json!({})),
        ] {
            let progress: VolumeOperationProgress = serde_json::from_value(read).unwrap();
            assert_eq!(serde_json::to_value(progress).unwrap(), written);
        }
    }

    #[test]
    fn an_empty_phase_is_kept() {
        let object = json!({
            "metadata": {"name": "snap-1"},
            "spec": {"volume": "pv", "backup": "b", "plugin": "p"},
            "status": {"phase": "", "snapshotID": "", "progress": {}}
        });
        let read: VolumePluginBackup = serde_json::from_value(object.clone()).unwrap();
        let phase = read.status.as_ref().unwrap().phase.clone();
        assert_eq!(phase, Some(VolumePluginPhase::Other(String::new())));
        assert_eq!(serde_json::to_value(read).unwrap(), object);
    }
}
