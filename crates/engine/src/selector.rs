//! Label selectors: whether they are sound, what they match, and how they are put to an API server.
//!
//! A selector without requirements selects everything. An unsound one selects nothing here; it is
//! refused at the door, in the words of Kubernetes.

mod parse;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

pub use self::parse::parse;

/// The selector, unless it has no requirements: `{}` is the same as none.
#[must_use]
pub fn present(selector: Option<&LabelSelector>) -> Option<&LabelSelector> {
    selector.filter(|selector| !is_empty(selector))
}

/// Whether the selector has no requirements.
#[must_use]
pub fn is_empty(selector: &LabelSelector) -> bool {
    labels_of(selector).next().is_none() && expressions_of(selector).is_empty()
}

/// Whether the selector is sound, or what is wrong with its first bad requirement.
pub fn check(selector: &LabelSelector) -> Result<(), String> {
    for (key, value) in labels_of(selector) {
        aggregate(requirement_errors(
            key,
            Operator::Equals,
            std::slice::from_ref(value),
        ))?;
    }
    for expression in expressions_of(selector) {
        let operator = Operator::parse(&expression.operator).ok_or_else(|| {
            format!(
                "{:?} is not a valid label selector operator",
                expression.operator
            )
        })?;
        aggregate(requirement_errors(
            &expression.key,
            operator,
            values_of(expression),
        ))?;
    }
    Ok(())
}

/// Whether the selector matches these labels.
#[must_use]
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    matches_with(selector, |key| labels.get(key).map(String::as_str))
}

/// Whether the selector matches the labels of an object.
#[must_use]
pub fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    matches_with(selector, |key| labels.get(key).and_then(Value::as_str))
}

/// The `labelSelector` parameter of a list call; empty for a selector without requirements.
pub fn to_query(selector: &LabelSelector) -> Result<String, String> {
    check(selector)?;
    let mut terms: Vec<(&str, String)> = labels_of(selector)
        .map(|(key, value)| (key.as_str(), format!("{key}={value}")))
        .collect();
    for expression in expressions_of(selector) {
        let key = &expression.key;
        let mut values = values_of(expression).to_vec();
        values.sort();
        let values = values.join(",");
        let term = match Operator::parse(&expression.operator) {
            Some(Operator::In) => format!("{key} in ({values})"),
            Some(Operator::NotIn) => format!("{key} notin ({values})"),
            Some(Operator::DoesNotExist) => format!("!{key}"),
            _ => key.clone(),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    Ok(terms.join(","))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Operator {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }
}

fn matches_with<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    labels_of(selector).all(|(key, value)| label(key) == Some(value))
        && expressions_of(selector).iter().all(|expression| {
            let label = label(&expression.key);
            let listed = |label| values_of(expression).iter().any(|value| value == label);
            match Operator::parse(&expression.operator) {
                Some(Operator::In) => label.is_some_and(listed),
                Some(Operator::NotIn) => !label.is_some_and(listed),
                Some(Operator::Exists) => label.is_some(),
                Some(Operator::DoesNotExist) => label.is_none(),
                Some(Operator::Equals) | None => false,
            }
        })
}

fn labels_of(selector: &LabelSelector) -> impl Iterator<Item = (&String, &String)> {
    selector.match_labels.iter().flatten()
}

fn expressions_of(selector: &LabelSelector) -> &[LabelSelectorRequirement] {
    selector.match_expressions.as_deref().unwrap_or_default()
}

fn values_of(expression: &LabelSelectorRequirement) -> &[String] {
    expression.values.as_deref().unwrap_or_default()
}

fn requirement_errors(key: &str, operator: Operator, values: &[String]) -> Vec<String> {
    let mut errors = Vec::new();
    let why = key_errors(key);
    if !why.is_empty() {
        errors.push(format!("key: Invalid value: {key:?}: {}", why.join("; ")));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => errors.push(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .to_owned(),
        ),
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => errors.push(format!(
            "values: Invalid value: {values:?}: values set must be empty for exists and does not \
             exist"
        )),
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let why = value_errors(value);
        if !why.is_empty() {
            errors.push(format!(
                "values[{index}][{key}]: Invalid value: {value:?}: {}",
                why.join("; ")
            ));
        }
    }
    errors
}

/// Several errors in one text, as Kubernetes joins them.
fn aggregate(mut errors: Vec<String>) -> Result<(), String> {
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                    end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                    '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// What is wrong with a label's key: a name, with an optional DNS prefix.
fn key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 characters".to_owned());
                }
                if !prefix.split('.').all(crate::filter::is_label) {
                    errors.push(
                        "prefix part a lowercase RFC 1123 subdomain must consist of lower case \
                         alphanumeric characters, '-' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                            .to_owned(),
                    );
                }
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME}"));
    }
    errors
}

