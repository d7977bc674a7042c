//! Label selectors: read from Kubernetes' text form, and shown in it again.

use std::{collections::BTreeMap, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::names::{check_label_key, check_label_value};

/// A selector flag: `app=web,tier in (a,b),!x`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selector(pub(crate) LabelSelector);

/// Selectors joined by ` or `.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrSelector(pub(crate) Vec<LabelSelector>);

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text)
            .map(Self)
            .map_err(|error| format!("couldn't parse the selector string {text:?}: {error}"))
    }
}

impl FromStr for OrSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(" or ");
        let selectors: Result<_, String> = parts
            .map(|part| part.parse::<Selector>().map(|selector| selector.0))
            .collect();
        selectors.map(Self)
    }
}

/// The selector in text form, or `<none>` if there is nothing to it.
pub(crate) fn show(selector: Option<&LabelSelector>) -> String {
    let text = selector.map(to_query).unwrap_or_default();
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    }
}

/// Selectors of which one has to match, or `<none>`.
pub(crate) fn show_any(selectors: Option<&Vec<LabelSelector>>) -> String {
    let shown: Vec<String> = selectors
        .into_iter()
        .flatten()
        .map(|selector| show(Some(selector)))
        .collect();
    match shown.is_empty() {
        true => show(None),
        false => shown.join(" or "),
    }
}

/// The selector in text form, as the API takes it.
pub(crate) fn to_query(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let mut parts: Vec<(&str, String)> = labels
        .map(|(key, value)| (key.as_str(), format!("{key}={value}")))
        .collect();
    for requirement in selector.match_expressions.iter().flatten() {
        let key = requirement.key.as_str();
        let mut values = requirement.values.clone().unwrap_or_default();
        values.sort();
        let values = values.join(",");
        let text = match requirement.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        parts.push((key, text));
    }
    parts.sort_by_key(|&(key, _)| key.to_owned());
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

fn parse(text: &str) -> Result<LabelSelector, String> {
    let mut labels = BTreeMap::new();
    let mut expressions = Vec::new();
    let mut tokens = Tokens::of(text);
    loop {
        match requirement(&mut tokens)? {
            Some(Requirement::Equals(key, value)) => {
                labels.insert(key, value);
            }
            Some(Requirement::Other(expression)) => expressions.push(expression),
            None => break,
        }
        match tokens.next() {
            None => break,
            Some(",") if tokens.peek().is_none() => {
                return Err("found '', expected: identifier after ','".to_owned());
            }
            Some(",") => {}
            Some(other) => return Err(format!("found '{other}', expected: ',' or the end")),
        }
    }
    Ok(LabelSelector {
        match_labels: (!labels.is_empty()).then_some(labels),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    })
}

enum Requirement {
    Equals(String, String),
    Other(LabelSelectorRequirement),
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Option<Requirement>, String> {
    let Some(first) = tokens.next() else {
        return Ok(None);
    };
    let other = |key: &str, operator: &str, values: Option<Vec<String>>| {
        Requirement::Other(LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values,
        })
    };
    if first == "!" {
        let key = identifier(tokens.next(), "after '!'")?;
        check_label_key(key)?;
        return Ok(Some(other(key, "DoesNotExist", None)));
    }
    let key = identifier(Some(first), "after ','")?;
    check_label_key(key)?;
    let requirement = match tokens.peek() {
        None | Some(",") => other(key, "Exists", None),
        Some(operator @ ("=" | "==" | "!=")) => {
            tokens.next();
            let value = match tokens.peek() {
                None | Some(",") => "",
                word => {
                    tokens.next();
                    identifier(word, "as a value")?
                }
            };
            check_label_value(value)?;
            match operator {
                "!=" => other(key, "NotIn", Some(vec![value.to_owned()])),
                _ => Requirement::Equals(key.to_owned(), value.to_owned()),
            }
        }
        Some(operator @ ("in" | "notin")) => {
            tokens.next();
            let values = values(tokens)?;
            let word = if operator == "in" { "In" } else { "NotIn" };
            other(key, word, Some(values))
        }
        Some(unknown) => {
            return Err(format!(
                "found '{unknown}', expected: '=', '!=', '==', in, notin"
            ));
        }
    };
    Ok(Some(requirement))
}

/// `(a,b)`.
fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        Some("(") => {}
        other => return Err(format!("found '{}', expected: '('", other.unwrap_or(""))),
    }
    let mut values = Vec::new();
    loop {
        let value = match tokens.peek() {
            Some("," | ")") => "",
            word => {
                tokens.next();
                identifier(word, "as a value")?
            }
        };
        check_label_value(value)?;
        values.push(value.to_owned());
        match tokens.next() {
            Some(",") => {}
            Some(")") => {
                values.sort();
                values.dedup();
                return Ok(values);
            }
            other => {
                return Err(format!(
                    "found '{}', expected: ',' or ')'",
                    other.unwrap_or("")
                ));
            }
        }
    }
}

fn identifier<'a>(token: Option<&'a str>, place: &str) -> Result<&'a str, String> {
    match token {
        Some(word) if !word.starts_with(SPECIAL) => Ok(word),
        other => Err(format!(
            "found '{}', expected: identifier {place}",
            other.unwrap_or("")
        )),
    }
}

const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

/// Words and operators of a selector.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    fn peek(&self) -> Option<&'a str> {
        Self { rest: self.rest }.next()
    }

    fn next(&mut self) -> Option<&'a str> {
        let text = self.rest;
        let first = text.chars().next()?;
        let end = if SPECIAL.contains(&first) {
            if text.starts_with("==") || text.starts_with("!=") {
                2
            } else {
                1
            }
        } else {
            text.find(|c: char| SPECIAL.contains(&c) || c.is_whitespace())
                .unwrap_or(text.len())
        };
        self.rest = text[end..].trim_start();
        Some(&text[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_come_back_as_kubernetes_writes_them() {
        for (text, shown) in [
            ("a=b", "a=b"),
            ("a==b", "a=b"),
            (" b = c , a!=d ", "a notin (d),b=c"),
            ("c in (e,d)", "c in (d,e)"),
            ("x notin (a)", "x notin (a)"),
            ("x,!y", "x,!y"),
            (
                "velero.io/schedule-name=nightly",
                "velero.io/schedule-name=nightly",
            ),
            ("a=", "a="),
            ("", "<none>"),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(show(Some(&selector.0)), shown, "{text}");
        }
        assert_eq!(show(None), "<none>");
    }

    #[test]
    fn nonsense_is_refused_with_what_was_found() {
        for (text, found) in [
            ("a=b,,((", "found ',', expected: identifier after ','"),
            ("a=b,", "identifier after ','"),
            ("a in b", "found 'b', expected: '('"),
            ("a in (b", "expected: ',' or ')'"),
            ("a>1", "found '>'"),
            ("a=b c", "found 'c'"),
            ("a b=c", "found 'b'"),
            ("a=-b", "invalid label value"),
            ("/=b", "invalid label key"),
        ] {
            let error = text.parse::<Selector>().unwrap_err();
            assert!(error.contains(found), "{text}: {error}");
        }
    }

    #[test]
    fn alternatives_are_joined_by_or() {
        let selectors: OrSelector = "a=b or c in (d,e)".parse().unwrap();
        let shown: Vec<String> = selectors.0.iter().map(|s| show(Some(s))).collect();
        assert_eq!(shown, ["a=b", "c in (d,e)"]);
        assert!("a=b or ,".parse::<OrSelector>().is_err());
    }
}
