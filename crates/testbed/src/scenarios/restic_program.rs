//! The real restic as an engine, on the bed's S3: a folder goes in and comes back as it was, with
//! bytes told on the way; what is cancelled ends at once and leaves neither lock nor snapshot.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bowline_api::v1::BackupStorageLocation;
use bowline_vault::Location;
use bowline_volume::{
    Download, Downloaded, Engine, Error, Progress, Upload, Uploaded, program::Restic,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    scene::{Scene, run},
    wait_for,
};

const PASSWORD: &str = "static-passw0rd";
/// Large enough to be seen on its way.
const LARGE: usize = 96 << 20;

/// Folders and files of a volume, and all that must be equal about them.
type Tree = Vec<(String, u32, u32, i64, Vec<u8>)>;

pub(super) async fn copies(scene: &Scene) -> anyhow::Result<String> {
    let restic = repository(scene).await?;
    let source = scene.folder().join("volume");
    fill(&source)?;
    cancelled(scene, &restic, &source).await?;
    let (uploaded, seen_in) = uploaded(&restic, &source).await?;
    let id = uploaded.snapshot.context("no snapshot")?;
    ensure!(
        uploaded.unreadable.is_empty() && uploaded.remarks.is_empty(),
        "complaints: {:?} {:?}",
        uploaded.unreadable,
        uploaded.remarks
    );
    let (downloaded, seen_out) = downloaded(scene, &restic, &source, &id).await?;
    // A file of two names counts twice on the way in, and once on the way back.
    ensure!(
        downloaded.bytes + LARGE as u64 == uploaded.bytes && downloaded.problems.is_empty(),
        "{downloaded:?} of {} bytes",
        uploaded.bytes
    );
    refusals(scene, &restic, &source).await?;
    checked(scene, &restic, &["check", "--read-data"]).await?;
    Ok(format!(
        "{} MB in with {seen_in} looks on the way, back with {seen_out}, trees equal; cancelled \
         within a second; restic check is clean",
        uploaded.bytes / 1_000_000
    ))
}

/// An empty repository in a bucket of its own.
async fn repository(scene: &Scene) -> anyhow::Result<Restic> {
    let bucket = scene.bucket("restic")?;
    let spec = serde_json::from_value(json!({
        "provider": "aws",
        "objectStorage": { "bucket": bucket.name, "prefix": "some/where" },
        "config": {
            "region": "us-east-1",
            "s3ForcePathStyle": "true",
            "s3Url": bucket.s3.endpoint,
        },
    }))?;
    let location = Location {
        object: BackupStorageLocation::new("velero", "default", spec),
        credential: Some(bucket.credentials().into_bytes()),
        ..Default::default()
    };
    let binary = scene.bed().program_file("restic");
    let mut restic = Restic::at(&binary, &location, "shop", PASSWORD)?;
    restic.interval = Duration::from_millis(50);
    restic.cache = Some(scene.folder().join("cache"));
    checked(scene, &restic, &["init"]).await?;
    Ok(restic)
}

/// Runs restic by hand on the same repository.
async fn checked(scene: &Scene, restic: &Restic, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(&restic.binary);
    command
        .args(args)
        .arg("--no-cache")
        .env("RESTIC_REPOSITORY", &restic.repository)
        .env("RESTIC_PASSWORD", PASSWORD)
        .current_dir(scene.folder());
    for (name, value) in &restic.environment.variables {
        match value.is_empty() {
            true => command.env_remove(name),
            false => command.env(name, value),
        };
    }
    run(command).await
}

fn fill(source: &Path) -> anyhow::Result<()> {
    let small = source.join("small");
    fs::create_dir_all(&small)?;
    for n in 0..200 {
        fs::write(small.join(format!("file {n}")), format!("content {n}\n"))?;
    }
    let mut state = 7_u64;
    let noise: Vec<u8> = (0..LARGE / 8)
        .flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state ^ (state >> 29)).to_le_bytes()
        })
        .collect();
    fs::write(source.join("large"), noise)?;
    fs::set_permissions(source.join("large"), fs::Permissions::from_mode(0o640))?;
    fs::hard_link(source.join("large"), source.join("again"))?;
    symlink("small/file 1", source.join("link"))?;
    fs::create_dir(source.join("empty"))?;
    Ok(())
}

fn upload(source: &Path) -> Upload {
    Upload {
        source: source.to_owned(),
        tags: vec!["backup=b1".into(), "volume=data".into()],
        ..Default::default()
    }
}

