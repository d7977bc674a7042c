//! Flag values in Velero's syntax: lists, maps, switches with a third position, durations.
//!
//! A list flag given twice replaces its earlier value; a map flag given twice adds to it.

pub(crate) mod filter;
pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod selector;

use std::{convert::Infallible, path::PathBuf, str::FromStr};

use bowline_api::{Duration, StringMap};

/// Go's booleans: `1`, `t`, `TRUE`, `False` and so on.
pub(crate) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

/// A switch that may be left alone: `--x`, `--x=false`, and `--x=` for neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OptionalBool(pub(crate) Option<bool>);

impl OptionalBool {
    /// The position of a flag that may not have been given at all.
    pub(crate) fn position(flag: Option<Self>) -> Option<bool> {
        flag.and_then(|flag| flag.0)
    }
}

impl FromStr for OptionalBool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Ok(Self(None)),
            text => truth(text).map(|value| Self(Some(value))),
        }
    }
}

/// `a,b,c`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List(pub(crate) Vec<String>);

impl FromStr for List {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.split(',').map(str::to_owned).collect()))
    }
}

impl List {
    /// The entries that say something, or nothing if there are none.
    pub(crate) fn entries(list: Option<&Self>) -> Option<Vec<String>> {
        let words = list.iter().flat_map(|list| &list.0);
        let entries: Vec<String> = words.filter(|word| !word.is_empty()).cloned().collect();
        (!entries.is_empty()).then_some(entries)
    }
}

/// `k1=v1,k2=v2`; an entry in double quotes may hold commas. What stands between key and value is
/// part of the type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Map<const BETWEEN: char = '='>(pub(crate) StringMap);

/// `a:b,c:d`.
pub(crate) type Mappings = Map<':'>;

impl<const BETWEEN: char> FromStr for Map<BETWEEN> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut map = StringMap::new();
        for entry in quoted_fields(text)? {
            let (key, value) = entry
                .split_once(BETWEEN)
                .ok_or_else(|| format!("error parsing {entry:?}: expected KEY{BETWEEN}VALUE"))?;
            map.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self(map))
    }
}

impl<const BETWEEN: char> Map<BETWEEN> {
    /// All that a repeated flag said, the last word on a key winning; none if it said nothing.
    pub(crate) fn merged(maps: &[Self]) -> Option<StringMap> {
        let merged: StringMap = maps.iter().flat_map(|map| map.0.clone()).collect();
        (!merged.is_empty()).then_some(merged)
    }
}

/// One line of comma-separated fields; a field that starts with a quote ends with one, and a quote
/// inside is written twice.
fn quoted_fields(text: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = text;
    if rest.is_empty() {
        return Ok(fields);
    }
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)
                .ok_or_else(|| format!("error parsing {text:?}: a quote is not closed"))?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => {
                return Err(format!(
                    "error parsing {text:?}: text after a closing quote"
                ));
            }
        }
    }
}

fn quoted_field(quoted: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let end = rest.find('"')?;
        field.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some((field, rest)),
        }
    }
}

/// A path; an empty one is as good as none, which scripts rely on.
pub(crate) fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

/// A length of time that is not negative, in Go's syntax.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let duration = Duration::from_str(text).map_err(|error| error.to_string())?;
    match duration.nanos() {
        Ok(nanos) if nanos < 0 => Err("must not be negative".to_owned()),
        _ => Ok(duration),
    }
}

/// `pods=ns1/a,ns1/b;persistentvolumes=x`.
pub(crate) fn ordered_resources(text: &str) -> Result<StringMap, String> {
    let mut orders = StringMap::new();
    for entry in text.split(';') {
        match entry.split('=').collect::<Vec<_>>()[..] {
            [kind, order] => orders.insert(kind.trim().to_owned(), order.trim().to_owned()),
            _ => return Err(format!("invalid OrderedResources '{entry}'")),
        };
    }
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        let owned = |&(k, v): &(&str, &str)| (k.to_owned(), v.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn maps_split_at_the_first_equals_sign_and_honour_quotes() {
        for (text, wanted) in [
            ("a=b", Ok(map(&[("a", "b")]))),
            ("a=b,c=d=e", Ok(map(&[("a", "b"), ("c", "d=e")]))),
            ("\"a=b,c\",d=", Ok(map(&[("a", "b,c"), ("d", "")]))),
            ("\"a=say \"\"hi\"\"\"", Ok(map(&[("a", "say \"hi\"")]))),
            ("", Ok(map(&[]))),
            ("novalue", Err(())),
            ("\"a=b", Err(())),
            ("\"a=b\"c", Err(())),
        ] {
            let got = text.parse::<Map>().map(|map| map.0).map_err(|_| ());
            assert_eq!(got, wanted, "{text}");
        }
    }

    #[test]
    fn a_repeated_map_adds_up() {
        let maps: [Map; 2] = ["a=1,b=2", "b=3"].map(|text| text.parse().unwrap());
        assert_eq!(Map::merged(&maps), Some(map(&[("a", "1"), ("b", "3")])));
        assert_eq!(Mappings::merged(&[]), None);
    }

    #[test]
    fn mappings_have_colons() {
        let mappings: Mappings = "a:b,c:d=e".parse().unwrap();
        assert_eq!(mappings.0, map(&[("a", "b"), ("c", "d=e")]));
        assert_eq!(
            "shop".parse::<Mappings>().unwrap_err(),
            "error parsing \"shop\": expected KEY:VALUE"
        );
    }

    #[test]
    fn switches_have_three_positions() {
        for (text, wanted) in [
            ("", Ok(OptionalBool(None))),
            ("true", Ok(OptionalBool(Some(true)))),
            ("0", Ok(OptionalBool(Some(false)))),
            ("maybe", Err(())),
        ] {
            assert_eq!(text.parse().map_err(|_: String| ()), wanted, "{text}");
        }
    }

    #[test]
    fn spans_are_not_negative() {
        assert_eq!(span("1h30m").unwrap().to_string(), "1h30m0s");
        assert_eq!(span("-5h").unwrap_err(), "must not be negative");
        assert!(span("tenhours").unwrap_err().contains("tenhours"));
    }

    #[test]
    fn ordered_resources_name_the_bad_entry() {
        assert_eq!(
            ordered_resources("pods=shop/a,shop/b; persistentvolumes = x"),
            Ok(map(&[
                ("pods", "shop/a,shop/b"),
                ("persistentvolumes", "x")
            ]))
        );
        assert_eq!(
            ordered_resources("a=b;pods").unwrap_err(),
            "invalid OrderedResources 'pods'"
        );
    }
}
