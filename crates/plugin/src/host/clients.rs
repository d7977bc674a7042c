//! Plugins of processes, as what they can be asked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::sync::oneshot;

use super::call::Program;
use crate::{
    Error, Result,
    convert::all,
    kinds::{
        BackedUp, BackupItemAction, Body, Config, DeleteItemAction, Identifier, ItemBlockAction,
        Kind, NewVolume, ObjectStore, Progress, RestoreItemAction, Restored, Selector,
        VolumeSnapshotter,
    },
    wire::{
        self, AppliesToResponse, BACKUP_ITEM_ACTION, BACKUP_ITEM_ACTION_V2, BackupMethods,
        CommonPrefixesRequest, CreateVolumeRequest, InitRequest, ItemRequest, ItemsReadyRequest,
        KeyRequest, LaterMethods, Method, Named, OperationRequest, PersistentVolumeRequest,
        PutObjectRequest, RESTORE_ITEM_ACTION, RESTORE_ITEM_ACTION_V2, RestoreMethods, SignRequest,
        SnapshotRequest, VolumeRequest, delete_item_action, item_block_action, object_store,
        volume_snapshotter,
    },
};

/// What of an object goes in one message; Go's plugins take 4 MiB at most.
const CHUNK: usize = 256 << 10;

/// A plugin of a program.
pub(super) struct Client {
    pub(super) program: Arc<Program>,
    pub(super) kind: Kind,
    pub(super) name: String,
}

impl Client {
    fn plugin(&self) -> String {
        self.name.clone()
    }

    async fn init(&self, method: Method<InitRequest, wire::Empty>, config: &Config) -> Result<()> {
        let request = InitRequest {
            plugin: self.plugin(),
            config: config.clone().into_iter().collect(),
        };
        self.program.init(method, request).await
    }

    async fn applies_to(&self, method: Method<Named, AppliesToResponse>) -> Result<Selector> {
        let request = Named {
            plugin: self.plugin(),
        };
        let about = || "what it is for".to_owned();
        Ok(self.program.call(method, request, &about).await?.into())
    }

    async fn item<S: prost::Message + Default + 'static>(
        &self,
        method: Method<ItemRequest, S>,
        [item, owner, pristine]: [&Bytes; 3],
    ) -> Result<S> {
        let request = ItemRequest {
            plugin: self.plugin(),
            item: item.clone(),
            owner: owner.clone(),
            pristine: pristine.clone(),
        };
        let about = || of_object(item);
        self.program.call(method, request, &about).await
    }

    async fn progress(
        &self,
        of: &LaterMethods,
        operation: &str,
        owner: &Bytes,
    ) -> Result<Progress> {
        let request = self.operation(operation, owner);
        let about = || format!("operation {operation}");
        Ok(self
            .program
            .call(of.progress, request, &about)
            .await?
            .into())
    }

    async fn cancel(&self, of: &LaterMethods, operation: &str, owner: &Bytes) -> Result<()> {
        let request = self.operation(operation, owner);
        let about = || format!("operation {operation}");
        self.program
            .call(of.cancel, request, &about)
            .await
            .map(drop)
    }

    fn operation(&self, operation: &str, owner: &Bytes) -> OperationRequest {
        OperationRequest {
            plugin: self.plugin(),
            operation_id: operation.to_owned(),
            owner: owner.clone(),
        }
    }
}

