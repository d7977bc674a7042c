//! What a CRD's schema makes of a custom object: unknown fields are pruned, defaults filled in, values
//! checked. CEL rules (`x-kubernetes-validations`) are not evaluated.

use std::{collections::HashSet, sync::Arc};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{
    bad, child, decode, duplicate, formats, go_float, invalid, items, meta, required, shown, text,
    too_long, too_many, unsupported,
};
use crate::{
    schema::{ListType, Schema, object_meta},
    status::{Cause, Result},
};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Refuses an object whose `metadata`, or that of an object within it, has values of wrong types.
pub(crate) fn coerce(value: &Value, schema: &Schema, api_version: &str, kind: &str) -> Result<()> {
    let problem = object_meta().and_then(|meta_schema| {
        let mut meta = value["metadata"].clone();
        let root = if meta.is_null() {
            None
        } else {
            decode::part(&mut meta, meta_schema, "ObjectMeta").err()
        };
        root.or_else(|| embedded_problem(value, schema, ""))
    });
    match problem {
        Some(problem) => Err(decode::unhandled(&problem, api_version, kind)),
        None => Ok(()),
    }
}

fn embedded_problem(value: &Value, schema: &Schema, path: &str) -> Option<String> {
    if schema.embedded_resource && value.is_object() {
        for key in ["apiVersion", "kind"] {
            if !value[key].is_string() && value.get(key).is_some() {
                return Some(format!(
                    "{}: Invalid value: {}: must be a string",
                    child(path, key),
                    shown(&value[key])
                ));
            }
        }
        let mut meta = value["metadata"].clone();
        if !meta.is_null()
            && let Err(problem) = decode::part(&mut meta, object_meta()?, "ObjectMeta")
        {
            let said = shown(&value["metadata"]);
            return Some(format!(
                "{}: Invalid value: {said}: {problem}",
                child(path, "metadata")
            ));
        }
    }
    below(value, schema, path)
        .find_map(|(path, value, schema)| embedded_problem(value, schema, &path))
}

/// The values below one that have a schema, with their paths; entries of maps are written `[key]`.
fn below<'a>(
    value: &'a Value,
    schema: &'a Schema,
    path: &'a str,
) -> impl Iterator<Item = (String, &'a Value, &'a Schema)> {
    let entries = value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(
            move |(key, value)| match (schema.properties.get(key), &schema.additional) {
                (Some(field), _) => Some((child(path, key), value, field.as_ref())),
                (None, Some(entry)) => Some((format!("{path}[{key}]"), value, entry.as_ref())),
                (None, None) => None,
            },
        );
    let list = value
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(move |(index, value)| {
            Some((format!("{path}[{index}]"), value, schema.items.as_deref()?))
        });
    entries.chain(list)
}

/// Drops the fields that the schema does not know and lists them, as `unknown field "spec.foo"`.
/// Fields of `metadata` are those of every object, whatever the schema says.
pub(crate) fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let found = unknown_fields(value, schema, true);
    found
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect()
}

/// Prunes an object, or, as a default, a value that is none.
pub(super) fn unknown_fields(value: &mut Value, schema: &Schema, object: bool) -> Vec<String> {
    whole_numbers(value);
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    if object {
        prune_metadata(value, "", &mut found);
    }
    prune_level(
        value,
        Some(schema),
        object,
        &mut String::new(),
        &mut unknown,
    );
    unknown.sort();
    found.append(&mut unknown);
    prune_embedded(value, schema, "", &mut unknown);
    unknown.sort();
    found.append(&mut unknown);
    found
}

/// Numbers without a fraction are whole, as encoding them again makes them: `2.0` is kept as `2`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number
                .as_f64()
                .filter(|f| f.fract() == 0.0 && f.abs() < 9e15)
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "it has no fraction and fits"
                )]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(object) => object.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn prune_metadata(value: &mut Value, path: &str, found: &mut Vec<String>) {
    let (Some(meta), Some(schema)) = (value.get_mut("metadata"), object_meta()) else {
        return;
    };
    if meta.is_null() {
        *meta = json!({});
    }
    if let Ok(unknown) = decode::part(meta, schema, "ObjectMeta") {
        found.extend(
            unknown
                .iter()
                .map(|name| child(&child(path, "metadata"), name)),
        );
    }
}

