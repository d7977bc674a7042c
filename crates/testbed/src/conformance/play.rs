//! Plays a case against a server, and keeps what it answered.
//!
//! Every case has a namespace of its own and a word of its own for names outside of namespaces. Both
//! are cleaned up afterwards. Waiting is polling with a deadline.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_apiserver::ApiServer;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{
    data,
    normal::{self, Names},
    script::{Ask, Case, Step, Until},
};
use crate::wait_for;

/// Controllers of the real server take their time.
const PATIENCE: Duration = Duration::from_secs(40);
/// The embedded server has no controllers: what it does by itself, it has done.
const NO_PATIENCE: Duration = Duration::from_secs(1);
/// A watch that neither ends nor brings what was waited for.
const WATCH_PATIENCE: Duration = Duration::from_secs(15);

/// A server to play against.
#[derive(Clone)]
pub(super) enum Side {
    Embedded(ApiServer),
    Real(kube::Client),
}

/// What a server answered to one step, as it came.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) step: String,
    pub(super) status: u16,
    pub(super) warnings: Vec<String>,
    pub(super) content_type: String,
    pub(super) body: Body,
}

/// The body of an answer.
#[derive(Debug, Clone)]
pub(super) enum Body {
    Json(Value),
    Text(String),
    Events { events: Vec<Value>, unordered: bool },
}

enum Incoming {
    Embedded(Response<bowline_apiserver::AnswerBody>),
    Real(Response<kube::client::Body>),
}

impl Incoming {
    async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            let frame = match self {
                Self::Embedded(response) => response
                    .body_mut()
                    .frame()
                    .await
                    .transpose()
                    .map_err(|e| anyhow::anyhow!("{e}")),
                Self::Real(response) => response
                    .body_mut()
                    .frame()
                    .await
                    .transpose()
                    .map_err(Into::into),
            };
            match frame? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl Side {
    async fn send(&self, ask: &Ask) -> anyhow::Result<Incoming> {
        let mut request = Request::builder()
            .method(ask.method.as_str())
            .uri(&ask.path);
        let has = |name: &str| {
            ask.headers
                .iter()
                .any(|(have, _)| have.eq_ignore_ascii_case(name))
        };
        request = request.header(header::USER_AGENT, "conformance/1.0");
        if !has("accept") {
            request = request.header(header::ACCEPT, "application/json");
        }
        if !has("content-type") && !ask.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let body = ask.body.clone().into_bytes();
        Ok(match self {
            Self::Embedded(server) => Incoming::Embedded(
                server
                    .answer(request.body(Full::new(Bytes::from(body)))?)
                    .await,
            ),
            Self::Real(client) => Incoming::Real(
                client
                    .send(request.body(kube::client::Body::from(body))?)
                    .await?,
            ),
        })
    }

    async fn ask(&self, ask: &Ask) -> anyhow::Result<Answer> {
        let mut incoming = self.send(ask).await?;
        let mut answer = head(ask, &incoming);
        // The real server says so of a kind that it is just taking up, until it has.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while answer.status == 503 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
            incoming = self.send(ask).await?;
            answer = head(ask, &incoming);
        }
        let mut bytes = Vec::new();
        while let Some(data) = incoming.next().await? {
            bytes.extend_from_slice(&data);
        }
        answer.body = match serde_json::from_slice(&bytes) {
            Ok(value) => Body::Json(value),
            Err(_) => Body::Text(String::from_utf8_lossy(&bytes).into_owned()),
        };
        Ok(answer)
    }

    async fn watch(
        &self,
        ask: &Ask,
        until: Option<usize>,
        unordered: bool,
    ) -> anyhow::Result<Answer> {
        let mut incoming = self.send(ask).await?;
        let mut answer = head(ask, &incoming);
        if answer.status != 200 {
            return self.ask(ask).await;
        }
        let mut events = Vec::new();
        let mut rest: Vec<u8> = Vec::new();
        let deadline = tokio::time::Instant::now() + WATCH_PATIENCE;
        'stream: while until.is_none_or(|until| events.len() < until) {
            // A stream that says too little is an answer too, and the comparison will show it.
            let Ok(data) = tokio::time::timeout_at(deadline, incoming.next()).await else {
                break;
            };
            let Some(data) = data? else { break };
            rest.extend_from_slice(&data);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                events.push(
                    serde_json::from_slice(&line).context("a line of the watch is not JSON")?,
                );
                if until.is_some_and(|until| events.len() >= until) {
                    break 'stream;
                }
            }
        }
        answer.body = Body::Events { events, unordered };
        Ok(answer)
    }

    async fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let answer = self.ask(&plain("GET", path, "")).await?;
        match answer.body {
            Body::Json(value) => Ok((answer.status, value)),
            _ => Ok((answer.status, Value::Null)),
        }
    }
}

