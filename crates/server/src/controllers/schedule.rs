//! Schedule: makes a Backup whenever one is due.
//!
//! The name of that Backup follows from the time it was due, so that a server that dies right after
//! making it finds it again instead of making another.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    Time,
    names::label,
    v1::{Backup, BackupPhase, Schedule, SchedulePhase as Phase},
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, after};
use crate::{Context, Result, cron};

/// The controller's name.
pub const NAME: &str = "schedule";

/// How long to wait for a backup that is in the way.
const BUSY: Duration = Duration::from_secs(15);

/// Looks after schedules until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let schedules = Schedules {
        ctx: Arc::clone(&ctx),
        zone: TimeZone::system(),
    };
    super::run(&ctx, schedules).await;
}

struct Schedules {
    ctx: Arc<Context>,
    /// The zone of expressions that name none, and of names.
    zone: TimeZone,
}

/// What a schedule needs, once its spec and status are in order.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing until its next time; none means it never has one.
    Wait(Option<SignedDuration>),
    /// A backup is due, but an earlier one is not done.
    Busy(String),
    /// A backup with this name is due.
    Start(String),
    /// The backup that is due was made already; only the status does not say so yet.
    Adopt,
}

/// The times of a schedule, or what is wrong with them.
fn times(schedule: &Schedule) -> Result<cron::Schedule, String> {
    let text = &schedule.spec.schedule;
    if text.is_empty() {
        return Err("Schedule must be a non-empty valid Cron expression".to_owned());
    }
    cron::Schedule::parse(text).map_err(|why| format!("invalid schedule: {why}"))
}

/// The schedule with its verdict, and with `skipImmediately` taken in. A paused one gets the verdict
/// only.
fn settled(
    schedule: &Schedule,
    verdict: Result<(), &String>,
    skip_immediately: bool,
    now: Timestamp,
) -> Schedule {
    let mut new = schedule.clone();
    if schedule.spec.paused != Some(true) {
        let skip = schedule.spec.skip_immediately.unwrap_or(skip_immediately);
        new.spec.skip_immediately = Some(false);
        if skip {
            new.status_mut().last_skipped = Some(Time(now));
        }
    }
    let status = new.status_mut();
    (status.phase, status.validation_errors) = match verdict {
        Ok(()) => (Some(Phase::Enabled), None),
        Err(why) => (Some(Phase::FailedValidation), Some(vec![why.clone()])),
    };
    new
}

/// What a sound schedule needs. `backups` are those that it made.
fn next(
    schedule: &Schedule,
    times: &cron::Schedule,
    backups: &[Backup],
    now: Timestamp,
    zone: &TimeZone,
) -> Step {
    let base = base(schedule);
    let wait = |from| {
        let next = times.next(from, zone);
        Step::Wait(next.map(|next| next.duration_since(now)))
    };
    let is_going = schedule.metadata.deletion_timestamp.is_some();
    if is_going || schedule.spec.paused == Some(true) {
        return Step::Wait(None);
    }
    // Missed times collapse into one: the newest.
    let Some(due) = times.latest(base, now, zone) else {
        return wait(base);
    };
    let name = backup_name(schedule, due, zone);
    if backups.iter().any(|backup| backup.name_any() == name) {
        return Step::Adopt;
    }
    match backups.iter().find(|backup| is_in_the_way(backup)) {
        Some(backup) => Step::Busy(backup.name_any()),
        None => Step::Start(name),
    }
}

/// The time from which on the schedule counts.
fn base(schedule: &Schedule) -> Timestamp {
    let status = schedule.status.as_ref();
    let last = status
        .and_then(|status| status.last_backup)
        .map(|time| time.0)
        .or_else(|| schedule.creation_timestamp().map(|time| time.0))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let skipped = status.and_then(|status| status.last_skipped);
    skipped.map_or(last, |skipped| skipped.0.max(last))
}

fn is_in_the_way(backup: &Backup) -> bool {
    let phase = backup.status.as_ref().and_then(|s| s.phase.as_ref());
    match phase {
        None | Some(BackupPhase::New | BackupPhase::InProgress) => true,
        Some(phase) => phase.as_str().is_empty(),
    }
}

