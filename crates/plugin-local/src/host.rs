//! The folders of the node, by descriptors. No link is followed on the way to one.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{
        Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, fchmod, flock, fstat, mkdirat,
        openat, openat2,
    },
    io::Errno,
};

use crate::{Error, Result, names::NodePath};

/// How folders are opened: never through a link.
pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// The same where all links are refused anyway, by a name of their own.
const BELOW: OFlags = FOLDER.difference(OFlags::NOFOLLOW);
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
/// For nobody else.
pub(crate) const PRIVATE: Mode = Mode::from_raw_mode(0o700);

/// The node, as this process sees it.
pub(crate) struct Host {
    root: OwnedFd,
}

impl Host {
    /// The node whose root is seen here.
    pub(crate) fn open(root: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())
            .map_err(Error::file("open hostRoot", root))?;
        Ok(Self { root })
    }

    /// A folder, which must be there.
    pub(crate) fn folder(&self, path: &NodePath) -> Result<OwnedFd> {
        open_inside(&self.root, path.inner()).map_err(|errno| unusable(path.as_str(), errno))
    }

    /// The folder that another one is in.
    pub(crate) fn parent(&self, path: &NodePath) -> Result<OwnedFd> {
        let inner = path.parent();
        open_inside(&self.root, if inner.is_empty() { "." } else { inner })
            .map_err(|errno| unusable(&format!("/{inner}"), errno))
    }

    /// A folder for this plugin alone; it is made if it is not there.
    pub(crate) fn private(&self, path: &NodePath) -> Result<OwnedFd> {
        private(&self.parent(path)?, path)
    }

    /// The same, but none if it is not there.
    pub(crate) fn find_private(&self, path: &NodePath) -> Result<Option<OwnedFd>> {
        match open_inside(&self.root, path.inner()) {
            Ok(fd) => checked(fd, path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(unusable(path.as_str(), errno)),
        }
    }

    /// The same as [`private`](Self::private), with all the folders that it is in.
    pub(crate) fn private_below(&self, path: &NodePath) -> Result<OwnedFd> {
        let failed = |errno| unusable(path.as_str(), errno);
        let mut above = openat(&self.root, c".", FOLDER, Mode::empty()).map_err(failed)?;
        for name in path.parent().split('/').filter(|name| !name.is_empty()) {
            match mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            above = openat(&above, name, FOLDER, Mode::empty()).map_err(failed)?;
        }
        private(&above, path)
    }
}

fn open_inside(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    openat2(root, path, BELOW, Mode::empty(), INSIDE)
}

/// A folder below another one, by its path in it.
pub(crate) fn open_below(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_empty() { b"." } else { path };
    openat2(root, path, BELOW, Mode::empty(), INSIDE)
}

fn private(above: &OwnedFd, path: &NodePath) -> Result<OwnedFd> {
    let failed = |errno| unusable(path.as_str(), errno);
    let is_new = match mkdirat(above, path.name(), PRIVATE) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(Error::file("make folder", path)(errno)),
    };
    let fd = openat(above, path.name(), FOLDER, Mode::empty()).map_err(failed)?;
    if is_new {
        // Whatever the umask says.
        fchmod(&fd, PRIVATE).map_err(Error::file("set the mode of", path))?;
    }
    checked(fd, path)
}

/// A folder in which others could put something in the place of what is ours is of no use.
fn checked(fd: OwnedFd, path: &NodePath) -> Result<OwnedFd> {
    let found = fstat(&fd).map_err(Error::file("look at", path))?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if is_ours && found.st_mode & 0o077 == 0 {
        return Ok(fd);
    }
    Err(Error::refused(format!(
        "folder {path} is not for this plugin alone: it must be of user {} and have mode 0700",
        rustix::process::geteuid().as_raw()
    )))
}

fn unusable(path: &str, errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::refused(format!("folder {path} does not exist")),
        Errno::NOTDIR => Error::refused(format!("{path} is not a folder")),
        Errno::LOOP => Error::refused(format!(
            "{path} is, or is behind, a symbolic link, which is not followed"
        )),
        errno => Error::file("open folder", path)(errno),
    }
}

/// The names in a folder, sorted.
pub(crate) fn list(fd: impl AsFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// What an entry of a folder is.
pub(crate) fn kind(mode: rustix::fs::RawMode) -> FileType {
    FileType::from_raw_mode(mode)
}

/// A path by which a folder that is open can be opened again, whatever has become of its name.
pub(crate) fn path_of(fd: &OwnedFd) -> PathBuf {
    // With the dot it is no link, and may be opened by those who do not follow any.
    PathBuf::from(format!("/proc/self/fd/{}/.", fd.as_raw_fd()))
}

/// Makes a folder that others leave alone as long as it is open; none if one has the name already.
pub(crate) fn make_busy(above: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    match mkdirat(above, name, PRIVATE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    let fd = openat(above, name, FOLDER, Mode::empty())?;
    // Somebody who tidies up may have seen it before it was locked, and removed it.
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) if fstat(&fd)?.st_nlink > 0 => Ok(Some(fd)),
        Ok(()) | Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether nobody has a folder of [`make_busy`] open any more; it is ours then, as long as this is
/// open.
pub(crate) fn is_left_over(above: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let fd = match openat(above, name, FOLDER, Mode::empty()) {
        Ok(fd) => fd,
        // Gone, or never one of those.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A name as the system wants it. Names that were checked have no zero bytes.
pub(crate) fn c_name(name: &str) -> CString {
    CString::new(name.replace('\0', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn path(text: &str) -> NodePath {
        NodePath::parse("path", text).unwrap()
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/folder")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        symlink("folder", dir.path().join("real/last")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let host = Host::open(dir.path().to_str().unwrap()).unwrap();
        host.folder(&path("/real/folder")).unwrap();
        for (text, words) in [
            ("/link", "symbolic link"),
            ("/link/folder", "symbolic link"),
            ("/real/last", "symbolic link"),
            ("/gone", "/gone does not exist"),
            ("/file", "/file is not a folder"),
        ] {
            let error = host.folder(&path(text)).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(text), "{error}");
        }
        let error = host.private(&path("/real/last")).unwrap_err().to_string();
        assert!(error.contains("/real/last"), "{error}");
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::open(dir.path().to_str().unwrap()).unwrap();
        host.private(&path("/own")).unwrap();
        host.private(&path("/own")).unwrap();
        assert!(host.find_private(&path("/own")).unwrap().is_some());
        assert!(host.find_private(&path("/none")).unwrap().is_none());
        let open = fs::Permissions::from_mode(0o770);
        fs::set_permissions(dir.path().join("own"), open).unwrap();
        let error = host.private(&path("/own")).unwrap_err().to_string();
        assert!(
            error.contains("/own is not for this plugin alone"),
            "{error}"
        );
        host.private_below(&path("/a/b/c")).unwrap();
        host.private_below(&path("/a/b/c")).unwrap();
    }

    #[test]
    fn a_folder_in_use_is_not_left_over() {
        let dir = tempfile::tempdir().unwrap();
        let above = rustix::fs::open(dir.path(), FOLDER, Mode::empty()).unwrap();
        let busy = make_busy(&above, c"x").unwrap().unwrap();
        assert!(make_busy(&above, c"x").unwrap().is_none());
        assert!(is_left_over(&above, c"x").unwrap().is_none());
        drop(busy);
        assert!(is_left_over(&above, c"x").unwrap().is_some());
        assert!(is_left_over(&above, c"y").unwrap().is_none());
    }
}
