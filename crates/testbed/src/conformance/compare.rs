//! Says where two values differ, in lines that a person can read.

use std::collections::BTreeSet;

use serde_json::Value;

/// More than this per case says nothing new.
const MOST: usize = 12;

/// The differences between what was recorded and what was answered; empty if there are none.
pub(super) fn differences(expected: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let (Some(all), Some(given)) = (expected.as_array(), got.as_array()) else {
        return vec!["there is no recording of this case".to_owned()];
    };
    if all.len() != given.len() {
        return vec!["the recording is of other steps: record again".to_owned()];
    }
    for (expected, got) in all.iter().zip(given) {
        let mut lines = Vec::new();
        compare("", expected, got, &mut lines);
        let step = expected["step"].as_str().unwrap_or_default();
        found.extend(lines.into_iter().map(|line| format!("{step}: {line}")));
    }
    if found.len() > MOST {
        let more = found.len() - MOST;
        found.truncate(MOST);
        found.push(format!("and {more} more"));
    }
    found
}

fn compare(path: &str, expected: &Value, got: &Value, found: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => compare(&path, a, b, found),
                    (Some(a), None) => {
                        found.push(format!("{path} is missing; expected {}", short(a)))
                    }
                    (None, Some(b)) => {
                        found.push(format!("{path} is not expected; got {}", short(b)))
                    }
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                found.push(format!(
                    "{path} expected {} entries, got {}: {} / {}",
                    a.len(),
                    b.len(),
                    short(expected),
                    short(got)
                ));
                return;
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}.{index}"), a, b, found);
            }
        }
        (a, b) if a != b => found.push(format!("{path} expected {}, got {}", short(a), short(b))),
        _ => {}
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_the_step_and_the_path() {
        let expected = json!([{ "step": "GET /a", "body": { "a": [1, 2], "b": 1 } }]);
        let got = json!([{ "step": "GET /a", "body": { "a": [1, 3], "c": 1 } }]);
        assert_eq!(
            differences(&expected, &got),
            [
                "GET /a: .body.a.1 expected 2, got 3",
                "GET /a: .body.b is missing; expected 1",
                "GET /a: .body.c is not expected; got 1",
            ]
        );
        assert!(differences(&expected, &expected).is_empty());
        assert_eq!(differences(&Value::Null, &got).len(), 1);
    }
}
