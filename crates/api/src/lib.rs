//! Velero's language, as types: the custom resources of group `velero.io`, the names that give
//! them meaning (labels, annotations, finalizers), and the JSON files that a bucket holds.
//!
//! ```text
//!   v1, v2alpha1   custom resources        names   labels, annotations, finalizers, names
//!   files          what the bucket holds   crd     the resources as CustomResourceDefinitions
//! ```
//!
//! The crate holds data only: no client, no clock. It keeps three promises to whoever reads an
//! object, changes a field and writes it back:
//!
//! - a field it does not know is kept (`extra` of every struct),
//! - a phase or other word it does not know is kept (`Other` of every [`word`](mod@word) type),
//! - absent stays absent, empty stays empty; an explicit `null` reads as absent.
//!
//! Metadata and the few core types inside (selectors, references) are those of `k8s-openapi`, which
//! know the fields of Kubernetes 1.34.

#[macro_use]
pub mod word;
#[macro_use]
mod resource;

pub mod crd;
pub mod files;
pub mod json;
pub mod names;
pub mod v1;
pub mod v2alpha1;

mod duration;
mod quantity;
mod schema;
mod time;

pub use duration::{BadDuration, Duration};
pub use quantity::{BadQuantity, Quantity};
pub use resource::{Column, ColumnType, VeleroResource};
pub use time::Time;

use std::collections::BTreeMap;

/// The API group of every kind here.
pub const GROUP: &str = "velero.io";

/// Fields that this version does not know, kept as they came.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// Strings by name: labels, provider settings, tags.
pub type StringMap = BTreeMap<String, String>;
