//! The end of a backup's live snapshots: the objects go, and what the driver has stays or goes with
//! them. They are found by the uid of their backup, whoever made them. Can be repeated.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use bowline_api::{
    files::BackupOperation,
    names::{annotation, label},
    v1::{Backup, BackupPhase},
};
use bowline_engine::csi::{self, DELETE, RETAIN, operation};
use bowline_vault::crash;
use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    all_snapshots, content_of, contents, delete, gone, groups, labelled, patch, snapshots, storage,
    value,
};
use crate::{Context, Error, Result};

/// Snapshots that are seen to at the same time.
const PARALLEL: usize = 64;
/// How long a driver may take to delete a snapshot that came to nothing, and the snapshot controller to
/// let go of one that stays.
const LIMIT: Duration = Duration::from_secs(120);
/// How long the controller may take when nothing depends on it.
const PATIENCE: Duration = Duration::from_secs(10);

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
}

impl Fate<'_> {
    fn spares(&self, content: &Value) -> bool {
        let of = &content["spec"]["volumeSnapshotRef"];
        let text = |key: &str| of[key].as_str().unwrap_or_default();
        let group = csi::group_handle(content);
        self.stays.has(text("namespace"), text("name"))
            || group.is_some_and(|group| self.kept.contains(group))
    }
}

/// Removes the live snapshots of a backup.
pub(crate) async fn clear(client: &Client, backup_uid: &str, stays: Stays<'_>) -> Result<()> {
    if backup_uid.is_empty() {
        return Ok(());
    }
    let labels = format!("{}={backup_uid}", label::BACKUP_UID);
    let mut fate = Fate {
        stays,
        kept: BTreeSet::new(),
    };
    let marked = labelled(&contents(client), &labels).await?;
    let spared = marked.iter().filter(|content| fate.spares(content));
    fate.kept = spared
        .filter_map(|content| csi::group_handle(content).map(str::to_owned))
        .collect();
    let fate = &fate;
    // Groups first: they make members anew that they miss.
    let members = groups::clear(client, &labels, |namespace, name| {
        stays.has(namespace, name)
    });
    let members = members.await?;
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
        let_go(client, &content, fate.spares(&content)).await?;
    }
    Ok(())
}

/// Snapshots that a backup has made. What a restore made of its archive may have the same labels.
async fn live(client: &Client, labels: &str) -> Result<Vec<Value>> {
    let mut found = labelled(&all_snapshots(client), labels).await?;
    found.retain(|snapshot| !is_restored(snapshot));
    Ok(found)
}

fn is_restored(object: &Value) -> bool {
    object["metadata"]["labels"][label::RESTORE_NAME].is_string()
}

/// Removes one snapshot that is of no use to anybody, with what the driver has.
pub(crate) async fn discard(client: &Client, snapshot: &Value) -> Result<()> {
    let fate = Fate {
        stays: Stays::None,
        kept: BTreeSet::new(),
    };
    one(client, snapshot, &fate).await
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
        Some(content) => let_go(client, &content, stays || fate.spares(&content)).await,
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
async fn let_go(client: &Client, content: &Value, stays: bool) -> Result<()> {
    if csi::group_handle(content).is_some() && !stays {
        // The group is gone, and nobody else deletes what it had.
        let members = groups::members_with(client, content).await?;
        let uid = content["metadata"]["labels"][label::BACKUP_UID].as_str();
        let failed = storage::delete(client, &members, uid.unwrap_or_default(), LIMIT).await;
        if let Some(why) = failed.into_iter().next() {
            return Err(Error::Setup(why));
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

/// What becomes of live snapshots whose backup is not at work. `backups` are all there are, by uid, with
/// their phases; none for one that is being worked on.
fn fate_of(uid: &str, backups: &HashMap<String, Option<BackupPhase>>) -> Option<Stays<'static>> {
    match backups.get(uid) {
        None => Some(Stays::None),
        Some(Some(BackupPhase::Failed | BackupPhase::FailedValidation)) => Some(Stays::None),
        Some(Some(BackupPhase::Completed | BackupPhase::PartiallyFailed)) => Some(Stays::All),
        Some(_) => None,
    }
}

/// Sees to live snapshots that this installation has taken for backups that are over or gone.
pub(crate) async fn sweep(ctx: &Context, backups: &[std::sync::Arc<Backup>]) -> Result<()> {
    let live = live(&ctx.client, label::BACKUP_UID).await?;
    let ours = live.iter().filter(|snapshot| {
        snapshot["metadata"]["annotations"][annotation::SNAPSHOT_TAKER] == *ctx.namespace
    });
    let uids: BTreeSet<&str> = ours
        .filter_map(|snapshot| snapshot["metadata"]["labels"][label::BACKUP_UID].as_str())
        .collect();
    if uids.is_empty() {
        return Ok(());
    }
    let phases = backups.iter().filter_map(|backup| {
        let at_work = ctx.running.contains(&backup.name_any());
        let status = backup.status.as_ref().filter(|_| !at_work);
        Some((backup.uid()?, status.and_then(|s| s.phase.clone())))
    });
    let phases = phases.collect();
    let found: BTreeMap<&str, Stays<'_>> = uids
        .into_iter()
        .filter_map(|uid| Some((uid, fate_of(uid, &phases)?)))
        .collect();
    for (uid, stays) in found {
        tracing::warn!(uid, ?stays, "its backup is over; its CSI snapshots go");
        clear(&ctx.client, uid, stays).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ];
        let backups = phases
            .map(|(uid, phase)| (uid.to_owned(), phase))
            .into_iter()
            .collect();
        let is = |uid: &str| match fate_of(uid, &backups) {
            None => "left alone",
            Some(Stays::None) => "gone",
            Some(Stays::All) => "kept",
            Some(Stays::Of(_)) => "some",
        };
        for (uid, expected) in [
            ("new", "left alone"),
            ("work", "left alone"),
            ("wait", "left alone"),
            ("going", "left alone"),
            ("failed", "gone"),
            ("whole", "kept"),
            ("half", "kept"),
            ("unknown", "gone"),
        ] {
            assert_eq!(is(uid), expected, "{uid}");
        }
    }
}
