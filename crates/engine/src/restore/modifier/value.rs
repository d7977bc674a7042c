//! The values of patches are texts; what they mean is told by how they look.

use serde_json::{Number, Value};

/// `null`, `true`, `false`, numbers, and what begins with `{` or `[` are what they look like;
/// everything else is a string, and so is what stands in double quotes.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let quoted = text.strip_prefix('"');
    if let Some(inner) = quoted
        && text.ends_with('"')
    {
        let inner = inner.strip_suffix('"').unwrap_or_default();
        return Ok(unescaped(inner).into());
    }
    if text == "null" {
        return Ok(Value::Null);
    }
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        return Ok(text.eq_ignore_ascii_case("true").into());
    }
    if text.starts_with(['{', '[']) {
        return serde_json::from_str(text).map_err(|why| format!("{text:?} is not JSON: {why}"));
    }
    match serde_json::from_str::<Number>(text) {
        Ok(number) if text.trim() == text => Ok(whole(number).into()),
        _ => Ok(unescaped(text).into()),
    }
}

/// Texts are pasted between quotes, so escapes count if they are sound.
pub(super) fn unescaped(text: &str) -> String {
    match text.contains('\\') {
        true => serde_json::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| text.to_owned()),
        false => text.to_owned(),
    }
}

/// `3.0` goes into fields that take whole numbers.
fn whole(number: Number) -> Number {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_what_they_look_like() {
        for (text, value) in [
            ("", json!("")),
            ("web", json!("web")),
            ("null", json!(null)),
            ("Null", json!("Null")),
            ("true", json!(true)),
            ("False", json!(false)),
            ("1", json!(1)),
            ("-1.5", json!(-1.5)),
            ("3.0", json!(3)),
            ("1e3", json!(1000)),
            ("007", json!("007")),
            ("1.2.3", json!("1.2.3")),
            ("10Gi", json!("10Gi")),
            (" 1", json!(" 1")),
            (r#""1""#, json!("1")),
            (r#""true""#, json!("true")),
            (r#""null""#, json!("null")),
            (r#""""#, json!("")),
            (r#"""#, json!("")),
            (r#"{"a": [1, "b"]}"#, json!({"a": [1, "b"]})),
            ("[]", json!([])),
            (r"a\nb", json!("a\nb")),
            (r"C:\path", json!(r"C:\path")),
            ("say \"hi\"", json!("say \"hi\"")),
            ("two\nlines", json!("two\nlines")),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
        let why = parse("{a: 1}").unwrap_err();
        assert!(why.starts_with("\"{a: 1}\" is not JSON: "), "{why}");
    }
}