fn prune_level(
    value: &mut Value,
    schema: Option<&Schema>,
    embedded: bool,
    path: &mut String,
    found: &mut Vec<String>,
) {
    let length = path.len();
    let keeps = schema.is_some_and(|schema| schema.preserve_unknown);
    match value {
        Value::Object(object) => {
            let keys: Vec<String> = object.keys().cloned().collect();
            for key in keys {
                if embedded && META_FIELDS.contains(&key.as_str()) {
                    continue;
                }
                path.push_str(if length > 0 { "." } else { "" });
                path.push_str(&key);
                let field = schema.and_then(|s| s.properties.get(&key).or(s.additional.as_ref()));
                match (field, object.get_mut(&key)) {
                    (Some(field), Some(value)) => {
                        prune_level(value, Some(field), field.embedded_resource, path, found);
                    }
                    _ if keeps => {}
                    _ => {
                        found.push(path.clone());
                        object.remove(&key);
                    }
                }
                path.truncate(length);
            }
        }
        Value::Array(values) => {
            let item = schema.and_then(|s| s.items.as_deref());
            if keeps && item.is_none() {
                return;
            }
            for (index, value) in values.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune_level(
                    value,
                    item,
                    item.is_some_and(|s| s.embedded_resource),
                    path,
                    found,
                );
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn prune_embedded(value: &mut Value, schema: &Schema, path: &str, found: &mut Vec<String>) {
    if schema.embedded_resource {
        prune_metadata(value, path, found);
    }
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                if let Some(field) = schema.properties.get(key).or(schema.additional.as_ref()) {
                    prune_embedded(value, field, &child(path, key), found);
                }
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter_mut().enumerate() {
                if let Some(item) = &schema.items {
                    prune_embedded(value, item, &format!("{path}[{index}]"), found);
                }
            }
        }
        _ => {}
    }
}

/// Drops every `null` that is no value and for which there is no default, then fills in the defaults.
pub(crate) fn default(value: &mut Value, schema: &Schema) {
    drop_nulls(value, schema);
    fill(value, schema);
}

fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(object) => object.retain(|key, value| {
            let Some(field) = schema.properties.get(key).or(schema.additional.as_ref()) else {
                return true;
            };
            if value.is_null() {
                return field.nullable || !field.raw["default"].is_null();
            }
            drop_nulls(value, field);
            true
        }),
        Value::Array(values) => {
            if let Some(item) = &schema.items {
                values.iter_mut().for_each(|value| drop_nulls(value, item));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    let fill_one = |value: &mut Value, schema: &Schema| {
        if value.is_null() && !schema.nullable {
            *value = schema.raw["default"].clone();
        }
        fill(value, schema);
    };
    match value {
        Value::Object(object) => {
            for (key, field) in &schema.properties {
                let default = &field.raw["default"];
                if !default.is_null() && !object.contains_key(key) {
                    object.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in object.iter_mut() {
                if let Some(field) = schema.properties.get(key).or(schema.additional.as_ref()) {
                    fill_one(value, field);
                }
            }
        }
        Value::Array(values) => {
            if let Some(item) = &schema.items {
                values.iter_mut().for_each(|value| fill_one(value, item));
            }
        }
        _ => {}
    }
}

/// What is wrong with a custom object, besides its own metadata.
pub(crate) fn custom(value: &Value, schema: &Schema) -> Vec<Cause> {
    let mut causes = values(value, schema, "");
    embedded(value, schema, "", &mut causes);
    lists(value, schema, "", &mut causes);
    causes
}

/// What is wrong with the values alone, of an object or of a default at a path.
pub(super) fn values(value: &Value, schema: &Schema, base: &str) -> Vec<Cause> {
    let checker = Checker { base };
    checker.check(value, schema, &mut String::new()).causes
}

/// What is wrong, and how much was right: the branch of an `anyOf` that comes nearest is reported.
#[derive(Default)]
struct Outcome {
    causes: Vec<Cause>,
    right: usize,
}

impl Outcome {
    fn add(&mut self, cause: Cause) {
        if !self.causes.contains(&cause) {
            self.causes.push(cause);
        }
    }

    fn merge(&mut self, other: Self) {
        other.causes.into_iter().for_each(|cause| self.add(cause));
        self.right += other.right;
    }
}

struct Checker<'a> {
    /// Where the checked value stands.
    base: &'a str,
}

impl Checker<'_> {
    fn check(&self, value: &Value, schema: &Schema, path: &mut String) -> Outcome {
        let mut outcome = Outcome::default();
        if !schema.raw["type"].is_null()
            || schema.raw["x-kubernetes-int-or-string"] == true
            || format(schema).is_some()
        {
            match self.type_problem(value, schema, path) {
                Some(cause) => outcome.add(cause),
                None => outcome.right += 1,
            }
        }
        if !value.is_null() {
            self.branches(value, schema, path, &mut outcome);
            match value {
                Value::String(text) => self.string(text, schema, path, &mut outcome),
                Value::Number(_) => self.number(value, &schema.raw, path, &mut outcome),
                Value::Array(values) => self.array(values, schema, path, &mut outcome),
                _ => {}
            }
        }
        self.enumeration(value, &schema.raw, path, &mut outcome);
        if let Value::Object(object) = value {
            self.object(object, schema, path, &mut outcome);
        }
        outcome.right += 1;
        outcome
    }

    fn at(&self, path: &str) -> String {
        match (self.base, path.trim_start_matches('.')) {
            // The real server has no path for the root, and prints so.
            ("", "") => "<nil>".to_owned(),
            (base, "") => base.to_owned(),
            (base, path) => child(base, path),
        }
    }

    fn type_problem(&self, value: &Value, schema: &Schema, path: &str) -> Option<Cause> {
        let wanted = match schema.raw["x-kubernetes-int-or-string"] == true {
            true => vec!["integer", "string"],
            false => schema.raw["type"].as_str().into_iter().collect(),
        };
        let (found, number_format) = match value {
            Value::Null if wanted.is_empty() || schema.nullable => return None,
            Value::Null => ("null", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Number(n) if n.is_i64() => ("integer", "int64"),
            Value::Number(_) => ("number", "float64"),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
        };
        let whole = value
            .as_f64()
            .is_some_and(|f| f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0);
        let fits = wanted.contains(&found)
            || (found == "number" && wanted.contains(&"integer") && whole)
            || (found == "integer" && wanted.contains(&"number"));
        let format = format(schema);
        // Texts with a format are left to it, and so, oddly, are lists.
        let left = format.is_some()
            && matches!(value, Value::String(_) | Value::Array(_))
            && !wanted.contains(&"number")
            && !wanted.contains(&"integer");
        if fits || left || (wanted.is_empty() && format.is_none()) {
            return None;
        }
        match format {
            Some(format) if !value.is_null() => Some(self.wrong_type(path, format, number_format)),
            _ => Some(self.wrong_type(path, &wanted.join(","), found)),
        }
    }

    fn wrong_type(&self, path: &str, wanted: &str, found: &str) -> Cause {
        let found = super::quoted(found);
        let message =
            format!("Invalid value: {found}: {path} in body must be of type {wanted}: {found}");
        Cause {
            reason: "FieldValueTypeInvalid",
            message,
            field: self.at(path),
        }
    }

    fn rule(&self, path: &str, value: &Value, rule: &str) -> Cause {
        invalid(self.at(path), value, &format!("{path} in body {rule}"))
    }

    /// A cause that the real server gives without a field.
    fn whole(&self, path: &str, rule: &str) -> Cause {
        bad(self.at(""), "", &format!("{} {rule}", super::quoted(path)))
    }

    fn branches(&self, value: &Value, schema: &Schema, path: &mut String, outcome: &mut Outcome) {
        let mut results = |key: &str| -> Vec<Outcome> {
            items(&schema.raw, key)
                .iter()
                .map(|raw| self.check(value, &Schema::parse(raw), path))
                .collect()
        };
        let (any, one, all) = (results("anyOf"), results("oneOf"), results("allOf"));
        let valid = |list: &[Outcome]| list.iter().filter(|o| o.causes.is_empty()).count();
        if !any.is_empty() {
            if valid(&any) == 0 {
                outcome.add(self.whole(path, "must validate at least one schema (anyOf)"));
            }
            best(any).into_iter().for_each(|o| outcome.merge(o));
        }
        if !one.is_empty() {
            let count = valid(&one);
            let said = match count {
                1 => None,
                0 => Some("Found none valid".to_owned()),
                count => Some(format!("Found {count} valid alternatives")),
            };
            if let Some(said) = said {
                let rule = format!("must validate one and only one schema (oneOf). {said}");
                outcome.add(self.whole(path, &rule));
            }
            if count <= 1 {
                best(one).into_iter().for_each(|o| outcome.merge(o));
            }
        }
        if !all.is_empty() {
            let (count, total) = (valid(&all), all.len());
            all.into_iter().for_each(|o| outcome.merge(o));
            if count < total {
                let end = if count == 0 { ". None validated" } else { "" };
                outcome
                    .add(self.whole(path, &format!("must validate all the schemas (allOf){end}")));
            }
        }
        let not = &schema.raw["not"];
        if not.is_object()
            && self
                .check(value, &Schema::parse(not), path)
                .causes
                .is_empty()
        {
            outcome.add(self.whole(path, "must not validate the schema (not)"));
        }
        outcome.right += 2;
    }

    fn string(&self, text: &str, schema: &Schema, path: &str, outcome: &mut Outcome) {
        let raw = &schema.raw;
        let length = text.chars().count() as u64;
        let value = Value::String(text.to_owned());
        let pattern = raw["pattern"].as_str().unwrap_or_default();
        match (raw["maxLength"].as_u64(), raw["minLength"].as_u64()) {
            (Some(limit), _) if length > limit => outcome.add(too_long(self.at(path), limit)),
            (_, Some(limit)) if length < limit => {
                outcome.add(self.rule(
                    path,
                    &value,
                    &format!("should be at least {limit} chars long"),
                ));
            }
            _ if !pattern.is_empty() && !fits(pattern, text) => {
                outcome.add(self.rule(path, &value, &format!("should match '{pattern}'")));
            }
            _ => {}
        }
        outcome.right += 1;
        if let Some(format) = format(schema) {
            if !formats::matches(format, text) {
                outcome.add(self.wrong_type(path, format, text));
            }
            outcome.right += 1;
        }
    }

    fn number(&self, value: &Value, raw: &Value, path: &str, outcome: &mut Outcome) {
        let whole = value.as_i64();
        let float = value.as_f64().unwrap_or_default();
        // Bounds of whole numbers are cut to whole numbers, as the real server does.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the real server cuts as well"
        )]
        let cut = |bound: f64| bound as i64;
        let said = |bound: f64| {
            if whole.is_some() {
                cut(bound).to_string()
            } else {
                go_float(bound)
            }
        };
        if let Some(factor) = raw["multipleOf"].as_f64() {
            let positive = if whole.is_some() {
                cut(factor) > 0
            } else {
                factor > 0.0
            };
            if positive {
                let fits = match whole {
                    Some(whole) => whole % cut(factor) == 0,
                    None => {
                        let times = if factor < 1.0 {
                            float * (1.0 / factor)
                        } else {
                            float / factor
                        };
                        (times - times.round()).abs() <= 1e-9 * times.abs().max(1.0)
                    }
                };
                if !fits {
                    outcome.add(self.rule(
                        path,
                        value,
                        &format!("should be a multiple of {}", said(factor)),
                    ));
                }
            } else {
                let said = said(factor);
                let message = format!(
                    "Invalid value: {said}: factor MultipleOf declared for {path} must be positive: {said}"
                );
                outcome.add(Cause {
                    reason: "FieldValueInvalid",
                    message,
                    field: self.at(path),
                });
            }
        }
        let over = |bound: f64| match whole {
            Some(whole) => whole.cmp(&cut(bound)),
            None => float.total_cmp(&bound),
        };
        let bounds = [
            (
                "minimum",
                "exclusiveMinimum",
                std::cmp::Ordering::Less,
                "greater",
            ),
            (
                "maximum",
                "exclusiveMaximum",
                std::cmp::Ordering::Greater,
                "less",
            ),
        ];
        for (key, exclusive, beyond, word) in bounds {
            let Some(bound) = raw[key].as_f64() else {
                continue;
            };
            let exclusive = raw[exclusive] == true;
            if over(bound) == beyond || (exclusive && over(bound).is_eq()) {
                let or_equal = if exclusive { "" } else { " or equal to" };
                outcome.add(self.rule(
                    path,
                    value,
                    &format!("should be {word} than{or_equal} {}", said(bound)),
                ));
            }
        }
        outcome.right += 2;
    }

    fn array(&self, values: &[Value], schema: &Schema, path: &mut String, outcome: &mut Outcome) {
        let length = path.len();
        if let Some(item) = &schema.items {
            for (index, value) in values.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                let result = self.check(value, item, path);
                outcome.merge(result);
                path.truncate(length);
            }
        }
        let count = Value::from(values.len());
        if let Some(limit) = schema.raw["minItems"]
            .as_u64()
            .filter(|limit| (values.len() as u64) < *limit)
        {
            outcome.add(self.rule(path, &count, &format!("should have at least {limit} items")));
        }
        if let Some(limit) = schema.raw["maxItems"]
            .as_u64()
            .filter(|limit| values.len() as u64 > *limit)
        {
            outcome.add(too_many(self.at(path), values.len(), limit));
        }
        let mut seen = HashSet::new();
        if schema.raw["uniqueItems"] == true
            && !values.iter().all(|value| seen.insert(value.to_string()))
        {
            outcome.add(self.rule(path, &json!(""), "shouldn't contain duplicates"));
        }
        outcome.right += 2;
    }

    fn enumeration(&self, value: &Value, raw: &Value, path: &str, outcome: &mut Outcome) {
        let allowed = items(raw, "enum");
        let same =
            |one: &Value| one == value || (one.is_number() && one.as_f64() == value.as_f64());
        // `null` is not found even if it is listed.
        if !allowed.is_empty() && (value.is_null() || !allowed.iter().any(same)) {
            let words: Vec<String> = allowed
                .iter()
                .map(|one| one.as_str().map_or_else(|| shown(one), str::to_owned))
                .collect();
            outcome.add(unsupported(self.at(path), value, &words));
        }
        outcome.right += 1;
    }

    fn object(
        &self,
        object: &Map<String, Value>,
        schema: &Schema,
        path: &mut String,
        outcome: &mut Outcome,
    ) {
        let length = path.len();
        let count = Value::from(object.len());
        if let Some(limit) = schema.raw["minProperties"]
            .as_u64()
            .filter(|limit| (object.len() as u64) < *limit)
        {
            outcome.add(self.rule(
                path,
                &count,
                &format!("should have at least {limit} properties"),
            ));
        }
        if let Some(limit) = schema.raw["maxProperties"]
            .as_u64()
            .filter(|limit| object.len() as u64 > *limit)
        {
            outcome.add(too_many(self.at(path), object.len(), limit));
        }
        let mut fields: Vec<(&String, &Value, &Arc<Schema>)> = Vec::new();
        for (key, value) in object {
            if let Some(entry) = schema
                .additional
                .as_ref()
                .filter(|_| !schema.properties.contains_key(key))
            {
                fields.push((key, value, entry));
            }
        }
        fields.extend(
            object
                .iter()
                .filter_map(|(key, value)| Some((key, value, schema.properties.get(key)?))),
        );
        for (key, value, field) in fields {
            path.push_str(if length > 0 { "." } else { "" });
            path.push_str(key);
            let result = self.check(value, field, path);
            outcome.merge(result);
            path.truncate(length);
        }
        for key in &schema.required {
            if !object.contains_key(key) {
                outcome.add(required(self.at(&format!("{path}.{key}")), ""));
            }
        }
        outcome.right += 1;
    }
}

