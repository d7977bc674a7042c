//! One file per kind.
