//! What of a bucket's backup becomes an object here, and what that object looks like.

use std::collections::BTreeMap;

use bowline_api::{
    names::{label, label_value},
    v1::{Backup, BackupHooks, BackupPhase as Phase, PodVolumeBackup, VolumePluginBackup},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

/// On an imported backup until all that belongs to it is there too.
const HALF: &str = "bowline.io/import-unfinished";

/// Whether a backup is imported.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Take,
    /// Not now, and nothing is wrong.
    Leave(String),
    /// Never: somebody should look.
    Refuse(String),
}

/// Judges the backup in a folder of the bucket.
pub(super) fn judge(backup: &Backup, folder: &str, now: Timestamp) -> Verdict {
    let name = backup.name_any();
    if name != folder {
        // Imported under its own name it would look like an object without files.
        return Verdict::Refuse(format!(
            "the folder is named {folder:?} but the backup in it {name:?}"
        ));
    }
    match phase(backup) {
        Some(Phase::Completed | Phase::PartiallyFailed | Phase::Failed) => Verdict::Take,
        Some(phase) if is_unfinished(phase) => {
            if is_expired(backup, now) {
                Verdict::Take
            } else {
                Verdict::Leave(format!("its phase is {phase}"))
            }
        }
        Some(phase) => Verdict::Leave(format!("its phase is {phase}")),
        None => Verdict::Leave("it has no phase".to_owned()),
    }
}

fn phase(backup: &Backup) -> Option<&Phase> {
    backup.status.as_ref()?.phase.as_ref()
}

/// Another server is, or was, at work on it.
fn is_unfinished(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::WaitingForPluginOperations
            | Phase::WaitingForPluginOperationsPartiallyFailed
            | Phase::Finalizing
            | Phase::FinalizingPartiallyFailed
    )
}

fn is_expired(backup: &Backup, now: Timestamp) -> bool {
    let status = backup.status.as_ref();
    status
        .and_then(|status| status.expiration)
        .is_some_and(|end| end.0 <= now)
}

/// The object for a backup of the bucket. `schedules` are those that exist here, with their uids.
///
/// A bucket may come from anywhere: of the metadata only what is known to be wanted is taken, and
/// hooks, which are commands, are not.
pub(super) fn backup(
    found: &Backup,
    namespace: &str,
    location: &str,
    schedules: &BTreeMap<String, String>,
    now: Timestamp,
) -> Backup {
    let mut backup = found.clone();
    let mut labels = found.labels().clone();
    labels.insert(label::STORAGE_LOCATION.to_owned(), label_value(location));
    backup.metadata = ObjectMeta {
        name: found.metadata.name.clone(),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels),
        annotations: found.metadata.annotations.clone(),
        owner_references: owners(found.owner_references(), schedules),
        ..Default::default()
    };
    backup.spec.hooks = Some(BackupHooks::default());
    backup.spec.storage_location = Some(location.to_owned());
    if phase(found).is_some_and(is_unfinished) && is_expired(found, now) {
        backup.status_mut().phase = Some(Phase::PartiallyFailed);
    }
    mark_whole(&mut backup);
    backup
}

/// Owners other than schedules stay; schedules only if they are the same ones.
fn owners(
    owners: &[OwnerReference],
    schedules: &BTreeMap<String, String>,
) -> Option<Vec<OwnerReference>> {
    let kept: Vec<_> = owners
        .iter()
        .filter(|owner| owner.kind != "Schedule" || schedules.get(&owner.name) == Some(&owner.uid))
        .cloned()
        .collect();
    (!kept.is_empty()).then_some(kept)
}

/// The object for a pod volume backup of the bucket, belonging to the imported backup.
pub(super) fn volume(found: &PodVolumeBackup, backup: &Backup, location: &str) -> PodVolumeBackup {
    let mut volume = found.clone();
    // The list in the bucket leaves out what its entries are.
    volume.kind = Some("PodVolumeBackup".to_owned());
    volume.api_version = Some("velero.io/v1".to_owned());
    volume.metadata = belonging(&found.metadata, backup);
    volume.spec.backup_storage_location = location.to_owned();
    volume
}

/// The same for what a plugin said of a snapshot.
pub(super) fn plugin_volume(found: &VolumePluginBackup, backup: &Backup) -> VolumePluginBackup {
    let mut volume = found.clone();
    volume.kind = Some("VolumePluginBackup".to_owned());
    volume.api_version = Some("velero.io/v1".to_owned());
    volume.metadata = belonging(&found.metadata, backup);
    volume
}

/// The metadata of something that belonged to a backup, and belongs to the imported one.
fn belonging(found: &ObjectMeta, backup: &Backup) -> ObjectMeta {
    let uid = backup.uid().unwrap_or_default();
    let mut labels = found.labels.clone();
    if let Some(label) = labels
        .as_mut()
        .and_then(|labels| labels.get_mut(label::BACKUP_UID))
    {
        label.clone_from(&uid);
    }
    let mut owners = found.owner_references.clone();
    for owner in owners.iter_mut().flatten() {
        if owner.kind == "Backup" && owner.name == backup.name_any() {
            owner.uid.clone_from(&uid);
        }
    }
    ObjectMeta {
        name: found.name.clone(),
        namespace: backup.namespace(),
        labels,
        annotations: found.annotations.clone(),
        owner_references: owners,
        ..Default::default()
    }
}

