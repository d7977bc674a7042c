//! Work that is given to the server: it is submitted, and then waited for if that is wanted. Waiting
//! shows a bar on a terminal, and a line now and then in a pipe.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use futures::{StreamExt, pin_mut};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use kube::{
    Api, ResourceExt,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};

use crate::{
    cluster::{Hinted, Plain},
    context::Context,
    say,
    select::Kind,
};

/// How often a pipe hears of progress that is not a new phase.
const PATIENCE: Duration = Duration::from_secs(3);

/// A kind that the server works on until it is over.
pub(crate) trait Work: Kind + Send + 'static {
    /// How far it is.
    fn step(&self) -> Step;
}

/// How far a piece of work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Where it stands, as a word.
    pub(crate) phase: String,
    /// Items done.
    pub(crate) done: u64,
    /// Items in all; zero while not known.
    pub(crate) total: u64,
    /// Warnings so far, as far as the server tells.
    pub(crate) warnings: u64,
    /// Errors so far, as far as the server tells.
    pub(crate) errors: u64,
    /// What is being done, where the server tells.
    pub(crate) stage: String,
    /// Whether it is over.
    pub(crate) is_over: bool,
}

impl Step {
    /// What went wrong so far: `, 3 warnings, 1 error`.
    fn troubles(&self) -> String {
        let mut text = String::new();
        for (count, what) in [(self.warnings, "warning"), (self.errors, "error")] {
            let plural = if count == 1 { "" } else { "s" };
            if count > 0 {
                let _ = write!(text, ", {count} {what}{plural}");
            }
        }
        text
    }
}

/// A number of a status; what is missing or makes no sense counts as none.
pub(crate) fn count(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or_default()
}

/// Creates the object, and says so. With `wait`, the exit code tells how the work ended, for scripts.
pub(crate) async fn submit<K: Work>(
    api: Api<K>,
    object: &K,
    wait: bool,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let (name, kind, noun) = (object.name_any(), K::KIND, K::KIND.to_lowercase());
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let hint = format!(
                "`bowline {noun} describe {name}` shows the one that is there; names are used once"
            );
            return Err(Hinted::error(status.message, hint));
        }
        other => other.map(drop).plain()?,
    }
    writeln!(out, "{kind} request \"{name}\" submitted successfully.")?;
    if !wait {
        writeln!(
            out,
            "Run `bowline {noun} describe {name}` or `bowline {noun} logs {name}` for more details."
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "Waiting for {noun} to complete. You may safely press ctrl-c to stop waiting - your {noun} \
         will continue in the background."
    )?;
    out.flush()?;
    let is_terminal = ctx.is_terminal && std::io::stderr().is_terminal();
    let phase = until_over(api, &name, is_terminal, out).await?.step().phase;
    writeln!(
        out,
        "\n{kind} completed with status: {phase}. You may check for more information using the \
         commands `bowline {noun} describe {name}` and `bowline {noun} logs {name}`."
    )?;
    Ok(match phase.as_str() {
        "Completed" => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Shows steps until the last; the object in its last state comes back.
pub(crate) async fn until_over<K: Work>(
    api: Api<K>,
    name: &str,
    is_terminal: bool,
    out: &mut dyn Write,
) -> anyhow::Result<K> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher::watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut display = Display::new(is_terminal);
    let mut last_error = String::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let now = object.step();
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
                let stage = match step.stage.as_str() {
                    "" => String::new(),
                    stage => format!(": {stage}"),
                };
                bar.set_message(format!("{}{stage}{}", step.phase, step.troubles()));
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

/// A bar once the total is known, with the rate and the time left; a spinner until then.
fn style(total: u64) -> ProgressStyle {
    let template = match total {
        0 => "{spinner} {msg} {elapsed}",
        _ => "{spinner} {msg} [{wide_bar}] {pos}/{len} items {percent}% {pace}",
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let pace = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            let left = HumanDuration(state.eta());
            let _ = write!(text, "{:.0}/s {left:#} left", state.per_sec());
        }
    };
    style.with_key("pace", pace).progress_chars("=> ")
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
        let (phase, troubles) = (&step.phase, step.troubles());
        Some(match step.total {
            0 => format!("{phase}{troubles}"),
            total => format!("{phase}: {} of {total} items{troubles}", step.done),
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
            warnings: done / 5 * 2,
            errors: done / 5,
            stage: String::new(),
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
                Some("InProgress: 5 of 9 items, 2 warnings, 1 error"),
            ),
            (7000, step("InProgress", 5, 9, false), None),
            (7001, step("Completed", 9, 9, true), None),
        ] {
            let at = start + Duration::from_millis(millis);
            assert_eq!(throttle.line(&step, at).as_deref(), line, "{millis}");
        }
    }
}
