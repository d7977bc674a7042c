//! Backups of the bucket as objects of the cluster, both ways: what only the bucket has is imported,
//! and objects whose backup is gone from the bucket are removed.

mod import;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::{
    Time,
    files::backup_suffix,
    names::{label, label_value},
    v1::{
        Backup, BackupPhase, BackupStorageLocation, BackupStorageLocationPhase, PodVolumeBackup,
        Schedule, VolumePluginBackup,
    },
};
use bowline_vault::{Bucket, bucket::backup_file};
use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, after};
use crate::{Context, Result};
use import::Verdict;

/// The controller's name.
pub const NAME: &str = "backup-sync";

/// How long a location waits for the default one to be first.
const TURN: Duration = Duration::from_secs(1);

/// Looks after buckets until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let sync = Sync {
        ctx: Arc::clone(&ctx),
        complaints: Mutex::default(),
        tried: Mutex::default(),
    };
    super::run(&ctx, sync).await;
}

struct Sync {
    ctx: Arc<Context>,
    /// What was complained about, by location and folder: once is enough.
    complaints: Mutex<BTreeMap<(String, String), String>>,
    /// Locations that this process has looked through, or tried to.
    tried: Mutex<HashSet<String>>,
}

/// How long until a location is looked through: nothing means now, none means never.
fn wait(
    location: &BackupStorageLocation,
    server: Duration,
    now: Timestamp,
) -> Option<SignedDuration> {
    let status = location.status.as_ref();
    if status.and_then(|s| s.phase.as_ref()) != Some(&BackupStorageLocationPhase::Available) {
        return None;
    }
    let own = location.spec.backup_sync_period.as_ref();
    let period = match own.and_then(|own| own.nanos().ok()) {
        Some(0) => return None,
        Some(nanos @ 1..) => SignedDuration::from_nanos(nanos),
        _ => SignedDuration::try_from(server).unwrap_or(SignedDuration::MAX),
    };
    let Some(last) = status.and_then(|status| status.last_synced_time) else {
        return Some(SignedDuration::ZERO);
    };
    let passed = now.duration_since(last.0);
    // A last time in the future is a clock that was put back.
    if passed >= period || passed.is_negative() {
        Some(SignedDuration::ZERO)
    } else {
        Some(period - passed)
    }
}

/// Backups of a location whose files are gone.
fn orphans<'a>(
    backups: &'a [Backup],
    location: &str,
    in_bucket: &BTreeSet<String>,
) -> Vec<&'a Backup> {
    let here = label_value(location);
    backups
        .iter()
        .filter(|backup| backup.labels().get(label::STORAGE_LOCATION) == Some(&here))
        .filter(|backup| {
            let phase = backup.status.as_ref().and_then(|s| s.phase.as_ref());
            matches!(
                phase,
                Some(BackupPhase::Completed | BackupPhase::PartiallyFailed)
            )
        })
        .filter(|backup| !in_bucket.contains(&backup.name_any()))
        .collect()
}

impl Reconciler for Sync {
    type Object = BackupStorageLocation;
    const NAME: &'static str = NAME;
    /// All at once: a slow bucket must not make others wait.
    const PARALLEL: u16 = 0;

    async fn reconcile(self: Arc<Self>, location: Arc<BackupStorageLocation>) -> Result<Action> {
        let ctx = &self.ctx;
        let name = location.name_any();
        let period = ctx.settings.backup_sync_period;
        match wait(&location, period, ctx.now()) {
            None => return Ok(after(SignedDuration::MAX)),
            Some(wait) if wait > SignedDuration::ZERO => return Ok(after(wait)),
            Some(_) => {}
        }
        // Of backups with the same name in several buckets the default location's comes first.
        if self.must_wait(&location).await? {
            return Ok(Action::requeue(TURN));
        }
        let result = self.look_through(&location).await;
        self.tried().insert(name.clone());
        result?;
        let Some(fresh) = ctx.find::<BackupStorageLocation>(&name).await? else {
            return Ok(Action::await_change());
        };
        let mut new = fresh.clone();
        new.status_mut().last_synced_time = Some(Time(ctx.now()));
        let new = ctx.update(&fresh, &new).await?;
        let wait = wait(&new, period, ctx.now());
        Ok(after(wait.unwrap_or(SignedDuration::MAX)))
    }

    fn gone(&self, name: &str) {
        self.complaints()
            .retain(|(location, _), _| location != name);
        self.tried().remove(name);
    }
}

