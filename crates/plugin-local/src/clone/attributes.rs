//! Extended attributes.

use std::{ffi::CStr, os::fd::RawFd};

use rustix::{
    fd::BorrowedFd,
    fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr, lgetxattr, llistxattr, lsetxattr},
    io::Errno,
};

/// The kernel allows no more, neither of names nor of a value.
const MOST: usize = 64 << 10;

/// Copies those of what is open.
pub(super) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    all(
        |names| flistxattr(from, names),
        |name, value| fgetxattr(from, name, value),
        |name, value| fsetxattr(to, name, value, XattrFlags::empty()),
    )
}

/// Copies those of what is not opened: a link, a device.
pub(super) fn copy_at(from: RawFd, to: RawFd, name: &CStr) -> Result<(), Errno> {
    let path = |folder: RawFd| {
        let mut path = format!("/proc/self/fd/{folder}/").into_bytes();
        path.extend_from_slice(name.to_bytes());
        path
    };
    let (from, to) = (path(from), path(to));
    let copied = all(
        |names| llistxattr(&*from, names),
        |name, value| lgetxattr(&*from, name, value),
        |name, value| lsetxattr(&*to, name, value, XattrFlags::empty()),
    );
    match copied {
        // Links and devices seldom may have any; not to be let look is as good as none.
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(()),
        copied => copied,
    }
}

fn all(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
    set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut few = [0; 256];
    let mut many = Vec::new();
    let names: &[u8] = match list(&mut few) {
        Ok(length) => &few[..length],
        Err(Errno::RANGE) => {
            many.resize(MOST, 0);
            let length = list(&mut many)?;
            &many[..length]
        }
        // A file system without attributes.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    if names.is_empty() {
        return Ok(());
    }
    let mut value = vec![0; MOST];
    for name in names.split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let length = match get(name, &mut value) {
            Ok(length) => length,
            // Gone meanwhile, or listed and not for reading.
            Err(Errno::NODATA | Errno::NOTSUP) => continue,
            Err(errno) => return Err(errno),
        };
        match set(name, &value[..length]) {
            Ok(()) => {}
            // What this file system cannot hold.
            Err(errno @ Errno::NOTSUP) => {
                let name = String::from_utf8_lossy(name);
                tracing::warn!("attribute {name} is not kept: {errno}");
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
