//! Container images out of single files, as archives that `ctr images import`, `docker load` and
//! `podman load` read: the layout of OCI, and the list of `docker save` beside it.
//!
//! No registry is in reach of a bed; an image is a static program or two, links to them, and the
//! folders that programs expect. The same files make the same bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufWriter, Read, Seek, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use flate2::{Compression, GzBuilder, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// What goes into an image.
#[derive(Debug, Default)]
pub struct Image {
    /// The full name with its tag.
    pub name: String,
    /// What it runs.
    pub entrypoint: Vec<String>,
    /// Files of this machine and where they go.
    pub files: Vec<(PathBuf, String)>,
    /// Small files by their content.
    pub texts: Vec<(String, String)>,
    /// Links and what they point to.
    pub links: Vec<(String, String)>,
}

const FOLDERS: &[&str] = &[
    "tmp", "bin", "usr", "usr/bin", "etc", "plugins", "home", "root", "var", "dev", "proc", "sys",
    "data",
];
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUPS: &str = "root:x:0:\nnobody:x:65534:\n";
/// Everything is of the first moment, so that nothing depends on when it is made.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Where distributions keep the certificates to trust.
const CERTIFICATES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// How names are resolved, so that nothing else is tried.
const NAME_SERVICES: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The certificates that this machine trusts.
#[must_use]
pub fn certificates() -> Option<&'static Path> {
    let mut places = CERTIFICATES.iter().map(Path::new);
    places.find(|path| path.exists())
}

/// One entry of the layer.
enum Entry<'a> {
    Folder,
    File(&'a Path),
    Text(&'a str),
    Link(&'a str),
}

/// The layer, packed: in a file, with its digest and size, and the digest of what is in it.
struct Layer {
    file: File,
    digest: String,
    size: u64,
    content: String,
}

impl Image {
    /// The image of Bowline: one static program under all its names.
    #[must_use]
    pub fn bowline(name: &str, program: &Path) -> Self {
        let mut files = vec![(program.to_owned(), "/bowline".to_owned())];
        let place = CERTIFICATES[0].to_owned();
        files.extend(certificates().map(|path| (path.to_owned(), place)));
        let link = |name: &str| (name.to_owned(), "/bowline".to_owned());
        Self {
            name: name.to_owned(),
            entrypoint: vec!["/bowline".to_owned()],
            files,
            texts: vec![("/etc/nsswitch.conf".to_owned(), NAME_SERVICES.to_owned())],
            links: vec![link("/velero"), link("/velero-restore-helper")],
        }
    }

    /// The image of a plugin: a static program that copies itself to where the server looks.
    #[must_use]
    pub fn plugin(name: &str, program: &Path) -> Self {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let place = format!("/{file}");
        Self {
            name: name.to_owned(),
            entrypoint: vec![place.clone(), "install".to_owned()],
            files: vec![(program.to_owned(), place)],
            ..Self::default()
        }
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When a file cannot be read or the archive cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let layer = self.layer(path)?;
        let config = serde_json::to_vec(&json!({
            "created": CREATED,
            "architecture": architecture(),
            "os": "linux",
            "config": { "Env": ["PATH=/bin:/usr/bin:/"], "Entrypoint": self.entrypoint },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.content)] },
            "history": [{ "created": CREATED, "created_by": "bowline" }],
        }))?;
        let config_digest = hex(&Sha256::digest(&config));
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", &config_digest, config.len() as u64),
            "layers": [blob("layer.v1.tar+gzip", &layer.digest, layer.size)],
        }))?;
        let manifest_digest = hex(&Sha256::digest(&manifest));
        let index = serde_json::to_vec(&self.index(&manifest_digest, manifest.len() as u64))?;
        let of_docker = serde_json::to_vec(&json!([{
            "Config": format!("blobs/sha256/{config_digest}"),
            "RepoTags": [self.name],
            "Layers": [format!("blobs/sha256/{}", layer.digest)],
        }]))?;

        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let mut archive = Builder::new(BufWriter::new(file));
        let blob_of = |digest: &str| format!("blobs/sha256/{digest}");
        let mut blobs = BTreeMap::from([
            (blob_of(&config_digest), Some(config)),
            (blob_of(&manifest_digest), Some(manifest)),
            (blob_of(&layer.digest), None),
        ]);
        // Readers that take the archive as a stream want to know early what it is.
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#;
        append(&mut archive, "oci-layout", 0o644, layout)?;
        append(&mut archive, "index.json", 0o644, &index)?;
        append(&mut archive, "manifest.json", 0o644, &of_docker)?;
        for folder in ["blobs", "blobs/sha256"] {
            append_folder(&mut archive, folder, 0o755)?;
        }
        while let Some((name, bytes)) = blobs.pop_first() {
            match bytes {
                Some(bytes) => append(&mut archive, &name, 0o644, &bytes)?,
                None => append_file(&mut archive, &name, 0o644, layer.size, &layer.file)?,
            }
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    /// The list of images of the archive, which is this one.
    fn index(&self, manifest: &str, size: u64) -> Value {
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let mut image = blob("manifest.v1+json", manifest, size);
        image["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        // The first is what containerd reads, the second what OCI says.
        image["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [image],
        })
    }

    /// Everything that is in the image, by path.
    fn entries(&self) -> BTreeMap<String, Entry<'_>> {
        let place = |path: &str| path.trim_start_matches('/').to_owned();
        let mut entries: BTreeMap<String, Entry<'_>> = BTreeMap::new();
        entries.insert("etc/passwd".to_owned(), Entry::Text(USERS));
        entries.insert("etc/group".to_owned(), Entry::Text(GROUPS));
        let texts = self.texts.iter();
        entries.extend(texts.map(|(to, text)| (place(to), Entry::Text(text))));
        let files = self.files.iter();
        entries.extend(files.map(|(from, to)| (place(to), Entry::File(from))));
        let links = self.links.iter();
        entries.extend(links.map(|(link, to)| (place(link), Entry::Link(to))));
        let mut folders: BTreeSet<String> = FOLDERS.iter().map(|f| (*f).to_owned()).collect();
        for path in entries.keys() {
            let parents = Path::new(path).ancestors().skip(1);
            folders.extend(parents.map(|parent| parent.to_string_lossy().into_owned()));
        }
        folders.remove("");
        for folder in folders {
            entries.entry(folder).or_insert(Entry::Folder);
        }
        entries
    }

    /// Packs the one layer into a file that is gone when it is closed.
    fn layer(&self, beside: &Path) -> anyhow::Result<Layer> {
        let path = beside.with_extension("layer");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .with_context(|| format!("create {}", path.display()))?;
        fs::remove_file(&path)?;
        // The header of gzip has a time too; the builder's is zero.
        let packed =
            GzBuilder::new().write(Hashing::new(BufWriter::new(file)), Compression::default());
        let mut layer = Builder::new(Hashing::new(packed));
        for (place, entry) in self.entries() {
            match entry {
                Entry::Folder if place == "tmp" => append_folder(&mut layer, &place, 0o1777)?,
                Entry::Folder => append_folder(&mut layer, &place, 0o755)?,
                Entry::Text(text) => append(&mut layer, &place, 0o644, text.as_bytes())?,
                Entry::File(from) => append_copy(&mut layer, &place, from)?,
                Entry::Link(to) => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    layer.append_link(&mut header, &place, to)?;
                }
            }
        }
        let (packed, content) = layer.into_inner()?.finish();
        finished(packed, content)
    }
}

