//! Loop devices over files of a bed: the kernel keeps them when their makers are killed.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use anyhow::Context;
use serde::Deserialize;

use crate::{machine::output, requirements};

/// A loop device and the file behind it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Loop {
    name: String,
    #[serde(rename = "back-file")]
    file: Option<String>,
    #[serde(rename = "back-ino")]
    inode: u64,
    #[serde(rename = "back-maj:min")]
    device: String,
}

#[derive(Default, Deserialize)]
struct Answer {
    loopdevices: Vec<Loop>,
}

/// Detaches the loop devices over files in a folder, and those that kubelet has put over these.
pub(crate) fn detach(folder: &Path) -> anyhow::Result<()> {
    // Who has no such program made no such device.
    if requirements::find("losetup").is_none() {
        return Ok(());
    }
    let all = list()?;
    let ours: Vec<&Loop> = all.iter().filter(|l| l.is_in(folder)).collect();
    let over = all.iter().filter(|l| ours.iter().any(|o| l.is_over(o)));
    for device in over.chain(ours.iter().copied()) {
        output(Command::new("losetup").args(["--detach", &device.name]))?;
    }
    Ok(())
}

fn list() -> anyhow::Result<Vec<Loop>> {
    let columns = "NAME,BACK-FILE,BACK-INO,BACK-MAJ:MIN";
    let text = output(Command::new("losetup").args(["--list", "--json", "--output", columns]))?;
    parse(&text)
}

/// Some print nothing when there is no device.
fn parse(text: &str) -> anyhow::Result<Vec<Loop>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let answer: Answer = serde_json::from_str(text).context("read what losetup prints")?;
    Ok(answer.loopdevices)
}

impl Loop {
    fn is_in(&self, folder: &Path) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| Path::new(file).starts_with(folder))
    }

    /// Whether the file behind it is the node of another device, whatever its name was there.
    fn is_over(&self, other: &Self) -> bool {
        let Ok(node) = fs::metadata(&other.name) else {
            return false;
        };
        let (major, minor) = (rustix::fs::major(node.dev()), rustix::fs::minor(node.dev()));
        self.inode == node.ino() && self.device.replace(' ', "") == format!("{major}:{minor}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parse;

    #[test]
    fn devices_are_known_by_their_file() {
        assert_eq!(parse("").unwrap(), []);
        let text = r#"{"loopdevices": [
            {"name":"/dev/loop0","back-file":"/beds/node/csi/volumes/a/data","back-ino":12,"back-maj:min":"     254:0  "}
        ]}"#;
        let all = parse(text).unwrap();
        assert!(all[0].is_in(Path::new("/beds/node")));
        assert!(!all[0].is_in(Path::new("/beds/no")));
    }
}
