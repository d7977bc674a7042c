//! `bowline backup create`: a backup from flags, or from the template of a schedule.

use std::{io::Write, process::ExitCode};

use anyhow::bail;
use bowline_api::{
    StringMap, VeleroResource,
    names::label,
    v1::{Backup, BackupPhase, PodVolumeBackup, Schedule, VolumePluginBackup},
    v2alpha1::DataUpload,
};
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, ResourceExt};

use super::spec::SpecArgs;
use crate::{
    cluster::Plain,
    context::Context,
    flags::{
        self,
        metadata::add,
        names::{LONGEST_NAME, check_name},
    },
    output::{
        self, TableArgs,
        describe::{live::Live, movements::Movement, plugins::PluginVolume, pods::PodVolume},
        pace::Transfer,
    },
    wait::{self, Step, Volume, Work, count},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name; may be left out with `--from-schedule`
    name: Option<String>,

    #[command(flatten)]
    spec: SpecArgs,

    /// Wait until the backup is finished; the exit code says how it ended
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    wait: bool,

    /// Use the template of this schedule; all filters are then ignored
    #[arg(long, value_name = "SCHEDULE")]
    from_schedule: Option<String>,

    #[command(flatten)]
    output: TableArgs,
}

pub(crate) async fn run(
    args: Args,
    ctx: &Context,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let schedule = args.from_schedule.as_deref().map(str::trim);
    if schedule == Some("") {
        bail!("flag must have a non-empty value: --from-schedule");
    }
    if schedule.is_none() && args.name.is_none() {
        bail!("a backup name is required, unless you are creating based on a schedule");
    }
    if let Some(name) = &args.name {
        check_name("backup", name, LONGEST_NAME).map_err(anyhow::Error::msg)?;
    }
    let spec = args.spec.build()?;

    let prints_only = args.output.output.is_some();
    let needs_cluster = !prints_only || schedule.is_some() || args.spec.names_locations();
    let client = match needs_cluster {
        true => Some(ctx.client().await?),
        false => None,
    };
    if let Some(client) = &client {
        args.spec.check_locations(client, &ctx.namespace).await?;
    }
    let mut backup = match (schedule, &client) {
        (Some(schedule), Some(client)) => {
            let api: Api<Schedule> = Api::namespaced(client.clone(), &ctx.namespace);
            let schedule = api.get(schedule).await.plain()?;
            from_schedule(&schedule, args.name.as_deref(), Timestamp::now())
        }
        _ => Backup::new(
            &ctx.namespace,
            args.name.as_deref().unwrap_or_default(),
            spec,
        ),
    };
    args.spec.metadata.add_to(&mut backup.metadata);
    check_name("backup", &backup.name_any(), LONGEST_NAME).map_err(anyhow::Error::msg)?;

    let (Some(client), false) = (client, prints_only) else {
        output::print_one(backup, &args.output, out)?;
        return Ok(ExitCode::SUCCESS);
    };
    if schedule.is_some() {
        writeln!(
            out,
            "Creating backup from schedule, all other filters are ignored."
        )?;
    }
    let api: Api<Backup> = Api::namespaced(client, &ctx.namespace);
    wait::submit(api, &backup, args.wait, ctx, out).await
}

pub(crate) fn phase(backup: &Backup) -> BackupPhase {
    let phase = backup
        .status
        .as_ref()
        .and_then(|status| status.phase.clone());
    phase.unwrap_or(BackupPhase::New)
}

impl Volume for PodVolumeBackup {
    const OF: &'static str = label::BACKUP_NAME;

    fn transfer(&self) -> Transfer {
        PodVolume::from(self).transfer()
    }
}

impl Volume for VolumePluginBackup {
    const OF: &'static str = label::BACKUP_NAME;

    fn transfer(&self) -> Transfer {
        PluginVolume::from(self).transfer()
    }
}

impl Volume for DataUpload {
    const OF: &'static str = label::BACKUP_NAME;

    fn transfer(&self) -> Transfer {
        Movement::from(self).transfer()
    }
}

impl Work for Backup {
    type Volume = PodVolumeBackup;
    type PluginVolume = VolumePluginBackup;
    type Movement = DataUpload;