/// `<schedule>-<time>`, in local time as in Velero, up to a minute after the backup was due. By how
/// many seconds comes from the schedule's uid: clusters that share a bucket and have the same
/// schedules would else name their backups alike.
fn backup_name(schedule: &Schedule, due: Timestamp, zone: &TimeZone) -> String {
    let uid = schedule.uid().unwrap_or_default();
    let sum: u32 = uid.bytes().fold(0, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    let time = due + SignedDuration::from_secs((sum % 60).into());
    let time = time.to_zoned(zone.clone());
    format!("{}-{}", schedule.name_any(), time.strftime("%Y%m%d%H%M%S"))
}

/// The backup that a schedule makes.
fn backup_of(schedule: &Schedule, name: &str) -> Backup {
    let namespace = schedule.namespace().unwrap_or_default();
    let mut backup = Backup::new(&namespace, name, schedule.spec.template.clone());
    let template = schedule.spec.template.metadata.as_ref();
    let mut labels = template
        .and_then(|metadata| metadata.labels.clone())
        .or_else(|| schedule.metadata.labels.clone())
        .unwrap_or_default();
    labels.insert(label::SCHEDULE_NAME.to_owned(), schedule.name_any());
    backup.metadata.labels = Some(labels);
    backup.metadata.annotations = schedule.metadata.annotations.clone();
    if schedule.spec.use_owner_references_in_backup == Some(true) {
        backup.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "velero.io/v1".to_owned(),
            kind: "Schedule".to_owned(),
            name: schedule.name_any(),
            uid: schedule.uid().unwrap_or_default(),
            controller: Some(true),
            ..Default::default()
        }]);
    }
    if let Some(policy) = &mut backup.spec.resource_policy {
        *policy = TypedLocalObjectReference {
            kind: "configmap".to_owned(),
            name: std::mem::take(&mut policy.name),
            api_group: None,
        };
    }
    backup
}

impl Reconciler for Schedules {
    type Object = Schedule;
    const NAME: &'static str = NAME;

    async fn reconcile(self: Arc<Self>, schedule: Arc<Schedule>) -> Result<Action> {
        let ctx = &self.ctx;
        let name = schedule.name_any();
        ctx.metrics.schedule_seen(&name);
        let times = times(&schedule);
        let new = settled(
            &schedule,
            times.as_ref().map(|_| ()),
            ctx.settings.schedule_skip_immediately,
            ctx.now(),
        );
        self.report(&schedule, &new, &times);
        let schedule = ctx.update(&*schedule, &new).await?;
        let Ok(times) = times else {
            return Ok(after(SignedDuration::MAX));
        };
        let backups = ctx
            .list::<Backup>(&format!("{}={name}", label::SCHEDULE_NAME))
            .await?;
        let now = ctx.now();
        match next(&schedule, &times, &backups, now, &self.zone) {
            Step::Wait(wait) => return Ok(after(wait.unwrap_or(SignedDuration::MAX))),
            Step::Busy(backup) => {
                tracing::debug!(schedule = name, backup, "due, but an earlier backup runs");
                return Ok(Action::requeue(BUSY));
            }
            Step::Start(backup) => {
                if ctx.create(&backup_of(&schedule, &backup)).await?.is_some() {
                    tracing::info!(schedule = name, backup, "schedule is due, backup created");
                }
            }
            Step::Adopt => {}
        }
        let mut new = schedule.clone();
        new.status_mut().last_backup = Some(Time(now));
        let schedule = ctx.update(&schedule, &new).await?;
        let wait = times.next(base(&schedule), &self.zone);
        let wait = wait.map(|next| next.duration_since(ctx.now()));
        Ok(after(wait.unwrap_or(SignedDuration::MAX)))
    }

    fn gone(&self, name: &str) {
        self.ctx.metrics.schedule_gone(name);
    }
}

impl Schedules {
    /// Tells what is new about a schedule.
    fn report(&self, old: &Schedule, new: &Schedule, times: &Result<cron::Schedule, String>) {
        let phase = |schedule: &Schedule| schedule.status.as_ref().and_then(|s| s.phase.clone());
        if phase(old) == phase(new) {
            return;
        }
        let schedule = old.name_any();
        match times {
            Err(why) => tracing::warn!(schedule, "schedule refused: {why}"),
            Ok(times) if times.next(self.ctx.now(), &self.zone).is_none() => tracing::warn!(
                schedule,
                "schedule accepted, but {:?} never comes: no backup will be made",
                old.spec.schedule
            ),
            Ok(_) => tracing::info!(schedule, "schedule accepted"),
        }
    }
}

#[cfg(test)]
mod tests;
