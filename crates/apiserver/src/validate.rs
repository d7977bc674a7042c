//! What the server makes of an object before it keeps it: reading the body, checking types, dropping
//! unknown fields, defaults and rules. The steps of a request, in order: `parse`, then `decode` for
//! built-in kinds or `coerce`, `prune` and `default` for custom ones, then `metadata` and `custom`.
//! Messages are spelled as kube-apiserver 1.34 spells them, as clients and tests compare them.

mod crd;
mod custom;
mod decode;
mod formats;
mod json;
mod meta;
mod quantity;
mod structural;

pub(crate) use crd::crd;
pub(crate) use custom::{coerce, custom, default, prune};
pub(crate) use decode::decode;
pub(crate) use json::{parse, summary};
pub(crate) use meta::{metadata, metadata_update};

use serde_json::Value;

use crate::status::Cause;

/// `Required value`, with a reason or without.
fn required(field: impl Into<String>, detail: &str) -> Cause {
    let message = match detail {
        "" => "Required value".to_owned(),
        detail => format!("Required value: {detail}"),
    };
    Cause {
        reason: "FieldValueRequired",
        message,
        field: field.into(),
    }
}

fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
    let message = format!("Invalid value: {}: {detail}", shown(value));
    Cause {
        reason: "FieldValueInvalid",
        message,
        field: field.into(),
    }
}

/// `Invalid value` for a text.
fn bad(field: impl Into<String>, text: &str, detail: &str) -> Cause {
    let message = format!("Invalid value: {}: {detail}", quoted(text));
    Cause {
        reason: "FieldValueInvalid",
        message,
        field: field.into(),
    }
}

fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden",
        message: format!("Forbidden: {detail}"),
        field: field.into(),
    }
}

fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Cause {
    let allowed: Vec<String> = allowed.iter().map(|word| quoted(word)).collect();
    let message = format!(
        "Unsupported value: {}: supported values: {}",
        shown(value),
        allowed.join(", ")
    );
    Cause {
        reason: "FieldValueNotSupported",
        message,
        field: field.into(),
    }
}

fn too_long(field: impl Into<String>, limit: u64) -> Cause {
    let message = format!("Too long: may not be more than {limit} bytes");
    Cause {
        reason: "FieldValueTooLong",
        message,
        field: field.into(),
    }
}

fn too_many(field: impl Into<String>, count: usize, limit: u64) -> Cause {
    let message = format!("Too many: {count}: must have at most {limit} items");
    Cause {
        reason: "FieldValueTooMany",
        message,
        field: field.into(),
    }
}

fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
    let message = format!("Duplicate value: {}", shown(value));
    Cause {
        reason: "FieldValueDuplicate",
        message,
        field: field.into(),
    }
}

/// A value as a message shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => go_float(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Text in quotes as Go writes it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                out.push_str(&format!("\\x{:02x}", u32::from(c)))
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A float as Go's `%v` writes it: without `.0`, with an exponent from 1e21 on.
fn go_float(float: f64) -> String {
    let exponent = if float == 0.0 {
        0.0
    } else {
        float.abs().log10().floor()
    };
    if (-4.0..21.0).contains(&exponent) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(rest) => ('-', rest),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// The path of a field below another, whose path may be empty.
fn child(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// The text of a field, empty if there is none.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The items of a field that is a list, none if it is not.
fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// `reason field: message` lines, for tests.
#[cfg(test)]
fn lines(causes: &[Cause]) -> Vec<String> {
    causes
        .iter()
        .map(|c| format!("{} {}: {}", c.reason, c.field, c.message))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{coerce, crd, custom, decode, default, parse, prune};
    use crate::schema::{BUILT_IN, Schema};

    #[test]
    fn values_are_shown_as_go_shows_them() {
        assert_eq!(super::shown(&json!(0.7)), "0.7");
        assert_eq!(super::shown(&json!(2.0)), "2");
        assert_eq!(super::shown(&json!(1e21)), "1e+21");
        assert_eq!(super::shown(&json!(1.5e-7)), "1.5e-07");
        assert_eq!(super::shown(&json!("a\"\n\u{1}é")), "\"a\\\"\\n\\x01é\"");
        assert_eq!(super::shown(&json!({"b": [1, null]})), "{\"b\":[1,null]}");
    }

    /// The deepest body that `parse` lets through must not end the process in a later step.
    #[test]
    fn the_deepest_body_passes_every_step() {
        let levels = super::json::DEPTH / 2 - 5;
        let schema = format!(
            "{}{{\"type\":\"string\"}}{}",
            "{\"type\":\"object\",\"properties\":{\"a\":".repeat(levels),
            "}}".repeat(levels)
        );
        let body = format!(
            "{{\"kind\":\"CustomResourceDefinition\",\"spec\":{{\"versions\":[{{\"name\":\"v1\",\"schema\":{{\
             \"openAPIV3Schema\":{schema}}}}}]}}}}"
        );
        let (mut object, _) = parse(body.as_bytes()).unwrap();
        let built_in = BUILT_IN
            .schema("apiextensions.k8s.io/v1", "CustomResourceDefinition")
            .unwrap();
        decode(
            &mut object,
            built_in,
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
        )
        .unwrap();
        assert!(!crd(&object).is_empty());
        let schema = Schema::parse(&object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        let instance = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let (mut value, _) = parse(instance.as_bytes()).unwrap();
        coerce(&value, &schema, "a/v1", "A").unwrap();
        prune(&mut value, &schema);
        default(&mut value, &schema);
        assert_eq!(custom(&value, &schema).len(), 1);
    }
}
