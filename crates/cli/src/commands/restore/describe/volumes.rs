//! Volumes that came back from snapshots, by the bucket's file.

use bowline_api::files::{RestoreMethod, RestoreVolumeInfo};
use serde_json::{Map, Value, json};

use super::facts::Facts;
use crate::{
    download::file::File,
    output::{
        describe::{self, Describer},
        volumes::Volume,
    },
};

const MORE: &str = "specify --details for more information";

/// For people. Nothing if there is no such file, which old versions did not write.
pub(super) fn text(d: &mut Describer<'_>, facts: &Facts) {
    let infos = match &facts.volumes {
        File::Found(infos) => infos,
        File::Missing => return,
        File::Failed(why) => {
            d.line(format_args!("\t<error getting restore volume info: {why}>"));
            return;
        }
        File::Unreadable(why) => {
            d.line(format_args!("\t<error reading restore volume info: {why}>"));
            return;
        }
    };
    let infos = from_csi(infos);
    d.blank();
    if infos.is_empty() {
        d.line("CSI Snapshot Restores: <none included>");
        return;
    }
    d.line("CSI Snapshot Restores:");
    for info in infos {
        d.line(format_args!("\t{}:", claim(info)));
        let (heading, _) = headings(info);
        if !facts.details {
            d.line(format_args!("\t\t{heading}: {MORE}"));
            continue;
        }
        d.line(format_args!("\t\t{heading}:"));
        for (label, _, value) in fields(info) {
            d.line(format_args!("\t\t\t{label}: {value}"));
        }
    }
}

/// The section `All Volumes`, with details only.
pub(super) fn all(d: &mut Describer<'_>, facts: &Facts) {
    if facts.details {
        describe::volumes::text(d, &of(facts));
    }
}

/// The same for programs; none if there is nothing to say.
pub(super) fn structured_all(facts: &Facts) -> Option<Value> {
    let all = of(facts);
    let wanted = facts.details && !all.is_empty();
    wanted.then(|| describe::volumes::structured(&all))
}

fn of(facts: &Facts) -> Vec<Volume> {
    match &facts.volumes {
        File::Found(infos) => infos.iter().map(Volume::from).collect(),
        _ => Vec::new(),
    }
}

/// For programs: those from CSI snapshots, and those from native ones, of which Velero says nothing.
pub(super) fn structured(facts: &Facts) -> (Value, Value) {
    let infos = match &facts.volumes {
        File::Found(infos) => infos,
        File::Missing => return both("<none included or not detectable>"),
        File::Failed(why) => return both(&format!("<error getting restore volume info: {why}>")),
        File::Unreadable(why) => {
            return both(&format!("<error reading restore volume info: {why}>"));
        }
    };
    let csi = |info: &RestoreVolumeInfo| {
        let (_, key) = headings(info);
        let value = match facts.details {
            false => json!(MORE),
            true => fields(info)
                .into_iter()
                .map(|(_, key, value)| (key.to_owned(), json!(value)))
                .collect(),
        };
        (claim(info), json!({ key: value }))
    };
    let native = |info: &RestoreVolumeInfo| {
        let snapshot = info.native_snapshot_info.clone().unwrap_or_default();
        let value = match facts.details {
            false => json!(MORE),
            true => json!({
                "snapshotID": snapshot.snapshot_handle,
                "type": snapshot.volume_type,
                "availabilityZone": snapshot.volume_az,
                "IOPS": snapshot.iops,
            }),
        };
        (info.pv_name.clone().unwrap_or_default(), value)
    };
    let is_native =
        |info: &&RestoreVolumeInfo| info.restore_method == Some(RestoreMethod::NativeSnapshot);
    (
        or_none(from_csi(infos).into_iter().map(csi).collect()),
        or_none(infos.iter().filter(is_native).map(native).collect()),
    )
}

fn both(text: &str) -> (Value, Value) {
    (json!(text), json!(text))
}

fn or_none(entries: Map<String, Value>) -> Value {
    match entries.is_empty() {
        true => json!("<none included>"),
        false => Value::Object(entries),
    }
}

/// Those from CSI snapshots; first those whose data was not moved.
fn from_csi(infos: &[RestoreVolumeInfo]) -> Vec<&RestoreVolumeInfo> {
    let is_csi =
        |info: &&RestoreVolumeInfo| info.restore_method == Some(RestoreMethod::CsiSnapshot);
    let mut infos: Vec<_> = infos.iter().filter(is_csi).collect();
    infos.sort_by_key(|info| info.snapshot_data_moved);
    infos
}

fn claim(info: &RestoreVolumeInfo) -> String {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    format!("{}/{}", text(&info.pvc_namespace), text(&info.pvc_name))
}

/// How it came back, for people and for programs.
fn headings(info: &RestoreVolumeInfo) -> (&'static str, &'static str) {
    match info.snapshot_data_moved {
        true => ("Data Movement", "dataMovement"),
        false => ("Snapshot", "snapshot"),
    }
}

/// What is known of it: labels for people, keys for programs, values.
fn fields(info: &RestoreVolumeInfo) -> [(&'static str, &'static str, String); 3] {
    if info.snapshot_data_moved {
        let movement = info.snapshot_data_movement_info.clone().unwrap_or_default();
        return [
            ("Operation ID", "operationID", movement.operation_id),
            ("Data Mover", "dataMover", movement.data_mover),
            ("Uploader Type", "uploaderType", movement.uploader_type),
        ];
    }
    let snapshot = info.csi_snapshot_info.clone().unwrap_or_default();
    [
        (
            "Snapshot Content Name",
            "snapshotContentName",
            snapshot.vsc_name,
        ),
        (
            "Storage Snapshot ID",
            "storageSnapshotID",
            snapshot.snapshot_handle,
        ),
        ("CSI Driver", "csiDriver", snapshot.driver),
    ]
}
