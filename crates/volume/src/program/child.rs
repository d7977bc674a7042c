//! One run of the program. A task of its own reads what it says, as fast as it says it, and waits
//! for its end, also when nobody else does any more.

use std::{
    io,
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::messages::{self, Complaints, Summary};

/// How long restic may take to remove its lock once it was interrupted.
const GRACE: Duration = Duration::from_secs(5);

/// A program that runs. Whoever drops it interrupts it.
pub(super) struct Child {
    output: Arc<Output>,
    end: JoinHandle<io::Result<Ended>>,
    stop: DropGuard,
}

/// How it ended, and what it said.
pub(super) struct Ended {
    /// The exit code; none when a signal ended it.
    pub(super) code: Option<i32>,
    /// The last line of its output.
    pub(super) last: Vec<u8>,
    /// The summary among its output.
    pub(super) summary: Option<Summary>,
    pub(super) complaints: Complaints,
}

/// What is kept of the output.
#[derive(Default)]
pub(super) struct Output(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    last: Vec<u8>,
    summary: Option<Summary>,
}

impl Child {
    /// Starts it; `files` are removed when it has ended.
    pub(super) fn start(mut command: Command, files: TempDir) -> io::Result<Self> {
        let child = command.spawn()?;
        let output = Arc::new(Output::default());
        let stop = CancellationToken::new();
        let end = tokio::spawn(keep(child, output.clone(), stop.clone(), files));
        Ok(Self {
            output,
            end,
            stop: stop.drop_guard(),
        })
    }

    /// What it says meanwhile.
    pub(super) fn output(&self) -> Arc<Output> {
        self.output.clone()
    }

    /// Waits for its end.
    pub(super) async fn end(&mut self) -> io::Result<Ended> {
        (&mut self.end).await.map_err(io::Error::other)?
    }

    /// Interrupts it, and gives what waits for its end.
    pub(super) fn interrupt(self) -> JoinHandle<io::Result<Ended>> {
        drop(self.stop);
        self.end
    }
}

impl Output {
    /// The last whole line.
    pub(super) fn last(&self) -> Vec<u8> {
        self.lines().last.clone()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut from = BufReader::new(from);
        loop {
            let mut line = Vec::new();
            if from.read_until(b'\n', &mut line).await? == 0 {
                return Ok(());
            }
            let summary = messages::summary(&line);
            let mut lines = self.lines();
            if summary.is_some() {
                lines.summary = summary;
            }
            lines.last = line;
        }
    }
}

async fn keep(
    mut child: tokio::process::Child,
    output: Arc<Output>,
    stop: CancellationToken,
    files: TempDir,
) -> io::Result<Ended> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("no pipes"));
    };
    let (status, read, complaints) = tokio::join!(
        ending(&mut child, &stop),
        output.read(stdout),
        listen(stderr)
    );
    drop(files);
    read?;
    let mut lines = output.lines();
    Ok(Ended {
        code: status?.code(),
        last: std::mem::take(&mut lines.last),
        summary: lines.summary.take(),
        complaints: complaints?,
    })
}

async fn ending(
    child: &mut tokio::process::Child,
    stop: &CancellationToken,
) -> io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => {}
    }
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::INT);
    }
    if let Ok(status) = timeout(GRACE, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

async fn listen(to: impl AsyncRead + Unpin) -> io::Result<Complaints> {
    let mut to = BufReader::new(to);
    let mut complaints = Complaints::default();
    let mut line = Vec::new();
    while to.read_until(b'\n', &mut line).await? > 0 {
        complaints.hear(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(complaints)
}
