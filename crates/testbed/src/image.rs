//! Container images out of single files, in the archive format that `ctr images import` reads.
//!
//! No registry is in reach of a bed; an image is a static program or two, links to them, and the
//! folders that programs expect.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// What goes into an image.
#[derive(Debug, Default)]
pub(crate) struct Image {
    /// The full name with its tag.
    pub(crate) name: String,
    /// What it runs.
    pub(crate) entrypoint: Vec<String>,
    /// Files of this machine and where they go.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// Links and what they point to.
    pub(crate) links: Vec<(String, String)>,
}

const FOLDERS: &[&str] = &[
    "tmp", "bin", "usr", "usr/bin", "etc", "plugins", "home", "root", "var", "dev", "proc", "sys",
    "data",
];

impl Image {
    /// Writes the archive.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let layer_path = path.with_extension("layer");
        let layer_digest = self.write_layer(&layer_path)?;
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Env": ["PATH=/bin:/usr/bin:/"], "Entrypoint": self.entrypoint },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
            "history": [{ "created_by": "bowline testbed" }],
        }))?;
        let config_name = format!("{}.json", hex(&Sha256::digest(&config)));
        let manifest = serde_json::to_vec(&json!([{
            "Config": config_name,
            "RepoTags": [self.name],
            "Layers": ["layer.tar"],
        }]))?;

        let mut archive = Builder::new(BufWriter::new(File::create(path)?));
        append(&mut archive, &config_name, 0o644, &config)?;
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(layer_path.metadata()?.len());
        archive.append_data(&mut header, "layer.tar", File::open(&layer_path)?)?;
        append(&mut archive, "manifest.json", 0o644, &manifest)?;
        archive.into_inner()?.flush()?;
        std::fs::remove_file(layer_path)?;
        Ok(())
    }

    /// Writes the one layer and returns its digest.
    fn write_layer(&self, path: &Path) -> anyhow::Result<String> {
        let mut layer = Builder::new(Hashing {
            inner: BufWriter::new(File::create(path)?),
            hash: Sha256::new(),
        });
        for folder in FOLDERS {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Directory);
            header.set_mode(if *folder == "tmp" { 0o1777 } else { 0o755 });
            header.set_size(0);
            layer.append_data(&mut header, folder, std::io::empty())?;
        }
        append(
            &mut layer,
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\n",
        )?;
        append(&mut layer, "etc/group", 0o644, b"root:x:0:\n")?;
        for (from, to) in &self.files {
            let file = File::open(from).with_context(|| format!("open {}", from.display()))?;
            let mut header = Header::new_gnu();
            header.set_mode(0o755);
            header.set_size(file.metadata()?.len());
            layer.append_data(&mut header, to.trim_start_matches('/'), file)?;
        }
        for (link, target) in &self.links {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            layer.append_link(&mut header, link.trim_start_matches('/'), target)?;
        }
        let mut writer = layer.into_inner()?;
        writer.flush()?;
        Ok(hex(&writer.hash.finalize()))
    }
}

fn append(
    archive: &mut Builder<impl Write>,
    name: &str,
    mode: u32,
    bytes: &[u8],
) -> anyhow::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, name, bytes)?;
    Ok(())
}

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
