//! JSON schemas as a CustomResourceDefinition wants them.
//!
//! `schemars` derives them from the types; what Kubernetes sees differently is put right here: an
//! optional field may be absent, but is `nullable` only where the type says so, and nothing is
//! referenced. The core Kubernetes types that our kinds use are spelled out below.

use std::borrow::Cow;

use schemars::{
    JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema,
    transform::transform_subschemas,
};
use serde_json::Value;

/// The structural schema of a type.
pub(crate) fn of<T: JsonSchema>() -> Schema {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.transforms.clear();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    structural(&mut schema);
    schema
}

fn structural(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        if let Some(Value::Array(types)) = object.get("type") {
            let not_null = types.iter().find(|t| *t != "null").cloned();
            object.insert("type".to_owned(), not_null.into());
        }
        if let Some(Value::Array(words)) = object.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        if let Some(Value::Array(fields)) = object.get_mut("required") {
            fields.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        }
    }
    transform_subschemas(&mut structural, schema);
}

/// A type of Kubernetes by its schema alone, for `#[schemars(with = …)]`.
macro_rules! core_type {
    ($(#[$meta:meta])* $name:ident, $schema:tt) => {
        $(#[$meta])*
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

core_type!(
    /// `metav1.LabelSelector`.
    LabelSelector,
    {
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string" },
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" }
                        }
                    }
                }
            },
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } }
        }
    }
);

core_type!(
    /// `corev1.TypedLocalObjectReference`.
    TypedReference,
    {
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "required": ["kind", "name"],
        "properties": {
            "apiGroup": { "type": "string" },
            "kind": { "type": "string" },
            "name": { "type": "string" }
        }
    }
);

core_type!(
    /// `corev1.SecretKeySelector`.
    SecretKey,
    {
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "required": ["key"],
        "properties": {
            "key": { "type": "string" },
            "name": { "type": "string", "default": "" },
            "optional": { "type": "boolean" }
        }
    }
);

core_type!(
    /// `corev1.ObjectReference`.
    ObjectReference,
    {
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": { "type": "string" },
            "fieldPath": { "type": "string" },
            "kind": { "type": "string" },
            "name": { "type": "string" },
            "namespace": { "type": "string" },
            "resourceVersion": { "type": "string" },
            "uid": { "type": "string" }
        }
    }
);

core_type!(
    /// An object of any shape: the pod that it goes into is what validates it.
    AnyObject,
    { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
);
