//! A Kubernetes API over an in-memory store.
//!
//! [`ApiServer`] is a tower service: a client can call it without a socket, and [`serve`] puts it on
//! one. It knows nothing of what it is used for. `docs/embedded-api.md` says what is in it, what is
//! not, and where it differs from the real one; the conformance suite in the testbed shows it. What
//! patches make of an object can be had without a server: [`json_patch`], [`merge_patch`],
//! [`strategic_merge`].
//!
//! ```text
//!   request ──▶ registry ──▶ read, watch          ──▶ store
//!                       └──▶ write ─▶ validate, merge, lifecycle ─▶ store
//! ```

mod delete;
mod discovery;
mod fault;
mod kinds;
mod lifecycle;
mod merge;
mod patch;
mod protobuf;
mod read;
mod registry;
mod request;
mod scale;
mod schema;
mod selector;
mod serve;
mod server;
mod status;
mod store;
mod table;
mod validate;
mod watch;
mod write;

pub use fault::{Fault, Rule, When};
pub use merge::{Absent, BadPatch, json_patch, merge_patch, strategic_merge};
pub use serve::Identity;
pub use server::{AnswerBody, ApiServer, BoxError};
pub use status::{Cause, Status};
