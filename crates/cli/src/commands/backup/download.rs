//! `bowline backup download`: the archive of a backup into a file.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use bowline_api::v1::{Backup, DownloadTargetKind};
use kube::Api;

use crate::{
    cluster::{Hinted, Plain},
    context::Context,
    download::{Downloader, FetchArgs, Fetched},
    flags,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backup
    name: String,

    /// The file to write; without it, `./<NAME>-data.tar.gz`
    #[arg(short, long, value_name = "FILE", value_parser = flags::path)]
    output: Option<PathBuf>,

    /// Replace the file if there is one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    force: bool,

    #[command(flatten)]
    fetch: FetchArgs,
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let api: Api<Backup> = Api::namespaced(client.clone(), &ctx.namespace);
    let backup = api.get(&args.name).await.plain()?;
    let path = match &args.output {
        Some(path) if !path.as_os_str().is_empty() => path.clone(),
        _ => std::env::current_dir()
            .context("find the current folder")?
            .join(format!("{}-data.tar.gz", args.name)),
    };
    if !args.force && path.exists() {
        return Err(Hinted::error(
            format!("open {}: file exists", path.display()),
            "`--force` replaces it, `-o` names another",
        ));
    }
    let downloader = Downloader::of_backup(ctx, &client, &args.fetch.trust, &backup).await?;
    // Under its own name only once it is whole; what it replaces stays until then.
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    let mut file = open(&unfinished)?;
    let timeout = args.fetch.timeout()?;
    let fetched = downloader
        .fetch(DownloadTargetKind::BackupContents, timeout, &mut file)
        .await;
    match fetched {
        Ok(Fetched::Whole) => fs::rename(&unfinished, &path)
            .with_context(|| format!("rename to {}", path.display()))?,
        Ok(Fetched::Missing) => {
            let _ = fs::remove_file(&unfinished);
            bail!("file not found");
        }
        Err(error) => {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
    }
    writeln!(
        out,
        "Backup {} has been successfully downloaded to {}",
        args.name,
        path.display()
    )?;
    Ok(())
}

/// An empty file that only its owner can read.
fn open(path: &Path) -> anyhow::Result<fs::File> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}
