//! Removing what is ours, with all that is in it. Links are removed, never followed.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, openat, unlinkat},
    io::Errno,
};

use crate::host::{FOLDER, list};

struct Level {
    fd: OwnedFd,
    name: CString,
    names: std::vec::IntoIter<CString>,
}

/// Removes whatever it is; what is gone already is no error.
pub(crate) fn remove(above: impl AsFd, name: &CStr) -> Result<(), Errno> {
    let Some(top) = entry(above.as_fd(), name)? else {
        return Ok(());
    };
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.names.next() {
            let below = entry(level.fd.as_fd(), &name)?;
            levels.extend(below);
            continue;
        }
        let Some(done) = levels.pop() else { break };
        let above = levels
            .last()
            .map_or_else(|| above.as_fd(), |level| level.fd.as_fd());
        gone(unlinkat(above, &done.name, AtFlags::REMOVEDIR))?;
    }
    Ok(())
}

/// Removes an entry, unless it is a folder: that is returned.
fn entry(above: impl AsFd, name: &CStr) -> Result<Option<Level>, Errno> {
    match unlinkat(&above, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let opened = openat(&above, name, FOLDER, Mode::empty());
    let fd = match opened {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        // It is no folder, and may not be removed.
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::PERM),
        Err(errno) => return Err(errno),
    };
    let names = list(&fd)?.into_iter();
    Ok(Some(Level {
        fd,
        name: name.to_owned(),
        names,
    }))
}

/// Somebody else may have been faster.
pub(crate) fn gone(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn all_goes_but_what_links_point_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("tree/a/b/c")).unwrap();
        fs::write(path("tree/a/file"), "x").unwrap();
        fs::create_dir(path("outside")).unwrap();
        fs::write(path("outside/file"), "x").unwrap();
        symlink("../../outside", path("tree/a/link")).unwrap();
        symlink("outside", path("link")).unwrap();
        let above = rustix::fs::open(dir.path(), FOLDER, Mode::empty()).unwrap();
        for name in [c"tree", c"link", c"none", c"tree"] {
            remove(&above, name).unwrap();
        }
        assert_eq!(list(&above).unwrap(), [c"outside".to_owned()]);
        assert_eq!(fs::read_dir(path("outside")).unwrap().count(), 1);
    }
}
