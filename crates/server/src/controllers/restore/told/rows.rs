//! The rows of a restore's volume info: first those that Velero writes, in its order (pod volumes, native
//! snapshots, CSI snapshots, moved data), then volumes without data, each with the reason. Pure.

mod empty;
mod moved;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bowline_api::{
    Quantity,
    files::{
        BackupMethod, BackupVolumeInfo, CsiSnapshotInfo, NativeSnapshotInfo, PodVolumeInfo,
        RestoreMethod, RestoreOperation, RestoreVolumeInfo, SnapshotPhase, VolumeResult,
    },
    v1::{DataPathPhase, Restore},
};
use bowline_engine::restore::notes::{Claim, Done, Fate, Moved, Notes, Volume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{
    Filled, Made,
    csi::Csi,
    look::{Live, Seen},
};

/// All that was told while the restore ran.
pub(super) struct Known<'a> {
    pub(super) restore: &'a Restore,
    /// What the backup says.
    pub(super) backup: &'a [BackupVolumeInfo],
    /// What the run says of claims and volumes.
    pub(super) notes: &'a Notes,
    /// Native snapshots of the backup, by volume.
    pub(super) snapshots: &'a HashMap<String, NativeSnapshotInfo>,
    /// Volumes made of them, by their old names.
    pub(super) native: &'a BTreeMap<String, Made>,
    /// Volumes of pods.
    pub(super) filled: &'a [Filled],
}

/// The file.
pub(super) fn rows(known: &Known<'_>, seen: &Seen) -> Vec<RestoreVolumeInfo> {
    let mut rows = Rows {
        known,
        seen,
        told: BTreeSet::new(),
        rows: Vec::new(),
    };
    rows.filled();
    rows.native();
    rows.csi();
    rows.moved();
    rows.unfilled();
    rows.empty();
    rows.unclaimed();
    rows.rows
}

struct Rows<'a> {
    known: &'a Known<'a>,
    seen: &'a Seen,
    /// Claims that have a row, by namespace and name.
    told: BTreeSet<(String, String)>,
    rows: Vec<RestoreVolumeInfo>,
}

impl<'a> Rows<'a> {
    fn push(&mut self, row: RestoreVolumeInfo) {
        if let Some(claim) = claim_of(&row) {
            self.told.insert(claim);
        }
        self.rows.push(row);
    }

    fn is_told(&self, namespace: &str, name: &str) -> bool {
        let of = (namespace.to_owned(), name.to_owned());
        self.told.contains(&of)
    }

