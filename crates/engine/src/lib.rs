//! Backup and restore: select, plan, run, track.

pub mod filter;
pub mod policy;
pub mod selector;
