//! `bowline restore create --dry-run`: what a restore would do to this cluster. It happens here, with
//! the rights of whoever asks; no Restore object is made that a server could carry out.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use bowline_api::{
    files::{BackupVolumeInfo, backup_suffix},
    v1::{DownloadTargetKind, PodVolumeBackup, Restore},
};
use bowline_engine::{
    log::{Level, Log},
    progress::Progress,
    restore::{
        self, Job, Settings,
        dry::{Change, Filled, Plan, Planned, Step},
        plan::Priorities,
        pod_volume::{Copies, PodVolumes},
        source::{Installation, Source},
        validate,
    },
};
use bowline_vault::{ByteStream, Location, archive::read::Reader, bucket::backup_file};
use bytes::Bytes;
use futures::stream;
use indicatif::HumanBytes;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::Plain,
    context::Context,
    download::{Downloader, Fetched, TrustArgs},
    output::{Format, yaml},
};

/// How long to wait for the server to sign an address.
const PATIENCE: Duration = Duration::from_secs(60);
const PIECE: usize = 64 * 1024;

/// Where the archive comes from.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct DryRunArgs {
    /// Show what would happen to each object, and do nothing; the exit code says whether the restore
    /// would be clean
    #[arg(long)]
    pub(super) dry_run: bool,

    /// For a dry run: read the backup straight from its location with the credentials in this file,
    /// rather than through the server
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    location_credentials: Option<PathBuf>,
}

/// Makes the plan and shows it.
pub(super) async fn run(
    args: &DryRunArgs,
    mut restore: Restore,
    format: Option<Format>,
    ctx: &Context,
    client: &Client,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let installation = Installation {
        client: client.clone(),
        namespace: ctx.namespace.clone(),
    };
    let source = match installation.source(&mut restore).await.plain()? {
        Ok(source) => source,
        Err(errors) => bail!("the restore would be refused: {}", errors.join("; ")),
    };
    if let Some(why) = validate::format_error(&source.backup) {
        bail!("{why}");
    }
    let Files {
        archive,
        volumes,
        copies,
    } = match &args.location_credentials {
        Some(file) => from_location(&source, file).await?,
        None => from_server(ctx, client, &source).await?,
    };
    let copies = match copies {
        Some(copies) => copies,
        None => {
            let live = installation.pod_volume_backups(&source.backup).await;
            live.plain()?
        }
    };
    let pod_volumes = PodVolumes {
        copies: Arc::new(Copies::new(&copies)),
        ..PodVolumes::default()
    };
    let actions = installation
        .actions(&restore, &pod_volumes.copies)
        .await
        .plain()?;
    let log = Log::new("restore", &restore.name_any(), Level::Info);
    let job = Job {
        client: client.clone(),
        restore: Arc::new(restore.clone()),
        policies: source.policies.map(Arc::new),
        modifiers: source.modifiers.map(Arc::new),
        actions: actions.map_err(anyhow::Error::msg)?,
        volumes,
        pod_volumes,
        snapshots: None,
        downloads: None,
        settings: Settings {
            priorities: Priorities::default(),
            versions: None,
            terminating_timeout: Duration::ZERO,
            resource_timeout: Duration::ZERO,
        },
        progress: Arc::new(Progress::default()),
        log: log.clone(),
        cancel: CancellationToken::new(),
        since: ctx.clock().now,
        resumed: false,
    };
    let plan = restore::rehearse(job, archive).await?;
    let log = log.take();
    let remarks = findings(&log.results);
    let is_clean = log.errors == 0
        && plan.items.iter().all(|item| item.step.is_clean())
        && plan.volumes.iter().all(|volume| volume.problem.is_none());
    show(&restore, &plan, &remarks, is_clean, format, out)?;
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What is needed of a backup.
struct Files {
    archive: Reader,
    volumes: Vec<BackupVolumeInfo>,
    /// Its pod volumes; none where the cluster is to be asked.
    copies: Option<Vec<PodVolumeBackup>>,
}

/// The files of the backup, by addresses that the server signs. It signs none for pod volumes.
async fn from_server(ctx: &Context, client: &Client, source: &Source) -> anyhow::Result<Files> {
    let trust = TrustArgs::default();
    let downloader = Downloader::of_backup(ctx, client, &trust, &source.backup).await?;
    let mut file = tempfile::tempfile().context("make a temporary file")?;
    let contents = DownloadTargetKind::BackupContents;
    if downloader.fetch(contents, PATIENCE, &mut file).await? == Fetched::Missing {
        bail!("error downloading backup: its archive is not in the bucket");
    }
    file.rewind()?;
    let infos = DownloadTargetKind::BackupVolumeInfos;
    let volumes = match downloader.fetch_bytes(infos, PATIENCE).await? {
        Some(bytes) => serde_json::from_slice(&bytes).context("read the backup's volume info")?,
        None => Vec::new(),
    };
    let key = backup_file(&source.backup.name_any(), backup_suffix::CONTENTS);
    Ok(Files {
        archive: Reader::new(&key, pieces(file)),
        volumes,
        copies: None,
    })
}

/// The same, straight from the store.
async fn from_location(source: &Source, credentials: &PathBuf) -> anyhow::Result<Files> {
    let credential =
        std::fs::read(credentials).with_context(|| format!("read {}", credentials.display()))?;
    let bucket = bowline_vault::open(&Location {
        object: source.location.clone(),
        credential: (!credential.is_empty()).then_some(credential),
        ..Location::default()
    })?;
    let backup = source.backup.name_any();
    let infos = backup_file(&backup, backup_suffix::VOLUME_INFO);
    let volumes = bucket.json(&infos).await?.unwrap_or_default();
    let copies = backup_file(&backup, backup_suffix::POD_VOLUME_BACKUPS);
    let copies: Option<Option<Vec<PodVolumeBackup>>> = bucket.json(&copies).await?;
    let key = backup_file(&backup, backup_suffix::CONTENTS);
    let body = bucket.get(&key).await.context("error downloading backup")?;
    Ok(Files {
        archive: Reader::new(&key, body),
        volumes,
        copies: copies.map(Option::unwrap_or_default),
    })
}

/// A file as it is read.
fn pieces(file: File) -> ByteStream {
    Box::pin(stream::unfold(Some(file), |file| async move {
        let mut file = file?;
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece) {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(Bytes::from(piece)), Some(file)))
            }
            Err(error) => {
                let failed = bowline_vault::Error::Store {
                    action: "read the downloaded archive".to_owned(),
                    reason: error.to_string(),
                    retryable: false,
                };
                Some((Err(failed), None))
            }
        }
    }))
}

