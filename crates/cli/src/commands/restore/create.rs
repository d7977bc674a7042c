//! `bowline restore create`: a restore from a backup, or from the newest backup of a schedule.

use std::{io::Write, process::ExitCode};

use anyhow::{bail, ensure};
use bowline_api::{
    names::{annotation, label},
    v1::{Backup, BackupPhase, PodVolumeRestore, Restore, RestorePhase, VolumePluginRestore},
    v2alpha1::DataDownload,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{dry_run, phase, spec::SpecArgs};
use crate::{
    cluster::{Hinted, Plain},
    context::Context,
    flags::{
        self, OptionalBool,
        metadata::MetadataArgs,
        names::{LONGEST_NAME, check_label_value, check_name},
    },
    output::{
        self, TableArgs,
        describe::{live::Live, movements::Movement, plugins::PluginVolume, pods::PodVolume},
        pace::Transfer,
        time::Clock,
    },
    wait::{self, Step, Volume, Work, count},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name; without it, that of the backup or schedule with the time
    name: Option<String>,

    /// The backup to restore from
    #[arg(long, value_name = "BACKUP")]
    from_backup: Option<String>,

    /// The schedule whose newest completed backup to restore from
    #[arg(long, value_name = "SCHEDULE")]
    from_schedule: Option<String>,

    /// Whether a partially failed backup of the schedule is good enough
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    allow_partially_failed: Option<OptionalBool>,

    #[command(flatten)]
    spec: SpecArgs,

    #[command(flatten)]
    metadata: MetadataArgs,

    #[command(flatten)]
    dry: dry_run::DryRunArgs,

    /// Wait until the restore is finished; the exit code says how it ended
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    wait: bool,

    #[command(flatten)]
    output: TableArgs,
}

/// What is restored from, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// This backup.
    Backup(String),
    /// The newest backup of this schedule, which the server picks.
    Schedule(String),
}

pub(crate) async fn run(
    args: Args,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    args.check()?;
    let client = ctx.client().await?;
    let source = args.source(&client, &ctx.namespace).await?;
    let restore = args.restore(source, &ctx.namespace, &ctx.clock());
    if args.dry.dry_run {
        let format = args.output.output;
        return dry_run::run(&args.dry, restore, format, ctx, &client, out).await;
    }
    if args.output.output.is_some() {
        output::print_one(restore, &args.output, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let api: Api<Restore> = Api::namespaced(client, &ctx.namespace);
    wait::submit(api, &restore, args.wait, ctx, out).await
}

impl Args {
    /// What is wrong with the flags, if anything. No cluster is asked.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.named_source()?;
        self.spec.check()?;
        self.metadata.check()?;
        match &self.name {
            Some(name) => check_name("restore", name, LONGEST_NAME).map_err(anyhow::Error::msg),
            None => Ok(()),
        }
    }

    /// The one of the two flags that was given.
    fn named_source(&self) -> anyhow::Result<Source> {
        let given = |flag: &Option<String>| flag.clone().filter(|name| !name.is_empty());
        match (given(&self.from_backup), given(&self.from_schedule)) {
            (Some(name), None) => Ok(Source::Backup(name)),
            (None, Some(name)) => Ok(Source::Schedule(name)),
            _ => bail!("either a backup or schedule must be specified, but not both"),
        }
    }

    /// What to restore from, known to exist. A schedule stays one, for the server to pick its newest
    /// completed backup, unless partially failed ones are good enough.
    pub(super) async fn source(&self, client: &Client, namespace: &str) -> anyhow::Result<Source> {
        let backups: Api<Backup> = Api::namespaced(client.clone(), namespace);
        match self.named_source()? {
            Source::Backup(name) => {
                exists(&backups, &name).await?;
                Ok(Source::Backup(name))
            }
            Source::Schedule(name) => {
                let made = backups_of(&backups, &name).await?;
                ensure!(!made.is_empty(), "No backups found for the schedule {name}");
                let picks = OptionalBool::position(self.allow_partially_failed) == Some(true);
                match newest(&made).filter(|_| picks) {
                    Some(backup) => Ok(Source::Backup(backup.name_any())),
                    None => Ok(Source::Schedule(name)),
                }
            }
        }
    }

    /// The object that the flags describe.
    pub(super) fn restore(&self, source: Source, namespace: &str, clock: &Clock) -> Restore {
        let mut spec = self.spec.build();
        match source {
            Source::Backup(name) => spec.backup_name = Some(name),
            Source::Schedule(name) => spec.schedule_name = Some(name),
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => self.default_name(clock),
        };
        let mut restore = Restore::new(namespace, &name, spec);
        self.metadata.add_to(&mut restore.metadata);
        restore
    }

    /// What the flags name, and the time here.
    fn default_name(&self, clock: &Clock) -> String {
        let schedule = self.from_schedule.as_ref().filter(|name| !name.is_empty());
        let of = schedule.or(self.from_backup.as_ref());
        let now = clock.now.to_zoned(clock.zone.clone());
        let of = of.map_or("", String::as_str);
        format!("{of}-{}", now.strftime("%Y%m%d%H%M%S"))
    }
}

async fn exists(backups: &Api<Backup>, name: &str) -> anyhow::Result<()> {
    match backups.get(name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Hinted::error(
            status.message,
            "`bowline backup get` shows the backups that there are",
        )),
        other => other.map(drop).plain(),
    }
}

/// The backups that a schedule made; none if no label could name it.
async fn backups_of(backups: &Api<Backup>, schedule: &str) -> anyhow::Result<Vec<Backup>> {
    if check_label_value(schedule).is_err() {
        return Ok(Vec::new());
    }
    let of = format!("{}={schedule}", label::SCHEDULE_NAME);
    let made = backups.list(&ListParams::default().labels(&of)).await;
    Ok(made.plain()?.items)
}

