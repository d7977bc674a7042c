//! Folders as a repository keeps them: JSON, one node for each entry, sorted by name.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{id::Id, quote};

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    /// In Go's bits: permissions are Unix', the rest is not.
    pub(crate) mode: u32,
    pub(crate) mtime: Time,
    pub(crate) atime: Time,
    pub(crate) ctime: Time,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) user: Box<str>,
    pub(crate) group: Box<str>,
    pub(crate) inode: u64,
    /// Of files with several links.
    pub(crate) device_id: u64,
    pub(crate) size: u64,
    pub(crate) links: u64,
    pub(crate) target: Vec<u8>,
    pub(crate) attributes: Vec<Attribute>,
    /// Of devices.
    pub(crate) device: u64,
    pub(crate) content: Vec<Id>,
    pub(crate) subtree: Option<Id>,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink,
    Dev,
    Chardev,
    Fifo,
    Socket,
    #[serde(other)]
    Irregular,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: Box<str>,
    pub(crate) value: Box<[u8]>,
}

/// A moment, as files have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// Go's bits of a mode.
pub(crate) mod mode {
    pub(crate) const DIR: u32 = 1 << 31;
    pub(crate) const SYMLINK: u32 = 1 << 27;
    pub(crate) const DEVICE: u32 = 1 << 26;
    pub(crate) const FIFO: u32 = 1 << 25;
    pub(crate) const SETUID: u32 = 1 << 23;
    pub(crate) const SETGID: u32 = 1 << 22;
    pub(crate) const CHARDEV: u32 = 1 << 21;
    pub(crate) const STICKY: u32 = 1 << 20;
    pub(crate) const PERMISSIONS: u32 = 0o777;

    /// From Unix' special bits and permissions.
    pub(crate) fn from_unix(mode: u32) -> u32 {
        let bit = |unix, go| if mode & unix != 0 { go } else { 0 };
        (mode & PERMISSIONS) | bit(0o4000, SETUID) | bit(0o2000, SETGID) | bit(0o1000, STICKY)
    }

    /// Back to those.
    pub(crate) fn to_unix(mode: u32) -> u32 {
        let bit = |unix, go| if mode & go != 0 { unix } else { 0 };
        (mode & PERMISSIONS) | bit(0o4000, SETUID) | bit(0o2000, SETGID) | bit(0o1000, STICKY)
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Dir => "dir",
            Self::Symlink => "symlink",
            Self::Dev => "dev",
            Self::Chardev => "chardev",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Irregular => "irregular",
        }
    }
}

/// The JSON of a folder.
pub(crate) fn write<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<u8> {
    let mut out = b"{\"nodes\":[".to_vec();
    for (at, node) in nodes.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        node.write(&mut out);
    }
    out.extend_from_slice(b"]}\n");
    out
}

impl Node {
    fn write(&self, out: &mut Vec<u8>) {
        let number = |key: &str, value: u64, out: &mut Vec<u8>| {
            if value != 0 {
                field(key, out);
                plain(value, out);
            }
        };
        out.extend_from_slice(b"{\"name\":\"");
        quote::write(&self.name, out);
        out.extend_from_slice(b"\",\"type\":\"");
        out.extend_from_slice(self.kind.word().as_bytes());
        out.push(b'"');
        number("mode", self.mode.into(), out);
        for (key, time) in [
            ("mtime", self.mtime),
            ("atime", self.atime),
            ("ctime", self.ctime),
        ] {
            field(key, out);
            out.push(b'"');
            plain(time.to_timestamp(), out);
            out.push(b'"');
        }
        field("uid", out);
        plain(self.uid, out);
        field("gid", out);
        plain(self.gid, out);
        for (key, text) in [("user", &self.user), ("group", &self.group)] {
            if !text.is_empty() {
                string(key, text, out);
            }
        }
        number("inode", self.inode, out);
        number("device_id", self.device_id, out);
        number("size", self.size, out);
        number("links", self.links, out);
        if !self.target.is_empty() {
            string("linktarget", &String::from_utf8_lossy(&self.target), out);
            if std::str::from_utf8(&self.target).is_err() {
                string("linktarget_raw", &STANDARD.encode(&self.target), out);
            }
        }
        if !self.attributes.is_empty() {
            field("extended_attributes", out);
            out.push(b'[');
            for (at, attribute) in self.attributes.iter().enumerate() {
                out.extend_from_slice(if at > 0 {
                    b",{\"name\":\""
                } else {
                    b"{\"name\":\""
                });
                quote::write_json(&attribute.name, out);
                out.push(b'"');
                string("value", &STANDARD.encode(&attribute.value), out);
                out.push(b'}');
            }
            out.push(b']');
        }
        number("device", self.device, out);
        field("content", out);
        if self.kind == Kind::File {
            out.push(b'[');
            for (at, id) in self.content.iter().enumerate() {
                out.extend_from_slice(if at > 0 { b",\"" } else { b"\"" });
                id.write(out);
                out.push(b'"');
            }
            out.push(b']');
        } else {
            out.extend_from_slice(b"null");
        }
        if let Some(subtree) = &self.subtree {
            field("subtree", out);
            out.push(b'"');
            subtree.write(out);
            out.push(b'"');
        }
        out.push(b'}');
    }
}

