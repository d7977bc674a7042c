//! Warnings and errors of a backup or restore, by place.

use bowline_api::files::{Findings, Results};
use serde_json::{Value, json};

use super::Describer;
use crate::download::file::File;

/// How many there are; the status counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Warnings.
    pub(crate) warnings: i64,
    /// Errors.
    pub(crate) errors: i64,
}

impl Counts {
    /// The counts of a status.
    pub(crate) fn new(warnings: Option<i64>, errors: Option<i64>) -> Self {
        Self {
            warnings: warnings.unwrap_or_default(),
            errors: errors.unwrap_or_default(),
        }
    }

    /// Whether there is anything to show.
    pub(crate) fn are_some(self) -> bool {
        self.warnings > 0 || self.errors > 0
    }
}

/// For people.
pub(crate) fn text(d: &mut Describer<'_>, file: &File<Results>, counts: Counts) {
    let mut both_failed = |verb: &str, why: &str| {
        d.field(
            0,
            "Warnings",
            format_args!("<error {verb} warnings: {why}>"),
        );
        d.blank();
        d.field(0, "Errors", format_args!("<error {verb} errors: {why}>"));
    };
    match file {
        File::Missing => {
            d.field(0, "Errors", counts.errors);
            d.field(0, "Warnings", counts.warnings);
        }
        File::Failed(why) => both_failed("getting", why),
        File::Unreadable(why) => both_failed("decoding", why),
        File::Found(results) => {
            if counts.warnings > 0 {
                d.blank();
                findings(d, "Warnings", &results.warnings);
            }
            if counts.errors > 0 {
                d.blank();
                findings(d, "Errors", &results.errors);
            }
        }
    }
}

fn findings(d: &mut Describer<'_>, heading: &str, findings: &Findings) {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    d.line(format_args!("{heading}:"));
    d.list(1, "Velero", &list(&findings.velero));
    d.list(1, "Cluster", &list(&findings.cluster));
    match &findings.namespaces {
        Some(namespaces) if !namespaces.is_empty() => {
            d.line("\tNamespaces:");
            for (namespace, messages) in namespaces {
                d.list(2, namespace, messages);
            }
        }
        _ => d.line("\tNamespaces: <none>"),
    }
}

/// For programs, under `errors` and `warnings`.
pub(crate) fn structured(value: &mut Value, file: &File<Results>, counts: Counts) {
    let failed = |verb: &str, why: &str| {
        (
            json!({ "errorGettingErrors": format!("<error {verb} errors: {why}>") }),
            json!({ "errorGettingWarnings": format!("<error {verb} warnings: {why}>") }),
        )
    };
    let some = |count: i64, found: &Findings| match count {
        0 => json!({}),
        _ => by_place(found),
    };
    (value["errors"], value["warnings"]) = match file {
        File::Missing => (
            json!({ "count": counts.errors }),
            json!({ "count": counts.warnings }),
        ),
        File::Failed(why) => failed("getting", why),
        File::Unreadable(why) => failed("decoding", why),
        File::Found(results) => (
            some(counts.errors, &results.errors),
            some(counts.warnings, &results.warnings),
        ),
    };
}

fn by_place(findings: &Findings) -> Value {
    let namespaces = findings.namespaces.as_ref().filter(|map| !map.is_empty());
    json!({
        "velero": findings.velero.clone().unwrap_or_default(),
        "cluster": findings.cluster.clone().unwrap_or_default(),
        "namespace": namespaces.map_or_else(|| json!([]), |map| json!(map)),
    })
}
