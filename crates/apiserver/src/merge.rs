//! How a change and an object become one: patches of all kinds, server-side apply, and the
//! record of who set which field (`metadata.managedFields`) that both kinds of writes keep up.

mod apply;
mod fields;
mod json_patch;
mod strategic;

use serde_json::{Value, json};

pub(crate) use apply::{apply, track_update};
pub use json_patch::{Absent, BadPatch, json_patch};
pub(crate) use strategic::strategic;
pub use strategic::strategic_merge;

use crate::schema::Schema;

/// Whether fields are declared by their owner, or were seen to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else.
    Update,
}

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actor<'a> {
    /// The `fieldManager` of the request, or the program's name.
    pub(crate) manager: &'a str,
    /// The version that the request is written in, `apps/v1`.
    pub(crate) api_version: &'a str,
    /// Empty, or `status`, `scale`.
    pub(crate) subresource: &'a str,
    /// The time of the request.
    pub(crate) now: jiff::Timestamp,
}

/// A merge patch, RFC 7396: its fields replace those of the object, `null` takes them away.
pub fn merge_patch(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let Value::Object(fields) = object else {
        return;
    };
    for (key, change) in changes {
        match change {
            Value::Null => drop(fields.remove(key)),
            change => merge_patch(fields.entry(key.clone()).or_insert(Value::Null), change),
        }
    }
}

/// A value of a built-in kind as it is after the real server read it into its types: without
/// `null` and without lists and maps that are empty and need not be there.
fn settle(value: &mut Value, schema: &Schema) {
    let target = schema.resolve();
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(field) = schema.field(name) else {
                return true;
            };
            settle(value, field);
            let required = target.required.contains(name);
            match value {
                // A time that is not set is written as null.
                Value::Null => field.raw["$ref"]
                    .as_str()
                    .is_some_and(|path| path.ends_with("Time")),
                Value::Array(items) => required || !items.is_empty() || field.item().is_none(),
                Value::Object(entries) => {
                    required || !entries.is_empty() || field.resolve().additional.is_none()
                }
                _ => true,
            }
        }),
        Value::Array(items) => {
            if let Some(item) = schema.item() {
                items.iter_mut().for_each(|value| settle(value, item));
            }
        }
        _ => {}
    }
}
