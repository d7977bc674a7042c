//! Backup and restore: select, plan, run, track.

pub mod filter;
