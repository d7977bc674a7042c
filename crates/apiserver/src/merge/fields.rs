//! Sets of fields, as `managedFields` writes them (FieldsV1), and what the schema says of them:
//! which fields a value has, which differ between two values, and what a value may not hold.
//! Maps and structs are owned by field, lists as their type says; what no schema knows is a map
//! by field or a list as one value.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value, json};

use super::strategic::go;
use crate::schema::{ListType, Schema, Type, object_meta};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    Field(String),
    Key(Vec<(String, Scalar)>),
    Value(Scalar),
    Index(i64),
}

/// A JSON value with an order: numbers, texts, then the rest.
#[derive(Debug, Clone)]
pub(super) struct Scalar(Value);

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scalar {}

fn order(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| order(a, b));
            pairs
                .fold(Ordering::Equal, Ordering::then)
                .then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let of = |map: &Map<String, Value>, name| map.get(name).cloned().map(Scalar);
            let pairs = names.into_iter().map(|name| of(a, name).cmp(&of(b, name)));
            pairs.fold(Ordering::Equal, Ordering::then)
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are one, where `1` and `1.0` are.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    order(a, b).is_eq()
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={}", v.0)).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Element {
    fn to_json(&self) -> String {
        let compact = match self {
            Self::Field(name) => return format!("f:{name}"),
            Self::Index(index) => return format!("i:{index}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(k, v)| format!("{}:{}", Value::from(k.as_str()), v.0))
                    .collect();
                format!("k:{{{}}}", keys.join(","))
            }
            Self::Value(value) => format!("v:{}", value.0),
        };
        compact
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
    }

    /// None for kinds of steps that are not known.
    fn from_json(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(format!("missing colon: {text}"));
        };
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
        Ok(Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(Scalar(parse(rest)?)),
            "i" => Self::Index(rest.parse().map_err(|_| format!("invalid index: {rest}"))?),
            "k" => {
                let Value::Object(keys) = parse(rest)? else {
                    return Err(format!("invalid key: {rest}"));
                };
                let mut keys: Vec<_> = keys.into_iter().map(|(k, v)| (k, Scalar(v))).collect();
                keys.sort();
                Self::Key(keys)
            }
            _ => return Ok(None),
        }))
    }
}

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Set(BTreeMap<Element, Node>);

#[derive(Debug, Clone, Default, PartialEq)]
struct Node {
    /// Whether the path that ends here is in the set.
    member: bool,
    below: Set,
}

impl Set {
    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => self.0.entry(last.clone()).or_default().member = true,
            [first, rest @ ..] => self.0.entry(first.clone()).or_default().below.insert(rest),
        }
    }

    pub(super) fn insert_fields(&mut self, names: &[&str]) {
        let path: Vec<Element> = names
            .iter()
            .map(|name| Element::Field((*name).to_owned()))
            .collect();
        self.insert(&path);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0
            .values()
            .all(|node| !node.member && node.below.is_empty())
    }

    pub(super) fn has(&self, element: &Element) -> bool {
        self.0.get(element).is_some_and(|node| node.member)
    }

    pub(super) fn below(&self, element: &Element) -> Option<&Self> {
        self.0
            .get(element)
            .map(|node| &node.below)
            .filter(|set| !set.is_empty())
    }

    /// Without a field of the object and what is below it.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.remove(&Element::Field(name.to_owned()));
        self
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a || b)
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a && b)
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a && !b)
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let none = Node::default();
        let elements: BTreeSet<&Element> = self.0.keys().chain(other.0.keys()).collect();
        let nodes = elements.into_iter().filter_map(|element| {
            let (a, b) = (
                self.0.get(element).unwrap_or(&none),
                other.0.get(element).unwrap_or(&none),
            );
            let node = Node {
                member: keep(a.member, b.member),
                below: a.below.combine(&b.below, keep),
            };
            (node.member || !node.below.0.is_empty()).then(|| (element.clone(), node))
        });
        Self(nodes.collect())
    }

    /// The paths, those that end at a level before those that go on.
    pub(super) fn paths(&self) -> Vec<Vec<Element>> {
        let members = self.0.iter().filter(|(_, node)| node.member);
        let mut paths: Vec<Vec<Element>> =
            members.map(|(element, _)| vec![element.clone()]).collect();
        for (element, node) in &self.0 {
            let below = node.below.paths().into_iter();
            paths.extend(below.map(|rest| [vec![element.clone()], rest].concat()));
        }
        paths
    }

    /// With every declared field on the way to a member as a member too.
    pub(super) fn with_declared(&self, schema: Option<&Schema>) -> Self {
        let nodes = self.0.iter().map(|(element, node)| {
            let (named, next) = match element {
                Element::Field(name) => (is_declared(schema, name), field(schema, name)),
                Element::Key(_) => (false, schema.and_then(Schema::item)),
                _ => (false, None),
            };
            let node = Node {
                member: node.member || named && !node.below.0.is_empty(),
                below: node.below.with_declared(next),
            };
            (element.clone(), node)
        });
        Self(nodes.collect())
    }

    pub(super) fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        for (element, node) in &self.0 {
            let mut below = Map::new();
            if node.member && !node.below.0.is_empty() {
                below.insert(".".to_owned(), json!({}));
            }
            below.extend(node.below.to_json());
            object.insert(element.to_json(), below.into());
        }
        object
    }

    pub(super) fn from_json(value: &Value) -> Result<Self, String> {
        let mut set = Self::default();
        for (name, below) in value.as_object().into_iter().flatten() {
            if name == "." {
                continue;
            }
            if let Some(element) = Element::from_json(name)? {
                let node = Node {
                    member: below.get(".").is_some() || below.as_object().is_none_or(Map::is_empty),
                    below: Self::from_json(below)?,
                };
                set.0.insert(element, node);
            }
        }
        Ok(set)
    }
}