    fn noted(&self, namespace: &str, name: &str) -> Option<&'a Claim> {
        let mut claims = self.known.notes.claims.iter();
        claims.find(|claim| claim.namespace == namespace && claim.name == name)
    }

    fn live(&self, namespace: &str, name: &str) -> Option<&'a Live> {
        let of = (namespace.to_owned(), name.to_owned());
        self.seen.claims.get(&of)?.as_ref()
    }

    /// A claim's row, with all that is the same for any way back.
    fn row(&self, namespace: &str, name: &str) -> RestoreVolumeInfo {
        let mut row = RestoreVolumeInfo {
            pvc_name: Some(name.to_owned()),
            pvc_namespace: Some(namespace.to_owned()),
            ..RestoreVolumeInfo::default()
        };
        if let Some(live) = self.live(namespace, name) {
            with_claim(&mut row, &live.claim);
        }
        if let Some(noted) = self.noted(namespace, name) {
            let other = |old: &String, new: &str| (old != new).then(|| old.clone());
            row.original_pvc_name = other(&noted.source_name, name);
            row.original_pvc_namespace = other(&noted.source_namespace, namespace);
            let new = row.pv_name.clone().unwrap_or_default();
            row.original_pv_name = other(&noted.volume, &new).filter(|old| !old.is_empty());
        }
        row
    }

    /// What the backup says of a claim's volume.
    fn backed_up(&self, claim: &Claim) -> Option<&'a BackupVolumeInfo> {
        let is_its = |info: &&BackupVolumeInfo| {
            let of_claim = info.pvc_name.as_deref() == Some(&claim.source_name)
                && info.pvc_namespace.as_deref() == Some(&claim.source_namespace);
            let of_volume = !claim.volume.is_empty()
                && info.pvc_name.is_none()
                && info.pv_name.as_deref() == Some(&claim.volume);
            of_claim || of_volume
        };
        self.known.backup.iter().find(is_its)
    }

    /// Volumes of pods that somebody was asked to fill.
    fn filled(&mut self) {
        for filled in self.known.filled {
            let request = &filled.filling.request;
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (namespace, pod) = (text(&request.spec.pod.namespace), &request.spec.pod.name);
            let mut row = match &filled.filling.claim {
                Some(claim) => self.row(&namespace, claim),
                None => RestoreVolumeInfo::default(),
            };
            let status = request.status.clone().unwrap_or_default();
            let phase = status.phase.unwrap_or_default();
            let uploader = request.spec.uploader_type.clone().unwrap_or_default();
            let size = status.progress.and_then(|progress| progress.total_bytes);
            row.restore_method = Some(RestoreMethod::PodVolumeRestore);
            row.pvr_info = Some(PodVolumeInfo {
                snapshot_handle: Some(request.spec.snapshot_id.clone()),
                size: size.or(request.spec.snapshot_size),
                uploader_type: uploader.as_str().to_owned(),
                volume_name: request.spec.volume.clone(),
                pod_name: text(pod),
                pod_namespace: namespace,
                node_name: status.node.filter(|node| !node.is_empty()),
                phase: phase.as_str().to_owned(),
                ..PodVolumeInfo::default()
            });
            row.start_timestamp = status.start_timestamp;
            row.completion_timestamp = status.completion_timestamp;
            row.message.clone_from(&filled.trouble);
            row.result = match (&filled.trouble, phase) {
                (None, DataPathPhase::Completed) => Some(VolumeResult::Succeeded),
                _ => Some(VolumeResult::Failed),
            };
            self.push(row);
        }
    }

    /// Volumes made of native snapshots.
    fn native(&mut self) {
        if self.known.restore.spec.restore_pvs == Some(false) {
            return;
        }
        for volume in &self.known.notes.volumes {
            let is_made = volume.done != Some(Done::Skipped);
            if volume.fate == Some(Fate::Snapshot) && is_made {
                let row = self.native_row(volume);
                self.push(row);
            }
        }
    }

    fn native_row(&self, volume: &Volume) -> RestoreVolumeInfo {
        let known = self.known;
        let made = known.native.get(&volume.source_name);
        let made = made.cloned().unwrap_or_default();
        let is_there = matches!(volume.done, Some(Done::Created | Done::Updated));
        let mut row = match self.claim_of_volume(volume) {
            Some((namespace, name)) => self.row(&namespace, &name),
            None => RestoreVolumeInfo::default(),
        };
        row.pv_name = is_there.then(|| volume.name.clone());
        row.original_pv_name =
            (row.pv_name.as_ref() != Some(&volume.source_name)).then(|| volume.source_name.clone());
        row.restore_method = Some(RestoreMethod::NativeSnapshot);
        let snapshot = known.snapshots.get(&volume.source_name).cloned();
        let phase = match is_there {
            true => SnapshotPhase::Completed,
            false => SnapshotPhase::Failed,
        };
        row.native_snapshot_info = Some(NativeSnapshotInfo {
            phase: phase.as_str().to_owned(),
            size: made.size,
            ..snapshot.unwrap_or_default()
        });
        if let Some((began, ended)) = made.times {
            row.start_timestamp = Some(began.into());
            row.completion_timestamp = Some(ended.into());
        }
        row.result = Some(match is_there {
            true => VolumeResult::Succeeded,
            false => VolumeResult::Failed,
        });
        if !is_there {
            let usual = || "the persistent volume could not be restored".to_owned();
            row.message = Some(made.failure.unwrap_or_else(usual));
        }
        row
    }

    /// The claim of a volume where it is now; by the mapping of namespaces if it is not in the restore.
    fn claim_of_volume(&self, volume: &Volume) -> Option<(String, String)> {
        let (namespace, name) = volume.claim.as_ref()?;
        let mut claims = self.known.notes.claims.iter();
        let noted =
            claims.find(|claim| claim.source_namespace == *namespace && claim.source_name == *name);
        if let Some(claim) = noted {
            return Some((claim.namespace.clone(), claim.name.clone()));
        }
        let mapping = self.known.restore.spec.namespace_mapping.as_ref();
        let target = mapping.and_then(|mapping| mapping.get(namespace));
        Some((target.unwrap_or(namespace).clone(), name.clone()))
    }

    /// Claims made of CSI snapshots.
    fn csi(&mut self) {
        for claim in &self.known.notes.claims {
            let made = claim.done == Some(Done::Created);
            let Some(live) = self.live(&claim.namespace, &claim.name).filter(|_| made) else {
                continue;
            };
            let Some(csi) = &live.csi else { continue };
            let backup = self.backed_up(claim);
            let backup = backup.and_then(|info| info.csi_snapshot_info.as_ref());
            let mut row = self.row(&claim.namespace, &claim.name);
            row.restore_method = Some(RestoreMethod::CsiSnapshot);
            with_csi(&mut row, &live.claim, csi, backup);
            self.push(row);
        }
    }

    /// Claims whose data was moved.
    fn moved(&mut self) {
        let seen = self.seen.downloads.iter();
        let mut downloads: BTreeMap<_, _> = seen.map(|of| (moved::target(of), of)).collect();
        for claim in &self.known.notes.claims {
            if let Some(Moved::Awaited(made)) = &claim.moved {
                // As it was made, if it could not be seen.
                downloads.entry(moved::target(made)).or_insert(made);
            }
        }
        for ((namespace, name), download) in downloads {
            let noted = self.noted(&namespace, &name);
            let backup = noted.and_then(|claim| self.backed_up(claim));
            let mut row = self.moved_row(&namespace, &name);
            moved::with(&mut row, download, backup);
            self.push(row);
        }
        for claim in &self.known.notes.claims {
            if let Some(Moved::Refused(why)) = &claim.moved {
                let mut row = self.moved_row(&claim.namespace, &claim.name);
                moved::refused(&mut row, why, self.backed_up(claim));
                self.push(row);
            }
        }
    }

    fn moved_row(&self, namespace: &str, name: &str) -> RestoreVolumeInfo {
        let mut row = self.row(namespace, name);
        row.restore_method = Some(RestoreMethod::CsiSnapshot);
        row.snapshot_data_moved = true;
        row
    }

    /// Volumes of pods that nobody fills.
    fn unfilled(&mut self) {
        for of in &self.known.notes.unfilled {
            let mut row = match &of.claim {
                Some(claim) if self.is_told(&of.namespace, claim) => continue,
                Some(claim) => self.row(&of.namespace, claim),
                None => RestoreVolumeInfo::default(),
            };
            row.skipped = Some(true);
            row.skipped_reason = Some(of.why.clone());
            row.pvr_info = Some(PodVolumeInfo {
                volume_name: of.volume.clone(),
                pod_name: of.pod.clone(),
                pod_namespace: of.namespace.clone(),
                ..PodVolumeInfo::default()
            });
            self.push(row);
        }
    }

    /// Claims that no data was brought back for.
    fn empty(&mut self) {
        for claim in &self.known.notes.claims {
            if self.is_told(&claim.namespace, &claim.name) {
                continue;
            }
            let (is_kept, why) = self.why_empty(claim);
            let mut row = self.row(&claim.namespace, &claim.name);
            row.kept = is_kept.then_some(true);
            row.skipped = (!is_kept).then_some(true);
            row.skipped_reason = Some(why);
            self.push(row);
        }
    }

    /// Persistent volumes without a claim in the restore.
    fn unclaimed(&mut self) {
        for volume in &self.known.notes.volumes {
            let claim = self.claim_of_volume(volume);
            let has_row = match &claim {
                Some((namespace, name)) => self.is_told(namespace, name),
                None => volume.fate == Some(Fate::Snapshot) && volume.done != Some(Done::Skipped),
            };
            if has_row {
                continue;
            }
            let (is_kept, why) = empty::why_unclaimed(volume, claim.is_some());
            let (namespace, name) = claim.unzip();
            let is_there = volume.done.is_some() && !matches!(volume.fate, Some(Fate::Anew(_)));
            self.rows.push(RestoreVolumeInfo {
                pvc_name: name,
                pvc_namespace: namespace,
                pv_name: is_there.then(|| volume.name.clone()),
                original_pv_name: (!is_there).then(|| volume.source_name.clone()),
                kept: is_kept.then_some(true),
                skipped: (!is_kept).then_some(true),
                skipped_reason: Some(why),
                ..RestoreVolumeInfo::default()
            });
        }
    }
}

