//! Backups and restores of an embedded cluster.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod backup;
mod csi;
mod csi_restore;
mod moved;
mod pod_volumes;
mod restore;
mod snapshots;
mod volumes_told;