/// The outcome to tell of: one without faults, or else the one with the most that is right.
fn best(outcomes: Vec<Outcome>) -> Option<Outcome> {
    let mut best: Option<Outcome> = None;
    for outcome in outcomes {
        if outcome.causes.is_empty() {
            return Some(outcome);
        }
        if best.as_ref().is_none_or(|best| outcome.right > best.right) {
            best = Some(outcome);
        }
    }
    best
}

/// The format of a level, if it is one that is checked.
fn format(schema: &Schema) -> Option<&str> {
    schema.raw["format"]
        .as_str()
        .filter(|format| formats::known(format))
}

/// Whether a text matches a pattern. Patterns are Go's; one that Rust does not know matches all.
fn fits(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).map_or(true, |regex| regex.is_match(text))
}

/// Checks the objects within an object.
pub(super) fn embedded(value: &Value, schema: &Schema, path: &str, causes: &mut Vec<Cause>) {
    if schema.embedded_resource && value.is_object() {
        embedded_one(value, path, causes);
    }
    for (path, value, schema) in below(value, schema, path) {
        embedded(value, schema, &path, causes);
    }
}

pub(super) fn embedded_one(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for key in ["apiVersion", "kind"] {
        let path = child(path, key);
        match value.get(key) {
            None => causes.push(required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(bad(path, "", "must not be empty"))
            }
            Some(Value::String(text)) if key == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    causes.push(bad(
                        path,
                        text,
                        &format!("unexpected GroupVersion string: {text}"),
                    ));
                }
            }
            Some(Value::String(text)) => {
                let problems = meta::label_1035(&text.to_lowercase());
                if !problems.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        problems.join(",")
                    );
                    causes.push(bad(path, text, &detail));
                }
            }
            Some(other) => causes.push(invalid(path, other, "must be a string")),
        }
    }
    if let Some(found) = value.get("metadata") {
        let mut named = found.clone();
        if let Some(object) = named
            .as_object_mut()
            .filter(|o| o.get("name").is_none_or(|name| name == ""))
        {
            object.insert("name".to_owned(), json!("fakename"));
        }
        let namespaced = !text(found, "namespace").is_empty();
        causes.extend(meta::check(
            &named,
            meta::Rule::Path,
            namespaced,
            &child(path, "metadata"),
        ));
    }
}

