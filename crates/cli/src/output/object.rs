//! Objects in the shape that Velero's Go types give them when printed: the same fields in the same
//! order, those that Go always writes included. Fields that we do not know stay.

use std::fmt;

use bowline_api::{
    Duration, VeleroResource,
    v1::{
        Backup, BackupRepository, BackupSpec, BackupStorageLocation, Restore, RestoreSpec,
        Schedule, ServerStatusRequest, VolumeSnapshotLocation,
    },
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json};

/// A kind that can be printed.
pub(crate) trait Printable: VeleroResource {
    /// Fills in what Go writes even when nobody set it.
    fn complete(&mut self);
}

impl Printable for Backup {
    fn complete(&mut self) {
        complete_spec(&mut self.spec);
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

impl Printable for Restore {
    fn complete(&mut self) {
        complete_restore(&mut self.spec);
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

impl Printable for Schedule {
    fn complete(&mut self) {
        complete_spec(&mut self.spec.template);
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

impl Printable for BackupStorageLocation {
    fn complete(&mut self) {
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

impl Printable for BackupRepository {
    fn complete(&mut self) {
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

impl Printable for VolumeSnapshotLocation {
    fn complete(&mut self) {
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

impl Printable for ServerStatusRequest {
    fn complete(&mut self) {
        self.status.get_or_insert_default();
        self.kind = Some(Self::KIND.to_owned());
        self.api_version = Some(api_version::<Self>());
    }
}

fn api_version<K: VeleroResource>() -> String {
    format!("{}/{}", bowline_api::GROUP, K::VERSION)
}

/// The fields of a backup's spec that Velero's own client always sends.
pub(crate) fn complete_spec(spec: &mut BackupSpec) {
    spec.metadata.get_or_insert_default();
    spec.ttl.get_or_insert(Duration::ZERO);
    spec.csi_snapshot_timeout.get_or_insert(Duration::ZERO);
    spec.item_operation_timeout.get_or_insert(Duration::ZERO);
    let hooks = spec.hooks.get_or_insert_default();
    for resource in hooks.resources.iter_mut().flatten() {
        let lists = [&mut resource.pre, &mut resource.post];
        for hook in lists.into_iter().flatten().flatten() {
            hook.exec.timeout.get_or_insert(Duration::ZERO);
        }
    }
}

/// The fields of a restore's spec that Velero's own client always sends.
pub(crate) fn complete_restore(spec: &mut RestoreSpec) {
    spec.item_operation_timeout.get_or_insert(Duration::ZERO);
    let hooks = spec.hooks.get_or_insert_default();
    let resources = hooks.resources.iter_mut().flatten();
    for hook in resources.flat_map(|resource| resource.post_hooks.iter_mut().flatten()) {
        if let Some(exec) = &mut hook.exec {
            exec.exec_timeout.get_or_insert(Duration::ZERO);
            exec.wait_timeout.get_or_insert(Duration::ZERO);
        }
        if let Some(init) = &mut hook.init {
            init.timeout.get_or_insert(Duration::ZERO);
        }
    }
}

/// One object, or a list of them, ready to be printed.
pub(crate) fn tree<K: Printable>(mut object: K) -> serde_json::Result<Tree> {
    object.complete();
    let text = serde_json::to_string(&object)?;
    let mut tree: Tree = serde_json::from_str(&text)?;
    if let Some(metadata) = tree.get_mut("metadata") {
        metadata.insert_if_missing("creationTimestamp", Tree::Leaf(Value::Null));
    }
    tree.shape("");
    Ok(tree)
}

/// A list as the API gives it.
pub(crate) fn list<K: Printable>(
    objects: Vec<K>,
    resource_version: Option<&str>,
) -> serde_json::Result<Tree> {
    let metadata = match resource_version {
        Some(version) => vec![("resourceVersion".to_owned(), Tree::Leaf(json!(version)))],
        None => Vec::new(),
    };
    let items: serde_json::Result<Vec<Tree>> = objects.into_iter().map(tree).collect();
    Ok(Tree::Map(vec![
        (
            "kind".to_owned(),
            Tree::Leaf(json!(format!("{}List", K::KIND))),
        ),
        (
            "apiVersion".to_owned(),
            Tree::Leaf(json!(api_version::<K>())),
        ),
        ("metadata".to_owned(), Tree::Map(metadata)),
        ("items".to_owned(), Tree::List(items?)),
    ]))
}

/// JSON that remembers the order of keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    /// Anything without parts.
    Leaf(Value),
    /// A list.
    List(Vec<Tree>),
    /// Fields in order.
    Map(Vec<(String, Tree)>),
}

/// The order of fields in the types that are not ours, by the key they stand under.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "metadata",
        &[
            "name",
            "generateName",
            "namespace",
            "selfLink",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "labels",
            "annotations",
            "ownerReferences",
            "finalizers",
            "managedFields",
        ],
    ),
    (
        "managedFields",
        &[
            "manager",
            "operation",
            "apiVersion",
            "time",
            "fieldsType",
            "fieldsV1",
            "subresource",
        ],
    ),
    (
        "ownerReferences",
        &[
            "apiVersion",
            "kind",
            "name",
            "uid",
            "controller",
            "blockOwnerDeletion",
        ],
    ),
    ("labelSelector", &["matchLabels", "matchExpressions"]),
    ("orLabelSelectors", &["matchLabels", "matchExpressions"]),
    ("credential", &["name", "key", "optional"]),
    ("caCertRef", &["name", "key", "optional"]),
];

impl Tree {
    /// The same without the order, for YAML, which sorts.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Leaf(value) => value,
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Map(fields) => fields
                .into_iter()
                .map(|(key, value)| (key, value.into_value()))
                .collect(),
        }
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match self {
            Self::Map(fields) => fields
                .iter_mut()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    fn insert_if_missing(&mut self, key: &str, value: Self) {
        if let Self::Map(fields) = self
            && !fields.iter().any(|(name, _)| name == key)
        {
            fields.push((key.to_owned(), value));
        }
    }

    fn shape(&mut self, under: &str) {
        match self {
            Self::Leaf(_) => {}
            Self::List(items) => items.iter_mut().for_each(|item| item.shape(under)),
            Self::Map(fields) => {
                let is_reference = ["resourcePolicy", "resourceModifier"].contains(&under);
                if is_reference && !fields.iter().any(|(key, _)| key == "apiGroup") {
                    fields.insert(0, ("apiGroup".to_owned(), Self::Leaf(Value::Null)));
                }
                if let Some((_, order)) = ORDERS.iter().find(|(key, _)| *key == under) {
                    fields.sort_by_key(|(key, _)| {
                        order
                            .iter()
                            .position(|known| known == key)
                            .unwrap_or(order.len())
                    });
                }
                for (key, value) in fields {
                    value.shape(key);
                }
            }
        }
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Leaf(value) => value.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(fields) => serializer.collect_map(fields.iter().map(|(k, v)| (k, v))),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Map(fields))
    }
}
