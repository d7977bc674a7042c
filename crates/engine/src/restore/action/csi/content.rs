//! `velero.io/csi-volumesnapshotcontent-restorer`: a content that stands for a snapshot that is there
//! already, and outlives its object.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_api::v1::Restore;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{forget_backup, is_wanted, skipped, target};
use crate::{
    action::{Refused, text},
    csi::{self, GROUP, RETAIN, VERSION, derived_name, group::Stub},
    restore::action::{Executed, RestoreItemAction},
};

/// Puts stubs where the contents of groups were.
#[async_trait]
pub trait GroupStubs: Send + Sync {
    /// Sees to it that there is one that has this member.
    ///
    /// # Errors
    /// Why there is none.
    async fn ensure(&self, stub: Stub<'_>, member: &str) -> Result<(), String>;
}

pub(super) struct Contents {
    client: Client,
    groups: Option<Arc<dyn GroupStubs>>,
    /// Classes and their drivers, in the cluster's order.
    classes: OnceCell<Vec<(String, String)>>,
}

impl Contents {
    pub(super) fn new(client: &Client, groups: Option<Arc<dyn GroupStubs>>) -> Self {
        Self {
            client: client.clone(),
            groups,
            classes: OnceCell::new(),
        }
    }

    /// The first class of a driver. Some drivers find there what they need to look at a snapshot.
    async fn class(&self, driver: &str) -> Option<String> {
        let classes = self.classes.get_or_init(|| async {
            let kind = GroupVersionKind::gvk(GROUP, VERSION, "VolumeSnapshotClass");
            let kind = ApiResource::from_gvk(&kind);
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
            match all.list(&ListParams::default()).await {
                Ok(list) => list.iter().map(class).collect(),
                Err(error) => {
                    // It can do without.
                    tracing::warn!("list VolumeSnapshotClasses: {error}");
                    Vec::new()
                }
            }
        });
        let classes = classes.await.iter();
        let mut fitting = classes.filter(|(_, of)| of == driver);
        fitting.next().map(|(name, _)| name.clone())
    }

    /// Best effort: only some drivers look for it.
    async fn stub(&self, pristine: &Value, restore: &Restore) {
        let (Some(groups), Some(handle), Some(member)) = (
            &self.groups,
            csi::group_handle(pristine),
            csi::handle(pristine),
        ) else {
            return;
        };
        let stub = Stub {
            restore: &restore.name_any(),
            restore_uid: &restore.uid().unwrap_or_default(),
            namespace: target(restore, text(pristine, "/spec/volumeSnapshotRef/namespace")),
            driver: text(pristine, "/spec/driver"),
            handle,
        };
        if let Err(why) = groups.ensure(stub, member).await {
            tracing::warn!(handle, "content of the group snapshot: {why}");
        }
    }
}

fn class(object: &DynamicObject) -> (String, String) {
    let driver = object.data["driver"].as_str().unwrap_or_default();
    (object.name_any(), driver.to_owned())
}

#[async_trait]
impl RestoreItemAction for Contents {
    fn name(&self) -> &str {
        "velero.io/csi-volumesnapshotcontent-restorer"
    }

    fn applies_to(&self, kind: &str, _: &Value) -> bool {
        kind == csi::CONTENTS
    }

    async fn execute(
        &self,
        object: Value,
        pristine: &Value,
        restore: &Restore,
    ) -> Result<Executed, Refused> {
        if !is_wanted(restore) {
            return Ok(skipped(object));
        }
        let class = self.class(text(pristine, "/spec/driver")).await;
        let executed = change(object, pristine, restore, class)?;
        self.stub(pristine, restore).await;
        Ok(executed)
    }
}

pub(super) fn change(
    mut object: Value,
    pristine: &Value,
    restore: &Restore,
    class: Option<String>,
) -> Result<Executed, Refused> {
    let Some(handle) = csi::handle(pristine) else {
        let name = text(pristine, "/metadata/name");
        let why = format!("fail to get snapshot handle from VSC {name} status");
        return Err(Refused(why));
    };
    let snapshot = text(pristine, "/spec/volumeSnapshotRef/name");
    let namespace = text(pristine, "/spec/volumeSnapshotRef/namespace");
    let derived = derived_name(&restore.uid().unwrap_or_default(), snapshot);
    forget_backup(&mut object);
    object["metadata"]["name"] = json!(derived);
    let Some(spec) = object["spec"].as_object_mut() else {
        return Err(Refused("it has no spec".to_owned()));
    };
    spec.insert("deletionPolicy".to_owned(), json!(RETAIN));
    spec.insert("source".to_owned(), json!({"snapshotHandle": handle}));
    spec.remove("volumeSnapshotClassName");
    if let Some(class) = class {
        spec.insert("volumeSnapshotClassName".to_owned(), json!(class));
    }
    let mut of = spec["volumeSnapshotRef"].take();
    of["name"] = json!(derived);
    of["namespace"] = json!(target(restore, namespace));
    if let Some(of) = of.as_object_mut() {
        of.remove("uid");
        of.remove("resourceVersion");
    }
    spec.insert("volumeSnapshotRef".to_owned(), of);
    Ok(Executed {
        object,
        related: csi::content_secret(pristine).into_iter().collect(),
        ..Executed::default()
    })
}
