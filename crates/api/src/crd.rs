//! Our kinds as CustomResourceDefinitions.
//!
//! None of them has a status subresource: Velero's clients write the status with the object, and a
//! `/status` endpoint would make the API server drop it there.

use serde_json::{Value, json};

use crate::{Column, ColumnType, GROUP, VeleroResource, v1, v2alpha1};

/// Every kind's definition, in the order of their names.
#[must_use]
pub fn all() -> Vec<Value> {
    KINDS.iter().map(|kind| (kind.definition)()).collect()
}

/// A kind, for those who treat all alike.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// `Backup`.
    pub name: &'static str,
    /// `v1`.
    pub version: &'static str,
    /// `backups`.
    pub plural: &'static str,
    /// Its CustomResourceDefinition.
    pub definition: fn() -> Value,
    /// Reads an object as the kind's type and writes it again.
    pub rewrite: fn(Value) -> serde_json::Result<Value>,
}

/// Every kind, in the order of their names.
pub const KINDS: &[Kind] = &[
    kind::<v1::BackupRepository>(),
    kind::<v1::Backup>(),
    kind::<v1::BackupStorageLocation>(),
    kind::<v2alpha1::DataDownload>(),
    kind::<v2alpha1::DataUpload>(),
    kind::<v1::DeleteBackupRequest>(),
    kind::<v1::DownloadRequest>(),
    kind::<v1::PodVolumeBackup>(),
    kind::<v1::PodVolumeRestore>(),
    kind::<v1::Restore>(),
    kind::<v1::Schedule>(),
    kind::<v1::ServerStatusRequest>(),
    kind::<v1::VolumePluginBackup>(),
    kind::<v1::VolumePluginRestore>(),
    kind::<v1::VolumeSnapshotLocation>(),
];

const fn kind<K: VeleroResource>() -> Kind {
    Kind {
        name: K::KIND,
        version: K::VERSION,
        plural: K::PLURAL,
        definition: of::<K>,
        rewrite: |object| serde_json::to_value(serde_json::from_value::<K>(object)?),
    }
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
