//! Faults on purpose: errors, delays, throttling and cut bodies, by rule and by seed, so that tests
//! see the same bad day every time.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, channel::Channel};

use crate::{
    server::{Answer, AnswerBody},
    status::Status,
};

/// Which requests go wrong, when, and how.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Only this method; any if there is none.
    pub method: Option<Method>,
    /// Only requests whose path and query contain this.
    pub path: String,
    /// When.
    pub when: When,
    /// How.
    pub fault: Fault,
}

/// When a rule strikes, counting the requests that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Each time.
    Always,
    /// The first so many times.
    First(u64),
    /// Each time but the first so many times.
    After(u64),
    /// Every so many times, by chance.
    OneIn(u64),
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An answer with this code instead of the real one; the request is not carried out.
    Status(u16),
    /// The same with a message, as admission has it.
    Refuse(u16, &'static str),
    /// 429 with this many seconds in `Retry-After`.
    Throttle(u64),
    /// The answer comes late.
    Delay(Duration),
    /// The body, or the stream of a watch, breaks off after so many bytes.
    Cut(usize),
    /// The request is carried out, but its answer is lost.
    Lost,
}

/// Rules and where they stand.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<(Rule, u64)>,
    random: u64,
}

impl Faults {
    pub(crate) fn new(rules: Vec<Rule>, seed: u64) -> Self {
        Self {
            rules: rules.into_iter().map(|rule| (rule, 0)).collect(),
            random: seed | 1,
        }
    }

    /// The faults that a request meets.
    pub(crate) fn meet(&mut self, method: &Method, path: &str) -> Vec<Fault> {
        let mut met = Vec::new();
        for (rule, count) in &mut self.rules {
            let is_for =
                rule.method.as_ref().is_none_or(|m| m == method) && path.contains(&rule.path);
            if !is_for {
                continue;
            }
            *count += 1;
            let strikes = match rule.when {
                When::Always => true,
                When::First(n) => *count <= n,
                When::After(n) => *count > n,
                When::OneIn(n) => next(&mut self.random).is_multiple_of(n.max(1)),
            };
            if strikes {
                met.push(rule.fault);
            }
        }
        met
    }
}

/// A small generator of numbers that only look random (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The answer that a fault gives instead of asking the server, if it does.
pub(crate) fn instead(fault: Fault) -> Option<Response<AnswerBody>> {
    match fault {
        Fault::Status(code) => {
            let reason = reason(code);
            let status = Status::new(code, reason, format!("injected fault: {reason}"));
            Some(Answer::from(status).into_response())
        }
        Fault::Refuse(code, message) => {
            let status = Status::new(code, reason(code), message.to_owned());
            Some(Answer::from(status).into_response())
        }
        Fault::Throttle(seconds) => {
            let mut status =
                Status::new(429, "TooManyRequests", "injected fault: too many requests");
            status.details = Some(serde_json::json!({ "retryAfterSeconds": seconds }));
            let mut response = Answer::from(status).into_response();
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            Some(response)
        }
        Fault::Delay(_) | Fault::Cut(_) | Fault::Lost => None,
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}

/// Lets a body through up to a number of bytes, then breaks it off with an error.
pub(crate) fn cut(response: Response<AnswerBody>, after: usize) -> Response<AnswerBody> {
    let (parts, mut body) = response.into_parts();
    let (mut sender, cut) = Channel::<Bytes, crate::BoxError>::new(1);
    tokio::spawn(async move {
        let mut left = after;
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            let whole = data.len() <= left;
            data.truncate(left);
            left -= data.len();
            if sender.send(Frame::data(data)).await.is_err() {
                return;
            }
            if !whole || left == 0 {
                sender.abort("injected fault: the connection broke off".into());
                return;
            }
        }
    });
    Response::from_parts(parts, cut.boxed())
}
