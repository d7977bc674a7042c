//! What a request asks for: its path, query and headers, taken apart.

use std::collections::HashMap;

use http::{HeaderMap, Method, Uri, header};

use crate::status::{Result, Status};

/// A path under `/api` or `/apis` that names objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// `None` for paths that are not about objects.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .map(|part| decode(part, false))
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            // The old way to watch is the new one with a word in the path.
            ["api", version, "watch", rest @ ..] => ("", *version, rest),
            ["apis", group, version, "watch", rest @ ..] => (*group, *version, rest),
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // A namespace itself, or its own subresources.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
                (None, rest)
            }
            ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, sub @ ..] => (*plural, Some(*name), Some(sub.join("/"))),
            [] => return None,
        };
        if plural.is_empty() {
            return None;
        }
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource,
        })
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(HashMap<String, String>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        let mut found = HashMap::new();
        for pair in pairs {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            // The first one counts, as in Go.
            found
                .entry(decode(key, true))
                .or_insert_with(|| decode(value, true));
        }
        Self(found)
    }

    /// The same with one more selector on fields.
    pub(crate) fn selecting(mut self, field: &str) -> Self {
        let fields = self.0.entry("fieldSelector".to_owned()).or_default();
        if !fields.is_empty() {
            fields.push(',');
        }
        fields.push_str(field);
        self
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.0
            .get(key)
            .is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.get(key).parse().ok()
    }

    /// Whether nothing is to be stored; `kind` is what the options of this request are called.
    pub(crate) fn dry_run(&self, kind: &str) -> Result<bool> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let why = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
                Err(Status::options(
                    kind,
                    "FieldValueNotSupported",
                    "dryRun",
                    &why,
                ))
            }
        }
    }

    /// Numbers among the parameters must be numbers.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        for key in ["limit", "timeoutSeconds", "gracePeriodSeconds"] {
            let value = self.get(key);
            if !value.is_empty() && value.parse::<i64>().is_err() {
                return Err(Status::bad_request(format!(
                    "strconv.ParseInt: parsing \"{value}\": invalid syntax"
                )));
            }
        }
        Ok(())
    }
}

/// The form in which an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Table,
    Metadata,
}

/// The best form that the client takes and we have, or 406.
pub(crate) fn form(headers: &HeaderMap, list: bool) -> Result<Form> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("");
    if accept.trim().is_empty() {
        return Ok(Form::Plain);
    }
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(
            media,
            "application/json" | "*/*" | "application/*" | "application/yaml"
        ) {
            continue;
        }
        let shape = parts.clone().find_map(|p| p.strip_prefix("as="));
        let group_ok = parts.all(|p| {
            p.strip_prefix("g=")
                .is_none_or(|g| g == "meta.k8s.io" || g == "apidiscovery.k8s.io")
                && p.strip_prefix("v=")
                    .is_none_or(|v| matches!(v, "v1" | "v2"))
        });
        match shape {
            None => return Ok(Form::Plain),
            Some("Table") if group_ok => return Ok(Form::Table),
            Some("PartialObjectMetadata") if group_ok && !list => return Ok(Form::Metadata),
            Some("PartialObjectMetadataList") if group_ok && list => return Ok(Form::Metadata),
            _ => {}
        }
    }
    let json = accept.contains("application/json");
    let message = match json {
        true => {
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        }
        false => {
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        }
    };
    Err(Status {
        details: (!json).then(|| serde_json::json!({})),
        ..Status::new(406, "NotAcceptable", message)
    })
}

/// Undoes percent-encoding; `+` is a space in queries only.
fn decode(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match bytes[at] {
            b'%' if hex().is_some() => {
                out.extend(hex());
                at += 2;
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The name that a client goes by in `managedFields` when it gives none.
pub(crate) fn manager(headers: &HeaderMap, query: &Query) -> String {
    match query.get("fieldManager") {
        "" => {
            let agent = headers
                .get(header::USER_AGENT)
                .and_then(|v| v.to_str().ok());
            let agent = agent
                .unwrap_or("unknown")
                .split('/')
                .next()
                .unwrap_or("unknown");
            agent.chars().take(128).collect()
        }
        given => given.to_owned(),
    }
}

/// The verb that discovery and messages know a method by.
pub(crate) fn verb(method: &Method, named: bool, watch: bool) -> &'static str {
    match (method, named) {
        (&Method::GET, _) if watch => "watch",
        (&Method::GET, true) => "get",
        (&Method::GET, false) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    type Parts = (String, Option<String>, Option<String>, Option<String>);

    fn parts(path: &str) -> Option<Parts> {
        Target::parse(path).map(|t| (t.plural, t.namespace, t.name, t.subresource))
    }

    #[test]
    fn paths_are_taken_apart() {
        let some = |t: &str| Some(t.to_owned());
        for (path, expected) in [
            ("/api/v1/pods", Some(("pods".to_owned(), None, None, None))),
            (
                "/api/v1/namespaces",
                Some(("namespaces".to_owned(), None, None, None)),
            ),
            (
                "/api/v1/namespaces/a",
                Some(("namespaces".to_owned(), None, some("a"), None)),
            ),
            (
                "/api/v1/namespaces/a/finalize",
                Some(("namespaces".to_owned(), None, some("a"), some("finalize"))),
            ),
            (
                "/api/v1/namespaces/a/pods",
                Some(("pods".to_owned(), some("a"), None, None)),
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                Some((
                    "deployments".to_owned(),
                    some("a"),
                    some("b"),
                    some("scale"),
                )),
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                Some(("clusterroles".to_owned(), None, some("system:node"), None)),
            ),
            ("/apis/apps/v1", None),
            ("/api", None),
            ("/version", None),
        ] {
            assert_eq!(parts(path), expected, "{path}");
        }
    }
}
