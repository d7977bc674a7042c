//! Protobuf bodies of built-in kinds, turned into the JSON that the rest of the server works on.
//! What comes out is what Go's JSON encoder writes for the decoded object: `null` for a list that
//! must be there and is not, `{}` for an empty `status`, zero only where Go writes it. Lists and
//! maps that a client set to empty are absent, since protobuf cannot tell them apart. Unknown fields
//! are skipped, and of a field that comes twice the last one counts. [`Data`] says where the fields
//! are known from.

use std::{collections::HashMap, sync::LazyLock};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::status::{Result, Status};

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Messages inside each other; as deep as our JSON parser goes, more or less.
const DEEPEST: usize = 100;

/// Messages in one body. Two bytes are enough for one, which then takes hundreds as JSON.
const MOST: usize = 100_000;

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The object in a body, with its `apiVersion` and `kind`.
pub(crate) fn decode(body: &[u8]) -> Result<Value> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or_else(|| broken("it does not start with the four bytes of Kubernetes' protobuf"))?;
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut raw: &[u8] = &[];
    let mut content_type = String::new();
    let mut reader = Reader(envelope);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => {
                let mut reader = Reader(wire.bytes()?);
                while let Some((number, wire)) = reader.next()? {
                    match number {
                        1 => api_version = wire.text()?,
                        2 => kind = wire.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = wire.bytes()?,
            3 => {
                let encoding = wire.text()?;
                if !encoding.is_empty() {
                    return Err(broken(format!(
                        "the content encoding {encoding:?} is not supported"
                    )));
                }
            }
            4 => content_type = wire.text()?,
            _ => {}
        }
    }
    let mut object = match content_type.as_str() {
        "application/json" => match json(raw)? {
            Value::Object(object) => object,
            _ => return Err(broken("the JSON in it is not an object")),
        },
        "" | "application/vnd.kubernetes.protobuf" => {
            let message = DATA.message_of(&api_version, &kind).ok_or_else(|| {
                Status::bad_request(format!(
                    "no kind {kind:?} is registered for version {api_version:?} in protobuf"
                ))
            })?;
            Decoder { left: MOST }.message(message, raw, 0)?
        }
        other => {
            return Err(broken(format!(
                "the content type {other:?} is not supported"
            )));
        }
    };
    for (name, value) in [("apiVersion", api_version), ("kind", kind)] {
        if !value.is_empty() {
            object.insert(name.to_owned(), value.into());
        }
    }
    Ok(Value::Object(object))
}

fn broken(why: impl std::fmt::Display) -> Status {
    Status::bad_request(format!("the protobuf body cannot be read: {why}"))
}

/// When a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Nonzero,
    Sent,
    AlwaysOrNull,
}

#[derive(Debug)]
enum Type {
    Text,
    Int32,
    Int64,
    Bool,
    Double,
    Bytes,
    Message(&'static str),
    Special(Special),
    List(Box<Type>),
    Map(Box<Type>),
}

/// A message whose JSON is not an object of its fields.
#[derive(Debug, Clone, Copy)]
enum Special {
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Bytes that are JSON.
    Json,
    /// A list of texts that a message was put around.
    Texts,
    SchemaOrBool,
    SchemaOrSchemas,
    SchemaOrTexts,
}

#[derive(Debug)]
struct Field {
    number: u64,
    name: &'static str,
    kind: Type,
    when: When,
}

/// What is known of the messages, as `data/protobuf-1.34.json` has it: the struct tags of Kubernetes'
/// Go types, which its `.proto` files are made from.
///
/// `kinds` names the message of each `<apiVersion>/<Kind>`, and `messages` has the fields of each, as
/// `[number, name, type, when]` in the order of their numbers. The name is the one in JSON, or
/// nothing if the fields of the message go into the one around it. The type is a scalar or a
/// message, after `[]` for a list or `{}` for a map from texts. `when` says when Go writes the field:
/// always (0), unless it is zero (1), when it was sent (2), or always with `null` for what was not
/// sent (3). Messages that are named and not listed are those that [`Special`] knows.
struct Data {
    kinds: HashMap<&'static str, &'static str>,
    messages: HashMap<&'static str, Vec<Field>>,
}

/// A field as the file has it.
type Line = (u64, &'static str, &'static str, u8);

static DATA: LazyLock<Data> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        #[serde(borrow)]
        kinds: HashMap<&'static str, &'static str>,
        #[serde(borrow)]
        messages: HashMap<&'static str, Vec<Line>>,
    }
    let file: File = serde_json::from_str(include_str!("../data/protobuf-1.34.json"))
        .expect("the data file has the form that this module describes");
    let field = |(number, name, kind, when): Line| Field {
        number,
        name,
        kind: Type::parse(kind),
        when: match when {
            0 => When::Always,
            1 => When::Nonzero,
            2 => When::Sent,
            _ => When::AlwaysOrNull,
        },
    };
    Data {
        kinds: file.kinds,
        messages: file
            .messages
            .into_iter()
            .map(|(name, lines)| (name, lines.into_iter().map(field).collect()))
            .collect(),
    }
});

impl Data {
    fn message_of(&self, api_version: &str, kind: &str) -> Option<&'static str> {
        // Every group has these, and clients name the group of what they delete.
        if kind == "DeleteOptions" && !api_version.is_empty() {
            return Some(DELETE_OPTIONS);
        }
        self.kinds
            .get(format!("{api_version}/{kind}").as_str())
            .copied()
    }
}

impl Type {
    fn parse(text: &'static str) -> Self {
        if let Some(item) = text.strip_prefix("[]") {
            return Self::List(Box::new(Self::parse(item)));
        }
        if let Some(value) = text.strip_prefix("{}") {
            return Self::Map(Box::new(Self::parse(value)));
        }
        match text {
            "string" => Self::Text,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "bool" => Self::Bool,
            "double" => Self::Double,
            "bytes" => Self::Bytes,
            name => Special::parse(name).map_or(Self::Message(name), Self::Special),
        }
    }

