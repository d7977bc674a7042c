//! The end of a backup's live snapshots: the objects go, and what the driver has stays or goes with
//! them. They are found by the uid of their backup, whoever made them. Can be repeated.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bowline_api::{
    files::BackupOperation,
    names::{annotation, label},
    v1::{Backup, BackupPhase, BackupStorageLocation},
};
use bowline_engine::{
    csi::{self, DELETE, RETAIN, operation},
    movement::Mover,
};
use bowline_vault::crash;
use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    all_snapshots, content_of, contents, delete, gone, groups, is_restored, labelled, patch,
    snapshots, storage, value,
};
use crate::{Context, Error, Result};

/// Snapshots that are seen to at the same time.
const PARALLEL: usize = 64;
/// How long a driver may take to delete a snapshot that came to nothing, and the snapshot controller to
/// let go of one that stays.
const LIMIT: Duration = Duration::from_secs(120);
/// How long the controller may take when nothing depends on it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Whose snapshots stay in the storage.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stays<'a> {
    /// None: the backup came to nothing.
    None,
    /// All: the backup is in the bucket.
    All,
    /// Those that operations of the backup have waited for; only these are in its archive.
    Of(&'a [BackupOperation]),
}

impl Stays<'_> {
    fn has(self, namespace: &str, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of(operations) => operations.iter().any(|operation| {
                let spec = &operation.spec;
                let of = &spec.resource_identifier;
                spec.backup_item_action == operation::ACTION
                    && (of.namespace.as_str(), of.name.as_str()) == (namespace, name)
            }),
        }
    }
}

/// What becomes of a backup's snapshots.
struct Fate<'a> {
    stays: Stays<'a>,
    /// Groups, as their drivers name them, of which a member stays: no member goes alone.
    kept: BTreeSet<String>,
    /// What could not be deleted.
    left: Mutex<Vec<String>>,
}

impl<'a> Fate<'a> {
    fn new(stays: Stays<'a>) -> Self {
        Self {
            stays,
            kept: BTreeSet::new(),
            left: Mutex::default(),
        }
    }

    fn spares(&self, content: &Value) -> bool {
        let of = &content["spec"]["volumeSnapshotRef"];
        let text = |key: &str| of[key].as_str().unwrap_or_default();
        let group = csi::group_handle(content);
        self.stays.has(text("namespace"), text("name"))
            || group.is_some_and(|group| self.kept.contains(group))
    }
}

/// Removes the live snapshots of a backup. Says what the driver does not delete.
pub(crate) async fn clear(
    client: &Client,
    backup_uid: &str,
    stays: Stays<'_>,
) -> Result<Vec<String>> {
    if backup_uid.is_empty() {
        return Ok(Vec::new());
    }
    let labels = format!("{}={backup_uid}", label::BACKUP_UID);
    let mut fate = Fate::new(stays);
    let marked = labelled(&contents(client), &labels).await?;
    let spared = marked.iter().filter(|content| fate.spares(content));
    fate.kept = spared
        .filter_map(|content| csi::group_handle(content).map(str::to_owned))
        .collect();
    let fate = &fate;
    // Groups first: they make members anew that they miss.
    let has = |namespace: &str, name: &str| stays.has(namespace, name);
    let members = groups::clear(client, &labels, has, &fate.kept).await?;
    let live = live(client, &labels).await?;
    let seen_to: BTreeSet<String> = live
        .iter()
        .filter_map(|snapshot| csi::bound_content(snapshot).map(str::to_owned))
        .collect();
    stream::iter(live)
        .map(Ok)
        .try_for_each_concurrent(PARALLEL, |snapshot| async move {
            one(client, &snapshot, fate).await
        })
        .await?;
    // Contents whose snapshots are gone already.
    let labelled = labelled(&contents(client), &labels).await?;
    for content in members.into_iter().chain(labelled) {
        if is_restored(&content) || seen_to.contains(&place(&content).1) {
            continue;
        }
        let_go(client, &content, fate.spares(&content), fate).await?;
    }
    let mut left = fate.left.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut left))
}

