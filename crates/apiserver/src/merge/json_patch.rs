//! JSON patches (RFC 6902), with the liberties that Go's implementation takes: negative indices
//! count from the end, and testing for `null` succeeds where there is nothing.

use serde_json::Value;

/// Why a JSON patch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPatch {
    /// A `test` found something else at this path.
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
    /// There is nothing at this path.
    #[error("{operation} operation does not apply: doc is missing path: {path}: missing value")]
    Missing {
        /// The operation's name.
        operation: String,
        /// The path, or where `from` points to.
        path: String,
    },
    /// The operation itself makes no sense.
    #[error("invalid operation {0}")]
    Odd(String),
}

/// What replacing a field does that is not there. Go's implementations disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// The field is added: so does the API server.
    Added,
    /// The patch is refused.
    Refused,
}

/// The patched document.
pub fn json_patch(document: &Value, patch: &[Value], absent: Absent) -> Result<Value, BadPatch> {
    let mut document = document.clone();
    for operation in patch {
        step(&mut document, operation, absent)?;
    }
    Ok(document)
}

fn step(document: &mut Value, operation: &Value, absent: Absent) -> Result<(), BadPatch> {
    let odd = || BadPatch::Odd(operation.to_string());
    let name = operation["op"].as_str().ok_or_else(odd)?;
    let missing = |path: &str| BadPatch::Missing {
        operation: name.to_owned(),
        path: path.to_owned(),
    };
    let text = operation["path"].as_str().ok_or_else(odd)?;
    let path = pointer(text).ok_or_else(|| missing(text))?;
    let value = || operation.get("value").cloned().ok_or_else(odd);
    let from = || {
        let text = operation["from"].as_str().ok_or_else(odd)?;
        let from = pointer(text).ok_or_else(|| missing(text))?;
        Ok::<_, BadPatch>((text, from))
    };
    let here = || missing(text);
    match name {
        "add" => add(document, &path, value()?).ok_or_else(here),
        "remove" => remove(document, &path).map(drop).ok_or_else(here),
        "replace" => {
            let value = value()?;
            match (find_mut(document, &path), absent) {
                (Some(place), _) => *place = value,
                (None, Absent::Added) => add_field(document, &path, value).ok_or_else(here)?,
                (None, Absent::Refused) => return Err(here()),
            }
            Ok(())
        }
        "move" => {
            let (text, from) = from()?;
            let moved = remove(document, &from).ok_or_else(|| missing(text))?;
            add(document, &path, moved).ok_or_else(here)
        }
        "copy" => {
            let (text, from) = from()?;
            let copied = find(document, &from).cloned();
            let copied = copied.ok_or_else(|| missing(text))?;
            add(document, &path, copied).ok_or_else(here)
        }
        "test" => {
            if let Some((_, parent)) = path.split_last() {
                find(document, parent).ok_or_else(here)?;
            }
            let expected = operation.get("value").unwrap_or(&Value::Null);
            match find(document, &path).unwrap_or(&Value::Null) == expected {
                true => Ok(()),
                false => Err(BadPatch::TestFailed(text.to_owned())),
            }
        }
        _ => Err(odd()),
    }
}

/// Adds a field of an object; lists are not for it.
fn add_field(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    let (_, parent) = path.split_last()?;
    find(document, parent)?.as_object()?;
    add(document, path, value)
}

/// The steps of a JSON pointer.
fn pointer(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let steps = text.strip_prefix('/')?.split('/');
    Some(
        steps
            .map(|step| step.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

fn find<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, step| match value {
        Value::Object(object) => object.get(step),
        Value::Array(items) => items.get(index(step, items.len())?),
        _ => None,
    })
}

fn find_mut<'a>(document: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |value, step| match value {
        Value::Object(object) => object.get_mut(step),
        Value::Array(items) => {
            let at = index(step, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    })
}