/// Whether what belongs to an imported backup is not all there yet.
pub(super) fn is_half(backup: &Backup) -> bool {
    backup.annotations().contains_key(HALF)
}

pub(super) fn mark_half(backup: &mut Backup) {
    let annotations = backup.annotations_mut();
    annotations.insert(HALF.to_owned(), "true".to_owned());
}

pub(super) fn mark_whole(backup: &mut Backup) {
    if let Some(annotations) = &mut backup.metadata.annotations {
        annotations.remove(HALF);
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::Time;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn in_bucket(phase: &str, expiration: Option<i64>) -> Backup {
        let mut backup = Backup::new("elsewhere", "b", Default::default());
        backup.status_mut().phase = (!phase.is_empty()).then(|| Phase::from(phase));
        backup.status_mut().expiration = expiration.map(|time| Time(at(time)));
        backup
    }

    #[test]
    fn finished_backups_are_taken_and_others_left() {
        for (phase, expiration, is_taken) in [
            ("Completed", None, true),
            ("Completed", Some(1), true),
            ("PartiallyFailed", None, true),
            ("Failed", None, true),
            ("Finalizing", None, false),
            ("Finalizing", Some(2000), false),
            ("Finalizing", Some(1), true),
            ("FinalizingPartiallyFailed", Some(1), true),
            ("WaitingForPluginOperations", Some(1), true),
            (
                "WaitingForPluginOperationsPartiallyFailed",
                Some(2000),
                false,
            ),
            ("InProgress", Some(1), false),
            ("Deleting", Some(1), false),
            ("FailedValidation", None, false),
            ("New", None, false),
            ("", None, false),
            ("Pondering", None, false),
        ] {
            let verdict = judge(&in_bucket(phase, expiration), "b", at(1000));
            assert_eq!(verdict == Verdict::Take, is_taken, "{phase} {expiration:?}");
        }
    }

    #[test]
    fn a_folder_with_another_name_is_refused() {
        assert_eq!(
            judge(&in_bucket("Completed", None), "a", at(1000)),
            Verdict::Refuse("the folder is named \"a\" but the backup in it \"b\"".to_owned())
        );
    }

    #[test]
    fn an_imported_backup_belongs_here() {
        let owner = |kind: &str, name: &str| OwnerReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: "old".to_owned(),
            ..Default::default()
        };
        let mut found = in_bucket("Finalizing", Some(1));
        found.metadata.uid = Some("old".to_owned());
        found.metadata.resource_version = Some("7".to_owned());
        found.metadata.finalizers = Some(vec!["example.com/forever".to_owned()]);
        found.metadata.labels = Some([("team".to_owned(), "red".to_owned())].into());
        found.metadata.owner_references = Some(vec![
            owner("Schedule", "same"),
            owner("Schedule", "recreated"),
            owner("Schedule", "gone"),
            owner("Team", "red"),
        ]);
        found.spec.hooks = serde_json::from_value(
            serde_json::json!({"resources": [{"name": "h", "pre": [{"exec": {"command": ["rm"]}}]}]}),
        )
        .unwrap();
        let schedules = BTreeMap::from([
            ("same".to_owned(), "old".to_owned()),
            ("recreated".to_owned(), "new".to_owned()),
        ]);
        let made = backup(&found, "velero", "here", &schedules, at(1000));
        assert_eq!(
            serde_json::to_value(&made).unwrap(),
            serde_json::json!({
                "apiVersion": "velero.io/v1",
                "kind": "Backup",
                "metadata": {
                    "name": "b",
                    "namespace": "velero",
                    "labels": {"team": "red", "velero.io/storage-location": "here"},
                    "ownerReferences": [
                        {"apiVersion": "", "kind": "Schedule", "name": "same", "uid": "old"},
                        {"apiVersion": "", "kind": "Team", "name": "red", "uid": "old"},
                    ],
                },
                "spec": {"hooks": {}, "storageLocation": "here"},
                "status": {"phase": "PartiallyFailed", "expiration": "1970-01-01T00:00:01Z"},
            })
        );
    }

    #[test]
    fn an_imported_volume_belongs_to_the_new_backup() {
        let mut here = Backup::new("velero", "b", Default::default());
        here.metadata.uid = Some("new".to_owned());
        let mut found = PodVolumeBackup::new("elsewhere", "b-x", Default::default());
        found.kind = None;
        found.metadata.labels = Some([(label::BACKUP_UID.to_owned(), "old".to_owned())].into());
        found.metadata.owner_references = Some(vec![OwnerReference {
            kind: "Backup".to_owned(),
            name: "b".to_owned(),
            uid: "old".to_owned(),
            ..Default::default()
        }]);
        let made = volume(&found, &here, "here");
        assert_eq!(made.labels()[label::BACKUP_UID], "new");
        assert_eq!(made.owner_references()[0].uid, "new");
        assert_eq!(made.namespace().as_deref(), Some("velero"));
        assert_eq!(made.spec.backup_storage_location, "here");
        assert_eq!(made.kind.as_deref(), Some("PodVolumeBackup"));
    }

    #[test]
    fn half_an_import_is_marked() {
        let mut backup = in_bucket("Completed", None);
        assert!(!is_half(&backup));
        mark_half(&mut backup);
        assert!(is_half(&backup));
        mark_whole(&mut backup);
        assert!(!is_half(&backup));
    }
}
