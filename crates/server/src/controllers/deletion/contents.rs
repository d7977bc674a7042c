//! What belongs to a backup, and how each part of it goes.
//!
//! All functions can be repeated. Their results are the errors, worded as Velero words them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bowline_api::{
    files::{BackupVolumeInfo, Snapshot, backup_suffix},
    names::{annotation, finalizer, label, label_value, tag},
    v1::{
        Backup, BackupStorageLocation, PodVolumeBackup, Restore, UploaderType, VolumePluginBackup,
        VolumeSnapshotLocation,
    },
    v2alpha1::DataUpload,
};
use bowline_engine::movement::Mover;
use bowline_vault::{Bucket, bucket::backup_file};
use bowline_volume::embedded::{Listed, Repository};
use kube::ResourceExt;

use super::{super::backup::csi::moved, PATIENCE};
use crate::{Context, Error, Result, plugins, repositories, snapshotters::Snapshotter};

/// How long deleted restores may take to vanish.
const LIMIT: Duration = Duration::from_secs(60);

/// Native snapshots: those of the backup's file, and those that were written down in the cluster but
/// never came to be in it. Without a bucket that has files of the backup, only what was written down
/// for this very object.
pub(super) async fn snapshots(
    ctx: &Context,
    bucket: Option<&Bucket>,
    backup: &Backup,
) -> Result<Vec<String>> {
    let key = backup_file(&backup.name_any(), backup_suffix::VOLUME_SNAPSHOTS);
    let file = match bucket {
        Some(bucket) => bucket.json::<Option<Vec<Snapshot>>>(&key).await,
        None => Ok(None),
    };
    let records = match file {
        Ok(file) => file.flatten().unwrap_or_default(),
        Err(e) => {
            return Ok(vec![format!(
                "error getting backup's volume snapshots: {e}"
            )]);
        }
    };
    let labels = match bucket {
        Some(_) => format!("{}={}", label::BACKUP_NAME, label_value(&backup.name_any())),
        None => format!("{}={}", label::BACKUP_UID, backup.uid().unwrap_or_default()),
    };
    let objects = match ctx.list::<VolumePluginBackup>(&labels).await {
        Ok(objects) => objects,
        // A cluster need not have the kind.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut errors = Vec::new();
    for (location, ids) in by_location(&records, &objects) {
        if let Err(found) = delete_snapshots(ctx, &location, &ids).await? {
            errors.extend(found);
        }
    }
    if errors.is_empty() {
        for object in &objects {
            ctx.delete(object).await?;
        }
    }
    Ok(errors)
}

/// Snapshots by location.
fn by_location(
    records: &[Snapshot],
    objects: &[VolumePluginBackup],
) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    let in_file = records.iter().map(|record| {
        let id = record.status.provider_snapshot_id.as_ref();
        (Some(&record.spec.location), id)
    });
    let written_down = objects.iter().map(|object| {
        let location = object.annotations().get(annotation::SNAPSHOT_LOCATION);
        let id = object.status.as_ref().and_then(|s| s.snapshot_id.as_ref());
        (location, id)
    });
    for (location, id) in in_file.chain(written_down) {
        if let (Some(location), Some(id)) = (location, id)
            && !id.is_empty()
        {
            let ids = found.entry(location.clone()).or_default();
            ids.insert(id.clone());
        }
    }
    found
}

