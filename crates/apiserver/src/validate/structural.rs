//! Whether a CRD's schema is structural, and its keywords used as they may be: every field has a type
//! outside of `allOf`, `anyOf`, `oneOf` and `not`, which only restrict values. Beyond that, defaults must
//! fit their schema. CEL rules are not looked at.

use serde_json::{Map, Value, json};

use super::{bad, child, custom, forbidden, invalid, items, required, text, unsupported};
use crate::{schema::Schema, status::Cause};

/// Where a level stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What is wrong with a schema at a path.
pub(super) fn schema(raw: &Value, status: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if status {
        root_with_status(raw, path, &mut causes);
    }
    if raw["nullable"] == true {
        causes.push(forbidden(
            format!("{path}.nullable"),
            "nullable cannot be true at the root",
        ));
    }
    // A schema with keywords that are not supported is not looked at for its structure.
    if supported(raw) {
        let mut found = Vec::new();
        level(raw, Level::Root, path, &mut found);
        complete(raw, Some(raw), path, path, &mut found);
        found.sort_by_key(|cause| format!("{}: {}", cause.field, cause.message));
        if found.is_empty() {
            defaults(raw, true, false, path, &mut found);
        }
        causes.append(&mut found);
    }
    keywords(
        raw,
        path,
        Place {
            root: true,
            meta: false,
            no_default: None,
        },
        &mut causes,
    );
    causes
}

fn root_with_status(raw: &Value, path: &str, causes: &mut Vec<Cause>) {
    const ALLOWED: [(&str, &str); 22] = [
        ("description", "Description"),
        ("type", "Type"),
        ("format", "Format"),
        ("title", "Title"),
        ("maximum", "Maximum"),
        ("exclusiveMaximum", "ExclusiveMaximum"),
        ("minimum", "Minimum"),
        ("exclusiveMinimum", "ExclusiveMinimum"),
        ("maxLength", "MaxLength"),
        ("minLength", "MinLength"),
        ("pattern", "Pattern"),
        ("maxItems", "MaxItems"),
        ("minItems", "MinItems"),
        ("uniqueItems", "UniqueItems"),
        ("multipleOf", "MultipleOf"),
        ("required", "Required"),
        ("items", "Items"),
        ("properties", "Properties"),
        ("externalDocs", "ExternalDocs"),
        ("example", "Example"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "XPreserveUnknownFields",
        ),
        ("x-kubernetes-validations", "XValidations"),
    ];
    let said = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "";
    let kind = text(raw, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        causes.push(bad(format!("{path}.type"), kind, detail));
        return;
    }
    let mut keys = raw
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| said(value))
        .map(|(key, _)| key);
    if keys.any(|key| !ALLOWED.iter().any(|(name, _)| name == key)) {
        let names: Vec<&str> = ALLOWED.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        causes.push(invalid(path, raw, &detail));
    }
}

/// Whether the schema has only keywords that a structural schema can be made of.
fn supported(raw: &Value) -> bool {
    let Value::Object(object) = raw else {
        return true;
    };
    let stray = [
        "id",
        "$schema",
        "$ref",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
    ];
    let set = |key: &str| !raw[key].is_null() && raw[key] != "" && raw[key] != json!({});
    !stray.into_iter().any(set)
        && raw["x-kubernetes-preserve-unknown-fields"] != false
        && !raw["items"].is_array()
        && children(object).all(|(_, child)| supported(child))
}

/// All schemas directly below a level, with the rest of their paths.
fn children(object: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    let single = ["not", "items", "additionalProperties"]
        .into_iter()
        .filter_map(|key| {
            let child = object.get(key)?;
            child.is_object().then(|| (key.to_owned(), child))
        });
    let listed = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|key| {
        let list = object
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        list.enumerate()
            .map(move |(index, child)| (format!("{key}[{index}]"), child))
    });
    let fields = object
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    single
        .chain(listed)
        .chain(fields.map(|(key, child)| (format!("properties[{key}]"), child)))
}