fn claim_of(row: &RestoreVolumeInfo) -> Option<(String, String)> {
    row.pvc_namespace.clone().zip(row.pvc_name.clone())
}

/// The claim of a row that may not be the last word.
pub(super) fn open_claim(row: &RestoreVolumeInfo) -> Option<(String, String)> {
    let is_csi = row.restore_method == Some(RestoreMethod::CsiSnapshot);
    let is_open = row.pv_name.is_none() || (is_csi && row.result.is_none());
    claim_of(row).filter(|_| is_open)
}

/// Brings a row up to date.
pub(super) fn refresh(row: &mut RestoreVolumeInfo, seen: &Seen, operations: &[RestoreOperation]) {
    let Some(of) = open_claim(row) else { return };
    let is_csi = row.restore_method == Some(RestoreMethod::CsiSnapshot);
    if let Some(Some(live)) = seen.claims.get(&of) {
        with_claim(row, &live.claim);
        if let Some(csi) = live
            .csi
            .as_ref()
            .filter(|_| is_csi && !row.snapshot_data_moved)
        {
            let before = row.csi_snapshot_info.take();
            with_csi(row, &live.claim, csi, before.as_ref());
        }
    }
    let mut downloads = seen.downloads.iter();
    if row.snapshot_data_moved
        && let Some(download) = downloads.find(|download| moved::target(download) == of)
    {
        moved::with(row, download, None);
    }
    if row.snapshot_data_moved {
        moved::given_up(row, operations);
    }
}