fn field(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn string(key: &str, text: &str, out: &mut Vec<u8>) {
    field(key, out);
    out.push(b'"');
    quote::write_json(text, out);
    out.push(b'"');
}

/// Anything whose text needs no quoting.
fn plain(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    use std::io::Write;
    // Nothing goes wrong with memory.
    let _ = write!(out, "{value}");
}

impl Time {
    /// What can be written begins with the year 0 and ends with the year 9999; what is beyond is
    /// moved to the nearest.
    fn to_timestamp(self) -> Timestamp {
        const YEAR_0: i64 = -62_167_219_200;
        let seconds = self.seconds.clamp(YEAR_0, Timestamp::MAX.as_second());
        Timestamp::new(seconds, self.nanos.cast_signed()).unwrap_or(Timestamp::MAX)
    }

    fn read(text: &str) -> Option<Self> {
        let at: Timestamp = text.parse().ok()?;
        // Whole seconds are rounded towards zero there, and nanoseconds may be negative.
        let nanos = at.as_nanosecond();
        Some(Self {
            seconds: i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?,
            nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?,
        })
    }
}

/// A node as it is read.
#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default)]
    mode: u32,
    #[serde(borrow, default)]
    mtime: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    atime: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    ctime: std::borrow::Cow<'a, str>,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    user: Box<str>,
    #[serde(default)]
    group: Box<str>,
    #[serde(default)]
    inode: u64,
    #[serde(default)]
    device_id: u64,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    links: u64,
    #[serde(default)]
    linktarget: String,
    linktarget_raw: Option<String>,
    extended_attributes: Option<Vec<ReadAttribute>>,
    #[serde(default)]
    device: u64,
    content: Option<Vec<Id>>,
    subtree: Option<Id>,
}

#[derive(Deserialize)]
struct ReadAttribute {
    name: Box<str>,
    value: Option<String>,
}

#[derive(Deserialize)]
struct ReadTree<'a> {
    #[serde(borrow)]
    nodes: Option<Vec<Read<'a>>>,
}

/// Reads the JSON of a folder.
pub(crate) fn read(text: &[u8]) -> Result<Vec<Node>, String> {
    let tree: ReadTree<'_> = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let nodes = tree.nodes.unwrap_or_default();
    nodes.into_iter().map(Node::read).collect()
}