impl Sync {
    async fn must_wait(&self, location: &BackupStorageLocation) -> Result<bool> {
        if location.spec.default == Some(true) || self.tried().contains(&location.name_any()) {
            return Ok(false);
        }
        let all = self.ctx.list::<BackupStorageLocation>("").await?;
        let period = self.ctx.settings.backup_sync_period;
        let now = self.ctx.now();
        Ok(all.iter().any(|other| {
            other.spec.default == Some(true)
                && wait(other, period, now) == Some(SignedDuration::ZERO)
                && !self.tried().contains(&other.name_any())
        }))
    }

    async fn look_through(&self, location: &BackupStorageLocation) -> Result<()> {
        let ctx = &self.ctx;
        let name = location.name_any();
        let bucket = ctx.bucket(location).await?;
        // The cluster first: a backup that ends between the two lists is in the second one, and
        // must not look like an object without files.
        let backups = ctx.list::<Backup>("").await?;
        let in_bucket: BTreeSet<String> = bucket.backups().await?.into_iter().collect();
        let in_cluster: BTreeSet<String> = backups.iter().map(ResourceExt::name_any).collect();

        for folder in in_bucket.difference(&in_cluster) {
            let result = self.import(location, &bucket, folder).await;
            self.complain(&name, folder, result.err());
        }
        for backup in backups.iter().filter(|backup| import::is_half(backup)) {
            let folder = backup.name_any();
            if in_bucket.contains(&folder) && backup.spec.storage_location.as_ref() == Some(&name) {
                let result = self.import_volumes(location, &bucket, backup).await;
                self.complain(&name, &folder, result.err().map(|e| e.chain()));
            }
        }
        for backup in orphans(&backups, &name, &in_bucket) {
            ctx.delete(backup).await?;
            tracing::info!(
                location = name,
                backup = backup.name_any(),
                "removed: its files are gone from the bucket"
            );
        }
        self.complaints()
            .retain(|(place, folder), _| *place != name || in_bucket.contains(folder));
        Ok(())
    }

    /// Brings one backup into the cluster, or says why not.
    async fn import(
        &self,
        location: &BackupStorageLocation,
        bucket: &Bucket,
        folder: &str,
    ) -> Result<(), String> {
        let ctx = &self.ctx;
        let found = bucket.backup(folder).await.map_err(|e| e.to_string())?;
        let Some(found) = found else {
            return Ok(());
        };
        match import::judge(&found, folder, ctx.now()) {
            Verdict::Take => {}
            Verdict::Leave(why) => {
                tracing::debug!(backup = folder, "not imported: {why}");
                return Ok(());
            }
            Verdict::Refuse(why) => return Err(why),
        }
        let schedules = self.owners(&found).await.map_err(|e| e.chain())?;
        let belongs = tokio::try_join!(volumes(bucket, folder), plugin_volumes(bucket, folder));
        let (volumes, plugin_volumes) = belongs.map_err(|e| e.to_string())?;
        let mut backup = import::backup(
            &found,
            &ctx.namespace,
            &location.name_any(),
            &schedules,
            ctx.now(),
        );
        if !volumes.is_empty() || !plugin_volumes.is_empty() {
            import::mark_half(&mut backup);
        }
        let created = ctx.create(&backup).await.map_err(|e| e.chain())?;
        let Some(created) = created else {
            return Ok(());
        };
        tracing::info!(
            location = location.name_any(),
            backup = folder,
            "imported from the bucket"
        );
        if import::is_half(&created) {
            let done = self.import_volumes(location, bucket, &created).await;
            done.map_err(|e| e.chain())?;
        }
        Ok(())
    }

    /// Brings what belongs to a backup, and then says so on it: a server that dies before that
    /// does it again.
    async fn import_volumes(
        &self,
        location: &BackupStorageLocation,
        bucket: &Bucket,
        backup: &Backup,
    ) -> Result<()> {
        for volume in volumes(bucket, &backup.name_any()).await? {
            let volume = import::volume(&volume, backup, &location.name_any());
            self.ctx.create(&volume).await?;
        }
        for volume in plugin_volumes(bucket, &backup.name_any()).await? {
            let volume = import::plugin_volume(&volume, backup);
            match self.ctx.create(&volume).await {
                // A cluster need not have the kind.
                Err(error) if error.is_not_found() => break,
                done => drop(done?),
            }
        }
        let mut whole = backup.clone();
        import::mark_whole(&mut whole);
        self.ctx.update(backup, &whole).await?;
        Ok(())
    }

