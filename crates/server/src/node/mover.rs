//! The process in a pod that moves the data of one volume: `data-mover backup` and `data-mover restore`.
//!
//! It waits until its node gives it its turn, moves the data, tells how far it is, and leaves its verdict
//! as the pod's last words. Killed, it begins again: what is stored is not stored twice, and files that
//! are written are written again.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bowline_api::{
    names::{annotation, label, tag, uploader_setting},
    v1::DataPathPhase as Phase,
    v2alpha1::{DataDownload, DataUpload},
};
use bowline_engine::movement::Mover;
use bowline_vault::crash;
use bowline_volume::{Download, Downloaded, Engine, Mode, Progress, Upload, Uploaded};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, ResourceExt, runtime::wait::await_condition};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    copy::{self, Copy},
    movement::Movement,
    repositories::Repositories,
    settings::memory,
    work::{self, Failure},
};
use crate::{
    Context, Error, Result,
    controllers::Telling,
    settings::{LogFormat, LogLevel, duration},
};

/// Where the kubelet reads a container's last words.
const LAST_WORDS: &str = "/dev/termination-log";
/// As many bytes of them as it takes.
const MOST_WORDS: usize = 3 << 10;
/// How soon the cluster is asked again when it does not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a mover that is to end waits for its lock to go.
const GRACE: Duration = Duration::from_secs(8);

/// How long before a snapshot a change may have been noted that is not in it: until it is written out,
/// and until clocks of nodes and storage agree.
const UNSETTLED: SignedDuration = SignedDuration::from_secs(600);

/// The mover's flags: Velero's, and ours.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct Settings {
    /// Where the volume is: a folder, or a device.
    #[arg(long, value_name = "PATH")]
    pub volume_path: PathBuf,
    /// What the volume is: Filesystem or Block.
    #[arg(long, value_name = "MODE", default_value = "Filesystem")]
    pub volume_mode: String,
    /// How long to wait for things that have no timeout of their own, such as a repository that
    /// somebody else has locked.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, allow_hyphen_values = true)]
    pub resource_timeout: Duration,
    /// Accepted for compatibility: the built-in engine keeps no cache on disk.
    #[arg(long, value_name = "PATH", hide = true)]
    pub cache_volume_path: Option<String>,
    /// What to log: everything from this level on.
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub log_level: LogLevel,
    /// How log lines look: text or json.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,
    /// How much file data is held in memory.
    #[arg(long, value_name = "BYTES", default_value = "128Mi", value_parser = memory)]
    pub memory: u64,
    /// Copy with this restic program instead of the built-in engine.
    #[arg(long, value_name = "FILE")]
    pub restic_binary: Option<PathBuf>,
    /// Where the verdict goes.
    #[arg(long, value_name = "FILE", default_value = LAST_WORDS, hide = true)]
    pub termination_log: PathBuf,
}

/// How a movement of data ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Verdict {
    /// The snapshot in the repository; empty for none.
    #[serde(rename = "snapshotID")]
    pub(crate) snapshot_id: String,
    /// Whether the volume was empty, and there is no snapshot for that reason.
    pub(crate) empty_snapshot: bool,
    /// What the volume is.
    pub(crate) volume_mode: String,
    /// Its bytes.
    pub(crate) total_bytes: u64,
    /// Bytes that were new to the repository.
    pub(crate) incremental_bytes: u64,
    /// Why it failed; empty if it did not.
    pub(crate) error: String,
    /// What else is to be said.
    pub(crate) message: String,
}

impl Verdict {
    /// Reads a pod's last words; none if they are no verdict.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let verdict: Self = serde_json::from_str(text).ok()?;
        (!verdict.volume_mode.is_empty() || !verdict.error.is_empty()).then_some(verdict)
    }

    /// Whether all of a volume is known to be in the repository.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.empty_snapshot || !self.snapshot_id.is_empty()
    }

    /// As last words, which must not be many.
    fn words(&self) -> String {
        let mut verdict = self.clone();
        for text in [&mut verdict.error, &mut verdict.message] {
            let end = text.floor_char_boundary(MOST_WORDS / 4);
            if end < text.len() {
                text.truncate(end);
                text.push('…');
            }
        }
        serde_json::to_string(&verdict).unwrap_or_default()
    }
}

