//! What became of the volumes of a backup: snapshots from the bucket's file, copies that go on from the
//! cluster, where they are live.

use bowline_api::files::BackupVolumeInfo;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{Facts, VolumeStep, Volumes};
use crate::output::{
    describe::{
        self, Describer, live,
        movements::mover,
        pods::{self, Phases, PodVolume},
    },
    volumes::Volume,
};

const MORE: &str = "specify --details for more information";
const INCLUDED: &str = "included, specify --details for more information";

/// The section `Backup Volumes`.
pub(super) fn text(d: &mut Describer<'_>, facts: &Facts) {
    d.line("Backup Volumes:");
    match &facts.volumes {
        Ok(volumes) => {
            native(d, volumes, facts.details);
            d.blank();
            csi(d, volumes, facts.details);
            d.blank();
            pods(d, &facts.pod_volumes, facts.details);
        }
        Err((step, why)) => {
            let (verb, what) = match step {
                VolumeStep::Get => ("getting", "backup volume info"),
                VolumeStep::Read => ("reading", "backup volume info"),
                VolumeStep::Native => ("concluding", "native snapshot info"),
                VolumeStep::Csi => ("concluding", "CSI snapshot info"),
            };
            d.line(format_args!("\t<error {verb} {what}: {why}>"));
        }
    }
    if !facts.plugin_volumes.is_empty() {
        d.blank();
        let heading = "Volume Plugin Backups";
        live::text(d, 1, heading, &facts.plugin_volumes, facts.details);
    }
    if !facts.movements.is_empty() {
        d.blank();
        live::text(d, 1, "Data Uploads", &facts.movements, facts.details);
    }
}

/// The section `All Volumes`, with details only.
pub(super) fn all(d: &mut Describer<'_>, facts: &Facts) {
    if facts.details {
        describe::volumes::text(d, &of(facts));
    }
}

/// All volumes that the bucket knows; none if it could not be asked.
fn of(facts: &Facts) -> Vec<Volume> {
    let known = facts.volumes.as_ref().map(|volumes| &volumes.all);
    known.into_iter().flatten().map(Volume::from).collect()
}

fn native(d: &mut Describer<'_>, volumes: &Volumes, details: bool) {
    if volumes.native.is_empty() {
        d.line("\tVelero-Native Snapshots: <none included>");
        return;
    }
    d.line("\tVelero-Native Snapshots:");
    for info in &volumes.native {
        let pv = info.pv_name.as_deref().unwrap_or_default();
        if !details {
            d.line(format_args!("\t\t{pv}: {MORE}"));
            continue;
        }
        let snapshot = info.native_snapshot_info.clone().unwrap_or_default();
        d.line(format_args!("\t\t{pv}:"));
        d.field(3, "Snapshot ID", snapshot.snapshot_handle);
        d.field(3, "Type", snapshot.volume_type);
        d.field(3, "Availability Zone", snapshot.volume_az);
        d.field(3, "IOPS", snapshot.iops);
        d.field(3, "Result", result(info));
    }
}

fn csi(d: &mut Describer<'_>, volumes: &Volumes, details: bool) {
    if volumes.csi.is_empty() {
        d.line(format_args!("\tCSI Snapshots: {}", no_csi(volumes)));
        return;
    }
    d.line("\tCSI Snapshots:");
    for info in &volumes.csi {
        d.line(format_args!("\t\t{}:", claim(info)));
        for (heading, facts) in [
            ("Snapshot", snapshot_facts(info)),
            ("Data Movement", movement_facts(info)),
        ] {
            let Some(facts) = facts else { continue };
            if !details {
                d.line(format_args!("\t\t\t{heading}: {INCLUDED}"));
                continue;
            }
            d.line(format_args!("\t\t\t{heading}:"));
            for (label, value) in facts {
                d.line(format_args!("\t\t\t\t{label}: {value}"));
            }
        }
    }
}

fn no_csi(volumes: &Volumes) -> &'static str {
    match volumes.is_legacy {
        true => "<none included or not detectable>",
        false => "<none included>",
    }
}

fn claim(info: &BackupVolumeInfo) -> String {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    format!("{}/{}", text(&info.pvc_namespace), text(&info.pvc_name))
}

