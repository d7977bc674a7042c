//! The JSONPath of CRD printer columns, as client-go reads it: fields with `\.`
//! escapes, `['key']`, indexes, slices, unions, `*`, `..` and `[?(left op right)]`.
//!
//! A path that cannot be walked (an index out of bounds, a filter over something
//! that is no list, a comparison across types) has no value, like a missing key.

use serde_json::Value;
use std::cmp::Ordering;

/// A parsed path.
#[derive(Debug)]
pub(super) struct Path(Vec<Step>);

#[derive(Debug)]
enum Step {
    Field(String),
    Everything,
    Recursive,
    Slice {
        start: Option<i64>,
        end: End,
        step: Option<i64>,
    },
    Union(Vec<Path>),
    Filter {
        left: Path,
        test: Option<(String, Path)>,
    },
    Literal(Value),
}

#[derive(Debug)]
enum End {
    /// `[n]`
    One,
    /// `[n:]`
    Open,
    /// `[n:m]`
    At(i64),
}

impl Path {
    /// Reads a path without its braces.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(filter) = rest.strip_prefix("[?(") {
                let end = filter_end(filter)?;
                steps.push(Step::filter(&filter[..end])?);
                rest = filter[end + 1..].strip_prefix(']')?;
            } else if let Some(after) = rest.strip_prefix("..") {
                if matches!(steps.last(), Some(Step::Recursive)) {
                    return None;
                }
                steps.push(Step::Recursive);
                rest = after;
                if after.starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
                    rest = Step::field(after, &mut steps);
                }
            } else if let Some(after) = rest.strip_prefix([' ', '@', '$']) {
                rest = after;
            } else if let Some(after) = rest.strip_prefix('[') {
                let (inside, after) = after.split_once(']')?;
                Step::bracket(inside, &mut steps)?;
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                rest = Step::field(after, &mut steps);
            } else if first == '"' || first == '\'' {
                let end = quote_end(&rest[1..], first)?;
                let text = rest[1..=end].replace(&format!("\\{first}"), &first.to_string());
                steps.push(Step::Literal(Value::String(text)));
                rest = &rest[end + 2..];
            } else {
                let end = rest.find([' ', ',', '[', ']']).unwrap_or(rest.len());
                let word = rest[..end].trim_start_matches('+');
                let literal = serde_json::from_str(word).ok()?;
                steps.push(Step::Literal(literal));
                rest = &rest[end..];
            }
        }
        Some(Self(steps))
    }

    /// The first value the path leads to.
    pub(super) fn first<'a>(&'a self, object: &'a Value) -> Option<&'a Value> {
        self.walk(vec![object])?.first().copied()
    }

    fn walk<'a>(&'a self, from: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
        self.0.iter().try_fold(from, |at, step| step.walk(at))
    }
}

/// Where the `)` is that ends a filter: not one in quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut before = ' ';
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            (None, ')') => return Some(index),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter && before != '\\' => quote = None,
            _ => {}
        }
        before = letter;
    }
    None
}

fn quote_end(text: &str, quote: char) -> Option<usize> {
    text.match_indices(quote)
        .map(|(index, _)| index)
        .find(|index| !text[..*index].ends_with('\\'))
}

