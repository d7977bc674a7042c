//! The JSON files that a bucket holds beside the archive and the log.
//!
//! Field order is that of Velero, so that the same content gives the same bytes (see
//! [`json`](crate::json)); a key that Velero always writes is always written here.

mod operations;
mod results;
mod snapshots;
mod volume_info;

pub use operations::*;
pub use results::*;
pub use snapshots::*;
pub use volume_info::*;

use std::collections::BTreeMap;

/// `<backup>-resource-list.json.gz` and `restore-<restore>-resource-list.json.gz`: sorted names by
/// `<apiVersion>/<Kind>`, as `<namespace>/<name>` or `<name>`; those of a restore end in what was
/// done, such as `(created)`.
pub type ResourceList = BTreeMap<String, Vec<String>>;
