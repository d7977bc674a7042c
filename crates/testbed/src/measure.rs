//! What a process and its children cost: processor time and memory, as the kernel counts them.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, bail};

use crate::{Process, wait_for};

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
    use super::Usage;
    use crate::Process;

    #[test]
    fn this_very_process_has_used_something() {
        let usage = Usage::of(&Process::me().unwrap()).unwrap();
        assert!(usage.peak > 100_000, "{usage:?}");
    }
}