/// Finds items that come twice in lists that are sets or maps.
fn lists(value: &Value, schema: &Schema, path: &str, causes: &mut Vec<Cause>) {
    if let Value::Array(values) = value {
        match &schema.list {
            ListType::Set => {
                for index in repeated(values) {
                    causes.push(duplicate(format!("{path}[{index}]"), &values[index]));
                }
            }
            ListType::Map(keys) => map_list(values, keys, path, causes),
            ListType::Atomic => {}
        }
    }
    for (path, value, schema) in below(value, schema, path) {
        lists(value, schema, &path, causes);
    }
}

fn map_list(values: &[Value], keys: &[String], path: &str, causes: &mut Vec<Cause>) {
    let stray = values
        .iter()
        .enumerate()
        .find(|(_, value)| !value.is_null() && !value.is_object());
    if let Some((index, value)) = stray {
        let detail = "must be an object for an array of list-type map";
        causes.push(invalid(format!("{path}[{index}]"), value, detail));
        return;
    }
    let key_of = |value: &Value| -> Value {
        let parts = keys
            .iter()
            .filter_map(|key| Some((key.clone(), value.get(key)?.clone())));
        Value::Object(parts.collect())
    };
    let found: Vec<Value> = values.iter().map(key_of).collect();
    for index in repeated(&found) {
        causes.push(duplicate(format!("{path}[{index}]"), &found[index]));
    }
}

