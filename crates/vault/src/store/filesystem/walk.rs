//! Looking through folders. Only ordinary files with ordinary names are objects.

use std::{fs, io, path::Path};

use super::{TEMPORARY, is_missing};
use crate::store::Entry;

/// Objects whose keys begin with `prefix`, in order.
pub(super) fn list(bucket: &Path, prefix: &str) -> io::Result<Vec<Entry>> {
    let start = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut entries = Vec::new();
    if !is_plain(start) {
        return Ok(entries);
    }
    let mut open = vec![start.to_owned()];
    while let Some(folder) = open.pop() {
        for found in children(bucket, &folder)? {
            match found {
                Child::Folder(key) => open.push(key),
                Child::File(key, size) if key.starts_with(prefix) => {
                    entries.push(Entry { key, size });
                }
                Child::File(..) => {}
            }
        }
    }
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(entries)
}

/// Folders directly under `prefix` that hold an object, however deep.
pub(super) fn folders(bucket: &Path, prefix: &str) -> io::Result<Vec<String>> {
    let start = prefix.trim_end_matches('/');
    let mut folders = Vec::new();
    if !is_plain(start) {
        return Ok(folders);
    }
    for found in children(bucket, start)? {
        if let Child::Folder(key) = found
            && holds_an_object(bucket, &key)?
        {
            folders.push(format!("{key}/"));
        }
    }
    folders.sort_unstable();
    Ok(folders)
}

fn holds_an_object(bucket: &Path, folder: &str) -> io::Result<bool> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for found in children(bucket, &folder)? {
            match found {
                Child::File(..) => return Ok(true),
                Child::Folder(key) => open.push(key),
            }
        }
    }
    Ok(false)
}

fn is_plain(folder: &str) -> bool {
    folder.is_empty()
        || !folder
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
}

enum Child {
    Folder(String),
    File(String, u64),
}

/// What is in a folder; nothing, if it went away or was never there.
fn children(bucket: &Path, folder: &str) -> io::Result<Vec<Child>> {
    let path = match folder {
        "" => bucket.to_owned(),
        _ => bucket.join(folder),
    };
    let found = match fs::read_dir(&path) {
        Ok(found) => found,
        Err(e) if is_missing(&e) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut children = Vec::new();
    for entry in found {
        let entry = entry?;
        // A name that is no text is nobody's key.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with(TEMPORARY) {
            continue;
        }
        let key = match folder {
            "" => name,
            _ => format!("{folder}/{name}"),
        };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            children.push(Child::Folder(key));
        } else if kind.is_file() {
            match entry.metadata() {
                Ok(found) => children.push(Child::File(key, found.len())),
                Err(e) if is_missing(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(children)
}