fn add(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    let Some((last, parent)) = path.split_last() else {
        *document = value;
        return Some(());
    };
    match find_mut(document, parent)? {
        Value::Object(object) => drop(object.insert(last.clone(), value)),
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(last, items.len() + 1)?;
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parent) = path.split_last()?;
    match find_mut(document, parent)? {
        Value::Object(object) => object.remove(last),
        Value::Array(items) => {
            let at = index(last, items.len())?;
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}

fn index(step: &str, length: usize) -> Option<usize> {
    let number: i64 = step.parse().ok()?;
    match number < 0 {
        true => length.checked_sub(usize::try_from(number.unsigned_abs()).ok()?),
        false => usize::try_from(number).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Absent, BadPatch, json_patch};

    fn patched(document: Value, patch: Value) -> Result<Value, BadPatch> {
        json_patch(&document, patch.as_array().unwrap(), Absent::Added)
    }

    #[test]
    fn operations_apply_in_order() {
        let document = json!({"a": {"b": [1, 2, 3]}, "c": "d"});
        let patch = json!([
            {"op": "test", "path": "/a/missing", "value": null},
            {"op": "add", "path": "/a/b/-", "value": 4},
            {"op": "add", "path": "/a/b/0", "value": 0},
            {"op": "remove", "path": "/a/b/-1"},
            {"op": "replace", "path": "/c", "value": {"x/y": 1}},
            {"op": "move", "from": "/c/x~1y", "path": "/moved"},
            {"op": "copy", "from": "/a/b", "path": "/copied"},
        ]);
        assert_eq!(
            patched(document, patch),
            Ok(json!({"a": {"b": [0, 1, 2, 3]}, "c": {}, "moved": 1, "copied": [0, 1, 2, 3]}))
        );
    }

    #[test]
    fn what_does_not_apply_is_refused_whole() {
        let missing = |operation: &str, path: &str| BadPatch::Missing {
            operation: operation.to_owned(),
            path: path.to_owned(),
        };
        let odd = |operation: &Value| BadPatch::Odd(operation.to_string());
        for (operation, why) in [
            (
                json!({"op": "test", "path": "/a", "value": 2}),
                Some(BadPatch::TestFailed("/a".to_owned())),
            ),
            (
                json!({"op": "test", "path": "/missing/deep", "value": null}),
                Some(missing("test", "/missing/deep")),
            ),
            (
                json!({"op": "remove", "path": "/missing"}),
                Some(missing("remove", "/missing")),
            ),
            (
                json!({"op": "replace", "path": "/list/0", "value": 1}),
                Some(missing("replace", "/list/0")),
            ),
            (
                json!({"op": "add", "path": "/missing/deep", "value": 1}),
                Some(missing("add", "/missing/deep")),
            ),
            (
                json!({"op": "add", "path": "/list/9", "value": 1}),
                Some(missing("add", "/list/9")),
            ),
            (
                json!({"op": "add", "path": "/list/-9", "value": 1}),
                Some(missing("add", "/list/-9")),
            ),
            (
                json!({"op": "copy", "from": "/missing", "path": "/b"}),
                Some(missing("copy", "/missing")),
            ),
            (
                json!({"op": "add", "path": "no-slash", "value": 1}),
                Some(missing("add", "no-slash")),
            ),
            (json!({"op": "frobnicate", "path": "/a"}), None),
            (json!({"op": "copy", "path": "/b"}), None),
            (json!({"op": "add", "path": "/b"}), None),
            (json!("nonsense"), None),
        ] {
            let why = why.unwrap_or_else(|| odd(&operation));
            assert_eq!(
                patched(json!({"a": 1, "list": []}), json!([operation])),
                Err(why)
            );
        }
    }

    #[test]
    fn replacing_what_is_not_there_adds_it_or_is_refused() {
        let patch = [json!({"op": "replace", "path": "/a/b", "value": 1})];
        let document = json!({"a": {}});
        assert_eq!(
            json_patch(&document, &patch, Absent::Added),
            Ok(json!({"a": {"b": 1}}))
        );
        assert_eq!(
            json_patch(&document, &patch, Absent::Refused)
                .unwrap_err()
                .to_string(),
            "replace operation does not apply: doc is missing path: /a/b: missing value"
        );
    }
}
