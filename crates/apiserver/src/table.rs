//! Server-side printing: which columns a resource has when a client asks for a
//! `Table`, and what stands in them for one object.
//!
//! Column names, types and order are a contract with `kubectl get`; only the
//! descriptions are left empty, except those a CRD's author wrote.

mod calc;
mod kinds;
mod network;
mod path;
mod pods;

use jiff::Timestamp;
use kinds::Field;
use path::Path;
use serde_json::{Value, json};

/// The columns of one resource.
#[derive(Debug)]
pub(crate) enum Columns {
    /// Of a resource the server knows itself.
    BuiltIn(&'static [Field]),
    /// Of a custom resource, after its name.
    Crd(Vec<Column>),
}

/// A column out of `additionalPrinterColumns`.
#[derive(Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Path,
}

/// The columns of a built-in resource: Name and Created At unless it has a printer.
pub(crate) fn built_in(group: &str, resource: &str) -> Columns {
    Columns::BuiltIn(kinds::fields(group, resource))
}

/// The columns of a custom resource, from its version's `additionalPrinterColumns`.
pub(crate) fn custom(additional_printer_columns: &[Value]) -> Columns {
    let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
    let given = if additional_printer_columns.is_empty() {
        &age
    } else {
        additional_printer_columns
    };
    // The real server keeps what comes before the first path it cannot read.
    Columns::Crd(given.iter().map_while(Column::read).collect())
}

impl Columns {
    /// The table's `columnDefinitions`.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        match self {
            Self::BuiltIn(fields) => fields
                .iter()
                .filter(|field| !field.name.is_empty())
                .map(|field| definition(field.name, field.kind, field.format, "", field.priority))
                .collect(),
            Self::Crd(columns) => std::iter::once(definition("Name", "string", "name", "", 0))
                .chain(columns.iter().map(|column| {
                    let Column {
                        name,
                        kind,
                        format,
                        description,
                        priority,
                        ..
                    } = column;
                    definition(name, kind, format, description, *priority)
                }))
                .collect(),
        }
    }

    /// One object's row.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self {
            Self::BuiltIn(fields) => fields
                .iter()
                .map(|field| field.cell.show(object, now))
                .collect(),
            Self::Crd(columns) => std::iter::once(json!(kinds::text(object, "/metadata/name")))
                .chain(columns.iter().map(|column| column.cell(object, now)))
                .collect(),
        }
    }
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({
        "name": name,
        "type": kind,
        "format": format,
        "description": description,
        "priority": priority,
    })
}

impl Column {
    fn read(given: &Value) -> Option<Self> {
        let text = |key: &str| given[key].as_str().unwrap_or_default().to_owned();
        Some(Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: given["priority"].as_i64().unwrap_or_default(),
            path: Path::parse(given["jsonPath"].as_str()?)?,
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.first(object) else {
            return Value::Null;
        };
        match (self.kind.as_str(), value) {
            ("string", _) => json!(path::print(value)),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(whole) => json!(whole),
                // Go drops the fraction.
                None => json!(number.as_f64().unwrap_or_default() as i64),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(date)) => json!(match date.as_str() {
                "" | "null" => UNKNOWN.to_owned(),
                date => match date.parse() {
                    Ok(then) => since(then, now),
                    Err(_) => INVALID.to_owned(),
                },
            }),
            _ => Value::Null,
        }
    }
}

const UNKNOWN: &str = "<unknown>";
const INVALID: &str = "<invalid>";

/// The age of what happened `then`. Go's zero time stands for no time at all.
fn since(then: Timestamp, now: Timestamp) -> String {
    const GO_ZERO_SECOND: i64 = -62_135_596_800;
    if then.as_second() == GO_ZERO_SECOND {
        return UNKNOWN.to_owned();
    }
    human(now.duration_since(then).as_secs())
}

/// A duration in two or three significant figures.
fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |big: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{rest}"),
    };
    match seconds {
        ..-1 => INVALID.to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => pair(days, 'd', hours % 24, 'h'),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => pair(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests;
