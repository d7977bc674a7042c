//! The server as its users see it: clients and controllers of kube-rs.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod controllers;
mod limits;
mod sockets;
mod watches;
