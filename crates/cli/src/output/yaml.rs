//! YAML in the spelling of the Go library that Velero and kubectl print with: sorted keys, lists not
//! indented, quotes only where a plain word would read as something else, folding after 80 columns.

mod words;

use std::{cmp::Ordering, fmt::Write};

use serde_json::Value;

/// Where long lines are folded.
const WIDTH: usize = 80;

/// The value as one YAML document, ending in a newline.
pub(crate) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(map, 0, &mut out),
        Value::Array(list) if !list.is_empty() => sequence(list, 0, &mut out),
        other => {
            scalar(other, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Key and value lines; the first line is expected to be indented already.
fn mapping(map: &serde_json::Map<String, Value>, indent: usize, out: &mut String) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_by(|a, b| natural(a, b));
    for (at, key) in keys.into_iter().enumerate() {
        if at > 0 {
            spaces(indent, out);
        }
        text(key, indent, Place::Key, out);
        out.push(':');
        match &map[key] {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                spaces(indent + 2, out);
                mapping(inner, indent + 2, out);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push('\n');
                spaces(indent, out);
                sequence(inner, indent, out);
            }
            leaf => {
                out.push(' ');
                scalar(leaf, indent, out);
                out.push('\n');
            }
        }
    }
}

fn sequence(list: &[Value], indent: usize, out: &mut String) {
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            spaces(indent, out);
        }
        out.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => mapping(inner, indent + 2, out),
            Value::Array(inner) if !inner.is_empty() => sequence(inner, indent + 2, out),
            leaf => {
                scalar(leaf, indent, out);
                out.push('\n');
            }
        }
    }
}

fn scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(words) => text(words, indent, Place::Value, out),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn spaces(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', count));
}

/// Whether a text stands as a key, which is never folded, or as a value.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Key,
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

fn text(words: &str, indent: usize, place: Place, out: &mut String) {
    let traits = Traits::of(words);
    let style = match () {
        () if words.contains('\n') && traits.block && place == Place::Value => Style::Literal,
        () if words.contains('\n') => Style::Double,
        () if words::reads_as_other(words) => Style::Double,
        () if traits.plain => Style::Plain,
        () if traits.single => Style::Single,
        () => Style::Double,
    };
    match style {
        Style::Plain => folded(words, indent, place, "", out),
        Style::Single => folded(words, indent, place, "'", out),
        Style::Double => double(words, indent, place, out),
        Style::Literal => literal(words, indent, out),
    }
}

/// What a text holds that keeps it from being written in some style.
struct Traits {
    plain: bool,
    single: bool,
    block: bool,
}

