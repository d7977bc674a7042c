//! Backups of an embedded cluster, read back from their archives.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod backup;
