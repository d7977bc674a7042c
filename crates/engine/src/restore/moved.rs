//! Claims whose data was moved into the bucket. What became of that says the DataUpload in the archive;
//! a DataDownload brings the data back. It is made when the claim is there: so it always has a claim to
//! fill, and until it has filled that, nobody makes another volume for it.
//!
//! A DataDownload's name follows from the restore and the claim, so a restore that is made again finds
//! those of the first time. Who moves the data, and who waits for that, is not known here.

use async_trait::async_trait;
use bowline_api::{
    names::annotation,
    v1::DataPathPhase,
    v2alpha1::{DataDownload, DataUpload},
};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    dry::Planned,
    item::{End, Run, id},
    message,
    notes::Moved,
    track::Key,
};
use crate::{
    action::text,
    log::Level,
    movement::{self, DOWNLOAD_ACTION, Mover, UPLOADS},
};

/// How much of a DataDownload's name goes into the label that its claim waits for.
const TAIL: usize = 5;

/// Makes DataDownloads.
#[async_trait]
pub trait Downloads: Send + Sync {
    /// Sees to it that there is this one. One of its name that is there already was made by a server
    /// before this one.
    ///
    /// # Errors
    /// Why there is none.
    async fn ensure(&self, download: &DataDownload) -> Result<(), String>;
}

/// How a claim whose data was moved comes back.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Way {
    /// With a new volume: there was nothing on the old one.
    Empty,
    /// It waits for what was uploaded.
    Awaits(Box<DataUpload>),
}

/// The DataUpload of a claim, as `namespace/name`; none if its data was not moved.
fn upload_of(claim: &Value) -> Option<&str> {
    let name = claim["metadata"]["annotations"][annotation::DATA_UPLOAD_NAME].as_str();
    name.filter(|name| !name.is_empty())
}

/// Decides by what the archive has of an upload; the error says why nothing comes back.
fn way(name: &str, upload: Option<&[u8]>) -> Result<Way, String> {
    let upload = upload.ok_or_else(|| {
        format!(
            "its data was moved, but DataUpload {name} is not in the backup, which says where it is"
        )
    })?;
    let upload: DataUpload = serde_json::from_slice(upload)
        .map_err(|error| format!("DataUpload {name} cannot be read: {error}"))?;
    let status = upload.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    if phase != DataPathPhase::Completed {
        let phase = Some(phase.as_str()).filter(|phase| !phase.is_empty());
        let said = format!(
            "its data was not moved: DataUpload {name} is {}",
            phase.unwrap_or("New")
        );
        return Err(match status.message.unwrap_or_default().as_str() {
            "" => said,
            why => format!("{said}: {why}"),
        });
    }
    let is_empty = status.snapshot_id.unwrap_or_default().is_empty();
    match Mover::of(upload.spec.datamover.as_deref()) {
        // Others may keep elsewhere where their data is.
        Mover::Other(_) => Ok(Way::Awaits(Box::new(upload))),
        Mover::Ours | Mover::Velero if is_empty => Ok(Way::Empty),
        Mover::Ours => Ok(Way::Awaits(Box::new(upload))),
        Mover::Velero => Err(
            "its data was moved by Velero with kopia, which this version cannot read".to_owned(),
        ),
    }
}

impl Run {
    /// How a claim of the backup comes back whose data was moved, or the end of it. None for all others,
    /// for those that are left without data, and for those that were there before the restore.
    pub(super) async fn moved(&self, key: &Key, pristine: &Value) -> Result<Option<Way>, End> {
        let Some(name) = upload_of(pristine) else {
            return Ok(None);
        };
        if self.restore.spec.restore_pvs == Some(false) {
            return Ok(None);
        }
        let path = format!(
            "/api/v1/namespaces/{}/persistentvolumeclaims/{}",
            key.namespace, key.name
        );
        match self.calls.get(&path).await {
            Ok(Some(live)) if live.pointer("/metadata/deletionTimestamp").is_some() => {
                // It may go any time, and a claim in its place would get an empty volume.
                return Err(self.refuse(key, "the claim that is there is being deleted"));
            }
            Ok(Some(live)) if !self.has_made(&live) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(self.refuse(key, &message(&error))),
        }
        let place = name
            .split_once('/')
            .and_then(|(namespace, name)| self.spool.find(UPLOADS, namespace, name));
        let body = place.map(|place| self.spool.body(place)).transpose();
        let body = body.map_err(|error| self.refuse(key, &error.to_string()))?;
        let way = way(name, body.as_deref()).map_err(|why| self.refuse(key, &why))?;
        if self.downloads.is_none() && !self.is_dry() {
            return Err(self.refuse(key, "nobody here moves its data back"));
        }
        Ok(Some(way))
    }