/// How a value is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As one.
    Leaf,
    /// By field.
    Fields,
    /// By item.
    Items,
}

pub(super) fn shape(schema: Option<&Schema>, value: &Value) -> Shape {
    let Some(schema) = schema else {
        return match value {
            Value::Object(_) | Value::Null => Shape::Fields,
            _ => Shape::Leaf,
        };
    };
    let target = schema.resolve();
    let granular = schema.raw["x-kubernetes-map-type"] == "granular";
    let atomic = schema.atomic_map || target.atomic_map && !granular || is_raw_extension(schema);
    match (value, target.kind) {
        (Value::Object(_) | Value::Null, Type::Object | Type::Any) if !atomic => Shape::Fields,
        (Value::Array(_), Type::Array | Type::Any) | (Value::Null, Type::Array)
            if target.list != ListType::Atomic =>
        {
            Shape::Items
        }
        _ => Shape::Leaf,
    }
}

fn is_raw_extension(schema: &Schema) -> bool {
    let path = schema.raw["$ref"]
        .as_str()
        .or_else(|| schema.raw["allOf"][0]["$ref"].as_str());
    path.is_some_and(|path| path.ends_with(".runtime.RawExtension"))
}

/// The schema of a field; whole objects inside others know their metadata.
pub(super) fn field<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    let schema = schema?;
    match schema.resolve().embedded_resource && name == "metadata" {
        true => object_meta(),
        false => schema.field(name),
    }
}

/// Whether a field has a name in the schema, unlike the entries of a map.
fn is_declared(schema: Option<&Schema>, name: &str) -> bool {
    schema.map(Schema::resolve).is_some_and(|schema| {
        schema.properties.contains_key(name)
            || schema.embedded_resource && ["apiVersion", "kind", "metadata"].contains(&name)
    })
}

/// What tells an item of a list by item from the others.
pub(super) fn item_element(list: Option<&Schema>, item: &Value) -> Result<Element, String> {
    let said = |text: &str| Err(text.to_owned());
    let Some(ListType::Map(names)) = list.map(|schema| &schema.resolve().list) else {
        return match item {
            Value::Object(_) => {
                said("associative list without keys has an element that's a map type")
            }
            Value::Array(_) => said("not supported: associative list with lists as elements"),
            Value::Null => {
                said("associative list without keys has an element that's an explicit null")
            }
            scalar => Ok(Element::Value(Scalar(scalar.clone()))),
        };
    };
    if !item.is_object() {
        return said(match item {
            Value::Null => "associative list with keys may not have a null element",
            _ => "associative list with keys may not have non-map elements",
        });
    }
    let schema = list.and_then(Schema::item);
    let mut keys: Vec<(String, Scalar)> = Vec::new();
    for name in names {
        let value = item
            .get(name)
            .cloned()
            .or_else(|| key_default(schema, name));
        keys.extend(value.map(|value| (name.clone(), Scalar(value))));
    }
    if keys.is_empty() {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(" ");
        return said(&format!(
            "associative list with keys has an element that omits all key fields [{names}] (and \
             doesn't have default values for any key fields)"
        ));
    }
    keys.sort();
    Ok(Element::Key(keys))
}

