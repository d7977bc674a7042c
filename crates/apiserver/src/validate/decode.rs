//! What Go's decoder does with an object of a built-in kind: the first value of a wrong type refuses the
//! object, unknown fields are dropped and listed, `null` means that a field is not there. Times and
//! amounts get the spelling, and empty lists and maps the fate, that encoding the Go types again gives.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::quantity;
use crate::{
    schema::{BUILT_IN, Schema, Type},
    status::{Result, Status},
};

/// Brings an object of a built-in kind into the form that is kept; says which fields are unknown, as
/// `unknown field "spec.foo"`.
pub(crate) fn decode(
    value: &mut Value,
    schema: &Schema,
    api_version: &str,
    kind: &str,
) -> Result<Vec<String>> {
    let mut decoder = Decoder::new(kind);
    match decoder.run(value, schema) {
        Ok(()) => Ok(decoder
            .unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect()),
        Err(problem) => Err(unhandled(&problem, api_version, kind)),
    }
}

/// The refusal of an object that the decoder cannot take.
pub(super) fn unhandled(problem: &str, api_version: &str, kind: &str) -> Status {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {problem}"
    ))
}

/// Decodes a part of an object that stands by itself: the paths of its unknown fields, or the problem.
pub(super) fn part(
    value: &mut Value,
    schema: &Schema,
    name: &str,
) -> std::result::Result<Vec<String>, String> {
    let mut decoder = Decoder::new(name);
    decoder.run(value, schema).map(|()| decoder.unknown)
}

struct Decoder {
    /// The innermost Go struct.
    within: String,
    /// The path from the root without the places in lists, as errors have it.
    fields: String,
    /// The path with the places in lists, as findings have it.
    path: String,
    unknown: Vec<String>,
    /// The first value of a wrong type; the decoder goes on to look for worse.
    wrong: Option<Wrong>,
}

/// A value that has the wrong type for Go.
#[derive(Clone)]
struct Wrong {
    value: String,
    wanted: String,
    message: String,
}

/// What ends the decoding at once: types that decode themselves.
type Step = std::result::Result<(), String>;

impl Decoder {
    fn new(within: &str) -> Self {
        Self {
            within: within.to_owned(),
            fields: String::new(),
            path: String::new(),
            unknown: Vec::new(),
            wrong: None,
        }
    }

    fn run(&mut self, value: &mut Value, schema: &Schema) -> Step {
        self.value(value, schema)?;
        match self.wrong.take() {
            Some(wrong) => Err(wrong.message),
            None => Ok(()),
        }
    }

    fn value(&mut self, value: &mut Value, schema: &Schema) -> Step {
        let (reference, name) = (schema, type_name(schema).unwrap_or_default());
        let schema = schema.resolve();
        match name {
            "Time" | "MicroTime" => return self.time(value, name == "MicroTime"),
            "Quantity" => return amount(value),
            "IntOrString" => return self.int_or_string(value),
            "RawExtension" | "FieldsV1" | "JSON" | "Patch" => return Ok(()),
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
                return self.inner_schema(value);
            }
            _ => {}
        }
        match (schema.kind, &mut *value) {
            (Type::Object, Value::Object(object)) => match &schema.additional {
                Some(entry) => return self.map(object, entry),
                None => return self.fields(object, schema, name),
            },
            (Type::Array, Value::Array(items)) => return self.list(items, schema),
            (Type::String, Value::String(text)) => {
                if schema.raw["format"] == "byte"
                    && let Some(at) = base64_problem(text)
                {
                    let message = format!("illegal base64 data at input byte {at}");
                    self.wrong.get_or_insert(Wrong {
                        value: String::new(),
                        wanted: String::new(),
                        message,
                    });
                }
            }
            (Type::Integer, Value::Number(number)) => {
                let small = schema.raw["format"] == "int32";
                let fits = number
                    .as_i64()
                    .is_some_and(|n| !small || i32::try_from(n).is_ok());
                if !fits {
                    self.save(format!("number {number}"), go_type(schema));
                }
            }
            (Type::Number, Value::Number(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Any, _) => {
            }
            (Type::IntOrString, _) => return self.int_or_string(value),
            (kind, other) => {
                let said = said(other);
                let wanted = match kind {
                    Type::Object if name.is_empty() && schema.additional.is_none() => {
                        format!("v1.{}", self.within)
                    }
                    Type::String if self.fields.rsplit('.').next() == Some("uid") => {
                        "types.UID".to_owned()
                    }
                    _ => go_type(reference),
                };
                self.save(said, wanted);
            }
        }
        Ok(())
    }