    /// The schedules that a backup says it belongs to, as far as they exist, with their uids.
    async fn owners(&self, backup: &Backup) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for owner in backup.owner_references() {
            if owner.kind == "Schedule"
                && let Some(schedule) = self.ctx.find::<Schedule>(&owner.name).await?
            {
                found.insert(owner.name.clone(), schedule.uid().unwrap_or_default());
            }
        }
        Ok(found)
    }

    /// Complains about a folder of a bucket, unless that was done before.
    fn complain(&self, location: &str, folder: &str, why: Option<String>) {
        let key = (location.to_owned(), folder.to_owned());
        let mut complaints = self.complaints();
        match why {
            None => {
                complaints.remove(&key);
            }
            Some(why) => {
                if complaints.get(&key) != Some(&why) {
                    tracing::error!(location, backup = folder, "backup not imported: {why}");
                    complaints.insert(key, why);
                }
            }
        }
    }

    fn complaints(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), String>> {
        self.complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn tried(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pod volume backups of a backup in the bucket; no file means none.
async fn volumes(
    bucket: &Bucket,
    backup: &str,
) -> Result<Vec<PodVolumeBackup>, bowline_vault::Error> {
    let key = backup_file(backup, backup_suffix::POD_VOLUME_BACKUPS);
    let file = bucket.json::<Option<Vec<PodVolumeBackup>>>(&key).await?;
    Ok(file.flatten().unwrap_or_default())
}

async fn plugin_volumes(
    bucket: &Bucket,
    backup: &str,
) -> Result<Vec<VolumePluginBackup>, bowline_vault::Error> {
    let key = backup_file(backup, backup_suffix::VOLUME_PLUGIN_BACKUPS);
    let file = bucket.json::<Option<Vec<VolumePluginBackup>>>(&key).await?;
    Ok(file.flatten().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bowline_api::Duration as GoDuration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_location_is_looked_through_when_it_is_due() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
        let own = |seconds| Some(GoDuration::from_secs(seconds));
        for (claim, phase, period, last, expected) in [
            ("never yet", "Available", None, None, seconds(0)),
            ("not yet", "Available", None, Some(970), seconds(30)),
            ("due", "Available", None, Some(940), seconds(0)),
            (
                "its own period",
                "Available",
                own(10),
                Some(985),
                seconds(0),
            ),
            (
                "its own, not yet",
                "Available",
                own(100),
                Some(985),
                seconds(85),
            ),
            ("off", "Available", own(0), None, None),
            (
                "negative means the server's",
                "Available",
                own(-1),
                Some(970),
                seconds(30),
            ),
            ("not available", "Unavailable", None, None, None),
            ("never tried", "", None, None, None),
            (
                "the clock was put back",
                "Available",
                None,
                Some(5000),
                seconds(0),
            ),
        ] {
            let mut location = BackupStorageLocation::default();
            location.spec.backup_sync_period = period;
            location.status_mut().phase = Some(BackupStorageLocationPhase::from(phase));
            location.status_mut().last_synced_time = last.map(|last| Time(at(last)));
            assert_eq!(wait(&location, MINUTE, at(1000)), expected, "{claim}");
        }
    }

    #[test]
    fn only_finished_backups_of_this_location_are_pruned() {
        let backup = |name: &str, location: &str, phase: &str| {
            let mut backup = Backup::new("velero", name, Default::default());
            let label = (label::STORAGE_LOCATION.to_owned(), location.to_owned());
            backup.metadata.labels = Some([label].into());
            backup.status_mut().phase = Some(BackupPhase::from(phase));
            backup
        };
        let backups = [
            backup("kept", "here", "Completed"),
            backup("gone", "here", "Completed"),
            backup("gone-in-part", "here", "PartiallyFailed"),
            backup("elsewhere", "there", "Completed"),
            backup("failed", "here", "Failed"),
            backup("refused", "here", "FailedValidation"),
            backup("running", "here", "InProgress"),
            backup("going", "here", "Deleting"),
        ];
        let in_bucket = BTreeSet::from(["kept".to_owned()]);
        let names: Vec<_> = orphans(&backups, "here", &in_bucket)
            .into_iter()
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(names, ["gone", "gone-in-part"]);
    }
}