fn finished(packed: GzEncoder<Hashing<BufWriter<File>>>, content: String) -> anyhow::Result<Layer> {
    let (writer, digest) = packed.finish()?.finish();
    let mut file = writer.into_inner()?;
    let size = file.stream_position()?;
    file.rewind()?;
    Ok(Layer {
        file,
        digest,
        size,
        content,
    })
}

fn blob(kind: &str, digest: &str, size: u64) -> Value {
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{digest}"),
        "size": size,
    })
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(
    archive: &mut Builder<impl Write>,
    name: &str,
    mode: u32,
    bytes: &[u8],
) -> anyhow::Result<()> {
    append_file(archive, name, mode, bytes.len() as u64, bytes)
}

fn append_file(
    archive: &mut Builder<impl Write>,
    name: &str,
    mode: u32,
    size: u64,
    content: impl Read,
) -> anyhow::Result<()> {
    let mut header = header(EntryType::Regular, mode, size);
    archive.append_data(&mut header, name, content)?;
    Ok(())
}

/// A file of this machine; of its mode only counts whether it is a program.
fn append_copy(archive: &mut Builder<impl Write>, name: &str, from: &Path) -> anyhow::Result<()> {
    let file = File::open(from).with_context(|| format!("open {}", from.display()))?;
    let facts = file.metadata()?;
    let mode = match facts.permissions().mode() & 0o111 {
        0 => 0o644,
        _ => 0o755,
    };
    append_file(archive, name, mode, facts.len(), file)
}

fn append_folder(archive: &mut Builder<impl Write>, name: &str, mode: u32) -> anyhow::Result<()> {
    let mut header = header(EntryType::Directory, mode, 0);
    archive.append_data(&mut header, format!("{name}/"), std::io::empty())?;
    Ok(())
}