/// Warnings and errors besides those of single objects.
fn findings(results: &bowline_api::files::Results) -> Vec<String> {
    let errors = results.errors.velero.iter().flatten();
    let warnings = results.warnings.velero.iter().flatten();
    let collisions = results.errors.namespaces.iter().flatten();
    errors
        .chain(warnings)
        .chain(collisions.flat_map(|(_, list)| list))
        .cloned()
        .collect()
}

/// How many objects meet which fate.
fn totals(plan: &Plan) -> Vec<(&'static str, usize)> {
    [
        "create",
        "update",
        "unchanged",
        "skip",
        "conflict",
        "refused",
    ]
    .into_iter()
    .map(|word| {
        let items = plan.items.iter().filter(|item| item.step.word() == word);
        (word, items.count())
    })
    .collect()
}

fn show(
    restore: &Restore,
    plan: &Plan,
    remarks: &[String],
    is_clean: bool,
    format: Option<Format>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let backup = restore.spec.backup_name.as_deref().unwrap_or_default();
    let totals = totals(plan);
    if let Some(format @ (Format::Json | Format::Yaml)) = format {
        let counts: serde_json::Map<String, Value> = totals
            .iter()
            .map(|(word, count)| ((*word).to_owned(), json!(count)))
            .collect();
        let value = json!({
            "restore": restore.name_any(),
            "backup": backup,
            "items": plan.items,
            "missing": plan.missing,
            "volumes": plan.volumes,
            "remarks": remarks,
            "totals": counts,
            "clean": is_clean,
        });
        match format {
            Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?,
            _ => write!(out, "{}", yaml::to_string(&value))?,
        }
        return Ok(());
    }
    writeln!(out, "A restore of backup {backup} would do this:\n")?;
    let width =
        |of: fn(&Planned) -> &str| plan.items.iter().map(|i| of(i).len()).max().unwrap_or(0);
    let (kinds, namespaces) = (width(|i| &i.resource), width(|i| &i.namespace));
    for item in &plan.items {
        let line = format!(
            "{:<10} {:<kinds$}  {:<namespaces$}  {}",
            item.step.word(),
            item.resource,
            item.namespace,
            item.name
        );
        match &item.step {
            Step::Skip { why } | Step::Refused { why } => writeln!(out, "{line}  ({why})")?,
            Step::Update { changes } | Step::Conflict { changes } => {
                writeln!(out, "{line}")?;
                for change in changes {
                    writeln!(out, "             {}", in_words(change))?;
                }
            }
            Step::Create | Step::Unchanged => writeln!(out, "{line}")?,
        }
    }
    if !plan.volumes.is_empty() {
        writeln!(out, "\nVolumes:")?;
    }
    for volume in &plan.volumes {
        writeln!(out, "{}", filled(volume))?;
    }
    for missing in &plan.missing {
        writeln!(out, "\nThe cluster does not have: {missing}")?;
    }
    for remark in remarks {
        writeln!(out, "\n{remark}")?;
    }
    let counts: Vec<String> = totals
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    let total = plan.items.len();
    writeln!(
        out,
        "\n{total} objects: {}. Nothing was changed.",
        counts.join(", ")
    )?;
    if !is_clean {
        writeln!(out, "The restore would not be clean.")?;
    }
    Ok(())
}

