//! Names that come in: snapshots, and paths of the node. They are checked once, here.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};

use crate::{Error, Result};

/// Names of Kubernetes are not longer.
const LONGEST: usize = 253;
/// Random digits.
const DIGITS: usize = 10;

/// A snapshot: `<volume>.<10 hex digits>`, which is a name that Kubernetes takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SnapshotId(String);

impl SnapshotId {
    /// A new one of a volume of this name.
    pub(crate) fn new(volume: &str) -> Self {
        Self(format!("{}.{}", name(volume), digits()))
    }

    /// One that came in.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let parts = text.rsplit_once('.');
        let is_ours = parts.is_some_and(|(volume, digits)| {
            name(volume) == volume && digits.len() == DIGITS && digits.bytes().all(is_hex)
        });
        if is_ours {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::refused(format!(
            "snapshot {text:?} is not of this plugin, whose snapshots are called <volume>.<{DIGITS} \
             hex digits>"
        )))
    }

    /// The volume's part.
    pub(crate) fn volume(&self) -> &str {
        &self.0[..self.0.len() - DIGITS - 1]
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that Kubernetes takes: the same if it is one and leaves room for digits.
fn name(text: &str) -> String {
    let label = |text: &str| {
        let text: String = text
            .chars()
            .map(|c| match c.to_ascii_lowercase() {
                c @ ('a'..='z' | '0'..='9') => c,
                _ => '-',
            })
            .collect();
        text.trim_matches('-').to_owned()
    };
    let labels = text.split('.').map(label).filter(|label| !label.is_empty());
    let mut name = labels.collect::<Vec<_>>().join(".");
    name.truncate(LONGEST - DIGITS - 1);
    name.truncate(name.trim_end_matches(['-', '.']).len());
    if name.is_empty() {
        name.push_str("volume");
    }
    name
}

/// Digits that nobody else has.
pub(crate) fn digits() -> String {
    let mut bytes = [0; DIGITS / 2];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text ends in a dash and such digits: what comes before them.
pub(crate) fn without_digits(text: &str) -> Option<&str> {
    let (name, digits) = text.rsplit_once('-')?;
    (digits.len() == DIGITS && digits.bytes().all(is_hex)).then_some(name)
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// A folder of the node: absolute, and without anything in it that means another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodePath(String);

impl NodePath {
    /// A path that came in, called `what`.
    pub(crate) fn parse(what: &str, text: &str) -> Result<Self> {
        let refuse = |why: &str| Err(Error::refused(format!("{what} {text:?} {why}")));
        let Some(inner) = text.strip_prefix('/') else {
            return refuse("is not an absolute path");
        };
        let inner = inner.trim_end_matches('/');
        if inner.is_empty() {
            return refuse("is not a folder in another one");
        }
        if inner.contains('\0') {
            return refuse("has a zero byte in it");
        }
        if inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return refuse("is not a clean path: it has empty parts, \".\" or \"..\" in it");
        }
        Ok(Self(format!("/{inner}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the slash in front.
    pub(crate) fn inner(&self) -> &str {
        &self.0[1..]
    }

    /// The folder that it is in, without the slash in front: empty for the root.
    pub(crate) fn parent(&self) -> &str {
        let (parent, _) = self.0.rsplit_once('/').unwrap_or_default();
        parent.strip_prefix('/').unwrap_or_default()
    }

    /// Its last name.
    pub(crate) fn name(&self) -> &str {
        self.0.rsplit_once('/').unwrap_or_default().1
    }

    /// Another name in the same folder.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let (parent, _) = self.0.rsplit_once('/').unwrap_or_default();
        Self(format!("{parent}/{name}"))
    }

    /// Whether it is this one, or somewhere in it.
    pub(crate) fn is_in(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(&other.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_named_after_their_volume() {
        let long = "a".repeat(253);
        for (volume, expected) in [
            ("pvc-1.example", "pvc-1.example"),
            ("My Data_1", "my-data-1"),
            ("..", "volume"),
            ("a..b", "a.b"),
            ("-x-", "x"),
            ("ü", "volume"),
            (&long, &long[..242]),
        ] {
            let id = SnapshotId::new(volume);
            assert_eq!(id.volume(), expected);
            assert!(id.as_str().len() <= 253);
            assert_eq!(SnapshotId::parse(id.as_str()).unwrap(), id);
        }
        assert_ne!(SnapshotId::new("a"), SnapshotId::new("a"));
    }

    #[test]
    fn other_names_are_no_snapshots() {
        for text in [
            "",
            "..",
            "a",
            "a.0123",
            "a.012345678g",
            "a.012345678A",
            "../a.0123456789",
            "a/b.0123456789",
            "A.0123456789",
            ".0123456789",
            "-.0123456789",
            "a.0123456789.tmp",
        ] {
            let error = SnapshotId::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn paths_are_absolute_and_clean() {
        for (text, expected) in [("/a", "/a"), ("/a/b.c/", "/a/b.c"), ("/a/ b", "/a/ b")] {
            assert_eq!(NodePath::parse("path", text).unwrap().as_str(), expected);
        }
        for text in [
            "", "/", "//", "a", "./a", "/a/../b", "/a/./b", "/a//b", "/..", "/a\0",
        ] {
            let error = NodePath::parse("path", text).unwrap_err().to_string();
            assert!(error.contains(&format!("path {text:?}")), "{error}");
        }
        let path = NodePath::parse("path", "/a/b/c").unwrap();
        assert_eq!((path.parent(), path.name()), ("a/b", "c"));
        assert_eq!(path.beside("d").as_str(), "/a/b/d");
        let top = NodePath::parse("path", "/a").unwrap();
        assert_eq!((top.parent(), top.name()), ("", "a"));
        assert_eq!(top.beside("d").as_str(), "/d");
        assert!(path.is_in(&top) && path.is_in(&path) && !top.is_in(&path));
        assert!(!NodePath::parse("path", "/ab").unwrap().is_in(&top));
    }

    #[test]
    fn new_volumes_are_known_by_their_digits() {
        let text = format!("data-{}", digits());
        assert_eq!(without_digits(&text), Some("data"));
        assert_eq!(without_digits("data-x"), None);
        assert_eq!(without_digits("data"), None);
    }
}