    /// What stands for a value that was not sent.
    fn nothing(&self) -> Wire<'static> {
        match self {
            Self::Int32 | Self::Int64 | Self::Bool => Wire::Varint(0),
            Self::Double => Wire::Fixed64(0),
            _ => Wire::Bytes(&[]),
        }
    }
}

impl Special {
    fn parse(name: &str) -> Option<Self> {
        let (package, name) = name.rsplit_once('.')?;
        Some(match (package, name) {
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "Time") => Self::Time,
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "MicroTime") => Self::MicroTime,
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "FieldsV1")
            | ("io.k8s.apimachinery.pkg.runtime", "RawExtension")
            | ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", "JSON") => Self::Json,
            ("io.k8s.apimachinery.pkg.api.resource", "Quantity") => Self::Quantity,
            ("io.k8s.apimachinery.pkg.util.intstr", "IntOrString") => Self::IntOrString,
            (_, "ExtraValue") => Self::Texts,
            (_, "JSONSchemaPropsOrBool") => Self::SchemaOrBool,
            (_, "JSONSchemaPropsOrArray") => Self::SchemaOrSchemas,
            (_, "JSONSchemaPropsOrStringArray") => Self::SchemaOrTexts,
            _ => return None,
        })
    }
}

/// One body being read.
struct Decoder {
    /// Messages that may still come.
    left: usize,
}

impl Decoder {
    fn message(&mut self, name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>> {
        let fields = DATA
            .messages
            .get(name)
            .ok_or_else(|| broken(format!("nothing is known of {name}")))?;
        self.enter(depth)?;
        let mut found: Vec<Option<Value>> = vec![None; fields.len()];
        let mut reader = Reader(bytes);
        while let Some((number, wire)) = reader.next()? {
            if let Ok(at) = fields.binary_search_by_key(&number, |field| field.number) {
                self.add(&mut found[at], &fields[at].kind, wire, depth)?;
            }
        }
        let mut object = Map::new();
        for (field, value) in fields.iter().zip(found) {
            let value = match (value, field.when) {
                (Some(value), When::Nonzero) if is_zero(&value) => continue,
                (Some(value), _) => value,
                (None, When::Nonzero | When::Sent) => continue,
                (None, When::AlwaysOrNull) => Value::Null,
                (None, When::Always) => self.value(&field.kind, field.kind.nothing(), depth)?,
            };
            match value {
                Value::Object(inner) if field.name.is_empty() => object.extend(inner),
                value => {
                    object.insert(field.name.to_owned(), value);
                }
            }
        }
        Ok(object)
    }

    fn enter(&mut self, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(broken(format!(
                "messages are more than {DEEPEST} levels deep"
            )));
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| broken(format!("there are more than {MOST} messages in it")))?;
        Ok(())
    }

    /// Takes one occurrence of a field, which for lists and maps is one of many.
    fn add(
        &mut self,
        slot: &mut Option<Value>,
        kind: &Type,
        wire: Wire<'_>,
        depth: usize,
    ) -> Result<()> {
        match kind {
            Type::List(item) => {
                let mut items = Vec::new();
                match (item.as_ref(), wire) {
                    (Type::Int32 | Type::Int64 | Type::Bool, Wire::Bytes(packed)) => {
                        let mut reader = Reader(packed);
                        while !reader.0.is_empty() {
                            items.push(self.value(item, Wire::Varint(reader.varint()?), depth)?);
                        }
                    }
                    (item, wire) => items.push(self.value(item, wire, depth)?),
                }
                match slot {
                    Some(Value::Array(list)) => list.append(&mut items),
                    slot => *slot = Some(Value::Array(items)),
                }
            }
            Type::Map(item) => {
                let mut reader = Reader(wire.bytes()?);
                let (mut key, mut value) = (String::new(), item.nothing());
                while let Some((number, wire)) = reader.next()? {
                    match number {
                        1 => key = wire.text()?,
                        2 => value = wire,
                        _ => {}
                    }
                }
                let value = self.value(item, value, depth)?;
                match slot {
                    Some(Value::Object(map)) => {
                        map.insert(key, value);
                    }
                    slot => *slot = Some(Value::Object(Map::from_iter([(key, value)]))),
                }
            }
            kind => *slot = Some(self.value(kind, wire, depth)?),
        }
        Ok(())
    }

    fn value(&mut self, kind: &Type, wire: Wire<'_>, depth: usize) -> Result<Value> {
        Ok(match kind {
            Type::Text => wire.text()?.into(),
            Type::Int32 => wire.int32()?.into(),
            Type::Int64 => wire.int64()?.into(),
            Type::Bool => (wire.varint()? != 0).into(),
            Type::Double => double(wire)?,
            Type::Bytes => base64(wire.bytes()?).into(),
            Type::Message(name) => Value::Object(self.message(name, wire.bytes()?, depth + 1)?),
            Type::Special(special) => self.special(*special, wire.bytes()?, depth + 1)?,
            // Fields are never lists of lists.
            Type::List(_) | Type::Map(_) => Value::Null,
        })
    }

