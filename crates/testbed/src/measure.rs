//! What a process and its children cost: processor time and memory, as the kernel counts them.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::Context;

use crate::Process;

/// What was used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Processor time of the process and those it started.
    pub cpu: Duration,
    /// The most memory that the process itself had at one time, in bytes.
    pub peak: u64,
    /// The same for the processes it started, added up.
    pub children_peak: u64,
}

impl Usage {
    /// What a running process has used. Children that have ended are not in it.
    pub fn of(process: &Process) -> anyhow::Result<Self> {
        let mut usage = Self::default();
        for pid in family(process.pid)? {
            let Some(stat) = Stat::of(pid) else { continue };
            usage.cpu += stat.cpu;
            let peak = peak(pid).unwrap_or_default();
            if pid == process.pid {
                usage.peak = peak;
            } else {
                usage.children_peak += peak;
            }
        }
        Ok(usage)
    }

    /// Forgets the memory peaks of a process and its children up to now.
    pub fn forget_peaks(process: &Process) -> anyhow::Result<()> {
        for pid in family(process.pid)? {
            // Since Linux 4.0; a child may end meanwhile.
            let done = fs::write(format!("/proc/{pid}/clear_refs"), "5");
            if pid == process.pid {
                done.context("reset the memory peak")?;
            }
        }
        Ok(())
    }
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
        let ticks: u64 =
            fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
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