/// Snapshots that a backup has made. What a restore made of its archive may have the same labels.
async fn live(client: &Client, labels: &str) -> Result<Vec<Value>> {
    let mut found = labelled(&all_snapshots(client), labels).await?;
    found.retain(|snapshot| !is_restored(snapshot));
    Ok(found)
}

/// Removes one snapshot that is of no use to anybody, with what the driver has.
pub(crate) async fn discard(client: &Client, snapshot: &Value) -> Result<()> {
    one(client, snapshot, &Fate::new(Stays::None)).await
}

/// The VolumeSnapshot goes before its content: one that misses its content gets another, made of the
/// same snapshot in the storage, which then goes with that.
async fn one(client: &Client, snapshot: &Value, fate: &Fate<'_>) -> Result<()> {
    let (namespace, name) = place(snapshot);
    let mut stays = fate.stays.has(&namespace, &name);
    if let Some(content) = content(client, snapshot).await? {
        stays = stays || fate.spares(&content);
        // The label finds it when the snapshot is gone.
        let uid = &snapshot["metadata"]["labels"][label::BACKUP_UID];
        let wanted = json!({
            "metadata": {"labels": {label::BACKUP_UID: uid}},
            "spec": {"deletionPolicy": policy(&content, stays)},
        });
        patch(&contents(client), &place(&content).1, &wanted).await?;
    }
    crash::here("after snapshot policy");
    let api = snapshots(client, &namespace);
    delete(&api, snapshot).await?;
    crash::here("after snapshot deletion");
    let patience = match stays {
        true => LIMIT,
        false => PATIENCE,
    };
    if !gone(&api, snapshot, patience).await {
        tracing::warn!(
            namespace,
            name,
            "VolumeSnapshot is still there after {patience:?}: does the snapshot controller run?"
        );
    }
    match content(client, snapshot).await? {
        Some(content) => {
            let stays = stays || fate.spares(&content);
            let_go(client, &content, stays, fate).await
        }
        None => Ok(()),
    }
}

/// What becomes of the storage when a content goes.
fn policy(content: &Value, stays: bool) -> &'static str {
    // The driver's side leaves it to the group to delete what belongs to one.
    match stays || csi::group_handle(content).is_some() {
        true => RETAIN,
        false => DELETE,
    }
}

/// The content of a snapshot, if it is there.
async fn content(client: &Client, snapshot: &Value) -> Result<Option<Value>> {
    match content_of(client, snapshot).await? {
        Some(content) => Ok(Some(content)),
        None => expected_content(client, snapshot).await,
    }
}

/// The content that the snapshot controller makes for a snapshot which does not know it yet.
async fn expected_content(client: &Client, snapshot: &Value) -> Result<Option<Value>> {
    let uid = snapshot["metadata"]["uid"].as_str().unwrap_or_default();
    let (namespace, name) = place(snapshot);
    // Members of groups have names of their own.
    let id = name.strip_prefix("snapshot-").unwrap_or(uid);
    let found = contents(client).get_opt(&format!("snapcontent-{id}")).await;
    let found = found.map_err(Error::api("read the content of a VolumeSnapshot"))?;
    Ok(found.as_ref().map(value).filter(|content| {
        let of = &content["spec"]["volumeSnapshotRef"];
        let is_free = of["uid"].as_str().is_none_or(str::is_empty);
        of["uid"] == uid || is_free && of["namespace"] == *namespace && of["name"] == *name
    }))
}

