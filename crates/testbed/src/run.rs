//! Runs scenarios and says how each went.

use std::{
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail, ensure};
use futures::{FutureExt, future::LocalBoxFuture};

use crate::{
    Bed, Cache, Mode, Process, Say,
    leftovers::Snapshot,
    requirements,
    scene::{Scene, Skipped},
    wait_for,
};

/// A promise, as a story on a bed.
pub struct Scenario {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Where it can run; it does so on each.
    pub on: &'static [Mode],
    /// The story; what it gives is a line with the figures it saw.
    pub play: Play,
}

impl Scenario {
    /// What a report calls it.
    fn title(&self, mode: Mode) -> String {
        match mode {
            Mode::Embedded => format!("{} (embedded)", self.name),
            Mode::Api | Mode::Node => self.name.to_owned(),
        }
    }
}

/// A story told on a scene.
pub type Play = for<'a> fn(&'a Scene) -> LocalBoxFuture<'a, anyhow::Result<String>>;

/// How a scenario went.
#[derive(Debug)]
pub enum Verdict {
    /// As promised, with the figures seen.
    Passed(String),
    /// Not as promised, and why.
    Failed(String),
    /// Not run, and why.
    Skipped(String),
}

/// What ran and how it went.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<(String, Verdict, Duration)>,
}

/// Longer than any scenario takes; one that hangs is a failure.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the named scenarios, or all: starts the beds they need, and ends them.
pub async fn run(
    cache: &Cache,
    all: &[Scenario],
    names: &[String],
    say: Say<'_>,
) -> anyhow::Result<Report> {
    for name in names {
        if !all.iter().any(|s| s.name == name) {
            let known: Vec<&str> = all.iter().map(|s| s.name).collect();
            bail!(
                "no scenario is called {name}; there are {}",
                known.join(", ")
            );
        }
    }
    let chosen: Vec<&Scenario> = all
        .iter()
        .filter(|s| names.is_empty() || names.iter().any(|name| name == s.name))
        .collect();
    let mut report = Report::default();
    let before = Snapshot::take();
    for mode in [Mode::Embedded, Mode::Api, Mode::Node] {
        let chosen: Vec<&Scenario> = chosen
            .iter()
            .copied()
            .filter(|s| s.on.contains(&mode))
            .collect();
        if chosen.is_empty() {
            continue;
        }
        let lack = match mode {
            Mode::Embedded | Mode::Api => Ok(()),
            Mode::Node => requirements::node(),
        };
        if let Err(lack) = lack {
            for scenario in chosen {
                report.add(
                    &scenario.title(mode),
                    Verdict::Skipped(lack.to_string()),
                    Duration::ZERO,
                    say,
                );
            }
            continue;
        }
        if let Err(error) = on_a_bed(cache, mode, &chosen, &mut report, say).await {
            let name = format!("{mode:?} bed").to_lowercase();
            report.add(
                &name,
                Verdict::Failed(format!("{error:#}")),
                Duration::ZERO,
                say,
            );
        }
    }
    report.leftovers(&before, say).await;
    Ok(report)
}

async fn on_a_bed(
    cache: &Cache,
    mode: Mode,
    chosen: &[&Scenario],
    report: &mut Report,
    say: Say<'_>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let bed = Bed::up(cache, mode, Some(Process::me()?), say).await?;
    say(&format!(
        "{mode:?} bed up in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    for scenario in chosen {
        let began = Instant::now();
        let title = scenario.title(mode);
        let mut skipped = Vec::new();
        let verdict = match play(&bed, scenario, &mut skipped, say).await {
            Ok(figures) => Verdict::Passed(figures),
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        report.add(&title, verdict, began.elapsed(), say);
        for Skipped { part, why } in skipped {
            let title = format!("{title}: {part}");
            report.add(&title, Verdict::Skipped(why), Duration::ZERO, say);
        }
    }
    bed.down().await
}

async fn play(
    bed: &Bed,
    scenario: &Scenario,
    skipped: &mut Vec<Skipped>,
    say: Say<'_>,
) -> anyhow::Result<String> {
    let scene = Scene::new(bed)?;
    let story = AssertUnwindSafe((scenario.play)(&scene)).catch_unwind();
    let outcome = match tokio::time::timeout(LIMIT, story).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(anyhow!("panicked: {}", text.unwrap_or("with no message")))
        }
        Err(_) => Err(anyhow!("not done after {} s", LIMIT.as_secs())),
    };
    if let Err(error) = &outcome {
        say(&format!(
            "{} failed: {error:#}\n{}",
            scenario.name,
            scene.diagnose().await
        ));
    }
    *skipped = scene.skipped();
    let ended = scene.end().await;
    let figures = outcome?;
    ended?;
    Ok(figures)
}

impl Report {
    /// The beds must leave this machine as it was. The kernel cleans up in its own time, and others
    /// may remove what was there before.
    async fn leftovers(&mut self, before: &Snapshot, say: Say<'_>) {
        let began = Instant::now();
        let clean = wait_for(
            "the machine to be as before",
            Duration::from_secs(10),
            async || {
                let added = Snapshot::take().added_since(before);
                ensure!(added.is_empty(), "new:\n{}", added.join("\n"));
                Ok(Some(()))
            },
        );
        let verdict = match clean.await {
            Ok(()) => Verdict::Passed(format!("as before: {}", before.counts())),
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        self.add("nothing-left-behind", verdict, began.elapsed(), say);
    }

    fn add(&mut self, name: &str, verdict: Verdict, took: Duration, say: Say<'_>) {
        say(&format!("{name}: {}", verdict.word()));
        self.rows.push((name.to_owned(), verdict, took));
    }

    /// Nothing failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self
            .rows
            .iter()
            .any(|(_, verdict, _)| matches!(verdict, Verdict::Failed(_)))
    }
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Passed(text) | Self::Failed(text) | Self::Skipped(text) => text,
        }
    }
}

/// The table, and the counts on a line of their own.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|(name, ..)| name.len())
            .max()
            .unwrap_or(0);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, verdict, took) in &self.rows {
            let mut lines = verdict.text().lines();
            writeln!(
                f,
                "{name:<width$}  {:<7}  {:>5.1} s  {}",
                verdict.word(),
                took.as_secs_f64(),
                lines.next().unwrap_or_default()
            )?;
            for line in lines {
                writeln!(f, "{:width$}  {line}", "")?;
            }
            *counts.entry(verdict.word()).or_default() += 1;
        }
        let count = |word| counts.get(word).copied().unwrap_or(0);
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            count("passed"),
            count("failed"),
            count("skipped")
        )
    }
}
