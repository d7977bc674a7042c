//! Strategic merge patches: maps merge by field and lists as the schema says, by merge key, by
//! value or not at all. A patch may also give orders: `$patch`, `$retainKeys`,
//! `$setElementOrder/<field>` and `$deleteFromPrimitiveList/<field>`.
//! Refusals carry the sentences of the real server, with Go's spelling of values.

use serde_json::{Map, Value};

use super::{merge_patch, settle};
use crate::{
    schema::{BUILT_IN, Schema, object_meta},
    status::{Result, Status},
};

type Fields = Map<String, Value>;

const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const BAD_ORDER: &str = "invalid patch format of setElementOrder list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";

/// The object that a strategic merge patch makes of another, by the schema of its kind. Of a kind
/// that is not built in only the metadata is known; the rest of it is merged as in RFC 7396.
///
/// # Errors
/// When the patch does not fit, in the words of the real server.
pub fn strategic_merge(
    api_version: &str,
    kind: &str,
    object: &Value,
    patch: &Value,
) -> Result<Value> {
    if let Some(schema) = BUILT_IN.schema(api_version, kind) {
        return strategic(object, patch, schema);
    }
    let (Value::Object(changes), Some(schema)) = (patch, object_meta()) else {
        return strategic(object, patch, &Schema::anything());
    };
    let mut merged = object.clone();
    merge_patch(&mut merged, patch);
    if let Some(change) = changes.get("metadata") {
        merged["metadata"] = strategic(&object["metadata"], change, schema)?;
    }
    Ok(merged)
}

