//! One file per command.

pub(crate) mod apiserver;
pub(crate) mod backup;
pub(crate) mod client;
pub(crate) mod completion;
pub(crate) mod data_mover;
pub(crate) mod demo;
pub(crate) mod install;
pub(crate) mod location;
pub(crate) mod node_agent;
pub(crate) mod plugin;
pub(crate) mod repo;
pub(crate) mod restore;
pub(crate) mod restore_helper;
pub(crate) mod schedule;
pub(crate) mod server;
pub(crate) mod snapshot_location;
pub(crate) mod uninstall;
pub(crate) mod verbs;
pub(crate) mod version;
