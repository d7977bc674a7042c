//! The restic program as an engine: `backup --json`, `restore`, `stats --json`.
