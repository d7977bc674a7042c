//! Processes that outlive the program that started them, known by id and start time.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::wait_for;

/// A process: its id, and its start time, so that another one with the same id is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// What it is called in logs and lists.
    pub name: String,
    /// Its id, as this machine sees it.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// Where its output goes.
    pub log: PathBuf,
}

impl Process {
    /// Starts a command in the background, in a process group of its own, its output in `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let out = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        Self::of(name, i32::try_from(child.id())?, log)
    }

    /// The running process with this id.
    pub fn of(name: &str, pid: i32, log: &Path) -> anyhow::Result<Self> {
        let Some(stat) = Stat::of(pid) else {
            bail!(
                "{name} ended at once; see {}:\n{}",
                log.display(),
                tail(log, 15)
            );
        };
        Ok(Self {
            name: name.to_owned(),
            pid,
            started: stat.started,
            log: log.to_owned(),
        })
    }

    /// This very program.
    pub fn me() -> anyhow::Result<Self> {
        Self::of(
            "self",
            i32::try_from(std::process::id())?,
            Path::new("/dev/null"),
        )
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// Ends it at once, as `kill -9` does, and waits until it is gone.
    pub async fn kill(&self) -> anyhow::Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.pid).context("process id 0")?;
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("end {} ({})", self.name, self.pid));
            }
        }
        let what = format!("{} ({}) to end", self.name, self.pid);
        wait_for(&what, Duration::from_secs(20), async || {
            Ok((!self.is_alive()).then_some(()))
        })
        .await
    }

    /// Ends it and what it has started that is still in its group: a program that is killed does
    /// not take its own children along.
    pub async fn kill_all(&self) -> anyhow::Result<()> {
        self.kill().await?;
        for member in self.group() {
            member.kill().await?;
        }
        Ok(())
    }

    /// What else is in the group that this process began.
    fn group(&self) -> Vec<Self> {
        // A group's number is not given again while it has members, so a process with this id that
        // is not this one means that the group has ended.
        if Stat::of(self.pid).is_some_and(|stat| stat.started != self.started) {
            return Vec::new();
        }
        let ids = fs::read_dir("/proc").into_iter().flatten();
        let ids = ids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let members = ids.filter_map(|pid| {
            let stat = Stat::of(pid)?;
            let is_member =
                pid != self.pid && stat.group == self.pid && stat.started >= self.started;
            is_member.then(|| Self {
                pid,
                started: stat.started,
                ..self.clone()
            })
        });
        members.collect()
    }

    /// Asks it to end, as Kubernetes does, and waits until it has; one that does not is killed,
    /// which is an error.
    pub async fn stop(&self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.pid).context("process id 0")?;
        if self.is_alive() {
            // It may end by itself just now.
            let _ = kill_process(pid, Signal::TERM);
        }
        let what = format!("{} ({}) to stop", self.name, self.pid);
        // Velero gives its own workers half a minute.
        let stopped = wait_for(&what, Duration::from_secs(60), async || {
            Ok((!self.is_alive()).then_some(()))
        })
        .await;
        self.kill().await?;
        stopped
    }

    /// Fails with the end of its log if it no longer runs.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.is_alive() {
            bail!(
                "{} has ended; its log ends with:\n{}",
                self.name,
                tail(&self.log, 15)
            );
        }
        Ok(())
    }
}

/// The child of a process, once it has one.
pub(crate) fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

struct Stat {
    state: char,
    group: i32,
    started: u64,
}

impl Stat {
    /// `/proc/<pid>/stat`; the name in parentheses may hold anything, so fields count from its end.
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        Some(Self {
            state: fields.next()?.chars().next()?,
            group: fields.nth(1)?.parse().ok()?,
            started: fields.nth(16)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, time::Duration};

    use super::Process;
    use crate::wait_for;

    fn sleeper(folder: &tempfile::TempDir) -> Process {
        let mut command = Command::new("sleep");
        command.arg("600");
        Process::start("sleeper", command, &folder.path().join("log")).unwrap()
    }

    #[tokio::test]
    async fn a_process_is_ended_by_id() {
        let folder = tempfile::tempdir().unwrap();
        let process = sleeper(&folder);
        assert!(process.is_alive());
        process.kill().await.unwrap();
        assert!(!process.is_alive());
        assert!(
            process
                .check()
                .unwrap_err()
                .to_string()
                .contains("sleeper has ended")
        );
        process.kill().await.unwrap();
    }

    #[tokio::test]
    async fn what_a_process_has_started_ends_with_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let process = Process::start("parent", command, &log).unwrap();
        let child = wait_for("the child", Duration::from_secs(20), async || {
            let pid = fs::read_to_string(&log)?.trim().parse().ok();
            Ok(pid.and_then(|pid| Process::of("child", pid, &log).ok()))
        });
        let child = child.await.unwrap();
        process.kill().await.unwrap();
        assert!(child.is_alive());
        process.kill_all().await.unwrap();
        assert!(!child.is_alive());
    }

    #[tokio::test]
    async fn another_process_with_the_same_id_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let process = sleeper(&folder);
        let impostor = Process {
            started: process.started + 1,
            ..process.clone()
        };
        assert!(!impostor.is_alive());
        impostor.kill().await.unwrap();
        assert!(process.is_alive());
        process.kill().await.unwrap();
    }

    #[tokio::test]
    async fn output_goes_to_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo to out; echo to err >&2; sleep 600"]);
        let process = Process::start("talker", command, &log).unwrap();
        wait_for("both lines", Duration::from_secs(20), async || {
            Ok((fs::read_to_string(&log)? == "to out\nto err\n").then_some(()))
        })
        .await
        .unwrap();
        process.kill().await.unwrap();
    }
}
