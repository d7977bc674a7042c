//! Shell scripts play restic: `sh` takes the command's name for a script in the folder it runs in.

use std::fs;

use tempfile::TempDir;
use tokio::{task::yield_now, time::timeout};

use super::*;

const SUMMARY: &str = r#"echo '{"message_type":"summary","total_files_processed":2,"total_bytes_processed":10,"data_added":7,"snapshot_id":"abcdef"}'"#;
const PARTWAY: &str = r#"echo '{"message_type":"status","total_bytes":10,"bytes_done":4}'"#;

fn folder(scripts: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in scripts {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn restic() -> Restic {
    Restic {
        interval: Duration::from_millis(1),
        patience: Duration::ZERO,
        ..Restic::new(Path::new("/bin/sh"), "/srv/repository", "hush-hush")
    }
}

fn upload_of(folder: &TempDir) -> Upload {
    Upload {
        source: folder.path().to_owned(),
        tags: vec!["a=b".into(), "c=d".into()],
        ..Default::default()
    }
}

async fn upload(restic: &Restic, upload: &Upload) -> (Result<Uploaded>, (u64, u64)) {
    let progress = Arc::default();
    let result = restic
        .upload(upload, &progress, &CancellationToken::new())
        .await;
    (result, progress.get())
}

fn download_to(folder: &TempDir) -> Download {
    Download {
        snapshot: "abc".into(),
        target: folder.path().to_owned(),
        ..Default::default()
    }
}

/// Waits until something is so; a minute is too long.
async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.unwrap();
}

async fn both<A>(a: impl Future<Output = A>, b: impl Future<Output = ()>) -> A {
    let wait = async { tokio::join!(a, b).0 };
    timeout(Duration::from_secs(60), wait).await.unwrap()
}

#[tokio::test]
async fn an_upload_gives_the_password_in_a_file_and_takes_it_away() {
    let script = format!(
        r#"for arg; do case "$arg" in --password-file=*) file="${{arg#*=}}";; esac; done
        echo "$*" > args
        echo "$file" > file
        echo "$(stat -c %a "$file") $(cat "$file") $RESTIC_REPOSITORY $SECRET_KEY" > seen
        {SUMMARY}"#
    );
    let folder = folder(&[("backup", &script)]);
    let mut restic = restic();
    restic.environment.variables = vec![("SECRET_KEY".into(), "quiet".into())];
    let (result, progress) = upload(&restic, &upload_of(&folder)).await;
    let expected = Uploaded {
        snapshot: Some("abcdef".into()),
        files: 2,
        bytes: 10,
        added: 7,
        ..Default::default()
    };
    assert_eq!(result.unwrap(), expected);
    assert_eq!(progress, (10, 10));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("seen"), "600 hush-hush /srv/repository quiet\n");
    let args = read("args");
    assert!(
        args.starts_with(". --json --host=velero --tag=a=b --tag=c=d --password-file="),
        "{args}"
    );
    assert!(!Path::new(read("file").trim()).exists());
}

#[tokio::test]
async fn a_cancelled_upload_ends_at_once_and_restic_is_interrupted() {
    let script =
        format!("sleep 60 & trap 'kill $!; : > interrupted; exit 130' INT\n{PARTWAY}\nwait $!");
    let folder = folder(&[("backup", &script)]);
    let (restic, upload) = (restic(), upload_of(&folder));
    let (progress, cancel) = (Arc::default(), CancellationToken::new());
    let cancelling = async {
        until(|| Progress::get(&progress) == (10, 4)).await;
        cancel.cancel();
    };
    let result = both(restic.upload(&upload, &progress, &cancel), cancelling).await;
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    until(|| folder.path().join("interrupted").exists()).await;
}

