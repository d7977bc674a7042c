//! Not yet.
use std::sync::Arc;

use super::Settings;
use crate::{Error, ObjectStore, Result};

pub(super) fn open(_: &Settings) -> Result<Arc<dyn ObjectStore>> {
    Err(Error::Settings("provider gcp is not supported yet".into()))
}
