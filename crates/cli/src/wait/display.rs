//! What is seen while waiting: a bar for the work and one for each volume that is being copied, or
//! lines where nobody watches.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write,
    time::{Duration, Instant},
};

use indicatif::{
    HumanBytes, HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState,
    ProgressStyle,
};
use jiff::Timestamp;

use super::{Step, Volumes};
use crate::output::pace::{Pace, State, Transfer};

/// How often a pipe hears of progress that is not a new phase.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often bars are drawn.
const TICK: Duration = Duration::from_millis(200);
/// The most volumes that have a bar at the same time.
const MOST_BARS: usize = 16;

/// How progress is shown.
pub(super) enum Display {
    /// To somebody who watches.
    Bars(Bars),
    /// To a pipe or a log.
    Lines(Throttle),
}

impl Display {
    pub(super) fn new(is_terminal: bool) -> Self {
        match is_terminal {
            true => Self::Bars(Bars::new(ProgressDrawTarget::stderr())),
            false => Self::Lines(Throttle::default()),
        }
    }

    /// Shows how far the work and its volumes are.
    pub(super) fn show(
        &mut self,
        step: &Step,
        volumes: &Volumes,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        match self {
            Self::Bars(bars) => bars.show(step, volumes),
            Self::Lines(throttle) => {
                let copies = Copies::of(volumes, Timestamp::now());
                if let Some(line) = throttle.line(step, copies, Instant::now()) {
                    writeln!(out, "{line}")?;
                    out.flush()?;
                }
            }
        }
        Ok(())
    }

    /// Takes away what is not meant to stay.
    pub(super) fn clear(&self) {
        if let Self::Bars(bars) = self {
            bars.clear();
        }
    }
}

/// One bar for the work; below it one for each volume while its data moves.
pub(super) struct Bars {
    all: MultiProgress,
    work: ProgressBar,
    volumes: BTreeMap<(&'static str, String), ProgressBar>,
}

impl Bars {
    fn new(target: ProgressDrawTarget) -> Self {
        let all = MultiProgress::with_draw_target(target);
        let work = all.add(ProgressBar::no_length());
        work.set_style(style(0));
        work.enable_steady_tick(TICK);
        Self {
            all,
            work,
            volumes: BTreeMap::new(),
        }
    }

    fn show(&mut self, step: &Step, volumes: &Volumes) {
        let stage = match step.stage.as_str() {
            "" => String::new(),
            stage => format!(": {stage}"),
        };
        let over = over(volumes);
        let copies = match volumes.len() {
            0 => String::new(),
            all => format!(", {over} of {all} volumes"),
        };
        let (phase, troubles) = (&step.phase, step.troubles());
        self.work
            .set_message(format!("{phase}{stage}{copies}{troubles}"));
        if self.work.length().unwrap_or_default() != step.total {
            self.work.set_style(style(step.total));
            self.work.set_length(step.total);
        }
        self.work.set_position(step.done);
        self.show_volumes(volumes);
    }

    fn show_volumes(&mut self, volumes: &Volumes) {
        let moving = volumes.iter().filter(|(_, v)| v.state == State::Moving);
        let moving: BTreeMap<_, _> = moving.collect();
        let is_over = |name: &_, _: &mut _| !moving.contains_key(name);
        for (_, bar) in self.volumes.extract_if(.., is_over) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
        for (name, volume) in moving {
            if !self.volumes.contains_key(name) && self.volumes.len() < MOST_BARS {
                let bar = self.all.add(ProgressBar::no_length());
                bar.set_style(volume_style());
                bar.enable_steady_tick(TICK);
                self.volumes.insert(name.clone(), bar);
            }
            if let Some(bar) = self.volumes.get(name) {
                let pace = volume.pace(Timestamp::now());
                bar.set_message(volume.label.clone());
                bar.set_length(pace.total);
                bar.set_position(pace.done);
            }
        }
    }

    fn clear(&self) {
        self.volumes
            .values()
            .for_each(ProgressBar::finish_and_clear);
        self.work.finish_and_clear();
    }
}

/// A bar once the total is known, with the rate and the time left; a spinner until then.
fn style(total: u64) -> ProgressStyle {
    let template = match total {
        0 => "{spinner} {msg} {elapsed}",
        _ => "{spinner} {msg} [{wide_bar}] {pos}/{len} items {percent}% {pace}",
    };
    let pace = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        // When all items are done, volumes may still be on their way.
        let is_done = state.len().is_some_and(|total| state.pos() >= total);
        if state.pos() > 0 && !is_done {
            let left = HumanDuration(state.eta());
            let _ = write!(text, "{:.0}/s {left:#} left", state.per_sec());
        }
    };
    of_template(template).with_key("pace", pace)
}

fn volume_style() -> ProgressStyle {
    let pace = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let _ = write!(text, "{}", HumanBytes(state.pos()));
        match state.len() {
            Some(total) if total > 0 => {
                let percent = (state.fraction() * 100.0) as u64;
                let _ = write!(text, "/{} {percent}%", HumanBytes(total));
            }
            _ => return,
        }
        if state.pos() > 0 {
            let rate = HumanBytes(state.per_sec() as u64);
            let left = HumanDuration(state.eta());
            let _ = write!(text, " {rate}/s {left:#} left");
        }
    };
    of_template("  {msg} [{wide_bar}] {pace}").with_key("pace", pace)
}

fn of_template(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

fn over(volumes: &Volumes) -> usize {
    let is_over = |volume: &&Transfer| volume.state == State::Over;
    volumes.values().filter(is_over).count()
}

/// How far the volumes are together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Copies {
    over: usize,
    all: usize,
    pace: Pace,
}