/// The backup that began last among those that hold something.
fn newest(backups: &[Backup]) -> Option<&Backup> {
    let phase = |backup: &Backup| backup.status.as_ref().and_then(|s| s.phase.clone());
    let is_good = |backup: &&Backup| {
        matches!(
            phase(backup),
            Some(BackupPhase::Completed | BackupPhase::PartiallyFailed)
        )
    };
    let began = |backup: &&Backup| backup.status.as_ref().and_then(|s| s.start_timestamp);
    backups.iter().filter(is_good).max_by_key(began)
}

impl Volume for PodVolumeRestore {
    const OF: &'static str = label::RESTORE_NAME;

    fn transfer(&self) -> Transfer {
        PodVolume::from(self).transfer()
    }
}

impl Volume for VolumePluginRestore {
    const OF: &'static str = label::RESTORE_NAME;

    fn transfer(&self) -> Transfer {
        PluginVolume::from(self).transfer()
    }
}

impl Volume for DataDownload {
    const OF: &'static str = label::RESTORE_NAME;

    fn transfer(&self) -> Transfer {
        Movement::from(self).transfer()
    }
}

impl Work for Restore {
    type Volume = PodVolumeRestore;
    type PluginVolume = VolumePluginRestore;
    type Movement = DataDownload;

    fn step(&self) -> Step {
        let status = self.status.clone().unwrap_or_default();
        let progress = status.progress.unwrap_or_default();
        let phase = phase(self);
        Step {
            is_over: matches!(
                phase,
                RestorePhase::FailedValidation
                    | RestorePhase::Completed
                    | RestorePhase::PartiallyFailed
                    | RestorePhase::Failed
            ),
            phase: phase.to_string(),
            done: count(progress.items_restored),
            total: count(progress.total_items),
            warnings: count(status.warnings),
            errors: count(status.errors),
            stage: self
                .annotations()
                .get(annotation::RESTORE_STAGE)
                .cloned()
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::{BackupSpec, BackupStatus, RestoreProgress, RestoreSpec, RestoreStatus};
    use clap::Parser;
    use jiff::tz::TimeZone;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let words = ["create"].iter().chain(words);
        Line::try_parse_from(words).unwrap().args
    }

    #[test]
    fn a_restore_is_named_after_its_source_and_the_time_here() {
        let clock = Clock {
            now: "2026-11-15T03:21:47Z".parse().unwrap(),
            zone: TimeZone::posix("CST-8").unwrap(),
        };
        for (words, name) in [
            (&["--from-backup", "b"][..], "b-20261115112147"),
            (&["--from-schedule", "s"], "s-20261115112147"),
            (&["mine", "--from-schedule", "s"], "mine"),
        ] {
            // A schedule may have turned into one of its backups by then.
            let source = Source::Backup("other".to_owned());
            let restore = args(words).restore(source, "velero", &clock);
            assert_eq!(restore.name_any(), name);
            assert_eq!(restore.spec.backup_name.as_deref(), Some("other"));
            assert_eq!(restore.spec.schedule_name, None);
        }
    }

    #[test]
    fn exactly_one_source_is_named() {
        for (words, wanted) in [
            (
                &["--from-backup", "b"][..],
                Some(Source::Backup("b".to_owned())),
            ),
            (
                &["--from-schedule", "s", "--from-backup="],
                Some(Source::Schedule("s".to_owned())),
            ),
            (&[], None),
            (&["--from-backup="], None),
            (&["--from-schedule", "s", "--from-backup", "b"], None),
        ] {
            assert_eq!(args(words).named_source().ok(), wanted, "{words:?}");
        }
    }

    #[test]
    fn the_newest_backup_that_holds_something_is_picked() {
        let backup = |name: &str, phase: &str, began: Option<&str>| {
            let mut backup = Backup::new("velero", name, BackupSpec::default());
            backup.status = Some(BackupStatus {
                phase: Some(BackupPhase::from(phase)),
                start_timestamp: began.map(|time| bowline_api::Time(time.parse().unwrap())),
                ..Default::default()
            });
            backup
        };
        let mut backups = vec![
            backup("old", "Completed", Some("2026-11-13T00:00:00Z")),
            backup("partly", "PartiallyFailed", Some("2026-11-14T00:00:00Z")),
            backup("failed", "Failed", Some("2026-11-15T00:00:00Z")),
            backup("queued", "Queued", None),
        ];
        let picked = |backups: &[Backup]| newest(backups).map(ResourceExt::name_any);
        assert_eq!(picked(&backups).as_deref(), Some("partly"));
        backups.remove(1);
        assert_eq!(picked(&backups).as_deref(), Some("old"));
        backups.remove(0);
        assert_eq!(picked(&backups), None);
    }

    #[test]
    fn waiting_ends_at_the_four_last_phases() {
        for word in RestorePhase::KNOWN {
            let mut restore = Restore::new("velero", "r", RestoreSpec::default());
            restore.status = Some(RestoreStatus {
                phase: Some(RestorePhase::from(*word)),
                progress: Some(RestoreProgress {
                    total_items: Some(9),
                    items_restored: Some(4),
                    ..Default::default()
                }),
                warnings: Some(3),
                ..Default::default()
            });
            let is_over =
                ["Completed", "PartiallyFailed", "Failed", "FailedValidation"].contains(word);
            let wanted = Step {
                phase: (*word).to_owned(),
                done: 4,
                total: 9,
                warnings: 3,
                errors: 0,
                stage: String::new(),
                is_over,
            };
            assert_eq!(restore.step(), wanted);
        }
    }
}