/// Deletes snapshots of a location. The inner errors say what stays.
async fn delete_snapshots(
    ctx: &Context,
    location: &str,
    ids: &BTreeSet<String>,
) -> Result<Result<(), Vec<String>>> {
    let Some(found) = ctx.find::<VolumeSnapshotLocation>(location).await? else {
        let why = format!("volume snapshot location {location} not found");
        return Ok(Err(vec![format!(
            "error getting volume snapshotter for snapshots {}: {why}",
            ids.iter().cloned().collect::<Vec<_>>().join(", ")
        )]));
    };
    let sink = Arc::new(|line| plugins::log(&line));
    let opening = tokio::time::timeout(PATIENCE, Snapshotter::open(ctx, &found, sink)).await;
    let opened = opening.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")));
    let snapshotter = match opened {
        Ok(snapshotter) => snapshotter,
        Err(why) => {
            return Ok(Err(vec![format!(
                "error getting volume snapshotter for volume snapshot location {location}: {why}"
            )]));
        }
    };
    let mut errors = Vec::new();
    for id in ids {
        let deleting = snapshotter.plugin.delete_snapshot(id);
        match tokio::time::timeout(PATIENCE, deleting).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => errors.push(format!("error deleting snapshot {id}: {why}")),
            Err(_) => errors.push(format!(
                "error deleting snapshot {id}: no answer within {PATIENCE:?}"
            )),
        }
    }
    Ok(match errors.is_empty() {
        true => Ok(()),
        false => Err(errors),
    })
}

/// Volume data in repositories: copies of pod volumes, and moved snapshots. What nobody here can
/// forget keeps the backup from being deleted.
pub(super) async fn volumes(
    ctx: &Context,
    bucket: Option<&Bucket>,
    backup: &Backup,
) -> Result<Vec<String>> {
    let labels = format!("{}={}", label::BACKUP_NAME, label_value(&backup.name_any()));
    let copies = ctx.list::<PodVolumeBackup>(&labels).await?;
    let (repositories, mut errors) = by_repository(&copies);
    for (place, snapshots) in repositories {
        let stored = Stored::by_backups(snapshots, BTreeSet::new());
        if let Err(why) = forget(ctx, &place, &stored).await? {
            errors.push(format!("error deleting pod volume snapshots: {why}"));
        }
    }
    if backup.spec.snapshot_move_data == Some(true) {
        errors.extend(movements(ctx, bucket, backup).await?);
    }
    Ok(errors)
}

/// Data of snapshots that was moved: what the backup's file of volumes names, and what DataUploads in
/// the cluster say that never came into it.
async fn movements(ctx: &Context, bucket: Option<&Bucket>, backup: &Backup) -> Result<Vec<String>> {
    let uploads = match moved::ended(ctx, &backup.uid().unwrap_or_default()).await? {
        Ok(uploads) => uploads,
        Err(why) => return Ok(vec![format!("error deleting moved snapshot data: {why}")]),
    };
    let key = backup_file(&backup.name_any(), backup_suffix::VOLUME_INFO);
    let file = match bucket {
        Some(bucket) => bucket.json::<Option<Vec<BackupVolumeInfo>>>(&key).await,
        None => Ok(None),
    };
    let infos = match file {
        Ok(file) => file.flatten().unwrap_or_default(),
        Err(e) => return Ok(vec![format!("error getting backup's volumes: {e}")]),
    };
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    let (repositories, mut errors) = moved_by_repository(&infos, &uploads, &location);
    let owners = BTreeSet::from([backup.uid().unwrap_or_default()]);
    for (place, snapshots) in repositories {
        let stored = Stored::by_backups(snapshots, owners.clone());
        if let Err(why) = forget(ctx, &place, &stored).await? {
            errors.push(format!("error deleting moved snapshot data: {why}"));
        }
    }
    if errors.is_empty() {
        for upload in &uploads {
            ctx.delete(upload).await?;
        }
    }
    Ok(errors)
}

