//! Files of a backup or a restore: the server signs an address on request, and we fetch it.

pub(crate) mod file;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    time::Duration as Span,
};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bowline_api::{
    Duration, VeleroResource,
    v1::{
        Backup, BackupStorageLocation, DownloadRequest, DownloadRequestSpec, DownloadTarget,
        DownloadTargetKind, Restore,
    },
};
use flate2::write::MultiGzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::Instant;

use crate::{
    cluster::{Hinted, Plain, is_not_found},
    context::Context,
    flags::{self, names::LONGEST_NAME},
    say,
};

/// How to trust whoever holds the files.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TrustArgs {
    /// A file of certificates to trust; without it, those of the backup's location
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    cacert: Option<PathBuf>,

    /// Do not check certificates; whoever is in between can read and change what is fetched
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    insecure_skip_tls_verify: bool,
}

/// The flags of commands that fetch one file.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FetchArgs {
    /// How long to wait for the server to answer
    #[arg(long, default_value = "1m", value_parser = flags::span, value_name = "DURATION")]
    timeout: Duration,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

impl FetchArgs {
    /// How long to wait.
    pub(crate) fn timeout(&self) -> anyhow::Result<Span> {
        Ok(self.timeout.to_std().map_err(Clone::clone)?)
    }
}

/// Whether a file was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// All of it went into the sink.
    Whole,
    /// The store has no such file.
    Missing,
}

/// Fetches files of one backup or restore.
pub(crate) struct Downloader {
    requests: Api<DownloadRequest>,
    namespace: String,
    /// The backup or restore, by name.
    target: String,
    http: reqwest::Client,
}

impl Downloader {
    /// Files of a backup. A location that is gone is an error: nobody could sign an address.
    pub(crate) async fn of_backup(
        ctx: &Context,
        client: &Client,
        trust: &TrustArgs,
        backup: &Backup,
    ) -> anyhow::Result<Self> {
        Self::new(ctx, client, trust, backup.name_any(), backup).await
    }

    /// Files of a restore, which are where those of its backup are. A backup that is gone is an
    /// error for the same reason.
    pub(crate) async fn of_restore(
        ctx: &Context,
        client: &Client,
        trust: &TrustArgs,
        restore: &Restore,
    ) -> anyhow::Result<Self> {
        let backups: Api<Backup> = Api::namespaced(client.clone(), &ctx.namespace);
        let backup = restore.spec.backup_name.as_deref().unwrap_or_default();
        ensure!(!backup.is_empty(), "no backup is chosen yet");
        let backup = backups.get(backup).await.plain()?;
        Self::new(ctx, client, trust, restore.name_any(), &backup).await
    }