/// `fill       shop/web  data  from snapshot 1a2b3c4d, 200.00 MiB`.
fn filled(volume: &Filled) -> String {
    let Filled {
        namespace,
        pod,
        volume: name,
        ..
    } = volume;
    let claim = volume.claim.as_ref();
    let (what, claim) = match (pod.as_str(), claim) {
        ("", Some(claim)) => (format!("{namespace}/{claim}"), String::new()),
        (pod, Some(claim)) => (
            format!("{namespace}/{pod}  {name}"),
            format!(" (claim {claim})"),
        ),
        (pod, None) => (format!("{namespace}/{pod}  {name}"), String::new()),
    };
    if let Some(why) = &volume.problem {
        return format!("unfilled   {what}  ({why})");
    }
    let snapshot = volume.snapshot.as_deref().unwrap_or_default();
    let bytes = volume.bytes.and_then(|bytes| u64::try_from(bytes).ok());
    let bytes = bytes.map_or_else(String::new, |bytes| format!(", {}", HumanBytes(bytes)));
    format!("fill       {what}{claim}  from snapshot {snapshot}{bytes}")
}

/// `/spec/replicas: 1 in the cluster, 3 in the backup`.
fn in_words(change: &Change) -> String {
    const LONGEST: usize = 60;
    let short = |value: &Value| {
        let text = value.to_string();
        match text.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        }
    };
    let path = &change.path;
    match (&change.from, &change.to) {
        (Some(from), Some(to)) => {
            format!(
                "{path}: {} in the cluster, {} in the backup",
                short(from),
                short(to)
            )
        }
        (Some(from), None) => format!("{path}: {} in the cluster only", short(from)),
        (None, Some(to)) => format!("{path}: {} in the backup only", short(to)),
        (None, None) => path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::RestoreSpec;

    use super::*;

    fn plan() -> Plan {
        let item = |name: &str, step| Planned {
            resource: "configmaps".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            step,
        };
        let changes = vec![Change {
            path: "/data/a".to_owned(),
            from: Some(json!("x".repeat(80))),
            to: None,
        }];
        Plan {
            items: vec![
                item("new", Step::Create),
                item("other", Step::Conflict { changes }),
                item(
                    "old",
                    Step::Skip {
                        why: "it is complete".to_owned(),
                    },
                ),
            ],
            missing: vec!["StorageClass fast (for persistentvolumeclaims shop/data)".to_owned()],
            volumes: vec![
                Filled {
                    namespace: "shop".to_owned(),
                    pod: "web".to_owned(),
                    volume: "data".to_owned(),
                    claim: Some("c".to_owned()),
                    snapshot: Some("1a2b3c4d".to_owned()),
                    bytes: Some(200 << 20),
                    problem: None,
                },
                Filled {
                    namespace: "shop".to_owned(),
                    pod: "web".to_owned(),
                    volume: "old".to_owned(),
                    problem: Some("kopia".to_owned()),
                    ..Filled::default()
                },
                Filled {
                    namespace: "shop".to_owned(),
                    claim: Some("moved".to_owned()),
                    snapshot: Some("5e6f".to_owned()),
                    bytes: Some(1 << 20),
                    ..Filled::default()
                },
            ],
        }
    }

    #[test]
    fn a_plan_is_a_line_for_each_object() {
        let spec = RestoreSpec {
            backup_name: Some("b".to_owned()),
            ..RestoreSpec::default()
        };
        let restore = Restore::new("velero", "r", spec);
        let mut out = Vec::new();
        show(&restore, &plan(), &[], false, None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let wanted = format!(
            "A restore of backup b would do this:

create     configmaps  shop  new
conflict   configmaps  shop  other
             /data/a: \"{}… in the cluster only
skip       configmaps  shop  old  (it is complete)

Volumes:
fill       shop/web  data (claim c)  from snapshot 1a2b3c4d, 200.00 MiB
unfilled   shop/web  old  (kopia)
fill       shop/moved  from snapshot 5e6f, 1.00 MiB

The cluster does not have: StorageClass fast (for persistentvolumeclaims shop/data)

3 objects: 1 create, 1 skip, 1 conflict. Nothing was changed.
The restore would not be clean.
",
            "x".repeat(59)
        );
        assert_eq!(text, wanted);
        let mut out = Vec::new();
        show(&restore, &plan(), &[], false, Some(Format::Json), &mut out).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["items"][1]["action"], "conflict");
        assert_eq!(value["totals"]["conflict"], 1);
        assert_eq!(value["clean"], false);
    }
}
