//! The archive with a backup's objects, `<backup>.tar.gz`.

pub mod read;
