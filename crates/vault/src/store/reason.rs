//! From an error of the HTTP stores to one of ours: what the provider said, in one line, without
//! the parts of a request that let others in.

use object_store::client::{HttpError, HttpErrorKind};

use crate::Error;

/// What stands for a part that must not be shown.
const REDACTED: &str = "***REDACTED***";

/// What the layers of the client say about themselves.
const LAYERS: &[&str] = &[
    "HTTP error: ",
    "error sending request: ",
    "client error (Connect): ",
    "Server returned non-2xx status code: ",
];

/// The longest reason that is shown.
const LONGEST: usize = 600;

/// An object store's error while doing `action`. A missing object is [`Error::NotFound`] when a
/// `key` was asked for; a missing bucket never is.
pub(super) fn of(
    action: &str,
    key: Option<&str>,
    endpoint: &str,
    error: &object_store::Error,
) -> Error {
    let text = chain(error);
    if let (object_store::Error::NotFound { .. }, Some(key)) = (error, key)
        && !is_missing_bucket(&text)
    {
        return Error::NotFound {
            key: key.to_owned(),
        };
    }
    Error::Store {
        action: action.to_owned(),
        reason: readable(&text, endpoint),
        retryable: is_retryable(error, &text),
    }
}

/// The texts of an error and its sources, each only if it says something new.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

fn is_missing_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]
        .iter()
        .any(|word| text.contains(word))
}

fn is_retryable(error: &object_store::Error, text: &str) -> bool {
    use object_store::Error as E;
    if !matches!(error, E::Generic { .. } | E::JoinError { .. }) || text.contains("certificate") {
        return false;
    }
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return !matches!(http.kind(), HttpErrorKind::Decode);
        }
        source = error.source();
    }
    match status(text) {
        Some(code) => code >= 500 || code == 429 || code == 408,
        // Credentials that could not be fetched, answers that could not be read.
        None => true,
    }
}

/// The HTTP status that a text tells of.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The provider's code and message where there are any, else the innermost cause.
fn readable(text: &str, endpoint: &str) -> String {
    let reason = match (element(text, "Code"), element(text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text
            .split_once(" - ")
            .map_or(text, |(_, cause)| cause)
            .to_owned(),
    };
    let reason = match status(text) {
        Some(code) if !reason.contains(&code.to_string()) => format!("{reason} (status {code})"),
        _ => reason,
    };
    let mut reason = one_line(&without_queries(&reason));
    for layer in LAYERS {
        reason = reason.replace(layer, "");
    }
    let reason = reason
        .trim_end_matches(':')
        .replace("deadline has elapsed", "no answer in time");
    if reason.contains(endpoint) {
        reason
    } else {
        format!("{endpoint}: {reason}")
    }
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

/// Hides what follows the `?` of each URL: signatures and tokens travel there.
fn without_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let end = rest[at..]
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ')'))
            .map_or(rest.len(), |length| at + length);
        let url = &rest[..end];
        match url[at..].find('?') {
            Some(query) => {
                out.push_str(&url[..=at + query]);
                out.push_str(REDACTED);
            }
            None => out.push_str(url),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn the_providers_words_survive_and_the_rest_does_not() {
        let body = "Error performing PUT http://s3/b/k?X-Amz-Signature=abc in 3ms - Server \
            returned non-2xx status code: 403 Forbidden: <?xml?><Error><Code>SignatureDoesNotMatch\
            </Code><Message>The request\nsignature differs</Message><StringToSign>secret\
            </StringToSign></Error>";
        let error = of("put k", Some("k"), "http://s3", &generic(body));
        assert_eq!(
            error.to_string(),
            "put k: http://s3: SignatureDoesNotMatch: The request signature differs (status 403)"
        );
        assert!(error.is_permanent());
    }

    #[test]
    fn a_busy_store_is_worth_another_try() {
        for (status, retry) in [(500, true), (503, true), (429, true), (400, false)] {
            let text = format!("Error performing GET x in 1ms - status code: {status} x: busy");
            let error = of("list", None, "http://s3", &generic(&text));
            assert_eq!(!error.is_permanent(), retry, "{status}");
        }
    }

    #[test]
    fn the_innermost_cause_is_what_is_shown() {
        for (text, expected) in [
            (
                "Error performing GET http://s3/b?x=1 in 3s, after 3 retries - HTTP error: error \
                 sending request: client error (Connect): tcp connect error: refused",
                "get k: http://s3: tcp connect error: refused",
            ),
            (
                "Error performing HEAD http://s3/b/k in 3ms - Server returned non-2xx status code: \
                 403 Forbidden: ",
                "get k: http://s3: 403 Forbidden",
            ),
        ] {
            let error = of("get k", None, "http://s3", &generic(text));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn signed_urls_lose_their_signature() {
        assert_eq!(
            without_queries("see http://h/a?sig=1&x=2 and https://h/b, 'http://h?token=3'"),
            "see http://h/a?***REDACTED*** and https://h/b, 'http://h?***REDACTED***'"
        );
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let missing = |body: &str| object_store::Error::NotFound {
            path: "k".into(),
            source: body.to_owned().into(),
        };
        assert!(
            of(
                "get k",
                Some("k"),
                "http://s3",
                &missing("<Code>NoSuchKey</Code>")
            )
            .is_not_found()
        );
        let error = of(
            "get k",
            Some("k"),
            "http://s3",
            &missing("<Code>NoSuchBucket</Code>"),
        );
        assert_eq!(error.to_string(), "get k: http://s3: NoSuchBucket");
        assert!(error.is_permanent());
    }
}
