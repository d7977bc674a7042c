//! Expired backups: asks for their deletion.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    names::{gc_failure, label, label_value},
    v1::{
        Backup, BackupStorageLocation, BackupStorageLocationAccessMode as AccessMode,
        BackupStorageLocationPhase, DeleteBackupRequest, DeleteBackupRequestPhase,
        DeleteBackupRequestSpec,
    },
};
use jiff::Timestamp;
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, at};
use crate::{Context, Result};

/// The controller's name.
pub const NAME: &str = "gc";

/// How soon to look again at a backup that is at work or whose bucket does not answer.
const RETRY: Duration = Duration::from_secs(60);

/// Looks after expired backups until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let expiry = Expiry {
        ctx: Arc::clone(&ctx),
    };
    super::run(&ctx, expiry).await;
}

struct Expiry {
    ctx: Arc<Context>,
}

/// The location of a backup, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place<'a> {
    /// The backup names none, so there is nothing of it in any bucket.
    None,
    Missing,
    Unreadable,
    At(&'a BackupStorageLocation),
}

/// What an expired backup needs.
#[derive(Debug, PartialEq)]
enum Step {
    /// It can be deleted.
    Delete,
    /// It cannot, and the label says why.
    Label(&'static str),
    /// It cannot right now.
    Retry,
}

/// When a backup expires; none means never.
fn expiration(backup: &Backup) -> Option<Timestamp> {
    let status = backup.status.as_ref()?;
    status.expiration.map(|time| time.0)
}

fn next(place: Place<'_>, is_running: bool) -> Step {
    match place {
        _ if is_running => Step::Retry,
        Place::None => Step::Delete,
        Place::Missing => Step::Label(gc_failure::BSL_NOT_FOUND),
        Place::Unreadable => Step::Label(gc_failure::BSL_CANNOT_GET),
        Place::At(location) => {
            let phase = location.status.as_ref().and_then(|s| s.phase.as_ref());
            if phase != Some(&BackupStorageLocationPhase::Available) {
                Step::Retry
            } else if location.spec.access_mode == Some(AccessMode::ReadOnly) {
                Step::Label(gc_failure::BSL_READ_ONLY)
            } else {
                Step::Delete
            }
        }
    }
}

/// The backup with the label, or without it.
fn labelled(backup: &Backup, failure: Option<&str>) -> Backup {
    let mut new = backup.clone();
    let labels = new.labels_mut();
    match failure {
        Some(failure) => labels.insert(label::GC_FAILURE.to_owned(), failure.to_owned()),
        None => labels.remove(label::GC_FAILURE),
    };
    if backup.metadata.labels.is_none() && new.labels().is_empty() {
        new.metadata.labels = None;
    }
    new
}

/// Whether a request for the deletion of the backup is still open.
fn is_open(request: &DeleteBackupRequest) -> bool {
    let status = request.status.as_ref();
    status.and_then(|status| status.phase.as_ref()) != Some(&DeleteBackupRequestPhase::Processed)
}

fn request(backup: &Backup) -> DeleteBackupRequest {
    let name = backup.name_any();
    let spec = DeleteBackupRequestSpec {
        backup_name: name.clone(),
        ..Default::default()
    };
    let namespace = backup.namespace().unwrap_or_default();
    let mut request = DeleteBackupRequest::new(&namespace, "", spec);
    request.metadata.name = None;
    request.metadata.generate_name = Some(format!("{name}-"));
    request.metadata.labels = Some(
        [
            (label::BACKUP_NAME.to_owned(), label_value(&name)),
            (
                label::BACKUP_UID.to_owned(),
                backup.uid().unwrap_or_default(),
            ),
        ]
        .into(),
    );
    request
}

impl Reconciler for Expiry {
    type Object = Backup;
    const NAME: &'static str = NAME;

