//! Label selectors: read from Kubernetes' text form, and shown in it again.

use std::str::FromStr;

use bowline_engine::selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A selector flag: `app=web,tier in (a,b),!x`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selector(pub(crate) LabelSelector);

/// Selectors joined by ` or `.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrSelector(pub(crate) Vec<LabelSelector>);

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        selector::parse(text)
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
    selector::to_query(selector).unwrap_or_else(|_| "<error>".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_come_back_as_kubernetes_writes_them() {
        let selector: Selector = " b = c , a!=d ".parse().unwrap();
        assert_eq!(show(Some(&selector.0)), "a notin (d),b=c");
        let none: Selector = "".parse().unwrap();
        assert_eq!(show(Some(&none.0)), "<none>");
        let error = "a=b,,((".parse::<Selector>().unwrap_err();
        let expected = "couldn't parse the selector string \"a=b,,((\": found ','";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(show(None), "<none>");
    }

    #[test]
    fn alternatives_are_joined_by_or() {
        let selectors: OrSelector = "a=b or c in (d,e)".parse().unwrap();
        let shown: Vec<String> = selectors.0.iter().map(|s| show(Some(s))).collect();
        assert_eq!(shown, ["a=b", "c in (d,e)"]);
        assert!("a=b or ,".parse::<OrSelector>().is_err());
    }
}
