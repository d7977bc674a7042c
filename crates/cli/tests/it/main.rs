//! The program as a user runs it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod backup;
mod bed;
mod client;
mod golden;
mod install;
mod location;
mod movements;
mod plugin;
mod repo;
mod restore;
mod schedule;
mod snapshot_location;
mod trust;
mod volumes;