/// The same with a schema at hand.
pub(crate) fn strategic(original: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let Value::Object(patch) = patch else {
        let kind = match patch {
            Value::Null => return Ok(original.clone()),
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            _ => "bool",
        };
        return Err(Status::bad_request(format!(
            "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )));
    };
    let original = original.as_object().cloned().unwrap_or_default();
    let mut merged = Value::Object(merge_fields(original, patch.clone(), schema)?);
    settle(&mut merged, schema);
    Ok(merged)
}

fn merge_fields(mut original: Fields, mut patch: Fields, schema: &Schema) -> Result<Fields> {
    match patch.get("$patch") {
        None => {}
        Some(directive) if directive == "replace" => {
            patch.remove("$patch");
            return Ok(patch);
        }
        Some(directive) if directive == "delete" => return Ok(Fields::new()),
        Some(directive) => return Err(unknown_directive(directive, &patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    set_order(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM) {
            Some(rest) => match rest.strip_prefix('/') {
                Some(name) => (name.to_owned(), true),
                None => {
                    return Err(Status::bad_request(
                        "invalid patch format of primitive list",
                    ));
                }
            },
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.get_mut(&key).map(Value::take), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let field = declared(schema, &key)?;
                Some(Value::Object(match strategy(field) {
                    "replace" => new,
                    _ => merge_fields(old, new, field)?,
                }))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let field = declared_list(schema, &key)?;
                Some(Value::Array(merge_handled(old, new, field, deletes)?))
            }
            (old, _) if deletes => old,
            (_, mut new) => {
                discard_nulls(&mut new);
                without_directives(new)
            }
        };
        match merged {
            Some(merged) => original.insert(key, merged),
            None => original.remove(&key),
        };
    }
    Ok(original)
}

fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<()> {
    let Some(keys) = patch.remove("$retainKeys") else {
        return Ok(());
    };
    let Value::Array(keys) = keys else {
        return Err(Status::bad_request(BAD_RETAIN_KEYS));
    };
    let listed = |name: &str| keys.iter().any(|key| key == name);
    let content = patch.iter().filter(|(name, value)| {
        !value.is_null() && !name.starts_with(DELETE_FROM) && !name.starts_with(SET_ORDER)
    });
    if content.into_iter().any(|(name, _)| !listed(name)) {
        return Err(Status::bad_request(BAD_RETAIN_KEYS));
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

fn set_order(original: &mut Fields, patch: &mut Fields, schema: &Schema) -> Result<()> {
    let orders: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for order_key in orders {
        let order = match patch.remove(&order_key) {
            Some(Value::Array(order)) => order,
            other => return Err(bad_type("[]interface {}", other.as_ref())),
        };
        let name = order_key
            .strip_prefix(SET_ORDER)
            .and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name else {
            return Err(Status::bad_request(BAD_ORDER));
        };
        let list_of = |fields: &Fields| match fields.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            other => Err(bad_type("[]interface {}", other)),
        };
        let (old, new) = (list_of(original)?, list_of(patch)?);
        let field = declared_list(schema, name)?;
        let key = field.merge_key.as_deref();
        check_order(new.as_deref().unwrap_or_default(), &order, key)?;
        let merged = match (old.clone(), new.clone()) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) => merge_handled(old, new, field, false)?,
        };
        let old = old.unwrap_or_default();
        element_kind(&[&old, new.as_deref().unwrap_or_default()])?;
        let ordered = in_order(merged, &order, &old, key)?;
        original.insert(name.to_owned(), Value::Array(ordered));
        patch.remove(name);
    }
    Ok(())
}

/// What a patch adds must be listed in the order, and in that order.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<()> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch {
        if key.is_some() && !item.is_object() {
            return Err(bad_type("map[string]interface {}", Some(item)));
        }
        if item.get("$patch").is_some() {
            continue;
        }
        let wanted = identity(item, key)?;
        loop {
            let Some(next) = rest.next() else {
                return Err(Status::new(
                    500,
                    "",
                    format!(
                        "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                        go_list(patch),
                        go_list(order)
                    ),
                ));
            };
            if identity(next, key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

fn merge_handled(
    old: Vec<Value>,
    new: Vec<Value>,
    field: &Schema,
    deletes: bool,
) -> Result<Vec<Value>> {
    match strategy(field) == "merge" || deletes {
        true => merge_lists(old, new, field, deletes),
        false => Ok(new),
    }
}

fn merge_lists(
    mut old: Vec<Value>,
    mut new: Vec<Value>,
    field: &Schema,
    deletes: bool,
) -> Result<Vec<Value>> {
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    let mut key = field.merge_key.as_deref();
    if element_kind(&[&old, &new])? != "map" {
        if deletes {
            old.retain(|item| !new.contains(item));
            return Ok(old);
        }
        key = None;
        let mut merged: Vec<Value> = Vec::new();
        for item in old.iter().chain(&new) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return in_order(merged, &new, &old, key);
    }
    let Some(key) = key else {
        return Err(Status::new(
            500,
            "",
            "cannot merge lists without merge key for struct",
        ));
    };
    let mut replaces = false;
    let mut plain = Vec::new();
    for item in std::mem::take(&mut new) {
        match item.get("$patch").and_then(Value::as_str) {
            None if item.get("$patch").is_none() => plain.push(item),
            Some("delete") => {
                let gone = identity(&item, Some(key))?;
                old.retain(|item| item.get(key) != Some(gone));
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(Status::new(
                    500,
                    "",
                    "merging lists cannot yet be specified in the patch",
                ));
            }
            _ => {
                let fields = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(&item["$patch"], &fields));
            }
        }
    }
    if replaces {
        return Ok(plain);
    }
    let mut merged = old.clone();
    let unknown = Schema::anything();
    for item in &plain {
        let wanted = identity(item, Some(key))?;
        let found = merged
            .iter_mut()
            .find(|other| other.get(key) == Some(wanted));
        match (found, item) {
            (Some(Value::Object(found)), Value::Object(fields)) => {
                let schema = field.item().unwrap_or(&unknown);
                *found = merge_fields(std::mem::take(found), fields.clone(), schema)?;
            }
            _ => merged.push(item.clone()),
        }
    }
    in_order(merged, &plain, &old, Some(key))
}

/// Items that the patch knows stand as in the patch, and those that only the server knows stay
/// before the items that they stood before.
fn in_order(
    merged: Vec<Value>,
    patch: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>> {
    for item in merged.iter().chain(patch).chain(server) {
        identity(item, key)?;
    }
    let place = |list: &[Value], item: &Value| {
        let wanted = identity(item, key).ok();
        list.iter()
            .position(|other| identity(other, key).ok() == wanted)
    };
    let (mut known, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| place(patch, item).is_some());
    known.sort_by_key(|item| place(patch, item));
    others.sort_by_key(|item| place(server, item));
    let mut known = known.into_iter().peekable();
    let mut all = Vec::new();
    for item in others {
        let here = place(server, &item);
        while let Some(next) = known.next_if(|next| {
            let there = place(server, next);
            here.is_none() || there.is_none() || there <= here
        }) {
            all.push(next);
        }
        all.push(item);
    }
    all.extend(known);
    Ok(all)
}

/// What tells an item from others: its merge key's value, or itself.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> Result<&'a Value> {
    let Some(key) = key else {
        return Ok(item);
    };
    let Value::Object(fields) = item else {
        return Err(bad_type("map[string]interface {}", Some(item)));
    };
    fields.get(key).ok_or_else(|| {
        let item = go(item);
        Status::new(
            500,
            "",
            format!("map: {item} does not contain declared merge key: {key}"),
        )
    })
}

fn element_kind(lists: &[&[Value]]) -> Result<&'static str> {
    let mut kinds = lists.iter().copied().flatten().map(go_type);
    match kinds.next() {
        None => Err(Status::new(
            500,
            "",
            "no elements in any of the given slices",
        )),
        Some("[]interface {}") => Err(Status::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )),
        Some(first) if kinds.any(|kind| kind != first) => {
            let lists: Vec<String> = lists.iter().map(|list| go_list(list)).collect();
            let lists = lists.join(" ");
            Err(Status::new(
                500,
                "",
                format!("list element types are not identical: [{lists}]"),
            ))
        }
        Some("map[string]interface {}") => Ok("map"),
        Some(kind) => Ok(kind),
    }
}

fn declared<'a>(schema: &'a Schema, name: &str) -> Result<&'a Schema> {
    let target = schema.resolve();
    if let Some(field) = target.properties.get(name) {
        return Ok(field);
    }
    Err(Status::new(
        500,
        "",
        if target.additional.is_some() {
            "merging an object in json but data type is not struct, instead is: map".to_owned()
        } else {
            let full = schema.raw["$ref"]
                .as_str()
                .and_then(|path| path.rsplit(['/', '.']).next());
            let own = target.raw["x-kubernetes-group-version-kind"][0]["kind"].as_str();
            let of = full.or(own).unwrap_or_default();
            format!("unable to find api field in struct {of} for the json field {name:?}")
        },
    ))
}

