//! What a process and its children cost: processor time and memory, as the kernel counts them.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Seek, SeekFrom},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::{Process, wait_for};

/// How often a command that is measured is asked for its memory peak, which never shrinks.
const STEP: Duration = Duration::from_millis(5);

/// Processor time in a second that counts as doing nothing.
const IDLE: Duration = Duration::from_millis(200);

/// What was used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Processor time of the process and those it started, also those that have ended.
    pub cpu: Duration,
    /// The most memory that the process itself had at one time, in bytes.
    pub peak: u64,
}

impl Usage {
    /// What a running process has used.
    pub fn of(process: &Process) -> anyhow::Result<Self> {
        let mut usage = Self::default();
        for pid in family(process.pid)? {
            let Some(stat) = Stat::of(pid) else { continue };
            usage.cpu += stat.cpu;
        }
        usage.peak = peak(process.pid).context("no memory peak")?;
        Ok(usage)
    }

    /// Forgets the memory peak of a process up to now.
    pub fn forget_peak(process: &Process) -> anyhow::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", process.pid), "5").context("reset the memory peak")
    }
}

/// What a command cost from its start to its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// The time that passed.
    pub wall: Duration,
    /// What it used.
    pub usage: Usage,
}

impl Cost {
    /// Runs a command to its end; gives what it printed and what it cost. Its complaint is the
    /// error.
    pub fn of(mut command: Command) -> anyhow::Result<(String, Self)> {
        let name = command.get_program().to_string_lossy().into_owned();
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let pid = i32::try_from(child.id())?;
        let ended = AtomicBool::new(false);
        let (waited, highest) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut highest = 0;
                while !ended.load(Ordering::Relaxed) {
                    highest = peak(pid).unwrap_or(0).max(highest);
                    thread::sleep(STEP);
                }
                highest
            });
            // It is not let go yet: its processor time can still be asked for.
            let waited = Pid::from_raw(pid).context("process id 0").and_then(|pid| {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                Ok(waitid(WaitId::Pid(pid), options)?)
            });
            let wall = began.elapsed();
            ended.store(true, Ordering::Relaxed);
            (waited.map(|_| wall), watch.join().unwrap_or_default())
        });
        let cpu = Stat::of(pid).context("no processor time")?.cpu;
        let status = child.wait()?;
        let wall = waited.with_context(|| format!("wait for {name}"))?;
        if !status.success() {
            bail!("{name}: {status}\n{}{}", text(out)?, text(err)?);
        }
        let usage = Usage { cpu, peak: highest };
        Ok((text(out)?, Self { wall, usage }))
    }
}

/// All that was written to a file.
fn text(mut file: fs::File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits until processes together have next to nothing to do for a second, at most so long.
pub async fn quiet(processes: &[Process], limit: Duration) -> anyhow::Result<()> {
    let cpu = || -> anyhow::Result<Duration> {
        let all = processes.iter().map(|process| Ok(Usage::of(process)?.cpu));
        all.sum()
    };
    wait_for("quiet", limit, async || {
        let before = cpu()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let used = cpu()?.saturating_sub(before);
        if used > IDLE {
            bail!("{} ms of processor time in a second", used.as_millis());
        }
        Ok(Some(()))
    })
    .await
}

/// A process and all below it.
fn family(root: i32) -> anyhow::Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(stat) = Stat::of(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        next += 1;
        found.extend(children.remove(pid).unwrap_or_default());
    }
    Ok(found)
}

fn peak(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

struct Stat {
    parent: i32,
    cpu: Duration,
}

impl Stat {
    /// `/proc/<pid>/stat`; the name in parentheses may hold anything, so fields count from its end.
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        // Its own, then that of children that it has seen end; each in user and system mode.
        let ticks: u64 = fields
            .get(11..15)?
            .iter()
            .flat_map(|f| f.parse::<u64>())
            .sum();
        let per_second = rustix::param::clock_ticks_per_second();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            cpu: Duration::from_millis(ticks * 1000 / per_second),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Cost, Usage};
    use crate::Process;

    #[test]
    fn this_very_process_has_used_something() {
        let usage = Usage::of(&Process::me().unwrap()).unwrap();
        assert!(usage.peak > 100_000, "{usage:?}");
    }
    #[test]
    fn a_command_costs_what_it_uses() {
        let mut busy = Command::new("sh");
        busy.args([
            "-c",
            "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo $i",
        ]);
        let (told, cost) = Cost::of(busy).unwrap();
        assert_eq!(told, "200000\n");
        assert!(cost.usage.peak > 100_000, "{cost:?}");
        assert!(!cost.usage.cpu.is_zero(), "{cost:?}");
        assert!(cost.wall >= cost.usage.cpu / 2, "{cost:?}");
    }

    #[test]
    fn a_command_that_fails_says_why() {
        let mut fails = Command::new("sh");
        fails.args(["-c", "echo no luck >&2; exit 3"]);
        let error = Cost::of(fails).unwrap_err().to_string();
        assert!(error.contains("no luck"), "{error}");
    }
}