    fn save(&mut self, value: String, wanted: String) {
        if self.wrong.is_none() {
            let message = self.message(&value, &wanted);
            self.wrong = Some(Wrong {
                value,
                wanted,
                message,
            });
        }
    }

    fn message(&self, value: &str, wanted: &str) -> String {
        match self.fields.as_str() {
            "" => format!("json: cannot unmarshal {value} into Go value of type {wanted}"),
            fields => format!(
                "json: cannot unmarshal {value} into Go struct field {}.{fields} of type {wanted}",
                self.within
            ),
        }
    }

    fn fields(&mut self, object: &mut Map<String, Value>, schema: &Schema, name: &str) -> Step {
        let outer =
            (!name.is_empty()).then(|| std::mem::replace(&mut self.within, name.to_owned()));
        let (fields, path) = (self.fields.len(), self.path.len());
        let keys: Vec<String> = object.keys().cloned().collect();
        for key in keys {
            let Some(value) = object.get_mut(&key) else {
                continue;
            };
            let dot = if path > 0 { "." } else { "" };
            self.path.push_str(dot);
            self.path.push_str(&key);
            match schema.properties.get(&key) {
                None => {
                    self.unknown.push(self.path.clone());
                    object.remove(&key);
                }
                Some(_) if value.is_null() => {
                    object.remove(&key);
                }
                Some(field) => {
                    self.fields.push_str(if fields > 0 { "." } else { "" });
                    self.fields.push_str(&key);
                    self.value(value, field)?;
                    self.fields.truncate(fields);
                    if !schema.required.contains(&key) && leaves_nothing(value, field, &self.within)
                    {
                        object.remove(&key);
                    }
                }
            }
            self.path.truncate(path);
        }
        if let Some(outer) = outer {
            self.within = outer;
        }
        Ok(())
    }

    fn map(&mut self, object: &mut Map<String, Value>, entry: &Schema) -> Step {
        let path = self.path.len();
        for (key, value) in object.iter_mut() {
            self.path.push_str(if path > 0 { "." } else { "" });
            self.path.push_str(key);
            self.item(value, entry)?;
            self.path.truncate(path);
        }
        Ok(())
    }

    fn list(&mut self, items: &mut [Value], schema: &Schema) -> Step {
        let Some(item) = schema.item() else {
            return Ok(());
        };
        let path = self.path.len();
        for (index, value) in items.iter_mut().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            self.item(value, item)?;
            self.path.truncate(path);
        }
        Ok(())
    }

    /// An entry or item, for which `null` means Go's zero value.
    fn item(&mut self, value: &mut Value, schema: &Schema) -> Step {
        if !value.is_null() {
            return self.value(value, schema);
        }
        *value = match (type_name(schema), schema.resolve().kind) {
            (Some("Quantity"), _) => json!("0"),
            (_, Type::String) => json!(""),
            (_, Type::Integer | Type::Number | Type::IntOrString) => json!(0),
            (_, Type::Boolean) => json!(false),
            (_, Type::Object) => json!({}),
            _ => Value::Null,
        };
        Ok(())
    }

    fn time(&mut self, value: &mut Value, micro: bool) -> Step {
        let Value::String(text) = value else {
            return Err(self.message(&said(value), "string"));
        };
        if let Some(problem) = time_problem(text, micro) {
            return Err(problem);
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            let form = if micro {
                "%Y-%m-%dT%H:%M:%S.%6fZ"
            } else {
                "%Y-%m-%dT%H:%M:%SZ"
            };
            *text = time.strftime(form).to_string();
        }
        Ok(())
    }

    fn int_or_string(&mut self, value: &Value) -> Step {
        match value {
            Value::String(_) => Ok(()),
            Value::Number(n) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
            Value::Number(n) => Err(self.message(&format!("number {n}"), "int32")),
            other => Err(self.message(&said(other), "int32")),
        }
    }

    /// A schema within a schema decodes itself: its unknown fields go unnoticed, and its errors are told
    /// of the field that holds it.
    fn inner_schema(&mut self, value: &mut Value) -> Step {
        let version = "apiextensions.k8s.io/v1";
        let Some(schema) = BUILT_IN
            .schema(version, "CustomResourceDefinition")
            .and_then(|s| {
                s.field("spec")?
                    .field("versions")?
                    .item()?
                    .field("schema")?
                    .field("openAPIV3Schema")
            })
        else {
            return Ok(());
        };
        let parts = match value {
            Value::Array(parts) => parts.as_mut_slice(),
            Value::Object(_) => std::slice::from_mut(value),
            _ => return Ok(()),
        };
        for part in parts.iter_mut().filter(|part| part.is_object()) {
            let mut inner = Self::new("JSONSchemaProps");
            inner.value(part, schema)?;
            if let Some(wrong) = inner.wrong {
                return Err(self.message(&wrong.value, &wrong.wanted));
            }
        }
        Ok(())
    }
}