/// A level that gives structure.
fn level(raw: &Value, place: Level, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(raw, "type");
    let is = |key: &str| raw[key] == true;
    let (embedded, keeps) = (
        is("x-kubernetes-embedded-resource"),
        is("x-kubernetes-preserve-unknown-fields"),
    );
    let int_or_string = is("x-kubernetes-int-or-string");
    if kind == "array" && raw["items"].is_null() {
        causes.push(required(format!("{path}.items"), "must be specified"));
    }
    if raw["items"].is_object() {
        level(&raw["items"], Level::Item, &format!("{path}.items"), causes);
    }
    for (key, field) in raw["properties"].as_object().into_iter().flatten() {
        level(
            field,
            Level::Field,
            &format!("{path}.properties[{key}]"),
            causes,
        );
    }
    if !raw["additionalProperties"].is_null() {
        let path = format!("{path}.additionalProperties");
        if place == Level::Root {
            causes.push(forbidden(&path, "must not be used at the root"));
        }
        if embedded {
            causes.push(forbidden(
                &path,
                "must not be used if x-kubernetes-embedded-resource is set",
            ));
        }
        if raw["additionalProperties"].is_object() {
            level(&raw["additionalProperties"], Level::Field, &path, causes);
        }
    }
    if int_or_string {
        for key in [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
        ] {
            if is(key) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                causes.push(invalid(format!("{path}.{key}"), &json!(true), detail));
            }
        }
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    restrictions(
        raw,
        raw["anyOf"] == either,
        raw["allOf"][0]["anyOf"] == either,
        path,
        causes,
    );
    match kind {
        "object" => {}
        "" if embedded => {
            causes.push(required(
                format!("{path}.type"),
                "must be object if x-kubernetes-embedded-resource is true",
            ));
        }
        kind if embedded => {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            causes.push(bad(format!("{path}.type"), kind, detail));
        }
        "" if !int_or_string && !keeps => {
            let detail = match place {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            causes.push(required(format!("{path}.type"), detail));
        }
        "" => {}
        kind if place == Level::Root => causes.push(bad(
            format!("{path}.type"),
            kind,
            "must be object at the root",
        )),
        _ => {}
    }
    let has_meta = place == Level::Root || embedded;
    for key in ["kind", "apiVersion"] {
        let field = &raw["properties"][key];
        if has_meta && !field.is_null() && text(field, "type") != "string" {
            causes.push(bad(
                format!("{path}.properties[{key}].type"),
                text(field, "type"),
                "must be string",
            ));
        }
    }
    let meta = &raw["properties"]["metadata"];
    if !meta.is_null() {
        let path = format!("{path}.properties[metadata]");
        if has_meta && text(meta, "type") != "object" {
            causes.push(bad(
                format!("{path}.type"),
                text(meta, "type"),
                "must be object",
            ));
        }
        if place == Level::Root && says_more_than_names(meta) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(forbidden(path, detail));
        }
    }
    let fields = raw["properties"].as_object().map_or(0, Map::len);
    if embedded && !keeps && fields == 0 {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(required(format!("{path}.properties"), detail));
    }
}

fn says_more_than_names(meta: &Value) -> bool {
    let names = |value: &Value| {
        let fields = value.as_object().into_iter().flatten();
        fields
            .into_iter()
            .all(|(key, _)| key == "name" || key == "generateName")
    };
    meta.as_object()
        .into_iter()
        .flatten()
        .any(|(key, value)| match key.as_str() {
            "type" | "default" => false,
            "properties" => !names(value),
            _ => !matches!(value, Value::Null | Value::Bool(false)) && value != "",
        })
}

/// The keywords of a level that restrict values.
fn restrictions(
    raw: &Value,
    skip_any: bool,
    skip_first_all: bool,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && skip_any {
            continue;
        }
        for (index, branch) in items(raw, key).iter().enumerate() {
            let skip = key == "allOf" && index == 0 && skip_first_all;
            nested(branch, skip, &format!("{path}.{key}[{index}]"), causes);
        }
    }
    if raw["not"].is_object() {
        nested(&raw["not"], false, &format!("{path}.not"), causes);
    }
    let pattern = text(raw, "pattern");
    if let Err(problem) = regex::Regex::new(pattern)
        && let Some(problem) = in_go(pattern, &problem)
    {
        let detail = format!(
            "must be a valid regular expression, but isn't: error parsing regexp: {problem}"
        );
        causes.push(bad(format!("{path}.pattern"), pattern, &detail));
    }
}

