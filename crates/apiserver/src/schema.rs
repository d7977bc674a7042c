//! What is known of an object's fields: the schemas of built-in kinds, from the data of the real
//! server's OpenAPI document, and those of CustomResourceDefinitions. Both are read by one parser.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use serde_json::Value;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// Nothing is known: any value.
    Any,
    /// Fields or entries.
    Object,
    /// Items.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
    /// A whole number or a text.
    IntOrString,
}

/// How a list is merged and owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    /// As one value.
    Atomic,
    /// By item, each once.
    Set,
    /// By item, told apart by these fields.
    Map(Vec<String>),
}

/// One level of a schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schema {
    /// The name of a built-in definition that stands here.
    reference: Option<String>,
    /// The type.
    pub(crate) kind: Type,
    /// Fields by name.
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    /// The values of a map.
    pub(crate) additional: Option<Arc<Schema>>,
    /// The items of a list.
    pub(crate) items: Option<Arc<Schema>>,
    /// Fields that must be there.
    pub(crate) required: Vec<String>,
    /// Whether fields that are not listed are kept.
    pub(crate) preserve_unknown: bool,
    /// Whether it holds a whole object with apiVersion, kind and metadata.
    pub(crate) embedded_resource: bool,
    /// Whether `null` is a value.
    pub(crate) nullable: bool,
    /// How a list is merged and owned.
    pub(crate) list: ListType,
    /// Whether a map or object is owned as one value.
    pub(crate) atomic_map: bool,
    /// What tells the items of a list apart in a strategic merge patch.
    pub(crate) merge_key: Option<String>,
    /// The strategies of a strategic merge patch: `merge`, `replace`, `retainKeys`.
    pub(crate) merge_strategy: Vec<String>,
    /// Everything that was said, for validation: `enum`, `pattern`, `format`, bounds, `default`.
    pub(crate) raw: Value,
}

impl Schema {
    /// Reads a level of an OpenAPI v2 or v3 schema.
    #[must_use]
    pub(crate) fn parse(raw: &Value) -> Self {
        let text = |key: &str| raw[key].as_str();
        let is_true = |key: &str| raw[key] == Value::Bool(true);
        let child = |value: &Value| Arc::new(Self::parse(value));
        let reference = text("$ref")
            .or_else(|| raw["allOf"][0]["$ref"].as_str())
            .and_then(|path| path.rsplit('/').next())
            .map(str::to_owned);
        let int_or_string =
            is_true("x-kubernetes-int-or-string") || text("format") == Some("int-or-string");
        let kind = match text("type") {
            _ if int_or_string => Type::IntOrString,
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            _ => Type::Any,
        };
        let words = |key: &str| -> Vec<String> {
            let list = raw[key].as_array().into_iter().flatten();
            list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let properties: BTreeMap<String, Arc<Self>> = raw["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), child(schema)))
            .collect();
        let list = match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(words("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        };
        let mut slim = raw.clone();
        if let Some(object) = slim.as_object_mut() {
            for child in ["properties", "items", "additionalProperties", "description"] {
                object.remove(child);
            }
        }
        Self {
            reference,
            kind,
            additional: raw["additionalProperties"]
                .is_object()
                .then(|| child(&raw["additionalProperties"])),
            items: raw["items"].is_object().then(|| child(&raw["items"])),
            required: words("required"),
            preserve_unknown: is_true("x-kubernetes-preserve-unknown-fields")
                || raw["additionalProperties"] == Value::Bool(true),
            embedded_resource: is_true("x-kubernetes-embedded-resource"),
            nullable: is_true("nullable"),
            list,
            atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
            merge_key: text("x-kubernetes-patch-merge-key").map(str::to_owned),
            merge_strategy: text("x-kubernetes-patch-strategy")
                .map(|s| s.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            properties,
            raw: slim,
        }
    }

    /// The schema itself, or the built-in definition that it stands for.
    #[must_use]
    pub(crate) fn resolve(&self) -> &Self {
        match &self.reference {
            Some(name) => BUILT_IN.definitions.get(name).unwrap_or(self),
            None => self,
        }
    }

    /// The schema of a field, if it is known; maps know all their entries.
    #[must_use]
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        let this = self.resolve();
        let found = this.properties.get(name).or(this.additional.as_ref());
        found.map(AsRef::as_ref)
    }

    /// The schema of a list's items.
    #[must_use]
    pub(crate) fn item(&self) -> Option<&Self> {
        self.resolve().items.as_deref()
    }

    /// A schema that knows nothing and allows everything.
    #[must_use]
    pub(crate) fn anything() -> Self {
        Self::parse(&serde_json::json!({ "x-kubernetes-preserve-unknown-fields": true }))
    }
}

/// What the real server says of itself: its discovery documents and the schemas of its kinds.
/// `cargo xtask kubernetes-api` records it.
pub(crate) struct BuiltIn {
    /// `APIGroupDiscovery` items, the core group first.
    pub(crate) groups: Vec<Value>,
    /// The answer of `/version`.
    pub(crate) version: Value,
    definitions: HashMap<String, Schema>,
    /// Definitions by `<apiVersion>/<Kind>`.
    kinds: HashMap<String, String>,
}

pub(crate) static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let data: Value = serde_json::from_str(include_str!("../data/kubernetes-1.34.json"))
        .expect("the data file is the JSON that xtask wrote");
    let definitions = data["definitions"].as_object().cloned().unwrap_or_default();
    let mut kinds = HashMap::new();
    for (name, definition) in &definitions {
        for gvk in definition["x-kubernetes-group-version-kind"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let part = |key: &str| gvk[key].as_str().unwrap_or_default();
            let api_version = match part("group") {
                "" => part("version").to_owned(),
                group => format!("{group}/{}", part("version")),
            };
            kinds.insert(format!("{api_version}/{}", part("kind")), name.clone());
        }
    }
    BuiltIn {
        groups: data["groups"].as_array().cloned().unwrap_or_default(),
        version: data["version"].clone(),
        definitions: definitions
            .iter()
            .map(|(name, raw)| (name.clone(), Schema::parse(raw)))
            .collect(),
        kinds,
    }
});

impl BuiltIn {
    /// Whether a group is one of Kubernetes' own.
    pub(crate) fn has_group(&self, name: &str) -> bool {
        let named = |group: &Value| group["metadata"]["name"].as_str().unwrap_or_default() == name;
        self.groups.iter().any(named)
    }

    /// The schema of a built-in kind, by `<apiVersion>` and `<Kind>`.
    pub(crate) fn schema(&self, api_version: &str, kind: &str) -> Option<&Schema> {
        let name = self.kinds.get(&format!("{api_version}/{kind}"))?;
        self.definitions.get(name)
    }
}

/// The schema of `metadata`, the same for all kinds.
pub(crate) fn object_meta() -> Option<&'static Schema> {
    BUILT_IN
        .definitions
        .get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, ListType, Type};

    #[test]
    fn built_in_kinds_know_their_fields() {
        let pod = BUILT_IN.schema("v1", "Pod").unwrap();
        let containers = pod.field("spec").unwrap().field("containers").unwrap();
        assert_eq!(containers.list, ListType::Map(vec!["name".into()]));
        assert_eq!(containers.merge_key.as_deref(), Some("name"));
        let port = containers
            .item()
            .unwrap()
            .field("ports")
            .unwrap()
            .item()
            .unwrap();
        assert_eq!(port.field("containerPort").unwrap().kind, Type::Integer);
        assert!(BUILT_IN.schema("apps/v1", "Deployment").is_some());
        assert_eq!(BUILT_IN.groups.len(), 21);
    }
}
