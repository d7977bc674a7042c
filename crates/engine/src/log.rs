//! The log of one run: lines in the shape that Velero's have, gzipped as they come, and the
//! warnings and errors among them by the place they are about.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bowline_api::files::{Findings, HookWindow, Results};
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every object.
    Debug,
    /// What a person would want in the story of the run.
    Info,
    /// Somebody should know.
    Warning,
    /// Something is missing from the result.
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What a line is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// `pods` or `deployments.apps`.
    pub resource: Option<String>,
    /// The namespace; empty for something cluster-scoped, none for the run as a whole.
    pub namespace: Option<String>,
    /// The object.
    pub name: Option<String>,
    /// Why, when something failed.
    pub error: Option<String>,
}

impl About {
    /// An object, or with an empty name a resource in a namespace.
    #[must_use]
    pub fn object(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            resource: Some(resource.to_owned()),
            namespace: Some(namespace.to_owned()),
            name: (!name.is_empty()).then(|| name.to_owned()),
            error: None,
        }
    }

    /// With the reason.
    #[must_use]
    pub fn because(mut self, error: impl std::fmt::Display) -> Self {
        self.error = Some(error.to_string());
        self
    }
}

/// The log of one run; clones write to the same.
#[derive(Debug, Clone)]
pub struct Log(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// `backup=velero/b`, on every line.
    subject: (&'static str, String),
    least: Level,
    gzip: GzEncoder<Vec<u8>>,
    results: Results,
    skipped: Findings,
    warnings: i64,
    errors: i64,
    line: String,
}

/// A log that is over.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// The lines, gzipped.
    pub gzip: Vec<u8>,
    /// Warnings and errors; what was left out on purpose is in `extra` as `skipped`.
    pub results: Results,
    /// Warnings.
    pub warnings: i64,
    /// Errors.
    pub errors: i64,
}

