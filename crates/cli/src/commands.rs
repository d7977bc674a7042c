//! One file per command.

pub(crate) mod apiserver;
pub(crate) mod demo;
pub(crate) mod install;
pub(crate) mod server;
