//! What belongs to a backup, and how each part of it goes.
//!
//! All functions can be repeated. Their results are the errors, worded as Velero words them.

use std::{collections::BTreeMap, time::Duration};

use bowline_api::{
    files::{Snapshot, backup_suffix},
    names::{finalizer, label, label_value},
    v1::{Backup, BackupStorageLocation, PodVolumeBackup, Restore, UploaderType},
    v2alpha1::DataUpload,
};
use bowline_vault::{Bucket, bucket::backup_file};
use kube::ResourceExt;

use crate::{Context, Error, Result, repositories};

/// How long deleted restores may take to vanish.
const LIMIT: Duration = Duration::from_secs(60);

/// Native snapshots. Nobody here can delete them yet, and a backup must not go while they stay.
pub(super) async fn snapshots(bucket: &Bucket, backup: &str) -> Vec<String> {
    let key = backup_file(backup, backup_suffix::VOLUME_SNAPSHOTS);
    let snapshots = match bucket.json::<Option<Vec<Snapshot>>>(&key).await {
        Ok(file) => file.flatten().unwrap_or_default(),
        Err(e) => return vec![format!("error getting backup's volume snapshots: {e}")],
    };
    snapshots.iter().filter_map(kept_snapshot).collect()
}

fn kept_snapshot(snapshot: &Snapshot) -> Option<String> {
    let id = snapshot.status.provider_snapshot_id.as_deref()?;
    (!id.is_empty()).then(|| {
        format!(
            "error deleting snapshot {id}: there is no volume snapshotter for location {:?}",
            snapshot.spec.location
        )
    })
}

/// Volume data in repositories: copies of pod volumes, and moved snapshots. What nobody here can
/// forget keeps the backup from being deleted.
pub(super) async fn volumes(ctx: &Context, backup: &Backup) -> Result<Vec<String>> {
    let labels = format!("{}={}", label::BACKUP_NAME, label_value(&backup.name_any()));
    let copies = ctx.list::<PodVolumeBackup>(&labels).await?;
    let (repositories, mut errors) = by_repository(&copies);
    for (place, snapshots) in repositories {
        if let Err(why) = forget(ctx, &place, &snapshots).await? {
            errors.push(format!("error deleting pod volume snapshots: {why}"));
        }
    }
    if backup.spec.snapshot_move_data == Some(true) {
        for upload in ctx.list::<DataUpload>(&labels).await? {
            match kept_upload(&upload) {
                Some(error) => errors.push(error),
                None => ctx.delete(&upload).await?,
            }
        }
    }
    Ok(errors)
}

/// A repository: the location, and the namespace whose volumes it holds.
type Place = (String, String);

/// The snapshots of copies by repository, and what cannot be forgotten.
fn by_repository(copies: &[PodVolumeBackup]) -> (BTreeMap<Place, Vec<String>>, Vec<String>) {
    let mut repositories = BTreeMap::<Place, Vec<String>>::new();
    let mut errors = Vec::new();
    for copy in copies {
        let status = copy.status.as_ref();
        let id = status.and_then(|status| status.snapshot_id.as_deref());
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            continue;
        };
        let namespace = copy.spec.pod.namespace.clone().unwrap_or_default();
        match &copy.spec.uploader_type {
            None | Some(UploaderType::Restic | UploaderType::Unset) => {
                let place = (copy.spec.backup_storage_location.clone(), namespace);
                repositories.entry(place).or_default().push(id.to_owned());
            }
            Some(other) => errors.push(format!(
                "error deleting pod volume snapshots: snapshot {id} in the {} repository of \
                 namespace {namespace} cannot be deleted by this version",
                other.as_str()
            )),
        }
    }
    (repositories, errors)
}