/// Moved snapshots by repository, and what cannot be forgotten. A repository without any is one in which
/// something may have been stored that nobody knows of.
pub(in crate::controllers) fn moved_by_repository(
    infos: &[BackupVolumeInfo],
    uploads: &[DataUpload],
    location: &str,
) -> (BTreeMap<Place, Vec<String>>, Vec<String>) {
    let rows = infos.iter().filter_map(|info| {
        let moved = info.snapshot_data_movement_info.as_ref()?;
        let namespace = info.pvc_namespace.clone().unwrap_or_default();
        let place = (location.to_owned(), namespace);
        Some((
            place,
            moved.data_mover.as_str(),
            moved.snapshot_handle.clone(),
        ))
    });
    let live = uploads.iter().map(|upload| {
        let id = upload.status.as_ref().and_then(|s| s.snapshot_id.clone());
        let spec = &upload.spec;
        let place = (
            spec.backup_storage_location.clone(),
            spec.source_namespace.clone(),
        );
        let mover = spec.datamover.as_deref().unwrap_or_default();
        (place, mover, id.unwrap_or_default())
    });
    let mut repositories = BTreeMap::<Place, BTreeSet<String>>::new();
    let mut errors = BTreeSet::new();
    for (place, mover, id) in rows.chain(live) {
        match Mover::of(Some(mover)) {
            Mover::Ours => {
                let ids = repositories.entry(place).or_default();
                ids.extend(Some(id).filter(|id| !id.is_empty()));
            }
            Mover::Velero if id.is_empty() => {}
            Mover::Velero => {
                errors.insert(format!(
                    "error deleting moved snapshot data: snapshot {id} in the kopia repository of \
                     namespace {} cannot be deleted by this version",
                    place.1
                ));
            }
            // Its own plugin deletes what it has.
            Mover::Other(_) => {}
        }
    }
    let listed = |(place, ids): (Place, BTreeSet<String>)| (place, ids.into_iter().collect());
    (
        repositories.into_iter().map(listed).collect(),
        errors.into_iter().collect(),
    )
}

/// A repository: the location, and the namespace whose volumes it holds.
pub(in crate::controllers) type Place = (String, String);

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

/// Snapshots that are to go from a repository.
#[derive(Debug, Clone, Default)]
pub(in crate::controllers) struct Stored {
    named: Vec<String>,
    /// The uids of backups of which all goes, besides those that the named ones are of: whoever died
    /// before it could say what it had stored has stored it again, and nobody has the first one's name.
    /// None when nothing but the named ones goes.
    owners: Option<BTreeSet<String>>,
}

impl Stored {
    /// These.
    pub(in crate::controllers) fn named(named: Vec<String>) -> Self {
        Self {
            named,
            owners: None,
        }
    }

    /// These, and all of their backups and of the ones given.
    fn by_backups(named: Vec<String>, owners: BTreeSet<String>) -> Self {
        Self {
            named,
            owners: Some(owners),
        }
    }
}

/// Removes snapshots from a repository; their data goes when it is next tidied up. One that is not
/// there any more has none. The inner error says what stays.
pub(in crate::controllers) async fn forget(
    ctx: &Context,
    place: &Place,
    stored: &Stored,
) -> Result<Result<(), String>> {
    let (location, namespace) = place;
    if stored.named.is_empty() && stored.owners.is_none() {
        return Ok(Ok(()));
    }
    let Some(found) = ctx.find::<BackupStorageLocation>(location).await? else {
        let why = format!("backup storage location {location} not found");
        return Ok(match stored.named.is_empty() {
            true => Ok(()),
            false => Err(why),
        });
    };
    let forgotten = match repositories::open(ctx, &found, namespace).await {
        Ok(repository) => forget_in(&repository, stored).await.map_err(Error::from),
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
        // Nothing is known to be there, and a repository that nobody can open is no reason to keep
        // the backup.
        Err(error) if stored.named.is_empty() => {
            tracing::warn!(location, namespace, "look for snapshots: {}", error.chain());
            Ok(())
        }
        Err(error) => Err(format!(
            "snapshots {} in the restic repository of namespace {namespace}: {}",
            stored.named.join(", "),
            error.chain()
        )),
    })
}

async fn forget_in(repository: &Repository, stored: &Stored) -> bowline_volume::Result<()> {
    let others = match &stored.owners {
        None => Vec::new(),
        Some(owners) => match repository.snapshots().await {
            Ok(all) => kin(&all, &stored.named, owners),
            // A snapshot that cannot be read must not keep others.
            Err(error @ bowline_volume::Error::Damaged { .. }) => {
                tracing::warn!("list snapshots: {error}");
                Vec::new()
            }
            Err(error) => return Err(error),
        },
    };
    // The named ones last: by them the others are found.
    repository.forget(&others).await?;
    repository.forget(&stored.named).await
}

