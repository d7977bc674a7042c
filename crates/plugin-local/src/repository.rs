//! Snapshots in the backup location: one repository of restic's format for each volume, in
//! `plugins/bowline-local`, which is a folder that Velero lets stand.

use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use bowline_vault::Bucket;
use bowline_volume::{
    Download, Engine, Problem, Progress, Upload,
    embedded::{Budget, Identity, Listed, Repository},
};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    clones::Found,
    host::path_of,
    names::{NodePath, SnapshotId},
};

/// The folder of all repositories in a bucket.
const FOLDER: &str = "plugins/bowline-local";
/// Files that are named when something is wrong with them.
const NAMED: usize = 10;

/// When this process began.
static STARTED: LazyLock<Timestamp> = LazyLock::new(Timestamp::now);

/// A backup location that is open.
#[derive(Clone)]
pub struct Vault {
    /// Its bucket.
    pub bucket: Bucket,
    /// The password of repositories in it.
    pub password: String,
}

/// Opens backup locations.
#[async_trait]
pub trait Vaults: Send + Sync {
    /// Opens the one of this name, or the default one.
    async fn open(&self, location: Option<&str>) -> Result<Vault>;
}

/// A snapshot in a repository.
pub(crate) struct Stored {
    repository: Repository,
    listed: Listed,
}

/// From now on is when this process began.
pub(crate) fn started() {
    LazyLock::force(&STARTED);
}

/// Looks for a snapshot.
pub(crate) async fn find(vault: &Vault, id: &SnapshotId) -> Result<Option<Stored>> {
    let Some(repository) = open(vault, id).await? else {
        return Ok(None);
    };
    let tag = tag(id);
    let listed = repository.snapshots().await?;
    let found = listed
        .into_iter()
        .find(|listed| listed.tags.contains(&tag) && is_whole(listed));
    Ok(found.map(|listed| Stored { repository, listed }))
}

/// Whether a snapshot has what its clone had. One that was made while somebody else removed the clone
/// has not.
fn is_whole(listed: &Listed) -> bool {
    listed.size.is_none_or(|(files, bytes)| {
        let said = [format!("files={files}"), format!("bytes={bytes}")];
        said.iter().all(|tag| listed.tags.contains(tag))
    })
}

/// Copies a clone into the repository of its volume, which is made if there is none. In the end it
/// is asked whether the clone is still there: if not, it was not read as a whole.
pub(crate) async fn upload(
    vault: &Vault,
    id: &SnapshotId,
    Found { about, fd }: &Found,
    progress: &Arc<Progress>,
    is_there: impl AsyncFnOnce() -> Result<bool>,
) -> Result<()> {
    let repository = open_or_create(vault, id).await?;
    let tags = [
        ("snapshot", id.as_str()),
        ("pv", &about.persistent_volume),
        ("backup", &about.backup),
        ("files", &about.files.to_string()),
        ("bytes", &about.bytes.to_string()),
    ];
    let tags = tags.iter().filter(|(_, value)| !value.is_empty());
    let upload = Upload {
        source: path_of(fd),
        path: about.volume.clone(),
        tags: tags.map(|(key, value)| format!("{key}={value}")).collect(),
        ..Default::default()
    };
    let cancel = CancellationToken::new();
    let done = repository.upload(&upload, progress, &cancel).await?;
    // Nobody changes a clone but to remove it: what has gone from it was there.
    let missing: Vec<&Problem> = done.unreadable.iter().chain(&done.remarks).collect();
    let is_whole = missing.is_empty() && (done.files, done.bytes) == (about.files, about.bytes);
    if is_whole && is_there().await? {
        return Ok(());
    }
    // It must not pass for a whole one.
    let made: Vec<String> = done.snapshot.into_iter().collect();
    repository.forget(&made).await?;
    let mut why = in_words(&missing);
    if why.is_empty() {
        why.push_str("somebody removed it meanwhile");
    }
    Err(Error::refused(format!(
        "snapshot {id} could not be read as a whole: {why}"
    )))
}

impl Stored {
    /// The folder that the volume was.
    pub(crate) fn volume(&self) -> Result<NodePath> {
        let path = self.listed.paths.first().map(String::as_str);
        NodePath::parse("the snapshot's volume", path.unwrap_or_default())
    }

