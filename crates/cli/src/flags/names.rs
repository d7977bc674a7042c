//! Names, labels and lists of names, checked before anything is sent.

use std::collections::BTreeSet;

use bowline_api::StringMap;

/// What is wrong with an object's name, if anything: Kubernetes wants a DNS subdomain.
pub(crate) fn check_name(kind: &str, name: &str, longest: usize) -> Result<(), String> {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label_is_good = |label: &str| {
        label.starts_with(edge)
            && label.ends_with(edge)
            && label.chars().all(|c| edge(c) || c == '-')
    };
    if name.len() > longest {
        return Err(format!(
            "invalid {kind} name {name:?}: {} characters, at most {longest} are possible",
            name.len()
        ));
    }
    if !name.split('.').all(label_is_good) {
        return Err(format!(
            "invalid {kind} name {name:?}: a name consists of lower case letters, digits, '-' and '.', \
             and starts and ends with a letter or digit"
        ));
    }
    Ok(())
}

/// The longest name of an object.
pub(crate) const LONGEST_NAME: usize = 253;
/// The longest name that also has to be a label's value.
pub(crate) const LONGEST_LABEL: usize = 63;

/// What is wrong with labels, if anything.
pub(crate) fn check_labels(labels: Option<&StringMap>) -> Result<(), String> {
    for (key, value) in labels.into_iter().flatten() {
        check_label_key(key)?;
        check_label_value(value).map_err(|error| format!("label {key:?}: {error}"))?;
    }
    Ok(())
}

/// A label's key: a name, after a DNS subdomain and `/` if there is one.
pub(crate) fn check_label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_is_good =
        prefix.is_none_or(|prefix| check_name("label", prefix, LONGEST_NAME).is_ok());
    if prefix_is_good && !name.is_empty() && is_qualified(name) {
        Ok(())
    } else {
        Err(format!("invalid label key {key:?}"))
    }
}

/// A label's value: nothing, or a name.
pub(crate) fn check_label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_qualified(value) {
        Ok(())
    } else {
        Err(format!("invalid label value {value:?}"))
    }
}

/// Up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_qualified(name: &str) -> bool {
    name.len() <= LONGEST_LABEL
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether `*` may stand in the list of what to leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExcludeAll {
    /// It may, alone, when nothing is asked for.
    Allowed,
    /// It may not.
    Refused,
}

/// What is wrong with a pair of include and exclude lists.
pub(crate) fn check_lists(
    included: &[String],
    excluded: &[String],
    exclude_all: ExcludeAll,
) -> Vec<String> {
    let includes: BTreeSet<&str> = included.iter().map(String::as_str).collect();
    let excludes: BTreeSet<&str> = excluded.iter().map(String::as_str).collect();
    let mut errors = Vec::new();
    let lone = |side: &str| {
        format!("{side} list must either contain '*' only, or a non-empty list of items")
    };
    if includes.len() > 1 && includes.contains("*") {
        errors.push(lone("includes"));
    }
    match exclude_all {
        ExcludeAll::Refused if excludes.contains("*") => {
            errors.push("excludes list cannot contain '*'".to_owned());
        }
        ExcludeAll::Allowed if excludes.contains("*") => {
            if excludes.len() > 1 {
                errors.push(lone("excludes"));
            }
            if !includes.is_empty() {
                errors.push("when exclude is '*', include cannot have value".to_owned());
            }
        }
        _ => {}
    }
    for item in excludes.intersection(&includes) {
        errors.push(format!(
            "excludes list cannot contain an item in the includes list: {item}"
        ));
    }
    errors
}

/// What is wrong with namespaces as patterns.
pub(crate) fn check_patterns(namespaces: &[String]) -> Vec<String> {
    let patterns: BTreeSet<&str> = namespaces.iter().map(String::as_str).collect();
    patterns.into_iter().filter_map(pattern_error).collect()
}

fn pattern_error(pattern: &str) -> Option<String> {
    if pattern.contains(['|', '(', ')', '!', '{', '}', ',']) {
        return Some(
            "wildcard pattern contains unsupported characters: |, (, ), !, {, }, ,".to_owned(),
        );
    }
    if pattern.contains("**") {
        return Some(
            "wildcard pattern contains consecutive asterisks (only single * allowed)".to_owned(),
        );
    }
    let mut rest = pattern;
    while let Some(at) = rest.find(['[', ']']) {
        if rest[at..].starts_with(']') {
            return Some("wildcard pattern contains unmatched closing bracket ']'".to_owned());
        }
        let inside = &rest[at + 1..];
        match inside.find(']') {
            None => return Some("wildcard pattern contains unclosed bracket '['".to_owned()),
            Some(0) => {
                return Some("wildcard pattern contains empty bracket pattern '[]'".to_owned());
            }
            Some(end) => rest = &inside[end + 1..],
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_subdomains() {
        for good in ["a", "a-b", "nightly-20261115032147", "a.b", "0"] {
            assert_eq!(check_name("backup", good, 253), Ok(()), "{good}");
        }
        for bad in ["", "UPPER", "-a", "a-", "a..b", "a_b", "a/b", "../x", "é"] {
            assert!(check_name("backup", bad, 253).is_err(), "{bad}");
        }
        assert!(check_name("backup", &"a".repeat(254), 253).is_err());
    }

    #[test]
    fn labels_are_checked_by_key_and_value() {
        let labels = |k: &str, v: &str| StringMap::from([(k.to_owned(), v.to_owned())]);
        for (key, value, good) in [
            ("team", "red", true),
            ("velero.io/x", "", true),
            ("a b", "x", false),
            ("UPPER/x", "x", false),
            ("x", "-x", false),
            ("x", "a b", false),
        ] {
            let got = check_labels(Some(&labels(key, value)));
            assert_eq!(got.is_ok(), good, "{key}={value}");
        }
    }

    #[test]
    fn lists_that_contradict_themselves_are_named() {
        let list = |text: &str| -> Vec<String> {
            let parts = text.split(',').filter(|p| !p.is_empty());
            parts.map(str::to_owned).collect()
        };
        use ExcludeAll::{Allowed, Refused};
        for (included, excluded, exclude_all, errors) in [
            ("*", "", Refused, 0),
            ("a,b", "b", Refused, 1),
            ("*,a", "", Refused, 1),
            ("a", "*", Refused, 1),
            ("", "*", Allowed, 0),
            ("a", "*", Allowed, 1),
            ("", "*,b", Allowed, 1),
        ] {
            let got = check_lists(&list(included), &list(excluded), exclude_all);
            assert_eq!(got.len(), errors, "{included} {excluded}: {got:?}");
        }
    }

    #[test]
    fn patterns_are_globs() {
        for (pattern, good) in [
            ("*", true),
            ("a*b?", true),
            ("a[bc]d", true),
            ("bad**glob", false),
            ("a|b", false),
            ("a[", false),
            ("a[]", false),
            ("a]", false),
        ] {
            assert_eq!(pattern_error(pattern).is_none(), good, "{pattern}");
        }
    }
}
