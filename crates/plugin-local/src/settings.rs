//! What a VolumeSnapshotLocation says.

use bowline_api::Quantity;
use bowline_plugin::kinds::Config;

use crate::{Error, Result, names::NodePath};

/// All keys. The last one is the host's, and of no use here.
const KEYS: [&str; 5] = [
    "backupLocation",
    "hostRoot",
    "snapshotFolder",
    "uploadBytesPerSecond",
    "credentialsFile",
];
/// The folder of snapshots beside a volume.
const FOLDER: &str = ".bowline-snapshots";

/// Where snapshots of a volume are until they are uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Folder {
    /// In a folder of this name, beside the volume's.
    Beside(String),
    /// All in one.
    At(NodePath),
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The BackupStorageLocation; none for the default one.
    pub(crate) location: Option<String>,
    /// Where this process sees the root of the node.
    pub(crate) host_root: String,
    pub(crate) folder: Folder,
    pub(crate) bytes_per_second: Option<u64>,
}

impl Settings {
    pub(crate) fn parse(config: &Config) -> Result<Self> {
        let unknown: Vec<&str> = config
            .keys()
            .map(String::as_str)
            .filter(|key| !KEYS.contains(key))
            .collect();
        if !unknown.is_empty() {
            return Err(Error::refused(format!(
                "config has invalid keys [{}]; valid keys are [{}]",
                unknown.join(" "),
                KEYS.join(" ")
            )));
        }
        let get = |key: &str| {
            let value = config.get(key).map(String::as_str);
            value.filter(|value| !value.is_empty())
        };
        let host_root = get("hostRoot").unwrap_or("/");
        if !host_root.starts_with('/') {
            return Err(Error::refused(format!(
                "hostRoot {host_root:?} is not an absolute path"
            )));
        }
        Ok(Self {
            location: get("backupLocation").map(str::to_owned),
            host_root: host_root.to_owned(),
            folder: folder(get("snapshotFolder").unwrap_or(FOLDER))?,
            bytes_per_second: get("uploadBytesPerSecond").map(rate).transpose()?,
        })
    }
}

fn folder(text: &str) -> Result<Folder> {
    if text.starts_with('/') {
        return NodePath::parse("snapshotFolder", text).map(Folder::At);
    }
    if text.contains(['/', '\0']) || matches!(text, "." | "..") {
        return Err(Error::refused(format!(
            "snapshotFolder {text:?} is neither an absolute path nor a name"
        )));
    }
    Ok(Folder::Beside(text.to_owned()))
}

fn rate(text: &str) -> Result<u64> {
    let quantity = text.parse::<Quantity>().ok();
    let bytes = quantity.and_then(|quantity| u64::try_from(quantity.value()?).ok());
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        Error::refused(format!(
            "uploadBytesPerSecond {text:?} is not a number of bytes such as 5Mi"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(config: &[(&str, &str)]) -> Result<Settings, String> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let config = config.iter().map(pair).collect();
        Settings::parse(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_has_to_be_said() {
        let expected = Settings {
            location: None,
            host_root: "/".to_owned(),
            folder: Folder::Beside(".bowline-snapshots".to_owned()),
            bytes_per_second: None,
        };
        assert_eq!(parse(&[]), Ok(expected.clone()));
        assert_eq!(
            parse(&[("credentialsFile", "/x"), ("hostRoot", "")]),
            Ok(expected)
        );
    }

    #[test]
    fn everything_can_be_said() {
        let parsed = parse(&[
            ("backupLocation", "far"),
            ("hostRoot", "/host"),
            ("snapshotFolder", "/data/snapshots/"),
            ("uploadBytesPerSecond", "5Mi"),
        ]);
        let expected = Settings {
            location: Some("far".to_owned()),
            host_root: "/host".to_owned(),
            folder: Folder::At(NodePath::parse("", "/data/snapshots").unwrap()),
            bytes_per_second: Some(5 << 20),
        };
        assert_eq!(parsed, Ok(expected));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (key, value, words) in [
            ("region", "x", "invalid keys [region]; valid keys are [back"),
            ("hostRoot", "host", "hostRoot \"host\""),
            ("snapshotFolder", "a/b", "snapshotFolder \"a/b\""),
            ("snapshotFolder", "..", "snapshotFolder \"..\""),
            ("snapshotFolder", "/a/../b", "snapshotFolder \"/a/../b\""),
            ("uploadBytesPerSecond", "fast", "uploadBytesPerSecond \"f"),
            ("uploadBytesPerSecond", "0", "uploadBytesPerSecond \"0\""),
            ("uploadBytesPerSecond", "-5", "uploadBytesPerSecond \"-5\""),
        ] {
            let error = parse(&[(key, value)]).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
