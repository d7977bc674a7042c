//! Makes the answers of two servers comparable: what is drawn by chance or depends on the moment gets
//! a stable name, everything else stays as it came.
//!
//! Identity survives: uids, the resourceVersions of objects, addresses and ports are numbered in the
//! order in which they appear in a case, so an update that changes nothing still has to give the same
//! resourceVersion. The order of items stays.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::{
    defaults,
    play::{Answer, Body},
};

/// The names that a run of a case was given.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) namespace: String,
    pub(super) id: String,
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b10\.96\.\d{1,3}\.\d{1,3}\b"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d+[smh]$"));
static HASH: LazyLock<Regex> = LazyLock::new(|| pattern(r"hash=[0-9A-Fa-f]+"));
static TAKEN_PORT: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b3\d{4}\b(: provided port)"));
static IN_MESSAGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(current: |ResourceVersion in precondition: |in object meta: |resource version: |in record \(|resourceVersion\\?":\\?")(\d+)\b"#,
    )
});

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants, and every run uses them all"
)]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// Kinds that controllers of the real server write to at any time: their resourceVersions say nothing.
const RESTLESS: [&str; 10] = [
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "Scale",
    "CustomResourceDefinition",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
];

/// The answers as one value; those of steps without a name are left out.
pub(super) fn normalise(names: &Names, literal: &str, answers: Vec<Answer>) -> Value {
    let mut normaliser = Normaliser {
        names,
        literal,
        generated: BTreeMap::new(),
        tokens: BTreeMap::new(),
        counts: BTreeMap::new(),
    };
    for answer in &answers {
        match &answer.body {
            Body::Json(value) => normaliser.learn(value),
            Body::Events { events, .. } => events.iter().for_each(|event| normaliser.learn(event)),
            Body::Text(_) => {}
        }
    }
    let answers = answers.into_iter().filter(|answer| !answer.step.is_empty());
    answers.map(|answer| normaliser.answer(answer)).collect()
}

struct Normaliser<'a> {
    names: &'a Names,
    literal: &'a str,
    /// Names that the server made up, and how they are written.
    generated: BTreeMap<String, String>,
    tokens: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

/// Entries are ordered by their times, which count whole seconds: whether two writes fall into the
/// same one is chance.
fn by_manager(mut entries: Value) -> Value {
    if let Value::Array(entries) = &mut entries {
        entries.sort_by_key(|entry| {
            ["operation", "manager", "subresource", "apiVersion"].map(|key| entry[key].to_string())
        });
    }
    entries
}

/// The real server walks schemas in no order, so the causes of a refusal come in any: they are sorted
/// here, and in the message too.
fn sort_causes(status: &mut Value) {
    let Some(causes) = status
        .pointer_mut("/details/causes")
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    let sentence = |cause: &Value| {
        let word = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", word("field"), word("message"))
    };
    let before: Vec<String> = causes.iter().map(sentence).collect();
    causes.sort_by_key(sentence);
    let after: Vec<String> = causes.iter().map(sentence).collect();
    if let Some(message) = status["message"].as_str() {
        status["message"] = message
            .replace(&before.join(", "), &after.join(", "))
            .into();
    }
}

/// Two things that the embedded server does not have, for all kinds alike: the words for people in
/// the columns of tables, and the hash of the storage version in discovery.
fn leave_out(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("storageVersionHash");
            let columns = map
                .get_mut("columnDefinitions")
                .and_then(Value::as_array_mut);
            for column in columns
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                column.remove("description");
            }
            map.values_mut().for_each(leave_out);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out),
        _ => {}
    }
}