/// What a mover moves.
trait Moved: Movement {
    fn moved(
        &self,
        mover: &Moving<'_>,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<Verdict, Failure>> + Send;
}

/// What a mover has at hand.
struct Moving<'a> {
    ctx: &'a Arc<Context>,
    settings: &'a Settings,
    repositories: Repositories,
    mode: Mode,
}

/// Moves the data of a snapshot's volume into the bucket.
///
/// # Errors
/// When it is to be begun again.
pub async fn back_up(
    client: Client,
    namespace: &str,
    upload: &str,
    settings: &Settings,
    stop: CancellationToken,
) -> Result<()> {
    run::<DataUpload>(client, namespace, upload, settings, stop).await
}

/// Moves data from the bucket into a volume.
///
/// # Errors
/// When it is to be begun again.
pub async fn restore(
    client: Client,
    namespace: &str,
    download: &str,
    settings: &Settings,
    stop: CancellationToken,
) -> Result<()> {
    run::<DataDownload>(client, namespace, download, settings, stop).await
}

async fn run<K: Moved>(
    client: Client,
    namespace: &str,
    name: &str,
    settings: &Settings,
    stop: CancellationToken,
) -> Result<()> {
    let mode = match settings.volume_mode.as_str() {
        "Filesystem" => Mode::Folder,
        "Block" => Mode::Device,
        other => return Err(Error::Setup(format!("--volume-mode {other} is not known"))),
    };
    let ctx = Arc::new(Context::new(client, namespace, crate::Settings::default()));
    tracing::info!(name, path = %settings.volume_path.display(), "waiting for its turn");
    let movement = tokio::select! {
        () = stop.cancelled() => return Err(Error::Setup("stopped before its turn".to_owned())),
        movement = turn::<K>(&ctx, name) => movement,
    };
    let Some(movement) = movement else {
        let verdict = Verdict {
            error: format!("{name} is over or gone"),
            ..Verdict::default()
        };
        return leave(settings, &verdict);
    };
    tracing::info!(name, "begins");
    let moving = Moving {
        ctx: &ctx,
        settings,
        repositories: repositories(&movement, settings),
        mode,
    };
    let progress = Arc::new(Progress::default());
    let seen = Arc::clone(&progress);
    let now = move || {
        let (total, done) = seen.get();
        json!({"status": {"progress": copy::progress(total, done)}})
    };
    let telling = Telling::every(node_settings(settings).interval(), &ctx, &movement, now);
    let moved = movement.moved(&moving, &progress, &stop).await;
    telling.end().await;
    crash::here("before mover's verdict");
    let verdict = match moved {
        Ok(verdict) => verdict,
        Err(Failure::Named(error)) => Verdict {
            error,
            ..Verdict::default()
        },
        Err(Failure::Cancelled) => {
            // The repository's lock goes while the bucket still answers.
            tokio::time::sleep(GRACE.min(Duration::from_secs(2))).await;
            return Err(Error::Setup("stopped".to_owned()));
        }
    };
    let verdict = Verdict {
        volume_mode: settings.volume_mode.clone(),
        ..verdict
    };
    tracing::info!(
        name,
        bytes = verdict.total_bytes,
        error = verdict.error,
        "is over"
    );
    leave(settings, &verdict)
}

/// The repositories of a mover. It is called after its movement, which no other mover is at.
fn repositories<K: Copy>(movement: &K, settings: &Settings) -> Repositories {
    let name = format!("data-mover-{}", movement.uid().unwrap_or_default());
    Repositories::named(&name, &node_settings(settings), 1)
}