impl Node {
    fn read(read: Read<'_>) -> Result<Self, String> {
        let name = quote::read(&read.name).ok_or_else(|| format!("odd name {:?}", read.name))?;
        let is_path = name.contains(&b'/') || name.contains(&0);
        if is_path || matches!(&*name, b"" | b"." | b"..") {
            return Err(format!("{:?} is not the name of a file", read.name));
        }
        let time = |text: &str| match text {
            "" => Ok(Time::default()),
            text => Time::read(text).ok_or_else(|| format!("odd time {text:?}")),
        };
        let decode = |text: &str| STANDARD.decode(text).map_err(|e| e.to_string());
        let target = match &read.linktarget_raw {
            Some(raw) => decode(raw)?,
            None => read.linktarget.into_bytes(),
        };
        let attributes = read.extended_attributes.unwrap_or_default().into_iter();
        let attributes = attributes.map(|attribute| {
            Ok(Attribute {
                value: decode(attribute.value.as_deref().unwrap_or_default())?.into(),
                name: attribute.name,
            })
        });
        Ok(Self {
            kind: read.kind,
            mode: read.mode,
            mtime: time(&read.mtime)?,
            atime: time(&read.atime)?,
            ctime: time(&read.ctime)?,
            uid: read.uid,
            gid: read.gid,
            user: read.user,
            group: read.group,
            inode: read.inode,
            device_id: read.device_id,
            size: read.size,
            links: read.links,
            target,
            attributes: attributes.collect::<Result<_, String>>()?,
            device: read.device,
            content: read.content.unwrap_or_default(),
            subtree: read.subtree,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node {
            name: b"caf\xe9".to_vec(),
            kind: Kind::File,
            mode: 0o644 | mode::SETGID,
            mtime: Time {
                seconds: 1_700_000_000,
                nanos: 120_000_000,
            },
            atime: Time {
                seconds: -1,
                nanos: 999_999_999,
            },
            ctime: Time {
                seconds: 0,
                nanos: 0,
            },
            uid: 1000,
            gid: 0,
            user: "".into(),
            group: "root".into(),
            inode: 7,
            device_id: 0,
            size: 3,
            links: 1,
            target: Vec::new(),
            attributes: vec![Attribute {
                name: "user.a".into(),
                value: Box::new([0, 255]),
            }],
            device: 0,
            content: vec![Id([0xab; 32])],
            subtree: None,
        }
    }

    #[test]
    fn a_node_is_written_as_restic_does_and_read_again() {
        let text = write([&node()]);
        let id = "ab".repeat(32);
        assert_eq!(
            String::from_utf8_lossy(&text),
            format!(
                r#"{{"nodes":[{{"name":"caf\\xe9","type":"file","mode":4194724,"mtime":"2023-11-14T22:13:20.12Z","atime":"1969-12-31T23:59:59.999999999Z","ctime":"1970-01-01T00:00:00Z","uid":1000,"gid":0,"group":"root","inode":7,"size":3,"links":1,"extended_attributes":[{{"name":"user.a","value":"AP8="}}],"content":["{id}"]}}]}}
"#
            )
        );
        assert_eq!(read(&text), Ok(vec![node()]));
    }

    #[test]
    fn links_to_any_bytes_and_folders_too() {
        let mut link = node();
        link.kind = Kind::Symlink;
        link.target = b"../x\xff".to_vec();
        link.content.clear();
        let mut dir = node();
        dir.kind = Kind::Dir;
        dir.content.clear();
        dir.subtree = Some(Id([1; 32]));
        let text = write([&link, &dir]);
        assert_eq!(read(&text), Ok(vec![link, dir]));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["..", ".", "", "a/b", r"a\\x00"] {
            let text = format!(r#"{{"nodes":[{{"name":"{name}","type":"file"}}]}}"#);
            assert!(read(text.as_bytes()).is_err(), "{name}");
        }
        assert_eq!(read(br#"{"nodes":null}"#), Ok(vec![]));
        assert!(read(br#"{"nodes":[{"name":"a","type":"file","mtime":"x"}]}"#).is_err());
    }

    #[test]
    fn times_beyond_the_calendar_are_moved_into_it() {
        for (seconds, nanos, expected) in [
            (-62_167_219_200, 0, "0000-01-01T00:00:00Z"),
            (i64::MIN, 5, "0000-01-01T00:00:00.000000005Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
            (i64::MAX, 999_999_999, "9999-12-30T22:00:00.999999999Z"),
        ] {
            let time = Time { seconds, nanos };
            let text = time.to_timestamp().to_string();
            assert_eq!(text, expected);
            let again = Time::read(&text).unwrap();
            assert_eq!(again.to_timestamp().to_string(), text);
        }
    }

    #[test]
    fn modes_go_there_and_back() {
        for unix in [0, 0o777, 0o4755, 0o2755, 0o1777, 0o7000] {
            assert_eq!(mode::to_unix(mode::from_unix(unix)), unix);
        }
    }
}