    fn step(&self) -> Step {
        let status = self.status.clone().unwrap_or_default();
        let progress = status.progress.unwrap_or_default();
        let phase = phase(self);
        Step {
            is_over: matches!(
                phase,
                BackupPhase::FailedValidation
                    | BackupPhase::Completed
                    | BackupPhase::PartiallyFailed
                    | BackupPhase::Failed
            ),
            phase: phase.to_string(),
            done: count(progress.items_backed_up),
            total: count(progress.total_items),
            warnings: count(status.warnings),
            errors: count(status.errors),
            stage: String::new(),
        }
    }
}

/// The backup that the schedule would make now.
fn from_schedule(schedule: &Schedule, name: Option<&str>, now: Timestamp) -> Backup {
    let of = schedule.name_any();
    let name = match name {
        Some(name) => name.to_owned(),
        None => {
            let stamp = now.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%S");
            format!("{of}-{stamp}")
        }
    };
    let namespace = schedule.namespace().unwrap_or_default();
    let template = &schedule.spec.template;
    let mut backup = Backup::new(&namespace, &name, template.clone());
    let given = template.metadata.as_ref().and_then(|m| m.labels.clone());
    let labels = given
        .filter(|labels| !labels.is_empty())
        .or_else(|| schedule.metadata.labels.clone());
    add(&mut backup.metadata.labels, labels);
    let own = StringMap::from([(label::SCHEDULE_NAME.to_owned(), of.clone())]);
    add(&mut backup.metadata.labels, Some(own));
    backup.metadata.annotations = schedule.metadata.annotations.clone();
    if schedule.spec.use_owner_references_in_backup == Some(true) {
        backup.metadata.owner_references = Some(vec![OwnerReference {
            api_version: format!("{}/{}", bowline_api::GROUP, Schedule::VERSION),
            kind: Schedule::KIND.to_owned(),
            name: of,
            uid: schedule.uid().unwrap_or_default(),
            controller: Some(true),
            ..Default::default()
        }]);
    }
    backup
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::{BackupMetadata, BackupProgress, BackupSpec, BackupStatus, ScheduleSpec};

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        let owned = |&(k, v): &(&str, &str)| (k.to_owned(), v.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_backup_from_a_schedule_is_named_labelled_and_owned() {
        let mut schedule = Schedule::new("velero", "nightly", ScheduleSpec::default());
        schedule.metadata.uid = Some("u".to_owned());
        schedule.metadata.labels = Some(map(&[("team", "red")]));
        schedule.metadata.annotations = Some(map(&[("a", "b")]));
        let now = "2026-11-15T03:21:47Z".parse().unwrap();
        let backup = from_schedule(&schedule, None, now);
        assert_eq!(backup.name_any(), "nightly-20261115032147");
        assert_eq!(
            backup.metadata.labels,
            Some(map(&[("team", "red"), (label::SCHEDULE_NAME, "nightly")]))
        );
        assert_eq!(backup.metadata.annotations, Some(map(&[("a", "b")])));
        assert_eq!(backup.metadata.owner_references, None);

        schedule.spec.use_owner_references_in_backup = Some(true);
        schedule.spec.template = BackupSpec {
            metadata: Some(BackupMetadata {
                labels: Some(map(&[("of", "template")])),
                ..Default::default()
            }),
            ..Default::default()
        };
        let backup = from_schedule(&schedule, Some("mine"), now);
        assert_eq!(backup.name_any(), "mine");
        assert_eq!(
            backup.metadata.labels,
            Some(map(&[
                ("of", "template"),
                (label::SCHEDULE_NAME, "nightly")
            ]))
        );
        assert_eq!(backup.metadata.owner_references.unwrap()[0].uid, "u");
    }

    #[test]
    fn waiting_ends_at_the_four_last_phases() {
        for word in BackupPhase::KNOWN {
            let mut backup = Backup::new("velero", "b", BackupSpec::default());
            backup.status = Some(BackupStatus {
                phase: Some(BackupPhase::from(*word)),
                progress: Some(BackupProgress {
                    total_items: Some(9),
                    items_backed_up: Some(4),
                    ..Default::default()
                }),
                warnings: Some(2),
                ..Default::default()
            });
            let is_over =
                ["Completed", "PartiallyFailed", "Failed", "FailedValidation"].contains(word);
            let wanted = Step {
                phase: (*word).to_owned(),
                done: 4,
                total: 9,
                warnings: 2,
                errors: 0,
                stage: String::new(),
                is_over,
            };
            assert_eq!(backup.step(), wanted);
        }
    }
}
