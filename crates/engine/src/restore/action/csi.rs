//! CSI snapshots on their way back: a claim is filled from a snapshot, which is made of a content with
//! the handle that the backup has. All of them have names that follow from the restore.

mod content;

use std::sync::Arc;

use async_trait::async_trait;
use bowline_api::{
    names::{annotation, label},
    v1::Restore,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

pub use content::GroupStubs;

use super::{Change, Executed, RestoreItemAction, remove_entries};
use crate::{
    action::{Refused, Related, text},
    csi::{self, GROUP, RETAIN, derived_name},
    movement::DOWNLOAD_ACTION,
};

/// The actions, in the order of their names; `groups` puts stubs where contents of groups were, unless
/// nothing is to be written.
#[must_use]
pub fn all(
    client: &Client,
    groups: Option<Arc<dyn GroupStubs>>,
) -> Vec<Arc<dyn RestoreItemAction>> {
    vec![
        Arc::new(Claims {
            client: client.clone(),
        }),
        Arc::new(SNAPSHOTS),
        Arc::new(CLASSES),
        Arc::new(content::Contents::new(client, groups)),
    ]
}

const SNAPSHOTS: Change = Change {
    name: "velero.io/csi-volumesnapshot-restorer",
    kinds: &[csi::SNAPSHOTS],
    concerns: |_| true,
    change: snapshot,
};

const CLASSES: Change = Change {
    name: "velero.io/csi-volumesnapshotclass-restorer",
    kinds: &[csi::CLASSES],
    concerns: |_| true,
    change: class,
};

/// What a live snapshot says of its backup; one that is restored has no part in that.
const OF_THE_BACKUP: &[&str] = &[label::BACKUP_UID, annotation::SNAPSHOT_TAKER];

struct Claims {
    client: Client,
}

#[async_trait]
impl RestoreItemAction for Claims {
    fn name(&self) -> &str {
        DOWNLOAD_ACTION
    }

    fn applies_to(&self, kind: &str, _: &Value) -> bool {
        kind == "persistentvolumeclaims"
    }

    async fn execute(
        &self,
        mut object: Value,
        pristine: &Value,
        restore: &Restore,
    ) -> Result<Executed, Refused> {
        if !is_wanted(restore) {
            forget_volume(&mut object);
            return Ok(object.into());
        }
        if snapshot_of(pristine).is_none() {
            return Ok(object.into());
        }
        let namespace = target(restore, text(pristine, "/metadata/namespace"));
        let name = text(pristine, "/metadata/name");
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let found = claims.get_metadata_opt(name).await;
        let found = found.map_err(|error| Refused(format!("read claim {name}: {error}")))?;
        if found.is_some() {
            return Ok(object.into());
        }
        Ok(claim(object, pristine, restore))
    }
}

/// Whether volumes come back at all.
fn is_wanted(restore: &Restore) -> bool {
    restore.spec.restore_pvs != Some(false)
}

/// Where objects of a namespace go.
fn target<'a>(restore: &'a Restore, namespace: &'a str) -> &'a str {
    let mapping = restore.spec.namespace_mapping.as_ref();
    let mapped = mapping.and_then(|mapping| mapping.get(namespace));
    mapped.map_or(namespace, String::as_str)
}

/// The VolumeSnapshot of a claim; none if it has none, or if its data is elsewhere.
fn snapshot_of(claim: &Value) -> Option<&str> {
    let annotations = &claim["metadata"]["annotations"];
    if annotations[annotation::DATA_UPLOAD_NAME].is_string() {
        return None;
    }
    let name = annotations[label::VOLUME_SNAPSHOT_NAME].as_str();
    name.filter(|name| !name.is_empty())
}

/// A claim forgets its volume, and what that was made of.
pub(in crate::restore) fn forget_volume(claim: &mut Value) {
    if let Some(spec) = claim["spec"].as_object_mut() {
        for field in ["volumeName", "dataSource", "dataSourceRef"] {
            spec.remove(field);
        }
    }
}

fn claim(mut object: Value, pristine: &Value, restore: &Restore) -> Executed {
    let name = snapshot_of(pristine).unwrap_or_default();
    forget_volume(&mut object);
    object["spec"]["dataSource"] = json!({
        "apiGroup": GROUP,
        "kind": "VolumeSnapshot",
        "name": derived_name(&restore.uid().unwrap_or_default(), name),
    });
    insist(&mut object);
    let namespace = text(pristine, "/metadata/namespace");
    Executed {
        object,
        related: vec![Related::new(csi::SNAPSHOTS, namespace, name)],
        ..Executed::default()
    }
}

fn snapshot(mut object: Value, pristine: &Value, restore: &Restore) -> Result<Executed, Refused> {
    if !is_wanted(restore) {
        return Ok(skipped(object));
    }
    let name = text(pristine, "/metadata/name");
    let Some(content) = csi::bound_content(pristine) else {
        let why = format!("VolumeSnapshot {name} was not bound to a content when it was backed up");
        return Err(Refused(why));
    };
    let derived = derived_name(&restore.uid().unwrap_or_default(), name);
    forget_backup(&mut object);
    object["metadata"]["name"] = json!(derived);
    object["metadata"]["annotations"][annotation::CSI_VSC_DELETION_POLICY] = json!(RETAIN);
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("volumeSnapshotClassName");
        let source = json!({"volumeSnapshotContentName": derived});
        spec.insert("source".to_owned(), source);
    }
    insist(&mut object);
    Ok(Executed {
        object,
        related: vec![Related::new(csi::CONTENTS, "", content)],
        ..Executed::default()
    })
}

fn class(object: Value, pristine: &Value, restore: &Restore) -> Result<Executed, Refused> {
    if !is_wanted(restore) {
        return Ok(skipped(object));
    }
    Ok(Executed {
        object,
        related: csi::lister_secret(pristine).into_iter().collect(),
        ..Executed::default()
    })
}

fn skipped(object: Value) -> Executed {
    Executed {
        object,
        skip: true,
        ..Executed::default()
    }
}

fn forget_backup(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata") {
        remove_entries(metadata, "labels", OF_THE_BACKUP);
        remove_entries(metadata, "annotations", OF_THE_BACKUP);
    }
}

/// What it needs is restored, whatever filters say.
fn insist(object: &mut Value) {
    object["metadata"]["annotations"][annotation::RESTORE_MUST_INCLUDE] = json!("true");
}

#[cfg(test)]
mod tests;