/// Where each value that comes more than once comes for the second time.
fn repeated(values: &[Value]) -> Vec<usize> {
    let (mut seen, mut told) = (HashSet::new(), HashSet::new());
    let mut places = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let text = value.to_string();
        if !seen.insert(text.clone()) && told.insert(text) {
            places.push(index);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::{Value, json};

    use super::{coerce, custom, default, prune};
    use crate::{schema::Schema, validate::lines};

    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::parse(&json!({"type": "object", "properties": {
            "root": {"type": "string"},
            "spec": {"type": "object", "properties": {
                "s": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "en": {"type": "string", "enum": ["a", "b"]},
                "eni": {"type": "integer", "enum": [1, 2]},
                "enn": {"type": "string", "nullable": true, "enum": ["a"]},
                "i": {"type": "integer", "minimum": 1, "maximum": 10},
                "i32": {"type": "integer", "format": "int32"},
                "ex": {"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMinimum": true, "exclusiveMaximum": true},
                "n": {"type": "number", "multipleOf": 0.5, "minimum": 0.5},
                "m": {"type": "integer", "multipleOf": 3},
                "b": {"type": "boolean"},
                "arr": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 2},
                "st": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "mp": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}},
                "mp2": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "v"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}},
                "o": {"type": "object", "required": ["a", "b"], "maxProperties": 2, "properties": {
                    "a": {"type": "string"}, "b": {"type": "string", "default": "bb"},
                    "c": {"type": "object", "default": {}, "properties": {"d": {"type": "integer", "default": 5}}}}},
                "ap": {"type": "object", "additionalProperties": {"type": "integer"}},
                "apo": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string", "default": "dd"}}}},
                "pu": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"k": {"type": "object", "properties": {"z": {"type": "string"}}}}},
                "er": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "ios": {"x-kubernetes-int-or-string": true},
                "nul": {"type": "string", "nullable": true},
                "nuld": {"type": "string", "nullable": true, "default": "x"},
                "dd": {"type": "string", "default": "x"},
                "an": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
                "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                "al": {"type": "string", "allOf": [{"minLength": 3}, {"pattern": "^x"}]},
                "no": {"type": "string", "not": {"enum": ["bad"]}},
                "dt": {"type": "string", "format": "date-time"},
                "bogus": {"type": "string", "format": "bogus"},
            }},
        }}))
    });

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        let mut value = json!({"spec": spec});
        default(&mut value, &SCHEMA);
        assert_eq!(lines(&custom(&value, &SCHEMA)), expected);
    }

    #[track_caller]
    fn wrong_type(field: &str, value: Value, found: &str, wanted: &str) {
        let line = format!(
            "FieldValueTypeInvalid spec.{field}: Invalid value: \"{found}\": spec.{field} in body must be of type {wanted}: \"{found}\""
        );
        check(json!({field: value}), &[&line]);
    }

    #[test]
    fn types() {
        for (value, found) in [
            (json!(1), "integer"),
            (json!(true), "boolean"),
            (json!({}), "object"),
            (json!([]), "array"),
            (json!(1.5), "number"),
        ] {
            wrong_type("s", value, found, "string");
        }
        wrong_type("i", json!(1.5), "number", "integer");
        wrong_type("i", json!("x"), "string", "integer");
        wrong_type("i32", json!(9223372036854775808u64), "number", "integer");
        wrong_type("n", json!("x"), "string", "number");
        wrong_type("b", json!("true"), "string", "boolean");
        wrong_type("arr", json!({}), "object", "array");
        wrong_type("o", json!("x"), "string", "object");
        wrong_type("ios", json!(1.5), "number", "integer,string");
        wrong_type("ios", json!(true), "boolean", "integer,string");
        wrong_type("dt", json!(1), "int64", "date-time");
        wrong_type("dt", json!(true), "", "date-time");
        wrong_type("dt", json!("@ !"), "@ !", "date-time");
        check(
            json!({"i": 2.0, "i32": 3000000000u32, "ios": "a", "bogus": "@", "dt": []}),
            &[],
        );
        check(
            json!({"arr": ["a", 1]}),
            &[
                "FieldValueTypeInvalid spec.arr[1]: Invalid value: \"integer\": spec.arr[1] in body must be of type string: \"integer\"",
            ],
        );
        check(
            json!({"arr": [null]}),
            &[
                "FieldValueTypeInvalid spec.arr[0]: Invalid value: \"null\": spec.arr[0] in body must be of type string: \"null\"",
            ],
        );
        check(
            json!({"ap": {"a": "x", "b": 1}}),
            &[
                "FieldValueTypeInvalid spec.ap.a: Invalid value: \"string\": spec.ap.a in body must be of type integer: \"string\"",
            ],
        );
        let root = custom(&json!({"root": 5}), &SCHEMA);
        assert_eq!(
            lines(&root),
            [
                "FieldValueTypeInvalid root: Invalid value: \"integer\": root in body must be of type string: \"integer\""
            ]
        );
    }

    #[test]
    fn values() {
        check(
            json!({"s": "a"}),
            &[
                "FieldValueInvalid spec.s: Invalid value: \"a\": spec.s in body should be at least 2 chars long",
            ],
        );
        check(
            json!({"s": "aaaaa"}),
            &["FieldValueTooLong spec.s: Too long: may not be more than 4 bytes"],
        );
        check(
            json!({"s": "A1"}),
            &[
                "FieldValueInvalid spec.s: Invalid value: \"A1\": spec.s in body should match '^[a-z]+$'",
            ],
        );
        check(
            json!({"en": "c"}),
            &[
                "FieldValueNotSupported spec.en: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ],
        );
        check(
            json!({"en": 1}),
            &[
                "FieldValueTypeInvalid spec.en: Invalid value: \"integer\": spec.en in body must be of type string: \"integer\"",
                "FieldValueNotSupported spec.en: Unsupported value: 1: supported values: \"a\", \"b\"",
            ],
        );
        check(
            json!({"eni": 3}),
            &[
                "FieldValueNotSupported spec.eni: Unsupported value: 3: supported values: \"1\", \"2\"",
            ],
        );
        check(
            json!({"enn": null}),
            &["FieldValueNotSupported spec.enn: Unsupported value: null: supported values: \"a\""],
        );
        check(
            json!({"i": 0}),
            &[
                "FieldValueInvalid spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1",
            ],
        );
        check(
            json!({"i": 11}),
            &[
                "FieldValueInvalid spec.i: Invalid value: 11: spec.i in body should be less than or equal to 10",
            ],
        );
        check(
            json!({"ex": 1}),
            &[
                "FieldValueInvalid spec.ex: Invalid value: 1: spec.ex in body should be greater than 1",
            ],
        );
        check(
            json!({"ex": 10}),
            &[
                "FieldValueInvalid spec.ex: Invalid value: 10: spec.ex in body should be less than 10",
            ],
        );
        check(
            json!({"n": 0.7}),
            &[
                "FieldValueInvalid spec.n: Invalid value: 0.7: spec.n in body should be a multiple of 0.5",
            ],
        );
        check(
            json!({"n": 0.0}),
            &[
                "FieldValueInvalid spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 0.5",
            ],
        );
        check(
            json!({"n": 1}),
            &[
                "FieldValueInvalid spec.n: Invalid value: 0: factor MultipleOf declared for spec.n must be positive: 0",
            ],
        );
        check(
            json!({"m": 4}),
            &[
                "FieldValueInvalid spec.m: Invalid value: 4: spec.m in body should be a multiple of 3",
            ],
        );
    }

    #[test]
    fn lists_and_objects() {
        check(
            json!({"arr": []}),
            &[
                "FieldValueInvalid spec.arr: Invalid value: 0: spec.arr in body should have at least 1 items",
            ],
        );
        check(
            json!({"arr": ["a", "b", "c"]}),
            &["FieldValueTooMany spec.arr: Too many: 3: must have at most 2 items"],
        );
        check(
            json!({"arr": [""]}),
            &[
                "FieldValueInvalid spec.arr[0]: Invalid value: \"\": spec.arr[0] in body should be at least 1 chars long",
            ],
        );
        check(
            json!({"st": ["a", "b", "a", "a"]}),
            &["FieldValueDuplicate spec.st[2]: Duplicate value: \"a\""],
        );
        check(
            json!({"mp": [{"k": "a"}, {"k": "a"}]}),
            &["FieldValueDuplicate spec.mp[1]: Duplicate value: {\"k\":\"a\"}"],
        );
        check(
            json!({"mp2": [{"k": "a", "v": "1"}, {"k": "a", "v": "1"}, {"k": "a", "v": "2"}]}),
            &["FieldValueDuplicate spec.mp2[1]: Duplicate value: {\"k\":\"a\",\"v\":\"1\"}"],
        );
        check(
            json!({"mp": [{"v": "a"}]}),
            &["FieldValueRequired spec.mp[0].k: Required value"],
        );
        check(
            json!({"o": {}}),
            &["FieldValueRequired spec.o.a: Required value"],
        );
        check(
            json!({"o": {"a": "x"}}),
            &["FieldValueTooMany spec.o: Too many: 3: must have at most 2 items"],
        );
    }

    #[test]
    fn branches() {
        check(
            json!({"an": {}}),
            &[
                "FieldValueInvalid <nil>: Invalid value: \"\": \"spec.an\" must validate at least one schema (anyOf)",
                "FieldValueRequired spec.an.a: Required value",
            ],
        );
        check(
            json!({"one": {}}),
            &[
                "FieldValueInvalid <nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid",
                "FieldValueRequired spec.one.a: Required value",
            ],
        );
        check(
            json!({"one": {"a": "", "b": ""}}),
            &[
                "FieldValueInvalid <nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        );
        check(
            json!({"al": "ab"}),
            &[
                "FieldValueInvalid spec.al: Invalid value: \"ab\": spec.al in body should be at least 3 chars long",
                "FieldValueInvalid spec.al: Invalid value: \"ab\": spec.al in body should match '^x'",
                "FieldValueInvalid <nil>: Invalid value: \"\": \"spec.al\" must validate all the schemas (allOf). None validated",
            ],
        );
        check(
            json!({"al": "xb"}),
            &[
                "FieldValueInvalid spec.al: Invalid value: \"xb\": spec.al in body should be at least 3 chars long",
                "FieldValueInvalid <nil>: Invalid value: \"\": \"spec.al\" must validate all the schemas (allOf)",
            ],
        );
        check(
            json!({"no": "bad"}),
            &[
                "FieldValueInvalid <nil>: Invalid value: \"\": \"spec.no\" must not validate the schema (not)",
            ],
        );
        check(
            json!({"an": {"b": "x"}, "one": {"a": ""}, "al": "xyz", "no": "good"}),
            &[],
        );
    }

    #[test]
    fn objects_within() {
        check(
            json!({"er": {}}),
            &[
                "FieldValueRequired spec.er.apiVersion: Required value",
                "FieldValueRequired spec.er.kind: Required value",
            ],
        );
        check(
            json!({"er": {"apiVersion": "a/b/c", "kind": "1"}}),
            &[
                "FieldValueInvalid spec.er.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "FieldValueInvalid spec.er.kind: Invalid value: \"1\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        );
        check(
            json!({"er": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a/b"}}}),
            &[
                "FieldValueInvalid spec.er.metadata.name: Invalid value: \"a/b\": may not contain '/'",
            ],
        );
    }

    #[test]
    fn metadata_has_types() {
        let refused = |value: Value, expected: &str| {
            let status = coerce(&value, &SCHEMA, "val.example.com/v1", "Widget").unwrap_err();
            assert_eq!(
                status.message,
                format!("Widget in version \"v1\" cannot be handled as a Widget: {expected}")
            );
        };
        refused(
            json!({"metadata": {"labels": 1}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string",
        );
        refused(
            json!({"metadata": {"name": 1}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
        );
        refused(
            json!({"metadata": "x"}),
            "json: cannot unmarshal string into Go value of type v1.ObjectMeta",
        );
        refused(
            json!({"metadata": {"creationTimestamp": "x"}}),
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        );
        refused(
            json!({"spec": {"er": {"apiVersion": 1, "kind": "A"}}}),
            "spec.er.apiVersion: Invalid value: 1: must be a string",
        );
        refused(
            json!({"spec": {"er": {"metadata": {"labels": 1}}}}),
            "spec.er.metadata: Invalid value: {\"labels\":1}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string",
        );
    }

    #[test]
    fn unknown_fields_are_pruned() {
        let pruned = |mut value: Value, expected: &[&str]| {
            let expected: Vec<String> = expected
                .iter()
                .map(|path| format!("unknown field \"{path}\""))
                .collect();
            assert_eq!(prune(&mut value, &SCHEMA), expected);
            value
        };
        pruned(
            json!({"spec": {"foo": 1, "o": {"a": "x", "zz": {"a": 1}}, "arr": [{"a": 1}]}}),
            &["spec.arr[0].a", "spec.foo", "spec.o.zz"],
        );
        pruned(
            json!({"spec": "x", "status": 1, "extra": 2}),
            &["extra", "status"],
        );
        let value = pruned(
            json!({"spec": {"pu": {"x": {"y": 1.0}, "k": {"z": "a", "y": 1}}}}),
            &["spec.pu.k.y"],
        );
        assert_eq!(
            value,
            json!({"spec": {"pu": {"x": {"y": 1}, "k": {"z": "a"}}}})
        );
        let er = json!({"apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x", "foo": 1}, "spec": {"a": "b", "c": "d"}, "extra": 1});
        let value = pruned(
            json!({"spec": {"er": er}}),
            &["spec.er.extra", "spec.er.spec.c", "spec.er.metadata.foo"],
        );
        assert_eq!(
            value["spec"]["er"],
            json!({"apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x"}, "spec": {"a": "b"}})
        );
        pruned(
            json!({"metadata": {"name": "a", "zz": 1}, "spec": {"q": 1, "apo": {"a.b/c": {"x": "1", "y": 2}}, "ap": {"q": {"x": 1}}}}),
            &["metadata.zz", "spec.ap.q.x", "spec.apo.a.b/c.y", "spec.q"],
        );
    }

    #[test]
    fn defaults_are_filled_in() {
        let mut value = json!({"spec": {"nul": null, "nuld": null, "dd": null, "s": null, "o": {"b": null}, "apo": {"a": {}, "b": null}, "ios": null}});
        default(&mut value, &SCHEMA);
        assert_eq!(
            value,
            json!({"spec": {"nul": null, "nuld": null, "dd": "x", "o": {"b": "bb", "c": {"d": 5}}, "apo": {"a": {"x": "dd"}}}})
        );
        let mut value = json!({"spec": null});
        default(&mut value, &SCHEMA);
        assert_eq!(value, json!({}));
    }
}