    /// Finds out whom to trust.
    async fn new(
        ctx: &Context,
        client: &Client,
        trust: &TrustArgs,
        target: String,
        backup: &Backup,
    ) -> anyhow::Result<Self> {
        let configured = ctx.config.get("cacert").map(PathBuf::from);
        let file = trust.cacert.clone().or(configured);
        let of_location = location_certificate(client, &ctx.namespace, backup).await?;
        let certificates = match file.filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => match (fs::read(&path), of_location) {
                (Ok(bundle), _) => Some(bundle),
                (Err(error), Some(bundle)) => {
                    say(&format!(
                        "Warning: Failed to open CA certificate file {}: {error}. \
                         Using CA certificate from backup storage location instead.",
                        path.display()
                    ));
                    Some(bundle)
                }
                (Err(error), None) => {
                    return Err(error).with_context(|| format!("read cacert {}", path.display()));
                }
            },
            None => of_location,
        };
        Ok(Self {
            requests: Api::namespaced(client.clone(), &ctx.namespace),
            namespace: ctx.namespace.clone(),
            target,
            http: http_client(certificates.as_deref(), trust.insecure_skip_tls_verify)?,
        })
    }

    /// Fetches a file and writes it to the sink, decompressed unless it is the archive.
    pub(crate) async fn fetch(
        &self,
        kind: DownloadTargetKind,
        timeout: Span,
        sink: &mut dyn Write,
    ) -> anyhow::Result<Fetched> {
        let is_archive = kind == DownloadTargetKind::BackupContents;
        let url = self.signed_url(kind, timeout).await?;
        let mut answer = match self.http.get(&url).send().await {
            Ok(answer) => answer,
            Err(error) => return Err(explained(error)),
        };
        match answer.status() {
            status if status.is_success() => {}
            reqwest::StatusCode::NOT_FOUND => return Ok(Fetched::Missing),
            _ => {
                let body = answer.text().await.unwrap_or_default();
                let start: String = body.chars().take(1000).collect();
                bail!("request failed: {start}");
            }
        }
        if is_archive {
            while let Some(chunk) = answer.chunk().await.map_err(explained)? {
                sink.write_all(&chunk)?;
            }
        } else {
            let mut gunzip = Gunzip::new(sink);
            while let Some(chunk) = answer.chunk().await.map_err(explained)? {
                gunzip.write(&chunk)?;
            }
            gunzip.finish()?;
        }
        Ok(Fetched::Whole)
    }

    /// Writes a log; that there is none is an error.
    pub(crate) async fn log<K: VeleroResource>(
        &self,
        kind: DownloadTargetKind,
        timeout: Span,
        sink: &mut dyn Write,
    ) -> anyhow::Result<()> {
        match self.fetch(kind, timeout, sink).await? {
            Fetched::Whole => Ok(()),
            Fetched::Missing => {
                let (noun, target) = (K::KIND.to_lowercase(), &self.target);
                Err(Hinted::error(
                    "file not found",
                    format!("`bowline {noun} describe {target}` says how the {noun} ended"),
                ))
            }
        }
    }

    /// A small file, whole; none if it is missing.
    pub(crate) async fn fetch_bytes(
        &self,
        kind: DownloadTargetKind,
        timeout: Span,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match self.fetch(kind, timeout, &mut bytes).await? {
            Fetched::Whole => Ok(Some(bytes)),
            Fetched::Missing => Ok(None),
        }
    }

    async fn signed_url(&self, kind: DownloadTargetKind, timeout: Span) -> anyhow::Result<String> {
        let spec = DownloadRequestSpec {
            target: DownloadTarget {
                kind,
                name: self.target.clone(),
                ..Default::default()
            },
            ..Default::default()
        };
        let unique = uuid::Uuid::new_v4().to_string();
        let longest = LONGEST_NAME - unique.len() - 1;
        let start = &self.target[..self.target.floor_char_boundary(longest)];
        let name = format!("{start}-{unique}");
        let request = DownloadRequest::new(&self.namespace, &name, spec);
        self.requests
            .create(&PostParams::default(), &request)
            .await
            .plain()?;
        let deadline = Instant::now() + timeout;
        let mut pause = Span::from_millis(25);
        loop {
            let answered = self.requests.get(&name).await.plain()?;
            let url = answered.status.and_then(|status| status.download_url);
            if let Some(url) = url.filter(|url| !url.is_empty()) {
                return Ok(url);
            }
            if Instant::now() + pause > deadline {
                return Err(Hinted::error(
                    "download request download url timeout, check the server's logs for errors. \
                     backup storage location may not be available",
                    "`bowline backup-location get` shows whether the location is available",
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Span::from_millis(400));
        }
    }
}

/// The certificates that the backup's location wants to be trusted with.
async fn location_certificate(
    client: &Client,
    namespace: &str,
    backup: &Backup,
) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(name) = backup
        .spec
        .storage_location
        .as_deref()
        .filter(|n| !n.is_empty())
    else {
        return Ok(None);
    };
    let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), namespace);
    let storage = locations.get(name).await.plain()?.spec.object_storage;
    if let Some(reference) = &storage.ca_cert_ref {
        match secret_value(client, namespace, &reference.name, &reference.key).await {
            Ok(bundle) => return Ok(Some(bundle)),
            Err(error) => say(&format!(
                "WARNING: Error getting cacert from BSL: {error:#}"
            )),
        }
    }
    let Some(inline) = storage.ca_cert.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match BASE64_STANDARD.decode(inline) {
        Ok(bundle) => Ok(Some(bundle)),
        Err(error) => {
            say(&format!("WARNING: Error getting cacert from BSL: {error}"));
            Ok(None)
        }
    }
}

