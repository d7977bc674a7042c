//! Medians of each step side by side, and whether ours are as good as we want: faster than the
//! faster of the others, with no more memory than restic.

use std::{collections::BTreeMap, fmt::Write as _};

use bowline_testbed::measure::Cost;

use super::tool::Tool;
use crate::bench::{round::median, table::verdict};

/// A step, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    First,
    Unchanged,
    Changed,
    Restore,
}

impl Step {
    pub(super) const ALL: [Self; 4] = [Self::First, Self::Unchanged, Self::Changed, Self::Restore];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Unchanged => "unchanged",
            Self::Changed => "1% changed",
            Self::Restore => "restore",
        }
    }
}

/// All that was measured of one tree in one store.
#[derive(Debug, Default)]
pub(super) struct Report {
    costs: BTreeMap<(Step, Tool), Vec<Cost>>,
    sizes: BTreeMap<Tool, u64>,
}

/// The medians of a step by a tool.
#[derive(Debug, Clone, Copy)]
struct Medians {
    wall: f64,
    cpu: f64,
    peak: f64,
}

impl Report {
    pub(super) fn add(&mut self, step: Step, tool: Tool, cost: Cost) {
        self.costs.entry((step, tool)).or_default().push(cost);
    }

    /// The repository's bytes at the end of a round.
    pub(super) fn size(&mut self, tool: Tool, bytes: u64) {
        self.sizes.insert(tool, bytes);
    }

    fn medians(&self, step: Step, tool: Tool) -> Option<Medians> {
        let costs = self.costs.get(&(step, tool))?;
        let middle = |of| median(costs, of);
        Some(Medians {
            wall: middle(|cost| cost.wall.as_secs_f64())?,
            cpu: middle(|cost| cost.usage.cpu.as_secs_f64())?,
            peak: middle(|cost| cost.usage.peak as f64 / 1e6)?,
        })
    }

    /// What is wanted of ours in a step, and whether it is so.
    fn verdicts(&self, step: Step) -> String {
        let of = |tool| self.medians(step, tool);
        let (Some(ours), restic, kopia) = (of(Tool::Bowline), of(Tool::Restic), of(Tool::Kopia))
        else {
            return String::new();
        };
        let mut said = Vec::new();
        let faster = [("restic", restic), ("kopia", kopia)]
            .into_iter()
            .filter_map(|(name, medians)| Some((name, medians?.wall)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((name, wall)) = faster {
            let wanted = verdict(Some(ours.wall < wall), "faster");
            said.push(format!("{:.2}x of {name}, {wanted}", wall / ours.wall));
        }
        if let Some(restic) = restic {
            let good = ours.peak <= restic.peak;
            said.push(verdict(
                Some(good),
                &format!("at most {:.0} MB", restic.peak),
            ));
        }
        said.join("; ")
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const TOOLS: [Tool; 3] = [Tool::Restic, Tool::Kopia, Tool::Bowline];
        let mut head = format!("  {:<11}", "medians");
        let mut units = format!("  {:<11}", "");
        for tool in TOOLS {
            write!(head, " {:>23}", tool.name())?;
            write!(units, " {:>8} {:>7} {:>6}", "s", "cpu s", "MB")?;
        }
        writeln!(f, "{head}\n{units}")?;
        for step in Step::ALL {
            let mut line = format!("  {:<11}", step.name());
            for tool in TOOLS {
                match self.medians(step, tool) {
                    Some(m) => write!(line, " {:>8.2} {:>7.2} {:>6.0}", m.wall, m.cpu, m.peak)?,
                    None => write!(line, " {:>8} {:>7} {:>6}", "-", "-", "-")?,
                }
            }
            writeln!(f, "{line}  {}", self.verdicts(step))?;
        }
        let mut line = format!("  {:<11}", "repository");
        for tool in TOOLS {
            let size = self.sizes.get(&tool);
            let size =
                size.map_or_else(|| "-".to_owned(), |s| format!("{:.0} MB", *s as f64 / 1e6));
            write!(line, " {size:>23}")?;
        }
        write!(f, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bowline_testbed::measure::{Cost, Usage};

    use super::{Report, Step};
    use crate::bench::volume::tool::Tool;

    fn cost(seconds: u64, peak: u64) -> Cost {
        Cost {
            wall: Duration::from_secs(seconds),
            usage: Usage {
                cpu: Duration::from_secs(2 * seconds),
                peak: peak * 1_000_000,
            },
        }
    }

    #[test]
    fn ours_is_held_against_the_faster_one_and_the_memory_of_restic() {
        let mut report = Report::default();
        for seconds in [8, 6, 7] {
            report.add(Step::First, Tool::Restic, cost(seconds, 100));
            report.add(Step::First, Tool::Bowline, cost(seconds - 5, 120));
        }
        report.add(Step::First, Tool::Kopia, cost(5, 400));
        report.add(Step::Restore, Tool::Restic, cost(2, 100));
        report.add(Step::Restore, Tool::Bowline, cost(3, 90));
        report.size(Tool::Bowline, 5_000_000);
        assert_eq!(
            format!("\n{report}"),
            "
  medians                      restic                   kopia                 bowline
                     s   cpu s     MB        s   cpu s     MB        s   cpu s     MB
  first           7.00   14.00    100     5.00   10.00    400     2.00    4.00    120  2.50x of kopia, wanted faster: reached; wanted at most 100 MB: MISSED
  unchanged          -       -      -        -       -      -        -       -      -  
  1% changed         -       -      -        -       -      -        -       -      -  
  restore         2.00    4.00    100        -       -      -     3.00    6.00     90  0.67x of restic, wanted faster: MISSED; wanted at most 100 MB: reached
  repository                        -                       -                    5 MB"
        );
    }
}
