//! How the program is started: its arguments, environment and secret files.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::{
    Restic,
    child::{Child, Ended},
    fault::{self, Fault},
};
use crate::{Error, Result};

/// Variables of restic's own that would say something else than we do.
const FOREIGN: &[&str] = &[
    "RESTIC_REPOSITORY_FILE",
    "RESTIC_PASSWORD",
    "RESTIC_PASSWORD_FILE",
    "RESTIC_PASSWORD_COMMAND",
    "RESTIC_KEY_HINT",
    "RESTIC_CACERT",
    "RESTIC_HOST",
];

impl Restic {
    /// Starts a command of restic's in a folder.
    pub(super) async fn start(&self, args: &[String], folder: &Path) -> Result<Child> {
        // Else it could not be told what is missing, the folder or the program.
        let metadata = tokio::fs::metadata(folder).await;
        let metadata = metadata.and_then(|m| match m.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        metadata.map_err(|source| Error::File {
            action: "open",
            path: folder.display().to_string(),
            source,
        })?;
        let start = || {
            let files = tempfile::Builder::new()
                .prefix("bowline-restic-")
                .tempdir()?;
            let command = self.command(args, folder, files.path())?;
            Child::start(command, files)
        };
        start().map_err(|e| self.broken(&e))
    }

    /// Runs one to its end.
    pub(super) async fn run(
        &self,
        args: &[String],
        folder: &Path,
        cancel: &CancellationToken,
    ) -> Result<Ended> {
        let mut child = self.start(args, folder).await?;
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            ended = child.end() => ended.map_err(|e| self.broken(&e)),
        }
    }

    /// What the system says against running it.
    pub(super) fn broken(&self, error: &io::Error) -> Error {
        Error::Program(format!("run {}: {error}", self.binary.display()))
    }

    /// What it means that a command failed.
    pub(super) fn fault(&self, command: &str, ended: &Ended, snapshot: Option<&str>) -> Error {
        let hide = |text: String| {
            let secrets = self.environment.secrets();
            fault::hide(&text, secrets.chain([self.password.as_str()]))
        };
        Fault {
            command,
            code: ended.code,
            said: &ended.complaints.all(),
            last_words: &hide(ended.complaints.last_words()),
            repository: &fault::shown(&self.repository),
            snapshot,
        }
        .error()
    }

    fn command(&self, args: &[String], folder: &Path, files: &Path) -> io::Result<Command> {
        let mut command = Command::new(&self.binary);
        command.args(args).arg(flag(
            "password-file",
            &secret(files, "password", self.password.as_bytes())?,
        ));
        if let Some(ca) = &self.ca {
            command.arg(flag("cacert", &secret(files, "ca.pem", ca)?));
        }
        if let Some(cache) = &self.cache {
            command.arg(flag("cache-dir", &std::path::absolute(cache)?));
        }
        if self.insecure_tls {
            command.arg("--insecure-tls=true");
        }
        for name in FOREIGN {
            command.env_remove(name);
        }
        for (name, value) in &self.environment.variables {
            match value.is_empty() {
                true => command.env_remove(name),
                false => command.env(name, value),
            };
        }
        for (name, bytes) in &self.environment.files {
            command.env(name, secret(files, &name.to_lowercase(), bytes)?);
        }
        command
            // Not an argument, which others could read: it may hold a password.
            .env("RESTIC_REPOSITORY", self.absolute()?)
            .env("RESTIC_PROGRESS_FPS", self.lines_a_second().to_string())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // What a terminal sends to us is not for restic; we say ourselves when it is to stop.
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    /// The repository; a folder must mean the same wherever restic runs.
    fn absolute(&self) -> io::Result<PathBuf> {
        match self.repository.contains(':') {
            true => Ok(self.repository.clone().into()),
            false => std::path::absolute(&self.repository),
        }
    }

    /// Two lines for each look are enough.
    fn lines_a_second(&self) -> u64 {
        let wanted = 2000
            / u64::try_from(self.interval.as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
        wanted.clamp(1, 60)
    }
}

fn flag(name: &str, path: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(format!("--{name}="));
    flag.push(path);
    flag
}

/// Writes a file that nobody else can read.
fn secret(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(bytes)?;
    Ok(path)
}
