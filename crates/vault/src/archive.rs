//! Archives.

pub mod read;
