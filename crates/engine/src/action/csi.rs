//! CSI snapshots on their way into the archive: a snapshot brings its class and content, these bring
//! their Secrets. What a snapshot says of its content was written into it when it was taken.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_api::{names::annotation, v1::Backup};
use serde_json::{Value, json};

use super::{BackupItemAction, Executed, Refused, Related, text};
use crate::{
    csi::{self, operation},
    discovery::Resource,
};

/// The actions, in the order of their names.
pub(super) fn all() -> Vec<Arc<dyn BackupItemAction>> {
    let action = |name, kind, execute| -> Arc<dyn BackupItemAction> {
        Arc::new(Action {
            name,
            kind,
            execute,
        })
    };
    vec![
        action(operation::ACTION, csi::SNAPSHOTS, snapshot),
        action(
            "velero.io/csi-volumesnapshotclass-backupper",
            csi::CLASSES,
            class,
        ),
        action(
            "velero.io/csi-volumesnapshotcontent-backupper",
            csi::CONTENTS,
            content,
        ),
    ]
}

struct Action {
    name: &'static str,
    kind: &'static str,
    execute: fn(Value) -> Result<Executed, Refused>,
}

#[async_trait]
impl BackupItemAction for Action {
    fn name(&self) -> &str {
        self.name
    }

    fn applies_to(&self, resource: &Resource) -> bool {
        resource.group_resource() == self.kind
    }

    async fn execute(&self, object: Value, _: &Backup) -> Result<Executed, Refused> {
        (self.execute)(object)
    }
}

fn snapshot(mut snapshot: Value) -> Result<Executed, Refused> {
    let (namespace, name) = (
        text(&snapshot, "/metadata/namespace").to_owned(),
        text(&snapshot, "/metadata/name").to_owned(),
    );
    let class = text(&snapshot, "/spec/volumeSnapshotClassName");
    let class = (!class.is_empty()).then(|| Related::new(csi::CLASSES, "", class));
    let Some(content) = csi::bound_content(&snapshot) else {
        return Err(Refused("it is not bound to a content".to_owned()));
    };
    let content = Related::new(csi::CONTENTS, "", content);
    let id = operation::Id {
        namespace: namespace.clone(),
        name: name.clone(),
        started: jiff::Timestamp::now(),
    };
    let itself = Related::new(csi::SNAPSHOTS, &namespace, &name);
    insist(&mut snapshot);
    csi::keep_snapshot(&mut snapshot);
    Ok(Executed {
        object: snapshot,
        related: class.into_iter().chain([content.clone()]).collect(),
        operation_id: id.to_string(),
        post_operation: vec![itself, content],
    })
}

fn class(object: Value) -> Result<Executed, Refused> {
    let secret = csi::lister_secret(&object);
    Ok(with_secret(object, secret))
}

fn content(mut object: Value) -> Result<Executed, Refused> {
    csi::keep_snapshot(&mut object);
    let secret = csi::content_secret(&object);
    Ok(with_secret(object, secret))
}

fn with_secret(mut object: Value, secret: Option<Related>) -> Executed {
    if secret.is_some() {
        insist(&mut object);
    }
    Executed {
        object,
        related: secret.into_iter().collect(),
        ..Executed::default()
    }
}

/// What it brings along is in the backup, whatever filters say.
fn insist(object: &mut Value) {
    object["metadata"]["annotations"][annotation::BACKUP_MUST_INCLUDE] = json!("true");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_brings_its_class_and_content_and_is_read_again() {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "s"},
            "spec": {"volumeSnapshotClassName": "fast"},
            "status": {"boundVolumeSnapshotContentName": "c"},
        });
        let executed = snapshot(object).unwrap();
        let content = Related::new(csi::CONTENTS, "", "c");
        assert_eq!(
            executed.related,
            [Related::new(csi::CLASSES, "", "fast"), content.clone()]
        );
        assert_eq!(
            executed.post_operation,
            [Related::new(csi::SNAPSHOTS, "shop", "s"), content]
        );
        assert!(executed.operation_id.starts_with("shop/s/2"));
        assert!(snapshot(json!({"metadata": {"name": "s"}})).is_err());
    }
}