/// The recorded schemas of built-in kinds are without defaults: a protocol's is TCP, and that of
/// fields that Go always writes is their zero value.
fn key_default(item: Option<&Schema>, name: &str) -> Option<Value> {
    let built_in = item?.raw.get("$ref").is_some();
    let target = item?.resolve();
    let key = target.properties.get(name)?;
    let written = target.required.iter().any(|r| r == name) || target.properties.len() == 1;
    match (key.raw.get("default"), key.kind) {
        (Some(default), _) => Some(default.clone()),
        _ if !built_in => None,
        _ if name == "protocol" => Some("TCP".into()),
        (_, Type::String) if written => Some("".into()),
        (_, Type::Integer) if written => Some(0.into()),
        _ => None,
    }
}

/// The fields that a value sets.
pub(super) fn set_of(schema: Option<&Schema>, value: &Value) -> Set {
    let mut set = Set::default();
    collect(schema, value, &mut Vec::new(), &mut set);
    set
}

fn collect(schema: Option<&Schema>, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match shape(schema, value) {
        Shape::Leaf => set.insert(path),
        Shape::Fields => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(Element::Field(name.clone()));
                collect(field(schema, name), value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !is_declared(schema, name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Shape::Items => {
            for (element, items) in by_element(schema, Some(value)) {
                path.push(element);
                if let [item] = items.as_slice() {
                    collect(schema.and_then(Schema::item), item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

fn by_element<'a>(
    list: Option<&Schema>,
    value: Option<&'a Value>,
) -> BTreeMap<Element, Vec<&'a Value>> {
    let mut items: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = item_element(list, item) {
            items.entry(element).or_default().push(item);
        }
    }
    items
}

/// The fields that differ between two values.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    pub(super) fn of(schema: Option<&Schema>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.compare(schema, Some(old), Some(new), &mut Vec::new());
        comparison
    }

    pub(super) fn set(&self) -> Set {
        self.modified.or(&self.added)
    }

    fn compare(
        &mut self,
        schema: Option<&Schema>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<Element>,
    ) {
        let shapes = (old.map(|v| shape(schema, v)), new.map(|v| shape(schema, v)));
        let leaf = match shapes {
            (None, None) => return,
            (Some(one), None) | (None, Some(one)) => self.by_shape(one, schema, old, new, path),
            (Some(a), Some(b)) if a == b => self.by_shape(a, schema, old, new, path),
            (Some(a), Some(b)) => {
                self.by_shape(a, schema, old, new, path);
                self.by_shape(b, schema, old, new, path)
            }
        };
        if !leaf && old.is_none() {
            self.added.insert(path);
        } else if !leaf && new.is_none() {
            self.removed.insert(path);
        }
    }

    /// Whether the value was compared as one.
    fn by_shape(
        &mut self,
        shape: Shape,
        schema: Option<&Schema>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<Element>,
    ) -> bool {
        match shape {
            Shape::Fields => {
                let none = Map::new();
                let of = |v: Option<&Value>| v.and_then(Value::as_object).cloned();
                let (a, b) = (
                    of(old).unwrap_or_else(|| none.clone()),
                    of(new).unwrap_or(none),
                );
                let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for name in &names {
                    path.push(Element::Field((*name).clone()));
                    self.compare(field(schema, name), a.get(*name), b.get(*name), path);
                    path.pop();
                }
                if !names.is_empty() {
                    return false;
                }
            }
            Shape::Items => {
                let (a, b) = (by_element(schema, old), by_element(schema, new));
                let elements: BTreeSet<&Element> = a.keys().chain(b.keys()).collect();
                let item = schema.and_then(Schema::item);
                for element in &elements {
                    let of = |side: &BTreeMap<Element, Vec<&Value>>| match side
                        .get(*element)
                        .map(Vec::as_slice)
                    {
                        Some([one]) => Some((*one).clone()),
                        Some(many) => Some(many.iter().map(|v| (*v).clone()).collect()),
                        None => None,
                    };
                    let many = |side: &BTreeMap<Element, Vec<&Value>>| {
                        side.get(*element).is_some_and(|v| v.len() > 1)
                    };
                    path.push((*element).clone());
                    match (many(&a), many(&b)) {
                        (false, false) => {
                            self.compare(item, of(&a).as_ref(), of(&b).as_ref(), path)
                        }
                        (true, true) if of(&a) != of(&b) => self.modified.insert(path),
                        (true, true) => {}
                        (true, false) => {
                            self.compare(item, None, of(&b).as_ref(), path);
                            self.removed.insert(path);
                        }
                        (false, true) => {
                            self.compare(item, of(&a).as_ref(), None, path);
                            self.added.insert(path);
                        }
                    }
                    path.pop();
                }
                if !elements.is_empty() {
                    return false;
                }
            }
            Shape::Leaf => {}
        }
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if !same(old, new) => self.modified.insert(path),
            _ => {}
        }
        true
    }
}

/// What is wrong with a value that is to be merged, as the real server spells it.
pub(super) fn mistakes(
    schema: Option<&Schema>,
    value: &Value,
    open: bool,
    path: &str,
    said: &mut Vec<String>,
) {
    let Some(schema) = schema else { return };
    let target = schema.resolve();
    let open = target.preserve_unknown || open && schema.raw.get("$ref").is_none();
    let at = |text: String| {
        if path.is_empty() {
            text
        } else {
            format!("{path}: {text}")
        }
    };
    match (target.kind, value) {
        (_, Value::Null) => {}
        (Type::Object | Type::Any, Value::Object(fields)) if !is_raw_extension(schema) => {
            let free = open || target.additional.is_some() || target.properties.is_empty();
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            for (name, value) in sorted {
                let path = format!("{path}.{name}");
                match field(Some(schema), name) {
                    None if !free && !is_declared(Some(schema), name) => {
                        said.push(format!("{path}: field not declared in schema"));
                        return;
                    }
                    found => mistakes(found, value, open, &path, said),
                }
            }
        }
        (Type::Array | Type::Any, Value::Array(items)) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let element = match target.list {
                    ListType::Atomic => Ok(Element::Index(index as i64)),
                    _ => item_element(Some(schema), item),
                };
                match element {
                    Err(text) => return said.push(at(format!("element {index}: {text}"))),
                    Ok(element) => {
                        if !seen.insert(element.clone()) {
                            said.push(at(format!("duplicate entries for key {element}")));
                        }
                        mistakes(schema.item(), item, open, &format!("{path}{element}"), said);
                    }
                }
            }
        }
        (Type::Object, other) if !is_raw_extension(schema) => {
            said.push(at(format!("expected map, got &{{{}}}", go(other))))
        }
        (Type::Array, other) => said.push(at(format!("expected list, got &{{{}}}", go(other)))),
        (Type::Integer | Type::Number, other) if !other.is_number() => {
            let kind = match other {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            said.push(at(format!("expected numeric (int or float), got {kind}")));
        }
        (Type::String, other)
            if !other.is_string()
                && schema.raw.get("format").is_none()
                && schema.raw.get("$ref").is_none() =>
        {
            said.push(at(format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                go(other)
            )));
        }
        (Type::Boolean, other) if !other.is_boolean() => {
            said.push(at(format!("expected boolean, got &{{{}}}", go(other))))
        }
        _ => {}
    }
}