async fn secret_value(
    client: &Client,
    namespace: &str,
    name: &str,
    key: &str,
) -> anyhow::Result<Vec<u8>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = match secrets.get(name).await {
        Err(error) if is_not_found(&error) => bail!("secret {namespace}/{name} not found"),
        other => other.plain()?,
    };
    let mut data = secret.data.unwrap_or_default();
    data.remove(key)
        .map(|value| value.0)
        .with_context(|| format!("secret {namespace}/{name} has no key {key}"))
}

fn http_client(certificates: Option<&[u8]>, insecure: bool) -> anyhow::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .connect_timeout(Span::from_secs(30))
        // Between two pieces, not for the whole.
        .read_timeout(Span::from_secs(60));
    if insecure {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if let Some(bundle) = certificates {
        let roots = reqwest::Certificate::from_pem_bundle(bundle)
            .context("read the certificates to trust")?;
        builder = builder.tls_certs_merge(roots);
    }
    builder.build().context("prepare to download")
}

/// A failed request, without its address: the address is a credential.
fn explained(error: reqwest::Error) -> anyhow::Error {
    let text = format!("{:#}", anyhow::Error::new(error.without_url()));
    if text.contains("UnknownIssuer") || text.contains("certificate") {
        Hinted::error(
            format!("download: {text}"),
            "trust the store with `--cacert <file>`, or set `--insecure-skip-tls-verify` \
             if you trust everybody on the way",
        )
    } else {
        anyhow::anyhow!("download: {text}")
    }
}

/// Decompresses chunks as they come; the last word is whether it was all of it.
struct Gunzip<'a> {
    inner: MultiGzDecoder<&'a mut dyn Write>,
    is_empty: bool,
}

impl<'a> Gunzip<'a> {
    fn new(sink: &'a mut dyn Write) -> Self {
        Self {
            inner: MultiGzDecoder::new(sink),
            is_empty: true,
        }
    }

    fn write(&mut self, chunk: &[u8]) -> anyhow::Result<()> {
        self.is_empty &= chunk.is_empty();
        self.inner.write_all(chunk).map_err(damaged)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        if self.is_empty {
            bail!("decompress what was downloaded: the file is empty");
        }
        self.inner.try_finish().map_err(damaged)
    }
}

fn damaged(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => anyhow::Error::new(error).context("decompress what was downloaded"),
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn half_a_file_is_an_error_and_never_half_a_success() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&b"a line of the log\n".repeat(100)).unwrap();
        let whole = gzip.finish().unwrap();
        let decompress = |bytes: &[u8]| {
            let mut out = Vec::new();
            let mut gunzip = Gunzip::new(&mut out);
            let chunks = bytes.chunks(7).try_for_each(|chunk| gunzip.write(chunk));
            chunks.and_then(|()| gunzip.finish()).map(|()| out.len())
        };
        assert_eq!(decompress(&whole).unwrap(), 1800);
        for length in 0..whole.len() {
            assert!(decompress(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut damaged = whole.clone();
        damaged[20] ^= 0xff;
        assert!(decompress(&damaged).is_err());
        assert!(decompress(b"not gzip at all").is_err());
        let twice = [whole.clone(), whole].concat();
        assert_eq!(decompress(&twice).unwrap(), 3600);
    }
}
