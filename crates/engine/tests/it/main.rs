//! Backups of an embedded cluster, read back from their archives.

mod backup;
