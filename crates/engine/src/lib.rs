//! Backup and restore: select, plan, run, track.

pub mod discovery;
pub mod filter;
pub mod list;
pub mod object;
