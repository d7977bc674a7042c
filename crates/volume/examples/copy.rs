//! The embedded engine as a program of its own, so that it can be measured, and killed, alone.
//!
//! ```text
//!   copy --path /srv --bucket b init
//!   copy --s3 http://127.0.0.1:7070 --bucket b backup /data
//!   copy … restore SNAPSHOT /target
//! ```
//!
//! The password is `COPY_PASSWORD`; keys of S3 are `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
//! What came of it is a line of JSON.

use std::{env, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use bowline_api::v1::{BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation};
use bowline_vault::{Bucket, Location};
use bowline_volume::{
    Download, Engine, Mode, Problem, Progress, Upload,
    embedded::{Budget, Identity, Repository},
};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

#[derive(Parser)]
struct Args {
    /// A folder that holds buckets
    #[arg(long, required_unless_present = "s3", conflicts_with = "s3")]
    path: Option<String>,
    /// The address of an S3
    #[arg(long)]
    s3: Option<String>,
    #[arg(long)]
    bucket: String,
    /// The repository's folder in the bucket
    #[arg(long, default_value = "restic/volume")]
    repository: String,
    /// MiB of file data that may be held in memory
    #[arg(long)]
    memory: Option<usize>,
    /// Threads that copy
    #[arg(long)]
    threads: Option<usize>,
    /// Tell how far it is: bytes done and in all, in lines on standard error
    #[arg(long)]
    progress: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the repository
    Init,
    /// Copy a folder into it
    Backup {
        source: PathBuf,
        /// It is a block device, or the image of one
        #[arg(long)]
        device: bool,
        #[arg(long)]
        parent: Option<String>,
        #[arg(long)]
        tag: Vec<String>,
    },
    /// Copy a snapshot into a folder
    Restore {
        snapshot: String,
        target: PathBuf,
        /// It is a block device, or the image of one
        #[arg(long)]
        device: bool,
        #[arg(long)]
        sparse: bool,
        #[arg(long)]
        delete_extra: bool,
    },
    /// Remove snapshots
    Forget { snapshots: Vec<String> },
    /// Remove what no snapshot needs
    Maintain,
}

#[tokio::main]
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program for the terminal"
)]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<Value> {
    let cancel = CancellationToken::new();
    let progress = Arc::new(Progress::default());
    let _telling = args
        .progress
        .then(|| AbortOnDropHandle::new(tokio::spawn(tell(Arc::clone(&progress)))));
    let repository = open(&args).await?;
    Ok(match args.command {
        Command::Init => json!({}),
        Command::Backup {
            source,
            device,
            parent,
            tag,
        } => {
            let source = source.canonicalize().context("the source")?;
            let upload = Upload {
                path: source.to_string_lossy().into_owned(),
                source,
                mode: mode(device),
                tags: tag,
                parent,
                settled: None,
                parallel: None,
            };
            let done = repository.upload(&upload, &progress, &cancel).await?;
            json!({
                "snapshot": done.snapshot,
                "files": done.files,
                "bytes": done.bytes,
                "added": done.added,
                "unreadable": shown(&done.unreadable),
                "remarks": shown(&done.remarks),
            })
        }
        Command::Restore {
            snapshot,
            target,
            device,
            sparse,
            delete_extra,
        } => {
            let download = Download {
                snapshot,
                target,
                mode: mode(device),
                sparse,
                delete_extra,
                parallel: None,
            };
            let done = repository.download(&download, &progress, &cancel).await?;
            json!({
                "files": done.files,
                "bytes": done.bytes,
                "problems": shown(&done.problems),
            })
        }
        Command::Forget { snapshots } => {
            repository.forget(&snapshots).await?;
            json!({})
        }
        Command::Maintain => {
            let done = repository.maintain(&cancel).await?;
            json!({ "freed": done.freed, "kept": done.kept })
        }
    })
}

fn mode(device: bool) -> Mode {
    if device { Mode::Device } else { Mode::Folder }
}

#[expect(clippy::print_stderr, reason = "this is a program for the terminal")]
async fn tell(progress: Arc<Progress>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut last = (0, 0);
    loop {
        ticks.tick().await;
        let (total, done) = progress.get();
        if (total, done) != last {
            last = (total, done);
            eprintln!("{done} {total}");
        }
    }
}

fn shown(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

/// The repository, which `init` makes.
async fn open(args: &Args) -> anyhow::Result<Repository> {
    let password = env::var("COPY_PASSWORD").context("COPY_PASSWORD is not set")?;
    let identity = Identity {
        hostname: "copy".to_owned(),
        since: jiff::Timestamp::now(),
    };
    let mut budget = Budget::default();
    if let Some(memory) = args.memory {
        budget.memory = memory << 20;
    }
    if let Some(threads) = args.threads {
        budget.threads = threads;
    }
    let (bucket, folder) = (bucket(args)?, &args.repository);
    Ok(match args.command {
        Command::Init => Repository::create(bucket, folder, &password, identity, budget).await?,
        _ => Repository::open(bucket, folder, &password, identity, budget).await?,
    })
}

fn bucket(args: &Args) -> anyhow::Result<Bucket> {
    let (provider, config, credential) = match (&args.s3, &args.path) {
        (Some(url), _) => {
            let config = vec![
                ("region", "us-east-1"),
                ("s3ForcePathStyle", "true"),
                ("s3Url", url.as_str()),
                ("checksumAlgorithm", ""),
            ];
            let key = |name| env::var(name).with_context(|| format!("{name} is not set"));
            let profile = format!(
                "[default]\naws_access_key_id={}\naws_secret_access_key={}\n",
                key("AWS_ACCESS_KEY_ID")?,
                key("AWS_SECRET_ACCESS_KEY")?
            );
            ("aws", config, Some(profile.into_bytes()))
        }
        (None, path) => {
            let path = path.as_deref().context("neither --path nor --s3")?;
            ("filesystem", vec![("path", path)], None)
        }
    };
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let spec = BackupStorageLocationSpec {
        provider: provider.to_owned(),
        config: Some(config.into_iter().map(pair).collect()),
        object_storage: ObjectStorageLocation {
            bucket: args.bucket.clone(),
            ..Default::default()
        },
        ..Default::default()
    };
    Ok(bowline_vault::open(&Location {
        object: BackupStorageLocation::new("velero", "copy", spec),
        credential,
        ..Default::default()
    })?)
}
