//! Reconcilers on the embedded API server, with folders as buckets.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod csi;
mod deletion;
mod download;
mod location;
mod moved;
mod node;
mod node_copies;
mod pod_volumes;
mod restore;
mod schedule;
mod server_status;
mod sync;
mod told;

mod scene;
