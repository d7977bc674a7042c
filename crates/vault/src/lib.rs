//! Where backups are kept: object stores, the layout of a bucket, and the archive format.
//!
//! ```text
//!   location ──▶ store (aws, gcp, azure, filesystem)     open what a BackupStorageLocation names
//!                  ▲
//!   bucket ────────┘   keys, retries, timeouts, metrics  what everybody else uses
//!   archive            the .tar.gz, written and read as a stream
//! ```

pub mod archive;
#[cfg(any(test, feature = "behaviour"))]
pub mod behaviour;
pub mod bucket;
pub mod crash;
pub mod location;
pub mod store;

mod error;

pub use bucket::Bucket;
pub use error::{Error, Result};
pub use location::{Location, open};
pub use store::{ByteStream, ObjectStore};
