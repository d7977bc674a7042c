//! The control plane: one reconciler per kind, leadership by lease, metrics.
//!
//! ```text
//!   settings ──▶ context ──▶ controllers/*      each: a pure decision, and a `reconcile` that acts on it
//!   node         the process of one node: copies volumes of pods, for the server
//!   lease        who of several servers acts
//!   metrics      what it counts; http.rs serves it
//! ```

pub mod context;
pub mod controllers;
pub mod cron;
mod csi;
pub mod http;
pub mod lease;
pub mod metrics;
pub mod node;
mod nodes;
pub mod plugins;
mod repositories;
mod run;
pub mod settings;
mod snapshotters;

mod error;

pub use context::Context;
pub use error::{Error, Result};
pub use run::run;
pub use settings::Settings;
