//! Persistent volumes and claims: which volumes come back as they were, and which are made anew by
//! whoever provisions them. Pure.

use bowline_api::files::{BackupMethod, BackupVolumeInfo};
use serde_json::Value;

/// Annotations that say that a claim and a volume belong to each other.
const BOUND: [&str; 2] = [
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
];

/// Why a volume whose files were copied is made anew.
const FILES: &str = "its files are restored into a new volume";

/// What becomes of a persistent volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The object is restored.
    AsIs,
    /// Its claim gets a new one, for this reason.
    Anew(&'static str),
    /// A volume is made from a snapshot.
    Snapshot,
}

/// Decides by what the backup says of the volume. Old backups say nothing: then it matters whether
/// there is a snapshot of it, and `copied` knows whether there is a copy of a claim's files, by
/// namespace and name.
pub(super) fn fate(
    volume: &Value,
    info: Option<&BackupVolumeInfo>,
    has_snapshot: bool,
    copied: impl FnOnce(&str, &str) -> bool,
) -> Fate {
    match info.and_then(|info| info.backup_method.as_ref()) {
        Some(BackupMethod::NativeSnapshot) => return Fate::Snapshot,
        Some(BackupMethod::PodVolumeBackup) => {
            return Fate::Anew(FILES);
        }
        Some(BackupMethod::CsiSnapshot) => {
            return Fate::Anew("a CSI snapshot becomes a new volume");
        }
        _ => {}
    }
    if info.is_none() && has_snapshot {
        return Fate::Snapshot;
    }
    let claim = &volume["spec"]["claimRef"];
    let of_claim = |key: &str| claim[key].as_str().unwrap_or_default();
    if info.is_none() && copied(of_claim("namespace"), of_claim("name")) {
        return Fate::Anew(FILES);
    }
    if volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" {
        return Fate::Anew("it has no snapshot and its reclaim policy is Delete");
    }
    Fate::AsIs
}

/// Makes a volume or claim free to be bound again.
pub(super) fn unbind(object: &mut Value) {
    if let Some(claim) = object
        .pointer_mut("/spec/claimRef")
        .and_then(Value::as_object_mut)
    {
        claim.remove("uid");
        claim.remove("resourceVersion");
    }
    if let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        for key in BOUND {
            annotations.remove(key);
        }
    }
}

/// A claim that has a volume: `anew` if that is not restored.
pub(super) fn free_claim(claim: &mut Value, anew: impl FnOnce(&str) -> bool) {
    let Some(volume) = claim["spec"]["volumeName"]
        .as_str()
        .filter(|v| !v.is_empty())
    else {
        return;
    };
    let anew = anew(volume);
    unbind(claim);
    if let Some(spec) = claim["spec"].as_object_mut().filter(|_| anew) {
        spec.remove("volumeName");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_backup_says_decides() {
        let volume = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
        let info = |method: Value| -> BackupVolumeInfo {
            serde_json::from_value(json!({"pvName": "v", "backupMethod": method, "snapshotDataMoved": false, "preserveLocalSnapshot": false, "skipped": false})).unwrap()
        };
        let is_anew = |fate| matches!(fate, Fate::Anew(_));
        fn fate(volume: &Value, info: Option<&BackupVolumeInfo>) -> Fate {
            super::fate(volume, info, false, |_, _| false)
        }
        assert_eq!(fate(&volume("Retain"), None), Fate::AsIs);
        assert!(is_anew(fate(&volume("Delete"), None)));
        assert!(is_anew(fate(&volume("Delete"), Some(&info(json!(null))))));
        assert_eq!(
            fate(&volume("Retain"), Some(&info(json!(null)))),
            Fate::AsIs
        );
        assert!(is_anew(fate(
            &volume("Retain"),
            Some(&info(json!("PodVolumeBackup")))
        )));
        assert!(is_anew(fate(
            &volume("Retain"),
            Some(&info(json!("CSISnapshot")))
        )));
        assert_eq!(
            fate(&volume("Delete"), Some(&info(json!("NativeSnapshot")))),
            Fate::Snapshot
        );
    }

    #[test]
    fn old_backups_know_of_a_copy_by_the_claim() {
        let volume = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "shop", "name": "data"}}});
        let copied = |namespace: &str, name: &str| (namespace, name) == ("shop", "data");
        let skipped = BackupVolumeInfo {
            skipped: true,
            ..BackupVolumeInfo::default()
        };
        assert_eq!(fate(&volume, None, false, copied), Fate::Anew(FILES));
        assert_eq!(fate(&volume, None, false, |_, _| false), Fate::AsIs);
        assert_eq!(fate(&volume, Some(&skipped), false, copied), Fate::AsIs);
        assert_eq!(fate(&volume, None, true, copied), Fate::Snapshot);
        assert_eq!(fate(&volume, Some(&skipped), true, copied), Fate::AsIs);
    }

    #[test]
    fn a_claim_keeps_its_volume_only_if_that_comes_back() {
        let claim = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes", "a": "b"}}, "spec": {"volumeName": "v", "x": 1}});
        let mut kept = claim.clone();
        free_claim(&mut kept, |_| false);
        assert_eq!(
            kept,
            json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"volumeName": "v", "x": 1}})
        );
        let mut freed = claim;
        free_claim(&mut freed, |volume| volume == "v");
        assert_eq!(
            freed,
            json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"x": 1}})
        );
    }
}
