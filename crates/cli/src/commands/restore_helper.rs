//! `bowline restore-helper`, also as `/velero-restore-helper`: the init container of a restored pod,
//! which waits until all its volumes are complete.
//!
//! A volume is complete when `.velero/<uid of the restore>` is at its top; `node/done.rs` of the
//! server crate is the other side of it.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

/// The name by which the program knows that this is its role.
pub(crate) const PROGRAM: &str = "velero-restore-helper";
/// Where the pod's volumes are.
const VOLUMES: &str = "/restores";
/// The folder at the top of a volume.
const FOLDER: &str = ".velero";
/// How often the volumes are looked at.
const PAUSE: Duration = Duration::from_secs(1);
/// The exit code of who was asked to end.
const TERMINATED: u8 = 143;

/// Arguments of `bowline restore-helper`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The uid of the restore
    #[arg(value_name = "UID")]
    words: Vec<String>,
    /// Where the pod's volumes are
    #[arg(long, value_name = "FOLDER", default_value = VOLUMES, hide = true)]
    folder: PathBuf,
}

/// The role's arguments, when the program was started by its other name.
pub(crate) fn by_name(mut words: impl Iterator<Item = std::ffi::OsString>) -> Option<Args> {
    let program = PathBuf::from(words.next()?);
    (program.file_name()? == PROGRAM).then(|| Args {
        words: words
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        folder: PathBuf::from(VOLUMES),
    })
}

pub(crate) async fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let [restore] = args.words.as_slice() else {
        crate::say("ERROR: exactly one argument must be provided, the restore's UID");
        return Ok(ExitCode::FAILURE);
    };
    let mut end = signal(SignalKind::terminate())?;
    loop {
        if is_done(&args.folder, restore, out)? {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            // As process 1 it would else be deaf.
            _ = end.recv() => return Ok(TERMINATED.into()),
        }
    }
    writeln!(out, "All volumes are restored")?;
    // The volumes may be somebody else's to write to; their data is complete either way.
    match clear(&args.folder, out) {
        Ok(()) => writeln!(out, "Done cleanup .velero folder")?,
        Err(why) => writeln!(out, "{why}")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether every volume is complete. Stops at the first that is not.
fn is_done(folder: &Path, restore: &str, out: &mut dyn Write) -> io::Result<bool> {
    let volumes = match volumes(folder, out)? {
        Ok(volumes) => volumes,
        Err(why) => {
            crate::say(&format!(
                "ERROR reading {} directory: {why}",
                folder.display()
            ));
            return Ok(false);
        }
    };
    for volume in volumes {
        let file = volume.join(FOLDER).join(restore);
        let shown = file.display();
        match fs::metadata(&file) {
            Ok(_) => writeln!(out, "Found the done file {shown}")?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                writeln!(
                    out,
                    "The filesystem restore done file {shown} is not found yet. Retry later."
                )?;
                return Ok(false);
            }
            Err(e) => {
                crate::say(&format!(
                    "ERROR looking filesystem restore done file {shown}: {e}"
                ));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Removes the folders of all volumes, up to the first that cannot be removed.
fn clear(folder: &Path, out: &mut dyn Write) -> io::Result<()> {
    for volume in volumes(folder, out)?? {
        let done = volume.join(FOLDER);
        let removed = fs::remove_dir_all(&done);
        removed.map_err(|e| io::Error::new(e.kind(), format!("remove {}: {e}", done.display())))?;
        writeln!(out, "Deleted {}", done.display())?;
    }
    Ok(())
}

/// The folders below, sorted.
fn volumes(folder: &Path, out: &mut dyn Write) -> io::Result<io::Result<Vec<PathBuf>>> {
    let entries = match fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(e) => return Ok(Err(e)),
    };
    let mut volumes = Vec::new();
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            volumes.push(entry.path());
        } else {
            let name = entry.file_name();
            writeln!(out, "{} is not a directory, skipping.", name.display())?;
        }
    }
    volumes.sort();
    Ok(Ok(volumes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(folder: &Path) -> (bool, String) {
        let mut out = Vec::new();
        let done = is_done(folder, "uid", &mut out).unwrap();
        (done, String::from_utf8(out).unwrap())
    }

    #[test]
    fn all_volumes_must_be_done() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(!done(&folder.join("nowhere")).0);
        assert!(done(folder).0, "a pod without volumes waits for nothing");
        fs::write(folder.join("file"), "").unwrap();
        for volume in ["a", "b"] {
            fs::create_dir_all(folder.join(volume).join(".velero")).unwrap();
        }
        fs::write(folder.join("a/.velero/uid"), "").unwrap();
        fs::write(folder.join("b/.velero/other"), "").unwrap();
        let (is_done, said) = done(folder);
        assert!(!is_done);
        let waits = format!(
            "The filesystem restore done file {}/b/.velero/uid is not found yet. Retry later.",
            folder.display()
        );
        assert!(
            said.contains("file is not a directory, skipping."),
            "{said}"
        );
        assert!(said.contains(&waits), "{said}");
        fs::write(folder.join("b/.velero/uid"), "").unwrap();
        assert!(done(folder).0);
    }

    #[tokio::test]
    async fn what_it_waited_for_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("a/.velero")).unwrap();
        fs::write(folder.join("a/.velero/uid"), "").unwrap();
        fs::write(folder.join("a/data"), "").unwrap();
        let mut out = Vec::new();
        let args = |words: &[&str]| Args {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            folder: folder.to_owned(),
        };
        let code = run(args(&["uid"]), &mut out).await.unwrap();
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(!folder.join("a/.velero").exists());
        assert!(folder.join("a/data").exists());
        for words in [vec![], vec!["a", "b"]] {
            let code = run(args(&words), &mut out).await.unwrap();
            assert_eq!(code, ExitCode::FAILURE);
        }
    }

    #[test]
    fn the_first_failure_ends_the_clearing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for volume in ["a", "b"] {
            fs::create_dir_all(folder.join(volume)).unwrap();
        }
        // A file where a folder is expected cannot be removed as one.
        fs::write(folder.join("a/.velero"), "").unwrap();
        fs::create_dir_all(folder.join("b/.velero")).unwrap();
        let why = clear(folder, &mut Vec::new()).unwrap_err().to_string();
        assert!(why.contains("a/.velero"), "{why}");
        assert!(folder.join("b/.velero").exists());
    }

    #[test]
    fn the_role_is_known_by_name() {
        let words = |words: &[&str]| by_name(words.iter().map(Into::into)).map(|args| args.words);
        assert_eq!(words(&["/bowline", "uid"]), None);
        assert_eq!(words(&[]), None);
        assert_eq!(
            words(&["/velero-restore-helper", "uid"]),
            Some(vec!["uid".to_owned()])
        );
    }
}