impl Step {
    /// Reads a field name up to the next unescaped stop.
    fn field<'t>(text: &'t str, steps: &mut Vec<Self>) -> &'t str {
        let mut name = String::new();
        let mut end = text.len();
        let mut escaped = false;
        for (index, letter) in text.char_indices() {
            match letter {
                '\\' if !escaped => escaped = true,
                ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
                    if !escaped =>
                {
                    end = index;
                    break;
                }
                _ => {
                    escaped = false;
                    // Every backslash goes, also an escaped one.
                    if letter != '\\' {
                        name.push(letter);
                    }
                }
            }
        }
        steps.push(match name.as_str() {
            "*" => Self::Everything,
            _ => Self::Field(name),
        });
        &text[end..]
    }

    fn bracket(inside: &str, steps: &mut Vec<Self>) -> Option<()> {
        if inside.contains(',') {
            let paths = inside
                .split(',')
                .map(|part| Path::parse(&format!("[{}]", part.trim())));
            steps.push(Self::Union(paths.collect::<Option<_>>()?));
            return Some(());
        }
        if let Some(key) = inside
            .strip_prefix('\'')
            .and_then(|key| key.strip_suffix('\''))
        {
            steps.extend(Path::parse(&format!(".{key}"))?.0);
            return Some(());
        }
        let inside = if inside == "*" { ":" } else { inside };
        let mut parts = inside.splitn(3, ':').map(|part| match part {
            "" => Some(None),
            _ => part.parse().ok().map(Some),
        });
        steps.push(Self::Slice {
            start: parts.next()??,
            end: match parts.next() {
                None => End::One,
                Some(end) => end?.map_or(End::Open, End::At),
            },
            step: parts.next().unwrap_or(Some(None))?,
        });
        Some(())
    }

    fn filter(text: &str) -> Option<Self> {
        const OPERATORS: [char; 4] = ['!', '<', '>', '='];
        let Some(start) = text.find(OPERATORS).filter(|start| *start > 0) else {
            return Some(Self::Filter {
                left: Path::parse(text)?,
                test: None,
            });
        };
        let (left, rest) = text.split_at(start);
        let right = rest.trim_start_matches(OPERATORS);
        let operator = rest[..rest.len() - right.len()].to_owned();
        Some(Self::Filter {
            left: Path::parse(left)?,
            test: Some((operator, Path::parse(right)?)),
        })
    }

    fn walk<'a>(&'a self, from: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
        let mut found = Vec::new();
        match self {
            Self::Literal(value) => return Some(vec![value]),
            Self::Field(name) => found.extend(from.iter().filter_map(|at| at.get(name))),
            Self::Everything => found.extend(from.into_iter().flat_map(children)),
            Self::Recursive => from.into_iter().for_each(|at| descend(at, &mut found)),
            Self::Union(paths) => {
                for path in paths {
                    found.extend(path.walk(from.clone())?);
                }
            }
            Self::Slice { start, end, step } => {
                for at in from.into_iter().filter(|at| !at.is_null()) {
                    let list = at.as_array()?;
                    let range = bounds(*start, end, i64::try_from(list.len()).ok()?)?;
                    let step = usize::try_from(step.unwrap_or(1)).ok()?;
                    if step == 0 {
                        return None;
                    }
                    found.extend(list.get(range)?.iter().step_by(step));
                }
            }
            Self::Filter { left, test } => {
                for at in from {
                    for item in at.as_array()? {
                        let left = left.walk(vec![item]);
                        let pass = match test {
                            None => left.is_some_and(|left| !left.is_empty()),
                            Some((operator, right)) => {
                                match (left?.as_slice(), right.walk(vec![item])?.as_slice()) {
                                    ([], _) | (_, []) => false,
                                    ([left], [right]) => holds(left, operator, right)?,
                                    _ => return None,
                                }
                            }
                        };
                        if pass {
                            found.push(item);
                        }
                    }
                }
            }
        }
        Some(found)
    }
}

fn children(at: &Value) -> Vec<&Value> {
    match at {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(at: &'a Value, found: &mut Vec<&'a Value>) {
    let inside = children(at);
    if !inside.is_empty() {
        found.push(at);
        inside.into_iter().for_each(|child| descend(child, found));
    }
}

fn bounds(start: Option<i64>, end: &End, len: i64) -> Option<std::ops::Range<usize>> {
    let from_end = |index: i64| {
        if index < 0 {
            index.saturating_add(len)
        } else {
            index
        }
    };
    let start = from_end(start.unwrap_or(0));
    let end = match end {
        End::One => start.checked_add(1)?,
        End::Open => len,
        End::At(end) => from_end(*end),
    };
    // Asking for nothing is no mistake wherever it is asked.
    if start == end {
        return Some(0..0);
    }
    if !(0..len).contains(&start) || end > len || end < start {
        return None;
    }
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

fn holds(left: &Value, operator: &str, right: &Value) -> Option<bool> {
    let ordering = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
            }
        }
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, "==" | "!=") => {
            left.cmp(right)
        }
        _ => return None,
    };
    Some(match operator {
        "==" => ordering == Ordering::Equal,
        "!=" => ordering != Ordering::Equal,
        "<" => ordering == Ordering::Less,
        "<=" => ordering != Ordering::Greater,
        ">" => ordering == Ordering::Greater,
        ">=" => ordering != Ordering::Less,
        _ => return None,
    })
}

/// A value in a string column, as Go prints it.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => print_float(float),
            _ => number.to_string(),
        },
        Value::Bool(_) => value.to_string(),
        // Go's encoder keeps JSON safe to put into HTML.
        Value::Array(_) | Value::Object(_) => value
            .to_string()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026"),
    }
}

fn print_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let exponent = |text: &str| text.parse::<i32>().ok();
    match scientific.split_once('e') {
        Some((digits, power)) => match exponent(power) {
            Some(power) if !(-4..6).contains(&power) => {
                let sign = if power < 0 { '-' } else { '+' };
                format!("{digits}e{sign}{:02}", power.abs())
            }
            _ => float.to_string(),
        },
        None => scientific,
    }
}