/// Adds what the real server's types of built-in kinds always hold: embedded structs, and zero
/// values of required fields. Without them, whoever first sets a field inside would own the
/// struct.
pub(super) fn fill(value: &mut Value, schema: &Schema) {
    let target = schema.resolve();
    match (shape(Some(schema), value), value) {
        (Shape::Fields, Value::Object(fields)) => {
            for (name, property) in &target.properties {
                if fields.contains_key(name) {
                    continue;
                }
                let kind = property.resolve().kind;
                let zero = match kind {
                    Type::Object if is_embedded(target, name, property) => json!({}),
                    _ if !target.required.contains(name) => continue,
                    Type::Object | Type::Array => Value::Null,
                    Type::String if property.raw.get("$ref").is_none() => "".into(),
                    Type::Integer => 0.into(),
                    Type::Boolean => false.into(),
                    _ => continue,
                };
                fields.insert(name.clone(), zero);
            }
            for (name, value) in fields {
                if let Some(field) = schema.field(name) {
                    fill(value, field);
                }
            }
        }
        (Shape::Items, Value::Array(items)) => {
            if let Some(item) = schema.item() {
                items.iter_mut().for_each(|value| fill(value, item));
            }
        }
        _ => {}
    }
}

/// Whether a field is a struct and not a pointer to one. Names tell, but for a few.
fn is_embedded(parent: &Schema, name: &str, property: &Schema) -> bool {
    const EMBEDDED: [&str; 34] = [
        "acceptedNames",
        "backend",
        "conditions",
        "current",
        "daemonEndpoints",
        "deprecatedSource",
        "describedObject",
        "devices",
        "involvedObject",
        "jobTemplate",
        "kubeletEndpoint",
        "lastState",
        "limitResponse",
        "loadBalancer",
        "metadata",
        "metric",
        "names",
        "nodeInfo",
        "podAffinityTerm",
        "pool",
        "port",
        "preference",
        "preferredVersion",
        "priorityLevelConfiguration",
        "regarding",
        "roleRef",
        "scaleTargetRef",
        "source",
        "spec",
        "state",
        "strategy",
        "target",
        "updateStrategy",
        "userInfo",
    ];
    let beside = |other: &str| parent.properties.contains_key(other);
    property.raw.get("$ref").is_some()
        && match name {
            "status" => beside("metadata"),
            "resources" => !beside("containerID") && !beside("containers"),
            "template" => beside("metadata") || parent.required.iter().any(|r| r == name),
            "clientConfig" => beside("admissionReviewVersions"),
            "podSelector" => beside("policyTypes"),
            _ => EMBEDDED.contains(&name),
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Comparison, Set, set_of};
    use crate::schema::{BUILT_IN, Schema};

    #[test]
    fn sets_are_read_and_written() {
        let json = json!({ "f:spec": { ".": {}, "f:l": { "k:{\"a\":\"x\",\"b\":1}": { "f:c": {} }, "v:\"\\u0026\"": {}, "i:3": {} } } });
        let set = Set::from_json(&json).unwrap();
        assert_eq!(json!(set.to_json()), json);
        let paths: Vec<String> = set
            .paths()
            .iter()
            .map(|path| path.iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(
            paths,
            [
                ".spec",
                ".spec.l[=\"&\"]",
                ".spec.l[3]",
                ".spec.l[a=\"x\",b=1].c"
            ]
        );
        assert!(Set::from_json(&json!({ "spec": {} })).is_err());
        assert!(Set::from_json(&json!({ "z:spec": {} })).unwrap().is_empty());
    }

    #[test]
    fn ports_have_a_default_protocol() {
        let schema = BUILT_IN.schema("v1", "Pod").unwrap();
        let pod = json!({ "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 80 }] }] } });
        let ports = json!({ "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } });
        let item = json!({ ".": {}, "f:name": {}, "f:ports": ports });
        assert_eq!(
            json!(set_of(Some(schema), &pod).to_json()),
            json!({ "f:spec": { "f:containers": { "k:{\"name\":\"a\"}": item } } })
        );
    }

    #[test]
    fn unknown_values_are_maps_by_field_and_lists_as_one() {
        let schema = Schema::anything();
        let (old, new) = (
            json!({ "a": { "b": [1], "c": 1 } }),
            json!({ "a": { "b": [2], "c": 1.0, "d": {} } }),
        );
        let changes = Comparison::of(Some(&schema), &old, &new);
        assert_eq!(
            json!(changes.modified.to_json()),
            json!({ "f:a": { "f:b": {} } })
        );
        assert_eq!(
            json!(changes.added.to_json()),
            json!({ "f:a": { "f:d": {} } })
        );
        assert!(changes.removed.is_empty());
    }

    #[test]
    fn duplicates_are_owned_as_one() {
        let schema = Schema::parse(
            &json!({ "type": "object", "properties": { "s": { "type": "array", "x-kubernetes-list-type": "set" } } }),
        );
        let changes = Comparison::of(
            Some(&schema),
            &json!({ "s": ["a", "b"] }),
            &json!({ "s": ["a", "a"] }),
        );
        assert_eq!(
            json!(changes.added.to_json()),
            json!({ "f:s": { "v:\"a\"": {} } })
        );
        assert_eq!(
            json!(changes.removed.to_json()),
            json!({ "f:s": { "v:\"a\"": {}, "v:\"b\"": {} } })
        );
    }
}
