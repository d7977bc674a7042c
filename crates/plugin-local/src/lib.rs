//! A VolumeSnapshotter for `hostPath` and `local` PersistentVolumes of the node it runs on.
//!
//! ```text
//!   CreateSnapshot   volume ─▶ clone beside it: blocks are shared where the file system can, else copied
//!   UploadSnapshot   clone ─▶ repository in the backup location; then the clone goes
//!   CreateVolume     clone or repository ─▶ a new folder beside the old one
//!   DeleteSnapshot   clone and repository
//! ```
//!
//! Folders are reached by descriptors, from the node's root down, and no link is followed on the
//! way: nothing outside a volume is read, nothing outside the snapshot folder and the new volume is
//! written.

mod about;
mod clone;
mod clones;
mod cluster;
mod error;
mod host;
mod names;
mod new_volume;
mod persistent_volume;
mod plugin;
mod remove;
mod repository;
mod running;
mod settings;

pub use cluster::Cluster;
pub use error::{Error, Result};
pub use plugin::Local;
pub use repository::{Vault, Vaults};

/// The name that VolumeSnapshotLocations give as their provider.
pub const NAME: &str = "bowline.io/local";