/// Removes a content whose snapshot object is gone.
///
/// Its driver's side waits for a mark that the snapshot goes. That is not always made: a member of a
/// group has no class, and so nobody sees it out.
async fn let_go(client: &Client, content: &Value, stays: bool, fate: &Fate<'_>) -> Result<()> {
    if csi::group_handle(content).is_some() && !stays {
        // The group is gone, and nobody else deletes what it had.
        let members = groups::members_with(client, content).await?;
        let uid = content["metadata"]["labels"][label::BACKUP_UID].as_str();
        let failed = storage::delete(client, &members, uid.unwrap_or_default(), LIMIT).await;
        if !failed.is_empty() {
            let mut left = fate.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.extend(failed);
            return Ok(());
        }
    }
    // Whoever sees that it goes must know by then what is to become of the storage.
    let wanted = json!({
        "metadata": {"annotations": {annotation::SNAPSHOT_BEING_DELETED: "yes"}},
        "spec": {"deletionPolicy": policy(content, stays)},
    });
    patch(&contents(client), &place(content).1, &wanted).await?;
    delete(&contents(client), content).await
}

fn place(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (text("namespace").to_owned(), text("name").to_owned())
}

/// What is known of a backup: its phase, unless it is being worked on, and whether the data of its
/// snapshots is moved.
type Known = (Option<BackupPhase>, bool);

/// What becomes of live snapshots whose backup is not at work. `backups` are all there are, by uid. The
/// inner none: it is not there, and nobody knows yet.
fn fate_of(uid: &str, backups: &HashMap<String, Known>) -> Option<Option<Stays<'static>>> {
    match backups.get(uid) {
        None => Some(None),
        Some((Some(BackupPhase::Failed | BackupPhase::FailedValidation), _)) => {
            Some(Some(Stays::None))
        }
        Some((Some(BackupPhase::Completed | BackupPhase::PartiallyFailed), moves_data)) => {
            Some(Some(stays_of(*moves_data)))
        }
        Some(_) => None,
    }
}

/// What stays of a backup that is good: what was moved is in the bucket.
fn stays_of(moves_data: bool) -> Stays<'static> {
    match moves_data {
        true => Stays::None,
        false => Stays::All,
    }
}

/// Whether the data of a backup's snapshots is moved by this program.
pub(crate) fn moves_data(backup: &Backup) -> bool {
    let spec = &backup.spec;
    spec.snapshot_move_data == Some(true) && Mover::asked(spec.datamover.as_deref()) == Mover::Ours
}

/// Sees to live snapshots that this installation has taken for backups that are over or gone.
pub(crate) async fn sweep(ctx: &Context) -> Result<()> {
    let of_any = label::BACKUP_UID;
    let mut found = live(&ctx.client, of_any).await?;
    found.extend(groups::live(&ctx.client, of_any).await?);
    found.extend(labelled(&contents(&ctx.client), of_any).await?);
    let ours = found.iter().filter(|object| {
        let metadata = &object["metadata"];
        !is_restored(object)
            && metadata["annotations"][annotation::SNAPSHOT_TAKER] == *ctx.namespace
            // Somebody sees to it already.
            && !metadata["deletionTimestamp"].is_string()
    });
    let names: BTreeMap<&str, &str> = ours
        .filter_map(|object| {
            let labels = &object["metadata"]["labels"];
            let name = labels[label::BACKUP_NAME].as_str();
            Some((labels[of_any].as_str()?, name.unwrap_or_default()))
        })
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    // After the snapshots: whoever has one by now is in the list.
    let backups = ctx.list::<Backup>("").await?;
    let phases = backups.iter().filter_map(|backup| {
        let at_work = ctx.running.contains(&backup.name_any());
        let status = backup.status.as_ref().filter(|_| !at_work);
        let phase = status.and_then(|status| status.phase.clone());
        Some((backup.uid()?, (phase, moves_data(backup))))
    });
    let phases = phases.collect();
    for (uid, name) in names {
        let Some(stays) = fate_of(uid, &phases) else {
            continue;
        };
        let stays = match stays {
            Some(stays) => stays,
            // Its object may be gone, and the backup good.
            None => stays_of_gone(ctx, name, uid).await?,
        };
        tracing::warn!(
            uid,
            name,
            ?stays,
            "the backup is over; its CSI snapshots go"
        );
        for why in clear(&ctx.client, uid, stays).await? {
            tracing::warn!(uid, name, "{why}");
        }
    }
    Ok(())
}