impl Normaliser<'_> {
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let word = |key: &str| map.get(key).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (word("generateName"), word("name"))
                    && name.starts_with(prefix)
                {
                    self.generated
                        .insert(name.to_owned(), format!("{prefix}<random>"));
                }
                map.values().for_each(|value| self.learn(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    fn answer(&mut self, answer: Answer) -> Value {
        let mut result = Map::new();
        result.insert("step".to_owned(), answer.step.into());
        result.insert("status".to_owned(), answer.status.into());
        if !answer.warnings.is_empty() {
            let warnings: Vec<String> = answer
                .warnings
                .iter()
                .map(|warning| self.text(warning))
                .collect();
            result.insert("warnings".to_owned(), warnings.into());
        }
        let watched = matches!(answer.body, Body::Events { .. });
        if answer.content_type != "application/json" && !watched {
            result.insert("contentType".to_owned(), answer.content_type.into());
        }
        match answer.body {
            Body::Json(mut value) => {
                leave_out(&mut value);
                sort_causes(&mut value);
                result.insert("body".to_owned(), self.object(value, "", None))
            }
            Body::Text(text) => result.insert("text".to_owned(), self.text(&text).into()),
            Body::Events {
                mut events,
                unordered,
            } => {
                if unordered {
                    events.sort_by_key(|event| event["object"]["metadata"]["name"].to_string());
                }
                let events = events
                    .into_iter()
                    .map(|mut event| {
                        leave_out(&mut event);
                        self.object(event, "", None)
                    })
                    .collect::<Vec<_>>();
                result.insert("events".to_owned(), events.into())
            }
        };
        Value::Object(result)
    }

    /// `kind` is the kind of the object around, for items of lists that do not say theirs.
    fn object(&mut self, mut value: Value, key: &str, kind: Option<&str>) -> Value {
        if let Value::Object(map) = &value
            && map.contains_key("metadata")
        {
            let own = map
                .get("kind")
                .and_then(Value::as_str)
                .or(kind)
                .map(str::to_owned);
            if let Some(own) = &own {
                defaults::strip(own, &mut value);
            }
            return self.walk(value, key, own.as_deref());
        }
        self.walk(value, key, kind)
    }

    fn walk(&mut self, value: Value, key: &str, kind: Option<&str>) -> Value {
        match value {
            Value::Object(map) => {
                let of_object = map.contains_key("uid");
                let sorted: BTreeMap<String, Value> = map.into_iter().collect();
                let walked = sorted.into_iter().map(|(name, value)| {
                    let value = match (name.as_str(), &value) {
                        ("resourceVersion", Value::String(version)) if key == "metadata" => {
                            self.version(version, of_object, kind).into()
                        }
                        ("continue", Value::String(token)) if !token.is_empty() => {
                            "<continue>".into()
                        }
                        ("serverAddress", _) => "<address>".into(),
                        ("managedFields", Value::Array(_)) => {
                            self.walk(by_manager(value), &name, None)
                        }
                        ("nodePort" | "healthCheckNodePort", Value::Number(port)) => {
                            self.port(&port.to_string(), value)
                        }
                        ("items", Value::Array(_)) => {
                            let item = kind
                                .and_then(|kind| kind.strip_suffix("List"))
                                .map(str::to_owned);
                            self.object(value, &name, item.as_deref())
                        }
                        ("cells", Value::Array(cells)) => {
                            cells.iter().map(|cell| self.cell(cell)).collect()
                        }
                        _ => {
                            self.object(value, &name, if name == "metadata" { kind } else { None })
                        }
                    };
                    (self.text(&name), value)
                });
                Value::Object(walked.collect())
            }
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.object(item, key, kind))
                .collect(),
            Value::String(text) => self.text(&text).into(),
            other => other,
        }
    }

    fn version(&mut self, version: &str, of_object: bool, kind: Option<&str>) -> String {
        let restless = kind.is_some_and(|kind| RESTLESS.contains(&kind));
        if version.is_empty() || version == "0" {
            version.to_owned()
        } else if of_object && !restless {
            self.token("rv", version)
        } else {
            "<rv>".to_owned()
        }
    }

    fn cell(&mut self, cell: &Value) -> Value {
        match cell {
            Value::String(text) if AGE.is_match(text) => "<age>".into(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    fn port(&mut self, port: &str, value: Value) -> Value {
        if port == "0" || self.literal.contains(port) {
            value
        } else {
            json!(self.token("port", port))
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text
            .replace(&self.names.namespace, "$ns")
            .replace(&self.names.id, "$id");
        for (name, written) in &self.generated {
            text = text.replace(name, written);
        }
        let literal = self.literal;
        let text = UID.replace_all(&text, |found: &Captures<'_>| match &found[0] {
            given if literal.contains(given) => given.to_owned(),
            drawn => self.token("uid", drawn),
        });
        let text = ADDRESS.replace_all(&text, |found: &Captures<'_>| match &found[0] {
            given if literal.contains(given) => given.to_owned(),
            drawn => self.token("ip", drawn),
        });
        let text = TIME.replace_all(&text, |found: &Captures<'_>| match &found[0] {
            given if literal.contains(given) => given.to_owned(),
            _ => "<time>".to_owned(),
        });
        let text = TAKEN_PORT.replace_all(&text, |found: &Captures<'_>| {
            format!("{}{}", self.token("port", &found[0][..5]), &found[1])
        });
        let text = HASH.replace_all(&text, "hash=<hash>");
        IN_MESSAGE
            .replace_all(&text, |found: &Captures<'_>| {
                let number = &found[2];
                let given = literal.contains(&format!("\"{number}\""))
                    || literal.contains(&format!("={number}"));
                if given {
                    found[0].to_owned()
                } else {
                    format!("{}<rv>", &found[1])
                }
            })
            .into_owned()
    }

    fn token(&mut self, what: &'static str, raw: &str) -> String {
        let key = format!("{what} {raw}");
        if let Some(token) = self.tokens.get(&key) {
            return token.clone();
        }
        let count = self.counts.entry(what).or_default();
        *count += 1;
        let token = format!("<{what}-{count}>");
        self.tokens.insert(key, token.clone());
        token
    }
}
