//! The types against what Velero itself wrote.

mod golden;
mod survival;
