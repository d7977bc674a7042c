//! Waiting for the server to finish something: a bar on a terminal, a line now and then in a pipe.

use std::{
    fmt::Debug,
    io::Write,
    time::{Duration, Instant},
};

use anyhow::bail;
use futures::{StreamExt, pin_mut};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;

use crate::say;

/// How often a pipe hears of progress that is not a new phase.
const PATIENCE: Duration = Duration::from_secs(3);

/// How far a piece of work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Where it stands, as a word.
    pub(crate) phase: String,
    /// Items done.
    pub(crate) done: u64,
    /// Items in all; zero while not known.
    pub(crate) total: u64,
    /// Whether it is over.
    pub(crate) is_over: bool,
}

/// Shows steps until the last; the object in its last state comes back.
pub(crate) async fn until_over<K>(
    api: Api<K>,
    name: &str,
    step: impl Fn(&K) -> Step,
    is_terminal: bool,
    out: &mut dyn Write,
) -> anyhow::Result<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher::watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut display = Display::new(is_terminal);
    let mut last_error = String::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let now = step(&object);
                display.show(&now, out)?;
                if now.is_over {
                    display.clear();
                    return Ok(object);
                }
            }
            Ok(Event::Delete(_)) => {
                display.clear();
                bail!("{name} was deleted before it was finished");
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => {
                // The watch begins anew by itself; saying so once per cause is enough.
                let text = error.to_string();
                if text != last_error {
                    say(&format!("watch interrupted, trying again: {text}"));
                    last_error = text;
                }
            }
        }
    }
    bail!("the watch of {name} ended")
}

enum Display {
    Bar(ProgressBar),
    Lines(Throttle),
}

impl Display {
    fn new(is_terminal: bool) -> Self {
        if !is_terminal {
            return Self::Lines(Throttle::default());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style(0));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    fn show(&mut self, step: &Step, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Self::Bar(bar) => {
                bar.set_message(step.phase.clone());
                if bar.length().unwrap_or_default() != step.total {
                    bar.set_style(style(step.total));
                    bar.set_length(step.total);
                }
                bar.set_position(step.done);
            }
            Self::Lines(throttle) => {
                if let Some(line) = throttle.line(step, Instant::now()) {
                    writeln!(out, "{line}")?;
                    out.flush()?;
                }
            }
        }
        Ok(())
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// A bar once the total is known, a spinner until then.
fn style(total: u64) -> ProgressStyle {
    let template = match total {
        0 => "{spinner} {msg} {elapsed}",
        _ => "{spinner} {msg} [{bar:30}] {pos}/{len} items {percent}% {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

/// Decides which steps are worth a line.
#[derive(Default)]
struct Throttle {
    last: Option<(Step, Instant)>,
}

impl Throttle {
    fn line(&mut self, step: &Step, now: Instant) -> Option<String> {
        if step.is_over {
            return None;
        }
        if let Some((last, at)) = &self.last {
            let is_news = last.phase != step.phase;
            let is_due = last != step && now.duration_since(*at) >= PATIENCE;
            if !is_news && !is_due {
                return None;
            }
        }
        self.last = Some((step.clone(), now));
        Some(match step.total {
            0 => step.phase.clone(),
            total => format!("{}: {} of {total} items", step.phase, step.done),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_hears_of_new_phases_at_once_and_of_progress_now_and_then() {
        let step = |phase: &str, done, total, is_over| Step {
            phase: phase.to_owned(),
            done,
            total,
            is_over,
        };
        let start = Instant::now();
        let mut throttle = Throttle::default();
        for (millis, step, line) in [
            (0, step("New", 0, 0, false), Some("New")),
            (5, step("New", 0, 0, false), None),
            (
                10,
                step("InProgress", 0, 9, false),
                Some("InProgress: 0 of 9 items"),
            ),
            (20, step("InProgress", 4, 9, false), None),
            (
                3500,
                step("InProgress", 5, 9, false),
                Some("InProgress: 5 of 9 items"),
            ),
            (7000, step("InProgress", 5, 9, false), None),
            (7001, step("Completed", 9, 9, true), None),
        ] {
            let at = start + Duration::from_millis(millis);
            assert_eq!(throttle.line(&step, at).as_deref(), line, "{millis}");
        }
    }
}
