//! Loop devices over files of a bed: the kernel keeps them when their makers are killed.

use std::{
    fs, fs::Metadata, os::unix::fs::MetadataExt, path::Path, process::Command, time::Duration,
};

use anyhow::Context;
use serde::Deserialize;

use crate::{machine::output, requirements, wait_for};

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

/// Detaches the loop devices over files in a folder, and those that kubelet has put over these. Some
/// go by themselves at the same time, when the kernel is done with their mounts.
pub(crate) async fn detach(folder: &Path) -> anyhow::Result<()> {
    // Who has no such program made no such device.
    if requirements::find("losetup").is_none() {
        return Ok(());
    }
    let what = "the bed's loop devices to go";
    wait_for(what, Duration::from_secs(20), async || {
        let all = list()?;
        let ours: Vec<&Loop> = all.iter().filter(|l| l.is_in(folder)).collect();
        if ours.is_empty() {
            return Ok(Some(()));
        }
        let is_over = |device: &&Loop| ours.iter().any(|below| device.is_over(below));
        let over: Vec<&Loop> = all.iter().filter(is_over).collect();
        // What is below is how those over it are known, so it goes last.
        let next = if over.is_empty() { &ours } else { &over };
        for device in next {
            output(Command::new("losetup").args(["--detach", &device.name]))?;
        }
        Ok(None)
    })
    .await
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
    /// Whether its file is in a folder. When the mounts that it was opened through are gone, its name
    /// begins at the root of its file system.
    fn is_in(&self, folder: &Path) -> bool {
        let Some(file) = self.file.as_ref().map(|file| file.trim_start_matches('/')) else {
            return false;
        };
        let root = Path::new("/");
        folder.ancestors().any(|top| {
            let file = top.join(file);
            file.starts_with(folder) && (top == root || self.is_of(&file))
        })
    }

    /// Whether it was put over another device, whatever that was called there.
    fn is_over(&self, other: &Self) -> bool {
        self.is_of(Path::new(&other.name))
    }

    /// Whether this is the file behind it.
    fn is_of(&self, file: &Path) -> bool {
        let Ok(found) = fs::metadata(file) else {
            return false;
        };
        let (major, minor) = (fs_major(&found), fs_minor(&found));
        self.inode == found.ino() && self.device.trim() == format!("{major}:{minor}")
    }
}

fn fs_major(file: &Metadata) -> u32 {
    rustix::fs::major(file.dev())
}

fn fs_minor(file: &Metadata) -> u32 {
    rustix::fs::minor(file.dev())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt, path::Path};

    use super::{Loop, fs_major, fs_minor, parse};

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

    #[test]
    fn a_name_from_the_root_of_a_file_system_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let bed = folder.path().join("beds/node");
        fs::create_dir_all(&bed).unwrap();
        fs::write(bed.join("data"), "").unwrap();
        let found = fs::metadata(bed.join("data")).unwrap();
        let mut device = Loop {
            name: "/dev/loop0".to_owned(),
            file: Some("/node/data".to_owned()),
            inode: found.ino(),
            device: format!("{}:{}", fs_major(&found), fs_minor(&found)),
        };
        assert!(device.is_in(&bed));
        assert!(!device.is_in(folder.path().join("other").as_path()));
        device.inode += 1;
        assert!(!device.is_in(&bed));
    }
}