    fn special(&mut self, special: Special, bytes: &[u8], depth: usize) -> Result<Value> {
        self.enter(depth)?;
        match special {
            Special::Time => time(bytes, false),
            Special::MicroTime => time(bytes, true),
            Special::Quantity => {
                let mut text = String::from("0");
                let mut reader = Reader(bytes);
                while let Some((number, wire)) = reader.next()? {
                    if number == 1 {
                        text = wire.text()?;
                    }
                }
                Ok(text.into())
            }
            Special::IntOrString => int_or_string(bytes),
            Special::Json => {
                let mut raw: &[u8] = &[];
                let mut reader = Reader(bytes);
                while let Some((number, wire)) = reader.next()? {
                    if number == 1 {
                        raw = wire.bytes()?;
                    }
                }
                if raw.is_empty() {
                    Ok(Value::Null)
                } else {
                    json(raw)
                }
            }
            Special::Texts => {
                let mut texts = None;
                let mut reader = Reader(bytes);
                while let Some((number, wire)) = reader.next()? {
                    if number == 1 {
                        texts.get_or_insert_with(Vec::new).push(wire.text()?);
                    }
                }
                Ok(texts.into())
            }
            Special::SchemaOrBool => {
                let (mut allows, mut schema) = (false, None);
                let mut reader = Reader(bytes);
                while let Some((number, wire)) = reader.next()? {
                    match number {
                        1 => allows = wire.varint()? != 0,
                        2 => schema = Some(self.schema(wire, depth)?),
                        _ => {}
                    }
                }
                Ok(schema.unwrap_or(Value::Bool(allows)))
            }
            Special::SchemaOrSchemas | Special::SchemaOrTexts => {
                let (mut schema, mut list) = (Value::Null, Vec::new());
                let mut reader = Reader(bytes);
                while let Some((number, wire)) = reader.next()? {
                    match (number, special) {
                        (1, _) => schema = self.schema(wire, depth)?,
                        (2, Special::SchemaOrTexts) => list.push(wire.text()?.into()),
                        (2, _) => list.push(self.schema(wire, depth)?),
                        _ => {}
                    }
                }
                Ok(if list.is_empty() {
                    schema
                } else {
                    Value::Array(list)
                })
            }
        }
    }

    fn schema(&mut self, wire: Wire<'_>, depth: usize) -> Result<Value> {
        Ok(Value::Object(self.message(
            SCHEMA,
            wire.bytes()?,
            depth + 1,
        )?))
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes)
        .map_err(|error| broken(format!("the JSON in it is not valid: {error}")))
}

fn double(wire: Wire<'_>) -> Result<Value> {
    /// Up to here every whole number is one of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Wire::Fixed64(bits) = wire else {
        return Err(mistyped());
    };
    let number = f64::from_bits(bits);
    // Go writes whole numbers without a point, and JSON tells the two apart when it is compared.
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Ok(Value::from(number as i64));
    }
    let number = Number::from_f64(number)
        .ok_or_else(|| broken(format!("{number} is not a number in JSON")))?;
    Ok(Value::Number(number))
}

