//! Why no data was brought back for a volume. Each answer says whether the volume is the backup's own,
//! whose data nobody touched.

use bowline_api::files::{BackupMethod, BackupVolumeInfo};
use bowline_engine::restore::notes::{Claim, Done, Fate, Moved, Volume};

use super::{Rows, is_bound, is_csi};

const KEPT: &str = "the volume is the one of the backup, with the data that is on it";
const THERE: &str = "the claim was there already, and its volume was left as it is";
const NOT_WANTED: &str = "the restore leaves the data of volumes out (restorePVs is false)";
const NOT_RESTORED: &str = "the claim could not be restored";
const NO_VOLUME: &str = "the persistent volume could not be restored";

impl Rows<'_> {
    /// Whether the volume of a claim is the backup's own, and why it got no data.
    pub(super) fn why_empty(&self, claim: &Claim) -> (bool, String) {
        let of = (claim.namespace.clone(), claim.name.clone());
        let is_gone = matches!(self.seen.claims.get(&of), Some(None));
        match claim.done {
            Some(Done::Created) => self.why_new(claim),
            Some(Done::Failed) if is_gone => (false, NOT_RESTORED.to_owned()),
            Some(Done::Skipped) | None if is_gone => (false, "the claim was left out".to_owned()),
            Some(_) => (false, THERE.to_owned()),
            None => (false, NOT_RESTORED.to_owned()),
        }
    }

    /// The same for a claim that this restore has made.
    fn why_new(&self, claim: &Claim) -> (bool, String) {
        if claim.moved == Some(Moved::Empty) {
            let why = "there was nothing on the volume when it was backed up";
            return (false, provisioned(why));
        }
        if claim.volume.is_empty() {
            let why = "the claim had no volume when it was backed up";
            return (false, provisioned(why));
        }
        let mut volumes = self.known.notes.volumes.iter();
        let volume = volumes.find(|volume| volume.source_name == claim.volume);
        let info = self.backed_up(claim);
        match volume.map(|volume| (volume.fate, volume.done)) {
            Some((Some(Fate::AsIs | Fate::Snapshot), Some(Done::Failed))) => {
                (false, NO_VOLUME.to_owned())
            }
            Some((Some(Fate::AsIs), _)) => (true, KEPT.to_owned()),
            Some((Some(Fate::Snapshot), Some(Done::Skipped))) => (
                true,
                "a volume of this name was there already, and was left as it is".to_owned(),
            ),
            Some((Some(Fate::Snapshot), _)) => (false, NOT_WANTED.to_owned()),
            Some((Some(Fate::Anew(why)), _)) => (false, provisioned(&self.why_anew(info, why))),
            Some((None, _)) | None => self.why_alone(claim, info),
        }
    }

    /// The same for a claim whose volume is not in the restore.
    fn why_alone(&self, claim: &Claim, info: Option<&BackupVolumeInfo>) -> (bool, String) {
        let live = self.live(&claim.namespace, &claim.name);
        let spec = live.and_then(|live| live.claim.spec.as_ref());
        let volume = spec.and_then(|spec| spec.volume_name.as_deref());
        let has_its_own = volume == Some(&claim.volume);
        match live {
            Some(live) if has_its_own && is_bound(&live.claim) => (true, KEPT.to_owned()),
            Some(_) if has_its_own => {
                let why = "the claim waits for its persistent volume, which is not in the restore";
                (false, why.to_owned())
            }
            _ => {
                let why = self.why_anew(info, "the backup says nothing of its volume");
                (false, provisioned(&why))
            }
        }
    }

    /// Why a new volume is empty, by what the backup has of the old one.
    fn why_anew(&self, info: Option<&BackupVolumeInfo>, decided: &str) -> String {
        let Some(info) = info else {
            return decided.to_owned();
        };
        if info.skipped {
            let why = info
                .skipped_reason
                .as_deref()
                .unwrap_or("it does not say why");
            return format!(
                "the backup has no data of it: {}",
                why.trim_end_matches(';')
            );
        }
        if self.known.restore.spec.restore_pvs == Some(false) && is_csi(info) {
            return NOT_WANTED.to_owned();
        }
        match &info.backup_method {
            Some(BackupMethod::PodVolumeBackup) => {
                "no pod was restored that its files are copied with".to_owned()
            }
            Some(BackupMethod::CsiSnapshot) if info.snapshot_data_moved => {
                "nobody moves its data back".to_owned()
            }
            Some(BackupMethod::CsiSnapshot) => {
                "the claim is not made of its CSI snapshot".to_owned()
            }
            Some(BackupMethod::NativeSnapshot) => {
                "its persistent volume, which has the snapshot, is not in the restore".to_owned()
            }
            _ => decided.to_owned(),
        }
    }
}

fn provisioned(why: &str) -> String {
    format!("provisioned without data: {why}")
}

/// The same for a persistent volume whose claim is not in the restore.
pub(super) fn why_unclaimed(volume: &Volume, has_claim: bool) -> (bool, String) {
    match (volume.fate, volume.done) {
        (Some(Fate::Anew(_)), _) if has_claim => {
            let why = "its claim, which would get a new volume, is not in the restore";
            (false, why.to_owned())
        }
        (Some(Fate::Anew(why)), _) => (false, format!("not restored: {why}")),
        (_, Some(Done::Failed) | None) => (false, NO_VOLUME.to_owned()),
        (Some(Fate::Snapshot), Some(Done::Created | Done::Updated)) => {
            (false, NOT_WANTED.to_owned())
        }
        _ => (true, KEPT.to_owned()),
    }
}
