//! Our kinds as CustomResourceDefinitions.
//!
//! None of them has a status subresource: Velero's clients write the status with the object, and a
//! `/status` endpoint would make the API server drop it there.

use serde_json::{Value, json};

use crate::{Column, ColumnType, GROUP, VeleroResource, v1, v2alpha1};

/// Every kind, in the order of their names.
#[must_use]
pub fn all() -> Vec<Value> {
    vec![
        of::<v1::BackupRepository>(),
        of::<v1::Backup>(),
        of::<v1::BackupStorageLocation>(),
        of::<v2alpha1::DataDownload>(),
        of::<v2alpha1::DataUpload>(),
        of::<v1::DeleteBackupRequest>(),
        of::<v1::DownloadRequest>(),
        of::<v1::PodVolumeBackup>(),
        of::<v1::PodVolumeRestore>(),
        of::<v1::Restore>(),
        of::<v1::Schedule>(),
        of::<v1::ServerStatusRequest>(),
        of::<v1::VolumePluginBackup>(),
        of::<v1::VolumePluginRestore>(),
        of::<v1::VolumeSnapshotLocation>(),
    ]
}

/// One kind's definition.
#[must_use]
pub fn of<K: VeleroResource>() -> Value {
    let mut names = json!({
        "kind": K::KIND,
        "listKind": format!("{}List", K::KIND),
        "plural": K::PLURAL,
        "singular": K::KIND.to_lowercase(),
    });
    if !K::SHORT_NAMES.is_empty() {
        names["shortNames"] = json!(K::SHORT_NAMES);
    }
    let (spec, status) = K::schemas();
    let mut version = json!({
        "name": K::VERSION,
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": {
            "type": "object",
            "properties": {
                "apiVersion": { "type": "string" },
                "kind": { "type": "string" },
                "metadata": { "type": "object" },
                "spec": spec,
                "status": status,
            },
        } },
    });
    if !K::COLUMNS.is_empty() {
        version["additionalPrinterColumns"] = K::COLUMNS.iter().map(column).collect();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{GROUP}", K::PLURAL),
            "labels": { "component": "velero" },
        },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    })
}

fn column(column: &Column) -> Value {
    let mut value = json!({ "name": column.name, "jsonPath": column.path });
    match column.kind {
        ColumnType::Text => value["type"] = "string".into(),
        ColumnType::Date => value["type"] = "date".into(),
        ColumnType::Boolean => value["type"] = "boolean".into(),
        ColumnType::Int64 => {
            value["type"] = "integer".into();
            value["format"] = "int64".into();
        }
    }
    if column.priority > 0 {
        value["priority"] = column.priority.into();
    }
    value
}
