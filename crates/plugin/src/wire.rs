//! The messages and methods of the protocol. Only numbers and types of fields are on the wire, so
//! messages of the same shape are one type here.

use std::{collections::HashMap, marker::PhantomData};

use prost::Message;

/// A call: where it goes, what it takes and gives.
#[derive(Debug)]
pub(crate) struct Method<Q, S> {
    pub(crate) path: &'static str,
    shape: PhantomData<fn(Q) -> S>,
}

impl<Q, S> Method<Q, S> {
    const fn new(path: &'static str) -> Self {
        Self {
            path,
            shape: PhantomData,
        }
    }

    /// `generated.ObjectStore` of `/generated.ObjectStore/Init`.
    pub(crate) fn service(&self) -> &'static str {
        let (service, _) = self.path[1..].split_once('/').unwrap_or((self.path, ""));
        service
    }
}

impl<Q, S> Clone for Method<Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, S> Copy for Method<Q, S> {}

/// A request that says which plugin of a process it is for.
pub(crate) trait Addressed: Message + Default + Clone + 'static {
    /// The registered name.
    fn plugin(&self) -> &str;
}

macro_rules! addressed {
    ($($message:ty),* $(,)?) => {
        $(impl Addressed for $message {
            fn plugin(&self) -> &str {
                &self.plugin
            }
        })*
    };
}

addressed!(
    Named,
    InitRequest,
    PutObjectRequest,
    KeyRequest,
    CommonPrefixesRequest,
    SignRequest,
    CreateVolumeRequest,
    VolumeRequest,
    SnapshotRequest,
    PersistentVolumeRequest,
    ItemRequest,
    OperationRequest,
    ItemsReadyRequest,
);

pub(crate) mod auxiliary {
    //! What go-plugin has besides the kinds.
    use super::{Empty, HealthRequest, HealthResponse, ListPluginsResponse, Method, StdioData};

    pub(crate) const LIST: Method<Empty, ListPluginsResponse> =
        Method::new("/generated.PluginLister/ListPlugins");
    pub(crate) const SHUTDOWN: Method<Empty, Empty> =
        Method::new("/plugin.GRPCController/Shutdown");
    pub(crate) const STDIO: Method<Empty, StdioData> = Method::new("/plugin.GRPCStdio/StreamStdio");
    pub(crate) const HEALTH: Method<HealthRequest, HealthResponse> =
        Method::new("/grpc.health.v1.Health/Check");
}

pub(crate) mod object_store {
    use super::*;

    pub(crate) const INIT: Method<InitRequest, Empty> = Method::new("/generated.ObjectStore/Init");
    pub(crate) const PUT: Method<PutObjectRequest, Empty> =
        Method::new("/generated.ObjectStore/PutObject");
    pub(crate) const EXISTS: Method<KeyRequest, Truth> =
        Method::new("/generated.ObjectStore/ObjectExists");
    pub(crate) const GET: Method<KeyRequest, Data> =
        Method::new("/generated.ObjectStore/GetObject");
    pub(crate) const COMMON_PREFIXES: Method<CommonPrefixesRequest, Texts> =
        Method::new("/generated.ObjectStore/ListCommonPrefixes");
    pub(crate) const LIST: Method<KeyRequest, Texts> =
        Method::new("/generated.ObjectStore/ListObjects");
    pub(crate) const DELETE: Method<KeyRequest, Empty> =
        Method::new("/generated.ObjectStore/DeleteObject");
    pub(crate) const SIGN: Method<SignRequest, Text> =
        Method::new("/generated.ObjectStore/CreateSignedURL");
}

pub(crate) mod volume_snapshotter {
    use super::*;

    pub(crate) const INIT: Method<InitRequest, Empty> =
        Method::new("/generated.VolumeSnapshotter/Init");
    pub(crate) const CREATE_VOLUME: Method<CreateVolumeRequest, Text> =
        Method::new("/generated.VolumeSnapshotter/CreateVolumeFromSnapshot");
    pub(crate) const VOLUME_INFO: Method<VolumeRequest, VolumeInfoResponse> =
        Method::new("/generated.VolumeSnapshotter/GetVolumeInfo");
    pub(crate) const CREATE_SNAPSHOT: Method<VolumeRequest, Text> =
        Method::new("/generated.VolumeSnapshotter/CreateSnapshot");
    pub(crate) const DELETE_SNAPSHOT: Method<SnapshotRequest, Empty> =
        Method::new("/generated.VolumeSnapshotter/DeleteSnapshot");
    pub(crate) const GET_VOLUME_ID: Method<PersistentVolumeRequest, Text> =
        Method::new("/generated.VolumeSnapshotter/GetVolumeID");
    pub(crate) const SET_VOLUME_ID: Method<PersistentVolumeRequest, Data> =
        Method::new("/generated.VolumeSnapshotter/SetVolumeID");
    /// Ours: Velero does not call it.
    pub(crate) const UPLOAD: Method<SnapshotRequest, Empty> =
        Method::new("/generated.VolumeSnapshotter/UploadSnapshot");
    /// Ours as well.
    pub(crate) const PROGRESS: Method<SnapshotRequest, ProgressResponse> =
        Method::new("/generated.VolumeSnapshotter/Progress");
}

