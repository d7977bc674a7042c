//! From a BackupStorageLocation to a bucket.

use bowline_api::v1::BackupStorageLocation;

use crate::{Bucket, Result};

/// A location and the secrets it refers to, which somebody with a cluster has fetched.
#[derive(Clone, Default)]
pub struct Location {
    /// The location.
    pub object: BackupStorageLocation,
    /// What `spec.credential` refers to.
    pub credential: Option<Vec<u8>>,
    /// What `spec.objectStorage.caCertRef` refers to.
    pub ca_cert: Option<Vec<u8>>,
}

/// Opens the bucket of a location. Nothing is sent yet.
///
/// # Errors
/// When the settings cannot be used; the text names the setting.
pub fn open(location: &Location) -> Result<Bucket> {
    let _ = location;
    todo!()
}
