//! A volume that is being made of a snapshot: beside the old one, under a name that says it is not
//! whole, until it is.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{RenameFlags, fstat, renameat_with, syncfs},
    io::Errno,
};

use crate::{
    Error, Result,
    clones::VOLUME,
    host::{self, Host, c_name},
    names::{self, NodePath},
    remove::remove,
};

/// What the names of volumes end in that are not whole.
const SUFFIX: &str = ".tmp";
/// A name is not longer, with a dash, digits and the suffix.
const LONGEST: usize = 255 - 1 - 10 - SUFFIX.len();

/// A volume that is not whole yet. Dropped, it is removed.
pub(crate) struct NewVolume {
    original: NodePath,
    parent: OwnedFd,
    /// The name of its folder now.
    work: String,
    fd: OwnedFd,
}

impl NewVolume {
    /// Makes a folder beside a volume that is there, or was.
    pub(crate) fn begin(host: &Host, original: &NodePath) -> Result<Self> {
        let parent = host.parent(original)?;
        tidy(&parent, original)?;
        for _ in 0..5 {
            let work = format!("{}{SUFFIX}", another(original.name()));
            let failed = Error::file("make folder", original.beside(&work));
            let made = host::make_busy(&parent, &c_name(&work)).map_err(failed)?;
            if let Some(fd) = made {
                return Ok(Self {
                    original: original.clone(),
                    parent,
                    work,
                    fd,
                });
            }
        }
        Err(Error::refused(format!(
            "no folder could be made beside {original}: somebody removes them"
        )))
    }

    /// The folder in which the volume's folder is to be.
    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.fd
    }

    /// It is whole: it gets the name of the old one if nothing has that name, and else a new one. A
    /// folder that is there is left alone even if it is empty, since a pod may have it mounted.
    pub(crate) fn finish(self) -> Result<NodePath> {
        syncfs(&self.fd).map_err(Error::file("write to the disk of", &self.original))?;
        let mut path = self.original.clone();
        loop {
            let flags = RenameFlags::NOREPLACE;
            match renameat_with(&self.fd, VOLUME, &self.parent, path.name(), flags) {
                Ok(()) => return Ok(path),
                Err(Errno::EXIST) => path = self.original.beside(&another(self.original.name())),
                Err(errno) => return Err(Error::file("finish volume", path)(errno)),
            }
        }
    }
}

impl Drop for NewVolume {
    fn drop(&mut self) {
        if let Err(errno) = remove(&self.parent, &c_name(&self.work)) {
            let path = self.original.beside(&self.work);
            tracing::warn!("{path} is left behind: {errno}");
        }
    }
}

/// Removes what restores of the same volume that were killed have left.
fn tidy(parent: &OwnedFd, original: &NodePath) -> Result<()> {
    let failed = |errno| Error::file("tidy up beside", original)(errno);
    for name in host::list(parent).map_err(failed)? {
        let Ok(text) = name.to_str() else { continue };
        let of = text.strip_suffix(SUFFIX).and_then(names::without_digits);
        if of != Some(cut(original.name())) {
            continue;
        }
        // What is not a folder of ours is somebody else's.
        if let Ok(Some(held)) = host::is_left_over(parent, &name)
            && is_ours(&held)
        {
            tracing::info!("removing what was left of {}", original.beside(text));
            remove(parent, &name).map_err(failed)?;
        }
    }
    Ok(())
}

/// Whether a folder is as [`NewVolume::begin`] makes them.
fn is_ours(fd: &OwnedFd) -> bool {
    let is_private = fstat(fd).is_ok_and(|found| {
        found.st_uid == rustix::process::geteuid().as_raw() && found.st_mode & 0o777 == 0o700
    });
    is_private && host::list(fd).is_ok_and(|names| names.iter().all(|name| **name == *VOLUME))
}

/// The name with new digits.
fn another(name: &str) -> String {
    format!("{}-{}", cut(name), names::digits())
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST)]
}
