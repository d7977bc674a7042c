//! Backup and restore: select, plan, run, track.

pub mod action;
pub mod backup;
pub mod csi;
pub mod discovery;
pub mod filter;
pub mod hooks;
pub mod list;
pub mod log;
pub mod movement;
pub mod object;
pub mod policy;
pub mod progress;
pub mod restore;
pub mod scope;
pub mod select;
pub mod selector;
