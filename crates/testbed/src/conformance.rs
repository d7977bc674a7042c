//! The conformance suite of the embedded API server: scripts of requests, and what a real
//! kube-apiserver answered to them.
//!
//! ```text
//!   conformance/<group>.txt            the scripts
//!   conformance/recorded/<group>.json  the real server's answers, normalised
//!
//!   record          plays all against a real server and writes the recordings
//!   check_recorded  the real server still answers as recorded
//!   check_embedded  the embedded server answers as recorded; needs no cluster
//! ```

mod compare;
mod defaults;
mod normal;
mod play;
mod script;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use anyhow::{Context, ensure};
use bowline_apiserver::ApiServer;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use play::Side;
use script::Case;

/// How many cases are played against a real server at once.
const AT_ONCE: usize = 6;

/// The groups of cases, in the order in which they are reported.
pub const GROUPS: [&str; 17] = [
    "discovery",
    "crds",
    "create",
    "update",
    "patch-json",
    "patch-merge",
    "patch-strategic",
    "apply",
    "delete",
    "namespaces",
    "selectors",
    "paging",
    "watch",
    "tables",
    "errors",
    "services",
    "scale-and-status",
];

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Cases per group.
    pub cases: BTreeMap<String, usize>,
}

/// How one group of cases went.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How many cases answered as recorded.
    pub same: usize,
    /// Titles of the cases that are known to differ, and do.
    pub kept: Vec<String>,
    /// Titles of the cases that should not differ, and where they do.
    pub failures: Vec<(String, Vec<String>)>,
}

/// How all groups went.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One per group.
    pub groups: Vec<Group>,
}

impl Report {
    /// Whether nothing failed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.groups.iter().all(|group| group.failures.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in &self.groups {
            let Group {
                name,
                same,
                kept,
                failures,
            } = group;
            writeln!(
                f,
                "{name}: {same} the same, {} kept differences, {} failed",
                kept.len(),
                failures.len()
            )?;
            for (title, lines) in failures {
                writeln!(f, "  {title}")?;
                for line in lines {
                    writeln!(f, "    {line}")?;
                }
            }
        }
        Ok(())
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

fn recording(group: &str) -> PathBuf {
    folder().join("recorded").join(format!("{group}.json"))
}

fn data(file: &str) -> anyhow::Result<String> {
    let path = folder().join("data").join(file);
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn cases(group: &str) -> anyhow::Result<Vec<Case>> {
    let path = folder().join(format!("{group}.txt"));
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    script::parse(&text).with_context(|| format!("reading {}", path.display()))
}

/// Plays all cases of all groups, or of one, against a real server and writes what it answered.
///
/// The client should not retry (`default_retry: false`): some answers here are 504, and are meant.
pub async fn record(client: &kube::Client, only: Option<&str>) -> anyhow::Result<Summary> {
    let version = client.apiserver_version().await?.git_version;
    let mut summary = Summary::default();
    for group in GROUPS
        .into_iter()
        .filter(|group| only.is_none_or(|only| only == *group))
    {
        let cases = cases(group)?;
        let mut answers = BTreeMap::new();
        for (case, answer) in play_real(client, &cases).await {
            let answer = answer.with_context(|| format!("{group}: {}", case.title))?;
            answers.insert(case.title.clone(), answer);
        }
        summary.cases.insert(group.to_owned(), answers.len());
        let text = serde_json::to_string_pretty(&json!({ "server": version, "cases": answers }))?;
        let path = recording(group);
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(summary)
}

async fn play_real<'a>(
    client: &kube::Client,
    cases: &'a [Case],
) -> Vec<(&'a Case, anyhow::Result<Value>)> {
    let side = Side::Real(client.clone());
    let plays = cases.iter().map(|case| {
        let side = side.clone();
        async move { (case, play::play(&side, case).await) }
    });
    stream::iter(plays).buffered(AT_ONCE).collect().await
}

/// Whether a real server answers as recorded. `differs` lines do not matter here.
pub async fn check_recorded(client: &kube::Client) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for group in GROUPS {
        let cases = cases(group)?;
        let recorded = recorded(group, &cases)?;
        let mut result = named(group);
        for (case, answer) in play_real(client, &cases).await {
            match differences(&recorded, case, answer) {
                lines if lines.is_empty() => result.same += 1,
                lines => result.failures.push((case.title.clone(), lines)),
            }
        }
        report.groups.push(result);
    }
    Ok(report)
}

/// Whether the embedded server answers as recorded: all groups.
pub async fn check_embedded() -> anyhow::Result<Report> {
    let mut report = Report::default();
    for group in GROUPS {
        report.groups.push(check_embedded_group(group).await?);
    }
    Ok(report)
}

/// Whether the embedded server answers as recorded: one group. Every case has a server of its own.
pub async fn check_embedded_group(group: &str) -> anyhow::Result<Group> {
    let cases = cases(group)?;
    let recorded = recorded(group, &cases)?;
    let mut result = named(group);
    let plays = cases.iter().map(|case| async move {
        let side = Side::Embedded(ApiServer::default());
        (case, play::play(&side, case).await)
    });
    let mut plays = stream::iter(plays).buffered(AT_ONCE);
    while let Some((case, answer)) = plays.next().await {
        let lines = differences(&recorded, case, answer);
        match (&case.differs, lines.is_empty()) {
            (None, true) => result.same += 1,
            (Some(_), false) => result.kept.push(case.title.clone()),
            (None, false) => result.failures.push((case.title.clone(), lines)),
            (Some(reason), true) => {
                let line = format!("it no longer differs: remove the line `differs: {reason}`");
                result.failures.push((case.title.clone(), vec![line]));
            }
        }
    }
    Ok(result)
}

fn named(group: &str) -> Group {
    Group {
        name: group.to_owned(),
        ..Group::default()
    }
}

/// The recorded answers of a group. A recording of a case that is no more is an error.
fn recorded(group: &str, cases: &[Case]) -> anyhow::Result<Value> {
    let path = recording(group);
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut recorded: Value =
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let recorded = recorded["cases"].take();
    for title in recorded
        .as_object()
        .into_iter()
        .flat_map(|cases| cases.keys())
    {
        let known = cases.iter().any(|case| case.title == *title);
        ensure!(
            known,
            "{group}: {title:?} is recorded but in no script: record again"
        );
    }
    Ok(recorded)
}

fn differences(recorded: &Value, case: &Case, answer: anyhow::Result<Value>) -> Vec<String> {
    match answer {
        Ok(answer) => compare::differences(&recorded[&case.title], &answer),
        Err(error) => vec![format!("could not be played: {error:#}")],
    }
}