fn declared_list<'a>(schema: &'a Schema, name: &str) -> Result<&'a Schema> {
    let field = declared(schema, name)?;
    match field.item() {
        Some(_) => Ok(field),
        None => Err(Status::new(
            500,
            "",
            "expected slice or array type, but got: struct",
        )),
    }
}

fn strategy(field: &Schema) -> &str {
    let mut named = field.merge_strategy.iter().map(String::as_str);
    named.find(|name| *name != "retainKeys").unwrap_or_default()
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(fields) if fields.contains_key("$patch") => return None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(k, v)| Some((k, without_directives(v)?)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.into_iter().filter_map(without_directives).collect(),
        other => other,
    })
}

fn unknown_directive(directive: &Value, fields: &Fields) -> Status {
    let (directive, map) = (go(directive), go(&Value::Object(fields.clone())));
    Status::new(
        500,
        "",
        format!("unknown patch type: {directive} in map: {map}"),
    )
}

fn bad_type(wanted: &str, got: Option<&Value>) -> Status {
    let got = got.map_or("%!s(<nil>)", go_type);
    Status::new(
        500,
        "",
        format!("expected a {wanted}, but received a {got}"),
    )
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%v` prints it.
pub(super) fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(fields) => {
            let mut parts: Vec<String> = fields
                .iter()
                .map(|(k, v)| format!("{k}:{}", go(v)))
                .collect();
            parts.sort();
            format!("map[{}]", parts.join(" "))
        }
        other => other.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    let parts: Vec<String> = items.iter().map(go).collect();
    format!("[{}]", parts.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{strategic, strategic_merge};
    use crate::schema::BUILT_IN;

    /// Kind, object, patch, and what a kube-apiserver 1.34.4 made of them: the object without
    /// defaults, or code, reason and message.
    #[rustfmt::skip]
    const CASES: &[(&str, &str, &str, &str)] = &[
        ("Deployment", r#"{"spec":{"replicas":1}}"#, r#"{"spec":{"replicas":3}}"#, r#"{"spec":{"replicas":3}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:2"}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:2"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"c:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"c:1"},{"name":"a","image":"a:1"},{"name":"b","image":"b:2"}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:2"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"image":"c:1"}]}}}}"#, r#"500  map: map[image:c:1] does not contain declared merge key: name"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"foo"}]}}}}"#, r#"500  unknown patch type: foo in map: map[$patch:foo name:c]"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"merge"}]}}}}"#, r#"500  merging lists cannot yet be specified in the patch"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"delete"}]}}}}"#, r#"500  map: map[$patch:delete] does not contain declared merge key: name"#),
        ("Deployment", r#"{"spec":{"replicas":3}}"#, r#"{"spec":{"$patch":"bar","replicas":1}}"#, r#"500  unknown patch type: bar in map: map[$patch:bar replicas:1]"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:2"}]}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"n"},{"name":"b"}],"containers":[{"name":"n","image":"n:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"n:1"},{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"n:1"},{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"a:3"},{"name":"b","image":"b:3"}]}}}}"#, r#"500  The order in patch list:\n[map[image:a:3 name:a] map[image:b:3 name:b]]\n doesn't match $setElementOrder list:\n[map[name:b] map[name:a]]\n"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"n:1"},{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"q","image":"a:3"}]}}}}"#, r#"500  The order in patch list:\n[map[image:a:3 name:q]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"n:1"},{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":"x"}}}}"#, r#"500  expected a []interface {}, but received a string"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder":[]}}}}"#, r#"400 BadRequest invalid patch format of setElementOrder list"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"securityContext":{}}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/securityContext":[{"name":"a"}]}}}}"#, r#"500  expected a []interface {}, but received a map[string]interface {}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{}}}}"#, r#"{"spec":{"template":{"spec":{"$setElementOrder/foo":[{"name":"a"}]}}}}"#, r#"500  unable to find api field in struct PodSpec for the json field "foo""#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":null}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a"}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"Z","value":"9"},{"name":"A","value":"0"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","env":[{"name":"Z","value":"9"},{"name":"A","value":"0"}]}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","env":[{"name":"N","value":"9"},{"name":"Z","value":"9"},{"name":"A","value":"1"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"$patch":"replace"},{"name":"ONLY","value":"9"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","env":[{"name":"ONLY","value":"9"}]}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","env":[{"name":"ONLY","value":"9"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"ONLY","value":null,"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","env":[{"name":"ONLY","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}}}}"#),
        ("Deployment", r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}}}"#, r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#, r#"{"spec":{"strategy":{"type":"Recreate"}}}"#),
        ("Deployment", r#"{"spec":{"strategy":{"type":"Recreate"}}}"#, r#"{"spec":{"strategy":{"$retainKeys":["type"],"rollingUpdate":{"maxSurge":1}}}}"#, r#"400 BadRequest invalid patch format of retainKeys"#),
        ("Deployment", r#"{"spec":{"strategy":{"type":"Recreate"}}}"#, r#"{"spec":{"strategy":{"$retainKeys":"type"}}}"#, r#"400 BadRequest invalid patch format of retainKeys"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"cm"}}]}}}}"#, r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":["name","configMap"],"configMap":{"name":"z"}}]}}}}"#, r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","configMap":{"name":"z"}},{"name":"w","configMap":{"name":"cm"}}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v"},{"name":"w"}]}}}}"#, r#"{"spec":{"template":{"spec":{"volumes":[{"name":"w","$patch":"delete"}]}}}}"#, r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v"}]}}}}"#),
        ("Deployment", r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{"$patch":"replace","k":"v"}}}"#, r#"{"metadata":{}}"#),
        ("Deployment", r#"{"metadata":{"annotations":{}}}"#, r#"{"metadata":{"labels":{"l":"2","k":null},"annotations":{"x":"y","z":null}}}"#, r#"{"metadata":{"labels":{"l":"2"},"annotations":{"x":"y"}}}"#),
        ("Deployment", r#"{"metadata":{"labels":{"l":"2"}}}"#, r#"{"metadata":{"labels":{"$patch":"delete"}}}"#, r#"{"metadata":{}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","ports":[{"containerPort":80}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":81,"name":"p"},{"containerPort":80,"protocol":"UDP"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","ports":[{"name":"p","containerPort":81},{"containerPort":80,"protocol":"UDP"}]}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","ports":[{"name":"p","containerPort":81},{"containerPort":80,"protocol":"UDP"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":81,"$patch":"delete"}]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","ports":[{"containerPort":80,"protocol":"UDP"}]}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","args":["1","2"]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","args":["3"]}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","args":["3"]}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a"}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","securityContext":{"runAsUser":1,"privileged":null}}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","securityContext":{"runAsUser":1}}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","securityContext":{"runAsUser":1}}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","securityContext":{"$patch":"replace","runAsGroup":1}}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","securityContext":{"runAsGroup":1}}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","securityContext":{"runAsGroup":1}}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","securityContext":{"$patch":"delete"}}]}}}}"#, r#"{"spec":{"template":{"spec":{"containers":[{"name":"n"},{"name":"b"},{"name":"a","securityContext":{}}]}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"a","operator":"Exists"}]}}}}"#, r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"b","operator":"Exists"}]}}}}"#, r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"b","operator":"Exists"}]}}}}"#),
        ("Deployment", r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"s","annotations":{"deployment.kubernetes.io/revision":"11","x":"y"}},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"volumes":[{"name":"v","configMap":{"name":"z"}}],"containers":[{"name":"n","image":"n:1"},{"name":"b","image":"b:2"},{"name":"a","image":"a:1","args":["3"],"ports":[{"containerPort":80,"protocol":"UDP"}],"env":[{"name":"ONLY","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"securityContext":{}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"b","operator":"Exists"}]}},"strategy":{"type":"Recreate"},"revisionHistoryLimit":10,"progressDeadlineSeconds":600},"status":{"observedGeneration":25,"conditions":[{"type":"Available","status":"False","lastUpdateTime":"2026-11-15T14:31:13Z","lastTransitionTime":"2026-11-15T14:31:13Z","reason":"MinimumReplicasUnavailable","message":"Deployment does not have minimum availability."},{"type":"Progressing","status":"True","lastUpdateTime":"2026-11-15T14:31:17Z","lastTransitionTime":"2026-11-15T14:31:13Z","reason":"ReplicaSetUpdated","message":"ReplicaSet \"s-695f5b6847\" is progressing."}]}}"#, r#"[1]"#, r#"400 BadRequest json: cannot unmarshal array into Go value of type map[string]interface {}"#),
        ("Deployment", r#"{"metadata":{}}"#, r#"{"metadata":{"finalizers":["a/b","c/d"]}}"#, r#"{"metadata":{"finalizers":["a/b","c/d"]}}"#),
        ("Deployment", r#"{"metadata":{"finalizers":["a/b","c/d"]}}"#, r#"{"metadata":{"finalizers":["e/f","c/d"]}}"#, r#"{"metadata":{"finalizers":["e/f","a/b","c/d"]}}"#),
        ("Deployment", r#"{"metadata":{"finalizers":["e/f","a/b","c/d"]}}"#, r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["c/d"]}}"#, r#"{"metadata":{"finalizers":["e/f","a/b"]}}"#),
        ("Deployment", r#"{"metadata":{"finalizers":["e/f","a/b"]}}"#, r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"],"$setElementOrder/finalizers":["x/y","e/f"],"finalizers":["x/y"]}}"#, r#"{"metadata":{"finalizers":["x/y","e/f"]}}"#),
        ("Deployment", r#"{"metadata":{"finalizers":["x/y","e/f"]}}"#, r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":"a/b"}}"#, r#"{"metadata":{"finalizers":["x/y","e/f"]}}"#),
        ("Deployment", r#"{"metadata":{}}"#, r#"{"metadata":{"$deleteFromPrimitiveList":["a/b"]}}"#, r#"400 BadRequest invalid patch format of primitive list"#),
        ("Deployment", r#"{"metadata":{"finalizers":["x/y","e/f"]}}"#, r#"{"metadata":{"finalizers":["x/y",1]}}"#, r#"500  list element types are not identical: [[x/y e/f] [x/y 1]]"#),
        ("Deployment", r#"{"metadata":{"finalizers":["x/y","e/f"]}}"#, r#"{"metadata":{"finalizers":[["x/y"]]}}"#, r#"500  list element types are not identical: [[x/y e/f] [[x/y]]]"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{"nodeSelector":{}}}}}"#, r#"{"spec":{"template":{"spec":{"nodeSelector":{"c":"d"}}}}}"#, r#"{"spec":{"template":{"spec":{"nodeSelector":{"c":"d"}}}}}"#),
        ("Deployment", r#"{"spec":{"template":{"spec":{}}}}"#, r#"{"spec":{"template":{"spec":{"initContainers":[{"name":"gone","$patch":"delete"},{"name":"i","image":"i"}]}}}}"#, r#"{"spec":{"template":{"spec":{"initContainers":[{"name":"i","image":"i"}]}}}}"#),
        ("Service", r#"{"spec":{"ports":[{"name":"http","port":80,"targetPort":80},{"name":"https","port":443,"targetPort":443}]}}"#, r#"{"spec":{"ports":[{"port":443,"targetPort":8443}]}}"#, r#"{"spec":{"ports":[{"name":"http","port":80,"targetPort":80},{"name":"https","port":443,"targetPort":8443}]}}"#),
        ("Service", r#"{"spec":{"ports":[{"name":"http","port":80},{"name":"https","port":443}]}}"#, r#"{"spec":{"ports":[{"port":80,"$patch":"delete"}]}}"#, r#"{"spec":{"ports":[{"name":"https","port":443}]}}"#),
        ("Service", r#"{"spec":{"ports":[{"name":"https","port":443}]}}"#, r#"{"spec":{"$setElementOrder/ports":[{"port":9},{"port":443}],"ports":[{"port":9,"name":"nine"}]}}"#, r#"{"spec":{"ports":[{"name":"nine","port":9},{"name":"https","port":443}]}}"#),
        ("ConfigMap", r#"{"data":{"a":"1"}}"#, r#"{"data":{"a":null,"c":"3"}}"#, r#"{"data":{"c":"3"}}"#),
        ("ConfigMap", r#"{"data":{"b":"2","c":"3"}}"#, r#"{"data":null}"#, r#"{}"#),
    ];

    #[test]
    fn patches_do_what_the_real_server_does() {
        for (kind, original, patch, want) in CASES {
            let api_version = if *kind == "Deployment" {
                "apps/v1"
            } else {
                "v1"
            };
            let schema = BUILT_IN.schema(api_version, kind).unwrap();
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            match strategic(&read(original), &read(patch), schema) {
                Ok(got) => assert_eq!(got, read(want), "{patch} on {original}"),
                Err(e) => {
                    let got = format!("{} {} {}", e.code, e.reason, e.message);
                    assert_eq!(got.replace('\n', "\\n"), *want, "{patch} on {original}");
                }
            }
        }
    }

    #[test]
    fn of_other_kinds_only_the_metadata_is_known() {
        let object =
            serde_json::json!({"metadata": {"finalizers": ["a/b"]}, "spec": {"list": [1], "x": 1}});
        let patch = serde_json::json!({"metadata": {"finalizers": ["c/d"]}, "spec": {"list": [2], "x": null}});
        assert_eq!(
            strategic_merge("velero.io/v1", "Schedule", &object, &patch),
            Ok(
                serde_json::json!({"metadata": {"finalizers": ["c/d", "a/b"]}, "spec": {"list": [2]}})
            )
        );
    }

    #[test]
    fn null_changes_nothing() {
        let schema = BUILT_IN.schema("v1", "ConfigMap").unwrap();
        let object = serde_json::json!({ "data": { "a": "1" } });
        assert_eq!(strategic(&object, &Value::Null, schema), Ok(object));
    }
}