#[tokio::test]
async fn a_snapshot_made_while_it_was_cancelled_is_forgotten() {
    let backup = format!(
        "finish() {{ kill $!; {SUMMARY}; exit 0; }}\nsleep 60 & trap finish INT\n{PARTWAY}\nwait $!"
    );
    let folder = folder(&[
        ("backup", &backup),
        ("forget", "echo $1 > note; mv note forgotten"),
    ]);
    let (restic, upload) = (restic(), upload_of(&folder));
    let (progress, cancel) = (Arc::default(), CancellationToken::new());
    let cancelling = async {
        until(|| Progress::get(&progress) == (10, 4)).await;
        cancel.cancel();
    };
    let result = both(restic.upload(&upload, &progress, &cancel), cancelling).await;
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    let forgotten = folder.path().join("forgotten");
    until(|| forgotten.exists()).await;
    assert_eq!(fs::read_to_string(forgotten).unwrap(), "abcdef\n");
}

#[tokio::test]
async fn what_could_not_be_read_is_named() {
    let script = format!(
        r#"echo '{{"message_type":"error","error":{{"message":"open x: permission denied"}},"during":"archival","item":"'$PWD'/x"}}' >&2
        {PARTWAY}
        {SUMMARY}
        exit 3"#
    );
    let incomplete = folder(&[("backup", &script)]);
    let (result, progress) = upload(&restic(), &upload_of(&incomplete)).await;
    let uploaded = result.unwrap();
    assert_eq!(uploaded.snapshot.as_deref(), Some("abcdef"));
    assert_eq!(uploaded.unreadable.len(), 1);
    assert_eq!(
        uploaded.unreadable[0].to_string(),
        "x: open x: permission denied"
    );
    assert_eq!(progress, (10, 10));

    let silent = folder(&[("backup", &format!("{SUMMARY}\nexit 3"))]);
    let (result, _) = upload(&restic(), &upload_of(&silent)).await;
    assert_eq!(result.unwrap().unreadable.len(), 1);
}

#[tokio::test]
async fn an_empty_folder_makes_no_snapshot() {
    let script = "echo 'Fatal: unable to save snapshot: snapshot is empty' >&2; exit 1";
    let folder = folder(&[("backup", script)]);
    let (result, progress) = upload(&restic(), &upload_of(&folder)).await;
    assert_eq!(result.unwrap(), Uploaded::default());
    assert_eq!(progress, (0, 0));
}

#[tokio::test]
async fn old_versions_are_asked_for_the_snapshot() {
    let backup = r#"echo '{"message_type":"summary","total_bytes_processed":10}'"#;
    let snapshots =
        r#"[ "$*" = "${*#*--tag=a=b,c=d}" ] || echo '[{"id":"fedcba","short_id":"fe"}]'"#;
    let folder = folder(&[("backup", backup), ("snapshots", snapshots)]);
    let (result, _) = upload(&restic(), &upload_of(&folder)).await;
    assert_eq!(result.unwrap().snapshot.as_deref(), Some("fedcba"));
}

#[tokio::test]
async fn a_parent_that_is_gone_is_done_without() {
    let script = format!(
        r#"case "$*" in *--parent=*) echo 'no matching ID found for prefix "gone"' >&2; exit 1;; esac
        {SUMMARY}"#
    );
    let folder = folder(&[("backup", &script)]);
    let of = Upload {
        parent: Some("gone".into()),
        ..upload_of(&folder)
    };
    let (result, _) = upload(&restic(), &of).await;
    assert_eq!(result.unwrap().snapshot.as_deref(), Some("abcdef"));
}

