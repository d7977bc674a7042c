//! What all custom resources here have in common: the shape of the object and the facts that go
//! into its CustomResourceDefinition.

use kube::Resource;
use schemars::Schema;
use serde::{Serialize, de::DeserializeOwned};

/// A kind of group `velero.io`.
pub trait VeleroResource:
    Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned
{
    /// The kind, `Backup`.
    const KIND: &'static str;
    /// The version that is both served and stored, `v1`.
    const VERSION: &'static str;
    /// The plural, `backups`.
    const PLURAL: &'static str;
    /// Names that `kubectl` takes instead of the plural.
    const SHORT_NAMES: &'static [&'static str];
    /// What `kubectl get` shows.
    const COLUMNS: &'static [Column];

    /// The schemas of `spec` and `status`.
    fn schemas() -> (Schema, Schema);
}

/// A printer column of a CustomResourceDefinition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// Where the value stands in the object.
    pub path: &'static str,
    /// How the value is shown.
    pub kind: ColumnType,
    /// Zero is always shown, more only with `-o wide`.
    pub priority: u8,
}

/// The type of a printer column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// A time, shown as an age.
    Date,
    /// A 64-bit number.
    Int64,
    /// Yes or no.
    Boolean,
}

impl Column {
    pub(crate) const AGE: Self = Self::new("Age", ".metadata.creationTimestamp", ColumnType::Date);

    pub(crate) const fn new(name: &'static str, path: &'static str, kind: ColumnType) -> Self {
        Self {
            name,
            path,
            kind,
            priority: 0,
        }
    }

    pub(crate) const fn text(name: &'static str, path: &'static str) -> Self {
        Self::new(name, path, ColumnType::Text)
    }
}

/// Defines a part of an object or file: every field may be missing, and fields that this version
/// does not know are kept in `extra`.
///
/// A field that is not an `Option` is always written, and required by the schema; read without it,
/// the value is the type's default, so that one odd object cannot make a whole list unreadable.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($fields:tt)* }
    ) => {
        $(#[$meta])*
        #[serde_with_macros::skip_serializing_none]
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        #[schemars(!default)]
        pub struct $name {
            $($fields)*
            /// Fields that this version does not know.
            #[serde(flatten)]
            #[schemars(skip)]
            pub extra: $crate::Extra,
        }
    };
}

/// Defines a kind: the object with `metadata`, `spec` and `status`, and its place in the API.
///
/// `spec` may be missing (no schema here requires it) and then reads as the default; a missing
/// `status` stays missing.
macro_rules! resource {
    (
        $(#[$meta:meta])*
        $kind:ident, $version:literal, $plural:literal, $short:expr, $columns:expr,
        spec: $spec:ty, status: $status:ty
    ) => {
        $(#[$meta])*
        #[serde_with_macros::skip_serializing_none]
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $kind {
            /// The kind as it was written; lists and some bucket files leave it out.
            pub kind: Option<String>,
            /// The group and version as they were written; lists and some bucket files leave them out.
            pub api_version: Option<String>,
            /// Name, labels and the rest of what every object has.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is asked for.
            pub spec: $spec,
            /// How far it is.
            pub status: Option<$status>,
            /// Fields that this version does not know.
            #[serde(flatten)]
            pub extra: $crate::Extra,
        }

        impl $kind {
            /// A new object with its type and name filled in.
            #[must_use]
            pub fn new(namespace: &str, name: &str, spec: $spec) -> Self {
                Self {
                    kind: Some(stringify!($kind).to_owned()),
                    api_version: Some(concat!("velero.io/", $version).to_owned()),
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                        name: Some(name.to_owned()),
                        namespace: Some(namespace.to_owned()),
                        ..Default::default()
                    },
                    spec,
                    status: None,
                    extra: Default::default(),
                }
            }

            /// The status, made empty first if there was none.
            pub fn status_mut(&mut self) -> &mut $status {
                self.status.get_or_insert_default()
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $crate::GROUP.into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl $crate::VeleroResource for $kind {
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = $version;
            const PLURAL: &'static str = $plural;
            const SHORT_NAMES: &'static [&'static str] = &$short;
            const COLUMNS: &'static [$crate::Column] = &$columns;

            fn schemas() -> (schemars::Schema, schemars::Schema) {
                ($crate::schema::of::<$spec>(), $crate::schema::of::<$status>())
            }
        }
    };
}
