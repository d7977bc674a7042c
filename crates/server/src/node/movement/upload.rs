//! DataUpload: what a snapshot holds goes into the repository of its claim's namespace.

use std::time::Duration;

use bowline_api::{
    names::{annotation, exposer_pod_group, label, label_value},
    v2alpha1::{DataUpload, NodeOs},
};
use bowline_engine::{
    csi::{self, exposed},
    movement::{Mover, owner_reference},
};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use super::{
    super::{Node, metrics::Direction, mover::Verdict},
    Movement,
    expose::{self, Exposure},
};
use crate::{
    Context, Error, Result,
    csi::{contents, object, snapshots, value},
};

/// How long a snapshot may take to be usable when nobody says.
const LIMIT: Duration = Duration::from_secs(600);

impl Movement for DataUpload {
    const LABEL: &'static str = label::DATA_UPLOAD;
    const GROUP: &'static str = exposer_pod_group::SNAPSHOT;
    const COMMAND: &'static str = "backup";
    const FLAG: &'static str = "data-upload";
    const FAILED: &'static str = "data path backup failed";
    const DIRECTION: Direction = Direction::Upload;

    fn mover(&self) -> Mover<'_> {
        Mover::of(self.spec.datamover.as_deref())
    }

    fn taker(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        status.accepted_by_node.as_deref().filter(|n| !n.is_empty())
    }

    fn node(&self) -> Option<&str> {
        let node = self.status.as_ref()?.node.as_deref();
        node.filter(|node| !node.is_empty())
    }

    fn set_node(&mut self, node: &str) {
        let status = self.status_mut();
        status.node = Some(node.to_owned());
        status.node_os = Some(NodeOs::Linux);
    }

    fn taken_at(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.accepted_timestamp?.0)
    }

    fn patience(&self) -> Option<Duration> {
        let nanos = self.spec.operation_timeout.nanos().ok()?;
        let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0)?;
        Some(Duration::from_nanos(nanos))
    }

    async fn expose(&self, node: &Node) -> Result<Result<Exposure, String>> {
        let ctx = &node.ctx;
        let content = match usable(ctx, self).await? {
            Ok(content) => content,
            Err(why) => return Ok(Err(why)),
        };
        let source = source(ctx, self).await?;
        let wanted = self.spec.csi_snapshot.as_ref();
        let class = wanted.map(|wanted| wanted.storage_class.as_str());
        let rule = node.config.backup_claim(class.unwrap_or_default());
        if let Some(why) = class_missing(ctx, &rule.storage_class).await? {
            return Ok(Err(why));
        }
        let name = self.name_any();
        let Some(exposed) = exposed::content(&content, &name, &ctx.namespace) else {
            return Ok(Err("its snapshot has no handle".to_owned()));
        };
        let owner = owner_reference(self);
        let owner = serde_json::to_value(&owner).expect("our own types are JSON");
        let snapshot = exposed::snapshot(&name, &ctx.namespace, &owner);
        for (api, made) in [
            (contents(&ctx.client), exposed),
            (snapshots(&ctx.client, &ctx.namespace), snapshot),
        ] {
            if let Err(why) = make(&api, made).await? {
                return Ok(Err(why));
            }
        }
        // Whoever makes the volume tries again only after a while.
        if let Err(why) = ready(ctx, self).await? {
            return Ok(Err(why));
        }
        let mode = csi_text(&content, "sourceVolumeMode");
        let of_source = source
            .as_ref()
            .and_then(|s| s.spec.as_ref()?.volume_mode.clone());
        let mode = mode
            .or(of_source)
            .unwrap_or_else(|| "Filesystem".to_owned());
        let is_block = mode == "Block";
        let Some(size) = size(&content, source.as_ref()) else {
            return Ok(Err("nobody knows how large its volume is".to_owned()));
        };
        let access = if rule.read_only {
            "ReadOnlyMany"
        } else {
            "ReadWriteOnce"
        };
        let claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": ctx.namespace,
                "labels": {
                    label::DATA_UPLOAD: label_value(&name),
                    label::EXCLUDE_FROM_BACKUP: "true",
                },
                "annotations": rule.annotations,
                "ownerReferences": [owner],
            },
            "spec": {
                "accessModes": [access],
                "volumeMode": mode,
                "storageClassName": rule.storage_class,
                "resources": {"requests": {"storage": size}},
                "dataSource": {"apiGroup": csi::GROUP, "kind": "VolumeSnapshot", "name": name},
            },
        });
        let claim = serde_json::from_value(claim).expect("it is a claim");
        let made = expose::create(&expose::api::<PersistentVolumeClaim>(ctx), &claim).await?;
        Ok(made.map(|()| Exposure {
            is_block,
            read_only: rule.read_only,
            class: class.unwrap_or_default().to_owned(),
            node: None,
        }))
    }

    async fn conclude(&self, _: &Node, _: &Verdict) -> Result<Result<(), String>> {
        Ok(Ok(()))
    }

    fn note(&mut self, verdict: &Verdict) {
        let path = format!("/{}", self.uid().unwrap_or_default());
        let status = self.status_mut();
        status.path = Some(path);
        let snapshot = Some(verdict.snapshot_id.clone());
        status.snapshot_id = snapshot.filter(|id| !id.is_empty());
        status.incremental_bytes = i64::try_from(verdict.incremental_bytes).ok();
        let result = status.data_mover_result.get_or_insert_default();
        result.insert("uploaderType".to_owned(), "restic".to_owned());
        result.insert("volumeMode".to_owned(), verdict.volume_mode.clone());
    }
}