fn value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(letter)
        && text.ends_with(letter)
        && text.chars().all(|c| letter(c) || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        selector(json!({
            "matchExpressions": [{ "key": key, "operator": operator, "values": values }]
        }))
    }

    #[test]
    fn every_operator_matches_as_in_kubernetes() {
        let object = json!({ "metadata": { "labels": { "app": "web", "tier": "" } } });
        let labels = BTreeMap::from([("app".into(), "web".into()), ("tier".into(), String::new())]);
        for (selector, expected) in [
            (selector(json!({})), true),
            (selector(json!({ "matchLabels": { "app": "web" } })), true),
            (selector(json!({ "matchLabels": { "app": "db" } })), false),
            (
                selector(json!({ "matchLabels": { "app": "web", "x": "y" } })),
                false,
            ),
            (selector(json!({ "matchLabels": { "tier": "" } })), true),
            (selector(json!({ "matchLabels": { "gone": "" } })), false),
            (expression("app", "In", &["db", "web"]), true),
            (expression("app", "In", &["db"]), false),
            (expression("gone", "In", &[""]), false),
            (expression("app", "NotIn", &["db"]), true),
            (expression("app", "NotIn", &["web"]), false),
            (expression("gone", "NotIn", &["web"]), true),
            (expression("app", "Exists", &[]), true),
            (expression("tier", "Exists", &[]), true),
            (expression("gone", "Exists", &[]), false),
            (expression("app", "DoesNotExist", &[]), false),
            (expression("gone", "DoesNotExist", &[]), true),
            (expression("app", "Like", &["web"]), false),
            (
                selector(json!({
                    "matchLabels": { "app": "web" },
                    "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }]
                })),
                false,
            ),
        ] {
            assert_eq!(selects(&selector, &object), expected, "{selector:?}");
            assert_eq!(matches(&selector, &labels), expected, "{selector:?}");
        }
        let bare = json!({ "metadata": {} });
        assert!(selects(&expression("app", "DoesNotExist", &[]), &bare));
        assert!(!selects(&expression("app", "Exists", &[]), &bare));
    }

    #[test]
    fn a_query_is_sorted_by_key_and_value() {
        for (selector, query) in [
            (selector(json!({})), ""),
            (
                selector(json!({ "matchLabels": { "b": "2", "a": "1" } })),
                "a=1,b=2",
            ),
            (expression("app", "In", &["web", "db"]), "app in (db,web)"),
            (expression("app", "NotIn", &["web"]), "app notin (web)"),
            (expression("a.b/c", "Exists", &[]), "a.b/c"),
            (expression("app", "DoesNotExist", &[]), "!app"),
            (
                selector(json!({
                    "matchLabels": { "m": "" },
                    "matchExpressions": [
                        { "key": "z", "operator": "Exists" },
                        { "key": "a", "operator": "DoesNotExist" }
                    ]
                })),
                "!a,m=,z",
            ),
        ] {
            assert_eq!(to_query(&selector).as_deref(), Ok(query));
        }
        assert!(to_query(&expression("app", "In", &[])).is_err());
    }

    #[test]
    fn an_empty_selector_is_none() {
        for value in [
            json!({}),
            json!({ "matchLabels": {} }),
            json!({ "matchExpressions": [] }),
        ] {
            assert_eq!(present(Some(&selector(value))), None);
        }
        let some = expression("a", "Exists", &[]);
        assert_eq!(present(Some(&some)), Some(&some));
    }

    #[test]
    fn unsound_selectors_are_refused_in_the_words_of_kubernetes() {
        let long = "a".repeat(64);
        for (selector, error) in [
            (
                expression("app", "Like", &["web"]),
                "\"Like\" is not a valid label selector operator",
            ),
            (
                expression("app", "In", &[]),
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                expression("app", "NotIn", &[]),
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                expression("app", "Exists", &["web"]),
                "values: Invalid value: [\"web\"]: values set must be empty for exists and does not exist",
            ),
            (
                expression("", "Exists", &[]),
                "key: Invalid value: \"\": name part must be non-empty; name part must consist of",
            ),
            (
                expression(&long, "Exists", &[]),
                "name part must be no more than 63 characters",
            ),
            (
                expression("/a", "Exists", &[]),
                "prefix part must be non-empty",
            ),
            (
                expression("A.b/a", "Exists", &[]),
                "prefix part a lowercase RFC 1123 subdomain",
            ),
            (
                expression("a/b/c", "Exists", &[]),
                "a qualified name must consist of",
            ),
            (
                expression("a", "In", &["ok", "no good"]),
                "values[1][a]: Invalid value: \"no good\": a valid label must be an empty string",
            ),
            (
                expression("a", "In", &[&long]),
                "must be no more than 63 characters",
            ),
            (
                expression("a b", "In", &[]),
                "[key: Invalid value: \"a b\": name part must consist",
            ),
            (
                selector(json!({ "matchLabels": { "a": "-" } })),
                "values[0][a]: Invalid value: \"-\": a valid label",
            ),
        ] {
            let why = check(&selector).unwrap_err();
            assert!(why.contains(error), "{why}");
        }
        for fine in [
            expression("example.com/My_name.1", "Exists", &[]),
            expression("a", "In", &["", "A-b_c.d"]),
        ] {
            assert_eq!(check(&fine), Ok(()));
        }
    }
}
