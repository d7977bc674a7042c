//! Moving the data of CSI snapshots into the bucket, and back: what DataUploads and DataDownloads look
//! like. Pure; who moves the data is the process of a node.

use bowline_api::{
    StringMap, VeleroResource,
    names::{BOWLINE_MOVER, DATA_MOVER, annotation, label, label_value, uploader_setting},
    v1::{Backup, Restore},
    v2alpha1::{
        CsiSnapshotSpec, DataDownload, DataDownloadSpec, DataUpload, DataUploadSpec,
        TargetVolumeSpec,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{action::text, csi::Cut, restore::pod_volume::request_name};

/// DataUploads, as resources are named.
pub const UPLOADS: &str = "datauploads.velero.io";
/// The action whose operations uploads are.
pub const UPLOAD_ACTION: &str = "velero.io/csi-pvc-backupper";
/// The action whose operations downloads are.
pub const DOWNLOAD_ACTION: &str = "velero.io/csi-pvc-restorer";

/// Who moves data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mover<'a> {
    /// The processes of this program, into repositories of restic's format.
    Ours,
    /// Velero's own, into repositories of kopia's.
    Velero,
    /// Somebody else, who looks after it.
    Other(&'a str),
}

impl<'a> Mover<'a> {
    /// Who is to move data that is not moved yet, by the spec of a backup.
    #[must_use]
    pub fn asked(name: Option<&'a str>) -> Self {
        match Self::of(name) {
            Self::Velero => Self::Ours,
            mover => mover,
        }
    }

    /// Who moves or has moved data, as DataUploads and DataDownloads have it.
    #[must_use]
    pub fn of(name: Option<&'a str>) -> Self {
        match name.unwrap_or_default() {
            BOWLINE_MOVER => Self::Ours,
            "" | DATA_MOVER => Self::Velero,
            other => Self::Other(other),
        }
    }

    /// As DataUploads have it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Ours => BOWLINE_MOVER,
            Self::Velero => DATA_MOVER,
            Self::Other(other) => other,
        }
    }
}

/// The operation that an upload is.
#[must_use]
pub fn upload_operation(backup_uid: &str, claim_uid: &str) -> String {
    label_value(&format!("du-{backup_uid}.{claim_uid}"))
}

/// The operation that a download is; the claim is that of the backup.
#[must_use]
pub fn download_operation(restore_uid: &str, claim_uid: &str) -> String {
    label_value(&format!("dd-{restore_uid}.{claim_uid}"))
}

/// The DataUpload of a claim's snapshot. Its name is given by the cluster.
#[must_use]
pub fn upload(claim: &Value, cut: &Cut, backup: &Backup, namespace: &str) -> DataUpload {
    let snapshot_class = text(&cut.snapshot, "/spec/volumeSnapshotClassName");
    let driver = text(&cut.content, "/spec/driver");
    let some = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
    let spec = DataUploadSpec {
        snapshot_type: "CSI".to_owned(),
        csi_snapshot: Some(CsiSnapshotSpec {
            volume_snapshot: cut.name().to_owned(),
            storage_class: text(claim, "/spec/storageClassName").to_owned(),
            snapshot_class: some(snapshot_class),
            driver: some(driver),
            ..CsiSnapshotSpec::default()
        }),
        source_pvc: text(claim, "/metadata/name").to_owned(),
        source_namespace: text(claim, "/metadata/namespace").to_owned(),
        datamover: some(Mover::asked(backup.spec.datamover.as_deref()).name()),
        backup_storage_location: backup.spec.storage_location.clone().unwrap_or_default(),
        data_mover_config: upload_settings(backup),
        operation_timeout: backup.spec.csi_snapshot_timeout.clone().unwrap_or_default(),
        ..DataUploadSpec::default()
    };
    let mut upload = DataUpload::new(namespace, "", spec);
    let (name, uid) = (backup.name_any(), backup.uid().unwrap_or_default());
    let claim_uid = text(claim, "/metadata/uid");
    let labels = [
        (label::BACKUP_NAME, label_value(&name)),
        (label::BACKUP_UID, uid.clone()),
        (label::PVC_UID, claim_uid.to_owned()),
        (label::ASYNC_OPERATION_ID, upload_operation(&uid, claim_uid)),
    ];
    for (key, value) in labels {
        upload.labels_mut().insert(key.to_owned(), value);
    }
    let content = text(&cut.content, "/metadata/name").to_owned();
    let annotations = upload.annotations_mut();
    annotations.insert(annotation::SNAPSHOT_CONTENT.to_owned(), content);
    if let Some(at) = cut.taken_at() {
        annotations.insert(annotation::SNAPSHOT_TIME.to_owned(), at.to_string());
    }
    named_after(&mut upload, &name);
    owned(&mut upload, backup);
    upload
}