/// The methods of an action of a version.
pub(crate) struct BackupMethods {
    pub(crate) applies_to: Method<Named, AppliesToResponse>,
    pub(crate) execute: Method<ItemRequest, BackupItemResponse>,
    /// None in the first version.
    pub(crate) later: Option<LaterMethods>,
}

/// What is asked of an operation that goes on.
pub(crate) struct LaterMethods {
    pub(crate) progress: Method<OperationRequest, ProgressResponse>,
    pub(crate) cancel: Method<OperationRequest, Empty>,
}

pub(crate) const BACKUP_ITEM_ACTION: BackupMethods = BackupMethods {
    applies_to: Method::new("/generated.BackupItemAction/AppliesTo"),
    execute: Method::new("/generated.BackupItemAction/Execute"),
    later: None,
};

pub(crate) const BACKUP_ITEM_ACTION_V2: BackupMethods = BackupMethods {
    applies_to: Method::new("/v2.BackupItemAction/AppliesTo"),
    execute: Method::new("/v2.BackupItemAction/Execute"),
    later: Some(LaterMethods {
        progress: Method::new("/v2.BackupItemAction/Progress"),
        cancel: Method::new("/v2.BackupItemAction/Cancel"),
    }),
};

/// The methods of an action of a version.
pub(crate) struct RestoreMethods {
    pub(crate) applies_to: Method<Named, AppliesToResponse>,
    pub(crate) execute: Method<ItemRequest, RestoreItemResponse>,
    /// None in the first version.
    pub(crate) later: Option<LaterMethods>,
    pub(crate) ready: Option<Method<ItemsReadyRequest, Truth>>,
}

pub(crate) const RESTORE_ITEM_ACTION: RestoreMethods = RestoreMethods {
    applies_to: Method::new("/generated.RestoreItemAction/AppliesTo"),
    execute: Method::new("/generated.RestoreItemAction/Execute"),
    later: None,
    ready: None,
};

pub(crate) const RESTORE_ITEM_ACTION_V2: RestoreMethods = RestoreMethods {
    applies_to: Method::new("/v2.RestoreItemAction/AppliesTo"),
    execute: Method::new("/v2.RestoreItemAction/Execute"),
    later: Some(LaterMethods {
        progress: Method::new("/v2.RestoreItemAction/Progress"),
        cancel: Method::new("/v2.RestoreItemAction/Cancel"),
    }),
    ready: Some(Method::new("/v2.RestoreItemAction/AreAdditionalItemsReady")),
};

pub(crate) mod delete_item_action {
    use super::*;

    pub(crate) const APPLIES_TO: Method<Named, AppliesToResponse> =
        Method::new("/generated.DeleteItemAction/AppliesTo");
    pub(crate) const EXECUTE: Method<ItemRequest, Empty> =
        Method::new("/generated.DeleteItemAction/Execute");
}

pub(crate) mod item_block_action {
    use super::*;

    pub(crate) const APPLIES_TO: Method<Named, AppliesToResponse> =
        Method::new("/v1.ItemBlockAction/AppliesTo");
    pub(crate) const RELATED: Method<ItemRequest, RelatedResponse> =
        Method::new("/v1.ItemBlockAction/GetRelatedItems");
}

/// Nothing.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

/// Where an error was made.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stack {
    #[prost(message, repeated, tag = "1")]
    pub(crate) frames: Vec<StackFrame>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StackFrame {
    #[prost(string, tag = "1")]
    pub(crate) file: String,
    #[prost(int32, tag = "2")]
    pub(crate) line: i32,
    #[prost(string, tag = "3")]
    pub(crate) function: String,
}

/// The details of an error, as gRPC carries them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RichStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.protobuf.Timestamp`, and `Duration`, which has the same shape.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Moment {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPluginsResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) plugins: Vec<PluginIdentifier>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginIdentifier {
    #[prost(string, tag = "1")]
    pub(crate) command: String,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdioData {
    #[prost(int32, tag = "1")]
    pub(crate) channel: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthRequest {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthResponse {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}

/// `AppliesTo` of all actions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Named {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InitRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) config: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutObjectRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) bucket: String,
    #[prost(string, tag = "3")]
    pub(crate) key: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) body: bytes::Bytes,
}