impl Copies {
    fn of(volumes: &Volumes, now: Timestamp) -> Self {
        Self {
            over: over(volumes),
            all: volumes.len(),
            pace: volumes.values().map(|volume| volume.pace(now)).sum(),
        }
    }

    /// `, 1 of 3 volumes, 1.2 GiB of 3 GiB, 40 MiB/s, 46s left`; nothing if there are none.
    fn words(&self) -> String {
        match (self.all, self.pace.total) {
            (0, _) => String::new(),
            (all, 0) => format!(", {} of {all} volumes", self.over),
            (all, _) => format!(", {} of {all} volumes, {}", self.over, self.pace),
        }
    }

    /// Whether something happened since; a rate alone changes by itself.
    fn is_news(&self, last: &Self) -> bool {
        let facts = |copies: &Self| (copies.over, copies.all, copies.pace.done, copies.pace.total);
        facts(self) != facts(last)
    }
}

/// Decides which steps are worth a line.
#[derive(Default)]
pub(super) struct Throttle {
    last: Option<(Step, Copies, Instant)>,
}

impl Throttle {
    fn line(&mut self, step: &Step, copies: Copies, now: Instant) -> Option<String> {
        if let Some((last, before, at)) = &self.last {
            let is_news = last.phase != step.phase;
            let has_moved = last != step || copies.is_news(before);
            let is_due = has_moved && now.duration_since(*at) >= PATIENCE;
            if !is_news && !is_due {
                return None;
            }
        }
        self.last = Some((step.clone(), copies, now));
        let mut line = step.phase.clone();
        if step.total > 0 {
            let _ = write!(line, ": {} of {} items", step.done, step.total);
        }
        line += &copies.words();
        line += &step.troubles();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn volume(name: &str, state: State, done: i64) -> Transfer {
        Transfer {
            label: name.to_owned(),
            state,
            done,
            total: 300,
            since: None,
        }
    }

    #[test]
    fn volumes_have_a_bar_while_their_data_moves() {
        let mut bars = Bars::new(ProgressDrawTarget::hidden());
        for (volumes, shown) in [
            (vec![], vec![]),
            (
                vec![("a", State::Moving, 100), ("b", State::Waiting, 0)],
                vec![("a", 100)],
            ),
            (
                vec![("a", State::Moving, 200), ("b", State::Moving, 1)],
                vec![("a", 200), ("b", 1)],
            ),
            (
                vec![("a", State::Over, 300), ("b", State::Moving, 2)],
                vec![("b", 2)],
            ),
            // A node that begins anew.
            (vec![("b", State::Moving, 0)], vec![("b", 0)]),
            (vec![], vec![]),
        ] {
            let volumes: Volumes = volumes
                .into_iter()
                .map(|(name, state, done)| (("Pod", name.to_owned()), volume(name, state, done)))
                .collect();
            bars.show(&step("InProgress", 0, 0), &volumes);
            let found: Vec<(&str, u64)> = bars
                .volumes
                .iter()
                .map(|((_, name), bar)| (name.as_str(), bar.position()))
                .collect();
            assert_eq!(found, shown);
        }
    }

    #[test]
    fn a_terminal_is_not_flooded() {
        let mut bars = Bars::new(ProgressDrawTarget::hidden());
        let many = (0..100).map(|at| {
            let name = ("Pod", format!("{at}"));
            (name, volume("v", State::Moving, at))
        });
        bars.show(&step("InProgress", 0, 0), &many.collect());
        assert_eq!(bars.volumes.len(), MOST_BARS);
        assert_eq!(bars.work.message(), "InProgress, 0 of 100 volumes");
    }

    fn step(phase: &str, done: u64, total: u64) -> Step {
        Step {
            phase: phase.to_owned(),
            done,
            total,
            warnings: done / 5 * 2,
            errors: done / 5,
            stage: String::new(),
            is_over: false,
        }
    }

    fn copies(over: usize, done: u64, rate: f64) -> Copies {
        Copies {
            over,
            all: 2,
            pace: Pace {
                done: done * MIB,
                total: 300 * MIB,
                rate: Some(rate * MIB as f64),
            },
        }
    }

    #[test]
    fn a_pipe_hears_of_new_phases_at_once_and_of_progress_now_and_then() {
        let (none, start) = (Copies::default(), Instant::now());
        let mut throttle = Throttle::default();
        for (millis, step, copies, line) in [
            (0, step("New", 0, 0), none, Some("New")),
            (5, step("New", 0, 0), none, None),
            (
                10,
                step("InProgress", 0, 9),
                none,
                Some("InProgress: 0 of 9 items"),
            ),
            (20, step("InProgress", 4, 9), none, None),
            (
                3500,
                step("InProgress", 5, 9),
                none,
                Some("InProgress: 5 of 9 items, 2 warnings, 1 error"),
            ),
            (7000, step("InProgress", 5, 9), none, None),
            (
                7100,
                step("InProgress", 4, 9),
                copies(0, 100, 10.0),
                Some(
                    "InProgress: 4 of 9 items, 0 of 2 volumes, 100.00 MiB of 300.00 MiB, \
                     10.00 MiB/s, 20s left",
                ),
            ),
            // Only time went by.
            (12_000, step("InProgress", 4, 9), copies(0, 100, 9.0), None),
            (
                13_000,
                step("InProgress", 4, 9),
                copies(1, 100, 0.0),
                Some("InProgress: 4 of 9 items, 1 of 2 volumes, 100.00 MiB of 300.00 MiB, 0 B/s"),
            ),
        ] {
            let at = start + Duration::from_millis(millis);
            assert_eq!(
                throttle.line(&step, copies, at).as_deref(),
                line,
                "{millis}"
            );
        }
    }
}