/// Removes snapshots from a repository; their data goes when it is next tidied up. One that is not
/// there any more has none. The inner error says what stays.
async fn forget(ctx: &Context, place: &Place, snapshots: &[String]) -> Result<Result<(), String>> {
    let (location, namespace) = place;
    let Some(found) = ctx.find::<BackupStorageLocation>(location).await? else {
        let why = format!("backup storage location {location} not found");
        return Ok(Err(why));
    };
    let forgotten = match repositories::open(ctx, &found, namespace).await {
        Ok(repository) => repository.forget(snapshots).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    Ok(match forgotten {
        Ok(()) => Ok(()),
        Err(Error::Volume(bowline_volume::Error::NoRepository(_))) => {
            tracing::info!(
                location,
                namespace,
                "there is no repository to forget snapshots in"
            );
            Ok(())
        }
        Err(error @ Error::Api { .. }) => return Err(error),
        Err(error) => Err(format!(
            "snapshots {} in the restic repository of namespace {namespace}: {}",
            snapshots.join(", "),
            error.chain()
        )),
    })
}

fn kept_upload(upload: &DataUpload) -> Option<String> {
    let id = upload.status.as_ref()?.snapshot_id.as_deref()?;
    (!id.is_empty()).then(|| {
        format!(
            "error deleting moved snapshot data: snapshot {id} of data upload {} cannot be \
             deleted by this version",
            upload.name_any()
        )
    })
}

/// The files in the bucket.
pub(super) async fn files(bucket: &Bucket, backup: &Backup) -> Vec<String> {
    let name = backup.name_any();
    // One that cannot be read is nobody else's either.
    if let Ok(Some(found)) = bucket.backup(&name).await
        && !is_same(backup, &found)
    {
        tracing::warn!(
            backup = name,
            "the files in the bucket are of another backup with this name and stay"
        );
        return Vec::new();
    }
    let folder = format!("backups/{name}");
    let errors = bucket.delete_folder(&folder).await.err();
    let worded = |e| format!("error removing backup from backup storage: {e}");
    errors.into_iter().flatten().map(worded).collect()
}

/// Whether the backup in the bucket is the one of the object. Its uid does not tell: it changes with
/// every import. A backup that failed because its name was taken has another start.
fn is_same(object: &Backup, in_bucket: &Backup) -> bool {
    let start = |backup: &Backup| {
        let time = backup.status.as_ref()?.start_timestamp?;
        Some(time.0.as_second())
    };
    start(object) == start(in_bucket)
}

/// Restores from the backup, and their files.
pub(super) async fn restores(
    ctx: &Context,
    backup: &str,
    bucket: Option<&Bucket>,
) -> Result<Vec<String>> {
    let mut errors = Vec::new();
    for restore in of(ctx, backup).await? {
        let name = restore.name_any();
        ctx.delete(&restore).await?;
        let left = match bucket {
            Some(bucket) => bucket.delete_folder(&format!("restores/{name}")).await,
            None => Ok(()),
        };
        match left {
            Ok(()) => release(ctx, &name).await?,
            Err(left) => errors.extend(
                left.iter()
                    .map(|e| format!("error deleting restore {}/{name}: {e}", ctx.namespace)),
            ),
        }
    }
    if !errors.is_empty() {
        return Ok(errors);
    }
    let end = tokio::time::Instant::now() + LIMIT;
    loop {
        let left: Vec<_> = of(ctx, backup).await?;
        if left.is_empty() {
            return Ok(errors);
        }
        if tokio::time::Instant::now() > end {
            let names = left.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
            errors.push(format!(
                "error deleting restore {}: still there after a minute",
                names.join(", ")
            ));
            return Ok(errors);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn of(ctx: &Context, backup: &str) -> Result<Vec<Restore>> {
    let mut restores = ctx.list::<Restore>("").await?;
    restores.retain(|restore| restore.spec.backup_name.as_deref() == Some(backup));
    Ok(restores)
}

/// Lets a restore go whose files are gone.
async fn release(ctx: &Context, name: &str) -> Result<()> {
    let Some(restore) = ctx.find::<Restore>(name).await? else {
        return Ok(());
    };
    let mut new = restore.clone();
    new.finalizers_mut()
        .retain(|name| name != finalizer::RESTORE);
    if new.finalizers().len() < restore.finalizers().len() {
        match ctx.update(&restore, &new).await {
            Err(e) if e.is_stale() => {}
            result => {
                result?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bowline_api::Time;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn files_belong_to_the_backup_with_the_same_start() {
        let backup = |start: Option<i64>| {
            let mut backup = Backup::default();
            let time = |seconds| Time(Timestamp::from_second(seconds).unwrap());
            backup.status_mut().start_timestamp = start.map(time);
            backup
        };
        assert!(is_same(&backup(Some(5)), &backup(Some(5))));
        assert!(!is_same(&backup(Some(9)), &backup(Some(5))));
        assert!(!is_same(&backup(None), &backup(Some(5))));
    }

    #[test]
    fn snapshots_are_forgotten_by_repository() {
        let copy = |namespace: &str, uploader: Option<&str>, id: Option<&str>| {
            let mut copy = PodVolumeBackup::default();
            copy.spec.uploader_type = uploader.map(UploaderType::from);
            copy.spec.backup_storage_location = "here".to_owned();
            copy.spec.pod.namespace = Some(namespace.to_owned());
            copy.status_mut().snapshot_id = id.map(str::to_owned);
            copy
        };
        let copies = [
            PodVolumeBackup::default(),
            copy("shop", Some("restic"), Some("a")),
            copy("shop", Some(""), Some("b")),
            copy("other", None, Some("c")),
            copy("other", Some("restic"), Some("")),
            copy("shop", Some("kopia"), Some("k")),
            copy("shop", Some("kopia"), None),
        ];
        let (repositories, errors) = by_repository(&copies);
        let place = |namespace: &str| ("here".to_owned(), namespace.to_owned());
        let expected = [
            (place("other"), vec!["c".to_owned()]),
            (place("shop"), vec!["a".to_owned(), "b".to_owned()]),
        ];
        assert_eq!(repositories, expected.into());
        assert_eq!(
            errors,
            [
                "error deleting pod volume snapshots: snapshot k in the kopia repository of \
                 namespace shop cannot be deleted by this version"
            ]
        );
    }

    #[test]
    fn snapshots_that_stay_are_named() {
        let mut snapshot = Snapshot::default();
        assert_eq!(kept_snapshot(&snapshot), None);
        snapshot.spec.location = "east".to_owned();
        snapshot.status.provider_snapshot_id = Some("snap-1".to_owned());
        assert_eq!(
            kept_snapshot(&snapshot).unwrap(),
            "error deleting snapshot snap-1: there is no volume snapshotter for location \"east\""
        );
    }
}
