//! Maintenance.

use tokio_util::sync::CancellationToken;

use super::Repository;
use crate::{Error, Result};

/// What maintenance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Bytes of packs that were removed.
    pub freed: u64,
    /// Bytes of packs that are left.
    pub kept: u64,
}

pub(super) async fn run(repository: &Repository, cancel: &CancellationToken) -> Result<Maintained> {
    let _ = (repository, cancel);
    Err(Error::Cancelled)
}
