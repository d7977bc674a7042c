//! A bucket that is a folder: a mounted share, or a laptop without a cloud.
//!
//! An object is a file. It is written under a temporary name in its folder and renamed when it is
//! whole and on the disk; temporary files that a crash left behind are not objects. Nothing is
//! read or written outside the bucket's folder: keys are checked, symbolic links are refused.

mod signer;
mod walk;

pub use signer::{Signer, set_public_url};

use std::{
    fs, io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::{Entry, Settings};
use crate::{ByteStream, Error, Location, ObjectStore, Result};

/// What the names of unfinished files begin with.
const TEMPORARY: &str = ".bowline-tmp-";

/// How much of an object is read at a time.
const CHUNK: usize = 64 << 10;

/// `path` is the root folder (`fspath` as Velero's repositories call it), `publicUrl` the address
/// under which the server serves objects.
const KEYS: &[&str] = &["path", "fspath", "publicUrl", "credentialsFile"];

/// A folder with a bucket.
#[derive(Debug)]
struct Filesystem {
    place: Arc<Place>,
    bucket: String,
    shown: String,
    public_url: Option<String>,
    signer: Signer,
}

/// Where the bucket is. All that looks there runs on threads that may wait: a share whose server
/// is gone answers to nobody.
#[derive(Debug)]
struct Place {
    /// The folder that must be there: a share that is not mounted must not look like an empty one.
    root: PathBuf,
    /// The bucket's folder in it, which comes with the first object.
    folder: PathBuf,
}

pub(super) fn open(settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    settings.only(KEYS)?;
    let root = settings
        .get("path")
        .or_else(|| settings.get("fspath"))
        .ok_or_else(|| {
            Error::Settings("config needs path, the folder that holds buckets".into())
        })?;
    if matches!(settings.bucket.as_str(), "." | "..") || settings.bucket.contains('\0') {
        return Err(Error::Settings(format!(
            "bucket name {:?} is not the name of a folder",
            settings.bucket
        )));
    }
    let root = PathBuf::from(root);
    let folder = root.join(&settings.bucket);
    Ok(Arc::new(Filesystem {
        shown: folder.display().to_string(),
        place: Arc::new(Place { root, folder }),
        bucket: settings.bucket.clone(),
        public_url: settings.get("publicUrl").map(str::to_owned),
        signer: signer_of(settings)?,
    }))
}

/// The signer of a location's URLs: with the key from its Secret, so that several servers agree,
/// or else that of this process.
///
/// # Errors
/// When the location's settings cannot be used.
pub fn signer(location: &Location) -> Result<Signer> {
    signer_of(&crate::location::settings(location)?)
}

fn signer_of(settings: &Settings) -> Result<Signer> {
    Ok(match settings.credentials("")? {
        Some((_, key)) => Signer::new(key.trim().as_bytes()),
        None => Signer::process(),
    })
}

/// Refuses keys that could mean another place, or none.
fn check(action: &str, key: &str) -> Result<()> {
    let is_bad = |part: &str| {
        matches!(part, "" | "." | "..")
            || part.starts_with(TEMPORARY)
            || part.chars().any(char::is_control)
    };
    if key.split('/').any(is_bad) {
        return Err(refuse(action, "not a key that can be used"));
    }
    Ok(())
}

impl Filesystem {
    /// Does something on a thread that may wait.
    async fn blocking<T: Send + 'static>(
        &self,
        action: &str,
        work: impl FnOnce(&Place, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (place, named) = (self.place.clone(), action.to_owned());
        tokio::task::spawn_blocking(move || work(&place, &named))
            .await
            .unwrap_or_else(|e| Err(refuse(action, &e.to_string())))
    }

    async fn file(&self, action: &str, key: &str) -> Result<PathBuf> {
        let key = key.to_owned();
        self.blocking(action, move |place, action| place.file(action, &key))
            .await
    }
}

impl Place {
    /// The file of a key. Its folders, where they are, are folders and no links.
    fn file(&self, action: &str, key: &str) -> Result<PathBuf> {
        check(action, key)?;
        self.mounted(action)?;
        let mut path = self.folder.clone();
        for part in key.split('/').map(Some).chain([None]) {
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                return Err(refuse(action, &format!("{} is a link", path.display())));
            }
            path.extend(part);
        }
        Ok(path)
    }

    fn mounted(&self, action: &str) -> Result<()> {
        match fs::metadata(&self.root) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(refuse(
                action,
                &format!("{} is no folder", self.root.display()),
            )),
            Err(e) => Err(failed(action, &self.root, &e)),
        }
    }

    /// Removes a file, and the folders that are empty without it.
    fn remove(&self, action: &str, path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(e) if is_missing(&e) => return Ok(()),
            Err(e) => return Err(failed(action, path, &e)),
        }
        for folder in path.ancestors().skip(1) {
            if folder == self.folder || fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn refuse(action: &str, reason: &str) -> Error {
    Error::Store {
        action: action.to_owned(),
        reason: reason.to_owned(),
        retryable: false,
    }
}

fn failed(action: &str, path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind as Kind;
    Error::Store {
        action: action.to_owned(),
        reason: format!("{}: {error}", path.display()),
        retryable: matches!(
            error.kind(),
            Kind::Interrupted | Kind::TimedOut | Kind::ResourceBusy | Kind::StaleNetworkFileHandle
        ),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// A file under its temporary name, removed unless it was renamed.
struct Unfinished {
    path: PathBuf,
    is_renamed: bool,
}

impl Unfinished {
    /// Makes the folder and a file in it; whoever removes empty folders may be quicker once.
    async fn create(folder: &Path) -> io::Result<(Self, tokio::fs::File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = format!(
            "{TEMPORARY}{}-{:x}-{}",
            std::process::id(),
            since.map_or(0, |d| d.as_nanos()),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = folder.join(name);
        let mut tries = 0;
        loop {
            tokio::fs::create_dir_all(folder).await?;
            match tokio::fs::File::create_new(&path).await {
                Ok(file) => {
                    let is_renamed = false;
                    return Ok((Self { path, is_renamed }, file));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < 3 => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }
}

impl Unfinished {
    fn rename(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_renamed {
            // What cannot be removed stays invisible.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes the names in the folders down too, up to the bucket's: a renamed file that is forgotten
/// with its folder was not stored.
fn sync_folders(from: &Path, to: &Path) -> io::Result<()> {
    for folder in from.ancestors() {
        fs::File::open(folder)?.sync_all()?;
        if folder == to {
            break;
        }
    }
    Ok(())
}

#[async_trait]
impl ObjectStore for Filesystem {
    async fn put(&self, key: &str, mut body: ByteStream) -> Result<()> {
        let action = format!("put {key}");
        let path = self.file(&action, key).await?;
        let folder = path.parent().unwrap_or(&self.place.folder);
        let failed = |e: io::Error| self::failed(&action, &path, &e);
        let (unfinished, mut file) = Unfinished::create(folder).await.map_err(failed)?;
        while let Some(chunk) = body.next().await {
            file.write_all(&chunk?).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        file.sync_all().await.map_err(failed)?;
        drop(file);
        let path = path.clone();
        self.blocking(&action, move |place, action| {
            let finished = unfinished.rename(&path);
            finished
                .and_then(|()| sync_folders(path.parent().unwrap_or(&place.folder), &place.root))
                .map_err(|e| self::failed(action, &path, &e))
        })
        .await
    }

    async fn get(&self, key: &str) -> Result<ByteStream> {
        let action = format!("get {key}");
        let path = self.file(&action, key).await?;
        let missing = || Error::NotFound {
            key: key.to_owned(),
        };
        let file = match tokio::fs::File::open(&path).await {
            Ok(file) => file,
            Err(e) if is_missing(&e) => return Err(missing()),
            Err(e) => return Err(failed(&action, &path, &e)),
        };
        let found = file.metadata().await;
        if !found.is_ok_and(|found| found.is_file()) {
            return Err(missing());
        }
        let shown = path.display().to_string();
        Ok(ReaderStream::with_capacity(file, CHUNK)
            .map(move |chunk| {
                chunk.map_err(|e| Error::Store {
                    action: action.clone(),
                    reason: format!("{shown}: {e}"),
                    retryable: false,
                })
            })
            .boxed())
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let action = format!("get {key}");
        let key = key.to_owned();
        self.blocking(&action, move |place, action| {
            let path = place.file(action, &key)?;
            let file = match fs::File::open(&path) {
                Ok(file) => file,
                Err(e) if is_missing(&e) => return Err(Error::NotFound { key }),
                Err(e) => return Err(failed(action, &path, &e)),
            };
            let length = range.end.saturating_sub(range.start);
            let mut part = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            match file.read_exact_at(&mut part, range.start) {
                Ok(()) => Ok(part.into()),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    super::whole(&key, &range, Bytes::new())
                }
                Err(e) => Err(failed(action, &path, &e)),
            }
        })
        .await
    }

    async fn exists(&self, key: &str) -> Result<bool> {
        let action = format!("look for {key}");
        let path = self.file(&action, key).await?;
        match tokio::fs::symlink_metadata(&path).await {
            Ok(found) => Ok(found.is_file()),
            Err(e) if is_missing(&e) => Ok(false),
            Err(e) => Err(failed(&action, &path, &e)),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        let action = format!("list {}/{prefix}", self.bucket);
        let prefix = prefix.to_owned();
        self.blocking(&action, move |place, action| {
            place.mounted(action)?;
            walk::list(&place.folder, &prefix).map_err(|e| failed(action, &place.folder, &e))
        })
        .await
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>> {
        let action = format!("list {}/{prefix}", self.bucket);
        let prefix = prefix.to_owned();
        self.blocking(&action, move |place, action| {
            place.mounted(action)?;
            walk::folders(&place.folder, &prefix).map_err(|e| failed(action, &place.folder, &e))
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let action = format!("delete {key}");
        let path = self.file(&action, key).await?;
        self.blocking(&action, move |place, action| place.remove(action, &path))
            .await
    }

    async fn sign(&self, key: &str, ttl: Duration) -> Result<String> {
        let action = format!("sign a URL for {key}");
        check(&action, key)?;
        let base = self
            .public_url
            .clone()
            .or_else(signer::public_url)
            .ok_or_else(|| {
                refuse(
                    &action,
                    "a folder has no address: set publicUrl in the location's config to where \
                     the server can be reached",
                )
            })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let expires = now.map_or(0, |now| (now + ttl).as_secs());
        Ok(self.signer.url(&base, &self.bucket, key, expires))
    }

    fn endpoint(&self) -> &str {
        &self.shown
    }
}