/// This machine's, as images spell it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes what passes through.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Hashing<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
        }
    }

    /// What is behind it, and the digest.
    fn finish(self) -> (W, String) {
        (self.inner, hex(&self.hash.finalize()))
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;
    use tar::Archive;

    use super::*;

    fn image(folder: &Path) -> Image {
        let program = folder.join("program");
        fs::write(&program, b"#!").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let data = folder.join("data");
        fs::write(&data, b"data").unwrap();
        Image {
            name: "docker.io/bowline/bowline:v1".to_owned(),
            entrypoint: vec!["/bowline".to_owned()],
            files: vec![
                (program, "/bowline".to_owned()),
                (data, "/etc/ssl/certs/all.crt".to_owned()),
            ],
            texts: vec![(
                "/etc/nsswitch.conf".to_owned(),
                "hosts: files dns\n".to_owned(),
            )],
            links: vec![("velero".to_owned(), "/bowline".to_owned())],
        }
    }

    #[test]
    fn bowline_has_all_its_names() {
        let image = Image::bowline("x:1", Path::new("/p"));
        assert_eq!(image.entrypoint, ["/bowline"]);
        let links: Vec<&str> = image.links.iter().map(|(link, _)| link.as_str()).collect();
        assert_eq!(links, ["/velero", "/velero-restore-helper"]);
        assert_eq!(image.files[0], (PathBuf::from("/p"), "/bowline".to_owned()));
    }

    #[test]
    fn a_plugin_installs_itself() {
        let image = Image::plugin("x:1", Path::new("/p/some-plugin"));
        assert_eq!(image.entrypoint, ["/some-plugin", "install"]);
        let file = (PathBuf::from("/p/some-plugin"), "/some-plugin".to_owned());
        assert_eq!(image.files, [file]);
        assert!(image.links.is_empty());
    }

    /// The files of an archive by name.
    fn files(bytes: impl Read) -> BTreeMap<String, Vec<u8>> {
        let mut archive = Archive::new(bytes);
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        };
        archive.entries().unwrap().map(read).collect()
    }

    fn parsed(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Value {
        serde_json::from_slice(&files[name]).unwrap()
    }

    /// The content that a reference of OCI stands for, after its digest and size are checked.
    fn referred<'a>(files: &'a BTreeMap<String, Vec<u8>>, to: &Value) -> &'a [u8] {
        let digest = to["digest"]
            .as_str()
            .unwrap()
            .strip_prefix("sha256:")
            .unwrap();
        let bytes = &files[&format!("blobs/sha256/{digest}")];
        assert_eq!(hex(&Sha256::digest(bytes)), digest);
        assert_eq!(to["size"], bytes.len());
        bytes
    }

    #[test]
    fn both_kinds_of_readers_find_the_image() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        image(folder.path()).write(&path).unwrap();
        let files = files(File::open(&path).unwrap());
        assert_eq!(parsed(&files, "oci-layout")["imageLayoutVersion"], "1.0.0");
        let entry = &parsed(&files, "index.json")["manifests"][0];
        let names = &entry["annotations"];
        assert_eq!(
            names["io.containerd.image.name"],
            "docker.io/bowline/bowline:v1"
        );
        assert_eq!(names["org.opencontainers.image.ref.name"], "v1");
        let manifest: Value = serde_json::from_slice(referred(&files, entry)).unwrap();
        let config: Value = serde_json::from_slice(referred(&files, &manifest["config"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/bowline"]));

        let layer = referred(&files, &manifest["layers"][0]);
        let mut content = Vec::new();
        GzDecoder::new(layer).read_to_end(&mut content).unwrap();
        let digest = format!("sha256:{}", hex(&Sha256::digest(&content)));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));

        let of_docker = &parsed(&files, "manifest.json")[0];
        assert_eq!(
            of_docker["RepoTags"],
            json!(["docker.io/bowline/bowline:v1"])
        );
        let at = |value: &Value| files[value.as_str().unwrap()].clone();
        assert_eq!(at(&of_docker["Layers"][0]), layer);
        assert_eq!(
            at(&of_docker["Config"]),
            referred(&files, &manifest["config"])
        );
    }

    #[test]
    fn the_layer_is_sorted_and_knows_no_time_and_no_owner() {
        let folder = tempfile::tempdir().unwrap();
        let layer = image(folder.path())
            .layer(&folder.path().join("x"))
            .unwrap();
        let mut archive = Archive::new(GzDecoder::new(layer.file));
        let mut paths = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            assert_eq!((header.mtime().unwrap(), owner), (0, (0, 0)));
            paths.push((
                entry.path().unwrap().display().to_string(),
                header.mode().unwrap(),
            ));
        }
        assert!(
            paths.is_sorted_by(|(a, _), (b, _)| a.trim_end_matches('/') < b.trim_end_matches('/'))
        );
        for (path, mode) in [
            ("bowline", 0o755),
            ("etc/ssl/certs/", 0o755),
            ("etc/ssl/certs/all.crt", 0o644),
            ("etc/nsswitch.conf", 0o644),
            ("etc/passwd", 0o644),
            ("tmp/", 0o1777),
            ("velero", 0o777),
        ] {
            assert!(
                paths.contains(&(path.to_owned(), mode)),
                "{path}: {paths:?}"
            );
        }
    }

    #[test]
    fn the_same_files_make_the_same_bytes() {
        let made = || {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image.tar");
            image(folder.path()).write(&path).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
            fs::read(&path).unwrap()
        };
        assert_eq!(made(), made());
    }
}