/// What a claim says of its volume.
fn with_claim(row: &mut RestoreVolumeInfo, claim: &PersistentVolumeClaim) {
    let spec = claim.spec.as_ref();
    let status = claim.status.as_ref();
    if is_bound(claim) {
        let volume = spec.and_then(|spec| spec.volume_name.clone());
        row.pv_name = volume.filter(|name| !name.is_empty());
        if row.original_pv_name == row.pv_name {
            row.original_pv_name = None;
        }
    }
    let room = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let asked = || {
        let resources = spec?.resources.as_ref()?;
        resources.requests.as_ref()?.get("storage")
    };
    let room = room.or_else(asked);
    let bytes = room.and_then(|room| room.0.parse::<Quantity>().ok()?.value());
    row.capacity = bytes.or(row.capacity);
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    phase == Some("Bound")
}

/// What a snapshot says of the claim that is made of it.
fn with_csi(
    row: &mut RestoreVolumeInfo,
    claim: &PersistentVolumeClaim,
    csi: &Csi,
    backup: Option<&CsiSnapshotInfo>,
) {
    row.csi_snapshot_info = Some(csi.or_else(backup));
    (row.result, row.message) = match (is_bound(claim), &csi.error) {
        (true, _) => (Some(VolumeResult::Succeeded), None),
        (false, Some(why)) => (Some(VolumeResult::Failed), Some(why.clone())),
        (false, None) => (None, None),
    };
}

/// Whether a volume's data was kept by a CSI snapshot.
fn is_csi(info: &BackupVolumeInfo) -> bool {
    info.backup_method == Some(BackupMethod::CsiSnapshot)
}

#[cfg(test)]
mod tests;