/// An object in words: `pods shop/web`.
fn of_object(item: &Bytes) -> String {
    let object: Value = serde_json::from_slice(item).unwrap_or_default();
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    let name = text("/metadata/name").unwrap_or_default();
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

pub(super) struct Store(pub(super) Client);

impl Store {
    fn key(&self, bucket: &str, key: &str) -> KeyRequest {
        KeyRequest {
            plugin: self.0.plugin(),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        }
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn init(&self, config: &Config) -> Result<()> {
        self.0.init(object_store::INIT, config).await
    }

    async fn put(&self, bucket: &str, key: &str, body: Body) -> Result<()> {
        let first = PutObjectRequest {
            plugin: self.0.plugin(),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            body: Bytes::new(),
        };
        let (fail, failed) = oneshot::channel();
        let mut fail = Some(fail);
        // The first message is empty, so that an empty object has one too.
        let parts = body.map_ok(chunks).try_flatten();
        let requests = stream::once(async { Ok(Bytes::new()) })
            .chain(parts)
            .map(move |part| {
                part.map(|body| PutObjectRequest {
                    body,
                    ..first.clone()
                })
            });
        // An end would make an object of what was sent, so a body that fails has none.
        let requests = requests.filter_map(move |request| {
            let told = match request {
                Ok(request) => Ok(request),
                Err(error) => Err(fail.take().map(|fail| fail.send(error))),
            };
            async move {
                match told {
                    Ok(request) => Some(request),
                    Err(_) => futures::future::pending().await,
                }
            }
        });
        let about = || format!("object {key}");
        let sending = self.0.program.upload(object_store::PUT, requests, &about);
        tokio::select! {
            sent = sending => sent.map(drop),
            Ok(error) = failed => Err(error),
        }
    }

    async fn exists(&self, bucket: &str, key: &str) -> Result<bool> {
        let (request, about) = (self.key(bucket, key), || format!("object {key}"));
        let program = &self.0.program;
        Ok(program
            .call(object_store::EXISTS, request, &about)
            .await?
            .is_so)
    }

    async fn get(&self, bucket: &str, key: &str) -> Result<Body> {
        let (request, about) = (self.key(bucket, key), || format!("object {key}"));
        let program = &self.0.program;
        let parts = program.download(object_store::GET, request, &about).await?;
        Ok(parts.map_ok(|part| part.data).map_err(Error::from).boxed())
    }

    async fn common_prefixes(
        &self,
        bucket: &str,
        delimiter: &str,
        prefix: &str,
    ) -> Result<Vec<String>> {
        let request = CommonPrefixesRequest {
            plugin: self.0.plugin(),
            bucket: bucket.to_owned(),
            delimiter: delimiter.to_owned(),
            prefix: prefix.to_owned(),
        };
        let about = || format!("what is below {prefix}");
        let method = object_store::COMMON_PREFIXES;
        Ok(self.0.program.call(method, request, &about).await?.texts)
    }

    async fn list(&self, bucket: &str, prefix: &str) -> Result<Vec<String>> {
        let request = self.key(bucket, prefix);
        let about = || format!("what is below {prefix}");
        let method = object_store::LIST;
        Ok(self.0.program.call(method, request, &about).await?.texts)
    }

    async fn delete(&self, bucket: &str, key: &str) -> Result<()> {
        let (request, about) = (self.key(bucket, key), || format!("object {key}"));
        let method = object_store::DELETE;
        self.0.program.call(method, request, &about).await.map(drop)
    }

    async fn sign(&self, bucket: &str, key: &str, ttl: Duration) -> Result<String> {
        let request = SignRequest {
            plugin: self.0.plugin(),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            ttl: i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX),
        };
        let about = || format!("object {key}");
        let method = object_store::SIGN;
        Ok(self.0.program.call(method, request, &about).await?.text)
    }
}

/// Parts that fit into messages.
fn chunks(mut bytes: Bytes) -> impl futures::Stream<Item = Result<Bytes>> + Send {
    let next = move || {
        let length = bytes.len().min(CHUNK);
        (length > 0).then(|| Ok(bytes.split_to(length)))
    };
    stream::iter(std::iter::from_fn(next))
}

pub(super) struct Snapshotter(pub(super) Client);

impl Snapshotter {
    fn snapshot(&self, snapshot: &str) -> SnapshotRequest {
        SnapshotRequest {
            plugin: self.0.plugin(),
            snapshot_id: snapshot.to_owned(),
            volume_id: String::new(),
        }
    }

    fn persistent_volume(&self, volume: &Value, id: &str) -> Result<PersistentVolumeRequest> {
        Ok(PersistentVolumeRequest {
            plugin: self.0.plugin(),
            persistent_volume: serde_json::to_vec(volume).map_err(Error::new)?,
            volume_id: id.to_owned(),
        })
    }

    fn volume(&self, volume: &str, zone: &str) -> VolumeRequest {
        VolumeRequest {
            plugin: self.0.plugin(),
            volume_id: volume.to_owned(),
            volume_az: zone.to_owned(),
            ..VolumeRequest::default()
        }
    }
}

#[async_trait]
impl VolumeSnapshotter for Snapshotter {
    async fn init(&self, config: &Config) -> Result<()> {
        self.0.init(volume_snapshotter::INIT, config).await
    }

    async fn create_volume(&self, volume: &NewVolume) -> Result<String> {
        let request = CreateVolumeRequest {
            plugin: self.0.plugin(),
            snapshot_id: volume.snapshot.clone(),
            volume_type: volume.volume_type.clone(),
            volume_az: volume.zone.clone(),
            iops: volume.iops.unwrap_or_default(),
        };
        let about = || format!("snapshot {}", volume.snapshot);
        let method = volume_snapshotter::CREATE_VOLUME;
        Ok(self.0.program.call(method, request, &about).await?.text)
    }

    async fn volume_info(&self, volume: &str, zone: &str) -> Result<(String, Option<i64>)> {
        let request = self.volume(volume, zone);
        let about = || format!("volume {volume}");
        let method = volume_snapshotter::VOLUME_INFO;
        let info = self.0.program.call(method, request, &about).await?;
        Ok((info.volume_type, Some(info.iops).filter(|iops| *iops != 0)))
    }

    async fn create_snapshot(
        &self,
        volume: &str,
        zone: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String> {
        let request = VolumeRequest {
            tags: tags.clone().into_iter().collect(),
            ..self.volume(volume, zone)
        };
        let about = || format!("volume {volume}");
        let method = volume_snapshotter::CREATE_SNAPSHOT;
        Ok(self.0.program.call(method, request, &about).await?.text)
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        let (request, about) = (self.snapshot(snapshot), || format!("snapshot {snapshot}"));
        let method = volume_snapshotter::DELETE_SNAPSHOT;
        self.0.program.call(method, request, &about).await.map(drop)
    }

    async fn volume_id(&self, volume: &Value) -> Result<Option<String>> {
        let request = self.persistent_volume(volume, "")?;
        let about = || "a PersistentVolume".to_owned();
        let method = volume_snapshotter::GET_VOLUME_ID;
        let id = self.0.program.call(method, request, &about).await?.text;
        Ok(Some(id).filter(|id| !id.is_empty()))
    }

    async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value> {
        let request = self.persistent_volume(volume, id)?;
        let about = || format!("volume {id}");
        let method = volume_snapshotter::SET_VOLUME_ID;
        let answer = self.0.program.call(method, request, &about).await?;
        let none = |why: String| {
            let name = &self.0.name;
            Error::Other(format!(
                "plugin {name} gives a PersistentVolume that is none: {why}"
            ))
        };
        let given: Value = serde_json::from_slice(&answer.data).map_err(|e| none(e.to_string()))?;
        match given["metadata"].is_object() && given["spec"].is_object() {
            true => Ok(given),
            false => Err(none("no metadata or no spec".to_owned())),
        }
    }

    async fn upload_snapshot(&self, snapshot: &str) -> Result<()> {
        let (request, about) = (self.snapshot(snapshot), || format!("snapshot {snapshot}"));
        let method = volume_snapshotter::UPLOAD;
        self.0.program.call(method, request, &about).await.map(drop)
    }

    async fn progress(&self, snapshot: &str, volume: Option<&str>) -> Result<Progress> {
        let request = SnapshotRequest {
            volume_id: volume.unwrap_or_default().to_owned(),
            ..self.snapshot(snapshot)
        };
        let about = || format!("snapshot {snapshot}");
        let method = volume_snapshotter::PROGRESS;
        Ok(self.0.program.call(method, request, &about).await?.into())
    }
}

pub(super) struct Backup(pub(super) Client);

impl Backup {
    fn methods(&self) -> BackupMethods {
        match self.0.kind {
            Kind::BackupItemActionV2 => BACKUP_ITEM_ACTION_V2,
            _ => BACKUP_ITEM_ACTION,
        }
    }
}

/// What the first version does not have, done as the trait says.
struct Plain;

#[async_trait]
impl BackupItemAction for Plain {
    async fn applies_to(&self) -> Result<Selector> {
        Ok(Selector::default())
    }

    async fn execute(&self, _: &Bytes, _: &Bytes) -> Result<BackedUp> {
        Ok(BackedUp::default())
    }
}

#[async_trait]
impl RestoreItemAction for Plain {
    async fn applies_to(&self) -> Result<Selector> {
        Ok(Selector::default())
    }

    async fn execute(&self, _: &Bytes, _: &Bytes, _: &Bytes) -> Result<Restored> {
        Ok(Restored::default())
    }
}

#[async_trait]
impl BackupItemAction for Backup {
    async fn applies_to(&self) -> Result<Selector> {
        self.0.applies_to(self.methods().applies_to).await
    }

    async fn execute(&self, item: &Bytes, backup: &Bytes) -> Result<BackedUp> {
        let parts = [item, backup, &Bytes::new()];
        Ok(self.0.item(self.methods().execute, parts).await?.into())
    }

    async fn progress(&self, operation: &str, backup: &Bytes) -> Result<Progress> {
        match self.methods().later {
            Some(later) => self.0.progress(&later, operation, backup).await,
            None => BackupItemAction::progress(&Plain, operation, backup).await,
        }
    }

    async fn cancel(&self, operation: &str, backup: &Bytes) -> Result<()> {
        match self.methods().later {
            Some(later) => self.0.cancel(&later, operation, backup).await,
            None => BackupItemAction::cancel(&Plain, operation, backup).await,
        }
    }
}

pub(super) struct Restore(pub(super) Client);

impl Restore {
    fn methods(&self) -> RestoreMethods {
        match self.0.kind {
            Kind::RestoreItemActionV2 => RESTORE_ITEM_ACTION_V2,
            _ => RESTORE_ITEM_ACTION,
        }
    }
}

#[async_trait]
impl RestoreItemAction for Restore {
    async fn applies_to(&self) -> Result<Selector> {
        self.0.applies_to(self.methods().applies_to).await
    }

    async fn execute(&self, item: &Bytes, pristine: &Bytes, restore: &Bytes) -> Result<Restored> {
        let parts = [item, restore, pristine];
        Ok(self.0.item(self.methods().execute, parts).await?.into())
    }

    async fn progress(&self, operation: &str, restore: &Bytes) -> Result<Progress> {
        match self.methods().later {
            Some(later) => self.0.progress(&later, operation, restore).await,
            None => RestoreItemAction::progress(&Plain, operation, restore).await,
        }
    }

    async fn cancel(&self, operation: &str, restore: &Bytes) -> Result<()> {
        match self.methods().later {
            Some(later) => self.0.cancel(&later, operation, restore).await,
            None => RestoreItemAction::cancel(&Plain, operation, restore).await,
        }
    }

    async fn are_ready(&self, items: &[Identifier], restore: &Bytes) -> Result<bool> {
        let Some(method) = self.methods().ready else {
            return Ok(true);
        };
        let request = ItemsReadyRequest {
            plugin: self.0.plugin(),
            restore: restore.clone(),
            items: all(items.to_vec()),
        };
        let about = || "whether items are ready".to_owned();
        Ok(self.0.program.call(method, request, &about).await?.is_so)
    }
}

pub(super) struct Delete(pub(super) Client);

#[async_trait]
impl DeleteItemAction for Delete {
    async fn applies_to(&self) -> Result<Selector> {
        self.0.applies_to(delete_item_action::APPLIES_TO).await
    }

    async fn execute(&self, item: &Bytes, backup: &Bytes) -> Result<()> {
        let parts = [item, backup, &Bytes::new()];
        self.0
            .item(delete_item_action::EXECUTE, parts)
            .await
            .map(drop)
    }
}

pub(super) struct Block(pub(super) Client);

#[async_trait]
impl ItemBlockAction for Block {
    async fn applies_to(&self) -> Result<Selector> {
        self.0.applies_to(item_block_action::APPLIES_TO).await
    }

    async fn related(&self, item: &Bytes, backup: &Bytes) -> Result<Vec<Identifier>> {
        let parts = [item, backup, &Bytes::new()];
        let answer = self.0.item(item_block_action::RELATED, parts).await?;
        Ok(all(answer.items))
    }
}
