//! The clones on this node: where they are, how one is made, found and removed.
//!
//! ```text
//!   <snapshot folder>/<id>.tmp/volume    a clone that is being made, or removed
//!   <snapshot folder>/<id>/volume        a clone
//!   <snapshot folder>/<id>.json          what is said of it
//!   <snapshot folder>/<id>.new           nobody has asked for it yet
//!   /var/lib/bowline-plugin-local/<id>   a link that says which snapshot folder, unless all are in one
//! ```
//!
//! The clone's own folder is in another one, so that its owner and mode are part of what is uploaded,
//! and an empty volume is something too.

use std::{
    ffi::{CStr, CString},
    os::fd::OwnedFd,
    sync::Arc,
};

use bowline_volume::Progress;
use jiff::Timestamp;
use rustix::{
    fs::{
        AtFlags, Mode, OFlags, RenameFlags, fstat, mkdirat, openat, readlinkat, renameat_with,
        statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::{
    Error, Result,
    about::About,
    clone,
    host::{self, FOLDER, Host, PRIVATE, c_name},
    names::{NodePath, SnapshotId},
    remove::{gone, remove},
    settings::Folder,
};

/// The clone in its folder.
pub(crate) const VOLUME: &CStr = c"volume";
/// Where it is written down which snapshot folder a clone is in.
const NOTES: &str = "/var/lib/bowline-plugin-local";
/// A clone that nobody asks for in this time is nobody's: whoever wanted it was never told its name,
/// since the process that made it died. Hosts ask how far it is as soon as they know it.
const UNKNOWN: i64 = 600;
/// Names that are tried before giving up.
const TRIES: usize = 5;

/// The clones of a node.
pub(crate) struct Clones {
    pub(crate) host: Host,
    folder: Folder,
}

/// A clone that is whole.
pub(crate) struct Found {
    pub(crate) about: About,
    /// The folder with the clone in it.
    pub(crate) fd: OwnedFd,
}

impl Found {
    /// Whether it is the same one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let place = |fd: &OwnedFd| fstat(fd).map(|found| (found.st_dev, found.st_ino));
        place(&self.fd) == place(&other.fd)
    }
}

/// What a clone is for.
#[derive(Debug, Clone)]
pub(crate) struct Purpose {
    pub(crate) volume: NodePath,
    pub(crate) persistent_volume: String,
    pub(crate) backup: String,
    /// Its uid, if the host says it: names are not unique.
    pub(crate) backup_uid: String,
}

/// A clone that is not whole. Dropped, it is removed.
pub(crate) struct Begun {
    clones: Arc<Clones>,
    purpose: Purpose,
    id: SnapshotId,
    volume: OwnedFd,
    folder: OwnedFd,
    place: NodePath,
    work: OwnedFd,
    is_whole: bool,
}

impl Clones {
    pub(crate) fn new(host_root: &str, folder: Folder) -> Result<Self> {
        let host = Host::open(host_root)?;
        Ok(Self { host, folder })
    }

    /// Makes the folder for a clone of a volume. Blocks, but not for long, unless the file system
    /// is frozen.
    pub(crate) fn begin(self: Arc<Self>, purpose: Purpose) -> Result<Begun> {
        let volume = self.host.folder(&purpose.volume)?;
        let place = self.place(&purpose.volume);
        if place.is_in(&purpose.volume) {
            return Err(Error::refused(format!(
                "snapshotFolder {place} is in the volume {} itself",
                purpose.volume
            )));
        }
        let folder = self.host.private(&place)?;
        let name = match &*purpose.persistent_volume {
            "" => purpose.volume.name(),
            name => name,
        };
        let (id, work) = self.make(&folder, &place, name)?;
        Ok(Begun {
            clones: self,
            purpose,
            id,
            volume,
            folder,
            place,
            work,
            is_whole: false,
        })
    }

    /// The snapshot folder of a volume.
    fn place(&self, volume: &NodePath) -> NodePath {
        match &self.folder {
            Folder::At(path) => path.clone(),
            Folder::Beside(name) => volume.beside(name),
        }
    }

    /// A new name, written down, and its folder, which is ours as long as it is open.
    fn make(
        &self,
        folder: &OwnedFd,
        place: &NodePath,
        volume: &str,
    ) -> Result<(SnapshotId, OwnedFd)> {
        for _ in 0..TRIES {
            let id = SnapshotId::new(volume);
            self.note(&id, place)?;
            let made = host::make_busy(folder, &unfinished(&id));
            match made.map_err(Error::file("make folder", format!("{place}/{id}.tmp")))? {
                Some(work) => return Ok((id, work)),
                None => self.forget_note(&id)?,
            }
        }
        Err(Error::refused(format!(
            "no folder could be made in {place}: somebody removes them"
        )))
    }

    /// Somebody knows a clone.
    pub(crate) fn know(&self, id: &SnapshotId) -> Result<()> {
        let Some((folder, place)) = self.folder_of(id)? else {
            return Ok(());
        };
        let known = unlinkat(&folder, fresh(id), AtFlags::empty());
        gone(known).map_err(Error::file("remove", format!("{place}/{id}.new")))
    }

    /// Removes what runs that were killed have left, wherever clones are. Blocks.
    pub(crate) fn tidy_all(&self) -> Result<()> {
        let mut places: Vec<NodePath> = Vec::new();
        match &self.folder {
            Folder::At(path) => places.push(path.clone()),
            Folder::Beside(_) => {
                let notes = self.host.find_private(&self.notes()?)?;
                let listed = notes.map(|notes| host::list(&notes)).transpose();
                let listed = listed.map_err(Error::file("read folder", NOTES))?;
                for name in listed.into_iter().flatten() {
                    let id = name.to_str().ok().and_then(|name| id_of(name, ""));
                    let place = id.map(|id| self.noted(&id)).transpose()?.flatten();
                    places.extend(place.filter(|place| !places.contains(place)));
                }
            }
        }
        for place in places {
            if let Some(folder) = self.host.find_private(&place)? {
                self.tidy(&folder, &place, None)?;
            }
        }
        Ok(())
    }

    /// A clone, if it is on this node.
    pub(crate) fn find(&self, id: &SnapshotId) -> Result<Option<Found>> {
        let Some((folder, _)) = self.folder_of(id)? else {
            return Ok(None);
        };
        self.know(id)?;
        let failed = |action| Error::file(action, format!("snapshot {id}"));
        let fd = match openat(&folder, c_name(id.as_str()), FOLDER, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed("open")(errno)),
        };
        let about = About::read(&folder, &said(id)).map_err(failed("read about"))?;
        let about = about.ok_or_else(|| {
            Error::refused(format!(
                "snapshot {id} lacks the file that tells its volume"
            ))
        })?;
        Ok(Some(Found { about, fd }))
    }

    /// Removes a clone; one that is not here is no error. Blocks.
    pub(crate) fn remove(&self, id: &SnapshotId) -> Result<()> {
        match self.folder_of(id)? {
            Some((folder, place)) => self.clear(&folder, &place, id),
            None => self.forget_note(id),
        }
    }

    fn clear(&self, folder: &OwnedFd, place: &NodePath, id: &SnapshotId) -> Result<()> {
        let failed = |action| Error::file(action, format!("{place}/{id}"));
        let (whole, work) = (c_name(id.as_str()), unfinished(id));
        // From here on it is not whole any more, and looks it.
        match renameat_with(folder, &whole, folder, &work, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Both are there, by no doing of ours.
            Err(Errno::EXIST) => remove(folder, &whole).map_err(failed("remove"))?,
            Err(errno) => return Err(failed("remove")(errno)),
        }
        remove(folder, &work).map_err(failed("remove"))?;
        let text = unlinkat(folder, said(id), AtFlags::empty());
        gone(text).map_err(failed("remove what is said of"))?;
        let known = unlinkat(folder, fresh(id), AtFlags::empty());
        gone(known).map_err(failed("remove what is said of"))?;
        self.forget_note(id)
    }

    /// Removes what runs that were killed have left: clones that are not whole, those that nobody has
    /// asked for, and those of the same volume for the same backup, which is being made again.
    fn tidy(&self, folder: &OwnedFd, place: &NodePath, purpose: Option<&Purpose>) -> Result<()> {
        let failed = |errno| Error::file("read folder", place)(errno);
        for name in host::list(folder).map_err(failed)? {
            let Ok(name) = name.to_str() else { continue };
            if let Some(id) = id_of(name, ".tmp") {
                let left = host::is_left_over(folder, &unfinished(&id)).map_err(failed)?;
                if let Some(_held) = left {
                    tracing::info!("removing what was left of snapshot {id}");
                    self.clear(folder, place, &id)?;
                }
            } else if let Some(id) = id_of(name, ".json") {
                // In this order: between the two it may become whole.
                if exists(folder, &unfinished(&id)) {
                    continue;
                }
                let is_there = exists(folder, &c_name(id.as_str()));
                let about = About::read(folder, &said(&id)).map_err(failed)?;
                let is_old = about.zip(purpose);
                let is_old = is_old.is_some_and(|(about, purpose)| is_superseded(&about, purpose));
                if is_old || !is_there || is_unknown(folder, &id) {
                    tracing::info!("removing snapshot {id}, which its backup has given up");
                    self.clear(folder, place, &id)?;
                }
            }
        }
        Ok(())
    }

    fn folder_of(&self, id: &SnapshotId) -> Result<Option<(OwnedFd, NodePath)>> {
        let place = match &self.folder {
            Folder::At(path) => path.clone(),
            Folder::Beside(_) => match self.noted(id)? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        let found = self.host.find_private(&place)?;
        Ok(found.map(|fd| (fd, place)))
    }

    fn notes(&self) -> Result<NodePath> {
        NodePath::parse("folder", NOTES)
    }

    /// Writes down where a clone will be.
    fn note(&self, id: &SnapshotId, place: &NodePath) -> Result<()> {
        if matches!(self.folder, Folder::At(_)) {
            return Ok(());
        }
        let notes = self.host.private_below(&self.notes()?)?;
        let made = symlinkat(place.as_str(), &notes, id.as_str());
        made.map_err(Error::file("write", format!("{NOTES}/{id}")))
    }

    fn noted(&self, id: &SnapshotId) -> Result<Option<NodePath>> {
        let Some(notes) = self.host.find_private(&self.notes()?)? else {
            return Ok(None);
        };
        match readlinkat(&notes, id.as_str(), Vec::new()) {
            Ok(place) => {
                let what = format!("the folder of snapshot {id}:");
                NodePath::parse(&what, &place.to_string_lossy()).map(Some)
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::file("read", format!("{NOTES}/{id}"))(errno)),
        }
    }

    fn forget_note(&self, id: &SnapshotId) -> Result<()> {
        let Some(notes) = self.host.find_private(&self.notes()?)? else {
            return Ok(());
        };
        let removed = unlinkat(&notes, id.as_str(), AtFlags::empty());
        gone(removed).map_err(Error::file("remove", format!("{NOTES}/{id}")))
    }
}

impl Begun {
    /// Fills it. Blocks.
    pub(crate) fn fill(mut self) -> Result<(SnapshotId, About)> {
        let id = self.id.clone();
        let failed = |action| Error::file(action, format!("snapshot {id}"));
        let clones = &self.clones;
        clones.tidy(&self.folder, &self.place, Some(&self.purpose))?;
        let mut about = About {
            volume: self.purpose.volume.to_string(),
            persistent_volume: self.purpose.persistent_volume.clone(),
            backup: self.purpose.backup.clone(),
            backup_uid: self.purpose.backup_uid.clone(),
            created: Timestamp::now(),
            files: 0,
            bytes: 0,
            copied: 0,
        };
        mkdirat(&self.work, VOLUME, PRIVATE).map_err(failed("make the folder of"))?;
        let target = openat(&self.work, VOLUME, FOLDER, Mode::empty());
        let target = target.map_err(failed("open the folder of"))?;
        let skip = match &clones.folder {
            Folder::Beside(name) => Some(c_name(name)),
            Folder::At(_) => None,
        };
        let cloned = clone::tree(&self.volume, target, skip.as_deref(), &Progress::default())?;
        about.files = cloned.files;
        about.bytes = cloned.bytes;
        about.copied = cloned.copied;
        let written = about.write(&self.folder, &said(&id));
        written.map_err(failed("write down"))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let made = openat(&self.folder, fresh(&id), flags, mode);
        made.map_err(failed("write down"))?;
        let (folder, from, to) = (&self.folder, unfinished(&id), c_name(id.as_str()));
        renameat_with(folder, &from, folder, &to, RenameFlags::NOREPLACE)
            .map_err(failed("finish"))?;
        self.is_whole = true;
        Ok((id, about))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.is_whole {
            return;
        }
        let cleared = self.clones.clear(&self.folder, &self.place, &self.id);
        if let Err(error) = cleared {
            tracing::warn!("a clone is left behind: {}", crate::error::chain(&error));
        }
    }
}

/// A backup takes one snapshot of a volume, so an older one of the same was of a run that was killed.
fn is_superseded(about: &About, purpose: &Purpose) -> bool {
    !purpose.backup.is_empty()
        && about.backup == purpose.backup
        && about.backup_uid == purpose.backup_uid
        && about.volume == purpose.volume.as_str()
        // Two may be of one folder.
        && about.persistent_volume == purpose.persistent_volume
}

fn exists(folder: &OwnedFd, name: &CStr) -> bool {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    !matches!(found, Err(Errno::NOENT))
}

fn unfinished(id: &SnapshotId) -> CString {
    c_name(&format!("{id}.tmp"))
}

fn fresh(id: &SnapshotId) -> CString {
    c_name(&format!("{id}.new"))
}

/// Whether nobody has asked for a clone, and nobody will.
fn is_unknown(folder: &OwnedFd, id: &SnapshotId) -> bool {
    let found = statat(folder, fresh(id), AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| Timestamp::now().as_second() - found.st_mtime > UNKNOWN)
}

fn said(id: &SnapshotId) -> CString {
    c_name(&format!("{id}.json"))
}

fn id_of(name: &str, suffix: &str) -> Option<SnapshotId> {
    SnapshotId::parse(name.strip_suffix(suffix)?).ok()
}
