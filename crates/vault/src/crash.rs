//! Places where a test can end the process, to prove that the next one goes on from there.
//!
//! Without the feature `crash-points` nothing of this is compiled in.

/// Adds the name of this place as a line to the file that the variable `BOWLINE_CRASH_TRACE` names.
/// Ends the process if `BOWLINE_CRASH_AT` names this place, after adding it to the file that
/// `BOWLINE_CRASH_NOTE` names.
#[cfg(feature = "crash-points")]
pub fn here(name: &str) {
    note("BOWLINE_CRASH_TRACE", name);
    if std::env::var("BOWLINE_CRASH_AT").is_ok_and(|wanted| wanted == name) {
        note("BOWLINE_CRASH_NOTE", name);
        std::process::abort();
    }
}

#[cfg(feature = "crash-points")]
fn note(variable: &str, name: &str) {
    use std::io::Write;

    if let Ok(path) = std::env::var(variable)
        && let Ok(mut file) = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
    {
        let _ = writeln!(file, "{name}");
        let _ = file.sync_all();
    }
}

/// Does nothing.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn here(_name: &str) {}

/// What a key is called in the name of a place: the file's name without the backup's
/// (`velero-backup.json`, `.tar.gz`, `-logs.gz`); files of restores begin with `restore`
/// (`restore-logs.gz`, `restore-volumeinfo.json.gz`).
#[must_use]
pub fn suffix(key: &str) -> String {
    let mut parts = key.rsplit('/');
    let file = parts.next().unwrap_or_default();
    let (owner, kind) = (parts.next().unwrap_or_default(), parts.next());
    let plain = file
        .strip_prefix("restore-")
        .and_then(|rest| rest.strip_prefix(owner));
    match (kind, plain) {
        (Some("restores"), Some(rest)) => format!("restore{rest}"),
        (Some("restores"), None) => {
            format!("restore{}", file.strip_prefix(owner).unwrap_or(file))
        }
        _ => file.strip_prefix(owner).unwrap_or(file).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::suffix;

    #[test]
    fn suffixes_do_not_depend_on_names() {
        for (key, expected) in [
            ("backups/b/velero-backup.json", "velero-backup.json"),
            ("backups/b/b.tar.gz", ".tar.gz"),
            ("backups/b/b-logs.gz", "-logs.gz"),
            ("restores/r/restore-r-results.gz", "restore-results.gz"),
            (
                "restores/r/r-volumeinfo.json.gz",
                "restore-volumeinfo.json.gz",
            ),
            ("top", "top"),
        ] {
            assert_eq!(suffix(key), expected);
        }
    }
}