/// Snapshots that are of the same backups as the named ones, or of these, by their tags.
fn kin(all: &[Listed], named: &[String], owners: &BTreeSet<String>) -> Vec<String> {
    let owner = |snapshot: &Listed| {
        let mut tags = snapshot.tags.iter();
        let found = tags.find_map(|tag| {
            tag.split_once('=')
                .filter(|(key, _)| *key == tag::BACKUP_UID)
        });
        found
            .map(|(_, uid)| uid.to_owned())
            .filter(|uid| !uid.is_empty())
    };
    let is_named = |snapshot: &&Listed| named.contains(&snapshot.id);
    let of_named = all.iter().filter(is_named).filter_map(owner);
    let owners: BTreeSet<String> = of_named.chain(owners.iter().cloned()).collect();
    let others = all.iter().filter(|snapshot| !is_named(snapshot));
    let others = others.filter(|snapshot| owner(snapshot).is_some_and(|uid| owners.contains(&uid)));
    others.map(|snapshot| snapshot.id.clone()).collect()
}

/// Whether the files in the bucket are another backup's, which has the same name. A damaged one is
/// nobody else's.
pub(super) async fn is_anothers(
    bucket: &Bucket,
    backup: &Backup,
) -> Result<bool, bowline_vault::Error> {
    let name = backup.name_any();
    let is_anothers = match bucket.backup(&name).await {
        Ok(found) => found.is_some_and(|found| !is_same(backup, &found)),
        Err(bowline_vault::Error::Damaged { .. }) => false,
        Err(error) => return Err(error),
    };
    if is_anothers {
        tracing::warn!(
            backup = name,
            "the files in the bucket are of another backup with this name and stay"
        );
    }
    Ok(is_anothers)
}

/// The files in the bucket.
pub(super) async fn files(bucket: &Bucket, backup: &Backup) -> Vec<String> {
    let folder = format!("backups/{}", backup.name_any());
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
    fn what_a_backup_has_stored_twice_goes_twice() {
        let listed = |id: &str, tags: &[&str]| Listed {
            id: id.to_owned(),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            ..Listed::default()
        };
        let all = [
            listed("lost", &["backup=b", "backup-uid=u1"]),
            listed("known", &["backup-uid=u1", "ns=shop"]),
            listed("other", &["backup=b", "backup-uid=u2"]),
            listed("bare", &["backup-uid="]),
            listed("foreign", &[]),
        ];
        let named = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let none = BTreeSet::new();
        assert_eq!(kin(&all, &named(&["known"]), &none), ["lost"]);
        for alone in ["other", "bare", "foreign", "gone"] {
            assert!(kin(&all, &named(&[alone]), &none).is_empty(), "{alone}");
        }
        let owners = |uid: &str| BTreeSet::from([uid.to_owned()]);
        assert_eq!(kin(&all, &[], &owners("u1")), ["lost", "known"]);
        assert!(kin(&all, &[], &owners("")).is_empty(), "nobody's");
    }

    #[test]
    fn snapshots_of_the_file_and_of_the_cluster_go() {
        let record = |location: &str, id: Option<&str>| {
            let mut record = Snapshot::default();
            record.spec.location = location.to_owned();
            record.status.provider_snapshot_id = id.map(str::to_owned);
            record
        };
        let object = |location: Option<&str>, id: &str| {
            let mut object = VolumePluginBackup::default();
            if let Some(location) = location {
                let annotations = object.annotations_mut();
                annotations.insert(
                    annotation::SNAPSHOT_LOCATION.to_owned(),
                    location.to_owned(),
                );
            }
            object.status_mut().snapshot_id = Some(id.to_owned());
            object
        };
        let records = [
            record("east", Some("a")),
            record("east", None),
            record("west", Some("")),
        ];
        let objects = [
            object(Some("east"), "a"),
            object(Some("east"), "b"),
            object(Some("west"), "c"),
            object(None, "imported by hand"),
        ];
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let expected = [
            ("east".to_owned(), ids(&["a", "b"])),
            ("west".to_owned(), ids(&["c"])),
        ];
        assert_eq!(by_location(&records, &objects), expected.into());
    }
}