/// `null` for the zero time, which Go writes as an empty message.
fn time(bytes: &[u8], micro: bool) -> Result<Value> {
    /// The first second of year 1.
    const ZERO: i64 = -62_135_596_800;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => seconds = wire.int64()?,
            2 => nanos = wire.int32()?,
            _ => {}
        }
    }
    let micros = match micro {
        true if !(0..1_000_000_000).contains(&nanos) => {
            return Err(broken(format!(
                "{nanos} is not a number of nanoseconds in a second"
            )));
        }
        true => nanos / 1000,
        false => 0,
    };
    if seconds == ZERO && micros == 0 {
        return Ok(Value::Null);
    }
    let at = Timestamp::from_second(seconds)
        .ok()
        .filter(|_| seconds >= ZERO)
        .ok_or_else(|| broken(format!("{seconds} seconds are out of the range of times")))?;
    let text = at.strftime("%Y-%m-%dT%H:%M:%S");
    Ok(if micro {
        format!("{text}.{micros:06}Z")
    } else {
        format!("{text}Z")
    }
    .into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value> {
    let (mut kind, mut number, mut text) = (0, 0, String::new());
    let mut reader = Reader(bytes);
    while let Some((field, wire)) = reader.next()? {
        match field {
            1 => kind = wire.int64()?,
            2 => number = wire.int32()?,
            3 => text = wire.text()?,
            _ => {}
        }
    }
    match kind {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        other => Err(broken(format!(
            "{other} is neither the type of a number nor of a text"
        ))),
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| chunk.get(at).copied().map_or(0, usize::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = char::from(LETTERS[bits >> (18 - 6 * at) & 63]);
            text.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

/// A value on the wire.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

fn mistyped() -> Status {
    broken("a field is not of its type")
}

impl<'a> Wire<'a> {
    fn varint(self) -> Result<u64> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(mistyped()),
        }
    }

    fn int64(self) -> Result<i64> {
        Ok(self.varint()?.cast_signed())
    }

    fn int32(self) -> Result<i32> {
        // As Go does, which leaves the upper half unread.
        Ok(self.varint()? as u32 as i32)
    }

    fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(mistyped()),
        }
    }

    fn text(self) -> Result<String> {
        // Go takes any bytes for a text and replaces them when it writes JSON.
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// What of a message is still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The number and value of the next field.
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let mut bits = [0; 8];
                bits.copy_from_slice(self.take(8)?);
                Wire::Fixed64(u64::from_le_bytes(bits))
            }
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => {
                return Err(broken(format!(
                    "{other} is not a wire type that it may have"
                )));
            }
        };
        match tag >> 3 {
            0 => Err(broken("a field has the number 0")),
            number => Ok(Some((number, wire))),
        }
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(broken("a number is longer than 64 bits"))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let cut = usize::try_from(length)
            .ok()
            .and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = cut.ok_or_else(|| broken("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DATA, MAGIC, Type, base64, decode};

    fn bytes(base64: &str) -> Vec<u8> {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut out, mut bits, mut have) = (Vec::new(), 0_u32, 0);
        for letter in base64.bytes().filter(|letter| *letter != b'=') {
            let at = letters.iter().position(|l| *l == letter).unwrap();
            bits = bits << 6 | u32::try_from(at).unwrap();
            have += 6;
            if have >= 8 {
                have -= 8;
                out.push((bits >> have & 0xff) as u8);
            }
        }
        out
    }

    /// Both forms of an object were written by the Go library, v0.34.4.
    fn same(protobuf: &str, json: &str) {
        let expected: Value = serde_json::from_str(json).unwrap();
        let body = bytes(protobuf);
        assert_eq!(base64(&body), protobuf);
        assert_eq!(decode(&body).unwrap(), expected);
        for end in 0..body.len() {
            // An end between two fields leaves a body that can be read; none may panic.
            let _ = decode(&body[..end]);
        }
    }

    fn varint(mut value: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    /// A field that holds bytes.
    fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
        [&varint(number << 3 | 2)[..], &varint(bytes.len()), bytes].concat()
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let of_type = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &of_type), &field(2, raw)].concat()
    }

    fn refusal(body: &[u8]) -> String {
        let status = decode(body).unwrap_err();
        assert_eq!((status.code, status.reason), (400, "BadRequest"));
        status.message
    }

    #[test]
    fn the_data_is_whole() {
        fn known(kind: &Type) -> bool {
            match kind {
                Type::Message(name) => DATA.messages.contains_key(name),
                Type::List(item) | Type::Map(item) => {
                    known(item) && !matches!(**item, Type::List(_) | Type::Map(_))
                }
                _ => true,
            }
        }
        for (name, fields) in &DATA.messages {
            assert!(fields.is_sorted_by(|a, b| a.number < b.number), "{name}");
            for field in fields {
                assert!(known(&field.kind), "{name}.{}", field.name);
                let message = matches!(field.kind, Type::Message(_));
                assert!(message || !field.name.is_empty(), "{name} {}", field.number);
            }
        }
        for (kind, name) in &DATA.kinds {
            let (api_version, kind) = kind.rsplit_once('/').unwrap();
            assert!(DATA.messages.contains_key(name), "{name}");
            assert!(
                crate::schema::BUILT_IN.schema(api_version, kind).is_some(),
                "{api_version} {kind}"
            );
            assert!(
                decode(&body(api_version, kind, &[])).is_ok(),
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn json_in_the_envelope() {
        let mut sent = body("v1", "ConfigMap", br#"{"data":{"a":"b"}}"#);
        sent.extend(field(4, b"application/json"));
        let expected = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" } });
        assert_eq!(decode(&sent).unwrap(), expected);
        sent.extend(field(4, b"text/plain"));
        assert!(refusal(&sent).contains(r#"the content type "text/plain" is not supported"#));
        sent.extend(field(3, b"gzip"));
        assert!(refusal(&sent).contains(r#"the content encoding "gzip" is not supported"#));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert!(refusal(b"{}").contains("does not start with"));
        assert!(
            refusal(&body("v1", "Boat", &[]))
                .contains(r#"no kind "Boat" is registered for version "v1""#)
        );
        assert!(refusal(MAGIC).contains(r#"no kind """#));
        for (raw, why) in [
            (&[0x0a, 0x05, 0x0a][..], "it ends too early"),
            (
                &[
                    0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
                ],
                "it ends too early",
            ),
            (&[0x80; 11], "longer than 64 bits"),
            (&[0x02, 0x00], "the number 0"),
            (&[0x0b, 0x0c], "3 is not a wire type"),
            (&[0x08, 0x01], "not of its type"),
        ] {
            assert!(
                refusal(&body("v1", "ConfigMap", raw)).contains(why),
                "{why}"
            );
        }
        let unknown = [&field(30, b"x")[..], &[0xfd, 0x01, 1, 2, 3, 4]].concat();
        let empty = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} });
        assert_eq!(decode(&body("v1", "ConfigMap", &unknown)).unwrap(), empty);
    }

    #[test]
    fn there_is_an_end_to_depth_and_number() {
        let nested = |levels: usize| {
            // `not` in `not` in `not`.
            let schema = (0..levels).fold(Vec::new(), |schema, _| field(28, &schema));
            let version = field(4, &field(1, &schema));
            let raw = field(2, &field(7, &version));
            body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw)
        };
        assert!(decode(&nested(90)).is_ok());
        assert!(refusal(&nested(120)).contains("levels deep"));
        let containers = field(2, &[0x12, 0x00].repeat(100_000));
        assert!(refusal(&body("v1", "Pod", &containers)).contains("more than 100000 messages"));
    }

    #[test]
    fn numbers_in_one_piece_make_a_list_too() {
        let rule = field(2, &field(3, &[1, 0x80, 0x01]));
        let raw = field(2, &field(11, &field(1, &rule)));
        let job = decode(&body("batch/v1", "Job", &raw)).unwrap();
        assert_eq!(
            job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"],
            json!([1, 128])
        );
    }

    #[test]
    fn namespace() {
        same(
            "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhwKFAoEdGVhbRIAGgAiACoAMgA4AEIAEgAaAgoAGgAiAA==",
            r##"
            {"kind":"Namespace","apiVersion":"v1","metadata":{"name":"team"},"spec":{},"status":{
            }}
            "##,
        );
    }

    #[test]
    fn config_map() {
        same(
            "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEmgKOwoIc2V0dGluZ3MSABoHZGVmYXVsdCIAKgAyADgAQgBaDwoDYXBwEg\
             hzZXR0aW5nc1oJCgVlbXB0eRIAEgYKAWESATESCAoEbm9uZRIAGgsKA2JpbhIEAP/+ARoICgRub25lEgAgABoA\
             IgA=",
            r##"
            {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings",
            "namespace":"default","labels":{"app":"settings","empty":""}},"immutable":false,
            "data":{"a":"1","none":""},"binaryData":{"bin":"AP/+AQ==","none":""}}
            "##,
        );
    }

    #[test]
    fn secret() {
        same(
            "azhzAAoMCgJ2MRIGU2VjcmV0EnMKNQoFbG9naW4SABoHZGVmYXVsdCIAKgAyADgAQgBaDAoDYXBwEgVsb2dpbl\
             oJCgVlbXB0eRIAEggKBG5vbmUSABIRCgRwYXNzEglww6Rzc3dvcmQSDQoEdXNlchIFYWRtaW4aBk9wYXF1ZSIG\
             CgF4EgF5GgAiAA==",
            r##"
            {"kind":"Secret","apiVersion":"v1","metadata":{"name":"login","namespace":"default",
            "labels":{"app":"login","empty":""}},"data":{"none":"","pass":"cMOkc3N3b3Jk",
            "user":"YWRtaW4="},"stringData":{"x":"y"},"type":"Opaque"}
            "##,
        );
    }

    #[test]
    fn pod() {
        same(
            "azhzAAoJCgJ2MRIDUG9kEsgGCosBCgFwEgAaACIAKgAyADgDQggI9fGBrwYQAEoICPXxga8GEABQAGoUCgROb2\
             RlGgFuIgF1KgJ2MTABOACKAU0KAW0SBlVwZGF0ZRoCdjEiCAj18YGvBhAAMghGaWVsZHNWMTomCiR7ImY6bWV0\
             YWRhdGEiOnsiZjpsYWJlbHMiOnsiLiI6e319fX1CABKiBQoNCgVlbXB0eRIEEgIKAAobCgVzaXplZBISEhAKBk\
             1lbW9yeRIGCgQ2NE1pCg8KBGhvc3QSBwoFCgEvEgAKGwoCY20SFZoBEgoDCgFjEggKAWsSAXAYABikAwoRCgZz\
             ZWNyZXQSBzIFCgFzIAEKEAoFY2xhaW0SB1IFCgFkEAAKRAoDYWxsEj3SAToKDiIMCgAQlxwaBXRva2VuCh8SHQ\
             obCgNjcHUaFAoBYxIKbGltaXRzLmNwdRoDCgEwCgcaBQoDCgFjChUKA2NzaRIO4gELCgFkIgYKAWESAWIKMwoD\
             b3duEizqASkKJwoQCgASABoAIgAqADIAOABCABITCg1SZWFkV3JpdGVPbmNlEgAaABLwAQoBYxIBaRoCc2gaAB\
             oCLWMqADINCgAQABhQIgNUQ1AqADoFCgFBEgA6EQoBQhIAGgoiCAoDCgFzEgFrQi0KDgoDY3B1EgcKBTE1MDBt\
             Cg8KBm1lbW9yeRIFCgMxR2kSCgoDY3B1EgMKATBSIwoVEhMKAS8SCggBEAAaBGh0dHAaACIAEAAYACAFKAAwAD\
             gAWhgKDBoKCgYIABBQGgASABAAGAAgACgAMABiBhIEIgIIAGoAcgB6CwoFEgNBTEwQACAAgAEAiAEAkAEAmgEK\
             CgFQEgUKAwoBY6IBALIBEgoGIgQICRIAEAAYACAAKAAwABoAIAAyAEIASgBSAFgAYABoAHIHIAEg0A8gAIIBAI\
             oBAJIBEwoRCg8KDQoLCgFhEgZFeGlzdHOaAQCyARoKAWsSBkV4aXN0cxoAIgAo+///////////AcIBAPABAIoC\
             GQgBEgR6b25lGg1Eb05vdFNjaGVkdWxlIgCSAiIKHQoFZGVidWcSACoAQgBqAHIAgAEBiAEAkAEAogEAEgFjGh\
             MKABoAIgAqADIASgBaAHIAiAEAGgAiAA==",
            r##"
            {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","generation":3,
            "creationTimestamp":"2024-02-29T12:30:45Z","deletionTimestamp":"2024-02-29T12:30:45Z",
            "deletionGracePeriodSeconds":0,"ownerReferences":[{"apiVersion":"v1","kind":"Node",
            "name":"n","uid":"u","controller":true,"blockOwnerDeletion":false}],"managedFields":[{
            "manager":"m","operation":"Update","apiVersion":"v1","time":"2024-02-29T12:30:45Z",
            "fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{}}}}}]},"spec":{
            "volumes":[{"name":"empty","emptyDir":{}},{"name":"sized","emptyDir":{
            "medium":"Memory","sizeLimit":"64Mi"}},{"name":"host","hostPath":{"path":"/",
            "type":""}},{"name":"cm","configMap":{"name":"c","items":[{"key":"k","path":"p",
            "mode":0}],"defaultMode":420}},{"name":"secret","secret":{"secretName":"s",
            "optional":true}},{"name":"claim","persistentVolumeClaim":{"claimName":"d"}},{
            "name":"all","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,
            "path":"token"}},{"downwardAPI":{"items":[{"path":"cpu","resourceFieldRef":{
            "containerName":"c","resource":"limits.cpu","divisor":"0"}}]}},{"configMap":{
            "name":"c"}}]}},{"name":"csi","csi":{"driver":"d","volumeAttributes":{"a":"b"}}},{
            "name":"own","ephemeral":{"volumeClaimTemplate":{"metadata":{},"spec":{"accessModes":[
            "ReadWriteOnce"],"resources":{}}}}}],"containers":[{"name":"c","image":"i","command":[
            "sh","","-c"],"ports":[{"containerPort":80,"protocol":"TCP"}],"envFrom":[{
            "prefix":"P","configMapRef":{"name":"c"}}],"env":[{"name":"A"},{"name":"B",
            "valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}],"resources":{"limits":{
            "cpu":"1500m","memory":"1Gi"},"requests":{"cpu":"0"}},"livenessProbe":{"httpGet":{
            "path":"/","port":"http"},"periodSeconds":5,"terminationGracePeriodSeconds":0},
            "readinessProbe":{"tcpSocket":{"port":80}},"startupProbe":{"grpc":{"port":9,
            "service":""}},"lifecycle":{"preStop":{"sleep":{"seconds":0}}},"securityContext":{
            "capabilities":{"drop":["ALL"]},"privileged":false,"runAsUser":0}}],
            "ephemeralContainers":[{"name":"debug","resources":{},"stdin":true,
            "targetContainerName":"c"}],"terminationGracePeriodSeconds":0,"securityContext":{
            "supplementalGroups":[1,2000,0]},"affinity":{"nodeAffinity":{
            "requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{
            "matchExpressions":[{"key":"a","operator":"Exists"}]}]}}},"tolerations":[{"key":"k",
            "operator":"Exists","tolerationSeconds":-5}],"enableServiceLinks":false,
            "topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone",
            "whenUnsatisfiable":"DoNotSchedule","labelSelector":{}}]},"status":{}}
            "##,
        );
    }

    #[test]
    fn deployment() {
        same(
            "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50Et4BCjEKA3dlYhIAGgdkZWZhdWx0IgAqADIAOABCAFoKCgNhcH\
             ASA3dlYloJCgVlbXB0eRIAEpoBCAASDAoKCgNhcHASA3dlYhpeChwKABIAGgAiACoAMgA4AEIAWgoKA2FwcBID\
             d2ViEj4SIAoDd2ViEgVuZ2lueCoAQgBqAHIAgAEAiAEAkAEAogEAGgAyAEIASgBSAFgAYABoAIIBAIoBAJoBAM\
             IBACIkCg1Sb2xsaW5nVXBkYXRlEhMKBggAEAAaABIJCAEQABoDMjUlKAA4ARoMCAAQABgAIAAoADgAGgAiAA==",
            r##"
            {"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web",
            "namespace":"default","labels":{"app":"web","empty":""}},"spec":{"replicas":0,
            "selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{
            "app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx","resources":{}}]}},
            "strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,
            "maxSurge":"25%"}},"paused":true},"status":{}}
            "##,
        );
    }

    #[test]
    fn service() {
        same(
            "azhzAAoNCgJ2MRIHU2VydmljZRKTAQoxCgNzdmMSABoHZGVmYXVsdCIAKgAyADgAQgBaCgoDYXBwEgNzdmNaCQ\
             oFZW1wdHkSABJaChgKBGh0dHASABhQIgoIARAAGgRodHRwKAAKEAoAEgAYUSIGCAAQABoAKAASCgoDYXBwEgN3\
             ZWIaBE5vbmUiADoAQgBSAFoAYABoAIoBC1NpbmdsZVN0YWNrGgIKABoAIgA=",
            r##"
            {"kind":"Service","apiVersion":"v1","metadata":{"name":"svc","namespace":"default",
            "labels":{"app":"svc","empty":""}},"spec":{"ports":[{"name":"http","port":80,
            "targetPort":"http"},{"port":81,"targetPort":0}],"selector":{"app":"web"},
            "clusterIP":"None","ipFamilyPolicy":"SingleStack"},"status":{"loadBalancer":{}}}
            "##,
        );
    }

    #[test]
    fn claim() {
        same(
            "azhzAAobCgJ2MRIVUGVyc2lzdGVudFZvbHVtZUNsYWltEmoKMwoEZGF0YRIAGgdkZWZhdWx0IgAqADIAOABCAF\
             oLCgNhcHASBGRhdGFaCQoFZW1wdHkSABIvCg1SZWFkV3JpdGVPbmNlEhMSEQoHc3RvcmFnZRIGCgQxMEdpGgAq\
             ADIFQmxvY2saAgoAGgAiAA==",
            r##"
            {"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data",
            "namespace":"default","labels":{"app":"data","empty":""}},"spec":{"accessModes":[
            "ReadWriteOnce"],"resources":{"requests":{"storage":"10Gi"}},"storageClassName":"",
            "volumeMode":"Block"},"status":{}}
            "##,
        );
    }

    #[test]
    fn volume() {
        same(
            "azhzAAoWCgJ2MRIQUGVyc2lzdGVudFZvbHVtZRJjChIKAnB2EgAaACIAKgAyADgAQgASRQoTCgdzdG9yYWdlEg\
             gKBjE1MzZHaRIJogEGCgIvZBIAIhkKABIHZGVmYXVsdBoEZGF0YSIAKgAyADoAKgZSZXRhaW4yABoGCgASABoA\
             GgAiAA==",
            r##"
            {"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"pv"},"spec":{
            "capacity":{"storage":"1536Gi"},"local":{"path":"/d","fsType":""},"claimRef":{
            "namespace":"default","name":"data"},"persistentVolumeReclaimPolicy":"Retain"},
            "status":{}}
            "##,
        );
    }

    #[test]
    fn event() {
        same(
            "azhzAAoLCgJ2MRIFRXZlbnQSjgEKLQoBZRIAGgdkZWZhdWx0IgAqADIAOABCAFoICgNhcHASAWVaCQoFZW1wdH\
             kSABISCgNQb2QSABoBcCIAKgAyADoAGgdTdGFydGVkIgAqBAoAEgAyADoICPXxga8GEABAAEoGTm9ybWFsUgsI\
             9fGBrwYQgJTvOloPCAISCwj18YGvBhCAlO86YgByAHoAGgAiAA==",
            r##"
            {"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"default",
            "labels":{"app":"e","empty":""}},"involvedObject":{"kind":"Pod","name":"p"},
            "reason":"Started","source":{},"firstTimestamp":null,
            "lastTimestamp":"2024-02-29T12:30:45Z","type":"Normal",
            "eventTime":"2024-02-29T12:30:45.123456Z","series":{"count":2,
            "lastObservedTime":"2024-02-29T12:30:45.123456Z"},"reportingComponent":"",
            "reportingInstance":""}
            "##,
        );
    }

    #[test]
    fn lease() {
        same(
            "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRJFCjMKBGxvY2sSABoHZGVmYXVsdCIAKgAyAD\
             gAQgBaCwoDYXBwEgRsb2NrWgkKBWVtcHR5EgASDgoAEA8iCAj18YGvBhAAGgAiAA==",
            r##"
            {"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"lock",
            "namespace":"default","labels":{"app":"lock","empty":""}},"spec":{"holderIdentity":"",
            "leaseDurationSeconds":15,"renewTime":"2024-02-29T12:30:45.000000Z"}}
            "##,
        );
    }

    #[test]
    fn empty_role() {
        same(
            "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEi8KLQoBchIAGgdkZWZhdWx0IgAqAD\
             IAOABCAFoICgNhcHASAXJaCQoFZW1wdHkSABoAIgA=",
            r##"
            {"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"r",
            "namespace":"default","labels":{"app":"r","empty":""}},"rules":null}
            "##,
        );
    }

    #[test]
    fn role_binding() {
        same(
            "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtSb2xlQmluZGluZxJmCi8KAnJiEgAaB2RlZm\
             F1bHQiACoAMgA4AEIAWgkKA2FwcBICcmJaCQoFZW1wdHkSABImCgRVc2VyEhlyYmFjLmF1dGhvcml6YXRpb24u\
             azhzLmlvGgF1IgAaCwoAEgRSb2xlGgFyGgAiAA==",
            r##"
            {"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{
            "name":"rb","namespace":"default","labels":{"app":"rb","empty":""}},"subjects":[{
            "kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}],"roleRef":{
            "apiGroup":"","kind":"Role","name":"r"}}
            "##,
        );
    }

    #[test]
    fn scaler() {
        same(
            "azhzAAopCg5hdXRvc2NhbGluZy92MhIXSG9yaXpvbnRhbFBvZEF1dG9zY2FsZXIStwEKMQoDaHBhEgAaB2RlZm\
             F1bHQiACoAMgA4AEIAWgoKA2FwcBIDaHBhWgkKBWVtcHR5EgASfAoaCgpEZXBsb3ltZW50EgN3ZWIaB2FwcHMv\
             djEQABgFIiIKCFJlc291cmNlIhYKA2NwdRIPCgtVdGlsaXphdGlvbiBQIikKBFBvZHMaIQoHCgNycHMSABIWCg\
             xBdmVyYWdlVmFsdWUaBgoEMTAwbSoLEgkYACIFCgM1MG0aBBgAIAAaACIA",
            r##"
            {"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{
            "name":"hpa","namespace":"default","labels":{"app":"hpa","empty":""}},"spec":{
            "scaleTargetRef":{"kind":"Deployment","name":"web","apiVersion":"apps/v1"},
            "minReplicas":0,"maxReplicas":5,"metrics":[{"type":"Resource","resource":{
            "name":"cpu","target":{"type":"Utilization","averageUtilization":80}}},{"type":"Pods",
            "pods":{"metric":{"name":"rps","selector":{}},"target":{"type":"AverageValue",
            "averageValue":"100m"}}}],"behavior":{"scaleDown":{"stabilizationWindowSeconds":0,
            "tolerance":"50m"}}},"status":{"desiredReplicas":0,"currentMetrics":null}}
            "##,
        );
    }

    #[test]
    fn network_policy() {
        same(
            "azhzAAolChRuZXR3b3JraW5nLms4cy5pby92MRINTmV0d29ya1BvbGljeRJ0Ci8KAm5wEgAaB2RlZmF1bHQiAC\
             oAMgA4AEIAWgkKA2FwcBICbnBaCQoFZW1wdHkSABJBCgASABIyCg8KA1RDUBIGCAAQUBoAGFoSAgoAEhsaGQoK\
             MTAuMC4wLjAvOBILMTAuMS4wLjAvMTYiB0luZ3Jlc3MaACIA",
            r##"
            {"kind":"NetworkPolicy","apiVersion":"networking.k8s.io/v1","metadata":{"name":"np",
            "namespace":"default","labels":{"app":"np","empty":""}},"spec":{"podSelector":{},
            "ingress":[{},{"ports":[{"protocol":"TCP","port":80,"endPort":90}],"from":[{
            "podSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}],
            "policyTypes":["Ingress"]}}
            "##,
        );
    }

    #[test]
    fn controller_revision() {
        same(
            "azhzAAodCgdhcHBzL3YxEhJDb250cm9sbGVyUmV2aXNpb24SXAovCgJjchIAGgdkZWZhdWx0IgAqADIAOABCAF\
             oJCgNhcHASAmNyWgkKBWVtcHR5EgASJwoleyJzcGVjIjp7Im4iOjEuNSwibGlzdCI6W251bGwsdHJ1ZV19fRgH\
             GgAiAA==",
            r##"
            {"kind":"ControllerRevision","apiVersion":"apps/v1","metadata":{"name":"cr",
            "namespace":"default","labels":{"app":"cr","empty":""}},"data":{"spec":{"n":1.5,
            "list":[null,true]}},"revision":7}
            "##,
        );
    }

    #[test]
    fn access_review() {
        same(
            "azhzAAouChdhdXRob3JpemF0aW9uLms4cy5pby92MRITU3ViamVjdEFjY2Vzc1JldmlldxJAChAKABIAGgAiAC\
             oAMgA4AEIAEiISCQoCL3gSA2dldBoBdSoQCgZzY29wZXMSBgoBYQoBYjIAGggIABIAGgAgABoAIgA=",
            r##"
            {"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},
            "spec":{"nonResourceAttributes":{"path":"/x","verb":"get"},"user":"u","extra":{
            "scopes":["a","b"]}},"status":{"allowed":false}}
            "##,
        );
    }

    #[test]
    fn definition() {
        same(
            "azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uErkHCiEKEW\
             JvYXRzLmV4YW1wbGUuY29tEgAaACIAKgAyADgAQgAShwcKC2V4YW1wbGUuY29tGhEKBWJvYXRzEgAiBEJvYXQq\
             ACIKTmFtZXNwYWNlZDqyBgoCdjEQARgBIvEFCu4FCgASACIAKgZvYmplY3QyADoAUABgAHoAkAEAugEEc3BlY+\
             oBvwUKBHNwZWMStgUKABIAIgAqBm9iamVjdDIAOgBCDAoKeyJzaXplIjoxfVAAYAB6AJABAOoBUwoDYW55EkwK\
             ABIAIgAqADIAOgBQAGAAegCQAQDyAQIIAagCALgCAMACAOICJgoIc2VsZiA+IDESAW0aACIRRmllbGRWYWx1ZU\
             ludmFsaWQqADAA6gFaCgRjcmV3ElIKABIAIgAqBWFycmF5MgA6AFAAYAB6AJABAMIBJgokCgASACIAKgZzdHJp\
             bmcyADoAUABgAHoAkAEAqAIBuAIAwAIAqAIAuAIAwAIA0gIDc2V06gGNAQoFbmVlZHMSgwEKABIAIgAqADIAOg\
             BQAGAAegCQAQDiAR4KABIAIgAqADIAOgBQAGAAegCQAQCoAgC4AgDAAgCCAggKAWESAxIBYoICJgoBYxIhCh8K\
             ABIAIgAqAXgyADoAUABgAHoAkAEAqAIAuAIAwAIAmgIFCgASAXWiAgUKAzEuNagCALgCAMACAOoBegoEcGFpch\
             JyCgASACIAKgAyADoAUABgAHoAkAEAwgFMEiQKABIAIgAqBnN0cmluZzIAOgBQAGAAegCQAQCoAgC4AgDAAgAS\
             JAoAEgFzGgMjL2EiACoAMgA6AFAAYAB6AJABAKgCALgCAMACAIoCAggAqAIAuAIAwAIA6gFpCgRzaXplEmEKAB\
             IAIgAqB2ludGVnZXIyBWludDMyOgBJAAAAAAAABEBQAFkAAAAAAAAAAGABaAB6AJABAJkBAAAAAAAA8D+iAQMK\
             ATGiAQcKBSJ0d28iogEGCgRudWxsqAIAuAIAwAIA6gFRCgR0YWdzEkkKABIAIgAqBm9iamVjdDIAOgBQAGAAeg\
             CQAQDyASIIARIeCgASACIAKgAyADoAUABgAHoAkAEAqAIAuAIAwAIBqAIAuAIAwAIAqAIAsAIBuAIAwAIAqAIA\
             uAIAwAIAKgIKADIuCgNBZ2USBGRhdGUaACIAKAAyGy5tZXRhZGF0YS5jcmVhdGlvblRpbWVzdGFtcDgASiIKB1\
             dlYmhvb2sSFxIREgRjYT8+GglodHRwczovL3gaAnYxUAAaChIICgASACIAKgAaACIA",
            r##"
            {"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{
            "name":"boats.example.com"},"spec":{"group":"example.com","names":{"plural":"boats",
            "kind":"Boat"},"scope":"Namespaced","versions":[{"name":"v1","served":true,
            "storage":true,"schema":{"openAPIV3Schema":{"type":"object","required":["spec"],
            "properties":{"spec":{"type":"object","default":{"size":1},"properties":{"any":{
            "additionalProperties":true,"x-kubernetes-validations":[{"rule":"self > 1",
            "message":"m","reason":"FieldValueInvalid","optionalOldSelf":false}]},"crew":{
            "type":"array","items":{"type":"string","nullable":true},
            "x-kubernetes-list-type":"set"},"needs":{"not":{},"dependencies":{"a":["b"],"c":{
            "type":"x"}},"externalDocs":{"url":"u"},"example":1.5},"pair":{"items":[{
            "type":"string"},{"$schema":"s","$ref":"#/a"}],"additionalItems":false},"size":{
            "type":"integer","format":"int32","maximum":2.5,"minimum":0,"exclusiveMinimum":true,
            "maxLength":0,"multipleOf":1,"enum":[1,"two",null]},"tags":{"type":"object",
            "additionalProperties":{"x-kubernetes-int-or-string":true}}},
            "x-kubernetes-preserve-unknown-fields":true}}}},"subresources":{"status":{}},
            "additionalPrinterColumns":[{"name":"Age","type":"date",
            "jsonPath":".metadata.creationTimestamp"}]}],"conversion":{"strategy":"Webhook",
            "webhook":{"clientConfig":{"url":"https://x","caBundle":"Y2E/Pg=="},
            "conversionReviewVersions":["v1"]}}},"status":{"conditions":null,"acceptedNames":{
            "plural":"","kind":""},"storedVersions":null}}
            "##,
        );
    }

    #[test]
    fn delete_options() {
        same(
            "azhzAAoYCgdhcHBzL3YxEg1EZWxldGVPcHRpb25zEhgIABIICgNhYmMSATciCkZvcmVncm91bmQaACIA",
            r##"
            {"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":0,
            "preconditions":{"uid":"abc","resourceVersion":"7"},"propagationPolicy":"Foreground"}
            "##,
        );
    }
}