/// What stays of a backup whose object is gone, by the label with its name: nothing unless it is in a
/// bucket and at its end. Until all buckets have answered, nobody knows.
async fn stays_of_gone(ctx: &Context, name: &str, uid: &str) -> Result<Stays<'static>> {
    if name.is_empty() || name.len() == LONGEST_LABEL {
        // That may not be the whole name.
        return Ok(Stays::All);
    }
    for location in ctx.list::<BackupStorageLocation>("").await? {
        let found = ctx.bucket(&location).await?.backup(name).await?;
        let found = found.filter(|found| {
            let phase = found.status.as_ref().and_then(|s| s.phase.as_ref());
            let is_over = matches!(
                phase,
                Some(BackupPhase::Completed | BackupPhase::PartiallyFailed)
            );
            is_over && found.uid().as_deref() == Some(uid)
        });
        if let Some(found) = found {
            return Ok(stays_of(moves_data(&found)));
        }
    }
    Ok(Stays::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_of_a_group_goes_alone() {
        let content = |name: &str, group: Option<&str>| {
            json!({
                "spec": {"volumeSnapshotRef": {"namespace": "shop", "name": name}},
                "status": {"snapshotHandle": name, "volumeGroupSnapshotHandle": group},
            })
        };
        let mut operation = BackupOperation::default();
        operation.spec.backup_item_action = operation::ACTION.to_owned();
        operation.spec.resource_identifier.namespace = "shop".to_owned();
        operation.spec.resource_identifier.name = "a".to_owned();
        let operations = [operation];
        let mut fate = Fate::new(Stays::Of(&operations));
        let fellow = content("b", Some("g"));
        assert!(fate.spares(&content("a", Some("g"))) && !fate.spares(&fellow));
        fate.kept.insert("g".to_owned());
        assert!(fate.spares(&fellow));
        assert!(!fate.spares(&content("c", Some("h"))) && !fate.spares(&content("d", None)));
        // What belongs to a group is nothing that the driver's side deletes by itself.
        assert_eq!(policy(&fellow, false), RETAIN);
        assert_eq!(policy(&content("d", None), false), DELETE);
        assert_eq!(policy(&content("d", None), true), RETAIN);
    }

    #[test]
    fn snapshots_of_backups_at_work_are_left_alone() {
        let phases = [
            ("new", Some(BackupPhase::New)),
            ("work", None),
            ("wait", Some(BackupPhase::WaitingForPluginOperations)),
            ("going", Some(BackupPhase::Deleting)),
            ("failed", Some(BackupPhase::Failed)),
            ("whole", Some(BackupPhase::Completed)),
            ("half", Some(BackupPhase::PartiallyFailed)),
            ("moved", Some(BackupPhase::Completed)),
        ];
        let backups = phases
            .map(|(uid, phase)| (uid.to_owned(), (phase, uid == "moved")))
            .into_iter()
            .collect();
        let is = |uid: &str| match fate_of(uid, &backups) {
            None => "left alone",
            Some(None) => "unknown",
            Some(Some(Stays::None)) => "gone",
            Some(Some(Stays::All)) => "kept",
            Some(Some(Stays::Of(_))) => "some",
        };
        for (uid, expected) in [
            ("new", "left alone"),
            ("work", "left alone"),
            ("wait", "left alone"),
            ("going", "left alone"),
            ("failed", "gone"),
            ("whole", "kept"),
            ("half", "kept"),
            ("moved", "gone"),
            ("another", "unknown"),
        ] {
            assert_eq!(is(uid), expected, "{uid}");
        }
    }
}