#[tokio::test]
async fn failures_say_why_and_no_secrets() {
    for (script, expected) in [
        (
            "echo 'Fatal: bad key hush-hush' >&2; exit 1",
            "restic backup ended with exit code 1: bad key ***",
        ),
        ("exit 10", "there is no repository at /srv/repository"),
        ("echo busy >&2; exit 11", "the repository is locked: busy"),
        ("kill -9 $$", "restic backup was killed"),
        ("exit 0", "restic backup ended without a summary"),
    ] {
        let folder = folder(&[("backup", script)]);
        let (result, progress) = upload(&restic(), &upload_of(&folder)).await;
        assert_eq!(result.unwrap_err().to_string(), expected);
        assert_eq!(progress, (0, 0));
    }
    let folder = folder(&[]);
    let mut missing = restic();
    missing.binary = "/nowhere/restic".into();
    let (result, _) = upload(&missing, &upload_of(&folder)).await;
    let text = result.unwrap_err().to_string();
    assert!(
        text.starts_with("run /nowhere/restic: No such file"),
        "{text}"
    );
    let nowhere = Upload {
        source: "/nowhere".into(),
        ..Default::default()
    };
    let (result, _) = upload(&restic(), &nowhere).await;
    assert_eq!(result.unwrap_err().to_string(), "open /nowhere");
}

const STATS: &str =
    r#"[ "$1" = abc ] && echo '{"total_size":10,"total_file_count":2,"snapshots_count":1}'"#;

#[tokio::test]
async fn a_download_is_as_far_as_the_folder_has_grown() {
    let restore = r#"[ "$1 $2 $3" = "abc --target=. --sparse" ] || exit 1
        head -c 4096 /dev/zero > data
        while [ ! -e go ]; do :; done"#;
    let stats = STATS.replace("10", "10000");
    let folder = folder(&[("stats", &stats), ("restore", restore)]);
    let download = Download {
        sparse: true,
        ..download_to(&folder)
    };
    let (restic, progress, cancel) = (restic(), Arc::default(), CancellationToken::new());
    let going = async {
        until(|| Progress::get(&progress) == (10_000, 4096)).await;
        fs::write(folder.path().join("go"), "").unwrap();
    };
    let result = both(restic.download(&download, &progress, &cancel), going).await;
    let expected = Downloaded {
        files: 2,
        bytes: 10_000,
        ..Default::default()
    };
    assert_eq!(result.unwrap(), expected);
    assert_eq!(progress.get(), (10_000, 10_000));
}

#[tokio::test]
async fn a_failed_download_is_not_at_its_end() {
    let complaint = "echo 'ignoring error for /b: not empty' >&2; echo 'Fatal: There were 1 errors' >&2; exit 1";
    for (restore, expected) in [
        (complaint, Ok(1)),
        (
            "echo 'Fatal: no space left on device' >&2; exit 1",
            Err("restic restore ended with exit code 1: no space left on device"),
        ),
    ] {
        let folder = folder(&[("stats", STATS), ("restore", restore)]);
        let progress = Arc::default();
        let result = restic()
            .download(&download_to(&folder), &progress, &CancellationToken::new())
            .await;
        let result = result
            .map(|done| done.problems.len())
            .map_err(|e| e.to_string());
        assert_eq!(result, expected.map_err(str::to_owned));
        let (total, done) = progress.get();
        assert!(total == 10 && done < 10, "{done} of {total}");
    }
    let none = r#"echo '{"total_size":0,"snapshots_count":0}'"#;
    let folder = folder(&[("stats", none)]);
    let result = restic()
        .download(
            &download_to(&folder),
            &Arc::default(),
            &CancellationToken::new(),
        )
        .await;
    assert!(matches!(result, Err(Error::NoSnapshot(_))), "{result:?}");
}

#[tokio::test]
async fn devices_are_refused_by_name() {
    let folder = folder(&[]);
    let of = Upload {
        mode: Mode::Device,
        ..upload_of(&folder)
    };
    let to = Download {
        mode: Mode::Device,
        ..download_to(&folder)
    };
    let expected =
        "block volumes need the built-in engine: the restic program is used for files only";
    let (result, _) = upload(&restic(), &of).await;
    assert_eq!(result.unwrap_err().to_string(), expected);
    let (progress, cancel) = (Arc::default(), CancellationToken::new());
    let result = restic().download(&to, &progress, &cancel).await;
    assert_eq!(result.unwrap_err().to_string(), expected);
}
