//! What became of the volumes of a backup: snapshots from the bucket's file, pod volumes from the
//! cluster, where they are live.

use std::collections::BTreeMap;

use bowline_api::{
    files::BackupVolumeInfo,
    names::DATA_MOVER,
    v1::{DataPathPhase, PodVolumeBackup},
};
use serde_json::{Value, json};

use super::facts::{Facts, VolumeStep, Volumes};
use crate::output::describe::Describer;

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
        ("Data Mover", mover(movement.data_mover)),
        ("Uploader Type", movement.uploader_type),
        ("Moved data Size (bytes)", movement.size.to_string()),
    ];
    facts.extend(incremental.map(|size| ("Incremental data Size (bytes)", size.to_string())));
    facts.push(("Result", result(info)));
    Some(facts)
}

fn mover(name: String) -> String {
    match name.is_empty() {
        true => DATA_MOVER.to_owned(),
        false => name,
    }
}

fn pods(d: &mut Describer<'_>, volumes: &[PodVolumeBackup], details: bool) {
    let Some(first) = volumes.first() else {
        d.line("\tPod Volume Backups: <none included>");
        return;
    };
    let uploader = uploader(first);
    if !details {
        d.line(format_args!("\tPod Volume Backups - {uploader} ({MORE}):"));
        for (phase, group) in by_phase(volumes) {
            d.field(2, &phase, group.len());
        }
        return;
    }
    d.line(format_args!("\tPod Volume Backups - {uploader}:"));
    for (phase, group) in by_phase(volumes) {
        d.line(format_args!("\t\t{phase}:"));
        for (pod, volumes) in by_pod(&group) {
            d.line(format_args!("\t\t\t{pod}: {}", volumes.join(", ")));
        }
    }
}

fn uploader(volume: &PodVolumeBackup) -> String {
    let uploader = volume.spec.uploader_type.as_ref();
    uploader.map(ToString::to_string).unwrap_or_default()
}

/// Groups in the order of their headings; a phase we do not know comes last, under its own name.
fn by_phase(volumes: &[PodVolumeBackup]) -> Vec<(String, Vec<&PodVolumeBackup>)> {
    const ORDER: [&str; 8] = [
        "Completed",
        "Failed",
        "Canceled",
        "In Progress",
        "Canceling",
        "Prepared",
        "Accepted",
        "New",
    ];
    let mut groups: Vec<(String, Vec<&PodVolumeBackup>)> =
        ORDER.map(|name| (name.to_owned(), Vec::new())).into();
    for volume in volumes {
        let phase = volume.status.as_ref().and_then(|s| s.phase.as_ref());
        let heading = match phase {
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

fn by_pod(volumes: &[&PodVolumeBackup]) -> BTreeMap<String, Vec<String>> {
    let mut pods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for volume in volumes {
        let pod = &volume.spec.pod;
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let key = format!("{}/{}", name(&pod.namespace), name(&pod.name));
        pods.entry(key).or_default().push(decorated(volume));
    }
    pods.values_mut().for_each(|volumes| volumes.sort());
    pods
}

/// The volume's name, and how far or how large it is.
fn decorated(volume: &PodVolumeBackup) -> String {
    let name = &volume.spec.volume;
    let status = volume.status.clone().unwrap_or_default();
    let progress = status.progress.unwrap_or_default();
    let total = progress.total_bytes.unwrap_or_default();
    let done = progress.bytes_done.unwrap_or_default();
    let incremental = status.incremental_bytes.unwrap_or_default();
    match status.phase {
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

/// The value of `status.backupVolumes`.
pub(super) fn structured(facts: &Facts) -> Value {
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
        "podVolumeBackups": structured_pods(&facts.pod_volumes, facts.details),
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
        "dataMover": mover(movement.data_mover),
        "uploaderType": movement.uploader_type,
        "result": result(info),
    });
    if movement.size > 0 || incremental > 0 {
        value["size"] = json!(movement.size);
        value["incrementalSize"] = json!(incremental);
    }
    value
}

fn structured_pods(volumes: &[PodVolumeBackup], details: bool) -> Value {
    let Some(first) = volumes.first() else {
        return json!("<none included>");
    };
    let group = |(phase, group): (String, Vec<&PodVolumeBackup>)| {
        let value = match details {
            false => json!(group.len()),
            true => by_pod(&group)
                .into_iter()
                .map(|(pod, volumes)| json!({ pod: volumes.join(", ") }))
                .collect(),
        };
        (phase, value)
    };
    let phases: Value = by_phase(volumes).into_iter().map(group).collect();
    // The key is misspelled by Velero, and scripts read it.
    json!({ "uploderType": uploader(first), "podVolumeBackupsDetails": phases })
}