/// The kind of a value in Go's words.
fn said(value: &Value) -> String {
    let word = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    word.to_owned()
}

/// The definition that a level refers to, `io.k8s.api.core.v1.Container`.
fn definition_name(schema: &Schema) -> Option<&str> {
    let raw = &schema.raw;
    let path = raw["$ref"]
        .as_str()
        .or_else(|| raw["allOf"][0]["$ref"].as_str())?;
    path.rsplit('/').next()
}

fn type_name(schema: &Schema) -> Option<&str> {
    definition_name(schema)?.rsplit('.').next()
}

/// The Go type of a level. Types that only name a text or a map have no trace in the schema, but for
/// the amounts.
fn go_type(schema: &Schema) -> String {
    if let Some(name) = definition_name(schema) {
        let mut parts = name.rsplit('.');
        let (name, package) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        return format!("{package}.{name}");
    }
    match (schema.kind, &schema.additional, &schema.items) {
        (Type::Object, Some(entry), _) if type_name(entry) == Some("Quantity") => {
            "v1.ResourceList".to_owned()
        }
        (Type::Object, Some(entry), _) => format!("map[string]{}", go_type(entry)),
        (Type::Array, _, Some(item)) => format!("[]{}", go_type(item)),
        (Type::String, ..) if schema.raw["format"] == "byte" => "[]uint8".to_owned(),
        (Type::String, ..) => "string".to_owned(),
        (Type::Integer, ..) => schema.raw["format"].as_str().unwrap_or("int64").to_owned(),
        (Type::Number, ..) => "float64".to_owned(),
        (Type::Boolean, ..) => "bool".to_owned(),
        _ => "interface {}".to_owned(),
    }
}

/// Whether Go leaves a field out: empty lists and maps, and in `metadata` empty texts.
fn leaves_nothing(value: &Value, schema: &Schema, within: &str) -> bool {
    match value {
        Value::Array(items) => items.is_empty() && schema.resolve().kind == Type::Array,
        Value::Object(entries) => entries.is_empty() && schema.resolve().additional.is_some(),
        Value::String(text) => text.is_empty() && within == "ObjectMeta",
        _ => false,
    }
}

fn amount(value: &mut Value) -> Step {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    *value = Value::String(quantity::canonical(&text)?);
    Ok(())
}

/// Where a text stops being base64, as Go finds it: line breaks are skipped, groups of four count.
fn base64_problem(text: &str) -> Option<usize> {
    let bytes: Vec<(usize, u8)> = text
        .bytes()
        .enumerate()
        .filter(|(_, b)| !matches!(b, b'\r' | b'\n'))
        .collect();
    for group in bytes.chunks(4) {
        for (at, (index, byte)) in group.iter().enumerate() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') {
                continue;
            }
            if *byte != b'=' || at < 2 {
                return Some(*index);
            }
            let rest: Vec<u8> = group[at..].iter().map(|(_, b)| *b).collect();
            let last = bytes.last().map(|(i, _)| *i);
            let closed = rest.iter().all(|b| *b == b'=') && group.len() == 4;
            let ends = group.last().map(|(i, _)| *i) == last;
            return match (closed, ends) {
                (true, true) => None,
                (true, false) => group.last().map(|(i, _)| i + 1),
                (false, _) => Some(*index),
            };
        }
        if group.len() < 4 {
            return group.first().map(|(i, _)| *i);
        }
    }
    None
}