/// What Go would say of a pattern that Rust does not take; nothing where the two may differ.
fn in_go(pattern: &str, problem: &regex::Error) -> Option<String> {
    let said = problem.to_string();
    let found = |part: &str| said.contains(part);
    if found("unclosed group") {
        Some(format!("missing closing ): `{pattern}`"))
    } else if found("unopened group") {
        Some(format!("unexpected ): `{pattern}`"))
    } else if found("unclosed character class") {
        let at = pattern.rfind('[').unwrap_or_default();
        Some(format!("missing closing ]: `{}`", &pattern[at..]))
    } else {
        None
    }
}

/// A level below `allOf`, `anyOf`, `oneOf` or `not`.
fn nested(raw: &Value, skip_any: bool, path: &str, causes: &mut Vec<Cause>) {
    restrictions(raw, skip_any, false, path, causes);
    if raw["items"].is_object() {
        nested(&raw["items"], false, &format!("{path}.items"), causes);
    }
    for (key, field) in raw["properties"].as_object().into_iter().flatten() {
        nested(field, false, &format!("{path}.properties[{key}]"), causes);
    }
    let forbidden_keys = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-map-keys",
            "must be empty to be structural",
        ),
        (
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-map-type",
            "must be undefined to be structural",
        ),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (key, detail) in forbidden_keys {
        let set = match &raw[key] {
            Value::Null => false,
            Value::Bool(said) => *said || key == "default",
            Value::String(said) => !said.is_empty() || key == "default",
            Value::Array(said) => !said.is_empty() || key == "default",
            _ => true,
        };
        if set {
            causes.push(forbidden(format!("{path}.{key}"), detail));
        }
    }
    if !raw["properties"]["metadata"].is_null() {
        causes.push(forbidden(
            format!("{path}.properties[metadata]"),
            "must not be specified in a nested context",
        ));
    }
}

/// Whether each field that is restricted has a level that gives it structure.
fn complete(raw: &Value, structure: Option<&Value>, at: &str, path: &str, causes: &mut Vec<Cause>) {
    let Some(structure) = structure else {
        causes.push(required(at, &format!("because it is defined in {path}")));
        return;
    };
    let mut branches: Vec<(String, &Value)> = Vec::new();
    if raw["not"].is_object() {
        branches.push((format!("{path}.not"), &raw["not"]));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        branches.extend(
            items(raw, key)
                .iter()
                .enumerate()
                .map(|(i, branch)| (format!("{path}.{key}[{i}]"), branch)),
        );
    }
    for (path, branch) in branches {
        complete_nested(branch, structure, at, &path, causes);
    }
}

fn complete_nested(raw: &Value, structure: &Value, at: &str, path: &str, causes: &mut Vec<Cause>) {
    complete(raw, Some(structure), at, path, causes);
    let mut below = |raw: &Value, key: &str, structure: &Value| {
        let (at, path) = (format!("{at}.{key}"), format!("{path}.{key}"));
        match structure.is_object() {
            true => complete_nested(raw, structure, &at, &path, causes),
            false => complete(raw, None, &at, &path, causes),
        }
    };
    if raw["items"].is_object() {
        below(&raw["items"], "items", &structure["items"]);
    }
    for (key, field) in raw["properties"].as_object().into_iter().flatten() {
        below(
            field,
            &format!("properties[{key}]"),
            &structure["properties"][key],
        );
    }
}

/// Whether defaults are pruned and fit; those of `metadata` are left unchecked.
fn defaults(raw: &Value, root: bool, meta: bool, path: &str, causes: &mut Vec<Cause>) {
    let embedded = root || raw["x-kubernetes-embedded-resource"] == true;
    let default = &raw["default"];
    if !default.is_null() && !meta {
        let at = format!("{path}.default");
        let schema = Schema::parse(raw);
        let mut pruned = default.clone();
        if !custom::unknown_fields(&mut pruned, &schema, embedded).is_empty() {
            causes.push(invalid(&at, default, "must not have unknown fields"));
        }
        let mut found = Vec::new();
        if embedded && default.is_object() {
            custom::embedded_one(default, &at, &mut found);
        } else {
            custom::embedded(default, &schema, &at, &mut found);
        }
        if found.is_empty() {
            found = custom::values(default, &schema, &at);
        }
        causes.append(&mut found);
    }
    if raw["items"].is_object() {
        defaults(
            &raw["items"],
            false,
            meta && !embedded,
            &format!("{path}.items"),
            causes,
        );
    }
    for (key, field) in raw["properties"].as_object().into_iter().flatten() {
        let meta = (meta && !embedded)
            || (embedded && ["metadata", "apiVersion", "kind"].contains(&key.as_str()));
        defaults(
            field,
            false,
            meta,
            &format!("{path}.properties[{key}]"),
            causes,
        );
    }
}

