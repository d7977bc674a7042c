//! Copies that are objects of the cluster, and so are live: snapshots that plugins upload or bring back,
//! and movements of snapshots' data. Velero's descriptions do not have them.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Describer;
use crate::output::pace::{Pace, State, Transfer};

/// The phases, in the order of their headings.
const PHASES: &[&str] = &[
    "Completed",
    "Failed",
    "Canceled",
    "In Progress",
    "Canceling",
    "Prepared",
    "Accepted",
    "New",
];

/// One copy.
pub(crate) trait Live {
    /// What is copied.
    fn label(&self) -> &str;

    /// What tells it from others with that label.
    fn name(&self) -> &str;

    /// Where it stands, as a word.
    fn phase(&self) -> &str;

    /// A word about the phase.
    fn message(&self) -> &str;

    /// How far it is.
    fn transfer(&self) -> Transfer;

    /// Who copies what, for people: labels and values.
    fn facts(&self) -> Vec<(&str, &str)>;

    /// What else is to be said, for people.
    fn words(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// The same for programs.
    fn keys(&self) -> Map<String, Value>;
}

/// For people, under a heading so many levels deep: how many in each phase, or with details all
/// about each.
pub(crate) fn text<L: Live>(
    d: &mut Describer<'_>,
    depth: usize,
    heading: &str,
    copies: &[L],
    details: bool,
) {
    let (tabs, now) = ("\t".repeat(depth), d.clock.now);
    if !details {
        d.line(format_args!(
            "{tabs}{heading} (specify --details for more information):"
        ));
        for (phase, group) in by_phase(copies) {
            let count = format!("{}{}", group.len(), sum(&group, now));
            d.field(depth + 1, &phase, count);
        }
        return;
    }
    d.line(format_args!("{tabs}{heading}:"));
    for copy in sorted(copies) {
        d.line(format_args!("{tabs}\t{}:", copy.label()));
        for (label, value) in copy.facts() {
            d.field(depth + 2, label, value);
        }
        d.field(depth + 2, "Phase", copy.phase());
        if let Some(progress) = copy.transfer().pace(now).words() {
            d.field(depth + 2, "Progress", progress);
        }
        if let Some(line) = copy.message().lines().next() {
            d.field(depth + 2, "Message", line);
        }
        for (label, value) in copy.words() {
            d.field(depth + 2, label, value);
        }
    }
}

/// For programs: how many in each phase, and with details all about each.
pub(crate) fn structured<L: Live>(copies: &[L], details: bool, now: Timestamp) -> Value {
    let count = |(phase, group): (String, Vec<&L>)| (phase, json!(group.len()));
    let phases: Map<String, Value> = by_phase(copies).into_iter().map(count).collect();
    let mut value = json!({ "phases": phases });
    if details {
        let list = sorted(copies).into_iter().map(|copy| entry(copy, now));
        value["volumes"] = list.collect();
    }
    value
}

fn entry<L: Live>(copy: &L, now: Timestamp) -> Value {
    let mut value = json!(copy.transfer().pace(now));
    value["phase"] = json!(copy.phase());
    if !copy.message().is_empty() {
        value["message"] = json!(copy.message());
    }
    for (key, of) in copy.keys() {
        value[key] = of;
    }
    value
}

fn sorted<L: Live>(copies: &[L]) -> Vec<&L> {
    let mut copies: Vec<&L> = copies.iter().collect();
    copies.sort_by_key(|copy| (copy.label(), copy.name()));
    copies
}

/// Groups in the order of their headings; a phase we do not know comes last, under its own name.
fn by_phase<L: Live>(copies: &[L]) -> Vec<(String, Vec<&L>)> {
    let mut groups: Vec<(String, Vec<&L>)> = Vec::new();
    for copy in copies {
        let heading = match copy.phase() {
            "InProgress" => "In Progress",
            phase => phase,
        };
        match groups.iter_mut().find(|(name, _)| name == heading) {
            Some((_, group)) => group.push(copy),
            None => groups.push((heading.to_owned(), vec![copy])),
        }
    }
    let place = |name: &str| PHASES.iter().position(|phase| *phase == name);
    groups.sort_by_key(|(name, _)| (place(name).unwrap_or(PHASES.len()), name.clone()));
    groups
}

/// How far the moving ones are together: ` (33.33%) [100.00 MiB of 300.00 MiB, …]`.
fn sum<L: Live>(copies: &[&L], now: Timestamp) -> String {
    let transfers = copies.iter().map(|copy| copy.transfer());
    let moving: Vec<Pace> = transfers
        .filter(|transfer| transfer.state == State::Moving)
        .map(|transfer| transfer.pace(now))
        .collect();
    if moving.is_empty() {
        return String::new();
    }
    let all: Pace = moving.into_iter().sum();
    match all.percentage() {
        Some(percentage) => format!(" ({percentage:.2}%) [{all}]"),
        None => format!(" [{all}]"),
    }
}