fn head(ask: &Ask, incoming: &Incoming) -> Answer {
    let (status, headers) = match incoming {
        Incoming::Embedded(response) => (response.status(), response.headers()),
        Incoming::Real(response) => (response.status(), response.headers()),
    };
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Answer {
        step: format!("{} {}", ask.method, ask.path),
        status: status.as_u16(),
        warnings: headers.get_all(header::WARNING).iter().map(text).collect(),
        content_type: headers
            .get(header::CONTENT_TYPE)
            .map(text)
            .unwrap_or_default(),
        body: Body::Json(Value::Null),
    }
}

fn plain(method: &str, path: &str, body: &str) -> Ask {
    Ask {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: body.to_owned(),
    }
}

/// The answers of a server to the steps of a case, normalised.
pub(super) async fn play(side: &Side, case: &Case) -> anyhow::Result<Value> {
    let word: String = uuid::Uuid::new_v4()
        .simple()
        .to_string()
        .chars()
        .take(8)
        .collect();
    let names = Names {
        namespace: format!("conf-{word}"),
        id: format!("c{word}"),
    };
    let mut play = Play {
        side,
        variables: BTreeMap::from([
            ("ns".to_owned(), names.namespace.clone()),
            ("id".to_owned(), names.id.clone()),
            ("huge".to_owned(), "x".repeat(3 * 1024 * 1024 + 512 * 1024)),
        ]),
        answers: Vec::new(),
        literal: String::new(),
    };
    let result = play.run(&names, case).await;
    let cleaned = play.clean(&names).await;
    result?;
    cleaned.context("cleaning up")?;
    Ok(normal::normalise(&names, &play.literal, play.answers))
}

struct Play<'a> {
    side: &'a Side,
    variables: BTreeMap<String, String>,
    answers: Vec<Answer>,
    /// Everything that was sent: addresses and ports in it were asked for, not allocated.
    literal: String,
}

