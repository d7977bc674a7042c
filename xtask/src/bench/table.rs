//! Medians of several servers side by side, ours last, and whether it is as good as we want.

use std::fmt::Write as _;

use super::round::{Round, median};

/// The rounds of one server.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) rounds: Vec<Round>,
    /// How much faster than this server we want to be.
    pub(super) target: Option<f64>,
}

type Figure = fn(&Round) -> f64;

/// Compares the last column, which is ours, with the others. `memory` is the most that our server
/// may have, in MB.
pub(super) fn table(columns: &[Column], memory: f64) -> String {
    let figures: [(&str, Figure); 4] = [
        ("time, s", |r| r.wall.as_secs_f64()),
        ("cpu, s", |r| r.cpu.as_secs_f64()),
        ("peak, MB", |r| r.peak),
        ("items/s", |r| r.items as f64 / r.wall.as_secs_f64()),
    ];
    let Some((ours, others)) = columns.split_last() else {
        return String::new();
    };
    let mut lines = vec![head(others, columns)];
    for (name, of) in figures {
        let mut line = format!("  {name:<10}");
        for column in columns {
            let shown = median(&column.rounds, of).map(|figure| format!("{figure:.2}"));
            let width = width(column);
            let _ = write!(line, " {:>width$}", shown.unwrap_or_else(|| "-".to_owned()));
        }
        let our = median(&ours.rounds, of);
        let mut verdicts = Vec::new();
        for other in others {
            let ratio = median(&other.rounds, of).zip(our).map(|(their, our)| {
                if name == "items/s" {
                    our / their
                } else {
                    their / our
                }
            });
            let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}x"));
            let width = against(other).len();
            let _ = write!(line, " {shown:>width$}");
            if let Some(target) = other.target.filter(|_| name == "time, s") {
                let good = ratio.map(|ratio| ratio >= target);
                verdicts.push(verdict(good, &format!("{target}x")));
            }
        }
        if name == "peak, MB" {
            let good = our.map(|our| our <= memory);
            verdicts.push(verdict(good, &format!("at most {memory} MB")));
        }
        if !verdicts.is_empty() {
            let _ = write!(line, "  {}", verdicts.join(", "));
        }
        lines.push(line);
    }
    lines.join("\n")
}

fn head(others: &[Column], columns: &[Column]) -> String {
    let mut line = format!("  {:<10}", "medians");
    for column in columns {
        let width = width(column);
        let _ = write!(line, " {:>width$}", column.name);
    }
    for other in others {
        let _ = write!(line, " {}", against(other));
    }
    line
}

fn width(column: &Column) -> usize {
    column.name.len().max(9)
}

fn against(other: &Column) -> String {
    format!("vs {}", other.name)
}

/// What is wanted, and whether it is so, if that is known.
pub(super) fn verdict(good: Option<bool>, wanted: &str) -> String {
    match good {
        Some(true) => format!("wanted {wanted}: reached"),
        Some(false) => format!("wanted {wanted}: MISSED"),
        None => format!("wanted {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Column, table};
    use crate::bench::round::Round;

    fn column(name: &'static str, target: Option<f64>, rounds: &[(u64, f64)]) -> Column {
        let round = |&(seconds, peak)| Round {
            wall: Duration::from_secs(seconds),
            cpu: Duration::from_secs(2 * seconds),
            peak,
            items: 100,
            load: 0.0,
        };
        Column {
            name,
            rounds: rounds.iter().map(round).collect(),
            target,
        }
    }

    #[test]
    fn the_table_has_medians_and_says_what_was_missed() {
        let columns = [
            column(
                "velero",
                Some(12.0),
                &[(24, 100.0), (26, 140.0), (20, 140.0)],
            ),
            column("velero-raised", Some(20.0), &[(20, 300.0)]),
            column("bowline", None, &[(2, 50.0), (3, 80.0), (1, 70.0)]),
        ];
        assert_eq!(
            format!("\n{}", table(&columns, 64.0)),
            "
  medians       velero velero-raised   bowline vs velero vs velero-raised
  time, s        24.00         20.00      2.00     12.0x            10.0x  wanted 12x: reached, wanted 20x: MISSED
  cpu, s         48.00         40.00      4.00     12.0x            10.0x
  peak, MB      140.00        300.00     70.00      2.0x             4.3x  wanted at most 64 MB: MISSED
  items/s         4.17          5.00     50.00     12.0x            10.0x"
        );
    }

    #[test]
    fn a_server_that_did_not_run_is_a_dash() {
        let columns = [
            column("velero", Some(12.0), &[]),
            column("bowline", None, &[(2, 50.0)]),
        ];
        let text = table(&columns, 64.0);
        let times = text.lines().nth(1);
        assert_eq!(
            times,
            Some("  time, s            -      2.00         -  wanted 12x")
        );
    }
}