impl Log {
    /// A log with lines from `least` on, each saying what the run is: `("backup", "velero/b")`.
    #[must_use]
    pub fn new(subject: &'static str, name: &str, least: Level) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            subject: (subject, name.to_owned()),
            least,
            gzip: GzEncoder::new(Vec::new(), Compression::new(6)),
            results: Results::default(),
            skipped: Findings::default(),
            warnings: 0,
            errors: 0,
            line: String::new(),
        })))
    }

    /// Whether lines of this level are kept.
    #[must_use]
    pub fn takes(&self, level: Level) -> bool {
        level >= self.lock().least
    }

    /// A line about the run.
    pub fn info(&self, message: &str) {
        self.write(Level::Info, message, &About::default());
    }

    /// Something that somebody should know.
    pub fn warning(&self, message: &str, about: &About) {
        self.write(Level::Warning, message, about);
    }

    /// Something that is missing from the result.
    pub fn error(&self, message: &str, about: &About) {
        self.write(Level::Error, message, about);
    }

    /// Something left out because somebody said so.
    pub fn skipped(&self, why: &str, about: &About) {
        self.write(Level::Info, why, about);
        place(&mut self.lock().skipped, about, finding(why, about));
    }

    /// For how long hooks held a pod that is in the backup.
    pub fn hook_window(&self, namespace: &str, pod: &str, window: Duration) {
        let mut inner = self.lock();
        let windows = &mut inner.results.hook_windows.get_or_insert_default().pods;
        windows.push(HookWindow {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            seconds: (window.as_secs_f64() * 1000.0).round() / 1000.0,
            ..HookWindow::default()
        });
    }

    /// Writes a line.
    pub fn write(&self, level: Level, message: &str, about: &About) {
        let mut inner = self.lock();
        inner.write(level, message, about);
        match level {
            Level::Error => {
                inner.errors += 1;
                place(&mut inner.results.errors, about, finding(message, about));
            }
            Level::Warning => {
                inner.warnings += 1;
                place(&mut inner.results.warnings, about, finding(message, about));
            }
            Level::Debug | Level::Info => {}
        }
    }

    /// A line of somebody else's, which does not count.
    pub fn relay(&self, level: Level, message: &str, about: &About) {
        self.lock().write(level, message, about);
    }

    /// A warning or error whose text alone is the entry in the results file, as restores have it.
    pub fn told(&self, level: Level, text: &str, about: &About) {
        let mut inner = self.lock();
        inner.write(level, text, about);
        if level == Level::Error {
            inner.errors += 1;
            place(&mut inner.results.errors, about, text.to_owned());
        } else {
            inner.warnings += 1;
            place(&mut inner.results.warnings, about, text.to_owned());
        }
    }

    /// Warnings and errors so far.
    #[must_use]
    pub fn counts(&self) -> (i64, i64) {
        let inner = self.lock();
        (inner.warnings, inner.errors)
    }

    /// Everything so far. Lines written later go into the next one.
    #[must_use]
    pub fn take(&self) -> Written {
        let mut inner = self.lock();
        let gzip = std::mem::replace(
            &mut inner.gzip,
            GzEncoder::new(Vec::new(), Compression::new(6)),
        );
        let mut results = inner.results.clone();
        if let Some(windows) = &mut results.hook_windows {
            let place = |window: &HookWindow| (window.namespace.clone(), window.pod.clone());
            windows.pods.sort_by_cached_key(place);
        }
        if inner.skipped != Findings::default() {
            let skipped = serde_json::to_value(&inner.skipped).expect("findings are JSON");
            results.extra.insert("skipped".to_owned(), skipped);
        }
        Written {
            gzip: gzip.finish().expect("writing to memory works"),
            results,
            warnings: inner.warnings,
            errors: inner.errors,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, level: Level, message: &str, about: &About) {
        if level < self.least {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let _ = write!(
            line,
            "time=\"{time}\" level={} msg={}",
            level.word(),
            quoted(message)
        );
        let mut fields = BTreeMap::from([(self.subject.0, self.subject.1.as_str())]);
        for (key, value) in [
            ("error", &about.error),
            ("name", &about.name),
            ("namespace", &about.namespace),
            ("resource", &about.resource),
        ] {
            if let Some(value) = value {
                fields.insert(key, value);
            }
        }
        for (key, value) in fields {
            let _ = write!(
                line,
                " {key}={}",
                if plain(value) {
                    value.to_owned()
                } else {
                    quoted(value)
                }
            );
        }
        line.push('\n');
        let _ = self.gzip.write_all(line.as_bytes());
        self.line = line;
    }
}

/// Whether a value needs no quotes.
fn plain(value: &str) -> bool {
    let simple = |c: char| c.is_ascii_alphanumeric() || "-._/@^+".contains(c);
    !value.is_empty() && value.chars().all(simple)
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is JSON")
}

/// The text of an entry in the results file.
fn finding(message: &str, about: &About) -> String {
    let mut text = String::new();
    if let Some(resource) = &about.resource {
        let _ = write!(text, " resource: /{resource}");
    }
    if let Some(name) = &about.name {
        let _ = write!(text, " name: /{name}");
    }
    let _ = write!(text, " message: /{message}");
    if let Some(error) = &about.error {
        let _ = write!(text, " error: /{error}");
    }
    text
}

fn place(findings: &mut Findings, about: &About, text: String) {
    let list = match about.namespace.as_deref() {
        None => findings.velero.get_or_insert_default(),
        Some("") => findings.cluster.get_or_insert_default(),
        Some(namespace) => findings
            .namespaces
            .get_or_insert_default()
            .entry(namespace.to_owned())
            .or_default(),
    };
    list.push(text);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::json;

    use super::*;

    #[test]
    fn lines_and_results_have_the_shape_that_velero_gives_them() {
        let log = Log::new("backup", "velero/b", Level::Info);
        log.info("Starting <b>");
        log.write(Level::Debug, "not kept", &About::default());
        let pod = About::object("pods", "shop", "web-0");
        log.error("Error backing up item", &pod.clone().because("no \"room\""));
        log.warning("odd", &About::object("nodes", "", "n1"));
        log.skipped("labelled", &pod);
        log.hook_window("shop", "web-0", Duration::from_micros(1_234_567));
        log.hook_window("shop", "db-0", Duration::from_secs(2));
        let written = log.take();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&written.gzip[..])
            .read_to_string(&mut text)
            .unwrap();
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_once(" level").unwrap().1)
            .collect();
        assert_eq!(
            lines,
            [
                r#"=info msg="Starting <b>" backup=velero/b"#,
                r#"=error msg="Error backing up item" backup=velero/b error="no \"room\"" name=web-0 namespace=shop resource=pods"#,
                r#"=warning msg="odd" backup=velero/b name=n1 namespace="" resource=nodes"#,
                r#"=info msg="labelled" backup=velero/b name=web-0 namespace=shop resource=pods"#,
            ]
        );
        assert_eq!((written.warnings, written.errors), (1, 1));
        assert_eq!(
            serde_json::to_value(&written.results).unwrap(),
            json!({
                "errors": {"namespaces": {"shop": [" resource: /pods name: /web-0 message: /Error backing up item error: /no \"room\""]}},
                "warnings": {"cluster": [" resource: /nodes name: /n1 message: /odd"]},
                "skipped": {"namespaces": {"shop": [" resource: /pods name: /web-0 message: /labelled"]}},
                "hookWindows": {"pods": [
                    {"namespace": "shop", "pod": "db-0", "seconds": 2.0},
                    {"namespace": "shop", "pod": "web-0", "seconds": 1.235},
                ]},
            })
        );
    }
}
