//! What a backup in a bucket holds, read without any of our own code for it, and how two such
//! backups differ.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::Path,
};

use anyhow::{Context, ensure};
use bowline_api::files::backup_suffix;
use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::bed::Bucket;

/// The files of a backup or restore.
#[derive(Debug, Default)]
pub struct Contents {
    /// The archive's files by path: JSON, or a text.
    pub archive: BTreeMap<String, Value>,
    /// The other files, by what follows the name, unpacked.
    pub files: BTreeMap<String, Value>,
}

impl Contents {
    /// The rows of the volume info.
    pub fn volume_info(&self) -> anyhow::Result<Vec<Value>> {
        let file = self.files.get(backup_suffix::VOLUME_INFO);
        let rows = file.and_then(Value::as_array).cloned();
        rows.context("there is no volume info")
    }

    /// Reads all of a backup.
    pub fn read(bucket: &Bucket, backup: &str) -> anyhow::Result<Self> {
        let folder = bucket.folder().join("backups").join(backup);
        Self::of(&folder, |name| name.strip_prefix(backup))
    }

    /// Reads what a restore left in the bucket.
    pub fn of_restore(bucket: &Bucket, restore: &str) -> anyhow::Result<Self> {
        let folder = bucket.folder().join("restores").join(restore);
        Self::of(&folder, |name| {
            let plain = name.strip_prefix("restore-").unwrap_or(name);
            plain.strip_prefix(restore)
        })
    }

    fn of(folder: &Path, suffix: impl Fn(&str) -> Option<&str>) -> anyhow::Result<Self> {
        let mut contents = Self::default();
        let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let suffix = suffix(&name).unwrap_or(&name).to_owned();
            if suffix == ".tar.gz" {
                contents.archive = archive(&path)?;
                contents.files.insert(suffix, Value::Null);
                continue;
            }
            let read = || -> anyhow::Result<Value> {
                let mut bytes = Vec::new();
                if name.ends_with("gz") {
                    MultiGzDecoder::new(File::open(&path)?).read_to_end(&mut bytes)?;
                } else {
                    File::open(&path)?.read_to_end(&mut bytes)?;
                }
                Ok(json_or_text(&bytes))
            };
            let value = read().with_context(|| format!("read {}", path.display()))?;
            contents.files.insert(suffix, value);
        }
        Ok(contents)
    }

    /// The names of its files.
    #[must_use]
    pub fn file_names(&self) -> BTreeSet<&str> {
        self.files.keys().map(String::as_str).collect()
    }
}

/// Every file of a packed archive.
pub fn archive(file: &Path) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut bytes = Vec::new();
    let packed = File::open(file).with_context(|| format!("open {}", file.display()))?;
    let read = MultiGzDecoder::new(packed).read_to_end(&mut bytes);
    read.map_err(anyhow::Error::from)
        .and_then(|_| untar(&bytes))
        .with_context(|| format!("read {}", file.display()))
}

/// Every file of an archive; one that is there twice, or a second time under another spelling, is
/// an error.
fn untar(bytes: &[u8]) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut body = Vec::new();
        entry.read_to_end(&mut body)?;
        let before = found.insert(path.clone(), json_or_text(&body));
        ensure!(before.is_none(), "{path} is there twice");
    }
    Ok(found)
}

fn json_or_text(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(bytes).into_owned()))
}

/// Where two values differ, as lines `path: one | other`; at most a few per value.
#[must_use]
pub fn differences(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", one, other, &mut found);
    found
}

fn compare(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => compare(&path, a, b, found),
                    (Some(a), None) => found.push(format!("{path}: {} | absent", short(a))),
                    (None, Some(b)) => found.push(format!("{path}: absent | {}", short(b))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{n}]"), a, b, found);
            }
        }
        _ if one == other => {}
        _ => found.push(format!("{path}: {} | {}", short(one), short(other))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

    #[test]
    fn differences_are_named_by_path() {
        let one = json!({ "a": { "b": [1, 2] }, "same": 1, "gone": true });
        let other = json!({ "a": { "b": [1, 3] }, "same": 1, "new": null });
        assert_eq!(
            differences(&one, &other),
            [
                ".a.b[1]: 2 | 3",
                ".gone: true | absent",
                ".new: absent | null"
            ]
        );
    }
}
