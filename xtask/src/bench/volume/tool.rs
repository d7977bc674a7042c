//! The programs that are compared, each with its own words for the same steps.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use bowline_testbed::{Cache, bed::Bucket, measure::Cost};
use serde_json::Value;

const PASSWORD: &str = "bench";

/// Whose program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Tool {
    Restic,
    Kopia,
    Bowline,
}

/// Where a repository is.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A folder that holds buckets.
    Folder(PathBuf),
    /// A bucket of S3.
    S3(Box<Bucket>),
}

/// A fresh repository of a tool, with caches and settings of its own.
pub(super) struct Repository<'a> {
    tool: Tool,
    cache: &'a Cache,
    place: &'a Place,
    /// What the tool keeps outside of the repository.
    own: PathBuf,
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Restic => "restic",
            Self::Kopia => "kopia",
            Self::Bowline => "bowline",
        }
    }
}

impl Place {
    const BUCKET: &'static str = "volumes";

    /// The folder whose files are the repository's.
    pub(super) fn folder(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(Self::BUCKET),
            Self::S3(bucket) => bucket.folder(),
        }
    }

    fn empty(&self) -> anyhow::Result<()> {
        let folder = self.folder();
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        Ok(fs::create_dir_all(folder)?)
    }

    /// Bytes of all its files.
    pub(super) fn size(&self) -> anyhow::Result<u64> {
        size(&self.folder())
    }
}

fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() {
            size(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(total)
}

impl<'a> Repository<'a> {
    /// Makes it, in the place of whatever was there.
    pub(super) fn create(
        tool: Tool,
        cache: &'a Cache,
        place: &'a Place,
        own: &Path,
    ) -> anyhow::Result<Self> {
        place.empty()?;
        if own.exists() {
            fs::remove_dir_all(own)?;
        }
        fs::create_dir_all(own)?;
        let repository = Self {
            tool,
            cache,
            place,
            own: own.to_owned(),
        };
        let mut command = repository.command()?;
        match tool {
            Tool::Restic | Tool::Bowline => command.arg("init"),
            Tool::Kopia => {
                command.args(["repository", "create"]);
                repository.kopia_place(&mut command);
                &mut command
            }
        };
        Cost::of(command).context("make the repository")?;
        Ok(repository)
    }

    /// Copies a folder into it; gives the snapshot's id. `parent` is the one before, for a tool
    /// that does not look for it by itself.
    pub(super) fn back_up(
        &self,
        source: &Path,
        parent: Option<&str>,
    ) -> anyhow::Result<(String, Cost)> {
        let mut command = self.command()?;
        match self.tool {
            Tool::Restic => command
                .args(["backup", ".", "--host", "velero", "--json", "--quiet"])
                .current_dir(source),
            Tool::Kopia => command.args(["snapshot", "create", "--json"]).arg(source),
            Tool::Bowline => command
                .arg("backup")
                .arg(source)
                .args(parent.map(|parent| format!("--parent={parent}"))),
        };
        let (told, cost) = Cost::of(command)?;
        let key = match self.tool {
            Tool::Restic => "snapshot_id",
            Tool::Kopia => "id",
            Tool::Bowline => "snapshot",
        };
        let id = told.lines().rev().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(line.get(key)?.as_str()?.to_owned())
        });
        let id = id.with_context(|| format!("no snapshot in {told:?}"))?;
        Ok((id, cost))
    }

    /// Copies a snapshot into an empty folder.
    pub(super) fn restore(&self, snapshot: &str, target: &Path) -> anyhow::Result<Cost> {
        let mut command = self.command()?;
        match self.tool {
            Tool::Restic => command.args([
                OsStr::new("restore"),
                snapshot.as_ref(),
                "--quiet".as_ref(),
                "--target".as_ref(),
                target.as_ref(),
            ]),
            Tool::Kopia => command.args(["snapshot", "restore", snapshot]).arg(target),
            Tool::Bowline => command.args(["restore", snapshot]).arg(target),
        };
        Ok(Cost::of(command)?.1)
    }

    /// The tool, with all that it needs to find the repository.
    fn command(&self) -> anyhow::Result<Command> {
        let mut command = match self.tool {
            Tool::Bowline => Command::new(std::env::current_exe()?.with_file_name("examples/copy")),
            other => Command::new(self.cache.program(other.name())),
        };
        if let Place::S3(bucket) = self.place {
            command
                .env("AWS_ACCESS_KEY_ID", &bucket.s3.access_key)
                .env("AWS_SECRET_ACCESS_KEY", &bucket.s3.secret_key)
                .env("AWS_DEFAULT_REGION", "us-east-1")
                .env("NO_PROXY", "*");
        }
        match self.tool {
            Tool::Restic => {
                let at = match self.place {
                    Place::Folder(_) => self.place.folder().to_string_lossy().into_owned(),
                    Place::S3(bucket) => format!("s3:{}/{}", bucket.s3.endpoint, bucket.name),
                };
                command
                    .env("RESTIC_PASSWORD", PASSWORD)
                    .env("RESTIC_REPOSITORY", at)
                    .env("RESTIC_CACHE_DIR", self.own.join("cache"));
            }
            Tool::Kopia => {
                command
                    .env("KOPIA_PASSWORD", PASSWORD)
                    .env("KOPIA_CHECK_FOR_UPDATES", "false")
                    .env("KOPIA_LOG_DIR", self.own.join("log"))
                    .env("KOPIA_CACHE_DIRECTORY", self.own.join("cache"))
                    .env("HOME", &self.own)
                    .arg("--config-file")
                    .arg(self.own.join("repository.config"))
                    .arg("--disable-file-logging")
                    .args(["--log-level", "error", "--no-progress"]);
            }
            Tool::Bowline => {
                command.env("COPY_PASSWORD", PASSWORD);
                match self.place {
                    Place::Folder(folder) => command
                        .arg("--path")
                        .arg(folder)
                        .args(["--bucket", Place::BUCKET]),
                    Place::S3(bucket) => command
                        .args(["--s3", &bucket.s3.endpoint])
                        .args(["--bucket", &bucket.name]),
                };
            }
        }
        Ok(command)
    }

    fn kopia_place(&self, command: &mut Command) {
        match self.place {
            Place::Folder(_) => command
                .args(["filesystem", "--path"])
                .arg(self.place.folder()),
            Place::S3(bucket) => command
                .args(["s3", "--disable-tls", "--bucket", &bucket.name])
                .arg("--endpoint")
                .arg(bucket.s3.endpoint.trim_start_matches("http://"))
                .args(["--region", "us-east-1"]),
        };
    }
}
