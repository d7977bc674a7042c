//! The archive of a backup: a tar of JSON files, gzipped, written and read as a stream.
//!
//! `metadata/version` comes first; each object is in it twice, below its resource and below its
//! resource and version.

pub mod read;
pub mod write;

/// The version of the layout.
pub const FORMAT_VERSION: &str = "1.1.0";
/// The first entry.
pub const VERSION_FILE: &str = "metadata/version";
