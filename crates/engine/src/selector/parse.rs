//! Label selectors in Kubernetes' text form.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::check;

/// Reads a selector: `app=web,tier in (a,b),!x`.
///
/// # Errors
/// What was found that does not belong there.
pub fn parse(text: &str) -> Result<LabelSelector, String> {
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
    let selector = LabelSelector {
        match_labels: (!labels.is_empty()).then_some(labels),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    };
    check(&selector)?;
    Ok(selector)
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
        return Ok(Some(other(key, "DoesNotExist", None)));
    }
    let key = identifier(Some(first), "after ','")?;
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
    use crate::selector::to_query;

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
            ("", ""),
        ] {
            let selector = parse(text).unwrap();
            assert_eq!(to_query(&selector).unwrap(), shown, "{text}");
        }
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
            ("a=-b", "Invalid value: \"-b\""),
            ("/=b", "Invalid value: \"/\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(found), "{text}: {error}");
        }
    }
}
