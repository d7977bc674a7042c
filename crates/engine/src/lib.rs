//! Backup and restore: select, plan, run, track.

pub mod backup {
    //! Backups.
    pub mod validate;
}
pub mod filter;
pub mod hooks;
pub mod policy;
pub mod selector;