    /// Copies it into a folder.
    pub(crate) async fn download(&self, into: &OwnedFd, progress: &Arc<Progress>) -> Result<()> {
        let download = Download {
            snapshot: self.listed.id.clone(),
            target: path_of(into),
            sparse: true,
            ..Default::default()
        };
        let cancel = CancellationToken::new();
        let done = self
            .repository
            .download(&download, progress, &cancel)
            .await?;
        for remark in &done.remarks {
            tracing::warn!("{remark}");
        }
        let problems: Vec<&Problem> = done.problems.iter().collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::refused(format!(
            "the volume could not be written as a whole: {}",
            in_words(&problems)
        )))
    }
}

/// Removes a snapshot, and data that no other one needs; one that is not there is no error.
pub(crate) async fn delete(vault: &Vault, id: &SnapshotId) -> Result<()> {
    let Some(repository) = open(vault, id).await? else {
        return Ok(());
    };
    let tag = tag(id);
    let listed = repository.snapshots().await?;
    let listed = listed
        .into_iter()
        .filter(|listed| listed.tags.contains(&tag));
    let gone: Vec<String> = listed.map(|listed| listed.id).collect();
    repository.forget(&gone).await?;
    // Also when nothing was forgotten now: an upload that was killed leaves data, too.
    match repository.maintain(&CancellationToken::new()).await {
        Ok(freed) => {
            tracing::debug!("{} bytes of {} were freed", freed.freed, folder(id));
            Ok(())
        }
        Err(bowline_volume::Error::Locked(who)) => {
            tracing::info!("data of snapshot {id} goes with the next deletion: locked {who}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

async fn open(vault: &Vault, id: &SnapshotId) -> Result<Option<Repository>> {
    let Vault { bucket, password } = vault.clone();
    let folder = folder(id);
    let opened = Repository::open(bucket, &folder, &password, identity(), Budget::default());
    match opened.await {
        Ok(repository) => Ok(Some(repository)),
        Err(bowline_volume::Error::NoRepository(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn open_or_create(vault: &Vault, id: &SnapshotId) -> Result<Repository> {
    if let Some(repository) = open(vault, id).await? {
        return Ok(repository);
    }
    let Vault { bucket, password } = vault.clone();
    let folder = folder(id);
    let made = Repository::create(bucket, &folder, &password, identity(), Budget::default());
    match made.await {
        Ok(repository) => Ok(repository),
        // Somebody was faster.
        Err(bowline_volume::Error::Exists(place)) => {
            let opened = open(vault, id).await?;
            opened.ok_or(Error::Volume(bowline_volume::Error::NoRepository(place)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The repository of a snapshot's volume.
fn folder(id: &SnapshotId) -> String {
    format!("{FOLDER}/{}", id.volume())
}

fn tag(id: &SnapshotId) -> String {
    format!("snapshot={id}")
}

/// Who we are for locks. Those of the same name from before this process began are of the dead, if
/// no other process of this program runs here.
fn identity() -> Identity {
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    let since = if is_alone() {
        *STARTED
    } else {
        Timestamp::UNIX_EPOCH
    };
    Identity {
        hostname: format!("bowline-plugin-local-{host}"),
        since,
    }
}

/// Whether this is the only process of its program.
fn is_alone() -> bool {
    use std::os::unix::fs::MetadataExt;
    let program = |process: &Path| {
        let found = std::fs::metadata(process.join("exe")).ok()?;
        Some((found.dev(), found.ino()))
    };
    let own = program(Path::new("/proc/self"));
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    let pid = std::process::id().to_string();
    let others = processes.flatten().filter(|entry| {
        let name = entry.file_name();
        let is_process = name.to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        is_process && name != *pid && program(&entry.path()) == own
    });
    own.is_some() && others.count() == 0
}

/// The first few problems.
fn in_words(problems: &[&Problem]) -> String {
    let named = problems.iter().take(NAMED).map(ToString::to_string);
    let mut text = named.collect::<Vec<_>>().join("; ");
    if problems.len() > NAMED {
        text.push_str(&format!("; and {} more", problems.len() - NAMED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_without_all_files_is_not_whole() {
        let listed = |size, tags: &[&str]| Listed {
            size,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..Listed::default()
        };
        for (size, tags, expected) in [
            (Some((2, 10)), &["files=2", "bytes=10"][..], true),
            (Some((1, 10)), &["files=2", "bytes=10"], false),
            (Some((2, 9)), &["files=2", "bytes=10"], false),
            (Some((2, 10)), &[], false),
            (None, &[], true),
        ] {
            assert_eq!(is_whole(&listed(size, tags)), expected, "{size:?} {tags:?}");
        }
    }
}
