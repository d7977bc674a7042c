//! The CSI snapshot that a claim is made of, read from the claim's data source and what that leads to.
//! Pure.

use std::collections::BTreeMap;

use bowline_api::{Quantity, files::CsiSnapshotInfo, names::annotation};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::Value;

/// A snapshot, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Csi {
    pub(super) info: CsiSnapshotInfo,
    /// What the driver says is wrong with it.
    pub(super) error: Option<String>,
}

/// The VolumeSnapshot that a claim is made of, by name.
pub(super) fn source(claim: &PersistentVolumeClaim) -> Option<String> {
    let spec = claim.spec.as_ref()?;
    let source = spec
        .data_source
        .as_ref()
        .map(|of| (of.kind.as_str(), &of.name));
    let reference = spec
        .data_source_ref
        .as_ref()
        .map(|of| (of.kind.as_str(), &of.name));
    let (kind, name) = source.or(reference)?;
    (kind == "VolumeSnapshot").then(|| name.clone())
}

impl Csi {
    /// What a VolumeSnapshot says; Velero writes the rest down in its annotations.
    pub(super) fn of(snapshot: &Value, annotations: &BTreeMap<String, String>) -> Self {
        let noted = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        let text = |pointer: &str| snapshot.pointer(pointer).and_then(Value::as_str);
        let content = text("/status/boundVolumeSnapshotContentName")
            .or_else(|| text("/spec/source/volumeSnapshotContentName"));
        let size = text("/status/restoreSize")
            .map(str::to_owned)
            .unwrap_or_else(|| noted(annotation::CSI_VOLUME_SNAPSHOT_RESTORE_SIZE));
        let size = size.parse::<Quantity>().ok().and_then(|size| size.value());
        Self {
            info: CsiSnapshotInfo {
                snapshot_handle: noted(annotation::CSI_VOLUME_SNAPSHOT_HANDLE),
                size: size.unwrap_or_default(),
                driver: noted(annotation::CSI_DRIVER_NAME),
                vsc_name: content.unwrap_or_default().to_owned(),
                ready_to_use: snapshot
                    .pointer("/status/readyToUse")
                    .and_then(Value::as_bool),
                ..CsiSnapshotInfo::default()
            },
            error: text("/status/error/message").map(str::to_owned),
        }
    }

    /// Fills in what only its VolumeSnapshotContent says.
    pub(super) fn with_content(&mut self, content: &Value) {
        let text = |pointer: &str| content.pointer(pointer).and_then(Value::as_str);
        let info = &mut self.info;
        if let Some(handle) = text("/status/snapshotHandle")
            .or_else(|| text("/spec/source/snapshotHandle"))
            .filter(|handle| !handle.is_empty())
        {
            handle.clone_into(&mut info.snapshot_handle);
        }
        if let Some(driver) = text("/spec/driver") {
            driver.clone_into(&mut info.driver);
        }
        let size = content
            .pointer("/status/restoreSize")
            .and_then(Value::as_i64);
        if let Some(size) = size.filter(|size| *size > 0) {
            info.size = size;
        }
        let group = text("/status/volumeGroupSnapshotHandle").map(str::to_owned);
        info.volume_group_snapshot_handle = group;
        if self.error.is_none() {
            self.error = text("/status/error/message").map(str::to_owned);
        }
    }

    /// Fills in what the backup says of it, where the cluster does not.
    pub(super) fn or_else(&self, backup: Option<&CsiSnapshotInfo>) -> CsiSnapshotInfo {
        let mut info = self.info.clone();
        let Some(backup) = backup else { return info };
        for (ours, theirs) in [
            (&mut info.snapshot_handle, &backup.snapshot_handle),
            (&mut info.driver, &backup.driver),
        ] {
            if ours.is_empty() {
                ours.clone_from(theirs);
            }
        }
        if info.size == 0 {
            info.size = backup.size;
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_says_which_snapshot_it_is_made_of() {
        let claim = |spec: Value| serde_json::from_value(json!({"spec": spec})).unwrap();
        let of =
            |kind: &str| json!({"apiGroup": "snapshot.storage.k8s.io", "kind": kind, "name": "vs"});
        let name = Some("vs".to_owned());
        assert_eq!(
            source(&claim(json!({"dataSource": of("VolumeSnapshot")}))),
            name
        );
        assert_eq!(
            source(&claim(json!({"dataSourceRef": of("VolumeSnapshot")}))),
            name
        );
        assert_eq!(
            source(&claim(json!({"dataSource": of("PersistentVolumeClaim")}))),
            None
        );
        assert_eq!(source(&claim(json!({}))), None);
    }

    #[test]
    fn annotations_stand_in_until_the_driver_has_spoken() {
        let noted = [
            ("velero.io/csi-volumesnapshot-handle", "noted"),
            ("velero.io/csi-driver-name", "d"),
            ("velero.io/csi-volumesnapshot-restore-size", "1Ki"),
        ];
        let noted = noted.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let snapshot = json!({"spec": {"source": {"volumeSnapshotContentName": "c"}}});
        let mut csi = Csi::of(&snapshot, &noted.into());
        let told = |csi: &Csi| {
            let CsiSnapshotInfo {
                snapshot_handle,
                size,
                driver,
                vsc_name,
                ..
            } = csi.info.clone();
            (snapshot_handle, size, driver, vsc_name)
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(told(&csi), (text("noted"), 1024, text("d"), text("c")));
        csi.with_content(&json!({
            "spec": {"driver": "d2", "source": {"snapshotHandle": "h"}},
            "status": {"restoreSize": 2048, "error": {"message": "no"}},
        }));
        assert_eq!(told(&csi), (text("h"), 2048, text("d2"), text("c")));
        assert_eq!(csi.error.as_deref(), Some("no"));
    }
}
