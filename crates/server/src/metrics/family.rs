//! Counters, gauges and histograms with labels, written in Prometheus' text format 0.0.4.
//!
//! `prometheus-client` writes OpenMetrics, which names and types the same counter differently
//! (`_total` outside its family, `_created`, `# EOF`); dashboards made for Velero would notice.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What a family measures.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations, counted in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// All series of one name. Label values are in the order of `labels`.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    /// Sorted, as Prometheus' own library writes them.
    pub(crate) labels: &'static [&'static str],
    series: Mutex<BTreeMap<Vec<String>, Series>>,
}

#[derive(Debug, Clone, Default)]
struct Series {
    /// The value, or the sum of a histogram.
    value: f64,
    /// Observations per bucket; those above all bounds are in `count` only.
    buckets: Vec<u64>,
    count: u64,
}

impl Family {
    pub(crate) const fn new(
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            help,
            kind,
            labels,
            series: Mutex::new(BTreeMap::new()),
        }
    }

    /// Adds to a counter or gauge; adding zero makes the series appear.
    pub(crate) fn add(&self, labels: &[&str], amount: f64) {
        self.with(labels, |series| series.value += amount);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, labels: &[&str], value: f64) {
        self.with(labels, |series| series.value = value);
    }

    /// Sets a gauge that has no value yet.
    pub(crate) fn set_first(&self, labels: &[&str], value: f64) {
        self.lock().entry(owned(labels)).or_insert_with(|| Series {
            value,
            ..Default::default()
        });
    }

    /// Counts an observation of a histogram.
    pub(crate) fn observe(&self, labels: &[&str], value: f64) {
        let Kind::Histogram(bounds) = self.kind else {
            return;
        };
        self.with(labels, |series| {
            series.buckets.resize(bounds.len(), 0);
            if let Some(at) = bounds.iter().position(|bound| value <= *bound) {
                series.buckets[at] += 1;
            }
            series.count += 1;
            series.value += value;
        });
    }

    /// Forgets all series with this value of a label.
    pub(crate) fn remove(&self, label: &str, value: &str) {
        let Some(at) = self.labels.iter().position(|name| *name == label) else {
            return;
        };
        self.lock().retain(|labels, _| labels[at] != value);
    }

    /// Forgets all series.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Appends the family, or nothing when it has no series.
    pub(crate) fn write(&self, text: &mut String) {
        let series = self.lock();
        if series.is_empty() {
            return;
        }
        let name = self.name;
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", self.help);
        for (values, series) in series.iter() {
            let Kind::Histogram(bounds) = self.kind else {
                let labels = self.labels(values, None);
                let _ = writeln!(text, "{name}{labels} {}", series.value);
                continue;
            };
            let mut below = 0;
            for (bound, count) in bounds.iter().zip(&series.buckets) {
                below += count;
                let labels = self.labels(values, Some(&bound.to_string()));
                let _ = writeln!(text, "{name}_bucket{labels} {below}");
            }
            let infinite = self.labels(values, Some("+Inf"));
            let labels = self.labels(values, None);
            let _ = writeln!(text, "{name}_bucket{infinite} {}", series.count);
            let _ = writeln!(text, "{name}_sum{labels} {}", series.value);
            let _ = writeln!(text, "{name}_count{labels} {}", series.count);
        }
    }

    fn labels(&self, values: &[String], bound: Option<&str>) -> String {
        let pairs: Vec<String> = self
            .labels
            .iter()
            .copied()
            .zip(values.iter().map(String::as_str))
            .chain(bound.map(|bound| ("le", bound)))
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        if pairs.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", pairs.join(","))
        }
    }

    fn with(&self, labels: &[&str], change: impl FnOnce(&mut Series)) {
        debug_assert_eq!(labels.len(), self.labels.len(), "{}", self.name);
        change(self.lock().entry(owned(labels)).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, Series>> {
        // Numbers are whole between any two lines; a panic elsewhere does not spoil them.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::{Family, Kind};

    fn text(family: &Family) -> String {
        let mut text = String::new();
        family.write(&mut text);
        text
    }

    #[test]
    fn series_come_and_go() {
        let family = Family::new("runs", "Runs so far", Kind::Counter, &["of"]);
        assert_eq!(text(&family), "");
        family.add(&["a\"b"], 0.0);
        family.add(&["c"], 2.0);
        assert_eq!(
            text(&family),
            "# HELP runs Runs so far\n# TYPE runs counter\nruns{of=\"a\\\"b\"} 0\nruns{of=\"c\"} 2\n"
        );
        family.remove("of", "c");
        family.remove("nothing", "a\"b");
        assert_eq!(text(&family).lines().count(), 3);
    }

    #[test]
    fn buckets_hold_all_that_is_below_them() {
        let family = Family::new("took", "Seconds", Kind::Histogram(&[1.0, 5.0]), &[]);
        for value in [0.5, 1.0, 3.0, 9.0] {
            family.observe(&[], value);
        }
        assert_eq!(
            text(&family),
            "# HELP took Seconds\n# TYPE took histogram\ntook_bucket{le=\"1\"} 2\n\
             took_bucket{le=\"5\"} 3\ntook_bucket{le=\"+Inf\"} 4\ntook_sum 13.5\ntook_count 4\n"
        );
    }
}