/// The settings that repositories are opened with.
fn node_settings(settings: &Settings) -> super::Settings {
    let mut like = super::Settings::default();
    like.resource_timeout = settings.resource_timeout;
    like.restic_binary.clone_from(&settings.restic_binary);
    like.memory = settings.memory;
    like.node_name = std::env::var("NODE_NAME").unwrap_or_default();
    like
}

/// Waits until a movement may begin; none when it never will.
async fn turn<K: Moved>(ctx: &Context, name: &str) -> Option<K> {
    let is_decided = |found: Option<&K>| {
        found.is_none_or(|found| found.phase() == Phase::InProgress || found.phase().is_over())
    };
    loop {
        match await_condition(ctx.api::<K>(), name, is_decided).await {
            Ok(found) => return found.filter(|found| found.phase() == Phase::InProgress),
            Err(error) => {
                tracing::warn!(name, "watch: {error}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn leave(settings: &Settings, verdict: &Verdict) -> Result<()> {
    let file = &settings.termination_log;
    let written = std::fs::write(file, verdict.words());
    written.map_err(|error| Error::Setup(format!("write {}: {error}", file.display())))
}

impl Moving<'_> {
    async fn engine<K: Copy>(
        &self,
        movement: &K,
        cancel: &CancellationToken,
    ) -> Result<Arc<dyn Engine>, Failure> {
        let (location, namespace) = (movement.location(), movement.repository());
        tokio::select! {
            () = cancel.cancelled() => Err(Failure::Cancelled),
            engine = self.repositories.get(self.ctx, location, namespace) => Ok(engine?),
        }
    }
}

impl Moved for DataUpload {
    async fn moved(
        &self,
        mover: &Moving<'_>,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Verdict, Failure> {
        let claim = self.labels().get(label::PVC_UID);
        let parent = match claim.filter(|claim| !claim.is_empty()) {
            Some(claim) => {
                let labels = format!("{}={claim}", label::PVC_UID);
                let others = mover.ctx.list::<DataUpload>(&labels).await;
                parent(self, &others.map_err(|e| Failure::Named(e.chain()))?)
            }
            None => None,
        };
        let upload = Upload {
            source: mover.settings.volume_path.clone(),
            path: recorded(self),
            tags: tags(self),
            settled: parent.as_ref().map(|(_, settled)| *settled),
            parent: parent.map(|(id, _)| id),
            parallel: work::count(
                self.spec.data_mover_config.as_ref(),
                uploader_setting::PARALLEL_FILES_UPLOAD,
            ),
            mode: mover.mode,
        };
        let engine = mover.engine(self, cancel).await?;
        let uploaded = engine.upload(&upload, progress, cancel).await?;
        Ok(uploaded_as(uploaded))
    }
}

/// What a snapshot says that it is of.
fn recorded(upload: &DataUpload) -> String {
    let spec = &upload.spec;
    format!(
        "/data-uploads/{}/{}",
        spec.source_namespace, spec.source_pvc
    )
}

fn tags(upload: &DataUpload) -> Vec<String> {
    let of = |key: &str| upload.labels().get(key).cloned().unwrap_or_default();
    let pairs = [
        (tag::BACKUP, of(label::BACKUP_NAME)),
        (tag::BACKUP_UID, of(label::BACKUP_UID)),
        (tag::NAMESPACE, upload.spec.source_namespace.clone()),
        (tag::PVC, upload.spec.source_pvc.clone()),
        (tag::PVC_UID, of(label::PVC_UID)),
    ];
    let pair = |(key, value): (&str, String)| format!("{key}={value}");
    pairs.into_iter().map(pair).collect()
}

/// The snapshot that this one is probably much like, and since when its files are not to be believed: the
/// last one of the same claim, in the same location, of which it is known when it was taken.
fn parent(upload: &DataUpload, others: &[DataUpload]) -> Option<(String, Timestamp)> {
    let others = others.iter().filter(|other| {
        other.phase() == Phase::Completed
            && other.mover() == Mover::Ours
            && other.location() == upload.location()
            && other.repository() == upload.repository()
            && other.uid() != upload.uid()
    });
    let snapshots = others.filter_map(|other| {
        let status = other.status.as_ref()?;
        let id = status.snapshot_id.clone().filter(|id| !id.is_empty())?;
        let taken = other.annotations().get(annotation::SNAPSHOT_TIME)?;
        let settled = taken
            .parse::<Timestamp>()
            .ok()?
            .checked_sub(UNSETTLED)
            .ok()?;
        Some((status.start_timestamp, id, settled))
    });
    snapshots.max().map(|(_, id, settled)| (id, settled))
}

fn uploaded_as(uploaded: Uploaded) -> Verdict {
    let unreadable = uploaded.unreadable.as_slice();
    let mut verdict = Verdict {
        total_bytes: uploaded.bytes,
        incremental_bytes: uploaded.added,
        ..Verdict::default()
    };
    if !unreadable.is_empty() {
        let few = work::first_few(unreadable);
        let count = unreadable.len();
        verdict.error = format!("{count} files could not be read: {few}");
    } else if uploaded.snapshot.is_none() {
        verdict.empty_snapshot = true;
        verdict.message = work::EMPTY.to_owned();
    } else if !uploaded.remarks.is_empty() {
        let few = work::first_few(&uploaded.remarks);
        verdict.message = format!("not all is in the snapshot as expected: {few}");
    }
    verdict.snapshot_id = uploaded.snapshot.unwrap_or_default();
    verdict
}

impl Moved for DataDownload {
    async fn moved(
        &self,
        mover: &Moving<'_>,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<Verdict, Failure> {
        let settings = self.spec.data_mover_config.as_ref();
        let sparse = settings.and_then(|s| s.get(uploader_setting::WRITE_SPARSE_FILES));
        let download = Download {
            snapshot: self.spec.snapshot_id.clone(),
            target: mover.settings.volume_path.clone(),
            sparse: sparse.is_some_and(|value| value == "true"),
            delete_extra: false,
            parallel: work::count(settings, uploader_setting::PARALLEL_FILES_DOWNLOAD),
            mode: mover.mode,
        };
        let engine = mover.engine(self, cancel).await?;
        let downloaded = engine.download(&download, progress, cancel).await?;
        if mover.mode == Mode::Folder {
            // Whoever reads that it is done must find it done after a power failure too.
            let folder = download.target;
            let synced = tokio::task::spawn_blocking(move || sync(&folder)).await;
            let synced = synced.unwrap_or_else(|panic| Err(panic.to_string()));
            synced.map_err(Failure::Named)?;
        }
        Ok(downloaded_as(downloaded))
    }
}

/// Writes out all that a volume's file system holds in memory.
fn sync(folder: &std::path::Path) -> Result<(), String> {
    let why = |error: std::io::Error| format!("write what is in memory: {error}");
    let root = std::fs::File::open(folder).map_err(why)?;
    rustix::fs::syncfs(&root).map_err(|error| why(error.into()))
}

fn downloaded_as(downloaded: Downloaded) -> Verdict {
    let Downloaded {
        bytes,
        problems,
        remarks,
        ..
    } = downloaded;
    let mut verdict = Verdict {
        total_bytes: bytes,
        ..Verdict::default()
    };
    if !problems.is_empty() {
        let (count, few) = (problems.len(), work::first_few(&problems));
        verdict.error = format!("{count} problems: {few}");
    } else if !remarks.is_empty() {
        let few = work::first_few(&remarks);
        verdict.message = format!("the volume cannot hold all that is said of its files: {few}");
    }
    verdict
}

#[cfg(test)]
mod tests {
    use bowline_volume::Problem;

    use super::*;

    #[test]
    fn last_words_are_few_and_can_be_read() {
        let verdict = Verdict {
            snapshot_id: "s".to_owned(),
            volume_mode: "Block".to_owned(),
            total_bytes: 5,
            error: "ä".repeat(5_000),
            message: "m".repeat(5_000),
            ..Verdict::default()
        };
        let words = verdict.words();
        assert!(words.len() < 4096, "{}", words.len());
        let read = Verdict::parse(&words).unwrap();
        assert_eq!((read.snapshot_id.as_str(), read.total_bytes), ("s", 5));
        assert!(read.error.ends_with('…'));
        for words in ["Killed", "{}", r#"{"snapshotID":"s"}"#] {
            assert_eq!(Verdict::parse(words), None, "{words}");
        }
    }

    #[test]
    fn no_mover_takes_the_locks_of_another_for_its_own() {
        let mut one = DataUpload::default();
        one.metadata.uid = Some("u1".to_owned());
        let mut other = one.clone();
        other.metadata.uid = Some("u2".to_owned());
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            settings: Settings,
        }
        let line = <Line as clap::Parser>::parse_from(["", "--volume-path=/v"]);
        let names =
            [&one, &other, &one].map(|of| repositories(of, &line.settings).name().to_owned());
        assert_eq!(names[0], names[2], "its own predecessor's are");
        assert_ne!(names[0], names[1]);
        let node = Repositories::new(&node_settings(&line.settings), 1);
        assert_ne!(names[0], node.name());
    }

    #[test]
    fn what_could_not_be_read_or_written_fails() {
        let problem = || Problem {
            path: "a".to_owned(),
            reason: "bad".to_owned(),
        };
        let uploaded = Uploaded {
            snapshot: Some("s".to_owned()),
            unreadable: vec![problem()],
            ..Uploaded::default()
        };
        let verdict = uploaded_as(uploaded);
        assert_eq!(verdict.error, "1 files could not be read: a: bad");
        assert_eq!(verdict.snapshot_id, "s");
        let empty = uploaded_as(Uploaded::default());
        assert!(empty.empty_snapshot && empty.error.is_empty());
        let downloaded = Downloaded {
            problems: vec![problem()],
            ..Downloaded::default()
        };
        assert_eq!(downloaded_as(downloaded).error, "1 problems: a: bad");
        let downloaded = Downloaded {
            remarks: vec![problem()],
            ..Downloaded::default()
        };
        let verdict = downloaded_as(downloaded);
        assert!(verdict.error.is_empty() && verdict.message.ends_with("a: bad"));
    }

    #[test]
    fn the_last_upload_of_the_same_claim_is_the_parent() {
        let upload = |uid: &str, mover: &str, location: &str, started: &str| -> DataUpload {
            let taken = if uid == "old" || uid == "new" {
                started
            } else {
                ""
            };
            serde_json::from_value(json!({
                "metadata": {"name": uid, "uid": uid, "annotations": {annotation::SNAPSHOT_TIME: taken}},
                "spec": {"datamover": mover, "backupStorageLocation": location, "sourceNamespace": "shop"},
                "status": {"phase": "Completed", "snapshotID": format!("s-{uid}"), "startTimestamp": started},
            }))
            .unwrap()
        };
        let this = upload("this", "bowline", "default", "2026-01-09T00:00:00Z");
        let others = [
            upload("old", "bowline", "default", "2026-01-01T00:00:00Z"),
            upload("new", "bowline", "default", "2026-01-02T00:00:00Z"),
            upload("kopia", "velero", "default", "2026-01-03T00:00:00Z"),
            upload("far", "bowline", "other", "2026-01-04T00:00:00Z"),
            this.clone(),
        ];
        let settled = "2026-01-01T23:50:00Z".parse().unwrap();
        assert_eq!(parent(&this, &others), Some(("s-new".to_owned(), settled)));
        assert_eq!(parent(&this, &others[4..]), None);
        // When nobody knows when it was taken, nobody knows what it has.
        let bare = upload("bare", "bowline", "default", "2026-01-05T00:00:00Z");
        assert_eq!(parent(&this, &[bare]), None);
    }
}
