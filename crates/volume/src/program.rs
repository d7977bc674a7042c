//! The restic program as an engine: `backup --json`, `restore`, `stats --json`.

mod identifier;

pub use identifier::identifier;