/// What the levels above say of a level.
#[derive(Clone, Copy)]
struct Place {
    root: bool,
    meta: bool,
    /// Why there may be no default.
    no_default: Option<&'static str>,
}

/// The use of keywords, at all levels.
fn keywords(raw: &Value, path: &str, place: Place, causes: &mut Vec<Cause>) {
    let Value::Object(object) = raw else { return };
    let kind = text(raw, "type");
    let at = |key: &str| format!("{path}.{key}");
    let types = ["array", "boolean", "integer", "number", "object", "string"].map(str::to_owned);
    if !kind.is_empty() && !types.contains(&kind.to_owned()) {
        causes.push(unsupported(at("type"), &raw["type"], &types));
    }
    if let Some(reason) = place.no_default.filter(|_| !raw["default"].is_null()) {
        causes.push(forbidden(
            at("default"),
            &format!("must not be set {reason}"),
        ));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        let set = !raw[key].is_null()
            && raw[key] != ""
            && (raw[key] != json!({}) || key == "dependencies");
        if set {
            causes.push(forbidden(at(key), &format!("{key} is not supported")));
        }
    }
    if kind == "null" {
        causes.push(forbidden(
            at("type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if raw["items"]
        .as_array()
        .is_some_and(|items| !items.is_empty())
    {
        causes.push(forbidden(
            at("items"),
            "items must be a schema object and not an array",
        ));
    }
    if place.meta && raw["x-kubernetes-embedded-resource"] == true {
        causes.push(forbidden(
            at("x-kubernetes-embedded-resource"),
            "must not be used inside of resource meta",
        ));
    }
    if raw["uniqueItems"] == true {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(forbidden(at("uniqueItems"), detail));
    }
    let fields = raw["properties"].as_object().map_or(0, Map::len);
    let additional = &raw["additionalProperties"];
    if fields > 0 && (additional.is_object() || *additional == false) {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(forbidden(at("additionalProperties"), detail));
    }
    let resource = place.root || raw["x-kubernetes-embedded-resource"] == true;
    for (rest, below) in children(object) {
        let mut inner = Place {
            root: false,
            ..place
        };
        let field = rest
            .strip_prefix("properties[")
            .and_then(|rest| rest.strip_suffix(']'));
        if rest == "additionalProperties" && place.meta {
            inner.no_default = Some("inside additionalProperties applying to object metadata");
        }
        let reason = match field {
            Some("metadata") => Some("in top-level metadata"),
            Some("kind") => Some("in top-level kind"),
            Some("apiVersion") => Some("in top-level apiVersion"),
            _ => None,
        };
        if resource && let Some(reason) = reason {
            inner.meta = true;
            inner.no_default = if place.root {
                Some(reason)
            } else {
                inner.no_default
            };
        }
        keywords(below, &child(path, &rest), inner, causes);
    }
    if raw["x-kubernetes-preserve-unknown-fields"] == false {
        causes.push(invalid(
            at("x-kubernetes-preserve-unknown-fields"),
            &json!(false),
            "must be true or undefined",
        ));
    }
    map_type(raw, path, causes);
    list_type(raw, path, causes);
}

fn typed(raw: &Value, path: &str, wanted: &str, keyword: &str, causes: &mut Vec<Cause>) {
    let detail = format!("must be {wanted} if {keyword} is specified");
    match text(raw, "type") {
        kind if kind == wanted => {}
        "" => causes.push(required(format!("{path}.type"), &detail)),
        kind => causes.push(bad(format!("{path}.type"), kind, &detail)),
    }
}

fn map_type(raw: &Value, path: &str, causes: &mut Vec<Cause>) {
    let key = "x-kubernetes-map-type";
    if raw[key].is_null() {
        return;
    }
    typed(raw, path, "object", key, causes);
    let allowed = ["atomic", "granular"].map(str::to_owned);
    if !allowed.contains(&text(raw, key).to_owned()) {
        causes.push(unsupported(format!("{path}.{key}"), &raw[key], &allowed));
    }
}

fn list_type(raw: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (key, keys_key) = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys");
    let (list, item, keys) = (text(raw, key), &raw["items"], items(raw, keys_key));
    let at = |rest: &str| format!("{path}.{rest}");
    if !raw[key].is_null() {
        typed(raw, path, "array", key, causes);
        if text(raw, "type") == "array" && list == "set" {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let inner = &item["x-kubernetes-list-type"];
            match text(item, "type") {
                "array" if !inner.is_null() && inner != "atomic" => {
                    causes.push(invalid(at("items.x-kubernetes-list-type"), inner, detail));
                }
                "object" if item["x-kubernetes-map-type"] != "atomic" => {
                    causes.push(invalid(at("items.x-kubernetes-map-type"), inner, detail));
                }
                _ => {}
            }
        }
        let allowed = ["atomic", "set", "map"].map(str::to_owned);
        if !allowed.contains(&list.to_owned()) {
            causes.push(unsupported(at(key), &raw[key], &allowed));
        }
    }
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match (keys.is_empty(), list) {
        (false, "") => causes.push(required(at(key), detail)),
        (false, other) if other != "map" => causes.push(bad(at(key), other, detail)),
        _ => {}
    }
    if list == "map" {
        if keys.is_empty() {
            causes.push(required(
                at(keys_key),
                "must not be empty if x-kubernetes-list-type is map",
            ));
        }
        if item.is_null() {
            causes.push(required(
                at("items"),
                "must have a schema if x-kubernetes-list-type is map",
            ));
        } else if text(item, "type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            causes.push(bad(at("items.type"), text(item, "type"), detail));
        } else {
            map_keys(raw, item, keys, path, causes);
        }
    }
    if item.is_object() && (list == "set" || list == "map") {
        keys_of_items(item, list, keys, path, causes);
    }
}

fn map_keys(raw: &Value, item: &Value, keys: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let all = &raw["x-kubernetes-list-map-keys"];
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let field = &item["properties"][name];
        let at = format!("{path}.x-kubernetes-list-map-keys");
        if field.is_null() {
            causes.push(invalid(
                &at,
                all,
                "entries must all be names of item properties",
            ));
        } else if ["array", "object"].contains(&text(field, "type")) {
            // The real server shows the type of the item here.
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(bad(
                format!("{path}.items.properties[{name}].type"),
                text(item, "type"),
                detail,
            ));
        }
        if keys[..index].contains(key) {
            causes.push(invalid(at, all, "must not contain duplicate entries"));
        }
    }
}

fn keys_of_items(item: &Value, list: &str, keys: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if item["nullable"] == true {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        causes.push(forbidden(format!("{path}.items.nullable"), &detail));
    }
    for key in keys.iter().filter(|_| list == "map") {
        let name = key.as_str().unwrap_or_default();
        let field = &item["properties"][name];
        let at = format!("{path}.items.properties[{name}]");
        if field.is_null() {
            continue;
        }
        if !items(item, "required").contains(key) && field["default"].is_null() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(required(format!("{at}.default"), detail));
        }
        if field["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(forbidden(format!("{at}.nullable"), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::schema;
    use crate::validate::lines;

    #[track_caller]
    fn root(raw: Value, expected: &[&str]) {
        let expected: Vec<String> = expected
            .iter()
            .map(|line| line.replacen(' ', " S", 1))
            .collect();
        assert_eq!(lines(&schema(&raw, false, "S")), expected);
    }

    /// A schema with one field, `a`.
    #[track_caller]
    fn field(raw: Value, expected: &[&str]) {
        let expected: Vec<String> = expected
            .iter()
            .map(|line| line.replacen(' ', " .properties[a]", 1))
            .collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        root(
            json!({"type": "object", "properties": {"a": raw}}),
            &expected,
        );
    }

    #[test]
    fn types() {
        root(
            json!({}),
            &["FieldValueRequired .type: Required value: must not be empty at the root"],
        );
        root(
            json!({"type": "string"}),
            &["FieldValueInvalid .type: Invalid value: \"string\": must be object at the root"],
        );
        root(
            json!({"type": "foo"}),
            &[
                "FieldValueInvalid .type: Invalid value: \"foo\": must be object at the root",
                "FieldValueNotSupported .type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        );
        field(
            json!({}),
            &[
                "FieldValueRequired .type: Required value: must not be empty for specified object fields",
            ],
        );
        field(
            json!({"type": "array"}),
            &["FieldValueRequired .items: Required value: must be specified"],
        );
        field(
            json!({"type": "array", "items": {}}),
            &[
                "FieldValueRequired .items.type: Required value: must not be empty for specified array items",
            ],
        );
        field(
            json!({"type": "array", "items": [{"type": "string"}]}),
            &[
                "FieldValueForbidden .items: Forbidden: items must be a schema object and not an array",
            ],
        );
        root(
            json!({"type": "object", "properties": {"metadata": {"type": "string"}, "kind": {"type": "integer"}, "apiVersion": {}}}),
            &[
                "FieldValueInvalid .properties[apiVersion].type: Invalid value: \"\": must be string",
                "FieldValueRequired .properties[apiVersion].type: Required value: must not be empty for specified object fields",
                "FieldValueInvalid .properties[kind].type: Invalid value: \"integer\": must be string",
                "FieldValueInvalid .properties[metadata].type: Invalid value: \"string\": must be object",
            ],
        );
    }

    #[test]
    fn keywords() {
        let both = json!({"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": {"type": "string"}});
        field(
            both,
            &[
                "FieldValueForbidden .additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        );
        root(
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            &["FieldValueForbidden .additionalProperties: Forbidden: must not be used at the root"],
        );
        field(
            json!({"type": "object", "additionalProperties": false}),
            &[],
        );
        field(json!({"type": "object", "additionalProperties": true}), &[]);
        field(
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            &[
                "FieldValueForbidden .uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        );
        root(
            json!({"type": "object", "nullable": true}),
            &["FieldValueForbidden .nullable: Forbidden: nullable cannot be true at the root"],
        );
        root(
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            &[
                "FieldValueInvalid .x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        );
        field(
            json!({"$ref": "x"}),
            &["FieldValueForbidden .$ref: Forbidden: $ref is not supported"],
        );
        let many = json!({"type": "object", "definitions": {"a": {"type": "string"}}, "patternProperties": {"a": {"type": "string"}}, "dependencies": {"a": ["b"]}, "additionalItems": true, "id": "x"});
        let names = [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
        ];
        let expected = names
            .map(|key| format!("FieldValueForbidden .{key}: Forbidden: {key} is not supported"));
        root(many, &expected.each_ref().map(String::as_str));
        field(
            json!({"type": "string", "pattern": "("}),
            &[
                "FieldValueInvalid .pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
            ],
        );
        root(
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            &[
                "FieldValueForbidden .properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        );
        root(
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "a"}}}}}),
            &[],
        );
    }

    #[test]
    fn restrictions_only_restrict() {
        field(
            json!({"type": "string", "allOf": [{"type": "string", "description": "x", "title": "t", "default": "a", "nullable": true}]}),
            &[
                "FieldValueForbidden .allOf[0].default: Forbidden: must be undefined to be structural",
                "FieldValueForbidden .allOf[0].description: Forbidden: must be empty to be structural",
                "FieldValueForbidden .allOf[0].nullable: Forbidden: must be false to be structural",
                "FieldValueForbidden .allOf[0].title: Forbidden: must be empty to be structural",
                "FieldValueForbidden .allOf[0].type: Forbidden: must be empty to be structural",
            ],
        );
        root(
            json!({"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]}),
            &[
                "FieldValueRequired .properties[a]: Required value: because it is defined in S.anyOf[0].properties[a]",
            ],
        );
        root(
            json!({"type": "object", "anyOf": [{"properties": {"metadata": {"required": ["x"]}}}]}),
            &[
                "FieldValueForbidden .anyOf[0].properties[metadata]: Forbidden: must not be specified in a nested context",
                "FieldValueRequired .properties[metadata]: Required value: because it is defined in S.anyOf[0].properties[metadata]",
            ],
        );
        field(
            json!({"type": "object", "not": {"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-int-or-string": true,
            "additionalProperties": {"type": "string"}, "x-kubernetes-embedded-resource": true, "x-kubernetes-list-type": "set",
            "x-kubernetes-map-type": "atomic", "x-kubernetes-list-map-keys": ["a"]}}),
            &[
                "FieldValueForbidden .not.additionalProperties: Forbidden: must be undefined to be structural",
                "FieldValueForbidden .not.x-kubernetes-embedded-resource: Forbidden: must be false to be structural",
                "FieldValueForbidden .not.x-kubernetes-int-or-string: Forbidden: must be false to be structural",
                "FieldValueForbidden .not.x-kubernetes-list-map-keys: Forbidden: must be empty to be structural",
                "FieldValueForbidden .not.x-kubernetes-list-type: Forbidden: must be undefined to be structural",
                "FieldValueForbidden .not.x-kubernetes-map-type: Forbidden: must be undefined to be structural",
                "FieldValueForbidden .not.x-kubernetes-preserve-unknown-fields: Forbidden: must be false to be structural",
                "FieldValueRequired .not.type: Required value: must be object if x-kubernetes-map-type is specified",
                "FieldValueRequired .not.type: Required value: must be array if x-kubernetes-list-type is specified",
                "FieldValueInvalid .not.x-kubernetes-list-type: Invalid value: \"set\": must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        );
        field(
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            &[],
        );
        field(
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}]}),
            &[],
        );
        field(
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
            &[
                "FieldValueForbidden .anyOf[0].type: Forbidden: must be empty to be structural",
                "FieldValueForbidden .anyOf[1].type: Forbidden: must be empty to be structural",
            ],
        );
        field(
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            &[
                "FieldValueInvalid .x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
            ],
        );
    }

    #[test]
    fn objects_within() {
        let empty = "FieldValueRequired .properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        field(
            json!({"x-kubernetes-embedded-resource": true}),
            &[
                empty,
                "FieldValueRequired .type: Required value: must be object if x-kubernetes-embedded-resource is true",
            ],
        );
        field(
            json!({"type": "string", "x-kubernetes-embedded-resource": true}),
            &[
                empty,
                "FieldValueInvalid .type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
            ],
        );
    }

    #[test]
    fn list_types() {
        field(
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            &[
                "FieldValueInvalid .type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            ],
        );
        let list = |mut more: Value, expected: &[&str]| {
            more["type"] = json!("array");
            field(more, expected);
        };
        let text = json!({"type": "string"});
        list(
            json!({"items": text, "x-kubernetes-list-type": "x"}),
            &[
                "FieldValueNotSupported .x-kubernetes-list-type: Unsupported value: \"x\": supported values: \"atomic\", \"set\", \"map\"",
            ],
        );
        list(
            json!({"items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            &[
                "FieldValueInvalid .items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        );
        list(
            json!({"items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}),
            &[
                "FieldValueForbidden .items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
            ],
        );
        list(
            json!({"items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            &[
                "FieldValueRequired .x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        );
        let default = "FieldValueRequired .items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
        list(
            json!({"items": {"type": "object", "properties": {"k": text}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "z", "k"]}),
            &[
                "FieldValueInvalid .x-kubernetes-list-map-keys: Invalid value: [\"k\",\"z\",\"k\"]: entries must all be names of item properties",
                "FieldValueInvalid .x-kubernetes-list-map-keys: Invalid value: [\"k\",\"z\",\"k\"]: must not contain duplicate entries",
                default,
                default,
            ],
        );
        list(
            json!({"items": text, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
            &[
                "FieldValueInvalid .items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
            ],
        );
        list(
            json!({"items": text, "x-kubernetes-list-map-keys": ["k"]}),
            &[
                "FieldValueRequired .x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        );
        field(
            json!({"type": "string", "x-kubernetes-map-type": "x"}),
            &[
                "FieldValueInvalid .type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
                "FieldValueNotSupported .x-kubernetes-map-type: Unsupported value: \"x\": supported values: \"atomic\", \"granular\"",
            ],
        );
    }

    #[test]
    fn defaults_must_fit() {
        field(
            json!({"type": "string", "default": 1}),
            &[
                "FieldValueTypeInvalid .default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ],
        );
        field(
            json!({"type": "object", "default": {"x": 1}}),
            &["FieldValueInvalid .default: Invalid value: {\"x\":1}: must not have unknown fields"],
        );
        field(
            json!({"type": "string", "enum": ["x"], "default": "y"}),
            &["FieldValueNotSupported .default: Unsupported value: \"y\": supported values: \"x\""],
        );
        field(
            json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}, "default": {}}),
            &["FieldValueRequired .default.b: Required value"],
        );
        field(json!({"type": "string", "default": null}), &[]);
        root(
            json!({"type": "object", "default": {}}),
            &[
                "FieldValueRequired .default.apiVersion: Required value",
                "FieldValueRequired .default.kind: Required value",
            ],
        );
        root(
            json!({"type": "object", "properties": {"metadata": {"type": "object", "default": {}}}}),
            &[
                "FieldValueForbidden .properties[metadata].default: Forbidden: must not be set in top-level metadata",
            ],
        );
    }
}