/// Settings of a backup's uploader, as movers have them.
fn upload_settings(backup: &Backup) -> Option<StringMap> {
    let config = backup.spec.uploader_config.as_ref()?;
    let files = config.parallel_files_upload.filter(|n| *n > 0)?;
    let setting = uploader_setting::PARALLEL_FILES_UPLOAD.to_owned();
    Some(StringMap::from([(setting, files.to_string())]))
}

/// What an upload wants its download to know, and the settings of a restore's uploader.
fn download_settings(restore: &Restore, result: Option<StringMap>) -> Option<StringMap> {
    let mut settings = result.unwrap_or_default();
    let config = restore.spec.uploader_config.clone().unwrap_or_default();
    if let Some(files) = config.parallel_files_download.filter(|n| *n > 0) {
        let setting = uploader_setting::PARALLEL_FILES_DOWNLOAD.to_owned();
        settings.insert(setting, files.to_string());
    }
    if let Some(sparse) = config.write_sparse_files {
        let setting = uploader_setting::WRITE_SPARSE_FILES.to_owned();
        settings.insert(setting, sparse.to_string());
    }
    Some(settings).filter(|settings| !settings.is_empty())
}

/// The DataDownload of what an upload has moved, into a claim of this namespace and name. `claim` is
/// the claim as the backup has it; `location` is that of the backup, by the name that it has here. Its
/// own name follows from the restore and the claim, so that a restore that is made again finds it.
#[must_use]
pub fn download(
    upload: &DataUpload,
    claim: &Value,
    (target_namespace, target): (&str, &str),
    restore: &Restore,
    location: &str,
) -> DataDownload {
    let status = upload.status.clone().unwrap_or_default();
    let size = status.progress.and_then(|progress| progress.total_bytes);
    let spec = DataDownloadSpec {
        target_volume: TargetVolumeSpec {
            pvc: target.to_owned(),
            namespace: target_namespace.to_owned(),
            ..TargetVolumeSpec::default()
        },
        backup_storage_location: location.to_owned(),
        datamover: upload.spec.datamover.clone(),
        snapshot_id: status.snapshot_id.unwrap_or_default(),
        source_namespace: upload.spec.source_namespace.clone(),
        data_mover_config: download_settings(restore, status.data_mover_result),
        operation_timeout: upload.spec.operation_timeout.clone(),
        node_os: status.node_os,
        snapshot_size: size,
        ..DataDownloadSpec::default()
    };
    let (name, uid) = (restore.name_any(), restore.uid().unwrap_or_default());
    let namespace = restore.namespace().unwrap_or_default();
    let operation = download_operation(&uid, text(claim, "/metadata/uid"));
    let named = request_name(&name, &[&operation]);
    let mut download = DataDownload::new(&namespace, &named, spec);
    let labels = [
        (label::RESTORE_NAME, label_value(&name)),
        (label::RESTORE_UID, uid),
        (label::ASYNC_OPERATION_ID, operation),
    ];
    for (key, value) in labels {
        download.labels_mut().insert(key.to_owned(), value);
    }
    owned(&mut download, restore);
    download
}

/// A claim whose volume comes from a download: nobody may make one for it, so it asks for a label that
/// only that volume gets.
pub fn await_download(claim: &mut Value, (namespace, name): (&str, &str), random: &str) {
    let wanted = label_value(&format!("{namespace}.{name}.{random}"));
    if let Some(spec) = claim["spec"].as_object_mut() {
        for field in ["volumeName", "dataSource", "dataSourceRef"] {
            spec.remove(field);
        }
        // What it selected before was one of its own volumes.
        let selector = json!({"matchLabels": {label::DYNAMIC_PV_RESTORE: wanted}});
        spec.insert("selector".to_owned(), selector);
    }
}

fn named_after<K: VeleroResource>(object: &mut K, owner: &str) {
    let metadata = object.meta_mut();
    metadata.name = None;
    metadata.generate_name = Some(format!("{owner}-"));
}

fn owned<K: VeleroResource>(object: &mut K, owner: &impl VeleroResource) {
    object.meta_mut().owner_references = Some(vec![owner_reference(owner)]);
}

/// An object as the owner of others.
#[must_use]
pub fn owner_reference<K: VeleroResource>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests;
