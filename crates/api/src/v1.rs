//! The kinds of `velero.io/v1`.

mod backup;
mod hooks;
mod location;
mod plugin_volume;
mod pod_volume;
mod repository;
mod requests;
mod restore;
mod schedule;

pub use backup::*;
pub use hooks::*;
pub use location::*;
pub use plugin_volume::*;
pub use pod_volume::*;
pub use repository::*;
pub use requests::*;
pub use restore::*;
pub use schedule::*;
