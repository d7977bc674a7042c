//! Velero's plugin protocol: programs that the server starts and speaks to by gRPC.
//!
//! A kind of plugin is a trait of [`kinds`], whichever side one is on: [`host`] gives plugins that
//! are processes as implementations of these traits, and [`serve`] makes a process of an
//! implementation, which runs under Velero's server too.

mod convert;
mod error;
pub mod host;
pub mod kinds;
pub mod serve;
mod wire;

pub use error::{Code, Error, Place, Result, Status};
