//! What a server's work on one backup or restore cost.

use std::{fs, time::Duration};

use bowline_testbed::{Process, measure::Usage};

/// One backup or restore by a fresh server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    /// In MB, without plugins.
    pub(super) peak: f64,
    pub(super) items: i64,
    /// The machine's before.
    pub(super) load: f64,
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>7.2} s  cpu {:>6.2} s  peak {:>5.0} MB  {} items; load before {:.1}",
            self.wall.as_secs_f64(),
            self.cpu.as_secs_f64(),
            self.peak,
            self.items,
            self.load
        )
    }
}

/// A server that is being measured.
pub(super) struct Meter<'a> {
    process: &'a Process,
    before: Usage,
    load: f64,
}

impl<'a> Meter<'a> {
    /// What the server cost before is forgotten.
    pub(super) fn start(process: &'a Process) -> anyhow::Result<Self> {
        let load = fs::read_to_string("/proc/loadavg")?;
        let load = load.split(' ').next().unwrap_or_default().parse()?;
        Usage::forget_peak(process)?;
        Ok(Self {
            process,
            before: Usage::of(process)?,
            load,
        })
    }

    /// What it cost since then to do so many items, which took so long.
    pub(super) fn stop(self, took: Duration, items: i64) -> anyhow::Result<Round> {
        let after = Usage::of(self.process)?;
        Ok(Round {
            wall: took,
            cpu: after.cpu.saturating_sub(self.before.cpu),
            peak: after.peak as f64 / 1e6,
            items,
            load: self.load,
        })
    }
}

/// The median of a figure of all that was measured.
pub(super) fn median<T>(measured: &[T], of: fn(&T) -> f64) -> Option<f64> {
    let mut all: Vec<f64> = measured.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    let last = all.len().checked_sub(1)?;
    Some(f64::midpoint(all[last / 2], all[all.len() / 2]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Round, median};

    #[test]
    fn the_middle_or_between_the_two_in_the_middle() {
        let all: Vec<Round> = [24, 26, 20, 21]
            .map(|seconds| Round {
                wall: Duration::from_secs(seconds),
                cpu: Duration::ZERO,
                peak: 0.0,
                items: 0,
                load: 0.0,
            })
            .to_vec();
        for (rounds, expected) in [(0, None), (1, Some(24.0)), (3, Some(24.0)), (4, Some(22.5))] {
            let found = median(&all[..rounds], |round| round.wall.as_secs_f64());
            assert_eq!(found, expected, "{rounds} rounds");
        }
    }
}