impl Play<'_> {
    async fn run(&mut self, names: &Names, case: &Case) -> anyhow::Result<()> {
        let ns = &names.namespace;
        let namespace = json!({ "metadata": { "name": ns } }).to_string();
        self.must(&plain("POST", "/api/v1/namespaces", &namespace))
            .await?;
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{ns}/{path}");
            self.wait(&path, &Until::Found).await?;
        }
        for step in &case.steps {
            self.step(step).await.with_context(|| format!("{step:?}"))?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Ask(ask) => {
                let answer = self.side.ask(&self.filled(ask)?).await?;
                self.push(ask, answer);
            }
            Step::Do(ask) => {
                let filled = self.filled(ask)?;
                let answer = self.must(&filled).await?;
                // `save` may want something of it; it is taken out again before comparing.
                self.push(
                    ask,
                    Answer {
                        step: String::new(),
                        ..answer
                    },
                );
            }
            Step::Watch {
                ask,
                until,
                unordered,
            } => {
                let answer = self
                    .side
                    .watch(&self.filled(ask)?, *until, *unordered)
                    .await?;
                self.push(ask, answer);
            }
            Step::Save { name, path } => {
                let value = match &self.last()?.body {
                    Body::Json(value) => at(value, path).clone(),
                    Body::Events { events, .. } => at(&Value::from(events.clone()), path).clone(),
                    Body::Text(_) => Value::Null,
                };
                let text = match value {
                    Value::Null => bail!("the last answer has no {path}: {:?}", self.last()?),
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                self.variables.insert(name.clone(), text);
            }
            Step::Wait { path, until } => self.wait(&self.fill(path), until).await?,
            Step::Kind(file) => self.kind(file).await?,
            Step::Only { list, path, text } => {
                let text = self.fill(text);
                let path = path.clone();
                let Body::Json(body) = &mut self.last_mut()?.body else {
                    bail!("not JSON")
                };
                let items = at_mut(body, list)
                    .and_then(Value::as_array_mut)
                    .context("no such list")?;
                items.retain(|item| {
                    at(item, &path)
                        .as_str()
                        .is_some_and(|found| found.contains(&text))
                });
            }
            Step::Keep(paths) => {
                let Body::Json(body) = &mut self.last_mut()?.body else {
                    bail!("not JSON")
                };
                let kept = paths
                    .iter()
                    .map(|path| {
                        (
                            path.trim_start_matches('.').to_owned(),
                            at(body, path).clone(),
                        )
                    })
                    .collect();
                *body = Value::Object(kept);
            }
        }
        Ok(())
    }

    fn push(&mut self, ask: &Ask, mut answer: Answer) {
        if !answer.step.is_empty() {
            answer.step = format!("{} {}", ask.method, ask.path);
        }
        self.answers.push(answer);
    }

    fn last(&self) -> anyhow::Result<&Answer> {
        self.answers.last().context("nothing was answered yet")
    }

    fn last_mut(&mut self) -> anyhow::Result<&mut Answer> {
        self.answers.last_mut().context("nothing was answered yet")
    }

    async fn must(&self, ask: &Ask) -> anyhow::Result<Answer> {
        let answer = self.side.ask(ask).await?;
        ensure!(
            (200..300).contains(&answer.status),
            "{} {} was refused: {answer:?}",
            ask.method,
            ask.path
        );
        Ok(answer)
    }

    async fn wait(&self, path: &str, until: &Until) -> anyhow::Result<()> {
        let side = self.side;
        let until = &match until {
            Until::Equals { path, text } => Until::Equals {
                path: path.clone(),
                text: self.fill(text),
            },
            other => other.clone(),
        };
        let patience = match side {
            Side::Embedded(_) => NO_PATIENCE,
            Side::Real(_) => PATIENCE,
        };
        wait_for(&format!("{path} ({until:?})"), patience, || async move {
            let (status, value) = side.get(path).await?;
            let done = match until {
                Until::Found => status == 200,
                Until::Gone => status == 404,
                Until::Equals { path, text } => {
                    let found = match at(&value, path) {
                        Value::String(found) => found.clone(),
                        other => other.to_string(),
                    };
                    found == *text
                }
            };
            Ok(done.then_some(()))
        })
        .await
    }

    async fn kind(&self, file: &str) -> anyhow::Result<()> {
        let text = self.fill(&data(file)?);
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.must(&plain("POST", path, &text)).await?;
        let spec: Value = serde_json::from_str(&text)?;
        let word = |pointer: &str| at(&spec, pointer).as_str().unwrap_or_default().to_owned();
        let (group, plural) = (word(".spec.group"), word(".spec.names.plural"));
        for version in spec["spec"]["versions"].as_array().into_iter().flatten() {
            if version["served"] == true {
                let version = version["name"].as_str().unwrap_or_default();
                self.wait(&format!("/apis/{group}/{version}/{plural}"), &Until::Found)
                    .await?;
            }
        }
        Ok(())
    }

    fn filled(&mut self, ask: &Ask) -> anyhow::Result<Ask> {
        let body = match ask.body.strip_prefix('@') {
            Some(file) => data(file)?,
            None => ask.body.clone(),
        };
        self.literal.push_str(&ask.path);
        self.literal.push('\n');
        self.literal.push_str(&body);
        Ok(Ask {
            method: ask.method.clone(),
            path: self.fill(&ask.path),
            headers: ask
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), self.fill(value)))
                .collect(),
            body: self.fill(&body),
        })
    }

    /// Puts values in for `$name`. What is not a known name stays: patches have `$patch` and the like.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('$') {
            filled.push_str(&rest[..start]);
            rest = &rest[start + 1..];
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            match self.variables.get(&rest[..end]) {
                Some(value) => {
                    filled.push_str(value);
                    rest = &rest[end..];
                }
                None => filled.push('$'),
            }
        }
        filled.push_str(rest);
        filled
    }

    /// Deletes the namespace, and everything outside of namespaces that has the case's word in its
    /// name. Does not wait for it: the words are never used again.
    async fn clean(&self, names: &Names) -> anyhow::Result<()> {
        if matches!(self.side, Side::Embedded(_)) {
            // It is thrown away as a whole.
            return Ok(());
        }
        let ns = &names.namespace;
        self.side
            .ask(&plain("DELETE", &format!("/api/v1/namespaces/{ns}"), ""))
            .await?;
        for list in CLUSTER_SCOPED {
            let (_, found) = self.side.get(list).await?;
            for item in found["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                if name.contains(&names.id) {
                    self.side
                        .ask(&plain("DELETE", &format!("{list}/{name}"), ""))
                        .await?;
                }
            }
        }
        Ok(())
    }
}

/// Where scripts may leave objects outside of namespaces.
const CLUSTER_SCOPED: [&str; 7] = [
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/api/v1/persistentvolumes",
    "/api/v1/namespaces",
];

/// The value at a path such as `.items.0.metadata.name`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value
        .pointer(&path.replace('.', "/"))
        .unwrap_or(&Value::Null)
}

fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    value.pointer_mut(&path.replace('.', "/"))
}