/// The content with the snapshot, when it can be used. The inner error is for a person.
async fn usable(ctx: &Context, upload: &DataUpload) -> Result<Result<Value, String>> {
    let said = upload.annotations().get(annotation::SNAPSHOT_CONTENT);
    let name = match said.filter(|name| !name.is_empty()) {
        Some(name) => name.clone(),
        None => match bound(ctx, upload).await? {
            Ok(name) => name,
            Err(why) => return Ok(Err(why)),
        },
    };
    let is_so = |content: Option<&DynamicObject>| {
        content.is_none_or(|content| value(content)["status"]["readyToUse"] == true)
    };
    let waiting = await_condition(contents(&ctx.client), &name, is_so);
    let limit = upload.patience().unwrap_or(LIMIT);
    let content = match tokio::time::timeout(limit, waiting).await {
        Ok(Ok(Some(content))) => value(&content),
        Ok(Ok(None)) => return Ok(Err(format!("VolumeSnapshotContent {name} is gone"))),
        Ok(Err(error)) => {
            return Err(Error::Setup(format!(
                "watch VolumeSnapshotContent {name}: {error}"
            )));
        }
        Err(_) => {
            // The driver's side tries again and again; what it says last is why.
            let found = contents(&ctx.client).get_opt(&name).await;
            let found = found.map_err(Error::api(format!("read {name}")))?;
            let found = found.as_ref().map(value).unwrap_or_default();
            let why = csi::error(&found).unwrap_or("its driver says nothing");
            return Ok(Err(format!(
                "snapshot {name} is not ready after {limit:?}: {why}"
            )));
        }
    };
    Ok(Ok(content))
}

/// Waits until the exposed snapshot can be used. The inner error is for a person.
async fn ready(ctx: &Context, upload: &DataUpload) -> Result<Result<(), String>> {
    let is_ready = |snapshot: Option<&DynamicObject>| {
        snapshot.is_none_or(|snapshot| value(snapshot)["status"]["readyToUse"] == true)
    };
    let name = upload.name_any();
    let api = snapshots(&ctx.client, &ctx.namespace);
    let limit = upload.patience().unwrap_or(LIMIT);
    let waiting = await_condition(api, &name, is_ready);
    match tokio::time::timeout(limit, waiting).await {
        Ok(Ok(Some(_))) => Ok(Ok(())),
        Ok(Ok(None)) => Ok(Err(format!("VolumeSnapshot {name} was deleted"))),
        Ok(Err(error)) => {
            let what = format!("watch VolumeSnapshot {name}: {error}");
            Err(Error::Setup(what))
        }
        Err(_) => Ok(Err(format!(
            "VolumeSnapshot {name} is not ready after {limit:?}"
        ))),
    }
}

/// The content of the VolumeSnapshot that an upload names.
async fn bound(ctx: &Context, upload: &DataUpload) -> Result<Result<String, String>> {
    let snapshot = upload.spec.csi_snapshot.as_ref();
    let name = snapshot
        .map(|s| s.volume_snapshot.as_str())
        .unwrap_or_default();
    if name.is_empty() {
        return Ok(Err("it says no VolumeSnapshot".to_owned()));
    }
    let namespace = &upload.spec.source_namespace;
    let found = snapshots(&ctx.client, namespace).get_opt(name).await;
    let found = found.map_err(Error::api(format!("read VolumeSnapshot {name}")))?;
    let Some(found) = found else {
        return Ok(Err(format!("VolumeSnapshot {namespace}/{name} not found")));
    };
    match csi::bound_content(&value(&found)) {
        Some(content) => Ok(Ok(content.to_owned())),
        None => Err(Error::Setup(format!(
            "VolumeSnapshot {name} has no content yet"
        ))),
    }
}

/// The claim that was snapshotted, if it is still there.
async fn source(ctx: &Context, upload: &DataUpload) -> Result<Option<PersistentVolumeClaim>> {
    let namespace = &upload.spec.source_namespace;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), namespace);
    expose::find(&claims, &upload.spec.source_pvc).await
}

/// Why no volume of a storage class can be made, if that is certain.
pub(super) async fn class_missing(ctx: &Context, class: &str) -> Result<Option<String>> {
    if class.is_empty() {
        return Ok(None);
    }
    let classes: Api<StorageClass> = Api::all(ctx.client.clone());
    let found = expose::find(&classes, class).await?;
    Ok(found
        .is_none()
        .then(|| format!("storage class {class} not found")))
}

/// How large the volume of a snapshot must be.
fn size(content: &Value, source: Option<&PersistentVolumeClaim>) -> Option<String> {
    let needed = csi::restore_size(content).map(bowline_api::Quantity::from_bytes);
    let of_source = source.and_then(|claim| {
        let capacity = claim
            .status
            .as_ref()
            .and_then(|status| status.capacity.as_ref());
        let size = capacity?.get("storage")?;
        size.0.parse::<bowline_api::Quantity>().ok()
    });
    let size = match (needed, of_source) {
        (Some(needed), Some(source)) if needed < source => source,
        (Some(needed), _) => needed,
        (None, source) => source?,
    };
    Some(size.to_string())
}

async fn make(api: &Api<DynamicObject>, made: Value) -> Result<Result<(), String>> {
    let what = format!(
        "create {} {}",
        made["kind"].as_str().unwrap_or_default(),
        made["metadata"]["name"].as_str().unwrap_or_default()
    );
    match api.create(&PostParams::default(), &object(made)).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Ok(())),
        Err(kube::Error::Api(status)) if expose::is_refusal(status.code) => {
            Ok(Err(format!("{what}: {}", status.message)))
        }
        Err(error) => Err(Error::api(what)(error)),
    }
}

fn csi_text(content: &Value, key: &str) -> Option<String> {
    let text = content["spec"][key].as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}