    /// Makes a claim wait for its data: what is to bring it, if anything is.
    pub(super) fn wait_for_data(
        &self,
        key: &Key,
        way: &Way,
        pristine: &Value,
        object: &mut Value,
    ) -> Option<DataDownload> {
        let upload = match way {
            Way::Awaits(upload) => upload,
            Way::Empty => {
                self.note(Level::Info, "Its volume was empty: it gets a new one", key);
                self.notes.moved(key, Moved::Empty);
                super::action::csi::forget_volume(object);
                return None;
            }
        };
        let name = text(object, "/metadata/name").to_owned();
        let target = (&*key.namespace, name.as_str());
        let location = &self.pod_volumes.location;
        let download = movement::download(upload, pristine, target, &self.restore, location);
        let named = download.name_any();
        let tail = &named[named.len().saturating_sub(TAIL)..];
        movement::await_download(object, target, tail);
        Some(download)
    }

    /// Has data brought into a claim that is there; whether somebody does.
    pub(super) async fn bring_data(
        &self,
        key: &Key,
        pristine: &Value,
        download: &DataDownload,
    ) -> bool {
        let Some(downloads) = &self.downloads else {
            return true;
        };
        if let Err(why) = downloads.ensure(download).await {
            let why = format!("nobody moves its data back: {why}; it waits until it is deleted");
            self.refuse(key, &why);
            return false;
        }
        let name = download.name_any();
        let said = format!("Its data is moved back by DataDownload {name}");
        self.note(Level::Info, &said, key);
        let moved = Moved::Awaited(Box::new(download.clone()));
        self.notes.moved(key, moved);
        let restore = self.restore.uid().unwrap_or_default();
        let claim = text(pristine, "/metadata/uid");
        let operation = movement::download_operation(&restore, claim);
        self.operation(key, DOWNLOAD_ACTION, operation);
        true
    }

    /// The data of a claim does not come back.
    fn refuse(&self, key: &Key, why: &str) -> End {
        self.notes.moved(key, Moved::Refused(why.to_owned()));
        match self.is_dry() {
            true => self.plan(|| Planned::refused(key, why)),
            false => drop(self.fail(key, &format!("error restoring {}: {why}", id(key)))),
        }
        End::FAILED
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decided(mover: &str, status: Value) -> Result<Way, String> {
        let upload = json!({"spec": {"datamover": mover}, "status": status});
        way("velero/b-x", Some(upload.to_string().as_bytes()))
    }

    #[test]
    fn what_the_archive_has_of_an_upload_decides() {
        let whole = || json!({"phase": "Completed", "snapshotID": "1a2b"});
        for mover in ["bowline", "somebody"] {
            let way = decided(mover, whole());
            assert!(matches!(way, Ok(Way::Awaits(_))), "{way:?}");
        }
        for mover in ["", "velero"] {
            let why = decided(mover, whole()).unwrap_err();
            assert!(why.contains("by Velero with kopia"), "{why}");
        }
        let empty = json!({"phase": "Completed"});
        for mover in ["bowline", "velero"] {
            assert_eq!(decided(mover, empty.clone()), Ok(Way::Empty));
        }
        let others = decided("somebody", empty);
        assert!(matches!(others, Ok(Way::Awaits(_))), "{others:?}");
        let failed = json!({"phase": "Failed", "message": "disk on fire"});
        assert_eq!(
            decided("bowline", failed),
            Err("its data was not moved: DataUpload velero/b-x is Failed: disk on fire".to_owned())
        );
        let open = decided("bowline", json!(null));
        assert_eq!(
            open,
            Err("its data was not moved: DataUpload velero/b-x is New".to_owned())
        );
        let missing = way("velero/b-x", None).unwrap_err();
        assert!(
            missing.contains("velero/b-x is not in the backup"),
            "{missing}"
        );
        assert!(way("velero/b-x", Some(b"{")).is_err());
    }

    #[test]
    fn only_claims_with_an_upload_are_concerned() {
        let claim = |name: Value| json!({"metadata": {"annotations": {"velero.io/data-upload-name": name}}});
        assert_eq!(upload_of(&claim(json!("velero/x"))), Some("velero/x"));
        assert_eq!(upload_of(&claim(json!(""))), None);
        assert_eq!(upload_of(&json!({"metadata": {}})), None);
    }
}
