//! The done file: how a restored pod learns that a volume is complete.
//!
//! At the top of the volume, `.velero/<uid of the restore>` appears when all its data is there. The
//! volume's files are somebody else's, so nothing here follows a link: `.velero` may well be one.

use std::{fs, io, path::Path};

use rustix::fs::{AtFlags, Mode, OFlags};

/// The folder at the top of a volume.
pub(super) const FOLDER: &str = ".velero";

/// Whether the volume says that this restore is done with it.
pub(super) fn is_there(volume: &Path, restore: &str) -> bool {
    let folder = || -> io::Result<bool> {
        let folder = open(rustix::fs::CWD, &volume.join(FOLDER))?;
        let found = rustix::fs::statat(&folder, restore, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(rustix::fs::FileType::from_raw_mode(found.st_mode).is_file())
    };
    is_name(restore) && folder().unwrap_or(false)
}

/// Says that this restore is done with the volume. What an earlier one left there goes first.
///
/// # Errors
/// With what was being done.
pub(super) fn write(volume: &Path, restore: &str) -> Result<(), String> {
    if !is_name(restore) {
        return Err(format!("{restore:?} is no uid of a restore"));
    }
    let why = |what: &'static str| move |e: io::Error| format!("{what} in the volume: {e}");
    clear(volume).map_err(why("remove .velero"))?;
    let root = open(rustix::fs::CWD, volume).map_err(why("open the top folder"))?;
    // Whoever reads that it is done must find it done after a power failure too.
    rustix::fs::syncfs(&root).map_err(|e| why("write what is in memory")(e.into()))?;
    rustix::fs::mkdirat(&root, FOLDER, Mode::from_raw_mode(0o755))
        .map_err(|e| why("create .velero")(e.into()))?;
    let folder = open(&root, Path::new(FOLDER)).map_err(why("open .velero"))?;
    // The helper may be anybody, and whatever mask we were started with must not lock it out.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = || -> rustix::io::Result<()> {
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o755))?;
        let file = rustix::fs::openat(&folder, restore, flags, Mode::from_raw_mode(0o644))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))
    };
    made().map_err(|e| why("write the done file")(e.into()))
}

fn clear(volume: &Path) -> io::Result<()> {
    let folder = volume.join(FOLDER);
    match folder.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(found) if found.is_dir() => fs::remove_dir_all(&folder),
        Ok(_) => fs::remove_file(&folder),
    }
}

fn open<F: std::os::fd::AsFd>(at: F, folder: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, folder, flags, Mode::empty())?)
}

/// Whether it can be the name of a file in a folder.
fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn an_empty_file_in_a_folder_that_anybody_can_read() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        assert!(!is_there(volume, "uid"));
        write(volume, "uid").unwrap();
        assert!(is_there(volume, "uid"));
        assert_eq!(mode(&volume.join(".velero")), 0o755);
        assert_eq!(mode(&volume.join(".velero/uid")), 0o644);
        assert_eq!(fs::read(volume.join(".velero/uid")).unwrap(), b"");
        write(volume, "next").unwrap();
        assert!(!is_there(volume, "uid"), "what was there went");
        assert!(is_there(volume, "next"));
    }

    #[test]
    fn links_are_not_followed() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        let outside = tempfile::tempdir().unwrap();
        let outside = outside.path();
        fs::write(outside.join("uid"), "precious").unwrap();
        symlink(outside, volume.join(".velero")).unwrap();
        assert!(!is_there(volume, "uid"));
        write(volume, "uid").unwrap();
        assert_eq!(fs::read(outside.join("uid")).unwrap(), b"precious");
        assert!(is_there(volume, "uid"));
        // A link in the folder is removed, and what it points to is not.
        fs::remove_file(volume.join(".velero/uid")).unwrap();
        symlink(outside.join("uid"), volume.join(".velero/uid")).unwrap();
        assert!(!is_there(volume, "uid"));
        write(volume, "uid").unwrap();
        assert_eq!(fs::read(outside.join("uid")).unwrap(), b"precious");
        // Nor is a file in the folder's place any trouble.
        fs::remove_dir_all(volume.join(".velero")).unwrap();
        fs::write(volume.join(".velero"), "").unwrap();
        write(volume, "uid").unwrap();
        assert!(is_there(volume, "uid"));
    }

    #[test]
    fn names_stay_in_the_folder() {
        let volume = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../x", "a/b"] {
            assert!(write(volume.path(), name).is_err(), "{name}");
            assert!(!is_there(volume.path(), name), "{name}");
        }
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
    }
}