/// What Go's time parser says of a text, if it does not like it.
fn time_problem(text: &str, micro: bool) -> Option<String> {
    let layout = if micro {
        "2006-01-02T15:04:05.000000Z07:00"
    } else {
        "2006-01-02T15:04:05Z07:00"
    };
    let said = super::quoted(text);
    let mut rest = text;
    let expected = |rest: &str, element: &str| {
        format!(
            "parsing time {said} as \"{layout}\": cannot parse {} as \"{element}\"",
            super::quoted(rest)
        )
    };
    let range = |what: &str| Some(format!("parsing time {said}: {what} out of range"));
    let mut numbers = [0u32; 6];
    let elements = [
        ("2006", ""),
        ("01", "-"),
        ("02", "-"),
        ("15", "T"),
        ("04", ":"),
        ("05", ":"),
    ];
    for (index, (element, before)) in elements.into_iter().enumerate() {
        match rest.strip_prefix(before) {
            Some(after) => rest = after,
            None => return Some(expected(rest, before)),
        }
        let number = rest
            .get(..element.len())
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let Some(number) = number else {
            return Some(expected(rest, element));
        };
        numbers[index] = number.parse().unwrap_or_default();
        rest = &rest[element.len()..];
        match (index, numbers[index]) {
            (1, month) if !(1..=12).contains(&month) => return range("month"),
            (3, 24..) => return range("hour"),
            (4, 60..) => return range("minute"),
            (5, 60..) => return range("second"),
            _ => {}
        }
    }
    if micro {
        let fraction = rest
            .get(..7)
            .filter(|f| f.starts_with('.') && f[1..].bytes().all(|b| b.is_ascii_digit()));
        if fraction.is_none() {
            return Some(expected(rest, ".000000"));
        }
        rest = &rest[7..];
    } else if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            rest = &fraction[digits..];
        }
    }
    let zone = match rest.as_bytes() {
        [b'Z', ..] => 1,
        [b'+' | b'-', a, b, b':', c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => 6,
        _ => return Some(expected(rest, "Z07:00")),
    };
    if rest.len() > zone {
        return Some(format!(
            "parsing time {said}: extra text: {}",
            super::quoted(&rest[zone..])
        ));
    }
    let [year, month, day, ..] = numbers.map(|n| i16::try_from(n).unwrap_or_default());
    let date = jiff::civil::Date::new(
        year,
        i8::try_from(month).unwrap_or_default(),
        i8::try_from(day).unwrap_or_default(),
    );
    if date.is_err() { range("day") } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::decode;
    use crate::schema::BUILT_IN;

    fn run(
        api_version: &str,
        kind: &str,
        mut value: Value,
    ) -> (Result<Vec<String>, String>, Value) {
        let schema = BUILT_IN.schema(api_version, kind).unwrap();
        let found = decode(&mut value, schema, api_version, kind).map_err(|status| status.message);
        (found, value)
    }

    #[track_caller]
    fn refused(api_version: &str, kind: &str, value: Value, expected: &str) {
        let message = run(api_version, kind, value).0.unwrap_err();
        let version = api_version.rsplit('/').next().unwrap();
        assert_eq!(
            message,
            format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {expected}")
        );
    }

    #[track_caller]
    fn field(api_version: &str, kind: &str, value: Value, said: &str, at: &str, wanted: &str) {
        let expected =
            format!("json: cannot unmarshal {said} into Go struct field {at} of type {wanted}");
        refused(api_version, kind, value, &expected);
    }

    #[test]
    fn numbers_of_a_deployment() {
        let replicas = |value: Value, said: &str| {
            let value = json!({"spec": {"replicas": value}});
            field(
                "apps/v1",
                "Deployment",
                value,
                said,
                "DeploymentSpec.spec.replicas",
                "int32",
            );
        };
        replicas(json!("x"), "string");
        replicas(json!(true), "bool");
        replicas(json!(1.5), "number 1.5");
        replicas(json!(1.0), "number 1.0");
        replicas(json!(99999999999u64), "number 99999999999");
        replicas(
            json!(12345678901234567890u64),
            "number 12345678901234567890",
        );
        replicas(json!({}), "object");
        replicas(json!([]), "array");
    }

    #[test]
    fn values_of_wrong_types() {
        let deployment = |spec: Value, said: &str, at: &str, wanted: &str| {
            field(
                "apps/v1",
                "Deployment",
                json!({"spec": spec}),
                said,
                at,
                wanted,
            );
        };
        let pod = |spec: Value, said: &str, at: &str, wanted: &str| {
            deployment(json!({"template": {"spec": spec}}), said, at, wanted);
        };
        deployment(json!("x"), "string", "Deployment.spec", "v1.DeploymentSpec");
        let surge = |value: Value| json!({"strategy": {"rollingUpdate": {"maxSurge": value}}});
        let at = "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge";
        deployment(surge(json!(true)), "bool", at, "int32");
        deployment(surge(json!(1.5)), "number 1.5", at, "int32");
        let strategy = json!({"strategy": {"rollingUpdate": 1}});
        deployment(
            strategy,
            "number",
            "DeploymentStrategy.spec.strategy.rollingUpdate",
            "v1.RollingUpdateDeployment",
        );
        let at = "PodSpec.spec.template.spec.containers";
        pod(json!({"containers": {}}), "object", at, "[]v1.Container");
        pod(json!({"containers": ["x"]}), "string", at, "v1.Container");
        pod(
            json!({"containers": [{"name": 1}]}),
            "number",
            "Container.spec.template.spec.containers.name",
            "string",
        );
        let env = json!({"containers": [{"env": [{"value": 1}]}]});
        pod(
            env,
            "number",
            "EnvVar.spec.template.spec.containers.env.value",
            "string",
        );
        let at = "Container.spec.template.spec.containers.command";
        pod(
            json!({"containers": [{"command": ["a", 1]}]}),
            "number",
            at,
            "string",
        );
        pod(
            json!({"containers": [{"command": "a"}]}),
            "string",
            at,
            "[]string",
        );
        let at = "PodSpec.spec.template.spec.nodeSelector";
        pod(json!({"nodeSelector": {"a": 1}}), "number", at, "string");
        pod(
            json!({"nodeSelector": ["a"]}),
            "array",
            at,
            "map[string]string",
        );
        pod(
            json!({"hostNetwork": "true"}),
            "string",
            "PodSpec.spec.template.spec.hostNetwork",
            "bool",
        );
        let limits = json!({"containers": [{"resources": {"limits": "a"}}]});
        pod(
            limits,
            "string",
            "ResourceRequirements.spec.template.spec.containers.resources.limits",
            "v1.ResourceList",
        );
        let meta = |meta: Value, said: &str, name: &str, wanted: &str| {
            let at = format!("ObjectMeta.metadata.{name}");
            field(
                "v1",
                "ConfigMap",
                json!({"metadata": meta}),
                said,
                &at,
                wanted,
            );
        };
        meta(json!({"labels": {"a": 1}}), "number", "labels", "string");
        meta(
            json!({"labels": "x"}),
            "string",
            "labels",
            "map[string]string",
        );
        meta(
            json!({"ownerReferences": {}}),
            "object",
            "ownerReferences",
            "[]v1.OwnerReference",
        );
        meta(json!({"generation": "1"}), "string", "generation", "int64");
        meta(
            json!({"creationTimestamp": 1}),
            "number",
            "creationTimestamp",
            "string",
        );
        meta(json!({"uid": 1}), "number", "uid", "types.UID");
        field(
            "v1",
            "ConfigMap",
            json!({"metadata": "x"}),
            "string",
            "ConfigMap.metadata",
            "v1.ObjectMeta",
        );
        field(
            "v1",
            "ConfigMap",
            json!({"binaryData": 5, "data": [1]}),
            "number",
            "ConfigMap.binaryData",
            "map[string][]uint8",
        );
        // Types that decode themselves go before others.
        let port = json!({"spec": {"ports": [{"port": "80", "targetPort": true}]}});
        field(
            "v1",
            "Service",
            port,
            "bool",
            "ServicePort.spec.ports.targetPort",
            "int32",
        );
        let schema = |schema: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let at = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema";
        field(
            version,
            kind,
            schema(json!({"minimum": "x"})),
            "string",
            &format!("{at}.minimum"),
            "float64",
        );
        field(
            version,
            kind,
            schema(json!({"items": {"type": 1}})),
            "number",
            &format!("{at}.items"),
            "string",
        );
    }

    #[test]
    fn texts_that_mean_something() {
        let secret = |text: &str, at: usize| {
            let expected = format!("illegal base64 data at input byte {at}");
            refused("v1", "Secret", json!({"data": {"a": text}}), &expected);
        };
        secret("@@", 0);
        secret("abc", 0);
        secret("YWJj=Z", 4);
        secret("YWJjYQ", 4);
        secret("YWJjY-==", 5);
        assert!(
            run(
                "v1",
                "Secret",
                json!({"data": {"a": "YWJj\nYWJj", "b": "YQ==", "c": ""}})
            )
            .0
            .is_ok()
        );
        let time = |text: &str, expected: &str| {
            let expected = format!("parsing time \"{text}\"{expected}");
            refused(
                "v1",
                "ConfigMap",
                json!({"metadata": {"creationTimestamp": text}}),
                &expected,
            );
        };
        let layout = " as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        time("x", &format!("{layout} \"x\" as \"2006\""));
        time("", &format!("{layout} \"\" as \"2006\""));
        time("2020-01-01", &format!("{layout} \"\" as \"T\""));
        time(
            "2020-01-01T00:00:00",
            &format!("{layout} \"\" as \"Z07:00\""),
        );
        time(
            "2020-01-01 00:00:00Z",
            &format!("{layout} \" 00:00:00Z\" as \"T\""),
        );
        time("2020-13-01T00:00:00Z", ": month out of range");
        time("2020-02-30T00:00:00Z", ": day out of range");
        time("2020-01-01T25:00:00Z", ": hour out of range");
        time("2020-01-01T00:00:00Zx", ": extra text: \"x\"");
        let micro = "parsing time \"2020-01-01T00:00:00.1Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".1Z\" as \".000000\"";
        refused(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"renewTime": "2020-01-01T00:00:00.1Z"}}),
            micro,
        );
    }

    #[test]
    fn unknown_fields_go() {
        let (found, value) = run(
            "v1",
            "Pod",
            json!({"spec": {"bar": 1, "containers": [
                {"name": "a", "foo": 1, "env": [{"name": "x", "zz": {"a": 1}}]},
            ]}}),
        );
        let paths = [
            "spec.bar",
            "spec.containers[0].env[0].zz",
            "spec.containers[0].foo",
        ];
        assert_eq!(
            found.unwrap(),
            paths.map(|path| format!("unknown field \"{path}\""))
        );
        assert_eq!(
            value,
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "x"}]}]}})
        );
        let (found, value) = run(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({"spec": {"versions": [
                {"schema": {"openAPIV3Schema": {"foo": 1, "properties": {"a": {"items": {"bar": 1, "type": "string"}}}}}},
            ]}}),
        );
        assert_eq!(
            found.unwrap(),
            ["unknown field \"spec.versions[0].schema.openAPIV3Schema.foo\""]
        );
        let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(
            schema,
            &json!({"properties": {"a": {"items": {"type": "string"}}}})
        );
    }

    #[test]
    fn nulls_and_empty_values_go() {
        let (_, value) = run(
            "v1",
            "ConfigMap",
            json!({
                "metadata": {"name": "a", "generateName": "", "labels": {"a": null}, "annotations": null,
                    "creationTimestamp": "2020-01-01T01:00:00.5+01:00"},
                "data": {"a": null}, "immutable": null, "binaryData": {},
            }),
        );
        assert_eq!(
            value,
            json!({
                "metadata": {"name": "a", "labels": {"a": ""}, "creationTimestamp": "2020-01-01T00:00:00Z"},
                "data": {"a": ""},
            })
        );
        let (_, value) = run(
            "v1",
            "Pod",
            json!({"spec": {"securityContext": {}, "containers": [null,
            {"command": ["a", null], "env": [], "resources": {"limits": {"cpu": null, "memory": 0.5, "x": "1024Mi"}}}]}}),
        );
        assert_eq!(
            value,
            json!({"spec": {"securityContext": {}, "containers": [{},
            {"command": ["a", ""], "resources": {"limits": {"cpu": "0", "memory": "500m", "x": "1Gi"}}}]}})
        );
    }
}
