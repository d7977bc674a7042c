//! Lines that a plugin writes to its standard error, most of them JSON.

use std::{fmt, path::Path};

use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much of a line is looked at together.
const LONGEST: usize = 64 << 10;

/// How loud a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

/// Something that a plugin said, or that is said of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How loud.
    pub level: Level,
    /// What.
    pub message: String,
    /// What else it said: names and values.
    pub fields: Vec<(String, String)>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (name, value) in &self.fields {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

/// Reads lines until there are no more.
pub(super) async fn read(from: impl AsyncRead + Unpin, program: &Path, say: impl Fn(Line)) {
    let mut from = BufReader::with_capacity(LONGEST, from);
    let mut classifier = Classifier::default();
    let mut line = Vec::new();
    loop {
        let (used, is_end) = match from.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(some) => match some.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    line.extend_from_slice(&some[..end]);
                    (end + 1, true)
                }
                None => {
                    line.extend_from_slice(some);
                    (some.len(), line.len() >= LONGEST)
                }
            },
        };
        from.consume(used);
        if is_end {
            tell(&mut line, &mut classifier, program, &say);
        }
    }
    tell(&mut line, &mut classifier, program, &say);
}

fn tell(line: &mut Vec<u8>, classifier: &mut Classifier, program: &Path, say: &impl Fn(Line)) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches('\r');
    if !text.is_empty() {
        let mut line = classifier.classify(text);
        let name = program.file_name().unwrap_or(program.as_os_str());
        let own = [
            ("cmd", program.display().to_string()),
            ("pluginName", name.to_string_lossy().into_owned()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        line.fields.extend(own);
        say(line);
    }
    line.clear();
}

/// What sort of line comes.
#[derive(Default)]
struct Classifier {
    /// A panic is more than one line.
    is_panicking: bool,
}

impl Classifier {
    fn classify(&mut self, text: &str) -> Line {
        if text.len() < LONGEST
            && let Some(line) = json(text)
        {
            return line;
        }
        let level = match level_of_prefix(text) {
            Some(level) => level,
            None => {
                let begins = |words: &&str| text.starts_with(words);
                self.is_panicking |= ["panic: ", "fatal error: "].iter().any(begins);
                if self.is_panicking {
                    Level::Error
                } else {
                    Level::Debug
                }
            }
        };
        Line {
            level,
            message: text.to_owned(),
            fields: Vec::new(),
        }
    }
}

fn json(text: &str) -> Option<Line> {
    let mut fields: Map<String, Value> = serde_json::from_str(text).ok()?;
    if let Some(at) = fields.remove("@timestamp") {
        at.as_str()?.parse::<jiff::Timestamp>().ok()?;
    }
    let level = fields.get("@level").and_then(Value::as_str);
    let Some(level) = level.and_then(level_of_word) else {
        return Some(Line {
            level: Level::Debug,
            message: text.to_owned(),
            fields: Vec::new(),
        });
    };
    let message = fields.remove("@message");
    for dropped in [
        "@level",
        "@module",
        "@caller",
        "@logSourceSetBy",
        "level",
        "time",
        "timestamp",
    ] {
        fields.remove(dropped);
    }
    let shown = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Some(Line {
        level,
        message: message.map(shown).unwrap_or_default(),
        fields: fields
            .into_iter()
            .map(|(name, value)| (name, shown(value)))
            .collect(),
    })
}

fn level_of_word(word: &str) -> Option<Level> {
    Some(match word {
        "trace" | "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" | "warning" => Level::Warning,
        "error" | "fatal" | "panic" => Level::Error,
        _ => return None,
    })
}

fn level_of_prefix(text: &str) -> Option<Level> {
    [
        ("[TRACE]", Level::Debug),
        ("[DEBUG]", Level::Debug),
        ("[INFO]", Level::Info),
        ("[WARN]", Level::Warning),
        ("[ERROR]", Level::Error),
    ]
    .into_iter()
    .find_map(|(prefix, level)| text.starts_with(prefix).then_some(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_loud_as_their_plugin_says() {
        let mut classifier = Classifier::default();
        for (text, level, message) in [
            (r#"{"@level":"warn","@message":"m"}"#, Level::Warning, "m"),
            (r#"{"@level":"trace","@message":"m"}"#, Level::Debug, "m"),
            (r#"{"@level":"loud"}"#, Level::Debug, r#"{"@level":"loud"}"#),
            (
                r#"{"@level":"error","@message":"m","@timestamp":"noon"}"#,
                Level::Debug,
                r#"{"@level":"error","@message":"m","@timestamp":"noon"}"#,
            ),
            ("[WARN] w", Level::Warning, "[WARN] w"),
            ("plain", Level::Debug, "plain"),
            ("panic: p", Level::Error, "panic: p"),
            ("goroutine 1", Level::Error, "goroutine 1"),
            ("[INFO] still", Level::Info, "[INFO] still"),
        ] {
            let line = classifier.classify(text);
            assert_eq!((line.level, line.message.as_str()), (level, message));
        }
    }

    #[test]
    fn fields_are_kept_but_for_those_of_the_log_itself() {
        let text = r#"{"@level":"info","@message":"m","@timestamp":"2026-01-01T00:00:00.000000Z","level":"info","logSource":"a.go:1","@logSourceSetBy":"plugin","n":1}"#;
        let line = Classifier::default().classify(text);
        assert_eq!(line.to_string(), "m logSource=a.go:1 n=1");
    }

    #[tokio::test]
    async fn long_lines_come_in_parts_and_the_last_needs_no_end() {
        let text = format!("{}\nend", "x".repeat(LONGEST + 10));
        let lines = std::sync::Mutex::new(Vec::new());
        let note = |line: Line| lines.lock().unwrap().push(line.message.len());
        read(text.as_bytes(), Path::new("/p/a"), note).await;
        assert_eq!(*lines.lock().unwrap(), [LONGEST, 10, 3]);
    }
}