fn result(info: &BackupVolumeInfo) -> String {
    info.result
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// What is known of a local snapshot, if there is one.
fn snapshot_facts(info: &BackupVolumeInfo) -> Option<Vec<(&'static str, String)>> {
    if !info.preserve_local_snapshot {
        return None;
    }
    let snapshot = info.csi_snapshot_info.clone().unwrap_or_default();
    let operation = snapshot.operation_id.filter(|id| !id.is_empty());
    let operation = operation.filter(|_| !info.snapshot_data_moved);
    let mut facts: Vec<_> = operation
        .map(|id| ("Operation ID", id))
        .into_iter()
        .collect();
    facts.extend([
        ("Snapshot Content Name", snapshot.vsc_name),
        ("Storage Snapshot ID", snapshot.snapshot_handle),
        ("Snapshot Size (bytes)", snapshot.size.to_string()),
        ("CSI Driver", snapshot.driver),
        ("Result", result(info)),
    ]);
    Some(facts)
}

/// What is known of the movement of a snapshot's data, if it was moved.
fn movement_facts(info: &BackupVolumeInfo) -> Option<Vec<(&'static str, String)>> {
    if !info.snapshot_data_moved {
        return None;
    }
    let movement = info.snapshot_data_movement_info.clone().unwrap_or_default();
    let incremental = movement.incremental_size.filter(|size| *size > 0);
    let mut facts = vec![
        ("Operation ID", movement.operation_id),
        ("Data Mover", mover(Some(&movement.data_mover))),
        ("Uploader Type", movement.uploader_type),
        ("Moved data Size (bytes)", movement.size.to_string()),
    ];
    facts.extend(incremental.map(|size| ("Incremental data Size (bytes)", size.to_string())));
    facts.push(("Result", result(info)));
    Some(facts)
}

fn pods(d: &mut Describer<'_>, volumes: &[PodVolume], details: bool) {
    if volumes.is_empty() {
        d.line("\tPod Volume Backups: <none included>");
        return;
    }
    let uploader = pods::uploader_of(volumes);
    match details {
        true => d.line(format_args!("\tPod Volume Backups - {uploader}:")),
        false => d.line(format_args!("\tPod Volume Backups - {uploader} ({MORE}):")),
    }
    Phases::OF_BACKUP.text(d, 2, volumes, details);
}

/// The value of `status.backupVolumes`.
pub(super) fn structured(facts: &Facts, now: Timestamp) -> Value {
    let mut value = structured_volumes(facts, now);
    if !facts.plugin_volumes.is_empty() {
        value["volumePluginBackups"] = live::structured(&facts.plugin_volumes, facts.details, now);
    }
    if !facts.movements.is_empty() {
        value["dataUploads"] = live::structured(&facts.movements, facts.details, now);
    }
    let all = of(facts);
    if facts.details && !all.is_empty() {
        value["allVolumes"] = describe::volumes::structured(&all);
    }
    value
}

fn structured_volumes(facts: &Facts, now: Timestamp) -> Value {
    let volumes = match &facts.volumes {
        Ok(volumes) => volumes,
        Err((step, why)) => {
            let (key, text) = match step {
                VolumeStep::Get => (
                    "errorGetBackupVolumeInfo",
                    "error getting backup volume info",
                ),
                VolumeStep::Read => (
                    "errorReadBackupVolumeInfo",
                    "error reading backup volume info",
                ),
                VolumeStep::Native => (
                    "errorConcludeNativeSnapshot",
                    "error concluding native snapshot info",
                ),
                VolumeStep::Csi => (
                    "errorConcludeCSISnapshot",
                    "error concluding CSI snapshot info",
                ),
            };
            return json!({ key: format!("{text}: {why}") });
        }
    };
    json!({
        "nativeSnapshots": structured_native(volumes, facts.details),
        "csiSnapshots": structured_csi(volumes, facts.details),
        "podVolumeBackups": structured_pods(&facts.pod_volumes, facts.details, now),
    })
}

fn structured_native(volumes: &Volumes, details: bool) -> Value {
    if volumes.native.is_empty() {
        return json!("<none included>");
    }
    let entry = |info: &BackupVolumeInfo| {
        let snapshot = info.native_snapshot_info.clone().unwrap_or_default();
        let value = match details {
            false => json!(MORE),
            true => json!({
                "snapshotID": snapshot.snapshot_handle,
                "type": snapshot.volume_type,
                "availabilityZone": snapshot.volume_az,
                "IOPS": snapshot.iops,
                "result": result(info),
            }),
        };
        (info.pv_name.clone().unwrap_or_default(), value)
    };
    volumes.native.iter().map(entry).collect()
}

fn structured_csi(volumes: &Volumes, details: bool) -> Value {
    if volumes.csi.is_empty() {
        return json!(no_csi(volumes));
    }
    let entry = |info: &BackupVolumeInfo| {
        let mut value = json!({});
        if info.preserve_local_snapshot {
            value["snapshot"] = match details {
                true => structured_snapshot(info),
                false => json!(INCLUDED),
            };
        }
        if info.snapshot_data_moved {
            value["dataMovement"] = match details {
                true => structured_movement(info),
                false => json!(INCLUDED),
            };
        }
        (claim(info), value)
    };
    volumes.csi.iter().map(entry).collect()
}

fn structured_snapshot(info: &BackupVolumeInfo) -> Value {
    let snapshot = info.csi_snapshot_info.clone().unwrap_or_default();
    let mut value = json!({
        "snapshotContentName": snapshot.vsc_name,
        "storageSnapshotID": snapshot.snapshot_handle,
        "snapshotSize(bytes)": snapshot.size,
        "csiDriver": snapshot.driver,
        "result": result(info),
    });
    if !info.snapshot_data_moved {
        value["operationID"] = json!(snapshot.operation_id.unwrap_or_default());
    }
    value
}

fn structured_movement(info: &BackupVolumeInfo) -> Value {
    let movement = info.snapshot_data_movement_info.clone().unwrap_or_default();
    let incremental = movement.incremental_size.unwrap_or_default();
    let mut value = json!({
        "operationID": movement.operation_id,
        "dataMover": mover(Some(&movement.data_mover)),
        "uploaderType": movement.uploader_type,
        "result": result(info),
    });
    if movement.size > 0 || incremental > 0 {
        value["size"] = json!(movement.size);
        value["incrementalSize"] = json!(incremental);
    }
    value
}

fn structured_pods(volumes: &[PodVolume], details: bool, now: Timestamp) -> Value {
    if volumes.is_empty() {
        return json!("<none included>");
    }
    // The key is misspelled by Velero, and scripts read it.
    let mut value = json!({
        "uploderType": pods::uploader_of(volumes),
        "podVolumeBackupsDetails": Phases::OF_BACKUP.structured(volumes, details),
    });
    if details {
        value["podVolumeBackupsList"] = pods::list(volumes, now);
    }
    value
}