/// An object, or all whose keys begin like that.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) bucket: String,
    #[prost(string, tag = "3")]
    pub(crate) key: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CommonPrefixesRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) bucket: String,
    #[prost(string, tag = "3")]
    pub(crate) delimiter: String,
    #[prost(string, tag = "4")]
    pub(crate) prefix: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) bucket: String,
    #[prost(string, tag = "3")]
    pub(crate) key: String,
    /// Nanoseconds.
    #[prost(int64, tag = "4")]
    pub(crate) ttl: i64,
}

/// An id, a URL.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

/// Keys, prefixes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub(crate) texts: Vec<String>,
}

/// A part of an object, a PersistentVolume.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Data {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: bytes::Bytes,
}

/// Whether it exists, whether all are ready.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Truth {
    #[prost(bool, tag = "1")]
    pub(crate) is_so: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) snapshot_id: String,
    #[prost(string, tag = "3")]
    pub(crate) volume_type: String,
    #[prost(string, tag = "4")]
    pub(crate) volume_az: String,
    /// Zero for none.
    #[prost(int64, tag = "5")]
    pub(crate) iops: i64,
}

/// `GetVolumeInfo`, and `CreateSnapshot`, which has tags too.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "3")]
    pub(crate) volume_az: String,
    #[prost(map = "string, string", tag = "4")]
    pub(crate) tags: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeInfoResponse {
    #[prost(string, tag = "1")]
    pub(crate) volume_type: String,
    #[prost(int64, tag = "2")]
    pub(crate) iops: i64,
}

/// `DeleteSnapshot`, and ours: `UploadSnapshot` and `Progress`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) snapshot_id: String,
    /// Of the progress of a restore.
    #[prost(string, tag = "3")]
    pub(crate) volume_id: String,
}

/// `GetVolumeID`, and `SetVolumeID`, which has the id too.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PersistentVolumeRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) persistent_volume: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(crate) volume_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppliesToResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) selector: Option<ResourceSelector>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSelector {
    #[prost(string, repeated, tag = "1")]
    pub(crate) included_namespaces: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) excluded_namespaces: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) included_resources: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) excluded_resources: Vec<String>,
    #[prost(string, tag = "5")]
    pub(crate) selector: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ResourceIdentifier {
    #[prost(string, tag = "1")]
    pub(crate) group: String,
    #[prost(string, tag = "2")]
    pub(crate) resource: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
}

/// An object and the backup or restore it belongs to; a restore also has the object of the backup.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ItemRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) item: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) owner: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) pristine: bytes::Bytes,
}

/// Of both versions: the first has two fields of it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BackupItemResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) item: bytes::Bytes,
    #[prost(message, repeated, tag = "2")]
    pub(crate) additional: Vec<ResourceIdentifier>,
    #[prost(string, tag = "3")]
    pub(crate) operation_id: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) post_operation: Vec<ResourceIdentifier>,
}

/// Of both versions: the first has three fields of it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RestoreItemResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) item: bytes::Bytes,
    #[prost(message, repeated, tag = "2")]
    pub(crate) additional: Vec<ResourceIdentifier>,
    #[prost(bool, tag = "3")]
    pub(crate) skip: bool,
    #[prost(string, tag = "4")]
    pub(crate) operation_id: String,
    #[prost(bool, tag = "5")]
    pub(crate) wait: bool,
    #[prost(message, optional, tag = "6")]
    pub(crate) ready_timeout: Option<Moment>,
}

/// An operation of a backup or a restore.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(string, tag = "2")]
    pub(crate) operation_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) owner: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ItemsReadyRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) restore: bytes::Bytes,
    #[prost(message, repeated, tag = "3")]
    pub(crate) items: Vec<ResourceIdentifier>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RelatedResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) items: Vec<ResourceIdentifier>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProgressResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) progress: Option<OperationProgress>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationProgress {
    #[prost(bool, tag = "1")]
    pub(crate) completed: bool,
    #[prost(string, tag = "2")]
    pub(crate) err: String,
    #[prost(int64, tag = "3")]
    pub(crate) n_completed: i64,
    #[prost(int64, tag = "4")]
    pub(crate) n_total: i64,
    #[prost(string, tag = "5")]
    pub(crate) operation_units: String,
    #[prost(string, tag = "6")]
    pub(crate) description: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) started: Option<Moment>,
    #[prost(message, optional, tag = "8")]
    pub(crate) updated: Option<Moment>,
}