impl Traits {
    fn of(words: &str) -> Self {
        let all: Vec<char> = words.chars().collect();
        let last = all.len().saturating_sub(1);
        let mut indicators = words.starts_with("---") || words.starts_with("...");
        let (mut special, mut breaks) = (false, false);
        let (mut edge_blank, mut trailing_space) = (false, false);
        let (mut space_break, mut break_space) = (false, false);
        let (mut was_space, mut was_break, mut after_blank) = (false, false, true);
        for (at, &c) in all.iter().enumerate() {
            let before_blank = all.get(at + 1).is_none_or(|&next| is_blank(next));
            indicators |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
                | '%' | '@' | '`'
                    if at == 0 =>
                {
                    true
                }
                '?' | '-' if at == 0 => before_blank,
                ':' => before_blank,
                '#' => after_blank,
                _ => false,
            };
            special |= !is_printable(c);
            if c == ' ' {
                edge_blank |= at == 0 || at == last;
                trailing_space |= at == last;
                break_space |= was_break;
                (was_space, was_break) = (true, false);
            } else if is_break(c) {
                breaks = true;
                edge_blank |= at == 0 || at == last;
                space_break |= was_space;
                (was_space, was_break) = (false, true);
            } else {
                (was_space, was_break) = (false, false);
            }
            after_blank = is_blank(c);
        }
        let hard = space_break || special;
        Self {
            plain: !(edge_blank || break_space || hard || breaks || indicators),
            single: !(break_space || hard),
            block: !(trailing_space || hard),
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t') || is_break(c)
}

/// Characters beyond the basic plane count as not printable, and so are escaped.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

/// Plain or single-quoted, broken at single spaces once a line is full.
fn folded(words: &str, indent: usize, place: Place, quote: &str, out: &mut String) {
    let all: Vec<char> = words.chars().collect();
    let mut column = column_of(out) + quote.len();
    out.push_str(quote);
    let mut was_space = false;
    for (at, &c) in all.iter().enumerate() {
        let next_is_space = all.get(at + 1) == Some(&' ');
        let inside = quote.is_empty() || (at > 0 && at + 1 < all.len());
        let may_break = place == Place::Value && inside && !was_space && !next_is_space;
        if c == ' ' && may_break && column > WIDTH {
            out.push('\n');
            spaces(indent + 2, out);
            column = indent + 2;
        } else {
            out.push(c);
            column += 1;
            if c == '\'' && !quote.is_empty() {
                out.push('\'');
                column += 1;
            }
        }
        was_space = c == ' ';
    }
    out.push_str(quote);
}

fn double(words: &str, indent: usize, place: Place, out: &mut String) {
    let all: Vec<char> = words.chars().collect();
    let mut line_start = out.rfind('\n').map_or(0, |at| at + 1);
    out.push('"');
    let mut was_space = false;
    for (at, &c) in all.iter().enumerate() {
        let column = out[line_start..].chars().count();
        let inside = at > 0 && at + 1 < all.len();
        if c == ' ' && place == Place::Value && inside && !was_space && column > WIDTH {
            out.push('\n');
            line_start = out.len();
            spaces(indent + 2, out);
            if all[at + 1] == ' ' {
                out.push('\\');
            }
        } else {
            escaped(c, out);
        }
        was_space = c == ' ';
    }
    out.push('"');
}

fn escaped(c: char, out: &mut String) {
    let short = match c {
        '\0' => "\\0",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        '\u{1b}' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        _ => "",
    };
    let _ = match u32::from(c) {
        _ if !short.is_empty() => write!(out, "{short}"),
        _ if is_printable(c) => write!(out, "{c}"),
        code @ ..=0xff => write!(out, "\\x{code:02X}"),
        code @ ..=0xffff => write!(out, "\\u{code:04X}"),
        code => write!(out, "\\U{code:08X}"),
    };
}

fn literal(words: &str, indent: usize, out: &mut String) {
    out.push('|');
    if words.starts_with([' ', '\n']) {
        out.push('2');
    }
    if !words.ends_with('\n') {
        out.push('-');
    } else if words.ends_with("\n\n") || words == "\n" {
        out.push('+');
    }
    let body = words.strip_suffix('\n').unwrap_or(words);
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            spaces(indent + 2, out);
        }
        out.push_str(line);
    }
}

fn column_of(out: &str) -> usize {
    let line_start = out.rfind('\n').map_or(0, |at| at + 1);
    out[line_start..].chars().count()
}

/// The order of keys: letters after everything else, digits by their value.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(x, y)| x != y) else {
        return a.len().cmp(&b.len());
    };
    let (x, y) = (a[at], b[at]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros in the middle of a number belong to it.
    let in_number = (x == '0' || y == '0')
        && a[..at]
            .iter()
            .rev()
            .take_while(|c| c.is_ascii_digit())
            .any(|&c| c != '0');
    let number = |all: &[char]| {
        let digits = all[at..].iter().map_while(|c| c.to_digit(10));
        digits.fold((u64::from(in_number), 0_usize), |(value, length), digit| {
            (
                value.wrapping_mul(10).wrapping_add(u64::from(digit)),
                length + 1,
            )
        })
    };
    number(&a).cmp(&number(&b)).then(x.cmp(&y))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn words_are_quoted_as_the_go_library_quotes_them() {
        for golden in [
            include_str!("../../tests/golden/yaml/words.yaml"),
            include_str!("../../tests/golden/yaml/lines.yaml"),
        ] {
            let value: Value = serde_saphyr::from_str(golden).unwrap();
            assert_eq!(to_string(&value), golden);
        }
    }

    #[test]
    fn structure_is_that_of_the_go_library() {
        let value = json!({"a": [{"b": 1, "a": {}}, [1, [2]], [], "x"], "n": null, "z": {"y": []}});
        assert_eq!(
            to_string(&value),
            "a:\n- a: {}\n  b: 1\n- - 1\n  - - 2\n- []\n- x\n\"n\": null\nz:\n  \"y\": []\n"
        );
        assert_eq!(to_string(&json!({})), "{}\n");
    }

    #[test]
    fn keys_are_in_natural_order() {
        let mut keys = ["b10", "b9", "b", "B", "a/c", "a.c", "1", "10", "2", "b09"];
        keys.sort_by(|a, b| natural(a, b));
        assert_eq!(
            keys,
            ["1", "2", "10", "B", "a.c", "a/c", "b", "b9", "b09", "b10"]
        );
    }
}
