//! Item operations: work that plugins go on with after an item is done.

use crate::Time;

record! {
    /// One entry of `<backup>-itemoperations.json.gz`.
    pub struct BackupOperation {
        /// What was started.
        pub spec: BackupOperationSpec,
        /// How far it is.
        pub status: OperationStatus,
    }
}

record! {
    /// An operation that a backup item action started.
    pub struct BackupOperationSpec {
        /// The backup, by name.
        pub backup_name: String,
        /// The backup's uid.
        #[serde(rename = "backupUID")]
        pub backup_uid: String,
        /// The action, by its registered name.
        pub backup_item_action: String,
        /// The item.
        pub resource_identifier: ResourceIdentifier,
        /// The plugin's id of the operation.
        #[serde(rename = "operationID")]
        pub operation_id: String,
        /// Items to read again once it is done; `null` if there are none.
        #[serialize_always]
        pub post_operation_items: Option<Vec<ResourceIdentifier>>,
    }
}

record! {
    /// One entry of `restore-<restore>-itemoperations.json.gz`.
    pub struct RestoreOperation {
        /// What was started.
        pub spec: RestoreOperationSpec,
        /// How far it is.
        pub status: OperationStatus,
    }
}

record! {
    /// An operation that a restore item action started.
    pub struct RestoreOperationSpec {
        /// The restore, by name.
        pub restore_name: String,
        /// The restore's uid.
        #[serde(rename = "restoreUID")]
        pub restore_uid: String,
        /// The action, by its registered name.
        pub restore_item_action: String,
        /// The item.
        pub resource_identifier: ResourceIdentifier,
        /// The plugin's id of the operation.
        #[serde(rename = "operationID")]
        pub operation_id: String,
    }
}

record! {
    /// An item by resource and name; the keys are capitalised.
    pub struct ResourceIdentifier {
        /// The API group; empty for the core.
        #[serde(rename = "Group")]
        pub group: String,
        /// The resource, by its plural.
        #[serde(rename = "Resource")]
        pub resource: String,
        /// The namespace; empty for cluster-scoped items.
        #[serde(rename = "Namespace")]
        pub namespace: String,
        /// The name.
        #[serde(rename = "Name")]
        pub name: String,
    }
}

record! {
    /// How far an operation is.
    pub struct OperationStatus {
        /// Where it stands.
        pub phase: Option<OperationPhase>,
        /// Why it failed.
        pub error: Option<String>,
        /// Units done.
        pub n_completed: Option<i64>,
        /// Units in all.
        pub n_total: Option<i64>,
        /// What the units are.
        pub operation_units: Option<String>,
        /// A word about it.
        pub description: Option<String>,
        /// When it was asked for.
        pub created: Option<Time>,
        /// When it began.
        pub started: Option<Time>,
        /// When it was last heard of.
        pub updated: Option<Time>,
    }
}

word! {
    /// Where an operation stands.
    pub enum OperationPhase {
        /// Asked for.
        New,
        /// At work.
        InProgress,
        /// Done.
        Completed,
        /// Failed.
        Failed,
    }
}
