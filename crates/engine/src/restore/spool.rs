//! The archive on the way in: objects go to a file without a name as they arrive, and an index says
//! where each of them is. Restoring needs them in another order than the archive has, and some of
//! them when another one asks; memory holds names and places, never bodies.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    sync::Arc,
};

use bowline_vault::archive::read::Reader;

/// Bytes that go to the file at a time.
const CHUNK: usize = 1 << 20;

/// Where an object's JSON is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    at: u64,
    len: u32,
    /// Whether the restore asks for it; others may still be asked for by those.
    pub selected: bool,
}

/// The objects of one resource, by namespace (empty for cluster-scoped ones) and name.
pub type Objects = BTreeMap<Box<str>, BTreeMap<Box<str>, Place>>;

/// One resource in an archive.
#[derive(Debug, Default)]
pub struct Kind {
    /// As the archive has them without a version: those that the source cluster preferred.
    pub objects: Objects,
    /// The version that the source cluster preferred, where the archive says it.
    pub preferred: Option<String>,
    /// The other versions, when they were asked for.
    pub versions: BTreeMap<String, Objects>,
}

/// An archive that was read to its end.
#[derive(Debug)]
pub struct Spool {
    file: Arc<File>,
    kinds: BTreeMap<String, Kind>,
}

/// Why an archive cannot be restored from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be read, or must not be.
    #[error(transparent)]
    Archive(#[from] bowline_vault::Error),
    /// There is no room for it.
    #[error("error unzipping and extracting: keep objects in {folder}")]
    Local {
        /// The folder for files of a moment.
        folder: String,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
}

impl Spool {
    /// Reads a whole archive. `selects` is asked about every object, with its resource, namespace,
    /// name and JSON; `versions` keeps the versions too that the source cluster did not prefer.
    pub async fn read(
        mut archive: Reader,
        versions: bool,
        mut selects: impl FnMut(&str, &str, &str, &[u8]) -> bool,
    ) -> Result<Self, Error> {
        let mut writer = Writer::new().map_err(local)?;
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        while let Some(item) = archive.next().await? {
            let Some(entry) = item.entry else { continue };
            if !kinds.contains_key(&entry.resource) {
                kinds.insert(entry.resource.clone(), Kind::default());
            }
            let kind = kinds.get_mut(&entry.resource).expect("just put there");
            let namespace = entry.namespace.unwrap_or_default();
            let objects = match entry.version {
                None => &mut kind.objects,
                Some(version) if entry.preferred => {
                    kind.preferred = Some(version);
                    continue;
                }
                Some(_) if !versions => continue,
                Some(version) => kind.versions.entry(version).or_default(),
            };
            let body = archive.body().await?;
            let selected = selects(&entry.resource, &namespace, &entry.name, &body);
            let at = writer.add(&body).await.map_err(local)?;
            let place = Place {
                at,
                len: u32::try_from(body.len()).unwrap_or(u32::MAX),
                selected,
            };
            objects
                .entry(namespace.into_boxed_str())
                .or_default()
                .insert(entry.name.into_boxed_str(), place);
        }
        let file = writer.finish().await.map_err(local)?;
        Ok(Self { file, kinds })
    }

    /// The resources, by name.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &Kind)> {
        self.kinds.iter().map(|(name, kind)| (name.as_str(), kind))
    }

    /// One resource.
    #[must_use]
    pub fn kind(&self, group_resource: &str) -> Option<&Kind> {
        self.kinds.get(group_resource)
    }

    /// Where an object is.
    #[must_use]
    pub fn find(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Place> {
        let objects = &self.kinds.get(group_resource)?.objects;
        objects.get(namespace)?.get(name).copied()
    }

    /// An object's JSON.
    pub fn body(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut body = vec![0; place.len as usize];
        self.file.read_exact_at(&mut body, place.at)?;
        Ok(body)
    }
}

fn local(source: io::Error) -> Error {
    Error::Local {
        folder: std::env::temp_dir().display().to_string(),
        source,
    }
}

/// Gathers bodies and writes them off the runtime's threads.
struct Writer {
    file: Arc<File>,
    written: u64,
    chunk: Vec<u8>,
}

impl Writer {
    fn new() -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(tempfile::tempfile()?),
            written: 0,
            chunk: Vec::with_capacity(CHUNK),
        })
    }

    async fn add(&mut self, body: &[u8]) -> io::Result<u64> {
        let at = self.written + self.chunk.len() as u64;
        self.chunk.extend_from_slice(body);
        if self.chunk.len() >= CHUNK {
            self.flush().await?;
        }
        Ok(at)
    }

    async fn flush(&mut self) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        let mut chunk = std::mem::take(&mut self.chunk);
        let len = chunk.len() as u64;
        chunk = tokio::task::spawn_blocking(move || {
            (&*file).write_all(&chunk)?;
            chunk.clear();
            Ok::<_, io::Error>(chunk)
        })
        .await
        .map_err(io::Error::other)??;
        // One that had to hold a very large object is let go.
        chunk.shrink_to(2 * CHUNK);
        self.chunk = chunk;
        self.written += len;
        Ok(())
    }

    async fn finish(mut self) -> io::Result<Arc<File>> {
        self.flush().await?;
        Ok(self.file)
    }
}
