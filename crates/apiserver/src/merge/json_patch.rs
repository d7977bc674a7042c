//! JSON patches (RFC 6902), with the liberties that Go's implementation takes: negative indices
//! count from the end, and testing for `null` succeeds where there is nothing.

use serde_json::Value;

/// The patched document, or `None` if an operation is odd or does not apply.
pub(crate) fn apply(document: &Value, patch: &[Value]) -> Option<Value> {
    let mut document = document.clone();
    for operation in patch {
        let path = pointer(operation["path"].as_str()?)?;
        let value = operation.get("value");
        match operation["op"].as_str()? {
            "add" => add(&mut document, &path, value?.clone())?,
            "remove" => drop(remove(&mut document, &path)?),
            "replace" => match find_mut(&mut document, &path) {
                Some(place) => *place = value?.clone(),
                // In an object, replacing what is not there adds it.
                None => {
                    let (_, parent) = path.split_last()?;
                    find(&document, parent)?.as_object()?;
                    add(&mut document, &path, value?.clone())?;
                }
            },
            "move" => {
                let from = pointer(operation["from"].as_str()?)?;
                let moved = remove(&mut document, &from)?;
                add(&mut document, &path, moved)?;
            }
            "copy" => {
                let from = pointer(operation["from"].as_str()?)?;
                let copied = find(&document, &from)?.clone();
                add(&mut document, &path, copied)?;
            }
            "test" => {
                let expected = value.unwrap_or(&Value::Null);
                if find(&document, &path).unwrap_or(&Value::Null) != expected {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(document)
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

    use super::apply;

    fn patched(document: Value, patch: Value) -> Option<Value> {
        apply(&document, patch.as_array().unwrap())
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
            Some(json!({"a": {"b": [0, 1, 2, 3]}, "c": {}, "moved": 1, "copied": [0, 1, 2, 3]}))
        );
    }

    #[test]
    fn what_does_not_apply_is_refused_whole() {
        for operation in [
            json!({"op": "test", "path": "/a", "value": 2}),
            json!({"op": "remove", "path": "/missing"}),
            json!({"op": "replace", "path": "/list/0", "value": 1}),
            json!({"op": "add", "path": "/missing/deep", "value": 1}),
            json!({"op": "add", "path": "/list/9", "value": 1}),
            json!({"op": "add", "path": "/list/-9", "value": 1}),
            json!({"op": "frobnicate", "path": "/a"}),
            json!({"op": "add", "path": "no-slash", "value": 1}),
            json!({"op": "copy", "path": "/b"}),
            json!("nonsense"),
        ] {
            assert_eq!(
                patched(json!({"a": 1, "list": []}), json!([operation])),
                None,
                "{operation}"
            );
        }
    }
}
