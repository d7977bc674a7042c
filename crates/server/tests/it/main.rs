//! Reconcilers on the embedded API server, with folders as buckets.

mod deletion;
mod download;
mod location;
mod schedule;
mod server_status;
mod sync;

mod scene;