    async fn reconcile(self: Arc<Self>, backup: Arc<Backup>) -> Result<Action> {
        let ctx = &self.ctx;
        let name = backup.name_any();
        let now = ctx.now();
        match expiration(&backup) {
            // Backups are many: one that lives on is looked at again when it changes or expires.
            None => return Ok(Action::await_change()),
            Some(end) if end > now => return Ok(at(end, now)),
            Some(_) => {}
        }
        let location = backup.spec.storage_location.as_deref().unwrap_or_default();
        let found = ctx.find::<BackupStorageLocation>(location).await;
        let place = match &found {
            _ if location.is_empty() => Place::None,
            Ok(Some(location)) => Place::At(location),
            Ok(None) => Place::Missing,
            Err(_) => Place::Unreadable,
        };
        let step = next(place, ctx.running.contains(&name));
        let failure = match &step {
            Step::Label(failure) => Some(*failure),
            Step::Delete => None,
            Step::Retry => return Ok(Action::requeue(RETRY)),
        };
        let marked = labelled(&backup, failure);
        if let Some(failure) = failure
            && marked != *backup
        {
            tracing::warn!(
                backup = name,
                location,
                "expired, but not deleted: {failure}"
            );
        }
        ctx.update(&*backup, &marked).await?;
        found?;
        if step == Step::Delete {
            let labels = format!(
                "{}={},{}={}",
                label::BACKUP_NAME,
                label_value(&name),
                label::BACKUP_UID,
                backup.uid().unwrap_or_default()
            );
            let requests = ctx.list::<DeleteBackupRequest>(&labels).await?;
            // A request goes after its backup: a backup that is there after no request was, and not
            // only in our memory, is not being deleted.
            if !requests.iter().any(is_open)
                && let Some(fresh) = ctx.find::<Backup>(&name).await?
                && fresh.uid() == backup.uid()
                && expiration(&fresh) == expiration(&backup)
            {
                ctx.create(&request(&backup)).await?;
                tracing::info!(backup = name, "expired, deletion requested");
            }
        }
        let frequency = ctx.settings.garbage_collection_frequency;
        Ok(Action::requeue(frequency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(phase: &str, mode: &str) -> BackupStorageLocation {
        let mut location = BackupStorageLocation::new("velero", "l", Default::default());
        location.status_mut().phase = Some(BackupStorageLocationPhase::from(phase));
        location.spec.access_mode = (!mode.is_empty()).then(|| AccessMode::from(mode));
        location
    }

    #[test]
    fn an_expired_backup_goes_when_its_location_lets_it() {
        let good = location("Available", "");
        let writable = location("Available", "ReadWrite");
        let read_only = location("Available", "ReadOnly");
        let down = location("Unavailable", "ReadOnly");
        let never_tried = BackupStorageLocation::default();
        for (place, is_running, expected) in [
            (Place::At(&good), false, Step::Delete),
            (Place::At(&writable), false, Step::Delete),
            (Place::At(&good), true, Step::Retry),
            (Place::At(&read_only), false, Step::Label("BSLReadOnly")),
            (Place::At(&down), false, Step::Retry),
            (Place::At(&never_tried), false, Step::Retry),
            (Place::Missing, false, Step::Label("BSLNotFound")),
            (Place::Unreadable, false, Step::Label("BSLCannotGet")),
            (Place::None, false, Step::Delete),
        ] {
            assert_eq!(next(place, is_running), expected, "{place:?}");
        }
    }

    #[test]
    fn the_label_comes_and_goes() {
        let plain = Backup::new("velero", "b", Default::default());
        let marked = labelled(&plain, Some("BSLReadOnly"));
        assert_eq!(marked.labels()[label::GC_FAILURE], "BSLReadOnly");
        assert_eq!(labelled(&plain, None), plain);
        assert!(labelled(&marked, None).labels().is_empty());
    }

    #[test]
    fn a_request_is_that_of_the_command_line() {
        let mut backup = Backup::new("velero", "b", Default::default());
        backup.metadata.uid = Some("u".to_owned());
        assert_eq!(
            serde_json::to_value(request(&backup)).unwrap(),
            serde_json::json!({
                "apiVersion": "velero.io/v1",
                "kind": "DeleteBackupRequest",
                "metadata": {
                    "generateName": "b-",
                    "namespace": "velero",
                    "labels": {"velero.io/backup-name": "b", "velero.io/backup-uid": "u"},
                },
                "spec": {"backupName": "b"},
            })
        );
        let mut open = request(&backup);
        assert!(is_open(&open));
        open.status_mut().phase = Some(DeleteBackupRequestPhase::InProgress);
        assert!(is_open(&open));
        open.status_mut().phase = Some(DeleteBackupRequestPhase::Processed);
        assert!(!is_open(&open));
    }
}
