//! The types against what Velero itself wrote.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod golden;
mod survival;