/// Cancelled when it is on its way: nothing stays but data that the next one can use.
async fn cancelled(scene: &Scene, restic: &Restic, source: &Path) -> anyhow::Result<()> {
    let cancel = CancellationToken::new();
    let progress = Arc::<Progress>::default();
    let upload = upload(source);
    let cancelling = async {
        wait_for("bytes on their way", Duration::from_secs(60), async || {
            Ok((progress.get().1 > 0).then_some(()))
        })
        .await?;
        cancel.cancel();
        anyhow::Ok(Instant::now())
    };
    let (result, began) = tokio::join!(restic.upload(&upload, &progress, &cancel), cancelling);
    let took = began?.elapsed();
    match result {
        Err(Error::Cancelled) => {}
        other => bail!("a cancelled upload ended as {other:?}"),
    }
    ensure!(took < Duration::from_secs(1), "cancelled after {took:?}");
    wait_for("the lock to go", Duration::from_secs(30), async || {
        let locks = checked(scene, restic, &["list", "locks", "--no-lock", "--quiet"]).await?;
        Ok(locks.trim().is_empty().then_some(()))
    })
    .await?;
    let snapshots = checked(scene, restic, &["snapshots", "--json"]).await?;
    let snapshots: Value = serde_json::from_str(&snapshots)?;
    ensure!(
        snapshots.as_array().is_none_or(Vec::is_empty),
        "a cancelled upload has left {snapshots}"
    );
    Ok(())
}

async fn uploaded(restic: &Restic, source: &Path) -> anyhow::Result<(Uploaded, usize)> {
    let (progress, cancel) = (Arc::default(), CancellationToken::new());
    let upload = upload(source);
    let work = restic.upload(&upload, &progress, &cancel);
    let (result, seen) = watched(work, &progress).await;
    Ok((result?, seen))
}

async fn downloaded(
    scene: &Scene,
    restic: &Restic,
    source: &Path,
    id: &str,
) -> anyhow::Result<(Downloaded, usize)> {
    let target = scene.folder().join("restored");
    fs::create_dir_all(&target)?;
    fs::write(target.join("of others"), vec![1; 5000])?;
    let (progress, cancel) = (Arc::default(), CancellationToken::new());
    let download = Download {
        // As old backups have it.
        snapshot: id.get(..8).unwrap_or(id).to_owned(),
        target: target.clone(),
        ..Default::default()
    };
    let work = restic.download(&download, &progress, &cancel);
    let (result, seen) = watched(work, &progress).await;
    let result = result?;
    ensure!(
        target.join("of others").is_file(),
        "a file of others is gone"
    );
    fs::remove_file(target.join("of others"))?;
    let (was, is) = (tree(source)?, tree(&target)?);
    ensure!(was.len() > 200 && was == is, "the trees differ");
    Ok((result, seen))
}

/// Waits for a copy, counts the values that its progress had on the way, and expects it to end
/// whole.
async fn watched<T>(
    work: impl Future<Output = bowline_volume::Result<T>>,
    progress: &Progress,
) -> (anyhow::Result<T>, usize) {
    let mut seen = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    tokio::pin!(work);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = ticks.tick() => seen.push(progress.get().1),
        }
    };
    let (total, done) = progress.get();
    seen.dedup();
    seen.retain(|bytes| *bytes > 0 && *bytes < total);
    let result = result.map_err(anyhow::Error::from).and_then(|value| {
        ensure!(
            total == done && done > LARGE as u64,
            "{done} of {total} at the end"
        );
        ensure!(!seen.is_empty(), "no bytes were told on the way");
        Ok(value)
    });
    (result, seen.len())
}

/// What cannot be done says so by name.
async fn refusals(scene: &Scene, restic: &Restic, source: &Path) -> anyhow::Result<()> {
    let (progress, cancel) = (Arc::default(), CancellationToken::new());
    let mut elsewhere = restic.clone();
    elsewhere.repository.push_str("-not");
    let result = elsewhere.upload(&upload(source), &progress, &cancel).await;
    ensure!(matches!(result, Err(Error::NoRepository(_))), "{result:?}");
    let mut stranger = restic.clone();
    stranger.password = "wrong".into();
    let result = stranger.upload(&upload(source), &progress, &cancel).await;
    ensure!(matches!(result, Err(Error::WrongPassword(_))), "{result:?}");
    let missing = Download {
        snapshot: "00000000".into(),
        target: source.to_owned(),
        ..Default::default()
    };
    let result = restic.download(&missing, &progress, &cancel).await;
    ensure!(matches!(result, Err(Error::NoSnapshot(_))), "{result:?}");
    let empty = scene.folder().join("nothing");
    fs::create_dir_all(&empty)?;
    let made = restic.upload(&upload(&empty), &progress, &cancel).await?;
    ensure!(made.snapshot.is_none(), "a snapshot of nothing: {made:?}");
    Ok(())
}

fn tree(root: &Path) -> anyhow::Result<Tree> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            let content = if metadata.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path)?
                    .to_string_lossy()
                    .into_owned()
                    .into_bytes()
            } else {
                fs::read(&path)?
            };
            let name = path.strip_prefix(root)?.display().to_string();
            found.push((
                name,
                metadata.mode(),
                metadata.uid(),
                metadata.mtime(),
                content,
            ));
        }
    }
    found.sort();
    Ok(found)
}
